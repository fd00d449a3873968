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
use super::{Entry, Expect, Fetching, Key, Listener, Page, Reach, Store, StoreError, Version, meets};
use crate::clock::timer_now;

/// Spaces are spread over so many locks.
const SHARDS: usize = 16;

/// What an entry costs beside its bytes and its names, roughly.
const OVERHEAD: usize = 400;

/// What one more line of a log costs beside its bytes.
const LINE: usize = 32;

/// Every so many operations, another shard than the one they use is swept too.
const ROUND: usize = 64;

/// How many expired entries one operation clears away at most, so that none takes long.
const CLEARED: usize = 64;

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
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    versions: AtomicU64,
    held: AtomicUsize,
    most: usize,
    operations: AtomicUsize,
    channels: Arc<Channels>,
}

/// Nobody wants to see all that is kept, and in a log it has no place.
impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("held", &self.held)
            .field("most", &self.most)
            .finish_non_exhaustive()
    }
}

/// What expires, soonest first, and behind it what is kept, space by space. Both are in one tree, because each kind of
/// tree brings all of its code into the program.
#[derive(Default)]
struct Shard(BTreeMap<Row, Cell>);

/// Entries, counters and logs have names of their own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    what: What,
    space: Box<str>,
    kind: Kind,
    name: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// Says when the thing of this name expires. The cell is empty.
    Due(Instant),
    /// Has the thing itself.
    Kept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Entry,
    Count,
    Log,
}

#[derive(Debug, Default)]
struct Cell {
    kept: Kept,
    expires: Option<Instant>,
    bytes: usize,
}

