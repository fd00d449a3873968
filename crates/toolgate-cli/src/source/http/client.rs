//! A backend: where it is, how we present ourselves to it, and one exchange with it.

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

/// A backend. Shared, with its pool of connections, by everything that calls it.
pub(crate) struct HttpClient {
    pub(super) scheme: Scheme,
    pub(super) authority: Authority,
    /// What all paths start with, without a slash at its end.
    pub(super) path_prefix: String,
    headers: HeaderMap,
    /// Ready to be joined.
    pub(super) query: Vec<String>,
    pub(super) auth: Auth,
    pub(super) retry: Retry,
    pub(super) timeout: Duration,
    pub(super) response_limit: usize,
    max_redirects: u8,
    /// Texts that no answer may show.
    secrets: Vec<String>,
    outbound: Arc<OutboundContext>,
    connector: EgressConnector,
    client: Client<EgressConnector, Full<Bytes>>,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("authority", &self.authority).finish_non_exhaustive()
    }
}

/// A request, filled.
pub(super) struct OutgoingRequest {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// A document, and by what it is recognized when it is asked for again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FetchedDocument {
    pub(crate) text: String,
    pub(crate) etag: Option<String>,
}

impl HttpClient {
    /// A backend, or everything that is wrong with its description.
    pub(crate) fn new(
        spec: &HttpClientSpec,
        outside: &Arc<OutboundContext>,
    ) -> Result<Arc<HttpClient>, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut wrong = |at: &str, said: String| problems.push(Problem { path: at.into(), message: said });
        let base = match parse_base_url(&spec.base_url) {
            Ok(base) => Some(base),
            Err(said) => {
                wrong("http", said);
                None
            }
        };
        if let Some((scheme, authority, _)) = &base {
            let port = authority.port_u16().unwrap_or(default_port(scheme));
            if outside.egress.rejects_literal(authority.host(), port) {
                let host = authority.host();
                wrong(
                    "http",
                    format!(
                        "{host}:{port} is a private address; if it is meant, allow it: `security.egress.allow = [\"{host}:{port}\"]`"
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
                Err(said) => wrong(&format!("headers.{name}"), said),
            }
        }
        if let Err(said) = validate_auth(&spec.auth) {
            wrong("auth", said);
        }
        if spec.max_redirects > 3 {
            wrong("redirects", "at most 3 redirects are followed".into());
        }
        if spec.timeout.is_zero() || spec.connect_timeout.is_zero() {
            wrong("timeout", "a timeout of nothing lets nothing happen".into());
        }
        let own = match spec.ca_pem.as_deref().map(parse_ca_certificates).transpose() {
            Ok(own) => own.unwrap_or_default(),
            Err(said) => {
                wrong("ca", said);
                Vec::new()
            }
        };
        let (Some((scheme, authority, prefix)), true) = (base, problems.is_empty()) else {
            return Err(problems);
        };
        let dial = EgressConnector::new(Arc::clone(outside), own, spec.connect_timeout);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(60))
            .pool_max_idle_per_host(16)
            .http1_max_buf_size(64 * 1024)
            .http2_max_header_list_size(64 * 1024)
            .http2_adaptive_window(true)
            .build(dial.clone());
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
            outbound: Arc::clone(outside),
            connector: dial,
            client,
        }))
    }

    /// Whether somebody is there: opens a connection, says nothing, and closes it.
    pub(crate) async fn probe(&self) -> Result<(), String> {
        let address = format!("{}://{}/", self.scheme, self.authority);
        let uri = Uri::try_from(address).map_err(|_| "this is no address".to_owned())?;
        self.connector.connect(&uri).await.map(drop).map_err(|error| error.to_string())
    }

    /// The headers that go to this backend: ours, and the caller's credentials.
    pub(super) fn request_headers(&self, cx: &Context, auth: &Auth) -> Result<HeaderMap, String> {
        let mut headers = self.headers.clone();
        match auth {
            Auth::None => {}
            Auth::Forward => {
                let mut given = cx.headers().get_all(AUTHORIZATION).iter();
                let (Some(value), None) = (given.next(), given.next()) else {
                    return Err("this tool acts as its caller, and the call has no credentials".into());
                };
                let mut value = value.clone();
                value.set_sensitive(true);
                headers.insert(AUTHORIZATION, value);
            }
            Auth::Headers(names) => {
                let mut is_known = false;
                for name in names {
                    let mut given = cx.headers().get_all(name.as_str()).iter();
                    if let (Some(value), None) = (given.next(), given.next()) {
                        let (name, mut value) = parse_header(name, value.to_str().unwrap_or("\n"))?;
                        value.set_sensitive(true);
                        headers.insert(name, value);
                        is_known = true;
                    }
                }
                if !is_known {
                    return Err("this tool acts as its caller, and the call has no credentials".into());
                }
            }
            Auth::Attribute { attribute, header: name, prefix } => {
                let known = cx.principal().attribute(attribute).and_then(|value| value.as_str());
                let Some(known) = known.filter(|known| !known.is_empty()) else {
                    return Err("this tool acts as its caller, who has no credentials for the backend".into());
                };
                let (name, value) = parse_header(name, &format!("{prefix}{known}"))?;
                headers.insert(name, value);
            }
        }
        Ok(headers)
    }

    /// The headers that go to anybody else.
    pub(super) fn anonymous_headers(&self) -> HeaderMap {
        let ours = [USER_AGENT, ACCEPT_ENCODING];
        ours.into_iter().filter_map(|name| Some((name.clone(), self.headers.get(name)?.clone()))).collect()
    }

    /// A text without the secrets of this connection and of this request.
    pub(super) fn mask_secrets(&self, text: String, headers: &HeaderMap) -> String {
        let of_request =
            headers.values().filter(|value| value.is_sensitive()).filter_map(|value| value.to_str().ok());
        let all = self.secrets.iter().cloned().chain(of_request.flat_map(credential_parts));
        all.fold(
            text,
            |text, secret| if text.contains(&secret) { text.replace(&secret, "***") } else { text },
        )
    }

    /// Where to go on, without the keys that a backend writes into its links.
    pub(super) fn mask_paging(&self, mut paging: Value, headers: &HeaderMap) -> Option<Value> {
        let own =
            self.query.iter().filter_map(|pair| pair.split_once('=')).map(|(name, _)| percent_decode(name));
        for name in own {
            for link in ["next", "prev", "first", "last"] {
                if let Some(parameters) = paging.get_mut(link).and_then(Value::as_object_mut) {
                    parameters.shift_remove(&name);
                }
            }
        }
        serde_json::from_str(&self.mask_secrets(paging.to_string(), headers)).ok()
    }

    /// Tells whoever runs the program what callers are not told. The text is somebody else's, so it is escaped.
    pub(super) fn log_failure(&self, status: u16, said: &str) {
        tracing::warn!(backend = self.authority.as_str(), status, ?said, "a backend failed");
    }

    /// Whether an address belongs to this backend.
    pub(super) fn is_own_origin(&self, uri: &Uri) -> bool {
        uri.scheme() == Some(&self.scheme)
            && uri.authority().is_some_and(|authority| {
                authority.host().eq_ignore_ascii_case(self.authority.host())
                    && effective_port(uri) == self.authority.port_u16().unwrap_or(default_port(&self.scheme))
            })
    }

    /// An address that somebody else chose: a scheme we speak, nobody's name and password, a port that is usual or listed.
    pub(super) fn validate_url(&self, text: &str) -> Result<Uri, RequestError> {
        let refused = |said: &str| Err(RequestError::Rejected(said.into()));
        let Ok(uri) = Uri::try_from(text) else { return refused("this is no address of HTTP") };
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return refused("only http and https are spoken");
        }
        let host = uri.host().unwrap_or_default();
        if host.is_empty() || uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return refused("an address has a host, and no user or password");
        }
        let number = effective_port(&uri);
        let is_usual = number == default_port(uri.scheme().unwrap_or(&Scheme::HTTP));
        if !is_usual && !self.is_own_origin(&uri) && !self.outbound.egress.is_listed(host, number) {
            return refused("address not allowed: its port is not listed");
        }
        Ok(uri)
    }

    /// One request, one answer; redirects are followed if that was asked for.
    /// Cancel safe: yes, because dropping it drops the request.
    pub(super) async fn exchange(
        &self,
        outgoing: &OutgoingRequest,
        limit: usize,
    ) -> Result<BackendResponse, RequestError> {
        let mut uri = outgoing.uri.clone();
        let mut headers = outgoing.headers.clone();
        let mut hops = 0;
        loop {
            let mut request = Request::new(Full::new(outgoing.body.clone()));
            *request.method_mut() = outgoing.method.clone();
            *request.uri_mut() = uri.clone();
            *request.headers_mut() = headers.clone();
            let response = self.client.request(request).await.map_err(|error| request_error(&error))?;
            let next = match response.headers().get(LOCATION) {
                Some(next) if self.max_redirects > 0 && is_redirect(response.status(), &outgoing.method) => {
                    next
                }
                _ => return read_response(response, limit).await.map_err(RequestError::from),
            };
            if hops == self.max_redirects {
                return Err(RequestError::Rejected("the backend sends from one address to the next".into()));
            }
            hops += 1;
            let next = self.validate_url(&resolve_location(&uri, next.to_str().unwrap_or_default()))?;
            if uri.scheme() == Some(&Scheme::HTTPS) && next.scheme() == Some(&Scheme::HTTP) {
                return Err(RequestError::Rejected("the backend sends from https to http".into()));
            }
            if next.scheme() != uri.scheme()
                || next.host() != uri.host()
                || effective_port(&next) != effective_port(&uri)
            {
                headers = self.anonymous_headers();
            }
            uri = next;
        }
    }

    /// What this backend says to somebody: a status and a body. `path` begins behind the base.
    /// Cancel safe: yes, because dropping it drops the request.
    pub(crate) async fn get_with_authorization(
        &self,
        path: &str,
        authorization: &str,
        limit: usize,
    ) -> Result<(u16, Vec<u8>), String> {
        let address = format!("{}://{}{}{path}", self.scheme, self.authority, self.path_prefix);
        let uri = Uri::try_from(address).map_err(|_| "this is no address".to_owned())?;
        let mut headers = self.headers.clone();
        let (name, value) = parse_header(AUTHORIZATION.as_str(), authorization)?;
        headers.insert(name, value);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        let outgoing = OutgoingRequest { method: Method::GET, uri, headers, body: Bytes::new() };
        match tokio::time::timeout(self.timeout, self.exchange(&outgoing, limit)).await {
            Ok(Ok(answer)) if answer.is_truncated => Err("the answer is too large".into()),
            Ok(Ok(answer)) => Ok((answer.status.as_u16(), answer.body)),
            Ok(Err(failure)) => Err(failure.to_string()),
            Err(_) => Err("the backend took too long".into()),
        }
    }

    /// A document that is not of this backend necessarily, or nothing if it is still the one that is known.
    pub(crate) async fn fetch(
        &self,
        address: &str,
        etag: Option<&str>,
        limit: usize,
    ) -> Result<Option<FetchedDocument>, String> {
        let uri = self.validate_url(address).map_err(|failure| failure.to_string())?;
        let mut headers =
            if self.is_own_origin(&uri) { self.headers.clone() } else { self.anonymous_headers() };
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, application/yaml, text/*;q=0.9, */*;q=0.5"),
        );
        if let Some(known) = etag.and_then(|etag| HeaderValue::from_str(etag).ok()) {
            headers.insert(IF_NONE_MATCH, known);
        }
        let outgoing = OutgoingRequest { method: Method::GET, uri, headers, body: Bytes::new() };
        let answer = match tokio::time::timeout(self.timeout, self.exchange(&outgoing, limit)).await {
            Ok(answer) => answer.map_err(|failure| failure.to_string())?,
            Err(_) => return Err("the document took too long".into()),
        };
        match answer.status {
            StatusCode::NOT_MODIFIED => return Ok(None),
            status if !status.is_success() => return Err(format!("the document is not there: {status}")),
            _ if answer.is_truncated => return Err(format!("the document is larger than {limit} bytes")),
            _ => {}
        }
        let etag = single_header(&answer.headers, ETAG).map(str::to_owned);
        let text = String::from_utf8(answer.body).map_err(|_| "the document is no text")?;
        Ok(Some(FetchedDocument { text, etag }))
    }
}
