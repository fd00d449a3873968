//! What is told to those who listen: servers that come and go, requests, answers, errors, tools at work.
//!
//! An event is a few counted references: it can be cloned, kept and sent elsewhere for next to nothing. JSON is
//! read when somebody asks for it. `Debug` and [`Event::data`] show no secrets that headers carry.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Map, Value, json};
use toolgate_wire::{RawJson, RequestId};

use super::mask::{MASK, is_secret};
use super::stats::Stats;
use super::timing::millis;
use super::view::{ErrorCode, StatsDetail, StatsSummary};
use crate::headers::RequestHeaders;
use crate::request::Principal;
use crate::util::stored_json;

/// Something that happened, of any kind: what [`Events::on`](super::Events::on) tells.
///
/// ```
/// # use toolgate::events::{Event, Events};
/// Events::new().on("onMCPResponse,onMCPError", |event| match event {
///     Event::Response(answer) => println!("{} {}", answer.status(), answer.request().method()),
///     other => println!("{}: {}", other.name(), other.data()),
/// })?;
/// # Ok::<(), toolgate::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A server was made, removed, paused or resumed.
    Server(ServerEvent),
    /// A request has come and is about to be answered.
    Request(RequestEvent),
    /// An answer is about to be sent.
    Response(ResponseEvent),
    /// Something went wrong.
    Error(ErrorEvent),
    /// A tool begins or has ended its work.
    Tool(ToolEvent),
}

/// What one can listen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    ServerCreated,
    ServerRemoved,
    ServerPaused,
    ServerResumed,
    Request,
    Response,
    Error,
    ToolStart,
    ToolEnd,
}

impl EventKind {
    pub(crate) const ALL: [EventKind; 9] = [
        EventKind::ServerCreated,
        EventKind::ServerRemoved,
        EventKind::ServerPaused,
        EventKind::ServerResumed,
        EventKind::Request,
        EventKind::Response,
        EventKind::Error,
        EventKind::ToolStart,
        EventKind::ToolEnd,
    ];

    pub(crate) fn bit(self) -> u32 {
        1 << self as u32
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            EventKind::ServerCreated => "onMCPServerCreate",
            EventKind::ServerRemoved => "onMCPServerRemove",
            EventKind::ServerPaused => "onMCPServerPause",
            EventKind::ServerResumed => "onMCPServerResume",
            EventKind::Request => "onMCPRequest",
            EventKind::Response => "onMCPResponse",
            EventKind::Error => "onMCPError",
            EventKind::ToolStart => "beforeAIToolExecute",
            EventKind::ToolEnd => "afterAIToolExecute",
        }
    }
}

impl Event {
    /// The name under which [`Events::on`](super::Events::on) knows it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.kind().name()
    }

    /// The server it is about.
    #[must_use]
    pub fn server(&self) -> &str {
        match self {
            Event::Server(event) => event.name(),
            Event::Request(event) => event.server(),
            Event::Response(event) => event.server(),
            Event::Error(event) => event.server(),
            Event::Tool(event) => event.server(),
        }
    }

    /// All of it as JSON, for those who write it down or send it on. Headers that carry secrets are hidden;
    /// parameters are told as they are (see [`mask_secrets`](crate::mask_secrets)).
    #[must_use]
    pub fn data(&self) -> Value {
        match self {
            Event::Server(event) => event.data(),
            Event::Request(event) => event.data(),
            Event::Response(event) => event.data(),
            Event::Error(event) => event.data(),
            Event::Tool(event) => event.data(),
        }
    }

    /// How many bytes of a request and its answer it keeps alive. Never changes.
    pub(crate) fn retained_bytes(&self) -> usize {
        let of_request = |request: &RequestInfo| request.params_bytes;
        match self {
            Event::Server(_) => 0,
            Event::Request(event) => of_request(event),
            Event::Response(event) => of_request(&event.request) + event.body.len(),
            Event::Error(event) => event.request().map_or(0, of_request),
            Event::Tool(event) => {
                of_request(&event.request) + event.end.as_ref().map_or(0, |end| end.body.len())
            }
        }
    }

    pub(crate) fn kind(&self) -> EventKind {
        match self {
            Event::Server(event) => match event.change() {
                ServerChange::Created => EventKind::ServerCreated,
                ServerChange::Removed => EventKind::ServerRemoved,
                ServerChange::Paused => EventKind::ServerPaused,
                ServerChange::Resumed => EventKind::ServerResumed,
            },
            Event::Request(_) => EventKind::Request,
            Event::Response(_) => EventKind::Response,
            Event::Error(_) => EventKind::Error,
            Event::Tool(event) if event.is_end() => EventKind::ToolEnd,
            Event::Tool(_) => EventKind::ToolStart,
        }
    }
}

