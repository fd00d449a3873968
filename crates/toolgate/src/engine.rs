//! The spine: one message, from bytes to bytes.
//!
//! A reader who reads only this file knows the server.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use toolgate_wire::model::Outcome;
use toolgate_wire::{
    Dialect, Frame, FrameError, FrameErrorKind, Limits, Message, ParamsIndex, ProtocolError,
    ProtocolErrorKind, RawJson, RequestId, read_message, read_message_cached, read_message_lenient,
};

use crate::dispatch::{Dispatcher, PendingCall};
use crate::observe::{
    EndStatus, ListenerPoll, ObservedRequest, Observer, RequestEnd, RequestEvent, RequestInfoParts, Subject,
};
use crate::protocol::{
    DecodedMessage, ListenSubscription, Peer, PreparedCall, Protocol, Reply, ReplyKind, ResponseContext,
    encode_error,
};
use crate::request::{BoxFuture, CallError};
use crate::store::ScopedStore;
use crate::stream::Stream;
use crate::util::option_cell::OptionCell;

/// The house behind its transports.
pub(crate) struct Engine {
    pub(crate) protocol: Protocol,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) scoped_store: ScopedStore,
    pub(crate) limits: Limits,
    /// How those are spoken to who name no edition, unless the way they came says otherwise.
    pub(crate) dialect: OptionCell<Dialect>,
    pub(crate) observer: Observer,
    /// A message has come.
    pub(crate) is_started: AtomicBool,
}

/// Under which name messages are counted that cannot be read.
const UNREADABLE_METHOD: &str = "(unreadable)";

impl Engine {
    /// Answers one message. What a call says on the way goes to `out`; the answer itself is returned.
    ///
    /// Cancel safe: yes, whoever drops it has cancelled the call.
    pub(crate) async fn handle_message(&self, bytes: &Bytes, peer: &Peer, out: &Arc<Stream>) -> Reply {
        if let Some(preparing) = self.protocol.prepare(peer)
            && let Err(fault) = preparing.await
        {
            return self.reject_unprepared(bytes, &fault);
        }
        let mut started = self.begin(bytes, peer, out);
        if started.needs_peer() {
            // What is rare is boxed, so that what is common stays small.
            return Box::pin(self.complete(started, peer, out)).await;
        }
        self.complete_without_peer(&mut started).await
    }

    /// Reads one message and does everything for it that needs no waiting: a call that waits keeps little of
    /// it. No handler has run yet.
    pub(crate) fn begin(&self, bytes: &Bytes, peer: &Peer, out: &Arc<Stream>) -> CallState {
        self.start_background_once();
        let mut index = ParamsIndex::default();
        match read_message_cached(bytes, &self.limits, &mut index, &self.protocol.client_cache) {
            Ok(Message::Single(frame)) => self.begin_frame(frame, &index, peer, out, false),
            Ok(Message::Batch(frames)) if self.protocol.accepts_batches(peer) => CallState::Batch(frames),
            Ok(Message::Batch(_)) => CallState::Finished(self.reject_frame(&batch_unsupported(), peer)),
            Err(broken) => match self.parse_lenient(bytes, &broken, peer) {
                Some(frame) => self.begin_frame(frame, &ParamsIndex::default(), peer, out, false),
                None => CallState::Finished(self.reject_frame(&broken, peer)),
            },
        }
    }

    /// What a GET is answered with that asks for no stream, at this address. None where a GET is no question.
    #[cfg(feature = "http")]
    pub(crate) fn discovery_document(&self, peer: &Peer, id: Option<&str>, here: &str) -> Option<Bytes> {
        self.protocol.discovery_document(peer, id, here, || {
            self.dispatcher.visible_tools(&peer.principal).iter().map(|tool| tool.name.clone()).collect()
        })
    }

    /// A message that is broken, but not for this peer.
    fn parse_lenient(&self, bytes: &Bytes, broken: &FrameError, peer: &Peer) -> Option<Frame> {
        let may_be = matches!(broken.kind, FrameErrorKind::InvalidParams | FrameErrorKind::InvalidRequest);
        let forgiving = self.protocol.leniency(peer).filter(|_| may_be)?;
        read_message_lenient(bytes, &self.limits, forgiving).ok()
    }

    /// Refuses a message because what is needed to read it cannot be had.
    fn reject_unprepared(&self, bytes: &Bytes, fault: &ProtocolError) -> Reply {
        let sight = self.observer.begin();
        match read_message(bytes, &self.limits) {
            Ok(Message::Single(Frame::Request { id, method, .. })) => {
                self.record_reply(sight, &method, None, self.protocol.reject_unprepared(Some(&id), fault))
            }
            _ => self.record_reply(
                sight,
                UNREADABLE_METHOD,
                None,
                self.protocol.reject_unprepared(None, fault),
            ),
        }
    }

