//! The context of a call: identifies the caller, and sends notifications and requests to the client.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use http::HeaderMap;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use toolgate_wire::RawJson;
use toolgate_wire::model::{
    ClientCapabilities, ClientResult, Implementation, LogLevel, Notification, Root, ServerRequest,
};

use super::client_channel::ServerRequestErrorKind;
use super::layer::Layers;
use super::{ClientChannel, Notifier, ServerRequestError};
use crate::headers::RequestHeaders;
use crate::request::{Caller, Principal};
use crate::store::{ScopedStore, StoreError};
use crate::subscriptions::Subscriptions;
use crate::util::cancel::Cancel;
use crate::util::clock::timer_now;
use crate::util::poll_watch::PollWatch;
use crate::util::sharded::ShardedRef;

/// The environment that all handlers of a server share: state, subscriptions and the store.
#[derive(Debug, Default)]
pub(crate) struct HandlerEnv {
    pub(crate) states: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    pub(crate) subscriptions: Arc<Subscriptions>,
    /// `None` in unit tests of handlers.
    pub(crate) store: Option<ScopedStore>,
    /// A weak handle of the server, whose type only the module `server` knows.
    pub(crate) server: OnceLock<Box<dyn Any + Send + Sync>>,
    /// `None` if the server has no layers.
    pub(crate) layers: Option<Layers>,
    /// Reports a handler that blocks, for all handlers except those of tools, which have their own.
    pub(crate) poll_watch: PollWatch,
}

/// The call cannot become a task.
const NOT_DEFERRABLE: u8 = 0;
/// The call becomes a task if the handler defers it.
const DEFERRABLE: u8 = 1;
/// The handler deferred the call.
const DEFERRED: u8 = 2;

/// The context of a call: the caller's identity, the deadline and cancellation, and a channel to the client for progress,
/// log messages, elicitation and sampling.
///
/// Cloning is cheap. A clone may outlive the call; its messages are then discarded.
///
/// ```
/// # use toolgate::{Context, Server};
/// async fn copy(cx: Context) -> String {
///     for file in 0..3 {
///         cx.progress_of(f64::from(file), 3.0, "copying").await;
///     }
///     cx.info("copied").await;
///     cx.principal().id().unwrap_or("anonymous").to_owned()
/// }
/// # assert!(Server::new("demo", "1.0.0").tool("copy", copy).build().is_ok());
/// ```
#[derive(Clone)]
#[doc(alias("RequestContext", "ctx"))]
pub struct Context(Arc<Inner>);

