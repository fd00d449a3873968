//! What the macros say to whoever made a mistake, and what they accept without a word. Every message is a
//! file: `TRYBUILD=overwrite cargo test -p toolgate-macros` writes them anew, to be read before they are kept.

#[test]
fn mistakes_are_explained_and_good_code_is_left_alone() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/fail/*.rs");
}
