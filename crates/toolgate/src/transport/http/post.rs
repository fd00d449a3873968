//! POST: answers messages, with one JSON body or with an SSE stream.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use super::response::{
    empty_response, event_stream_response, json_response, set_session_header, set_sse_headers, status_code,
};
use super::service::Inner;
use super::sse::{self, SseBody};
use super::{Body, post_headers};
use crate::engine::CallState;
use crate::guard::{Guards, ResponsePolicy};
use crate::headers::Accepts;
use crate::protocol::{Peer, Reply, ReplyKind, ResumeInfo};
use crate::request::BoxFuture;
use crate::stream::{Capacity, Stream};
use crate::util::segments::Segments;
use crate::util::spawn::Tracker;

/// How many calls may continue after their clients have disconnected. A further call ends with its client.
const MAX_DETACHED_CALLS: usize = 1024;

impl Inner {
    /// Answers a message, with the headers that every response carries.
    pub(super) async fn post(
        &self,
        guards: &Guards,
        policy: &ResponsePolicy,
        peer: &Peer,
        accepts: Accepts,
        bytes: Bytes,
    ) -> Response<Body> {
        let out = Stream::new(Capacity::default());
        let state = poll_fn(|task| Poll::Ready(self.begin_call(&bytes, peer, &out, task))).await;
        let response = match state {
            PostState::Done(reply) if !out.is_ready() => post_response(reply, accepts),
            PostState::Done(reply) => {
                end_stream(&out, reply);
                PostResponse::Other(self.stream_response(peer, &out, None))
            }
            // Boxed, because it is rare: the common case stays small.
            PostState::Pending(call) => {
                drop(bytes);
                Box::pin(self.wait_for_call(call, peer, out, accepts)).await
            }
        };
        match response {
            // Nearly all responses are of this kind, and start from prebuilt headers.
            PostResponse::Json { status, body, session } => {
                let body = Body::segments(body);
                let mut response = match guards.prebuilt_headers(policy).filter(|_| session.is_none()) {
                    Some(headers) => Response::new(body.with_prebuilt_headers(headers)),
                    None => {
                        let mut response = Response::new(body);
                        *response.headers_mut() = guards.json_headers(policy);
                        set_session_header(&mut response, session);
                        response
                    }
                };
                *response.status_mut() = status_code(status);
                response
            }
            PostResponse::Other(mut response) => {
                guards.apply_headers(response.headers_mut(), policy);
                response
            }
        }
    }

    /// Waits for the first output of a call.
    async fn wait_for_call(
        &self,
        call: BoxFuture<'static, Reply>,
        peer: &Peer,
        out: Arc<Stream>,
        accepts: Accepts,
    ) -> PostResponse {
        let mut pending =
            PendingResponse { call: Some(call), out: Arc::clone(&out), tasks: self.tasks.clone() };
        let stream_after = accepts.stream.then_some(self.options.stream_after);
        match pending.first_output(stream_after).await {
            FirstOutput::Reply(reply) if !out.is_ready() => post_response(reply, accepts),
            FirstOutput::Reply(reply) => {
                end_stream(&out, reply);
                PostResponse::Other(self.stream_response(peer, &out, None))
            }
            FirstOutput::Streaming => {
                let call = pending.call.take();
                PostResponse::Other(self.stream_response(peer, &out, call))
            }
        }
    }

    /// Begins the call of a message and polls it once. A pending call does not hold the request, and must be polled before
    /// anything else is awaited.
    fn begin_call(
        &self,
        bytes: &Bytes,
        peer: &Peer,
        out: &Arc<Stream>,
        task: &mut task::Context<'_>,
    ) -> PostState {
        if self.engine.protocol.cluster.is_some() {
            return PostState::Pending(self.message_future(bytes.clone(), peer.clone(), out));
        }
        let mut call = self.engine.begin(bytes, peer, out);
        if let Poll::Ready(reply) = call.poll(&self.engine, task) {
            return PostState::Done(reply);
        }
        let engine = Arc::clone(&self.engine);
        PostState::Pending(match call {
            // Thousands of subscriptions may be open, each for hours, so they get no second box.
            CallState::Subscription(subscription) => subscription,
            mut call => Box::pin(async move { engine.complete(&mut call).await }),
        })
    }

