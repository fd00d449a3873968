//! Runs a task in this process: its handler, its lease and its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, sleep_until};
use toolgate_wire::model::{Outcome, TaskOutcome, TaskStatus};
use toolgate_wire::{ProtocolError, ProtocolErrorKind, codec};

use super::active::{ActiveTask, UpdateStatus};
use super::record::TaskRecord;
use super::records::running_name;
use super::slots::RunningSlot;
use super::{
    INDEX_GRACE, LEASE_SPACE, LEASE_TTL, RELEASED, RUNNING_SPACE, STORE_RETRY_DELAY, TaskRun, TasksInner,
};
use crate::request::{CallError, Caller};
use crate::store::{EntryVersion, Expect, StoreError, Visibility};
use crate::util::cancel::Cancel;
use crate::util::clock::timer_now;
use crate::util::spawn;

/// How often a lease is renewed.
pub(super) const LEASE_RENEW_INTERVAL: Duration = Duration::from_secs(5);
/// Minimum time between two writes of a handler's output.
const MIN_WRITE_INTERVAL: Duration = Duration::from_millis(250);

/// How a task ends.
struct FinalState {
    status: TaskStatus,
    message: Option<String>,
    outcome: Option<TaskOutcome>,
}

impl FinalState {
    fn failed(message: &str) -> FinalState {
        FinalState { status: TaskStatus::Failed, message: Some(message.to_owned()), outcome: None }
    }
}

/// Why a run is over.
enum RunExit {
    /// The task has ended.
    Finished(FinalState),
    /// The task was ended elsewhere, or another process runs it.
    Superseded,
    /// This process shuts down; another one resumes the task.
    Released,
}

impl TasksInner {
    /// Starts to run a task.
    pub(super) fn spawn_task(
        self: &Arc<TasksInner>,
        mut slot: RunningSlot,
        active: Arc<ActiveTask>,
        caller: Caller,
        mut lease: EntryVersion,
    ) {
        slot.set_task(&active);
        let (tasks, runtime) = (Arc::clone(self), Handle::current());
        self.tracker.spawn_main(async move {
            let exit = tasks.run(&active, caller, &mut lease, &runtime).await;
            tasks.finish_run(&active, exit, lease).await;
            drop(slot);
        });
    }

    /// Runs the handler, writes its output and renews the lease until the run is over.
    ///
    /// The handler is a tokio task of its own, on the runtime of its connection: if it blocks its thread, the lease is
    /// still renewed, provided that there is another thread.
    async fn run(
        &self,
        active: &Arc<ActiveTask>,
        caller: Caller,
        lease: &mut EntryVersion,
        runtime: &Handle,
    ) -> RunExit {
        let record = active.record();
        let cancel = Cancel::new();
        let _cancel_guard = cancel.cancel_on_drop();
        let ttl = self.remaining_ttl(&record).unwrap_or_default();
        let started = timer_now();
        let time_left = record.deadline.map(|deadline| deadline.saturating_sub(self.clock.unix_millis()));
        // A deadline after the expiry has no effect.
        let time_left = time_left.map(Duration::from_millis).filter(|time_left| *time_left < ttl);
        let deadline = time_left.map(|time_left| started + time_left);
        let run = TaskRun {
            id: active.id.clone(),
            tool: record.tool,
            arguments: record.arguments,
            caller,
            channel: Arc::clone(active) as _,
            cancel: cancel.clone(),
            timeout: ttl,
            deadline,
        };
        let Some(handler) = self.executor.start(run) else {
            return RunExit::Finished(FinalState::failed("the tool of this task no longer exists"));
        };
        let mut handler = spawn::spawn_on(runtime, handler).abort_on_drop();
        let expires_at = started + ttl;
        let mut next_renewal = started + LEASE_RENEW_INTERVAL;
        let mut next_write: Option<Instant> = None;
        let mut last_write = started.checked_sub(MIN_WRITE_INTERVAL).unwrap_or(started);
        let mut shutdown = std::pin::pin!(self.wait_shutdown(active));
        loop {
            let write_due = next_write.unwrap_or(expires_at);
            tokio::select! {
                biased;
                result = &mut handler => return RunExit::Finished(match result {
                    Some(result) => self.final_state(result),
                    None => FinalState::failed("the tool failed unexpectedly"),
                }),
                () = shutdown.as_mut() => return self.exit_on_shutdown(active),
                () = sleep_until(deadline.unwrap_or(expires_at)), if deadline.is_some() => {
                    return RunExit::Finished(FinalState::failed("timeout: the task did not finish in the time it was given"));
                }
                () = sleep_until(expires_at) => return RunExit::Superseded,
                () = active.woken() => match active.reload().await {
                    Ok(true) => {}
                    Ok(false) => return RunExit::Superseded,
                    // The next renewal reloads the record.
                    Err(_) => next_renewal = next_renewal.min(timer_now() + STORE_RETRY_DELAY),
                },
                () = active.output_changed.notified(), if next_write.is_none() => {
                    next_write = Some((last_write + MIN_WRITE_INTERVAL).max(timer_now()));
                }
                () = sleep_until(write_due), if next_write.is_some() => {
                    last_write = timer_now();
                    next_write = match active.update(&mut |_| false).await {
                        Ok(UpdateStatus::Written) => None,
                        Ok(UpdateStatus::Superseded) => return RunExit::Superseded,
                        Err(_) => Some(last_write + STORE_RETRY_DELAY),
                    };
                }
                () = sleep_until(next_renewal) => {
                    next_renewal = timer_now() + match self.renew_lease(active, lease).await {
                        Some(true) => LEASE_RENEW_INTERVAL,
                        Some(false) => return RunExit::Superseded,
                        None => STORE_RETRY_DELAY,
                    };
                }
            }
        }
    }

