//! Running a task: its handler, its lease, and its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, sleep_until};
use toolgate_wire::model::{Outcome, TaskOutcome, TaskStatus};
use toolgate_wire::{ProtocolError, ProtocolErrorKind, codec};

use super::desk::{Desk, Turn};
use super::record::Record;
use super::{Core, GRACE, Job, LEASE, LEASES, LEFT, Place, RUN, lock, run_name};
use crate::cancel::Cancel;
use crate::clock::timer_now;
use crate::request::{Caller, CallError};
use crate::store::{Expect, Reach, StoreError, Version};
use crate::tracker;

/// How often a lease is renewed.
pub(super) const RENEW: Duration = Duration::from_secs(5);
/// How soon that is tried again if it did not work.
const AGAIN: Duration = Duration::from_secs(1);
/// What a handler says is written down so often at most.
const SLOWLY: Duration = Duration::from_millis(250);

/// How a task ends.
struct End {
    state: TaskStatus,
    message: Option<String>,
    end: Option<TaskOutcome>,
}

impl End {
    fn failed(message: &str) -> End {
        End { state: TaskStatus::Failed, message: Some(message.to_owned()), end: None }
    }
}

/// Why a run is over.
enum Over {
    /// With this end.
    End(End),
    /// Somebody else has ended it, or runs it.
    Gone,
    /// This process ends; another one goes on.
    Left,
}

impl Core {
    /// Begins to run what is on a desk.
    pub(super) fn seat(
        self: &Arc<Core>,
        mut place: Place,
        desk: Arc<Desk>,
        caller: Caller,
        mut lease: Version,
    ) {
        place.desk = Some(desk.id.clone());
        lock(&self.running).desks.insert(&desk.id, Arc::clone(&desk));
        let (core, here) = (Arc::clone(self), Handle::current());
        self.tracker.spawn_main(async move {
            let over = core.run(&desk, caller, &mut lease, &here).await;
            core.conclude(&desk, over, lease).await;
            drop(place);
        });
    }

    /// The handler runs as a task of its own, where its connection is: one that blocks its thread must not cost the
    /// lease, where there is another thread.
    async fn run(&self, desk: &Arc<Desk>, caller: Caller, lease: &mut Version, here: &Handle) -> Over {
        let record = desk.record();
        let cancel = Cancel::new();
        let _leaving = cancel.cancel_on_drop();
        let left = self.left_of(&record).unwrap_or_default();
        let job = Job {
            tool: record.tool,
            arguments: record.arguments,
            caller,
            voice: Arc::clone(desk) as _,
            cancel: cancel.clone(),
            limit: left,
        };
        let Some(work) = self.crew.start(job) else {
            return Over::End(End::failed("the tool of this task is not there any more"));
        };
        let mut working = tracker::spawn_on(here, work).abort_on_drop();
        let started = timer_now();
        let forgotten = started + left;
        let late = record.deadline.map(|deadline| deadline.saturating_sub(self.clock.unix_millis()));
        // One after it is forgotten is none.
        let late = late.map(Duration::from_millis).filter(|late| *late < left).map(|late| started + late);
        let mut renewing = started + RENEW;
        let mut writing: Option<Instant> = None;
        let mut written = started.checked_sub(SLOWLY).unwrap_or(started);
        let mut closing = std::pin::pin!(self.closing(desk));
        loop {
            let due = writing.unwrap_or(forgotten);
            tokio::select! {
                biased;
                ended = &mut working => return Over::End(match ended {
                    Some(ended) => self.end_of(ended),
                    None => End::failed("the tool failed unexpectedly"),
                }),
                () = closing.as_mut() => return self.leave(desk),
                () = sleep_until(late.unwrap_or(forgotten)), if late.is_some() => {
                    return Over::End(End::failed("timeout: the task did not finish in the time it was given"));
                }
                () = sleep_until(forgotten) => return Over::Gone,
                () = desk.nudged() => match desk.reload().await {
                    Ok(true) => {}
                    Ok(false) => return Over::Gone,
                    // The next look will tell.
                    Err(_) => renewing = renewing.min(timer_now() + AGAIN),
                },
                () = desk.spoke.notified(), if writing.is_none() => {
                    writing = Some((written + SLOWLY).max(timer_now()));
                }
                () = sleep_until(due), if writing.is_some() => {
                    written = timer_now();
                    writing = match desk.amend(&mut |_| false).await {
                        Ok(Turn::Done) => None,
                        Ok(Turn::Over) => return Over::Gone,
                        Err(_) => Some(written + AGAIN),
                    };
                }
                () = sleep_until(renewing) => {
                    renewing = timer_now() + match self.renew(desk, lease).await {
                        Some(true) => RENEW,
                        Some(false) => return Over::Gone,
                        None => AGAIN,
                    };
                }
            }
        }
    }

