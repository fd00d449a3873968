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

use super::answer::{Answer, Unread, read, text_of};
use super::dial::{Dial, DialError, Outside, authorities};
use super::encode::{percent, unescaped};
use super::{Auth, ConnectionSpec, Retry};
use crate::source::Problem;
use crate::source::egress::Refused;

const AGENT: &str = concat!("toolgate/", env!("CARGO_PKG_VERSION"));

/// Headers that belong to the connection or to us: a description cannot set them.
const OURS: [&str; 11] = [
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
pub(crate) struct HttpConnection {
    pub(super) scheme: Scheme,
    pub(super) authority: Authority,
    /// What all paths start with, without a slash at its end.
    pub(super) prefix: String,
    headers: HeaderMap,
    /// Ready to be joined.
    pub(super) query: Vec<String>,
    pub(super) auth: Auth,
    pub(super) retry: Retry,
    pub(super) timeout: Duration,
    pub(super) response_limit: usize,
    redirects: u8,
    /// Texts that no answer may show.
    secrets: Vec<String>,
    outside: Arc<Outside>,
    dial: Dial,
    client: Client<Dial, Full<Bytes>>,
}

impl fmt::Debug for HttpConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpConnection").field("authority", &self.authority).finish_non_exhaustive()
    }
}

/// A request, filled.
pub(super) struct Outgoing {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Why there is no answer. What it says is safe to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// We do not go there.
    Refused(String),
    /// Nothing was sent.
    Unreachable(String),
    /// Something was sent, nobody knows how much of it was heard.
    Broken,
    /// An answer that nobody can read.
    Unreadable,
}

impl Failure {
    /// One word for programs.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Failure::Refused(_) => "refused",
            Failure::Unreachable(_) => "unreachable",
            Failure::Broken => "broken",
            Failure::Unreadable => "unreadable",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused(said) | Failure::Unreachable(said) => f.write_str(said),
            Failure::Broken => f.write_str("the connection to the backend broke"),
            Failure::Unreadable => f.write_str("the backend answered in an encoding that is not known"),
        }
    }
}

/// A document, and by what it is recognized when it is asked for again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fetched {
    pub(crate) text: String,
    pub(crate) etag: Option<String>,
}

impl HttpConnection {
    /// A backend, or everything that is wrong with its description.
    pub(crate) fn new(
        spec: &ConnectionSpec,
        outside: &Arc<Outside>,
    ) -> Result<Arc<HttpConnection>, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut wrong = |at: &str, said: String| problems.push(Problem { at: at.into(), said });
        let base = match base(&spec.base) {
            Ok(base) => Some(base),
            Err(said) => {
                wrong("http", said);
                None
            }
        };
        if let Some((scheme, authority, _)) = &base {
            let port = authority.port_u16().unwrap_or(default_port(scheme));
            if outside.egress.refuses_literal(authority.host(), port) {
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
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/*;q=0.9, */*;q=0.5"));
        for (name, value) in &spec.headers {
            match header(name, value) {
                Ok((name, value)) => {
                    headers.insert(name, value);
                }
                Err(said) => wrong(&format!("headers.{name}"), said),
            }
        }
        if let Err(said) = judge_auth(&spec.auth) {
            wrong("auth", said);
        }
        if spec.redirects > 3 {
            wrong("redirects", "at most 3 redirects are followed".into());
        }
        if spec.timeout.is_zero() || spec.connect_timeout.is_zero() {
            wrong("timeout", "a timeout of nothing lets nothing happen".into());
        }
        let own = match spec.ca.as_deref().map(authorities).transpose() {
            Ok(own) => own.unwrap_or_default(),
            Err(said) => {
                wrong("ca", said);
                Vec::new()
            }
        };
        let (Some((scheme, authority, prefix)), true) = (base, problems.is_empty()) else {
            return Err(problems);
        };
        let dial = Dial::new(Arc::clone(outside), own, spec.connect_timeout);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(60))
            .pool_max_idle_per_host(16)
            .http1_max_buf_size(64 * 1024)
            .http2_max_header_list_size(64 * 1024)
            .http2_adaptive_window(true)
            .build(dial.clone());
        let query = spec.query.iter().map(|(name, value)| format!("{}={}", percent(name), percent(value)));
        Ok(Arc::new(HttpConnection {
            scheme,
            authority,
            prefix,
            headers,
            query: query.collect(),
            auth: spec.auth.clone(),
            retry: spec.retry.clone(),
            timeout: spec.timeout,
            response_limit: spec.response_limit,
            redirects: spec.redirects,
            secrets: secrets(spec),
            outside: Arc::clone(outside),
            dial,
            client,
        }))
    }