struct Inner {
    caller: Box<Caller>,
    client_channel: Arc<dyn ClientChannel>,
    cancel: Cancel,
    env: ShardedRef<HandlerEnv>,
    /// Bits of the last progress value sent. Progress must increase.
    progress: AtomicU64,
    /// Number of pending requests to the client. While there are any, the timeout is suspended: a user may be thinking.
    pending_requests: AtomicU32,
    /// Number of requests sent to the client so far.
    request_count: AtomicU32,
    /// Maximum running time of the handler.
    timeout: Duration,
    /// One of `NOT_DEFERRABLE`, `DEFERRABLE` and `DEFERRED`.
    deferral: AtomicU8,
    /// Digests of the sampling requests without a key that this run has sent.
    samples: Mutex<Vec<Box<str>>>,
    /// End of the running time. Computed on first use, because most calls end before it is needed.
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
        client_channel: Arc<dyn ClientChannel>,
        cancel: Cancel,
        env: ShardedRef<HandlerEnv>,
        timeout: Duration,
    ) -> Context {
        Context(Arc::new(Inner {
            caller,
            client_channel,
            cancel,
            env,
            progress: AtomicU64::new(f64::NEG_INFINITY.to_bits()),
            pending_requests: AtomicU32::new(0),
            request_count: AtomicU32::new(0),
            timeout,
            deferral: AtomicU8::new(NOT_DEFERRABLE),
            samples: Mutex::default(),
            deadline: Mutex::new(None),
        }))
    }

    /// Allows the handler to defer the call.
    pub(crate) fn deferrable(self) -> Context {
        self.0.deferral.store(DEFERRABLE, Ordering::Relaxed);
        self
    }

    /// Returns whether the handler deferred the call.
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

    /// Restarts the timeout, after a request to the client was answered.
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

    /// Returns the weak handle of the server, if there is a server.
    pub(crate) fn server_handle(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.0.env.server.get().map(|handle| &**handle)
    }

    /// Returns the layers of the server, if it has any.
    #[inline]
    pub(crate) fn layers(&self) -> Option<&Layers> {
        self.0.env.layers.as_ref()
    }

    /// Returns the watch of handlers that have none of their own.
    pub(crate) fn poll_watch(&self) -> &PollWatch {
        &self.0.env.poll_watch
    }

    /// Returns whether a request to the client is pending.
    pub(crate) fn has_pending_request(&self) -> bool {
        self.0.pending_requests.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn request_count(&self) -> u32 {
        self.0.request_count.load(Ordering::Relaxed)
    }

    /// Counts a sampling request without a key. Returns how many with this digest the run has sent, including this one.
    pub(super) fn count_sample(&self, digest: &str) -> usize {
        let mut samples = self.0.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.push(digest.into());
        samples.iter().filter(|known| ***known == *digest).count()
    }

    /// Returns the authenticated caller, or an anonymous principal.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.0.caller.principal
    }

    /// Returns the HTTP headers of the call; empty over stdio.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.0.caller.headers
    }

    pub(crate) fn shared_headers(&self) -> Arc<RequestHeaders> {
        Arc::clone(&self.0.caller.headers)
    }

    /// Returns a value from the extensions of the HTTP request, which a `tower` layer or axum middleware in front of the server
    /// added. `None` if there is none, and always over stdio. See also the extractor [`Extension`](crate::Extension).
    #[must_use]
    pub fn extension<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.0.caller.extensions.as_deref()?.get()
    }

    /// Returns the client's address, over HTTP.
    #[must_use]
    pub fn remote(&self) -> Option<SocketAddr> {
        self.0.caller.remote_addr
    }

    /// Returns the name and version that the client claims to have. For display and logs only: it is not authenticated.
    #[must_use]
    pub fn client(&self) -> Option<&Implementation> {
        self.0.caller.client.info.as_ref()
    }

    /// Returns the capabilities that the client declared.
    #[must_use]
    pub fn capabilities(&self) -> &ClientCapabilities {
        &self.0.caller.client.capabilities
    }

    /// Returns the request's `_meta`: trace context and custom keys.
    #[must_use]
    pub fn meta(&self) -> Option<&RawJson> {
        self.0.caller.meta.raw.as_ref()
    }

    /// In a completer, returns the value of another argument, if the client sent it.
    #[must_use]
    pub fn other_argument(&self, argument: &str) -> Option<&str> {
        self.0.caller.other_arguments.as_ref()?.get(argument).map(String::as_str)
    }

    /// Returns whether the call was cancelled or its client disconnected.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancel.is_cancelled()
    }

    /// Waits until the call is cancelled or its client disconnects. The handler's own future is dropped then; this is for work
    /// that was moved to another task or thread.
    ///
    /// Cancel safe: yes, because it only waits.
    pub async fn cancelled(&self) {
        self.0.cancel.cancelled().await;
    }

    /// Returns how much time the handler has left. Time spent waiting for the client does not count. At zero, the handler's
    /// future is dropped and the client gets a timeout error.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.deadline().saturating_duration_since(timer_now())
    }

    /// Sends a progress notification, if the client requested them. `done` must increase; other values are not sent.
    #[doc(alias("notify_progress", "report_progress"))]
    pub async fn progress(&self, done: f64, message: impl Into<Option<&str>>) {
        self.send_progress(done, None, message.into()).await;
    }

    /// Sends a progress notification with a total, if the client requested them. `done` must increase; other values are not
    /// sent.
    pub async fn progress_of(&self, done: f64, total: f64, message: impl Into<Option<&str>>) {
        self.send_progress(done, Some(total), message.into()).await;
    }

    async fn send_progress(&self, done: f64, total: Option<f64>, message: Option<&str>) {
        let Some(token) = self.0.caller.meta.progress_token.clone() else {
            return;
        };
        // Spec, all versions: the progress value must increase.
        let increase =
            |last: u64| (done.is_finite() && done > f64::from_bits(last)).then_some(done.to_bits());
        if self.0.progress.fetch_update(Ordering::Relaxed, Ordering::Relaxed, increase).is_err() {
            return;
        }
        let notification =
            Notification::Progress { token, progress: done, total, message: message.map(str::to_owned) };
        self.send_notification(&notification).await;
    }

    /// Sends a log message, if the client's log level includes this one.
    pub async fn log(&self, level: LogLevel, data: impl Serialize) {
        self.send_log(None, level, &data).await;
    }

    /// Sends a log message with the name of a logger, such as a component of the program.
    pub async fn log_as(&self, logger: &str, level: LogLevel, data: impl Serialize) {
        self.send_log(Some(logger), level, &data).await;
    }

    async fn send_log(&self, logger: Option<&str>, level: LogLevel, data: &impl Serialize) {
        if !self.0.client_channel.is_log_enabled(level) {
            return;
        }
        // Data that cannot be serialized is not logged. A log message must not fail the call.
        if let Ok(data) = RawJson::from_serializable(data) {
            self.send_notification(&Notification::LogMessage {
                level,
                logger: logger.map(str::to_owned),
                data,
            })
            .await;
        }
    }

    /// Sends a log message of level `info`.
    pub async fn info(&self, message: &str) {
        self.log(LogLevel::Info, message).await;
    }

    async fn send_notification(&self, notification: &Notification) {
        // No notifications after the call ended or was cancelled.
        if !self.is_cancelled() && self.0.client_channel.notify(notification) {
            yield_once().await;
        }
    }

    /// Returns the client's roots: the folders that the user has open.
    ///
    /// # Errors
    /// If the client does not support roots, the reply does not arrive in time, or it will arrive with a repeated call.
    pub async fn roots(&self) -> Result<Vec<Root>, ServerRequestError> {
        match self.request_client("roots", ServerRequest::Roots).await? {
            ClientResult::Roots(roots) => Ok(roots),
            _ => Err(mismatched_response()),
        }
    }

    pub(super) async fn request_client(
        &self,
        key: &str,
        request: ServerRequest,
    ) -> Result<ClientResult, ServerRequestError> {
        let _pending = ClientRequestGuard::begin(&self.0);
        self.0.client_channel.request(key, request).await
    }

    /// Runs `work` once and records its result. If the handler runs again for the same call, the recorded result is returned
    /// instead.
    ///
    /// # Errors
    /// The error of `work`, which is not recorded.
    #[doc(alias("idempotent", "durable execution"))]
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
                if let Some(persisted) = self.0.client_channel.wait_persisted() {
                    persisted.await;
                }
            }
            Err(error) => tracing::error!(name, %error, "a step cannot be recorded and may run again"),
        }
        Ok(done)
    }

    /// Returns the value that an earlier run of this handler saved with [`Context::carry`].
    #[must_use]
    pub fn carried<T: DeserializeOwned>(&self) -> Option<T> {
        self.0.client_channel.recorded_value("state").and_then(|raw| raw.parse_as().ok())
    }

    /// Saves a value for the next run of this handler. It is encrypted, so that the client that carries it can neither read nor
    /// change it.
    pub fn carry<T: Serialize>(&self, state: &T) {
        match RawJson::from_serializable(state) {
            Ok(raw) => self.0.client_channel.record_value("state", raw),
            Err(error) => tracing::error!(%error, "the state cannot be serialized"),
        }
    }

    /// Turns the call into a task, if its tool is [deferrable](crate::ToolSpec::task_deferrable) and the client supports tasks.
    /// Call it before work that takes long; elicitation before it happens in the call itself.
    ///
    /// The handler ends here and runs again as the task, with the replies and steps recorded so far. Inside the task, and if
    /// no task is possible, this does nothing.
    ///
    /// ```
    /// # use toolgate::{Context, Field, Form, Server, ToolError};
    /// async fn publish(cx: Context) -> Result<&'static str, ToolError> {
    ///     let sure = cx.elicit("sure", Form::new("Publish?").field("yes", Field::flag())).await?;
    ///     cx.defer().await?;
    ///     // … hours of work …
    ///     Ok(if sure.accepted().is_some() { "published" } else { "not published" })
    /// }
    /// # let server = Server::new("s", "1").tool("publish", publish).task_deferrable();
    /// # assert!(server.build().is_ok());
    /// ```
    ///
    /// # Errors
    /// If the call becomes a task. The handler must end now: propagate the error with `?`.
    pub async fn defer(&self) -> Result<(), ServerRequestError> {
        match self.0.deferral.compare_exchange(DEFERRABLE, DEFERRED, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) | Err(DEFERRED) => Err(ServerRequestError(ServerRequestErrorKind::Suspended)),
            Err(_) => Ok(()),
        }
    }

    /// Claims a value that may be used once, such as a payment id. Returns `true` for the first caller in any process that shares
    /// the server's store, and `false` for all others until `ttl` has passed.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use toolgate::{Context, ToolError};
    /// async fn redeem(voucher: String, cx: Context) -> Result<&'static str, ToolError> {
    ///     match cx.consume_once(&voucher, Duration::from_secs(86_400)).await? {
    ///         true => Ok("redeemed"),
    ///         false => Err(ToolError::new("this voucher was used before")),
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// If the store is unavailable. Whether the value was claimed is unknown then: treat it as used.
    pub async fn consume_once(&self, value: &str, ttl: Duration) -> Result<bool, StoreError> {
        match &self.0.env.store {
            Some(store) => store.consume_once(value, ttl).await,
            None => Err(StoreError::Unavailable("this handler has no server".into())),
        }
    }

    /// Closes the connection of a long call; the client reconnects for the result after `retry`. Does nothing if the client
    /// cannot resume streams.
    pub fn release_connection(&self, retry: Duration) {
        self.0.client_channel.release_stream(retry);
    }

    /// Returns a [`Notifier`], which sends change notifications to clients.
    #[must_use]
    pub fn notify(&self) -> Notifier {
        Notifier(Arc::clone(&self.0.env.subscriptions))
    }
}

/// Counts a pending request to the client, until it is answered or its future is dropped.
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

pub(super) fn mismatched_response() -> ServerRequestError {
    ServerRequestError(ServerRequestErrorKind::Rejected("the answer is to another question".into()))
}

/// Yields once, so that the task driving this call can send the notification.
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
