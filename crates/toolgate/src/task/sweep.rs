//! Background work: takes over tasks that lost their process, and listens for changes in other processes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use toolgate_wire::Client;
use toolgate_wire::model::TaskStatus;

use super::active::ActiveTask;
use super::record::TaskRecord;
use super::records::{process_id, task_meta};
use super::run::LEASE_RENEW_INTERVAL;
use super::waiters::ChangedBy;
use super::{LEASE_SPACE, LEASE_TTL, RELEASED, RUNNING_SPACE, TASK_CHANNEL, TasksInner};
use crate::request::{Caller, ClientTaskSupport};
use crate::store::{ChannelEvent, Entry, EntryVersion, Expect, StoreError, Visibility};
use crate::util::clock::timer_now;
use crate::util::lock;
use crate::util::spawn;

/// Interval between two searches for tasks that lost their process.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// How long a lease must be missing: a process that is alive restores it within this time.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(LEASE_RENEW_INTERVAL.as_secs() + 1);
/// Minimum time between two pauses of takeovers because of gaps on the channel: frequent gaps must not pause them forever.
const MIN_GAP_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of attempts to run a task.
const MAX_ATTEMPTS: u64 = 3;
/// Entries fetched from the store at once.
const LIST_BATCH: usize = 512;

/// State of the sweeper that lasts from one sweep to the next.
#[derive(Debug, Default)]
struct OrphanScan {
    /// Leases of other processes are void, because only one process at a time can open the store.
    is_exclusive: bool,
    /// When each task, by id, was first seen without a lease. Bounded by the tasks in `run`.
    unleased_since: HashMap<String, Instant>,
    /// Whether the store failed. Processes that could not renew their leases meanwhile get time to do so.
    was_unavailable: bool,
    /// No task is taken over before this time.
    paused_until: Option<Instant>,
    /// When a gap on the channel last paused takeovers.
    last_gap: Option<Instant>,
}

impl OrphanScan {
    /// Records a successful store operation. After a failure, takeovers are paused for the TTL of a lease.
    fn on_store_recovered(&mut self, now: Instant) {
        if std::mem::take(&mut self.was_unavailable) {
            self.paused_until = Some(now + LEASE_TTL);
        }
    }

    /// Records missed messages, which may mean that the store was unavailable.
    fn on_gap(&mut self, now: Instant) {
        if self.last_gap.is_none_or(|gap| now >= gap + MIN_GAP_INTERVAL) {
            self.last_gap = Some(now);
            self.was_unavailable = true;
        }
    }

    /// Returns whether a task without a lease is considered to have lost its process.
    fn is_orphaned(&self, id: &str, now: Instant) -> bool {
        let since = self.unleased_since.get(id).copied().unwrap_or(now);
        self.is_exclusive
            || now >= since + ORPHAN_TIMEOUT && self.paused_until.is_none_or(|until| now >= until)
    }

    /// Returns the time until the next sweep.
    fn next_delay(&self, now: Instant) -> Duration {
        let delays = self
            .unleased_since
            .values()
            .map(|since| (*since + ORPHAN_TIMEOUT).saturating_duration_since(now));
        delays
            .filter(|delay| !delay.is_zero())
            .min()
            .map_or(SWEEP_INTERVAL, |delay| delay.min(SWEEP_INTERVAL))
    }
}

impl TasksInner {
    /// Starts the sweeper and the listener, once.
    pub(super) fn start_background(self: &Arc<TasksInner>) {
        if self.is_started.load(Ordering::Relaxed) || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        if self.is_started.swap(true, Ordering::AcqRel) {
            return;
        }
        let inner = Arc::clone(self);
        // Not tracked: both end with the server, and nothing waits for them.
        spawn::spawn_main(async move {
            tokio::select! {
                biased;
                () = inner.closed.cancelled() => {}
                () = inner.drain.cancelled() => {}
                () = inner.run_sweeper() => {}
            }
        });
        let inner = Arc::clone(self);
        spawn::spawn_main(async move {
            tokio::select! {
                biased;
                () = inner.closed.cancelled() => {}
                () = inner.run_listener() => {}
            }
        });
    }

