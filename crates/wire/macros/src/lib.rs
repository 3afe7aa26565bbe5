//! The `protocol!` and `fix!` macros of `tapeworks-wire`.
//!
//! Three passes, one file each: `declaration` reads the tokens into a tree, `check` holds it against the
//! rules (every byte declared once, lengths, tags, names, types) and reports each fault at the token that
//! caused it, `generate` writes the Rust. The syntax is documented in `tapeworks_wire`, beside the code that
//! the expansion relies on.

mod check;
mod declaration;
mod fix;
mod generate;

use proc_macro::TokenStream;

/// Declares a wire protocol: see the crate documentation of `tapeworks_wire`.
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

/// Declares FIX messages: see the module `fix` of `tapeworks_wire`.
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
