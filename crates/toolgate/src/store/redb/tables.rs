//! What stands in the file, and how each operation reads and changes it.
//!
//! Times are milliseconds since 1970, because they must mean the same after a restart. It knows nothing of threads.

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

/// Version, end, bytes.
const ENTRIES: TableDefinition<'_, TableKey, (u64, u64, &[u8])> = TableDefinition::new("toolgate.entries");

/// Sum, end.
const COUNTS: TableDefinition<'_, TableKey, (u64, u64)> = TableDefinition::new("toolgate.counts");

/// Number of the oldest line, of the next line, end.
const LOGS: TableDefinition<'_, TableKey, (u64, u64, u64)> = TableDefinition::new("toolgate.logs");

/// Space, name and number; the line.
const LINES: TableDefinition<'_, (&str, &str, u64), &[u8]> = TableDefinition::new("toolgate.lines");

/// End, what it is, space, name: what expires, soonest first.
const EXPIRING: TableDefinition<'_, (u64, u8, &str, &str), ()> = TableDefinition::new("toolgate.expiring");

/// Numbers of the store itself.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("toolgate.house");

/// The format of these tables.
const FORMAT_VERSION: u64 = 1;

/// The end of what does not end.
const NO_EXPIRY: u64 = u64::MAX;

/// How much of what has expired is cleared away beside each transaction.
const MAX_EXPIRED_PER_TRANSACTION: usize = 256;

/// What [`EXPIRING`] points to.
const ENTRY: u8 = 0;
const COUNT: u8 = 1;
const LOG: u8 = 2;

/// Whose file this is.
pub(super) enum FileFormat {
    Current,
    Foreign,
    Newer(u64),
}

/// What can be done to the file.
#[derive(Debug)]
pub(super) enum WriteOp {
    Put { key: Key, value: Bytes, ttl: Option<Duration>, expect: Expect },
    Touch { key: Key, ttl: Duration },
    Delete { key: Key, expect: Expect },
    Count { key: Key, by: u64, ttl: Duration },
    Append { log: Key, value: Bytes, ttl: Duration, max_len: usize },
}

/// What came of it.
#[derive(Debug)]
pub(super) enum WriteResult {
    Put(Option<EntryVersion>),
    Flag(bool),
    Number(u64),
}

/// Makes the tables in an empty file; otherwise tells whose they are.
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
    most: usize,
    now: u64,
) -> Result<Vec<(Box<str>, Entry)>, redb::Error> {
    let entries = snapshot.open_table(ENTRIES)?;
    let from = after.map_or(Bound::Included((space, "")), |after| Bound::Excluded((space, after)));
    let mut found = Vec::new();
    for row in entries.range::<(&str, &str)>((from, Bound::Unbounded))? {
        let (name, value) = row?;
        let (there, name) = name.value();
        if found.len() >= most || there != space {
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
    most: usize,
    now: u64,
) -> Result<LogPage, redb::Error> {
    let name = (log.space(), log.name());
    let row = snapshot.open_table(LOGS)?.get(name)?.map(|row| row.value());
    let Some((oldest, next, _)) = row.filter(|(_, _, end)| *end > now) else {
        return Ok(LogPage { oldest: 1, newest: 0, entries: Vec::new() });
    };
    let lines = snapshot.open_table(LINES)?;
    let from = after.saturating_add(1).clamp(oldest, next);
    let mut entries = Vec::new();
    for row in lines.range((name.0, name.1, from)..(name.0, name.1, next))?.take(most) {
        let (number, line) = row?;
        entries.push((number.value().2, Bytes::copy_from_slice(line.value())));
    }
    Ok(LogPage { oldest, newest: next - 1, entries })
}

/// Whether something has expired and waits to be cleared away.
pub(super) fn has_expired(database: &Database, now: u64) -> Result<bool, redb::Error> {
    let expiring = database.begin_read()?.open_table(EXPIRING)?;
    let first = expiring.first()?;
    Ok(first.is_some_and(|(row, _)| row.value().0 <= now))
}

/// Makes changes and clears away some of what has expired, all on the disk when this returns, or nothing of it.
pub(super) fn apply(
    database: &Database,
    changes: &[&WriteOp],
    now: u64,
) -> Result<Vec<WriteResult>, redb::Error> {
    let transaction = database.begin_write()?;
    let mut tables = Tables::open(&transaction)?;
    let mut done = Vec::with_capacity(changes.len());
    for change in changes {
        done.push(tables.apply_op(change, now)?);
    }
    tables.remove_expired(now)?;
    let is_changed = tables.finish()?;
    match is_changed {
        true => transaction.commit()?,
        // Nothing to wait for the disk for.
        false => transaction.abort()?,
    }
    Ok(done)
}

/// The tables within one transaction.
struct Tables<'a> {
    entries: Table<'a, TableKey, (u64, u64, &'static [u8])>,
    counts: Table<'a, TableKey, (u64, u64)>,
    logs: Table<'a, TableKey, (u64, u64, u64)>,
    lines: Table<'a, (&'static str, &'static str, u64), &'static [u8]>,
    expiring: Table<'a, (u64, u8, &'static str, &'static str), ()>,
    meta: Table<'a, &'static str, u64>,
    /// The last version that was given out. It belongs to the store, not to a name, so none comes back.
    version: u64,
    is_changed: bool,
}