    async fn run_sweeper(self: &Arc<TasksInner>) {
        let is_exclusive = self.store.backend.visibility() == Visibility::Durable;
        let mut scan = OrphanScan { is_exclusive, ..OrphanScan::default() };
        loop {
            if self.has_missed.swap(false, Ordering::Relaxed) {
                scan.on_gap(timer_now());
            }
            lock(&self.retention).remove_expired(timer_now());
            match self.sweep(&mut scan).await {
                Ok(()) => scan.is_exclusive = false,
                Err(error) => {
                    scan.was_unavailable = true;
                    tracing::debug!(%error, "cannot look for tasks without a process");
                }
            }
            let _ = tokio::time::timeout(scan.next_delay(timer_now()), self.released.notified()).await;
        }
    }

    /// Takes over tasks that no process runs.
    async fn sweep(self: &Arc<TasksInner>, scan: &mut OrphanScan) -> Result<(), StoreError> {
        let running = self.list_all(RUNNING_SPACE).await?;
        scan.on_store_recovered(timer_now());
        if running.is_empty() {
            scan.unleased_since.clear();
            return Ok(());
        }
        // Listed after `run`: every task found there had its lease before it was entered.
        let leases: HashMap<Box<str>, Entry> = self.list_all(LEASE_SPACE).await?.into_iter().collect();
        let is_valid = |lease: &Entry| !scan.is_exclusive || lease.value.starts_with(process_id().as_bytes());
        let mut unleased = Vec::new();
        for (name, entry) in running {
            let Some((owner, id)) = name.rsplit_once('.') else { continue };
            let lease = leases.get(id);
            if lease.is_some_and(is_valid) || lock(&self.running).active.contains_key(id) {
                continue;
            }
            let is_released = entry.value == RELEASED.as_bytes();
            unleased.push((owner.to_owned(), id.to_owned(), lease.map(|lease| lease.version), is_released));
        }
        let now = timer_now();
        let before = std::mem::take(&mut scan.unleased_since);
        for (_, id, ..) in &unleased {
            scan.unleased_since.insert(id.clone(), before.get(id).copied().unwrap_or(now));
        }
        for (owner, id, void_lease, is_released) in unleased {
            if scan.is_orphaned(&id, now) || is_released {
                self.take_over(&owner, &id, void_lease).await?;
            }
        }
        Ok(())
    }

    async fn list_all(&self, space: &str) -> Result<Vec<(Box<str>, Entry)>, StoreError> {
        let space = self.store.space(space);
        let mut found: Vec<(Box<str>, Entry)> = Vec::new();
        loop {
            let after = found.last().map(|(name, _)| name.clone());
            let page = self.store.backend.list(&space, after.as_deref(), LIST_BATCH).await?;
            let more = page.len() == LIST_BATCH;
            found.extend(page);
            if !more {
                return Ok(found);
            }
        }
    }

