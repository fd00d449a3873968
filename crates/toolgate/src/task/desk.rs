//! A task that runs here: what is known of its record, and the voice of its handler.
//!
//! What a handler says is written down, not sent: progress and log lines become the message of the task, a question
//! becomes part of its state, and whoever answers does so by changing the record, perhaps in another process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use toolgate_wire::model::{ClientResult, ServerRequest, LogLevel, Notification};
use toolgate_wire::{Client, RawJson, codec};

use super::record::Record;
use super::{Amended, Change, Core, lock};
use crate::clock::timer_now;
use crate::handler::{AskError, AskErrorKind, Voice};
use crate::request::{BoxFuture, CallError};
use crate::store::{Expect, StoreError, Version};

/// The longest message of a task, in characters.
const MESSAGE: usize = 500;
/// How long to wait before a store that is away is asked again.
const AGAIN: Duration = Duration::from_millis(500);
/// What is over sooner than this is not put back: it was not lost, its time has come.
const WORTH: Duration = Duration::from_secs(5);
/// How often it is asked before a handler goes on without.
const PATIENCE: usize = 20;

/// See the module.
pub(super) struct Desk {
    core: Weak<Core>,
    pub(super) owner: Arc<str>,
    pub(super) id: Box<str>,
    /// Which run of the task this is.
    attempt: u64,
    client: Option<Client>,
    /// When it is forgotten, on the clock that goes evenly.
    until: Instant,
    /// Steps are kept as soon as they are done.
    pub(super) resumable: bool,
    known: Mutex<(Record, Version)>,
    said: Mutex<Said>,
    /// Somebody may have changed the record.
    nudged: Notify,
    /// It was to be looked at, and could not be: it is still to be done.
    doubtful: AtomicBool,
    /// The handler has said something.
    pub(super) spoke: Notify,
    /// What is known of the record has changed.
    changed: Notify,
}

/// What the handler has said. What of it is written down yet, is not known here.
#[derive(Default)]
struct Said {
    message: Option<String>,
    memory: BTreeMap<String, RawJson>,
}

/// What became of a change that the one who runs a task wants.
pub(super) enum Turn {
    /// It is written down.
    Done,
    /// The task is over, or somebody else runs it.
    Over,
}

impl Desk {
    pub(super) fn new(
        core: &Arc<Core>,
        owner: Arc<str>,
        record: Record,
        version: Version,
        resumable: bool,
    ) -> Arc<Desk> {
        let until = timer_now() + core.left_of(&record).unwrap_or_default();
        Arc::new(Desk {
            core: Arc::downgrade(core),
            until,
            owner,
            id: record.task.id.as_str().into(),
            attempt: record.attempt,
            client: record.client().ok(),
            resumable,
            said: Mutex::new(Said { memory: record.memory.clone(), ..Said::default() }),
            known: Mutex::new((record, version)),
            nudged: Notify::new(),
            doubtful: AtomicBool::new(false),
            spoke: Notify::new(),
            changed: Notify::new(),
        })
    }

    /// Somebody may have changed the record.
    pub(super) fn nudge(&self) {
        self.nudged.notify_one();
    }

    pub(super) async fn nudged(&self) {
        self.nudged.notified().await;
    }

    /// The record as it was last seen.
    pub(super) fn record(&self) -> Record {
        lock(&self.known).0.clone()
    }

    /// Looks at the record. False if the task is over, or somebody else runs it.
    pub(super) async fn reload(&self) -> Result<bool, StoreError> {
        self.doubtful.store(true, Ordering::Relaxed);
        let Some(core) = self.core.upgrade() else { return Ok(false) };
        let goes_on = match core.find(&self.owner, &self.id).await? {
            Some(found) => {
                let goes_on = self.goes_on(&found.0);
                self.know(found);
                goes_on
            }
            None => self.put_back(&core).await?,
        };
        self.doubtful.store(false, Ordering::Relaxed);
        Ok(goes_on)
    }

    /// Whether the last look at the record did not work.
    pub(super) fn is_doubtful(&self) -> bool {
        self.doubtful.load(Ordering::Relaxed)
    }

    /// The record is gone before its time, as where a store lost what it had said it kept. What is known of it is kept
    /// once more. False if its time is over, or something else is in its place.
    async fn put_back(&self, core: &Core) -> Result<bool, StoreError> {
        let mut record = self.record();
        let left = self.until.saturating_duration_since(timer_now());
        if left < WORTH || core.left_of(&record).is_none() || !self.goes_on(&record) {
            return Ok(false);
        }
        self.write_down(&mut record);
        let key = core.key(&self.owner, &self.id);
        if let Some(version) = core.cellar.store.put(&key, record.write(), Some(left), Expect::Absent).await?
        {
            tracing::warn!(id = %self.id, "the record of a task was lost, and is kept again");
            *lock(&self.known) = (record, version);
            return Ok(true);
        }
        // Two of us may have missed it at once.
        let Some(found) = core.find(&self.owner, &self.id).await? else { return Ok(false) };
        let goes_on = self.goes_on(&found.0);
        self.know(found);
        Ok(goes_on)
    }

    fn goes_on(&self, record: &Record) -> bool {
        !record.is_final() && record.attempt == self.attempt
    }

    /// What was fetched first may arrive last: the newest stays.
    fn know(&self, found: (Record, Version)) {
        let mut known = lock(&self.known);
        if found.1 >= known.1 {
            *known = found;
        }
        drop(known);
        self.changed.notify_waiters();
    }

