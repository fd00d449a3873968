//! What a handler knows of its call, and what it can do with its client.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use http::HeaderMap;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use toolgate_wire::RawJson;
use toolgate_wire::model::{
    ClientCapabilities, ClientResult, ElicitRequest, ElicitResult, Implementation, LogLevel, Notification,
    Root, SamplingRequest, SamplingResult, ServerRequest,
};

use super::client_channel::ServerRequestErrorKind;
use super::schema::{schema_of, tidy};
use super::{ClientChannel, ElicitOutcome, Form, ServerRequestError};
use crate::headers::RequestHeaders;
use crate::request::{Caller, Principal};
use crate::store::{ScopedStore, StoreError};
use crate::subscriptions::{ChangeTopic, Subscriptions};
use crate::util::cancel::Cancel;
use crate::util::clock::timer_now;
use crate::util::sharded::ShardedRef;

/// What all handlers of a server share.
#[derive(Debug, Default)]
pub(crate) struct HandlerEnv {
    pub(crate) states: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    pub(crate) subscriptions: Arc<Subscriptions>,
    /// Where things are kept; none in tests of handlers alone.
    pub(crate) store: Option<ScopedStore>,
}

/// The call stays where it is.
const NOT_DEFERRABLE: u8 = 0;
/// It may go on as a task.
const DEFERRABLE: u8 = 1;
/// It wants to.
const DEFERRED: u8 = 2;

/// One call, as its handler sees it: who calls, how to tell them something, how to ask them.
///
/// Cloning is cheap, and a clone may outlive the call; it then reaches nobody.
///
/// ```
/// # use toolgate::{Context, Server};
/// async fn copy(cx: Context) -> String {
///     for file in 0..3 {
///         cx.progress_of(f64::from(file), 3.0, "copying").await;
///     }
///     cx.info("copied").await;
///     cx.principal().id().unwrap_or("nobody in particular").to_owned()
/// }
/// # assert!(Server::new("demo", "1.0.0").tool("copy", copy).build().is_ok());
/// ```
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    caller: Box<Caller>,
    client_channel: Arc<dyn ClientChannel>,
    cancel: Cancel,
    env: ShardedRef<HandlerEnv>,
    /// Progress only ever grows; the last one told, as bits.
    progress: AtomicU64,
    /// Questions under way. While there are any, a human may be thinking, and the tool's time stands still.
    pending_requests: AtomicU32,
    /// How often a question has been asked.
    request_count: AtomicU32,
    /// How long the handler may run.
    timeout: Duration,
    /// Whether this call may go on as a task, and wants to.
    deferral: AtomicU8,
    /// When that is over. Reckoned when somebody first wants to know: most calls end before.
    deadline: Mutex<Option<Instant>>,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("principal", &self.0.caller.principal).finish_non_exhaustive()
    }
}

impl Context {
    pub(crate) fn new(
        caller: Box<Caller>,
        voice: Arc<dyn ClientChannel>,
        cancel: Cancel,
        shared: ShardedRef<HandlerEnv>,
        limit: Duration,
    ) -> Context {
        Context(Arc::new(Inner {
            caller,
            client_channel: voice,
            cancel,
            env: shared,
            progress: AtomicU64::new(f64::NEG_INFINITY.to_bits()),
            pending_requests: AtomicU32::new(0),
            request_count: AtomicU32::new(0),
            timeout: limit,
            deferral: AtomicU8::new(NOT_DEFERRABLE),
            deadline: Mutex::new(None),
        }))
    }

    /// The same; this call may go on as a task.
    pub(crate) fn deferrable(self) -> Context {
        self.0.deferral.store(DEFERRABLE, Ordering::Relaxed);
        self
    }

    /// Whether the handler wants to go on as a task.
    pub(crate) fn is_deferred(&self) -> bool {
        self.0.deferral.load(Ordering::Relaxed) == DEFERRED
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.0.caller
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.0.timeout
    }

    pub(crate) fn deadline(&self) -> Instant {
        let mut deadline = self.0.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        *deadline.get_or_insert_with(|| timer_now() + self.0.timeout)
    }

