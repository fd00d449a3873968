//! A store that several processes share, as far as a test can be several processes; and one that goes away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use toolgate::store::{
    Entry, Expect, StoreFuture, Key, Listener, MemoryStore, LogPage, Visibility, Store, StoreError, EntryVersion,
};

/// Clones are the same store, seen from other processes.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    inner: Arc<Inner>,
    is_cut_off: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Inner {
    memory: MemoryStore,
    reach: Visibility,
    is_away: AtomicBool,
    written: AtomicUsize,
    /// After so many more, one look fails.
    stumble: AtomicUsize,
}

impl Shared {
    pub(super) fn new() -> Shared {
        Shared::reaching(Visibility::Cluster)
    }

    pub(super) fn reaching(reach: Visibility) -> Shared {
        let inner = Inner {
            memory: MemoryStore::new(),
            reach,
            is_away: AtomicBool::new(false),
            written: AtomicUsize::new(0),
            stumble: AtomicUsize::new(0),
        };
        Shared { inner: Arc::new(inner), is_cut_off: Arc::default() }
    }

    /// The same, seen over a line of its own.
    pub(super) fn elsewhere(&self) -> Shared {
        Shared { inner: Arc::clone(&self.inner), is_cut_off: Arc::default() }
    }

    /// Whoever sees it over this line cannot reach it from now on, or can again.
    pub(super) fn cut_off(&self, off: bool) {
        self.is_cut_off.store(off, Ordering::SeqCst);
    }

    /// The n-th look from now on fails, and no other.
    pub(super) fn stumble(&self, nth: usize) {
        self.inner.stumble.store(nth, Ordering::SeqCst);
    }

    /// Whether it has stumbled.
    pub(super) fn has_stumbled(&self) -> bool {
        self.inner.stumble.load(Ordering::SeqCst) == 0
    }

    /// Nobody can reach it from now on, or everybody can again.
    pub(super) fn go_away(&self, away: bool) {
        self.inner.is_away.store(away, Ordering::SeqCst);
    }

    /// How often something was written.
    pub(super) fn written(&self) -> usize {
        self.inner.written.load(Ordering::SeqCst)
    }

    pub(super) fn memory(&self) -> &MemoryStore {
        &self.inner.memory
    }

    fn or_away<'a, T: 'a>(&'a self, fetching: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        if self.inner.is_away.load(Ordering::SeqCst) || self.is_cut_off.load(Ordering::SeqCst) {
            return Box::pin(async { Err(StoreError::Unavailable("gone fishing".into())) });
        }
        fetching
    }
}

impl Store for Shared {
    fn get<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, Option<Entry>> {
        let less = |left: usize| left.checked_sub(1);
        if self.inner.stumble.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) == Ok(1) {
            return Box::pin(async { Err(StoreError::Unavailable("stumbled".into())) });
        }
        self.or_away(self.inner.memory.get(key))
    }

    fn put<'a>(
        &'a self,
        key: &'a Key,
        value: Bytes,
        life: Option<Duration>,
        expect: Expect,
    ) -> StoreFuture<'a, Option<EntryVersion>> {
        self.inner.written.fetch_add(1, Ordering::SeqCst);
        self.or_away(self.inner.memory.put(key, value, life, expect))
    }

    fn touch<'a>(&'a self, key: &'a Key, life: Duration) -> StoreFuture<'a, bool> {
        self.or_away(self.inner.memory.touch(key, life))
    }

    fn delete<'a>(&'a self, key: &'a Key, expect: Expect) -> StoreFuture<'a, bool> {
        self.or_away(self.inner.memory.delete(key, expect))
    }

    fn list<'a>(
        &'a self,
        space: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> StoreFuture<'a, Vec<(Box<str>, Entry)>> {
        self.or_away(self.inner.memory.list(space, after, most))
    }

    fn increment<'a>(&'a self, key: &'a Key, by: u64, life: Duration) -> StoreFuture<'a, u64> {
        self.or_away(self.inner.memory.increment(key, by, life))
    }

    fn append<'a>(&'a self, log: &'a Key, value: Bytes, life: Duration, most: usize) -> StoreFuture<'a, u64> {
        self.or_away(self.inner.memory.append(log, value, life, most))
    }

    fn read<'a>(&'a self, log: &'a Key, after: u64, most: usize) -> StoreFuture<'a, LogPage> {
        self.or_away(self.inner.memory.read(log, after, most))
    }

    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> StoreFuture<'a, ()> {
        self.or_away(self.inner.memory.publish(channel, message))
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> StoreFuture<'a, Listener> {
        self.or_away(self.inner.memory.subscribe(channel))
    }

    fn visibility(&self) -> Visibility {
        self.inner.reach
    }
}
