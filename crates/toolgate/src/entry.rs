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
    FrameError, FrameErrorKind, Dialect, ProtocolError, ProtocolErrorKind, Frame, ParamsIndex, Limits, Message, RawJson, RequestId, read_message,
    read_message_lenient, read_message_cached,
};

use crate::dispatch::{Hall, Work};
use crate::era::{Answer, Arrival, Closing, Era, Listening, Peer, Told, Visit, refuse};
use crate::observe::{Asked, Finished, Incoming, RequestEvent, Sight, Subject, Verdict, Watch};
use crate::request::{BoxFuture, Stop};
use crate::seldom::Seldom;
use crate::store::Cellar;
use crate::stream::Stream;

/// The house behind its transports.
pub(crate) struct Entry {
    pub(crate) era: Era,
    pub(crate) hall: Hall,
    pub(crate) cellar: Cellar,
    pub(crate) limits: Limits,
    /// How those are spoken to who name no edition, unless the way they came says otherwise.
    pub(crate) dialect: Seldom<Dialect>,
    pub(crate) watch: Watch,
    /// A message has come.
    pub(crate) is_awake: AtomicBool,
}

/// Under which name messages are counted that cannot be read.
const UNREADABLE: &str = "(unreadable)";

impl Entry {
    /// Answers one message. What a call says on the way goes to `out`; the answer itself is returned.
    ///
    /// Cancel safe: yes, whoever drops it has cancelled the call.
    pub(crate) async fn message(&self, bytes: &Bytes, peer: &Peer, out: &Arc<Stream>) -> Answer {
        if let Some(preparing) = self.era.prepare(peer)
            && let Err(fault) = preparing.await
        {
            return self.unprepared(bytes, &fault);
        }
        let mut started = self.open(bytes, peer, out);
        if started.needs_peer() {
            // What is rare is boxed, so that what is common stays small.
            return Box::pin(self.finish(started, peer, out)).await;
        }
        self.conclude(&mut started).await
    }

    /// Reads one message and does everything for it that needs no waiting: a call that waits keeps little of
    /// it. No handler has run yet.
    pub(crate) fn open(&self, bytes: &Bytes, peer: &Peer, out: &Arc<Stream>) -> Started {
        self.wake();
        let mut index = ParamsIndex::default();
        match read_message_cached(bytes, &self.limits, &mut index, &self.era.greetings) {
            Ok(Message::Single(frame)) => self.start(frame, &index, peer, out, false),
            Ok(Message::Batch(frames)) if self.era.takes_batches(peer) => Started::Batch(frames),
            Ok(Message::Batch(_)) => Started::Answered(self.broken(&no_batches(), peer)),
            Err(broken) => match self.forgiven(bytes, &broken, peer) {
                Some(frame) => self.start(frame, &ParamsIndex::default(), peer, out, false),
                None => Started::Answered(self.broken(&broken, peer)),
            },
        }
    }

    /// What a GET is answered with that asks for no stream, at this address. None where a GET is no question.
    #[cfg(feature = "http")]
    pub(crate) fn introduce(&self, peer: &Peer, id: Option<&str>, here: &str) -> Option<Bytes> {
        self.era.introduce(peer, id, here, || {
            self.hall.tools_for(&peer.principal).iter().map(|tool| tool.name.clone()).collect()
        })
    }

    /// A message that is broken, but not for this peer.
    fn forgiven(&self, bytes: &Bytes, broken: &FrameError, peer: &Peer) -> Option<Frame> {
        let may_be = matches!(broken.kind, FrameErrorKind::InvalidParams | FrameErrorKind::InvalidRequest);
        let forgiving = self.era.forgives(peer).filter(|_| may_be)?;
        read_message_lenient(bytes, &self.limits, forgiving).ok()
    }

    /// Refuses a message because what is needed to read it cannot be had.
    fn unprepared(&self, bytes: &Bytes, fault: &ProtocolError) -> Answer {
        let sight = self.watch.begin();
        match read_message(bytes, &self.limits) {
            Ok(Message::Single(Frame::Request { id, method, .. })) => {
                self.watched(sight, &method, None, self.era.unprepared(Some(&id), fault))
            }
            _ => self.watched(sight, UNREADABLE, None, self.era.unprepared(None, fault)),
        }
    }

