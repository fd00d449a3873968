//! Everything in Redis or Valkey, shared by several processes.
//!
//! Each operation is one round trip: a plain command, or a script that Redis runs as a whole. Two connections: one for
//! all operations (`link`), one for all listeners (`ears`). Both come back by themselves when Redis does; until then
//! everybody is told at once that it is away. The shapes of the keys and the scripts stand in `scripts`.

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

/// How long an operation may take, unless somebody says otherwise.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(2);

/// What keys begin with, unless somebody says otherwise.
const DEFAULT_PREFIX: &str = "toolgate:";

/// Longer lives are cut to this: Redis cannot reckon with all that we can.
const MAX_TTL: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Keeps everything in Redis or Valkey, 7 or newer: several processes see the same.
///
/// ```no_run
/// # use toolgate::store::{Expect, Key, RedisStore, Store};
/// # async fn example() -> Result<(), toolgate::store::StoreError> {
/// let store = RedisStore::connect("redis://127.0.0.1:6379").prefix("shop:").await?;
/// let key = Key::new("notes", "first");
/// store.put(&key, "remember the milk".into(), None, Expect::Anything).await?;
/// // In this process and in all others:
/// assert_eq!(store.get(&key).await?.map(|entry| entry.value), Some("remember the milk".into()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore(Arc<RedisInner>);

struct RedisInner {
    keys: RedisKeys,
    connection: Arc<CommandConnection>,
    pubsub: RedisPubSub,
    /// What keeps the connections; it ends with this value.
    _tasks: JoinSet<()>,
}

/// How a [`RedisStore`] is reached; `.await` connects.
#[must_use = "nothing is connected before `.await`"]
#[derive(Clone)]
pub struct RedisOptions {
    url: String,
    prefix: String,
    deadline: Duration,
}

impl RedisStore {
    /// A store at this address:
    ///
    /// - `redis://[user:password@]host[:port][/database]`: one server
    /// - `redis+sentinel://[user:password@]host:port,host:port/service[/database]`: whoever these Sentinels say is the
    ///   master. User and password are those of the master.
    /// - `redis-cluster://[user:password@]host:port,host:port`: a Cluster that has these nodes among others
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
    /// All keys and channels begin with this instead of `toolgate:`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> RedisOptions {
        self.prefix = prefix.into();
        self
    }

    /// An operation that is not answered within this time is an error, instead of two seconds.
    pub fn deadline(mut self, deadline: Duration) -> RedisOptions {
        self.deadline = deadline;
        self
    }

    /// Whether the address can be used at all. Nobody is asked.
    ///
    /// # Errors
    /// If it is none, or names what is not built in.
    pub fn check(&self) -> Result<(), StoreError> {
        Target::parse(&self.url).map(drop)
    }

    async fn connect(self) -> Result<RedisStore, StoreError> {
        let names = RedisKeys::new(&self.prefix);
        let target = Target::parse(&self.url)?;
        let link = CommandConnection::open(target.clone(), self.deadline).await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&link).maintain());
        let ears = RedisPubSub::open(target, self.deadline, &mut tasks);
        Ok(RedisStore(Arc::new(RedisInner { keys: names, connection: link, pubsub: ears, _tasks: tasks })))
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
        // The address may hold a password.
        f.debug_struct("RedisOptions")
            .field("prefix", &self.prefix)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("at", &self.0.connection.hosts()).finish_non_exhaustive()
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
                Value::BulkString(kept) => parse_entry(kept).map(Some),
                other => Err(unexpected_value(&other)),
            }
        })
    }

    fn put<'a>(
        &'a self,
        key: &'a Key,
        value: Bytes,
        life: Option<Duration>,
        expect: Expect,
    ) -> StoreFuture<'a, Option<EntryVersion>> {
        Box::pin(async move {
            let names = &self.0.keys;
            let keys = [names.entry(key), names.index(key.space()), names.last_version(key.space())];
            let life = life.map_or_else(String::new, ttl_millis);
            let expect = encode_expect(expect);
            let entries = names.entry_prefix(key.space());
            let args =
                [key.name().as_bytes(), &value[..], life.as_bytes(), expect.as_bytes(), entries.as_bytes()];
            match self.run_script(&scripts::PUT, &keys, &args).await? {
                Value::Nil => Ok(None),
                Value::BulkString(version) => {
                    parse_number(&version).map(|version| Some(EntryVersion(version)))
                }
                other => Err(unexpected_value(&other)),
            }
        })
    }

    fn touch<'a>(&'a self, key: &'a Key, life: Duration) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let keys = [self.0.keys.entry(key), self.0.keys.index(key.space())];
            parse_integer(&self.run_script(&scripts::TOUCH, &keys, &[ttl_millis(life).as_bytes()]).await?)
                .map(|n| n > 0)
        })
    }

    fn delete<'a>(&'a self, key: &'a Key, expect: Expect) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let names = &self.0.keys;
            let keys = [names.entry(key), names.index(key.space()), names.log(key)];
            let args = [key.name().as_bytes(), &encode_expect(expect).into_bytes()[..]];
            parse_integer(&self.run_script(&scripts::DELETE, &keys, &args).await?).map(|n| n > 0)
        })
    }

    fn list<'a>(
        &'a self,
        space: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> StoreFuture<'a, Vec<(Box<str>, Entry)>> {
        Box::pin(async move {
            let entries = self.0.keys.entry_prefix(space);
            let from = after.map_or_else(|| "-".to_owned(), |after| format!("({after}"));
            let args = [entries.as_bytes(), from.as_bytes(), &encode_limit(most).into_bytes()[..]];
            let found = self.run_script(&scripts::LIST, &[self.0.keys.index(space)], &args).await?;
            let Value::Array(found) = found else { return Err(unexpected_value(&found)) };
            let mut listed = Vec::with_capacity(found.len() / 2);
            let mut found = found.into_iter();
            while let (Some(Value::BulkString(name)), Some(Value::BulkString(kept))) =
                (found.next(), found.next())
            {
                let name = String::from_utf8(name).map_err(|_| corrupt("a name that is no text"))?;
                listed.push((name.into(), parse_entry(kept)?));
            }
            Ok(listed)
        })
    }

    fn increment<'a>(&'a self, key: &'a Key, by: u64, life: Duration) -> StoreFuture<'a, u64> {
        Box::pin(async move {
            let by = by.min(i64::MAX.unsigned_abs()).to_string();
            let args = [by.as_bytes(), &ttl_millis(life).into_bytes()[..]];
            parse_integer(&self.run_script(&scripts::COUNT, &[self.0.keys.counter(key)], &args).await?)
        })
    }

    fn append<'a>(&'a self, log: &'a Key, value: Bytes, life: Duration, most: usize) -> StoreFuture<'a, u64> {
        Box::pin(async move {
            let (life, most) = (ttl_millis(life), encode_limit(most.max(1)));
            let args = [&value[..], life.as_bytes(), most.as_bytes()];
            parse_integer(&self.run_script(&scripts::APPEND, &[self.0.keys.log(log)], &args).await?)
        })
    }

    fn read<'a>(&'a self, log: &'a Key, after: u64, most: usize) -> StoreFuture<'a, LogPage> {
        Box::pin(async move {
            let (after, most) = (after.to_string(), encode_limit(most));
            let args = [after.as_bytes(), most.as_bytes()];
            parse_page(self.run_script(&scripts::READ, &[self.0.keys.log(log)], &args).await?)
        })
    }

    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let channel = self.0.keys.channel(channel);
            // In a Cluster a script has its place, so that one channel has one order.
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

