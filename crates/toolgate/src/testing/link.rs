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
use toolgate_wire::model::{Call, InitializeParams, Implementation, LogLevel, Outcome, ServerCapabilities, InitializeResult};
use toolgate_wire::{
    Client, ProtocolVersion, Frame, Limits, LogLevelScope, Message, Meta, RawJson, RemoteError, RequestId, codec, read_message,
    write_error, write_notification_frame, write_request, write_result,
};

use super::answer::{Fetched, Notice, Refusal};
use super::asked::Answers;
#[cfg(feature = "http")]
use super::web::Web;
use crate::server::Server;
use crate::tracker::AbortOnDrop;

/// Answers may be longer than questions.
pub(super) const LIMITS: Limits = Limits { max_bytes: 256 << 20, max_depth: 127 };
/// Notices that are kept until a test looks. One more, and the oldest is forgotten.
const KEPT: usize = 10_000;

/// What a client is told before it says its first word, and what it says with every request.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) edition: ProtocolVersion,
    pub(super) way: Way,
    pub(super) answers: Answers,
    pub(super) info: Implementation,
    pub(super) log: Option<LogLevel>,
    pub(super) patience: Duration,
    pub(super) headers: Vec<(String, String)>,
    pub(super) extensions: http::Extensions,
}

/// How the server is reached.
#[derive(Clone, Debug)]
pub(super) enum Way {
    Lines(Server),
    #[cfg(feature = "http")]
    Http(super::web::Door),
}

/// What one request was answered with.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) outcome: Result<RawJson, Refusal>,
    pub(super) message: Value,
    pub(super) fetched: Option<Fetched>,
}

impl Reply {
    pub(super) fn refused(refusal: Refusal, fetched: Option<Fetched>) -> Box<Reply> {
        Box::new(Reply { outcome: Err(refusal), message: Value::Null, fetched })
    }

    pub(super) fn of(outcome: Result<RawJson, RemoteError>, text: &[u8], fetched: Option<Fetched>) -> Reply {
        let status = fetched.as_ref().map(|fetched| fetched.status);
        Reply {
            outcome: outcome.map_err(|error| Refusal::remote(&error, status)),
            message: serde_json::from_slice(text).unwrap_or_default(),
            fetched,
        }
    }
}

/// What a server says of itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct About {
    /// Who it is; not said by every server of the newest revision.
    pub server: Option<Implementation>,
    /// What it offers.
    pub capabilities: ServerCapabilities,
    /// How to use it, for a model.
    pub instructions: Option<String>,
}

pub(super) struct Link {
    pub(super) edition: ProtocolVersion,
    pub(super) ear: Arc<Ear>,
    /// Said in each request where there is no handshake.
    pub(super) client: Client,
    road: Road,
    /// What the handshake told.
    pub(super) welcome: Option<InitializeResult>,
    ids: AtomicI64,
    /// What reads and writes while the link lives.
    tasks: Mutex<Vec<AbortOnDrop<()>>>,
}

enum Road {
    Lines(mpsc::Sender<Bytes>),
    #[cfg(feature = "http")]
    Http(Web),
}

impl Link {
    /// Connects, and greets where the revision wants it.
    ///
    /// # Errors
    /// If the server refuses the greeting.
    pub(super) async fn open(setup: &Setup) -> Result<Arc<Link>, Box<Reply>> {
        let edition = setup.edition;
        let ear = Arc::new(Ear::new(edition, setup.answers.clone()));
        let capabilities = setup.answers.capabilities();
        let client = Client { protocol_version: edition, capabilities, info: Some(setup.info.clone()) };
        let (road, tasks) = match &setup.way {
            Way::Lines(server) => lines(server.clone(), &ear),
            #[cfg(feature = "http")]
            Way::Http(door) => (Road::Http(Web::new(door.clone(), edition)), Vec::new()),
        };
        let (ids, tasks) = (AtomicI64::new(1), Mutex::new(tasks));
        let mut link = Link { edition, ear, client, road, welcome: None, ids, tasks };
        if edition.has_handshake() {
            link.shake_hands(setup).await?;
        }
        Ok(Arc::new(link))
    }

    async fn shake_hands(&mut self, setup: &Setup) -> Result<(), Box<Reply>> {
        let hello = Call::Initialize(InitializeParams {
            version: self.edition.as_str().to_owned(),
            capabilities: self.client.capabilities.clone(),
            client_info: self.client.info.clone(),
        });
        let reply = self.call(setup, self.next_id(), &hello, &Meta::default(), &[], |_| {}).await;
        let Ok(result) = &reply.outcome else { return Err(Box::new(reply)) };
        match codec::read_outcome(self.edition, &hello, result) {
            Ok(Outcome::Initialize(welcome)) if welcome.version == self.edition.as_str() => {
                self.welcome = Some(*welcome);
            }
            _ => panic!("{} was asked for, and the server answered {}", self.edition, reply.message),
        }
        self.notify(setup, "notifications/initialized", None).await;
        if let (LogLevelScope::Session, Some(level)) = (self.edition.behavior().log_level_scope, setup.log) {
            let level = Call::SetLevel(level);
            let reply = self.call(setup, self.next_id(), &level, &Meta::default(), &[], |_| {}).await;
            reply.outcome.as_ref().map_err(|refusal| Reply::refused(refusal.clone(), None))?;
        }
        Ok(())
    }

