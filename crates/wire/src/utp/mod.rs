//! UTP: the quotes of the securities information processor of tape C.

pub mod uqdf15;