    /// Renews the lease. Returns `Some(false)` if another process holds it, `None` if the store fails.
    async fn renew_lease(&self, active: &ActiveTask, lease: &mut EntryVersion) -> Option<bool> {
        let key = self.store.key(LEASE_SPACE, &active.id);
        for expect in [Expect::Is(*lease), Expect::Absent] {
            match self.store.backend.put(&key, self.lease_holder(), Some(LEASE_TTL), expect).await {
                Ok(Some(version)) => {
                    *lease = version;
                    let was_lost = expect == Expect::Absent;
                    let is_indexed = self.is_indexed(active).await.ok()?;
                    if !was_lost && is_indexed && !self.store.is_shared() && !active.is_stale() {
                        return Some(true);
                    }
                    // Another process may have held the lease meanwhile, or a message was lost.
                    let is_current = active.reload().await.ok();
                    if was_lost && is_current == Some(false) {
                        let _ = self.store.backend.delete(&key, Expect::Is(version)).await;
                    }
                    if !is_indexed && is_current == Some(true) {
                        self.mark_running(active).await;
                    }
                    return is_current;
                }
                Ok(None) => {}
                Err(_) => return None,
            }
        }
        Some(false)
    }

    /// Returns whether the task is in `run`, and not marked as released.
    async fn is_indexed(&self, active: &ActiveTask) -> Result<bool, StoreError> {
        let key = self.store.key(RUNNING_SPACE, &running_name(&active.owner, &active.id));
        Ok(self.store.backend.get(&key).await?.is_some_and(|entry| entry.value.is_empty()))
    }

    /// Enters the task in `run`. If the store fails, the next renewal of the lease tries again.
    pub(super) fn mark_running(&self, active: &ActiveTask) -> impl Future<Output = ()> {
        self.put_index(active, "")
    }

    async fn put_index(&self, active: &ActiveTask, value: &'static str) {
        let key = self.store.key(RUNNING_SPACE, &running_name(&active.owner, &active.id));
        let ttl = self.remaining_ttl(&active.record()).unwrap_or_default().saturating_add(INDEX_GRACE);
        if let Err(error) = self.store.backend.put(&key, value.into(), Some(ttl), Expect::Anything).await {
            tracing::debug!(%error, id = %active.id, "cannot enter a running task in the index");
        }
    }

    /// Waits until the task must stop. During shutdown, a task that waits for input stops at once, because no client
    /// can answer it any more.
    async fn wait_shutdown(&self, active: &ActiveTask) {
        let drained = async {
            self.drain.cancelled().await;
            if active.record().task.status != TaskStatus::InputRequired {
                sleep(self.shutdown_timeout).await;
            }
        };
        tokio::select! {
            biased;
            () = self.closed.cancelled() => {}
            () = drained => {}
        }
    }