    pub(super) fn next_id(&self) -> i64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// What the params of this call are on the wire.
    pub(super) fn params(&self, call: &Call, meta: &Meta) -> Vec<u8> {
        let mut params = Vec::new();
        codec::write_call_params(&mut params, self.edition, call, Some(&self.client), meta);
        params
    }

    pub(super) async fn call(
        &self,
        setup: &Setup,
        id: i64,
        call: &Call,
        meta: &Meta,
        headers: &[(String, String)],
        sent: impl FnOnce(i64) + Send,
    ) -> Reply {
        let asked = Asked { id, method: call.method(), subject: call.mirrored_name(), headers };
        self.ask(setup, &asked, &self.params(call, meta), sent).await
    }

    /// Sends one request and waits for its answer.
    pub(super) async fn ask(
        &self,
        setup: &Setup,
        asked: &Asked<'_>,
        params: &[u8],
        sent: impl FnOnce(i64) + Send,
    ) -> Reply {
        let asking = async {
            match &self.road {
                Road::Lines(_) => self.ask_line(asked, params, sent).await,
                #[cfg(feature = "http")]
                Road::Http(web) => web.ask(setup, &self.ear, asked, params, sent).await,
            }
        };
        match tokio::time::timeout(setup.patience, asking).await {
            Ok(reply) => reply,
            Err(_) => panic!(
                "`{}` was not answered in {:?}; `patience` gives it longer",
                asked.method, setup.patience
            ),
        }
    }

    async fn ask_line(&self, asked: &Asked<'_>, params: &[u8], sent: impl FnOnce(i64)) -> Reply {
        let waiting = self.ear.expect(asked.id);
        self.write(asked.request(params)).await;
        sent(asked.id);
        waiting.answer(asked.method).await
    }

    /// Sends a request without waiting for its answer; lines only.
    pub(super) async fn write(&self, message: Vec<u8>) {
        match &self.road {
            Road::Lines(writer) => {
                if writer.send(message.into()).await.is_err() {
                    self.ear.fail("the server has hung up");
                }
            }
            #[cfg(feature = "http")]
            Road::Http(_) => unreachable!("over HTTP every message is a request of its own"),
        }
    }

    pub(super) async fn notify(&self, setup: &Setup, method: &str, params: Option<&Value>) {
        let params = params.map(Value::to_string);
        let mut message = Vec::new();
        write_notification_frame(&mut message, method, params.as_deref().map(str::as_bytes));
        match &self.road {
            Road::Lines(_) => self.write(message).await,
            #[cfg(feature = "http")]
            Road::Http(web) => web.tell(setup, message).await,
        }
        let _ = setup;
    }

    #[cfg(feature = "http")]
    pub(super) fn web(&self) -> Option<&Web> {
        match &self.road {
            Road::Http(web) => Some(web),
            Road::Lines(_) => None,
        }
    }

    /// Keeps a task for as long as the link lives.
    pub(super) fn keep(&self, task: tokio::task::JoinHandle<()>) {
        lock(&self.tasks).push(AbortOnDrop::new(task));
    }
}

/// One request on its way out.
pub(super) struct Asked<'a> {
    pub(super) id: i64,
    pub(super) method: &'a str,
    /// What it is about: what HTTP repeats in a header.
    pub(super) subject: Option<&'a str>,
    /// Headers of this request only.
    pub(super) headers: &'a [(String, String)],
}

impl Asked<'_> {
    pub(super) fn request(&self, params: &[u8]) -> Vec<u8> {
        let mut message = Vec::with_capacity(params.len() + 128);
        write_request(&mut message, &RequestId::Number(self.id), self.method, Some(params));
        message
    }
}

/// A server on a pair of pipes.
fn lines(server: Server, ear: &Arc<Ear>) -> (Road, Vec<AbortOnDrop<()>>) {
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
                if let Some(answer) = ear.hear(&Bytes::from(line)) {
                    // Nobody to answer any more: the end of the lines will tell.
                    let _ = answers.send(answer).await;
                }
            }
            ear.end();
        }
    });
    (Road::Lines(writer), [serving, writing, reading].map(AbortOnDrop::new).into())
}

/// Hears what a server says: answers go to those who wait for them, questions to the test's closures, the
/// rest is kept.
pub(super) struct Ear {
    edition: ProtocolVersion,
    answers: Answers,
    state: Mutex<State>,
    /// Rings when something was kept.
    heard: Notify,
}

#[derive(Default)]
struct State {
    waiting: HashMap<i64, oneshot::Sender<Reply>>,
    notices: VecDeque<Notice>,
    /// A closure of the test panicked; whoever waits next goes on with that.
    panic: Option<Box<dyn Any + Send>>,
    /// Nothing more will be heard.
    ended: bool,
}

