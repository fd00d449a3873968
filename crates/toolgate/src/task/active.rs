//! A task that runs in this process: its record as last seen, and the channel of its handler to the client.
//!
//! Messages of the handler are stored, not sent. Progress and log messages become the status message of the task. A
//! server request becomes an input request in the record; the client responds by changing the record, perhaps through
//! another process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use toolgate_wire::model::{ClientResult, LogLevel, Notification, ServerRequest};
use toolgate_wire::{Client, RawJson, codec};

use super::record::TaskRecord;
use super::records::{RecordEdit, RecordUpdate};
use super::{STORE_RETRY_DELAY, TasksInner};
use crate::handler::{ClientChannel, ServerRequestError, ServerRequestErrorKind, SessionAccess};
use crate::request::{BoxFuture, CallError};
use crate::store::{EntryVersion, Expect, StoreError};
use crate::util::clock::timer_now;
use crate::util::lock;

/// Length at which the status message of a task is cut, in characters.
const MAX_MESSAGE_CHARS: usize = 500;
/// A missing record with less time left than this has expired; it was not lost, and is not restored.
const MIN_RESTORE_TTL: Duration = Duration::from_secs(5);
/// How often a recorded step is written before the handler continues without it being stored.
const MAX_STEP_WRITE_ATTEMPTS: usize = 20;

/// A task that runs in this process. See the module documentation.
pub(super) struct ActiveTask {
    tasks: Weak<TasksInner>,
    pub(super) owner: Arc<str>,
    pub(super) id: Box<str>,
    /// The attempt that runs here, as numbered in the record.
    attempt: u64,
    client: Option<Client>,
    /// When the record expires, on the monotonic clock.
    expires_at: Instant,
    /// Whether recorded steps are stored at once, so that another process can resume the task.
    pub(super) is_resumable: bool,
    /// The session of the call that created the task. `None` in a process that took the task over.
    session: Option<Arc<dyn SessionAccess>>,
    /// The newest known record.
    latest: Mutex<(TaskRecord, EntryVersion)>,
    output: Mutex<HandlerOutput>,
    /// Notified when another party may have changed the record.
    wakeup: Notify,
    /// Whether the last reload failed, so that another one is due.
    is_stale: AtomicBool,
    /// Notified when `output` changes.
    pub(super) output_changed: Notify,
    /// Notified when `latest` changes.
    record_changed: Notify,
}

/// The output of the handler. It may include output that is not stored yet.
#[derive(Default)]
struct HandlerOutput {
    message: Option<String>,
    recorded_values: BTreeMap<String, RawJson>,
}

/// The result of a change by the process that runs a task.
pub(super) enum UpdateStatus {
    /// The change is stored.
    Written,
    /// The task has ended, or another process runs it.
    Superseded,
}

impl ActiveTask {
    pub(super) fn new(
        tasks: &Arc<TasksInner>,
        owner: Arc<str>,
        record: TaskRecord,
        version: EntryVersion,
        is_resumable: bool,
        session: Option<Arc<dyn SessionAccess>>,
    ) -> Arc<ActiveTask> {
        Arc::new(ActiveTask {
            tasks: Arc::downgrade(tasks),
            expires_at: timer_now() + tasks.remaining_ttl(&record).unwrap_or_default(),
            owner,
            id: record.task.id.as_str().into(),
            attempt: record.attempt,
            client: record.client().ok(),
            is_resumable,
            session,
            output: Mutex::new(HandlerOutput {
                recorded_values: record.recorded_values.clone(),
                ..HandlerOutput::default()
            }),
            latest: Mutex::new((record, version)),
            wakeup: Notify::new(),
            is_stale: AtomicBool::new(false),
            output_changed: Notify::new(),
            record_changed: Notify::new(),
        })
    }

    /// Reports that the record may have changed.
    pub(super) fn wake(&self) {
        self.wakeup.notify_one();
    }

    pub(super) async fn woken(&self) {
        self.wakeup.notified().await;
    }

    /// Returns the record as last seen.
    pub(super) fn record(&self) -> TaskRecord {
        lock(&self.latest).0.clone()
    }

