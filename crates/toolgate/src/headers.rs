//! The headers of a request, with the results of parsing them.
//!
//! A client sends the same headers with every request, so a connection keeps the last ones, together with
//! the values parsed from them. The cache depends on the headers alone; everything that depends on settings is computed
//! for each request.

#[cfg(feature = "http")]
mod parsed;

use std::ops::Deref;
use std::sync::OnceLock;

use http::{HeaderMap, HeaderName, HeaderValue};

#[cfg(feature = "http")]
pub(crate) use parsed::{Accepts, ContentLength, ParsedHeaders, host_matches, is_loopback};

/// The protocol version of a request.
pub(crate) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The session of a client that sent `initialize`.
pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// The method of a request, which the body states too.
pub(crate) const MCP_METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// The tool, prompt or resource of a request, which the body states too.
pub(crate) const MCP_NAME: HeaderName = HeaderName::from_static("mcp-name");
/// The last event of a stream that a client has received.
#[cfg(feature = "http")]
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// The id of a request in the logs of both sides.
#[cfg(feature = "http")]
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A header map with a cache of its parsed values. Empty without HTTP.
#[derive(Clone, Default)]
pub(crate) struct RequestHeaders {
    map: HeaderMap,
    mcp: OnceLock<McpHeaders>,
    #[cfg(feature = "http")]
    parsed: OnceLock<ParsedHeaders>,
}

/// The MCP headers of a message.
#[derive(Clone, Debug, Default)]
pub(crate) struct McpHeaders {
    pub(crate) version: HeaderField,
    pub(crate) session: HeaderField,
    pub(crate) method: HeaderField,
    pub(crate) name: HeaderField,
}

/// One header field.
#[derive(Clone, Debug, Default)]
pub(crate) enum HeaderField {
    #[default]
    Absent,
    Once(HeaderValue),
    /// The first of several values.
    Repeated(HeaderValue),
}

/// A header that is repeated, or is not text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidHeader;

impl RequestHeaders {
    /// The headers that every message is checked for.
    pub(crate) fn mcp(&self) -> &McpHeaders {
        self.mcp.get_or_init(|| McpHeaders::parse(&self.map))
    }

    /// The headers that every HTTP request is checked for.
    #[cfg(feature = "http")]
    pub(crate) fn parsed(&self) -> &ParsedHeaders {
        self.parsed.get_or_init(|| ParsedHeaders::parse(&self.map))
    }

    /// Sets the request id, and keeps the cache valid.
    #[cfg(feature = "http")]
    pub(crate) fn set_request_id(&mut self, id: HeaderValue) {
        self.map.insert(REQUEST_ID, id);
        if let Some(parsed) = self.parsed.get_mut() {
            parsed.has_request_id = true;
        }
    }

    /// Sets the length of the body, and keeps the cache valid.
    #[cfg(feature = "http")]
    pub(crate) fn set_content_length(&mut self, value: HeaderValue, length: u64) {
        self.map.insert(http::header::CONTENT_LENGTH, value);
        if let Some(parsed) = self.parsed.get_mut() {
            parsed.content_length = ContentLength::Bytes(length);
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
    fn from(map: HeaderMap) -> RequestHeaders {
        RequestHeaders { map, ..RequestHeaders::default() }
    }
}

impl std::fmt::Debug for RequestHeaders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.map.fmt(f)
    }
}

impl McpHeaders {
    fn parse(headers: &HeaderMap) -> McpHeaders {
        let mut parsed = McpHeaders::default();
        for (name, value) in headers {
            let Some(name) = name.as_str().strip_prefix("mcp-") else { continue };
            match name {
                "protocol-version" => parsed.version.add(value),
                "session-id" => parsed.session.add(value),
                "method" => parsed.method.add(value),
                "name" => parsed.name.add(value),
                _ => {}
            }
        }
        parsed
    }
}

impl HeaderField {
    fn add(&mut self, value: &HeaderValue) {
        *self = match std::mem::take(self) {
            HeaderField::Absent => HeaderField::Once(value.clone()),
            HeaderField::Once(first) | HeaderField::Repeated(first) => HeaderField::Repeated(first),
        };
    }

    /// The only value, trimmed; `None` if the header is absent.
    pub(crate) fn text(&self) -> Result<Option<&str>, InvalidHeader> {
        match self {
            HeaderField::Absent => Ok(None),
            HeaderField::Once(value) => text(value).map(Some),
            HeaderField::Repeated(_) => Err(InvalidHeader),
        }
    }

    /// Like [`HeaderField::text`], as bytes.
    pub(crate) fn bytes(&self) -> Result<Option<&[u8]>, InvalidHeader> {
        match self {
            HeaderField::Absent => Ok(None),
            HeaderField::Once(value) => bytes(value).map(Some),
            HeaderField::Repeated(_) => Err(InvalidHeader),
        }
    }

    /// Whether the value is exactly this text, which is cheaper to check than to parse it.
    #[inline]
    pub(crate) fn equals(&self, text: &str) -> bool {
        matches!(self, HeaderField::Once(value) if value.as_bytes() == text.as_bytes() && text.is_ascii())
    }
}

/// The only value of a header, trimmed; `None` if it is absent.
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

/// A header value that is ASCII is text.
fn bytes(value: &HeaderValue) -> Result<&[u8], InvalidHeader> {
    match value.as_bytes() {
        value if !value.is_ascii() => Err(InvalidHeader),
        value @ ([b' ' | b'\t', ..] | [.., b' ' | b'\t']) => {
            let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
            let start = value.iter().position(|byte| !is_blank(byte)).unwrap_or(value.len());
            let end = value.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last + 1);
            Ok(value.get(start..end).unwrap_or_default())
        }
        // The parser of the head has trimmed it.
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pass_finds_what_single_lookups_find() {
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
    fn the_cache_stays_valid_when_headers_change() {
        let mut fields = HeaderMap::new();
        fields.insert(MCP_METHOD, HeaderValue::from_static("ping"));
        fields.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        fields.insert(http::header::CONTENT_LENGTH, HeaderValue::from_static("2"));
        for is_cached_before in [false, true] {
            let mut head = RequestHeaders::from(fields.clone());
            if is_cached_before {
                assert!(
                    !head.parsed().has_request_id
                        && matches!(head.parsed().content_length, ContentLength::Bytes(2))
                );
            }
            head.set_content_length(HeaderValue::from_static("12"), 12);
            head.set_request_id(HeaderValue::from_static("a"));
            let (cached, fresh) = (head.parsed(), ParsedHeaders::parse(&head));
            assert_eq!(format!("{cached:?}"), format!("{fresh:?}"));
            assert!(
                cached.is_json
                    && cached.has_request_id
                    && matches!(cached.content_length, ContentLength::Bytes(12))
            );
            assert!(head.mcp().method.equals("ping") && head[REQUEST_ID] == "a");
        }
    }
}
