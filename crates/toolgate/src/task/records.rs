//! Task records and leases in the store: creating, finding, changing and removing them.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use toolgate_wire::model::{Task, TaskStatus};
use toolgate_wire::{Meta, ProgressToken, RawJson, codec};

use super::active::ActiveTask;
use super::errors::{already_exists, create_failed, too_many_tasks};
use super::record::TaskRecord;
use super::retention::FinishedTask;
use super::waiters::ChangedBy;
use super::{INDEX_GRACE, LEASE_SPACE, LEASE_TTL, RUNNING_SPACE, TaskLimits, TaskRequest, TasksInner};
use crate::request::{CallError, Caller, task_owner};
use crate::seal::random_token;
use crate::store::{EntryVersion, Expect, Key, StoreError};
use crate::util::clock::{format_iso8601, timer_now};
use crate::util::lock;

/// The shortest and the longest TTL that a client can choose.
const TTL_RANGE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(24 * 60 * 60));
/// How far the clocks of two processes may differ.
const MAX_CLOCK_SKEW_MS: u64 = 60_000;
/// How often a change of a record is tried again because another process changed the record meanwhile.
const MAX_UPDATE_ATTEMPTS: usize = 64;

/// A change of a record. Returns whether it changed anything.
pub(super) type RecordEdit<'a> = &'a mut (dyn FnMut(&mut TaskRecord) -> bool + Send);

/// The record after a [`RecordEdit`].
pub(super) struct RecordUpdate {
    pub(super) record: TaskRecord,
    pub(super) version: EntryVersion,
    /// `false` if the edit changed nothing.
    pub(super) is_changed: bool,
}

impl TasksInner {
    pub(super) async fn create(self: Arc<TasksInner>, request: TaskRequest) -> Result<Task, CallError> {
        let owner = request.caller.owner.clone();
        let owner = owner.unwrap_or_else(|| task_owner(&request.caller.principal, None));
        let slot = self.reserve(&owner)?;
        let ttl = match request.ttl {
            Some(ttl) => Duration::from_millis(ttl).clamp(TTL_RANGE.0, TTL_RANGE.1),
            None => request.default_ttl.unwrap_or(self.limits.ttl).min(TaskLimits::MAX_TTL),
        };
        let id = random_token();
        let record = new_record(&id, &request, self.clock.unix_millis(), ttl, self.limits.poll_interval);
        let lease = self.acquire_lease(&owner, &id).await?;
        let version = match self.insert_record(&owner, &record, ttl).await {
            Ok(version) => version,
            Err(error) => {
                // Part of it may be stored. If that cannot be undone now, the next sweep does it.
                if self.store.backend.delete(&self.record_key(&owner, &id), Expect::Anything).await.is_ok() {
                    self.remove_running(&owner, &id, Some(lease)).await;
                }
                return Err(create_failed(&error));
            }
        };
        let task = record.task.clone();
        let is_resumable = self.executor.is_resumable(&request.tool);
        let active = ActiveTask::new(&self, owner, record, version, is_resumable, request.session);
        let caller = Caller { meta: task_meta(&id, request.caller.meta.raw.clone()), ..request.caller };
        self.spawn_task(slot, active, caller, lease);
        Ok(task)
    }

    /// Takes the lease of a new task, if its owner may have another task.
    ///
    /// This is the first write: a process that finds a task in `run` must not find it without a lease.
    async fn acquire_lease(&self, owner: &str, id: &str) -> Result<EntryVersion, CallError> {
        let key = self.store.key(LEASE_SPACE, id);
        let lease = self.store.backend.put(&key, self.lease_holder(), Some(LEASE_TTL), Expect::Absent);
        let (space, prefix) = (self.store.space(RUNNING_SPACE), format!("{owner}."));
        let others = self.store.backend.list(&space, Some(&prefix), self.limits.max_per_owner);
        let (lease, others) = tokio::join!(lease, others);
        let others = others.map_err(|error| create_failed(&error))?;
        if others.iter().filter(|(name, _)| is_owned_by(name, owner)).count() >= self.limits.max_per_owner {
            self.remove_running(owner, id, lease.ok().flatten()).await;
            return Err(too_many_tasks());
        }
        lease.and_then(|lease| lease.ok_or_else(already_exists)).map_err(|error| create_failed(&error))
    }

