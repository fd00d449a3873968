//! The contract, and files that are damaged, in use, or on a failing disk.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, Write as _};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redb::backends::FileBackend;
use redb::{BackendError, Database, StorageBackend, TableDefinition};

use super::{RedbStore, prepare};
use crate::store::{Expect, Key, Store as _, StoreError};

const TTL: Duration = Duration::from_secs(600);

/// A temporary directory. It is kept if the test fails.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> TempDir {
        let path = std::env::temp_dir().join(format!("toolgate-store-{}", super::random_suffix()));
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("state.redb")
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

mod contract {
    use super::super::RedbStore;

    crate::store_contract!(|instance: String| async move {
        let directory = std::env::temp_dir().join("toolgate-store-contract");
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join(instance);
        let is_second = path.exists();
        let store = RedbStore::open(&path).await.unwrap();
        // An open file needs no name, except where the test opens it a second time.
        if is_second || !path.to_string_lossy().contains("a_second_handle") {
            std::fs::remove_file(&path).unwrap();
        }
        store
    });
}

fn key(name: &str) -> Key {
    Key::new("space", name)
}

async fn put(store: &RedbStore, name: &str, value: &str) -> Result<(), StoreError> {
    let value = bytes::Bytes::copy_from_slice(value.as_bytes());
    store.put(&key(name), value, None, Expect::Anything).await.map(drop)
}

async fn value(store: &RedbStore, name: &str) -> Option<String> {
    let found = store.get(&key(name)).await.unwrap();
    found.map(|entry| String::from_utf8_lossy(&entry.value).into_owned())
}

/// Simulated disk faults, and the number of syncs.
#[derive(Debug, Default)]
struct DiskFaults {
    is_full: AtomicBool,
    cannot_sync: AtomicBool,
    n_syncs: AtomicU64,
}

#[derive(Debug)]
struct FaultyBackend(FileBackend, Arc<DiskFaults>);

impl FaultyBackend {
    fn check_space(&self) -> io::Result<()> {
        match self.1.is_full.load(Ordering::SeqCst) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }
}

impl StorageBackend for FaultyBackend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_space()?;
        self.0.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.1.n_syncs.fetch_add(1, Ordering::SeqCst);
        match self.1.cannot_sync.load(Ordering::SeqCst) {
            true => Err(io::Error::other("the disk is on fire")),
            false => self.0.sync_data(),
        }
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check_space()?;
        self.0.write(offset, data)
    }
    fn close(&self) -> io::Result<()> {
        self.0.close()
    }
    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.try_lock_range(start, end)
    }
    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.try_lock_shared_range(start, end)
    }
    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.lock_range(start, end)
    }
    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.lock_shared_range(start, end)
    }
    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.unlock_range(start, end)
    }
    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.query_lock_range(start, end)
    }
}

async fn open_on(path: &Path, disk: &Arc<DiskFaults>) -> RedbStore {
    let (file, disk) = (path.to_owned(), Arc::clone(disk));
    let opener = move || {
        let mut options = std::fs::OpenOptions::new();
        let opened = options.read(true).write(true).create(true).truncate(false).open(&file).unwrap();
        let backend = FaultyBackend(FileBackend::new(opened).unwrap(), Arc::clone(&disk));
        let database = Database::builder()
            .create_with_backend(backend)
            .map_err(|error| super::open_error(&file, error))?;
        prepare(&file, &database)?;
        Ok(database)
    };
    RedbStore::open_with(path.to_owned(), Box::new(opener)).await.unwrap()
}