    /// Whether somebody is there: opens a connection, says nothing, and closes it.
    pub(crate) async fn reach(&self) -> Result<(), String> {
        let address = format!("{}://{}/", self.scheme, self.authority);
        let uri = Uri::try_from(address).map_err(|_| "this is no address".to_owned())?;
        self.dial.open(&uri).await.map(drop).map_err(|error| error.to_string())
    }

    /// The headers that go to this backend: ours, and the caller's credentials.
    pub(super) fn presented(&self, cx: &Context, auth: &Auth) -> Result<HeaderMap, String> {
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
                        let (name, mut value) = header(name, value.to_str().unwrap_or("\n"))?;
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
                let (name, value) = header(name, &format!("{prefix}{known}"))?;
                headers.insert(name, value);
            }
        }
        Ok(headers)
    }

    /// The headers that go to anybody else.
    pub(super) fn anonymous(&self) -> HeaderMap {
        let ours = [USER_AGENT, ACCEPT_ENCODING];
        ours.into_iter().filter_map(|name| Some((name.clone(), self.headers.get(name)?.clone()))).collect()
    }

    /// A text without the secrets of this connection and of this request.
    pub(super) fn masked(&self, text: String, headers: &HeaderMap) -> String {
        let of_request =
            headers.values().filter(|value| value.is_sensitive()).filter_map(|value| value.to_str().ok());
        let all = self.secrets.iter().cloned().chain(of_request.flat_map(parts));
        all.fold(
            text,
            |text, secret| if text.contains(&secret) { text.replace(&secret, "***") } else { text },
        )
    }

    /// Where to go on, without the keys that a backend writes into its links.
    pub(super) fn told(&self, mut paging: Value, headers: &HeaderMap) -> Option<Value> {
        let own = self.query.iter().filter_map(|pair| pair.split_once('=')).map(|(name, _)| unescaped(name));
        for name in own {
            for link in ["next", "prev", "first", "last"] {
                if let Some(parameters) = paging.get_mut(link).and_then(Value::as_object_mut) {
                    parameters.shift_remove(&name);
                }
            }
        }
        serde_json::from_str(&self.masked(paging.to_string(), headers)).ok()
    }

    /// Tells whoever runs the program what callers are not told. The text is somebody else's, so it is escaped.
    pub(super) fn note(&self, status: u16, said: &str) {
        tracing::warn!(backend = self.authority.as_str(), status, ?said, "a backend failed");
    }

    /// Whether an address belongs to this backend.
    pub(super) fn is_home(&self, uri: &Uri) -> bool {
        uri.scheme() == Some(&self.scheme)
            && uri.authority().is_some_and(|authority| {
                authority.host().eq_ignore_ascii_case(self.authority.host())
                    && port(uri) == self.authority.port_u16().unwrap_or(default_port(&self.scheme))
            })
    }

    /// An address that somebody else chose: a scheme we speak, nobody's name and password, a port that is usual or listed.
    pub(super) fn judged(&self, text: &str) -> Result<Uri, Failure> {
        let refused = |said: &str| Err(Failure::Refused(said.into()));
        let Ok(uri) = Uri::try_from(text) else { return refused("this is no address of HTTP") };
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return refused("only http and https are spoken");
        }
        let host = uri.host().unwrap_or_default();
        if host.is_empty() || uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return refused("an address has a host, and no user or password");
        }
        let number = port(&uri);
        let is_usual = number == default_port(uri.scheme().unwrap_or(&Scheme::HTTP));
        if !is_usual && !self.is_home(&uri) && !self.outside.egress.lists(host, number) {
            return refused("address not allowed: its port is not listed");
        }
        Ok(uri)
    }

    /// One request, one answer; redirects are followed if that was asked for.
    /// Cancel safe: yes, because dropping it drops the request.
    pub(super) async fn exchange(&self, outgoing: &Outgoing, limit: usize) -> Result<Answer, Failure> {
        let mut uri = outgoing.uri.clone();
        let mut headers = outgoing.headers.clone();
        let mut hops = 0;
        loop {
            let mut request = Request::new(Full::new(outgoing.body.clone()));
            *request.method_mut() = outgoing.method.clone();
            *request.uri_mut() = uri.clone();
            *request.headers_mut() = headers.clone();
            let response = self.client.request(request).await.map_err(|error| failure(&error))?;
            let next = match response.headers().get(LOCATION) {
                Some(next) if self.redirects > 0 && is_redirect(response.status(), &outgoing.method) => next,
                _ => return read(response, limit).await.map_err(Failure::from),
            };
            if hops == self.redirects {
                return Err(Failure::Refused("the backend sends from one address to the next".into()));
            }
            hops += 1;
            let next = self.judged(&joined(&uri, next.to_str().unwrap_or_default()))?;
            if uri.scheme() == Some(&Scheme::HTTPS) && next.scheme() == Some(&Scheme::HTTP) {
                return Err(Failure::Refused("the backend sends from https to http".into()));
            }
            if next.scheme() != uri.scheme() || next.host() != uri.host() || port(&next) != port(&uri) {
                headers = self.anonymous();
            }
            uri = next;
        }
    }

    /// What this backend says to somebody: a status and a body. `path` begins behind the base.
    /// Cancel safe: yes, because dropping it drops the request.
    pub(crate) async fn ask(
        &self,
        path: &str,
        authorization: &str,
        limit: usize,
    ) -> Result<(u16, Vec<u8>), String> {
        let address = format!("{}://{}{}{path}", self.scheme, self.authority, self.prefix);
        let uri = Uri::try_from(address).map_err(|_| "this is no address".to_owned())?;
        let mut headers = self.headers.clone();
        let (name, value) = header(AUTHORIZATION.as_str(), authorization)?;
        headers.insert(name, value);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        let outgoing = Outgoing { method: Method::GET, uri, headers, body: Bytes::new() };
        match tokio::time::timeout(self.timeout, self.exchange(&outgoing, limit)).await {
            Ok(Ok(answer)) if answer.is_cut => Err("the answer is too large".into()),
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
    ) -> Result<Option<Fetched>, String> {
        let uri = self.judged(address).map_err(|failure| failure.to_string())?;
        let mut headers = if self.is_home(&uri) { self.headers.clone() } else { self.anonymous() };
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, application/yaml, text/*;q=0.9, */*;q=0.5"),
        );
        if let Some(known) = etag.and_then(|etag| HeaderValue::from_str(etag).ok()) {
            headers.insert(IF_NONE_MATCH, known);
        }
        let outgoing = Outgoing { method: Method::GET, uri, headers, body: Bytes::new() };
        let answer = match tokio::time::timeout(self.timeout, self.exchange(&outgoing, limit)).await {
            Ok(answer) => answer.map_err(|failure| failure.to_string())?,
            Err(_) => return Err("the document took too long".into()),
        };
        match answer.status {
            StatusCode::NOT_MODIFIED => return Ok(None),
            status if !status.is_success() => return Err(format!("the document is not there: {status}")),
            _ if answer.is_cut => return Err(format!("the document is larger than {limit} bytes")),
            _ => {}
        }
        let etag = text_of(&answer.headers, ETAG).map(str::to_owned);
        let text = String::from_utf8(answer.body).map_err(|_| "the document is no text")?;
        Ok(Some(Fetched { text, etag }))
    }
}

