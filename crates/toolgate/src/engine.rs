//! The path of one message, from bytes to bytes.
//!
//! [`Engine::begin`] parses a message, notifies the event listeners, decodes it and starts its call; [`CallState::poll`]
//! drives the call to its reply. Transports use both directly, so that a call that is ready at its first poll needs no
//! boxed future.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use toolgate_wire::model::Outcome;
use toolgate_wire::{
    Dialect, Frame, FrameError, FrameErrorKind, Limits, Message, ParamsIndex, ProtocolError,
    ProtocolErrorKind, RequestId, read_message, read_message_cached, read_message_lenient,
};

use crate::dispatch::{Dispatcher, PendingCall};
use crate::observe::{
    CallOutcome, EndStatus, ErrorCode, ListenerPoll, ObservedRequest, Observer, RequestEnd, RequestEvent,
    RequestInfoParts, Subject,
};
use crate::protocol::{
    DecodedMessage, Envelope, Exchange, Peer, PreparedCall, Protocol, Reply, ReplyKind, RequestParts,
    ResponseContext, encode_error,
};
use crate::request::{BoxFuture, CallError};
use crate::store::ScopedStore;
use crate::stream::Stream;
use crate::util::option_cell::OptionCell;

/// A server behind its transports.
pub(crate) struct Engine {
    pub(crate) protocol: Protocol,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) scoped_store: ScopedStore,
    pub(crate) limits: Limits,
    /// The dialect for clients that name no protocol version, unless their mount has another one.
    pub(crate) dialect: OptionCell<Dialect>,
    pub(crate) observer: Observer,
    /// Whether the first message has arrived, which starts background work.
    pub(crate) is_started: AtomicBool,
}

/// The method under which unreadable messages are counted.
const UNREADABLE_METHOD: &str = "(unreadable)";

/// The error code of a rejection whose listener chose none.
const DEFAULT_REJECTION_CODE: i64 = -32000;

impl Engine {
    /// Handles one message and returns the reply. Other messages of the call go to `out`.
    ///
    /// Cancel safe: yes, dropping it cancels the call.
    pub(crate) async fn handle_message(&self, bytes: &Bytes, peer: &Peer, out: &Arc<Stream>) -> Reply {
        if let Some(prepared) = self.protocol.prepare(peer)
            && let Err(error) = prepared.await
        {
            return self.reject_unprepared(bytes, &error);
        }
        let mut call = self.begin(bytes, peer, out);
        self.complete(&mut call).await
    }

    /// Waits for the reply of a call that was begun.
    ///
    /// Cancel safe: yes, it can be called again for the same call. Dropping the call cancels it.
    pub(crate) async fn complete(&self, call: &mut CallState) -> Reply {
        poll_fn(|cx| call.poll(self, cx)).await
    }

    /// Parses a message and does all the work that needs no waiting, so that a call that waits holds little. No handler
    /// runs before the first [`CallState::poll`].
    pub(crate) fn begin(&self, bytes: &Bytes, peer: &Peer, out: &Arc<Stream>) -> CallState {
        self.start_background_once();
        let mut exchange = Exchange::new(peer, out);
        let mut index = ParamsIndex::default();
        match read_message_cached(bytes, &self.limits, &mut index, &self.protocol.client_cache) {
            Ok(Message::Single(frame)) => self.begin_frame(&mut exchange, frame, &index),
            Ok(Message::Batch(frames)) if self.protocol.accepts_batches(&mut exchange) => {
                self.begin_batch(&mut exchange, frames)
            }
            Ok(Message::Batch(_)) => {
                CallState::Finished(self.reject_frame(&mut exchange, &batch_unsupported()))
            }
            Err(error) => match self.parse_lenient(&mut exchange, bytes, &error) {
                Some(frame) => self.begin_frame(&mut exchange, frame, &ParamsIndex::default()),
                None => CallState::Finished(self.reject_frame(&mut exchange, &error)),
            },
        }
    }

