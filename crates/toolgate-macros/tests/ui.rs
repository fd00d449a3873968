//! Error messages of the macros, and code that they accept without warnings. Every message is a file:
//! `TRYBUILD=overwrite cargo test -p toolgate-macros` rewrites them, for review.

#[test]
fn errors_are_explained_and_valid_code_compiles() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/fail/*.rs");
}