    /// The handler's time begins anew: somebody was thinking.
    pub(crate) fn reset_deadline(&self) -> Instant {
        *self.0.deadline.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.deadline()
    }

    pub(crate) fn client_channel(&self) -> &Arc<dyn ClientChannel> {
        &self.0.client_channel
    }

    pub(crate) fn shared_state<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        Arc::clone(self.0.env.states.get(&TypeId::of::<T>())?).downcast().ok()
    }

    /// Whether a question is under way, or was asked since `asked` were counted.
    pub(crate) fn has_pending_request(&self) -> bool {
        self.0.pending_requests.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn request_count(&self) -> u32 {
        self.0.request_count.load(Ordering::Relaxed)
    }

    /// Who is calling, as far as it was proven.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.0.caller.principal
    }

    /// The HTTP headers of the call; empty over stdio.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.0.caller.headers
    }

    pub(crate) fn shared_headers(&self) -> Arc<RequestHeaders> {
        Arc::clone(&self.0.caller.headers)
    }

    /// Where the call came from, over HTTP.
    #[must_use]
    pub fn remote(&self) -> Option<SocketAddr> {
        self.0.caller.remote_addr
    }

    /// Who the client says it is. For display and logs: never a reason to trust it.
    #[must_use]
    pub fn client(&self) -> Option<&Implementation> {
        self.0.caller.client.info.as_ref()
    }

    /// What the client can do.
    #[must_use]
    pub fn capabilities(&self) -> &ClientCapabilities {
        &self.0.caller.client.capabilities
    }

    /// The request's `_meta`: trace context, and the keys of others.
    #[must_use]
    pub fn meta(&self) -> Option<&RawJson> {
        self.0.caller.meta.raw.as_ref()
    }

    /// In a completer: what another argument is already, if the client says so.
    #[must_use]
    pub fn other_argument(&self, argument: &str) -> Option<&str> {
        self.0.caller.other_arguments.as_ref()?.get(argument).map(String::as_str)
    }

    /// Whether nobody waits for the answer any more.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancel.is_cancelled()
    }

    /// Waits until nobody waits for the answer any more. The handler's future is dropped then anyway;
    /// this is for work that was moved elsewhere.
    pub async fn cancelled(&self) {
        self.0.cancel.cancelled().await;
    }

    /// How much time the handler has left, questions to the client not counted. When it is over, the
    /// handler's future is dropped and the client is told so.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.deadline().saturating_duration_since(timer_now())
    }

    /// Tells the client how far the call has come, if it asked to know. `done` must grow.
    pub async fn progress(&self, done: f64, message: impl Into<Option<&str>>) {
        self.send_progress(done, None, message.into()).await;
    }

    /// Tells the client how much of `total` is done, if it asked to know. `done` must grow.
    pub async fn progress_of(&self, done: f64, total: f64, message: impl Into<Option<&str>>) {
        self.send_progress(done, Some(total), message.into()).await;
    }

    async fn send_progress(&self, done: f64, total: Option<f64>, message: Option<&str>) {
        let Some(token) = self.0.caller.meta.progress_token.clone() else {
            return;
        };
        // Spec, all revisions: the value must increase. What does not is not worth a message.
        let further = |last: u64| (done.is_finite() && done > f64::from_bits(last)).then_some(done.to_bits());
        if self.0.progress.fetch_update(Ordering::Relaxed, Ordering::Relaxed, further).is_err() {
            return;
        }
        let notice =
            Notification::Progress { token, progress: done, total, message: message.map(str::to_owned) };
        self.send_notification(&notice).await;
    }

    /// A line for the client's log, if it wants lines of this level.
    pub async fn log(&self, level: LogLevel, data: impl Serialize) {
        self.send_log(None, level, &data).await;
    }

    /// The same, with the name of who says it: a part of the program.
    pub async fn log_as(&self, logger: &str, level: LogLevel, data: impl Serialize) {
        self.send_log(Some(logger), level, &data).await;
    }

    async fn send_log(&self, logger: Option<&str>, level: LogLevel, data: &impl Serialize) {
        if !self.0.client_channel.is_log_enabled(level) {
            return;
        }
        // What cannot be put in JSON cannot be logged; a log line is no reason to fail a call.
        if let Ok(data) = RawJson::from_serializable(data) {
            self.send_notification(&Notification::LogMessage {
                level,
                logger: logger.map(str::to_owned),
                data,
            })
            .await;
        }
    }

    /// A line for the client's log, at level `info`.
    pub async fn info(&self, message: &str) {
        self.log(LogLevel::Info, message).await;
    }

    async fn send_notification(&self, notice: &Notification) {
        // A call that has ended, or was taken back, says nothing more.
        if !self.is_cancelled() && self.0.client_channel.notify(notice) {
            yield_once().await;
        }
    }

    /// Asks the user to fill in a form.
    ///
    /// The key names the question among those of this call: choose one that says what is asked, and make
    /// it differ for each pass of a loop. See [`ServerRequestError`] for what a handler must not do before asking.
    ///
    /// ```
    /// # use toolgate::{Context, Elicited, Field, Form, ToolError};
    /// async fn deploy(cx: Context) -> Result<String, ToolError> {
    ///     let form = Form::new("Deploy to production?").field("reason", Field::text());
    ///     match cx.elicit("confirm", form).await? {
    ///         Elicited::Accept(answer) => Ok(format!("deployed: {}", answer["reason"])),
    ///         Elicited::Decline | Elicited::Cancel => Ok("nothing was changed".into()),
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// If the client cannot show forms, nobody answers, or the answer will come with a later run.
    pub async fn elicit(
        &self,
        key: &str,
        form: Form,
    ) -> Result<ElicitOutcome<serde_json::Value>, ServerRequestError> {
        let answer = self
            .request_client(key, ServerRequest::Elicitation(ElicitRequest::Form(form.into_model())))
            .await?;
        elicit_outcome(answer, |content| {
            Ok(content.map_or_else(|| serde_json::json!({}), |raw| raw.to_value()))
        })
    }

    /// Asks the user to fill in a form that is described by a type: a struct of texts, numbers, booleans
    /// and plain enums.
    ///
    /// # Errors
    /// If the client cannot show forms, nobody answers, or the answer will come with a later run.
    pub async fn elicit_as<T>(&self, key: &str, message: &str) -> Result<ElicitOutcome<T>, ServerRequestError>
    where
        T: DeserializeOwned + JsonSchema,
    {
        let form = Form::with_schema(message, tidy(schema_of::<T>().to_value()));
        let answer = self
            .request_client(key, ServerRequest::Elicitation(ElicitRequest::Form(form.into_model())))
            .await?;
        elicit_outcome(answer, |content| {
            let content = content.unwrap_or_else(RawJson::empty_object);
            content.parse_as().map_err(|error| rejected(&error))
        })
    }

    /// Asks the user to open a link: for what must not pass through the client, such as credentials.
    /// Accepting means that the user agreed to open it, not that what is behind it is done.
    ///
    /// # Errors
    /// If the client cannot show links, the link is not `https`, nobody answers, or the answer will come
    /// with a later run.
    pub async fn elicit_url(
        &self,
        key: &str,
        message: &str,
        url: &str,
    ) -> Result<ElicitOutcome<()>, ServerRequestError> {
        if !is_safe_url(url) {
            return Err(ServerRequestError(ServerRequestErrorKind::Rejected(
                "the link must be https".into(),
            )));
        }
        let ask = ElicitRequest::Url {
            message: message.to_owned(),
            url: url.to_owned(),
            id: crate::seal::random_token(),
        };
        elicit_outcome(self.request_client(key, ServerRequest::Elicitation(ask)).await?, |_| Ok(()))
    }

    /// Asks the client's model.
    ///
    /// # Errors
    /// If the client has no model for us, refuses, nobody answers, or the answer will come with a later run.
    pub async fn sample(
        &self,
        key: &str,
        sample: SamplingRequest,
    ) -> Result<SamplingResult, ServerRequestError> {
        match self.request_client(key, ServerRequest::Sampling(Box::new(sample))).await? {
            ClientResult::Sampling(sampled) => Ok(*sampled),
            _ => Err(mismatched_response()),
        }
    }

    /// Asks which folders the user has open.
    ///
    /// # Errors
    /// If the client does not tell, nobody answers, or the answer will come with a later run.
    pub async fn roots(&self) -> Result<Vec<Root>, ServerRequestError> {
        match self.request_client("roots", ServerRequest::Roots).await? {
            ClientResult::Roots(roots) => Ok(roots),
            _ => Err(mismatched_response()),
        }
    }

    async fn request_client(
        &self,
        key: &str,
        ask: ServerRequest,
    ) -> Result<ClientResult, ServerRequestError> {
        let _asking = ClientRequestGuard::begin(&self.0);
        self.0.client_channel.request(key, ask).await
    }

    /// Does something once, however often the handler runs: a later run gets the recorded result.
    ///
    /// # Errors
    /// As `work` does; a failure is not recorded.
    pub async fn step<T, E, Fut>(&self, name: &str, work: impl FnOnce() -> Fut) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        Fut: Future<Output = Result<T, E>>,
    {
        let slot = format!("step {name}");
        if let Some(done) = self.0.client_channel.recorded_value(&slot).and_then(|raw| raw.parse_as().ok()) {
            return Ok(done);
        }
        let done = work().await?;
        match RawJson::from_serializable(&done) {
            Ok(raw) => {
                self.0.client_channel.record_value(&slot, raw);
                if let Some(settled) = self.0.client_channel.wait_persisted() {
                    settled.await;
                }
            }
            Err(error) => tracing::error!(name, %error, "a step cannot be recorded and may be done again"),
        }
        Ok(done)
    }

    /// What an earlier run of this handler set aside with [`Context::set_state`].
    #[must_use]
    pub fn carried<T: DeserializeOwned>(&self) -> Option<T> {
        self.0.client_channel.recorded_value("state").and_then(|raw| raw.parse_as().ok())
    }

    /// Sets something aside for the next run of this handler, sealed so that the client that carries it
    /// can neither read nor change it.
    pub fn carry<T: Serialize>(&self, state: &T) {
        match RawJson::from_serializable(state) {
            Ok(raw) => self.0.client_channel.record_value("state", raw),
            Err(error) => tracing::error!(%error, "this state cannot be set aside"),
        }
    }

    /// From here on the work takes long: the call goes on as a task, if its tool says
    /// [`task_later`](crate::ToolSpec::task_later) and the client can do that. Questions before this are asked in
    /// the call itself.
    ///
    /// The handler ends here and runs once more, as the task, with the answers and steps it has so far. Where no
    /// task is possible, and in the task, this does nothing.
    ///
    /// ```
    /// # use toolgate::{Context, Field, Form, Server, ToolError};
    /// async fn publish(cx: Context) -> Result<&'static str, ToolError> {
    ///     let sure = cx.elicit("sure", Form::new("Publish?").field("yes", Field::flag())).await?;
    ///     cx.defer().await?;
    ///     // … hours of work …
    ///     Ok(if sure.accepted().is_some() { "published" } else { "left alone" })
    /// }
    /// # let server = Server::new("s", "1").tool("publish", publish).task_later();
    /// # assert!(server.build().is_ok());
    /// ```
    ///
    /// # Errors
    /// If the call goes on as a task: the handler must end now. Pass it on with `?`.
    pub async fn defer(&self) -> Result<(), ServerRequestError> {
        let deferring = &self.0.deferral;
        match deferring.compare_exchange(DEFERRABLE, DEFERRED, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) | Err(DEFERRED) => Err(ServerRequestError(ServerRequestErrorKind::Suspended)),
            Err(_) => Ok(()),
        }
    }

    /// Uses up what may be used once, such as the number of a payment: true for the first who tries, in whatever
    /// process that shares the server's store, until this life is over.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use toolgate::{Context, ToolError};
    /// async fn redeem(voucher: String, cx: Context) -> Result<&'static str, ToolError> {
    ///     match cx.spend(&voucher, Duration::from_secs(86_400)).await? {
    ///         true => Ok("redeemed"),
    ///         false => Err(ToolError::new("this voucher was used before")),
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// If the store cannot be asked. Nobody knows then whether it was used up: do not give what it was for.
    pub async fn consume_once(&self, what: &str, life: Duration) -> Result<bool, StoreError> {
        match &self.0.env.store {
            Some(cellar) => cellar.consume_once(what, life).await,
            None => Err(StoreError::Unavailable("this handler has no server".into())),
        }
    }

    /// Frees the connection of a call that will take long: the client comes back for the result after
    /// `retry`. Where the client cannot do that, nothing happens.
    pub fn release_connection(&self, retry: Duration) {
        self.0.client_channel.release_stream(retry);
    }

    /// Tells clients that something has changed.
    #[must_use]
    pub fn notify(&self) -> Notifier {
        Notifier(Arc::clone(&self.0.env.subscriptions))
    }
}