    /// With the first message the house looks after tasks that others have left, if it has any.
    fn start_background_once(&self) {
        if !self.is_started.load(Ordering::Relaxed) && !self.is_started.swap(true, Ordering::Relaxed) {
            self.start_background();
        }
    }

    /// Looks after tasks that others have left, and hears of those elsewhere. Must be called inside a runtime.
    pub(crate) fn start_background(&self) {
        if self.dispatcher.registry.features().tasks {
            self.dispatcher.tasks.start_background();
        }
    }

    fn reject_frame(&self, broken: &FrameError, peer: &Peer) -> Reply {
        let sight = self.observer.begin();
        self.record_reply(sight, UNREADABLE_METHOD, None, self.protocol.reject_frame(broken, peer))
    }

    /// The refusal of a request for which there is no room; none for what costs nothing: answers and notices.
    pub(crate) fn reject_overload(&self, bytes: &Bytes) -> Option<Bytes> {
        let id = match read_message(bytes, &self.limits) {
            Ok(Message::Single(Frame::Request { id, .. })) => Some(id),
            Ok(Message::Batch(_)) => None,
            Ok(Message::Single(_)) | Err(_) => return None,
        };
        let fault = ProtocolError::new(
            ProtocolErrorKind::Busy,
            "too many calls are in flight; wait for some of them to finish",
        );
        Some(encode_error(id.as_ref(), &fault))
    }

    /// Waits for what was started. By reference inside, so that a call that waits is kept once.
    ///
    /// Cancel safe: yes, whoever drops it has cancelled the call.
    pub(crate) async fn complete(&self, mut started: CallState, peer: &Peer, out: &Arc<Stream>) -> Reply {
        match &mut started {
            // What is rare is boxed, so that what is common stays small.
            CallState::Batch(frames) => self.complete_batch(std::mem::take(frames), peer, out).await,
            CallState::AwaitingListeners(asking) => {
                Box::pin(self.complete_after_listeners(asking, peer, out)).await
            }
            started => self.complete_without_peer(started).await,
        }
    }

    /// The same for what needs nothing more of whoever asked: see [`CallState::needs_peer`].
    ///
    /// Cancel safe: yes, whoever drops it has cancelled the call.
    pub(crate) async fn complete_without_peer(&self, started: &mut CallState) -> Reply {
        match started {
            CallState::Finished(answer) => std::mem::replace(answer, Reply::NoResponse),
            CallState::Batch(_) | CallState::AwaitingListeners(_) => Reply::NoResponse,
            CallState::Subscription(listening) => Box::pin(self.protocol.serve_subscription(listening)).await,
            CallState::Deferred(later) => {
                let answer = later.reply.as_mut().await;
                match later.observed.take() {
                    Some(sight) => self.record_reply(sight, &later.method, None, answer),
                    None => answer,
                }
            }
            CallState::Running(working) => {
                let RunningCall { call: work, response_context: closing, was_polled: was_looked_at, .. } =
                    working;
                let ended = {
                    let mut cancelled = pin!(closing.cancellation().cancelled());
                    // The call first: most end at once, and then nobody needs to be told of a cancellation.
                    poll_fn(|task| {
                        let looked_at = std::mem::take(was_looked_at);
                        match if looked_at { Poll::Pending } else { work.poll(task) } {
                            Poll::Pending => {
                                cancelled.as_mut().poll(task).map(|()| Err(CallError::Cancelled))
                            }
                            ended => ended,
                        }
                    })
                    .await
                };
                self.finish_call(working, ended)
            }
        }
    }

    /// The answer, if it is there already: most calls never wait, and those need no future of their own. A call that
    /// does wait has then run up to its first wait, and [`Engine::finish`] goes on from there; whoever calls this polls
    /// that before it returns to its runtime.
    pub(crate) fn poll_once(&self, started: &mut CallState, task: &mut Context<'_>) -> Option<Reply> {
        match started {
            CallState::Finished(answer) => Some(std::mem::replace(answer, Reply::NoResponse)),
            CallState::Running(working) => match working.call.poll(task) {
                Poll::Ready(ended) => Some(self.finish_call(working, ended)),
                Poll::Pending => {
                    working.was_polled = true;
                    None
                }
            },
            CallState::Batch(_)
            | CallState::Subscription(_)
            | CallState::Deferred(_)
            | CallState::AwaitingListeners(_) => None,
        }
    }

    fn finish_call(&self, working: &mut RunningCall, ended: Result<Outcome, CallError>) -> Reply {
        let RunningCall { call: work, response_context: closing, observed: sight, .. } = working;
        // What was taken back is not answered, even if it ended in the same moment.
        let ended = if closing.cancellation().is_cancelled() { Err(CallError::Cancelled) } else { ended };
        let answer = self.protocol.encode_result(closing, ended);
        match sight.take() {
            Some(sight) => self.record_reply(sight, closing.method, work.subject(), answer),
            None => answer,
        }
    }

