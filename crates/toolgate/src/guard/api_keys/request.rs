//! What a provider of keys gets to see, and what it can say of the caller.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;

use crate::profile::Profile;
use crate::request::Principal;

/// What a provider of API keys gets to see of a request, and what it can say of the caller.
///
/// Copies are the same request: what is said on one is said on all.
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
    /// Read when it is asked for.
    method: OnceLock<Option<String>>,
}

/// What a provider said of the caller.
#[derive(Clone, Default)]
struct CallerInfo {
    subject: Option<Arc<str>>,
    profile: Option<Profile>,
    attributes: Vec<(String, Value)>,
}

/// As much of a message as is needed to know its method.
#[derive(serde::Deserialize)]
struct MethodProbe<'a> {
    #[serde(borrow)]
    method: Cow<'a, str>,
}

impl KeyRequest {
    /// A POST to this server that says nothing.
    pub fn new(server: impl Into<String>) -> KeyRequest {
        let asked = KeyRequestData {
            server: server.into(),
            http_method: Method::POST,
            headers: Arc::default(),
            body: Bytes::new(),
            remote: None,
            request_id: None,
            transport: "http",
            method: OnceLock::new(),
        };
        KeyRequest { data: Arc::new(asked), caller: Arc::default() }
    }

    fn update_data(mut self, set: impl FnOnce(&mut KeyRequestData)) -> KeyRequest {
        set(Arc::make_mut(&mut self.data));
        self
    }

    /// The same with this body.
    pub fn with_body(self, body: impl Into<Bytes>) -> KeyRequest {
        self.update_data(|asked| {
            asked.body = body.into();
            asked.method = OnceLock::new();
        })
    }

    /// The same with these headers.
    pub fn with_headers(self, headers: impl Into<Arc<HeaderMap>>) -> KeyRequest {
        self.update_data(|asked| asked.headers = headers.into())
    }

    /// The same with this method of HTTP.
    pub fn with_http_method(self, method: Method) -> KeyRequest {
        self.update_data(|asked| asked.http_method = method)
    }

    /// The same from this address.
    pub fn with_remote_addr(self, address: impl Into<Option<IpAddr>>) -> KeyRequest {
        self.update_data(|asked| asked.remote = address.into())
    }

    /// The same with this id.
    pub fn with_request_id(self, id: impl Into<String>) -> KeyRequest {
        self.update_data(|asked| asked.request_id = Some(id.into()))
    }

    /// The protocol's method, such as `tools/call`. `None` if the body does not say, as that of a GET.
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        let read = || {
            serde_json::from_slice::<MethodProbe<'_>>(&self.data.body)
                .ok()
                .map(|probe| probe.method.trim().into())
        };
        self.data.method.get_or_init(read).as_deref()
    }

    /// The method of HTTP.
    #[must_use]
    pub fn http_method(&self) -> &Method {
        &self.data.http_method
    }

    /// The name of the server that is called.
    #[must_use]
    pub fn server_name(&self) -> &str {
        &self.data.server
    }

    /// The body as it came, as text.
    #[must_use]
    pub fn body(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.data.body)
    }

    /// The body as it came.
    #[must_use]
    pub fn body_bytes(&self) -> &[u8] {
        &self.data.body
    }

    /// The headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.data.headers
    }

    /// Where the request comes from: what a trusted proxy says, or else the other end of the connection.
    #[must_use]
    pub fn remote_addr(&self) -> Option<IpAddr> {
        self.data.remote
    }

    /// The id that leads to this request in logs.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.data.request_id.as_deref()
    }

    /// How the request came: `http`.
    #[must_use]
    pub fn transport(&self) -> &str {
        self.data.transport
    }

    /// Says something of the caller that tools and listeners can read: `Principal::attribute`.
    pub fn set(&self, name: impl Into<String>, value: impl Into<Value>) {
        self.caller().attributes.push((name.into(), value.into()));
    }

    /// What was said of the caller before, under this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Value> {
        self.caller().attributes.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    /// Says who the caller is. Unless it is said, `key:` and the first digits of the key's digest.
    pub fn set_subject(&self, subject: impl Into<Arc<str>>) {
        self.caller().subject = Some(subject.into());
    }

    /// Says what the caller sees and may call.
    pub fn set_profile(&self, profile: Profile) {
        self.caller().profile = Some(profile);
    }

    fn caller(&self) -> MutexGuard<'_, CallerInfo> {
        self.caller.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caller, with all that was said of them.
    pub(in crate::guard) fn apply_to(&self, principal: &Principal) -> Principal {
        let told = self.caller().clone();
        let mut complete = match told.subject {
            Some(subject) => Principal::new(subject),
            None => principal.clone(),
        };
        if let Some(profile) = told.profile.or_else(|| principal.profile().cloned()) {
            complete = complete.with_profile(profile);
        }
        told.attributes.into_iter().fold(complete, |who, (name, value)| who.with_attribute(name, value))
    }
}

impl fmt::Debug for KeyRequest {
    // Headers hold the key, and bodies what is nobody's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRequest")
            .field("server_name", &self.data.server)
            .field("http_method", &self.data.http_method)
            .field("method", &self.method())
            .field("remote_addr", &self.data.remote)
            .finish_non_exhaustive()
    }
}
