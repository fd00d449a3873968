//! Everything in the memory of this process, within a bound.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::channels::Channels;
use super::{
    Entry, EntryVersion, Expect, Key, Listener, LogPage, Store, StoreError, StoreFuture, Visibility,
    is_expected,
};
use crate::util::clock::timer_now;

/// Spaces are spread over so many locks.
const SHARDS: usize = 16;

/// What an entry costs beside its bytes and its names, roughly.
const ENTRY_OVERHEAD_BYTES: usize = 400;

/// What one more line of a log costs beside its bytes.
const LINE_OVERHEAD_BYTES: usize = 32;

/// Every so many operations, another shard than the one they use is swept too.
const OPERATIONS_PER_SWEEP: usize = 64;

/// How many expired entries one operation clears away at most, so that none takes long.
const MAX_EXPIRED_PER_OPERATION: usize = 64;

/// Keeps everything in the memory of this process, and at most so many bytes of it.
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
pub struct MemoryStore {
    shards: [Mutex<MemoryShard>; SHARDS],
    hasher: RandomState,
    last_version: AtomicU64,
    used_bytes: AtomicUsize,
    max_bytes: usize,
    operations: AtomicUsize,
    channels: Arc<Channels>,
}

/// Nobody wants to see all that is kept, and in a log it has no place.
impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("held", &self.used_bytes)
            .field("most", &self.max_bytes)
            .finish_non_exhaustive()
    }
}

/// What expires, soonest first, and behind it what is kept, space by space. Both are in one tree, because each kind of
/// tree brings all of its code into the program.
#[derive(Default)]
struct MemoryShard(BTreeMap<CellKey, StoredCell>);

/// Entries, counters and logs have names of their own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CellKey {
    role: CellRole,
    space: Box<str>,
    kind: Kind,
    name: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CellRole {
    /// Says when the thing of this name expires. The cell is empty.
    Expiry(Instant),
    /// Has the thing itself.
    Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Entry,
    Count,
    Log,
}

#[derive(Debug, Default)]
struct StoredCell {
    value: StoredValue,
    expires: Option<Instant>,
    bytes: usize,
}

#[derive(Debug, Default)]
enum StoredValue {
    #[default]
    Empty,
    Entry(Entry),
    Count(u64),
    Log {
        next: u64,
        log: VecDeque<Bytes>,
    },
}

impl MemoryStore {
    /// At most 256 MiB.
    #[must_use]
    pub fn new() -> MemoryStore {
        MemoryStore::with_limit(256 << 20)
    }

    /// At most this many bytes, names and what keeping them costs included. What is more is refused, never forgotten
    /// early.
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

    /// How many bytes it holds now.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// The shard of a space, without what has expired there.
    fn shard(&self, space: &str) -> MutexGuard<'_, MemoryShard> {
        // Where nobody comes by, what has expired would stay.
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

    /// Clears away what has expired in a shard, at most so much.
    fn remove_expired(&self, shard: &mut MemoryShard, most: usize) {
        let now = timer_now();
        for _ in 0..most {
            match shard.0.first_key_value() {
                Some((CellKey { role: CellRole::Expiry(when), .. }, _)) if *when <= now => {}
                _ => break,
            }
            if let Some((row, _)) = shard.0.pop_first() {
                self.remove(shard, CellKey { role: CellRole::Value, ..row });
            }
        }
    }

    /// Takes so many more bytes, if there is room for them.
    fn reserve(&self, shard: &mut MemoryShard, bytes: usize) -> Result<(), StoreError> {
        let take = || {
            let grown = |held: usize| held.checked_add(bytes).filter(|held| *held <= self.max_bytes);
            self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok()
        };
        if take() {
            return Ok(());
        }
        // What has expired needs no room. A shard that somebody is in is left out, so that no two wait for each other.
        self.remove_expired(shard, usize::MAX);
        for other in &self.shards {
            if let Ok(mut other) = other.try_lock() {
                self.remove_expired(&mut other, usize::MAX);
            }
        }
        if take() { Ok(()) } else { Err(StoreError::Full) }
    }

    fn remove(&self, shard: &mut MemoryShard, row: CellKey) -> bool {
        let Some(cell) = shard.0.remove(&row) else { return false };
        shard.reschedule(row, cell.expires, None);
        self.used_bytes.fetch_sub(cell.bytes, Ordering::Relaxed);
        true
    }

