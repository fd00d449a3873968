//! The headers that every HTTP request is checked for, parsed in one pass.

use http::{HeaderMap, HeaderValue, header};

use super::{HeaderField, REQUEST_ID};

/// The values that nearly every client sends to accept both; they need no parsing.
const COMMON_ACCEPT_VALUES: [&[u8]; 4] = [
    b"application/json, text/event-stream",
    b"text/event-stream, application/json",
    b"application/json,text/event-stream",
    b"text/event-stream,application/json",
];

/// The names of this machine.
const LOOPBACK_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The media types that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepts {
    pub(crate) json: bool,
    /// Named explicitly: `*/*` does not ask for a stream.
    pub(crate) stream: bool,
}

const ACCEPTS_BOTH: Accepts = Accepts { json: true, stream: true };

/// See the module. Filled in one pass, because there are few headers and a lookup of one takes as long.
#[derive(Clone, Debug)]
pub(crate) struct ParsedHeaders {
    pub(crate) content_length: ContentLength,
    pub(crate) is_json: bool,
    pub(crate) has_content_encoding: bool,
    pub(crate) accepts: Accepts,
    /// The sender has given the request an id.
    pub(crate) has_request_id: bool,
    pub(crate) host: HeaderField,
    /// `host` is a well-known name of this machine.
    pub(crate) is_loopback_host: bool,
    pub(crate) origin: HeaderField,
}

/// The announced length of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ContentLength {
    Absent,
    /// Sent twice, or not a decimal number of 64 bits.
    Malformed,
    Bytes(u64),
}

impl ContentLength {
    fn parse(value: &HeaderValue) -> ContentLength {
        let text = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        text.and_then(|text| text.parse().ok()).map_or(ContentLength::Malformed, ContentLength::Bytes)
    }
}

impl ParsedHeaders {
    pub(crate) fn parse(headers: &HeaderMap) -> ParsedHeaders {
        let (mut content_length, mut content_type, mut accept) = (ContentLength::Absent, None, None);
        let (mut n_types, mut n_accepts) = (0_u32, 0_u32);
        let (mut host, mut origin) = (HeaderField::Absent, HeaderField::Absent);
        let (mut has_content_encoding, mut has_request_id) = (false, false);
        for (name, value) in headers {
            match *name {
                header::CONTENT_LENGTH if matches!(content_length, ContentLength::Absent) => {
                    content_length = ContentLength::parse(value);
                }
                header::CONTENT_LENGTH => content_length = ContentLength::Malformed,
                header::CONTENT_TYPE => (content_type, n_types) = (Some(value), n_types + 1),
                header::ACCEPT => (accept, n_accepts) = (Some(value), n_accepts + 1),
                header::CONTENT_ENCODING => has_content_encoding = true,
                header::HOST => host.add(value),
                header::ORIGIN => origin.add(value),
                _ => has_request_id |= *name == REQUEST_ID,
            }
        }
        ParsedHeaders {
            content_length,
            is_json: n_types == 1 && content_type.is_some_and(is_json_content_type),
            has_content_encoding,
            accepts: match accept {
                Some(only) if n_accepts == 1 && COMMON_ACCEPT_VALUES.contains(&only.as_bytes()) => {
                    ACCEPTS_BOTH
                }
                _ => parse_accept(headers),
            },
            has_request_id,
            is_loopback_host: matches!(&host, HeaderField::Once(host) if LOOPBACK_HOSTS.iter().any(|name| host_matches(host, name))),
            host,
            origin,
        }
    }
}

/// Whether a host is a well-known name of this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    LOOPBACK_HOSTS.iter().any(|known| known.eq_ignore_ascii_case(host))
}

/// Whether a header is this host, with or without a port. Nearly all are, and this needs no parser.
pub(crate) fn host_matches(header: &HeaderValue, known: &str) -> bool {
    let parts = header.as_bytes().split_at_checked(known.len());
    parts.is_some_and(|(name, rest)| name.eq_ignore_ascii_case(known.as_bytes()) && is_port_or_nothing(rest))
}

fn is_port_or_nothing(rest: &[u8]) -> bool {
    match rest {
        [] => true,
        // Of two numbers with five digits, the larger compares greater as text.
        [b':', digits @ ..] => {
            let is_short = matches!(digits.len(), 1..5) || digits.len() == 5 && digits <= b"65535".as_slice();
            is_short && digits.iter().all(u8::is_ascii_digit)
        }
        _ => false,
    }
}

fn is_json_content_type(value: &HeaderValue) -> bool {
    value == "application/json" || value.to_str().is_ok_and(is_json_media_type)
}

/// `application/json`, in any case, alone or with `charset=utf-8`.
fn is_json_media_type(value: &str) -> bool {
    let (kind, parameters) = value.split_once(';').unwrap_or((value, ""));
    let charset = parameters.trim();
    kind.trim().eq_ignore_ascii_case("application/json")
        && (charset.is_empty()
            || charset.split_once('=').is_some_and(|(name, value)| {
                name.trim().eq_ignore_ascii_case("charset")
                    && value.trim_matches('"').eq_ignore_ascii_case("utf-8")
            }))
}

fn parse_accept(headers: &HeaderMap) -> Accepts {
    let mut accepts = Accepts { json: false, stream: false };
    let mut any = false;
    for value in headers.get_all(header::ACCEPT) {
        any = true;
        for range in value.to_str().unwrap_or_default().split(',') {
            let mut parts = range.split(';');
            let kind = parts.next().unwrap_or_default().trim();
            let is = |known: &[&str]| known.iter().any(|known| known.eq_ignore_ascii_case(kind));
            if parts.any(is_q_zero) {
                continue;
            }
            accepts.json |= is(&["application/json", "application/*", "*/*"]);
            accepts.stream |= is(&["text/event-stream", "text/*"]);
        }
    }
    accepts.json |= !any;
    accepts
}

/// `q=0` excludes a media type.
fn is_q_zero(parameter: &str) -> bool {
    parameter.split_once('=').is_some_and(|(name, value)| {
        name.trim().eq_ignore_ascii_case("q") && value.trim().parse() == Ok(0.0_f32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_length_is_digits_and_sent_once() {
        let length = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::CONTENT_LENGTH, value.parse().unwrap());
            }
            format!("{:?}", ParsedHeaders::parse(&headers).content_length)
        };
        assert_eq!(length(&[]), "Absent");
        assert_eq!(length(&["100"]), "Bytes(100)");
        for bad in [&["+1"][..], &["-1"], &["x"], &[""], &["1, 1"], &["1", "1"], &["99999999999999999999"]] {
            assert_eq!(length(bad), "Malformed", "{bad:?}");
        }
    }
}
