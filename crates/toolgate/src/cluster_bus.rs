//! The speaking tube between processes that serve the same clients: small words, told to one or to all of them.
//!
//! Each process is a node with a name nobody can guess, and says every two seconds that it is still there. What is
//! told here may be missed (a store is no post office), so what is told can be found again: a word says that something
//! has changed and saves whoever hears it the search. Two words are the exception, and can be lost: an answer to a
//! question, which then times out, and a cancellation, after which a call goes on to its end. What words mean is for
//! those who listen.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::seal::random_token;
use crate::store::{ChannelEvent, Expect, Key, Listener, ScopedStore, StoreError};
use crate::util::spawn::Tracker;
use crate::util::stored_json;

/// How often a node says that it is there.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// How long it is believed.
const HEARTBEAT_TTL: Duration = Duration::from_secs(6);
/// How long a store may take for what somebody waits for.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// Where everybody listens.
const BROADCAST_CHANNEL: &str = "all";
/// Characters of a node's name.
const NODE_NAME_CHARS: usize = 16;

/// See the module.
#[derive(Debug)]
pub(crate) struct ClusterBus {
    pub(crate) scoped_store: ScopedStore,
    /// The name of this node.
    pub(crate) node: Arc<str>,
}

/// What nodes tell each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum NodeMessage {
    /// A client has answered a question that was asked by the node this is told to.
    Response { session: Box<str>, message: Box<str> },
    /// A client takes back a request; `request` is its id as JSON.
    Cancel { session: Box<str>, request: Box<str> },
    /// What is remembered of a session is this now. `seen` is the last change that had been told of when it was asked
    /// for.
    SessionUpdated { session: Box<str>, record: Box<str>, seen: u64 },
    /// A session is over.
    SessionEnded { session: Box<str> },
    /// A client reads a stream of its session somewhere: whoever was told to write it elsewhere may stop.
    ReaderAttached { session: Box<str>, stream: u64, reader: Box<str> },
    /// The log of changes has grown.
    ChangesAppended,
}

impl NodeMessage {
    /// None if it is none that is known here: a newer release may say more.
    fn decode(message: Bytes) -> Option<NodeMessage> {
        let raw = stored_json::parse(message)?;
        let whole = raw.view();
        if whole.eq_str("ChangesAppended") {
            return Some(NodeMessage::ChangesAppended);
        }
        let (kind, parts) = whole.members().next()?;
        let text = |name: &str| Some(Box::from(parts.get(name)?.as_string()?));
        let number = |name: &str| parts.get(name)?.as_u64();
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

/// One who hears words.
pub(crate) trait MessageSink: Send + Sync + 'static {
    /// Somebody said this. Must not wait.
    fn receive(&self, word: NodeMessage);
    /// Something may have been missed.
    fn handle_lag(&self);
}

/// The two channels a node listens to.
pub(crate) struct Inbox {
    broadcast: Listener,
    direct: Listener,
}

impl ClusterBus {
    pub(crate) fn new(scoped_store: ScopedStore) -> ClusterBus {
        let node = random_token()[..NODE_NAME_CHARS].into();
        ClusterBus { scoped_store, node }
    }

    /// Whether this could be the name of a node. Clients say such names too.
    pub(crate) fn is_node_name(name: &str) -> bool {
        name.len() == NODE_NAME_CHARS
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    }

