//! A store in Redis or Valkey, shared by several processes.
//!
//! Each operation is one round trip: a plain command, or a script that Redis runs atomically. There are two
//! connections, one for all operations (`connection`) and one for all listeners (`pubsub`). Both reconnect by
//! themselves; until then, operations fail at once. The layout of the keys and the scripts are in `scripts`.

mod address;
mod connection;
mod pubsub;
mod scripts;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::{Cmd, Value};
use tokio::task::JoinSet;

use self::address::Target;
use self::connection::CommandConnection;
use self::pubsub::RedisPubSub;
use self::scripts::RedisKeys;
use super::{
    Entry, EntryVersion, Expect, Key, Listener, LogPage, Store, StoreError, StoreFuture, Visibility,
};

/// Default time limit of an operation.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(2);

/// Default prefix of all keys.
const DEFAULT_PREFIX: &str = "toolgate:";

/// Longer TTLs are cut to this, because Redis cannot represent all of them.
const MAX_TTL: Duration = Duration::from_secs(100 * 365 * 86_400);

/// A store in Redis or Valkey, version 7 or newer, shared by several processes.
///
/// ```no_run
/// # use toolgate::store::{Expect, Key, RedisStore, Store};
/// # async fn example() -> Result<(), toolgate::store::StoreError> {
/// let store = RedisStore::connect("redis://127.0.0.1:6379").prefix("shop:").await?;
/// let key = Key::new("notes", "first");
/// store.put(&key, "remember the milk".into(), None, Expect::Anything).await?;
/// // In this process and in all others that use the same Redis:
/// assert_eq!(store.get(&key).await?.map(|entry| entry.value), Some("remember the milk".into()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[doc(alias("session store", "Valkey"))]
pub struct RedisStore(Arc<RedisInner>);

struct RedisInner {
    keys: RedisKeys,
    connection: Arc<CommandConnection>,
    pubsub: RedisPubSub,
    /// Maintain the connections; aborted when this value is dropped.
    _tasks: JoinSet<()>,
}

/// Options of a [`RedisStore`]. `.await` connects.
#[must_use = "nothing is connected before `.await`"]
#[derive(Clone)]
pub struct RedisOptions {
    url: String,
    prefix: String,
    deadline: Duration,
}

impl RedisStore {
    /// Prepares a connection to the given address:
    ///
    /// - `redis://[user:password@]host[:port][/database]`: a single server.
    /// - `redis+sentinel://[user:password@]host:port,host:port/service[/database]`: the current master according to
    ///   these Sentinels. User and password are those of the master.
    /// - `redis-cluster://[user:password@]host:port,host:port`: a Cluster; some of its nodes suffice.
    pub fn connect(url: impl Into<String>) -> RedisOptions {
        RedisOptions { url: url.into(), prefix: DEFAULT_PREFIX.to_owned(), deadline: DEFAULT_DEADLINE }
    }

    async fn run_script(
        &self,
        script: &scripts::LuaScript,
        keys: &[String],
        args: &[&[u8]],
    ) -> Result<Value, StoreError> {
        self.0.connection.run_script(script, keys, args).await
    }
}

impl RedisOptions {
    /// Sets the prefix of all keys and channels. The default is `toolgate:`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> RedisOptions {
        self.prefix = prefix.into();
        self
    }

    /// Sets the time limit of an operation. The default is two seconds.
    pub fn deadline(mut self, deadline: Duration) -> RedisOptions {
        self.deadline = deadline;
        self
    }

    /// Checks the address without connecting.
    ///
    /// # Errors
    /// If the address is invalid, or requires a feature that is not built in.
    pub fn check(&self) -> Result<(), StoreError> {
        Target::parse(&self.url).map(drop)
    }

    async fn connect(self) -> Result<RedisStore, StoreError> {
        let keys = RedisKeys::new(&self.prefix);
        let target = Target::parse(&self.url)?;
        let connection = CommandConnection::open(target.clone(), self.deadline).await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&connection).maintain());
        let pubsub = RedisPubSub::open(target, self.deadline, &mut tasks);
        Ok(RedisStore(Arc::new(RedisInner { keys, connection, pubsub, _tasks: tasks })))
    }
}

impl IntoFuture for RedisOptions {
    type Output = Result<RedisStore, StoreError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.connect())
    }
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may contain a password.
        f.debug_struct("RedisOptions")
            .field("prefix", &self.prefix)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("hosts", &self.0.connection.hosts()).finish_non_exhaustive()
    }
}

impl Drop for RedisInner {
    fn drop(&mut self) {
        self.pubsub.close();
    }
}

