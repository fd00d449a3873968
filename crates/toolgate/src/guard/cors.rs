//! CORS: the origins whose pages may read responses, and the headers that tell browsers so.
//!
//! A pattern is compared label by label, never as the suffix of a text: `*.example.com` does not match
//! `notexample.com`. Credentials that a browser adds by itself (cookies) are never allowed.

#[cfg(test)]
mod tests;

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::into_strings::IntoStrings;
use super::origin::{Origin, Scheme, host_and_port};

const ALLOWED_METHODS: HeaderValue = HeaderValue::from_static("GET, POST, OPTIONS, DELETE");
const ALLOWED_HEADERS: &str = "Content-Type, Authorization, X-API-Key, Accept, Mcp-Session-Id, MCP-Protocol-Version, \
                       Last-Event-ID, Mcp-Method, Mcp-Name, X-Request-ID";
const EXPOSED_HEADERS: HeaderValue = HeaderValue::from_static(
    "Mcp-Session-Id, WWW-Authenticate, Retry-After, X-Request-ID, MCP-Protocol-Version",
);
const DEFAULT_MAX_AGE: Duration = Duration::from_secs(86_400);
const WILDCARD: HeaderValue = HeaderValue::from_static("*");

/// Headers that mirror arguments have names of their own; at most this many are allowed in one preflight.
const MAX_PARAM_HEADERS: usize = 64;

/// Longer origins are rejected.
const MAX_ORIGIN_BYTES: usize = 300;

/// The allowed origins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cors {
    /// The patterns as given, and parsed.
    patterns: Vec<(String, OriginPattern)>,
    /// Answer `*` literally, not with the origin of the request.
    is_literal_wildcard: bool,
    /// How long browsers cache a preflight; a day if `None`.
    max_age: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum OriginPattern {
    Any,
    Host {
        /// `None` allows both.
        scheme: Option<Scheme>,
        subdomains: Subdomains,
        /// Lower case.
        host: String,
        /// `None` allows any.
        port: Option<u16>,
    },
}

/// How many labels may precede the host of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subdomains {
    Zero,
    One,
    OneOrMore,
}

impl Cors {
    /// Replaces the allowed origins.
    ///
    /// # Errors
    /// If one is not a pattern; then nothing changes.
    pub(crate) fn set(&mut self, origins: impl IntoStrings) -> Result<(), String> {
        let mut fresh = Cors { patterns: Vec::new(), ..*self };
        for origin in origins.into_strings() {
            fresh.add(&origin)?;
        }
        *self = fresh;
        Ok(())
    }

    /// Allows an origin, unless it is already allowed.
    ///
    /// # Errors
    /// If it is not a pattern.
    pub(crate) fn add(&mut self, origin: &str) -> Result<(), String> {
        let pattern = OriginPattern::parse(origin)?;
        if !self.patterns.iter().any(|(_, known)| *known == pattern) {
            self.patterns.push((origin.to_owned(), pattern));
        }
        Ok(())
    }

    /// Answers `*` where every origin is allowed, instead of the origin of the request.
    pub(crate) fn set_literal_wildcard(&mut self, is_literal: bool) {
        self.is_literal_wildcard = is_literal;
    }

    /// Sets how long browsers cache a preflight.
    pub(crate) fn set_max_age(&mut self, age: Duration) {
        self.max_age = Some(age);
    }

    /// The patterns, as given.
    pub(crate) fn allowed_origins(&self) -> Vec<String> {
        self.patterns.iter().map(|(given, _)| given.clone()).collect()
    }

    /// Whether pages of this origin may read responses.
    pub(crate) fn is_allowed(&self, origin: &str) -> bool {
        if self.patterns.is_empty() {
            return false;
        }
        if self.is_any() && is_well_formed(origin) {
            return true;
        }
        Origin::parse(origin)
            .is_some_and(|origin| self.patterns.iter().any(|(_, pattern)| pattern.matches(&origin)))
    }

    fn is_any(&self) -> bool {
        self.patterns.iter().any(|(_, pattern)| *pattern == OriginPattern::Any)
    }

    /// The value of `Access-Control-Allow-Origin` for an allowed origin. `is_literal`: answer `*` literally,
    /// regardless of the setting.
    pub(super) fn allow_origin_value(&self, origin: &HeaderValue, is_literal: bool) -> HeaderValue {
        if (self.is_literal_wildcard || is_literal) && self.is_any() { WILDCARD } else { origin.clone() }
    }