async fn assert_recovers(store: &RedbStore) {
    let started = Instant::now();
    while put(store, "again", "yes").await.is_err() {
        assert!(started.elapsed() < Duration::from_secs(10), "it did not recover");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(value(store, "again").await.as_deref(), Some("yes"));
}

#[tokio::test]
async fn a_full_disk_is_an_error_until_there_is_space() {
    let directory = TempDir::new();
    let disk = Arc::new(DiskFaults::default());
    let store = open_on(&directory.file(), &disk).await;
    put(&store, "before", "stored").await.unwrap();
    disk.is_full.store(true, Ordering::SeqCst);
    assert_eq!(put(&store, "full", "lost").await, Err(StoreError::Full));
    for _ in 0..3 {
        assert!(put(&store, "full", "lost").await.is_err());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    disk.is_full.store(false, Ordering::SeqCst);
    assert_recovers(&store).await;
    assert_eq!(value(&store, "before").await.as_deref(), Some("stored"));
    assert_eq!(value(&store, "full").await, None);
    store.close().await;
    let store = RedbStore::open(directory.file()).await.unwrap();
    assert_eq!(value(&store, "again").await.as_deref(), Some("yes"));
}

#[tokio::test]
async fn a_change_that_is_not_synced_is_not_acknowledged() {
    let directory = TempDir::new();
    let disk = Arc::new(DiskFaults::default());
    let store = open_on(&directory.file(), &disk).await;
    put(&store, "before", "stored").await.unwrap();
    disk.cannot_sync.store(true, Ordering::SeqCst);
    for _ in 0..5 {
        assert!(matches!(put(&store, "a", "b").await, Err(StoreError::Unavailable(_))));
    }
    disk.cannot_sync.store(false, Ordering::SeqCst);
    assert_recovers(&store).await;
    assert_eq!(value(&store, "before").await.as_deref(), Some("stored"));
}

#[tokio::test]
async fn concurrent_writes_share_one_sync() {
    let directory = TempDir::new();
    let disk = Arc::new(DiskFaults::default());
    let store = open_on(&directory.file(), &disk).await;
    let before = disk.n_syncs.load(Ordering::SeqCst);
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..256 {
        let store = store.clone();
        writers.spawn(async move { put(&store, &number.to_string(), "x").await.unwrap() });
    }
    writers.join_all().await;
    let n_syncs = disk.n_syncs.load(Ordering::SeqCst) - before;
    assert!((1..64).contains(&n_syncs), "256 changes took {n_syncs} syncs");
    assert_eq!(store.list("space", None, 1000).await.unwrap().len(), 256);
}

#[tokio::test]
async fn expired_rows_are_removed_while_the_store_is_idle() {
    let directory = TempDir::new();
    let store = RedbStore::open(directory.file()).await.unwrap();
    for number in 0..700 {
        let ttl = Duration::from_millis(50);
        store.append(&key(&format!("log {}", number % 7)), vec![1; 500].into(), ttl, 1000).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(1500)).await;
    store.close().await;
    let database = Database::open(directory.file()).unwrap();
    let snapshot = redb::ReadableDatabase::begin_read(&database).unwrap();
    let lines: TableDefinition<'_, (&str, &str, u64), &[u8]> = TableDefinition::new("toolgate.lines");
    let table = snapshot.open_table(lines).unwrap();
    assert!(redb::ReadableTableMetadata::is_empty(&table).unwrap());
}

#[tokio::test]
async fn a_file_in_use_is_waited_for_and_reported() {
    let directory = TempDir::new();
    let first = RedbStore::open(directory.file()).await.unwrap();
    put(&first, "a", "b").await.unwrap();
    let error = RedbStore::open(directory.file()).await.unwrap_err().to_string();
    assert!(error.contains("state.redb is in use by another process"), "{error}");
    assert!(error.contains("share a Redis"), "{error}");
    let path = directory.file();
    let second = tokio::spawn(async move { RedbStore::open(path).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    first.close().await;
    assert!(matches!(put(&first, "a", "c").await, Err(StoreError::Unavailable(_))));
    assert!(first.get(&key("a")).await.is_err());
    let second = second.await.unwrap().unwrap();
    assert_eq!(value(&second, "a").await.as_deref(), Some("b"));
}

#[tokio::test]
async fn a_file_of_another_program_is_not_changed() {
    let directory = TempDir::new();
    let path = directory.file();
    let check = async |what: &str, expected: &str| {
        let before = std::fs::read(&path).unwrap();
        let error = RedbStore::open(&path).await.unwrap_err();
        assert!(
            matches!(&error, StoreError::Corrupt(reason) if reason.contains(expected)),
            "{what}: {error}"
        );
        let after = std::fs::read(&path).unwrap();
        assert_eq!(before.len(), after.len(), "{what} was changed");
    };
    std::fs::write(&path, "my diary, page 1\n".repeat(1000)).unwrap();
    check("a text", "is not a file of this store").await;
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "my diary, page 1\n".repeat(1000));
    std::fs::write(&path, "x").unwrap();
    check("one byte", "is not a file of this store").await;
    std::fs::remove_file(&path).unwrap();
    let database = Database::create(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    let theirs: TableDefinition<'_, &str, &str> = TableDefinition::new("theirs");
    transaction.open_table(theirs).unwrap().insert("a", "b").unwrap();
    transaction.commit().unwrap();
    drop(database);
    check("another program's", "belongs to another program").await;
    std::fs::remove_file(&path).unwrap();
    let store = RedbStore::open(&path).await.unwrap();
    put(&store, "a", &"b".repeat(100_000)).await.unwrap();
    store.close().await;
    let length = std::fs::metadata(&path).unwrap().len();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(length / 4).unwrap();
    check("half a file", "is not a file of this store").await;
    // An empty file, such as a placeholder, is used.
    std::fs::write(&path, "").unwrap();
    let store = RedbStore::open(&path).await.unwrap();
    put(&store, "a", "b").await.unwrap();
    let missing = directory.0.join("missing/state.redb");
    assert!(matches!(RedbStore::open(missing).await, Err(StoreError::Unavailable(_))));
}

/// Number of writers in the process that is killed.
const WRITERS: u64 = 8;

/// Environment variable with the path of the file, for the process that is killed.
const CHILD_PATH_VAR: &str = "TOOLGATE_STORE_TO_WRITE";

/// Starts this very test as a child process, which writes and prints what was acknowledged, and kills it.
#[test]
fn nothing_that_was_committed_is_lost_when_the_writer_is_killed() {
    if let Some(path) = std::env::var_os(CHILD_PATH_VAR) {
        return write_until_killed(Path::new(&path));
    }
    let directory = TempDir::new();
    let mut acknowledged: BTreeMap<u64, u64> = (0..WRITERS).map(|writer| (writer, 0)).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut slowest = Duration::ZERO;
    for round in 0_u64..24 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "--test-threads=1"])
            .arg("store::redb::tests::nothing_that_was_committed_is_lost_when_the_writer_is_killed")
            .env(CHILD_PATH_VAR, directory.file())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = io::BufReader::new(child.stdout.take().unwrap());
        // From before the file is open until well into the writing.
        let wait = getrandom::u64().unwrap() % (40 + round * 8);
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(wait));
            child.kill().unwrap();
            child.wait().unwrap();
        });
        let mut line = String::new();
        while output.read_line(&mut line).unwrap() > 0 {
            // A line may be cut off when the process is killed.
            if line.ends_with('\n')
                && let Some((writer, number)) =
                    line.trim().strip_prefix("stored ").and_then(|rest| rest.split_once(' '))
            {
                acknowledged.insert(writer.parse().unwrap(), number.parse().unwrap());
            }
            line.clear();
        }
        killer.join().unwrap();
        let started = Instant::now();
        let store = runtime.block_on(RedbStore::open(directory.file())).unwrap();
        slowest = slowest.max(started.elapsed());
        assert!(started.elapsed() < Duration::from_secs(2), "opening took {:?}", started.elapsed());
        runtime.block_on(async {
            for (writer, acknowledged) in &mut acknowledged {
                check_writer(&store, *writer, acknowledged).await;
            }
            store.close().await;
        });
    }
    let total: u64 = acknowledged.values().sum();
    assert!(total > 200, "only {total} were written in all rounds");
    println!("{total} rounds of three changes stored by 24 processes; the slowest open took {slowest:?}");
}

