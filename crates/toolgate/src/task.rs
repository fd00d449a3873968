//! The long table: work that outlives the call that began it.
//!
//! A task is a record in the store. Whoever holds its lease runs it; everybody who may see it can look, answer and
//! cancel, in whatever process they are. A record is only ever changed by comparing and setting, so a process that
//! lost its lease without noticing can do no harm: it finds that it is not the one any more, and stops.
//!
//! Three spaces of the store belong to it. `task/<owner>` holds the records, each as long as its task is kept. `run`
//! names the tasks that have no end yet, and `lease` those that somebody runs; a task in the first and not in the
//! second has lost its process, and the next one that looks takes it over ([`sweep`]).
//!
//! Which revision a client speaks is not known here, and how a tool is run neither: that is the [`TaskExecutor`]'s business.

mod active;
mod record;
mod retention;
mod run;
mod sweep;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};
use toolgate_wire::model::{
    CacheHint, ClientResult, ElicitRequest, Outcome, Page, ServerRequest, Task, TaskOutcome, TaskStatus,
    ToolOutput,
};
use toolgate_wire::{ProgressToken, ProtocolError, ProtocolErrorKind, RawJson, codec};

use crate::handler::{ClientChannel, ReplayState, ServerRequestErrorKind};
use crate::request::{BoxFuture, CallError, Caller, ToolFailure};
use crate::seal::{Seal, random_token};
use crate::store::{EntryVersion, Expect, Key, ScopedStore, StoreError, Visibility};
use crate::subscriptions::{ChangeTopic, Subscriptions};
use crate::util::cancel::Cancel;
use crate::util::clock::{Clock, format_iso8601, timer_now};
use crate::util::spawn::Tracker;
use active::ActiveTask;
use record::TaskRecord;
use retention::{FinishedTask, Retention};

/// How long a lease holds that nobody renews.
const LEASE_TTL: Duration = Duration::from_secs(15);
/// How long index entries outlive their tasks, should nobody clear them away.
const INDEX_GRACE: Duration = Duration::from_secs(60);
/// The shortest and the longest time that a client can have a task kept.
const TTL_RANGE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(24 * 60 * 60));
/// How far the clocks of two processes may be apart, in milliseconds.
const MAX_CLOCK_SKEW_MS: u64 = 60_000;
/// How often something may change while it is being changed, before that is given up.
const MAX_UPDATE_ATTEMPTS: usize = 64;
/// How many tasks one page of a list shows, and after how many bytes of records it ends before that.
const MAX_PAGE_TASKS: usize = 50;
const MAX_PAGE_BYTES: usize = 4 << 20;
/// How often whoever waits looks for himself, in case that a message was lost.
const POLL_INTERVAL: Duration = Duration::from_secs(3);

/// The spaces of the store.
const RUNNING_SPACE: &str = "run";
const LEASE_SPACE: &str = "lease";
/// The channel on which changes are told.
const TASK_CHANNEL: &str = "tasks";
/// What is told there when a process leaves a task to others, and noted where it is under way.
const RELEASED: &str = "left";

/// How many, how long, how large.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskLimits {
    /// How long a task is kept from its beginning, unless the client says otherwise.
    pub(crate) ttl: Duration,
    /// How often a client should look.
    pub(crate) poll_interval: Duration,
    /// Tasks of one owner without an end.
    pub(crate) max_per_owner: usize,
    /// Tasks that run in this process.
    pub(crate) max_running: usize,
    /// The largest result that is kept, in bytes.
    pub(crate) max_result_bytes: usize,
    /// Tasks of one owner that have ended in this process, and how many bytes of them.
    pub(crate) max_finished: usize,
    pub(crate) max_finished_bytes: usize,
}

impl TaskLimits {
    /// The longest time that a task is kept, whoever says so.
    pub(crate) const MAX_TTL: Duration = Duration::from_secs(366 * 24 * 60 * 60);
}