/// What a message came over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// HTTP of any kind.
    Http,
    /// Standard input and output, or another pair of byte streams.
    Stdio,
    /// A call within the program.
    Memory,
}

impl Transport {
    /// As a word.
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

/// A request, and what is known about who sent it.
#[derive(Clone)]
pub struct RequestInfo {
    pub(crate) server: Arc<str>,
    pub(crate) id: Option<RequestId>,
    pub(crate) method: Box<str>,
    pub(crate) params: Option<RawJson>,
    /// Empty where there is no HTTP.
    pub(crate) headers: Arc<RequestHeaders>,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) principal: Principal,
    pub(crate) transport: Transport,
    pub(crate) stats: Arc<Stats>,
    /// When it came, on the clock of the statistics.
    pub(crate) received_nanos: u64,
    /// The parameters once somebody has asked for them.
    /// Bytes of the parameters as they came.
    pub(crate) params_bytes: usize,
    pub(crate) parsed_params: OnceLock<Value>,
    /// The parameters once somebody has changed them.
    pub(crate) changed_params: Option<Value>,
}

/// What came, before it is an event.
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
    pub(crate) fn new(server: &Arc<str>, stats: &Arc<Stats>, incoming: &RequestInfoParts<'_>) -> RequestInfo {
        RequestInfo {
            server: Arc::clone(server),
            id: incoming.id.cloned(),
            method: incoming.method.into(),
            params: incoming.params.cloned(),
            params_bytes: incoming.params.map_or(0, |params| params.as_bytes().len()),
            headers: Arc::clone(incoming.headers),
            remote: incoming.remote,
            principal: incoming.principal.clone(),
            transport: incoming.transport,
            received_nanos: stats.nanos(),
            stats: Arc::clone(stats),
            parsed_params: OnceLock::new(),
            changed_params: None,
        }
    }

    /// The name of the server that was asked.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The id of the request, a number or a text; null for a message that wants no answer.
    #[must_use]
    pub fn id(&self) -> Value {
        match &self.id {
            Some(RequestId::Number(number)) => (*number).into(),
            Some(RequestId::String(text)) => (&**text).into(),
            None => Value::Null,
        }
    }

    /// The method, such as `tools/call`.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The parameters; an empty object if there are none. Read when first asked for.
    #[must_use]
    pub fn params(&self) -> &Value {
        self.changed_params
            .as_ref()
            .unwrap_or_else(|| self.parsed_params.get_or_init(|| params_to_value(self.params.as_ref())))
    }

    /// The tool, prompt or URI that was asked for, if the method is about one.
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

    /// The headers of the HTTP request; none elsewhere.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// One header as text, if there is one and it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Where it came from, if it came over a network.
    #[must_use]
    pub fn remote(&self) -> Option<SocketAddr> {
        self.remote
    }

    /// Who sent it.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// What it came over.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// The numbers of the server right now.
    #[must_use]
    pub fn stats(&self) -> StatsSummary {
        self.stats.summary()
    }

    /// All the numbers of the server right now.
    #[must_use]
    pub fn stats_detail(&self) -> StatsDetail {
        self.stats.detail()
    }

    /// The parameters as they are to be read.
    pub(crate) fn raw_params(&self) -> Option<&RawJson> {
        self.params.as_ref()
    }

    /// How long ago it came, in nanoseconds.
    pub(crate) fn elapsed_nanos(&self) -> u64 {
        self.stats.nanos().saturating_sub(self.received_nanos)
    }

    fn data(&self) -> Value {
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
        // Parameters and headers may hold anything.
        f.debug_struct("RequestInfo")
            .field("server", &self.server)
            .field("id", &self.id)
            .field("method", &self.method)
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}

