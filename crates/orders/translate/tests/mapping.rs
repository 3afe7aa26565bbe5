//! The page of the mapping tables is that of the declaration.

#![allow(clippy::unwrap_used)] // a failure here is a failed test

use std::path::Path;

use tapeworks_translate::mapping;

#[test]
fn the_page_of_the_book_is_the_declarations() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gateway-mapping.txt");
    if std::env::var_os("TAPEWORKS_BLESS").is_some() {
        std::fs::write(&path, mapping::markdown()).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        page == mapping::markdown(),
        "docs/src/gateway-mapping.md is stale: `cargo xtask golden --bless` writes it anew"
    );
}
