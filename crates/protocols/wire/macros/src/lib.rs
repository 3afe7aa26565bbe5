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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{check, declaration, generate};

    /// Returns the code that a declaration expands to.
    fn expansion(declaration: &str) -> String {
        let declaration = syn::parse_str::<declaration::Declaration>(declaration).unwrap();
        check::check(&declaration).unwrap();
        prettyplease::unparse(&syn::parse2(generate::generate(&declaration)).unwrap())
    }

    /// The page has two blocks of Rust: a declaration, and its expansion.
    #[test]
    fn the_book_shows_the_expansion_of_its_declaration() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/declarations.txt");
        let page = std::fs::read_to_string(&path).unwrap();
        let (before, after) = page.split_once("<!-- expansion -->\n").unwrap();
        let (_, after) = after.split_once("<!-- end -->\n").unwrap();
        let (_, declared) = before.split_once("protocol! {").unwrap();
        let (declared, _) = declared.split_once("\n}\n```").unwrap();
        let expanded = expansion(declared);
        let wanted = format!("{before}<!-- expansion -->\n```rust\n{expanded}```\n<!-- end -->\n{after}");
        if std::env::var_os("TAPEWORKS_BLESS").is_some() {
            std::fs::write(&path, &wanted).unwrap();
        } else {
            assert!(
                page == wanted,
                "docs/src/declarations.md is stale: run `cargo xtask golden --bless` to regenerate it"
            );
        }
    }
}
