//! The HTTP of the first edition: a GET opens a stream that carries everything from the server, and its
//! first event says where to POST.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Response, StatusCode};
use toolgate_wire::{ProtocolError, ProtocolErrorKind};

use super::sse::Events;
use super::{Body, Inner, Place, Way, event_stream, peer, refuse_at};
use crate::era::{Reply, DuplexConnection, Channel};
use crate::guard::Pass;
use crate::request::Principal;
use crate::seal::random_token;
use crate::stream::{Capacity, Stream};
use crate::tracker::{TrackerToken, Tracker};
use crate::transport::Asked;

/// How many such connections there may be. One more is refused.
const MOST: usize = 1000;

/// Open connections, by the unguessable name in the POST address.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs(Arc<Mutex<HashMap<String, Pair>>>);

#[derive(Clone, Debug)]
struct Pair {
    line: Arc<DuplexConnection>,
    principal: Principal,
    /// Calls that are still to be answered on the stream.
    calls: Tracker,
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

    fn open(&self, line: &Arc<DuplexConnection>, principal: Principal, calls: &Tracker) -> Option<Seat> {
        let mut pairs = self.lock();
        if pairs.len() >= MOST {
            return None;
        }
        let name = random_token();
        pairs.insert(name.clone(), Pair { line: Arc::clone(line), principal, calls: calls.clone() });
        Some(Seat { pairs: self.clone(), name })
    }

    /// The connection's line, and a token to hold until what came for it is answered there.
    fn find(&self, name: &str, principal: &Principal) -> Option<(Arc<DuplexConnection>, TrackerToken)> {
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
    pub(super) fn pair_stream(self: &Arc<Self>, parts: &Asked, way: &Way, pass: Pass) -> Response<Body> {
        let refused = |fault: &ProtocolError| refuse_at(&parts.headers, way.dialect.as_ref(), fault);
        if !parts.headers.glance().accepts.stream {
            return refused(
                &ProtocolError::invalid_request("this address needs `Accept: text/event-stream`").with_status(406),
            );
        }
        let out = Stream::new(Capacity::default());
        let line = DuplexConnection::new(Arc::clone(&out), None);
        let calls = Tracker::new();
        let Some(seat) = self.pairs.open(&line, pass.principal, &calls) else {
            return refused(&ProtocolError::new(ProtocolErrorKind::Busy, "too many connections of this kind are open"));
        };
        // Behind a router the own path is not known; relative to this address, the other one always is.
        let slash = if matches!(way.place, Place::Path(_)) { "/" } else { "" };
        let opening = format!("event: endpoint\ndata: {slash}messages?session={}\n\n", seat.name);
        let (entry, feeding) = (Arc::clone(&self.entry), line);
        let events = Events::new(out.reader(), self.options.heartbeat)
            .opening(opening.into())
            .feeding(Box::pin(async move {
                entry.protocol.send_connection_changes(&feeding).await;
                // The house closes: the stream stays until what is under way has been answered on it.
                calls.close();
                calls.wait().await;
                Reply::NoResponse
            }))
            .seated(seat);
        event_stream(events)
    }

    pub(super) fn pair_message(
        self: &Arc<Self>,
        parts: Asked,
        way: &Way,
        pass: Pass,
        bytes: Bytes,
    ) -> Response<Body> {
        let refused = |parts: &Asked, fault: &ProtocolError| self.turn_back(parts, way, fault);
        let name = parts.uri.query().and_then(|query| query.strip_prefix("session="));
        let Some((line, under_way)) = name.and_then(|name| self.pairs.find(name, &pass.principal)) else {
            let said = "no such connection; open the stream again";
            return refused(&parts, &ProtocolError::new(ProtocolErrorKind::SessionNotFound, said));
        };
        let out = Arc::clone(&line.out);
        if !out.has_room() {
            let said = "the answers that are there already are not being read";
            return refused(&parts, &ProtocolError::new(ProtocolErrorKind::Busy, said));
        }
        let mut call = self.begin(bytes, peer(parts, Channel::Duplex(line), way, pass), &out);
        match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            // What is no message at all is refused here; everything else is answered on the stream.
            Poll::Ready(Reply::Body { status: 400, body, .. }) => super::json(400, body.whole()),
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

fn accepted(out: &Stream, answer: Reply) -> Response<Body> {
    if let Reply::Body { body, .. } = answer {
        out.push(body.whole());
    }
    super::plain(StatusCode::ACCEPTED)
}