/// What stands in an entry's key: the version, a colon, the bytes.
fn parse_entry(mut kept: Vec<u8>) -> Result<Entry, StoreError> {
    let colon = kept.iter().take(20).position(|byte| *byte == b':');
    let colon = colon.ok_or_else(|| corrupt("an entry without a version"))?;
    let version = EntryVersion(parse_number(&kept[..colon])?);
    let value = Bytes::from(kept.split_off(colon + 1));
    Ok(Entry { value, version })
}

fn parse_page(found: Value) -> Result<LogPage, StoreError> {
    let parts = match found {
        Value::Nil => return Ok(LogPage { oldest: 1, newest: 0, entries: Vec::new() }),
        Value::Array(parts) => {
            <[Value; 3]>::try_from(parts).map_err(|_| corrupt("a log that makes no sense"))?
        }
        other => return Err(unexpected_value(&other)),
    };
    let [first, last, lines] = parts;
    let (oldest, newest) = (parse_stream_id(&first)?, parse_stream_id(&last)?);
    let Value::Array(lines) = lines else { return Err(unexpected_value(&lines)) };
    let mut entries = Vec::with_capacity(lines.len());
    for line in lines {
        // `[number, [field, value]]`
        let Value::Array(line) = line else { return Err(unexpected_value(&line)) };
        match <[Value; 2]>::try_from(line) {
            Ok([at, Value::Array(mut fields)]) => match fields.pop() {
                Some(Value::BulkString(value)) => entries.push((parse_stream_id(&at)?, Bytes::from(value))),
                _ => return Err(corrupt("a line without a value")),
            },
            _ => return Err(corrupt("a line that makes no sense")),
        }
    }
    Ok(LogPage { oldest, newest, entries })
}

/// The number of a line, from `number-0`.
fn parse_stream_id(id: &Value) -> Result<u64, StoreError> {
    match id {
        Value::BulkString(id) => parse_number(id.split(|byte| *byte == b'-').next().unwrap_or_default()),
        other => Err(unexpected_value(other)),
    }
}

fn parse_number(digits: &[u8]) -> Result<u64, StoreError> {
    let digits = std::str::from_utf8(digits).ok();
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| corrupt("a number that is none"))
}

fn parse_integer(value: &Value) -> Result<u64, StoreError> {
    match value {
        Value::Int(number) => u64::try_from(*number).map_err(|_| corrupt("a number below nothing")),
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

/// Redis knows no shorter life than a millisecond.
fn ttl_millis(life: Duration) -> String {
    let millis = life.min(MAX_TTL).as_micros().div_ceil(1000).max(1);
    millis.to_string()
}

fn encode_limit(most: usize) -> String {
    most.min(1 << 31).to_string()
}

fn unexpected_value(value: &Value) -> StoreError {
    let kind = match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) => "text",
        Value::Array(_) => "a list",
        _ => "something else",
    };
    corrupt(&format!("{kind} where it should not be"))
}

fn corrupt(what: &str) -> StoreError {
    StoreError::Corrupt(format!("{what}; another program may use the same keys"))
}

// Signals and open files without a name are what these tests are made of.
#[cfg(test)]
#[cfg(unix)]
mod tests;