    /// Keeps the lease. False if it is somebody else's, none if nobody can tell.
    async fn renew(&self, desk: &Desk, lease: &mut Version) -> Option<bool> {
        let key = self.cellar.key(LEASES, &desk.id);
        for expect in [Expect::Is(*lease), Expect::Absent] {
            match self.cellar.store.put(&key, self.lease_bytes(), Some(LEASE), expect).await {
                Ok(Some(version)) => {
                    *lease = version;
                    let was_lost = expect == Expect::Absent;
                    let is_entered = self.is_entered(desk).await.ok()?;
                    if !was_lost && is_entered && !self.cellar.is_shared() && !desk.is_doubtful() {
                        return Some(true);
                    }
                    // It may have been somebody else's for a while, or a message was lost.
                    let goes_on = desk.reload().await.ok();
                    if was_lost && goes_on == Some(false) {
                        let _ = self.cellar.store.delete(&key, Expect::Is(version)).await;
                    }
                    if !is_entered && goes_on == Some(true) {
                        self.enter(desk).await;
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
    async fn is_entered(&self, desk: &Desk) -> Result<bool, StoreError> {
        let key = self.cellar.key(RUN, &run_name(&desk.owner, &desk.id));
        Ok(self.cellar.store.get(&key).await?.is_some_and(|entry| entry.value.is_empty()))
    }

    /// Says once more that it is under way. If that cannot be done now, the next renewal does it.
    pub(super) fn enter(&self, desk: &Desk) -> impl Future<Output = ()> {
        self.note(desk, "")
    }

    async fn note(&self, desk: &Desk, value: &'static str) {
        let key = self.cellar.key(RUN, &run_name(&desk.owner, &desk.id));
        let life = self.left_of(&desk.record()).unwrap_or_default().saturating_add(GRACE);
        if let Err(error) = self.cellar.store.put(&key, value.into(), Some(life), Expect::Anything).await {
            tracing::debug!(%error, id = %desk.id, "that a task is under way could not be noted");
        }
    }

    /// Falls when nothing may run here any longer. Who waits for an answer waits in vain in a house that closes.
    async fn closing(&self, desk: &Desk) {
        let drained = async {
            self.drain.cancelled().await;
            if desk.record().task.status != TaskStatus::InputRequired {
                sleep(self.patience).await;
            }
        };
        tokio::select! {
            biased;
            () = self.over.cancelled() => {}
            () = drained => {}
        }
    }

    fn leave(&self, desk: &Desk) -> Over {
        if desk.resumable && self.cellar.store.reach() != Reach::Process {
            return Over::Left;
        }
        Over::End(End::failed("the server was stopped before the task was done"))
    }

    fn end_of(&self, ended: Result<Outcome, CallError>) -> End {
        let outcome = match ended {
            Ok(outcome) => outcome,
            Err(CallError::Tool(_, output)) => Outcome::Tool(*output),
            Err(CallError::Protocol(fault)) => {
                let message = Some(fault.message().to_owned());
                return End { state: TaskStatus::Failed, message, end: Some(TaskOutcome::Error(fault)) };
            }
            Err(CallError::InputRequired | CallError::Deferred) => {
                return End::failed("the tool asked for something that it cannot have in a task");
            }
            Err(CallError::Cancelled) => return End { state: TaskStatus::Cancelled, message: None, end: None },
        };
        End { state: TaskStatus::Completed, message: None, end: Some(TaskOutcome::Result(Arc::new(outcome))) }
    }

    /// Writes down how a run ended. A store that is away is waited for: the result must not be lost to a short absence.
    async fn conclude(&self, desk: &Desk, over: Over, lease: Version) {
        let End { state, message, end } = match over {
            Over::Gone => return self.clear_if_final(desk, lease).await,
            Over::Left => {
                // Whoever looks next takes it over at once.
                let _ = desk.amend(&mut |_| false).await;
                self.note(desk, LEFT).await;
                let _ = self.cellar.store.delete(&self.cellar.key(LEASES, &desk.id), Expect::Is(lease)).await;
                return self.hand_over().await;
            }
            Over::End(end) => end,
        };
        let mut end = End { state, message, end };
        if self.is_too_large(desk, &end) {
            let fault = ProtocolError::new(ProtocolErrorKind::Internal, "result too large");
            end = End { end: Some(TaskOutcome::Error(fault)), ..End::failed("result too large") };
        }
        let mut pause = Duration::from_millis(100);
        while self.left_of(&desk.record()).is_some() {
            let mut put = |record: &mut Record| record.end(end.state, end.message.clone(), end.end.clone());
            match desk.amend(&mut put).await {
                Ok(Turn::Done) => {
                    self.clear(&desk.owner, &desk.id, Some(lease)).await;
                    return self.shelve(&desk.owner, &desk.record()).await;
                }
                Ok(Turn::Over) => return self.clear_if_final(desk, lease).await,
                Err(error) => {
                    tracing::warn!(%error, id = %desk.id, "the end of a task cannot be written down yet");
                    if self.over.is_cancelled() || self.drain.is_cancelled() {
                        return;
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(2));
                }
            }
        }
    }

    fn is_too_large(&self, desk: &Desk, end: &End) -> bool {
        let mut record = desk.record();
        record.end(end.state, None, end.end.clone());
        end.end.is_some() && codec::encode_task(&record.task).as_bytes().len() > self.limits.result
    }

    /// One that somebody else runs is left alone.
    async fn clear_if_final(&self, desk: &Desk, lease: Version) {
        match self.find(&desk.owner, &desk.id).await {
            // Running elsewhere, or not to be found out now: the next look clears it away.
            Ok(Some((record, _))) if !record.is_final() => {}
            Err(_) => {}
            Ok(_) => self.clear(&desk.owner, &desk.id, Some(lease)).await,
        }
    }
}
