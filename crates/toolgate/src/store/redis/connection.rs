//! The connection for operations, shared by all. One task keeps it: when it is lost, the task tries about once a
//! second to have it back, and whoever asks meanwhile is told at once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

use super::StoreError;
use super::address::{RedisConnection, Target, describe_error};
use super::scripts::LuaScript;
use crate::util::clock::timer_now;

/// The middle of the pause between two attempts to connect.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// Older ones lack commands that the scripts use.
const MIN_REDIS_MAJOR: u32 = 7;

pub(super) struct CommandConnection {
    target: Target,
    deadline: Duration,
    state: Mutex<ConnectionState>,
    /// Something is wrong with the line.
    wakeup: Notify,
}

enum ConnectionState {
    Connected(RedisConnection),
    /// Lost, or silent for too long: to be tried before it is used by many.
    Suspect(RedisConnection),
    Disconnected(StoreError),
}

impl CommandConnection {
    pub(super) async fn open(
        target: Target,
        deadline: Duration,
    ) -> Result<Arc<CommandConnection>, StoreError> {
        let wire = connect(&target, deadline).await?;
        Ok(Arc::new(CommandConnection {
            target,
            deadline,
            state: Mutex::new(ConnectionState::Connected(wire)),
            wakeup: Notify::new(),
        }))
    }

    pub(super) fn hosts(&self) -> String {
        self.target.hosts()
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.target, Target::Cluster { .. })
    }

    /// Sends one command and waits for its answer.
    pub(super) async fn execute(&self, command: &Cmd) -> Result<Value, StoreError> {
        self.execute_until(command, timer_now() + self.deadline)
            .await
            .map_err(|error| self.to_store_error(&error))
    }

    /// Runs a script: by its name if Redis knows it, otherwise as a text that it will know from then on.
    pub(super) async fn run_script(
        &self,
        script: &LuaScript,
        keys: &[String],
        args: &[&[u8]],
    ) -> Result<Value, StoreError> {
        let until = timer_now() + self.deadline;
        let command = |verb: &str, text: &str| {
            let mut command = Cmd::new();
            command.arg(verb).arg(text).arg(keys.len());
            command.arg(keys);
            for arg in args {
                command.arg(*arg);
            }
            command
        };
        let known = self.execute_until(&command("EVALSHA", script.hash()), until).await;
        match known {
            Err(RedisCommandError::Redis(error))
                if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) =>
            {
                let text = self.execute_until(&command("EVAL", script.text()), until).await;
                text.map_err(|error| self.to_store_error(&error))
            }
            known => known.map_err(|error| self.to_store_error(&error)),
        }
    }

    async fn execute_until(&self, command: &Cmd, until: Instant) -> Result<Value, RedisCommandError> {
        let wire = match &*self.lock_state() {
            ConnectionState::Connected(wire) | ConnectionState::Suspect(wire) => Ok(wire.clone()),
            ConnectionState::Disconnected(error) => Err(error.clone()),
        };
        let wire = match wire {
            Ok(wire) => wire,
            Err(error) => {
                // Somebody who asks again and again must not keep the task from running that connects.
                tokio::task::consume_budget().await;
                return Err(RedisCommandError::Disconnected(error));
            }
        };
        match timeout_at(until, send(wire, command)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                if is_connection_error(&error) {
                    self.mark_suspect();
                }
                Err(RedisCommandError::Redis(error))
            }
            Err(_) => {
                self.mark_suspect();
                Err(RedisCommandError::Timeout)
            }
        }
    }

    /// Lets the task look after the line. A Cluster's connection looks after itself.
    fn mark_suspect(&self) {
        if self.is_cluster() {
            return;
        }
        let mut line = self.lock_state();
        if let ConnectionState::Connected(wire) = &*line {
            let wire = wire.clone();
            *line = ConnectionState::Suspect(wire);
            drop(line);
            self.wakeup.notify_one();
        }
    }

    /// Keeps the connection for as long as it is polled.
    pub(super) async fn maintain(self: Arc<CommandConnection>) {
        loop {
            let doubtful = match &*self.lock_state() {
                ConnectionState::Connected(_) => None,
                ConnectionState::Suspect(wire) => Some(Some(wire.clone())),
                ConnectionState::Disconnected(_) => Some(None),
            };
            match doubtful {
                None => self.wakeup.notified().await,
                Some(Some(wire)) => self.probe(wire).await,
                Some(None) => match connect(&self.target, self.deadline).await {
                    Ok(wire) => {
                        tracing::info!(at = self.hosts(), "Redis is back");
                        *self.lock_state() = ConnectionState::Connected(wire);
                    }
                    Err(error) => {
                        *self.lock_state() = ConnectionState::Disconnected(error);
                        tokio::time::sleep(jittered(RECONNECT_DELAY)).await;
                    }
                },
            }
        }
    }

    /// Whether a line still works. One answer that was late may have been a slow one.
    async fn probe(&self, wire: RedisConnection) {
        let patience = (self.deadline / 2).min(Duration::from_secs(1));
        let why = match timeout(patience, send(wire.clone(), &redis::cmd("PING"))).await {
            // Whoever was master and is no more refuses to write; the new one must be found.
            Ok(Ok(_)) if timeout(patience, is_replica(&wire)).await != Ok(true) => {
                *self.lock_state() = ConnectionState::Connected(wire);
                return;
            }
            Ok(Ok(_)) => "it is a replica now".to_owned(),
            Ok(Err(error)) => describe_error(&error),
            Err(_) => format!("no answer within {:?}", self.deadline),
        };
        tracing::warn!(at = self.hosts(), why, "Redis is away");
        *self.lock_state() = ConnectionState::Disconnected(StoreError::Unavailable(format!(
            "Redis at {}: {why}",
            self.hosts()
        )));
    }

    fn to_store_error(&self, failure: &RedisCommandError) -> StoreError {
        match failure {
            RedisCommandError::Disconnected(error) => error.clone(),
            RedisCommandError::Timeout => StoreError::Unavailable(format!(
                "Redis at {}: no answer within {:?}",
                self.hosts(),
                self.deadline
            )),
            RedisCommandError::Redis(error) if error.code() == Some("OOM") => StoreError::Full,
            RedisCommandError::Redis(error) if error.code() == Some("WRONGTYPE") => {
                super::corrupt("a key of another kind")
            }
            RedisCommandError::Redis(error) => unavailable(&self.target, error),
        }
    }

    fn lock_state(&self) -> std::sync::MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why there is no answer.
