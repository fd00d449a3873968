//! Headers that may stand once only.

use http::{HeaderMap, HeaderValue};

/// A header that stands more than once, or is not text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Repeated;

/// The one value of a header, without the blanks around it; none if it is absent.
pub(crate) fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Repeated> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => text(value).map(Some),
        (Some(_), Some(_)) => Err(Repeated),
    }
}

fn text(value: &HeaderValue) -> Result<&str, Repeated> {
    value.to_str().map(|text| text.trim_matches([' ', '\t'])).map_err(|_| Repeated)
}
