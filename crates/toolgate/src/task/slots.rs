//! Limits the tasks that run in this process, in total and for each owner.

use std::collections::HashMap;
use std::sync::Arc;

use super::TasksInner;
use super::active::ActiveTask;
use super::errors::too_many_tasks;
use crate::request::CallError;
use crate::util::lock;

/// The tasks that run in this process. Bounded by [`TaskLimits::max_running`](super::TaskLimits::max_running).
#[derive(Default)]
pub(super) struct RunningTasks {
    /// By task id.
    pub(super) active: HashMap<Box<str>, Arc<ActiveTask>>,
    /// Number of tasks of each owner, including those about to start.
    owners: HashMap<Arc<str>, usize>,
    /// Number of tasks, including those about to start.
    pub(super) total: usize,
}

/// Permission to run one task. Dropping it makes room for another.
pub(super) struct RunningSlot {
    tasks: Arc<TasksInner>,
    owner: Arc<str>,
    /// Set once the task is in [`RunningTasks::active`].
    task_id: Option<Box<str>>,
}

impl TasksInner {
    /// Reserves a slot for a task of `owner`.
    pub(super) fn reserve(self: &Arc<TasksInner>, owner: &Arc<str>) -> Result<RunningSlot, CallError> {
        let mut running = lock(&self.running);
        let owned = running.owners.get(owner).copied().unwrap_or(0);
        if owned >= self.limits.max_per_owner || running.total >= self.limits.max_running {
            return Err(too_many_tasks());
        }
        running.owners.insert(Arc::clone(owner), owned + 1);
        running.total += 1;
        Ok(RunningSlot { tasks: Arc::clone(self), owner: Arc::clone(owner), task_id: None })
    }
}

impl RunningSlot {
    /// Enters the task that runs in this slot.
    pub(super) fn set_task(&mut self, task: &Arc<ActiveTask>) {
        self.task_id = Some(task.id.clone());
        lock(&self.tasks.running).active.insert(task.id.clone(), Arc::clone(task));
    }
}

impl Drop for RunningSlot {
    fn drop(&mut self) {
        let mut running = lock(&self.tasks.running);
        running.total = running.total.saturating_sub(1);
        if let Some(owned) = running.owners.get_mut(&self.owner) {
            *owned = owned.saturating_sub(1);
            if *owned == 0 {
                running.owners.remove(&self.owner);
            }
        }
        if let Some(id) = &self.task_id {
            running.active.remove(id);
        }
    }
}