    /// The body for a GET that does not accept a stream. `url` is the address of the endpoint. Returns `None` if the dialect
    /// has no such document.
    #[cfg(feature = "http")]
    pub(crate) fn discovery_document(&self, peer: &Peer, id: Option<&str>, url: &str) -> Option<Bytes> {
        self.protocol.discovery_document(peer, id, url, || {
            self.dispatcher.visible_tools(&peer.principal).iter().map(|tool| tool.name.clone()).collect()
        })
    }

    /// Parses a malformed message again, if the dialect of its sender overlooks the mistake.
    fn parse_lenient(&self, exchange: &mut Exchange<'_>, bytes: &Bytes, error: &FrameError) -> Option<Frame> {
        if !matches!(error.kind, FrameErrorKind::InvalidParams | FrameErrorKind::InvalidRequest) {
            return None;
        }
        let leniency = self.protocol.leniency(exchange)?;
        read_message_lenient(bytes, &self.limits, leniency).ok()
    }

    /// Rejects a message because its session could not be loaded from the store.
    fn reject_unprepared(&self, bytes: &Bytes, error: &ProtocolError) -> Reply {
        let observed = self.observer.begin();
        match read_message(bytes, &self.limits) {
            Ok(Message::Single(Frame::Request { id, method, .. })) => {
                let reply = self.protocol.reject_unprepared(Some(&id), error);
                self.record_reply(observed, &method, reply)
            }
            _ => {
                let reply = self.protocol.reject_unprepared(None, error);
                self.record_reply(observed, UNREADABLE_METHOD, reply)
            }
        }
    }

    /// Starts background work with the first message.
    fn start_background_once(&self) {
        if !self.is_started.load(Ordering::Relaxed) && !self.is_started.swap(true, Ordering::Relaxed) {
            self.start_background();
        }
    }

    /// Starts to take over tasks of processes that have ended, and to receive events of tasks in other processes. Must be
    /// called inside a runtime.
    pub(crate) fn start_background(&self) {
        if self.dispatcher.registry.features().tasks {
            self.dispatcher.tasks.start_background();
        }
    }

    fn reject_frame(&self, exchange: &mut Exchange<'_>, error: &FrameError) -> Reply {
        let observed = self.observer.begin();
        let reply = self.protocol.reject_frame(exchange, error);
        self.record_reply(observed, UNREADABLE_METHOD, reply)
    }

    /// Rejects a request because too many calls run. Returns `None` for notifications and responses, which are handled even
    /// then because they cost nothing.
    pub(crate) fn reject_overload(&self, bytes: &Bytes) -> Option<Bytes> {
        let id = match read_message(bytes, &self.limits) {
            Ok(Message::Single(Frame::Request { id, .. })) => Some(id),
            Ok(Message::Batch(_)) => None,
            Ok(Message::Single(_)) | Err(_) => return None,
        };
        let error = ProtocolError::new(
            ProtocolErrorKind::Busy,
            "too many calls are in flight; wait for some of them to finish",
        );
        Some(encode_error(id.as_ref(), &error))
    }

    /// Begins all messages of a batch.
    fn begin_batch(&self, exchange: &mut Exchange<'_>, frames: Vec<Result<Frame, FrameError>>) -> CallState {
        exchange.envelope = Envelope::Batch;
        let mut calls = Vec::with_capacity(frames.len());
        for frame in frames {
            calls.push(match frame {
                Ok(frame) => self.begin_frame(exchange, frame, &ParamsIndex::default()),
                Err(error) => CallState::Finished(self.reject_frame(exchange, &error)),
            });
        }
        CallState::Batch(calls)
    }