    /// With the first message the house looks after tasks that others have left, if it has any.
    fn wake(&self) {
        if !self.is_awake.load(Ordering::Relaxed) && !self.is_awake.swap(true, Ordering::Relaxed) {
            self.rise();
        }
    }

    /// Looks after tasks that others have left, and hears of those elsewhere. Must be called inside a runtime.
    pub(crate) fn rise(&self) {
        if self.hall.registry.offer().tasks {
            self.hall.tasks.rise();
        }
    }

    fn broken(&self, broken: &FrameError, peer: &Peer) -> Answer {
        let sight = self.watch.begin();
        self.watched(sight, UNREADABLE, None, self.era.broken(broken, peer))
    }

    /// The refusal of a request for which there is no room; none for what costs nothing: answers and notices.
    pub(crate) fn too_many(&self, bytes: &Bytes) -> Option<Bytes> {
        let id = match read_message(bytes, &self.limits) {
            Ok(Message::Single(Frame::Request { id, .. })) => Some(id),
            Ok(Message::Batch(_)) => None,
            Ok(Message::Single(_)) | Err(_) => return None,
        };
        let fault = ProtocolError::new(ProtocolErrorKind::Busy, "too many calls are under way; wait for some of them to end");
        Some(refuse(id.as_ref(), &fault))
    }

    /// Waits for what was started. By reference inside, so that a call that waits is kept once.
    ///
    /// Cancel safe: yes, whoever drops it has cancelled the call.
    pub(crate) async fn finish(&self, mut started: Started, peer: &Peer, out: &Arc<Stream>) -> Answer {
        match &mut started {
            // What is rare is boxed, so that what is common stays small.
            Started::Batch(frames) => self.batch(std::mem::take(frames), peer, out).await,
            Started::Asking(asking) => Box::pin(self.after_asking(asking, peer, out)).await,
            started => self.conclude(started).await,
        }
    }

    /// The same for what needs nothing more of whoever asked: see [`Started::needs_peer`].
    ///
    /// Cancel safe: yes, whoever drops it has cancelled the call.
    pub(crate) async fn conclude(&self, started: &mut Started) -> Answer {
        match started {
            Started::Answered(answer) => std::mem::replace(answer, Answer::Silence),
            Started::Batch(_) | Started::Asking(_) => Answer::Silence,
            Started::Listening(listening) => Box::pin(self.era.tell(listening)).await,
            Started::Later(later) => {
                let answer = later.answer.as_mut().await;
                match later.sight.take() {
                    Some(sight) => self.watched(sight, &later.method, None, answer),
                    None => answer,
                }
            }
            Started::Working(working) => {
                let Working { work, closing, was_looked_at, .. } = working;
                let ended = {
                    let mut cancelled = pin!(closing.cancel().cancelled());
                    // The call first: most end at once, and then nobody needs to be told of a cancellation.
                    poll_fn(|task| {
                        let looked_at = std::mem::take(was_looked_at);
                        match if looked_at { Poll::Pending } else { work.poll(task) } {
                            Poll::Pending => cancelled.as_mut().poll(task).map(|()| Err(Stop::Cancelled)),
                            ended => ended,
                        }
                    })
                    .await
                };
                self.ended(working, ended)
            }
        }
    }

    /// The answer, if it is there already: most calls never wait, and those need no future of their own. A call that
    /// does wait has then run up to its first wait, and [`Entry::finish`] goes on from there; whoever calls this polls
    /// that before it returns to its runtime.
    pub(crate) fn look(&self, started: &mut Started, task: &mut Context<'_>) -> Option<Answer> {
        match started {
            Started::Answered(answer) => Some(std::mem::replace(answer, Answer::Silence)),
            Started::Working(working) => match working.work.poll(task) {
                Poll::Ready(ended) => Some(self.ended(working, ended)),
                Poll::Pending => {
                    working.was_looked_at = true;
                    None
                }
            },
            Started::Batch(_) | Started::Listening(_) | Started::Later(_) | Started::Asking(_) => None,
        }
    }

