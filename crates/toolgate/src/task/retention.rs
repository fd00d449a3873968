//! Limits how many ended tasks are kept.
//!
//! A result is kept for its owner until its TTL ends. An owner that starts more tasks than it fetches would fill the
//! store for everyone, so each owner has a limit of tasks and bytes; beyond it, the oldest task is evicted early. Each
//! process counts the tasks that ended in it.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;

use super::TaskLimits;

/// Limit of the counted tasks of all owners together.
const MAX_FINISHED_TASKS: usize = if cfg!(test) { 100 } else { 100_000 };

/// The ended tasks of all owners.
#[derive(Debug, Default)]
pub(super) struct Retention {
    owners: HashMap<Arc<str>, OwnerTasks>,
    total: usize,
}

/// The ended tasks of one owner, oldest first.
#[derive(Debug, Default)]
struct OwnerTasks {
    finished: VecDeque<FinishedTask>,
    bytes: usize,
}

/// A task that has ended.
#[derive(Debug)]
pub(super) struct FinishedTask {
    pub(super) id: Box<str>,
    pub(super) bytes: usize,
    /// When its record expires.
    pub(super) expires_at: Instant,
}

impl Retention {
    /// Adds a task that has ended. Returns the owners and ids of the tasks to delete, which never include the new one.
    pub(super) fn add(
        &mut self,
        owner: &str,
        finished: FinishedTask,
        limits: &TaskLimits,
    ) -> Vec<(Arc<str>, Box<str>)> {
        let owner: Arc<str> = owner.into();
        let tasks = self.owners.entry(Arc::clone(&owner)).or_default();
        tasks.bytes = tasks.bytes.saturating_add(finished.bytes);
        tasks.finished.push_back(finished);
        self.total += 1;
        let mut evicted = Vec::new();
        while tasks.finished.len() > 1
            && (tasks.finished.len() > limits.max_finished || tasks.bytes > limits.max_finished_bytes)
            && let Some(id) = tasks.pop_oldest()
        {
            self.total -= 1;
            evicted.push((Arc::clone(&owner), id));
        }
        if self.total > MAX_FINISHED_TASKS {
            evicted.extend(self.evict_globally(&owner));
        }
        evicted
    }

    /// Evicts the oldest task of the owner with the most tasks, of several such owners the one that expires first.
    ///
    /// The only task of `newest_owner` is the one just added, and stays.
    fn evict_globally(&mut self, newest_owner: &Arc<str>) -> Option<(Arc<str>, Box<str>)> {
        let candidates = self
            .owners
            .iter_mut()
            .filter(|(owner, tasks)| *owner != newest_owner || tasks.finished.len() > 1);
        let (owner, tasks) = candidates.max_by_key(|(_, tasks)| {
            (tasks.finished.len(), Reverse(tasks.finished.front().map(|task| task.expires_at)))
        })?;
        let id = tasks.pop_oldest()?;
        let (owner, is_empty) = (Arc::clone(owner), tasks.finished.is_empty());
        self.total -= 1;
        if is_empty {
            self.owners.remove(&owner);
        }
        Some((owner, id))
    }

    /// Stops counting tasks whose records have expired.
    pub(super) fn remove_expired(&mut self, now: Instant) {
        self.owners.retain(|_, tasks| {
            tasks.finished.retain(|task| task.expires_at > now);
            tasks.bytes = tasks.finished.iter().map(|task| task.bytes).sum();
            !tasks.finished.is_empty()
        });
        self.total = self.owners.values().map(|tasks| tasks.finished.len()).sum();
    }
}

impl OwnerTasks {
    /// Removes the oldest task and returns its id.
    fn pop_oldest(&mut self) -> Option<Box<str>> {
        let oldest = self.finished.pop_front()?;
        self.bytes = self.bytes.saturating_sub(oldest.bytes);
        Some(oldest.id)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::util::clock::timer_now;

    #[tokio::test(start_paused = true)]
    async fn the_oldest_task_of_the_same_owner_is_evicted() {
        let limits = TaskLimits { max_finished: 3, max_finished_bytes: 100, ..TaskLimits::default() };
        let mut retention = Retention::default();
        let mut add = |owner: &str, id: &str, bytes: usize| {
            let expires_at = timer_now() + Duration::from_secs(60);
            let evicted = retention.add(owner, FinishedTask { id: id.into(), bytes, expires_at }, &limits);
            evicted.into_iter().map(|(owner, id)| format!("{owner} {id}")).collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        for id in ["1", "2", "3"] {
            assert_eq!(add("ada", id, 10), none);
            assert_eq!(add("bob", id, 10), none);
        }
        assert_eq!(add("ada", "4", 10), ["ada 1"], "too many");
        assert_eq!(add("ada", "5", 85), ["ada 2", "ada 3"], "too large");
        assert_eq!(add("ada", "6", 1000), ["ada 4", "ada 5"], "the newest stays, however large");
        tokio::time::advance(Duration::from_secs(61)).await;
        retention.remove_expired(timer_now());
        assert_eq!((retention.total, retention.owners.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn with_one_task_per_owner_the_oldest_is_evicted_and_never_the_newest() {
        let (limits, mut retention) = (TaskLimits::default(), Retention::default());
        for number in 0..3 * MAX_FINISHED_TASKS {
            tokio::time::advance(Duration::from_millis(1)).await;
            let (expires_at, id) = (timer_now() + Duration::from_secs(60), format!("task {number}"));
            let evicted = retention.add(
                &format!("owner {number}"),
                FinishedTask { id: id.into(), bytes: 1, expires_at },
                &limits,
            );
            let expected = number.checked_sub(MAX_FINISHED_TASKS).map(|oldest| format!("task {oldest}"));
            assert_eq!(evicted.first().map(|(_, id)| id.to_string()), expected);
            assert!(
                evicted.len() <= 1
                    && retention.owners.len() <= MAX_FINISHED_TASKS
                    && retention.total <= MAX_FINISHED_TASKS
            );
        }
    }
}
