//! Everything in Redis or Valkey, shared by several processes.
//!
//! Each operation is one round trip: a plain command, or a script that Redis runs as a whole. Two connections: one for
//! all operations (`link`), one for all listeners (`ears`). Both come back by themselves when Redis does; until then
//! everybody is told at once that it is away. The shapes of the keys and the scripts stand in `scripts`.

mod address;
mod ears;
mod link;
mod scripts;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::{Cmd, Value};
use tokio::task::JoinSet;

use self::address::Target;
use self::ears::Ears;
use self::link::Link;
use self::scripts::Names;
use super::{Entry, Expect, Fetching, Key, Listener, Page, Reach, Store, StoreError, Version};

/// How long an operation may take, unless somebody says otherwise.
const DEADLINE: Duration = Duration::from_secs(2);

/// What keys begin with, unless somebody says otherwise.
const PREFIX: &str = "toolgate:";

/// Longer lives are cut to this: Redis cannot reckon with all that we can.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

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
pub struct RedisStore(Arc<Shared>);

struct Shared {
    names: Names,
    link: Arc<Link>,
    ears: Ears,
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
        RedisOptions { url: url.into(), prefix: PREFIX.to_owned(), deadline: DEADLINE }
    }

    async fn run(
        &self,
        script: &scripts::Script,
        keys: &[String],
        args: &[&[u8]],
    ) -> Result<Value, StoreError> {
        self.0.link.run(script, keys, args).await
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

    async fn open(self) -> Result<RedisStore, StoreError> {
        let names = Names::new(&self.prefix);
        let target = Target::parse(&self.url)?;
        let link = Link::open(target.clone(), self.deadline).await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&link).keep());
        let ears = Ears::open(target, self.deadline, &mut tasks);
        Ok(RedisStore(Arc::new(Shared { names, link, ears, _tasks: tasks })))
    }
}

impl IntoFuture for RedisOptions {
    type Output = Result<RedisStore, StoreError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.open())
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
        f.debug_struct("RedisStore").field("at", &self.0.link.shown()).finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.ears.close();
    }
}

impl Store for RedisStore {
    fn get<'a>(&'a self, key: &'a Key) -> Fetching<'a, Option<Entry>> {
        Box::pin(async move {
            let mut command = Cmd::new();
            command.arg("GET").arg(self.0.names.entry(key));
            match self.0.link.ask(&command).await? {
                Value::Nil => Ok(None),
                Value::BulkString(kept) => entry(kept).map(Some),
                other => Err(strange(&other)),
            }
        })
    }

    fn put<'a>(
        &'a self,
        key: &'a Key,
        value: Bytes,
        life: Option<Duration>,
        expect: Expect,
    ) -> Fetching<'a, Option<Version>> {
        Box::pin(async move {
            let names = &self.0.names;
            let keys = [names.entry(key), names.index(key.space()), names.last(key.space())];
            let life = life.map_or_else(String::new, millis);
            let expect = expected(expect);
            let entries = names.entries(key.space());
            let args =
                [key.name().as_bytes(), &value[..], life.as_bytes(), expect.as_bytes(), entries.as_bytes()];
            match self.run(&scripts::PUT, &keys, &args).await? {
                Value::Nil => Ok(None),
                Value::BulkString(version) => number(&version).map(|version| Some(Version(version))),
                other => Err(strange(&other)),
            }
        })
    }

    fn touch<'a>(&'a self, key: &'a Key, life: Duration) -> Fetching<'a, bool> {
        Box::pin(async move {
            let keys = [self.0.names.entry(key), self.0.names.index(key.space())];
            integer(&self.run(&scripts::TOUCH, &keys, &[millis(life).as_bytes()]).await?).map(|n| n > 0)
        })
    }

    fn delete<'a>(&'a self, key: &'a Key, expect: Expect) -> Fetching<'a, bool> {
        Box::pin(async move {
            let names = &self.0.names;
            let keys = [names.entry(key), names.index(key.space()), names.log(key)];
            let args = [key.name().as_bytes(), &expected(expect).into_bytes()[..]];
            integer(&self.run(&scripts::DELETE, &keys, &args).await?).map(|n| n > 0)
        })
    }

    fn list<'a>(
        &'a self,
        space: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> Fetching<'a, Vec<(Box<str>, Entry)>> {
        Box::pin(async move {
            let entries = self.0.names.entries(space);
            let from = after.map_or_else(|| "-".to_owned(), |after| format!("({after}"));
            let args = [entries.as_bytes(), from.as_bytes(), &bounded(most).into_bytes()[..]];
            let found = self.run(&scripts::LIST, &[self.0.names.index(space)], &args).await?;
            let Value::Array(found) = found else { return Err(strange(&found)) };
            let mut listed = Vec::with_capacity(found.len() / 2);
            let mut found = found.into_iter();
            while let (Some(Value::BulkString(name)), Some(Value::BulkString(kept))) =
                (found.next(), found.next())
            {
                let name = String::from_utf8(name).map_err(|_| broken("a name that is no text"))?;
                listed.push((name.into(), entry(kept)?));
            }
            Ok(listed)
        })
    }

    fn count<'a>(&'a self, key: &'a Key, by: u64, life: Duration) -> Fetching<'a, u64> {
        Box::pin(async move {
            let by = by.min(i64::MAX.unsigned_abs()).to_string();
            let args = [by.as_bytes(), &millis(life).into_bytes()[..]];
            integer(&self.run(&scripts::COUNT, &[self.0.names.counter(key)], &args).await?)
        })
    }

    fn append<'a>(&'a self, log: &'a Key, value: Bytes, life: Duration, most: usize) -> Fetching<'a, u64> {
        Box::pin(async move {
            let (life, most) = (millis(life), bounded(most.max(1)));
            let args = [&value[..], life.as_bytes(), most.as_bytes()];
            integer(&self.run(&scripts::APPEND, &[self.0.names.log(log)], &args).await?)
        })
    }

    fn read<'a>(&'a self, log: &'a Key, after: u64, most: usize) -> Fetching<'a, Page> {
        Box::pin(async move {
            let (after, most) = (after.to_string(), bounded(most));
            let args = [after.as_bytes(), most.as_bytes()];
            page(self.run(&scripts::READ, &[self.0.names.log(log)], &args).await?)
        })
    }

    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> Fetching<'a, ()> {
        Box::pin(async move {
            let channel = self.0.names.channel(channel);
            // In a Cluster a script has its place, so that one channel has one order.
            if self.0.link.is_cluster() {
                return self.run(&scripts::PUBLISH, &[channel], &[&message[..]]).await.map(drop);
            }
            let mut command = Cmd::new();
            command.arg("PUBLISH").arg(channel).arg(&message[..]);
            self.0.link.ask(&command).await.map(drop)
        })
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> Fetching<'a, Listener> {
        Box::pin(self.0.ears.listen(self.0.names.channel(channel)))
    }

    fn reach(&self) -> Reach {
        Reach::Processes
    }
}

