//! One string or several, for settings that accept both.

/// One string or several: `"a"`, `["a", "b"]`, a `Vec` or a slice of them.
///
/// ```
/// # use toolgate::guard::IntoStrings;
/// assert_eq!("https://a.example".into_strings(), ["https://a.example"]);
/// assert_eq!(["10.0.0.0/8", "::1"].into_strings().len(), 2);
/// assert_eq!(vec![String::from("x")].into_strings(), ["x"]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a string nor a list of strings",
    note = "give a `&str`, a `String`, or an array, a `Vec` or a slice of them"
)]
pub trait IntoStrings {
    /// Returns all of them.
    fn into_strings(self) -> Vec<String>;
}

impl IntoStrings for &str {
    fn into_strings(self) -> Vec<String> {
        vec![self.to_owned()]
    }
}

impl IntoStrings for String {
    fn into_strings(self) -> Vec<String> {
        vec![self]
    }
}

impl IntoStrings for &String {
    fn into_strings(self) -> Vec<String> {
        vec![self.clone()]
    }
}

impl<S: Into<String>, const N: usize> IntoStrings for [S; N] {
    fn into_strings(self) -> Vec<String> {
        self.into_iter().map(Into::into).collect()
    }
}

impl<S: Into<String>> IntoStrings for Vec<S> {
    fn into_strings(self) -> Vec<String> {
        self.into_iter().map(Into::into).collect()
    }
}

impl<S: AsRef<str>> IntoStrings for &[S] {
    fn into_strings(self) -> Vec<String> {
        self.iter().map(|text| text.as_ref().to_owned()).collect()
    }
}
