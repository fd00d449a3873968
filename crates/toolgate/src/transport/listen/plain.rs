//! Reads the head of a plain request: what nearly every client sends.
//!
//! Plain is HTTP/1.1, one of four methods, a target that is a path, few and short fields, and a body with a length or
//! none. What is not plain, is not whole, or is wrong is nobody's fault here: it is left to hyper, which reads it from its
//! beginning, serves it or refuses it. So this can only say "I know what this is" or "I do not".
//!
//! httparse takes the head apart, as it does for hyper, [`Scan`] sees to line ends and lengths, and `hygiene` judges
//! what came out: whatever is refused on one way would be refused on the other.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};

use super::hygiene::{self, Limits};
use super::scan::Scan;

/// More fields than this are not plain.
const FIELDS: usize = 32;

/// A plain request without its body.
pub(super) struct Plain {
    pub(super) request: Request<()>,
    /// How long the head is, and the body that follows it.
    pub(super) head: usize,
    pub(super) body: u64,
    /// The client asks for nothing more on this connection.
    pub(super) is_last: bool,
}

/// The request that these bytes begin with, if it is plain and its head is whole. `names` are those the service knows
/// beyond the standard ones: they are not copied.
pub(super) fn read(bytes: &Bytes, limits: Limits, names: &'static [HeaderName]) -> Option<Plain> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS];
    let mut parsed = httparse::Request::new(&mut []);
    let Ok(httparse::Status::Complete(head)) = parsed.parse_with_uninit_headers(bytes, &mut fields) else {
        return None;
    };
    let mut scan = Scan::new();
    scan.feed(bytes.get(..head)?).ok()?;
    let body = scan.length()?;
    if parsed.version != Some(1) || head > limits.head {
        return None;
    }
    let method = match parsed.method? {
        "POST" => Method::POST,
        "GET" => Method::GET,
        "DELETE" => Method::DELETE,
        "OPTIONS" => Method::OPTIONS,
        _ => return None,
    };
    let target = parsed.path.filter(|target| target.starts_with('/'))?;
    let uri = Uri::from_maybe_shared(bytes.slice_ref(target.as_bytes())).ok()?;
    let mut headers = HeaderMap::with_capacity(parsed.headers.len());
    let mut is_last = false;
    for field in &*parsed.headers {
        let name = name(field.name.as_bytes(), names)?;
        match name {
            header::CONNECTION if field.value.eq_ignore_ascii_case(b"keep-alive") => {}
            header::CONNECTION if field.value.eq_ignore_ascii_case(b"close") => is_last = true,
            // What speaks of the connection in other words, asks to be waited for, or wants another protocol.
            header::CONNECTION | header::EXPECT | header::UPGRADE | header::TRANSFER_ENCODING => return None,
            _ => {}
        }
        headers.append(name, HeaderValue::from_maybe_shared(bytes.slice_ref(field.value)).ok()?);
    }
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    hygiene::check(&request, limits).is_none().then_some(Plain { request, head, body, is_last })
}

fn name(text: &[u8], names: &'static [HeaderName]) -> Option<HeaderName> {
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

    const LIMITS: Limits = Limits { target: 64, fields: 8, head: 512 };
    static NAMES: [HeaderName; 1] = [HeaderName::from_static("x-known")];

    fn plain(text: impl AsRef<[u8]>) -> Option<Plain> {
        read(&Bytes::copy_from_slice(text.as_ref()), LIMITS, &NAMES)
    }

    #[test]
    fn a_plain_request_is_read_whole() {
        let text = "POST /a?b HTTP/1.1\r\nHost: a\r\nX-KNOWN: 1\r\nx-Other:  2 \r\nx-other: 3\r\nContent-Length: 5\r\n\r\nhelloGET";
        let plain = plain(text).unwrap();
        assert_eq!((plain.head, plain.body, plain.is_last), (text.len() - 8, 5, false));
        let request = plain.request;
        assert_eq!((request.method(), request.uri().path()), (&Method::POST, "/a"));
        assert_eq!(request.headers()["x-known"], "1");
        assert_eq!(request.headers().get_all("x-other").iter().collect::<Vec<_>>(), ["2", "3"]);
    }

    #[test]
    fn the_last_request_says_so() {
        assert!(plain("GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n").unwrap().is_last);
        assert!(!plain("GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n").unwrap().is_last);
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
            assert!(plain(&text).is_none(), "{text}");
        }
        assert!(plain("GET / HTTP/1.1\r\n\r\n").is_none(), "no host");
        assert!(plain(format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(64))).is_none());
        let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(512));
        assert!(plain(long).is_none());
    }

    proptest! {
        /// A head that is cut anywhere is not plain, and nothing makes the reader fall.
        #[test]
        fn a_piece_of_a_head_is_none(cut in 0_usize..48, noise in prop::collection::vec(any::<u8>(), 0..64)) {
            let head = b"GET /path HTTP/1.1\r\nHost: a\r\nX-Known: and so\r\n\r\n";
            prop_assert!(plain(&head[..cut.min(head.len() - 1)]).is_none());
            let mut broken = head[..cut].to_vec();
            broken.extend(&noise);
            if let Some(plain) = plain(&broken) {
                prop_assert!(plain.head <= broken.len());
                prop_assert!(broken[..plain.head].ends_with(b"\r\n\r\n"));
                prop_assert!(!broken[..plain.head].windows(2).any(|two| two[1] == b'\n' && two[0] != b'\r'));
            }
        }
    }
}
