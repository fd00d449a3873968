//! A store in the memory of this process, with a size limit.

mod shard;

use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use self::shard::{CellKey, CellKind, LOG_ENTRY_OVERHEAD_BYTES, MemoryShard, StoredCell, StoredValue};
use super::channels::Channels;
use super::{
    Entry, EntryVersion, Expect, Key, Listener, LogPage, Store, StoreError, StoreFuture, Visibility,
    is_expected,
};
use crate::util::clock::timer_now;
use crate::util::lock;

/// Number of locks over which spaces are distributed.
const SHARDS: usize = 16;

/// Number of operations after which expired cells are removed from another shard too.
const OPERATIONS_PER_SWEEP: usize = 64;

/// Limit of the expired cells removed by one operation, so that none takes long.
const MAX_EXPIRED_PER_OPERATION: usize = 64;

/// A store in the memory of this process, with a size limit.
///
/// ```
/// # use toolgate::store::{Expect, Key, MemoryStore, Store};
/// # async fn example() -> Result<(), toolgate::store::StoreError> {
/// let store = MemoryStore::new();
/// let key = Key::new("notes", "first");
/// store.put(&key, "remember the milk".into(), None, Expect::Absent).await?;
/// assert_eq!(store.get(&key).await?.map(|entry| entry.value), Some("remember the milk".into()));
/// # Ok(())
/// # }
/// ```
#[doc(alias = "session store")]
pub struct MemoryStore {
    shards: [Mutex<MemoryShard>; SHARDS],
    hasher: RandomState,
    last_version: AtomicU64,
    used_bytes: AtomicUsize,
    max_bytes: usize,
    /// Number of operations so far, for sweeping shards in turn.
    operations: AtomicUsize,
    channels: Arc<Channels>,
}

/// Shows the size only: values may be large and secret.
impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("used_bytes", &self.used_bytes)
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}

impl MemoryStore {
    /// Creates a store with a limit of 256 MiB.
    #[must_use]
    pub fn new() -> MemoryStore {
        MemoryStore::with_limit(256 << 20)
    }

    /// Creates a store with a limit in bytes, which includes names and bookkeeping.
    ///
    /// When the limit is reached, operations fail with [`StoreError::Full`]; no entry is evicted early.
    #[must_use]
    pub fn with_limit(bytes: usize) -> MemoryStore {
        MemoryStore {
            shards: Default::default(),
            hasher: RandomState::new(),
            last_version: AtomicU64::new(0),
            used_bytes: AtomicUsize::new(0),
            max_bytes: bytes,
            operations: AtomicUsize::new(0),
            channels: Arc::default(),
        }
    }