fn params_to_value(params: Option<&RawJson>) -> Value {
    params.map_or_else(|| Value::Object(Map::new()), RawJson::to_value)
}

/// Headers without secrets; several of a name are told in one line.
fn headers_to_json(headers: &HeaderMap) -> Value {
    let mut shown = Map::new();
    for name in headers.keys() {
        let value = if is_secret(name.as_str()) {
            MASK.to_owned()
        } else {
            let values = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
            values.collect::<Vec<_>>().join(", ")
        };
        shown.insert(name.as_str().to_owned(), value.into());
    }
    Value::Object(shown)
}

/// A request that has come and is about to be answered. Whoever listens may look at it, refuse it or change it.
///
/// ```
/// # use toolgate::events::Events;
/// let events = Events::new();
/// events.on_request(|request| {
///     if request.header("x-client-id").is_none() {
///         request.reject("say who you are");
///     }
/// });
/// ```
#[derive(Clone, Debug)]
pub struct RequestEvent {
    info: Arc<RequestInfo>,
    is_changed: bool,
    rejection: Option<ListenerRejection>,
}

/// Why, and how, a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenerRejection {
    /// If none was chosen, it is 200, or 401 if the listener is one of the server itself.
    pub(crate) status: Option<u16>,
    pub(crate) code: i64,
    pub(crate) message: String,
}

/// The code of a refusal whose listener chose none.
const DEFAULT_REJECTION_CODE: i64 = -32000;

impl RequestEvent {
    pub(crate) fn new(info: RequestInfo) -> RequestEvent {
        RequestEvent { info: Arc::new(info), is_changed: false, rejection: None }
    }

    /// Refuses the request with this message: nothing behind this point sees it. The peer gets an error with
    /// the code -32000. The first refusal stands.
    pub fn reject(&mut self, message: impl Into<String>) {
        self.set_rejection(None, DEFAULT_REJECTION_CODE, message.into());
    }

    /// Refuses the request with an HTTP status, an error code and a message.
    ///
    /// ```
    /// # toolgate::events::Events::new().on_request(|request| {
    /// request.reject_with(429, -32000, "Rate limit exceeded");
    /// # });
    /// ```
    pub fn reject_with(&mut self, status: u16, code: i64, message: impl Into<String>) {
        self.set_rejection(Some(status), code, message.into());
    }

    /// Whether somebody has refused it.
    #[must_use]
    pub fn is_rejected(&self) -> bool {
        self.rejection.is_some()
    }

    /// Lets another method answer.
    pub fn set_method(&mut self, method: impl Into<String>) {
        self.is_changed = true;
        Arc::make_mut(&mut self.info).method = method.into().into();
    }

    /// The parameters, to be changed. What is no object in the end is as good as none.
    pub fn params_mut(&mut self) -> &mut Value {
        self.is_changed = true;
        let RequestInfo { changed_params: changed, parsed_params: read, params, .. } =
            Arc::make_mut(&mut self.info);
        changed.get_or_insert_with(|| read.get().cloned().unwrap_or_else(|| params_to_value(params.as_ref())))
    }

    /// All of it as JSON; see [`Event::data`].
    #[must_use]
    pub fn data(&self) -> Value {
        let mut data = self.info.data();
        data["reject"] = self.is_rejected().into();
        data["errorMessage"] = self.rejection.as_ref().map_or("", |rejection| &rejection.message).into();
        data
    }

    pub(crate) fn set_rejection(&mut self, status: Option<u16>, code: i64, message: String) {
        self.rejection.get_or_insert(ListenerRejection { status, code, message });
    }

    /// A listener that failed has changed nothing; but what it refused is refused.
    pub(crate) fn restore(&mut self, before: RequestEvent) {
        let rejection = self.rejection.take().or(before.rejection);
        *self = RequestEvent { rejection, ..before };
    }

    /// A status for those who chose none.
    pub(crate) fn set_default_status(&mut self, status: u16) {
        if let Some(rejection) = &mut self.rejection {
            rejection.status.get_or_insert(status);
        }
    }