    /// Reads the record again. Returns `false` if the task has ended or another process runs it.
    pub(super) async fn reload(&self) -> Result<bool, StoreError> {
        self.is_stale.store(true, Ordering::Relaxed);
        let Some(tasks) = self.tasks.upgrade() else { return Ok(false) };
        let is_current = match tasks.find(&self.owner, &self.id).await? {
            Some(found) => {
                let is_current = self.is_current(&found.0);
                self.set_latest(found);
                is_current
            }
            None => self.restore_record(&tasks).await?,
        };
        self.is_stale.store(false, Ordering::Relaxed);
        Ok(is_current)
    }

    /// Returns whether the last reload failed.
    pub(super) fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Relaxed)
    }

    /// Restores a record that disappeared before its TTL ended, because the store lost data.
    ///
    /// Returns `false` if its TTL is over, or another record is in its place.
    async fn restore_record(&self, tasks: &TasksInner) -> Result<bool, StoreError> {
        let mut record = self.record();
        let ttl = self.expires_at.saturating_duration_since(timer_now());
        if ttl < MIN_RESTORE_TTL || tasks.remaining_ttl(&record).is_none() || !self.is_current(&record) {
            return Ok(false);
        }
        self.merge_output(&mut record);
        let key = tasks.record_key(&self.owner, &self.id);
        if let Some(version) =
            tasks.store.backend.put(&key, record.encode(), Some(ttl), Expect::Absent).await?
        {
            tracing::warn!(id = %self.id, "the store lost the record of a running task; it is restored");
            *lock(&self.latest) = (record, version);
            return Ok(true);
        }
        // Two callers in this process may have missed it at the same time.
        let Some(found) = tasks.find(&self.owner, &self.id).await? else { return Ok(false) };
        let is_current = self.is_current(&found.0);
        self.set_latest(found);
        Ok(is_current)
    }

    /// Returns whether the record still is that of the attempt that runs here.
    fn is_current(&self, record: &TaskRecord) -> bool {
        !record.is_final() && record.attempt == self.attempt
    }

    /// Sets the latest record. Concurrent reads may arrive in any order, so an older version is ignored.
    fn set_latest(&self, found: (TaskRecord, EntryVersion)) {
        let mut latest = lock(&self.latest);
        if found.1 >= latest.1 {
            *latest = found;
        }
        drop(latest);
        self.record_changed.notify_waiters();
    }

    /// Changes the record together with the output of the handler, if this process still runs the task.
    pub(super) async fn update(&self, edit: RecordEdit<'_>) -> Result<UpdateStatus, StoreError> {
        let Some(tasks) = self.tasks.upgrade() else { return Ok(UpdateStatus::Superseded) };
        // The second attempt is for a record that was lost and restored.
        for _ in 0..2 {
            let known = lock(&self.latest).clone();
            let mut is_current = true;
            let mut edit_current = |record: &mut TaskRecord| {
                is_current = self.is_current(record);
                if !is_current {
                    return false;
                }
                let has_new_output = self.merge_output(record);
                edit(record) || has_new_output
            };
            let updated = tasks.update_record(&self.owner, &self.id, Some(known), &mut edit_current).await?;
            if let Some(RecordUpdate { record, version, .. }) = updated {
                self.set_latest((record, version));
                return Ok(if is_current { UpdateStatus::Written } else { UpdateStatus::Superseded });
            }
            if !self.restore_record(&tasks).await? {
                break;
            }
        }
        Ok(UpdateStatus::Superseded)
    }

    /// Copies the output of the handler into a record. Returns whether that changed it.
    fn merge_output(&self, record: &mut TaskRecord) -> bool {
        let output = lock(&self.output);
        let mut changed = false;
        if output.message.is_some() && output.message != record.task.status_message {
            record.task.status_message.clone_from(&output.message);
            changed = true;
        }
        if output.recorded_values != record.recorded_values {
            record.recorded_values.clone_from(&output.recorded_values);
            changed = true;
        }
        changed
    }

    /// Like [`ActiveTask::update`], but tries again if the store fails. Returns `None` after `max_attempts`.
    async fn update_with_retry(&self, max_attempts: usize, edit: RecordEdit<'_>) -> Option<UpdateStatus> {
        for _ in 0..max_attempts {
            match self.update(edit).await {
                Ok(status) => return Some(status),
                Err(error) => {
                    tracing::debug!(%error, id = %self.id, "cannot store a change of a task; trying again");
                    tokio::time::sleep(STORE_RETRY_DELAY).await;
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

    /// Adds an input request to the record and waits for its reply.
    async fn request_and_wait(
        &self,
        key: &str,
        request: ServerRequest,
    ) -> Result<ClientResult, ServerRequestError> {
        let disconnected = || ServerRequestError(ServerRequestErrorKind::Disconnected);
        if let Some(reply) = self.find_reply(key) {
            return decode_reply(&request, &reply);
        }
        if let Some((missing, _)) =
            self.client.as_ref().and_then(|client| codec::missing_capabilities(client, &request))
        {
            return Err(ServerRequestError(ServerRequestErrorKind::Unsupported(missing)));
        }
        match self.update_with_retry(usize::MAX, &mut |record| record.add_request(key, &request)).await {
            Some(UpdateStatus::Written) => {}
            _ => return Err(disconnected()),
        }
        loop {
            // Created before the record is read, so that no change in between is missed.
            let changed = self.record_changed.notified();
            if let Some(reply) = self.find_reply(key) {
                return decode_reply(&request, &reply);
            }
            if !self.is_current(&lock(&self.latest).0) {
                return Err(disconnected());
            }
            changed.await;
        }
    }

    fn find_reply(&self, key: &str) -> Option<RawJson> {
        lock(&self.latest).0.replies.get(key).cloned()
    }
}

fn decode_reply(request: &ServerRequest, reply: &RawJson) -> Result<ClientResult, ServerRequestError> {
    let rejected = |reason: String| ServerRequestError(ServerRequestErrorKind::Rejected(reason));
    match reply.view().as_string() {
        Some(reason) => Err(rejected(reason.into_owned())),
        None => codec::decode_client_result(request, reply).map_err(|error| rejected(error.to_string())),
    }
}

impl ClientChannel for ActiveTask {
    fn is_log_enabled(&self, level: LogLevel) -> bool {
        level >= LogLevel::Info
    }

    fn notify(&self, notification: &Notification) -> bool {
        match notification {
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
        request: ServerRequest,
    ) -> BoxFuture<'a, Result<ClientResult, ServerRequestError>> {
        Box::pin(self.request_and_wait(key, request))
    }

    fn recorded_value(&self, name: &str) -> Option<RawJson> {
        lock(&self.output).recorded_values.get(name).cloned()
    }

    fn record_value(&self, name: &str, value: RawJson) {
        lock(&self.output).recorded_values.insert(name.to_owned(), value);
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
                tracing::warn!(id = %self.id, "cannot store a completed step; it may run again");
            }
        }))
    }

    fn session_id(&self) -> Option<&str> {
        self.session.as_ref().map(|session| session.id())
    }

    fn session(&self) -> Option<Arc<dyn SessionAccess>> {
        self.session.clone()
    }

    fn suspension_error(&self) -> Option<CallError> {
        None
    }

    fn release_stream(&self, _: Duration) {}
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::record::sample_record;
    use super::*;

    #[test]
    fn an_older_record_does_not_replace_a_newer_one() {
        let mut record = sample_record();
        record.add_request("sure", &ServerRequest::Roots);
        let active = ActiveTask {
            tasks: Weak::new(),
            owner: "ada".into(),
            id: "t".into(),
            attempt: 1,
            client: None,
            expires_at: timer_now(),
            is_resumable: true,
            session: None,
            latest: Mutex::new((record.clone(), EntryVersion(1))),
            output: Mutex::default(),
            wakeup: Notify::new(),
            is_stale: AtomicBool::new(false),
            output_changed: Notify::new(),
            record_changed: Notify::new(),
        };
        let before = record.clone();
        record.set_reply("sure", RawJson::from(json!({ "roots": [] })));
        active.set_latest((record.clone(), EntryVersion(3)));
        active.set_latest((before, EntryVersion(2)));
        assert!(active.find_reply("sure").is_some());
        active.set_latest((record, EntryVersion(4)));
        assert_eq!(lock(&active.latest).1, EntryVersion(4));
    }
}
