//! A store that several processes share, as far as a test can be several processes; and one that goes away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use toolgate::store::{
    Entry, Expect, Fetching, Key, Listener, MemoryStore, Page, Reach, Store, StoreError, Version,
};

/// Clones are the same store, seen from other processes.
#[derive(Clone, Debug)]
pub(super) struct Shared(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    memory: MemoryStore,
    reach: Reach,
    is_away: AtomicBool,
    written: AtomicUsize,
}

impl Shared {
    pub(super) fn new() -> Shared {
        Shared::reaching(Reach::Processes)
    }

    pub(super) fn reaching(reach: Reach) -> Shared {
        Shared(Arc::new(Inner {
            memory: MemoryStore::new(),
            reach,
            is_away: AtomicBool::new(false),
            written: AtomicUsize::new(0),
        }))
    }

    /// Nobody can reach it from now on, or everybody can again.
    pub(super) fn go_away(&self, away: bool) {
        self.0.is_away.store(away, Ordering::SeqCst);
    }

    /// How often something was written.
    pub(super) fn written(&self) -> usize {
        self.0.written.load(Ordering::SeqCst)
    }

    pub(super) fn memory(&self) -> &MemoryStore {
        &self.0.memory
    }

    fn or_away<'a, T: 'a>(&'a self, fetching: Fetching<'a, T>) -> Fetching<'a, T> {
        if self.0.is_away.load(Ordering::SeqCst) {
            return Box::pin(async { Err(StoreError::Unavailable("gone fishing".into())) });
        }
        fetching
    }
}

impl Store for Shared {
    fn get<'a>(&'a self, key: &'a Key) -> Fetching<'a, Option<Entry>> {
        self.or_away(self.0.memory.get(key))
    }

    fn put<'a>(
        &'a self,
        key: &'a Key,
        value: Bytes,
        life: Option<Duration>,
        expect: Expect,
    ) -> Fetching<'a, Option<Version>> {
        self.0.written.fetch_add(1, Ordering::SeqCst);
        self.or_away(self.0.memory.put(key, value, life, expect))
    }

    fn touch<'a>(&'a self, key: &'a Key, life: Duration) -> Fetching<'a, bool> {
        self.or_away(self.0.memory.touch(key, life))
    }

    fn delete<'a>(&'a self, key: &'a Key, expect: Expect) -> Fetching<'a, bool> {
        self.or_away(self.0.memory.delete(key, expect))
    }

    fn list<'a>(
        &'a self,
        space: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> Fetching<'a, Vec<(Box<str>, Entry)>> {
        self.or_away(self.0.memory.list(space, after, most))
    }

    fn count<'a>(&'a self, key: &'a Key, by: u64, life: Duration) -> Fetching<'a, u64> {
        self.or_away(self.0.memory.count(key, by, life))
    }

    fn append<'a>(&'a self, log: &'a Key, value: Bytes, life: Duration, most: usize) -> Fetching<'a, u64> {
        self.or_away(self.0.memory.append(log, value, life, most))
    }

    fn read<'a>(&'a self, log: &'a Key, after: u64, most: usize) -> Fetching<'a, Page> {
        self.or_away(self.0.memory.read(log, after, most))
    }

    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> Fetching<'a, ()> {
        self.or_away(self.0.memory.publish(channel, message))
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> Fetching<'a, Listener> {
        self.or_away(self.0.memory.subscribe(channel))
    }

    fn reach(&self) -> Reach {
        self.0.reach
    }
}
