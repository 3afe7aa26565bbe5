//! CTA: the transport of the securities information processor of tapes A and B, and its quotes.

pub mod block;
pub mod cqs191;