impl Default for TaskLimits {
    fn default() -> TaskLimits {
        TaskLimits {
            ttl: Duration::from_secs(60 * 60),
            poll_interval: Duration::from_secs(1),
            max_per_owner: 100,
            max_running: 1000,
            max_result_bytes: 8 << 20,
            max_finished: 1000,
            max_finished_bytes: 64 << 20,
        }
    }
}

/// Who does the work of a task.
pub(crate) trait TaskExecutor: Send + Sync {
    /// Begins to run a tool. None if there is none of that name.
    fn start(&self, job: TaskRun) -> Option<BoxFuture<'static, Result<Outcome, CallError>>>;

    /// Whether a task of this tool may be run again.
    fn is_resumable(&self, tool: &str) -> bool;

    /// Whether an answer is one to this question.
    fn is_valid_response(&self, ask: &ServerRequest, answer: &ClientResult) -> bool;
}

/// What a crew needs to begin.
pub(crate) struct TaskRun {
    pub(crate) tool: String,
    pub(crate) arguments: RawJson,
    pub(crate) caller: Caller,
    pub(crate) channel: Arc<dyn ClientChannel>,
    pub(crate) cancel: Cancel,
    /// How long it may take, unless the tool says otherwise.
    pub(crate) timeout: Duration,
}

/// A call that is to become a task.
pub(crate) struct TaskRequest {
    pub(crate) tool: String,
    pub(crate) arguments: RawJson,
    pub(crate) caller: Caller,
    /// How long the client would like it kept, in milliseconds.
    pub(crate) ttl: Option<u64>,
    /// How long the tool says, if it does.
    pub(crate) default_ttl: Option<Duration>,
    /// After how many milliseconds it has failed.
    pub(crate) timeout: Option<u64>,
    /// What the call has found out already.
    pub(crate) replay_state: ReplayState,
}

/// What a server keeps of its tasks. Dropping it ends what runs here.
pub(crate) struct Tasks {
    inner: Arc<TasksInner>,
    _close_on_drop: DropGuard,
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").field("node", &self.inner.node).finish_non_exhaustive()
    }
}

struct TasksInner {
    store: ScopedStore,
    executor: Arc<dyn TaskExecutor>,
    subscriptions: Arc<Subscriptions>,
    clock: Clock,
    seal: Seal,
    limits: TaskLimits,
    /// Which server this is: a new name each time one is built.
    node: Box<str>,
    /// What runs here.
    running: Mutex<RunningTasks>,
    /// What has ended here.
    retention: Mutex<Retention>,
    /// Who waits for which task to change. Bounded by the calls under way.
    waiters: Mutex<HashMap<Box<str>, Arc<Notify>>>,
    is_started: AtomicBool,
    /// Something was missed of what other processes say.
    has_missed: AtomicBool,
    /// Somebody has left a task to others.
    released: Notify,
    tracker: Tracker,
    /// Falls when the house closes: what runs has `patience` left.
    drain: CancellationToken,
    shutdown_timeout: Duration,
    /// Falls when the house is gone.
    closed: CancellationToken,
}

/// Bounded by [`TaskLimits::running`].
#[derive(Default)]
struct RunningTasks {
    active: HashMap<Box<str>, Arc<ActiveTask>>,
    /// How many of each owner, those that are about to begin included.
    owners: HashMap<Arc<str>, usize>,
    total: usize,
}

/// What a server gives its tasks.
pub(crate) struct TaskDeps {
    pub(crate) store: ScopedStore,
    pub(crate) executor: Arc<dyn TaskExecutor>,
    pub(crate) subscriptions: Arc<Subscriptions>,
    pub(crate) clock: Clock,
    pub(crate) seal: Seal,
    pub(crate) limits: TaskLimits,
    pub(crate) drain: CancellationToken,
    pub(crate) shutdown_timeout: Duration,
}

