//! Messages between processes that serve the same clients, sent to one or to all of them through the store.
//!
//! Each process is a node with an unguessable name, and writes a heartbeat every two seconds. Delivery is not guaranteed, so
//! messages only say that something in the store has changed, and a node that misses one finds the change later. Two are
//! exceptions and can be lost: a response to a server request, which then times out, and a cancellation, after which the call
//! runs to its end. The meaning of messages is not known here; see [`MessageSink`].

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::seal::random_token;
use crate::store::{ChannelEvent, Expect, Key, Listener, ScopedStore, StoreError};
use crate::util::spawn::Tracker;
use crate::util::stored_json;

/// How often a node writes its heartbeat.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// How long a node counts as alive after a heartbeat.
const HEARTBEAT_TTL: Duration = Duration::from_secs(6);
/// Time limit of store operations that a request waits for.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// The channel that all nodes receive.
const BROADCAST_CHANNEL: &str = "all";
/// Length of a node's name.
const NODE_NAME_CHARS: usize = 16;

/// Sends and receives messages as one node.
#[derive(Debug)]
pub(crate) struct ClusterBus {
    pub(crate) scoped_store: ScopedStore,
    /// The name of this node.
    pub(crate) node: Arc<str>,
}

/// A message between nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum NodeMessage {
    /// A client has responded to a request of the node that gets this message.
    Response { session: Box<str>, message: Box<str> },
    /// A client cancels a request; `request` is its id as JSON.
    Cancel { session: Box<str>, request: Box<str> },
    /// The record of a session has changed. `seen` is the last change that had been sent when the client requested it.
    SessionUpdated { session: Box<str>, record: Box<str>, seen: u64 },
    /// A session has ended.
    SessionEnded { session: Box<str> },
    /// A client reads a stream of its session on some node, so that older readers are detached. With an empty `reader`: the reader
    /// has caught up.
    ReaderAttached { session: Box<str>, stream: u64, reader: Box<str> },
    /// The change log has grown.
    ChangesAppended,
}

impl NodeMessage {
    /// Returns `None` if the message is unknown: a newer release may send others.
    fn decode(message: Bytes) -> Option<NodeMessage> {
        let raw = stored_json::parse(message)?;
        let whole = raw.view();
        if whole.eq_str("ChangesAppended") {
            return Some(NodeMessage::ChangesAppended);
        }
        let (kind, fields) = whole.members().next()?;
        let text = |name: &str| Some(Box::from(fields.get(name)?.as_string()?));
        let number = |name: &str| fields.get(name)?.as_u64();
        let session = text("session")?;
        Some(match &*kind {
            "Response" => NodeMessage::Response { session, message: text("message")? },
            "Cancel" => NodeMessage::Cancel { session, request: text("request")? },
            "SessionUpdated" => {
                NodeMessage::SessionUpdated { session, record: text("record")?, seen: number("seen")? }
            }
            "SessionEnded" => NodeMessage::SessionEnded { session },
            "ReaderAttached" => {
                NodeMessage::ReaderAttached { session, stream: number("stream")?, reader: text("reader")? }
            }
            _ => return None,
        })
    }
}

/// Handles the messages that a node receives.
pub(crate) trait MessageSink: Send + Sync + 'static {
    /// Handles a message. Must not block.
    fn receive(&self, message: NodeMessage);
    /// Handles a gap: messages may have been missed.
    fn handle_lag(&self);
}

/// The two channels that a node receives.
pub(crate) struct Inbox {
    broadcast: Listener,
    direct: Listener,
}

impl ClusterBus {
    pub(crate) fn new(scoped_store: ScopedStore) -> ClusterBus {
        let node = random_token()[..NODE_NAME_CHARS].into();
        ClusterBus { scoped_store, node }
    }

    /// Whether this has the form of a node name. Clients send such names too.
    pub(crate) fn is_node_name(name: &str) -> bool {
        name.len() == NODE_NAME_CHARS
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    }

    /// Subscribes to the channels of this node and writes the first heartbeat.
    pub(crate) async fn join(&self) -> Result<Inbox, StoreError> {
        let inbox = self.subscribe().await?;
        self.send_heartbeat().await?;
        Ok(inbox)
    }

    async fn subscribe(&self) -> Result<Inbox, StoreError> {
        let store = &self.scoped_store.backend;
        let (all, own) = (self.scoped_store.space(BROADCAST_CHANNEL), self.node_channel(&self.node));
        Ok(Inbox {
            broadcast: with_store_timeout(store.subscribe(&all)).await?,
            direct: with_store_timeout(store.subscribe(&own)).await?,
        })
    }

