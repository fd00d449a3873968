//! Tasks: tool calls that outlive the request that started them.
//!
//! A task is a record in the store. The process that holds its lease runs it; every process can read it, answer its
//! input requests and cancel it for its owner. Records are only changed by compare-and-set, so a process that lost its
//! lease without noticing does no harm: its next write fails, it sees that it no longer runs the task, and stops.
//!
//! Tasks use three spaces of the store. `task/<owner>` holds the records, each until its TTL ends. `run` names the
//! tasks that have not ended, and `lease` those that a process runs. A task in `run` without a lease has lost its
//! process, and the next process that looks takes it over ([`sweep`]).
//!
//! This module knows neither protocol versions nor how tools run: the latter is the job of the [`TaskExecutor`].

mod active;
mod errors;
mod limits;
mod query;
mod record;
mod records;
mod retention;
mod run;
mod slots;
mod sweep;
mod waiters;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use toolgate_wire::model::{ClientResult, Outcome, ServerRequest, Task, TaskStatus};
use toolgate_wire::{ProtocolError, RawJson, codec};

use crate::handler::{ClientChannel, ReplayState, SessionAccess};
use crate::request::{BoxFuture, CallError, Caller};
use crate::seal::{Seal, random_token};
use crate::store::{ScopedStore, Visibility};
use crate::subscriptions::Subscriptions;
use crate::util::cancel::Cancel;
use crate::util::clock::Clock;
use crate::util::lock;
use crate::util::spawn::Tracker;
use errors::store_unavailable;
use record::TaskRecord;
use retention::Retention;
use slots::RunningTasks;

pub(crate) use limits::TaskLimits;

/// How long a lease lasts unless it is renewed.
const LEASE_TTL: Duration = Duration::from_secs(15);
/// How long index entries outlive their tasks if nothing removes them.
const INDEX_GRACE: Duration = Duration::from_secs(60);
/// Delay before a failed store operation is tried again.
const STORE_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Store space of the tasks that have not ended.
const RUNNING_SPACE: &str = "run";
/// Store space of the leases.
const LEASE_SPACE: &str = "lease";
/// Store channel on which changes of tasks are published.
const TASK_CHANNEL: &str = "tasks";
/// Published on the channel, and written to the entry in `run`, when a process releases a task for others to run.
const RELEASED: &str = "left";

/// Runs the tools behind tasks.
pub(crate) trait TaskExecutor: Send + Sync {
    /// Starts a tool. Returns `None` if there is no tool of that name.
    fn start(&self, run: TaskRun) -> Option<BoxFuture<'static, Result<Outcome, CallError>>>;

    /// Returns whether a task of this tool may be run again after its process ended.
    fn is_resumable(&self, tool: &str) -> bool;

    /// Returns whether a client result is a valid response to a request.
    fn is_valid_response(&self, request: &ServerRequest, result: &ClientResult) -> bool;
}

/// One run of a tool, as passed to the [`TaskExecutor`].
pub(crate) struct TaskRun {
    /// The id of the task.
    pub(crate) id: Box<str>,
    pub(crate) tool: String,
    pub(crate) arguments: RawJson,
    pub(crate) caller: Caller,
    pub(crate) channel: Arc<dyn ClientChannel>,
    pub(crate) cancel: Cancel,
    /// Time limit, unless the tool has its own.
    pub(crate) timeout: Duration,
    /// When the task fails unless it has ended, if it has such a limit.
    pub(crate) deadline: Option<Instant>,
}

/// A tool call that is to become a task.
pub(crate) struct TaskRequest {
    pub(crate) tool: String,
    pub(crate) arguments: RawJson,
    pub(crate) caller: Caller,
    /// The TTL that the client requests, in milliseconds.
    pub(crate) ttl: Option<u64>,
    /// The TTL that the tool sets, if any.
    pub(crate) default_ttl: Option<Duration>,
    /// Time limit in milliseconds, after which the task has failed.
    pub(crate) timeout: Option<u64>,
    /// Responses and values that the call has recorded so far.
    pub(crate) replay_state: ReplayState,
    /// The session of the client, if it has one.
    pub(crate) session: Option<Arc<dyn SessionAccess>>,
}

