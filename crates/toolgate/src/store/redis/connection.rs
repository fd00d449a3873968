//! The connection for operations. All operations share it.
//!
//! One task maintains it: when the connection is lost, the task tries to reconnect about once a second. Meanwhile,
//! operations fail at once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

use super::StoreError;
use super::address::{RedisConnection, Target, describe_error};
use super::scripts::LuaScript;
use crate::store::with_timeout;
use crate::util::clock::timer_now;
use crate::util::lock;

/// Average delay between two attempts to connect.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// Older versions lack commands that the scripts use.
const MIN_REDIS_MAJOR: u32 = 7;

/// The connection for operations. See the module documentation.
pub(super) struct CommandConnection {
    target: Target,
    deadline: Duration,
    state: Mutex<ConnectionState>,
    /// Notified when the connection may be broken.
    wakeup: Notify,
}

enum ConnectionState {
    Connected(RedisConnection),
    /// An error or a timeout occurred. The connection is still used, but must be probed.
    Suspect(RedisConnection),
    Disconnected(StoreError),
}

impl CommandConnection {
    pub(super) async fn open(
        target: Target,
        deadline: Duration,
    ) -> Result<Arc<CommandConnection>, StoreError> {
        let connection = connect(&target, deadline).await?;
        Ok(Arc::new(CommandConnection {
            target,
            deadline,
            state: Mutex::new(ConnectionState::Connected(connection)),
            wakeup: Notify::new(),
        }))
    }