    /// The request as it is to be answered, whether it is another than the one that came, and its refusal.
    pub(crate) fn into_parts(mut self) -> (Arc<RequestInfo>, bool, Option<ListenerRejection>) {
        if self.is_changed {
            let info = Arc::make_mut(&mut self.info);
            if let Some(params) = info.changed_params.take() {
                info.params = params.is_object().then(|| RawJson::from(&params));
                info.parsed_params = OnceLock::new();
            }
        }
        (self.info, self.is_changed, self.rejection)
    }
}

impl Deref for RequestEvent {
    type Target = RequestInfo;

    fn deref(&self) -> &RequestInfo {
        &self.info
    }
}

/// An answer that is about to be sent. Whoever listens may replace it.
///
/// ```
/// # use toolgate::events::Events;
/// Events::new().on_response(|response| {
///     println!("{} took {:.2} ms", response.request().method(), response.time_ms());
/// });
/// ```
#[derive(Clone)]
pub struct ResponseEvent {
    request: Arc<RequestInfo>,
    body: Bytes,
    status: u16,
    error: Option<ErrorCode>,
    nanos: u64,
    /// The answer once somebody has asked for it. Shared by all clones.
    parsed: Arc<OnceLock<Value>>,
}

impl ResponseEvent {
    pub(crate) fn new(
        request: Arc<RequestInfo>,
        body: Bytes,
        status: u16,
        error: Option<ErrorCode>,
        nanos: u64,
    ) -> ResponseEvent {
        ResponseEvent { request, body, status, error, nanos, parsed: Arc::default() }
    }

    /// The request.
    #[must_use]
    pub fn request(&self) -> &RequestInfo {
        &self.request
    }

    /// The name of the server that answers.
    #[must_use]
    pub fn server(&self) -> &str {
        self.request.server()
    }

    /// The numbers of the server right now; this request is among them.
    #[must_use]
    pub fn stats(&self) -> StatsSummary {
        self.request.stats()
    }

    /// The answer: a JSON-RPC message. Read when first asked for.
    #[must_use]
    pub fn response(&self) -> &Value {
        self.parsed.get_or_init(|| stored_json::response_value(&self.body))
    }

    /// The answer as it is to be sent.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.body
    }

    /// Sends another answer instead. It keeps the id of the request, whatever the new one says.
    pub fn set_response(&mut self, mut response: Value) {
        if let Some(members) = response.as_object_mut() {
            members.insert("jsonrpc".into(), "2.0".into());
            members.insert("id".into(), self.request.id());
            self.body = Bytes::from(response.to_string());
            self.parsed = Arc::new(OnceLock::from(response));
        } else {
            tracing::warn!(server = self.server(), "an answer must be an object: it is sent as it was");
        }
    }

    /// Whether the request was answered with neither an error nor a result that is marked as one.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.error.is_none()
    }

    /// What kind of error the answer is, if it is one.
    #[must_use]
    pub fn error_code(&self) -> Option<ErrorCode> {
        self.error
    }

    /// How long it took to answer.
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// The same in milliseconds.
    #[must_use]
    pub fn time_ms(&self) -> f64 {
        millis(self.nanos)
    }

    /// The HTTP status; what it would be, on other transports.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// All of it as JSON; see [`Event::data`].
    #[must_use]
    pub fn data(&self) -> Value {
        let mut data = self.request.data();
        data["responseData"] = self.response().clone();
        data["response"] = self.response().clone();
        data["success"] = self.is_success().into();
        data["responseTime"] = self.time_ms().into();
        data["status"] = self.status.into();
        data
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        self.body
    }
}

impl std::fmt::Debug for ResponseEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseEvent")
            .field("request", &self.request)
            .field("status", &self.status)
            .field("error", &self.error)
            .field("time", &self.time())
            .finish_non_exhaustive()
    }
}

/// Where something went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorContext {
    /// While a request was answered.
    HandleRequest,
    /// Somebody was not let in.
    Auth,
    /// While something was looked through for tools, resources and prompts.
    ScanClass,
    /// While something was registered.
    Register,
    /// On the way in or out.
    Transport,
    /// In a function that was given to decide something.
    Callback,
    /// In a listener.
    Listener,
}

