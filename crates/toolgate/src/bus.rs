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

use crate::seal::token;
use crate::store::{Cellar, Expect, Heard, Key, Listener, StoreError};
use crate::tracker::Tracker;
use crate::written;

/// How often a node says that it is there.
const BEAT: Duration = Duration::from_secs(2);
/// How long it is believed.
const LIFE: Duration = Duration::from_secs(6);
/// How long a store may take for what somebody waits for.
const DEADLINE: Duration = Duration::from_secs(2);
/// Where everybody listens.
const ALL: &str = "all";
/// Characters of a node's name.
const NAME: usize = 16;

/// See the module.
#[derive(Debug)]
pub(crate) struct Bus {
    pub(crate) cellar: Cellar,
    /// The name of this node.
    pub(crate) node: Arc<str>,
}

/// What nodes tell each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Word {
    /// A client has answered a question that was asked by the node this is told to.
    Answer { session: Box<str>, message: Box<str> },
    /// A client takes back a request; `request` is its id as JSON.
    Cancel { session: Box<str>, request: Box<str> },
    /// What is remembered of a session is this now. `seen` is the last change that had been told of when it was asked
    /// for.
    Record { session: Box<str>, record: Box<str>, seen: u64 },
    /// A session is over.
    Over { session: Box<str> },
    /// A client reads a stream of its session somewhere: whoever was told to write it elsewhere may stop.
    Reading { session: Box<str>, stream: u64, reader: Box<str> },
    /// The log of changes has grown.
    Changed,
}

impl Word {
    /// None if it is none that is known here: a newer release may say more.
    fn read(message: Bytes) -> Option<Word> {
        let raw = written::read(message)?;
        let whole = raw.view();
        if whole.eq_str("Changed") {
            return Some(Word::Changed);
        }
        let (kind, parts) = whole.members().next()?;
        let text = |name: &str| Some(Box::from(parts.get(name)?.as_string()?));
        let number = |name: &str| parts.get(name)?.as_u64();
        let session = text("session")?;
        Some(match &*kind {
            "Answer" => Word::Answer { session, message: text("message")? },
            "Cancel" => Word::Cancel { session, request: text("request")? },
            "Record" => Word::Record { session, record: text("record")?, seen: number("seen")? },
            "Over" => Word::Over { session },
            "Reading" => Word::Reading { session, stream: number("stream")?, reader: text("reader")? },
            _ => return None,
        })
    }
}

/// One who hears words.
pub(crate) trait Ear: Send + Sync + 'static {
    /// Somebody said this. Must not wait.
    fn hear(&self, word: Word);
    /// Something may have been missed.
    fn miss(&self);
}

/// The two channels a node listens to.
pub(crate) struct Ears {
    all: Listener,
    own: Listener,
}

impl Bus {
    pub(crate) fn new(cellar: Cellar) -> Bus {
        let node = token()[..NAME].into();
        Bus { cellar, node }
    }

    /// Whether this could be the name of a node. Clients say such names too.
    pub(crate) fn is_name(name: &str) -> bool {
        name.len() == NAME && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    }

    /// Begins to listen, and to be there.
    pub(crate) async fn open(&self) -> Result<Ears, StoreError> {
        let ears = self.listen().await?;
        self.beat().await?;
        Ok(ears)
    }

    async fn listen(&self) -> Result<Ears, StoreError> {
        let store = &self.cellar.store;
        let (all, own) = (self.cellar.space(ALL), self.channel(&self.node));
        Ok(Ears { all: within(store.subscribe(&all)).await?, own: within(store.subscribe(&own)).await? })
    }

    fn channel(&self, node: &str) -> String {
        self.cellar.space(&format!("node/{node}"))
    }

    fn key(&self, node: &str) -> Key {
        self.cellar.key("node", node)
    }

    async fn beat(&self) -> Result<(), StoreError> {
        let key = self.key(&self.node);
        within(self.cellar.store.put(&key, "here".into(), Some(LIFE), Expect::Anything)).await?;
        Ok(())
    }

    /// Whether a node has said lately that it is there.
    pub(crate) async fn is_alive(&self, node: &str) -> Result<bool, StoreError> {
        if node == &*self.node {
            return Ok(true);
        }
        let key = self.key(node);
        Ok(within(self.cellar.store.get(&key)).await?.is_some())
    }

    /// Tells every node, this one too.
    pub(crate) fn tell_all(&self, word: &Word) -> impl Future<Output = Result<(), StoreError>> {
        self.tell(self.cellar.space(ALL), word)
    }

    /// Tells one node.
    pub(crate) fn tell_node(&self, node: &str, word: &Word) -> impl Future<Output = Result<(), StoreError>> {
        self.tell(self.channel(node), word)
    }

    async fn tell(&self, channel: String, word: &Word) -> Result<(), StoreError> {
        let message = serde_json::to_vec(word).map_err(|error| StoreError::Broken(error.to_string()))?;
        within(self.cellar.store.publish(&channel, message.into())).await
    }

    /// Hears words and says that it is there, until `over` falls.
    pub(crate) fn attend<E: Ear>(
        self: &Arc<Self>,
        ears: Ears,
        ear: Weak<E>,
        tasks: &Tracker,
        over: &CancellationToken,
    ) {
        let (bus, ended) = (Arc::clone(self), over.clone());
        tasks.spawn_home(async move {
            tokio::select! {
                biased;
                () = ended.cancelled() => {}
                () = bus.hear(ears, ear) => {}
            }
        });
        let (bus, ended) = (Arc::clone(self), over.clone());
        tasks.spawn_home(async move {
            while !pause(BEAT, &ended).await {
                if let Err(error) = bus.beat().await {
                    tracing::debug!(%error, "this node could not say that it is there");
                }
            }
            let key = bus.key(&bus.node);
            // Whoever ends well says so; whoever cannot is found out.
            let _ = within(bus.cellar.store.delete(&key, Expect::Anything)).await;
        });
    }