    /// Puts a cell in its place. What was there is gone; if there is no room, it stays.
    fn insert(
        &self,
        shard: &mut MemoryShard,
        row: CellKey,
        kept: StoredValue,
        expires: Option<Instant>,
    ) -> Result<(), StoreError> {
        // Names stand twice: once where the entry is, once where it is said when it expires.
        let bytes = ENTRY_OVERHEAD_BYTES + 2 * (row.space.len() + row.name.len()) + kept.bytes();
        // Room for the difference first, then the old one goes without giving back what is taken over.
        let before = shard.cell(&row).map_or(0, |cell| cell.bytes);
        self.reserve(shard, bytes.saturating_sub(before))?;
        let shared = bytes.min(before);
        self.used_bytes.fetch_add(shared, Ordering::Relaxed);
        self.remove(shard, row.clone());
        shard.0.insert(row.clone(), StoredCell { value: kept, expires, bytes });
        shard.reschedule(row, None, expires);
        Ok(())
    }

    fn put_now(
        &self,
        key: &Key,
        value: Bytes,
        life: Option<Duration>,
        expect: Expect,
    ) -> Result<Option<EntryVersion>, StoreError> {
        let row = CellKey::for_key(Kind::Entry, key);
        let mut shard = self.shard(key.space());
        let there = shard.entry(key).map(|entry| entry.version);
        if !is_expected(expect, there) {
            return Ok(None);
        }
        let version = EntryVersion(self.last_version.fetch_add(1, Ordering::Relaxed) + 1);
        let entry = StoredValue::Entry(Entry { value, version });
        self.insert(&mut shard, row, entry, life.and_then(expiry))?;
        Ok(Some(version))
    }

    fn touch_now(&self, key: &Key, life: Duration) -> bool {
        let row = CellKey::for_key(Kind::Entry, key);
        let mut shard = self.shard(key.space());
        let Some(cell) = shard.cell_mut(&row) else { return false };
        let expires = expiry(life);
        let before = std::mem::replace(&mut cell.expires, expires);
        shard.reschedule(row, before, expires);
        true
    }

    fn delete_now(&self, key: &Key, expect: Expect) -> bool {
        let mut shard = self.shard(key.space());
        let there = shard.entry(key).map(|entry| entry.version);
        let log = CellKey::for_key(Kind::Log, key);
        let had_log = expect == Expect::Anything && self.remove(&mut shard, log);
        if there.is_none() || !is_expected(expect, there) {
            return had_log;
        }
        self.remove(&mut shard, CellKey::for_key(Kind::Entry, key))
    }

    fn list_now(&self, space: &str, after: Option<&str>, most: usize) -> Vec<(Box<str>, Entry)> {
        let shard = self.shard(space);
        let place = |kind, name: &str| CellKey::new(kind, space, name);
        let from = match after {
            Some(after) => Bound::Excluded(place(Kind::Entry, after)),
            None => Bound::Included(place(Kind::Entry, "")),
        };
        // Entries come before counters.
        let to = Bound::Excluded(place(Kind::Count, ""));
        let now = timer_now();
        let mut found = Vec::new();
        for (row, cell) in shard.0.range((from, to)) {
            if found.len() >= most {
                break;
            }
            if let StoredValue::Entry(entry) = &cell.value
                && cell.is_alive(now)
            {
                found.push((row.name.clone(), entry.clone()));
            }
        }
        found
    }

    fn count_now(&self, key: &Key, by: u64, life: Duration) -> Result<u64, StoreError> {
        let row = CellKey::for_key(Kind::Count, key);
        let mut shard = self.shard(key.space());
        if let Some(StoredCell { value: StoredValue::Count(count), .. }) = shard.cell_mut(&row) {
            *count = count.saturating_add(by);
            return Ok(*count);
        }
        self.insert(&mut shard, row, StoredValue::Count(by), expiry(life))?;
        Ok(by)
    }

