//! The tables of the database, and how each operation reads and changes them.
//!
//! Times are milliseconds since 1970, so that they are valid after a restart. This module knows nothing of threads.

use std::ops::Bound;
use std::time::Duration;

use bytes::Bytes;
use redb::{
    Database, ReadTransaction, ReadableDatabase as _, ReadableTable as _, Table, TableDefinition,
    TableHandle as _, WriteTransaction,
};

use crate::store::{Entry, EntryVersion, Expect, Key, LogPage, is_expected};

/// Space and name.
type TableKey = (&'static str, &'static str);

/// Version, expiry, value.
const ENTRIES: TableDefinition<'_, TableKey, (u64, u64, &[u8])> = TableDefinition::new("toolgate.entries");

/// Sum, expiry.
const COUNTS: TableDefinition<'_, TableKey, (u64, u64)> = TableDefinition::new("toolgate.counts");

/// Number of the oldest entry, number of the next entry, expiry.
const LOGS: TableDefinition<'_, TableKey, (u64, u64, u64)> = TableDefinition::new("toolgate.logs");

/// Log entries by space, name and number.
const LOG_ENTRIES: TableDefinition<'_, (&str, &str, u64), &[u8]> = TableDefinition::new("toolgate.lines");

/// Expiry, kind, space, name of everything that expires, soonest first.
const EXPIRING: TableDefinition<'_, (u64, u8, &str, &str), ()> = TableDefinition::new("toolgate.expiring");

/// Format and last version of the store.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("toolgate.house");

/// The format of these tables.
const FORMAT_VERSION: u64 = 1;

/// Expiry of rows that do not expire.
const NO_EXPIRY: u64 = u64::MAX;

/// Limit of the expired rows removed by one transaction.
const MAX_EXPIRED_PER_TRANSACTION: usize = 256;

/// The kinds of rows in [`EXPIRING`].
const ENTRY: u8 = 0;
const COUNT: u8 = 1;
const LOG: u8 = 2;

/// The program and version that wrote a database.
pub(super) enum FileFormat {
    Current,
    Foreign,
    Newer(u64),
}

/// A change of the database.
#[derive(Debug)]
pub(super) enum WriteOp {
    Put { key: Key, value: Bytes, ttl: Option<Duration>, expect: Expect },
    Touch { key: Key, ttl: Duration },
    Delete { key: Key, expect: Expect },
    Increment { key: Key, by: u64, ttl: Duration },
    Append { log: Key, value: Bytes, ttl: Duration, limit: usize },
}

impl WriteOp {
    /// Returns the approximate size of the change.
    pub(super) fn bytes(&self) -> usize {
        match self {
            WriteOp::Put { value, .. } | WriteOp::Append { value, .. } => value.len(),
            _ => 0,
        }
    }
}

/// The result of a [`WriteOp`].
#[derive(Debug)]
pub(super) enum WriteResult {
    Put(Option<EntryVersion>),
    Flag(bool),
    Number(u64),
}

/// Creates the tables in an empty database; otherwise returns its format.
pub(super) fn prepare(database: &Database) -> Result<FileFormat, redb::Error> {
    let snapshot = database.begin_read()?;
    let names: Vec<String> = snapshot.list_tables()?.map(|table| table.name().to_owned()).collect();
    if names.is_empty() {
        let transaction = database.begin_write()?;
        Tables::open(&transaction)?.meta.insert("format", FORMAT_VERSION)?;
        transaction.commit()?;
        return Ok(FileFormat::Current);
    }
    if !names.iter().any(|name| name == META.name()) {
        return Ok(FileFormat::Foreign);
    }
    let format = snapshot.open_table(META)?.get("format")?.map(|format| format.value());
    Ok(match format {
        Some(FORMAT_VERSION) => FileFormat::Current,
        Some(format) => FileFormat::Newer(format),
        None => FileFormat::Foreign,
    })
}

pub(super) fn get(snapshot: &ReadTransaction, key: &Key, now: u64) -> Result<Option<Entry>, redb::Error> {
    let entries = snapshot.open_table(ENTRIES)?;
    let found = entries.get((key.space(), key.name()))?;
    Ok(found.and_then(|found| live_entry(found.value(), now)))
}

pub(super) fn list(
    snapshot: &ReadTransaction,
    space: &str,
    after: Option<&str>,
    limit: usize,
    now: u64,
) -> Result<Vec<(Box<str>, Entry)>, redb::Error> {
    let entries = snapshot.open_table(ENTRIES)?;
    let from = after.map_or(Bound::Included((space, "")), |after| Bound::Excluded((space, after)));
    let mut found = Vec::new();
    for row in entries.range::<(&str, &str)>((from, Bound::Unbounded))? {
        let (name, value) = row?;
        let (row_space, name) = name.value();
        if found.len() >= limit || row_space != space {
            break;
        }
        if let Some(entry) = live_entry(value.value(), now) {
            found.push((name.into(), entry));
        }
    }
    Ok(found)
}