impl From<Unread> for Failure {
    fn from(unread: Unread) -> Failure {
        match unread {
            Unread::Broken => Failure::Broken,
            Unread::Encoding => Failure::Unreadable,
        }
    }
}

/// Whether the headers that credentials go to can be set.
pub(super) fn judge_auth(auth: &Auth) -> Result<(), String> {
    match auth {
        Auth::None | Auth::Forward => Ok(()),
        Auth::Headers(names) => names.iter().try_for_each(|name| header(name, "").map(drop)),
        Auth::Attribute { header: name, prefix, .. } => header(name, prefix).map(drop),
    }
}

/// A header that a description may set.
pub(super) fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let Ok(name) = HeaderName::try_from(name) else { return Err(format!("`{name}` is no name of a header")) };
    if OURS.contains(&name.as_str()) {
        return Err(format!("`{name}` belongs to the connection and cannot be set"));
    }
    let is_fine = value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let Some(mut value) = HeaderValue::from_str(value).ok().filter(|_| is_fine) else {
        return Err(format!("invalid header value for `{name}`"));
    };
    value.set_sensitive(is_secret(name.as_str()));
    Ok((name, value))
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["auth", "key", "token", "secret", "cookie", "password", "signature"]
        .iter()
        .any(|part| name.contains(part))
}