impl<'a> Tables<'a> {
    fn open(transaction: &'a WriteTransaction) -> Result<Tables<'a>, redb::Error> {
        let house = transaction.open_table(META)?;
        let version = house.get("version")?.map_or(0, |version| version.value());
        Ok(Tables {
            entries: transaction.open_table(ENTRIES)?,
            counts: transaction.open_table(COUNTS)?,
            logs: transaction.open_table(LOGS)?,
            lines: transaction.open_table(LINES)?,
            expiring: transaction.open_table(EXPIRING)?,
            meta: house,
            version,
            is_changed: false,
        })
    }

    fn apply_op(&mut self, change: &WriteOp, now: u64) -> Result<WriteResult, redb::Error> {
        match change {
            WriteOp::Put { key, value, ttl: life, expect } => {
                self.put(key, value, *life, *expect, now).map(WriteResult::Put)
            }
            WriteOp::Touch { key, ttl: life } => self.touch(key, *life, now).map(WriteResult::Flag),
            WriteOp::Delete { key, expect } => self.delete(key, *expect, now).map(WriteResult::Flag),
            WriteOp::Count { key, by, ttl: life } => {
                self.count(key, *by, *life, now).map(WriteResult::Number)
            }
            WriteOp::Append { log, value, ttl: life, max_len: most } => {
                self.append(log, value, *life, *most, now).map(WriteResult::Number)
            }
        }
    }

    fn put(
        &mut self,
        key: &Key,
        value: &[u8],
        life: Option<Duration>,
        expect: Expect,
        now: u64,
    ) -> Result<Option<EntryVersion>, redb::Error> {
        let name = (key.space(), key.name());
        let before = self.entries.get(name)?.map(|row| (row.value().0, row.value().1));
        let there = before.filter(|(_, end)| *end > now).map(|(version, _)| EntryVersion(version));
        if !is_expected(expect, there) {
            return Ok(None);
        }
        self.version += 1;
        let end = life.map_or(NO_EXPIRY, |life| expiry(now, life));
        self.entries.insert(name, (self.version, end, value))?;
        self.reschedule(ENTRY, name, before.map_or(NO_EXPIRY, |(_, end)| end), end)?;
        Ok(Some(EntryVersion(self.version)))
    }

    fn touch(&mut self, key: &Key, life: Duration, now: u64) -> Result<bool, redb::Error> {
        let name = (key.space(), key.name());
        let there = self.entries.get(name)?.map(|row| {
            let (version, end, value) = row.value();
            (version, end, value.to_vec())
        });
        let Some((version, before, value)) = there.filter(|(_, end, _)| *end > now) else { return Ok(false) };
        let end = expiry(now, life);
        self.entries.insert(name, (version, end, value.as_slice()))?;
        self.reschedule(ENTRY, name, before, end)?;
        Ok(true)
    }

    fn delete(&mut self, key: &Key, expect: Expect, now: u64) -> Result<bool, redb::Error> {
        let name = (key.space(), key.name());
        let mut was_there = false;
        if expect == Expect::Anything {
            let end = self.logs.get(name)?.map(|row| row.value().2);
            if let Some(end) = end {
                was_there = end > now;
                self.remove(LOG, name, end)?;
            }
        }
        let there = self.entries.get(name)?.map(|row| (row.value().0, row.value().1));
        if let Some((version, end)) = there.filter(|(_, end)| *end > now)
            && is_expected(expect, Some(EntryVersion(version)))
        {
            was_there = true;
            self.remove(ENTRY, name, end)?;
        }
        Ok(was_there)
    }

    fn count(&mut self, key: &Key, by: u64, life: Duration, now: u64) -> Result<u64, redb::Error> {
        let name = (key.space(), key.name());
        let before = self.counts.get(name)?.map(|row| row.value());
        let (count, ends) = match before.filter(|(_, end)| *end > now) {
            Some((count, end)) => (count.saturating_add(by), end),
            None => (by, expiry(now, life)),
        };
        self.counts.insert(name, (count, ends))?;
        self.reschedule(COUNT, name, before.map_or(NO_EXPIRY, |(_, end)| end), ends)?;
        Ok(count)
    }

    fn append(
        &mut self,
        log: &Key,
        value: &[u8],
        life: Duration,
        most: usize,
        now: u64,
    ) -> Result<u64, redb::Error> {
        let name = (log.space(), log.name());
        let mut before = self.logs.get(name)?.map(|row| row.value());
        if let Some((_, _, ended)) = before.filter(|(_, _, end)| *end <= now) {
            self.remove(LOG, name, ended)?;
            before = None;
        }
        let (mut oldest, next, ended) = before.unwrap_or((1, 1, NO_EXPIRY));
        self.lines.insert((name.0, name.1, next), value)?;
        let most = u64::try_from(most).unwrap_or(u64::MAX).max(1);
        while next - oldest >= most {
            self.lines.remove((name.0, name.1, oldest))?;
            oldest += 1;
        }
        let end = expiry(now, life);
        self.logs.insert(name, (oldest, next + 1, end))?;
        self.reschedule(LOG, name, ended, end)?;
        Ok(next)
    }

    /// Notes when something expires, instead of when it did.
    fn reschedule(&mut self, what: u8, name: (&str, &str), before: u64, end: u64) -> Result<(), redb::Error> {
        self.is_changed = true;
        if before == end {
            return Ok(());
        }
        if before != NO_EXPIRY {
            self.expiring.remove((before, what, name.0, name.1))?;
        }
        if end != NO_EXPIRY {
            self.expiring.insert((end, what, name.0, name.1), ())?;
        }
        Ok(())
    }

    fn remove(&mut self, what: u8, name: (&str, &str), end: u64) -> Result<(), redb::Error> {
        self.reschedule(what, name, end, NO_EXPIRY)?;
        match what {
            COUNT => drop(self.counts.remove(name)?),
            LOG => {
                let row = self.logs.remove(name)?.map(|row| row.value());
                for number in row.map_or(0..0, |(oldest, next, _)| oldest..next) {
                    self.lines.remove((name.0, name.1, number))?;
                }
            }
            _ => drop(self.entries.remove(name)?),
        }
        Ok(())
    }

    /// Clears away what has expired, at most so much that nobody waits for it.
    fn remove_expired(&mut self, now: u64) -> Result<(), redb::Error> {
        for _ in 0..MAX_EXPIRED_PER_TRANSACTION {
            let Some((row, _)) = self.expiring.first()? else { break };
            let (end, what, space, name) = row.value();
            if end > now {
                break;
            }
            let (space, name) = (space.to_owned(), name.to_owned());
            drop(row);
            self.remove(what, (&space, &name), end)?;
        }
        Ok(())
    }

    /// Lets the tables go, and tells whether anything has changed.
    fn finish(mut self) -> Result<bool, redb::Error> {
        if self.is_changed {
            self.meta.insert("version", self.version)?;
        }
        Ok(self.is_changed)
    }
}

fn live_entry((version, end, value): (u64, u64, &[u8]), now: u64) -> Option<Entry> {
    (end > now).then(|| Entry { value: Bytes::copy_from_slice(value), version: EntryVersion(version) })
}

/// When a life that begins now ends. The millisecond that has begun is not counted, so that nothing ends early.
fn expiry(now: u64, life: Duration) -> u64 {
    u64::try_from(life.as_millis()).unwrap_or(NO_EXPIRY).saturating_add(1).saturating_add(now)
}