#[derive(Debug, Default)]
enum Kept {
    #[default]
    Nothing,
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
            versions: AtomicU64::new(0),
            held: AtomicUsize::new(0),
            most: bytes,
            operations: AtomicUsize::new(0),
            channels: Arc::default(),
        }
    }

    /// How many bytes it holds now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// The shard of a space, without what has expired there.
    fn shard(&self, space: &str) -> MutexGuard<'_, Shard> {
        // Where nobody comes by, what has expired would stay.
        let n_operations = self.operations.fetch_add(1, Ordering::Relaxed);
        if n_operations.is_multiple_of(ROUND)
            && let Ok(mut other) = self.shards[n_operations / ROUND % SHARDS].try_lock()
        {
            self.clear(&mut other, CLEARED);
        }
        let number = self.hasher.hash_one(space) % SHARDS as u64;
        let mut shard = lock(&self.shards[usize::try_from(number).unwrap_or(0)]);
        self.clear(&mut shard, CLEARED);
        shard
    }

    /// Clears away what has expired in a shard, at most so much.
    fn clear(&self, shard: &mut Shard, most: usize) {
        let now = timer_now();
        for _ in 0..most {
            match shard.0.first_key_value() {
                Some((Row { what: What::Due(when), .. }, _)) if *when <= now => {}
                _ => break,
            }
            if let Some((row, _)) = shard.0.pop_first() {
                self.remove(shard, Row { what: What::Kept, ..row });
            }
        }
    }

    /// Takes so many more bytes, if there is room for them.
    fn reserve(&self, shard: &mut Shard, bytes: usize) -> Result<(), StoreError> {
        let take = || {
            let grown = |held: usize| held.checked_add(bytes).filter(|held| *held <= self.most);
            self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok()
        };
        if take() {
            return Ok(());
        }
        // What has expired needs no room. A shard that somebody is in is left out, so that no two wait for each other.
        self.clear(shard, usize::MAX);
        for other in &self.shards {
            if let Ok(mut other) = other.try_lock() {
                self.clear(&mut other, usize::MAX);
            }
        }
        if take() { Ok(()) } else { Err(StoreError::Full) }
    }

    fn remove(&self, shard: &mut Shard, row: Row) -> bool {
        let Some(cell) = shard.0.remove(&row) else { return false };
        shard.reschedule(row, cell.expires, None);
        self.held.fetch_sub(cell.bytes, Ordering::Relaxed);
        true
    }

    /// Puts a cell in its place. What was there is gone; if there is no room, it stays.
    fn insert(
        &self,
        shard: &mut Shard,
        row: Row,
        kept: Kept,
        expires: Option<Instant>,
    ) -> Result<(), StoreError> {
        // Names stand twice: once where the entry is, once where it is said when it expires.
        let bytes = OVERHEAD + 2 * (row.space.len() + row.name.len()) + kept.bytes();
        // Room for the difference first, then the old one goes without giving back what is taken over.
        let before = shard.cell(&row).map_or(0, |cell| cell.bytes);
        self.reserve(shard, bytes.saturating_sub(before))?;
        let shared = bytes.min(before);
        self.held.fetch_add(shared, Ordering::Relaxed);
        self.remove(shard, row.clone());
        shard.0.insert(row.clone(), Cell { kept, expires, bytes });
        shard.reschedule(row, None, expires);
        Ok(())
    }

    fn put_now(
        &self,
        key: &Key,
        value: Bytes,
        life: Option<Duration>,
        expect: Expect,
    ) -> Result<Option<Version>, StoreError> {
        let row = Row::of(Kind::Entry, key);
        let mut shard = self.shard(key.space());
        let there = shard.entry(key).map(|entry| entry.version);
        if !meets(expect, there) {
            return Ok(None);
        }
        let version = Version(self.versions.fetch_add(1, Ordering::Relaxed) + 1);
        let entry = Kept::Entry(Entry { value, version });
        self.insert(&mut shard, row, entry, life.and_then(until))?;
        Ok(Some(version))
    }

    fn touch_now(&self, key: &Key, life: Duration) -> bool {
        let row = Row::of(Kind::Entry, key);
        let mut shard = self.shard(key.space());
        let Some(cell) = shard.cell_mut(&row) else { return false };
        let expires = until(life);
        let before = std::mem::replace(&mut cell.expires, expires);
        shard.reschedule(row, before, expires);
        true
    }

    fn delete_now(&self, key: &Key, expect: Expect) -> bool {
        let mut shard = self.shard(key.space());
        let there = shard.entry(key).map(|entry| entry.version);
        let log = Row::of(Kind::Log, key);
        let had_log = expect == Expect::Anything && self.remove(&mut shard, log);
        if there.is_none() || !meets(expect, there) {
            return had_log;
        }
        self.remove(&mut shard, Row::of(Kind::Entry, key))
    }

    fn list_now(&self, space: &str, after: Option<&str>, most: usize) -> Vec<(Box<str>, Entry)> {
        let shard = self.shard(space);
        let place = |kind, name: &str| Row::at(kind, space, name);
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
            if let Kept::Entry(entry) = &cell.kept
                && cell.is_alive(now)
            {
                found.push((row.name.clone(), entry.clone()));
            }
        }
        found
    }

    fn count_now(&self, key: &Key, by: u64, life: Duration) -> Result<u64, StoreError> {
        let row = Row::of(Kind::Count, key);
        let mut shard = self.shard(key.space());
        if let Some(Cell { kept: Kept::Count(count), .. }) = shard.cell_mut(&row) {
            *count = count.saturating_add(by);
            return Ok(*count);
        }
        self.insert(&mut shard, row, Kept::Count(by), until(life))?;
        Ok(by)
    }

    fn append_now(&self, key: &Key, value: Bytes, life: Duration, most: usize) -> Result<u64, StoreError> {
        let row = Row::of(Kind::Log, key);
        let mut shard = self.shard(key.space());
        let expires = until(life);
        // Room first: a line that finds none leaves the log as it is.
        self.reserve(&mut shard, LINE + value.len())?;
        let taken = LINE + value.len();
        let Some(Cell { kept: Kept::Log { next, log }, expires: until, bytes }) = shard.cell_mut(&row) else {
            self.held.fetch_sub(taken, Ordering::Relaxed);
            let kept = Kept::Log { next: 2, log: VecDeque::from([value]) };
            return self.insert(&mut shard, row, kept, expires).map(|()| 1);
        };
        log.push_back(value);
        let over = log.len().saturating_sub(most.max(1));
        let freed: usize = log.drain(..over).map(|line| LINE + line.len()).sum();
        let number = *next;
        *next += 1;
        *bytes = *bytes + taken - freed;
        let before = std::mem::replace(until, expires);
        self.held.fetch_sub(freed, Ordering::Relaxed);
        shard.reschedule(row, before, expires);
        Ok(number)
    }

    fn read_now(&self, key: &Key, after: u64, most: usize) -> Page {
        let row = Row::of(Kind::Log, key);
        let mut shard = self.shard(key.space());
        let Some(Kept::Log { next, log }) = shard.cell_mut(&row).map(|cell| &cell.kept) else {
            return Page { oldest: 1, newest: 0, entries: Vec::new() };
        };
        let oldest = next - log.len() as u64;
        let skipped = usize::try_from(after.saturating_add(1).saturating_sub(oldest)).unwrap_or(usize::MAX);
        let mut entries = Vec::new();
        for (number, value) in (oldest..).zip(log).skip(skipped).take(most) {
            entries.push((number, value.clone()));
        }
        Page { oldest, newest: next - 1, entries }
    }
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

