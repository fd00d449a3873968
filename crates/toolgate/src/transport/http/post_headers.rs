//! Checks the headers of a POST before its body is read.

use http::HeaderValue;
use toolgate_wire::{Dialect, ProtocolError, ProtocolErrorKind};

use crate::headers::{Accepts, ContentLength, PROTOCOL_VERSION, ParsedHeaders, RequestHeaders, SESSION_ID};

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

/// Restricts the media types that a client accepts to those of its dialect: a client that names no protocol version gets
/// no streams if the dialect has none, or has them for results only.
pub(super) fn accepts_for_dialect(
    accepts: Accepts,
    headers: &RequestHeaders,
    dialect: Option<&Dialect>,
) -> Accepts {
    let Some(dialect) = dialect.filter(|dialect| dialect.json_only || dialect.no_interim_messages) else {
        return accepts;
    };
    match headers.contains_key(SESSION_ID) || headers.contains_key(PROTOCOL_VERSION) {
        true => accepts,
        false => Accepts { json: accepts.json || dialect.json_only, stream: false },
    }
}

/// Checks the headers of a POST.
pub(super) fn check(parsed: &ParsedHeaders, limit: usize) -> Result<Accepts, ProtocolError> {
    let reject = |status, message: &str| Err(ProtocolError::invalid_request(message).with_status(status));
    match parsed.content_length {
        ContentLength::Bytes(length) if length > limit as u64 => return Err(body_too_large(limit)),
        ContentLength::Malformed => return reject(400, "header content-length is malformed"),
        ContentLength::Bytes(_) | ContentLength::Absent => {}
    }
    if !parsed.is_json {
        return reject(415, "a message requires `Content-Type: application/json`");
    }
    if parsed.has_content_encoding {
        return reject(415, "`Content-Encoding` is not supported");
    }
    if !parsed.accepts.json && !parsed.accepts.stream {
        return reject(406, "responses are `application/json` or `text/event-stream`; accept both");
    }
    Ok(parsed.accepts)
}

/// The error for a body that is longer than the limit.
pub(super) fn body_too_large(limit: usize) -> ProtocolError {
    ProtocolError::new(ProtocolErrorKind::TooLarge, format!("Request body too large (max: {limit} bytes)"))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, header};

    use super::*;

    fn status(pairs: &[(&'static str, &'static str)]) -> u16 {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        check(&ParsedHeaders::parse(&headers), 100)
            .map_or_else(|error| crate::protocol::reject_head(&headers, None, &error).0, |_| 200)
    }

    #[test]
    fn only_json_is_accepted() {
        for good in [
            "application/json",
            "Application/JSON",
            "application/json; charset=utf-8",
            "application/json;charset=\"UTF-8\"",
        ] {
            assert_eq!(status(&[("content-type", good)]), 200, "{good}");
        }
        for bad in [
            "text/plain",
            "application/json-evil",
            "application/jsonp",
            "application/json; charset=utf-16",
            "*/*",
            "",
            "application/x-www-form-urlencoded",
            "application/json; evil=1",
        ] {
            assert_eq!(status(&[("content-type", bad)]), 415, "{bad}");
        }
        assert_eq!(status(&[]), 415);
        assert_eq!(
            status(&[("content-type", "application/json"), ("content-type", "application/json")]),
            415
        );
        assert_eq!(status(&[("content-type", "application/json"), ("content-encoding", "gzip")]), 415);
    }

    #[test]
    fn a_response_type_must_be_acceptable() {
        let json = ("content-type", "application/json");
        for good in [
            "*/*",
            "application/json",
            "text/event-stream",
            "application/json, text/event-stream",
            "text/html, */*;q=0.1",
        ] {
            assert_eq!(status(&[json, ("accept", good)]), 200, "{good}");
        }
        for bad in ["text/html", "image/png", "*/*;q=0", ""] {
            assert_eq!(status(&[json, ("accept", bad)]), 406, "{bad:?}");
        }
    }

    #[test]
    fn a_body_announced_as_too_long_is_rejected() {
        let json = ("content-type", "application/json");
        assert_eq!(status(&[json, ("content-length", "100")]), 200);
        assert_eq!(status(&[json, ("content-length", "101")]), 413);
        assert_eq!(status(&[json, ("content-length", "x")]), 400);
    }

    #[test]
    fn a_stream_must_be_accepted_explicitly() {
        let of = |value: &'static str| {
            ParsedHeaders::parse(&HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(value))]))
                .accepts
        };
        assert_eq!(of("*/*"), Accepts { json: true, stream: false });
        assert_eq!(of("application/json, text/event-stream"), Accepts { json: true, stream: true });
        assert_eq!(of("text/event-stream"), Accepts { json: false, stream: true });
    }
}