    fn begin_frame(
        &self,
        frame: Frame,
        index: &ParamsIndex<'_>,
        peer: &Peer,
        out: &Arc<Stream>,
        in_batch: bool,
    ) -> CallState {
        let Frame::Request { id, method, params } = frame else {
            return match self.protocol.receive(frame, peer) {
                DecodedMessage::Deferred(answer) => CallState::Deferred(Box::new(DeferredReply {
                    reply: answer,
                    observed: None,
                    method: Box::default(),
                })),
                DecodedMessage::Reply(answer) => CallState::Finished(answer),
                DecodedMessage::Call(_) | DecodedMessage::Subscription(_) => {
                    CallState::Finished(Reply::NoResponse)
                }
            };
        };
        // Before anybody is asked: those who listen must see what will be done.
        let mended = self.protocol.normalize(&method, params.as_ref(), peer);
        let (method, params) = match &mended {
            Some((method, params)) => (method.as_str(), params.as_ref()),
            None => (&*method, params.as_ref()),
        };
        let sight = self.observer.begin();
        if !sight.has_listeners() {
            return self.begin_request(&id, method, params, index, sight, peer, out, in_batch);
        }
        let incoming = RequestInfoParts {
            id: Some(&id),
            method,
            params,
            headers: &peer.headers,
            remote: peer.remote_addr,
            principal: &peer.principal,
            transport: peer.transport,
        };
        match self.observer.notify_request(&sight, &incoming) {
            ListenerPoll::Ready(event) => self.apply_decision(&id, sight, event, peer, out, in_batch),
            ListenerPoll::Pending(event) => CallState::AwaitingListeners(Box::new(ListenerWait {
                id,
                observed: Some(sight),
                event,
                in_batch,
            })),
        }
    }

    /// Goes on with a request once those who listen have said what they had to.
    fn apply_decision(
        &self,
        id: &RequestId,
        mut sight: ObservedRequest,
        event: RequestEvent,
        peer: &Peer,
        out: &Arc<Stream>,
        in_batch: bool,
    ) -> CallState {
        let ruling = sight.decide(event);
        let (method, params) = (ruling.info.method().to_owned(), ruling.info.raw_params().cloned());
        let changed = ruling.is_changed.then(|| Peer { is_rewritten: true, ..peer.clone() });
        let peer = changed.as_ref().unwrap_or(peer);
        if let Some(no) = ruling.rejection {
            let kind = if no.code == DEFAULT_REJECTION_CODE {
                ProtocolErrorKind::Rejected
            } else {
                ProtocolErrorKind::Other(no.code)
            };
            let fault = ProtocolError::new(kind, no.message).with_status(no.status.unwrap_or(200));
            let answer = self.protocol.reject(Some(id), peer, &fault);
            return CallState::Finished(self.record_reply(sight, &method, None, answer));
        }
        self.begin_request(id, &method, params.as_ref(), &ParamsIndex::default(), sight, peer, out, in_batch)
    }

    async fn complete_after_listeners(
        &self,
        asking: &mut ListenerWait,
        peer: &Peer,
        out: &Arc<Stream>,
    ) -> Reply {
        let event = asking.event.as_mut().await;
        let Some(sight) = asking.observed.take() else { return Reply::NoResponse };
        let started = self.apply_decision(&asking.id, sight, event, peer, out, asking.in_batch);
        self.complete(started, peer, out).await
    }

    #[allow(clippy::too_many_arguments)]
    fn begin_request(
        &self,
        id: &RequestId,
        method: &str,
        params: Option<&RawJson>,
        index: &ParamsIndex<'_>,
        sight: ObservedRequest,
        peer: &Peer,
        out: &Arc<Stream>,
        in_batch: bool,
    ) -> CallState {
        let visit = match self.protocol.decode_request(id, method, params, index, peer, out, in_batch) {
            DecodedMessage::Reply(answer) => {
                return CallState::Finished(self.record_reply(sight, method, None, answer));
            }
            DecodedMessage::Deferred(answer) => {
                let method = method.into();
                return CallState::Deferred(Box::new(DeferredReply {
                    reply: answer,
                    observed: Some(sight),
                    method,
                }));
            }
            DecodedMessage::Subscription(listening) => return CallState::Subscription(listening),
            DecodedMessage::Call(visit) => visit,
        };
        let PreparedCall { request, client_channel: voice, response_context: closing } = visit;
        match self.dispatcher.begin(request, voice) {
            Ok(work) => {
                if matches!(work, PendingCall::Tool { .. } | PendingCall::Task { entry: Some(_), .. }) {
                    self.observer.notify_tool_start(&sight);
                }
                let sight = Some(sight);
                CallState::Running(RunningCall {
                    call: work,
                    response_context: closing,
                    observed: sight,
                    was_polled: false,
                })
            }
            Err(stop) => {
                let answer = self.protocol.encode_result(&closing, Err(stop));
                CallState::Finished(self.record_reply(sight, method, None, answer))
            }
        }
    }

