//! The macros `protocol!` of `tapeworks-wire` and `fix!` of `tapeworks-fix-wire`.
//!
//! Each macro works in three passes, one file each: `declaration` parses the tokens into a tree, `check` validates the tree
//! (every byte declared once, lengths, tags, names, types) and reports each error at the token that caused it, and `generate`
//! writes the Rust code. Those crates document the syntax next to the code that the expansions rely on.

mod check;
mod declaration;
mod fix;
mod generate;

use proc_macro::TokenStream;

/// Declares a wire protocol. The crate documentation of `tapeworks_wire` describes the syntax.
#[proc_macro]
pub fn protocol(input: TokenStream) -> TokenStream {
    let declaration = match syn::parse::<declaration::Declaration>(input) {
        Ok(declaration) => declaration,
        Err(error) => return error.into_compile_error().into(),
    };
    match check::check(&declaration) {
        Ok(()) => generate::generate(&declaration).into(),
        Err(error) => error.into_compile_error().into(),
    }
}

/// Declares FIX messages. The crate documentation of `tapeworks_fix_wire` describes the syntax.
#[proc_macro]
pub fn fix(input: TokenStream) -> TokenStream {
    let declaration = match syn::parse::<fix::Declaration>(input) {
        Ok(declaration) => declaration,
        Err(error) => return error.into_compile_error().into(),
    };
    match fix::check(&declaration) {
        Ok(()) => fix::generate(&declaration).into(),
        Err(error) => error.into_compile_error().into(),
    }
}
