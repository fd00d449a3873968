//! The header that carries credentials, taken apart.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, header};

pub(super) const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// A key is shorter than this.
const MAX_KEY: usize = 4096;

/// What `Authorization` says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Authorization<'a> {
    Missing,
    Twice,
    /// Not to be understood.
    Broken,
    Basic(&'a [u8]),
    Bearer(&'a [u8]),
}

impl<'a> Authorization<'a> {
    pub(super) fn of(headers: &'a HeaderMap) -> Authorization<'a> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        match (values.next(), values.next()) {
            (None, _) => Authorization::Missing,
            (Some(value), None) => Authorization::read(value.as_bytes()),
            (Some(_), Some(_)) => Authorization::Twice,
        }
    }

    /// A scheme in any case, one space, and what follows, without any more of them.
    pub(super) fn read(value: &'a [u8]) -> Authorization<'a> {
        let Some(space) = value.iter().position(|byte| *byte == b' ') else {
            return Authorization::Broken;
        };
        let (scheme, rest) = (&value[..space], &value[space + 1..]);
        if rest.is_empty() || !rest.iter().all(u8::is_ascii_graphic) {
            return Authorization::Broken;
        }
        if scheme.eq_ignore_ascii_case(b"basic") {
            Authorization::Basic(rest)
        } else if scheme.eq_ignore_ascii_case(b"bearer") {
            Authorization::Bearer(rest)
        } else {
            Authorization::Broken
        }
    }
}

/// A user and a password out of the text of a Basic header. The first colon parts them.
pub(super) fn user_and_password(encoded: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut user = STANDARD.decode(encoded).ok()?;
    let colon = user.iter().position(|byte| *byte == b':')?;
    let password = user.split_off(colon + 1);
    user.truncate(colon);
    Some((user, password))
}

/// An API key, wherever it may stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Given {
    Missing,
    /// Said twice, or with characters that no key has.
    Broken,
    Key(String),
}

impl Given {
    /// `X-API-Key`, and if there is none, `Authorization: Bearer`.
    pub(super) fn of(headers: &HeaderMap, bearer: Authorization<'_>) -> Given {
        let mut values = headers.get_all(API_KEY).iter();
        match (values.next(), values.next(), bearer) {
            (Some(value), None, _) => Given::read(value.as_bytes()),
            (Some(_), Some(_), _) => Given::Broken,
            (None, _, Authorization::Bearer(key)) => Given::read(key),
            (None, _, Authorization::Broken | Authorization::Twice) => Given::Broken,
            (None, _, _) => Given::Missing,
        }
    }

    /// Whoever looks a key up may put it into a URL or a log: control characters are not passed on, whether
    /// they stand there or are only written as percent signs.
    pub(super) fn read(key: &[u8]) -> Given {
        let is_plain = key.iter().all(u8::is_ascii_graphic) && key.len() <= MAX_KEY;
        let hides_control = key.windows(3).any(|escape| match escape {
            [b'%', b'0' | b'1', digit] => digit.is_ascii_hexdigit(),
            [b'%', b'7', digit] => digit.eq_ignore_ascii_case(&b'f'),
            _ => false,
        });
        match String::from_utf8(key.to_vec()) {
            _ if key.is_empty() => Given::Missing,
            Ok(key) if is_plain && !hides_control => Given::Key(key),
            _ => Given::Broken,
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
            ("Bearer", Authorization::Broken),
            ("Bearer ", Authorization::Broken),
            ("Bearer  abc", Authorization::Broken),
            ("Bearer abc def", Authorization::Broken),
            ("Bearer\tabc", Authorization::Broken),
            ("Bearer abc\u{e9}", Authorization::Broken),
            ("Digest abc", Authorization::Broken),
            ("abc", Authorization::Broken),
            ("", Authorization::Broken),
        ] {
            assert!(Authorization::read(value.as_bytes()) == wanted, "{value:?}");
        }
    }

    #[test]
    fn the_first_colon_parts_user_and_password() {
        let read = |text: &[u8]| user_and_password(STANDARD.encode(text).as_bytes());
        let pair = |user: &[u8], password: &[u8]| Some((user.to_vec(), password.to_vec()));
        assert_eq!(read(b"u:p:q:r"), pair(b"u", b"p:q:r"));
        assert_eq!(read(b":"), pair(b"", b""));
        assert_eq!(read(b"no colon"), None);
        for broken in ["!!!", "dTpw=", "dTpwOnE6cg", "dTpwOnE6cg=", "dTpw\n", ""] {
            assert_eq!(user_and_password(broken.as_bytes()), None, "{broken:?}");
        }
    }

    #[test]
    fn a_key_stands_in_one_place() {
        let of = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, HeaderValue::from_static(value));
            }
            Given::of(&headers, Authorization::of(&headers))
        };
        let key = |key: &str| Given::Key(key.to_owned());
        assert_eq!(of(&[("x-api-key", "a")]), key("a"));
        assert_eq!(of(&[("authorization", "bearer b")]), key("b"));
        assert_eq!(of(&[("x-api-key", "a"), ("authorization", "Bearer b")]), key("a"));
        assert_eq!(of(&[("authorization", "Basic YTpi")]), Given::Missing);
        assert_eq!(of(&[]), Given::Missing);
        assert_eq!(of(&[("x-api-key", "")]), Given::Missing);
        assert_eq!(of(&[("x-api-key", "a"), ("x-api-key", "a")]), Given::Broken);
        for broken in ["a b", "a\tb", "a%0d%0ab", "a%0Ab", "%00", "%1f", "%7F"] {
            assert_eq!(of(&[("x-api-key", broken)]), Given::Broken, "{broken:?}");
        }
        assert_eq!(of(&[("x-api-key", "100%25%zz%2")]), key("100%25%zz%2"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..80), text in "(?i)basic [ -~]{0,60}") {
            Authorization::read(&bytes);
            if let Authorization::Basic(encoded) = Authorization::read(text.as_bytes()) {
                user_and_password(encoded);
            }
            user_and_password(&bytes);
            Given::read(&bytes);
        }

        #[test]
        fn what_was_encoded_is_read_again(user in "[^:]{0,12}", password in "\\PC{0,20}") {
            let encoded = STANDARD.encode(format!("{user}:{password}"));
            let (user_read, password_read) = user_and_password(encoded.as_bytes()).unwrap();
            prop_assert_eq!((user_read, password_read), (user.into_bytes(), password.into_bytes()));
        }
    }
}
