//! Everything in the memory of this process, within a bound.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::broadcast;
use tokio::time::Instant;

use super::{Entry, Expect, Fetching, Heard, Key, Listener, Page, Reach, Store, StoreError, Version};
use crate::clock::tick;

/// Spaces are spread over so many locks.
const SHARDS: usize = 16;

/// What an entry costs beside its bytes and its names, roughly.
const OVERHEAD: usize = 160;

/// Messages that a listener may be behind before it misses some.
const BEHIND: usize = 1024;

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
#[derive(Debug)]
pub struct MemoryStore {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    versions: AtomicU64,
    held: AtomicUsize,
    most: usize,
    channels: Mutex<HashMap<Box<str>, broadcast::Sender<Heard>>>,
}

#[derive(Debug, Default)]
struct Shard {
    spaces: HashMap<Box<str>, BTreeMap<Slot, Cell>>,
    /// What expires, soonest first.
    expiring: BTreeSet<(Instant, Box<str>, Slot)>,
}

/// Entries, counters and logs have names of their own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Slot {
    Entry(Box<str>),
    Count(Box<str>),
    Log(Box<str>),
}

#[derive(Debug)]
struct Cell {
    kept: Kept,
    expires: Option<Instant>,
    bytes: usize,
}

#[derive(Debug)]
enum Kept {
    Entry(Entry),
    Count(u64),
    Log { next: u64, log: VecDeque<Bytes> },
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
            channels: Mutex::default(),
        }
    }

    /// How many bytes it holds now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// The shard of a space, without what has expired there.
    fn shard(&self, space: &str) -> MutexGuard<'_, Shard> {
        let number = self.hasher.hash_one(space) % SHARDS as u64;
        let mut shard = lock(&self.shards[usize::try_from(number).unwrap_or(0)]);
        let now = tick();
        for _ in 0..CLEARED {
            match shard.expiring.first() {
                Some((when, ..)) if *when <= now => {}
                _ => break,
            }
            if let Some((_, space, slot)) = shard.expiring.pop_first() {
                self.remove(&mut shard, &space, &slot);
            }
        }
        shard
    }

    fn remove(&self, shard: &mut Shard, space: &str, slot: &Slot) -> bool {
        let Some(names) = shard.spaces.get_mut(space) else { return false };
        let Some(cell) = names.remove(slot) else { return false };
        if names.is_empty() {
            shard.spaces.remove(space);
        }
        if let Some(expires) = cell.expires {
            shard.expiring.remove(&(expires, space.into(), slot.clone()));
        }
        self.held.fetch_sub(cell.bytes, Ordering::Relaxed);
        true
    }

    /// Puts a cell in its place. What was there is gone.
    fn insert(
        &self,
        shard: &mut Shard,
        space: &str,
        slot: Slot,
        kept: Kept,
        expires: Option<Instant>,
    ) -> Result<(), StoreError> {
        let bytes = OVERHEAD + space.len() + slot.name().len() + kept.bytes();
        let before = shard.cell(space, &slot).map_or(0, |cell| cell.bytes);
        if bytes > before && self.held().saturating_add(bytes - before) > self.most {
            return Err(StoreError::Full);
        }
        self.remove(shard, space, &slot);
        self.held.fetch_add(bytes, Ordering::Relaxed);
        if let Some(expires) = expires {
            shard.expiring.insert((expires, space.into(), slot.clone()));
        }
        let cell = Cell { kept, expires, bytes };
        match shard.spaces.get_mut(space) {
            Some(names) => names.insert(slot, cell),
            None => shard.spaces.entry(space.into()).or_default().insert(slot, cell),
        };
        Ok(())
    }

    fn put_now(
        &self,
        key: &Key,
        value: Bytes,
        life: Option<Duration>,
        expect: Expect,
    ) -> Result<Option<Version>, StoreError> {
        let slot = Slot::Entry(key.name().into());
        let mut shard = self.shard(key.space());
        let there = shard.entry(key).map(|entry| entry.version);
        if !meets(expect, there) {
            return Ok(None);
        }
        let version = Version(self.versions.fetch_add(1, Ordering::Relaxed) + 1);
        let entry = Kept::Entry(Entry { value, version });
        self.insert(&mut shard, key.space(), slot, entry, life.map(|life| tick() + life))?;
        Ok(Some(version))
    }

    fn touch_now(&self, key: &Key, life: Duration) -> bool {
        let slot = Slot::Entry(key.name().into());
        let mut shard = self.shard(key.space());
        let Some(cell) = shard.cell_mut(key.space(), &slot) else { return false };
        let expires = tick() + life;
        if let Some(before) = cell.expires.replace(expires) {
            shard.expiring.remove(&(before, key.space().into(), slot.clone()));
        }
        shard.expiring.insert((expires, key.space().into(), slot));
        true
    }

    fn delete_now(&self, key: &Key, expect: Expect) -> bool {
        let mut shard = self.shard(key.space());
        let there = shard.entry(key).map(|entry| entry.version);
        let log = Slot::Log(key.name().into());
        let had_log = expect == Expect::Anything && self.remove(&mut shard, key.space(), &log);
        if there.is_none() || !meets(expect, there) {
            return had_log;
        }
        self.remove(&mut shard, key.space(), &Slot::Entry(key.name().into()))
    }

    fn list_now(&self, space: &str, after: Option<&str>, most: usize) -> Vec<(Box<str>, Entry)> {
        let shard = self.shard(space);
        let Some(names) = shard.spaces.get(space) else { return Vec::new() };
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(Slot::Entry(after.into())));
        let now = tick();
        let found =
            names.range((from, Bound::Unbounded)).filter_map(|(slot, cell)| match (slot, &cell.kept) {
                (Slot::Entry(name), Kept::Entry(entry)) if cell.is_alive(now) => {
                    Some((name.clone(), entry.clone()))
                }
                _ => None,
            });
        found.take(most).collect()
    }

    fn count_now(&self, key: &Key, by: u64, life: Duration) -> Result<u64, StoreError> {
        let slot = Slot::Count(key.name().into());
        let mut shard = self.shard(key.space());
        if let Some(Cell { kept: Kept::Count(count), .. }) = shard.cell_mut(key.space(), &slot) {
            *count = count.saturating_add(by);
            return Ok(*count);
        }
        self.insert(&mut shard, key.space(), slot, Kept::Count(by), Some(tick() + life))?;
        Ok(by)
    }

    fn append_now(&self, key: &Key, value: Bytes, life: Duration, most: usize) -> Result<u64, StoreError> {
        let slot = Slot::Log(key.name().into());
        let mut shard = self.shard(key.space());
        let (next, mut log) = match shard.cell_mut(key.space(), &slot).map(|cell| &mut cell.kept) {
            Some(Kept::Log { next, log }) => (*next, std::mem::take(log)),
            _ => (1, VecDeque::new()),
        };
        log.push_back(value);
        let over = log.len().saturating_sub(most.max(1));
        log.drain(..over);
        let kept = Kept::Log { next: next + 1, log };
        match self.insert(&mut shard, key.space(), slot.clone(), kept, Some(tick() + life)) {
            Ok(()) => Ok(next),
            // What was taken out above is lost otherwise; a log that found no room ends here, and its readers know.
            Err(error) => {
                self.remove(&mut shard, key.space(), &slot);
                Err(error)
            }
        }
    }

    fn read_now(&self, key: &Key, after: u64, most: usize) -> Page {
        let slot = Slot::Log(key.name().into());
        let mut shard = self.shard(key.space());
        let Some(Kept::Log { next, log }) = shard.cell_mut(key.space(), &slot).map(|cell| &cell.kept) else {
            return Page { oldest: 1, newest: 0, entries: Vec::new() };
        };
        let oldest = next - log.len() as u64;
        let numbered = (oldest..).zip(log.iter()).filter(|(number, _)| *number > after).take(most);
        let entries = numbered.map(|(number, value)| (number, value.clone())).collect();
        Page { oldest, newest: next - 1, entries }
    }

    fn publish_now(&self, channel: &str, message: Bytes) {
        let mut channels = lock(&self.channels);
        if let Some(sender) = channels.get(channel)
            && sender.send(Heard::Message(message)).is_err()
        {
            // The last one who listened has left.
            channels.remove(channel);
        }
    }

    fn subscribe_now(&self, channel: &str) -> Listener {
        let mut channels = lock(&self.channels);
        channels.retain(|_, sender| sender.receiver_count() > 0);
        let sender = channels.entry(channel.into()).or_insert_with(|| broadcast::channel(BEHIND).0);
        Listener::new(sender.subscribe())
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
        self.publish_now(channel, message);
        ready(Ok(()))
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> Fetching<'a, Listener> {
        ready(Ok(self.subscribe_now(channel)))
    }

    fn reach(&self) -> Reach {
        Reach::Process
    }
}