    /// Stores a new task, in `run` before `task/<owner>`, so that no record exists without a process responsible for
    /// it.
    async fn insert_record(
        &self,
        owner: &str,
        record: &TaskRecord,
        ttl: Duration,
    ) -> Result<EntryVersion, StoreError> {
        let id = &record.task.id;
        let backend = &self.store.backend;
        let index_key = self.store.key(RUNNING_SPACE, &running_name(owner, id));
        let index_ttl = ttl.saturating_add(INDEX_GRACE);
        let index = backend.put(&index_key, Bytes::new(), Some(index_ttl), Expect::Absent).await?;
        index.ok_or_else(already_exists)?;
        let record_key = self.record_key(owner, id);
        let version = backend.put(&record_key, record.encode(), Some(ttl), Expect::Absent).await?;
        version.ok_or_else(already_exists)
    }

    /// Returns a record of this owner and its version, if there is one.
    pub(super) async fn find(
        &self,
        owner: &str,
        id: &str,
    ) -> Result<Option<(TaskRecord, EntryVersion)>, StoreError> {
        if !is_task_id(id) {
            return Ok(None);
        }
        let Some(entry) = self.store.backend.get(&self.record_key(owner, id)).await? else { return Ok(None) };
        let record = TaskRecord::decode(entry.value);
        if record.is_none() {
            tracing::error!(id, "the stored record of a task is invalid");
        }
        Ok(record.map(|record| (record, entry.version)))
    }

    /// Changes a record by compare-and-set, with retries while other processes change it too.
    ///
    /// `known` is the record as the process that runs the task last saw it, `None` for all other changes. Returns
    /// `None` if the record does not exist or its TTL is over.
    pub(super) async fn update_record(
        &self,
        owner: &str,
        id: &str,
        mut known: Option<(TaskRecord, EntryVersion)>,
        edit: RecordEdit<'_>,
    ) -> Result<Option<RecordUpdate>, StoreError> {
        let changed_by = if known.is_some() { ChangedBy::Runner } else { ChangedBy::Other };
        for _ in 0..MAX_UPDATE_ATTEMPTS {
            let found = match known.take() {
                Some(found) => Some(found),
                None => self.find(owner, id).await?,
            };
            let Some((mut record, version)) = found else { return Ok(None) };
            if !edit(&mut record) {
                return Ok(Some(RecordUpdate { record, version, is_changed: false }));
            }
            record.touch(self.clock.unix_millis());
            let Some(ttl) = self.remaining_ttl(&record) else { return Ok(None) };
            let key = self.record_key(owner, id);
            let put = self.store.backend.put(&key, record.encode(), Some(ttl), Expect::Is(version)).await?;
            if let Some(version) = put {
                self.publish_change(owner, id, changed_by);
                return Ok(Some(RecordUpdate { record, version, is_changed: true }));
            }
        }
        Err(StoreError::Unavailable("it changes too often".into()))
    }

    /// Returns the remaining TTL of a record, `None` if it is over.
    ///
    /// The expiry was computed with the clock of the process that started the task. A clock that is ahead of it by less
    /// than [`MAX_CLOCK_SKEW_MS`] does not end a task before the store does.
    pub(super) fn remaining_ttl(&self, record: &TaskRecord) -> Option<Duration> {
        let now = self.clock.unix_millis();
        let expires = if now < record.expires {
            record.expires
        } else {
            record.expires.saturating_add(MAX_CLOCK_SKEW_MS)
        };
        let remaining = expires.checked_sub(now).filter(|millis| *millis > 0).map(Duration::from_millis);
        remaining.map(|remaining| remaining.min(TaskLimits::MAX_TTL))
    }