impl Store for RedisStore {
    fn get<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, Option<Entry>> {
        Box::pin(async move {
            let mut command = Cmd::new();
            command.arg("GET").arg(self.0.keys.entry(key));
            match self.0.connection.execute(&command).await? {
                Value::Nil => Ok(None),
                Value::BulkString(stored) => parse_entry(stored).map(Some),
                other => Err(unexpected_value(&other)),
            }
        })
    }

    fn put<'a>(
        &'a self,
        key: &'a Key,
        value: Bytes,
        ttl: Option<Duration>,
        expect: Expect,
    ) -> StoreFuture<'a, Option<EntryVersion>> {
        Box::pin(async move {
            let redis_keys = &self.0.keys;
            let keys =
                [redis_keys.entry(key), redis_keys.index(key.space()), redis_keys.last_version(key.space())];
            let ttl = ttl.map_or_else(String::new, ttl_millis);
            let expect = encode_expect(expect);
            let entry_prefix = redis_keys.entry_prefix(key.space());
            let args = [
                key.name().as_bytes(),
                &value[..],
                ttl.as_bytes(),
                expect.as_bytes(),
                entry_prefix.as_bytes(),
            ];
            match self.run_script(&scripts::PUT, &keys, &args).await? {
                Value::Nil => Ok(None),
                Value::BulkString(version) => {
                    parse_number(&version).map(|version| Some(EntryVersion(version)))
                }
                other => Err(unexpected_value(&other)),
            }
        })
    }

    fn touch<'a>(&'a self, key: &'a Key, ttl: Duration) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let keys = [self.0.keys.entry(key), self.0.keys.index(key.space())];
            parse_integer(&self.run_script(&scripts::TOUCH, &keys, &[ttl_millis(ttl).as_bytes()]).await?)
                .map(|n| n > 0)
        })
    }

    fn delete<'a>(&'a self, key: &'a Key, expect: Expect) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let redis_keys = &self.0.keys;
            let keys = [redis_keys.entry(key), redis_keys.index(key.space()), redis_keys.log(key)];
            let args = [key.name().as_bytes(), &encode_expect(expect).into_bytes()[..]];
            parse_integer(&self.run_script(&scripts::DELETE, &keys, &args).await?).map(|n| n > 0)
        })
    }

    fn list<'a>(
        &'a self,
        space: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(Box<str>, Entry)>> {
        Box::pin(async move {
            let entry_prefix = self.0.keys.entry_prefix(space);
            let start = after.map_or_else(|| "-".to_owned(), |after| format!("({after}"));
            let args = [entry_prefix.as_bytes(), start.as_bytes(), &encode_limit(limit).into_bytes()[..]];
            let reply = self.run_script(&scripts::LIST, &[self.0.keys.index(space)], &args).await?;
            let Value::Array(values) = reply else { return Err(unexpected_value(&reply)) };
            let mut entries = Vec::with_capacity(values.len() / 2);
            let mut values = values.into_iter();
            while let (Some(Value::BulkString(name)), Some(Value::BulkString(stored))) =
                (values.next(), values.next())
            {
                let name = String::from_utf8(name).map_err(|_| corrupt("a name is not valid UTF-8"))?;
                entries.push((name.into(), parse_entry(stored)?));
            }
            Ok(entries)
        })
    }

    fn increment<'a>(&'a self, key: &'a Key, by: u64, ttl: Duration) -> StoreFuture<'a, u64> {
        Box::pin(async move {
            let by = by.min(i64::MAX.unsigned_abs()).to_string();
            let args = [by.as_bytes(), &ttl_millis(ttl).into_bytes()[..]];
            parse_integer(&self.run_script(&scripts::COUNT, &[self.0.keys.counter(key)], &args).await?)
        })
    }

    fn append<'a>(&'a self, log: &'a Key, value: Bytes, ttl: Duration, limit: usize) -> StoreFuture<'a, u64> {
        Box::pin(async move {
            let (ttl, limit) = (ttl_millis(ttl), encode_limit(limit.max(1)));
            let args = [&value[..], ttl.as_bytes(), limit.as_bytes()];
            parse_integer(&self.run_script(&scripts::APPEND, &[self.0.keys.log(log)], &args).await?)
        })
    }

    fn read<'a>(&'a self, log: &'a Key, after: u64, limit: usize) -> StoreFuture<'a, LogPage> {
        Box::pin(async move {
            let (after, limit) = (after.to_string(), encode_limit(limit));
            let args = [after.as_bytes(), limit.as_bytes()];
            parse_page(self.run_script(&scripts::READ, &[self.0.keys.log(log)], &args).await?)
        })
    }

    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let channel = self.0.keys.channel(channel);
            // In a Cluster, a script runs on the node of its key, so that all messages of a channel have one order.
            if self.0.connection.is_cluster() {
                return self.run_script(&scripts::PUBLISH, &[channel], &[&message[..]]).await.map(drop);
            }
            let mut command = Cmd::new();
            command.arg("PUBLISH").arg(channel).arg(&message[..]);
            self.0.connection.execute(&command).await.map(drop)
        })
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> StoreFuture<'a, Listener> {
        Box::pin(self.0.pubsub.subscribe(self.0.keys.channel(channel)))
    }

    fn visibility(&self) -> Visibility {
        Visibility::Cluster
    }
}