impl Store for MemoryStore {
    fn get<'a>(&'a self, key: &'a Key) -> Fetching<'a, Option<Entry>> {
        let found = self.shard(key.space()).entry(key).cloned();
        ready(Ok(found))
    }

    fn put<'a>(
        &'a self,
        key: &'a Key,
        value: Bytes,
        life: Option<Duration>,
        expect: Expect,
    ) -> Fetching<'a, Option<Version>> {
        ready(self.put_now(key, value, life, expect))
    }

    fn touch<'a>(&'a self, key: &'a Key, life: Duration) -> Fetching<'a, bool> {
        ready(Ok(self.touch_now(key, life)))
    }

    fn delete<'a>(&'a self, key: &'a Key, expect: Expect) -> Fetching<'a, bool> {
        ready(Ok(self.delete_now(key, expect)))
    }

    fn list<'a>(
        &'a self,
        space: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> Fetching<'a, Vec<(Box<str>, Entry)>> {
        ready(Ok(self.list_now(space, after, most)))
    }

    fn count<'a>(&'a self, key: &'a Key, by: u64, life: Duration) -> Fetching<'a, u64> {
        ready(self.count_now(key, by, life))
    }

    fn append<'a>(&'a self, log: &'a Key, value: Bytes, life: Duration, most: usize) -> Fetching<'a, u64> {
        ready(self.append_now(log, value, life, most))
    }

    fn read<'a>(&'a self, log: &'a Key, after: u64, most: usize) -> Fetching<'a, Page> {
        ready(Ok(self.read_now(log, after, most)))
    }

    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> Fetching<'a, ()> {
        self.channels.publish(channel, &message);
        ready(Ok(()))
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> Fetching<'a, Listener> {
        ready(Ok(self.channels.subscribe(channel)))
    }

    fn reach(&self) -> Reach {
        Reach::Process
    }
}

impl Shard {
    fn cell(&self, row: &Row) -> Option<&Cell> {
        self.0.get(row).filter(|cell| cell.is_alive(timer_now()))
    }

    fn cell_mut(&mut self, row: &Row) -> Option<&mut Cell> {
        self.0.get_mut(row).filter(|cell| cell.is_alive(timer_now()))
    }

    /// Notes when a cell expires, instead of when it did.
    fn reschedule(&mut self, mut row: Row, before: Option<Instant>, expires: Option<Instant>) {
        if before == expires {
            return;
        }
        if let Some(before) = before {
            row.what = What::Due(before);
            self.0.remove(&row);
        }
        if let Some(expires) = expires {
            row.what = What::Due(expires);
            self.0.insert(row, Cell::default());
        }
    }

    fn entry(&self, key: &Key) -> Option<&Entry> {
        match &self.cell(&Row::of(Kind::Entry, key))?.kept {
            Kept::Entry(entry) => Some(entry),
            _ => None,
        }
    }
}

impl Cell {
    fn is_alive(&self, now: Instant) -> bool {
        self.expires.is_none_or(|expires| expires > now)
    }
}

