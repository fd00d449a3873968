//! Storage for everything that outlives a request, a connection or a process.
//!
//! A [`Store`] holds bytes under keys, each for a limited time, and does not interpret them. All state that a server
//! shares with other processes or needs after a restart goes through this trait: sessions, events of resumable streams,
//! tasks, counters and keys.
//!
//! The available stores are:
//!
//! - [`MemoryStore`], the default: everything is in memory and lost when the process ends.
//! - `RedbStore` (feature `redb`): everything is in one file and survives a restart. One process at a time.
//! - `RedisStore` (feature `redis`): everything is in Redis or Valkey and shared by several processes.
//!
//! To write your own, implement [`Store`] and test it with the suite in `contract` (feature `testing`), which checks
//! every rule stated in the documentation of the trait.

mod channels;
#[cfg(feature = "testing")]
pub mod contract;
mod memory;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "redis")]
mod redis;
mod scoped;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::broadcast;

#[cfg(feature = "redb")]
pub use self::redb::RedbStore;
#[cfg(feature = "redis")]
pub use self::redis::{RedisOptions, RedisStore};
pub use memory::MemoryStore;
pub(crate) use scoped::ScopedStore;

use channels::MailboxReceiver;

/// The future of a store operation.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;
/// A session store: keeps sessions, tasks and streams as entries that expire, counters, logs and publish/subscribe
/// channels.
///
/// A [`Key`] is a space and a name in that space. Data that is read together, such as the entries of a listing or a log
/// and its record, is in one space. A store may distribute spaces over machines, but not the content of one space.
///
/// Entries, counters and logs have separate names: an entry, a counter and a log with the same key are independent,
/// except that [`Store::delete`] removes both the entry and the log.
///
/// Every operation completes within seconds, with a result or an error. A store that cannot be reached is an error, not
/// a reason to wait.
///
/// Not cancel safe: a dropped operation may or may not have taken effect.
#[doc(alias("session store", "storage backend"))]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Returns the entry of a key, or `None` if there is none or it has expired.
    fn get<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, Option<Entry>>;

    /// Sets the entry of a key and returns its new version. Without a `ttl` it never expires.
    ///
    /// Returns `None`, and changes nothing, if the current entry is not the expected one.
    fn put<'a>(
        &'a self,
        key: &'a Key,
        value: Bytes,
        ttl: Option<Duration>,
        expect: Expect,
    ) -> StoreFuture<'a, Option<EntryVersion>>;

    /// Sets the remaining time to live of an entry, without changing its version.
    ///
    /// Returns `false` if there is no entry. Has no effect on counters and logs.
    fn touch<'a>(&'a self, key: &'a Key, ttl: Duration) -> StoreFuture<'a, bool>;

    /// Deletes an entry and, with [`Expect::Anything`], also the log of the same key.
    ///
    /// Returns `false` if there was nothing to delete, or the entry was not the expected one.
    fn delete<'a>(&'a self, key: &'a Key, expect: Expect) -> StoreFuture<'a, bool>;

    /// Returns at most `limit` entries of a space in byte order of their names, starting after the name `after`.
    ///
    /// Entries that expire or are added meanwhile may be missing. Fewer than `limit` entries mean that there are no
    /// more.
    fn list<'a>(
        &'a self,
        space: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(Box<str>, Entry)>>;

    /// Adds to a counter and returns the sum. Exact up to 2⁵³.
    ///
    /// A counter that does not exist starts at zero and expires `ttl` later; further increments do not prolong it.
    fn increment<'a>(&'a self, key: &'a Key, by: u64, ttl: Duration) -> StoreFuture<'a, u64>;

    /// Appends to a log and returns the number of the new entry, starting at 1.
    ///
    /// The log expires `ttl` after the last append. It keeps the newest `limit` entries, and always the last one. After
    /// it has expired or was deleted, numbering starts at 1 again.
    fn append<'a>(&'a self, log: &'a Key, value: Bytes, ttl: Duration, limit: usize) -> StoreFuture<'a, u64>;

    /// Returns at most `limit` entries of a log, starting after the number `after`.
    fn read<'a>(&'a self, log: &'a Key, after: u64, limit: usize) -> StoreFuture<'a, LogPage>;

    /// Sends a message to all current listeners of a channel, in all processes. Does not wait for them.
    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> StoreFuture<'a, ()>;

    /// Listens to a channel.
    ///
    /// The listener receives all messages published after this operation has completed, in order, and possibly some
    /// that were published shortly before. A listener that missed messages because it was slow or a connection was lost
    /// receives [`ChannelEvent::Lagged`].
    fn subscribe<'a>(&'a self, channel: &'a str) -> StoreFuture<'a, Listener>;

    /// Returns which processes can see the data.
    fn visibility(&self) -> Visibility;
}

/// Forwards to the inner store, so that several servers can share it.
impl<S: Store + ?Sized> Store for Arc<S> {
    fn get<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, Option<Entry>> {
        (**self).get(key)
    }

