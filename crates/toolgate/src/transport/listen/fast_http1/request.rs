//! Parses the head of a simple request; see the [fast path](super).
//!
//! A head that is not simple, is incomplete or is malformed is not an error here: hyper reads it from its beginning,
//! and serves or rejects it.
//!
//! httparse parses the head, as it does for hyper; [`HeadScanner`] checks line ends and lengths, and
//! [`validate_head`] the result. So every request that hyper's path would reject is unsupported here.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, header};

use crate::headers::RequestHeaders;
use crate::transport::RequestHead;
use crate::transport::listen::smuggling::HeadScanner;
use crate::transport::listen::validate_head::{self, HeadLimits};

/// A request with more headers is not simple.
const MAX_HEADERS: usize = 32;

/// A longer length is parsed again.
const MAX_LENGTH_DIGITS: usize = 12;

/// Why there is no simple request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FastParseError {
    /// The head is incomplete.
    Incomplete,
    /// The request is not simple, or malformed.
    Unsupported,
}

/// The head of a simple request: its bytes, and the values parsed from them.
///
/// A client mostly sends the same head again. Then only the length of the body, the one part that changes with every
/// message, is parsed again.
pub(super) struct FastRequest {
    /// The bytes of the head.
    head: Bytes,
    /// Where the digits of the length are in `head`.
    length_range: Option<Range<usize>>,
    method: Method,
    uri: Uri,
    headers: Arc<RequestHeaders>,
    body_length: u64,
    /// The client requests that the connection is closed after this request.
    pub(super) is_last: bool,
}

impl FastRequest {
    /// Parses the request that these bytes begin with, if it is simple and its head is complete. `names` are header
    /// names that the service knows beyond the standard ones: they are not copied.
    pub(super) fn parse(
        bytes: &[u8],
        limits: HeadLimits,
        names: &'static [HeaderName],
    ) -> Result<FastRequest, FastParseError> {
        let mut fields = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut parsed = httparse::Request::new(&mut []);
        let end = match parsed.parse_with_uninit_headers(bytes, &mut fields) {
            Ok(httparse::Status::Complete(end)) => end,
            // Do not wait for the rest of a head that is already malformed.
            Ok(httparse::Status::Partial) if HeadScanner::new().feed(bytes).is_ok() => {
                return Err(FastParseError::Incomplete);
            }
            Ok(httparse::Status::Partial) => return Err(FastParseError::Unsupported),
            Err(_) => return Err(FastParseError::Unsupported),
        };
        FastRequest::from_parsed(bytes, end, &parsed, limits, names).ok_or(FastParseError::Unsupported)
    }

    fn from_parsed(
        bytes: &[u8],
        end: usize,
        parsed: &httparse::Request<'_, '_>,
        limits: HeadLimits,
        names: &'static [HeaderName],
    ) -> Option<FastRequest> {
        let head = bytes.get(..end)?;
        let mut scanner = HeadScanner::new();
        scanner.feed(head).ok()?;
        let body_length = scanner.body_length()?;
        if parsed.version != Some(1) || end > limits.max_head_bytes {
            return None;
        }
        let method = match parsed.method? {
            "POST" => Method::POST,
            "GET" => Method::GET,
            "DELETE" => Method::DELETE,
            "OPTIONS" => Method::OPTIONS,
            _ => return None,
        };
        // Copied without the body, because the head may be kept for longer.
        let copy = Bytes::copy_from_slice(head);
        let target = parsed.path.filter(|target| target.starts_with('/'))?;
        let uri = Uri::from_maybe_shared(copy.slice(range_in(head, target.as_bytes())?)).ok()?;
        let mut headers = HeaderMap::with_capacity(parsed.headers.len());
        let (mut is_last, mut length_range) = (false, None);
        for field in &*parsed.headers {
            let name = header_name(field.name.as_bytes(), names)?;
            let value = range_in(head, field.value)?;
            match name {
                header::CONTENT_LENGTH => length_range = Some(value.clone()),
                header::CONNECTION if field.value.eq_ignore_ascii_case(b"keep-alive") => {}
                header::CONNECTION if field.value.eq_ignore_ascii_case(b"close") => is_last = true,
                // Other connection options, a request for `100 Continue`, or another protocol.
                header::CONNECTION | header::EXPECT | header::UPGRADE | header::TRANSFER_ENCODING => {
                    return None;
                }
                _ => {}
            }
            headers.append(name, HeaderValue::from_maybe_shared(copy.slice(value)).ok()?);
        }
        if validate_head::check(&method, &uri, Version::HTTP_11, &headers, limits).is_some() {
            return None;
        }
        Some(FastRequest {
            head: copy,
            length_range,
            method,
            uri,
            headers: Arc::new(headers.into()),
            body_length,
            is_last,
        })
    }

