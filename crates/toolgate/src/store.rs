//! The cellar: what must outlive a request, a connection or a process.
//!
//! A store keeps bytes under names, for a time. It knows no meaning: what the bytes say is the business of whoever
//! keeps them. Everything a server shares with other processes, or finds again after a restart, goes through this
//! one trait: sessions, the events of streams that can be resumed, tasks, counters, keys.
//!
//! Without a store of your own a server keeps everything in its own memory, and forgets it when it ends:
//! [`MemoryStore`]. With the feature `redb` there is one that keeps everything in a file, and finds it again after a
//! restart; with the feature `redis` one that several processes share. A store of your own proves itself with
//! the suite in `contract` (feature `testing`).

mod channels;
#[cfg(feature = "testing")]
pub mod contract;
mod memory;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "redis")]
mod redis;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio::sync::broadcast;

#[cfg(feature = "redb")]
pub use self::redb::RedbStore;
#[cfg(feature = "redis")]
pub use self::redis::{RedisOptions, RedisStore};
pub use memory::MemoryStore;

use channels::MailboxReceiver;

/// What a store is asked for, while it is fetched.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Keeps bytes.
///
/// Names are pairs: a space and a name in it. Whatever must be seen together (a listing, a log beside its record)
/// shares a space; a store may spread spaces over machines, never the inside of one.
///
/// Every operation ends within seconds, well or with an error; none waits for a store that is away.
/// Whoever drops a future may or may not have done what it says: both are possible.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// What is kept here.
    fn get<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, Option<Entry>>;

    /// Keeps something, for this long, or for ever. None if what is there is not what was expected: nothing has changed
    /// then.
    fn put<'a>(
        &'a self,
        key: &'a Key,
        value: Bytes,
        life: Option<Duration>,
        expect: Expect,
    ) -> StoreFuture<'a, Option<EntryVersion>>;

    /// Keeps what is there for this long from now. False if nothing is there. Its version stays the same. For entries:
    /// a log lives on when something is appended.
    fn touch<'a>(&'a self, key: &'a Key, life: Duration) -> StoreFuture<'a, bool>;

    /// Forgets something: an entry, and with [`Expect::Anything`] a log of this name too. False if nothing was there,
    /// or not what was expected.
    fn delete<'a>(&'a self, key: &'a Key, expect: Expect) -> StoreFuture<'a, bool>;

    /// The entries of a space, in the order of the bytes of their names, from behind `after`, at most so many. What
    /// expires or appears meanwhile may be missing. Fewer than were asked for means that there are no more.
    fn list<'a>(
        &'a self,
        space: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> StoreFuture<'a, Vec<(Box<str>, Entry)>>;

    /// Adds to a counter and tells what it is now. One that is not there begins with nothing and lives this long from
    /// then on. Counters and entries do not share names. Exact up to 2⁵³.
    fn increment<'a>(&'a self, key: &'a Key, by: u64, life: Duration) -> StoreFuture<'a, u64>;

    /// Adds to the end of a log and tells the number that got, counted from 1. The log lives this long from now on, and
    /// holds at most the newest `most`, and always the last one. Logs and entries do not share names; deleting a log's
    /// name forgets it, and the next one begins with 1 again.
    fn append<'a>(&'a self, log: &'a Key, value: Bytes, life: Duration, most: usize) -> StoreFuture<'a, u64>;

    /// A piece of a log, from behind `after`.
    fn read<'a>(&'a self, log: &'a Key, after: u64, most: usize) -> StoreFuture<'a, LogPage>;

    /// Tells everybody who listens to a channel now, in whatever process. Nobody is waited for.
    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> StoreFuture<'a, ()>;

    /// Listens to a channel. What is published once this has ended is heard, in order; what a slow listener or a broken
    /// connection missed is a [`Heard::Gap`]. What was on its way when this began may be heard too.
    fn subscribe<'a>(&'a self, channel: &'a str) -> StoreFuture<'a, Listener>;

    /// Who else sees what is kept here.
    fn visibility(&self) -> Visibility;
}

/// One store for several servers.
impl<S: Store + ?Sized> Store for Arc<S> {
    fn get<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, Option<Entry>> {
        (**self).get(key)
    }

