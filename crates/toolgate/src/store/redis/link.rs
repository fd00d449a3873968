//! The connection for operations, shared by all. One task keeps it: when it is lost, the task tries about once a
//! second to have it back, and whoever asks meanwhile is told at once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

use super::StoreError;
use super::address::{Target, Wire, plain};
use super::scripts::Script;
use crate::clock::timer_now;

/// The middle of the pause between two attempts to connect.
const PAUSE: Duration = Duration::from_secs(1);

/// Older ones lack commands that the scripts use.
const OLDEST: u32 = 7;

pub(super) struct Link {
    target: Target,
    deadline: Duration,
    line: Mutex<Line>,
    /// Something is wrong with the line.
    alarm: Notify,
}

enum Line {
    Up(Wire),
    /// Lost, or silent for too long: to be tried before it is used by many.
    Doubtful(Wire),
    Down(StoreError),
}

impl Link {
    pub(super) async fn open(target: Target, deadline: Duration) -> Result<Arc<Link>, StoreError> {
        let wire = connect(&target, deadline).await?;
        Ok(Arc::new(Link { target, deadline, line: Mutex::new(Line::Up(wire)), alarm: Notify::new() }))
    }

    pub(super) fn shown(&self) -> String {
        self.target.shown()
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.target, Target::Cluster { .. })
    }

    /// Sends one command and waits for its answer.
    pub(super) async fn ask(&self, command: &Cmd) -> Result<Value, StoreError> {
        self.ask_until(command, timer_now() + self.deadline).await.map_err(|error| self.refusal(&error))
    }

    /// Runs a script: by its name if Redis knows it, otherwise as a text that it will know from then on.
    pub(super) async fn run(
        &self,
        script: &Script,
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
        let known = self.ask_until(&command("EVALSHA", script.hash()), until).await;
        match known {
            Err(Failure::Redis(error)) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                let text = self.ask_until(&command("EVAL", script.text()), until).await;
                text.map_err(|error| self.refusal(&error))
            }
            known => known.map_err(|error| self.refusal(&error)),
        }
    }

    async fn ask_until(&self, command: &Cmd, until: Instant) -> Result<Value, Failure> {
        let wire = match &*self.line() {
            Line::Up(wire) | Line::Doubtful(wire) => Ok(wire.clone()),
            Line::Down(error) => Err(error.clone()),
        };
        let wire = match wire {
            Ok(wire) => wire,
            Err(error) => {
                // Somebody who asks again and again must not keep the task from running that connects.
                tokio::task::consume_budget().await;
                return Err(Failure::Down(error));
            }
        };
        match timeout_at(until, send(wire, command)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                if is_lost(&error) {
                    self.doubt();
                }
                Err(Failure::Redis(error))
            }
            Err(_) => {
                self.doubt();
                Err(Failure::Late)
            }
        }
    }

    /// Lets the task look after the line. A Cluster's connection looks after itself.
    fn doubt(&self) {
        if self.is_cluster() {
            return;
        }
        let mut line = self.line();
        if let Line::Up(wire) = &*line {
            let wire = wire.clone();
            *line = Line::Doubtful(wire);
            drop(line);
            self.alarm.notify_one();
        }
    }

    /// Keeps the connection for as long as it is polled.
    pub(super) async fn keep(self: Arc<Link>) {
        loop {
            let doubtful = match &*self.line() {
                Line::Up(_) => None,
                Line::Doubtful(wire) => Some(Some(wire.clone())),
                Line::Down(_) => Some(None),
            };
            match doubtful {
                None => self.alarm.notified().await,
                Some(Some(wire)) => self.probe(wire).await,
                Some(None) => match connect(&self.target, self.deadline).await {
                    Ok(wire) => {
                        tracing::info!(at = self.shown(), "Redis is back");
                        *self.line() = Line::Up(wire);
                    }
                    Err(error) => {
                        *self.line() = Line::Down(error);
                        tokio::time::sleep(jittered(PAUSE)).await;
                    }
                },
            }
        }
    }

    /// Whether a line still works. One answer that was late may have been a slow one.
    async fn probe(&self, wire: Wire) {
        let patience = (self.deadline / 2).min(Duration::from_secs(1));
        let why = match timeout(patience, send(wire.clone(), &redis::cmd("PING"))).await {
            // Whoever was master and is no more refuses to write; the new one must be found.
            Ok(Ok(_)) if timeout(patience, is_replica(&wire)).await != Ok(true) => {
                *self.line() = Line::Up(wire);
                return;
            }
            Ok(Ok(_)) => "it is a replica now".to_owned(),
            Ok(Err(error)) => plain(&error),
            Err(_) => format!("no answer within {:?}", self.deadline),
        };
        tracing::warn!(at = self.shown(), why, "Redis is away");
        *self.line() = Line::Down(StoreError::Unavailable(format!("Redis at {}: {why}", self.shown())));
    }

    fn refusal(&self, failure: &Failure) -> StoreError {
        match failure {
            Failure::Down(error) => error.clone(),
            Failure::Late => StoreError::Unavailable(format!(
                "Redis at {}: no answer within {:?}",
                self.shown(),
                self.deadline
            )),
            Failure::Redis(error) if error.code() == Some("OOM") => StoreError::Full,
            Failure::Redis(error) if error.code() == Some("WRONGTYPE") => {
                super::broken("a key of another kind")
            }
            Failure::Redis(error) => unavailable(&self.target, error),
        }
    }

    fn line(&self) -> std::sync::MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why there is no answer.