/// Tells clients that something has changed. They are told once, however often it changed before they looked.
///
/// ```
/// # fn main() -> Result<(), toolgate::Error> {
/// let server = toolgate::Server::new("notes", "1.0.0").resource("notes://all", || async { "…" }).build()?;
/// // Elsewhere, when something was written; in a handler it is `cx.changes()`.
/// server.changes().resource("notes://all");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Notifier(pub(crate) Arc<Subscriptions>);

impl Notifier {
    /// The list of tools has changed.
    pub fn tools_changed(&self) {
        self.0.publish(&ChangeTopic::Tools);
    }

    /// The list of prompts has changed.
    pub fn prompts_changed(&self) {
        self.0.publish(&ChangeTopic::Prompts);
    }

    /// The list of resources or templates has changed.
    pub fn resources_changed(&self) {
        self.0.publish(&ChangeTopic::Resources);
    }

    /// The resource at this URI has changed.
    pub fn resource_updated(&self, uri: &str) {
        self.0.publish(&ChangeTopic::Resource(uri.into()));
    }
}

/// Counts a question while it is under way, also when its future is dropped.
struct ClientRequestGuard<'a>(&'a Inner);

impl<'a> ClientRequestGuard<'a> {
    fn begin(inner: &'a Inner) -> ClientRequestGuard<'a> {
        inner.pending_requests.fetch_add(1, Ordering::Relaxed);
        inner.request_count.fetch_add(1, Ordering::Relaxed);
        ClientRequestGuard(inner)
    }
}

impl Drop for ClientRequestGuard<'_> {
    fn drop(&mut self) {
        self.0.pending_requests.fetch_sub(1, Ordering::Relaxed);
    }
}

