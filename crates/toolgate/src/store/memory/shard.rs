//! The content of one shard of a [`MemoryStore`](super::MemoryStore).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use bytes::Bytes;
use tokio::time::Instant;

use crate::store::{Entry, Key};
use crate::util::clock::timer_now;

/// Approximate memory of a cell in addition to its value and its key.
const CELL_OVERHEAD_BYTES: usize = 400;

/// Memory of a log entry in addition to its bytes.
pub(super) const LOG_ENTRY_OVERHEAD_BYTES: usize = 32;

/// The cells of some spaces. It does not count the bytes it holds; that is the task of the store.
#[derive(Debug, Default)]
pub(super) struct MemoryShard {
    cells: BTreeMap<CellKey, StoredCell>,
    /// The cells that expire, soonest first.
    expiries: BTreeSet<(Instant, CellKey)>,
}

/// The key of a cell. Entries, counters and logs have separate names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CellKey {
    space: Box<str>,
    kind: CellKind,
    name: Box<str>,
}

/// The order matters: [`MemoryShard::list`] relies on entries coming before counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CellKind {
    Entry,
    Counter,
    Log,
}

/// A stored value with its expiry.
#[derive(Debug)]
pub(super) struct StoredCell {
    pub(super) value: StoredValue,
    pub(super) expires: Option<Instant>,
    /// Memory of the cell.
    pub(super) bytes: usize,
}

#[derive(Debug)]
pub(super) enum StoredValue {
    Entry(Entry),
    Counter(u64),
    Log {
        /// The number of the next entry.
        next: u64,
        entries: VecDeque<Bytes>,
    },
}

impl MemoryShard {
    /// Returns a cell, unless it has expired.
    pub(super) fn cell(&self, key: &CellKey) -> Option<&StoredCell> {
        self.cells.get(key).filter(|cell| cell.is_alive(timer_now()))
    }

    /// Returns a cell, unless it has expired. Its expiry is changed with [`MemoryShard::set_expiry`] only.
    pub(super) fn cell_mut(&mut self, key: &CellKey) -> Option<&mut StoredCell> {
        self.cells.get_mut(key).filter(|cell| cell.is_alive(timer_now()))
    }

    pub(super) fn entry(&self, key: &Key) -> Option<&Entry> {
        match &self.cell(&CellKey::new(CellKind::Entry, key))?.value {
            StoredValue::Entry(entry) => Some(entry),
            _ => None,
        }
    }

    /// Inserts a cell, whose key must not be in use.
    pub(super) fn insert(&mut self, key: CellKey, cell: StoredCell) {
        if let Some(expires) = cell.expires {
            self.expiries.insert((expires, key.clone()));
        }
        self.cells.insert(key, cell);
    }

    /// Removes a cell, expired or not, and returns its memory.
    pub(super) fn remove(&mut self, key: CellKey) -> Option<usize> {
        let cell = self.cells.remove(&key)?;
        if let Some(expires) = cell.expires {
            self.expiries.remove(&(expires, key));
        }
        Some(cell.bytes)
    }

    /// Sets the expiry of a cell. Returns `false` if it does not exist or has expired.
    pub(super) fn set_expiry(&mut self, key: CellKey, expires: Option<Instant>) -> bool {
        let Some(cell) = self.cell_mut(&key) else { return false };
        let before = std::mem::replace(&mut cell.expires, expires);
        if before == expires {
            return true;
        }
        if let Some(before) = before {
            self.expiries.remove(&(before, key.clone()));
        }
        if let Some(expires) = expires {
            self.expiries.insert((expires, key));
        }
        true
    }

    /// Returns the cell that expires first, if it has expired by now.
    pub(super) fn first_expired(&self, now: Instant) -> Option<CellKey> {
        self.expiries.first().filter(|(expires, _)| *expires <= now).map(|(_, key)| key.clone())
    }

    /// Returns at most `limit` entries of a space in order of their names, starting after the name `after`.
    pub(super) fn list(&self, space: &str, after: Option<&str>, limit: usize) -> Vec<(Box<str>, Entry)> {
        let key = |kind, name: &str| CellKey { space: space.into(), kind, name: name.into() };
        let start = match after {
            Some(after) => Bound::Excluded(key(CellKind::Entry, after)),
            None => Bound::Included(key(CellKind::Entry, "")),
        };
        let end = Bound::Excluded(key(CellKind::Counter, ""));
        let now = timer_now();
        let live = self.cells.range((start, end)).filter(|(_, cell)| cell.is_alive(now));
        let entries = live.filter_map(|(key, cell)| match &cell.value {
            StoredValue::Entry(entry) => Some((key.name.clone(), entry.clone())),
            _ => None,
        });
        entries.take(limit).collect()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.cells.is_empty() && self.expiries.is_empty()
    }
}

impl CellKey {
    pub(super) fn new(kind: CellKind, key: &Key) -> CellKey {
        CellKey { space: key.space().into(), kind, name: key.name().into() }
    }

    /// Returns the memory of a cell with this key. The key is counted twice, once for the entry in `expiries`.
    pub(super) fn cell_bytes(&self, value: &StoredValue) -> usize {
        CELL_OVERHEAD_BYTES + 2 * (self.space.len() + self.name.len()) + value.bytes()
    }
}

impl StoredCell {
    fn is_alive(&self, now: Instant) -> bool {
        self.expires.is_none_or(|expires| expires > now)
    }
}

impl StoredValue {
    fn bytes(&self) -> usize {
        match self {
            StoredValue::Entry(entry) => entry.value.len(),
            StoredValue::Counter(_) => 8,
            StoredValue::Log { entries, .. } => {
                entries.iter().map(|value| value.len() + LOG_ENTRY_OVERHEAD_BYTES).sum()
            }
        }
    }
}
