//! Headers that may stand once only.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The edition of a request.
pub(crate) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The session of a client that shook hands.
pub(crate) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// The method of a request, repeated.
pub(crate) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// What a request is about, repeated.
pub(crate) const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// The last event of a stream that a client has seen.
pub(crate) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// A header that stands more than once, or is not text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Repeated;

/// The one value of a header, without the blanks around it; none if it is absent.
pub(crate) fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Repeated> {
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