    fn begin_frame(&self, exchange: &mut Exchange<'_>, frame: Frame, index: &ParamsIndex<'_>) -> CallState {
        let Frame::Request { id, method, params } = frame else {
            return match self.protocol.receive(exchange, frame) {
                DecodedMessage::Deferred(reply) => CallState::Deferred(Box::new(DeferredReply {
                    reply,
                    observed: None,
                    method: Box::default(),
                })),
                DecodedMessage::Reply(reply) => CallState::Finished(reply),
                DecodedMessage::Call(_) | DecodedMessage::Subscription(_) => {
                    CallState::Finished(Reply::NoResponse)
                }
            };
        };
        // Before listeners are notified: they must see the request that will be served.
        let normalized = self.protocol.normalize(exchange, &method, params.as_ref());
        let (method, params) = match &normalized {
            Some((method, params)) => (method.as_str(), params.as_ref()),
            None => (&*method, params.as_ref()),
        };
        let mut observed = self.observer.begin();
        if !observed.has_listeners() {
            return self.begin_request(exchange, RequestParts { id: &id, method, params, index }, observed);
        }
        let peer = exchange.peer;
        let info = RequestInfoParts {
            id: Some(&id),
            method,
            params,
            headers: &peer.headers,
            remote: peer.remote_addr,
            principal: &peer.principal,
            transport: peer.transport,
        };
        match self.observer.notify_request(&mut observed, &info) {
            ListenerPoll::Ready(event) => self.apply_decision(exchange, &id, observed, event),
            ListenerPoll::Pending(event) => CallState::AwaitingListeners(Box::new(ListenerWait {
                id,
                observed: Some(observed),
                event,
                peer: peer.clone(),
                out: Arc::clone(exchange.out),
                envelope: exchange.envelope,
            })),
        }
    }

    /// Continues with a request when the listeners have decided: rejects it, or begins it as they left it.
    fn apply_decision(
        &self,
        exchange: &mut Exchange<'_>,
        id: &RequestId,
        mut observed: ObservedRequest,
        event: RequestEvent,
    ) -> CallState {
        let decision = observed.decide(event);
        let (method, params) = (decision.info.method().to_owned(), decision.info.raw_params().cloned());
        if let Some(rejection) = decision.rejection {
            let kind = match rejection.code {
                DEFAULT_REJECTION_CODE => ProtocolErrorKind::Rejected,
                code => ProtocolErrorKind::Other(code),
            };
            let error =
                ProtocolError::new(kind, rejection.message).with_status(rejection.status.unwrap_or(200));
            let reply = self.protocol.reject(exchange, Some(id), &error);
            return CallState::Finished(self.record_reply(observed, &method, reply));
        }
        exchange.is_rewritten = decision.is_changed;
        let (params, index) = (params.as_ref(), &ParamsIndex::default());
        let call =
            self.begin_request(exchange, RequestParts { id, method: &method, params, index }, observed);
        // The next request of a batch is another one.
        exchange.is_rewritten = false;
        call
    }

    /// Decodes a request and starts its call.
    fn begin_request(
        &self,
        exchange: &mut Exchange<'_>,
        request: RequestParts<'_>,
        mut observed: ObservedRequest,
    ) -> CallState {
        let prepared = match self.protocol.decode_request(exchange, request) {
            DecodedMessage::Reply(reply) => {
                return CallState::Finished(self.record_reply(observed, request.method, reply));
            }
            DecodedMessage::Deferred(reply) => {
                return CallState::Deferred(Box::new(DeferredReply {
                    reply,
                    observed: Some(observed),
                    method: request.method.into(),
                }));
            }
            DecodedMessage::Subscription(subscription) => {
                // The request has succeeded. How long its stream stays open is not a response time.
                let end = RequestEnd { method: request.method, subject: None, status: EndStatus::Ok };
                self.observer.end(observed, &end, 200, Bytes::new());
                return CallState::Subscription(subscription);
            }
            DecodedMessage::Call(prepared) => prepared,
        };
        let PreparedCall { request: call_request, client_channel, response_context } = prepared;
        let begun = response_context.span.in_scope(|| self.dispatcher.begin(call_request, client_channel));
        match begun {
            Ok(call) => {
                if let Some(tool) = call.started_tool() {
                    observed.notify_tool_start(tool.hints.destructive == Some(true));
                }
                CallState::Running(RunningCall { call, response_context, observed: Some(observed) })
            }
            Err(error) => {
                let reply = self.protocol.encode_result(&response_context, Err(error));
                CallState::Finished(self.record_reply(observed, request.method, reply))
            }
        }
    }