    async fn hear<E: Ear>(&self, mut ears: Ears, ear: Weak<E>) {
        loop {
            let heard = tokio::select! {
                heard = ears.all.next() => heard,
                heard = ears.own.next() => heard,
            };
            let Some(hearing) = ear.upgrade() else { return };
            match heard {
                Some(Heard::Message(message)) => match Word::read(message) {
                    Some(word) => hearing.hear(word),
                    None => tracing::debug!("a word that is not understood"),
                },
                Some(Heard::Gap) => hearing.miss(),
                None => {
                    // A store that has closed may stay so: nobody is kept meanwhile.
                    drop(hearing);
                    ears = self.listen_again().await;
                    let Some(hearing) = ear.upgrade() else { return };
                    hearing.miss();
                }
            }
        }
    }

    async fn listen_again(&self) -> Ears {
        loop {
            tokio::time::sleep(jittered()).await;
            match self.listen().await {
                Ok(ears) => return ears,
                Err(error) => tracing::debug!(%error, "cannot listen to other nodes"),
            }
        }
    }
}

/// Waits so long; true if `over` fell first.
pub(crate) async fn pause(time: Duration, over: &CancellationToken) -> bool {
    tokio::time::timeout(time, over.cancelled()).await.is_ok()
}

/// About a second: not all nodes come back in the same moment.
pub(crate) fn jittered() -> Duration {
    let mut byte = [0];
    crate::seal::fill(&mut byte);
    Duration::from_millis(700 + 2 * u64::from(byte[0]))
}

/// Nobody waits for a store for long.
pub(crate) async fn within<T>(
    fetching: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let late = || StoreError::Unavailable("no answer in time".into());
    tokio::time::timeout(DEADLINE, fetching).await.unwrap_or_else(|_| Err(late()))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::store::MemoryStore;

    #[derive(Default)]
    struct Heard(Mutex<Vec<Word>>);

    impl Ear for Heard {
        fn hear(&self, word: Word) {
            self.0.lock().unwrap().push(word);
        }
        fn miss(&self) {}
    }

    #[test]
    fn every_word_is_understood_again_and_no_other_is() {
        let session: Box<str> = "s \"1\"".into();
        let words = [
            Word::Answer { session: session.clone(), message: "{\"id\":1}".into() },
            Word::Cancel { session: session.clone(), request: "7".into() },
            Word::Record { session: session.clone(), record: "{}".into(), seen: u64::MAX },
            Word::Over { session: session.clone() },
            Word::Reading { session, stream: 3, reader: "who".into() },
            Word::Changed,
        ];
        for word in words {
            let told = serde_json::to_vec(&word).unwrap();
            assert_eq!(Word::read(told.into()), Some(word));
        }
        for strange in ["{\"Sung\":{\"session\":\"s\"}}", "{\"Over\":{}}", "\"Gone\"", "{}", "Changed", ""] {
            assert_eq!(Word::read(strange.into()), None, "{strange}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_has_closed_keeps_nobody_who_listened() {
        let closed = || Listener::new(tokio::sync::broadcast::channel(1).1);
        let bus = Arc::new(Bus::new(Cellar::new(Arc::new(MemoryStore::new()), "a house")));
        let (tasks, over, ear) = (Tracker::new(), CancellationToken::new(), Arc::new(Heard::default()));
        bus.attend(Ears { all: closed(), own: closed() }, Arc::downgrade(&ear), &tasks, &over);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(Arc::strong_count(&ear), 1, "it waits to listen again");
        tokio::time::sleep(Duration::from_secs(5)).await;
        bus.tell_all(&Word::Changed).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(*ear.0.lock().unwrap(), [Word::Changed], "and hears again");
    }

    #[tokio::test(start_paused = true)]
    async fn words_reach_whom_they_are_for_and_the_dead_are_found_out() {
        let store = Arc::new(MemoryStore::new());
        let bus = || Arc::new(Bus::new(Cellar::new(store.clone(), "a house")));
        let (one, other) = (bus(), bus());
        let (tasks, over) = (Tracker::new(), CancellationToken::new());
        let ears = [Arc::new(Heard::default()), Arc::new(Heard::default())];
        for (bus, ear) in [&one, &other].into_iter().zip(&ears) {
            bus.attend(bus.open().await.unwrap(), Arc::downgrade(ear), &tasks, &over);
        }
        let over_word = Word::Over { session: "s".into() };
        one.tell_all(&over_word).await.unwrap();
        one.tell_node(&other.node, &Word::Changed).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(*ears[0].0.lock().unwrap(), [over_word]);
        assert_eq!(ears[1].0.lock().unwrap().len(), 2);
        assert!(one.is_alive(&other.node).await.unwrap());
        assert!(!one.is_alive("somebody-else-ab").await.unwrap());
        over.cancel();
        tasks.close();
        tasks.wait().await;
        assert!(!one.is_alive(&other.node).await.unwrap());
        assert!(Bus::is_name(&one.node) && !Bus::is_name("../../etc/passwd") && !Bus::is_name(""));
    }
}
