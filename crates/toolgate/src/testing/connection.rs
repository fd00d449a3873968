//! The connection of a test client: sends requests and routes incoming messages.
//!
//! The first request opens the connection. Over stdio framing it is a server on a pair of in-memory pipes with one task
//! that reads and one that writes; over HTTP it is a session, if the protocol version has sessions, and one exchange per
//! request. All tasks end with the connection.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{Notify, mpsc, oneshot};
use toolgate_wire::model::{
    Call, Implementation, InitializeParams, InitializeResult, LogLevel, Outcome, ServerCapabilities,
};
use toolgate_wire::{
    Client, Frame, Limits, LogLevelScope, Message, Meta, ProtocolVersion, RawJson, RemoteError, RequestId,
    codec, read_message, write_error, write_notification_frame, write_request, write_result,
};

use super::callbacks::ClientCallbacks;
#[cfg(feature = "http")]
use super::http_client::TestHttpClient;
use super::response::{ReceivedNotification, ReceivedResponse, TestError};
use crate::server::Server;
use crate::util::lock;
use crate::util::spawn::AbortOnDrop;

/// Limits for messages of the server, which may be larger than requests.
pub(super) const RESPONSE_LIMITS: Limits = Limits { max_bytes: 256 << 20, max_depth: 127 };
/// Notifications buffered until the test reads them. Beyond that the oldest is dropped.
const MAX_BUFFERED_NOTIFICATIONS: usize = 10_000;

/// Configuration of a test client: how it connects, and what it sends with every request.
#[derive(Clone, Debug)]
pub(super) struct ConnectionSetup {
    pub(super) version: ProtocolVersion,
    pub(super) target: ConnectTarget,
    pub(super) callbacks: ClientCallbacks,
    pub(super) info: Implementation,
    pub(super) log_level: Option<LogLevel>,
    pub(super) timeout: Duration,
    pub(super) headers: Vec<(String, String)>,
    pub(super) extensions: http::Extensions,
}

/// The server or service to connect to.
#[derive(Clone, Debug)]
pub(super) enum ConnectTarget {
    Stdio(Server),
    #[cfg(feature = "http")]
    Http(super::http_client::HttpTarget),
}

impl ConnectTarget {
    /// Returns the server, unless the target is another service.
    pub(super) fn server(&self) -> Option<&Server> {
        match self {
            ConnectTarget::Stdio(server) => Some(server),
            #[cfg(feature = "http")]
            ConnectTarget::Http(target) => target.server.as_ref(),
        }
    }
}

/// The response to one request, before the result is decoded.
#[derive(Debug)]
pub(super) struct RawReply {
    pub(super) outcome: Result<RawJson, TestError>,
    pub(super) message: Value,
    pub(super) http_response: Option<ReceivedResponse>,
}

impl RawReply {
    pub(super) fn from_error(error: TestError, http_response: Option<ReceivedResponse>) -> Box<RawReply> {
        Box::new(RawReply { outcome: Err(error), message: Value::Null, http_response })
    }

    pub(super) fn from_outcome(
        outcome: Result<RawJson, RemoteError>,
        text: &[u8],
        http_response: Option<ReceivedResponse>,
    ) -> RawReply {
        let status = http_response.as_ref().map(|response| response.status);
        RawReply {
            outcome: outcome.map_err(|error| TestError::from_remote(&error, status)),
            message: serde_json::from_slice(text).unwrap_or_default(),
            http_response,
        }
    }
}

/// The server's description of itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerDetails {
    /// Name and version; optional in the newest protocol version.
    pub server: Option<Implementation>,
    /// The server's capabilities.
    pub capabilities: ServerCapabilities,
    /// Instructions for the model.
    pub instructions: Option<String>,
}

/// An open connection to the server under test.
pub(super) struct TestConnection {
    pub(super) version: ProtocolVersion,
    pub(super) receiver: Arc<ClientReceiver>,
    /// Client info, sent with each request in protocol versions without a handshake.
    pub(super) client: Client,
    transport: ClientTransport,
    /// Result of the handshake.
    pub(super) initialize_result: Option<InitializeResult>,
    next_id: AtomicI64,
    /// Tasks that read and write; aborted when the connection is dropped.
    tasks: Mutex<Vec<AbortOnDrop<()>>>,
}

enum ClientTransport {
    Stdio(mpsc::Sender<Bytes>),
    #[cfg(feature = "http")]
    Http(TestHttpClient),
}