    /// Changes the record, if this is still the one who runs the task. What the handler has said goes with it.
    pub(super) async fn amend(&self, change: Change<'_>) -> Result<Turn, StoreError> {
        let Some(core) = self.core.upgrade() else { return Ok(Turn::Over) };
        // A second time for a record that was lost and is there again.
        for _ in 0..2 {
            let known = lock(&self.known).clone();
            let mut goes_on = true;
            let mut change_own = |record: &mut Record| {
                goes_on = self.goes_on(record);
                if !goes_on {
                    return false;
                }
                let written = self.write_down(record);
                change(record) || written
            };
            let amended = core.amend(&self.owner, &self.id, Some(known), &mut change_own).await?;
            if let Some(Amended { record, version, .. }) = amended {
                self.know((record, version));
                return Ok(if goes_on { Turn::Done } else { Turn::Over });
            }
            if !self.put_back(&core).await? {
                break;
            }
        }
        Ok(Turn::Over)
    }

    /// Puts what the handler has said into a record; says whether that changed it.
    fn write_down(&self, record: &mut Record) -> bool {
        let said = lock(&self.said);
        let mut changed = false;
        if said.message.is_some() && said.message != record.task.status_message {
            record.task.status_message.clone_from(&said.message);
            changed = true;
        }
        if said.memory != record.memory {
            record.memory.clone_from(&said.memory);
            changed = true;
        }
        changed
    }

    /// The same until the store does it, or it is over.
    async fn insist(&self, most: usize, change: Change<'_>) -> Option<Turn> {
        for _ in 0..most {
            match self.amend(change).await {
                Ok(turn) => return Some(turn),
                Err(error) => {
                    tracing::debug!(%error, id = %self.id, "a task cannot be written down; trying again");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
        None
    }

    fn say(&self, message: &str) {
        let message = message.chars().take(MESSAGE).collect();
        lock(&self.said).message = Some(message);
        self.spoke.notify_one();
    }

    async fn ask_now(&self, key: &str, ask: ServerRequest) -> Result<ClientResult, AskError> {
        let gone = || AskError(AskErrorKind::Gone);
        if let Some(reply) = self.reply_to(key) {
            return understood(&ask, &reply);
        }
        if let Some((what, _)) = self.client.as_ref().and_then(|client| codec::missing_capabilities(client, &ask)) {
            return Err(AskError(AskErrorKind::Unsupported(what)));
        }
        match self.insist(usize::MAX, &mut |record| record.ask(key, &ask)).await {
            Some(Turn::Done) => {}
            _ => return Err(gone()),
        }
        loop {
            // Before the look, so that nothing in between is missed.
            let changed = self.changed.notified();
            if let Some(reply) = self.reply_to(key) {
                return understood(&ask, &reply);
            }
            if !self.goes_on(&lock(&self.known).0) {
                return Err(gone());
            }
            changed.await;
        }
    }

    fn reply_to(&self, key: &str) -> Option<RawJson> {
        lock(&self.known).0.replies.get(key).cloned()
    }
}

fn understood(ask: &ServerRequest, reply: &RawJson) -> Result<ClientResult, AskError> {
    let refused = |why: String| AskError(AskErrorKind::Refused(why));
    match reply.view().as_string() {
        Some(why) => Err(refused(why.into_owned())),
        None => codec::decode_client_result(ask, reply).map_err(|fault| refused(fault.to_string())),
    }
}

impl Voice for Desk {
    fn hears(&self, level: LogLevel) -> bool {
        level >= LogLevel::Info
    }

    fn tell(&self, notice: &Notification) -> bool {
        match notice {
            Notification::Progress { message: Some(message), .. } => self.say(message),
            Notification::Progress { progress, total: Some(total), .. } => {
                self.say(&format!("{progress} of {total}"))
            }
            Notification::Progress { progress, .. } => self.say(&progress.to_string()),
            Notification::LogMessage { data, .. } => {
                let text = data.view().as_string();
                self.say(text.as_deref().unwrap_or(data.as_str()));
            }
            _ => return false,
        }
        true
    }

    fn ask<'a>(&'a self, key: &'a str, ask: ServerRequest) -> BoxFuture<'a, Result<ClientResult, AskError>> {
        Box::pin(self.ask_now(key, ask))
    }

    fn recall(&self, name: &str) -> Option<RawJson> {
        lock(&self.said).memory.get(name).cloned()
    }

    fn remember(&self, name: &str, value: RawJson) {
        lock(&self.said).memory.insert(name.to_owned(), value);
        if self.resumable {
            self.spoke.notify_one();
        }
    }

    fn settled(&self) -> Option<BoxFuture<'_, ()>> {
        if !self.resumable {
            return None;
        }
        Some(Box::pin(async {
            if self.insist(PATIENCE, &mut |_| false).await.is_none() {
                tracing::warn!(id = %self.id, "a step was done and could not be recorded; it may be done again");
            }
        }))
    }

    fn stopped(&self, _: &str) -> Option<CallError> {
        None
    }

    fn send_away(&self, _: Duration) {}
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::record::sample;
    use super::*;

    /// Two looks at once end in any order.
    #[test]
    fn what_arrives_late_replaces_nothing_newer() {
        let mut record = sample();
        record.ask("sure", &ServerRequest::Roots);
        let desk = Desk {
            core: Weak::new(),
            owner: "ada".into(),
            id: "t".into(),
            attempt: 1,
            client: None,
            until: timer_now(),
            resumable: true,
            known: Mutex::new((record.clone(), Version(1))),
            said: Mutex::default(),
            nudged: Notify::new(),
            doubtful: AtomicBool::new(false),
            spoke: Notify::new(),
            changed: Notify::new(),
        };
        let before = record.clone();
        record.reply("sure", RawJson::from(json!({ "roots": [] })));
        desk.know((record.clone(), Version(3)));
        desk.know((before, Version(2)));
        assert!(desk.reply_to("sure").is_some());
        desk.know((record, Version(4)));
        assert_eq!(lock(&desk.known).1, Version(4));
    }
}
