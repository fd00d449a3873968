//! A backend: where it is, how we present ourselves to it, and one exchange with it.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CACHE_CONTROL, ETAG, HeaderName, IF_NONE_MATCH, LOCATION,
    USER_AGENT,
};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::Value;
use toolgate::Context;

use super::connector::{ConnectError, EgressConnector, OutboundContext, parse_ca_certificates};
use super::encode::{percent_decode, percent_encode};
use super::response::{BackendResponse, BodyError, read_response, single_header};
use super::{Auth, HttpClientSpec, Retry};
use crate::source::Problem;
use crate::source::egress::EgressError;

const USER_AGENT_VALUE: &str = concat!("toolgate/", env!("CARGO_PKG_VERSION"));

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

/// Why there is no answer. What it says is safe to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestError {
    /// We do not go there.
    Rejected(String),
    /// Nothing was sent.
    Unreachable(String),
    /// Something was sent, nobody knows how much of it was heard.
    ConnectionLost,
    /// An answer that nobody can read.
    UnsupportedEncoding,
}

impl RequestError {
    /// One word for programs.
    pub(super) fn code(&self) -> &'static str {
        match self {
            RequestError::Rejected(_) => "refused",
            RequestError::Unreachable(_) => "unreachable",
            RequestError::ConnectionLost => "broken",
            RequestError::UnsupportedEncoding => "unreadable",
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::Rejected(said) | RequestError::Unreachable(said) => f.write_str(said),
            RequestError::ConnectionLost => f.write_str("the connection to the backend broke"),
            RequestError::UnsupportedEncoding => {
                f.write_str("the backend answered in an encoding that is not known")
            }
        }
    }
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

impl From<BodyError> for RequestError {
    fn from(unread: BodyError) -> RequestError {
        match unread {
            BodyError::Io => RequestError::ConnectionLost,
            BodyError::UnsupportedEncoding => RequestError::UnsupportedEncoding,
        }
    }
}

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

fn secret_values(spec: &HttpClientSpec) -> Vec<String> {
    let headers = spec
        .headers
        .iter()
        .filter(|(name, _)| is_secret_name(name))
        .flat_map(|(_, value)| credential_parts(value));
    let query = spec.query.iter().flat_map(|(_, value)| [value.clone(), percent_encode(value)]);
    headers.chain(query).filter(|secret| secret.len() >= MIN_SECRET_BYTES).collect()
}

/// What is shorter is a word that may be anywhere.
const MIN_SECRET_BYTES: usize = 6;

/// What of a credential is a secret: the parts behind its scheme, and the password that is in one of them.
fn credential_parts(value: &str) -> Vec<String> {
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

fn parse_base_url(text: &str) -> Result<(Scheme, Authority, String), String> {
    let Ok(uri) = Uri::try_from(text) else {
        return Err(format!("`{text}` is no address such as `https://api.example.com`"));
    };
    let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
        return Err(format!("`{text}` is no whole address; one looks like `https://api.example.com`"));
    };
    if !matches!(scheme.as_str(), "http" | "https") {
        return Err(format!("`{scheme}` is not spoken here, only http and https"));
    }
    if authority.as_str().contains('@') {
        return Err("user and password do not belong into an address; set the header `Authorization`".into());
    }
    if uri.query().is_some() || text.contains('#') {
        return Err(format!("`{text}` must end with its path: queries belong to tools"));
    }
    Ok((scheme.clone(), authority.clone(), uri.path().trim_end_matches('/').to_owned()))
}

fn default_port(scheme: &Scheme) -> u16 {
    if *scheme == Scheme::HTTPS { 443 } else { 80 }
}

fn effective_port(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(default_port(uri.scheme().unwrap_or(&Scheme::HTTP)))
}

/// Only what asks for something is sent elsewhere; what changes something is not.
fn is_redirect(status: StatusCode, method: &Method) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
        && (method == Method::GET || method == Method::HEAD)
}

/// Where a link on a page leads.
fn resolve_location(from: &Uri, to: &str) -> String {
    let to = to.split('#').next().unwrap_or_default();
    let scheme = from.scheme_str().unwrap_or("http");
    let authority = from.authority().map_or("", Authority::as_str);
    if to.contains("://") || to.split(['/', '?']).next().is_some_and(|start| start.contains(':')) {
        to.to_owned()
    } else if let Some(rest) = to.strip_prefix("//") {
        format!("{scheme}://{rest}")
    } else if to.starts_with('/') {
        format!("{scheme}://{authority}{to}")
    } else {
        let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{scheme}://{authority}{folder}/{to}")
    }
}

fn request_error(error: &hyper_util::client::legacy::Error) -> RequestError {
    let mut cause = error.source();
    while let Some(inner) = cause {
        match inner.downcast_ref::<ConnectError>() {
            Some(ConnectError::Egress(refused @ EgressError::AddressNotAllowed)) => {
                return RequestError::Rejected(refused.to_string());
            }
            Some(dial) => return RequestError::Unreachable(dial.to_string()),
            None => cause = inner.source(),
        }
    }
    if error.is_connect() {
        RequestError::Unreachable("cannot connect".into())
    } else {
        RequestError::ConnectionLost
    }
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