impl Tasks {
    pub(crate) fn new(means: TaskDeps) -> Tasks {
        let TaskDeps {
            store: cellar,
            executor: crew,
            subscriptions: hub,
            clock,
            seal,
            limits,
            drain,
            shutdown_timeout: patience,
        } = means;
        let over = CancellationToken::new();
        let core = TasksInner {
            store: cellar,
            executor: crew,
            subscriptions: hub,
            clock,
            seal,
            limits,
            node: random_token().into(),
            running: Mutex::default(),
            retention: Mutex::default(),
            waiters: Mutex::default(),
            is_started: AtomicBool::new(false),
            has_missed: AtomicBool::new(false),
            released: Notify::new(),
            tracker: Tracker::new(),
            drain,
            shutdown_timeout: patience,
            closed: over.clone(),
        };
        Tasks { inner: Arc::new(core), _close_on_drop: over.drop_guard() }
    }

    /// How many run here, those that are about to begin included.
    pub(crate) fn running(&self) -> usize {
        self.inner.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner).total
    }

    /// Hears of changes elsewhere and looks after tasks that lost their process, from now on. Once is enough.
    pub(crate) fn start_background(&self) {
        self.inner.start_background();
    }

    /// Waits until nothing runs here any more. Whatever runs has the time that a closing house gives.
    pub(crate) async fn join(&self) {
        self.inner.tracker.close();
        self.inner.tracker.wait().await;
    }

    /// Whether anybody could ask for a result once this process has ended.
    pub(crate) fn is_durable(&self) -> bool {
        self.inner.store.backend.visibility() != Visibility::Process
    }

    /// Begins a task. It is kept before this ends, so whoever hears of it finds it.
    pub(crate) fn create(&self, wish: TaskRequest) -> BoxFuture<'static, Result<Task, CallError>> {
        self.start_background();
        let core = Arc::clone(&self.inner);
        Box::pin(core.create(wish))
    }

    /// A task as it stands.
    pub(crate) async fn get(&self, owner: &str, id: &str) -> Result<Task, ProtocolError> {
        self.start_background();
        let found = self.inner.find(owner, id).await.map_err(|error| store_unavailable(&error))?;
        Ok(found.ok_or_else(|| ProtocolError::task_not_found(id))?.0.task)
    }

    /// The same for whoever tells of a change: none if there is nothing to tell.
    pub(crate) async fn try_get(&self, owner: &str, id: &str) -> Option<Task> {
        self.inner.find(owner, id).await.ok().flatten().map(|(record, _)| record.task)
    }

    /// Hands a task what it asked for. What it did not ask, or what is no answer, is overlooked.
    pub(crate) async fn update(
        &self,
        owner: &str,
        id: &str,
        answers: BTreeMap<String, RawJson>,
    ) -> Result<(), ProtocolError> {
        self.start_background();
        let crew = &self.inner.executor;
        let fits = |record: &TaskRecord, key: &str, raw: &RawJson| {
            let ask = record.task.input_requests.get(key);
            ask.is_some_and(|ask| {
                codec::decode_client_result(ask, raw).is_ok_and(|answer| crew.is_valid_response(ask, &answer))
            })
        };
        let mut put = |record: &mut TaskRecord| {
            let mut changed = false;
            for (key, raw) in &answers {
                changed |= fits(record, key, raw) && record.set_reply(key, raw.clone());
            }
            changed
        };
        let updated = self.inner.update_record(owner, id, None, &mut put);
        updated
            .await
            .map_err(|error| store_unavailable(&error))?
            .map(|_| ())
            .ok_or_else(|| ProtocolError::task_not_found(id))
    }

    /// Cancels a task; says whether it was this that ended it.
    pub(crate) async fn cancel(&self, owner: &str, id: &str) -> Result<(Task, bool), ProtocolError> {
        self.start_background();
        let said = Some("cancelled by the client".to_owned());
        let mut end = |record: &mut TaskRecord| record.end(TaskStatus::Cancelled, said.clone(), None);
        let cancelled = self.inner.update_record(owner, id, None, &mut end).await;
        let amended = cancelled
            .map_err(|error| store_unavailable(&error))?
            .ok_or_else(|| ProtocolError::task_not_found(id))?;
        if amended.is_changed {
            // The lease is for him to give back who runs it.
            self.inner.remove_running(owner, id, None).await;
            self.inner.retain_finished(owner, &amended.record).await;
        }
        Ok((amended.record.task, amended.is_changed))
    }

    /// A page of somebody's own tasks.
    pub(crate) async fn list(&self, owner: &str, cursor: Option<&str>) -> Result<Page<Task>, ProtocolError> {
        self.start_background();
        let purpose = format!("tasks of {owner}");
        let mut after = match cursor {
            None => None,
            Some(cursor) => {
                let unknown = || ProtocolError::invalid_params("unknown cursor; start again without one");
                let opened = self
                    .inner
                    .seal
                    .open(purpose.as_bytes(), cursor)
                    .ok()
                    .and_then(|key| String::from_utf8(key).ok());
                Some(Box::from(opened.ok_or_else(unknown)?))
            }
        };
        let space = self.inner.store.space(&record_space(owner));
        let (mut items, mut n_seen, mut bytes) = (Vec::new(), 0, 0);
        let next = loop {
            if n_seen == MAX_PAGE_TASKS || bytes >= MAX_PAGE_BYTES {
                break after.map(|name: Box<str>| self.inner.seal.seal(purpose.as_bytes(), name.as_bytes()));
            }
            // One at a time: each of them may be as large as a result.
            let found = self.inner.store.backend.list(&space, after.as_deref(), 1);
            let found = found.await.map_err(|error| store_unavailable(&error))?;
            let Some((name, entry)) = found.into_iter().next() else { break None };
            (n_seen, bytes, after) = (n_seen + 1, bytes + entry.value.len(), Some(name));
            items.extend(TaskRecord::decode(entry.value).map(|record| Arc::new(summarize(record.task))));
        };
        Ok(Page { items, next_cursor: next, cache: CacheHint::default() })
    }

    /// Waits for the end of a task and gives what its call would have given. What it asks meanwhile is asked by this
    /// voice.
    ///
    /// Cancel safe: yes, it may be begun again.
    pub(crate) async fn result(
        &self,
        owner: &str,
        id: &str,
        voice: &dyn ClientChannel,
    ) -> Result<Outcome, CallError> {
        self.start_background();
        let core = &self.inner;
        // What this client will not or cannot answer; somebody else may.
        let mut hopeless = Vec::new();
        loop {
            let waiting = core.waiter(id);
            let stirred = waiting.notified();
            let found = core.find(owner, id).await.map_err(|error| store_unavailable(&error))?;
            let (record, _) = found.ok_or_else(|| ProtocolError::task_not_found(id))?;
            if record.is_final() {
                return payload(record.task);
            }
            let question = record.task.input_requests.into_iter().find(|(key, _)| !hopeless.contains(key));
            let Some((key, ask)) = question else {
                let _ = tokio::time::timeout(POLL_INTERVAL, stirred).await;
                continue;
            };
            let answer = tokio::select! {
                biased;
                answer = voice.request_for_task(id, &key, with_elicitation_id(ask)) => answer,
                () = core.wait_resolved(owner, id, &key) => continue,
            };
            let reply = match answer {
                Ok(answer) => codec::encode_client_result(&answer),
                Err(error) => match error.0 {
                    ServerRequestErrorKind::Rejected(why) => RawJson::string(&why),
                    _ => {
                        hopeless.push(key);
                        continue;
                    }
                },
            };
            let mut put = |record: &mut TaskRecord| record.set_reply(&key, reply.clone());
            let told = core.update_record(owner, id, None, &mut put).await;
            told.map_err(|error| store_unavailable(&error))?;
        }
    }
}