impl TestConnection {
    /// Connects, and performs the handshake if the protocol version has one.
    ///
    /// # Errors
    /// If the server responds to `initialize` with an error.
    pub(super) async fn open(setup: &ConnectionSetup) -> Result<Arc<TestConnection>, Box<RawReply>> {
        let version = setup.version;
        let receiver = Arc::new(ClientReceiver::new(version, setup.callbacks.clone()));
        let capabilities = setup.callbacks.capabilities();
        let client = Client { protocol_version: version, capabilities, info: Some(setup.info.clone()) };
        let (transport, tasks) = match &setup.target {
            ConnectTarget::Stdio(server) => connect_stdio(server.clone(), &receiver),
            #[cfg(feature = "http")]
            ConnectTarget::Http(target) => {
                (ClientTransport::Http(TestHttpClient::new(target.clone(), version)), Vec::new())
            }
        };
        let mut connection = TestConnection {
            version,
            receiver,
            client,
            transport,
            initialize_result: None,
            next_id: AtomicI64::new(1),
            tasks: Mutex::new(tasks),
        };
        if version.has_handshake() {
            connection.initialize(setup).await?;
        }
        Ok(Arc::new(connection))
    }

    async fn initialize(&mut self, setup: &ConnectionSetup) -> Result<(), Box<RawReply>> {
        let initialize = Call::Initialize(InitializeParams {
            version: self.version.as_str().to_owned(),
            capabilities: self.client.capabilities.clone(),
            client_info: self.client.info.clone(),
        });
        let reply = self.call(setup, self.next_id(), &initialize, &Meta::default(), &[], |_| {}).await;
        let Ok(result) = &reply.outcome else { return Err(Box::new(reply)) };
        match codec::read_outcome(self.version, &initialize, result) {
            Ok(Outcome::Initialize(result)) if result.version == self.version.as_str() => {
                self.initialize_result = Some(*result);
            }
            _ => panic!(
                "requested protocol version {}, but the server responded {}",
                self.version, reply.message
            ),
        }
        self.notify(setup, "notifications/initialized", None).await;
        if let (LogLevelScope::Session, Some(level)) =
            (self.version.behavior().log_level_scope, setup.log_level)
        {
            let level = Call::SetLevel(level);
            let reply = self.call(setup, self.next_id(), &level, &Meta::default(), &[], |_| {}).await;
            reply.outcome.as_ref().map_err(|error| RawReply::from_error(error.clone(), None))?;
        }
        Ok(())
    }

    pub(super) fn next_id(&self) -> i64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Encodes the params of a call.
    pub(super) fn params(&self, call: &Call, meta: &Meta) -> Vec<u8> {
        let mut params = Vec::new();
        let task_client = self.task_client(call);
        let client = task_client.as_ref().unwrap_or(&self.client);
        codec::write_call_params(&mut params, self.version, call, Some(client), meta);
        params
    }

    pub(super) async fn call(
        &self,
        setup: &ConnectionSetup,
        id: i64,
        call: &Call,
        meta: &Meta,
        headers: &[(String, String)],
        on_sent: impl FnOnce(i64) + Send,
    ) -> RawReply {
        let request = TestRequestHead { id, method: call.method(), subject: call.mirrored_name(), headers };
        self.send(setup, &request, &self.params(call, meta), on_sent).await
    }

    /// Sends one request and waits for its response. `on_sent` is called with the id once the request is sent.
    ///
    /// # Panics
    /// If no response arrives within the client's timeout.
    pub(super) async fn send(
        &self,
        setup: &ConnectionSetup,
        request: &TestRequestHead<'_>,
        params: &[u8],
        on_sent: impl FnOnce(i64) + Send,
    ) -> RawReply {
        let response = async {
            match &self.transport {
                ClientTransport::Stdio(_) => self.send_stdio(request, params, on_sent).await,
                #[cfg(feature = "http")]
                ClientTransport::Http(http_client) => {
                    http_client.request(setup, &self.receiver, request, params, on_sent).await
                }
            }
        };
        match tokio::time::timeout(setup.timeout, response).await {
            Ok(reply) => reply,
            Err(_) => panic!(
                "`{}` got no response within {:?}; `TestClient::timeout` sets a longer timeout",
                request.method, setup.timeout
            ),
        }
    }

    async fn send_stdio(
        &self,
        request: &TestRequestHead<'_>,
        params: &[u8],
        on_sent: impl FnOnce(i64),
    ) -> RawReply {
        let waiter = self.receiver.expect_response(request.id);
        self.write(request.encode(params)).await;
        on_sent(request.id);
        waiter.wait(request.method).await
    }

    /// Writes a message without waiting for a response; stdio only.
    pub(super) async fn write(&self, message: Vec<u8>) {
        match &self.transport {
            ClientTransport::Stdio(writer) => {
                if writer.send(message.into()).await.is_err() {
                    self.receiver.panic_with("the server closed the connection");
                }
            }
            #[cfg(feature = "http")]
            ClientTransport::Http(_) => unreachable!("over HTTP each message is a separate request"),
        }
    }