impl Ear {
    fn new(edition: ProtocolVersion, answers: Answers) -> Ear {
        Ear { edition, answers, state: Mutex::default(), heard: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Takes in one message; gives what is to be said back.
    pub(super) fn hear(&self, text: &Bytes) -> Option<Bytes> {
        match read_message(text, &LIMITS) {
            Ok(Message::Single(Frame::Response { id: RequestId::Number(id), outcome })) => {
                let waiting = self.state().waiting.remove(&id);
                if let Some(waiting) = waiting {
                    // Who does not wait any more does not care.
                    let _ = waiting.send(Reply::of(outcome, text, None));
                }
                None
            }
            Ok(Message::Single(Frame::Notification { method, params })) => {
                let params = params.map(|params| params.to_value()).unwrap_or_default();
                self.keep(Notice { method: method.into(), params });
                None
            }
            Ok(Message::Single(Frame::Request { id, method, params })) => {
                self.question(&id, &method, params.as_ref())
            }
            // An answer to nothing of ours, or an array, which is never asked for.
            Ok(_) => None,
            Err(broken) => {
                let text = String::from_utf8_lossy(text).into_owned();
                self.stop(Box::new(format!(
                    "the server said something that is no message: {}\n{text}",
                    broken.detail
                )));
                None
            }
        }
    }

    fn question(&self, id: &RequestId, method: &str, params: Option<&RawJson>) -> Option<Bytes> {
        let mut out = Vec::new();
        match codec::read_server_request(self.edition, method, params) {
            Ok(ask) => match catch_unwind(AssertUnwindSafe(|| self.answers.answer(self.edition, &ask))) {
                Ok(answer) => write_result(&mut out, id, answer.as_bytes()),
                Err(panic) => {
                    self.stop(panic);
                    return None;
                }
            },
            Err(_) if method == "ping" => write_result(&mut out, id, b"{}"),
            Err(fault) => {
                write_error(&mut out, Some(id), fault.code(self.edition), fault.message(), None);
            }
        }
        Some(out.into())
    }

    fn keep(&self, notice: Notice) {
        let mut state = self.state();
        if state.notices.len() == KEPT {
            state.notices.pop_front();
        }
        state.notices.push_back(notice);
        drop(state);
        self.heard.notify_waiters();
    }

    /// The test goes on with this panic.
    fn stop(&self, panic: Box<dyn Any + Send>) {
        self.state().panic.get_or_insert(panic);
        self.end();
    }

    pub(super) fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        // Whoever waits hears that nothing will come.
        state.waiting.clear();
        drop(state);
        self.heard.notify_waiters();
    }

    fn expect(self: &Arc<Ear>, id: i64) -> Waiting {
        let (sender, answer) = oneshot::channel();
        let mut state = self.state();
        if !state.ended {
            state.waiting.insert(id, sender);
        }
        drop(state);
        Waiting { ear: Arc::clone(self), id, answer }
    }

    /// Goes on with the panic of a closure, or with this one.
    pub(super) fn fail(&self, why: &str) -> ! {
        let panic = self.state().panic.take();
        match panic {
            Some(panic) => resume_unwind(panic),
            None => panic!("{why}"),
        }
    }

    /// Panics if a closure of the test did.
    pub(super) fn check(&self) {
        let panic = self.state().panic.take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Everything that was kept.
    pub(super) fn take_all(&self) -> Vec<Notice> {
        self.state().notices.drain(..).collect()
    }

    /// The first notice like this that was kept or will be; none if there is none in time.
    pub(super) async fn take(&self, patience: Duration, is_it: impl Fn(&Notice) -> bool) -> Option<Notice> {
        let taking = async {
            loop {
                let heard = self.heard.notified();
                let mut heard = std::pin::pin!(heard);
                // Before looking: what comes in between rings.
                heard.as_mut().enable();
                {
                    let mut state = self.state();
                    let found = state.notices.iter().position(&is_it);
                    if let Some(notice) = found.and_then(|at| state.notices.remove(at)) {
                        return Some(notice);
                    }
                    if state.ended {
                        return None;
                    }
                }
                heard.await;
            }
        };
        tokio::time::timeout(patience, taking).await.ok().flatten()
    }

    /// The methods of what was kept, for complaints.
    pub(super) fn kept(&self) -> String {
        let state = self.state();
        let methods: Vec<&str> = state.notices.iter().map(|notice| notice.method.as_str()).collect();
        if methods.is_empty() { "nothing".into() } else { methods.join(", ") }
    }
}

/// A place in the line of those who wait for an answer.
pub(super) struct Waiting {
    ear: Arc<Ear>,
    id: i64,
    answer: oneshot::Receiver<Reply>,
}

impl Waiting {
    pub(super) async fn answer(mut self, method: &str) -> Reply {
        match (&mut self.answer).await {
            Ok(reply) => reply,
            Err(_) => self.ear.fail(&format!("the server hung up before it answered `{method}`")),
        }
    }
}

impl Link {
    /// A place for an answer that is not waited for right away; lines only.
    pub(super) fn expect(&self, id: i64) -> Waiting {
        self.ear.expect(id)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.ear.state().waiting.remove(&self.id);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