fn elicit_outcome<T>(
    answer: ClientResult,
    accept: impl FnOnce(Option<RawJson>) -> Result<T, ServerRequestError>,
) -> Result<ElicitOutcome<T>, ServerRequestError> {
    match answer {
        ClientResult::Elicitation(ElicitResult::Accept(content)) => {
            accept(content).map(ElicitOutcome::Accept)
        }
        ClientResult::Elicitation(ElicitResult::Decline) => Ok(ElicitOutcome::Decline),
        ClientResult::Elicitation(ElicitResult::Cancel) => Ok(ElicitOutcome::Cancel),
        _ => Err(mismatched_response()),
    }
}

fn mismatched_response() -> ServerRequestError {
    ServerRequestError(ServerRequestErrorKind::Rejected("the answer is to another question".into()))
}

fn rejected(error: &dyn fmt::Display) -> ServerRequestError {
    ServerRequestError(ServerRequestErrorKind::Rejected(error.to_string()))
}

/// Links for users are https; plain http only to this machine, for development.
fn is_safe_url(url: &str) -> bool {
    let Ok(uri) = url.parse::<http::Uri>() else {
        return false;
    };
    let local = matches!(uri.host(), Some("localhost" | "127.0.0.1" | "[::1]"));
    match uri.scheme_str() {
        Some("https") => uri.host().is_some(),
        Some("http") => local,
        _ => false,
    }
}

/// Gives whoever drives this call the chance to send on what was just said.
async fn yield_once() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
