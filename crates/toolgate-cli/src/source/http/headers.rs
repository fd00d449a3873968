//! Headers that a description may set, and which parts of their values are secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use http::header::HeaderName;

use super::{Auth, HttpClientSpec};
use crate::source::percent::percent_encode;

/// Headers that belong to the connection or to us: a description cannot set them.
const RESERVED_HEADERS: [&str; 11] = [
    "host",
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "expect",
];

/// What is shorter is a word that may be anywhere.
const MIN_SECRET_BYTES: usize = 6;

/// Whether the headers that credentials go to can be set.
pub(super) fn validate_auth(auth: &Auth) -> Result<(), String> {
    match auth {
        Auth::None | Auth::Forward => Ok(()),
        Auth::Headers(names) => names.iter().try_for_each(|name| parse_header(name, "").map(drop)),
        Auth::Attribute { header: name, prefix, .. } => parse_header(name, prefix).map(drop),
    }
}

/// A header that a description may set.
pub(super) fn parse_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let Ok(name) = HeaderName::try_from(name) else { return Err(format!("`{name}` is no name of a header")) };
    if RESERVED_HEADERS.contains(&name.as_str()) {
        return Err(format!("`{name}` belongs to the connection and cannot be set"));
    }
    let is_fine = value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let Some(mut value) = HeaderValue::from_str(value).ok().filter(|_| is_fine) else {
        return Err(format!("invalid header value for `{name}`"));
    };
    value.set_sensitive(is_secret_name(name.as_str()));
    Ok((name, value))
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["auth", "key", "token", "secret", "cookie", "password", "signature"]
        .iter()
        .any(|part| name.contains(part))
}

pub(super) fn secret_values(spec: &HttpClientSpec) -> Vec<String> {
    let headers = spec
        .headers
        .iter()
        .filter(|(name, _)| is_secret_name(name))
        .flat_map(|(_, value)| credential_parts(value));
    let query = spec.query.iter().flat_map(|(_, value)| [value.clone(), percent_encode(value)]);
    headers.chain(query).filter(|secret| secret.len() >= MIN_SECRET_BYTES).collect()
}

/// What of a credential is a secret: the parts behind its scheme, and the password that is in one of them.
pub(super) fn credential_parts(value: &str) -> Vec<String> {
    let value = match value.split_once(' ') {
        Some((scheme, rest)) if is_auth_scheme(scheme) && !rest.trim().is_empty() => rest,
        _ => value,
    };
    let words = value.split([' ', ',', ';']).filter(|part| part.len() >= MIN_SECRET_BYTES);
    let inside = words.clone().filter_map(|word| String::from_utf8(STANDARD.decode(word).ok()?).ok());
    let passwords = inside.filter_map(|pair| Some(pair.split_once(':')?.1.to_owned()));
    words.map(str::to_owned).chain(passwords.filter(|word| word.len() >= MIN_SECRET_BYTES)).collect()
}

/// A word such as `Bearer`, which everybody may know.
fn is_auth_scheme(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_of_a_credential_is_no_secret() {
        for (value, wanted) in [
            ("Bearer s3cret-token", &["s3cret-token"][..]),
            ("Basic dXNlcjpodW50ZXIy", &["dXNlcjpodW50ZXIy", "hunter2"]),
            ("Bearer", &["Bearer"]),
            ("sid=s3cret-one; other=s3cret-two", &["sid=s3cret-one", "other=s3cret-two"]),
        ] {
            assert_eq!(credential_parts(value), wanted, "{value}");
        }
    }
}
