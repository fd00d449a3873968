//! Looking after tasks that lost their process, and hearing of changes elsewhere.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use toolgate_wire::model::TaskStatus;

use super::active::ActiveTask;
use super::record::TaskRecord;
use super::run::LEASE_RENEW_INTERVAL;
use super::{LEASE_SPACE, LEASE_TTL, RELEASED, RUNNING_SPACE, TASK_CHANNEL, TasksInner, lock, task_meta};
use crate::request::{Caller, ClientTaskSupport};
use crate::store::{ChannelEvent, Entry, EntryVersion, Expect, StoreError, Visibility};
use crate::util::clock::timer_now;
use crate::util::spawn;

/// How often is looked.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// How long a lease must be missing: whoever is alive puts it back in that time.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(LEASE_RENEW_INTERVAL.as_secs() + 1);
/// A gap on the channel counts so often at most: who misses much of what is said must not wait for ever.
const MIN_GAP_INTERVAL: Duration = Duration::from_secs(60);
/// How often a task is begun at most.
const MAX_ATTEMPTS: u64 = 3;
/// How many names are fetched at once.
const LIST_BATCH: usize = 512;

/// What one who looks remembers until he looks again.
#[derive(Debug, Default)]
struct OrphanScan {
    /// Whoever held a lease in another process is gone: only one process at a time sees the store.
    is_exclusive: bool,
    /// Since when tasks are known to have no lease. Bounded by what is under way.
    unleased_since: HashMap<String, Instant>,
    /// The store was away. Whoever could not renew his lease meanwhile is given the time to do so.
    was_unavailable: bool,
    /// Nothing is taken over before.
    paused_until: Option<Instant>,
    /// When a gap counted last.
    last_gap: Option<Instant>,
}

impl OrphanScan {
    /// The store has answered.
    fn on_store_recovered(&mut self, now: Instant) {
        if std::mem::take(&mut self.was_unavailable) {
            self.paused_until = Some(now + LEASE_TTL);
        }
    }

    /// Something was missed on the channel, so perhaps the store was away.
    fn on_gap(&mut self, now: Instant) {
        if self.last_gap.is_none_or(|gap| now >= gap + MIN_GAP_INTERVAL) {
            self.last_gap = Some(now);
            self.was_unavailable = true;
        }
    }

    /// Whether a task without a lease has lost its process, as far as anybody can tell now.
    fn is_orphaned(&self, id: &str, now: Instant) -> bool {
        let since = self.unleased_since.get(id).copied().unwrap_or(now);
        self.is_exclusive
            || now >= since + ORPHAN_TIMEOUT && self.paused_until.is_none_or(|quiet| now >= quiet)
    }

    /// How long until it is worth another look.
    fn next_delay(&self, now: Instant) -> Duration {
        let sure = self
            .unleased_since
            .values()
            .map(|since| (*since + ORPHAN_TIMEOUT).saturating_duration_since(now));
        sure.filter(|left| !left.is_zero()).min().map_or(SWEEP_INTERVAL, |left| left.min(SWEEP_INTERVAL))
    }
}

impl TasksInner {
    /// Begins to look and to listen, once.
    pub(super) fn start_background(self: &Arc<TasksInner>) {
        if self.is_started.load(Ordering::Relaxed) || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        if self.is_started.swap(true, Ordering::AcqRel) {
            return;
        }
        let core = Arc::clone(self);
        // Not tracked: these two end with the house, and nothing waits for them.
        spawn::spawn_main(async move {
            tokio::select! {
                biased;
                () = core.closed.cancelled() => {}
                () = core.drain.cancelled() => {}
                () = core.run_sweeper() => {}
            }
        });
        let core = Arc::clone(self);
        spawn::spawn_main(async move {
            tokio::select! {
                biased;
                () = core.closed.cancelled() => {}
                () = core.run_listener() => {}
            }
        });
    }

    async fn run_sweeper(self: &Arc<TasksInner>) {
        // Only one process at a time sees such a store, so whoever held a lease in another one is gone.
        let alone = self.store.backend.visibility() == Visibility::Durable;
        let mut patrol = OrphanScan { is_exclusive: alone, ..OrphanScan::default() };
        loop {
            if self.has_missed.swap(false, Ordering::Relaxed) {
                patrol.on_gap(timer_now());
            }
            lock(&self.retention).remove_expired(timer_now());
            match self.sweep(&mut patrol).await {
                Ok(()) => patrol.is_exclusive = false,
                Err(error) => {
                    patrol.was_unavailable = true;
                    tracing::debug!(%error, "tasks could not be looked after");
                }
            }
            let _ = tokio::time::timeout(patrol.next_delay(timer_now()), self.released.notified()).await;
        }
    }