fn secrets(spec: &ConnectionSpec) -> Vec<String> {
    let headers = spec.headers.iter().filter(|(name, _)| is_secret(name)).flat_map(|(_, value)| parts(value));
    let query = spec.query.iter().flat_map(|(_, value)| [value.clone(), percent(value)]);
    headers.chain(query).filter(|secret| secret.len() >= SECRET_LENGTH).collect()
}

/// What is shorter is a word that may be anywhere.
const SECRET_LENGTH: usize = 6;

/// What of a credential is a secret: the parts behind its scheme, and the password that is in one of them.
fn parts(value: &str) -> Vec<String> {
    let value = match value.split_once(' ') {
        Some((scheme, rest)) if is_scheme(scheme) && !rest.trim().is_empty() => rest,
        _ => value,
    };
    let words = value.split([' ', ',', ';']).filter(|part| part.len() >= SECRET_LENGTH);
    let inside = words.clone().filter_map(|word| String::from_utf8(STANDARD.decode(word).ok()?).ok());
    let passwords = inside.filter_map(|pair| Some(pair.split_once(':')?.1.to_owned()));
    words.map(str::to_owned).chain(passwords.filter(|word| word.len() >= SECRET_LENGTH)).collect()
}

/// A word such as `Bearer`, which everybody may know.
fn is_scheme(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-')
}

fn base(text: &str) -> Result<(Scheme, Authority, String), String> {
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

fn port(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(default_port(uri.scheme().unwrap_or(&Scheme::HTTP)))
}

/// Only what asks for something is sent elsewhere; what changes something is not.
fn is_redirect(status: StatusCode, method: &Method) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
        && (method == Method::GET || method == Method::HEAD)
}

/// Where a link on a page leads.
fn joined(from: &Uri, to: &str) -> String {
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

fn failure(error: &hyper_util::client::legacy::Error) -> Failure {
    let mut cause = error.source();
    while let Some(inner) = cause {
        match inner.downcast_ref::<DialError>() {
            Some(DialError::Refused(refused @ Refused::Address)) => {
                return Failure::Refused(refused.to_string());
            }
            Some(dial) => return Failure::Unreachable(dial.to_string()),
            None => cause = inner.source(),
        }
    }
    if error.is_connect() { Failure::Unreachable("cannot connect".into()) } else { Failure::Broken }
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
            assert_eq!(parts(value), wanted, "{value}");
        }
    }
}
