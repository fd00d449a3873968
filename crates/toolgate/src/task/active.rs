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
use toolgate_wire::model::{ClientResult, LogLevel, Notification, ServerRequest};
use toolgate_wire::{Client, RawJson, codec};

use super::record::TaskRecord;
use super::{RecordEdit, RecordUpdate, TasksInner, lock};
use crate::handler::{ClientChannel, ServerRequestError, ServerRequestErrorKind};
use crate::request::{BoxFuture, CallError};
use crate::store::{EntryVersion, Expect, StoreError};
use crate::util::clock::timer_now;

/// The longest message of a task, in characters.
const MAX_MESSAGE_CHARS: usize = 500;
/// How long to wait before a store that is away is asked again.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// What is over sooner than this is not put back: it was not lost, its time has come.
const MIN_RESTORE_TTL: Duration = Duration::from_secs(5);
/// How often it is asked before a handler goes on without.
const MAX_STEP_WRITE_ATTEMPTS: usize = 20;

/// See the module.
pub(super) struct ActiveTask {
    tasks: Weak<TasksInner>,
    pub(super) owner: Arc<str>,
    pub(super) id: Box<str>,
    /// Which run of the task this is.
    attempt: u64,
    client: Option<Client>,
    /// When it is forgotten, on the clock that goes evenly.
    expires_at: Instant,
    /// Steps are kept as soon as they are done.
    pub(super) is_resumable: bool,
    latest: Mutex<(TaskRecord, EntryVersion)>,
    output: Mutex<HandlerOutput>,
    /// Somebody may have changed the record.
    wakeup: Notify,
    /// It was to be looked at, and could not be: it is still to be done.
    is_stale: AtomicBool,
    /// The handler has said something.
    pub(super) output_changed: Notify,
    /// What is known of the record has changed.
    record_changed: Notify,
}

/// What the handler has said. What of it is written down yet, is not known here.
#[derive(Default)]
struct HandlerOutput {
    message: Option<String>,
    memory: BTreeMap<String, RawJson>,
}

/// What became of a change that the one who runs a task wants.
pub(super) enum UpdateStatus {
    /// It is written down.
    Written,
    /// The task is over, or somebody else runs it.
    Superseded,
}

impl ActiveTask {
    pub(super) fn new(
        core: &Arc<TasksInner>,
        owner: Arc<str>,
        record: TaskRecord,
        version: EntryVersion,
        resumable: bool,
    ) -> Arc<ActiveTask> {
        let until = timer_now() + core.remaining_ttl(&record).unwrap_or_default();
        Arc::new(ActiveTask {
            tasks: Arc::downgrade(core),
            expires_at: until,
            owner,
            id: record.task.id.as_str().into(),
            attempt: record.attempt,
            client: record.client().ok(),
            is_resumable: resumable,
            output: Mutex::new(HandlerOutput { memory: record.memory.clone(), ..HandlerOutput::default() }),
            latest: Mutex::new((record, version)),
            wakeup: Notify::new(),
            is_stale: AtomicBool::new(false),
            output_changed: Notify::new(),
            record_changed: Notify::new(),
        })
    }

    /// Somebody may have changed the record.
    pub(super) fn wake(&self) {
        self.wakeup.notify_one();
    }

    pub(super) async fn woken(&self) {
        self.wakeup.notified().await;
    }

    /// The record as it was last seen.
    pub(super) fn record(&self) -> TaskRecord {
        lock(&self.latest).0.clone()
    }

    /// Looks at the record. False if the task is over, or somebody else runs it.
    pub(super) async fn reload(&self) -> Result<bool, StoreError> {
        self.is_stale.store(true, Ordering::Relaxed);
        let Some(core) = self.tasks.upgrade() else { return Ok(false) };
        let goes_on = match core.find(&self.owner, &self.id).await? {
            Some(found) => {
                let goes_on = self.is_current(&found.0);
                self.set_latest(found);
                goes_on
            }
            None => self.restore_record(&core).await?,
        };
        self.is_stale.store(false, Ordering::Relaxed);
        Ok(goes_on)
    }