    pub(super) fn message_future(
        &self,
        bytes: Bytes,
        peer: Peer,
        out: &Arc<Stream>,
    ) -> BoxFuture<'static, Reply> {
        let (engine, out) = (Arc::clone(&self.engine), Arc::clone(out));
        Box::pin(async move { engine.handle_message(&bytes, &peer, &out).await })
    }

    /// Answers with a stream. A call that outlives its reader becomes a task of its own; any other call is owned by
    /// the response body and ends with it.
    fn stream_response(
        &self,
        peer: &Peer,
        out: &Arc<Stream>,
        call: Option<BoxFuture<'static, Reply>>,
    ) -> Response<Body> {
        let mut events;
        match self.engine.protocol.make_resumable(peer, out) {
            Some(ResumeInfo { number, sends_priming_event, relay }) => {
                let source = match relay {
                    Some((source, pump)) => {
                        self.tasks.spawn(pump);
                        source
                    }
                    None => Arc::clone(out),
                };
                events =
                    SseBody::new(source.reader(), self.options.sse_keep_alive).with_stream_number(number);
                if sends_priming_event {
                    events = events.with_priming_event();
                }
            }
            None => events = SseBody::new(out.reader(), self.options.sse_keep_alive),
        }
        if let Some(call) = call {
            if out.outlives_reader() {
                self.tasks.spawn(run_detached(call, Arc::clone(out)));
            } else {
                events = events.with_call(call, Arc::clone(out));
            }
        }
        event_stream_response(events)
    }
}

/// The state of a message after its first poll.
enum PostState {
    Done(Reply),
    /// The call has to be awaited.
    Pending(BoxFuture<'static, Reply>),
}

/// The first output of a call.
enum FirstOutput {
    Reply(Reply),
    /// The call sends a message before its result, or takes long.
    Streaming,
}

/// A call whose connection waits for its first output. If the connection is closed meanwhile, a call that outlives
/// its reader continues as a task.
struct PendingResponse {
    call: Option<BoxFuture<'static, Reply>>,
    out: Arc<Stream>,
    tasks: Tracker,
}

impl PendingResponse {
    async fn first_output(&mut self, stream_after: Option<Duration>) -> FirstOutput {
        let mut sleep = None;
        poll_fn(|cx| {
            let Some(call) = &mut self.call else {
                return Poll::Ready(FirstOutput::Streaming);
            };
            if let Poll::Ready(reply) = call.as_mut().poll(cx) {
                self.call = None;
                return Poll::Ready(FirstOutput::Reply(reply));
            }
            if self.out.poll_ready(cx).is_ready() {
                return Poll::Ready(FirstOutput::Streaming);
            }
            let Some(stream_after) = stream_after else {
                return Poll::Pending;
            };
            let sleep = sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(stream_after)));
            sleep.as_mut().poll(cx).map(|()| FirstOutput::Streaming)
        })
        .await
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        let has_room = self.tasks.len() < MAX_DETACHED_CALLS && tokio::runtime::Handle::try_current().is_ok();
        if self.out.outlives_reader() && has_room {
            self.tasks.spawn(run_detached(call, Arc::clone(&self.out)));
        }
    }
}

async fn run_detached(call: BoxFuture<'static, Reply>, out: Arc<Stream>) {
    end_stream(&out, call.await);
}

/// Ends a stream with the reply as its last message.
pub(super) fn end_stream(out: &Stream, reply: Reply) {
    out.finish_with(match reply {
        Reply::Body { body, .. } => Some(body.into_bytes()),
        Reply::Accepted | Reply::NoResponse => None,
    });
}

/// The response to a POST.
enum PostResponse {
    /// One message, with the headers that every JSON response has and no others.
    Json {
        status: u16,
        body: Segments,
        session: Option<Box<str>>,
    },
    Other(Response<Body>),
}

fn post_response(reply: Reply, accepts: Accepts) -> PostResponse {
    PostResponse::Other(match reply {
        Reply::Accepted => empty_response(StatusCode::ACCEPTED),
        // The client cancelled its request: an empty stream carries no response.
        Reply::NoResponse => {
            let mut response = empty_response(StatusCode::OK);
            response.headers_mut().insert(header::CONTENT_TYPE, post_headers::EVENT_STREAM);
            response
        }
        Reply::Body { status: 200, body, session_id: session, kind } if !accepts.json => {
            let mut events = sse::encode_event(None, &body.into_bytes());
            if let ReplyKind::Initialized(after) = &kind {
                events = [events, sse::encode_event(None, after)].concat().into();
            }
            let mut response = Response::new(Body::full(events));
            set_sse_headers(response.headers_mut());
            set_session_header(&mut response, session);
            response
        }
        Reply::Body { status: 503, body, session_id: session, .. } => {
            let mut response = json_response(503, body.into_bytes());
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
            set_session_header(&mut response, session);
            response
        }
        Reply::Body { status, body, session_id: session, .. } => {
            return PostResponse::Json { status, body, session };
        }
    })
}