    /// Records the end of a request that ran no handler, and notifies the listeners.
    fn record_reply(&self, observed: ObservedRequest, method: &str, reply: Reply) -> Reply {
        self.record_end(observed, EndedCall { method, subject: None, abnormal_end: None }, reply)
    }

    /// Records the end of a request and notifies the listeners. A reply without a body means that it was cancelled.
    fn record_end(&self, observed: ObservedRequest, ended: EndedCall<'_>, reply: Reply) -> Reply {
        let EndedCall { method, subject, abnormal_end } = ended;
        let Reply::Body { status, body, session_id, kind } = reply else {
            observed.cancel(method, subject);
            return reply;
        };
        let end_status = match &kind {
            ReplyKind::Success | ReplyKind::Initialized(_) => EndStatus::Ok,
            ReplyKind::ToolError(message) => EndStatus::failed(ErrorCode::ToolError, message, abnormal_end),
            ReplyKind::ProtocolError { code, message } => {
                EndStatus::failed(ErrorCode::Number(*code), message, abnormal_end)
            }
        };
        let end = RequestEnd { method, subject, status: end_status };
        let body = if observed.has_listeners() {
            self.observer.end(observed, &end, status, body.into_bytes()).into()
        } else {
            self.observer.end(observed, &end, status, Bytes::new());
            body
        };
        Reply::Body { status, body, session_id, kind }
    }
}

/// A request that has ended.
#[derive(Clone, Copy)]
struct EndedCall<'a> {
    method: &'a str,
    /// The tool, resource or prompt that ran.
    subject: Option<Subject<'a>>,
    /// How its handler ended, if it panicked or timed out.
    abnormal_end: Option<CallOutcome>,
}

/// A message after [`Engine::begin`]: its reply, or the pending work that produces it.
// The largest variant is the common one, and is polled where it was made.
#[allow(clippy::large_enum_variant)]
pub(crate) enum CallState {
    Finished(Reply),
    /// All messages of a batch. Those that are done are `Finished`.
    Batch(Vec<CallState>),
    /// A `subscriptions/listen` stream.
    Subscription(BoxFuture<'static, Reply>),
    Deferred(Box<DeferredReply>),
    /// Event listeners have not decided about the request yet.
    AwaitingListeners(Box<ListenerWait>),
    Running(RunningCall),
}

impl CallState {
    /// Polls for the reply. Once it is ready, the call is over.
    pub(crate) fn poll(&mut self, engine: &Engine, cx: &mut Context<'_>) -> Poll<Reply> {
        if let CallState::AwaitingListeners(wait) = self {
            *self = ready!(wait.poll(engine, cx));
        }
        match self {
            CallState::Running(call) => call.poll(engine, cx),
            CallState::Finished(reply) => Poll::Ready(std::mem::replace(reply, Reply::NoResponse)),
            CallState::Subscription(subscription) => subscription.as_mut().poll(cx),
            CallState::Deferred(deferred) => deferred.poll(engine, cx),
            CallState::Batch(calls) => poll_batch(calls, engine, cx),
            // The listeners decide once.
            CallState::AwaitingListeners(_) => Poll::Ready(Reply::NoResponse),
        }
    }
}

/// Polls all calls of a batch. The replies are in one array, in the order of the requests.
fn poll_batch(calls: &mut [CallState], engine: &Engine, cx: &mut Context<'_>) -> Poll<Reply> {
    let mut is_pending = false;
    for call in calls.iter_mut() {
        if matches!(call, CallState::Finished(_)) {
            continue;
        }
        match call.poll(engine, cx) {
            Poll::Ready(reply) => *call = CallState::Finished(reply),
            Poll::Pending => is_pending = true,
        }
    }
    if is_pending {
        return Poll::Pending;
    }
    let mut array = BytesMut::new();
    for call in calls {
        if let CallState::Finished(Reply::Body { body, .. }) = call {
            array.put_u8(if array.is_empty() { b'[' } else { b',' });
            array.put(&*body.head);
            array.put(&*body.tail);
        }
    }
    if array.is_empty() {
        return Poll::Ready(Reply::Accepted);
    }
    array.put_u8(b']');
    let body = array.freeze().into();
    Poll::Ready(Reply::Body { status: 200, body, session_id: None, kind: ReplyKind::Success })
}

/// A call that the dispatcher serves, and the context of its response.
pub(crate) struct RunningCall {
    call: PendingCall,
    response_context: ResponseContext,
    /// Taken when the call ends.
    observed: Option<ObservedRequest>,
}

impl RunningCall {
    fn poll(&mut self, engine: &Engine, cx: &mut Context<'_>) -> Poll<Reply> {
        let cancellation = self.response_context.cancellation();
        // The call first: most are ready at once, and then no waker is registered for the cancellation.
        let polled = self.response_context.span.in_scope(|| self.call.poll(cx));
        let result = match polled {
            Poll::Ready(result) => result,
            Poll::Pending => {
                ready!(cancellation.poll_cancelled(cx));
                Err(CallError::Cancelled)
            }
        };
        cancellation.clear_waker();
        // A cancelled call gets no response, even if it ended at the same moment.
        let result = if cancellation.is_cancelled() { Err(CallError::Cancelled) } else { result };
        Poll::Ready(self.finish(engine, result))
    }

