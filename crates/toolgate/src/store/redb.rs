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

use self::tables::{Change, Done};
use self::writer::{Job, Opener, Order, Writer};
use super::channels::Channels;
use super::{Entry, Expect, Fetching, Key, Listener, Page, Reach, Store, StoreError, Version};
use crate::clock::{Clock, timer_now};

/// Changes that wait to be written. Whoever comes when so many wait, waits for a place, and not longer than the deadline.
const QUEUE: usize = 1024;

/// Reads at the same time; more wait for their turn, and not longer than the deadline.
const READERS: usize = 16;

/// How long an operation may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// How long to wait for a file that another process holds: the one before this may be about to end.
const HELD: Duration = Duration::from_secs(2);

/// Memory for pieces of the file.
const CACHE: usize = 64 << 20;

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
pub struct RedbStore(Arc<Shared>);

struct Shared {
    path: PathBuf,
    orders: SyncSender<Order>,
    /// One for each place in the queue, so that whoever has one never finds it full.
    places: Arc<Semaphore>,
    readers: Semaphore,
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
            let until = timer_now() + HELD;
            loop {
                match opener() {
                    Err(StoreError::Unavailable(_)) if timer_now() < until => {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    opened => return opened.map(|database| (database, opener)),
                }
            }
        });
        let (database, opener) = opened.await.map_err(|_| broken(&path, "its content makes no sense"))??;
        let state = Arc::new(State { database: Mutex::new(Ok(Arc::new(database))), clock: Clock::system() });
        let (orders, received) = std::sync::mpsc::sync_channel(QUEUE + 1);
        let writer = Writer::new(Arc::clone(&state), opener, received);
        std::thread::Builder::new()
            .name("toolgate-store".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| StoreError::Unavailable(format!("no thread to write with: {error}")))?;
        Ok(RedbStore(Arc::new(Shared {
            path,
            orders,
            places: Arc::new(Semaphore::new(QUEUE)),
            readers: Semaphore::new(READERS),
            state,
            channels: Arc::default(),
        })))
    }

    /// Writes what waits, closes the file and gives it free for another process. Whatever is asked of this store, or a
    /// clone of it, afterwards is an error. Without this, the file is closed when the last clone is dropped.
    pub async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if let Ok(_place) = self.0.places.acquire().await
            && self.0.orders.try_send(Order::Close(reply)).is_ok()
        {
            let _ = closed.await;
        }
        self.0.channels.close();
    }

    async fn change(&self, change: Change) -> Result<Done, StoreError> {
        let writing = async {
            let place = Arc::clone(&self.0.places).acquire_owned().await.map_err(|_| closed())?;
            let (reply, done) = oneshot::channel();
            let job = Job { change, reply, _place: place };
            self.0.orders.try_send(Order::Job(job)).map_err(|_| closed())?;
            done.await.map_err(|_| closed())?
        };
        in_time(writing).await
    }

    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&ReadTransaction, u64) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let reading = async {
            let _turn = self.0.readers.acquire().await.map_err(|_| closed())?;
            let state = Arc::clone(&self.0.state);
            let found = tokio::task::spawn_blocking(move || {
                let database = state.database()?;
                let now = state.clock.unix_millis();
                database
                    .begin_read()
                    .map_err(redb::Error::from)
                    .and_then(|snapshot| look(&snapshot, now))
                    .map_err(|error| refusal(&error))
            });
            found.await.map_err(|_| broken(&self.0.path, "reading it failed"))?
        };
        in_time(reading).await
    }
}

impl fmt::Debug for RedbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbStore").field("path", &self.0.path).finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.channels.close();
    }
}

impl State {
    fn database(&self) -> Result<Arc<Database>, StoreError> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, database: Result<Arc<Database>, StoreError>) {
        *self.database.lock().unwrap_or_else(PoisonError::into_inner) = database;
    }
}

impl Store for RedbStore {
    fn get<'a>(&'a self, key: &'a Key) -> Fetching<'a, Option<Entry>> {
        let key = key.clone();
        Box::pin(self.look(move |snapshot, now| tables::get(snapshot, &key, now)))
    }

    fn put<'a>(
        &'a self,
        key: &'a Key,
        value: Bytes,
        life: Option<Duration>,
        expect: Expect,
    ) -> Fetching<'a, Option<Version>> {
        Box::pin(async move {
            match self.change(Change::Put { key: key.clone(), value, life, expect }).await? {
                Done::Put(version) => Ok(version),
                other => Err(mistaken(&other)),
            }
        })
    }

    fn touch<'a>(&'a self, key: &'a Key, life: Duration) -> Fetching<'a, bool> {
        Box::pin(self.flag(Change::Touch { key: key.clone(), life }))
    }

    fn delete<'a>(&'a self, key: &'a Key, expect: Expect) -> Fetching<'a, bool> {
        Box::pin(self.flag(Change::Delete { key: key.clone(), expect }))
    }

    fn list<'a>(
        &'a self,
        space: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> Fetching<'a, Vec<(Box<str>, Entry)>> {
        let (space, after) = (space.to_owned(), after.map(str::to_owned));
        Box::pin(self.look(move |snapshot, now| tables::list(snapshot, &space, after.as_deref(), most, now)))
    }

    fn count<'a>(&'a self, key: &'a Key, by: u64, life: Duration) -> Fetching<'a, u64> {
        Box::pin(self.number(Change::Count { key: key.clone(), by, life }))
    }

    fn append<'a>(&'a self, log: &'a Key, value: Bytes, life: Duration, most: usize) -> Fetching<'a, u64> {
        Box::pin(self.number(Change::Append { log: log.clone(), value, life, most }))
    }

    fn read<'a>(&'a self, log: &'a Key, after: u64, most: usize) -> Fetching<'a, Page> {
        let log = log.clone();
        Box::pin(self.look(move |snapshot, now| tables::read(snapshot, &log, after, most, now)))
    }

    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> Fetching<'a, ()> {
        self.0.channels.publish(channel, &message);
        Box::pin(std::future::ready(Ok(())))
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> Fetching<'a, Listener> {
        Box::pin(std::future::ready(Ok(self.0.channels.subscribe(channel))))
    }

    fn reach(&self) -> Reach {
        Reach::Restart
    }
}

