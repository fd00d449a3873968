//! The connection of a test's client: what goes out, and who hears what comes in.
//!
//! A link is opened by the first request. Over lines it is a server on a pair of pipes and two tasks that
//! read and write; over HTTP it is a session, if the revision has one, and an exchange for each request.
//! All of it ends with the link.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use crate::util::spawn::AbortOnDrop;

/// Answers may be longer than questions.
pub(super) const RESPONSE_LIMITS: Limits = Limits { max_bytes: 256 << 20, max_depth: 127 };
/// Notices that are kept until a test looks. One more, and the oldest is forgotten.
const MAX_BUFFERED_NOTIFICATIONS: usize = 10_000;

/// What a client is told before it says its first word, and what it says with every request.
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

/// How the server is reached.
#[derive(Clone, Debug)]
pub(super) enum ConnectTarget {
    Stdio(Server),
    #[cfg(feature = "http")]
    Http(super::http_client::HttpTarget),
}

/// What one request was answered with.
#[derive(Debug)]
pub(super) struct RawReply {
    pub(super) outcome: Result<RawJson, TestError>,
    pub(super) message: Value,
    pub(super) http_response: Option<ReceivedResponse>,
}

impl RawReply {
    pub(super) fn from_error(refusal: TestError, fetched: Option<ReceivedResponse>) -> Box<RawReply> {
        Box::new(RawReply { outcome: Err(refusal), message: Value::Null, http_response: fetched })
    }

    pub(super) fn from_outcome(
        outcome: Result<RawJson, RemoteError>,
        text: &[u8],
        http_response: Option<ReceivedResponse>,
    ) -> RawReply {
        let status = http_response.as_ref().map(|fetched| fetched.status);
        RawReply {
            outcome: outcome.map_err(|error| TestError::from_remote(&error, status)),
            message: serde_json::from_slice(text).unwrap_or_default(),
            http_response,
        }
    }
}

/// What a server says of itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerDetails {
    /// Who it is; not said by every server of the newest revision.
    pub server: Option<Implementation>,
    /// What it offers.
    pub capabilities: ServerCapabilities,
    /// How to use it, for a model.
    pub instructions: Option<String>,
}

pub(super) struct TestConnection {
    pub(super) version: ProtocolVersion,
    pub(super) receiver: Arc<ClientReceiver>,
    /// Said in each request where there is no handshake.
    pub(super) client: Client,
    transport: ClientTransport,
    /// What the handshake told.
    pub(super) initialize_result: Option<InitializeResult>,
    next_id: AtomicI64,
    /// What reads and writes while the link lives.
    tasks: Mutex<Vec<AbortOnDrop<()>>>,
}

enum ClientTransport {
    Stdio(mpsc::Sender<Bytes>),
    #[cfg(feature = "http")]
    Http(TestHttpClient),
}

impl TestConnection {
    /// Connects, and greets where the revision wants it.
    ///
    /// # Errors
    /// If the server refuses the greeting.
    pub(super) async fn open(setup: &ConnectionSetup) -> Result<Arc<TestConnection>, Box<RawReply>> {
        let edition = setup.version;
        let ear = Arc::new(ClientReceiver::new(edition, setup.callbacks.clone()));
        let capabilities = setup.callbacks.capabilities();
        let client = Client { protocol_version: edition, capabilities, info: Some(setup.info.clone()) };
        let (road, tasks) = match &setup.target {
            ConnectTarget::Stdio(server) => connect_stdio(server.clone(), &ear),
            #[cfg(feature = "http")]
            ConnectTarget::Http(door) => {
                (ClientTransport::Http(TestHttpClient::new(door.clone(), edition)), Vec::new())
            }
        };
        let (ids, tasks) = (AtomicI64::new(1), Mutex::new(tasks));
        let mut link = TestConnection {
            version: edition,
            receiver: ear,
            client,
            transport: road,
            initialize_result: None,
            next_id: ids,
            tasks,
        };
        if edition.has_handshake() {
            link.initialize(setup).await?;
        }
        Ok(Arc::new(link))
    }