    pub(super) async fn notify(&self, setup: &ConnectionSetup, method: &str, params: Option<&Value>) {
        let params = params.map(Value::to_string);
        let mut message = Vec::new();
        write_notification_frame(&mut message, method, params.as_deref().map(str::as_bytes));
        match &self.transport {
            ClientTransport::Stdio(_) => self.write(message).await,
            #[cfg(feature = "http")]
            ClientTransport::Http(http_client) => http_client.post(setup, message).await,
        }
        let _ = setup;
    }

    #[cfg(feature = "http")]
    pub(super) fn http_client(&self) -> Option<&TestHttpClient> {
        match &self.transport {
            ClientTransport::Http(http_client) => Some(http_client),
            ClientTransport::Stdio(_) => None,
        }
    }

    /// Aborts the task when the connection is dropped.
    pub(super) fn own_task(&self, task: tokio::task::JoinHandle<()>) {
        lock(&self.tasks).push(AbortOnDrop::new(task));
    }
}

/// A request to send, without its params.
pub(super) struct TestRequestHead<'a> {
    pub(super) id: i64,
    pub(super) method: &'a str,
    /// Tool or prompt name or resource URI, repeated in a header over HTTP.
    pub(super) subject: Option<&'a str>,
    /// Additional headers of this request.
    pub(super) headers: &'a [(String, String)],
}

impl TestRequestHead<'_> {
    pub(super) fn encode(&self, params: &[u8]) -> Vec<u8> {
        let mut message = Vec::with_capacity(params.len() + 128);
        write_request(&mut message, &RequestId::Number(self.id), self.method, Some(params));
        message
    }
}

/// Serves `server` on a pair of in-memory pipes.
fn connect_stdio(server: Server, receiver: &Arc<ClientReceiver>) -> (ClientTransport, Vec<AbortOnDrop<()>>) {
    let (mut input, server_input) = tokio::io::duplex(64 << 10);
    let (server_output, output) = tokio::io::duplex(64 << 10);
    // Bounded: when it is full the test waits, as it would for a server that does not read.
    let (writer, mut messages) = mpsc::channel::<Bytes>(1024);
    let serving = tokio::spawn(async move {
        // An error means that the client is gone, so there is nobody to report it to.
        let _ = server.serve_io(server_input, server_output).await;
    });
    let writing = tokio::spawn(async move {
        while let Some(message) = messages.recv().await {
            let written = async {
                input.write_all(&message).await?;
                input.write_all(b"\n").await
            };
            if written.await.is_err() {
                return;
            }
        }
    });
    let reading = tokio::spawn({
        let (receiver, responses) = (Arc::clone(receiver), writer.clone());
        async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(response) = receiver.receive(&Bytes::from(line)) {
                    // Fails only if the server has closed its input; the loop then ends with the output.
                    let _ = responses.send(response).await;
                }
            }
            receiver.close();
        }
    });
    (ClientTransport::Stdio(writer), [serving, writing, reading].map(AbortOnDrop::new).into())
}

/// Routes the messages of the server: responses to their waiters, requests to the callbacks of the test, notifications
/// into a buffer.
pub(super) struct ClientReceiver {
    version: ProtocolVersion,
    callbacks: ClientCallbacks,
    state: Mutex<State>,
    /// Notified when a notification was buffered or the connection closed.
    changed: Notify,
}

#[derive(Default)]
struct State {
    pending: HashMap<i64, oneshot::Sender<RawReply>>,
    notifications: VecDeque<ReceivedNotification>,
    /// The panic of a callback; resumed by the next waiter.
    panic: Option<Box<dyn Any + Send>>,
    /// No more messages will arrive.
    is_closed: bool,
}

