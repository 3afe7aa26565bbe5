//! CTA: transport and quotes of the securities information processor of tapes A and B.

pub mod block;
pub mod cqs191;
