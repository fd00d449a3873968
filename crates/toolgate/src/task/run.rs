//! Running a task: its handler, its lease, and its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, sleep_until};
use toolgate_wire::model::{Outcome, TaskOutcome, TaskStatus};
use toolgate_wire::{ProtocolError, ProtocolErrorKind, codec};

use super::active::{ActiveTask, UpdateStatus};
use super::record::TaskRecord;
use super::{
    INDEX_GRACE, LEASE_SPACE, LEASE_TTL, RELEASED, RUNNING_SPACE, RunningSlot, TaskRun, TasksInner, lock,
    running_name,
};
use crate::request::{CallError, Caller};
use crate::store::{EntryVersion, Expect, StoreError, Visibility};
use crate::util::cancel::Cancel;
use crate::util::clock::timer_now;
use crate::util::spawn;

/// How often a lease is renewed.
pub(super) const LEASE_RENEW_INTERVAL: Duration = Duration::from_secs(5);
/// How soon that is tried again if it did not work.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// What a handler says is written down so often at most.
const MIN_WRITE_INTERVAL: Duration = Duration::from_millis(250);

/// How a task ends.
struct FinalState {
    state: TaskStatus,
    message: Option<String>,
    end: Option<TaskOutcome>,
}

impl FinalState {
    fn failed(message: &str) -> FinalState {
        FinalState { state: TaskStatus::Failed, message: Some(message.to_owned()), end: None }
    }
}

/// Why a run is over.
enum RunExit {
    /// With this end.
    Finished(FinalState),
    /// Somebody else has ended it, or runs it.
    Superseded,
    /// This process ends; another one goes on.
    Released,
}

impl TasksInner {
    /// Begins to run what is on a desk.
    pub(super) fn spawn_task(
        self: &Arc<TasksInner>,
        mut place: RunningSlot,
        desk: Arc<ActiveTask>,
        caller: Caller,
        mut lease: EntryVersion,
    ) {
        place.task_id = Some(desk.id.clone());
        lock(&self.running).active.insert(desk.id.clone(), Arc::clone(&desk));
        let (core, here) = (Arc::clone(self), Handle::current());
        self.tracker.spawn_main(async move {
            let over = core.run(&desk, caller, &mut lease, &here).await;
            core.finish_run(&desk, over, lease).await;
            drop(place);
        });
    }

    /// The handler runs as a task of its own, where its connection is: one that blocks its thread must not cost the
    /// lease, where there is another thread.
    async fn run(
        &self,
        desk: &Arc<ActiveTask>,
        caller: Caller,
        lease: &mut EntryVersion,
        here: &Handle,
    ) -> RunExit {
        let record = desk.record();
        let cancel = Cancel::new();
        let _leaving = cancel.cancel_on_drop();
        let left = self.remaining_ttl(&record).unwrap_or_default();
        let job = TaskRun {
            tool: record.tool,
            arguments: record.arguments,
            caller,
            channel: Arc::clone(desk) as _,
            cancel: cancel.clone(),
            timeout: left,
        };
        let Some(work) = self.executor.start(job) else {
            return RunExit::Finished(FinalState::failed("the tool of this task is not there any more"));
        };
        let mut working = spawn::spawn_on(here, work).abort_on_drop();
        let started = timer_now();
        let forgotten = started + left;
        let late = record.deadline.map(|deadline| deadline.saturating_sub(self.clock.unix_millis()));
        // One after it is forgotten is none.
        let late = late.map(Duration::from_millis).filter(|late| *late < left).map(|late| started + late);
        let mut renewing = started + LEASE_RENEW_INTERVAL;
        let mut writing: Option<Instant> = None;
        let mut written = started.checked_sub(MIN_WRITE_INTERVAL).unwrap_or(started);
        let mut closing = std::pin::pin!(self.wait_shutdown(desk));
        loop {
            let due = writing.unwrap_or(forgotten);
            tokio::select! {
                biased;
                ended = &mut working => return RunExit::Finished(match ended {
                    Some(ended) => self.final_state(ended),
                    None => FinalState::failed("the tool failed unexpectedly"),
                }),
                () = closing.as_mut() => return self.exit_on_shutdown(desk),
                () = sleep_until(late.unwrap_or(forgotten)), if late.is_some() => {
                    return RunExit::Finished(FinalState::failed("timeout: the task did not finish in the time it was given"));
                }
                () = sleep_until(forgotten) => return RunExit::Superseded,
                () = desk.woken() => match desk.reload().await {
                    Ok(true) => {}
                    Ok(false) => return RunExit::Superseded,
                    // The next look will tell.
                    Err(_) => renewing = renewing.min(timer_now() + RETRY_DELAY),
                },
                () = desk.output_changed.notified(), if writing.is_none() => {
                    writing = Some((written + MIN_WRITE_INTERVAL).max(timer_now()));
                }
                () = sleep_until(due), if writing.is_some() => {
                    written = timer_now();
                    writing = match desk.update(&mut |_| false).await {
                        Ok(UpdateStatus::Written) => None,
                        Ok(UpdateStatus::Superseded) => return RunExit::Superseded,
                        Err(_) => Some(written + RETRY_DELAY),
                    };
                }
                () = sleep_until(renewing) => {
                    renewing = timer_now() + match self.renew_lease(desk, lease).await {
                        Some(true) => LEASE_RENEW_INTERVAL,
                        Some(false) => return RunExit::Superseded,
                        None => RETRY_DELAY,
                    };
                }
            }
        }
    }