impl TasksInner {
    async fn create(self: Arc<TasksInner>, wish: TaskRequest) -> Result<Task, CallError> {
        let owner = wish.caller.owner.clone();
        let owner = owner.unwrap_or_else(|| crate::request::task_owner(&wish.caller.principal, None));
        let place = self.reserve(&owner)?;
        let life = match wish.ttl {
            Some(ttl) => Duration::from_millis(ttl).clamp(TTL_RANGE.0, TTL_RANGE.1),
            None => wish.default_ttl.unwrap_or(self.limits.ttl).min(TaskLimits::MAX_TTL),
        };
        let id = random_token();
        let record = new_record(&id, &wish, self.clock.unix_millis(), life, self.limits.poll_interval);
        let lease = self.acquire_lease(&owner, &id).await?;
        let version = match self.insert_record(&owner, &record, life).await {
            Ok(version) => version,
            Err(error) => {
                // Some of it may be kept. If that cannot be undone now, whoever looks next will see to it.
                if self.store.backend.delete(&self.record_key(&owner, &id), Expect::Anything).await.is_ok() {
                    self.remove_running(&owner, &id, Some(lease)).await;
                }
                return Err(create_failed(&error));
            }
        };
        let task = record.task.clone();
        let desk = ActiveTask::new(&self, owner, record, version, self.executor.is_resumable(&wish.tool));
        let caller = Caller { meta: task_meta(&id, wish.caller.meta.raw.clone()), ..wish.caller };
        self.spawn_task(place, desk, caller, lease);
        Ok(task)
    }