enum Failure {
    Down(StoreError),
    Late,
    Redis(RedisError),
}

async fn connect(target: &Target, deadline: Duration) -> Result<Wire, StoreError> {
    let connecting = async {
        let wire = target.connect(deadline).await.map_err(|error| unavailable(target, &error))?;
        check(target, &wire).await?;
        Ok(wire)
    };
    match timeout(deadline, connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(StoreError::Unavailable(format!(
            "Redis at {}: no connection within {deadline:?}",
            target.shown()
        ))),
    }
}

/// Refuses a Redis that cannot be written to, or is too old. One that does not tell is believed.
async fn check(target: &Target, wire: &Wire) -> Result<(), StoreError> {
    if matches!(target, Target::Cluster { .. }) {
        return Ok(());
    }
    if is_replica(wire).await {
        return Err(StoreError::Unavailable(format!(
            "Redis at {} is a replica; connect to its master, or through Sentinels",
            target.shown()
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
        (Some(major), Some(version)) if major < OLDEST => Err(StoreError::Unavailable(format!(
            "Redis at {} is {version}; Redis {OLDEST} or Valkey is needed",
            target.shown()
        ))),
        _ => Ok(()),
    }
}

async fn send(wire: Wire, command: &Cmd) -> Result<Value, RedisError> {
    let value: Value = match wire {
        Wire::One(mut wire) => command.query_async(&mut wire).await?,
        Wire::Cluster(mut wire) => command.query_async(&mut wire).await?,
    };
    match value {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }
}

/// Whether this says something about the line, and not about the command.
fn is_lost(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_connection_dropped()
        || error.is_unrecoverable_error()
        || matches!(error.code(), Some("READONLY" | "MASTERDOWN"))
}

async fn is_replica(wire: &Wire) -> bool {
    match send(wire.clone(), &redis::cmd("ROLE")).await {
        Ok(Value::Array(role)) => matches!(role.first(), Some(Value::BulkString(role)) if role == b"slave"),
        _ => false,
    }
}

pub(super) fn unavailable(target: &Target, error: &RedisError) -> StoreError {
    StoreError::Unavailable(format!("Redis at {}: {}", target.shown(), plain(error)))
}

/// A time between half and one and a half of this, so that not everybody comes back in the same moment.
pub(super) fn jittered(time: Duration) -> Duration {
    let part = getrandom::u32().map_or(500, |number| number % 1000);
    time / 2 + time * part / 1000
}
