//! UTP: quotes from the securities information processor of tape C.

pub mod uqdf15;