    /// Whether these bytes begin with the same head, except for the length, which is updated.
    pub(super) fn try_reuse(&mut self, bytes: &[u8]) -> bool {
        let Some(range) = &self.length_range else {
            return bytes.starts_with(&self.head);
        };
        // Nearly always, all bytes are equal.
        if bytes.starts_with(&self.head) {
            return true;
        }
        let (before, after) = (&self.head[..range.start], &self.head[range.end..]);
        let Some(rest) = bytes.strip_prefix(before) else { return false };
        let n_digits = rest.iter().take(MAX_LENGTH_DIGITS).take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = rest.split_at(n_digits);
        let body_length = str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        let (Some(body_length), true, Ok(value)) =
            (body_length, rest.starts_with(after), HeaderValue::from_bytes(digits))
        else {
            return false;
        };
        Arc::make_mut(&mut self.headers).set_content_length(value, body_length);
        let range = range.start..range.start + n_digits;
        self.head = [before, digits, after].concat().into();
        (self.length_range, self.body_length) = (Some(range), body_length);
        true
    }

    /// The length of the head, and of the body behind it.
    pub(super) fn lengths(&self) -> (usize, u64) {
        (self.head.len(), self.body_length)
    }

    pub(super) fn to_request_head(&self) -> RequestHead {
        RequestHead {
            method: self.method.clone(),
            uri: self.uri.clone(),
            version: Version::HTTP_11,
            headers: Arc::clone(&self.headers),
            extensions: Extensions::new(),
        }
    }
}

/// The position of a subslice.
fn range_in(text: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
    let end = start.checked_add(part.len())?;
    (end <= text.len()).then_some(start..end)
}

fn header_name(text: &[u8], names: &'static [HeaderName]) -> Option<HeaderName> {
    let known = names.iter().find(|name| {
        let known = name.as_str().as_bytes();
        known.len() == text.len() && known.eq_ignore_ascii_case(text)
    });
    known.map_or_else(|| HeaderName::from_bytes(text).ok(), |known| Some(known.clone()))
}

