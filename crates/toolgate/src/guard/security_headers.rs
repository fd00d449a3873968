//! The security headers of every response.
//!
//! They are built once and copied into responses; the operator chooses which there are.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, header};

const PERMISSIONS_POLICY: HeaderName = HeaderName::from_static("permissions-policy");

const DEFAULT_HEADERS: [(HeaderName, HeaderValue); 6] = [
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (header::X_XSS_PROTECTION, HeaderValue::from_static("1; mode=block")),
    (header::REFERRER_POLICY, HeaderValue::from_static("strict-origin-when-cross-origin")),
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'")),
    (PERMISSIONS_POLICY, HeaderValue::from_static("geolocation=(), microphone=(), camera=()")),
];
const HSTS: HeaderValue = HeaderValue::from_static("max-age=31536000; includeSubDomains");

/// The security headers of every response.
///
/// By default there are seven: `X-Content-Type-Options`, `X-Frame-Options`, `X-XSS-Protection`, `Referrer-Policy`,
/// `Content-Security-Policy`, `Permissions-Policy`, and `Strict-Transport-Security` if the request came over TLS.
///
/// ```
/// # use toolgate::guard::SecurityHeaders;
/// let headers = SecurityHeaders::default()
///     .with("x-xss-protection", "0")
///     .with("cross-origin-resource-policy", "same-origin")
///     .without("permissions-policy");
/// # let _ = (headers, SecurityHeaders::none());
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct SecurityHeaders {
    always: Arc<HeaderMap>,
    /// `always`, with the headers of every JSON response.
    json: Arc<PrebuiltHeaders>,
    /// Only sent over TLS: clients must ignore it over plain HTTP.
    hsts: Option<HeaderValue>,
    error: Option<String>,
}

/// Headers that are encoded once, for responses that have no others.
#[derive(Debug, Default)]
pub(crate) struct PrebuiltHeaders {
    pub(crate) map: HeaderMap,
    /// The headers as HTTP/1.1 sends them.
    pub(crate) lines: Box<[u8]>,
    /// Some of them are set by the code that sends the response, so they cannot be prebuilt.
    has_framing_headers: bool,
}

impl PrebuiltHeaders {
    fn of(map: HeaderMap) -> PrebuiltHeaders {
        let mut lines = Vec::new();
        for (name, value) in &map {
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                lines.extend_from_slice(part);
            }
        }
        let framing = [header::CONNECTION, header::CONTENT_LENGTH, header::DATE, header::TRANSFER_ENCODING];
        let has_framing_headers = framing.iter().any(|name| map.contains_key(name));
        PrebuiltHeaders { map, lines: lines.into(), has_framing_headers }
    }
}

impl Default for SecurityHeaders {
    fn default() -> SecurityHeaders {
        SecurityHeaders::of(HeaderMap::from_iter(DEFAULT_HEADERS), Some(HSTS))
    }
}

impl SecurityHeaders {
    fn of(always: HeaderMap, secure: Option<HeaderValue>) -> SecurityHeaders {
        let mut headers =
            SecurityHeaders { always: Arc::new(always), json: Arc::default(), hsts: secure, error: None };
        headers.rebuild();
        headers
    }

    /// Rebuilds the headers that are copied into responses.
    fn rebuild(&mut self) {
        let mut json = HeaderMap::clone(&self.always);
        json.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        json.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        self.json = Arc::new(PrebuiltHeaders::of(json));
    }

    /// No security headers.
    pub fn none() -> SecurityHeaders {
        SecurityHeaders::of(HeaderMap::new(), None)
    }

    /// Sets a header, and replaces an earlier one of the same name.
    pub fn with(mut self, name: &str, value: &str) -> SecurityHeaders {
        let (Ok(known), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) else {
            self.error.get_or_insert_with(|| format!("{name:?}: {value:?} is not a header"));
            return self;
        };
        if known == header::STRICT_TRANSPORT_SECURITY && !self.always.contains_key(&known) {
            self.hsts = Some(value);
        } else {
            Arc::make_mut(&mut self.always).insert(known, value);
        }
        self.rebuild();
        self
    }

    /// Removes a header.
    pub fn without(mut self, name: &str) -> SecurityHeaders {
        if name.eq_ignore_ascii_case(header::STRICT_TRANSPORT_SECURITY.as_str()) {
            self.hsts = None;
        }
        Arc::make_mut(&mut self.always).remove(name);
        self.rebuild();
        self
    }

