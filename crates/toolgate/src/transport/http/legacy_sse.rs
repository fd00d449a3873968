//! The HTTP+SSE transport of the first protocol version: a GET opens a stream that carries all messages of the
//! server, and its first event names the URL to POST to.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Response, StatusCode};
use toolgate_wire::{ProtocolError, ProtocolErrorKind};

use super::admit::Admitted;
use super::reject::rejection_response;
use super::response::{empty_response, event_stream_response, json_response};
use super::service::Inner;
use super::sse::SseBody;
use super::{Body, MountContext, MountPoint};
use crate::protocol::{Channel, DuplexConnection, Reply};
use crate::request::Principal;
use crate::seal::random_token;
use crate::stream::{Capacity, Stream};
use crate::transport::RequestHead;
use crate::util::spawn::{Tracker, TrackerToken};

/// Maximum number of open connections. A further one is rejected.
const MAX_CONNECTIONS: usize = 1000;

/// Open connections, by the unguessable id in the POST URL.
#[derive(Clone, Debug, Default)]
pub(super) struct LegacyConnections(Arc<Mutex<HashMap<String, LegacyConnection>>>);

#[derive(Clone, Debug)]
struct LegacyConnection {
    connection: Arc<DuplexConnection>,
    principal: Principal,
    /// Calls that are still to be answered on the stream.
    calls: Tracker,
}

/// The entry of an open connection. Dropping it ends the connection.
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
        connection: &Arc<DuplexConnection>,
        principal: Principal,
        calls: &Tracker,
    ) -> Option<LegacyConnectionGuard> {
        let mut connections = self.lock();
        if connections.len() >= MAX_CONNECTIONS {
            return None;
        }
        let id = random_token();
        connections.insert(
            id.clone(),
            LegacyConnection { connection: Arc::clone(connection), principal, calls: calls.clone() },
        );
        Some(LegacyConnectionGuard { connections: self.clone(), id })
    }

    /// Returns the connection, and a token to hold until the message is answered on it.
    fn get(&self, id: &str, principal: &Principal) -> Option<(Arc<DuplexConnection>, TrackerToken)> {
        let connections = self.lock();
        let entry = connections.get(id).filter(|entry| entry.principal == *principal)?;
        Some((Arc::clone(&entry.connection), entry.calls.token()))
    }
}

impl Drop for LegacyConnectionGuard {
    fn drop(&mut self) {
        if let Some(entry) = self.connections.lock().remove(&self.id) {
            entry.connection.end();
        }
    }
}

impl Inner {
    pub(super) fn legacy_stream(
        self: &Arc<Self>,
        head: &RequestHead,
        mount: &MountContext,
        admitted: &Admitted,
    ) -> Response<Body> {
        let reject = |error: &ProtocolError| rejection_response(&head.headers, mount.dialect.as_ref(), error);
        if !head.headers.parsed().accepts.stream {
            return reject(
                &ProtocolError::invalid_request("this endpoint requires `Accept: text/event-stream`")
                    .with_status(406),
            );
        }
        let out = Stream::new(Capacity::default());
        let connection = DuplexConnection::new(Arc::clone(&out), None);
        let calls = Tracker::new();
        let inserted = self.legacy_connections.insert(&connection, admitted.principal().clone(), &calls);
        let Some(guard) = inserted else {
            return reject(&ProtocolError::new(ProtocolErrorKind::Busy, "too many SSE connections are open"));
        };
        // Below a router the own path is not known, but the other endpoint is always a sibling of this one.
        let prefix = if matches!(mount.mount_point, MountPoint::Path(_)) { "/" } else { "" };
        let preamble = format!("event: endpoint\ndata: {prefix}messages?session={}\n\n", guard.id);
        let engine = Arc::clone(&self.engine);
        let events = SseBody::new(out.reader(), self.options.sse_keep_alive)
            .with_preamble(preamble.into())
            .with_driver(Box::pin(async move {
                engine.protocol.send_connection_changes(&connection).await;
                // At shutdown, the stream stays open until the calls in flight have been answered on it.
                calls.close();
                calls.wait().await;
                Reply::NoResponse
            }))
            .with_guard(guard);
        event_stream_response(events)
    }

    pub(super) fn legacy_message(
        self: &Arc<Self>,
        head: RequestHead,
        mount: &MountContext,
        admitted: Admitted,
        bytes: Bytes,
    ) -> Response<Body> {
        let reject = |head: &RequestHead, error: &ProtocolError| self.reject_malformed(head, mount, error);
        let id = head.uri.query().and_then(|query| query.strip_prefix("session="));
        let Some((connection, token)) =
            id.and_then(|id| self.legacy_connections.get(id, admitted.principal()))
        else {
            let message = "unknown connection; open the stream again";
            return reject(&head, &ProtocolError::new(ProtocolErrorKind::SessionNotFound, message));
        };
        let out = Arc::clone(&connection.out);
        if !out.has_room() {
            let message = "the stream is full; read the pending messages first";
            return reject(&head, &ProtocolError::new(ProtocolErrorKind::Busy, message));
        }
        let peer = admitted.into_peer(head, Channel::Duplex(connection), mount);
        let mut call = self.message_future(bytes, peer, &out);
        match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            // Input that is not a message at all is rejected here; everything else is answered on the stream.
            Poll::Ready(Reply::Body { status: 400, body, .. }) => json_response(400, body.into_bytes()),
            Poll::Ready(reply) => accept_reply(&out, reply),
            Poll::Pending => {
                self.tasks.spawn(async move {
                    accept_reply(&out, call.await);
                    drop(token);
                });
                empty_response(StatusCode::ACCEPTED)
            }
        }
    }
}

fn accept_reply(out: &Stream, reply: Reply) -> Response<Body> {
    if let Reply::Body { body, .. } = reply {
        out.push(body.into_bytes());
    }
    empty_response(StatusCode::ACCEPTED)
}