    /// Takes the lease of a task, then resumes or fails it. `void_lease` is the lease of a process known to be gone.
    async fn take_over(
        self: &Arc<TasksInner>,
        owner: &str,
        id: &str,
        void_lease: Option<EntryVersion>,
    ) -> Result<(), StoreError> {
        let key = self.store.key(LEASE_SPACE, id);
        let expect = void_lease.map_or(Expect::Absent, Expect::Is);
        let Some(lease) = self.store.backend.put(&key, self.lease_holder(), Some(LEASE_TTL), expect).await?
        else {
            return Ok(());
        };
        let owner: Arc<str> = owner.into();
        let found = self.find(&owner, id).await?.filter(|(record, _)| !record.is_final());
        let Some((record, version)) = found else {
            self.remove_running(&owner, id, Some(lease)).await;
            return Ok(());
        };
        let client = record.client().ok().map(Arc::new);
        let is_resumable =
            self.executor.is_resumable(&record.tool) && record.attempt < MAX_ATTEMPTS && client.is_some();
        let slot = is_resumable.then(|| self.reserve(&owner).ok()).flatten();
        if is_resumable && slot.is_none() {
            // This process is full. Another one may have room.
            self.store.backend.delete(&key, Expect::Is(lease)).await?;
            return Ok(());
        }
        let failure = match (self.executor.is_resumable(&record.tool), is_resumable) {
            (true, false) => {
                "it was begun three times, and each time the process that ran it ended before it was done"
            }
            _ => "interrupted: the process that ran the task ended before it was done",
        };
        // Only retry or end the attempt we observed.
        let attempt = record.attempt;
        let mut retry_or_end = |record: &mut TaskRecord| {
            if record.is_final() || record.attempt != attempt {
                return false;
            }
            if is_resumable {
                record.retry();
                return true;
            }
            record.end(TaskStatus::Failed, Some(failure.to_owned()), None)
        };
        let updated = self.update_record(&owner, id, Some((record, version)), &mut retry_or_end).await?;
        match (updated.filter(|updated| updated.is_changed), slot, client) {
            (Some(updated), Some(slot), Some(client)) if !updated.record.is_final() => {
                let record = updated.record;
                tracing::info!(id, tool = record.tool, attempt = record.attempt, "resuming a task");
                let caller = resumed_caller(&owner, client, &record);
                let active = ActiveTask::new(self, owner, record, updated.version, true, None);
                self.mark_running(&active).await;
                self.spawn_task(slot, active, caller, lease);
            }
            (Some(updated), ..) => {
                tracing::warn!(id, "a task lost its process and has failed");
                self.remove_running(&owner, id, Some(lease)).await;
                self.retain_finished(&owner, &updated.record).await;
            }
            // It has ended meanwhile, or another process runs it. The next sweep finds out.
            (None, ..) => {
                self.store.backend.delete(&key, Expect::Is(lease)).await?;
            }
        }
        Ok(())
    }

    async fn run_listener(&self) {
        let channel = self.store.space(TASK_CHANNEL);
        loop {
            if let Ok(mut listener) = self.store.backend.subscribe(&channel).await {
                self.wake_all();
                while let Some(event) = listener.next().await {
                    match event {
                        ChannelEvent::Message(message) => self.on_message(&message),
                        ChannelEvent::Lagged => {
                            self.has_missed.store(true, Ordering::Relaxed);
                            self.wake_all();
                        }
                    }
                }
            }
            self.has_missed.store(true, Ordering::Relaxed);
            sleep(SWEEP_INTERVAL).await;
        }
    }

    /// Handles a message of another process.
    fn on_message(&self, message: &[u8]) {
        let Ok(text) = std::str::from_utf8(message) else { return };
        let mut parts = text.split('\n');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(node), ..) if node == &*self.node => {}
            (_, Some(owner), Some(id)) => self.notify(owner, id, ChangedBy::Other),
            (_, Some(RELEASED), None) => self.released.notify_one(),
            _ => {}
        }
    }

    /// Makes all running tasks and all waiters read their records, because messages may have been missed.
    fn wake_all(&self) {
        let active: Vec<_> = lock(&self.running).active.values().cloned().collect();
        active.iter().for_each(|active| active.wake());
        let waiters: Vec<_> = lock(&self.waiters).values().cloned().collect();
        waiters.iter().for_each(|waiter| waiter.notify_waiters());
    }
}

/// Restores the caller of a task from its record.
fn resumed_caller(owner: &Arc<str>, client: Arc<Client>, record: &TaskRecord) -> Caller {
    Caller {
        principal: record.principal(),
        client,
        extensions: None,
        headers: Arc::default(),
        remote_addr: None,
        meta: task_meta(&record.task.id, record.meta.clone()),
        requires_header_params: false,
        is_lenient: false,
        rejects_unknown_arguments: false,
        allows_empty_lists: false,
        other_arguments: None,
        task_support: ClientTaskSupport::Unsupported,
        owner: Some(Arc::clone(owner)),
    }
}