    /// Keeps the lease. False if it is somebody else's, none if nobody can tell.
    async fn renew_lease(&self, desk: &ActiveTask, lease: &mut EntryVersion) -> Option<bool> {
        let key = self.store.key(LEASE_SPACE, &desk.id);
        for expect in [Expect::Is(*lease), Expect::Absent] {
            match self.store.backend.put(&key, self.lease_holder(), Some(LEASE_TTL), expect).await {
                Ok(Some(version)) => {
                    *lease = version;
                    let was_lost = expect == Expect::Absent;
                    let is_entered = self.is_indexed(desk).await.ok()?;
                    if !was_lost && is_entered && !self.store.is_shared() && !desk.is_stale() {
                        return Some(true);
                    }
                    // It may have been somebody else's for a while, or a message was lost.
                    let goes_on = desk.reload().await.ok();
                    if was_lost && goes_on == Some(false) {
                        let _ = self.store.backend.delete(&key, Expect::Is(version)).await;
                    }
                    if !is_entered && goes_on == Some(true) {
                        self.mark_running(desk).await;
                    }
                    return goes_on;
                }
                Ok(None) => {}
                Err(_) => return None,
            }
        }
        Some(false)
    }

    /// Whether everybody can see that it is under way, and that somebody means to go on with it.
    async fn is_indexed(&self, desk: &ActiveTask) -> Result<bool, StoreError> {
        let key = self.store.key(RUNNING_SPACE, &running_name(&desk.owner, &desk.id));
        Ok(self.store.backend.get(&key).await?.is_some_and(|entry| entry.value.is_empty()))
    }

    /// Says once more that it is under way. If that cannot be done now, the next renewal does it.
    pub(super) fn mark_running(&self, desk: &ActiveTask) -> impl Future<Output = ()> {
        self.put_index(desk, "")
    }

    async fn put_index(&self, desk: &ActiveTask, value: &'static str) {
        let key = self.store.key(RUNNING_SPACE, &running_name(&desk.owner, &desk.id));
        let life = self.remaining_ttl(&desk.record()).unwrap_or_default().saturating_add(INDEX_GRACE);
        if let Err(error) = self.store.backend.put(&key, value.into(), Some(life), Expect::Anything).await {
            tracing::debug!(%error, id = %desk.id, "that a task is under way could not be noted");
        }
    }

    /// Falls when nothing may run here any longer. Who waits for an answer waits in vain in a house that closes.
    async fn wait_shutdown(&self, desk: &ActiveTask) {
        let drained = async {
            self.drain.cancelled().await;
            if desk.record().task.status != TaskStatus::InputRequired {
                sleep(self.shutdown_timeout).await;
            }
        };
        tokio::select! {
            biased;
            () = self.closed.cancelled() => {}
            () = drained => {}
        }
    }

