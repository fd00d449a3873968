//! The HTTP of the first edition: a GET opens a stream that carries everything from the server, and its
//! first event says where to POST.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Response, StatusCode};
use toolgate_wire::{ProtocolError, ProtocolErrorKind};

use super::sse::SseBody;
use super::{Body, Inner, MountContext, MountPoint, event_stream_response, into_peer, rejection_response};
use crate::guard::Admitted;
use crate::protocol::{Channel, DuplexConnection, Reply};
use crate::request::Principal;
use crate::seal::random_token;
use crate::stream::{Capacity, Stream};
use crate::transport::RequestHead;
use crate::util::spawn::{Tracker, TrackerToken};

/// How many such connections there may be. One more is refused.
const MAX_CONNECTIONS: usize = 1000;

/// Open connections, by the unguessable name in the POST address.
#[derive(Clone, Debug, Default)]
pub(super) struct LegacyConnections(Arc<Mutex<HashMap<String, LegacyConnection>>>);

#[derive(Clone, Debug)]
struct LegacyConnection {
    connection: Arc<DuplexConnection>,
    principal: Principal,
    /// Calls that are still to be answered on the stream.
    calls: Tracker,
}

/// A connection's place among the open ones. Dropping it ends the connection.
#[derive(Debug)]
pub(super) struct LegacyConnectionGuard {
    connections: LegacyConnections,
    id: String,
}

impl LegacyConnections {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, LegacyConnection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(
        &self,
        line: &Arc<DuplexConnection>,
        principal: Principal,
        calls: &Tracker,
    ) -> Option<LegacyConnectionGuard> {
        let mut pairs = self.lock();
        if pairs.len() >= MAX_CONNECTIONS {
            return None;
        }
        let name = random_token();
        pairs.insert(
            name.clone(),
            LegacyConnection { connection: Arc::clone(line), principal, calls: calls.clone() },
        );
        Some(LegacyConnectionGuard { connections: self.clone(), id: name })
    }

    /// The connection's line, and a token to hold until what came for it is answered there.
    fn get(&self, name: &str, principal: &Principal) -> Option<(Arc<DuplexConnection>, TrackerToken)> {
        let pairs = self.lock();
        let pair = pairs.get(name).filter(|pair| pair.principal == *principal)?;
        Some((Arc::clone(&pair.connection), pair.calls.token()))
    }
}

impl Drop for LegacyConnectionGuard {
    fn drop(&mut self) {
        if let Some(pair) = self.connections.lock().remove(&self.id) {
            pair.connection.end();
        }
    }
}

impl Inner {
    pub(super) fn legacy_stream(
        self: &Arc<Self>,
        parts: &RequestHead,
        way: &MountContext,
        pass: Admitted,
    ) -> Response<Body> {
        let refused = |fault: &ProtocolError| rejection_response(&parts.headers, way.dialect.as_ref(), fault);
        if !parts.headers.parsed().accepts.stream {
            return refused(
                &ProtocolError::invalid_request("this address needs `Accept: text/event-stream`")
                    .with_status(406),
            );
        }
        let out = Stream::new(Capacity::default());
        let line = DuplexConnection::new(Arc::clone(&out), None);
        let calls = Tracker::new();
        let Some(seat) = self.legacy_connections.insert(&line, pass.principal, &calls) else {
            return refused(&ProtocolError::new(
                ProtocolErrorKind::Busy,
                "too many connections of this kind are open",
            ));
        };
        // Behind a router the own path is not known; relative to this address, the other one always is.
        let slash = if matches!(way.mount_point, MountPoint::Path(_)) { "/" } else { "" };
        let opening = format!("event: endpoint\ndata: {slash}messages?session={}\n\n", seat.id);
        let (entry, feeding) = (Arc::clone(&self.engine), line);
        let events = SseBody::new(out.reader(), self.options.sse_keep_alive)
            .with_preamble(opening.into())
            .with_feed(Box::pin(async move {
                entry.protocol.send_connection_changes(&feeding).await;
                // The house closes: the stream stays until what is under way has been answered on it.
                calls.close();
                calls.wait().await;
                Reply::NoResponse
            }))
            .with_guard(seat);
        event_stream_response(events)
    }

    pub(super) fn legacy_message(
        self: &Arc<Self>,
        parts: RequestHead,
        way: &MountContext,
        pass: Admitted,
        bytes: Bytes,
    ) -> Response<Body> {
        let refused = |parts: &RequestHead, fault: &ProtocolError| self.reject_malformed(parts, way, fault);
        let name = parts.uri.query().and_then(|query| query.strip_prefix("session="));
        let Some((line, under_way)) =
            name.and_then(|name| self.legacy_connections.get(name, &pass.principal))
        else {
            let said = "no such connection; open the stream again";
            return refused(&parts, &ProtocolError::new(ProtocolErrorKind::SessionNotFound, said));
        };
        let out = Arc::clone(&line.out);
        if !out.has_room() {
            let said = "the answers that are there already are not being read";
            return refused(&parts, &ProtocolError::new(ProtocolErrorKind::Busy, said));
        }
        let mut call = self.message_future(bytes, into_peer(parts, Channel::Duplex(line), way, pass), &out);
        match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            // What is no message at all is refused here; everything else is answered on the stream.
            Poll::Ready(Reply::Body { status: 400, body, .. }) => {
                super::json_response(400, body.into_bytes())
            }
            Poll::Ready(answer) => accept_reply(&out, answer),
            Poll::Pending => {
                self.tasks.spawn(async move {
                    accept_reply(&out, call.await);
                    drop(under_way);
                });
                super::empty_response(StatusCode::ACCEPTED)
            }
        }
    }
}

fn accept_reply(out: &Stream, answer: Reply) -> Response<Body> {
    if let Reply::Body { body, .. } = answer {
        out.push(body.into_bytes());
    }
    super::empty_response(StatusCode::ACCEPTED)
}