    fn node_channel(&self, node: &str) -> String {
        self.scoped_store.space(&format!("node/{node}"))
    }

    fn heartbeat_key(&self, node: &str) -> Key {
        self.scoped_store.key("node", node)
    }

    async fn send_heartbeat(&self) -> Result<(), StoreError> {
        let key = self.heartbeat_key(&self.node);
        with_store_timeout(self.scoped_store.backend.put(
            &key,
            "here".into(),
            Some(HEARTBEAT_TTL),
            Expect::Anything,
        ))
        .await?;
        Ok(())
    }

    /// Whether a node has written a heartbeat recently.
    pub(crate) async fn is_alive(&self, node: &str) -> Result<bool, StoreError> {
        if node == &*self.node {
            return Ok(true);
        }
        let key = self.heartbeat_key(node);
        Ok(with_store_timeout(self.scoped_store.backend.get(&key)).await?.is_some())
    }

    /// Sends a message to all nodes, including this one.
    pub(crate) fn broadcast(&self, message: &NodeMessage) -> impl Future<Output = Result<(), StoreError>> {
        self.publish(self.scoped_store.space(BROADCAST_CHANNEL), message)
    }

    /// Sends a message to one node.
    pub(crate) fn send_to_node(
        &self,
        node: &str,
        message: &NodeMessage,
    ) -> impl Future<Output = Result<(), StoreError>> {
        self.publish(self.node_channel(node), message)
    }

    async fn publish(&self, channel: String, message: &NodeMessage) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(message).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        with_store_timeout(self.scoped_store.backend.publish(&channel, bytes.into())).await
    }

    /// Spawns the tasks that receive messages and write heartbeats, until `shutdown` is cancelled.
    pub(crate) fn spawn_loops<S: MessageSink>(
        self: &Arc<Self>,
        inbox: Inbox,
        sink: Weak<S>,
        tasks: &Tracker,
        shutdown: &CancellationToken,
    ) {
        let (bus, cancelled) = (Arc::clone(self), shutdown.clone());
        tasks.spawn_main(async move {
            tokio::select! {
                biased;
                () = cancelled.cancelled() => {}
                () = bus.receive_loop(inbox, sink) => {}
            }
        });
        let (bus, cancelled) = (Arc::clone(self), shutdown.clone());
        tasks.spawn_main(async move {
            while !sleep_or_cancelled(HEARTBEAT_INTERVAL, &cancelled).await {
                if let Err(error) = bus.send_heartbeat().await {
                    tracing::debug!(%error, "the heartbeat of this node could not be written");
                }
            }
            let key = bus.heartbeat_key(&bus.node);
            // Other nodes notice the shutdown at once; otherwise they notice when the heartbeat expires.
            let _ = with_store_timeout(bus.scoped_store.backend.delete(&key, Expect::Anything)).await;
        });
    }

    async fn receive_loop<S: MessageSink>(&self, mut inbox: Inbox, sink: Weak<S>) {
        loop {
            let event = tokio::select! {
                event = inbox.broadcast.next() => event,
                event = inbox.direct.next() => event,
            };
            let Some(receiver) = sink.upgrade() else { return };
            match event {
                Some(ChannelEvent::Message(message)) => match NodeMessage::decode(message) {
                    Some(message) => receiver.receive(message),
                    None => tracing::debug!("unknown message of another node"),
                },
                Some(ChannelEvent::Lagged) => receiver.handle_lag(),
                None => {
                    // The store may stay closed for long: the sink is not kept alive meanwhile.
                    drop(receiver);
                    inbox = self.resubscribe().await;
                    let Some(receiver) = sink.upgrade() else { return };
                    receiver.handle_lag();
                }
            }
        }
    }

    async fn resubscribe(&self) -> Inbox {
        loop {
            tokio::time::sleep(retry_delay()).await;
            match self.subscribe().await {
                Ok(inbox) => return inbox,
                Err(error) => tracing::debug!(%error, "the channels of this node could not be subscribed"),
            }
        }
    }
}

/// Sleeps. Returns true if `token` was cancelled meanwhile.
pub(crate) async fn sleep_or_cancelled(duration: Duration, token: &CancellationToken) -> bool {
    tokio::time::timeout(duration, token.cancelled()).await.is_ok()
}

