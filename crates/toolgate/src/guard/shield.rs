//! The security headers of every answer.
//!
//! They are made once and copied into answers; which of them there are is the operator's choice.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, header};

const PERMISSIONS_POLICY: HeaderName = HeaderName::from_static("permissions-policy");

const USUAL: [(HeaderName, HeaderValue); 6] = [
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (header::X_XSS_PROTECTION, HeaderValue::from_static("1; mode=block")),
    (header::REFERRER_POLICY, HeaderValue::from_static("strict-origin-when-cross-origin")),
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'")),
    (PERMISSIONS_POLICY, HeaderValue::from_static("geolocation=(), microphone=(), camera=()")),
];
const HSTS: HeaderValue = HeaderValue::from_static("max-age=31536000; includeSubDomains");

/// The security headers that every answer carries.
///
/// Without a word there are seven: `X-Content-Type-Options`, `X-Frame-Options`, `X-XSS-Protection`,
/// `Referrer-Policy`, `Content-Security-Policy`, `Permissions-Policy`, and `Strict-Transport-Security` where
/// the request came over TLS.
///
/// ```
/// # use toolgate::SecurityHeaders;
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
    /// Only where the request was safe from others already: said over plain HTTP it must be ignored.
    secure: Option<HeaderValue>,
    fault: Option<String>,
}

impl Default for SecurityHeaders {
    fn default() -> SecurityHeaders {
        SecurityHeaders { always: Arc::new(HeaderMap::from_iter(USUAL)), secure: Some(HSTS), fault: None }
    }
}

impl SecurityHeaders {
    /// None at all.
    pub fn none() -> SecurityHeaders {
        SecurityHeaders { always: Arc::default(), secure: None, fault: None }
    }

    /// With this header too, or with this value instead of the one before.
    pub fn with(mut self, name: &str, value: &str) -> SecurityHeaders {
        let (Ok(known), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) else {
            self.fault.get_or_insert_with(|| format!("{name:?}: {value:?} is not a header"));
            return self;
        };
        if known == header::STRICT_TRANSPORT_SECURITY && !self.always.contains_key(&known) {
            self.secure = Some(value);
        } else {
            Arc::make_mut(&mut self.always).insert(known, value);
        }
        self
    }

    /// Without this header.
    pub fn without(mut self, name: &str) -> SecurityHeaders {
        if name.eq_ignore_ascii_case(header::STRICT_TRANSPORT_SECURITY.as_str()) {
            self.secure = None;
        }
        Arc::make_mut(&mut self.always).remove(name);
        self
    }

    /// With `Strict-Transport-Security` on every answer, not only over TLS: for servers behind a proxy that
    /// does not say how it was reached.
    pub fn strict_transport_always(mut self) -> SecurityHeaders {
        if let Some(value) = self.secure.take() {
            Arc::make_mut(&mut self.always).insert(header::STRICT_TRANSPORT_SECURITY, value);
        }
        self
    }

    /// What is wrong with them, if something is.
    pub(super) fn check(&self) -> Result<(), String> {
        self.fault.clone().map_or(Ok(()), Err)
    }

    /// An answer that has nothing but these. To copy them all is cheaper than to put on each.
    pub(super) fn fresh(&self, is_secure: bool) -> HeaderMap {
        let mut headers = HeaderMap::clone(&self.always);
        self.finish(&mut headers, is_secure);
        headers
    }

    /// Puts them on an answer.
    pub(super) fn dress(&self, headers: &mut HeaderMap, is_secure: bool) {
        // One growth at most, with room for the headers of CORS.
        headers.reserve(self.always.len() + 4);
        for (name, value) in self.always.iter() {
            headers.insert(name, value.clone());
        }
        self.finish(headers, is_secure);
    }

    fn finish(&self, headers: &mut HeaderMap, is_secure: bool) {
        if let (true, Some(value)) = (is_secure, &self.secure) {
            headers.insert(header::STRICT_TRANSPORT_SECURITY, value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(shield: &SecurityHeaders, is_secure: bool) -> Vec<String> {
        let mut headers = HeaderMap::new();
        shield.dress(&mut headers, is_secure);
        assert_eq!(headers, shield.fresh(is_secure));
        let mut lines: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    #[test]
    fn there_are_seven_without_a_word() {
        let all = [
            "content-security-policy: default-src 'none'; frame-ancestors 'none'",
            "permissions-policy: geolocation=(), microphone=(), camera=()",
            "referrer-policy: strict-origin-when-cross-origin",
            "strict-transport-security: max-age=31536000; includeSubDomains",
            "x-content-type-options: nosniff",
            "x-frame-options: DENY",
            "x-xss-protection: 1; mode=block",
        ];
        assert_eq!(shown(&SecurityHeaders::default(), true), all);
        let plain = shown(&SecurityHeaders::default(), false);
        assert_eq!(plain.len(), 6);
        assert!(!plain.iter().any(|line| line.starts_with("strict")));
        assert_eq!(shown(&SecurityHeaders::default().strict_transport_always(), false), all);
    }

    #[test]
    fn each_of_them_can_be_changed() {
        let changed =
            SecurityHeaders::none().with("X-Frame-Options", "DENY").with("x-frame-options", "SAMEORIGIN");
        assert_eq!(shown(&changed, true), ["x-frame-options: SAMEORIGIN"]);
        assert_eq!(shown(&changed.without("X-FRAME-options"), true), Vec::<String>::new());
        let always = SecurityHeaders::default().strict_transport_always();
        assert_eq!(shown(&always.without("Strict-Transport-Security"), true).len(), 6);
        let hsts = SecurityHeaders::none().with("strict-transport-security", "max-age=1");
        assert_eq!(shown(&hsts, false), Vec::<String>::new());
        assert_eq!(shown(&hsts, true), ["strict-transport-security: max-age=1"]);
        assert!(SecurityHeaders::none().with("a b", "c").check().is_err());
        assert!(SecurityHeaders::none().with("a", "c\r\nd: e").check().is_err());
    }
}