impl Row {
    /// The row of a thing itself.
    fn of(kind: Kind, key: &Key) -> Row {
        Row::at(kind, key.space(), key.name())
    }

    fn at(kind: Kind, space: &str, name: &str) -> Row {
        Row { what: What::Kept, space: space.into(), kind, name: name.into() }
    }
}

impl Kept {
    fn bytes(&self) -> usize {
        match self {
            Kept::Nothing => 0,
            Kept::Entry(entry) => entry.value.len(),
            Kept::Count(_) => 8,
            Kept::Log { log, .. } => log.iter().map(|value| value.len() + LINE).sum(),
        }
    }
}

/// When a life that begins now ends; one too long to reckon with does not.
fn until(life: Duration) -> Option<Instant> {
    timer_now().checked_add(life)
}

fn ready<'a, T: Send + 'a>(value: Result<T, StoreError>) -> Fetching<'a, T> {
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

    const LIFE: Duration = Duration::from_secs(60);

    fn key(name: &str) -> Key {
        Key::new("space", name)
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_forgotten_gives_its_room_back() {
        let store = MemoryStore::new();
        let value = Bytes::from(vec![7; 1000]);
        for round in 0..50 {
            let name = format!("n{}", round % 7);
            store.put(&key(&name), value.slice(..round * 10), Some(LIFE), Expect::Anything).await.unwrap();
            store.append(&key(&name), value.slice(..round * 5), LIFE, 3).await.unwrap();
            store.count(&key(&name), 2, LIFE).await.unwrap();
            store.touch(&key(&name), LIFE * 2).await.unwrap();
        }
        assert!(store.held() > 1000);
        for name in 0..3 {
            assert!(store.delete(&key(&format!("n{name}")), Expect::Anything).await.unwrap());
        }
        tokio::time::advance(LIFE * 3).await;
        assert!(store.get(&key("n5")).await.unwrap().is_none());
        assert_eq!(store.held(), 0);
        let shards = store.shards.iter().map(|shard| lock(shard));
        assert!(shards.into_iter().all(|shard| shard.0.is_empty()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_store_changes_nothing_and_has_room_again_when_something_expires() {
        let store = MemoryStore::with_limit(4500);
        let kilobyte = Bytes::from(vec![1; 1000]);
        store.put(&key("a"), kilobyte.clone(), None, Expect::Absent).await.unwrap();
        for number in 1..=2 {
            assert_eq!(store.append(&key("log"), kilobyte.clone(), LIFE, 9).await, Ok(number));
        }
        let held = store.held();
        let elsewhere = Key::new("elsewhere", "b");
        assert_eq!(store.append(&key("log"), kilobyte.clone(), LIFE, 9).await, Err(StoreError::Full));
        assert_eq!(
            store.put(&elsewhere, kilobyte.clone(), None, Expect::Absent).await,
            Err(StoreError::Full)
        );
        let double = Bytes::from(vec![1; 2000]);
        assert_eq!(store.put(&key("a"), double, None, Expect::Anything).await, Err(StoreError::Full));
        assert_eq!(store.held(), held);
        assert_eq!(store.get(&key("a")).await.unwrap().unwrap().value, kilobyte);
        assert_eq!(store.read(&key("log"), 0, 9).await.unwrap().entries.len(), 2, "the log is as it was");
        tokio::time::advance(LIFE * 2).await;
        assert!(store.put(&elsewhere, kilobyte, None, Expect::Absent).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_life_without_end_is_none_too_long() {
        let store = MemoryStore::new();
        store.put(&key("a"), "a".into(), Some(Duration::MAX), Expect::Absent).await.unwrap();
        assert!(store.touch(&key("a"), Duration::MAX).await.unwrap());
        store.append(&key("a"), "a".into(), Duration::MAX, 1).await.unwrap();
        store.count(&key("a"), u64::MAX, Duration::MAX).await.unwrap();
        assert_eq!(store.count(&key("a"), 1, Duration::MAX).await, Ok(u64::MAX));
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
                    assert!(store.held() <= 100_000);
                }
            });
        }
        while let Some(ended) = writers.join_next().await {
            ended.unwrap();
        }
        assert!(store.held() > 90_000);
    }
}