/// A random delay of about a second, so that not all nodes retry at the same moment.
pub(crate) fn retry_delay() -> Duration {
    let mut byte = [0];
    crate::seal::fill_random(&mut byte);
    Duration::from_millis(700 + 2 * u64::from(byte[0]))
}

/// Runs a store operation with a time limit.
pub(crate) async fn with_store_timeout<T>(
    operation: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let timed_out = || StoreError::Unavailable("no answer in time".into());
    tokio::time::timeout(STORE_TIMEOUT, operation).await.unwrap_or_else(|_| Err(timed_out()))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::store::MemoryStore;

    #[derive(Default)]
    struct RecordingSink(Mutex<Vec<NodeMessage>>);

    impl MessageSink for RecordingSink {
        fn receive(&self, message: NodeMessage) {
            self.0.lock().unwrap().push(message);
        }
        fn handle_lag(&self) {}
    }

    #[test]
    fn every_message_is_decoded_and_unknown_ones_are_not() {
        let session: Box<str> = "s \"1\"".into();
        let messages = [
            NodeMessage::Response { session: session.clone(), message: "{\"id\":1}".into() },
            NodeMessage::Cancel { session: session.clone(), request: "7".into() },
            NodeMessage::SessionUpdated { session: session.clone(), record: "{}".into(), seen: u64::MAX },
            NodeMessage::SessionEnded { session: session.clone() },
            NodeMessage::ReaderAttached { session, stream: 3, reader: "who".into() },
            NodeMessage::ChangesAppended,
        ];
        for message in messages {
            let bytes = serde_json::to_vec(&message).unwrap();
            assert_eq!(NodeMessage::decode(bytes.into()), Some(message));
        }
        for unknown in [
            "{\"Unknown\":{\"session\":\"s\"}}",
            "{\"SessionEnded\":{}}",
            "\"Gone\"",
            "{}",
            "ChangesAppended",
            "",
        ] {
            assert_eq!(NodeMessage::decode(unknown.into()), None, "{unknown}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_store_does_not_keep_the_sink_alive() {
        let closed = || Listener::new(tokio::sync::broadcast::channel(1).1);
        let bus = Arc::new(ClusterBus::new(ScopedStore::new(Arc::new(MemoryStore::new()), "server")));
        let (tasks, shutdown, sink) =
            (Tracker::new(), CancellationToken::new(), Arc::new(RecordingSink::default()));
        bus.spawn_loops(
            Inbox { broadcast: closed(), direct: closed() },
            Arc::downgrade(&sink),
            &tasks,
            &shutdown,
        );
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(Arc::strong_count(&sink), 1, "it waits to subscribe again");
        tokio::time::sleep(Duration::from_secs(5)).await;
        bus.broadcast(&NodeMessage::ChangesAppended).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(*sink.0.lock().unwrap(), [NodeMessage::ChangesAppended], "and receives again");
    }

    #[tokio::test(start_paused = true)]
    async fn messages_reach_their_nodes_and_dead_nodes_are_noticed() {
        let store = Arc::new(MemoryStore::new());
        let bus = || Arc::new(ClusterBus::new(ScopedStore::new(store.clone(), "server")));
        let (one, other) = (bus(), bus());
        let (tasks, shutdown) = (Tracker::new(), CancellationToken::new());
        let sinks = [Arc::new(RecordingSink::default()), Arc::new(RecordingSink::default())];
        for (bus, sink) in [&one, &other].into_iter().zip(&sinks) {
            bus.spawn_loops(bus.join().await.unwrap(), Arc::downgrade(sink), &tasks, &shutdown);
        }
        let ended = NodeMessage::SessionEnded { session: "s".into() };
        one.broadcast(&ended).await.unwrap();
        one.send_to_node(&other.node, &NodeMessage::ChangesAppended).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(*sinks[0].0.lock().unwrap(), [ended]);
        assert_eq!(sinks[1].0.lock().unwrap().len(), 2);
        assert!(one.is_alive(&other.node).await.unwrap());
        assert!(!one.is_alive("somebody-else-ab").await.unwrap());
        shutdown.cancel();
        tasks.close();
        tasks.wait().await;
        assert!(!one.is_alive(&other.node).await.unwrap());
        assert!(
            ClusterBus::is_node_name(&one.node)
                && !ClusterBus::is_node_name("../../etc/passwd")
                && !ClusterBus::is_node_name("")
        );
    }
}