    /// Removes a task that has ended from `run`, and its lease if this process holds it (`lease`).
    pub(super) async fn remove_running(&self, owner: &str, id: &str, lease: Option<EntryVersion>) {
        let index_key = self.store.key(RUNNING_SPACE, &running_name(owner, id));
        let lease_key = self.store.key(LEASE_SPACE, id);
        let index = self.store.backend.delete(&index_key, Expect::Anything);
        let lease = async {
            match lease {
                Some(lease) => self.store.backend.delete(&lease_key, Expect::Is(lease)).await,
                None => Ok(false),
            }
        };
        let (index, lease) = tokio::join!(index, lease);
        if let Err(error) = index.and(lease) {
            tracing::debug!(%error, id, "cannot remove the entries of an ended task; the next sweep will");
        }
    }

    /// Counts a task that has ended, and deletes the records that exceed the retention limits.
    pub(super) async fn retain_finished(&self, owner: &str, record: &TaskRecord) {
        let finished = FinishedTask {
            id: record.task.id.as_str().into(),
            bytes: record.encode().len(),
            expires_at: timer_now() + self.remaining_ttl(record).unwrap_or_default(),
        };
        let evicted = lock(&self.retention).add(owner, finished, &self.limits);
        for (owner, id) in evicted {
            let deleted = self.store.backend.delete(&self.record_key(&owner, &id), Expect::Anything).await;
            if let Err(error) = deleted {
                tracing::debug!(%error, %id, "cannot delete an ended task; it expires later");
            }
        }
    }

    pub(super) fn record_key(&self, owner: &str, id: &str) -> Key {
        self.store.key(&record_space(owner), id)
    }

    /// Returns the value of a lease: the process, and the server in it.
    pub(super) fn lease_holder(&self) -> Bytes {
        format!("{}.{}", process_id(), self.node).into()
    }
}

fn new_record(id: &str, request: &TaskRequest, now: u64, ttl: Duration, poll: Duration) -> TaskRecord {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let TaskRequest { tool, arguments, caller, timeout, replay_state, .. } = request;
    let mut attributes = serde_json::Map::new();
    for (name, value) in caller.principal.attributes() {
        attributes.insert(name.clone(), value.clone());
    }
    TaskRecord {
        task: Task {
            id: id.to_owned(),
            status: TaskStatus::Working,
            status_message: None,
            created_at: format_iso8601(now),
            last_updated_at: format_iso8601(now),
            ttl_ms: Some(millis(ttl)),
            poll_interval_ms: Some(millis(poll).max(1)),
            input_requests: BTreeMap::new(),
            outcome: None,
        },
        tool: tool.clone(),
        arguments: arguments.clone(),
        client: codec::encode_client(&caller.client),
        principal: caller.principal.id().map(str::to_owned),
        attributes: RawJson::from(serde_json::Value::Object(attributes)),
        meta: caller.meta.raw.clone(),
        replies: replay_state.responses.clone(),
        recorded_values: replay_state.recorded_values.clone(),
        attempt: 1,
        expires: now.saturating_add(millis(ttl)),
        deadline: timeout.map(|timeout| now.saturating_add(timeout)),
    }
}

/// Returns the request metadata of a task.
///
/// It always has a progress token, because progress is written to the task even if the client requested none.
pub(super) fn task_meta(id: &str, raw: Option<RawJson>) -> Meta {
    Meta { progress_token: Some(ProgressToken::from(id)), log_level: None, raw }
}

/// Returns the random name of this process, which all servers in it share.
pub(super) fn process_id() -> &'static str {
    static PROCESS: OnceLock<String> = OnceLock::new();
    PROCESS.get_or_init(random_token)
}

pub(super) fn record_space(owner: &str) -> String {
    format!("task/{owner}")
}

pub(super) fn running_name(owner: &str, id: &str) -> String {
    format!("{owner}.{id}")
}

fn is_owned_by(name: &str, owner: &str) -> bool {
    name.strip_prefix(owner).is_some_and(|rest| rest.starts_with('.'))
}

/// Returns whether this could be the id of a task. Other ids are not looked up.
fn is_task_id(id: &str) -> bool {
    id.len() == 27 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}
