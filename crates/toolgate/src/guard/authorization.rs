//! Parses the headers that carry credentials.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, header};

pub(super) const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Longer keys are malformed.
const MAX_KEY_BYTES: usize = 4096;

/// A parsed `Authorization` header.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Authorization<'a> {
    Missing,
    Repeated,
    /// Not a scheme and a value, or another scheme.
    Malformed,
    Basic(&'a [u8]),
    Bearer(&'a [u8]),
}

impl<'a> Authorization<'a> {
    pub(super) fn from_headers(headers: &'a HeaderMap) -> Authorization<'a> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        match (values.next(), values.next()) {
            (None, _) => Authorization::Missing,
            (Some(value), None) => Authorization::parse(value.as_bytes()),
            (Some(_), Some(_)) => Authorization::Repeated,
        }
    }

    /// Parses a scheme in any case, one space, and a value without spaces.
    pub(super) fn parse(value: &'a [u8]) -> Authorization<'a> {
        let Some(space) = value.iter().position(|byte| *byte == b' ') else {
            return Authorization::Malformed;
        };
        let (scheme, rest) = (&value[..space], &value[space + 1..]);
        if rest.is_empty() || !rest.iter().all(u8::is_ascii_graphic) {
            return Authorization::Malformed;
        }
        if scheme.eq_ignore_ascii_case(b"basic") {
            Authorization::Basic(rest)
        } else if scheme.eq_ignore_ascii_case(b"bearer") {
            Authorization::Bearer(rest)
        } else {
            Authorization::Malformed
        }
    }
}

/// Decodes the user and the password of a Basic header. The first colon separates them.
pub(super) fn decode_basic(encoded: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut user = STANDARD.decode(encoded).ok()?;
    let colon = user.iter().position(|byte| *byte == b':')?;
    let password = user.split_off(colon + 1);
    user.truncate(colon);
    Some((user, password))
}

/// The API key of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PresentedKey {
    Missing,
    /// Sent twice, or with characters that a key cannot contain.
    Malformed,
    Key(String),
}

impl PresentedKey {
    /// Takes the key from `X-API-Key`, or else from `Authorization: Bearer`.
    pub(super) fn from_headers(headers: &HeaderMap, bearer: Authorization<'_>) -> PresentedKey {
        let mut values = headers.get_all(API_KEY).iter();
        match (values.next(), values.next(), bearer) {
            (Some(value), None, _) => PresentedKey::parse(value.as_bytes()),
            (Some(_), Some(_), _) => PresentedKey::Malformed,
            (None, _, Authorization::Bearer(key)) => PresentedKey::parse(key),
            (None, _, Authorization::Malformed | Authorization::Repeated) => PresentedKey::Malformed,
            (None, _, _) => PresentedKey::Missing,
        }
    }

    /// Rejects control characters, plain or percent-encoded: a key provider may put the key into a URL or a log.
    pub(super) fn parse(key: &[u8]) -> PresentedKey {
        let is_plain = key.iter().all(u8::is_ascii_graphic) && key.len() <= MAX_KEY_BYTES;
        let hides_control = key.windows(3).any(|escape| match escape {
            [b'%', b'0' | b'1', digit] => digit.is_ascii_hexdigit(),
            [b'%', b'7', digit] => digit.eq_ignore_ascii_case(&b'f'),
            _ => false,
        });
        match String::from_utf8(key.to_vec()) {
            _ if key.is_empty() => PresentedKey::Missing,
            Ok(key) if is_plain && !hides_control => PresentedKey::Key(key),
            _ => PresentedKey::Malformed,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn schemes_are_read_in_any_case() {
        for (value, wanted) in [
            ("bEaReR abc", Authorization::Bearer(b"abc".as_slice())),
            ("BASIC YTpi", Authorization::Basic(b"YTpi")),
            ("Bearer", Authorization::Malformed),
            ("Bearer ", Authorization::Malformed),
            ("Bearer  abc", Authorization::Malformed),
            ("Bearer abc def", Authorization::Malformed),
            ("Bearer\tabc", Authorization::Malformed),
            ("Bearer abc\u{e9}", Authorization::Malformed),
            ("Digest abc", Authorization::Malformed),
            ("abc", Authorization::Malformed),
            ("", Authorization::Malformed),
        ] {
            assert!(Authorization::parse(value.as_bytes()) == wanted, "{value:?}");
        }
    }

    #[test]
    fn the_first_colon_separates_user_and_password() {
        let read = |text: &[u8]| decode_basic(STANDARD.encode(text).as_bytes());
        let pair = |user: &[u8], password: &[u8]| Some((user.to_vec(), password.to_vec()));
        assert_eq!(read(b"u:p:q:r"), pair(b"u", b"p:q:r"));
        assert_eq!(read(b":"), pair(b"", b""));
        assert_eq!(read(b"no colon"), None);
        for broken in ["!!!", "dTpw=", "dTpwOnE6cg", "dTpwOnE6cg=", "dTpw\n", ""] {
            assert_eq!(decode_basic(broken.as_bytes()), None, "{broken:?}");
        }
    }

    #[test]
    fn a_key_is_taken_from_one_header() {
        let of = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, HeaderValue::from_static(value));
            }
            PresentedKey::from_headers(&headers, Authorization::from_headers(&headers))
        };
        let key = |key: &str| PresentedKey::Key(key.to_owned());
        assert_eq!(of(&[("x-api-key", "a")]), key("a"));
        assert_eq!(of(&[("authorization", "bearer b")]), key("b"));
        assert_eq!(of(&[("x-api-key", "a"), ("authorization", "Bearer b")]), key("a"));
        assert_eq!(of(&[("authorization", "Basic YTpi")]), PresentedKey::Missing);
        assert_eq!(of(&[]), PresentedKey::Missing);
        assert_eq!(of(&[("x-api-key", "")]), PresentedKey::Missing);
        assert_eq!(of(&[("x-api-key", "a"), ("x-api-key", "a")]), PresentedKey::Malformed);
        for broken in ["a b", "a\tb", "a%0d%0ab", "a%0Ab", "%00", "%1f", "%7F"] {
            assert_eq!(of(&[("x-api-key", broken)]), PresentedKey::Malformed, "{broken:?}");
        }
        assert_eq!(of(&[("x-api-key", "100%25%zz%2")]), key("100%25%zz%2"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed(bytes in proptest::collection::vec(any::<u8>(), 0..80), text in "(?i)basic [ -~]{0,60}") {
            Authorization::parse(&bytes);
            if let Authorization::Basic(encoded) = Authorization::parse(text.as_bytes()) {
                decode_basic(encoded);
            }
            decode_basic(&bytes);
            PresentedKey::parse(&bytes);
        }

        #[test]
        fn encoded_credentials_are_decoded(user in "[^:]{0,12}", password in "\\PC{0,20}") {
            let encoded = STANDARD.encode(format!("{user}:{password}"));
            let (user_read, password_read) = decode_basic(encoded.as_bytes()).unwrap();
            prop_assert_eq!((user_read, password_read), (user.into_bytes(), password.into_bytes()));
        }
    }
}