/// The tasks of a server. Dropping it ends those that run in this process.
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
    /// Random name of this server instance.
    node: Box<str>,
    /// The tasks that run in this process.
    running: Mutex<RunningTasks>,
    /// The tasks that ended in this process.
    retention: Mutex<Retention>,
    /// Notifies waiters of changes, by task id. Bounded by the calls in progress.
    waiters: Mutex<HashMap<Box<str>, Arc<Notify>>>,
    /// Whether the background work was started.
    is_started: AtomicBool,
    /// Whether messages of other processes may have been missed.
    has_missed: AtomicBool,
    /// Notified when another process has released a task.
    released: Notify,
    tracker: Tracker,
    /// Cancelled when the server shuts down; running tasks then have `shutdown_timeout` left.
    drain: CancellationToken,
    shutdown_timeout: Duration,
    /// Cancelled when the server is dropped.
    closed: CancellationToken,
}

/// The dependencies of [`Tasks`].
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
    pub(crate) fn new(deps: TaskDeps) -> Tasks {
        let TaskDeps { store, executor, subscriptions, clock, seal, limits, drain, shutdown_timeout } = deps;
        let closed = CancellationToken::new();
        let inner = TasksInner {
            store,
            executor,
            subscriptions,
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
            shutdown_timeout,
            closed: closed.clone(),
        };
        Tasks { inner: Arc::new(inner), _close_on_drop: closed.drop_guard() }
    }

    /// Returns how many tasks run in this process, including those about to start.
    pub(crate) fn running(&self) -> usize {
        lock(&self.inner.running).total
    }

    /// Starts to listen for changes in other processes and to look for tasks that lost their process. Idempotent.
    pub(crate) fn start_background(&self) {
        self.inner.start_background();
    }

    /// Waits until no task runs in this process. Running tasks have the shutdown timeout to finish.
    pub(crate) async fn join(&self) {
        self.inner.tracker.close();
        self.inner.tracker.wait().await;
    }

    /// Returns whether results can be fetched after this process has ended.
    pub(crate) fn is_durable(&self) -> bool {
        self.inner.store.backend.visibility() != Visibility::Process
    }

    /// Starts a task. Its record is stored when this returns, so that every client that learns its id finds it.
    pub(crate) fn create(&self, request: TaskRequest) -> BoxFuture<'static, Result<Task, CallError>> {
        self.start_background();
        let inner = Arc::clone(&self.inner);
        Box::pin(inner.create(request))
    }

    /// Stores the responses to the input requests of a task. Responses that are invalid or were not requested are ignored.
    pub(crate) async fn update(
        &self,
        owner: &str,
        id: &str,
        responses: BTreeMap<String, RawJson>,
    ) -> Result<(), ProtocolError> {
        self.start_background();
        let executor = &self.inner.executor;
        let is_valid = |record: &TaskRecord, key: &str, raw: &RawJson| {
            let request = record.task.input_requests.get(key);
            request.is_some_and(|request| {
                codec::decode_client_result(request, raw)
                    .is_ok_and(|result| executor.is_valid_response(request, &result))
            })
        };
        let mut set_replies = |record: &mut TaskRecord| {
            let mut changed = false;
            for (key, raw) in &responses {
                changed |= is_valid(record, key, raw) && record.set_reply(key, raw.clone());
            }
            changed
        };
        let updated = self.inner.update_record(owner, id, None, &mut set_replies);
        updated
            .await
            .map_err(|error| store_unavailable(&error))?
            .map(|_| ())
            .ok_or_else(|| ProtocolError::task_not_found(id))
    }

    /// Cancels a task. Returns the task, and whether this call ended it.
    pub(crate) async fn cancel(&self, owner: &str, id: &str) -> Result<(Task, bool), ProtocolError> {
        self.start_background();
        let message = Some("cancelled by the client".to_owned());
        let mut end = |record: &mut TaskRecord| record.end(TaskStatus::Cancelled, message.clone(), None);
        let updated = self.inner.update_record(owner, id, None, &mut end).await;
        let updated = updated
            .map_err(|error| store_unavailable(&error))?
            .ok_or_else(|| ProtocolError::task_not_found(id))?;
        if updated.is_changed {
            // Only the process running the task releases its lease.
            self.inner.remove_running(owner, id, None).await;
            self.inner.retain_finished(owner, &updated.record).await;
        }
        Ok((updated.record.task, updated.is_changed))
    }
}