    /// Sets the headers of a response that the page may read.
    pub(super) fn apply_headers(headers: &mut HeaderMap, allow_origin: &HeaderValue) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, allow_origin.clone());
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
        if *allow_origin != WILDCARD {
            headers.append(header::VARY, HeaderValue::from_static("Origin"));
        }
    }

    /// Sets the headers of the response to a preflight.
    pub(super) fn apply_preflight(&self, request_headers: &HeaderMap, headers: &mut HeaderMap) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, ALLOWED_METHODS);
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed_headers(request_headers));
        let seconds = self.max_age.unwrap_or(DEFAULT_MAX_AGE).as_secs();
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, seconds.into());
    }
}

/// The headers that MCP clients send, and the headers of mirrored arguments that this preflight requests.
fn allowed_headers(request_headers: &HeaderMap) -> HeaderValue {
    let wanted = request_headers.get_all(header::ACCESS_CONTROL_REQUEST_HEADERS).iter();
    let wanted = wanted.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let mut allowed = String::new();
    // A header name is a token, so its text is safe in a response.
    let names = wanted.filter_map(|name| name.trim().parse::<HeaderName>().ok());
    for name in names.filter(|name| name.as_str().starts_with("mcp-param-")).take(MAX_PARAM_HEADERS) {
        allowed.push_str(", ");
        allowed.push_str(name.as_str());
    }
    if allowed.is_empty() {
        return HeaderValue::from_static(ALLOWED_HEADERS);
    }
    HeaderValue::try_from(format!("{ALLOWED_HEADERS}{allowed}"))
        .unwrap_or(HeaderValue::from_static(ALLOWED_HEADERS))
}

/// Where every origin is allowed, it must still be well-formed: `null`, or a scheme and a host.
fn is_well_formed(origin: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:/[]+".contains(&byte);
    let has_parts = origin.split_once("://").is_some_and(|(scheme, rest)| {
        !scheme.is_empty() && !rest.is_empty() && !rest.contains('/') && !scheme.contains([':', '/'])
    });
    origin == "null" || (has_parts && origin.len() <= MAX_ORIGIN_BYTES && origin.bytes().all(is_plain))
}

impl OriginPattern {
    fn parse(text: &str) -> Result<OriginPattern, String> {
        let error = |reason: &str| {
            format!(
                "{text:?} is not an origin such as `https://example.com`, nor `*`, `*.example.com` or \
                 `https://*.example.com`: {reason}"
            )
        };
        if text == "*" {
            return Ok(OriginPattern::Any);
        }
        let (scheme, rest) = match Scheme::split(text) {
            Some((scheme, rest)) => (Some(scheme), rest),
            None if text == "null" => return Err(error("`null` cannot be allowed")),
            None if text.contains("://") => return Err(error("the scheme is `http` or `https`")),
            None => (None, text),
        };
        let (labels, rest) = match rest.strip_prefix("*.") {
            // With a scheme the pattern is explicit, so the star is one label.
            Some(rest) if scheme.is_some() => (Subdomains::One, rest),
            Some(rest) => (Subdomains::OneOrMore, rest),
            None => (Subdomains::Zero, rest),
        };
        if rest.contains('*') {
            return Err(error("`*` must stand alone or replace the first label"));
        }
        let (host, port) = host_and_port(rest)
            .ok_or_else(|| error("expected a host and an optional port, without a path"))?;
        // An address has no subdomains.
        let is_number =
            host.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
        if labels != Subdomains::Zero && (is_number || !host.split('.').all(is_label)) {
            return Err(error("`*.` must be followed by a domain"));
        }
        let port = port.or(scheme.map(Scheme::default_port));
        Ok(OriginPattern::Host { scheme, subdomains: labels, host, port })
    }

    fn matches(&self, origin: &Origin) -> bool {
        let OriginPattern::Host { scheme, subdomains: labels, host, port } = self else {
            return true;
        };
        if scheme.is_some_and(|scheme| scheme != origin.scheme)
            || port.is_some_and(|port| port != origin.port)
        {
            return false;
        }
        if *labels == Subdomains::Zero {
            return *host == origin.host;
        }
        let before = origin.host.strip_suffix(host.as_str()).and_then(|before| before.strip_suffix('.'));
        match (before, labels) {
            (Some(before), Subdomains::One) => is_label(before),
            (Some(before), _) => before.split('.').all(is_label),
            (None, _) => false,
        }
    }
}

fn is_label(label: &str) -> bool {
    !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}