    /// Takes the lease of a new task, if its owner may have one more. It comes before everything else: who sees that a
    /// task is under way must not find it without one.
    async fn acquire_lease(&self, owner: &str, id: &str) -> Result<EntryVersion, CallError> {
        let key = self.store.key(LEASE_SPACE, id);
        let lease = self.store.backend.put(&key, self.lease_holder(), Some(LEASE_TTL), Expect::Absent);
        let (run, mine) = (self.store.space(RUNNING_SPACE), format!("{owner}."));
        let others = self.store.backend.list(&run, Some(&mine), self.limits.max_per_owner);
        let (lease, others) = tokio::join!(lease, others);
        let others = others.map_err(|error| create_failed(&error))?;
        if others.iter().filter(|(name, _)| is_owned_by(name, owner)).count() >= self.limits.max_per_owner {
            self.remove_running(owner, id, lease.ok().flatten()).await;
            return Err(too_many_tasks());
        }
        lease.and_then(|lease| lease.ok_or_else(already_exists)).map_err(|error| create_failed(&error))
    }

    /// Keeps a new task: that it is under way first, so that no record is without somebody who looks after it.
    async fn insert_record(
        &self,
        owner: &str,
        record: &TaskRecord,
        life: Duration,
    ) -> Result<EntryVersion, StoreError> {
        let id = &record.task.id;
        let run = self.store.key(RUNNING_SPACE, &running_name(owner, id));
        let index = self
            .store
            .backend
            .put(&run, Bytes::new(), Some(life.saturating_add(INDEX_GRACE)), Expect::Absent)
            .await?;
        index.ok_or_else(already_exists)?;
        let put = self
            .store
            .backend
            .put(&self.record_key(owner, id), record.encode(), Some(life), Expect::Absent)
            .await?;
        put.ok_or_else(already_exists)
    }

    /// A record as it stands, if there is one that this owner may see.
    async fn find(&self, owner: &str, id: &str) -> Result<Option<(TaskRecord, EntryVersion)>, StoreError> {
        if !is_task_id(id) {
            return Ok(None);
        }
        let Some(entry) = self.store.backend.get(&self.record_key(owner, id)).await? else { return Ok(None) };
        let record = TaskRecord::decode(entry.value);
        if record.is_none() {
            tracing::error!(id, "what is kept of a task cannot be read");
        }
        Ok(record.map(|record| (record, entry.version)))
    }

