//! A store in one file, whose data survives a restart.
//!
//! One thread writes. All queued changes go into one transaction and reach the disk with one `fsync`; only then are
//! they acknowledged. Reads see the last committed state and run on blocking threads. The tables are in `tables`, the
//! writer thread is in `writer`.

mod tables;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use redb::{Database, ReadTransaction, ReadableDatabase as _};
use tokio::sync::{Semaphore, oneshot};

use self::tables::{WriteOp, WriteResult};
use self::writer::{Opener, RedbWriter, WriteRequest, WriterCommand};
use super::channels::Channels;
use super::{
    Entry, EntryVersion, Expect, Key, Listener, LogPage, Store, StoreError, StoreFuture, Visibility,
    with_timeout,
};
use crate::util::clock::{Clock, timer_now};
use crate::util::lock;

/// Limit of the queued changes. If the queue is full, callers wait, at most for [`OPERATION_DEADLINE`].
const MAX_QUEUED_WRITES: usize = 1024;

/// Limit of the concurrent reads. Further ones wait, at most for [`OPERATION_DEADLINE`].
const MAX_READERS: usize = 16;

/// Time limit of an operation.
const OPERATION_DEADLINE: Duration = Duration::from_secs(5);

/// How long to wait for a file that another process has open: it may be about to end.
const OPEN_TIMEOUT: Duration = Duration::from_secs(2);

/// Size of the page cache.
const CACHE_BYTES: usize = 64 << 20;

/// A store in one file, whose data survives a restart.
///
/// A change is on the disk before it is acknowledged. Only one process at a time can open the file; clones of this
/// value share it.
///
/// ```no_run
/// # use toolgate::store::{Expect, Key, RedbStore, Store};
/// # async fn example() -> Result<(), toolgate::store::StoreError> {
/// let store = RedbStore::open("state.redb").await?;
/// let key = Key::new("notes", "first");
/// store.put(&key, "remember the milk".into(), None, Expect::Anything).await?;
/// // Also after a restart or a crash:
/// assert_eq!(store.get(&key).await?.map(|entry| entry.value), Some("remember the milk".into()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[doc(alias("session store", "embedded database"))]
pub struct RedbStore(Arc<RedbInner>);

struct RedbInner {
    path: PathBuf,
    commands: SyncSender<WriterCommand>,
    /// One permit for each place in the queue: a holder of a permit never finds the queue full.
    queue_permits: Arc<Semaphore>,
    reader_permits: Semaphore,
    state: Arc<State>,
    channels: Arc<Channels>,
}

/// State shared by the writer and the readers.
#[derive(Debug)]
struct State {
    /// The open file, or the error while it cannot be used.
    database: Mutex<Result<Arc<Database>, StoreError>>,
    clock: Clock,
}

impl RedbStore {
    /// Opens or creates the file. If another process has it open, waits for up to two seconds.
    ///
    /// # Errors
    ///
    /// If another process has the file open, if it is not a file of this store, or if it cannot be read or written. An
    /// invalid file is not changed.
    pub async fn open(path: impl AsRef<Path>) -> Result<RedbStore, StoreError> {
        let path = path.as_ref().to_owned();
        let opener = {
            let path = path.clone();
            move || open_file(&path)
        };
        RedbStore::open_with(path, Box::new(opener)).await
    }

    async fn open_with(path: PathBuf, opener: Opener) -> Result<RedbStore, StoreError> {
        let opened = tokio::task::spawn_blocking(move || {
            let deadline = timer_now() + OPEN_TIMEOUT;
            loop {
                match opener() {
                    Err(StoreError::Unavailable(_) | StoreError::InUse(_)) if timer_now() < deadline => {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    opened => return opened.map(|database| (database, opener)),
                }
            }
        });
        let (database, opener) =
            opened.await.map_err(|_| corrupt_file(&path, "its content is malformed"))??;
        let state = Arc::new(State { database: Mutex::new(Ok(Arc::new(database))), clock: Clock::system() });
        let (commands, received) = std::sync::mpsc::sync_channel(MAX_QUEUED_WRITES + 1);
        let writer = RedbWriter::new(Arc::clone(&state), opener, received);
        std::thread::Builder::new()
            .name("toolgate-store".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| StoreError::Unavailable(format!("cannot start the writer thread: {error}")))?;
        Ok(RedbStore(Arc::new(RedbInner {
            path,
            commands,
            queue_permits: Arc::new(Semaphore::new(MAX_QUEUED_WRITES)),
            reader_permits: Semaphore::new(MAX_READERS),
            state,
            channels: Arc::default(),
        })))
    }

    /// Writes all queued changes and closes the file, so that another process can open it.
    ///
    /// Afterwards, operations of this store and its clones fail. Without this, the file is closed when the last clone
    /// is dropped.
    pub async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if let Ok(_permit) = self.0.queue_permits.acquire().await
            && self.0.commands.try_send(WriterCommand::Close(reply)).is_ok()
        {
            let _ = closed.await;
        }
        self.0.channels.close();
    }

