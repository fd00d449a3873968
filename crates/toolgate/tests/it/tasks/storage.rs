//! A store that several simulated processes share, and that can become unavailable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use toolgate::store::{
    Entry, EntryVersion, Expect, Key, Listener, LogPage, MemoryStore, Store, StoreError, StoreFuture,
    Visibility,
};

/// Clones are the same store, as seen by other processes.
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
    /// One read fails after this many.
    reads_until_failure: AtomicUsize,
}

impl SharedStore {
    pub(super) fn new() -> SharedStore {
        SharedStore::with_visibility(Visibility::Cluster)
    }

    pub(super) fn with_visibility(visibility: Visibility) -> SharedStore {
        let inner = Inner {
            memory: MemoryStore::new(),
            visibility,
            is_unavailable: AtomicBool::new(false),
            n_writes: AtomicUsize::new(0),
            reads_until_failure: AtomicUsize::new(0),
        };
        SharedStore { inner: Arc::new(inner), is_disconnected: Arc::default() }
    }

    /// Returns the same store over another connection.
    pub(super) fn new_connection(&self) -> SharedStore {
        SharedStore { inner: Arc::clone(&self.inner), is_disconnected: Arc::default() }
    }

    /// Disconnects or reconnects this connection.
    pub(super) fn set_disconnected(&self, is_disconnected: bool) {
        self.is_disconnected.store(is_disconnected, Ordering::SeqCst);
    }

    /// Makes the n-th read from now fail, and no other.
    pub(super) fn fail_nth_read(&self, nth: usize) {
        self.inner.reads_until_failure.store(nth, Ordering::SeqCst);
    }

    /// Returns whether that read has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.inner.reads_until_failure.load(Ordering::SeqCst) == 0
    }

    /// Makes the store unavailable or available for all.
    pub(super) fn set_unavailable(&self, is_unavailable: bool) {
        self.inner.is_unavailable.store(is_unavailable, Ordering::SeqCst);
    }

    /// Returns the number of writes.
    pub(super) fn n_writes(&self) -> usize {
        self.inner.n_writes.load(Ordering::SeqCst)
    }

    pub(super) fn memory(&self) -> &MemoryStore {
        &self.inner.memory
    }

    fn or_unavailable<'a, T: 'a>(&'a self, future: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        if self.inner.is_unavailable.load(Ordering::SeqCst) || self.is_disconnected.load(Ordering::SeqCst) {
            return Box::pin(async { Err(StoreError::Unavailable("gone fishing".into())) });
        }
        future
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
        ttl: Option<Duration>,
        expect: Expect,
    ) -> StoreFuture<'a, Option<EntryVersion>> {
        self.inner.n_writes.fetch_add(1, Ordering::SeqCst);
        self.or_unavailable(self.inner.memory.put(key, value, ttl, expect))
    }

    fn touch<'a>(&'a self, key: &'a Key, ttl: Duration) -> StoreFuture<'a, bool> {
        self.or_unavailable(self.inner.memory.touch(key, ttl))
    }

    fn delete<'a>(&'a self, key: &'a Key, expect: Expect) -> StoreFuture<'a, bool> {
        self.or_unavailable(self.inner.memory.delete(key, expect))
    }

    fn list<'a>(
        &'a self,
        space: &'a str,
        after: Option<&'a str>,
        max: usize,
    ) -> StoreFuture<'a, Vec<(Box<str>, Entry)>> {
        self.or_unavailable(self.inner.memory.list(space, after, max))
    }

    fn increment<'a>(&'a self, key: &'a Key, by: u64, ttl: Duration) -> StoreFuture<'a, u64> {
        self.or_unavailable(self.inner.memory.increment(key, by, ttl))
    }

    fn append<'a>(&'a self, log: &'a Key, value: Bytes, ttl: Duration, max: usize) -> StoreFuture<'a, u64> {
        self.or_unavailable(self.inner.memory.append(log, value, ttl, max))
    }

    fn read<'a>(&'a self, log: &'a Key, after: u64, max: usize) -> StoreFuture<'a, LogPage> {
        self.or_unavailable(self.inner.memory.read(log, after, max))
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