    fn put<'a>(
        &'a self,
        key: &'a Key,
        value: Bytes,
        life: Option<Duration>,
        expect: Expect,
    ) -> StoreFuture<'a, Option<EntryVersion>> {
        (**self).put(key, value, life, expect)
    }

    fn touch<'a>(&'a self, key: &'a Key, life: Duration) -> StoreFuture<'a, bool> {
        (**self).touch(key, life)
    }

    fn delete<'a>(&'a self, key: &'a Key, expect: Expect) -> StoreFuture<'a, bool> {
        (**self).delete(key, expect)
    }

    fn list<'a>(
        &'a self,
        space: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> StoreFuture<'a, Vec<(Box<str>, Entry)>> {
        (**self).list(space, after, most)
    }

    fn increment<'a>(&'a self, key: &'a Key, by: u64, life: Duration) -> StoreFuture<'a, u64> {
        (**self).increment(key, by, life)
    }

    fn append<'a>(&'a self, log: &'a Key, value: Bytes, life: Duration, most: usize) -> StoreFuture<'a, u64> {
        (**self).append(log, value, life, most)
    }

    fn read<'a>(&'a self, log: &'a Key, after: u64, most: usize) -> StoreFuture<'a, LogPage> {
        (**self).read(log, after, most)
    }

    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> StoreFuture<'a, ()> {
        (**self).publish(channel, message)
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> StoreFuture<'a, Listener> {
        (**self).subscribe(channel)
    }

    fn visibility(&self) -> Visibility {
        (**self).visibility()
    }
}

/// The name of something kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    space: Box<str>,
    name: Box<str>,
}

impl Key {
    /// This name in this space. Neither may hold control characters or braces; both are short.
    pub fn new(space: impl Into<Box<str>>, name: impl Into<Box<str>>) -> Key {
        Key { space: space.into(), name: name.into() }
    }

    /// What is kept together.
    #[must_use]
    pub fn space(&self) -> &str {
        &self.space
    }

    /// The name in its space.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Something kept, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The bytes.
    pub value: Bytes,
    /// Which state of it this is.
    pub version: EntryVersion,
}

/// A state of something kept. Two states of one name never have the same, not even after it was deleted; and a later
/// one has the higher number, so that whoever fetched two of them knows which is the newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryVersion(pub u64);

/// What must be there for a change to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Whatever is there.
    Anything,
    /// Nothing.
    Absent,
    /// What was found before.
    Is(EntryVersion),
}

/// A piece of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPage {
    /// The number of the oldest that is still there; where nothing is, of the next one.
    pub oldest: u64,
    /// The number of the newest; 0 if there never was any.
    pub newest: u64,
    /// Number and bytes, oldest first.
    pub entries: Vec<(u64, Bytes)>,
}

/// Who else sees what a store keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// Nobody; it ends with the process.
    Process,
    /// This program when it starts again, and nobody else meanwhile.
    Durable,
    /// Other processes at the same time.
    Cluster,
}

/// What is heard on a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelEvent {
    /// What somebody said.
    Message(Bytes),
    /// Something may have been missed.
    Lagged,
}

/// One who listens to a channel.
///
/// ```
/// # use toolgate::store::{Heard, MemoryStore, Store};
/// # async fn example() -> Result<(), toolgate::store::StoreError> {
/// let store = MemoryStore::new();
/// let mut listener = store.subscribe("weather").await?;
/// store.publish("weather", "rain".into()).await?;
/// assert_eq!(listener.next().await, Some(Heard::Message("rain".into())));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Listener(ListenerSource);

#[derive(Debug)]
enum ListenerSource {
    /// A channel of tokio's, of a store of somebody else's.
    Broadcast(broadcast::Receiver<ChannelEvent>),
    Mailbox(MailboxReceiver),
}

impl Listener {
    /// Hears what is sent to this end of a bounded channel.
    #[must_use]
    pub fn new(receiver: broadcast::Receiver<ChannelEvent>) -> Listener {
        Listener(ListenerSource::Broadcast(receiver))
    }

    fn from_mailbox(ear: MailboxReceiver) -> Listener {
        Listener(ListenerSource::Mailbox(ear))
    }

    /// What comes next. None when the store has closed.
    ///
    /// Cancel safe: yes, what was not returned is still to come.
    pub async fn next(&mut self) -> Option<ChannelEvent> {
        match &mut self.0 {
            ListenerSource::Mailbox(ear) => ear.next().await,
            ListenerSource::Broadcast(receiver) => match receiver.recv().await {
                Ok(heard) => Some(heard),
                Err(broadcast::error::RecvError::Lagged(_)) => Some(ChannelEvent::Lagged),
                Err(broadcast::error::RecvError::Closed) => None,
            },
        }
    }
}

/// A server's own part of a store: servers with other names may share it, and see nothing of each other.
#[derive(Clone, Debug)]
pub(crate) struct ScopedStore {
    pub(crate) backend: Arc<dyn Store>,
    prefix: Box<str>,
}

