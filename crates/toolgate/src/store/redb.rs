//! Everything in one file of this machine, found again after a restart.
//!
//! One thread writes. Whatever waits for it goes into one transaction and onto the disk with one `fsync`; only then are
//! those who wait told. Reads look at the last state that was committed, on threads where blocking hurts nobody. What
//! the tables look like stands in `tables`, what the thread does in `writer`.

mod tables;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use redb::{Database, ReadTransaction, ReadableDatabase as _};
use tokio::sync::{Semaphore, oneshot};

use self::tables::{WriteOp, WriteResult};
use self::writer::{Opener, RedbWriter, WriteRequest, WriterCommand};
use super::channels::Channels;
use super::{
    Entry, EntryVersion, Expect, Key, Listener, LogPage, Store, StoreError, StoreFuture, Visibility,
};
use crate::util::clock::{Clock, timer_now};

/// Changes that wait to be written. Whoever comes when so many wait, waits for a place, and not longer than the deadline.
const MAX_QUEUED_WRITES: usize = 1024;

/// Reads at the same time; more wait for their turn, and not longer than the deadline.
const MAX_READERS: usize = 16;

/// How long an operation may take.
const OPERATION_DEADLINE: Duration = Duration::from_secs(5);

/// How long to wait for a file that another process holds: the one before this may be about to end.
const OPEN_TIMEOUT: Duration = Duration::from_secs(2);

/// Memory for pieces of the file.
const CACHE_BYTES: usize = 64 << 20;

/// Keeps everything in one file: what is there is found again after a restart.
///
/// A change is on the disk before it is answered. One process at a time can have the file; clones of this value share
/// it.
///
/// ```no_run
/// # use toolgate::store::{Expect, Key, RedbStore, Store};
/// # async fn example() -> Result<(), toolgate::store::StoreError> {
/// let store = RedbStore::open("state.redb").await?;
/// let key = Key::new("notes", "first");
/// store.put(&key, "remember the milk".into(), None, Expect::Anything).await?;
/// // After a restart, and after a crash:
/// assert_eq!(store.get(&key).await?.map(|entry| entry.value), Some("remember the milk".into()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedbStore(Arc<RedbInner>);

struct RedbInner {
    path: PathBuf,
    commands: SyncSender<WriterCommand>,
    /// One for each place in the queue, so that whoever has one never finds it full.
    queue_permits: Arc<Semaphore>,
    reader_permits: Semaphore,
    state: Arc<State>,
    channels: Arc<Channels>,
}

/// What the writer and the readers share.
#[derive(Debug)]
struct State {
    /// The open file; none while it cannot be used.
    database: Mutex<Result<Arc<Database>, StoreError>>,
    clock: Clock,
}

