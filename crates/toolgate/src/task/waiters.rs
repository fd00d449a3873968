//! Publishing changes of tasks, and waiting for them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::{RELEASED, TASK_CHANNEL, TasksInner};
use crate::subscriptions::ChangeTopic;
use crate::util::lock;

/// How often a waiter reads the record itself, in case a message was lost.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(3);

/// The author of a change of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangedBy {
    /// The process that runs the task, which knows its own changes.
    Runner,
    /// A client, or another process.
    Other,
}

/// Waits for changes of one task.
pub(super) struct TaskWaiter<'a> {
    tasks: &'a TasksInner,
    id: &'a str,
    notify: Arc<Notify>,
}

impl TasksInner {
    /// Notifies the waiters of a changed task: those in this process at once, those in others through the store.
    pub(super) fn publish_change(&self, owner: &str, id: &str, changed_by: ChangedBy) {
        self.notify(owner, id, changed_by);
        let message = format!("{}\n{owner}\n{id}", self.node);
        let (store, channel) = (Arc::clone(&self.store.backend), self.store.space(TASK_CHANNEL));
        // Not awaited: processes that miss the message poll.
        self.tracker.spawn(async move {
            if let Err(error) = store.publish(&channel, message.into()).await {
                tracing::debug!(%error, "cannot publish the change of a task");
            }
        });
    }

    /// Tells other processes that this one has released a task for them to run.
    pub(super) async fn publish_release(&self) {
        let message = format!("{}\n{RELEASED}", self.node);
        // Errors are ignored: processes that miss the message find the task in their next sweep.
        let _ = self.store.backend.publish(&self.store.space(TASK_CHANNEL), message.into()).await;
    }

    /// Notifies the waiters in this process.
    pub(super) fn notify(&self, owner: &str, id: &str, changed_by: ChangedBy) {
        if let Some(waiter) = lock(&self.waiters).get(id) {
            waiter.notify_waiters();
        }
        if changed_by == ChangedBy::Other
            && let Some(active) = lock(&self.running).active.get(id)
        {
            active.wake();
        }
        self.subscriptions.publish(&ChangeTopic::Task { owner: owner.into(), id: id.into() });
    }

    /// Waits until an input request of a task is answered or withdrawn.
    pub(super) async fn wait_resolved(&self, owner: &str, id: &str, key: &str) {
        loop {
            let waiter = self.waiter(id);
            let changed = waiter.notified();
            match self.find(owner, id).await {
                Ok(Some((record, _))) if record.task.input_requests.contains_key(key) => {}
                Ok(_) => return,
                Err(_) => {}
            }
            let _ = tokio::time::timeout(POLL_INTERVAL, changed).await;
        }
    }

    pub(super) fn waiter<'a>(&'a self, id: &'a str) -> TaskWaiter<'a> {
        let notify = Arc::clone(lock(&self.waiters).entry(id.into()).or_default());
        TaskWaiter { tasks: self, id, notify }
    }
}

impl TaskWaiter<'_> {
    /// Returns a future that completes with the next change after this call.
    pub(super) fn notified(&self) -> impl Future<Output = ()> + use<> {
        let notify = Arc::clone(&self.notify);
        let mut notified = Box::pin(notify.notified_owned());
        notified.as_mut().enable();
        notified
    }
}

impl Drop for TaskWaiter<'_> {
    fn drop(&mut self) {
        let mut waiters = lock(&self.tasks.waiters);
        // Dropped under the lock, so that the last waiter sees that it is the last.
        drop(std::mem::take(&mut self.notify));
        if waiters.get(self.id).is_some_and(|notify| Arc::strong_count(notify) == 1) {
            waiters.remove(self.id);
        }
    }
}