    /// Takes over what nobody runs.
    async fn sweep(self: &Arc<TasksInner>, patrol: &mut OrphanScan) -> Result<(), StoreError> {
        let under_way = self.list_all(RUNNING_SPACE).await?;
        patrol.on_store_recovered(timer_now());
        if under_way.is_empty() {
            patrol.unleased_since = HashMap::new();
            return Ok(());
        }
        // Asked for after the others: whatever is under way had its lease before that was known.
        let leases = self.list_all(LEASE_SPACE).await?;
        let lease_of = |id: &str| {
            let place = leases.binary_search_by(|(name, _)| (**name).cmp(id));
            place.ok().map(|place| &leases[place].1)
        };
        let holds =
            |lease: &Entry| !patrol.is_exclusive || lease.value.starts_with(super::process_id().as_bytes());
        let mut lost = Vec::new();
        for (name, entry) in under_way {
            let Some((owner, id)) = name.rsplit_once('.') else { continue };
            let lease = lease_of(id);
            if lease.is_some_and(holds) || lock(&self.running).active.contains_key(id) {
                continue;
            }
            let was_left = entry.value == RELEASED.as_bytes();
            lost.push((owner.to_owned(), id.to_owned(), lease.map(|lease| lease.version), was_left));
        }
        let now = timer_now();
        let before = std::mem::take(&mut patrol.unleased_since);
        for (_, id, ..) in &lost {
            patrol.unleased_since.insert(id.clone(), before.get(id).copied().unwrap_or(now));
        }
        for (owner, id, lease, was_left) in lost {
            if patrol.is_orphaned(&id, now) || was_left {
                self.take_over(&owner, &id, lease).await?;
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

    /// `void`: the lease of somebody who is known to be gone.
    async fn take_over(
        self: &Arc<TasksInner>,
        owner: &str,
        id: &str,
        void: Option<EntryVersion>,
    ) -> Result<(), StoreError> {
        let key = self.store.key(LEASE_SPACE, id);
        let expect = void.map_or(Expect::Absent, Expect::Is);
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
        let resumable =
            self.executor.is_resumable(&record.tool) && record.attempt < MAX_ATTEMPTS && client.is_some();
        let place = resumable.then(|| self.reserve(&owner).ok()).flatten();
        if resumable && place.is_none() {
            // No room here. Somebody else may have some.
            self.store.backend.delete(&key, Expect::Is(lease)).await?;
            return Ok(());
        }
        let given_up = match (self.executor.is_resumable(&record.tool), resumable) {
            (true, false) => {
                "it was begun three times, and each time the process that ran it ended before it was done"
            }
            _ => "interrupted: the process that ran the task ended before it was done",
        };
        // Only that run is over which was seen.
        let attempt = record.attempt;
        let mut begin_or_end = |record: &mut TaskRecord| {
            if record.is_final() || record.attempt != attempt {
                return false;
            }
            if resumable {
                record.retry();
                return true;
            }
            record.end(TaskStatus::Failed, Some(given_up.to_owned()), None)
        };
        let amended = self.update_record(&owner, id, Some((record, version)), &mut begin_or_end).await?;
        match (amended.filter(|amended| amended.is_changed), place, client) {
            (Some(amended), Some(place), Some(client)) if !amended.record.is_final() => {
                tracing::info!(
                    id,
                    tool = amended.record.tool,
                    attempt = amended.record.attempt,
                    "a task runs again"
                );
                let caller = Caller {
                    principal: amended.record.principal(),
                    client,
                    headers: Arc::default(),
                    remote_addr: None,
                    meta: task_meta(id, amended.record.meta.clone()),
                    requires_header_params: false,
                    is_lenient: false,
                    allows_empty_lists: false,
                    other_arguments: None,
                    task_support: ClientTaskSupport::Unsupported,
                    owner: Some(Arc::clone(&owner)),
                };
                let desk = ActiveTask::new(self, owner, amended.record, amended.version, true);
                self.mark_running(&desk).await;
                self.spawn_task(place, desk, caller, lease);
            }
            (Some(amended), ..) => {
                tracing::warn!(id, "a task lost its process and has failed");
                self.remove_running(&owner, id, Some(lease)).await;
                self.retain_finished(&owner, &amended.record).await;
            }
            // It has ended meanwhile, or somebody else runs it. The next look tells which.
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
                while let Some(heard) = listener.next().await {
                    match heard {
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

    /// What another process has changed.
    fn on_message(&self, message: &[u8]) {
        let Ok(text) = std::str::from_utf8(message) else { return };
        let mut parts = text.split('\n');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(node), ..) if node == &*self.node => {}
            (_, Some(owner), Some(id)) => self.notify(owner, id, false),
            (_, Some(RELEASED), None) => self.released.notify_one(),
            _ => {}
        }
    }

    /// Something may have been missed: everybody looks for himself.
    fn wake_all(&self) {
        let desks: Vec<_> = lock(&self.running).active.values().cloned().collect();
        desks.iter().for_each(|desk| desk.wake());
        let waiting: Vec<_> = lock(&self.waiters).values().cloned().collect();
        waiting.iter().for_each(|waiting| waiting.notify_waiters());
    }
}
