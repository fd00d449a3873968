//! Looking after tasks that lost their process, and hearing of changes elsewhere.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use toolgate_wire::model::TaskStatus;

use super::desk::Desk;
use super::record::Record;
use super::run::RENEW;
use super::{CHANNEL, Core, LEASE, LEASES, LEFT, RUN, lock, told_by};
use crate::clock::timer_now;
use crate::maps::NameMap;
use crate::request::{Caller, ClientTaskSupport};
use crate::store::{Entry, Expect, Heard, Reach, StoreError, Version};
use crate::tracker;

/// How often is looked.
const SWEEP: Duration = Duration::from_secs(5);
/// How long a lease must be missing: whoever is alive puts it back in that time.
const SURE: Duration = Duration::from_secs(RENEW.as_secs() + 1);
/// A gap on the channel counts so often at most: who misses much of what is said must not wait for ever.
const GAPS: Duration = Duration::from_secs(60);
/// How often a task is begun at most.
const ATTEMPTS: u64 = 3;
/// How many names are fetched at once.
const MANY: usize = 512;

/// What one who looks remembers until he looks again.
#[derive(Debug, Default)]
struct Patrol {
    /// Whoever held a lease in another process is gone: only one process at a time sees the store.
    alone: bool,
    /// Since when tasks are known to have no lease. Bounded by what is under way.
    missing: NameMap<Instant>,
    /// The store was away. Whoever could not renew his lease meanwhile is given the time to do so.
    was_away: bool,
    /// Nothing is taken over before.
    quiet: Option<Instant>,
    /// When a gap counted last.
    gap: Option<Instant>,
}

impl Patrol {
    /// The store has answered.
    fn is_back(&mut self, now: Instant) {
        if std::mem::take(&mut self.was_away) {
            self.quiet = Some(now + LEASE);
        }
    }

    /// Something was missed on the channel, so perhaps the store was away.
    fn heard_gap(&mut self, now: Instant) {
        if self.gap.is_none_or(|gap| now >= gap + GAPS) {
            self.gap = Some(now);
            self.was_away = true;
        }
    }

    /// Whether a task without a lease has lost its process, as far as anybody can tell now.
    fn is_lost(&self, id: &str, now: Instant) -> bool {
        let since = self.missing.get(id).copied().unwrap_or(now);
        self.alone || now >= since + SURE && self.quiet.is_none_or(|quiet| now >= quiet)
    }

    /// How long until it is worth another look.
    fn pause(&self, now: Instant) -> Duration {
        let sure = self.missing.values().map(|since| (*since + SURE).saturating_duration_since(now));
        sure.filter(|left| !left.is_zero()).min().map_or(SWEEP, |left| left.min(SWEEP))
    }
}

impl Core {
    /// Begins to look and to listen, once.
    pub(super) fn rise(self: &Arc<Core>) {
        if self.is_up.load(Ordering::Relaxed) || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        if self.is_up.swap(true, Ordering::AcqRel) {
            return;
        }
        let core = Arc::clone(self);
        // Not tracked: these two end with the house, and nothing waits for them.
        tracker::spawn_main(async move {
            tokio::select! {
                biased;
                () = core.over.cancelled() => {}
                () = core.drain.cancelled() => {}
                () = core.keep_sweeping() => {}
            }
        });
        let core = Arc::clone(self);
        tracker::spawn_main(async move {
            tokio::select! {
                biased;
                () = core.over.cancelled() => {}
                () = core.keep_listening() => {}
            }
        });
    }

    async fn keep_sweeping(self: &Arc<Core>) {
        // Only one process at a time sees such a store, so whoever held a lease in another one is gone.
        let alone = self.cellar.store.reach() == Reach::Restart;
        let mut patrol = Patrol { alone, ..Patrol::default() };
        loop {
            if self.missed.swap(false, Ordering::Relaxed) {
                patrol.heard_gap(timer_now());
            }
            lock(&self.kept).forget(timer_now());
            match self.sweep(&mut patrol).await {
                Ok(()) => patrol.alone = false,
                Err(error) => {
                    patrol.was_away = true;
                    tracing::debug!(%error, "tasks could not be looked after");
                }
            }
            let _ = tokio::time::timeout(patrol.pause(timer_now()), self.left.notified()).await;
        }
    }

    /// Takes over what nobody runs.
    async fn sweep(self: &Arc<Core>, patrol: &mut Patrol) -> Result<(), StoreError> {
        let under_way = self.all(RUN).await?;
        patrol.is_back(timer_now());
        if under_way.is_empty() {
            patrol.missing = NameMap::default();
            return Ok(());
        }
        // Asked for after the others: whatever is under way had its lease before that was known.
        let leases = self.all(LEASES).await?;
        let lease_of = |id: &str| {
            let place = leases.binary_search_by(|(name, _)| (**name).cmp(id));
            place.ok().map(|place| &leases[place].1)
        };
        let holds = |lease: &Entry| !patrol.alone || lease.value.starts_with(super::process().as_bytes());
        let mut lost = Vec::new();
        for (name, entry) in under_way {
            let Some((owner, id)) = name.rsplit_once('.') else { continue };
            let lease = lease_of(id);
            if lease.is_some_and(holds) || lock(&self.running).desks.contains_key(id) {
                continue;
            }
            let was_left = entry.value == LEFT.as_bytes();
            lost.push((owner.to_owned(), id.to_owned(), lease.map(|lease| lease.version), was_left));
        }
        let now = timer_now();
        let before = std::mem::take(&mut patrol.missing);
        for (_, id, ..) in &lost {
            patrol.missing.insert(id, before.get(id).copied().unwrap_or(now));
        }
        for (owner, id, lease, was_left) in lost {
            if patrol.is_lost(&id, now) || was_left {
                self.take_over(&owner, &id, lease).await?;
            }
        }
        Ok(())
    }