pub(super) fn read(
    snapshot: &ReadTransaction,
    log: &Key,
    after: u64,
    limit: usize,
    now: u64,
) -> Result<LogPage, redb::Error> {
    let name = (log.space(), log.name());
    let row = snapshot.open_table(LOGS)?.get(name)?.map(|row| row.value());
    let Some((oldest, next, _)) = row.filter(|(_, _, expires)| *expires > now) else {
        return Ok(LogPage { oldest: 1, newest: 0, entries: Vec::new() });
    };
    let entries_table = snapshot.open_table(LOG_ENTRIES)?;
    let from = after.saturating_add(1).clamp(oldest, next);
    let mut entries = Vec::new();
    for row in entries_table.range((name.0, name.1, from)..(name.0, name.1, next))?.take(limit) {
        let (number, value) = row?;
        entries.push((number.value().2, Bytes::copy_from_slice(value.value())));
    }
    Ok(LogPage { oldest, newest: next - 1, entries })
}

/// Returns whether a row has expired and is to be removed.
pub(super) fn has_expired(database: &Database, now: u64) -> Result<bool, redb::Error> {
    let expiring = database.begin_read()?.open_table(EXPIRING)?;
    let first = expiring.first()?;
    Ok(first.is_some_and(|(row, _)| row.value().0 <= now))
}

/// Applies changes and removes some expired rows, in one transaction that is on the disk when this returns.
pub(super) fn apply(
    database: &Database,
    ops: &[&WriteOp],
    now: u64,
) -> Result<Vec<WriteResult>, redb::Error> {
    let transaction = database.begin_write()?;
    let mut tables = Tables::open(&transaction)?;
    let mut results = Vec::with_capacity(ops.len());
    for op in ops {
        results.push(tables.apply_op(op, now)?);
    }
    tables.remove_expired(now)?;
    let is_changed = tables.finish()?;
    match is_changed {
        true => transaction.commit()?,
        // Without a change there is no need to sync the disk.
        false => transaction.abort()?,
    }
    Ok(results)
}

/// The tables within one transaction.
struct Tables<'a> {
    entries: Table<'a, TableKey, (u64, u64, &'static [u8])>,
    counts: Table<'a, TableKey, (u64, u64)>,
    logs: Table<'a, TableKey, (u64, u64, u64)>,
    log_entries: Table<'a, (&'static str, &'static str, u64), &'static [u8]>,
    expiring: Table<'a, (u64, u8, &'static str, &'static str), ()>,
    meta: Table<'a, &'static str, u64>,
    /// The last version. It belongs to the store, not to a key, so that no version is reused.
    version: u64,
    is_changed: bool,
}

