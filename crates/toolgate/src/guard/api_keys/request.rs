//! The request as a provider of credentials sees it, and the attributes it can set.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;

use crate::profile::Profile;
use crate::request::Principal;

/// A request as a provider of API keys or logins sees it, with setters for the attributes of the caller.
///
/// Clones share the attributes that are set.
///
/// ```
/// # use toolgate::guard::KeyRequest;
/// let request = KeyRequest::new("shop").with_body(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
/// assert_eq!(request.method(), Some("tools/list"));
/// assert_eq!(request.server_name(), "shop");
/// ```
#[derive(Clone)]
#[must_use]
pub struct KeyRequest {
    data: Arc<KeyRequestData>,
    caller: Arc<Mutex<CallerInfo>>,
}

#[derive(Clone)]
struct KeyRequestData {
    server: String,
    http_method: Method,
    headers: Arc<HeaderMap>,
    body: Bytes,
    remote: Option<IpAddr>,
    request_id: Option<String>,
    transport: &'static str,
    /// Parsed on first use.
    method: OnceLock<Option<String>>,
}

/// The attributes of the caller that a provider has set.
#[derive(Clone, Default)]
struct CallerInfo {
    subject: Option<Arc<str>>,
    profile: Option<Profile>,
    attributes: Vec<(String, Value)>,
}

/// The part of a message that is parsed to know its method.
#[derive(serde::Deserialize)]
struct MethodProbe<'a> {
    #[serde(borrow)]
    method: Cow<'a, str>,
}

impl KeyRequest {
    /// A POST to this server, without headers and body.
    pub fn new(server: impl Into<String>) -> KeyRequest {
        let data = KeyRequestData {
            server: server.into(),
            http_method: Method::POST,
            headers: Arc::default(),
            body: Bytes::new(),
            remote: None,
            request_id: None,
            transport: "http",
            method: OnceLock::new(),
        };
        KeyRequest { data: Arc::new(data), caller: Arc::default() }
    }

    fn update_data(mut self, set: impl FnOnce(&mut KeyRequestData)) -> KeyRequest {
        set(Arc::make_mut(&mut self.data));
        self
    }

    /// Sets the body.
    pub fn with_body(self, body: impl Into<Bytes>) -> KeyRequest {
        self.update_data(|data| {
            data.body = body.into();
            data.method = OnceLock::new();
        })
    }

    /// Sets the headers.
    pub fn with_headers(self, headers: impl Into<Arc<HeaderMap>>) -> KeyRequest {
        self.update_data(|data| data.headers = headers.into())
    }

    /// Sets the HTTP method.
    pub fn with_http_method(self, method: Method) -> KeyRequest {
        self.update_data(|data| data.http_method = method)
    }

    /// Sets the address.
    pub fn with_remote_addr(self, address: impl Into<Option<IpAddr>>) -> KeyRequest {
        self.update_data(|data| data.remote = address.into())
    }

    /// Sets the request id.
    pub fn with_request_id(self, id: impl Into<String>) -> KeyRequest {
        self.update_data(|data| data.request_id = Some(id.into()))
    }

    /// The MCP method, such as `tools/call`. `None` if the body has none, as with a GET.
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        let read = || {
            serde_json::from_slice::<MethodProbe<'_>>(&self.data.body)
                .ok()
                .map(|probe| probe.method.trim().into())
        };
        self.data.method.get_or_init(read).as_deref()
    }

    /// The HTTP method.
    #[must_use]
    pub fn http_method(&self) -> &Method {
        &self.data.http_method
    }

    /// The name of the server that is called.
    #[must_use]
    pub fn server_name(&self) -> &str {
        &self.data.server
    }

    /// The body as received, as text.
    #[must_use]
    pub fn body(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.data.body)
    }

    /// The body as received.
    #[must_use]
    pub fn body_bytes(&self) -> &[u8] {
        &self.data.body
    }

    /// The headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.data.headers
    }

    /// The address that the request comes from: the one a trusted proxy states, or else the peer of the connection.
    #[must_use]
    pub fn remote_addr(&self) -> Option<IpAddr> {
        self.data.remote
    }

    /// The id of this request in logs.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.data.request_id.as_deref()
    }

    /// The transport of the request: `http`.
    #[must_use]
    pub fn transport(&self) -> &str {
        self.data.transport
    }

    /// Sets an attribute of the caller, which tools and listeners can read: `Principal::attribute`.
    pub fn set(&self, name: impl Into<String>, value: impl Into<Value>) {
        self.caller().attributes.push((name.into(), value.into()));
    }

    /// Returns an attribute that was set before.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Value> {
        self.caller().attributes.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    /// Sets the id of the caller. The default is `key:` and the first digits of the key's digest.
    pub fn set_subject(&self, subject: impl Into<Arc<str>>) {
        self.caller().subject = Some(subject.into());
    }

    /// Sets the profile of the caller: the items that it can see and call.
    pub fn set_profile(&self, profile: Profile) {
        self.caller().profile = Some(profile);
    }

    fn caller(&self) -> MutexGuard<'_, CallerInfo> {
        self.caller.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The principal, with everything that was set.
    pub(in crate::guard) fn apply_to(&self, principal: &Principal) -> Principal {
        let set = self.caller().clone();
        let mut complete = match set.subject {
            Some(subject) => Principal::new(subject),
            None => principal.clone(),
        };
        if let Some(profile) = set.profile.or_else(|| principal.profile().cloned()) {
            complete = complete.with_profile(profile);
        }
        set.attributes
            .into_iter()
            .fold(complete, |principal, (name, value)| principal.with_attribute(name, value))
    }
}

impl fmt::Debug for KeyRequest {
    // Headers contain the key, and bodies private data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRequest")
            .field("server_name", &self.data.server)
            .field("http_method", &self.data.http_method)
            .field("method", &self.method())
            .field("remote_addr", &self.data.remote)
            .finish_non_exhaustive()
    }
}