/// Everything acknowledged must be stored. Beyond that, only the last change of the writer may be.
async fn check_writer(store: &RedbStore, writer: u64, acknowledged: &mut u64) {
    let space = format!("writer {writer}");
    let count = store.increment(&Key::new(space.as_str(), "count"), 0, TTL).await.unwrap();
    let page = store.read(&Key::new(space.as_str(), "log"), 0, usize::MAX).await.unwrap();
    let names = store.list(&space, None, usize::MAX).await.unwrap();
    assert!(
        (*acknowledged..=*acknowledged + 1).contains(&count),
        "writer {writer}: {count} counted, {acknowledged} acknowledged"
    );
    let numbers: Vec<u64> = page.entries.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=page.newest).collect::<Vec<_>>());
    assert!(
        (*acknowledged..=*acknowledged + 1).contains(&page.newest),
        "writer {writer}: {} lines, {acknowledged} acknowledged",
        page.newest
    );
    for (number, line) in &page.entries {
        assert_eq!(line, &line_of(*number), "line {number} of writer {writer}");
    }
    let names: Vec<&str> = names.iter().map(|(name, _)| &**name).collect();
    assert!((*acknowledged..=*acknowledged + 1).contains(&(names.len() as u64)));
    assert_eq!(names, (1..=names.len()).map(|number| format!("{number:08}")).collect::<Vec<_>>());
    // The changes of a round are made in this order, so a later one never exists without the earlier ones.
    assert!(count >= page.newest && page.newest >= names.len() as u64);
    // Complete the interrupted round, so that the next process starts a new one.
    if page.newest < count {
        store.append(&Key::new(space.as_str(), "log"), line_of(count).into(), TTL, usize::MAX).await.unwrap();
    }
    if (names.len() as u64) < count {
        let key = Key::new(space.as_str(), format!("{count:08}"));
        store.put(&key, line_of(count).into(), None, Expect::Absent).await.unwrap();
    }
    *acknowledged = count;
}

fn line_of(number: u64) -> String {
    format!("line {number} {}", "x".repeat(usize::try_from(number % 300).unwrap()))
}

fn write_until_killed(path: &Path) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // The test runner has started a line.
        println!();
        let store = RedbStore::open(path).await.unwrap();
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let store = store.clone();
            writers.spawn(async move {
                let space = format!("writer {writer}");
                let key = |name: &str| Key::new(space.as_str(), name);
                loop {
                    let number = store.increment(&key("count"), 1, TTL).await.unwrap();
                    let line = line_of(number);
                    let at = store.append(&key("log"), line.clone().into(), TTL, usize::MAX).await.unwrap();
                    assert_eq!(at, number);
                    let name = format!("{number:08}");
                    let put = store.put(&key(&name), line.into(), None, Expect::Absent).await.unwrap();
                    assert!(put.is_some());
                    // A single write, so that the line is complete or missing.
                    let message = format!("stored {writer} {number}\n");
                    let mut out = io::stdout().lock();
                    out.write_all(message.as_bytes()).and_then(|()| out.flush()).unwrap();
                }
            });
        }
        writers.join_all().await;
    });
}

#[tokio::test]
async fn only_the_owner_can_read_the_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = TempDir::new();
    let store = RedbStore::open(directory.file()).await.unwrap();
    store.close().await;
    let mode = std::fs::metadata(directory.file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
}