impl Shard {
    fn cell(&self, space: &str, slot: &Slot) -> Option<&Cell> {
        let cell = self.spaces.get(space)?.get(slot)?;
        cell.is_alive(tick()).then_some(cell)
    }

    fn cell_mut(&mut self, space: &str, slot: &Slot) -> Option<&mut Cell> {
        let cell = self.spaces.get_mut(space)?.get_mut(slot)?;
        cell.is_alive(tick()).then_some(cell)
    }

    fn entry(&self, key: &Key) -> Option<&Entry> {
        match &self.cell(key.space(), &Slot::Entry(key.name().into()))?.kept {
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

impl Slot {
    fn name(&self) -> &str {
        match self {
            Slot::Entry(name) | Slot::Count(name) | Slot::Log(name) => name,
        }
    }
}

impl Kept {
    fn bytes(&self) -> usize {
        match self {
            Kept::Entry(entry) => entry.value.len(),
            Kept::Count(_) => 8,
            Kept::Log { log, .. } => log.iter().map(|value| value.len() + 32).sum(),
        }
    }
}

fn meets(expect: Expect, there: Option<Version>) -> bool {
    match expect {
        Expect::Anything => true,
        Expect::Absent => there.is_none(),
        Expect::Is(version) => there == Some(version),
    }
}

fn ready<'a, T: Send + 'a>(value: Result<T, StoreError>) -> Fetching<'a, T> {
    Box::pin(std::future::ready(value))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