    /// Changes a record, however often somebody else does so meanwhile. `change` says whether it did. None if there is
    /// no such record, or no time left for it.
    async fn update_record(
        &self,
        owner: &str,
        id: &str,
        mut known: Option<(TaskRecord, EntryVersion)>,
        change: RecordEdit<'_>,
    ) -> Result<Option<RecordUpdate>, StoreError> {
        // Whoever runs it knows what he has done himself.
        let is_own = known.is_some();
        for _ in 0..MAX_UPDATE_ATTEMPTS {
            let found = match known.take() {
                Some(found) => Some(found),
                None => self.find(owner, id).await?,
            };
            let Some((mut record, version)) = found else { return Ok(None) };
            if !change(&mut record) {
                return Ok(Some(RecordUpdate { record, version, is_changed: false }));
            }
            record.touch(self.clock.unix_millis());
            let Some(left) = self.remaining_ttl(&record) else { return Ok(None) };
            let key = self.record_key(owner, id);
            let put = self.store.backend.put(&key, record.encode(), Some(left), Expect::Is(version)).await?;
            if let Some(version) = put {
                self.publish_change(owner, id, is_own);
                return Ok(Some(RecordUpdate { record, version, is_changed: true }));
            }
        }
        Err(StoreError::Unavailable("it changes too often".into()))
    }

    /// How long a record is kept from now on, none if its time is over. It was set by the clock of the process that
    /// began the task; one that goes ahead of it ends nothing before the store does, if it is ahead by less than
    /// [`MAX_CLOCK_SKEW_MS`].
    fn remaining_ttl(&self, record: &TaskRecord) -> Option<Duration> {
        let now = self.clock.unix_millis();
        let until = if now < record.expires {
            record.expires
        } else {
            record.expires.saturating_add(MAX_CLOCK_SKEW_MS)
        };
        let left = until.checked_sub(now).filter(|left| *left > 0).map(Duration::from_millis);
        left.map(|left| left.min(TaskLimits::MAX_TTL))
    }

    /// Tells everybody that a task has changed: those here at once, those elsewhere if the store does.
    fn publish_change(&self, owner: &str, id: &str, is_own: bool) {
        self.notify(owner, id, is_own);
        let message = format!("{}\n{owner}\n{id}", self.node);
        let (store, channel) = (Arc::clone(&self.store.backend), self.store.space(TASK_CHANNEL));
        // Nobody waits for it: whoever misses it looks for himself a little later.
        self.tracker.spawn(async move {
            if let Err(error) = store.publish(&channel, message.into()).await {
                tracing::debug!(%error, "a change of a task was not told");
            }
        });
    }

    /// Tells other processes that a task is theirs to run.
    async fn publish_release(&self) {
        let message = format!("{}\n{RELEASED}", self.node);
        // Whoever does not hear it looks a little later.
        let _ = self.store.backend.publish(&self.store.space(TASK_CHANNEL), message.into()).await;
    }

    /// Wakes whoever waits here.
    fn notify(&self, owner: &str, id: &str, is_own: bool) {
        if let Some(waiting) = lock(&self.waiters).get(id) {
            waiting.notify_waiters();
        }
        if !is_own && let Some(desk) = lock(&self.running).active.get(id) {
            desk.wake();
        }
        self.subscriptions.publish(&ChangeTopic::Task { owner: owner.into(), id: id.into() });
    }

    /// Waits until a question is no longer asked.
    async fn wait_resolved(&self, owner: &str, id: &str, key: &str) {
        loop {
            let waiting = self.waiter(id);
            let stirred = waiting.notified();
            match self.find(owner, id).await {
                Ok(Some((record, _))) if record.task.input_requests.contains_key(key) => {}
                Ok(_) => return,
                Err(_) => {}
            }
            let _ = tokio::time::timeout(POLL_INTERVAL, stirred).await;
        }
    }

    fn waiter<'a>(&'a self, id: &'a str) -> TaskWaiter<'a> {
        let notify = Arc::clone(lock(&self.waiters).entry(id.into()).or_default());
        TaskWaiter { tasks: self, id, notify }
    }

