//! A store that several processes share, as far as a test can be several processes; and one that goes away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use toolgate::store::{
    Entry, EntryVersion, Expect, Key, Listener, LogPage, MemoryStore, Store, StoreError, StoreFuture,
    Visibility,
};

/// Clones are the same store, seen from other processes.
#[derive(Clone, Debug)]
pub(super) struct SharedStore {
    inner: Arc<Inner>,
    is_disconnected: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Inner {
    memory: MemoryStore,
    visibility: Visibility,
    is_unavailable: AtomicBool,
    n_writes: AtomicUsize,
    /// After so many more, one look fails.
    reads_until_failure: AtomicUsize,
}

impl SharedStore {
    pub(super) fn new() -> SharedStore {
        SharedStore::with_visibility(Visibility::Cluster)
    }

    pub(super) fn with_visibility(reach: Visibility) -> SharedStore {
        let inner = Inner {
            memory: MemoryStore::new(),
            visibility: reach,
            is_unavailable: AtomicBool::new(false),
            n_writes: AtomicUsize::new(0),
            reads_until_failure: AtomicUsize::new(0),
        };
        SharedStore { inner: Arc::new(inner), is_disconnected: Arc::default() }
    }

    /// The same, seen over a line of its own.
    pub(super) fn new_connection(&self) -> SharedStore {
        SharedStore { inner: Arc::clone(&self.inner), is_disconnected: Arc::default() }
    }

    /// Whoever sees it over this line cannot reach it from now on, or can again.
    pub(super) fn set_disconnected(&self, off: bool) {
        self.is_disconnected.store(off, Ordering::SeqCst);
    }

    /// The n-th look from now on fails, and no other.
    pub(super) fn fail_nth_read(&self, nth: usize) {
        self.inner.reads_until_failure.store(nth, Ordering::SeqCst);
    }

    /// Whether it has stumbled.
    pub(super) fn has_failed(&self) -> bool {
        self.inner.reads_until_failure.load(Ordering::SeqCst) == 0
    }

    /// Nobody can reach it from now on, or everybody can again.
    pub(super) fn set_unavailable(&self, away: bool) {
        self.inner.is_unavailable.store(away, Ordering::SeqCst);
    }

    /// How often something was written.
    pub(super) fn n_writes(&self) -> usize {
        self.inner.n_writes.load(Ordering::SeqCst)
    }

    pub(super) fn memory(&self) -> &MemoryStore {
        &self.inner.memory
    }

    fn or_unavailable<'a, T: 'a>(&'a self, fetching: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        if self.inner.is_unavailable.load(Ordering::SeqCst) || self.is_disconnected.load(Ordering::SeqCst) {
            return Box::pin(async { Err(StoreError::Unavailable("gone fishing".into())) });
        }
        fetching
    }
}

impl Store for SharedStore {
    fn get<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, Option<Entry>> {
        let less = |left: usize| left.checked_sub(1);
        if self.inner.reads_until_failure.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) == Ok(1) {
            return Box::pin(async { Err(StoreError::Unavailable("stumbled".into())) });
        }
        self.or_unavailable(self.inner.memory.get(key))
    }

    fn put<'a>(
        &'a self,
        key: &'a Key,
        value: Bytes,
        life: Option<Duration>,
        expect: Expect,
    ) -> StoreFuture<'a, Option<EntryVersion>> {
        self.inner.n_writes.fetch_add(1, Ordering::SeqCst);
        self.or_unavailable(self.inner.memory.put(key, value, life, expect))
    }

    fn touch<'a>(&'a self, key: &'a Key, life: Duration) -> StoreFuture<'a, bool> {
        self.or_unavailable(self.inner.memory.touch(key, life))
    }

    fn delete<'a>(&'a self, key: &'a Key, expect: Expect) -> StoreFuture<'a, bool> {
        self.or_unavailable(self.inner.memory.delete(key, expect))
    }

    fn list<'a>(
        &'a self,
        space: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> StoreFuture<'a, Vec<(Box<str>, Entry)>> {
        self.or_unavailable(self.inner.memory.list(space, after, most))
    }

    fn increment<'a>(&'a self, key: &'a Key, by: u64, life: Duration) -> StoreFuture<'a, u64> {
        self.or_unavailable(self.inner.memory.increment(key, by, life))
    }

    fn append<'a>(&'a self, log: &'a Key, value: Bytes, life: Duration, most: usize) -> StoreFuture<'a, u64> {
        self.or_unavailable(self.inner.memory.append(log, value, life, most))
    }

    fn read<'a>(&'a self, log: &'a Key, after: u64, most: usize) -> StoreFuture<'a, LogPage> {
        self.or_unavailable(self.inner.memory.read(log, after, most))
    }

    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> StoreFuture<'a, ()> {
        self.or_unavailable(self.inner.memory.publish(channel, message))
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> StoreFuture<'a, Listener> {
        self.or_unavailable(self.inner.memory.subscribe(channel))
    }

    fn visibility(&self) -> Visibility {
        self.inner.visibility
    }
}