    fn ended(&self, working: &mut Working, ended: Result<Outcome, Stop>) -> Answer {
        let Working { work, closing, sight, .. } = working;
        // What was taken back is not answered, even if it ended in the same moment.
        let ended = if closing.cancel().is_cancelled() { Err(Stop::Cancelled) } else { ended };
        let answer = self.era.close(closing, ended);
        match sight.take() {
            Some(sight) => self.watched(sight, closing.method, work.subject(), answer),
            None => answer,
        }
    }

    fn start(
        &self,
        frame: Frame,
        index: &ParamsIndex<'_>,
        peer: &Peer,
        out: &Arc<Stream>,
        in_batch: bool,
    ) -> Started {
        let Frame::Request { id, method, params } = frame else {
            return match self.era.hear(frame, peer) {
                Arrival::Later(answer) => {
                    Started::Later(Box::new(Later { answer, sight: None, method: Box::default() }))
                }
                Arrival::Answered(answer) => Started::Answered(answer),
                Arrival::Visit(_) | Arrival::Listening(_) => Started::Answered(Answer::Silence),
            };
        };
        // Before anybody is asked: those who listen must see what will be done.
        let mended = self.era.mend(&method, params.as_ref(), peer);
        let (method, params) = match &mended {
            Some((method, params)) => (method.as_str(), params.as_ref()),
            None => (&*method, params.as_ref()),
        };
        let sight = self.watch.begin();
        if !sight.is_heard() {
            return self.begin(&id, method, params, index, sight, peer, out, in_batch);
        }
        let incoming = Incoming {
            id: Some(&id),
            method,
            params,
            headers: &peer.headers,
            remote: peer.remote,
            principal: &peer.principal,
            transport: peer.transport,
        };
        match self.watch.ask(&sight, &incoming) {
            Asked::Now(event) => self.heard(&id, sight, event, peer, out, in_batch),
            Asked::Later(event) => {
                Started::Asking(Box::new(Asking { id, sight: Some(sight), event, in_batch }))
            }
        }
    }

    /// Goes on with a request once those who listen have said what they had to.
    fn heard(
        &self,
        id: &RequestId,
        mut sight: Sight,
        event: RequestEvent,
        peer: &Peer,
        out: &Arc<Stream>,
        in_batch: bool,
    ) -> Started {
        let ruling = sight.settle(event);
        let (method, params) = (ruling.info.method().to_owned(), ruling.info.raw_params().cloned());
        let changed = ruling.is_changed.then(|| Peer { is_changed: true, ..peer.clone() });
        let peer = changed.as_ref().unwrap_or(peer);
        if let Some(no) = ruling.rejection {
            let kind = if no.code == REJECTED { ProtocolErrorKind::Rejected } else { ProtocolErrorKind::Other(no.code) };
            let fault = ProtocolError::new(kind, no.message).with_status(no.status.unwrap_or(200));
            let answer = self.era.reject(Some(id), peer, &fault);
            return Started::Answered(self.watched(sight, &method, None, answer));
        }
        self.begin(id, &method, params.as_ref(), &ParamsIndex::default(), sight, peer, out, in_batch)
    }

    async fn after_asking(&self, asking: &mut Asking, peer: &Peer, out: &Arc<Stream>) -> Answer {
        let event = asking.event.as_mut().await;
        let Some(sight) = asking.sight.take() else { return Answer::Silence };
        let started = self.heard(&asking.id, sight, event, peer, out, asking.in_batch);
        self.finish(started, peer, out).await
    }

    #[allow(clippy::too_many_arguments)]
    fn begin(
        &self,
        id: &RequestId,
        method: &str,
        params: Option<&RawJson>,
        index: &ParamsIndex<'_>,
        sight: Sight,
        peer: &Peer,
        out: &Arc<Stream>,
        in_batch: bool,
    ) -> Started {
        let visit = match self.era.arrive(id, method, params, index, peer, out, in_batch) {
            Arrival::Answered(answer) => {
                return Started::Answered(self.watched(sight, method, None, answer));
            }
            Arrival::Later(answer) => {
                let method = method.into();
                return Started::Later(Box::new(Later { answer, sight: Some(sight), method }));
            }
            Arrival::Listening(listening) => return Started::Listening(listening),
            Arrival::Visit(visit) => visit,
        };
        let Visit { request, voice, closing } = visit;
        match self.hall.begin(request, voice) {
            Ok(work) => {
                if matches!(work, Work::Tool { .. } | Work::Task { entry: Some(_), .. }) {
                    self.watch.starts(&sight);
                }
                let sight = Some(sight);
                Started::Working(Working { work, closing, sight, was_looked_at: false })
            }
            Err(stop) => {
                let answer = self.era.close(&closing, Err(stop));
                Started::Answered(self.watched(sight, method, None, answer))
            }
        }
    }