    async fn initialize(&mut self, setup: &ConnectionSetup) -> Result<(), Box<RawReply>> {
        let hello = Call::Initialize(InitializeParams {
            version: self.version.as_str().to_owned(),
            capabilities: self.client.capabilities.clone(),
            client_info: self.client.info.clone(),
        });
        let reply = self.call(setup, self.next_id(), &hello, &Meta::default(), &[], |_| {}).await;
        let Ok(result) = &reply.outcome else { return Err(Box::new(reply)) };
        match codec::read_outcome(self.version, &hello, result) {
            Ok(Outcome::Initialize(welcome)) if welcome.version == self.version.as_str() => {
                self.initialize_result = Some(*welcome);
            }
            _ => panic!("{} was asked for, and the server answered {}", self.version, reply.message),
        }
        self.notify(setup, "notifications/initialized", None).await;
        if let (LogLevelScope::Session, Some(level)) =
            (self.version.behavior().log_level_scope, setup.log_level)
        {
            let level = Call::SetLevel(level);
            let reply = self.call(setup, self.next_id(), &level, &Meta::default(), &[], |_| {}).await;
            reply.outcome.as_ref().map_err(|refusal| RawReply::from_error(refusal.clone(), None))?;
        }
        Ok(())
    }

    pub(super) fn next_id(&self) -> i64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// What the params of this call are on the wire.
    pub(super) fn params(&self, call: &Call, meta: &Meta) -> Vec<u8> {
        let mut params = Vec::new();
        codec::write_call_params(&mut params, self.version, call, Some(&self.client), meta);
        params
    }

    pub(super) async fn call(
        &self,
        setup: &ConnectionSetup,
        id: i64,
        call: &Call,
        meta: &Meta,
        headers: &[(String, String)],
        sent: impl FnOnce(i64) + Send,
    ) -> RawReply {
        let asked = TestRequestHead { id, method: call.method(), subject: call.mirrored_name(), headers };
        self.send(setup, &asked, &self.params(call, meta), sent).await
    }

    /// Sends one request and waits for its answer.
    pub(super) async fn send(
        &self,
        setup: &ConnectionSetup,
        asked: &TestRequestHead<'_>,
        params: &[u8],
        sent: impl FnOnce(i64) + Send,
    ) -> RawReply {
        let asking = async {
            match &self.transport {
                ClientTransport::Stdio(_) => self.send_stdio(asked, params, sent).await,
                #[cfg(feature = "http")]
                ClientTransport::Http(web) => web.request(setup, &self.receiver, asked, params, sent).await,
            }
        };
        match tokio::time::timeout(setup.timeout, asking).await {
            Ok(reply) => reply,
            Err(_) => panic!(
                "`{}` was not answered in {:?}; `patience` gives it longer",
                asked.method, setup.timeout
            ),
        }
    }

    async fn send_stdio(
        &self,
        asked: &TestRequestHead<'_>,
        params: &[u8],
        sent: impl FnOnce(i64),
    ) -> RawReply {
        let waiting = self.receiver.expect_response(asked.id);
        self.write(asked.encode(params)).await;
        sent(asked.id);
        waiting.wait(asked.method).await
    }

    /// Sends a request without waiting for its answer; lines only.
    pub(super) async fn write(&self, message: Vec<u8>) {
        match &self.transport {
            ClientTransport::Stdio(writer) => {
                if writer.send(message.into()).await.is_err() {
                    self.receiver.panic_with("the server has hung up");
                }
            }
            #[cfg(feature = "http")]
            ClientTransport::Http(_) => unreachable!("over HTTP every message is a request of its own"),
        }
    }

    pub(super) async fn notify(&self, setup: &ConnectionSetup, method: &str, params: Option<&Value>) {
        let params = params.map(Value::to_string);
        let mut message = Vec::new();
        write_notification_frame(&mut message, method, params.as_deref().map(str::as_bytes));
        match &self.transport {
            ClientTransport::Stdio(_) => self.write(message).await,
            #[cfg(feature = "http")]
            ClientTransport::Http(web) => web.post(setup, message).await,
        }
        let _ = setup;
    }

