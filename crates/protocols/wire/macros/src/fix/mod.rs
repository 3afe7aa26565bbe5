//! The `fix!` macro: FIX messages as a declaration.
//!
//! As in `protocol!`, [`declaration`] parses the tokens, [`check`] validates them, and [`generate`] writes the Rust code.

mod check;
mod declaration;
mod generate;
mod schema;

pub(crate) use check::check;
pub(crate) use declaration::Declaration;
pub(crate) use generate::generate;
