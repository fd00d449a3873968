//! Reads the head of a plain request: what nearly every client sends.
//!
//! Plain is HTTP/1.1, one of four methods, a target that is a path, few and short fields, and a body with a length or
//! none. What is not plain, is not whole, or is wrong is nobody's fault here: it is left to hyper, which reads it from its
//! beginning, serves it or refuses it. So this can only say "I know what this is" or "I do not".
//!
//! httparse takes the head apart, as it does for hyper, [`Scan`] sees to line ends and lengths, and `hygiene` judges
//! what came out: whatever is refused on one way would be refused on the other.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, header};

use super::smuggling::HeadScanner;
use super::validate_head::{self, HeadLimits};
use crate::headers::RequestHeaders;
use crate::transport::RequestHead;

/// More fields than this are not plain.
const MAX_HEADERS: usize = 32;

/// Longer lengths are read anew.
const MAX_LENGTH_DIGITS: usize = 12;

/// Why there is no plain request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FastParseError {
    /// Its head is not there as a whole.
    Incomplete,
    /// It is another kind of request, or none.
    Unsupported,
}

/// The head of a plain request, as it was read and what it says.
///
/// A client that asks again mostly does so in the same words; then nothing has to be read again but the length of the
/// body, which is the only thing in a head that changes with every message.
pub(super) struct FastRequest {
    /// The words.
    head: Bytes,
    /// Where the length is among them.
    length_range: Option<Range<usize>>,
    method: Method,
    uri: Uri,
    headers: Arc<RequestHeaders>,
    body_length: u64,
    /// The client asks for nothing more on this connection.
    pub(super) is_last: bool,
}

