//! The event of an error: a failed request, a rejected client, a failed registration or listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::request_info::{RequestInfo, Transport};
use super::response::ResponseEvent;
use crate::observe::outcome::CallOutcome;
use crate::observe::stats::{ErrorCode, millis};

/// The operation during which an error occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorContext {
    /// Handling a request.
    HandleRequest,
    /// Authentication or another guard rejected the client.
    Auth,
    /// Scanning code for tools, resources and prompts.
    ScanClass,
    /// Registering a tool, resource or prompt.
    Register,
    /// Receiving or sending a message.
    Transport,
    /// Running an application callback that makes a decision.
    Callback,
    /// Running a listener.
    Listener,
}

impl ErrorContext {
    /// Returns the name used in [`ErrorEvent::data`].
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorContext::HandleRequest => "handleRequest",
            ErrorContext::Auth => "auth",
            ErrorContext::ScanClass => "scanClass",
            ErrorContext::Register => "register",
            ErrorContext::Transport => "transport",
            ErrorContext::Callback => "callback",
            ErrorContext::Listener => "listener",
        }
    }
}

impl std::fmt::Display for ErrorContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error.
///
/// ```
/// # use toolgate::events::Events;
/// Events::new().on_error(|error| {
///     eprintln!("{} in {}: {}", error.context(), error.server(), error.message());
/// });
/// ```
#[derive(Clone, Debug)]
pub struct ErrorEvent(Arc<ErrorEventInner>);

#[derive(Clone, Debug)]
struct ErrorEventInner {
    server: Arc<str>,
    context: ErrorContext,
    kind: &'static str,
    message: String,
    detail: String,
    code: Option<ErrorCode>,
    outcome: Option<CallOutcome>,
    request: Option<Arc<RequestInfo>>,
    nanos: Option<u64>,
    remote: Option<SocketAddr>,
    transport: Option<Transport>,
}

impl ErrorEvent {
    pub(crate) fn new(server: &Arc<str>, context: ErrorContext, message: impl Into<String>) -> ErrorEvent {
        ErrorEvent(Arc::new(ErrorEventInner {
            server: Arc::clone(server),
            context,
            kind: "",
            message: message.into(),
            detail: String::new(),
            code: None,
            outcome: None,
            request: None,
            nanos: None,
            remote: None,
            transport: None,
        }))
    }

    /// Sets the error kind, a CamelCase name.
    pub(crate) fn with_kind(mut self, kind: &'static str) -> ErrorEvent {
        self.inner_mut().kind = kind;
        self
    }

    pub(crate) fn with_detail(mut self, detail: impl Into<String>) -> ErrorEvent {
        self.inner_mut().detail = detail.into();
        self
    }

    /// Sets the request that failed, its error code, its outcome and its duration.
    pub(crate) fn with_response(mut self, response: &ResponseEvent) -> ErrorEvent {
        let (inner, request) = (self.inner_mut(), Arc::clone(&response.request));
        (inner.remote, inner.transport) = (request.remote, Some(request.transport));
        (inner.request, inner.nanos) = (Some(request), Some(response.end.nanos));
        (inner.code, inner.outcome) = (response.error_code(), Some(response.outcome()));
        self
    }

    /// Sets the origin of an error that occurred before a request was read.
    pub(crate) fn with_origin(mut self, transport: Transport, remote: Option<SocketAddr>) -> ErrorEvent {
        let inner = self.inner_mut();
        (inner.transport, inner.remote) = (Some(transport), remote);
        self
    }

    fn inner_mut(&mut self) -> &mut ErrorEventInner {
        Arc::make_mut(&mut self.0)
    }

    /// Returns the name of the server.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.0.server
    }

    /// Returns the operation during which the error occurred.
    #[must_use]
    pub fn context(&self) -> ErrorContext {
        self.0.context
    }

    /// Returns the error kind as a CamelCase name; may be empty.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.0.kind
    }

    /// Returns the error message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns further details; may be empty.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// Returns the request, if one had been read.
    #[must_use]
    pub fn request(&self) -> Option<&RequestInfo> {
        self.0.request.as_deref()
    }

    /// Returns the code sent to the client, if a response was sent.
    #[must_use]
    pub fn error_code(&self) -> Option<ErrorCode> {
        self.0.code
    }

    /// Returns how the call ended that failed, if the error is the end of a call.
    #[must_use]
    pub fn outcome(&self) -> Option<CallOutcome> {
        self.0.outcome
    }

    /// Returns the time until the error occurred, if it was measured.
    #[must_use]
    pub fn time(&self) -> Option<Duration> {
        self.0.nanos.map(Duration::from_nanos)
    }

    /// Returns the address of the client, if it is on a network.
    #[must_use]
    pub fn remote(&self) -> Option<SocketAddr> {
        self.0.remote
    }

    /// Returns the transport of the client, if the error concerns a client.
    #[must_use]
    pub fn transport(&self) -> Option<Transport> {
        self.0.transport
    }

    /// Returns the whole event as JSON; see [`Event::data`](super::Event::data).
    #[must_use]
    pub fn data(&self) -> Value {
        let inner = &*self.0;
        let mut data = json!({
            "server": &*inner.server,
            "serverName": &*inner.server,
            "context": inner.context.as_str(),
            "exception": {
                "type": inner.kind,
                "message": inner.message,
                "detail": inner.detail,
                "stacktrace": "",
            },
            "kind": inner.kind,
            "remote": inner.remote.map(|remote| remote.to_string()),
            "transport": inner.transport.map(Transport::as_str),
        });
        if let Some(request) = &inner.request {
            data["method"] = request.method().into();
            data["requestId"] = request.id();
            data["params"] = request.params().clone();
        }
        if let Some(nanos) = inner.nanos {
            data["responseTime"] = millis(nanos).into();
        }
        match inner.code {
            Some(ErrorCode::Number(number)) => data["errorCode"] = number.into(),
            Some(ErrorCode::ToolError) => data["errorCode"] = "isError".into(),
            None => {}
        }
        data
    }
}