impl RedbStore {
    async fn flag(&self, change: Change) -> Result<bool, StoreError> {
        match self.change(change).await? {
            Done::Flag(flag) => Ok(flag),
            other => Err(mistaken(&other)),
        }
    }

    async fn number(&self, change: Change) -> Result<u64, StoreError> {
        match self.change(change).await? {
            Done::Number(number) => Ok(number),
            other => Err(mistaken(&other)),
        }
    }
}

/// Opens a file that is there, or makes one.
fn open_file(path: &Path) -> Result<Database, StoreError> {
    let is_new = match std::fs::metadata(path) {
        Ok(metadata) => metadata.len() == 0,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            make_file(path)?;
            false
        }
        Err(error) => return Err(unreadable(path, &error)),
    };
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE);
    let opened = if is_new { builder.create(path) } else { builder.open(path) };
    let database = opened.map_err(|error| not_opened(path, error))?;
    prepare(path, &database)?;
    Ok(database)
}

/// A new file gets its name when it is complete: whoever is killed while making it leaves nothing half made behind.
fn make_file(path: &Path) -> Result<(), StoreError> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".new-{}-{}", std::process::id(), unique()));
    let draft = PathBuf::from(draft);
    let made = private(&draft).map_err(|error| unreadable(path, &error)).and_then(|()| {
        let database = Database::create(&draft).map_err(|error| not_opened(path, error))?;
        prepare(path, &database)?;
        drop(database);
        // A link does not replace a file that another process has made meanwhile; that one is as good.
        match std::fs::hard_link(&draft, path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            // Not every file system has links.
            Err(_) if !path.exists() => {
                std::fs::rename(&draft, path).map_err(|error| unreadable(path, &error))
            }
            linked => linked.map_err(|error| unreadable(path, &error)),
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
fn private(path: &Path) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

/// Makes the tables in a file without any, and refuses one with tables of somebody else.
fn prepare(path: &Path, database: &Database) -> Result<(), StoreError> {
    match tables::prepare(database) {
        Ok(tables::Format::Ours) => Ok(()),
        Ok(tables::Format::Foreign) => Err(broken(path, "it belongs to another program")),
        Ok(tables::Format::Newer(format)) => {
            Err(broken(path, &format!("it was written by a newer version (format {format})")))
        }
        Err(error) => match refusal(&error) {
            StoreError::Broken(why) => Err(broken(path, &why)),
            other => Err(other),
        },
    }
}

fn not_opened(path: &Path, error: redb::DatabaseError) -> StoreError {
    match error {
        redb::DatabaseError::DatabaseAlreadyOpen => StoreError::Unavailable(format!(
            "{} is in use by another process; end that one, give each process a file of its own, or let them share a Redis",
            path.display()
        )),
        redb::DatabaseError::UpgradeRequired(_) => broken(path, "its format is too old"),
        redb::DatabaseError::Storage(redb::StorageError::Io(error)) => match error.kind() {
            std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof => {
                broken(path, &error.to_string())
            }
            std::io::ErrorKind::StorageFull => StoreError::Full,
            _ => unreadable(path, &error),
        },
        other => broken(path, &other.to_string()),
    }
}

/// What callers are told of an error inside.
fn refusal(error: &redb::Error) -> StoreError {
    use std::io::ErrorKind;
    match error {
        redb::Error::Io(error) => match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => StoreError::Full,
            ErrorKind::InvalidData | ErrorKind::UnexpectedEof => StoreError::Broken(error.to_string()),
            _ => StoreError::Unavailable(error.to_string()),
        },
        redb::Error::Corrupted(why) => StoreError::Broken(why.clone()),
        redb::Error::ValueTooLarge(_) => StoreError::Full,
        other => StoreError::Unavailable(other.to_string()),
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> StoreError {
    StoreError::Unavailable(format!("{}: {error}", path.display()))
}

fn broken(path: &Path, why: &str) -> StoreError {
    StoreError::Broken(format!("{} is no file of this store: {why}; it was left as it is", path.display()))
}

fn closed() -> StoreError {
    StoreError::Unavailable("it was closed".to_owned())
}

fn mistaken(done: &Done) -> StoreError {
    StoreError::Broken(format!("an answer to another question: {done:?}"))
}

async fn in_time<T>(future: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(ended) => ended,
        Err(_) => Err(StoreError::Unavailable(format!("the disk took longer than {DEADLINE:?}"))),
    }
}

fn unique() -> String {
    getrandom::u64().map_or_else(|_| "0".to_owned(), |number| format!("{number:016x}"))
}

// Signals and open files without a name are what these tests are made of.
#[cfg(test)]
#[cfg(unix)]
mod tests;