    /// Sends `Strict-Transport-Security` with every response, not only over TLS: for servers behind a proxy that does
    /// not state how it was reached.
    pub fn strict_transport_always(mut self) -> SecurityHeaders {
        if let Some(value) = self.hsts.take() {
            Arc::make_mut(&mut self.always).insert(header::STRICT_TRANSPORT_SECURITY, value);
        }
        self.rebuild();
        self
    }

    /// Returns the first error, if there is one.
    pub(super) fn check(&self) -> Result<(), String> {
        self.error.clone().map_or(Ok(()), Err)
    }

    /// The headers of a JSON response. Cloning the whole map is cheaper than inserting each.
    pub(super) fn json_headers(&self, is_secure: bool) -> HeaderMap {
        let mut headers = HeaderMap::clone(&self.json.map);
        self.apply_hsts(&mut headers, is_secure);
        headers
    }

    /// The prebuilt headers, if a JSON response has no others.
    pub(super) fn prebuilt(&self, is_secure: bool) -> Option<Arc<PrebuiltHeaders>> {
        let has_more = is_secure && self.hsts.is_some();
        (!has_more && !self.json.has_framing_headers).then(|| Arc::clone(&self.json))
    }

    /// Sets the headers of a response.
    pub(super) fn apply(&self, headers: &mut HeaderMap, is_secure: bool) {
        // One reallocation at most, and no more than needed: a stream keeps this map as long as it lasts.
        headers.reserve(self.always.len());
        for (name, value) in self.always.iter() {
            headers.insert(name, value.clone());
        }
        self.apply_hsts(headers, is_secure);
    }

    fn apply_hsts(&self, headers: &mut HeaderMap, is_secure: bool) {
        if let (true, Some(value)) = (is_secure, &self.hsts) {
            headers.insert(header::STRICT_TRANSPORT_SECURITY, value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied_lines(security: &SecurityHeaders, is_secure: bool) -> Vec<String> {
        let mut headers = HeaderMap::new();
        security.apply(&mut headers, is_secure);
        let mut json = security.json_headers(is_secure);
        assert_eq!(json.remove("content-type").unwrap(), "application/json");
        assert_eq!(json.remove("cache-control").unwrap(), "no-store");
        assert_eq!(headers, json);
        let mut lines: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    #[test]
    fn there_are_seven_by_default() {
        let all = [
            "content-security-policy: default-src 'none'; frame-ancestors 'none'",
            "permissions-policy: geolocation=(), microphone=(), camera=()",
            "referrer-policy: strict-origin-when-cross-origin",
            "strict-transport-security: max-age=31536000; includeSubDomains",
            "x-content-type-options: nosniff",
            "x-frame-options: DENY",
            "x-xss-protection: 1; mode=block",
        ];
        assert_eq!(applied_lines(&SecurityHeaders::default(), true), all);
        let plain = applied_lines(&SecurityHeaders::default(), false);
        assert_eq!(plain.len(), 6);
        assert!(!plain.iter().any(|line| line.starts_with("strict")));
        assert_eq!(applied_lines(&SecurityHeaders::default().strict_transport_always(), false), all);
    }

    #[test]
    fn each_header_can_be_changed() {
        let changed =
            SecurityHeaders::none().with("X-Frame-Options", "DENY").with("x-frame-options", "SAMEORIGIN");
        assert_eq!(applied_lines(&changed, true), ["x-frame-options: SAMEORIGIN"]);
        assert_eq!(applied_lines(&changed.without("X-FRAME-options"), true), Vec::<String>::new());
        let always = SecurityHeaders::default().strict_transport_always();
        assert_eq!(applied_lines(&always.without("Strict-Transport-Security"), true).len(), 6);
        let hsts = SecurityHeaders::none().with("strict-transport-security", "max-age=1");
        assert_eq!(applied_lines(&hsts, false), Vec::<String>::new());
        assert_eq!(applied_lines(&hsts, true), ["strict-transport-security: max-age=1"]);
        assert!(SecurityHeaders::none().with("a b", "c").check().is_err());
        assert!(SecurityHeaders::none().with("a", "c\r\nd: e").check().is_err());
    }
}