/// Checks the invariants of the parser, for any input: for the fuzz target and the tests.
///
/// The input is one request, or two with a NUL between them: a head that is reused for the second must be the one that
/// parsing the second gives.
///
/// # Panics
/// If an invariant does not hold.
#[cfg(any(test, fuzzing))]
pub(crate) fn check_parser(input: &[u8]) {
    const LIMITS: HeadLimits = HeadLimits { max_target_bytes: 64, max_headers: 8, max_head_bytes: 64 * 1024 };
    let parse = |bytes| FastRequest::parse(bytes, LIMITS, &[]);
    let (first, second) = match input.iter().position(|byte| *byte == 0) {
        Some(end) => (&input[..end], &input[end + 1..]),
        None => (input, input),
    };
    let Ok(mut request) = parse(first) else { return };
    let head = &first[..request.lengths().0];
    assert!(head.ends_with(b"\r\n\r\n"), "a head ends with an empty line");
    assert!(!head.windows(2).any(|pair| pair[1] == b'\n' && pair[0] != b'\r'), "no bare line feed");
    for length in 0..head.len() {
        assert!(parse(&head[..length]).is_err(), "a part of a head is not a request");
    }
    if request.try_reuse(second) {
        let parsed = parse(second).expect("a head that is reused is simple");
        assert_eq!((request.lengths(), request.is_last), (parsed.lengths(), parsed.is_last));
        assert_eq!(format!("{:?}", request.to_request_head()), format!("{:?}", parsed.to_request_head()));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: HeadLimits = HeadLimits { max_target_bytes: 64, max_headers: 8, max_head_bytes: 512 };
    static NAMES: [HeaderName; 1] = [HeaderName::from_static("x-known")];

    fn parse_request(text: impl AsRef<[u8]>) -> Option<FastRequest> {
        FastRequest::parse(text.as_ref(), LIMITS, &NAMES).ok()
    }

    #[test]
    fn a_simple_request_is_parsed() {
        let text = "POST /a?b HTTP/1.1\r\nHost: a\r\nX-KNOWN: 1\r\nx-Other:  2 \r\nx-other: 3\r\nContent-Length: 5\r\n\r\nhelloGET";
        let request = parse_request(text).unwrap();
        assert_eq!((request.lengths(), request.is_last), ((text.len() - 8, 5), false));
        let head = request.to_request_head();
        assert_eq!((head.method, head.uri.path()), (Method::POST, "/a"));
        assert_eq!(head.headers["x-known"], "1");
        assert_eq!(head.headers.get_all("x-other").iter().collect::<Vec<_>>(), ["2", "3"]);
    }

    #[test]
    fn the_same_head_is_reused_with_another_length() {
        let head = |length: &str, more: &str| {
            format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\nX: {more}\r\n\r\n")
        };
        let mut cached = parse_request(head("5", "a")).unwrap();
        let before = cached.to_request_head();
        assert!(cached.try_reuse(format!("{}hello", head("5", "a")).as_bytes()));
        assert!(Arc::ptr_eq(&before.headers, &cached.to_request_head().headers), "nothing is copied");
        for length in ["123", "0", "77", "77"] {
            let text = head(length, "a");
            assert!(cached.try_reuse(text.as_bytes()), "{length}");
            assert_eq!(cached.lengths(), (text.len(), length.parse().unwrap()));
            assert_eq!(cached.to_request_head().headers["content-length"], length);
            assert_eq!(cached.to_request_head().headers.len(), 3);
        }
        assert_eq!(before.headers["content-length"], "5", "a head that was handed out is not changed");
        let others = ["", "+7", "7 7", "7,7", "1234567890123", "7\r\nX: y"].map(|length| head(length, "a"));
        for text in
            others.iter().map(String::as_str).chain([&*head("77", "b"), "POST / HTTP/1.1\r\nHost: a\r\n"])
        {
            assert!(!cached.try_reuse(text.as_bytes()), "{text}");
        }
        let mut cached = parse_request("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert!(cached.try_reuse(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET"));
        assert!(!cached.try_reuse(b"GET / HTTP/1.1\r\nHost: b\r\n\r\n"));
    }

    #[test]
    fn the_invariants_hold_for_pairs_of_requests() {
        let request =
            |length: &str| format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        for length in ["5", "0", "007", "123456789012", "1234567890123", "+5", "", "5\r\nX: y"] {
            check_parser(format!("{}\0{}", request("5"), request(length)).as_bytes());
        }
    }

    #[test]
    fn connection_close_marks_the_last_request() {
        assert!(parse_request("GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n").unwrap().is_last);
        assert!(
            !parse_request("GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n").unwrap().is_last
        );
    }

    #[test]
    fn other_requests_are_left_to_hyper() {
        for (line, fields) in [
            ("GET / HTTP/1.0", ""),
            ("GET / HTTP/1.2", ""),
            ("HEAD / HTTP/1.1", ""),
            ("PUT / HTTP/1.1", ""),
            ("post / HTTP/1.1", ""),
            ("CONNECT a:80 HTTP/1.1", ""),
            ("GET http://a/ HTTP/1.1", ""),
            ("OPTIONS * HTTP/1.1", ""),
            ("GET / HTTP/1.1", "Host: b\r\n"),
            ("GET / HTTP/1.1", "Connection: upgrade\r\n"),
            ("GET / HTTP/1.1", "Connection: close, x\r\n"),
            ("GET / HTTP/1.1", "Upgrade: h2c\r\n"),
            ("POST / HTTP/1.1", "Expect: 100-continue\r\n"),
            ("POST / HTTP/1.1", "Transfer-Encoding: chunked\r\n"),
            ("POST / HTTP/1.1", "Content-Length: 1\r\nContent-Length: 1\r\n"),
            ("POST / HTTP/1.1", "Content-Length: +1\r\n"),
            ("POST / HTTP/1.1", "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
            ("GET / HTTP/1.1", "X: a\nY: b\r\n"),
            ("GET / HTTP/1.1", "X : a\r\n"),
            ("GET / HTTP/1.1", "X: a\r\n b\r\n"),
            ("GET / HTTP/1.1", "1: \r\n2: \r\n3: \r\n4: \r\n5: \r\n6: \r\n7: \r\n8: \r\n"),
        ] {
            let text = format!("{line}\r\nHost: a\r\n{fields}\r\nx");
            assert!(parse_request(&text).is_none(), "{text}");
        }
        assert!(parse_request("GET / HTTP/1.1\r\n\r\n").is_none(), "no host");
        assert!(parse_request(format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(64))).is_none());
        let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(512));
        assert!(parse_request(long).is_none());
    }

    proptest! {
        /// A head that is cut anywhere is incomplete, and no bytes cause a panic.
        #[test]
        fn a_part_of_a_head_is_incomplete(cut in 0_usize..48, noise in prop::collection::vec(any::<u8>(), 0..64)) {
            let head = b"GET /path HTTP/1.1\r\nHost: a\r\nX-Known: and so\r\n\r\n";
            let part = FastRequest::parse(&head[..cut.min(head.len() - 1)], LIMITS, &NAMES);
            prop_assert_eq!(part.err(), Some(FastParseError::Incomplete));
            let mut broken = head[..cut].to_vec();
            broken.extend(&noise);
            check_parser(&broken);
        }
    }
}
