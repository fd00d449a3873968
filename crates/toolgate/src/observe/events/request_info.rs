//! A received request and its origin, shared by all events about that request.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use http::HeaderMap;
use serde_json::{Map, Value, json};
use toolgate_wire::{RawJson, RequestId};

use crate::headers::RequestHeaders;
use crate::observe::redact::{MASK, is_secret};
use crate::observe::stats::{Stats, StatsDetail, StatsSummary};
use crate::request::Principal;

/// The transport over which a message was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// HTTP, in any of its forms.
    Http,
    /// Standard input and output, or another pair of byte streams.
    Stdio,
    /// A call within the process, without serialization over a socket or pipe.
    Memory,
}

impl Transport {
    /// Returns the lowercase name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Transport::Http => "http",
            Transport::Stdio => "stdio",
            Transport::Memory => "memory",
        }
    }
}

impl std::fmt::Display for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A received request, with its headers, its sender and the statistics of its server.
#[derive(Clone)]
pub struct RequestInfo {
    pub(crate) server: Arc<str>,
    pub(crate) id: Option<RequestId>,
    pub(crate) method: Box<str>,
    pub(crate) params: Option<RawJson>,
    /// Empty unless the transport is HTTP.
    pub(crate) headers: Arc<RequestHeaders>,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) principal: Principal,
    pub(crate) transport: Transport,
    /// The task whose run this is.
    pub(crate) task: Option<Box<str>>,
    pub(crate) stats: Arc<Stats>,
    /// Receive time, on the clock of the statistics.
    pub(crate) received_nanos: u64,
    /// Size of the parameters as received.
    pub(crate) params_bytes: usize,
    /// The parsed parameters, filled on first access.
    pub(crate) parsed_params: OnceLock<Value>,
    /// The parameters as changed by a listener; they replace those received.
    pub(crate) changed_params: Option<Value>,
}

/// The borrowed parts from which a [`RequestInfo`] is made.
pub(crate) struct RequestInfoParts<'a> {
    pub(crate) id: Option<&'a RequestId>,
    pub(crate) method: &'a str,
    pub(crate) params: Option<&'a RawJson>,
    pub(crate) headers: &'a Arc<RequestHeaders>,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) principal: &'a Principal,
    pub(crate) transport: Transport,
}

impl RequestInfo {
    pub(crate) fn new(server: &Arc<str>, stats: &Arc<Stats>, parts: &RequestInfoParts<'_>) -> RequestInfo {
        RequestInfo {
            server: Arc::clone(server),
            id: parts.id.cloned(),
            method: parts.method.into(),
            params: parts.params.cloned(),
            params_bytes: parts.params.map_or(0, |params| params.as_bytes().len()),
            headers: Arc::clone(parts.headers),
            remote: parts.remote,
            principal: parts.principal.clone(),
            transport: parts.transport,
            received_nanos: stats.nanos(),
            task: None,
            stats: Arc::clone(stats),
            parsed_params: OnceLock::new(),
            changed_params: None,
        }
    }

    /// Returns the name of the server that received the request.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns the request id, a number or a string; null for a notification.
    #[must_use]
    pub fn id(&self) -> Value {
        match &self.id {
            Some(RequestId::Number(number)) => (*number).into(),
            Some(RequestId::String(text)) => (&**text).into(),
            None => Value::Null,
        }
    }

    /// Returns the id of the task, if this is the run of a tool as a task and not a request of a client.
    ///
    /// Such a run has no request id, and its transport is [`Transport::Memory`].
    #[must_use]
    pub fn task_id(&self) -> Option<&str> {
        self.task.as_deref()
    }

    /// Returns the method, such as `tools/call`.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Returns the parameters, or an empty object if there are none. Parsed on first access.
    #[must_use]
    pub fn params(&self) -> &Value {
        self.changed_params
            .as_ref()
            .unwrap_or_else(|| self.parsed_params.get_or_init(|| params_to_value(self.params.as_ref())))
    }

    /// Returns the tool name, prompt name or resource URI that the request addresses, if its method has one.
    #[must_use]
    pub fn subject(&self) -> Option<Cow<'_, str>> {
        let key = match &*self.method {
            "tools/call" | "prompts/get" => "name",
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => "uri",
            _ => return None,
        };
        match self.changed_params.as_ref().or(self.parsed_params.get()) {
            Some(params) => params.get(key)?.as_str().map(Cow::Borrowed),
            None => self.params.as_ref()?.view().get(key)?.as_string(),
        }
    }

    /// Returns the HTTP request headers; empty on other transports.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns a header value, if it is present and valid text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the address of the client, if the request came over a network.
    #[must_use]
    pub fn remote(&self) -> Option<SocketAddr> {
        self.remote
    }

    /// Returns the authenticated sender.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Returns the transport over which the request was received.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Returns the current statistics summary of the server.
    #[must_use]
    pub fn stats(&self) -> StatsSummary {
        self.stats.summary()
    }

    /// Returns the current detailed statistics of the server.
    #[must_use]
    pub fn stats_detail(&self) -> StatsDetail {
        self.stats.detail()
    }

    /// Returns the parameters as raw JSON, as they will be handled.
    pub(crate) fn raw_params(&self) -> Option<&RawJson> {
        self.params.as_ref()
    }

    /// Returns the time since the request was received, in nanoseconds.
    pub(crate) fn elapsed_nanos(&self) -> u64 {
        self.stats.nanos().saturating_sub(self.received_nanos)
    }

    pub(super) fn data(&self) -> Value {
        json!({
            "server": &*self.server,
            "serverName": &*self.server,
            "requestId": self.id(),
            "requestData": { "id": self.id(), "method": &*self.method, "params": self.params() },
            "headers": headers_to_json(&self.headers),
            "remote": self.remote.map(|remote| remote.to_string()),
            "principal": self.principal.id(),
            "transport": self.transport.as_str(),
        })
    }
}

impl std::fmt::Debug for RequestInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Parameters and headers may hold secrets.
        f.debug_struct("RequestInfo")
            .field("server", &self.server)
            .field("id", &self.id)
            .field("method", &self.method)
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}

pub(super) fn params_to_value(params: Option<&RawJson>) -> Value {
    params.map_or_else(|| Value::Object(Map::new()), RawJson::to_value)
}

/// Converts headers to JSON, with secrets masked and repeated headers joined by `, `.
fn headers_to_json(headers: &HeaderMap) -> Value {
    let mut members = Map::new();
    for name in headers.keys() {
        let value = if is_secret(name.as_str()) {
            MASK.to_owned()
        } else {
            let values = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
            values.collect::<Vec<_>>().join(", ")
        };
        members.insert(name.as_str().to_owned(), value.into());
    }
    Value::Object(members)
}
