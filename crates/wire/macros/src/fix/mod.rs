//! The `fix!` macro: FIX messages as a declaration.
//!
//! As for `protocol!`: [`declaration`] reads the tokens, [`check`] holds them against the rules, [`generate`] writes the Rust.

mod check;
mod declaration;
mod generate;
mod schema;

pub(crate) use check::check;
pub(crate) use declaration::Declaration;
pub(crate) use generate::generate;