    fn append_now(&self, key: &Key, value: Bytes, life: Duration, most: usize) -> Result<u64, StoreError> {
        let row = CellKey::for_key(Kind::Log, key);
        let mut shard = self.shard(key.space());
        let expires = expiry(life);
        // Room first: a line that finds none leaves the log as it is.
        self.reserve(&mut shard, LINE_OVERHEAD_BYTES + value.len())?;
        let taken = LINE_OVERHEAD_BYTES + value.len();
        let Some(StoredCell { value: StoredValue::Log { next, log }, expires: until, bytes }) =
            shard.cell_mut(&row)
        else {
            self.used_bytes.fetch_sub(taken, Ordering::Relaxed);
            let kept = StoredValue::Log { next: 2, log: VecDeque::from([value]) };
            return self.insert(&mut shard, row, kept, expires).map(|()| 1);
        };
        log.push_back(value);
        let over = log.len().saturating_sub(most.max(1));
        let freed: usize = log.drain(..over).map(|line| LINE_OVERHEAD_BYTES + line.len()).sum();
        let number = *next;
        *next += 1;
        *bytes = *bytes + taken - freed;
        let before = std::mem::replace(until, expires);
        self.used_bytes.fetch_sub(freed, Ordering::Relaxed);
        shard.reschedule(row, before, expires);
        Ok(number)
    }