    /// Forgets that a task runs: it has an end. A lease is given back by whoever holds it, and by nobody else.
    async fn remove_running(&self, owner: &str, id: &str, lease: Option<EntryVersion>) {
        let run_key = self.store.key(RUNNING_SPACE, &running_name(owner, id));
        let lease_key = self.store.key(LEASE_SPACE, id);
        let index = self.store.backend.delete(&run_key, Expect::Anything);
        let lease = async {
            match lease {
                Some(lease) => self.store.backend.delete(&lease_key, Expect::Is(lease)).await,
                None => Ok(false),
            }
        };
        let (index, lease) = tokio::join!(index, lease);
        if let Err(error) = index.and(lease) {
            tracing::debug!(%error, id, "what is left of a task is cleared away later");
        }
    }

    /// Counts what has ended, and lets go of what there is no room for.
    async fn retain_finished(&self, owner: &str, record: &TaskRecord) {
        let until = timer_now() + self.remaining_ttl(record).unwrap_or_default();
        let ended = FinishedTask {
            id: record.task.id.as_str().into(),
            bytes: record.encode().len(),
            expires_at: until,
        };
        let gone = lock(&self.retention).add(owner, ended, &self.limits);
        for (owner, id) in gone {
            if let Err(error) =
                self.store.backend.delete(&self.record_key(&owner, &id), Expect::Anything).await
            {
                tracing::debug!(%error, %id, "a task that has ended is forgotten later");
            }
        }
    }

    /// Takes a place among what runs here.
    fn reserve(self: &Arc<TasksInner>, owner: &Arc<str>) -> Result<RunningSlot, CallError> {
        let mut running = lock(&self.running);
        let mine = running.owners.get(owner).copied().unwrap_or(0);
        if mine >= self.limits.max_per_owner || running.total >= self.limits.max_running {
            return Err(too_many_tasks());
        }
        running.owners.insert(Arc::clone(owner), mine + 1);
        running.total += 1;
        Ok(RunningSlot { tasks: Arc::clone(self), owner: Arc::clone(owner), task_id: None })
    }

    fn record_key(&self, owner: &str, id: &str) -> Key {
        self.store.key(&record_space(owner), id)
    }

    /// Who holds a lease: the process, and the server in it.
    fn lease_holder(&self) -> Bytes {
        format!("{}.{}", process_id(), self.node).into()
    }
}

/// A change of a record; says whether it changed anything.
type RecordEdit<'a> = &'a mut (dyn FnMut(&mut TaskRecord) -> bool + Send);

/// What became of a change.
struct RecordUpdate {
    record: TaskRecord,
    version: EntryVersion,
    /// False: there was nothing to change.
    is_changed: bool,
}

/// One who waits for a task to change.
struct TaskWaiter<'a> {
    tasks: &'a TasksInner,
    id: &'a str,
    notify: Arc<Notify>,
}

impl TaskWaiter<'_> {
    /// Falls with the next change after this was called.
    fn notified(&self) -> impl Future<Output = ()> + use<> {
        let notify = Arc::clone(&self.notify);
        let mut notified = Box::pin(notify.notified_owned());
        notified.as_mut().enable();
        notified
    }
}

impl Drop for TaskWaiter<'_> {
    fn drop(&mut self) {
        let mut waiting = lock(&self.tasks.waiters);
        // Given back under the lock, so that the last one knows that it is.
        drop(std::mem::take(&mut self.notify));
        if waiting.get(self.id).is_some_and(|notify| Arc::strong_count(notify) == 1) {
            waiting.remove(self.id);
        }
    }
}

/// A place among what runs here; leaving it makes room.
struct RunningSlot {
    tasks: Arc<TasksInner>,
    owner: Arc<str>,
    task_id: Option<Box<str>>,
}

impl Drop for RunningSlot {
    fn drop(&mut self) {
        let mut running = lock(&self.tasks.running);
        running.total = running.total.saturating_sub(1);
        if let Some(left) = running.owners.get_mut(&self.owner) {
            *left = left.saturating_sub(1);
            if *left == 0 {
                running.owners.remove(&self.owner);
            }
        }
        if let Some(id) = &self.task_id {
            running.active.remove(id);
        }
    }
}

