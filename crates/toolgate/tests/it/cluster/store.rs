//! A store that says it is shared, and that fails, is deaf or forgets when it is told to.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::broadcast;
use toolgate::store::{
    ChannelEvent, Entry, EntryVersion, Expect, Key, Listener, LogPage, MemoryStore, Store, StoreError,
    StoreFuture, Visibility,
};

/// One process's door to a store that several have.
#[derive(Debug)]
pub(super) struct FaultyStore {
    inner: Arc<dyn Store>,
    /// The same, if it is in memory.
    memory: Option<Arc<MemoryStore>>,
    is_unavailable: AtomicBool,
    /// How often it was asked for anything.
    n_operations: AtomicUsize,
    /// How long each session is kept, by its id.
    ttls: Mutex<HashMap<String, Duration>>,
    subscribers: Arc<Subscribers>,
}

/// What is heard, and when.
#[derive(Debug, Default)]
struct Subscribers {
    is_muted: AtomicBool,
    /// What is said of records of sessions arrives so many milliseconds late.
    delay_ms: AtomicUsize,
    senders: Mutex<Vec<broadcast::Sender<ChannelEvent>>>,
}

impl FaultyStore {
    /// In the memory of this process.
    pub(super) fn new(memory: Arc<MemoryStore>) -> FaultyStore {
        FaultyStore { memory: Some(Arc::clone(&memory)), ..FaultyStore::wrap(memory) }
    }

    /// Around any other store.
    pub(super) fn wrap(inner: Arc<dyn Store>) -> FaultyStore {
        FaultyStore {
            inner,
            memory: None,
            is_unavailable: AtomicBool::new(false),
            n_operations: AtomicUsize::new(0),
            ttls: Mutex::default(),
            subscribers: Arc::default(),
        }
    }

    /// Nothing is heard, until it is again: then it is known that something was missed.
    pub(super) fn set_muted(&self, is_deaf: bool) {
        if self.subscribers.is_muted.swap(is_deaf, Ordering::SeqCst) && !is_deaf {
            self.subscribers.senders.lock().unwrap().retain(|ear| ear.send(ChannelEvent::Lagged).is_ok());
        }
    }

    pub(super) fn set_delay(&self, millis: usize) {
        self.subscribers.delay_ms.store(millis, Ordering::SeqCst);
    }

    async fn forward_channel(&self, channel: &str) -> Result<Listener, StoreError> {
        let mut heard = self.access(|inner| inner.subscribe(channel)).await?;
        let (sender, receiver) = broadcast::channel(1024);
        let ears = Arc::clone(&self.subscribers);
        ears.senders.lock().unwrap().push(sender.clone());
        tokio::spawn(async move {
            while let Some(word) = heard.next().await {
                if ears.is_muted.load(Ordering::SeqCst) {
                    continue;
                }
                let late = ears.delay_ms.load(Ordering::SeqCst) as u64;
                let is_record =
                    matches!(&word, ChannelEvent::Message(bytes) if bytes.starts_with(b"{\"SessionUpdated"));
                if late > 0 && is_record {
                    let sender = sender.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_millis(late)).await;
                        let _ = sender.send(word);
                    });
                } else if sender.send(word).is_err() {
                    break;
                }
            }
        });
        Ok(Listener::new(receiver))
    }

    pub(super) fn set_unavailable(&self, is_away: bool) {
        self.is_unavailable.store(is_away, Ordering::SeqCst);
    }

    pub(super) fn n_operations(&self) -> usize {
        self.n_operations.load(Ordering::SeqCst)
    }

    /// How long a session is kept since somebody last said so.
    pub(super) fn ttl(&self, session: &str) -> Option<Duration> {
        self.ttls.lock().unwrap().get(session).copied()
    }

    fn record_ttl(&self, key: &Key, life: Option<Duration>) {
        let session = key.space().strip_prefix("nodes/session/").filter(|_| key.name() == "record");
        if let (Some(session), Some(life), false) =
            (session, life, self.is_unavailable.load(Ordering::SeqCst))
        {
            self.ttls.lock().unwrap().insert(session.to_owned(), life);
        }
    }

    /// Loses the log of changes, as a store without a file does when it starts again.
    pub(super) async fn delete_change_log(&self) {
        let log = Key::new("nodes/changes", "log");
        assert!(self.inner.delete(&log, Expect::Anything).await.unwrap(), "there was one");
    }

    /// How many bytes it holds, where that is known.
    pub(super) fn stored_bytes(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.used_bytes())
    }

    fn access<'a, T: Send + 'a>(
        &'a self,
        inside: impl FnOnce(&'a dyn Store) -> StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        self.n_operations.fetch_add(1, Ordering::SeqCst);
        if self.is_unavailable.load(Ordering::SeqCst) {
            return Box::pin(async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Err(StoreError::Unavailable("switched off".into()))
            });
        }
        inside(&*self.inner)
    }
}

impl Store for FaultyStore {
    fn get<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, Option<Entry>> {
        self.access(|inner| inner.get(key))
    }

    fn put<'a>(
        &'a self,
        key: &'a Key,
        value: Bytes,
        life: Option<Duration>,
        expect: Expect,
    ) -> StoreFuture<'a, Option<EntryVersion>> {
        self.record_ttl(key, life);
        self.access(|inner| inner.put(key, value, life, expect))
    }

    fn touch<'a>(&'a self, key: &'a Key, life: Duration) -> StoreFuture<'a, bool> {
        self.record_ttl(key, Some(life));
        self.access(|inner| inner.touch(key, life))
    }

    fn delete<'a>(&'a self, key: &'a Key, expect: Expect) -> StoreFuture<'a, bool> {
        self.access(|inner| inner.delete(key, expect))
    }

    fn list<'a>(
        &'a self,
        space: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> StoreFuture<'a, Vec<(Box<str>, Entry)>> {
        self.access(|inner| inner.list(space, after, most))
    }

    fn increment<'a>(&'a self, key: &'a Key, by: u64, life: Duration) -> StoreFuture<'a, u64> {
        self.access(|inner| inner.increment(key, by, life))
    }

    fn append<'a>(&'a self, log: &'a Key, value: Bytes, life: Duration, most: usize) -> StoreFuture<'a, u64> {
        self.access(|inner| inner.append(log, value, life, most))
    }

    fn read<'a>(&'a self, log: &'a Key, after: u64, most: usize) -> StoreFuture<'a, LogPage> {
        self.access(|inner| inner.read(log, after, most))
    }

    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> StoreFuture<'a, ()> {
        self.access(|inner| inner.publish(channel, message))
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> StoreFuture<'a, Listener> {
        Box::pin(self.forward_channel(channel))
    }

    fn visibility(&self) -> Visibility {
        Visibility::Cluster
    }
}