    fn finish(&mut self, engine: &Engine, result: Result<Outcome, CallError>) -> Reply {
        let reply = engine.protocol.encode_result(&self.response_context, result);
        match self.observed.take() {
            Some(observed) => {
                let (subject, abnormal_end) = (self.call.subject(), self.call.abnormal_end());
                let method = self.response_context.method;
                engine.record_end(observed, EndedCall { method, subject, abnormal_end }, reply)
            }
            None => reply,
        }
    }
}

/// A call that is dropped before its reply was cancelled: its client has disconnected, or the server stops.
impl Drop for RunningCall {
    #[inline]
    fn drop(&mut self) {
        if let Some(observed) = self.observed.take() {
            observed.cancel(self.response_context.method, self.call.subject());
        }
    }
}

/// A message whose reply comes when something is stored or sent to another process.
pub(crate) struct DeferredReply {
    reply: BoxFuture<'static, Reply>,
    /// `None` if the message is not a request, and so is not counted.
    observed: Option<ObservedRequest>,
    method: Box<str>,
}

impl DeferredReply {
    fn poll(&mut self, engine: &Engine, cx: &mut Context<'_>) -> Poll<Reply> {
        let reply = ready!(self.reply.as_mut().poll(cx));
        Poll::Ready(match self.observed.take() {
            Some(observed) => engine.record_reply(observed, &self.method, reply),
            None => reply,
        })
    }
}

impl Drop for DeferredReply {
    fn drop(&mut self) {
        if let Some(observed) = self.observed.take() {
            observed.cancel(&self.method, None);
        }
    }
}

/// A request about which event listeners have not decided yet. It is rare, so it owns everything that is needed to begin the
/// request afterwards.
pub(crate) struct ListenerWait {
    id: RequestId,
    observed: Option<ObservedRequest>,
    event: BoxFuture<'static, RequestEvent>,
    peer: Peer,
    out: Arc<Stream>,
    envelope: Envelope,
}

impl ListenerWait {
    /// Polls for the decision, and begins the request when it is there.
    fn poll(&mut self, engine: &Engine, cx: &mut Context<'_>) -> Poll<CallState> {
        let event = ready!(self.event.as_mut().poll(cx));
        let Some(observed) = self.observed.take() else {
            return Poll::Ready(CallState::Finished(Reply::NoResponse));
        };
        let mut exchange = Exchange::new(&self.peer, &self.out);
        exchange.envelope = self.envelope;
        Poll::Ready(engine.apply_decision(&mut exchange, &self.id, observed, event))
    }
}

fn batch_unsupported() -> FrameError {
    FrameError {
        kind: FrameErrorKind::InvalidRequest,
        id: None,
        detail: "batches are not part of this protocol version".into(),
    }
}