/// Parses the stored form of an entry: the version, a colon, the value.
fn parse_entry(mut stored: Vec<u8>) -> Result<Entry, StoreError> {
    let colon = stored.iter().take(20).position(|byte| *byte == b':');
    let colon = colon.ok_or_else(|| corrupt("an entry has no version"))?;
    let version = EntryVersion(parse_number(&stored[..colon])?);
    let value = Bytes::from(stored.split_off(colon + 1));
    Ok(Entry { value, version })
}

fn parse_page(reply: Value) -> Result<LogPage, StoreError> {
    let parts = match reply {
        Value::Nil => return Ok(LogPage { oldest: 1, newest: 0, entries: Vec::new() }),
        Value::Array(parts) => <[Value; 3]>::try_from(parts).map_err(|_| corrupt("a log is malformed"))?,
        other => return Err(unexpected_value(&other)),
    };
    let [first, last, stream_entries] = parts;
    let (oldest, newest) = (parse_stream_id(&first)?, parse_stream_id(&last)?);
    let Value::Array(stream_entries) = stream_entries else { return Err(unexpected_value(&stream_entries)) };
    let mut entries = Vec::with_capacity(stream_entries.len());
    for entry in stream_entries {
        // `[id, [field, value]]`
        let Value::Array(entry) = entry else { return Err(unexpected_value(&entry)) };
        match <[Value; 2]>::try_from(entry) {
            Ok([id, Value::Array(mut fields)]) => match fields.pop() {
                Some(Value::BulkString(value)) => entries.push((parse_stream_id(&id)?, Bytes::from(value))),
                _ => return Err(corrupt("a log entry has no value")),
            },
            _ => return Err(corrupt("a log entry is malformed")),
        }
    }
    Ok(LogPage { oldest, newest, entries })
}

/// Returns the number of a log entry from its stream id `number-0`.
fn parse_stream_id(id: &Value) -> Result<u64, StoreError> {
    match id {
        Value::BulkString(id) => parse_number(id.split(|byte| *byte == b'-').next().unwrap_or_default()),
        other => Err(unexpected_value(other)),
    }
}

fn parse_number(digits: &[u8]) -> Result<u64, StoreError> {
    let digits = std::str::from_utf8(digits).ok();
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| corrupt("a number is malformed"))
}

fn parse_integer(value: &Value) -> Result<u64, StoreError> {
    match value {
        Value::Int(number) => u64::try_from(*number).map_err(|_| corrupt("a number is negative")),
        other => Err(unexpected_value(other)),
    }
}

fn encode_expect(expect: Expect) -> String {
    match expect {
        Expect::Anything => "*".to_owned(),
        Expect::Absent => "-".to_owned(),
        Expect::Is(EntryVersion(version)) => version.to_string(),
    }
}

/// Encodes a TTL for Redis, whose shortest one is a millisecond.
fn ttl_millis(ttl: Duration) -> String {
    let millis = ttl.min(MAX_TTL).as_micros().div_ceil(1000).max(1);
    millis.to_string()
}

fn encode_limit(limit: usize) -> String {
    limit.min(1 << 31).to_string()
}

fn unexpected_value(value: &Value) -> StoreError {
    let kind = match value {
        Value::Nil => "nil",
        Value::Int(_) => "an integer",
        Value::BulkString(_) | Value::SimpleString(_) => "a string",
        Value::Array(_) => "an array",
        _ => "a value of an unexpected type",
    };
    corrupt(&format!("{kind} was not expected"))
}

fn corrupt(problem: &str) -> StoreError {
    StoreError::Corrupt(format!("{problem}; another program may use the same keys"))
}

// The tests need Unix signals.
#[cfg(test)]
#[cfg(unix)]
mod tests;
