//! The headers of a request, and what they say.
//!
//! A client says the same of itself with every request, so what is asked of every head is found once and kept with it:
//! whoever gets the same head again, as from a connection that has kept it, finds it there. What is kept follows from
//! the words alone. What the house makes of them is reckoned for each request.

#[cfg(feature = "http")]
mod glance;

use std::ops::Deref;
use std::sync::OnceLock;

use http::{HeaderMap, HeaderName, HeaderValue};

#[cfg(feature = "http")]
pub(crate) use glance::{Accepts, Glance, Length, is_host, is_loopback};

/// The edition of a request.
pub(crate) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The session of a client that shook hands.
pub(crate) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// The method of a request, repeated.
pub(crate) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// What a request is about, repeated.
pub(crate) const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// The last event of a stream that a client has seen.
#[cfg(feature = "http")]
pub(crate) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// What a request is called in logs, on both sides.
#[cfg(feature = "http")]
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// See the module. Empty where there is no HTTP.
#[derive(Clone, Default)]
pub(crate) struct Letterhead {
    fields: HeaderMap,
    labels: OnceLock<Labels>,
    #[cfg(feature = "http")]
    glance: OnceLock<Glance>,
}

/// What the headers of a message say about it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels {
    pub(crate) version: Field,
    pub(crate) session: Field,
    pub(crate) method: Field,
    pub(crate) name: Field,
}

/// What is known of one header.
#[derive(Clone, Debug, Default)]
pub(crate) enum Field {
    #[default]
    Absent,
    Once(HeaderValue),
    /// The first of several.
    Repeated(HeaderValue),
}

/// A header that stands more than once, or is not text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repeated;

impl Letterhead {
    /// What is asked of every message.
    pub(crate) fn labels(&self) -> &Labels {
        self.labels.get_or_init(|| Labels::of(&self.fields))
    }

    /// What is asked of every request over HTTP.
    #[cfg(feature = "http")]
    pub(crate) fn glance(&self) -> &Glance {
        self.glance.get_or_init(|| Glance::at(&self.fields))
    }

    /// Says what the request is called: all else that was found stays true.
    #[cfg(feature = "http")]
    pub(crate) fn set_name(&mut self, name: HeaderValue) {
        self.fields.insert(REQUEST_ID, name);
        if let Some(glance) = self.glance.get_mut() {
            glance.is_named = true;
        }
    }

    /// Says another length of the body: all else that was found stays true.
    #[cfg(feature = "http")]
    pub(crate) fn set_length(&mut self, value: HeaderValue, length: u64) {
        self.fields.insert(http::header::CONTENT_LENGTH, value);
        if let Some(glance) = self.glance.get_mut() {
            glance.length = Length::Bytes(length);
        }
    }
}

impl Deref for Letterhead {
    type Target = HeaderMap;

    fn deref(&self) -> &HeaderMap {
        &self.fields
    }
}

impl From<HeaderMap> for Letterhead {
    fn from(fields: HeaderMap) -> Letterhead {
        Letterhead { fields, ..Letterhead::default() }
    }
}

impl std::fmt::Debug for Letterhead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.fields.fmt(f)
    }
}

impl Labels {
    fn of(headers: &HeaderMap) -> Labels {
        let mut labels = Labels::default();
        for (name, value) in headers {
            let Some(name) = name.as_str().strip_prefix("mcp-") else { continue };
            match name {
                "protocol-version" => labels.version.add(value),
                "session-id" => labels.session.add(value),
                "method" => labels.method.add(value),
                "name" => labels.name.add(value),
                _ => {}
            }
        }
        labels
    }
}

impl Field {
    fn add(&mut self, value: &HeaderValue) {
        *self = match std::mem::take(self) {
            Field::Absent => Field::Once(value.clone()),
            Field::Once(first) | Field::Repeated(first) => Field::Repeated(first),
        };
    }

    /// The one value, without the blanks around it; none if it is absent.
    pub(crate) fn text(&self) -> Result<Option<&str>, Repeated> {
        match self {
            Field::Absent => Ok(None),
            Field::Once(value) => text(value).map(Some),
            Field::Repeated(_) => Err(Repeated),
        }
    }

    /// The same as bytes.
    pub(crate) fn bytes(&self) -> Result<Option<&[u8]>, Repeated> {
        match self {
            Field::Absent => Ok(None),
            Field::Once(value) => bytes(value).map(Some),
            Field::Repeated(_) => Err(Repeated),
        }
    }

    /// Whether it is this, to the letter: that is seen sooner than what it is otherwise.
    #[inline]
    pub(crate) fn is(&self, said: &str) -> bool {
        matches!(self, Field::Once(value) if value.as_bytes() == said.as_bytes() && said.is_ascii())
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
                    [&version, &session, &method, &name].map(Field::text),
                    all.each_ref().map(|name| single(&headers, name))
                );
            }
        }
    }

    #[test]
    #[cfg(feature = "http")]
    fn what_was_found_stays_true() {
        let mut fields = HeaderMap::new();
        fields.insert(METHOD, HeaderValue::from_static("ping"));
        fields.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        fields.insert(http::header::CONTENT_LENGTH, HeaderValue::from_static("2"));
        for is_found_before in [false, true] {
            let mut head = Letterhead::from(fields.clone());
            if is_found_before {
                assert!(!head.glance().is_named && matches!(head.glance().length, Length::Bytes(2)));
            }
            head.set_length(HeaderValue::from_static("12"), 12);
            head.set_name(HeaderValue::from_static("a"));
            let (kept, anew) = (head.glance(), Glance::at(&head));
            assert_eq!(format!("{kept:?}"), format!("{anew:?}"));
            assert!(kept.is_json && kept.is_named && matches!(kept.length, Length::Bytes(12)));
            assert!(head.labels().method.is("ping") && head[REQUEST_ID] == "a");
        }
    }
}
