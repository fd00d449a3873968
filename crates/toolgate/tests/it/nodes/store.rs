//! A store that says it is shared, and that fails, is deaf or forgets when it is told to.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::broadcast;
use toolgate::store::{
    Entry, Expect, StoreFuture, ChannelEvent, Key, Listener, MemoryStore, LogPage, Visibility, Store, StoreError, EntryVersion,
};

/// One process's door to a store that several have.
#[derive(Debug)]
pub(super) struct Cupboard {
    inner: Arc<dyn Store>,
    /// The same, if it is in memory.
    memory: Option<Arc<MemoryStore>>,
    is_away: AtomicBool,
    /// How often it was asked for anything.
    asked: AtomicUsize,
    /// How long each session is kept, by its id.
    lives: Mutex<HashMap<String, Duration>>,
    ears: Arc<Ears>,
}

/// What is heard, and when.
#[derive(Debug, Default)]
struct Ears {
    is_deaf: AtomicBool,
    /// What is said of records of sessions arrives so many milliseconds late.
    late: AtomicUsize,
    all: Mutex<Vec<broadcast::Sender<ChannelEvent>>>,
}

impl Cupboard {
    /// In the memory of this process.
    pub(super) fn new(memory: Arc<MemoryStore>) -> Cupboard {
        Cupboard { memory: Some(Arc::clone(&memory)), ..Cupboard::of(memory) }
    }

    /// Around any other store.
    pub(super) fn of(inner: Arc<dyn Store>) -> Cupboard {
        Cupboard {
            inner,
            memory: None,
            is_away: AtomicBool::new(false),
            asked: AtomicUsize::new(0),
            lives: Mutex::default(),
            ears: Arc::default(),
        }
    }

    /// Nothing is heard, until it is again: then it is known that something was missed.
    pub(super) fn set_deaf(&self, is_deaf: bool) {
        if self.ears.is_deaf.swap(is_deaf, Ordering::SeqCst) && !is_deaf {
            self.ears.all.lock().unwrap().retain(|ear| ear.send(ChannelEvent::Lagged).is_ok());
        }
    }

    pub(super) fn set_late(&self, millis: usize) {
        self.ears.late.store(millis, Ordering::SeqCst);
    }

    async fn listen(&self, channel: &str) -> Result<Listener, StoreError> {
        let mut heard = self.door(|inner| inner.subscribe(channel)).await?;
        let (sender, receiver) = broadcast::channel(1024);
        let ears = Arc::clone(&self.ears);
        ears.all.lock().unwrap().push(sender.clone());
        tokio::spawn(async move {
            while let Some(word) = heard.next().await {
                if ears.is_deaf.load(Ordering::SeqCst) {
                    continue;
                }
                let late = ears.late.load(Ordering::SeqCst) as u64;
                let is_record = matches!(&word, ChannelEvent::Message(bytes) if bytes.starts_with(b"{\"SessionUpdated"));
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

    pub(super) fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    pub(super) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// How long a session is kept since somebody last said so.
    pub(super) fn life(&self, session: &str) -> Option<Duration> {
        self.lives.lock().unwrap().get(session).copied()
    }

    fn note_life(&self, key: &Key, life: Option<Duration>) {
        let session = key.space().strip_prefix("nodes/session/").filter(|_| key.name() == "record");
        if let (Some(session), Some(life), false) = (session, life, self.is_away.load(Ordering::SeqCst)) {
            self.lives.lock().unwrap().insert(session.to_owned(), life);
        }
    }

    /// Loses the log of changes, as a store without a file does when it starts again.
    pub(super) async fn lose_changes(&self) {
        let log = Key::new("nodes/changes", "log");
        assert!(self.inner.delete(&log, Expect::Anything).await.unwrap(), "there was one");
    }

    /// How many bytes it holds, where that is known.
    pub(super) fn held(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.used_bytes())
    }

    fn door<'a, T: Send + 'a>(
        &'a self,
        inside: impl FnOnce(&'a dyn Store) -> StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.is_away.load(Ordering::SeqCst) {
            return Box::pin(async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Err(StoreError::Unavailable("switched off".into()))
            });
        }
        inside(&*self.inner)
    }
}

impl Store for Cupboard {
    fn get<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, Option<Entry>> {
        self.door(|inner| inner.get(key))
    }

    fn put<'a>(
        &'a self,
        key: &'a Key,
        value: Bytes,
        life: Option<Duration>,
        expect: Expect,
    ) -> StoreFuture<'a, Option<EntryVersion>> {
        self.note_life(key, life);
        self.door(|inner| inner.put(key, value, life, expect))
    }

    fn touch<'a>(&'a self, key: &'a Key, life: Duration) -> StoreFuture<'a, bool> {
        self.note_life(key, Some(life));
        self.door(|inner| inner.touch(key, life))
    }

    fn delete<'a>(&'a self, key: &'a Key, expect: Expect) -> StoreFuture<'a, bool> {
        self.door(|inner| inner.delete(key, expect))
    }

    fn list<'a>(
        &'a self,
        space: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> StoreFuture<'a, Vec<(Box<str>, Entry)>> {
        self.door(|inner| inner.list(space, after, most))
    }

    fn increment<'a>(&'a self, key: &'a Key, by: u64, life: Duration) -> StoreFuture<'a, u64> {
        self.door(|inner| inner.increment(key, by, life))
    }

    fn append<'a>(&'a self, log: &'a Key, value: Bytes, life: Duration, most: usize) -> StoreFuture<'a, u64> {
        self.door(|inner| inner.append(log, value, life, most))
    }

    fn read<'a>(&'a self, log: &'a Key, after: u64, most: usize) -> StoreFuture<'a, LogPage> {
        self.door(|inner| inner.read(log, after, most))
    }

    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> StoreFuture<'a, ()> {
        self.door(|inner| inner.publish(channel, message))
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> StoreFuture<'a, Listener> {
        Box::pin(self.listen(channel))
    }

    fn visibility(&self) -> Visibility {
        Visibility::Cluster
    }
}