    /// Begins to listen, and to be there.
    pub(crate) async fn join(&self) -> Result<Inbox, StoreError> {
        let ears = self.subscribe().await?;
        self.send_heartbeat().await?;
        Ok(ears)
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

    /// Whether a node has said lately that it is there.
    pub(crate) async fn is_alive(&self, node: &str) -> Result<bool, StoreError> {
        if node == &*self.node {
            return Ok(true);
        }
        let key = self.heartbeat_key(node);
        Ok(with_store_timeout(self.scoped_store.backend.get(&key)).await?.is_some())
    }

    /// Tells every node, this one too.
    pub(crate) fn broadcast(&self, word: &NodeMessage) -> impl Future<Output = Result<(), StoreError>> {
        self.publish(self.scoped_store.space(BROADCAST_CHANNEL), word)
    }

    /// Tells one node.
    pub(crate) fn send_to_node(
        &self,
        node: &str,
        word: &NodeMessage,
    ) -> impl Future<Output = Result<(), StoreError>> {
        self.publish(self.node_channel(node), word)
    }

    async fn publish(&self, channel: String, word: &NodeMessage) -> Result<(), StoreError> {
        let message = serde_json::to_vec(word).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        with_store_timeout(self.scoped_store.backend.publish(&channel, message.into())).await
    }

    /// Hears words and says that it is there, until `over` falls.
    pub(crate) fn spawn_loops<S: MessageSink>(
        self: &Arc<Self>,
        ears: Inbox,
        ear: Weak<S>,
        tasks: &Tracker,
        over: &CancellationToken,
    ) {
        let (bus, ended) = (Arc::clone(self), over.clone());
        tasks.spawn_main(async move {
            tokio::select! {
                biased;
                () = ended.cancelled() => {}
                () = bus.receive_loop(ears, ear) => {}
            }
        });
        let (bus, ended) = (Arc::clone(self), over.clone());
        tasks.spawn_main(async move {
            while !sleep_or_cancelled(HEARTBEAT_INTERVAL, &ended).await {
                if let Err(error) = bus.send_heartbeat().await {
                    tracing::debug!(%error, "this node could not say that it is there");
                }
            }
            let key = bus.heartbeat_key(&bus.node);
            // Whoever ends well says so; whoever cannot is found out.
            let _ = with_store_timeout(bus.scoped_store.backend.delete(&key, Expect::Anything)).await;
        });
    }

    async fn receive_loop<S: MessageSink>(&self, mut ears: Inbox, ear: Weak<S>) {
        loop {
            let heard = tokio::select! {
                heard = ears.broadcast.next() => heard,
                heard = ears.direct.next() => heard,
            };
            let Some(hearing) = ear.upgrade() else { return };
            match heard {
                Some(ChannelEvent::Message(message)) => match NodeMessage::decode(message) {
                    Some(word) => hearing.receive(word),
                    None => tracing::debug!("a word that is not understood"),
                },
                Some(ChannelEvent::Lagged) => hearing.handle_lag(),
                None => {
                    // A store that has closed may stay so: nobody is kept meanwhile.
                    drop(hearing);
                    ears = self.resubscribe().await;
                    let Some(hearing) = ear.upgrade() else { return };
                    hearing.handle_lag();
                }
            }
        }
    }

    async fn resubscribe(&self) -> Inbox {
        loop {
            tokio::time::sleep(retry_delay()).await;
            match self.subscribe().await {
                Ok(ears) => return ears,
                Err(error) => tracing::debug!(%error, "cannot listen to other nodes"),
            }
        }
    }
}

/// Waits so long; true if `over` fell first.
pub(crate) async fn sleep_or_cancelled(time: Duration, over: &CancellationToken) -> bool {
    tokio::time::timeout(time, over.cancelled()).await.is_ok()
}

/// About a second: not all nodes come back in the same moment.
pub(crate) fn retry_delay() -> Duration {
    let mut byte = [0];
    crate::seal::fill_random(&mut byte);
    Duration::from_millis(700 + 2 * u64::from(byte[0]))
}

/// Nobody waits for a store for long.
pub(crate) async fn with_store_timeout<T>(
    fetching: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let late = || StoreError::Unavailable("no answer in time".into());
    tokio::time::timeout(STORE_TIMEOUT, fetching).await.unwrap_or_else(|_| Err(late()))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::store::MemoryStore;

    #[derive(Default)]
    struct RecordingSink(Mutex<Vec<NodeMessage>>);

    impl MessageSink for RecordingSink {
        fn receive(&self, word: NodeMessage) {
            self.0.lock().unwrap().push(word);
        }
        fn handle_lag(&self) {}
    }

    #[test]
    fn every_word_is_understood_again_and_no_other_is() {
        let session: Box<str> = "s \"1\"".into();
        let words = [
            NodeMessage::Response { session: session.clone(), message: "{\"id\":1}".into() },
            NodeMessage::Cancel { session: session.clone(), request: "7".into() },
            NodeMessage::SessionUpdated { session: session.clone(), record: "{}".into(), seen: u64::MAX },
            NodeMessage::SessionEnded { session: session.clone() },
            NodeMessage::ReaderAttached { session, stream: 3, reader: "who".into() },
            NodeMessage::ChangesAppended,
        ];
        for word in words {
            let told = serde_json::to_vec(&word).unwrap();
            assert_eq!(NodeMessage::decode(told.into()), Some(word));
        }
        for strange in [
            "{\"Sung\":{\"session\":\"s\"}}",
            "{\"SessionEnded\":{}}",
            "\"Gone\"",
            "{}",
            "ChangesAppended",
            "",
        ] {
            assert_eq!(NodeMessage::decode(strange.into()), None, "{strange}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_has_closed_keeps_nobody_who_listened() {
        let closed = || Listener::new(tokio::sync::broadcast::channel(1).1);
        let bus = Arc::new(ClusterBus::new(ScopedStore::new(Arc::new(MemoryStore::new()), "a house")));
        let (tasks, over, ear) =
            (Tracker::new(), CancellationToken::new(), Arc::new(RecordingSink::default()));
        bus.spawn_loops(Inbox { broadcast: closed(), direct: closed() }, Arc::downgrade(&ear), &tasks, &over);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(Arc::strong_count(&ear), 1, "it waits to listen again");
        tokio::time::sleep(Duration::from_secs(5)).await;
        bus.broadcast(&NodeMessage::ChangesAppended).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(*ear.0.lock().unwrap(), [NodeMessage::ChangesAppended], "and hears again");
    }

    #[tokio::test(start_paused = true)]
    async fn words_reach_whom_they_are_for_and_the_dead_are_found_out() {
        let store = Arc::new(MemoryStore::new());
        let bus = || Arc::new(ClusterBus::new(ScopedStore::new(store.clone(), "a house")));
        let (one, other) = (bus(), bus());
        let (tasks, over) = (Tracker::new(), CancellationToken::new());
        let ears = [Arc::new(RecordingSink::default()), Arc::new(RecordingSink::default())];
        for (bus, ear) in [&one, &other].into_iter().zip(&ears) {
            bus.spawn_loops(bus.join().await.unwrap(), Arc::downgrade(ear), &tasks, &over);
        }
        let over_word = NodeMessage::SessionEnded { session: "s".into() };
        one.broadcast(&over_word).await.unwrap();
        one.send_to_node(&other.node, &NodeMessage::ChangesAppended).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(*ears[0].0.lock().unwrap(), [over_word]);
        assert_eq!(ears[1].0.lock().unwrap().len(), 2);
        assert!(one.is_alive(&other.node).await.unwrap());
        assert!(!one.is_alive("somebody-else-ab").await.unwrap());
        over.cancel();
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
