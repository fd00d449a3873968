//! A shared store that fails, drops messages or loses data on request.

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

/// The connection of one process to a shared store.
#[derive(Debug)]
pub(super) struct FaultyStore {
    inner: Arc<dyn Store>,
    /// The same store, if it is in memory.
    memory: Option<Arc<MemoryStore>>,
    is_unavailable: AtomicBool,
    /// The number of operations.
    n_operations: AtomicUsize,
    /// The time to live of each session, by its id.
    ttls: Mutex<HashMap<String, Duration>>,
    subscribers: Arc<Subscribers>,
}

/// Which messages are delivered, and when.
#[derive(Debug, Default)]
struct Subscribers {
    is_muted: AtomicBool,
    /// The delay of messages about session records, in milliseconds.
    delay_ms: AtomicUsize,
    senders: Mutex<Vec<broadcast::Sender<ChannelEvent>>>,
}

impl FaultyStore {
    /// A store in the memory of this process.
    pub(super) fn new(memory: Arc<MemoryStore>) -> FaultyStore {
        FaultyStore { memory: Some(Arc::clone(&memory)), ..FaultyStore::wrap(memory) }
    }

    /// Wraps any other store.
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

    /// Stops the delivery of messages. When it resumes, subscribers learn that some were missed.
    pub(super) fn set_muted(&self, is_muted: bool) {
        if self.subscribers.is_muted.swap(is_muted, Ordering::SeqCst) && !is_muted {
            self.subscribers.senders.lock().unwrap().retain(|ear| ear.send(ChannelEvent::Lagged).is_ok());
        }
    }

    pub(super) fn set_delay(&self, millis: usize) {
        self.subscribers.delay_ms.store(millis, Ordering::SeqCst);
    }

    async fn forward_channel(&self, channel: &str) -> Result<Listener, StoreError> {
        let mut received = self.access(|inner| inner.subscribe(channel)).await?;
        let (sender, receiver) = broadcast::channel(1024);
        let ears = Arc::clone(&self.subscribers);
        ears.senders.lock().unwrap().push(sender.clone());
        tokio::spawn(async move {
            while let Some(word) = received.next().await {
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

    pub(super) fn set_unavailable(&self, is_unavailable: bool) {
        self.is_unavailable.store(is_unavailable, Ordering::SeqCst);
    }

    pub(super) fn n_operations(&self) -> usize {
        self.n_operations.load(Ordering::SeqCst)
    }

    /// Returns the time to live that was last set for a session.
    pub(super) fn ttl(&self, session: &str) -> Option<Duration> {
        self.ttls.lock().unwrap().get(session).copied()
    }

    fn record_ttl(&self, key: &Key, ttl: Option<Duration>) {
        let session = key.space().strip_prefix("nodes/session/").filter(|_| key.name() == "record");
        if let (Some(session), Some(ttl), false) = (session, ttl, self.is_unavailable.load(Ordering::SeqCst))
        {
            self.ttls.lock().unwrap().insert(session.to_owned(), ttl);
        }
    }

    /// Deletes the change log, as happens when a store without persistence restarts.
    pub(super) async fn delete_change_log(&self) {
        let log = Key::new("nodes/changes", "log");
        assert!(self.inner.delete(&log, Expect::Anything).await.unwrap(), "there was one");
    }

    /// Returns the number of stored bytes, where known.
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
        ttl: Option<Duration>,
        expect: Expect,
    ) -> StoreFuture<'a, Option<EntryVersion>> {
        self.record_ttl(key, ttl);
        self.access(|inner| inner.put(key, value, ttl, expect))
    }

    fn touch<'a>(&'a self, key: &'a Key, ttl: Duration) -> StoreFuture<'a, bool> {
        self.record_ttl(key, Some(ttl));
        self.access(|inner| inner.touch(key, ttl))
    }

    fn delete<'a>(&'a self, key: &'a Key, expect: Expect) -> StoreFuture<'a, bool> {
        self.access(|inner| inner.delete(key, expect))
    }

    fn list<'a>(
        &'a self,
        space: &'a str,
        after: Option<&'a str>,
        max: usize,
    ) -> StoreFuture<'a, Vec<(Box<str>, Entry)>> {
        self.access(|inner| inner.list(space, after, max))
    }

    fn increment<'a>(&'a self, key: &'a Key, by: u64, ttl: Duration) -> StoreFuture<'a, u64> {
        self.access(|inner| inner.increment(key, by, ttl))
    }

    fn append<'a>(&'a self, log: &'a Key, value: Bytes, ttl: Duration, max: usize) -> StoreFuture<'a, u64> {
        self.access(|inner| inner.append(log, value, ttl, max))
    }

    fn read<'a>(&'a self, log: &'a Key, after: u64, max: usize) -> StoreFuture<'a, LogPage> {
        self.access(|inner| inner.read(log, after, max))
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
