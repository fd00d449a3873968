//! The client of one HTTP backend: its base URL, credentials, secrets and connection pool.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CACHE_CONTROL, ETAG, IF_NONE_MATCH, LOCATION, USER_AGENT,
};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::Value;
use toolgate::Context;

use super::connector::{EgressConnector, OutboundContext, parse_ca_certificates};
use super::error::{RequestError, request_error};
use super::headers::{credential_parts, parse_header, secret_values, validate_auth};
use super::response::{BackendResponse, read_response, single_header};
use super::url::{default_port, effective_port, is_redirect, parse_base_url, resolve_location};
use super::{Auth, HttpClientSpec, Retry};
use crate::source::Problem;
use crate::source::percent::{percent_decode, percent_encode};

const USER_AGENT_VALUE: &str = concat!("toolgate/", env!("CARGO_PKG_VERSION"));

/// The client of one HTTP backend, shared by all tools that call it.
pub struct HttpClient {
    pub(super) scheme: Scheme,
    pub(super) authority: Authority,
    /// The prefix of all paths, without a trailing slash.
    pub(super) path_prefix: String,
    headers: HeaderMap,
    /// Encoded `name=value` pairs.
    pub(super) query: Vec<String>,
    pub(super) auth: Auth,
    pub(super) retry: Retry,
    pub(super) timeout: Duration,
    pub(super) response_limit: usize,
    max_redirects: u8,
    /// Values that are masked in every response.
    secrets: Vec<String>,
    pub(super) outbound: Arc<OutboundContext>,
    connector: EgressConnector,
    client: Client<EgressConnector, Full<Bytes>>,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("authority", &self.authority).finish_non_exhaustive()
    }
}

/// A complete request.
pub(super) struct OutgoingRequest {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// A fetched document and its entity tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedDocument {
    pub text: String,
    pub etag: Option<String>,
}