impl RedbStore {
    /// Opens the file, or makes it. Waits for two seconds if another process still has it.
    ///
    /// # Errors
    ///
    /// If another process has it, if it is no file of a store, or if it cannot be read or written. A file that is not
    /// understood is left as it is.
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
            let until = timer_now() + OPEN_TIMEOUT;
            loop {
                match opener() {
                    Err(StoreError::Unavailable(_) | StoreError::InUse(_)) if timer_now() < until => {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    opened => return opened.map(|database| (database, opener)),
                }
            }
        });
        let (database, opener) =
            opened.await.map_err(|_| corrupt_file(&path, "its content makes no sense"))??;
        let state = Arc::new(State { database: Mutex::new(Ok(Arc::new(database))), clock: Clock::system() });
        let (orders, received) = std::sync::mpsc::sync_channel(MAX_QUEUED_WRITES + 1);
        let writer = RedbWriter::new(Arc::clone(&state), opener, received);
        std::thread::Builder::new()
            .name("toolgate-store".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| StoreError::Unavailable(format!("no thread to write with: {error}")))?;
        Ok(RedbStore(Arc::new(RedbInner {
            path,
            commands: orders,
            queue_permits: Arc::new(Semaphore::new(MAX_QUEUED_WRITES)),
            reader_permits: Semaphore::new(MAX_READERS),
            state,
            channels: Arc::default(),
        })))
    }

    /// Writes what waits, closes the file and gives it free for another process. Whatever is asked of this store, or a
    /// clone of it, afterwards is an error. Without this, the file is closed when the last clone is dropped.
    pub async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if let Ok(_place) = self.0.queue_permits.acquire().await
            && self.0.commands.try_send(WriterCommand::Close(reply)).is_ok()
        {
            let _ = closed.await;
        }
        self.0.channels.close();
    }

    async fn write(&self, change: WriteOp) -> Result<WriteResult, StoreError> {
        let writing = async {
            let place = Arc::clone(&self.0.queue_permits).acquire_owned().await.map_err(|_| closed())?;
            let (reply, done) = oneshot::channel();
            let job = WriteRequest { op: change, reply, _permit: place };
            self.0.commands.try_send(WriterCommand::Write(job)).map_err(|_| closed())?;
            done.await.map_err(|_| closed())?
        };
        with_deadline(writing).await
    }

    async fn query<T: Send + 'static>(
        &self,
        look: impl FnOnce(&ReadTransaction, u64) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let reading = async {
            let _turn = self.0.reader_permits.acquire().await.map_err(|_| closed())?;
            let state = Arc::clone(&self.0.state);
            let found = tokio::task::spawn_blocking(move || {
                let database = state.database()?;
                let now = state.clock.unix_millis();
                database
                    .begin_read()
                    .map_err(redb::Error::from)
                    .and_then(|snapshot| look(&snapshot, now))
                    .map_err(|error| to_store_error(&error))
            });
            found.await.map_err(|_| corrupt_file(&self.0.path, "reading it failed"))?
        };
        with_deadline(reading).await
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
        self.database.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_database(&self, database: Result<Arc<Database>, StoreError>) {
        *self.database.lock().unwrap_or_else(PoisonError::into_inner) = database;
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
        life: Option<Duration>,
        expect: Expect,
    ) -> StoreFuture<'a, Option<EntryVersion>> {
        Box::pin(async move {
            match self.write(WriteOp::Put { key: key.clone(), value, ttl: life, expect }).await? {
                WriteResult::Put(version) => Ok(version),
                other => Err(unexpected_result(&other)),
            }
        })
    }

    fn touch<'a>(&'a self, key: &'a Key, life: Duration) -> StoreFuture<'a, bool> {
        Box::pin(self.write_bool(WriteOp::Touch { key: key.clone(), ttl: life }))
    }

    fn delete<'a>(&'a self, key: &'a Key, expect: Expect) -> StoreFuture<'a, bool> {
        Box::pin(self.write_bool(WriteOp::Delete { key: key.clone(), expect }))
    }

    fn list<'a>(
        &'a self,
        space: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> StoreFuture<'a, Vec<(Box<str>, Entry)>> {
        let (space, after) = (space.to_owned(), after.map(str::to_owned));
        Box::pin(self.query(move |snapshot, now| tables::list(snapshot, &space, after.as_deref(), most, now)))
    }

    fn increment<'a>(&'a self, key: &'a Key, by: u64, life: Duration) -> StoreFuture<'a, u64> {
        Box::pin(self.write_number(WriteOp::Count { key: key.clone(), by, ttl: life }))
    }

    fn append<'a>(&'a self, log: &'a Key, value: Bytes, life: Duration, most: usize) -> StoreFuture<'a, u64> {
        Box::pin(self.write_number(WriteOp::Append { log: log.clone(), value, ttl: life, max_len: most }))
    }

    fn read<'a>(&'a self, log: &'a Key, after: u64, most: usize) -> StoreFuture<'a, LogPage> {
        let log = log.clone();
        Box::pin(self.query(move |snapshot, now| tables::read(snapshot, &log, after, most, now)))
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
    async fn write_bool(&self, change: WriteOp) -> Result<bool, StoreError> {
        match self.write(change).await? {
            WriteResult::Flag(flag) => Ok(flag),
            other => Err(unexpected_result(&other)),
        }
    }

    async fn write_number(&self, change: WriteOp) -> Result<u64, StoreError> {
        match self.write(change).await? {
            WriteResult::Number(number) => Ok(number),
            other => Err(unexpected_result(&other)),
        }
    }
}