/// What stands in an entry's key: the version, a colon, the bytes.
fn entry(mut kept: Vec<u8>) -> Result<Entry, StoreError> {
    let colon = kept.iter().take(20).position(|byte| *byte == b':');
    let colon = colon.ok_or_else(|| broken("an entry without a version"))?;
    let version = Version(number(&kept[..colon])?);
    let value = Bytes::from(kept.split_off(colon + 1));
    Ok(Entry { value, version })
}

fn page(found: Value) -> Result<Page, StoreError> {
    let parts = match found {
        Value::Nil => return Ok(Page { oldest: 1, newest: 0, entries: Vec::new() }),
        Value::Array(parts) => {
            <[Value; 3]>::try_from(parts).map_err(|_| broken("a log that makes no sense"))?
        }
        other => return Err(strange(&other)),
    };
    let [first, last, lines] = parts;
    let (oldest, newest) = (line_number(&first)?, line_number(&last)?);
    let Value::Array(lines) = lines else { return Err(strange(&lines)) };
    let mut entries = Vec::with_capacity(lines.len());
    for line in lines {
        // `[number, [field, value]]`
        let Value::Array(line) = line else { return Err(strange(&line)) };
        match <[Value; 2]>::try_from(line) {
            Ok([at, Value::Array(mut fields)]) => match fields.pop() {
                Some(Value::BulkString(value)) => entries.push((line_number(&at)?, Bytes::from(value))),
                _ => return Err(broken("a line without a value")),
            },
            _ => return Err(broken("a line that makes no sense")),
        }
    }
    Ok(Page { oldest, newest, entries })
}

/// The number of a line, from `number-0`.
fn line_number(id: &Value) -> Result<u64, StoreError> {
    match id {
        Value::BulkString(id) => number(id.split(|byte| *byte == b'-').next().unwrap_or_default()),
        other => Err(strange(other)),
    }
}

fn number(digits: &[u8]) -> Result<u64, StoreError> {
    let digits = std::str::from_utf8(digits).ok();
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| broken("a number that is none"))
}

fn integer(value: &Value) -> Result<u64, StoreError> {
    match value {
        Value::Int(number) => u64::try_from(*number).map_err(|_| broken("a number below nothing")),
        other => Err(strange(other)),
    }
}

fn expected(expect: Expect) -> String {
    match expect {
        Expect::Anything => "*".to_owned(),
        Expect::Absent => "-".to_owned(),
        Expect::Is(Version(version)) => version.to_string(),
    }
}

/// Redis knows no shorter life than a millisecond.
fn millis(life: Duration) -> String {
    let millis = life.min(LONGEST).as_micros().div_ceil(1000).max(1);
    millis.to_string()
}

fn bounded(most: usize) -> String {
    most.min(1 << 31).to_string()
}

fn strange(value: &Value) -> StoreError {
    let kind = match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) => "text",
        Value::Array(_) => "a list",
        _ => "something else",
    };
    broken(&format!("{kind} where it should not be"))
}

fn broken(what: &str) -> StoreError {
    StoreError::Broken(format!("{what}; another program may use the same keys"))
}

// Signals and open files without a name are what these tests are made of.
#[cfg(test)]
#[cfg(unix)]
mod tests;
