//! Headers that may stand once only.

use http::{HeaderMap, HeaderName, HeaderValue};
use toolgate_wire::Edition;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repeated;

/// What the headers of a message say about it, found in one walk: there are few, and to look for one takes as long.
pub(super) struct Labels<'a> {
    pub(super) version: Label<'a>,
    pub(super) session: Label<'a>,
    pub(super) method: Label<'a>,
    pub(super) name: Label<'a>,
}

/// What is known of one header.
#[derive(Clone, Copy, Debug)]
pub(super) enum Label<'a> {
    Absent,
    Once(&'a HeaderValue),
    Repeated,
}

impl<'a> Label<'a> {
    /// The one value, without the blanks around it; none if it is absent.
    pub(super) fn text(self) -> Result<Option<&'a str>, Repeated> {
        match self {
            Label::Absent => Ok(None),
            Label::Once(value) => text(value).map(Some),
            Label::Repeated => Err(Repeated),
        }
    }

    /// The edition it names, if it does.
    pub(super) fn edition(self) -> Option<Edition> {
        let mut all = Edition::ALL.into_iter().rev();
        all.find(|edition| self.is(edition.date())).or_else(|| Edition::of(self.text().ok()??))
    }

    /// The one value, as [`Label::text`].
    pub(super) fn bytes(self) -> Result<Option<&'a [u8]>, Repeated> {
        match self {
            Label::Absent => Ok(None),
            Label::Once(value) => bytes(value).map(Some),
            Label::Repeated => Err(Repeated),
        }
    }

    /// Whether it is this, to the letter: that is seen sooner than what it is otherwise.
    #[inline]
    pub(super) fn is(self, said: &str) -> bool {
        matches!(self, Label::Once(value) if value.as_bytes() == said.as_bytes() && said.is_ascii())
    }
}

impl<'a> Labels<'a> {
    pub(super) fn of(headers: &'a HeaderMap) -> Labels<'a> {
        let absent = Label::Absent;
        let mut labels = Labels { version: absent, session: absent, method: absent, name: absent };
        for (name, value) in headers {
            let Some(name) = name.as_str().strip_prefix("mcp-") else { continue };
            let label = match name {
                "protocol-version" => &mut labels.version,
                "session-id" => &mut labels.session,
                "method" => &mut labels.method,
                "name" => &mut labels.name,
                _ => continue,
            };
            *label = match label {
                Label::Absent => Label::Once(value),
                _ => Label::Repeated,
            };
        }
        labels
    }
}

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
    std::str::from_utf8(bytes(value)?).map_err(|_| Repeated)
}

/// What a header may hold and is ASCII is text.
fn bytes(value: &HeaderValue) -> Result<&[u8], Repeated> {
    match value.as_bytes() {
        value if !value.is_ascii() => Err(Repeated),
        value @ ([b' ' | b'\t', ..] | [.., b' ' | b'\t']) => {
            let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
            let start = value.iter().position(|byte| !is_blank(byte)).unwrap_or(value.len());
            let end = value.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last + 1);
            Ok(value.get(start..end).unwrap_or_default())
        }
        // Whoever read the head has taken them off.
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_finds_what_a_look_for_each_finds() {
        let all = [VERSION, SESSION, METHOD, NAME];
        for name in &all {
            for values in [&[][..], &["a"], &[" a\t"], &["a", "a"], &["a", "\u{e4}"], &["\u{e4}"]] {
                let mut headers = HeaderMap::new();
                headers.insert("host", HeaderValue::from_static("localhost"));
                for value in values {
                    headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
                }
                let Labels { version, session, method, name } = Labels::of(&headers);
                assert_eq!(
                    [version, session, method, name].map(Label::text),
                    all.each_ref().map(|name| single(&headers, name))
                );
            }
        }
    }
}
