//! The `machine!` macro of `tapeworks-dispatch`.
//!
//! Three passes, one file each: `declaration` parses the tokens into a tree, `check` finds the rows that apply to each pair of
//! state and event and reports each fault at the token that caused it, and `generate` writes the Rust code. `diagram` draws the
//! diagram. The syntax is documented in `tapeworks_dispatch`.

mod check;
mod declaration;
mod diagram;
mod generate;

use proc_macro::TokenStream;

/// Declares a state machine: see the crate documentation of `tapeworks_dispatch`.
#[proc_macro]
pub fn machine(input: TokenStream) -> TokenStream {
    let declaration = match syn::parse::<declaration::Declaration>(input) {
        Ok(declaration) => declaration,
        Err(error) => return error.into_compile_error().into(),
    };
    match check::check(&declaration) {
        Ok(plan) => generate::generate(&declaration, &plan).into(),
        Err(error) => error.into_compile_error().into(),
    }
}