    async fn write(&self, op: WriteOp) -> Result<WriteResult, StoreError> {
        let writing = async {
            let permit = Arc::clone(&self.0.queue_permits).acquire_owned().await.map_err(|_| closed())?;
            let (reply, result) = oneshot::channel();
            let request = WriteRequest { op, reply, _permit: permit };
            self.0.commands.try_send(WriterCommand::Write(request)).map_err(|_| closed())?;
            result.await.map_err(|_| closed())?
        };
        with_timeout(OPERATION_DEADLINE, writing, timed_out).await
    }

    async fn query<T: Send + 'static>(
        &self,
        query: impl FnOnce(&ReadTransaction, u64) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let reading = async {
            let _permit = self.0.reader_permits.acquire().await.map_err(|_| closed())?;
            let state = Arc::clone(&self.0.state);
            let result = tokio::task::spawn_blocking(move || {
                let database = state.database()?;
                let now = state.clock.unix_millis();
                database
                    .begin_read()
                    .map_err(redb::Error::from)
                    .and_then(|snapshot| query(&snapshot, now))
                    .map_err(|error| to_store_error(&error))
            });
            result.await.map_err(|_| corrupt_file(&self.0.path, "reading it failed"))?
        };
        with_timeout(OPERATION_DEADLINE, reading, timed_out).await
    }
}

impl fmt::Debug for RedbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbStore").field("path", &self.0.path).finish_non_exhaustive()
    }
}

impl Drop for RedbInner {
    fn drop(&mut self) {
        self.channels.close();
    }
}

impl State {
    fn database(&self) -> Result<Arc<Database>, StoreError> {
        lock(&self.database).clone()
    }

    fn set_database(&self, database: Result<Arc<Database>, StoreError>) {
        *lock(&self.database) = database;
    }
}

impl Store for RedbStore {
    fn get<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, Option<Entry>> {
        let key = key.clone();
        Box::pin(self.query(move |snapshot, now| tables::get(snapshot, &key, now)))
    }

    fn put<'a>(
        &'a self,
        key: &'a Key,
        value: Bytes,
        ttl: Option<Duration>,
        expect: Expect,
    ) -> StoreFuture<'a, Option<EntryVersion>> {
        Box::pin(async move {
            match self.write(WriteOp::Put { key: key.clone(), value, ttl, expect }).await? {
                WriteResult::Put(version) => Ok(version),
                other => Err(unexpected_result(&other)),
            }
        })
    }

    fn touch<'a>(&'a self, key: &'a Key, ttl: Duration) -> StoreFuture<'a, bool> {
        Box::pin(self.write_bool(WriteOp::Touch { key: key.clone(), ttl }))
    }

    fn delete<'a>(&'a self, key: &'a Key, expect: Expect) -> StoreFuture<'a, bool> {
        Box::pin(self.write_bool(WriteOp::Delete { key: key.clone(), expect }))
    }

    fn list<'a>(
        &'a self,
        space: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(Box<str>, Entry)>> {
        let (space, after) = (space.to_owned(), after.map(str::to_owned));
        Box::pin(
            self.query(move |snapshot, now| tables::list(snapshot, &space, after.as_deref(), limit, now)),
        )
    }

    fn increment<'a>(&'a self, key: &'a Key, by: u64, ttl: Duration) -> StoreFuture<'a, u64> {
        Box::pin(self.write_number(WriteOp::Increment { key: key.clone(), by, ttl }))
    }

    fn append<'a>(&'a self, log: &'a Key, value: Bytes, ttl: Duration, limit: usize) -> StoreFuture<'a, u64> {
        Box::pin(self.write_number(WriteOp::Append { log: log.clone(), value, ttl, limit }))
    }

    fn read<'a>(&'a self, log: &'a Key, after: u64, limit: usize) -> StoreFuture<'a, LogPage> {
        let log = log.clone();
        Box::pin(self.query(move |snapshot, now| tables::read(snapshot, &log, after, limit, now)))
    }

    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> StoreFuture<'a, ()> {
        self.0.channels.publish(channel, &message);
        Box::pin(std::future::ready(Ok(())))
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> StoreFuture<'a, Listener> {
        Box::pin(std::future::ready(Ok(self.0.channels.subscribe(channel))))
    }

    fn visibility(&self) -> Visibility {
        Visibility::Durable
    }
}

impl RedbStore {
    async fn write_bool(&self, op: WriteOp) -> Result<bool, StoreError> {
        match self.write(op).await? {
            WriteResult::Flag(flag) => Ok(flag),
            other => Err(unexpected_result(&other)),
        }
    }

    async fn write_number(&self, op: WriteOp) -> Result<u64, StoreError> {
        match self.write(op).await? {
            WriteResult::Number(number) => Ok(number),
            other => Err(unexpected_result(&other)),
        }
    }
}