    /// Returns the bytes in use.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Locks the shard of a space and removes expired cells from it.
    fn shard(&self, space: &str) -> MutexGuard<'_, MemoryShard> {
        // Shards that are no longer used must be swept too.
        let n_operations = self.operations.fetch_add(1, Ordering::Relaxed);
        if n_operations.is_multiple_of(OPERATIONS_PER_SWEEP)
            && let Ok(mut other) = self.shards[n_operations / OPERATIONS_PER_SWEEP % SHARDS].try_lock()
        {
            self.remove_expired(&mut other, MAX_EXPIRED_PER_OPERATION);
        }
        let number = self.hasher.hash_one(space) % SHARDS as u64;
        let mut shard = lock(&self.shards[usize::try_from(number).unwrap_or(0)]);
        self.remove_expired(&mut shard, MAX_EXPIRED_PER_OPERATION);
        shard
    }

    /// Removes at most `limit` expired cells from a shard.
    fn remove_expired(&self, shard: &mut MemoryShard, limit: usize) {
        let now = timer_now();
        for _ in 0..limit {
            let Some(key) = shard.first_expired(now) else { break };
            self.remove(shard, key);
        }
    }

    /// Reserves bytes within the limit, removing expired cells if necessary.
    fn reserve(&self, shard: &mut MemoryShard, bytes: usize) -> Result<(), StoreError> {
        let try_reserve = || {
            let grow = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.max_bytes);
            self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow).is_ok()
        };
        if try_reserve() {
            return Ok(());
        }
        self.remove_expired(shard, usize::MAX);
        // Shards that are locked are skipped: waiting for them while holding this one could deadlock.
        for other in &self.shards {
            if let Ok(mut other) = other.try_lock() {
                self.remove_expired(&mut other, usize::MAX);
            }
        }
        if try_reserve() { Ok(()) } else { Err(StoreError::Full) }
    }

    fn remove(&self, shard: &mut MemoryShard, key: CellKey) -> bool {
        let Some(bytes) = shard.remove(key) else { return false };
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        true
    }

    /// Inserts or replaces a cell. If there is no room, nothing changes.
    fn insert(
        &self,
        shard: &mut MemoryShard,
        key: CellKey,
        value: StoredValue,
        expires: Option<Instant>,
    ) -> Result<(), StoreError> {
        let bytes = key.cell_bytes(&value);
        // Reserve the difference first. The bytes that both cells need are added before the old one is removed.
        let before = shard.cell(&key).map_or(0, |cell| cell.bytes);
        self.reserve(shard, bytes.saturating_sub(before))?;
        self.used_bytes.fetch_add(bytes.min(before), Ordering::Relaxed);
        self.remove(shard, key.clone());
        shard.insert(key, StoredCell { value, expires, bytes });
        Ok(())
    }

    fn put_now(
        &self,
        key: &Key,
        value: Bytes,
        ttl: Option<Duration>,
        expect: Expect,
    ) -> Result<Option<EntryVersion>, StoreError> {
        let mut shard = self.shard(key.space());
        let current = shard.entry(key).map(|entry| entry.version);
        if !is_expected(expect, current) {
            return Ok(None);
        }
        let version = EntryVersion(self.last_version.fetch_add(1, Ordering::Relaxed) + 1);
        let entry = StoredValue::Entry(Entry { value, version });
        self.insert(&mut shard, CellKey::new(CellKind::Entry, key), entry, ttl.and_then(expiry))?;
        Ok(Some(version))
    }

    fn delete_now(&self, key: &Key, expect: Expect) -> bool {
        let mut shard = self.shard(key.space());
        let current = shard.entry(key).map(|entry| entry.version);
        let log = CellKey::new(CellKind::Log, key);
        let had_log = expect == Expect::Anything && self.remove(&mut shard, log);
        if current.is_none() || !is_expected(expect, current) {
            return had_log;
        }
        self.remove(&mut shard, CellKey::new(CellKind::Entry, key))
    }

    fn increment_now(&self, key: &Key, by: u64, ttl: Duration) -> Result<u64, StoreError> {
        let cell_key = CellKey::new(CellKind::Counter, key);
        let mut shard = self.shard(key.space());
        if let Some(StoredCell { value: StoredValue::Counter(count), .. }) = shard.cell_mut(&cell_key) {
            *count = count.saturating_add(by);
            return Ok(*count);
        }
        self.insert(&mut shard, cell_key, StoredValue::Counter(by), expiry(ttl))?;
        Ok(by)
    }

    fn append_now(&self, key: &Key, value: Bytes, ttl: Duration, limit: usize) -> Result<u64, StoreError> {
        let cell_key = CellKey::new(CellKind::Log, key);
        let mut shard = self.shard(key.space());
        let expires = expiry(ttl);
        let added = LOG_ENTRY_OVERHEAD_BYTES + value.len();
        // Reserved first, so that the log is unchanged if there is no room.
        self.reserve(&mut shard, added)?;
        let Some(StoredCell { value: StoredValue::Log { next, entries }, bytes, .. }) =
            shard.cell_mut(&cell_key)
        else {
            self.used_bytes.fetch_sub(added, Ordering::Relaxed);
            let log = StoredValue::Log { next: 2, entries: VecDeque::from([value]) };
            return self.insert(&mut shard, cell_key, log, expires).map(|()| 1);
        };
        entries.push_back(value);
        let excess = entries.len().saturating_sub(limit.max(1));
        let freed: usize = entries.drain(..excess).map(|value| LOG_ENTRY_OVERHEAD_BYTES + value.len()).sum();
        let number = *next;
        *next += 1;
        *bytes = *bytes + added - freed;
        self.used_bytes.fetch_sub(freed, Ordering::Relaxed);
        shard.set_expiry(cell_key, expires);
        Ok(number)
    }

    fn read_now(&self, key: &Key, after: u64, limit: usize) -> LogPage {
        let shard = self.shard(key.space());
        let cell = shard.cell(&CellKey::new(CellKind::Log, key));
        let Some(StoredValue::Log { next, entries }) = cell.map(|cell| &cell.value) else {
            return LogPage { oldest: 1, newest: 0, entries: Vec::new() };
        };
        let oldest = next - entries.len() as u64;
        let skipped = usize::try_from(after.saturating_add(1).saturating_sub(oldest)).unwrap_or(usize::MAX);
        let page = (oldest..).zip(entries).skip(skipped).take(limit);
        let page = page.map(|(number, value)| (number, value.clone())).collect();
        LogPage { oldest, newest: next - 1, entries: page }
    }
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.channels.close();
    }
}

impl Store for MemoryStore {
    fn get<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, Option<Entry>> {
        let found = self.shard(key.space()).entry(key).cloned();
        ready(Ok(found))
    }

    fn put<'a>(
        &'a self,
        key: &'a Key,
        value: Bytes,
        ttl: Option<Duration>,
        expect: Expect,
    ) -> StoreFuture<'a, Option<EntryVersion>> {
        ready(self.put_now(key, value, ttl, expect))
    }

    fn touch<'a>(&'a self, key: &'a Key, ttl: Duration) -> StoreFuture<'a, bool> {
        let cell_key = CellKey::new(CellKind::Entry, key);
        ready(Ok(self.shard(key.space()).set_expiry(cell_key, expiry(ttl))))
    }

    fn delete<'a>(&'a self, key: &'a Key, expect: Expect) -> StoreFuture<'a, bool> {
        ready(Ok(self.delete_now(key, expect)))
    }

    fn list<'a>(
        &'a self,
        space: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(Box<str>, Entry)>> {
        ready(Ok(self.shard(space).list(space, after, limit)))
    }

    fn increment<'a>(&'a self, key: &'a Key, by: u64, ttl: Duration) -> StoreFuture<'a, u64> {
        ready(self.increment_now(key, by, ttl))
    }

    fn append<'a>(&'a self, log: &'a Key, value: Bytes, ttl: Duration, limit: usize) -> StoreFuture<'a, u64> {
        ready(self.append_now(log, value, ttl, limit))
    }

    fn read<'a>(&'a self, log: &'a Key, after: u64, limit: usize) -> StoreFuture<'a, LogPage> {
        ready(Ok(self.read_now(log, after, limit)))
    }

    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> StoreFuture<'a, ()> {
        self.channels.publish(channel, &message);
        ready(Ok(()))
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> StoreFuture<'a, Listener> {
        ready(Ok(self.channels.subscribe(channel)))
    }

    fn visibility(&self) -> Visibility {
        Visibility::Process
    }
}

/// Returns when a TTL that starts now ends, or `None` if that is too far in the future to represent.
fn expiry(ttl: Duration) -> Option<Instant> {
    timer_now().checked_add(ttl)
}

fn ready<'a, T: Send + 'a>(value: Result<T, StoreError>) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

#[cfg(test)]
mod tests;