impl<'a> Tables<'a> {
    fn open(transaction: &'a WriteTransaction) -> Result<Tables<'a>, redb::Error> {
        let meta = transaction.open_table(META)?;
        let version = meta.get("version")?.map_or(0, |version| version.value());
        Ok(Tables {
            entries: transaction.open_table(ENTRIES)?,
            counts: transaction.open_table(COUNTS)?,
            logs: transaction.open_table(LOGS)?,
            log_entries: transaction.open_table(LOG_ENTRIES)?,
            expiring: transaction.open_table(EXPIRING)?,
            meta,
            version,
            is_changed: false,
        })
    }

    fn apply_op(&mut self, op: &WriteOp, now: u64) -> Result<WriteResult, redb::Error> {
        match op {
            WriteOp::Put { key, value, ttl, expect } => {
                self.put(key, value, *ttl, *expect, now).map(WriteResult::Put)
            }
            WriteOp::Touch { key, ttl } => self.touch(key, *ttl, now).map(WriteResult::Flag),
            WriteOp::Delete { key, expect } => self.delete(key, *expect, now).map(WriteResult::Flag),
            WriteOp::Increment { key, by, ttl } => {
                self.increment(key, *by, *ttl, now).map(WriteResult::Number)
            }
            WriteOp::Append { log, value, ttl, limit } => {
                self.append(log, value, *ttl, *limit, now).map(WriteResult::Number)
            }
        }
    }

    fn put(
        &mut self,
        key: &Key,
        value: &[u8],
        ttl: Option<Duration>,
        expect: Expect,
        now: u64,
    ) -> Result<Option<EntryVersion>, redb::Error> {
        let name = (key.space(), key.name());
        let before = self.entries.get(name)?.map(|row| (row.value().0, row.value().1));
        let current = before.filter(|(_, expires)| *expires > now).map(|(version, _)| EntryVersion(version));
        if !is_expected(expect, current) {
            return Ok(None);
        }
        self.version += 1;
        let expires = ttl.map_or(NO_EXPIRY, |ttl| expiry(now, ttl));
        self.entries.insert(name, (self.version, expires, value))?;
        self.reschedule(ENTRY, name, before.map_or(NO_EXPIRY, |(_, expires)| expires), expires)?;
        Ok(Some(EntryVersion(self.version)))
    }

    fn touch(&mut self, key: &Key, ttl: Duration, now: u64) -> Result<bool, redb::Error> {
        let name = (key.space(), key.name());
        let current = self.entries.get(name)?.map(|row| {
            let (version, expires, value) = row.value();
            (version, expires, value.to_vec())
        });
        let Some((version, before, value)) = current.filter(|(_, expires, _)| *expires > now) else {
            return Ok(false);
        };
        let expires = expiry(now, ttl);
        self.entries.insert(name, (version, expires, value.as_slice()))?;
        self.reschedule(ENTRY, name, before, expires)?;
        Ok(true)
    }

    fn delete(&mut self, key: &Key, expect: Expect, now: u64) -> Result<bool, redb::Error> {
        let name = (key.space(), key.name());
        let mut was_deleted = false;
        if expect == Expect::Anything {
            let expires = self.logs.get(name)?.map(|row| row.value().2);
            if let Some(expires) = expires {
                was_deleted = expires > now;
                self.remove(LOG, name, expires)?;
            }
        }
        let current = self.entries.get(name)?.map(|row| (row.value().0, row.value().1));
        if let Some((version, expires)) = current.filter(|(_, expires)| *expires > now)
            && is_expected(expect, Some(EntryVersion(version)))
        {
            was_deleted = true;
            self.remove(ENTRY, name, expires)?;
        }
        Ok(was_deleted)
    }

    fn increment(&mut self, key: &Key, by: u64, ttl: Duration, now: u64) -> Result<u64, redb::Error> {
        let name = (key.space(), key.name());
        let before = self.counts.get(name)?.map(|row| row.value());
        let (count, expires) = match before.filter(|(_, expires)| *expires > now) {
            Some((count, expires)) => (count.saturating_add(by), expires),
            None => (by, expiry(now, ttl)),
        };
        self.counts.insert(name, (count, expires))?;
        self.reschedule(COUNT, name, before.map_or(NO_EXPIRY, |(_, expires)| expires), expires)?;
        Ok(count)
    }

    fn append(
        &mut self,
        log: &Key,
        value: &[u8],
        ttl: Duration,
        limit: usize,
        now: u64,
    ) -> Result<u64, redb::Error> {
        let name = (log.space(), log.name());
        let mut before = self.logs.get(name)?.map(|row| row.value());
        if let Some((_, _, old_expiry)) = before.filter(|(_, _, expires)| *expires <= now) {
            self.remove(LOG, name, old_expiry)?;
            before = None;
        }
        let (mut oldest, next, old_expiry) = before.unwrap_or((1, 1, NO_EXPIRY));
        self.log_entries.insert((name.0, name.1, next), value)?;
        let limit = u64::try_from(limit).unwrap_or(u64::MAX).max(1);
        while next - oldest >= limit {
            self.log_entries.remove((name.0, name.1, oldest))?;
            oldest += 1;
        }
        let expires = expiry(now, ttl);
        self.logs.insert(name, (oldest, next + 1, expires))?;
        self.reschedule(LOG, name, old_expiry, expires)?;
        Ok(next)
    }

    /// Replaces the expiry of a row in [`EXPIRING`].
    fn reschedule(
        &mut self,
        kind: u8,
        name: (&str, &str),
        before: u64,
        expires: u64,
    ) -> Result<(), redb::Error> {
        self.is_changed = true;
        if before == expires {
            return Ok(());
        }
        if before != NO_EXPIRY {
            self.expiring.remove((before, kind, name.0, name.1))?;
        }
        if expires != NO_EXPIRY {
            self.expiring.insert((expires, kind, name.0, name.1), ())?;
        }
        Ok(())
    }

    fn remove(&mut self, kind: u8, name: (&str, &str), expires: u64) -> Result<(), redb::Error> {
        self.reschedule(kind, name, expires, NO_EXPIRY)?;
        match kind {
            COUNT => drop(self.counts.remove(name)?),
            LOG => {
                let row = self.logs.remove(name)?.map(|row| row.value());
                for number in row.map_or(0..0, |(oldest, next, _)| oldest..next) {
                    self.log_entries.remove((name.0, name.1, number))?;
                }
            }
            _ => drop(self.entries.remove(name)?),
        }
        Ok(())
    }

    /// Removes expired rows, at most [`MAX_EXPIRED_PER_TRANSACTION`].
    fn remove_expired(&mut self, now: u64) -> Result<(), redb::Error> {
        for _ in 0..MAX_EXPIRED_PER_TRANSACTION {
            let Some((row, _)) = self.expiring.first()? else { break };
            let (expires, kind, space, name) = row.value();
            if expires > now {
                break;
            }
            let (space, name) = (space.to_owned(), name.to_owned());
            drop(row);
            self.remove(kind, (&space, &name), expires)?;
        }
        Ok(())
    }

    /// Closes the tables and returns whether anything changed.
    fn finish(mut self) -> Result<bool, redb::Error> {
        if self.is_changed {
            self.meta.insert("version", self.version)?;
        }
        Ok(self.is_changed)
    }
}

fn live_entry((version, expires, value): (u64, u64, &[u8]), now: u64) -> Option<Entry> {
    (expires > now).then(|| Entry { value: Bytes::copy_from_slice(value), version: EntryVersion(version) })
}

/// Returns the expiry of a TTL that starts now. One millisecond is added, because the current one is partly over and
/// nothing may expire early.
fn expiry(now: u64, ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(NO_EXPIRY).saturating_add(1).saturating_add(now)
}