/// Opens an existing file, or creates one.
fn open_file(path: &Path) -> Result<Database, StoreError> {
    let is_new = match std::fs::metadata(path) {
        Ok(metadata) => metadata.len() == 0,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            create_file(path)?;
            false
        }
        Err(error) => return Err(io_error(path, &error)),
    };
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    let opened = if is_new { builder.create(path) } else { builder.open(path) };
    let database = opened.map_err(|error| open_error(path, error))?;
    prepare(path, &database)?;
    Ok(database)
}

/// Creates a file under a temporary name and renames it when it is complete, so that a crash leaves no partial file.
fn create_file(path: &Path) -> Result<(), StoreError> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".new-{}-{}", std::process::id(), random_suffix()));
    let draft = PathBuf::from(draft);
    let created = create_private_file(&draft).map_err(|error| io_error(path, &error)).and_then(|()| {
        let database = Database::create(&draft).map_err(|error| open_error(path, error))?;
        prepare(path, &database)?;
        drop(database);
        // A hard link does not replace a file that another process has created meanwhile; that file is used instead.
        match std::fs::hard_link(&draft, path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            // The file system may not support hard links.
            Err(_) if !path.exists() => std::fs::rename(&draft, path).map_err(|error| io_error(path, &error)),
            linked => linked.map_err(|error| io_error(path, &error)),
        }
    });
    // After a rename it does not exist any more.
    let _ = std::fs::remove_file(&draft);
    created?;
    // The directory entry must survive a power failure too. Errors are ignored: not every system can sync a directory.
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(directory) = std::fs::File::open(directory) {
        let _ = directory.sync_all();
    }
    Ok(())
}

/// Creates an empty file that only its owner can read, because it will hold sessions and results of calls.
fn create_private_file(path: &Path) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

/// Creates the tables in an empty database. Rejects one with tables of another program or a newer format.
fn prepare(path: &Path, database: &Database) -> Result<(), StoreError> {
    match tables::prepare(database) {
        Ok(tables::FileFormat::Current) => Ok(()),
        Ok(tables::FileFormat::Foreign) => Err(corrupt_file(path, "it belongs to another program")),
        Ok(tables::FileFormat::Newer(format)) => {
            Err(corrupt_file(path, &format!("it was written by a newer version (format {format})")))
        }
        Err(error) => match to_store_error(&error) {
            StoreError::Corrupt(reason) => Err(corrupt_file(path, &reason)),
            other => Err(other),
        },
    }
}

fn open_error(path: &Path, error: redb::DatabaseError) -> StoreError {
    match error {
        redb::DatabaseError::DatabaseAlreadyOpen => StoreError::InUse(format!(
            "{} is in use by another process; end that one, give each process a file of its own, or let them share a Redis",
            path.display()
        )),
        redb::DatabaseError::UpgradeRequired(_) => corrupt_file(path, "its format is too old"),
        redb::DatabaseError::Storage(redb::StorageError::Io(error)) => match error.kind() {
            std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof => {
                corrupt_file(path, &error.to_string())
            }
            std::io::ErrorKind::StorageFull => StoreError::Full,
            _ => io_error(path, &error),
        },
        other => corrupt_file(path, &other.to_string()),
    }
}

/// Converts an error of the database.
fn to_store_error(error: &redb::Error) -> StoreError {
    use std::io::ErrorKind;
    match error {
        redb::Error::Io(error) => match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => StoreError::Full,
            ErrorKind::InvalidData | ErrorKind::UnexpectedEof => StoreError::Corrupt(error.to_string()),
            _ => StoreError::Unavailable(error.to_string()),
        },
        redb::Error::Corrupted(reason) => StoreError::Corrupt(reason.clone()),
        redb::Error::ValueTooLarge(_) => StoreError::Full,
        other => StoreError::Unavailable(other.to_string()),
    }
}

fn io_error(path: &Path, error: &std::io::Error) -> StoreError {
    StoreError::Unavailable(format!("{}: {error}", path.display()))
}

fn corrupt_file(path: &Path, reason: &str) -> StoreError {
    let path = path.display();
    StoreError::Corrupt(format!("{path} is not a file of this store: {reason}; it was not changed"))
}

fn closed() -> StoreError {
    StoreError::Unavailable("it was closed".to_owned())
}

fn unexpected_result(result: &WriteResult) -> StoreError {
    StoreError::Corrupt(format!("the writer returned the result of another operation: {result:?}"))
}

fn timed_out() -> StoreError {
    StoreError::Unavailable(format!("the disk took longer than {OPERATION_DEADLINE:?}"))
}

fn random_suffix() -> String {
    getrandom::u64().map_or_else(|_| "0".to_owned(), |number| format!("{number:016x}"))
}

// The tests delete open files, which only Unix allows.
#[cfg(test)]
#[cfg(unix)]
mod tests;