    fn put<'a>(
        &'a self,
        key: &'a Key,
        value: Bytes,
        ttl: Option<Duration>,
        expect: Expect,
    ) -> StoreFuture<'a, Option<EntryVersion>> {
        (**self).put(key, value, ttl, expect)
    }

    fn touch<'a>(&'a self, key: &'a Key, ttl: Duration) -> StoreFuture<'a, bool> {
        (**self).touch(key, ttl)
    }

    fn delete<'a>(&'a self, key: &'a Key, expect: Expect) -> StoreFuture<'a, bool> {
        (**self).delete(key, expect)
    }

    fn list<'a>(
        &'a self,
        space: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(Box<str>, Entry)>> {
        (**self).list(space, after, limit)
    }

    fn increment<'a>(&'a self, key: &'a Key, by: u64, ttl: Duration) -> StoreFuture<'a, u64> {
        (**self).increment(key, by, ttl)
    }

    fn append<'a>(&'a self, log: &'a Key, value: Bytes, ttl: Duration, limit: usize) -> StoreFuture<'a, u64> {
        (**self).append(log, value, ttl, limit)
    }

    fn read<'a>(&'a self, log: &'a Key, after: u64, limit: usize) -> StoreFuture<'a, LogPage> {
        (**self).read(log, after, limit)
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

/// The key of an entry, a counter or a log: a space and a name in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    space: Box<str>,
    name: Box<str>,
}

impl Key {
    /// Creates a key. Space and name must be short and must not contain control characters or braces.
    pub fn new(space: impl Into<Box<str>>, name: impl Into<Box<str>>) -> Key {
        Key { space: space.into(), name: name.into() }
    }

    /// Returns the space.
    #[must_use]
    pub fn space(&self) -> &str {
        &self.space
    }

    /// Returns the name in the space.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// A stored value and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The value.
    pub value: Bytes,
    /// The version of this value.
    pub version: EntryVersion,
}

/// The version of an entry.
///
/// A key never has the same version twice, not even after its entry was deleted. A later version is always greater, so
/// that two versions of an entry can be ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryVersion(pub u64);

/// Condition on the current entry for a change to take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No condition.
    Anything,
    /// There is no entry.
    Absent,
    /// The entry has this version.
    Is(EntryVersion),
}

/// Part of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPage {
    /// The number of the oldest entry in the log; if the log is empty, of the next one.
    pub oldest: u64,
    /// The number of the newest entry in the log; 0 if the log does not exist.
    pub newest: u64,
    /// Numbers and values, oldest first.
    pub entries: Vec<(u64, Bytes)>,
}

/// Which processes can see the data of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// Only this process; the data is lost when it ends.
    Process,
    /// One process at a time; the data survives a restart.
    Durable,
    /// Several processes at the same time.
    Cluster,
}

/// An event that a [`Listener`] receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelEvent {
    /// A published message.
    Message(Bytes),
    /// Messages may have been missed.
    Lagged,
}

/// Receives the messages of a channel. Dropping it ends the subscription.
///
/// ```
/// # use toolgate::store::{ChannelEvent, MemoryStore, Store};
/// # async fn example() -> Result<(), toolgate::store::StoreError> {
/// let store = MemoryStore::new();
/// let mut listener = store.subscribe("weather").await?;
/// store.publish("weather", "rain".into()).await?;
/// assert_eq!(listener.next().await, Some(ChannelEvent::Message("rain".into())));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Listener(ListenerSource);

#[derive(Debug)]
enum ListenerSource {
    /// A tokio channel, used by stores outside of this crate.
    Broadcast(broadcast::Receiver<ChannelEvent>),
    Mailbox(MailboxReceiver),
}

impl Listener {
    /// Creates a listener that receives from a bounded channel, for your own [`Store`].
    ///
    /// If the receiver lags, the listener reports [`ChannelEvent::Lagged`].
    #[must_use]
    pub fn new(receiver: broadcast::Receiver<ChannelEvent>) -> Listener {
        Listener(ListenerSource::Broadcast(receiver))
    }

    fn from_mailbox(receiver: MailboxReceiver) -> Listener {
        Listener(ListenerSource::Mailbox(receiver))
    }

    /// Returns the next message, or `None` once the store is closed.
    ///
    /// Cancel safe: yes, no message is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<ChannelEvent> {
        match &mut self.0 {
            ListenerSource::Mailbox(receiver) => receiver.next().await,
            ListenerSource::Broadcast(receiver) => match receiver.recv().await {
                Ok(event) => Some(event),
                Err(broadcast::error::RecvError::Lagged(_)) => Some(ChannelEvent::Lagged),
                Err(broadcast::error::RecvError::Closed) => None,
            },
        }
    }
}

/// Why a store operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// The store cannot be reached, or did not respond in time. The operation may have taken effect.
    Unavailable(String),
    /// Another process has the store open.
    InUse(String),
    /// The store has no space left.
    Full,
    /// The stored data is invalid.
    Corrupt(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Unavailable(reason) | StoreError::InUse(reason) => {
                write!(f, "the store cannot be reached: {reason}")
            }
            StoreError::Full => f.write_str("the store is full"),
            StoreError::Corrupt(reason) => write!(f, "the store contains invalid data: {reason}"),
        }
    }
}

impl std::error::Error for StoreError {}

/// Returns whether an entry with this version, or none, meets the condition.
fn is_expected(expect: Expect, current: Option<EntryVersion>) -> bool {
    match expect {
        Expect::Anything => true,
        Expect::Absent => current.is_none(),
        Expect::Is(version) => current == Some(version),
    }
}

/// Awaits an operation for at most `timeout`. `timed_out` makes the error if it takes longer.
#[cfg(any(feature = "redb", feature = "redis"))]
async fn with_timeout<T, E>(
    timeout: Duration,
    operation: impl Future<Output = Result<T, E>>,
    timed_out: impl FnOnce() -> E,
) -> Result<T, E> {
    match tokio::time::timeout(timeout, operation).await {
        Ok(result) => result,
        Err(_) => Err(timed_out()),
    }
}