    /// Whether the last look at the record did not work.
    pub(super) fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Relaxed)
    }

    /// The record is gone before its time, as where a store lost what it had said it kept. What is known of it is kept
    /// once more. False if its time is over, or something else is in its place.
    async fn restore_record(&self, core: &TasksInner) -> Result<bool, StoreError> {
        let mut record = self.record();
        let left = self.expires_at.saturating_duration_since(timer_now());
        if left < MIN_RESTORE_TTL || core.remaining_ttl(&record).is_none() || !self.is_current(&record) {
            return Ok(false);
        }
        self.merge_output(&mut record);
        let key = core.record_key(&self.owner, &self.id);
        if let Some(version) =
            core.store.backend.put(&key, record.encode(), Some(left), Expect::Absent).await?
        {
            tracing::warn!(id = %self.id, "the record of a task was lost, and is kept again");
            *lock(&self.latest) = (record, version);
            return Ok(true);
        }
        // Two of us may have missed it at once.
        let Some(found) = core.find(&self.owner, &self.id).await? else { return Ok(false) };
        let goes_on = self.is_current(&found.0);
        self.set_latest(found);
        Ok(goes_on)
    }

    fn is_current(&self, record: &TaskRecord) -> bool {
        !record.is_final() && record.attempt == self.attempt
    }

    /// What was fetched first may arrive last: the newest stays.
    fn set_latest(&self, found: (TaskRecord, EntryVersion)) {
        let mut known = lock(&self.latest);
        if found.1 >= known.1 {
            *known = found;
        }
        drop(known);
        self.record_changed.notify_waiters();
    }

    /// Changes the record, if this is still the one who runs the task. What the handler has said goes with it.
    pub(super) async fn update(&self, change: RecordEdit<'_>) -> Result<UpdateStatus, StoreError> {
        let Some(core) = self.tasks.upgrade() else { return Ok(UpdateStatus::Superseded) };
        // A second time for a record that was lost and is there again.
        for _ in 0..2 {
            let known = lock(&self.latest).clone();
            let mut goes_on = true;
            let mut change_own = |record: &mut TaskRecord| {
                goes_on = self.is_current(record);
                if !goes_on {
                    return false;
                }
                let written = self.merge_output(record);
                change(record) || written
            };
            let amended = core.update_record(&self.owner, &self.id, Some(known), &mut change_own).await?;
            if let Some(RecordUpdate { record, version, .. }) = amended {
                self.set_latest((record, version));
                return Ok(if goes_on { UpdateStatus::Written } else { UpdateStatus::Superseded });
            }
            if !self.restore_record(&core).await? {
                break;
            }
        }
        Ok(UpdateStatus::Superseded)
    }

    /// Puts what the handler has said into a record; says whether that changed it.
    fn merge_output(&self, record: &mut TaskRecord) -> bool {
        let said = lock(&self.output);
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
    async fn update_with_retry(&self, most: usize, change: RecordEdit<'_>) -> Option<UpdateStatus> {
        for _ in 0..most {
            match self.update(change).await {
                Ok(turn) => return Some(turn),
                Err(error) => {
                    tracing::debug!(%error, id = %self.id, "a task cannot be written down; trying again");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
        None
    }

    fn set_message(&self, message: &str) {
        let message = message.chars().take(MAX_MESSAGE_CHARS).collect();
        lock(&self.output).message = Some(message);
        self.output_changed.notify_one();
    }

    async fn ask_and_wait(&self, key: &str, ask: ServerRequest) -> Result<ClientResult, ServerRequestError> {
        let gone = || ServerRequestError(ServerRequestErrorKind::Disconnected);
        if let Some(reply) = self.find_reply(key) {
            return decode_reply(&ask, &reply);
        }
        if let Some((what, _)) =
            self.client.as_ref().and_then(|client| codec::missing_capabilities(client, &ask))
        {
            return Err(ServerRequestError(ServerRequestErrorKind::Unsupported(what)));
        }
        match self.update_with_retry(usize::MAX, &mut |record| record.add_request(key, &ask)).await {
            Some(UpdateStatus::Written) => {}
            _ => return Err(gone()),
        }
        loop {
            // Before the look, so that nothing in between is missed.
            let changed = self.record_changed.notified();
            if let Some(reply) = self.find_reply(key) {
                return decode_reply(&ask, &reply);
            }
            if !self.is_current(&lock(&self.latest).0) {
                return Err(gone());
            }
            changed.await;
        }
    }

    fn find_reply(&self, key: &str) -> Option<RawJson> {
        lock(&self.latest).0.replies.get(key).cloned()
    }
}

fn decode_reply(ask: &ServerRequest, reply: &RawJson) -> Result<ClientResult, ServerRequestError> {
    let refused = |why: String| ServerRequestError(ServerRequestErrorKind::Rejected(why));
    match reply.view().as_string() {
        Some(why) => Err(refused(why.into_owned())),
        None => codec::decode_client_result(ask, reply).map_err(|fault| refused(fault.to_string())),
    }
}

impl ClientChannel for ActiveTask {
    fn is_log_enabled(&self, level: LogLevel) -> bool {
        level >= LogLevel::Info
    }

    fn notify(&self, notice: &Notification) -> bool {
        match notice {
            Notification::Progress { message: Some(message), .. } => self.set_message(message),
            Notification::Progress { progress, total: Some(total), .. } => {
                self.set_message(&format!("{progress} of {total}"))
            }
            Notification::Progress { progress, .. } => self.set_message(&progress.to_string()),
            Notification::LogMessage { data, .. } => {
                let text = data.view().as_string();
                self.set_message(text.as_deref().unwrap_or(data.as_str()));
            }
            _ => return false,
        }
        true
    }

    fn request<'a>(
        &'a self,
        key: &'a str,
        ask: ServerRequest,
    ) -> BoxFuture<'a, Result<ClientResult, ServerRequestError>> {
        Box::pin(self.ask_and_wait(key, ask))
    }

    fn recorded_value(&self, name: &str) -> Option<RawJson> {
        lock(&self.output).memory.get(name).cloned()
    }

    fn record_value(&self, name: &str, value: RawJson) {
        lock(&self.output).memory.insert(name.to_owned(), value);
        if self.is_resumable {
            self.output_changed.notify_one();
        }
    }

    fn wait_persisted(&self) -> Option<BoxFuture<'_, ()>> {
        if !self.is_resumable {
            return None;
        }
        Some(Box::pin(async {
            if self.update_with_retry(MAX_STEP_WRITE_ATTEMPTS, &mut |_| false).await.is_none() {
                tracing::warn!(id = %self.id, "a step was done and could not be recorded; it may be done again");
            }
        }))
    }

    fn suspension_error(&self, _: &str) -> Option<CallError> {
        None
    }

    fn release_stream(&self, _: Duration) {}
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::record::sample_record;
    use super::*;

    /// Two looks at once end in any order.
    #[test]
    fn what_arrives_late_replaces_nothing_newer() {
        let mut record = sample_record();
        record.add_request("sure", &ServerRequest::Roots);
        let desk = ActiveTask {
            tasks: Weak::new(),
            owner: "ada".into(),
            id: "t".into(),
            attempt: 1,
            client: None,
            expires_at: timer_now(),
            is_resumable: true,
            latest: Mutex::new((record.clone(), EntryVersion(1))),
            output: Mutex::default(),
            wakeup: Notify::new(),
            is_stale: AtomicBool::new(false),
            output_changed: Notify::new(),
            record_changed: Notify::new(),
        };
        let before = record.clone();
        record.set_reply("sure", RawJson::from(json!({ "roots": [] })));
        desk.set_latest((record.clone(), EntryVersion(3)));
        desk.set_latest((before, EntryVersion(2)));
        assert!(desk.find_reply("sure").is_some());
        desk.set_latest((record, EntryVersion(4)));
        assert_eq!(lock(&desk.latest).1, EntryVersion(4));
    }
}
