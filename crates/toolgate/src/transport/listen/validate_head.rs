//! Validates a parsed request head before the service sees it, for HTTP/1 and HTTP/2 alike.
//!
//! hyper leaves these checks to us: a request has at most one transfer coding, which is `chunked`; its target and its
//! number of headers are within limits; it has exactly one well-formed host. The service can then rely on one host to
//! compare.
//!
//! It must not decide whether the host is allowed, or allocate.

use std::net::Ipv6Addr;

use http::header::{CACHE_CONTROL, CONNECTION, HOST, HeaderValue, TRANSFER_ENCODING, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, Method, Response, StatusCode, Uri, Version};

/// Limits of a head.
#[derive(Clone, Copy)]
pub(super) struct HeadLimits {
    /// Bytes of the target.
    pub(super) max_target_bytes: usize,
    pub(super) max_headers: usize,
    /// Bytes of the whole head. hyper enforces it by itself.
    pub(super) max_head_bytes: usize,
}

/// Returns the status to reject a request with, or `None` if it is valid.
pub(super) fn check(
    method: &Method,
    uri: &Uri,
    version: Version,
    headers: &HeaderMap,
    limits: HeadLimits,
) -> Option<StatusCode> {
    let (host, coding) = host_and_coding(headers);
    if !is_method_upper_case(method) || !is_coding_supported(&coding) {
        return Some(StatusCode::BAD_REQUEST);
    }
    if target_length(uri) > limits.max_target_bytes {
        return Some(StatusCode::URI_TOO_LONG);
    }
    if headers.len() > limits.max_headers {
        return Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
    if !is_host_unambiguous(version, uri, &host) {
        return Some(StatusCode::BAD_REQUEST);
    }
    None
}

/// The response to a rejected request. It has no body, and closes an HTTP/1 connection.
pub(super) fn reject(status: StatusCode, version: Version) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // HTTP/2 forbids the header; there the stream ends and the connection stays open.
    if version < Version::HTTP_2 {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// RFC 9110 section 9.1: methods are case-sensitive, and all registered ones are upper case. Any other is a mistake,
/// or a probe for servers that ignore the case.
fn is_method_upper_case(method: &Method) -> bool {
    !method.as_str().bytes().any(|byte| byte.is_ascii_lowercase())
}

/// RFC 9112 section 6.1. hyper only requires that the last coding is `chunked`.
fn is_coding_supported(coding: &HeaderCount<'_>) -> bool {
    match coding {
        HeaderCount::None => true,
        HeaderCount::One(coding) => coding.as_bytes().eq_ignore_ascii_case(b"chunked"),
        HeaderCount::Many => false,
    }
}

fn target_length(uri: &Uri) -> usize {
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    path + uri.authority().map_or(0, |authority| authority.as_str().len())
}

/// RFC 9112 section 3.2 and RFC 9113 section 8.3.1: there is exactly one host.
///
/// An absolute-form target of HTTP/1 may differ from `Host`; both are checked against the allowlist, which rejects an
/// unknown one with its own status.
fn is_host_unambiguous(version: Version, uri: &Uri, host: &HeaderCount<'_>) -> bool {
    let authority = uri.authority().map(http::uri::Authority::as_str);
    if !authority.is_none_or(|text| is_valid_host(text.as_bytes())) {
        return false;
    }
    match (host, authority) {
        (HeaderCount::Many, _) => false,
        (HeaderCount::None, authority) => version == Version::HTTP_2 && authority.is_some(),
        (HeaderCount::One(host), Some(authority)) if version == Version::HTTP_2 => {
            host.as_bytes().eq_ignore_ascii_case(authority.as_bytes())
        }
        (HeaderCount::One(host), _) => is_valid_host(host.as_bytes()),
    }
}

enum HeaderCount<'a> {
    None,
    One(&'a HeaderValue),
    Many,
}

impl<'a> HeaderCount<'a> {
    fn add(&mut self, value: &'a HeaderValue) {
        *self = match self {
            HeaderCount::None => HeaderCount::One(value),
            HeaderCount::One(_) | HeaderCount::Many => HeaderCount::Many,
        };
    }
}

/// Finds `Host` and `Transfer-Encoding` in one pass: there are few headers, and a lookup of one takes as long.
fn host_and_coding(headers: &HeaderMap) -> (HeaderCount<'_>, HeaderCount<'_>) {
    let (mut host, mut coding) = (HeaderCount::None, HeaderCount::None);
    for (name, value) in headers {
        match *name {
            HOST => host.add(value),
            TRANSFER_ENCODING => coding.add(value),
            _ => {}
        }
    }
    (host, coding)
}

/// The bytes of a host name or an IPv4 address.
const HOST_NAME_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        byte += 1;
    }
    table
};