    #[cfg(feature = "http")]
    pub(super) fn http_client(&self) -> Option<&TestHttpClient> {
        match &self.transport {
            ClientTransport::Http(web) => Some(web),
            ClientTransport::Stdio(_) => None,
        }
    }

    /// Keeps a task for as long as the link lives.
    pub(super) fn own_task(&self, task: tokio::task::JoinHandle<()>) {
        lock(&self.tasks).push(AbortOnDrop::new(task));
    }
}

/// One request on its way out.
pub(super) struct TestRequestHead<'a> {
    pub(super) id: i64,
    pub(super) method: &'a str,
    /// What it is about: what HTTP repeats in a header.
    pub(super) subject: Option<&'a str>,
    /// Headers of this request only.
    pub(super) headers: &'a [(String, String)],
}

impl TestRequestHead<'_> {
    pub(super) fn encode(&self, params: &[u8]) -> Vec<u8> {
        let mut message = Vec::with_capacity(params.len() + 128);
        write_request(&mut message, &RequestId::Number(self.id), self.method, Some(params));
        message
    }
}

/// A server on a pair of pipes.
fn connect_stdio(server: Server, ear: &Arc<ClientReceiver>) -> (ClientTransport, Vec<AbortOnDrop<()>>) {
    let (mut input, theirs) = tokio::io::duplex(64 << 10);
    let (printed, output) = tokio::io::duplex(64 << 10);
    // Full: the test waits, as it would for a server that does not read.
    let (writer, mut messages) = mpsc::channel::<Bytes>(1024);
    let serving = tokio::spawn(async move {
        // Its client is gone: there is nobody to be told.
        let _ = server.serve_io(theirs, printed).await;
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
        let (ear, answers) = (Arc::clone(ear), writer.clone());
        async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(answer) = ear.receive(&Bytes::from(line)) {
                    // Nobody to answer any more: the end of the lines will tell.
                    let _ = answers.send(answer).await;
                }
            }
            ear.close();
        }
    });
    (ClientTransport::Stdio(writer), [serving, writing, reading].map(AbortOnDrop::new).into())
}

/// Hears what a server says: answers go to those who wait for them, questions to the test's closures, the
/// rest is kept.
pub(super) struct ClientReceiver {
    version: ProtocolVersion,
    callbacks: ClientCallbacks,
    state: Mutex<State>,
    /// Rings when something was kept.
    changed: Notify,
}

#[derive(Default)]
struct State {
    pending: HashMap<i64, oneshot::Sender<RawReply>>,
    notifications: VecDeque<ReceivedNotification>,
    /// A closure of the test panicked; whoever waits next goes on with that.
    panic: Option<Box<dyn Any + Send>>,
    /// Nothing more will be heard.
    is_closed: bool,
}

