//! Declarations that must not compile, and the messages that their authors see.

#[test]
fn faulty_declarations_are_rejected_at_the_faulty_token() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