fn new_record(id: &str, wish: &TaskRequest, now: u64, life: Duration, poll: Duration) -> TaskRecord {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let TaskRequest { tool, arguments, caller, timeout, replay_state: luggage, .. } = wish;
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
            ttl_ms: Some(millis(life)),
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
        replies: luggage.responses.clone(),
        memory: luggage.recorded_values.clone(),
        attempt: 1,
        expires: now.saturating_add(millis(life)),
        deadline: timeout.map(|timeout| now.saturating_add(timeout)),
    }
}

/// What a handler says in a task goes into the task, whether its client asked for progress or not.
fn task_meta(id: &str, raw: Option<RawJson>) -> toolgate_wire::Meta {
    toolgate_wire::Meta { progress_token: Some(ProgressToken::from(id)), log_level: None, raw }
}

/// What `tasks/result` gives.
fn payload(task: Task) -> Result<Outcome, CallError> {
    match (task.status, task.outcome) {
        (TaskStatus::Cancelled, _) => Err(ProtocolError::new(
            ProtocolErrorKind::Internal,
            "the task was cancelled, so it has no result",
        )
        .into()),
        (_, Some(TaskOutcome::Result(output))) => Ok(Outcome::TaskPayload { id: task.id, output }),
        (_, Some(TaskOutcome::Error(fault))) => Err(fault.into()),
        (_, None) => Err(ProtocolError::new(ProtocolErrorKind::Internal, "the task has no result").into()),
    }
}

/// A link that a user opens has a name where an edition wants one; it is not kept.
fn with_elicitation_id(ask: ServerRequest) -> ServerRequest {
    match ask {
        ServerRequest::Elicitation(ElicitRequest::Url { message, url, id }) if id.is_empty() => {
            ServerRequest::Elicitation(ElicitRequest::Url { message, url, id: random_token() })
        }
        ask => ask,
    }
}

/// A task in a list: of its end only whether it is a failure.
fn summarize(task: Task) -> Task {
    let end = match task.outcome {
        Some(TaskOutcome::Result(outcome)) => match &*outcome {
            Outcome::Tool(ToolOutput { content, is_error: true, .. }) => {
                let content = content.iter().take(1).cloned().collect();
                let output = ToolOutput { content, is_error: true, ..ToolOutput::default() };
                Some(TaskOutcome::Result(Arc::new(Outcome::Tool(output))))
            }
            _ => None,
        },
        end => end,
    };
    Task { outcome: end, ..task }
}

/// Which process this is: a new name each time it starts, the same for all servers in it.
fn process_id() -> &'static str {
    static PROCESS: OnceLock<String> = OnceLock::new();
    PROCESS.get_or_init(random_token)
}

fn record_space(owner: &str) -> String {
    format!("task/{owner}")
}

fn running_name(owner: &str, id: &str) -> String {
    format!("{owner}.{id}")
}

fn is_owned_by(name: &str, owner: &str) -> bool {
    name.strip_prefix(owner).is_some_and(|rest| rest.starts_with('.'))
}

/// Whether this could be the id of a task. What could not is not looked for.
fn is_task_id(id: &str) -> bool {
    id.len() == 27 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// The store does not answer. Why, is not for clients.
fn store_unavailable(error: &StoreError) -> ProtocolError {
    tracing::warn!(%error, "a task could not be looked after");
    ProtocolError::new(ProtocolErrorKind::Busy, STORE_UNAVAILABLE)
}

const STORE_UNAVAILABLE: &str = "storage unavailable, try again";

fn create_failed(error: &StoreError) -> CallError {
    tracing::warn!(%error, "a task could not be kept");
    CallError::Tool(ToolFailure::Internal { reference: None }, Box::new(ToolOutput::error(STORE_UNAVAILABLE)))
}

/// Two random ids were the same, or an operation was done although it said otherwise.
fn already_exists() -> StoreError {
    StoreError::Unavailable("it is there already".into())
}

fn too_many_tasks() -> CallError {
    let said = "too many tasks: wait for some of them to end, or cancel them";
    CallError::Tool(ToolFailure::Internal { reference: None }, Box::new(ToolOutput::error(said)))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
