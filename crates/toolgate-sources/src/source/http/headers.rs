//! Headers that a description may set, and which parts of their values are secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use http::header::HeaderName;

use super::{Auth, HttpClientSpec};
use crate::source::percent::percent_encode;

/// Headers of the connection or of the client; a description cannot set them.
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

/// Shorter values are not masked, since they may occur anywhere in a text.
const MIN_SECRET_BYTES: usize = 6;

/// Checks that the headers for credentials can be set.
pub(super) fn validate_auth(auth: &Auth) -> Result<(), String> {
    match auth {
        Auth::None | Auth::Forward => Ok(()),
        Auth::Headers(names) => names.iter().try_for_each(|name| parse_header(name, "").map(drop)),
        Auth::Attribute { header: name, prefix, .. } => parse_header(name, prefix).map(drop),
    }
}

/// Parses a header that a description sets.
pub(super) fn parse_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let Ok(name) = HeaderName::try_from(name) else {
        return Err(format!("`{name}` is not a valid header name"));
    };
    if RESERVED_HEADERS.contains(&name.as_str()) {
        return Err(format!("`{name}` is managed by the connection and cannot be set"));
    }
    let is_printable = value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let Some(mut value) = HeaderValue::from_str(value).ok().filter(|_| is_printable) else {
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

/// The secret parts of a credential: the tokens after its scheme, and the password of a Basic credential.
pub(super) fn credential_parts(value: &str) -> Vec<String> {
    let value = match value.split_once(' ') {
        Some((scheme, rest)) if is_auth_scheme(scheme) && !rest.trim().is_empty() => rest,
        _ => value,
    };
    let tokens = value.split([' ', ',', ';']).filter(|part| part.len() >= MIN_SECRET_BYTES);
    let decoded = tokens.clone().filter_map(|token| String::from_utf8(STANDARD.decode(token).ok()?).ok());
    let passwords = decoded.filter_map(|pair| Some(pair.split_once(':')?.1.to_owned()));
    tokens.map(str::to_owned).chain(passwords.filter(|token| token.len() >= MIN_SECRET_BYTES)).collect()
}

/// Whether this looks like an auth scheme such as `Bearer`, which is not a secret.
fn is_auth_scheme(token: &str) -> bool {
    token.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_auth_scheme_is_not_a_secret() {
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