    async fn all(&self, space: &str) -> Result<Vec<(Box<str>, Entry)>, StoreError> {
        let space = self.cellar.space(space);
        let mut found: Vec<(Box<str>, Entry)> = Vec::new();
        loop {
            let after = found.last().map(|(name, _)| name.clone());
            let page = self.cellar.store.list(&space, after.as_deref(), MANY).await?;
            let more = page.len() == MANY;
            found.extend(page);
            if !more {
                return Ok(found);
            }
        }
    }

    /// `void`: the lease of somebody who is known to be gone.
    async fn take_over(
        self: &Arc<Core>,
        owner: &str,
        id: &str,
        void: Option<Version>,
    ) -> Result<(), StoreError> {
        let key = self.cellar.key(LEASES, id);
        let expect = void.map_or(Expect::Absent, Expect::Is);
        let Some(lease) = self.cellar.store.put(&key, self.lease_bytes(), Some(LEASE), expect).await? else {
            return Ok(());
        };
        let owner: Arc<str> = owner.into();
        let found = self.find(&owner, id).await?.filter(|(record, _)| !record.is_final());
        let Some((record, version)) = found else {
            self.clear(&owner, id, Some(lease)).await;
            return Ok(());
        };
        let client = record.client().ok().map(Arc::new);
        let resumable = self.crew.is_resumable(&record.tool) && record.attempt < ATTEMPTS && client.is_some();
        let place = resumable.then(|| self.reserve(&owner).ok()).flatten();
        if resumable && place.is_none() {
            // No room here. Somebody else may have some.
            self.cellar.store.delete(&key, Expect::Is(lease)).await?;
            return Ok(());
        }
        let given_up = match (self.crew.is_resumable(&record.tool), resumable) {
            (true, false) => {
                "it was begun three times, and each time the process that ran it ended before it was done"
            }
            _ => "interrupted: the process that ran the task ended before it was done",
        };
        // Only that run is over which was seen.
        let attempt = record.attempt;
        let mut begin_or_end = |record: &mut Record| {
            if record.is_final() || record.attempt != attempt {
                return false;
            }
            if resumable {
                record.retry();
                return true;
            }
            record.end(TaskStatus::Failed, Some(given_up.to_owned()), None)
        };
        let amended = self.amend(&owner, id, Some((record, version)), &mut begin_or_end).await?;
        match (amended.filter(|amended| amended.changed), place, client) {
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
                    meta: told_by(id, amended.record.meta.clone()),
                    requires_header_params: false,
                    is_lenient: false,
                    allows_empty_lists: false,
                    other_arguments: None,
                    task_support: ClientTaskSupport::Unsupported,
                    owner: Some(Arc::clone(&owner)),
                };
                let desk = Desk::new(self, owner, amended.record, amended.version, true);
                self.enter(&desk).await;
                self.seat(place, desk, caller, lease);
            }
            (Some(amended), ..) => {
                tracing::warn!(id, "a task lost its process and has failed");
                self.clear(&owner, id, Some(lease)).await;
                self.shelve(&owner, &amended.record).await;
            }
            // It has ended meanwhile, or somebody else runs it. The next look tells which.
            (None, ..) => {
                self.cellar.store.delete(&key, Expect::Is(lease)).await?;
            }
        }
        Ok(())
    }

    async fn keep_listening(&self) {
        let channel = self.cellar.space(CHANNEL);
        loop {
            if let Ok(mut listener) = self.cellar.store.subscribe(&channel).await {
                self.look_around();
                while let Some(heard) = listener.next().await {
                    match heard {
                        Heard::Message(message) => self.hear(&message),
                        Heard::Gap => {
                            self.missed.store(true, Ordering::Relaxed);
                            self.look_around();
                        }
                    }
                }
            }
            self.missed.store(true, Ordering::Relaxed);
            sleep(SWEEP).await;
        }
    }

    /// What another process has changed.
    fn hear(&self, message: &[u8]) {
        let Ok(text) = std::str::from_utf8(message) else { return };
        let mut parts = text.split('\n');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(node), ..) if node == &*self.node => {}
            (_, Some(owner), Some(id)) => self.stir(owner, id, false),
            (_, Some(LEFT), None) => self.left.notify_one(),
            _ => {}
        }
    }

    /// Something may have been missed: everybody looks for himself.
    fn look_around(&self) {
        let desks: Vec<_> = lock(&self.running).desks.values().cloned().collect();
        desks.iter().for_each(|desk| desk.nudge());
        let waiting: Vec<_> = lock(&self.waiting).values().cloned().collect();
        waiting.iter().for_each(|waiting| waiting.notify_waiters());
    }
}