impl ErrorContext {
    /// As a word.
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

/// Something that went wrong.
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
            request: None,
            nanos: None,
            remote: None,
            transport: None,
        }))
    }

    /// What kind of failure it is, in one word.
    pub(crate) fn with_kind(mut self, kind: &'static str) -> ErrorEvent {
        self.inner_mut().kind = kind;
        self
    }

    pub(crate) fn with_detail(mut self, detail: impl Into<String>) -> ErrorEvent {
        self.inner_mut().detail = detail.into();
        self
    }

    pub(crate) fn with_code(mut self, code: ErrorCode) -> ErrorEvent {
        self.inner_mut().code = Some(code);
        self
    }

    /// Which request went wrong, and how long that took.
    pub(crate) fn with_request(mut self, request: Arc<RequestInfo>, nanos: u64) -> ErrorEvent {
        let wrong = self.inner_mut();
        (wrong.remote, wrong.transport) = (request.remote, Some(request.transport));
        (wrong.request, wrong.nanos) = (Some(request), Some(nanos));
        self
    }

    /// Where it came from, if no request was read.
    pub(crate) fn with_origin(mut self, transport: Transport, remote: Option<SocketAddr>) -> ErrorEvent {
        let wrong = self.inner_mut();
        (wrong.transport, wrong.remote) = (Some(transport), remote);
        self
    }

    fn inner_mut(&mut self) -> &mut ErrorEventInner {
        Arc::make_mut(&mut self.0)
    }

    /// The name of the server.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.0.server
    }

    /// Where it went wrong.
    #[must_use]
    pub fn context(&self) -> ErrorContext {
        self.0.context
    }

    /// What kind of failure it is, in one word; may be empty.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.0.kind
    }

    /// What went wrong.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// More about it; may be empty.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// The request, if one had been read.
    #[must_use]
    pub fn request(&self) -> Option<&RequestInfo> {
        self.0.request.as_deref()
    }

    /// What the peer was told, if it was told.
    #[must_use]
    pub fn error_code(&self) -> Option<ErrorCode> {
        self.0.code
    }

    /// How long it took until it went wrong, if that was measured.
    #[must_use]
    pub fn time(&self) -> Option<Duration> {
        self.0.nanos.map(Duration::from_nanos)
    }

    /// Where the peer is, if it is on a network.
    #[must_use]
    pub fn remote(&self) -> Option<SocketAddr> {
        self.0.remote
    }

    /// What the peer came over, if there is a peer.
    #[must_use]
    pub fn transport(&self) -> Option<Transport> {
        self.0.transport
    }

    /// All of it as JSON; see [`Event::data`].
    #[must_use]
    pub fn data(&self) -> Value {
        let wrong = &*self.0;
        let mut data = json!({
            "server": &*wrong.server,
            "serverName": &*wrong.server,
            "context": wrong.context.as_str(),
            "exception": {
                "type": wrong.kind,
                "message": wrong.message,
                "detail": wrong.detail,
                "stacktrace": "",
            },
            "kind": wrong.kind,
            "remote": wrong.remote.map(|remote| remote.to_string()),
            "transport": wrong.transport.map(Transport::as_str),
        });
        if let Some(request) = &wrong.request {
            data["method"] = request.method().into();
            data["requestId"] = request.id();
            data["params"] = request.params().clone();
        }
        if let Some(nanos) = wrong.nanos {
            data["responseTime"] = millis(nanos).into();
        }
        match wrong.code {
            Some(ErrorCode::Number(number)) => data["errorCode"] = number.into(),
            Some(ErrorCode::ToolError) => data["errorCode"] = "isError".into(),
            None => {}
        }
        data
    }
}

/// What happened to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServerChange {
    /// It was made.
    Created,
    /// It was removed.
    Removed,
    /// It answers nothing until it is resumed.
    Paused,
    /// It answers again.
    Resumed,
}

/// A server that was made, removed, paused or resumed.
///
/// ```
/// # use toolgate::Servers;
/// # use toolgate::events::ServerChange;
/// let servers = Servers::new();
/// servers.events().on_server(|event| {
///     if event.change() == ServerChange::Created {
///         println!("{} {} is there: {}", event.name(), event.version(), event.description());
///     }
/// });
/// ```
#[derive(Clone, Debug)]
pub struct ServerEvent(Arc<ServerEventInner>);

#[derive(Debug)]
struct ServerEventInner {
    change: ServerChange,
    name: Arc<str>,
    description: String,
    version: String,
}