    fn read_now(&self, key: &Key, after: u64, most: usize) -> LogPage {
        let row = CellKey::for_key(Kind::Log, key);
        let mut shard = self.shard(key.space());
        let Some(StoredValue::Log { next, log }) = shard.cell_mut(&row).map(|cell| &cell.value) else {
            return LogPage { oldest: 1, newest: 0, entries: Vec::new() };
        };
        let oldest = next - log.len() as u64;
        let skipped = usize::try_from(after.saturating_add(1).saturating_sub(oldest)).unwrap_or(usize::MAX);
        let mut entries = Vec::new();
        for (number, value) in (oldest..).zip(log).skip(skipped).take(most) {
            entries.push((number, value.clone()));
        }
        LogPage { oldest, newest: next - 1, entries }
    }
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
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
        life: Option<Duration>,
        expect: Expect,
    ) -> StoreFuture<'a, Option<EntryVersion>> {
        ready(self.put_now(key, value, life, expect))
    }

    fn touch<'a>(&'a self, key: &'a Key, life: Duration) -> StoreFuture<'a, bool> {
        ready(Ok(self.touch_now(key, life)))
    }

    fn delete<'a>(&'a self, key: &'a Key, expect: Expect) -> StoreFuture<'a, bool> {
        ready(Ok(self.delete_now(key, expect)))
    }

    fn list<'a>(
        &'a self,
        space: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> StoreFuture<'a, Vec<(Box<str>, Entry)>> {
        ready(Ok(self.list_now(space, after, most)))
    }

    fn increment<'a>(&'a self, key: &'a Key, by: u64, life: Duration) -> StoreFuture<'a, u64> {
        ready(self.count_now(key, by, life))
    }

    fn append<'a>(&'a self, log: &'a Key, value: Bytes, life: Duration, most: usize) -> StoreFuture<'a, u64> {
        ready(self.append_now(log, value, life, most))
    }

    fn read<'a>(&'a self, log: &'a Key, after: u64, most: usize) -> StoreFuture<'a, LogPage> {
        ready(Ok(self.read_now(log, after, most)))
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

impl MemoryShard {
    fn cell(&self, row: &CellKey) -> Option<&StoredCell> {
        self.0.get(row).filter(|cell| cell.is_alive(timer_now()))
    }

    fn cell_mut(&mut self, row: &CellKey) -> Option<&mut StoredCell> {
        self.0.get_mut(row).filter(|cell| cell.is_alive(timer_now()))
    }

    /// Notes when a cell expires, instead of when it did.
    fn reschedule(&mut self, mut row: CellKey, before: Option<Instant>, expires: Option<Instant>) {
        if before == expires {
            return;
        }
        if let Some(before) = before {
            row.role = CellRole::Expiry(before);
            self.0.remove(&row);
        }
        if let Some(expires) = expires {
            row.role = CellRole::Expiry(expires);
            self.0.insert(row, StoredCell::default());
        }
    }

    fn entry(&self, key: &Key) -> Option<&Entry> {
        match &self.cell(&CellKey::for_key(Kind::Entry, key))?.value {
            StoredValue::Entry(entry) => Some(entry),
            _ => None,
        }
    }
}

impl StoredCell {
    fn is_alive(&self, now: Instant) -> bool {
        self.expires.is_none_or(|expires| expires > now)
    }
}

impl CellKey {
    /// The row of a thing itself.
    fn for_key(kind: Kind, key: &Key) -> CellKey {
        CellKey::new(kind, key.space(), key.name())
    }

    fn new(kind: Kind, space: &str, name: &str) -> CellKey {
        CellKey { role: CellRole::Value, space: space.into(), kind, name: name.into() }
    }
}

impl StoredValue {
    fn bytes(&self) -> usize {
        match self {
            StoredValue::Empty => 0,
            StoredValue::Entry(entry) => entry.value.len(),
            StoredValue::Count(_) => 8,
            StoredValue::Log { log, .. } => log.iter().map(|value| value.len() + LINE_OVERHEAD_BYTES).sum(),
        }
    }
}

/// When a life that begins now ends; one too long to reckon with does not.
fn expiry(life: Duration) -> Option<Instant> {
    timer_now().checked_add(life)
}

fn ready<'a, T: Send + 'a>(value: Result<T, StoreError>) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.channels.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    fn key(name: &str) -> Key {
        Key::new("space", name)
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_forgotten_gives_its_room_back() {
        let store = MemoryStore::new();
        let value = Bytes::from(vec![7; 1000]);
        for round in 0..50 {
            let name = format!("n{}", round % 7);
            store.put(&key(&name), value.slice(..round * 10), Some(TTL), Expect::Anything).await.unwrap();
            store.append(&key(&name), value.slice(..round * 5), TTL, 3).await.unwrap();
            store.increment(&key(&name), 2, TTL).await.unwrap();
            store.touch(&key(&name), TTL * 2).await.unwrap();
        }
        assert!(store.used_bytes() > 1000);
        for name in 0..3 {
            assert!(store.delete(&key(&format!("n{name}")), Expect::Anything).await.unwrap());
        }
        tokio::time::advance(TTL * 3).await;
        assert!(store.get(&key("n5")).await.unwrap().is_none());
        assert_eq!(store.used_bytes(), 0);
        let shards = store.shards.iter().map(|shard| lock(shard));
        assert!(shards.into_iter().all(|shard| shard.0.is_empty()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_store_changes_nothing_and_has_room_again_when_something_expires() {
        let store = MemoryStore::with_limit(4500);
        let kilobyte = Bytes::from(vec![1; 1000]);
        store.put(&key("a"), kilobyte.clone(), None, Expect::Absent).await.unwrap();
        for number in 1..=2 {
            assert_eq!(store.append(&key("log"), kilobyte.clone(), TTL, 9).await, Ok(number));
        }
        let held = store.used_bytes();
        let elsewhere = Key::new("elsewhere", "b");
        assert_eq!(store.append(&key("log"), kilobyte.clone(), TTL, 9).await, Err(StoreError::Full));
        assert_eq!(
            store.put(&elsewhere, kilobyte.clone(), None, Expect::Absent).await,
            Err(StoreError::Full)
        );
        let double = Bytes::from(vec![1; 2000]);
        assert_eq!(store.put(&key("a"), double, None, Expect::Anything).await, Err(StoreError::Full));
        assert_eq!(store.used_bytes(), held);
        assert_eq!(store.get(&key("a")).await.unwrap().unwrap().value, kilobyte);
        assert_eq!(store.read(&key("log"), 0, 9).await.unwrap().entries.len(), 2, "the log is as it was");
        tokio::time::advance(TTL * 2).await;
        assert!(store.put(&elsewhere, kilobyte, None, Expect::Absent).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_life_without_end_is_none_too_long() {
        let store = MemoryStore::new();
        store.put(&key("a"), "a".into(), Some(Duration::MAX), Expect::Absent).await.unwrap();
        assert!(store.touch(&key("a"), Duration::MAX).await.unwrap());
        store.append(&key("a"), "a".into(), Duration::MAX, 1).await.unwrap();
        store.increment(&key("a"), u64::MAX, Duration::MAX).await.unwrap();
        assert_eq!(store.increment(&key("a"), 1, Duration::MAX).await, Ok(u64::MAX));
        assert!(store.get(&key("a")).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn the_bound_holds_under_many_writers() {
        let store = Arc::new(MemoryStore::with_limit(100_000));
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..8 {
            let store = Arc::clone(&store);
            writers.spawn_blocking(move || {
                for number in 0..200 {
                    let key = Key::new(format!("space {writer}"), format!("{number}"));
                    let _ = store.put_now(&key, Bytes::from(vec![0; 500]), None, Expect::Anything);
                    assert!(store.used_bytes() <= 100_000);
                }
            });
        }
        while let Some(ended) = writers.join_next().await {
            ended.unwrap();
        }
        assert!(store.used_bytes() > 90_000);
    }
}