    /// Counts an answer and tells who listens. One that nobody waited for is none.
    fn record_reply(
        &self,
        sight: ObservedRequest,
        method: &str,
        subject: Option<Subject<'_>>,
        answer: Reply,
    ) -> Reply {
        let Reply::Body { status, body, session_id: session, kind: told } = answer else { return answer };
        let verdict = match &told {
            ReplyKind::Success | ReplyKind::Initialized(_) => EndStatus::Ok,
            ReplyKind::ToolError(message) => EndStatus::ToolError { message },
            ReplyKind::ProtocolError { code, message } => EndStatus::ProtocolError { code: *code, message },
        };
        let finished = RequestEnd { method, subject, status: verdict };
        let body = if sight.has_listeners() {
            self.observer.end(sight, &finished, status, body.into_bytes()).into()
        } else {
            self.observer.end(sight, &finished, status, Bytes::new());
            body
        };
        Reply::Body { status, body, session_id: session, kind: told }
    }

    /// All at once; the answers in one array, in the order of the questions.
    fn complete_batch<'a>(
        &'a self,
        frames: Vec<Result<Frame, FrameError>>,
        peer: &'a Peer,
        out: &'a Arc<Stream>,
    ) -> BoxFuture<'a, Reply> {
        let calls = frames.into_iter().map(move |frame| -> BoxFuture<'a, Reply> {
            let started = match frame {
                Ok(frame) => self.begin_frame(frame, &ParamsIndex::default(), peer, out, true),
                Err(broken) => CallState::Finished(self.reject_frame(&broken, peer)),
            };
            Box::pin(self.complete(started, peer, out))
        });
        let calls = calls.collect();
        Box::pin(async move { batch_reply(join_all(calls).await) })
    }
}

/// Answers in one array; those that are none leave no trace.
fn batch_reply(answers: Vec<Reply>) -> Reply {
    let mut array = BytesMut::new();
    for answer in answers {
        if let Reply::Body { body, .. } = answer {
            array.put_u8(if array.is_empty() { b'[' } else { b',' });
            array.put(body.into_bytes());
        }
    }
    if array.is_empty() {
        return Reply::Accepted;
    }
    array.put_u8(b']');
    Reply::Body { status: 200, body: array.freeze().into(), session_id: None, kind: ReplyKind::Success }
}

/// What became of a message before anybody had to wait.
// The largest variant is the common one, and lives where it is made.
#[allow(clippy::large_enum_variant)]
pub(crate) enum CallState {
    Finished(Reply),
    Batch(Vec<Result<Frame, FrameError>>),
    Subscription(Box<ListenSubscription>),
    Deferred(Box<DeferredReply>),
    /// Those who listen to requests take their time.
    AwaitingListeners(Box<ListenerWait>),
    Running(RunningCall),
}

impl CallState {
    /// Whether [`Engine::finish`] looks at the peer once more.
    pub(crate) fn needs_peer(&self) -> bool {
        matches!(self, CallState::Batch(_) | CallState::AwaitingListeners(_))
    }
}

/// A wish that is being fulfilled, and what is needed to answer it.
pub(crate) struct RunningCall {
    call: PendingCall,
    response_context: ResponseContext,
    observed: Option<ObservedRequest>,
    /// It was polled, has to wait, and will wake whoever polled it: the next poll is not for the work.
    was_polled: bool,
}

/// A message that is answered when something has been kept, or told to another process.
pub(crate) struct DeferredReply {
    reply: BoxFuture<'static, Reply>,
    /// None: it is no request, and not counted.
    observed: Option<ObservedRequest>,
    method: Box<str>,
}

/// A request of which those who listen are being told.
pub(crate) struct ListenerWait {
    id: RequestId,
    observed: Option<ObservedRequest>,
    event: BoxFuture<'static, RequestEvent>,
    in_batch: bool,
}

/// The number of a refusal whose listener chose none.
const DEFAULT_REJECTION_CODE: i64 = -32000;

fn batch_unsupported() -> FrameError {
    FrameError {
        kind: FrameErrorKind::InvalidRequest,
        id: None,
        detail: "batches are not part of this protocol version".into(),
    }
}

/// Waits for all of them.
async fn join_all(mut calls: Vec<BoxFuture<'_, Reply>>) -> Vec<Reply> {
    let mut answers: Vec<Option<Reply>> = calls.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (call, answer) in calls.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(ready) = call.as_mut().poll(cx)
            {
                *answer = Some(ready);
            }
        }
        if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers.into_iter().flatten().collect()
}