impl HttpClient {
    /// Builds a client, or returns all problems of its description.
    pub fn new(
        spec: &HttpClientSpec,
        outbound: &Arc<OutboundContext>,
    ) -> Result<Arc<HttpClient>, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut report = |path: &str, message: String| problems.push(Problem { path: path.into(), message });
        let base = match parse_base_url(&spec.base_url) {
            Ok(base) => Some(base),
            Err(message) => {
                report("http", message);
                None
            }
        };
        if let Some((scheme, authority, _)) = &base {
            let port = authority.port_u16().unwrap_or(default_port(scheme));
            if outbound.egress.rejects_literal(authority.host(), port) {
                let host = authority.host();
                report(
                    "http",
                    format!(
                        "{host}:{port} is a private address; to allow it, set `security.egress.allow = [\"{host}:{port}\"]`"
                    ),
                );
            }
        }
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static(USER_AGENT_VALUE));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/*;q=0.9, */*;q=0.5"));
        for (name, value) in &spec.headers {
            match parse_header(name, value) {
                Ok((name, value)) => {
                    headers.insert(name, value);
                }
                Err(message) => report(&format!("headers.{name}"), message),
            }
        }
        if let Err(message) = validate_auth(&spec.auth) {
            report("auth", message);
        }
        if spec.max_redirects > 3 {
            report("redirects", "at most 3 redirects are followed".into());
        }
        if spec.timeout.is_zero() || spec.connect_timeout.is_zero() {
            report("timeout", "a timeout must be greater than zero".into());
        }
        let extra_roots = match spec.ca_pem.as_deref().map(parse_ca_certificates).transpose() {
            Ok(extra_roots) => extra_roots.unwrap_or_default(),
            Err(message) => {
                report("ca", message);
                Vec::new()
            }
        };
        let (Some((scheme, authority, prefix)), true) = (base, problems.is_empty()) else {
            return Err(problems);
        };
        let connector = EgressConnector::new(Arc::clone(outbound), extra_roots, spec.connect_timeout);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(60))
            .pool_max_idle_per_host(16)
            .http1_max_buf_size(64 * 1024)
            .http2_max_header_list_size(64 * 1024)
            .http2_adaptive_window(true)
            .build(connector.clone());
        let query = spec
            .query
            .iter()
            .map(|(name, value)| format!("{}={}", percent_encode(name), percent_encode(value)));
        Ok(Arc::new(HttpClient {
            scheme,
            authority,
            path_prefix: prefix,
            headers,
            query: query.collect(),
            auth: spec.auth.clone(),
            retry: spec.retry.clone(),
            timeout: spec.timeout,
            response_limit: spec.response_limit,
            max_redirects: spec.max_redirects,
            secrets: secret_values(spec),
            outbound: Arc::clone(outbound),
            connector,
            client,
        }))
    }

    /// Checks that the backend accepts connections: opens one and closes it without sending anything.
    pub async fn probe(&self) -> Result<(), String> {
        let url = format!("{}://{}/", self.scheme, self.authority);
        let uri = Uri::try_from(url).map_err(|_| "not a valid URL".to_owned())?;
        self.connector.connect(&uri).await.map(drop).map_err(|error| error.to_string())
    }

    /// Headers for this backend: those of the connection and the caller's credentials.
    pub(super) fn request_headers(&self, cx: &Context, auth: &Auth) -> Result<HeaderMap, String> {
        let mut headers = self.headers.clone();
        match auth {
            Auth::None => {}
            Auth::Forward => {
                let mut values = cx.headers().get_all(AUTHORIZATION).iter();
                let (Some(value), None) = (values.next(), values.next()) else {
                    return Err("this tool uses the caller's credentials, but the call has none".into());
                };
                let mut value = value.clone();
                value.set_sensitive(true);
                headers.insert(AUTHORIZATION, value);
            }
            Auth::Headers(names) => {
                let mut has_credentials = false;
                for name in names {
                    let mut values = cx.headers().get_all(name.as_str()).iter();
                    if let (Some(value), None) = (values.next(), values.next()) {
                        let (name, mut value) = parse_header(name, value.to_str().unwrap_or("\n"))?;
                        value.set_sensitive(true);
                        headers.insert(name, value);
                        has_credentials = true;
                    }
                }
                if !has_credentials {
                    return Err("this tool uses the caller's credentials, but the call has none".into());
                }
            }
            Auth::Attribute { attribute, header: name, prefix } => {
                let credential = cx.principal().attribute(attribute).and_then(|value| value.as_str());
                let Some(credential) = credential.filter(|credential| !credential.is_empty()) else {
                    return Err(
                        "this tool uses the caller's credentials, but the caller has none for the backend"
                            .into(),
                    );
                };
                let (name, value) = parse_header(name, &format!("{prefix}{credential}"))?;
                headers.insert(name, value);
            }
        }
        Ok(headers)
    }

    /// Headers for other hosts, without credentials.
    pub(super) fn anonymous_headers(&self) -> HeaderMap {
        let own_headers = [USER_AGENT, ACCEPT_ENCODING];
        own_headers
            .into_iter()
            .filter_map(|name| Some((name.clone(), self.headers.get(name)?.clone())))
            .collect()
    }

    /// Replaces the secrets of this connection and of this request with `***`.
    pub(super) fn mask_secrets(&self, text: String, headers: &HeaderMap) -> String {
        let request_secrets =
            headers.values().filter(|value| value.is_sensitive()).filter_map(|value| value.to_str().ok());
        let all = self.secrets.iter().cloned().chain(request_secrets.flat_map(credential_parts));
        all.fold(
            text,
            |text, secret| if text.contains(&secret) { text.replace(&secret, "***") } else { text },
        )
    }

    /// Removes the connection's query parameters and secrets from paging information: backends repeat them in their
    /// links.
    pub(super) fn mask_paging(&self, mut paging: Value, headers: &HeaderMap) -> Option<Value> {
        let own_parameters =
            self.query.iter().filter_map(|pair| pair.split_once('=')).map(|(name, _)| percent_decode(name));
        for name in own_parameters {
            for link in ["next", "prev", "first", "last"] {
                if let Some(parameters) = paging.get_mut(link).and_then(Value::as_object_mut) {
                    parameters.shift_remove(&name);
                }
            }
        }
        serde_json::from_str(&self.mask_secrets(paging.to_string(), headers)).ok()
    }

    /// Logs what callers do not see. The text comes from the backend, so it is escaped.
    pub(super) fn log_failure(&self, status: u16, message: &str) {
        tracing::warn!(backend = self.authority.as_str(), status, ?message, "backend failed");
    }

    /// Whether a URL has the origin of this backend.
    pub(super) fn is_own_origin(&self, uri: &Uri) -> bool {
        uri.scheme() == Some(&self.scheme)
            && uri.authority().is_some_and(|authority| {
                authority.host().eq_ignore_ascii_case(self.authority.host())
                    && effective_port(uri) == self.authority.port_u16().unwrap_or(default_port(&self.scheme))
            })
    }

    /// Validates a URL from an argument or a redirect: http or https, no userinfo, and the default port or a listed
    /// one.
    pub(super) fn validate_url(&self, text: &str) -> Result<Uri, RequestError> {
        let reject = |message: &str| Err(RequestError::Rejected(message.into()));
        let Ok(uri) = Uri::try_from(text) else { return reject("not a valid URL") };
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return reject("only http and https URLs are supported");
        }
        let host = uri.host().unwrap_or_default();
        if host.is_empty() || uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return reject("a URL must have a host and no user or password");
        }
        let port = effective_port(&uri);
        let is_usual = port == default_port(uri.scheme().unwrap_or(&Scheme::HTTP));
        if !is_usual && !self.is_own_origin(&uri) && !self.outbound.egress.is_listed(host, port) {
            return reject("address not allowed: its port is not listed");
        }
        Ok(uri)
    }

    /// Sends one request and reads the response, following redirects if the connection allows them.
    ///
    /// Cancel safe: yes, because dropping it drops the request.
    pub(super) async fn exchange(
        &self,
        outgoing: &OutgoingRequest,
        limit: usize,
    ) -> Result<BackendResponse, RequestError> {
        let mut uri = outgoing.uri.clone();
        let mut headers = outgoing.headers.clone();
        let mut n_redirects = 0;
        loop {
            let mut request = Request::new(Full::new(outgoing.body.clone()));
            *request.method_mut() = outgoing.method.clone();
            *request.uri_mut() = uri.clone();
            *request.headers_mut() = headers.clone();
            let response = self.client.request(request).await.map_err(|error| request_error(&error))?;
            let location = match response.headers().get(LOCATION) {
                Some(location)
                    if self.max_redirects > 0 && is_redirect(response.status(), &outgoing.method) =>
                {
                    location
                }
                _ => return read_response(response, limit).await.map_err(RequestError::from),
            };
            if n_redirects == self.max_redirects {
                return Err(RequestError::Rejected("the backend redirects too often".into()));
            }
            n_redirects += 1;
            let location =
                self.validate_url(&resolve_location(&uri, location.to_str().unwrap_or_default()))?;
            if uri.scheme() == Some(&Scheme::HTTPS) && location.scheme() == Some(&Scheme::HTTP) {
                return Err(RequestError::Rejected("the backend redirects from https to http".into()));
            }
            if location.scheme() != uri.scheme()
                || location.host() != uri.host()
                || effective_port(&location) != effective_port(&uri)
            {
                headers = self.anonymous_headers();
            }
            uri = location;
        }
    }

    /// Sends a GET request with an `Authorization` header and returns status and body. `path` is relative to the base
    /// URL.
    ///
    /// Cancel safe: yes, because dropping it drops the request.
    pub async fn get_with_authorization(
        &self,
        path: &str,
        authorization: &str,
        limit: usize,
    ) -> Result<(u16, Vec<u8>), String> {
        let url = format!("{}://{}{}{path}", self.scheme, self.authority, self.path_prefix);
        let uri = Uri::try_from(url).map_err(|_| "not a valid URL".to_owned())?;
        let mut headers = self.headers.clone();
        let (name, value) = parse_header(AUTHORIZATION.as_str(), authorization)?;
        headers.insert(name, value);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        let outgoing = OutgoingRequest { method: Method::GET, uri, headers, body: Bytes::new() };
        match tokio::time::timeout(self.timeout, self.exchange(&outgoing, limit)).await {
            Ok(Ok(response)) if response.is_truncated => Err("the response is too large".into()),
            Ok(Ok(response)) => Ok((response.status.as_u16(), response.body)),
            Ok(Err(failure)) => Err(failure.to_string()),
            Err(_) => Err("the backend timed out".into()),
        }
    }

    /// Fetches a document, from any host. Returns `None` if it still has the given entity tag.
    pub async fn fetch(
        &self,
        url: &str,
        etag: Option<&str>,
        limit: usize,
    ) -> Result<Option<FetchedDocument>, String> {
        let uri = self.validate_url(url).map_err(|failure| failure.to_string())?;
        let mut headers =
            if self.is_own_origin(&uri) { self.headers.clone() } else { self.anonymous_headers() };
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, application/yaml, text/*;q=0.9, */*;q=0.5"),
        );
        if let Some(known_etag) = etag.and_then(|etag| HeaderValue::from_str(etag).ok()) {
            headers.insert(IF_NONE_MATCH, known_etag);
        }
        let outgoing = OutgoingRequest { method: Method::GET, uri, headers, body: Bytes::new() };
        let response = match tokio::time::timeout(self.timeout, self.exchange(&outgoing, limit)).await {
            Ok(response) => response.map_err(|failure| failure.to_string())?,
            Err(_) => return Err("fetching the document timed out".into()),
        };
        match response.status {
            StatusCode::NOT_MODIFIED => return Ok(None),
            status if !status.is_success() => {
                return Err(format!("the document could not be fetched: {status}"));
            }
            _ if response.is_truncated => return Err(format!("the document is larger than {limit} bytes")),
            _ => {}
        }
        let etag = single_header(&response.headers, ETAG).map(str::to_owned);
        let text = String::from_utf8(response.body).map_err(|_| "the document is not valid UTF-8")?;
        Ok(Some(FetchedDocument { text, etag }))
    }
}