impl FastRequest {
    /// The request that these bytes begin with, if it is plain and its head is whole. `names` are those the service
    /// knows beyond the standard ones: they are not copied.
    pub(super) fn parse(
        bytes: &[u8],
        limits: HeadLimits,
        names: &'static [HeaderName],
    ) -> Result<FastRequest, FastParseError> {
        let mut fields = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut parsed = httparse::Request::new(&mut []);
        let end = match parsed.parse_with_uninit_headers(bytes, &mut fields) {
            Ok(httparse::Status::Complete(end)) => end,
            // What is wrong already does not become better by waiting.
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
        let mut scan = HeadScanner::new();
        scan.feed(head).ok()?;
        let body = scan.body_length()?;
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
        // Without the body: a head may be kept for longer.
        let text = Bytes::copy_from_slice(head);
        let target = parsed.path.filter(|target| target.starts_with('/'))?;
        let uri = Uri::from_maybe_shared(text.slice(range_in(head, target.as_bytes())?)).ok()?;
        let mut headers = HeaderMap::with_capacity(parsed.headers.len());
        let (mut is_last, mut digits) = (false, None);
        for field in &*parsed.headers {
            let name = header_name(field.name.as_bytes(), names)?;
            let value = range_in(head, field.value)?;
            match name {
                header::CONTENT_LENGTH => digits = Some(value.clone()),
                header::CONNECTION if field.value.eq_ignore_ascii_case(b"keep-alive") => {}
                header::CONNECTION if field.value.eq_ignore_ascii_case(b"close") => is_last = true,
                // What speaks of the connection in other words, asks to be waited for, or wants another protocol.
                header::CONNECTION | header::EXPECT | header::UPGRADE | header::TRANSFER_ENCODING => {
                    return None;
                }
                _ => {}
            }
            headers.append(name, HeaderValue::from_maybe_shared(text.slice(value)).ok()?);
        }
        if validate_head::check(&method, &uri, Version::HTTP_11, &headers, limits).is_some() {
            return None;
        }
        Some(FastRequest {
            head: text,
            length_range: digits,
            method,
            uri,
            headers: Arc::new(headers.into()),
            body_length: body,
            is_last,
        })
    }

    /// Whether these bytes begin with the same words. What is then different is taken note of.
    pub(super) fn try_reuse(&mut self, bytes: &[u8]) -> bool {
        let Some(digits) = &self.length_range else {
            return bytes.starts_with(&self.head);
        };
        // Nearly always to the letter.
        if bytes.starts_with(&self.head) {
            return true;
        }
        let (before, after) = (&self.head[..digits.start], &self.head[digits.end..]);
        let Some(rest) = bytes.strip_prefix(before) else { return false };
        let n_digits = rest.iter().take(MAX_LENGTH_DIGITS).take_while(|byte| byte.is_ascii_digit()).count();
        let (said, rest) = rest.split_at(n_digits);
        let body = str::from_utf8(said).ok().and_then(|said| said.parse().ok());
        let (Some(body), true, Ok(value)) = (body, rest.starts_with(after), HeaderValue::from_bytes(said))
        else {
            return false;
        };
        Arc::make_mut(&mut self.headers).set_content_length(value, body);
        let digits = digits.start..digits.start + n_digits;
        self.head = [before, said, after].concat().into();
        (self.length_range, self.body_length) = (Some(digits), body);
        true
    }

    /// How long the head is, and the body that follows it.
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

/// Where a part of a text is in it.
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
    fn a_plain_request_is_read_whole() {
        let text = "POST /a?b HTTP/1.1\r\nHost: a\r\nX-KNOWN: 1\r\nx-Other:  2 \r\nx-other: 3\r\nContent-Length: 5\r\n\r\nhelloGET";
        let plain = parse_request(text).unwrap();
        assert_eq!((plain.lengths(), plain.is_last), ((text.len() - 8, 5), false));
        let asked = plain.to_request_head();
        assert_eq!((asked.method, asked.uri.path()), (Method::POST, "/a"));
        assert_eq!(asked.headers["x-known"], "1");
        assert_eq!(asked.headers.get_all("x-other").iter().collect::<Vec<_>>(), ["2", "3"]);
    }

    #[test]
    fn the_same_words_are_known_again_and_their_length_read() {
        let head = |length: &str, more: &str| {
            format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\nX: {more}\r\n\r\n")
        };
        let mut known = parse_request(head("5", "a")).unwrap();
        let before = known.to_request_head();
        assert!(known.try_reuse(format!("{}hello", head("5", "a")).as_bytes()));
        assert!(Arc::ptr_eq(&before.headers, &known.to_request_head().headers), "nothing was made anew");
        for length in ["123", "0", "77", "77"] {
            let text = head(length, "a");
            assert!(known.try_reuse(text.as_bytes()), "{length}");
            assert_eq!(known.lengths(), (text.len(), length.parse().unwrap()));
            assert_eq!(known.to_request_head().headers["content-length"], length);
            assert_eq!(known.to_request_head().headers.len(), 3);
        }
        assert_eq!(before.headers["content-length"], "5", "what was given away stays as it was");
        let others = ["", "+7", "7 7", "7,7", "1234567890123", "7\r\nX: y"].map(|length| head(length, "a"));
        for text in
            others.iter().map(String::as_str).chain([&*head("77", "b"), "POST / HTTP/1.1\r\nHost: a\r\n"])
        {
            assert!(!known.try_reuse(text.as_bytes()), "{text}");
        }
        let mut known = parse_request("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert!(known.try_reuse(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET"));
        assert!(!known.try_reuse(b"GET / HTTP/1.1\r\nHost: b\r\n\r\n"));
    }

    #[test]
    fn the_last_request_says_so() {
        assert!(parse_request("GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n").unwrap().is_last);
        assert!(
            !parse_request("GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n").unwrap().is_last
        );
    }

    #[test]
    fn what_is_not_plain_is_left_to_others() {
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
        /// A head that is cut anywhere is not plain, and nothing makes the reader fall.
        #[test]
        fn a_piece_of_a_head_is_none(cut in 0_usize..48, noise in prop::collection::vec(any::<u8>(), 0..64)) {
            let head = b"GET /path HTTP/1.1\r\nHost: a\r\nX-Known: and so\r\n\r\n";
            let piece = FastRequest::parse(&head[..cut.min(head.len() - 1)], LIMITS, &NAMES);
            prop_assert_eq!(piece.err(), Some(FastParseError::Incomplete));
            let mut broken = head[..cut].to_vec();
            broken.extend(&noise);
            if let Some(plain) = parse_request(&broken) {
                let head = &broken[..plain.lengths().0];
                prop_assert!(head.ends_with(b"\r\n\r\n"));
                prop_assert!(!head.windows(2).any(|two| two[1] == b'\n' && two[0] != b'\r'));
            }
        }
    }
}
