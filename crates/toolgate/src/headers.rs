//! The headers of a request, and what they say.
//!
//! A client says the same of itself with every request, so what is asked of every head is found once and kept with it:
//! whoever gets the same head again, as from a connection that has kept it, finds it there. What is kept follows from
//! the words alone. What the house makes of them is reckoned for each request.

#[cfg(feature = "http")]
mod parsed;

use std::ops::Deref;
use std::sync::OnceLock;

use http::{HeaderMap, HeaderName, HeaderValue};

#[cfg(feature = "http")]
pub(crate) use parsed::{Accepts, ContentLength, ParsedHeaders, host_matches, is_loopback};

/// The edition of a request.
pub(crate) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The session of a client that shook hands.
pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// The method of a request, repeated.
pub(crate) const MCP_METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// What a request is about, repeated.
pub(crate) const MCP_NAME: HeaderName = HeaderName::from_static("mcp-name");
/// The last event of a stream that a client has seen.
#[cfg(feature = "http")]
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// What a request is called in logs, on both sides.
#[cfg(feature = "http")]
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// See the module. Empty where there is no HTTP.
#[derive(Clone, Default)]
pub(crate) struct RequestHeaders {
    map: HeaderMap,
    mcp: OnceLock<McpHeaders>,
    #[cfg(feature = "http")]
    parsed: OnceLock<ParsedHeaders>,
}

/// What the headers of a message say about it.
#[derive(Clone, Debug, Default)]
pub(crate) struct McpHeaders {
    pub(crate) version: HeaderField,
    pub(crate) session: HeaderField,
    pub(crate) method: HeaderField,
    pub(crate) name: HeaderField,
}

/// What is known of one header.
#[derive(Clone, Debug, Default)]
pub(crate) enum HeaderField {
    #[default]
    Absent,
    Once(HeaderValue),
    /// The first of several.
    Repeated(HeaderValue),
}

/// A header that stands more than once, or is not text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidHeader;

impl RequestHeaders {
    /// What is asked of every message.
    pub(crate) fn mcp(&self) -> &McpHeaders {
        self.mcp.get_or_init(|| McpHeaders::parse(&self.map))
    }

    /// What is asked of every request over HTTP.
    #[cfg(feature = "http")]
    pub(crate) fn parsed(&self) -> &ParsedHeaders {
        self.parsed.get_or_init(|| ParsedHeaders::parse(&self.map))
    }

    /// Says what the request is called: all else that was found stays true.
    #[cfg(feature = "http")]
    pub(crate) fn set_request_id(&mut self, name: HeaderValue) {
        self.map.insert(REQUEST_ID, name);
        if let Some(glance) = self.parsed.get_mut() {
            glance.has_request_id = true;
        }
    }

    /// Says another length of the body: all else that was found stays true.
    #[cfg(feature = "http")]
    pub(crate) fn set_content_length(&mut self, value: HeaderValue, length: u64) {
        self.map.insert(http::header::CONTENT_LENGTH, value);
        if let Some(glance) = self.parsed.get_mut() {
            glance.content_length = ContentLength::Bytes(length);
        }
    }
}

impl Deref for RequestHeaders {
    type Target = HeaderMap;

    fn deref(&self) -> &HeaderMap {
        &self.map
    }
}

impl From<HeaderMap> for RequestHeaders {
    fn from(fields: HeaderMap) -> RequestHeaders {
        RequestHeaders { map: fields, ..RequestHeaders::default() }
    }
}

impl std::fmt::Debug for RequestHeaders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.map.fmt(f)
    }
}

impl McpHeaders {
    fn parse(headers: &HeaderMap) -> McpHeaders {
        let mut labels = McpHeaders::default();
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

impl HeaderField {
    fn add(&mut self, value: &HeaderValue) {
        *self = match std::mem::take(self) {
            HeaderField::Absent => HeaderField::Once(value.clone()),
            HeaderField::Once(first) | HeaderField::Repeated(first) => HeaderField::Repeated(first),
        };
    }

    /// The one value, without the blanks around it; none if it is absent.
    pub(crate) fn text(&self) -> Result<Option<&str>, InvalidHeader> {
        match self {
            HeaderField::Absent => Ok(None),
            HeaderField::Once(value) => text(value).map(Some),
            HeaderField::Repeated(_) => Err(InvalidHeader),
        }
    }

    /// The same as bytes.
    pub(crate) fn bytes(&self) -> Result<Option<&[u8]>, InvalidHeader> {
        match self {
            HeaderField::Absent => Ok(None),
            HeaderField::Once(value) => bytes(value).map(Some),
            HeaderField::Repeated(_) => Err(InvalidHeader),
        }
    }

    /// Whether it is this, to the letter: that is seen sooner than what it is otherwise.
    #[inline]
    pub(crate) fn equals(&self, said: &str) -> bool {
        matches!(self, HeaderField::Once(value) if value.as_bytes() == said.as_bytes() && said.is_ascii())
    }
}

/// The one value of a header, without the blanks around it; none if it is absent.
pub(crate) fn single_value<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a str>, InvalidHeader> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => text(value).map(Some),
        (Some(_), Some(_)) => Err(InvalidHeader),
    }
}

fn text(value: &HeaderValue) -> Result<&str, InvalidHeader> {
    std::str::from_utf8(bytes(value)?).map_err(|_| InvalidHeader)
}

/// What a header may hold and is ASCII is text.
fn bytes(value: &HeaderValue) -> Result<&[u8], InvalidHeader> {
    match value.as_bytes() {
        value if !value.is_ascii() => Err(InvalidHeader),
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
        let all = [PROTOCOL_VERSION, SESSION_ID, MCP_METHOD, MCP_NAME];
        for name in &all {
            for values in [&[][..], &["a"], &[" a\t"], &["a", "a"], &["a", "\u{e4}"], &["\u{e4}"]] {
                let mut headers = HeaderMap::new();
                headers.insert("host", HeaderValue::from_static("localhost"));
                for value in values {
                    headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
                }
                let McpHeaders { version, session, method, name } = McpHeaders::parse(&headers);
                assert_eq!(
                    [&version, &session, &method, &name].map(HeaderField::text),
                    all.each_ref().map(|name| single_value(&headers, name))
                );
            }
        }
    }

    #[test]
    #[cfg(feature = "http")]
    fn what_was_found_stays_true() {
        let mut fields = HeaderMap::new();
        fields.insert(MCP_METHOD, HeaderValue::from_static("ping"));
        fields.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        fields.insert(http::header::CONTENT_LENGTH, HeaderValue::from_static("2"));
        for is_found_before in [false, true] {
            let mut head = RequestHeaders::from(fields.clone());
            if is_found_before {
                assert!(
                    !head.parsed().has_request_id
                        && matches!(head.parsed().content_length, ContentLength::Bytes(2))
                );
            }
            head.set_content_length(HeaderValue::from_static("12"), 12);
            head.set_request_id(HeaderValue::from_static("a"));
            let (kept, anew) = (head.parsed(), ParsedHeaders::parse(&head));
            assert_eq!(format!("{kept:?}"), format!("{anew:?}"));
            assert!(
                kept.is_json
                    && kept.has_request_id
                    && matches!(kept.content_length, ContentLength::Bytes(12))
            );
            assert!(head.mcp().method.equals("ping") && head[REQUEST_ID] == "a");
        }
    }
}