/// Opens a file that is there, or makes one.
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

/// A new file gets its name when it is complete: whoever is killed while making it leaves nothing half made behind.
fn create_file(path: &Path) -> Result<(), StoreError> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".new-{}-{}", std::process::id(), random_suffix()));
    let draft = PathBuf::from(draft);
    let made = create_private_file(&draft).map_err(|error| io_error(path, &error)).and_then(|()| {
        let database = Database::create(&draft).map_err(|error| open_error(path, error))?;
        prepare(path, &database)?;
        drop(database);
        // A link does not replace a file that another process has made meanwhile; that one is as good.
        match std::fs::hard_link(&draft, path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            // Not every file system has links.
            Err(_) if !path.exists() => std::fs::rename(&draft, path).map_err(|error| io_error(path, &error)),
            linked => linked.map_err(|error| io_error(path, &error)),
        }
    });
    // After a rename it is gone already.
    let _ = std::fs::remove_file(&draft);
    made?;
    // The name must outlive a power cut too. Where a directory cannot be synced, nothing can be done.
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(directory) = std::fs::File::open(directory) {
        let _ = directory.sync_all();
    }
    Ok(())
}

/// Makes an empty file that nobody else may read: what is kept in it are sessions and what calls gave.
fn create_private_file(path: &Path) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

/// Makes the tables in a file without any, and refuses one with tables of somebody else.
fn prepare(path: &Path, database: &Database) -> Result<(), StoreError> {
    match tables::prepare(database) {
        Ok(tables::FileFormat::Current) => Ok(()),
        Ok(tables::FileFormat::Foreign) => Err(corrupt_file(path, "it belongs to another program")),
        Ok(tables::FileFormat::Newer(format)) => {
            Err(corrupt_file(path, &format!("it was written by a newer version (format {format})")))
        }
        Err(error) => match to_store_error(&error) {
            StoreError::Corrupt(why) => Err(corrupt_file(path, &why)),
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

/// What callers are told of an error inside.
fn to_store_error(error: &redb::Error) -> StoreError {
    use std::io::ErrorKind;
    match error {
        redb::Error::Io(error) => match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => StoreError::Full,
            ErrorKind::InvalidData | ErrorKind::UnexpectedEof => StoreError::Corrupt(error.to_string()),
            _ => StoreError::Unavailable(error.to_string()),
        },
        redb::Error::Corrupted(why) => StoreError::Corrupt(why.clone()),
        redb::Error::ValueTooLarge(_) => StoreError::Full,
        other => StoreError::Unavailable(other.to_string()),
    }
}

fn io_error(path: &Path, error: &std::io::Error) -> StoreError {
    StoreError::Unavailable(format!("{}: {error}", path.display()))
}

fn corrupt_file(path: &Path, why: &str) -> StoreError {
    StoreError::Corrupt(format!("{} is no file of this store: {why}; it was left as it is", path.display()))
}

fn closed() -> StoreError {
    StoreError::Unavailable("it was closed".to_owned())
}

fn unexpected_result(done: &WriteResult) -> StoreError {
    StoreError::Corrupt(format!("an answer to another question: {done:?}"))
}

async fn with_deadline<T>(future: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    match tokio::time::timeout(OPERATION_DEADLINE, future).await {
        Ok(ended) => ended,
        Err(_) => Err(StoreError::Unavailable(format!("the disk took longer than {OPERATION_DEADLINE:?}"))),
    }
}

fn random_suffix() -> String {
    getrandom::u64().map_or_else(|_| "0".to_owned(), |number| format!("{number:016x}"))
}

// Signals and open files without a name are what these tests are made of.
#[cfg(test)]
#[cfg(unix)]
mod tests;