impl ClientReceiver {
    fn new(version: ProtocolVersion, callbacks: ClientCallbacks) -> ClientReceiver {
        ClientReceiver { version, callbacks, state: Mutex::default(), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Handles one message of the server. Returns the response to send if it was a request.
    pub(super) fn receive(&self, text: &Bytes) -> Option<Bytes> {
        match read_message(text, &RESPONSE_LIMITS) {
            Ok(Message::Single(Frame::Response { id: RequestId::Number(id), outcome })) => {
                let waiter = self.state().pending.remove(&id);
                if let Some(waiter) = waiter {
                    // Fails only if the waiter was dropped.
                    let _ = waiter.send(RawReply::from_outcome(outcome, text, None));
                }
                None
            }
            Ok(Message::Single(Frame::Notification { method, params })) => {
                let params = params.map(|params| params.to_value()).unwrap_or_default();
                self.push_notification(ReceivedNotification { method: method.into(), params });
                None
            }
            Ok(Message::Single(Frame::Request { id, method, params })) => {
                self.handle_request(&id, &method, params.as_ref())
            }
            // A response with a foreign id, or a batch, which the client never sends.
            Ok(_) => None,
            Err(error) => {
                let text = String::from_utf8_lossy(text).into_owned();
                self.fail_with_panic(Box::new(format!(
                    "the server sent an invalid message: {}\n{text}",
                    error.detail
                )));
                None
            }
        }
    }

    fn handle_request(&self, id: &RequestId, method: &str, params: Option<&RawJson>) -> Option<Bytes> {
        let mut out = Vec::new();
        match codec::read_server_request(self.version, method, params) {
            Ok(request) => {
                match catch_unwind(AssertUnwindSafe(|| self.callbacks.respond(self.version, &request))) {
                    Ok(result) => write_result(&mut out, id, result.as_bytes()),
                    Err(panic) => {
                        self.fail_with_panic(panic);
                        return None;
                    }
                }
            }
            Err(_) if method == "ping" => write_result(&mut out, id, b"{}"),
            Err(error) => {
                write_error(&mut out, Some(id), error.code(self.version), error.message(), None);
            }
        }
        Some(out.into())
    }

    fn push_notification(&self, notification: ReceivedNotification) {
        let mut state = self.state();
        if state.notifications.len() == MAX_BUFFERED_NOTIFICATIONS {
            state.notifications.pop_front();
        }
        state.notifications.push_back(notification);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Stores a panic for the test to resume, and closes the connection.
    fn fail_with_panic(&self, panic: Box<dyn Any + Send>) {
        self.state().panic.get_or_insert(panic);
        self.close();
    }

    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        // Dropping the senders wakes the waiters with an error.
        state.pending.clear();
        drop(state);
        self.changed.notify_waiters();
    }

    fn expect_response(self: &Arc<ClientReceiver>, id: i64) -> ResponseWaiter {
        let (sender, reply) = oneshot::channel();
        let mut state = self.state();
        if !state.is_closed {
            state.pending.insert(id, sender);
        }
        drop(state);
        ResponseWaiter { receiver: Arc::clone(self), id, reply }
    }

    /// Resumes the panic of a callback if there was one, otherwise panics with `message`.
    pub(super) fn panic_with(&self, message: &str) -> ! {
        let panic = self.state().panic.take();
        match panic {
            Some(panic) => resume_unwind(panic),
            None => panic!("{message}"),
        }
    }

    /// Resumes the panic of a callback, if there was one.
    pub(super) fn resume_panic(&self) {
        let panic = self.state().panic.take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Removes and returns all buffered notifications.
    pub(super) fn take_notifications(&self) -> Vec<ReceivedNotification> {
        self.state().notifications.drain(..).collect()
    }

    /// Removes and returns the first notification that matches, buffered or still to come; `None` if none arrives within
    /// `timeout`.
    pub(super) async fn wait_notification(
        &self,
        timeout: Duration,
        is_match: impl Fn(&ReceivedNotification) -> bool,
    ) -> Option<ReceivedNotification> {
        let matching = async {
            loop {
                let changed = self.changed.notified();
                let mut changed = std::pin::pin!(changed);
                // Registered before the buffer is searched, so that no notification in between is missed.
                changed.as_mut().enable();
                {
                    let mut state = self.state();
                    let found = state.notifications.iter().position(&is_match);
                    if let Some(notification) = found.and_then(|at| state.notifications.remove(at)) {
                        return Some(notification);
                    }
                    if state.is_closed {
                        return None;
                    }
                }
                changed.await;
            }
        };
        tokio::time::timeout(timeout, matching).await.ok().flatten()
    }

    /// Lists the methods of the buffered notifications, for panic messages.
    pub(super) fn buffered_methods(&self) -> String {
        let state = self.state();
        let methods: Vec<&str> =
            state.notifications.iter().map(|notification| notification.method.as_str()).collect();
        if methods.is_empty() { "nothing".into() } else { methods.join(", ") }
    }
}

/// Waits for the response with one id. Dropping it unregisters the id.
pub(super) struct ResponseWaiter {
    receiver: Arc<ClientReceiver>,
    id: i64,
    reply: oneshot::Receiver<RawReply>,
}

impl ResponseWaiter {
    pub(super) async fn wait(mut self, method: &str) -> RawReply {
        match (&mut self.reply).await {
            Ok(reply) => reply,
            Err(_) => self
                .receiver
                .panic_with(&format!("the server closed the connection before it responded to `{method}`")),
        }
    }
}

impl TestConnection {
    /// Registers a waiter for the response with this id; stdio only.
    pub(super) fn expect_response(&self, id: i64) -> ResponseWaiter {
        self.receiver.expect_response(id)
    }
}

impl Drop for ResponseWaiter {
    fn drop(&mut self) {
        self.receiver.state().pending.remove(&self.id);
    }
}
