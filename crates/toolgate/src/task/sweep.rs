//! Looking after tasks that lost their process, and hearing of changes elsewhere.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;
use toolgate_wire::model::TaskState;

use super::desk::Desk;
use super::{CHANNEL, Core, LEASE, LEASES, LEFT, RUN, lock, told_by};
use crate::request::{Caller, TaskWay};
use crate::store::{Entry, Expect, Heard, Reach, StoreError};

/// How often is looked.
const SWEEP: Duration = Duration::from_secs(5);
/// How often a task is begun at most.
const ATTEMPTS: u64 = 3;
/// How many names are fetched at once.
const MANY: usize = 512;

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
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = core.over.cancelled() => {}
                () = core.drain.cancelled() => {}
                () = core.keep_sweeping() => {}
            }
        });
        let core = Arc::clone(self);
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = core.over.cancelled() => {}
                () = core.keep_listening() => {}
            }
        });
    }

    async fn keep_sweeping(self: &Arc<Core>) {
        // Only one process at a time sees such a store, so whoever held a lease is gone.
        let mut alone = self.cellar.store.reach() == Reach::Restart;
        loop {
            match self.sweep(alone).await {
                Ok(()) => alone = false,
                Err(error) => tracing::debug!(%error, "tasks could not be looked after"),
            }
            let _ = tokio::time::timeout(SWEEP, self.left.notified()).await;
        }
    }

    /// Takes over what nobody runs.
    pub(super) async fn sweep(self: &Arc<Core>, alone: bool) -> Result<(), StoreError> {
        let under_way = self.all(RUN).await?;
        if under_way.is_empty() {
            return Ok(());
        }
        // Asked for after the others: whatever is under way had its lease before that was known.
        let leases = self.all(LEASES).await?.into_iter();
        let holds = |entry: &Entry| !alone || entry.value == self.node.as_bytes();
        let leased: HashSet<Box<str>> = leases.filter(|(_, lease)| holds(lease)).map(|(id, _)| id).collect();
        for (name, _) in under_way {
            let Some((owner, id)) = name.rsplit_once('.') else { continue };
            if leased.contains(id) || lock(&self.running).desks.contains_key(id) {
                continue;
            }
            self.take_over(owner, id, alone).await?;
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

    async fn take_over(self: &Arc<Core>, owner: &str, id: &str, alone: bool) -> Result<(), StoreError> {
        let key = self.cellar.key(LEASES, id);
        let expect = if alone { Expect::Anything } else { Expect::Absent };
        let Some(lease) = self.cellar.store.put(&key, self.node_bytes(), Some(LEASE), expect).await? else {
            return Ok(());
        };
        let owner: Arc<str> = owner.into();
        let Some((record, version)) = self.find(&owner, id).await? else {
            self.clear(&owner, id).await;
            return Ok(());
        };
        if record.is_final() {
            self.clear(&owner, id).await;
            return Ok(());
        }
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
        let amended = self
            .amend(&owner, id, Some((record, version)), |record| {
                if resumable && !record.is_final() {
                    record.retry();
                    return true;
                }
                record.end(TaskState::Failed, Some(given_up.to_owned()), None)
            })
            .await?;
        match (amended, place, client) {
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
                    remote: None,
                    meta: told_by(id, amended.record.meta.clone()),
                    mirrors: false,
                    lenient: false,
                    given: std::collections::BTreeMap::new(),
                    tasks: TaskWay::Never,
                    owner: Some(Arc::clone(&owner)),
                };
                let desk = Desk::new(self, owner, amended.record, amended.version, true);
                self.seat(place, desk, caller, lease);
            }
            _ => {
                tracing::warn!(id, "a task lost its process and has failed");
                self.clear(&owner, id).await;
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
                        Heard::Gap => self.look_around(),
                    }
                }
            }
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