    pub(super) fn hosts(&self) -> String {
        self.target.hosts()
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.target, Target::Cluster { .. })
    }

    /// Sends a command and waits for the reply.
    pub(super) async fn execute(&self, command: &Cmd) -> Result<Value, StoreError> {
        self.execute_until(command, timer_now() + self.deadline)
            .await
            .map_err(|error| self.to_store_error(&error))
    }

    /// Runs a script by its hash, or with its text if Redis does not know it yet.
    pub(super) async fn run_script(
        &self,
        script: &LuaScript,
        keys: &[String],
        args: &[&[u8]],
    ) -> Result<Value, StoreError> {
        let deadline = timer_now() + self.deadline;
        let command = |name: &str, script: &str| {
            let mut command = Cmd::new();
            command.arg(name).arg(script).arg(keys.len());
            command.arg(keys);
            for arg in args {
                command.arg(*arg);
            }
            command
        };
        let mut result = self.execute_until(&command("EVALSHA", script.hash()), deadline).await;
        if let Err(RedisCommandError::Redis(error)) = &result
            && error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
        {
            result = self.execute_until(&command("EVAL", script.text()), deadline).await;
        }
        result.map_err(|error| self.to_store_error(&error))
    }

    async fn execute_until(&self, command: &Cmd, deadline: Instant) -> Result<Value, RedisCommandError> {
        let connection = match &*lock(&self.state) {
            ConnectionState::Connected(connection) | ConnectionState::Suspect(connection) => {
                Ok(connection.clone())
            }
            ConnectionState::Disconnected(error) => Err(error.clone()),
        };
        let connection = match connection {
            Ok(connection) => connection,
            Err(error) => {
                // A caller that retries in a loop must not starve the task that reconnects.
                tokio::task::consume_budget().await;
                return Err(RedisCommandError::Disconnected(error));
            }
        };
        match timeout_at(deadline, send(connection, command)).await {
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

    /// Makes the maintenance task probe the connection. The connection to a Cluster maintains itself.
    fn mark_suspect(&self) {
        if self.is_cluster() {
            return;
        }
        let mut state = lock(&self.state);
        if let ConnectionState::Connected(connection) = &*state {
            *state = ConnectionState::Suspect(connection.clone());
            drop(state);
            self.wakeup.notify_one();
        }
    }

    /// Maintains the connection as long as it is polled.
    pub(super) async fn maintain(self: Arc<CommandConnection>) {
        loop {
            let suspect = match &*lock(&self.state) {
                ConnectionState::Connected(_) => None,
                ConnectionState::Suspect(connection) => Some(Some(connection.clone())),
                ConnectionState::Disconnected(_) => Some(None),
            };
            match suspect {
                None => self.wakeup.notified().await,
                Some(Some(connection)) => self.probe(connection).await,
                Some(None) => match connect(&self.target, self.deadline).await {
                    Ok(connection) => {
                        tracing::info!(hosts = self.hosts(), "connected to Redis again");
                        *lock(&self.state) = ConnectionState::Connected(connection);
                    }
                    Err(error) => {
                        *lock(&self.state) = ConnectionState::Disconnected(error);
                        tokio::time::sleep(reconnect_delay()).await;
                    }
                },
            }
        }
    }

    /// Tests whether a connection still works, since a single timeout may have been a slow reply.
    async fn probe(&self, connection: RedisConnection) {
        let limit = (self.deadline / 2).min(Duration::from_secs(1));
        let reason = match timeout(limit, send(connection.clone(), &redis::cmd("PING"))).await {
            // A former master rejects writes, so the new one must be found.
            Ok(Ok(_)) if timeout(limit, is_replica(&connection)).await != Ok(true) => {
                *lock(&self.state) = ConnectionState::Connected(connection);
                return;
            }
            Ok(Ok(_)) => "it is a replica now".to_owned(),
            Ok(Err(error)) => describe_error(&error),
            Err(_) => format!("no answer within {:?}", self.deadline),
        };
        tracing::warn!(hosts = self.hosts(), reason, "lost the connection to Redis");
        let error = StoreError::Unavailable(format!("Redis at {}: {reason}", self.hosts()));
        *lock(&self.state) = ConnectionState::Disconnected(error);
    }

    fn to_store_error(&self, error: &RedisCommandError) -> StoreError {
        match error {
            RedisCommandError::Disconnected(error) => error.clone(),
            RedisCommandError::Timeout => StoreError::Unavailable(format!(
                "Redis at {}: no answer within {:?}",
                self.hosts(),
                self.deadline
            )),
            RedisCommandError::Redis(error) if error.code() == Some("OOM") => StoreError::Full,
            RedisCommandError::Redis(error) if error.code() == Some("WRONGTYPE") => {
                super::corrupt("a key has another type")
            }
            RedisCommandError::Redis(error) => unavailable(&self.target, error),
        }
    }
}

/// Why a command failed.
enum RedisCommandError {
    Disconnected(StoreError),
    Timeout,
    Redis(RedisError),
}

async fn connect(target: &Target, deadline: Duration) -> Result<RedisConnection, StoreError> {
    let connecting = async {
        let connection = target.connect(deadline).await.map_err(|error| unavailable(target, &error))?;
        check_server(target, &connection).await?;
        Ok(connection)
    };
    let timed_out = || {
        let message = format!("Redis at {}: no connection within {deadline:?}", target.hosts());
        StoreError::Unavailable(message)
    };
    with_timeout(deadline, connecting, timed_out).await
}

/// Rejects a server that is a replica or too old. A server that does not report its version is accepted.
async fn check_server(target: &Target, connection: &RedisConnection) -> Result<(), StoreError> {
    if matches!(target, Target::Cluster { .. }) {
        return Ok(());
    }
    if is_replica(connection).await {
        return Err(StoreError::Unavailable(format!(
            "Redis at {} is a replica; connect to its master, or through Sentinels",
            target.hosts()
        )));
    }
    let reply = send(connection.clone(), redis::cmd("INFO").arg("server")).await;
    let info = match reply {
        Ok(Value::BulkString(info)) => String::from_utf8_lossy(&info).into_owned(),
        Ok(Value::VerbatimString { text, .. }) => text,
        _ => return Ok(()),
    };
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
    let major = version.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    match (major, version) {
        (Some(major), Some(version)) if major < MIN_REDIS_MAJOR => Err(StoreError::Unavailable(format!(
            "Redis at {} is {version}; Redis {MIN_REDIS_MAJOR} or Valkey is needed",
            target.hosts()
        ))),
        _ => Ok(()),
    }
}

async fn send(connection: RedisConnection, command: &Cmd) -> Result<Value, RedisError> {
    let value: Value = match connection {
        RedisConnection::Single(mut connection) => command.query_async(&mut connection).await?,
        RedisConnection::Cluster(mut connection) => command.query_async(&mut connection).await?,
    };
    match value {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }
}

/// Returns whether an error concerns the connection, not the command.
fn is_connection_error(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_connection_dropped()
        || error.is_unrecoverable_error()
        || matches!(error.code(), Some("READONLY" | "MASTERDOWN"))
}

async fn is_replica(connection: &RedisConnection) -> bool {
    match send(connection.clone(), &redis::cmd("ROLE")).await {
        Ok(Value::Array(role)) => matches!(role.first(), Some(Value::BulkString(role)) if role == b"slave"),
        _ => false,
    }
}

pub(super) fn unavailable(target: &Target, error: &RedisError) -> StoreError {
    StoreError::Unavailable(format!("Redis at {}: {}", target.hosts(), describe_error(error)))
}

/// Returns a random delay around [`RECONNECT_DELAY`], so that not all processes reconnect at the same moment.
pub(super) fn reconnect_delay() -> Duration {
    let permille = getrandom::u32().map_or(500, |number| number % 1000);
    RECONNECT_DELAY / 2 + RECONNECT_DELAY * permille / 1000
}