impl ClientReceiver {
    fn new(version: ProtocolVersion, callbacks: ClientCallbacks) -> ClientReceiver {
        ClientReceiver { version, callbacks, state: Mutex::default(), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Takes in one message; gives what is to be said back.
    pub(super) fn receive(&self, text: &Bytes) -> Option<Bytes> {
        match read_message(text, &RESPONSE_LIMITS) {
            Ok(Message::Single(Frame::Response { id: RequestId::Number(id), outcome })) => {
                let waiting = self.state().pending.remove(&id);
                if let Some(waiting) = waiting {
                    // Who does not wait any more does not care.
                    let _ = waiting.send(RawReply::from_outcome(outcome, text, None));
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
            // An answer to nothing of ours, or an array, which is never asked for.
            Ok(_) => None,
            Err(broken) => {
                let text = String::from_utf8_lossy(text).into_owned();
                self.fail_with_panic(Box::new(format!(
                    "the server said something that is no message: {}\n{text}",
                    broken.detail
                )));
                None
            }
        }
    }

    fn handle_request(&self, id: &RequestId, method: &str, params: Option<&RawJson>) -> Option<Bytes> {
        let mut out = Vec::new();
        match codec::read_server_request(self.version, method, params) {
            Ok(ask) => match catch_unwind(AssertUnwindSafe(|| self.callbacks.respond(self.version, &ask))) {
                Ok(answer) => write_result(&mut out, id, answer.as_bytes()),
                Err(panic) => {
                    self.fail_with_panic(panic);
                    return None;
                }
            },
            Err(_) if method == "ping" => write_result(&mut out, id, b"{}"),
            Err(fault) => {
                write_error(&mut out, Some(id), fault.code(self.version), fault.message(), None);
            }
        }
        Some(out.into())
    }

    fn push_notification(&self, notice: ReceivedNotification) {
        let mut state = self.state();
        if state.notifications.len() == MAX_BUFFERED_NOTIFICATIONS {
            state.notifications.pop_front();
        }
        state.notifications.push_back(notice);
        drop(state);
        self.changed.notify_waiters();
    }

    /// The test goes on with this panic.
    fn fail_with_panic(&self, panic: Box<dyn Any + Send>) {
        self.state().panic.get_or_insert(panic);
        self.close();
    }

    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        // Whoever waits hears that nothing will come.
        state.pending.clear();
        drop(state);
        self.changed.notify_waiters();
    }

    fn expect_response(self: &Arc<ClientReceiver>, id: i64) -> ResponseWaiter {
        let (sender, answer) = oneshot::channel();
        let mut state = self.state();
        if !state.is_closed {
            state.pending.insert(id, sender);
        }
        drop(state);
        ResponseWaiter { receiver: Arc::clone(self), id, reply: answer }
    }

    /// Goes on with the panic of a closure, or with this one.
    pub(super) fn panic_with(&self, why: &str) -> ! {
        let panic = self.state().panic.take();
        match panic {
            Some(panic) => resume_unwind(panic),
            None => panic!("{why}"),
        }
    }

    /// Panics if a closure of the test did.
    pub(super) fn resume_panic(&self) {
        let panic = self.state().panic.take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Everything that was kept.
    pub(super) fn take_notifications(&self) -> Vec<ReceivedNotification> {
        self.state().notifications.drain(..).collect()
    }

    /// The first notice like this that was kept or will be; none if there is none in time.
    pub(super) async fn wait_notification(
        &self,
        patience: Duration,
        is_it: impl Fn(&ReceivedNotification) -> bool,
    ) -> Option<ReceivedNotification> {
        let taking = async {
            loop {
                let heard = self.changed.notified();
                let mut heard = std::pin::pin!(heard);
                // Before looking: what comes in between rings.
                heard.as_mut().enable();
                {
                    let mut state = self.state();
                    let found = state.notifications.iter().position(&is_it);
                    if let Some(notice) = found.and_then(|at| state.notifications.remove(at)) {
                        return Some(notice);
                    }
                    if state.is_closed {
                        return None;
                    }
                }
                heard.await;
            }
        };
        tokio::time::timeout(patience, taking).await.ok().flatten()
    }

    /// The methods of what was kept, for complaints.
    pub(super) fn buffered_methods(&self) -> String {
        let state = self.state();
        let methods: Vec<&str> = state.notifications.iter().map(|notice| notice.method.as_str()).collect();
        if methods.is_empty() { "nothing".into() } else { methods.join(", ") }
    }
}

/// A place in the line of those who wait for an answer.
pub(super) struct ResponseWaiter {
    receiver: Arc<ClientReceiver>,
    id: i64,
    reply: oneshot::Receiver<RawReply>,
}

impl ResponseWaiter {
    pub(super) async fn wait(mut self, method: &str) -> RawReply {
        match (&mut self.reply).await {
            Ok(reply) => reply,
            Err(_) => self.receiver.panic_with(&format!("the server hung up before it answered `{method}`")),
        }
    }
}

impl TestConnection {
    /// A place for an answer that is not waited for right away; lines only.
    pub(super) fn expect_response(&self, id: i64) -> ResponseWaiter {
        self.receiver.expect_response(id)
    }
}

impl Drop for ResponseWaiter {
    fn drop(&mut self) {
        self.receiver.state().pending.remove(&self.id);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