    fn exit_on_shutdown(&self, desk: &ActiveTask) -> RunExit {
        if desk.is_resumable && self.store.backend.visibility() != Visibility::Process {
            return RunExit::Released;
        }
        RunExit::Finished(FinalState::failed("the server was stopped before the task was done"))
    }

    fn final_state(&self, ended: Result<Outcome, CallError>) -> FinalState {
        let outcome = match ended {
            Ok(outcome) => outcome,
            Err(CallError::Tool(_, output)) => Outcome::Tool(*output),
            Err(CallError::Protocol(fault)) => {
                let message = Some(fault.message().to_owned());
                return FinalState {
                    state: TaskStatus::Failed,
                    message,
                    end: Some(TaskOutcome::Error(fault)),
                };
            }
            Err(CallError::InputRequired | CallError::Deferred) => {
                return FinalState::failed("the tool asked for something that it cannot have in a task");
            }
            Err(CallError::Cancelled) => {
                return FinalState { state: TaskStatus::Cancelled, message: None, end: None };
            }
        };
        FinalState {
            state: TaskStatus::Completed,
            message: None,
            end: Some(TaskOutcome::Result(Arc::new(outcome))),
        }
    }

    /// Writes down how a run ended. A store that is away is waited for: the result must not be lost to a short absence.
    async fn finish_run(&self, desk: &ActiveTask, over: RunExit, lease: EntryVersion) {
        let FinalState { state, message, end } = match over {
            RunExit::Superseded => return self.remove_if_final(desk, lease).await,
            RunExit::Released => {
                // Whoever looks next takes it over at once.
                let _ = desk.update(&mut |_| false).await;
                self.put_index(desk, RELEASED).await;
                let _ = self
                    .store
                    .backend
                    .delete(&self.store.key(LEASE_SPACE, &desk.id), Expect::Is(lease))
                    .await;
                return self.publish_release().await;
            }
            RunExit::Finished(end) => end,
        };
        let mut end = FinalState { state, message, end };
        if self.is_too_large(desk, &end) {
            let fault = ProtocolError::new(ProtocolErrorKind::Internal, "result too large");
            end =
                FinalState { end: Some(TaskOutcome::Error(fault)), ..FinalState::failed("result too large") };
        }
        let mut pause = Duration::from_millis(100);
        while self.remaining_ttl(&desk.record()).is_some() {
            let mut put =
                |record: &mut TaskRecord| record.end(end.state, end.message.clone(), end.end.clone());
            match desk.update(&mut put).await {
                Ok(UpdateStatus::Written) => {
                    self.remove_running(&desk.owner, &desk.id, Some(lease)).await;
                    return self.retain_finished(&desk.owner, &desk.record()).await;
                }
                Ok(UpdateStatus::Superseded) => return self.remove_if_final(desk, lease).await,
                Err(error) => {
                    tracing::warn!(%error, id = %desk.id, "the end of a task cannot be written down yet");
                    if self.closed.is_cancelled() || self.drain.is_cancelled() {
                        return;
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(2));
                }
            }
        }
    }

    fn is_too_large(&self, desk: &ActiveTask, end: &FinalState) -> bool {
        let mut record = desk.record();
        record.end(end.state, None, end.end.clone());
        end.end.is_some() && codec::encode_task(&record.task).as_bytes().len() > self.limits.max_result_bytes
    }

    /// One that somebody else runs is left alone.
    async fn remove_if_final(&self, desk: &ActiveTask, lease: EntryVersion) {
        match self.find(&desk.owner, &desk.id).await {
            // Running elsewhere, or not to be found out now: the next look clears it away.
            Ok(Some((record, _))) if !record.is_final() => {}
            Err(_) => {}
            Ok(_) => self.remove_running(&desk.owner, &desk.id, Some(lease)).await,
        }
    }
}