/// Whether this is a name or address with or without a port. Stricter than RFC 3986, which allows percent signs, user
/// names and an empty port: no client sends them, and each is hard to compare.
fn is_valid_host(text: &[u8]) -> bool {
    let (is_name_valid, rest) = match text {
        [b'[', rest @ ..] => {
            let Some(end) = rest.iter().position(|&b| b == b']') else {
                return false;
            };
            let address = str::from_utf8(&rest[..end]).ok();
            let is_valid = address.is_some_and(|text| text.parse::<Ipv6Addr>().is_ok());
            (is_valid, &rest[end + 1..])
        }
        _ => {
            let end = text.iter().position(|&b| !HOST_NAME_BYTES[usize::from(b)]).unwrap_or(text.len());
            (end > 0, &text[end..])
        }
    };
    is_name_valid
        && match rest {
            [] => true,
            [b':', port @ ..] => is_port(port),
            _ => false,
        }
}

fn is_port(text: &[u8]) -> bool {
    matches!(text.len(), 1..=5)
        && text.iter().all(u8::is_ascii_digit)
        && text.iter().fold(0, |n, b| n * 10 + u32::from(b - b'0')) <= 65_535
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const LIMITS: HeadLimits = HeadLimits { max_target_bytes: 64, max_headers: 4, max_head_bytes: 1024 };

    fn check_status(version: Version, uri: &str, fields: &[(&str, &str)]) -> Option<u16> {
        let mut request = Request::builder().version(version).uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let parts = request.body(()).unwrap().into_parts().0;
        check(&parts.method, &parts.uri, version, &parts.headers, LIMITS).map(|status| status.as_u16())
    }

    #[test]
    fn hosts() {
        for good in ["a", "localhost:8080", "127.0.0.1", "[::1]", "[::1]:80", "x_y.example.com", "a:0"] {
            assert!(is_valid_host(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            "a b",
            ":80",
            ":99999999",
            "a:99999999",
            "a:65536",
            "a:port",
            "a:",
            "[::1",
            "[::1]x",
            "[x]",
            "/..",
            "user@",
            "user@a",
            "a,b",
            "a%41",
            "a:1:2",
            "é",
        ] {
            assert!(!is_valid_host(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn row_6_host_of_http1() {
        let one = Version::HTTP_11;
        assert_eq!(check_status(one, "/", &[("host", "a")]), None);
        assert_eq!(check_status(one, "/", &[]), Some(400));
        assert_eq!(check_status(one, "/", &[("host", "a"), ("host", "a")]), Some(400));
        assert_eq!(check_status(one, "http://b/", &[("host", "a")]), None);
        assert_eq!(check_status(one, "http://u@a/", &[("host", "a")]), Some(400));
        assert_eq!(check_status(one, "http://a/", &[]), Some(400));
    }

    #[test]
    fn row_6_host_of_http2() {
        let two = Version::HTTP_2;
        assert_eq!(check_status(two, "http://a/", &[]), None);
        assert_eq!(check_status(two, "http://a/", &[("host", "A")]), None);
        assert_eq!(check_status(two, "http://a/", &[("host", "b")]), Some(400));
        assert_eq!(check_status(two, "http://u@a/", &[]), Some(400));
        assert_eq!(check_status(two, "/", &[("host", "a")]), None);
        assert_eq!(check_status(two, "/", &[]), Some(400));
    }

    #[test]
    fn rows_2_and_4() {
        let one = Version::HTTP_11;
        let host = ("host", "a");
        let te = "transfer-encoding";
        assert_eq!(check_status(one, "/", &[host, (te, "Chunked")]), None);
        assert_eq!(check_status(one, "/", &[host, (te, "gzip, chunked")]), Some(400));
        let twice = [host, (te, "identity"), (te, "chunked")];
        assert_eq!(check_status(one, "/", &twice), Some(400));
        let long = format!("/{}", "a".repeat(64));
        assert_eq!(check_status(one, &long, &[host]), Some(414));
        let many = [host, ("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")];
        assert_eq!(check_status(one, "/", &many), Some(431));
    }
}
