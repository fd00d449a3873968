//! The HTTP of the first edition: a GET opens a stream that carries everything from the server, and its
//! first event says where to POST.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use toolgate_wire::{Fault, FaultKind};

use super::sse::Events;
use super::{Body, closing};
use super::{BoxError, Inner, Place, answered, event_stream, fault_response, headers, principal, refused};
use crate::era::{Answer, Line, Road};
use crate::request::Principal;
use crate::seal::token;
use crate::stream::{Capacity, Stream};

/// How many such connections there may be. One more is refused.
const MOST: usize = 1000;

/// Open connections, by the unguessable name in the POST address.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs(Arc<Mutex<HashMap<String, Pair>>>);

#[derive(Clone, Debug)]
struct Pair {
    line: Arc<Line>,
    principal: Principal,
    /// Calls that are still to be answered on the stream.
    calls: TaskTracker,
}

/// A connection's place among the open ones. Dropping it ends the connection.
#[derive(Debug)]
pub(super) struct Seat {
    pairs: Pairs,
    name: String,
}

impl Pairs {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Pair>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, line: &Arc<Line>, principal: Principal, calls: &TaskTracker) -> Option<Seat> {
        let mut pairs = self.lock();
        if pairs.len() >= MOST {
            return None;
        }
        let name = token();
        pairs.insert(name.clone(), Pair { line: Arc::clone(line), principal, calls: calls.clone() });
        Some(Seat { pairs: self.clone(), name })
    }

    /// The connection's line, and a token to hold until what came for it is answered there.
    fn find(&self, name: &str, principal: &Principal) -> Option<(Arc<Line>, TaskTrackerToken)> {
        let pairs = self.lock();
        let pair = pairs.get(name).filter(|pair| pair.principal == *principal)?;
        Some((Arc::clone(&pair.line), pair.calls.token()))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(pair) = self.pairs.lock().remove(&self.name) {
            pair.line.end();
        }
    }
}

impl Inner {
    pub(super) fn pair_stream(self: &Arc<Self>, parts: &Parts) -> Response<Body> {
        if !headers::accepts_stream(&parts.headers) {
            return refused(406, "this address needs `Accept: text/event-stream`");
        }
        let out = Stream::new(Capacity::default());
        let line = Line::new(Arc::clone(&out), None);
        let calls = TaskTracker::new();
        let Some(seat) = self.pairs.open(&line, principal(parts), &calls) else {
            return refused(503, "too many connections of this kind are open");
        };
        // Behind a router the own path is not known; relative to this address, the other one always is.
        let slash = if matches!(self.options.place, Place::Path(_)) { "/" } else { "" };
        let opening = format!("event: endpoint\ndata: {slash}messages?session={}\n\n", seat.name);
        let (entry, feeding) = (Arc::clone(&self.entry), line);
        let events = Events::new(out.reader(), self.options.heartbeat)
            .opening(opening.into())
            .feeding(Box::pin(async move {
                entry.era.feed_line(&feeding).await;
                // The house closes: the stream stays until what is under way has been answered on it.
                calls.close();
                calls.wait().await;
                Answer::Silence
            }))
            .seated(seat);
        event_stream(events)
    }

    pub(super) async fn pair_message<B>(self: Arc<Self>, parts: Parts, body: B) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let accepts = match headers::check(&parts.headers, self.entry.limits.max_bytes) {
            Ok(accepts) => accepts,
            Err(refusal) => return refused(refusal.status, &refusal.why),
        };
        let name = parts.uri.query().and_then(|query| query.strip_prefix("session="));
        let Some((line, under_way)) = name.and_then(|name| self.pairs.find(name, &principal(&parts))) else {
            return fault_response(&Fault::new(
                FaultKind::Session,
                "no such connection; open the stream again",
            ));
        };
        let bytes = match self.body(body).await {
            Ok(bytes) => bytes,
            Err(response) => return closing(response),
        };
        let out = Arc::clone(&line.out);
        if !out.has_room() {
            return refused(503, "the answers that are there already are not being read");
        }
        let mut call = self.begin(bytes, self.peer(parts, Road::Line(line)), &out);
        match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            // What is no message at all is refused here; everything else is answered on the stream.
            Poll::Ready(answer @ Answer::Body { status: 400, .. }) => answered(answer, accepts),
            Poll::Ready(answer) => accepted(&out, answer),
            Poll::Pending => {
                self.tasks.spawn(async move {
                    accepted(&out, call.await);
                    drop(under_way);
                });
                super::plain(StatusCode::ACCEPTED)
            }
        }
    }
}

fn accepted(out: &Stream, answer: Answer) -> Response<Body> {
    if let Answer::Body { body, .. } = answer {
        out.push(body);
    }
    super::plain(StatusCode::ACCEPTED)
}