    fn exit_on_shutdown(&self, active: &ActiveTask) -> RunExit {
        if active.is_resumable && self.store.backend.visibility() != Visibility::Process {
            return RunExit::Released;
        }
        RunExit::Finished(FinalState::failed("the server was stopped before the task was done"))
    }

    fn final_state(&self, result: Result<Outcome, CallError>) -> FinalState {
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(CallError::Tool(_, output)) => Outcome::Tool(*output),
            Err(CallError::Protocol(error)) => {
                let message = Some(error.message().to_owned());
                let outcome = Some(TaskOutcome::Error(error));
                return FinalState { status: TaskStatus::Failed, message, outcome };
            }
            Err(CallError::InputRequired | CallError::Deferred) => {
                return FinalState::failed("the tool sent a request that tasks do not support");
            }
            Err(CallError::Cancelled) => {
                return FinalState { status: TaskStatus::Cancelled, message: None, outcome: None };
            }
        };
        let outcome = Some(TaskOutcome::Result(Arc::new(outcome)));
        FinalState { status: TaskStatus::Completed, message: None, outcome }
    }

    /// Stores how a run ended. If the store fails, it is tried again, so that a short outage does not lose the result.
    async fn finish_run(&self, active: &ActiveTask, exit: RunExit, lease: EntryVersion) {
        let mut end = match exit {
            RunExit::Superseded => return self.remove_if_final(active, lease).await,
            RunExit::Released => return self.release(active, lease).await,
            RunExit::Finished(end) => end,
        };
        if self.is_too_large(active, &end) {
            let error = ProtocolError::new(ProtocolErrorKind::Internal, "result too large");
            let outcome = Some(TaskOutcome::Error(error));
            end = FinalState { outcome, ..FinalState::failed("result too large") };
        }
        let mut delay = Duration::from_millis(100);
        while self.remaining_ttl(&active.record()).is_some() {
            let mut set_end =
                |record: &mut TaskRecord| record.end(end.status, end.message.clone(), end.outcome.clone());
            match active.update(&mut set_end).await {
                Ok(UpdateStatus::Written) => {
                    self.remove_running(&active.owner, &active.id, Some(lease)).await;
                    return self.retain_finished(&active.owner, &active.record()).await;
                }
                Ok(UpdateStatus::Superseded) => return self.remove_if_final(active, lease).await,
                Err(error) => {
                    tracing::warn!(%error, id = %active.id, "cannot store the end of a task; trying again");
                    if self.closed.is_cancelled() || self.drain.is_cancelled() {
                        return;
                    }
                    sleep(delay).await;
                    delay = (delay * 2).min(Duration::from_secs(2));
                }
            }
        }
    }

    /// Leaves the task to other processes, which can take it over at once. Errors are ignored: then the lease expires.
    async fn release(&self, active: &ActiveTask, lease: EntryVersion) {
        let _ = active.update(&mut |_| false).await;
        self.put_index(active, RELEASED).await;
        let lease_key = self.store.key(LEASE_SPACE, &active.id);
        let _ = self.store.backend.delete(&lease_key, Expect::Is(lease)).await;
        self.publish_release().await;
    }

    fn is_too_large(&self, active: &ActiveTask, end: &FinalState) -> bool {
        let mut record = active.record();
        record.end(end.status, None, end.outcome.clone());
        let size = codec::encode_task(&record.task).as_bytes().len();
        end.outcome.is_some() && size > self.limits.max_result_bytes
    }

    /// Removes the task from `run` if it has ended. A task that another process runs is left alone.
    async fn remove_if_final(&self, active: &ActiveTask, lease: EntryVersion) {
        match self.find(&active.owner, &active.id).await {
            // Runs elsewhere, or the store fails: a later sweep removes it.
            Ok(Some((record, _))) if !record.is_final() => {}
            Err(_) => {}
            Ok(_) => self.remove_running(&active.owner, &active.id, Some(lease)).await,
        }
    }
}