enum RedisCommandError {
    Disconnected(StoreError),
    Timeout,
    Redis(RedisError),
}

async fn connect(target: &Target, deadline: Duration) -> Result<RedisConnection, StoreError> {
    let connecting = async {
        let wire = target.connect(deadline).await.map_err(|error| unavailable(target, &error))?;
        check_server(target, &wire).await?;
        Ok(wire)
    };
    match timeout(deadline, connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(StoreError::Unavailable(format!(
            "Redis at {}: no connection within {deadline:?}",
            target.hosts()
        ))),
    }
}

/// Refuses a Redis that cannot be written to, or is too old. One that does not tell is believed.
async fn check_server(target: &Target, wire: &RedisConnection) -> Result<(), StoreError> {
    if matches!(target, Target::Cluster { .. }) {
        return Ok(());
    }
    if is_replica(wire).await {
        return Err(StoreError::Unavailable(format!(
            "Redis at {} is a replica; connect to its master, or through Sentinels",
            target.hosts()
        )));
    }
    let Ok(told) = send(wire.clone(), redis::cmd("INFO").arg("server")).await else { return Ok(()) };
    let told = match told {
        Value::BulkString(told) => String::from_utf8_lossy(&told).into_owned(),
        Value::VerbatimString { text, .. } => text,
        _ => return Ok(()),
    };
    let version = told.lines().find_map(|line| line.strip_prefix("redis_version:"));
    let major = version.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    match (major, version) {
        (Some(major), Some(version)) if major < MIN_REDIS_MAJOR => Err(StoreError::Unavailable(format!(
            "Redis at {} is {version}; Redis {MIN_REDIS_MAJOR} or Valkey is needed",
            target.hosts()
        ))),
        _ => Ok(()),
    }
}

async fn send(wire: RedisConnection, command: &Cmd) -> Result<Value, RedisError> {
    let value: Value = match wire {
        RedisConnection::Single(mut wire) => command.query_async(&mut wire).await?,
        RedisConnection::Cluster(mut wire) => command.query_async(&mut wire).await?,
    };
    match value {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }
}

/// Whether this says something about the line, and not about the command.
fn is_connection_error(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_connection_dropped()
        || error.is_unrecoverable_error()
        || matches!(error.code(), Some("READONLY" | "MASTERDOWN"))
}

async fn is_replica(wire: &RedisConnection) -> bool {
    match send(wire.clone(), &redis::cmd("ROLE")).await {
        Ok(Value::Array(role)) => matches!(role.first(), Some(Value::BulkString(role)) if role == b"slave"),
        _ => false,
    }
}

pub(super) fn unavailable(target: &Target, error: &RedisError) -> StoreError {
    StoreError::Unavailable(format!("Redis at {}: {}", target.hosts(), describe_error(error)))
}

/// A time between half and one and a half of this, so that not everybody comes back in the same moment.
pub(super) fn jittered(time: Duration) -> Duration {
    let part = getrandom::u32().map_or(500, |number| number % 1000);
    time / 2 + time * part / 1000
}
