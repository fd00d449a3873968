//! How much is kept of what has ended.
//!
//! A result waits for its owner until its time is over. One who begins more than he fetches would fill the store for
//! everybody, so each owner has room for so many, and so many bytes; for the next one the oldest goes early. Each
//! process counts what has ended in it.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;

use super::TaskLimits;

/// How many are counted, of all owners together.
const MAX_FINISHED_TASKS: usize = if cfg!(test) { 100 } else { 100_000 };

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Retention {
    owners: HashMap<Arc<str>, OwnerTasks>,
    total: usize,
}

/// What one owner has, oldest first.
#[derive(Debug, Default)]
struct OwnerTasks {
    finished: VecDeque<FinishedTask>,
    bytes: usize,
}

#[derive(Debug)]
pub(super) struct FinishedTask {
    pub(super) id: Box<str>,
    pub(super) bytes: usize,
    /// When it is forgotten anyway.
    pub(super) expires_at: Instant,
}

impl Retention {
    /// One more has ended. Gives what has to go for it, never itself.
    pub(super) fn add(
        &mut self,
        owner: &str,
        ended: FinishedTask,
        limits: &TaskLimits,
    ) -> Vec<(Arc<str>, Box<str>)> {
        let shelf = self.owners.entry(owner.into()).or_default();
        shelf.bytes = shelf.bytes.saturating_add(ended.bytes);
        shelf.finished.push_back(ended);
        self.total += 1;
        let mut gone = Vec::new();
        while shelf.finished.len() > 1
            && (shelf.finished.len() > limits.max_finished || shelf.bytes > limits.max_finished_bytes)
            && let Some(id) = shelf.pop_oldest()
        {
            self.total -= 1;
            gone.push((owner.into(), id));
        }
        if self.total > MAX_FINISHED_TASKS {
            // Whoever has the most can spare one; of equals, the one whose oldest would go first. The one just added stays.
            let others =
                self.owners.iter_mut().filter(|(name, shelf)| &***name != owner || shelf.finished.len() > 1);
            let fullest = others.max_by_key(|(_, shelf)| {
                (shelf.finished.len(), Reverse(shelf.finished.front().map(|ended| ended.expires_at)))
            });
            if let Some((owner, shelf)) = fullest
                && let Some(id) = shelf.pop_oldest()
            {
                let (owner, is_bare) = (Arc::clone(owner), shelf.finished.is_empty());
                self.total -= 1;
                if is_bare {
                    self.owners.remove(&owner);
                }
                gone.push((owner, id));
            }
        }
        gone
    }

    /// Counts no longer what is forgotten by now.
    pub(super) fn remove_expired(&mut self, now: Instant) {
        for shelf in self.owners.values_mut() {
            shelf.finished.retain(|ended| ended.expires_at > now);
            shelf.bytes = shelf.finished.iter().map(|ended| ended.bytes).sum();
        }
        self.owners.retain(|_, shelf| !shelf.finished.is_empty());
        self.total = self.owners.values().map(|shelf| shelf.finished.len()).sum();
    }
}

impl OwnerTasks {
    /// Takes the oldest away.
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
    async fn the_oldest_goes_and_nobody_elses() {
        let limits = TaskLimits { max_finished: 3, max_finished_bytes: 100, ..TaskLimits::default() };
        let mut kept = Retention::default();
        let mut add = |owner: &str, id: &str, bytes: usize| {
            let until = timer_now() + Duration::from_secs(60);
            let gone = kept.add(owner, FinishedTask { id: id.into(), bytes, expires_at: until }, &limits);
            gone.into_iter().map(|(owner, id)| format!("{owner} {id}")).collect::<Vec<_>>()
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
        kept.remove_expired(timer_now());
        assert_eq!((kept.total, kept.owners.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn where_nobody_can_spare_one_the_oldest_goes_and_never_the_newest() {
        let (limits, mut kept) = (TaskLimits::default(), Retention::default());
        for number in 0..3 * MAX_FINISHED_TASKS {
            tokio::time::advance(Duration::from_millis(1)).await;
            let (until, id) = (timer_now() + Duration::from_secs(60), format!("task {number}"));
            let gone = kept.add(
                &format!("owner {number}"),
                FinishedTask { id: id.into(), bytes: 1, expires_at: until },
                &limits,
            );
            let expected = number.checked_sub(MAX_FINISHED_TASKS).map(|oldest| format!("task {oldest}"));
            assert_eq!(gone.first().map(|(_, id)| id.to_string()), expected);
            assert!(
                gone.len() <= 1
                    && kept.owners.len() <= MAX_FINISHED_TASKS
                    && kept.total <= MAX_FINISHED_TASKS
            );
        }
    }
}