impl ServerEvent {
    pub(crate) fn new(
        change: ServerChange,
        name: &Arc<str>,
        description: &str,
        version: &str,
    ) -> ServerEvent {
        let (description, version) = (description.to_owned(), version.to_owned());
        ServerEvent(Arc::new(ServerEventInner { change, name: Arc::clone(name), description, version }))
    }

    /// What happened.
    #[must_use]
    pub fn change(&self) -> ServerChange {
        self.0.change
    }

    /// The name of the server.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What the server says it is.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.0.description
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.0.version
    }

    /// All of it as JSON; see [`Event::data`].
    #[must_use]
    pub fn data(&self) -> Value {
        let ServerEventInner { name, description, version, .. } = &*self.0;
        json!({
            "server": &**name,
            "serverName": &**name,
            "name": &**name,
            "description": description,
            "version": version,
        })
    }
}

/// A tool that begins its work, or has ended it.
///
/// ```
/// # use toolgate::events::Events;
/// Events::new().on_tool(|tool| match tool.time() {
///     None => println!("{} begins with {}", tool.tool(), tool.arguments()),
///     Some(time) => println!("{} took {time:?}", tool.tool()),
/// });
/// ```
#[derive(Clone, Debug)]
pub struct ToolEvent {
    request: Arc<RequestInfo>,
    tool: Arc<str>,
    end: Option<ResponseEvent>,
}

impl ToolEvent {
    /// About to begin.
    pub(crate) fn start(request: Arc<RequestInfo>) -> ToolEvent {
        let tool = request.subject().unwrap_or_default().into();
        ToolEvent { request, tool, end: None }
    }

    /// Ended with this answer.
    pub(crate) fn end(answer: &ResponseEvent) -> ToolEvent {
        ToolEvent { end: Some(answer.clone()), ..ToolEvent::start(Arc::clone(&answer.request)) }
    }

    /// The name of the server.
    #[must_use]
    pub fn server(&self) -> &str {
        self.request.server()
    }

    /// The request that called the tool.
    #[must_use]
    pub fn request(&self) -> &RequestInfo {
        &self.request
    }

    /// The name of the tool.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Its arguments; null if there are none.
    #[must_use]
    pub fn arguments(&self) -> &Value {
        &self.request.params()["arguments"]
    }

    /// Whether the work has ended.
    #[must_use]
    pub fn is_end(&self) -> bool {
        self.end.is_some()
    }

    /// What came of it, once it has ended.
    #[must_use]
    pub fn result(&self) -> Option<&Value> {
        self.end.as_ref()?.response().get("result")
    }

    /// Whether the result is not marked as an error; none before the end.
    #[must_use]
    pub fn is_success(&self) -> Option<bool> {
        self.end.as_ref().map(ResponseEvent::is_success)
    }

    /// How long it took, once it has ended.
    #[must_use]
    pub fn time(&self) -> Option<Duration> {
        self.end.as_ref().map(ResponseEvent::time)
    }

    /// All of it as JSON; see [`Event::data`].
    #[must_use]
    pub fn data(&self) -> Value {
        let mut data = json!({
            "server": self.server(),
            "serverName": self.server(),
            "requestId": self.request.id(),
            "tool": self.tool(),
            "name": self.tool(),
            "arguments": self.arguments(),
        });
        if let Some(end) = &self.end {
            data["results"] = self.result().cloned().unwrap_or_default();
            data["success"] = end.is_success().into();
            data["executionTime"] = end.time_ms().into();
        }
        data
    }
}

impl From<ServerEvent> for Event {
    fn from(event: ServerEvent) -> Event {
        Event::Server(event)
    }
}

impl From<RequestEvent> for Event {
    fn from(event: RequestEvent) -> Event {
        Event::Request(event)
    }
}

impl From<ResponseEvent> for Event {
    fn from(event: ResponseEvent) -> Event {
        Event::Response(event)
    }
}

impl From<ErrorEvent> for Event {
    fn from(event: ErrorEvent) -> Event {
        Event::Error(event)
    }
}

impl From<ToolEvent> for Event {
    fn from(event: ToolEvent) -> Event {
        Event::Tool(event)
    }
}