    /// Counts an answer and tells who listens. One that nobody waited for is none.
    fn watched(&self, sight: Sight, method: &str, subject: Option<Subject<'_>>, answer: Answer) -> Answer {
        let Answer::Body { status, body, session, told } = answer else { return answer };
        let verdict = match &told {
            Told::Well | Told::Greeted(_) => Verdict::Ok,
            Told::Failed(message) => Verdict::ToolError { message },
            Told::Fault { code, message } => Verdict::Fault { code: *code, message },
        };
        let finished = Finished { method, subject, verdict };
        let body = if sight.is_heard() {
            self.watch.end(sight, &finished, status, body.whole()).into()
        } else {
            self.watch.end(sight, &finished, status, Bytes::new());
            body
        };
        Answer::Body { status, body, session, told }
    }

    /// All at once; the answers in one array, in the order of the questions.
    fn batch<'a>(
        &'a self,
        frames: Vec<Result<Frame, FrameError>>,
        peer: &'a Peer,
        out: &'a Arc<Stream>,
    ) -> BoxFuture<'a, Answer> {
        let calls = frames.into_iter().map(move |frame| -> BoxFuture<'a, Answer> {
            let started = match frame {
                Ok(frame) => self.start(frame, &ParamsIndex::default(), peer, out, true),
                Err(broken) => Started::Answered(self.broken(&broken, peer)),
            };
            Box::pin(self.finish(started, peer, out))
        });
        let calls = calls.collect();
        Box::pin(async move { array_of(all(calls).await) })
    }
}

/// Answers in one array; those that are none leave no trace.
fn array_of(answers: Vec<Answer>) -> Answer {
    let mut array = BytesMut::new();
    for answer in answers {
        if let Answer::Body { body, .. } = answer {
            array.put_u8(if array.is_empty() { b'[' } else { b',' });
            array.put(body.whole());
        }
    }
    if array.is_empty() {
        return Answer::Accepted;
    }
    array.put_u8(b']');
    Answer::Body { status: 200, body: array.freeze().into(), session: None, told: Told::Well }
}

/// What became of a message before anybody had to wait.
// The largest variant is the common one, and lives where it is made.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Started {
    Answered(Answer),
    Batch(Vec<Result<Frame, FrameError>>),
    Listening(Box<Listening>),
    Later(Box<Later>),
    /// Those who listen to requests take their time.
    Asking(Box<Asking>),
    Working(Working),
}

impl Started {
    /// Whether [`Entry::finish`] looks at the peer once more.
    pub(crate) fn needs_peer(&self) -> bool {
        matches!(self, Started::Batch(_) | Started::Asking(_))
    }
}

/// A wish that is being fulfilled, and what is needed to answer it.
pub(crate) struct Working {
    work: Work,
    closing: Closing,
    sight: Option<Sight>,
    /// It was polled, has to wait, and will wake whoever polled it: the next poll is not for the work.
    was_looked_at: bool,
}

/// A message that is answered when something has been kept, or told to another process.
pub(crate) struct Later {
    answer: BoxFuture<'static, Answer>,
    /// None: it is no request, and not counted.
    sight: Option<Sight>,
    method: Box<str>,
}

/// A request of which those who listen are being told.
pub(crate) struct Asking {
    id: RequestId,
    sight: Option<Sight>,
    event: BoxFuture<'static, RequestEvent>,
    in_batch: bool,
}

/// The number of a refusal whose listener chose none.
const REJECTED: i64 = -32000;

fn no_batches() -> FrameError {
    FrameError {
        kind: FrameErrorKind::InvalidRequest,
        id: None,
        detail: "batches are not part of this protocol version".into(),
    }
}

/// Waits for all of them.
async fn all(mut calls: Vec<BoxFuture<'_, Answer>>) -> Vec<Answer> {
    let mut answers: Vec<Option<Answer>> = calls.iter().map(|_| None).collect();
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
