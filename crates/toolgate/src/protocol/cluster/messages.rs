//! Messages between the nodes that serve the same sessions: forwarding, and handling of messages from other nodes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use toolgate_wire::{
    Frame, Limits, Message, ProtocolError, RawJson, RemoteError, RequestId, read_message, write_error,
    write_result,
};

use super::record::SessionRecord;
use super::{ClusterSessions, store_unavailable};
use crate::cluster_bus::{ClusterBus, MessageSink, NodeMessage};
use crate::protocol::session::Session;
use crate::util::lock;

impl ClusterSessions {
    /// Forwards a response of the client to the node that sent the request. Returns `None` if that is this node.
    pub(in crate::protocol) fn forward_response(
        self: &Arc<Self>,
        session: &Session,
        id: &RequestId,
        outcome: &Result<RawJson, RemoteError>,
    ) -> Option<impl Future<Output = Result<(), ProtocolError>> + use<>> {
        let RequestId::String(text) = id else { return None };
        let (node, _) = text.split_once('.')?;
        if node == &*self.bus.node || !ClusterBus::is_node_name(node) || session.is_request_pending(id) {
            return None;
        }
        let mut message = Vec::new();
        match outcome {
            Ok(result) => write_result(&mut message, id, result.as_bytes()),
            Err(error) => {
                let data = error.data.as_ref().map(RawJson::as_bytes);
                write_error(&mut message, Some(id), error.code, &error.message, data);
            }
        }
        let message = String::from_utf8_lossy(&message).into();
        let node_message = NodeMessage::Response { session: session.id.clone(), message };
        let (cluster, node) = (Arc::clone(self), node.to_owned());
        Some(async move { cluster.bus.send_to_node(&node, &node_message).await.map_err(store_unavailable) })
    }

    /// Forwards the cancellation of a request that is not in flight on this node.
    pub(in crate::protocol) fn forward_cancel(
        self: &Arc<Self>,
        session: &Session,
        id: &RequestId,
    ) -> impl Future<Output = Result<(), ProtocolError>> + use<> {
        let mut request = Vec::new();
        id.write(&mut request);
        let request = String::from_utf8_lossy(&request).into();
        let node_message = NodeMessage::Cancel { session: session.id.clone(), request };
        let cluster = Arc::clone(self);
        async move { cluster.bus.broadcast(&node_message).await.map_err(store_unavailable) }
    }
}

impl MessageSink for ClusterSessions {
    fn receive(&self, message: NodeMessage) {
        match message {
            NodeMessage::Response { session, message } => {
                let Some(session) = self.sessions.get(&session) else { return };
                let bytes = message.into_string().into();
                // The node that received it has checked its size.
                let limits = Limits { max_bytes: usize::MAX, ..Limits::default() };
                if let Ok(Message::Single(Frame::Response { id, outcome })) = read_message(&bytes, &limits) {
                    session.resolve_response(&id, outcome);
                }
            }
            NodeMessage::Cancel { session, request } => {
                let id = RawJson::parse(request.into_string().into()).ok();
                let id = id.and_then(|id| RequestId::read(id.view()));
                if let (Some(session), Some(id)) = (self.sessions.get(&session), id) {
                    session.in_flight.cancel(&id);
                }
            }
            NodeMessage::SessionUpdated { session, record, seen } => {
                self.updates_received.fetch_add(1, Ordering::AcqRel);
                if let (Some(session), Some(record)) =
                    (self.sessions.get(&session), SessionRecord::decode(record.as_bytes()))
                {
                    session.apply_record(&record, seen);
                }
            }
            NodeMessage::SessionEnded { session } => {
                self.updates_received.fetch_add(1, Ordering::AcqRel);
                lock(&self.new_sessions).release(&session);
                if let Some(session) = self.sessions.get(&session) {
                    self.sessions.close(&session);
                }
            }
            NodeMessage::ReaderAttached { session, stream, reader } => {
                if let Some(backlog) = self.backlogs().get(stream) {
                    backlog.reset();
                }
                // Without an id it is not a new reader: a known one has caught up.
                if !reader.is_empty()
                    && let Some(session) = self.sessions.get(&session)
                    && let Some(replica) = &session.replica
                {
                    replica.handle_reader_attached(stream, &reader);
                }
            }
            NodeMessage::ChangesAppended => self.changes.wake(),
        }
    }

    fn handle_lag(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
        self.lagged.notify_one();
        self.changes.wake();
    }
}