impl ScopedStore {
    pub(crate) fn new(backend: Arc<dyn Store>, server: &str) -> ScopedStore {
        let mut house = String::with_capacity(server.len());
        for byte in server.bytes() {
            if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
                house.push(char::from(byte));
            } else {
                house.push_str(&format!("%{byte:02x}"));
            }
        }
        ScopedStore { backend, prefix: house.into() }
    }

    /// A space of this server's.
    pub(crate) fn space(&self, what: &str) -> String {
        format!("{}/{what}", self.prefix)
    }

    /// A name in a space of this server's.
    pub(crate) fn key(&self, what: &str, name: &str) -> Key {
        Key::new(self.space(what), name)
    }

    /// Where it is noted that something was used up. Of any length, from anywhere: what becomes of it is neither.
    fn nonce_key(&self, nonce: &str) -> Key {
        self.key("nonces", &URL_SAFE_NO_PAD.encode(Sha256::digest(nonce)))
    }

    /// Uses something up that may be used once: true for the first who tries, until this life is over.
    pub(crate) async fn consume_once(&self, nonce: &str, life: Duration) -> Result<bool, StoreError> {
        let key = self.nonce_key(nonce);
        let spent = self.backend.put(&key, Bytes::new(), Some(life), Expect::Absent).await?;
        Ok(spent.is_some())
    }

    /// A secret that all processes of this server share. Whoever asks first makes it.
    pub(crate) async fn shared_secret(&self, name: &str) -> Result<[u8; 32], StoreError> {
        let key = self.key("secrets", name);
        // A second round is for one who lost the race to make it.
        for _ in 0..2 {
            if let Some(entry) = self.backend.get(&key).await? {
                let secret = <[u8; 32]>::try_from(&entry.value[..]);
                return secret
                    .map_err(|_| StoreError::Corrupt(format!("the secret `{name}` has no 32 bytes")));
            }
            let mut secret = [0; 32];
            getrandom::fill(&mut secret)
                .map_err(|error| StoreError::Unavailable(format!("no random numbers: {error}")))?;
            let value = Bytes::copy_from_slice(&secret);
            if self.backend.put(&key, value, None, Expect::Absent).await?.is_some() {
                return Ok(secret);
            }
        }
        Err(StoreError::Unavailable(format!("the secret `{name}` comes and goes")))
    }

    /// Whether other processes see what is kept here, now.
    pub(crate) fn is_shared(&self) -> bool {
        self.backend.visibility() == Visibility::Cluster
    }
}

/// Why a store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// It cannot be reached, or not in time. Whether something was done is not known.
    Unavailable(String),
    /// Another process has it open.
    InUse(String),
    /// It has no room for more.
    Full,
    /// What it holds cannot be read.
    Corrupt(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Unavailable(why) | StoreError::InUse(why) => {
                write!(f, "the store cannot be reached: {why}")
            }
            StoreError::Full => f.write_str("the store is full"),
            StoreError::Corrupt(why) => write!(f, "the store holds what cannot be read: {why}"),
        }
    }
}

impl std::error::Error for StoreError {}

/// Whether what is there is what was expected.
fn is_expected(expect: Expect, there: Option<EntryVersion>) -> bool {
    match expect {
        Expect::Anything => true,
        Expect::Absent => there.is_none(),
        Expect::Is(version) => there == Some(version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scoped_store() -> ScopedStore {
        ScopedStore::new(Arc::new(MemoryStore::new()), "a house")
    }

    #[tokio::test]
    async fn a_nonce_is_spent_once() {
        let cellar = scoped_store();
        let mut n_first = 0;
        for _ in 0..5 {
            n_first += u32::from(cellar.consume_once("n", Duration::from_secs(60)).await.unwrap());
        }
        assert_eq!(n_first, 1);
        assert!(cellar.consume_once("m", Duration::from_secs(60)).await.unwrap());
    }

    #[tokio::test]
    async fn everybody_reads_the_same_secret() {
        let cellar = scoped_store();
        let first = cellar.shared_secret("seal").await.unwrap();
        assert_ne!(first, [0; 32]);
        assert_eq!(cellar.clone().shared_secret("seal").await.unwrap(), first);
        assert_ne!(cellar.shared_secret("other").await.unwrap(), first);
        let short = cellar.key("secrets", "short");
        cellar.backend.put(&short, "abc".into(), None, Expect::Absent).await.unwrap();
        assert!(matches!(cellar.shared_secret("short").await, Err(StoreError::Corrupt(_))));
    }
}
