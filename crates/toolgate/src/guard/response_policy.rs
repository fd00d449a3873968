//! The headers that every response carries: security headers and CORS.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};

use super::{Cors, Guards, PrebuiltHeaders};

/// The properties of a request that determine the headers of its response.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResponsePolicy {
    /// The value of `Access-Control-Allow-Origin`, if a page of another origin may read the response.
    pub(super) allow_origin: Option<Box<HeaderValue>>,
    /// Whether the request came over TLS.
    pub(super) is_secure: bool,
}

impl ResponsePolicy {
    /// The scheme of the URL that the request was sent to.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.is_secure { "https" } else { "http" }
    }
}

impl Guards {
    /// The headers of a JSON response, to start one with: cheaper than [`Guards::apply_headers`].
    pub(crate) fn json_headers(&self, policy: &ResponsePolicy) -> HeaderMap {
        let mut headers = self.security_headers.json_headers(policy.is_secure);
        if let Some(origin) = &policy.allow_origin {
            Cors::apply_headers(&mut headers, origin);
        }
        headers
    }

    /// The same headers, prebuilt, for a JSON response that has no others: they need not be copied into it.
    pub(crate) fn prebuilt_headers(&self, policy: &ResponsePolicy) -> Option<Arc<PrebuiltHeaders>> {
        if policy.allow_origin.is_some() { None } else { self.security_headers.prebuilt(policy.is_secure) }
    }

    /// Sets the headers that every response carries, and replaces earlier ones of the same names.
    pub(crate) fn apply_headers(&self, headers: &mut HeaderMap, policy: &ResponsePolicy) {
        self.security_headers.apply(headers, policy.is_secure);
        if let Some(origin) = &policy.allow_origin {
            Cors::apply_headers(headers, origin);
        }
    }

    pub(super) fn preflight_headers(
        &self,
        request_headers: &HeaderMap,
        policy: &ResponsePolicy,
    ) -> HeaderMap {
        let mut headers = HeaderMap::new();
        self.apply_headers(&mut headers, policy);
        self.cors.apply_preflight(request_headers, &mut headers);
        headers
    }
}
