//! The HTTP+SSE transport of the first protocol version: a GET opens a stream that carries all messages of the
//! server, and its first event names the URL to POST to.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
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
use crate::util::network::client_network;
use crate::util::spawn::{Tracker, TrackerToken};

/// Maximum number of open connections. If there are more, the client with the most loses one.
const MAX_CONNECTIONS: usize = 1000;

/// Open connections, by the unguessable id in the POST URL.
#[derive(Clone, Debug, Default)]
pub(super) struct LegacyConnections(Arc<Mutex<ConnectionTable>>);

#[derive(Debug, Default)]
struct ConnectionTable {
    by_id: HashMap<String, LegacyConnection>,
    /// The number of the last connection.
    last_number: u64,
}

impl ConnectionTable {
    /// Ends the oldest connection of the client with the most, so that one client cannot take all places. Returns false if
    /// no client has two more than the one that asks.
    fn make_room(&mut self, principal: &Principal, network: Option<IpAddr>) -> bool {
        let mut counts: HashMap<_, usize> = HashMap::new();
        for entry in self.by_id.values() {
            *counts.entry(entry.owner()).or_default() += 1;
        }
        let n_own = counts.get(&owner(principal, network)).copied().unwrap_or(0);
        let oldest = |(id, entry): &(&String, &LegacyConnection)| {
            (Reverse(counts.get(&entry.owner()).copied().unwrap_or(0)), entry.number, (*id).clone())
        };
        let Some((Reverse(most), _, id)) = self.by_id.iter().map(|entry| oldest(&entry)).min() else {
            return false;
        };
        let can_end = most > n_own + 1;
        if can_end && let Some(entry) = self.by_id.remove(&id) {
            entry.connection.end();
            entry.connection.out.finish();
        }
        can_end
    }
}

/// The client to which a connection belongs: its principal, or the network of its address.
fn owner(principal: &Principal, network: Option<IpAddr>) -> (Option<&str>, Option<IpAddr>) {
    let id = principal.id();
    (id, network.filter(|_| id.is_none()))
}

impl LegacyConnection {
    fn owner(&self) -> (Option<&str>, Option<IpAddr>) {
        owner(&self.principal, self.network)
    }
}

#[derive(Clone, Debug)]
struct LegacyConnection {
    connection: Arc<DuplexConnection>,
    principal: Principal,
    /// The network of the client's address.
    network: Option<IpAddr>,
    /// Numbers the connections in the order in which they were opened.
    number: u64,
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
    fn lock(&self) -> MutexGuard<'_, ConnectionTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(
        &self,
        connection: &Arc<DuplexConnection>,
        principal: Principal,
        network: Option<IpAddr>,
        calls: &Tracker,
    ) -> Option<LegacyConnectionGuard> {
        let mut table = self.lock();
        if table.by_id.len() >= MAX_CONNECTIONS && !table.make_room(&principal, network) {
            return None;
        }
        let id = random_token();
        table.last_number += 1;
        let number = table.last_number;
        let connection = Arc::clone(connection);
        let entry = LegacyConnection { connection, principal, network, number, calls: calls.clone() };
        table.by_id.insert(id.clone(), entry);
        Some(LegacyConnectionGuard { connections: self.clone(), id })
    }

    /// Returns the connection, and a token to hold until the message is answered on it.
    fn get(&self, id: &str, principal: &Principal) -> Option<(Arc<DuplexConnection>, TrackerToken)> {
        let table = self.lock();
        let entry = table.by_id.get(id).filter(|entry| entry.principal == *principal)?;
        Some((Arc::clone(&entry.connection), entry.calls.token()))
    }
}

impl Drop for LegacyConnectionGuard {
    fn drop(&mut self) {
        if let Some(entry) = self.connections.lock().by_id.remove(&self.id) {
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
        let inserted = self.legacy_connections.insert(
            &connection,
            admitted.principal().clone(),
            admitted.client_address(mount.remote_addr(head)).map(client_network),
            &calls,
        );
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

#[cfg(test)]
mod tests {
    use super::*;

    /// F3: one client that opens all connections does not keep others out.
    #[test]
    fn the_client_with_most_connections_loses_one() {
        let connections = LegacyConnections::default();
        let open = |address: &str| {
            let connection = DuplexConnection::new(Stream::new(Capacity::default()), None);
            let network = address.parse().ok().map(client_network);
            let guard = connections.insert(&connection, Principal::anonymous(), network, &Tracker::new());
            (connection, guard)
        };
        let good = open("192.0.2.1");
        let greedy: Vec<_> = (1..MAX_CONNECTIONS).map(|_| open("192.0.2.66")).collect();
        assert!(open("192.0.2.66").1.is_none(), "it has the most itself");
        let late = open("192.0.2.2");
        assert!(late.1.is_some());
        assert!(greedy[0].0.out.is_finished() && !greedy[1].0.out.is_finished());
        assert!(!good.0.out.is_finished());
        drop(greedy);
        assert_eq!(connections.lock().by_id.len(), 2);
    }
}
