//! Limits of tasks: how many, how long, how large.

use std::time::Duration;

/// The limits of the tasks of one server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskLimits {
    /// How long a task is kept from its start, unless the client or the tool sets another TTL.
    pub(crate) ttl: Duration,
    /// How often a client should poll.
    pub(crate) poll_interval: Duration,
    /// Tasks of one owner that have not ended.
    pub(crate) max_per_owner: usize,
    /// Tasks that run in this process.
    pub(crate) max_running: usize,
    /// Size of the largest result that is stored.
    pub(crate) max_result_bytes: usize,
    /// Tasks of one owner that ended in this process and are kept.
    pub(crate) max_finished: usize,
    /// Their total size.
    pub(crate) max_finished_bytes: usize,
}

impl TaskLimits {
    /// The longest TTL of a task, whether the client, the tool or the server sets it.
    pub(crate) const MAX_TTL: Duration = Duration::from_secs(366 * 24 * 60 * 60);
}

impl Default for TaskLimits {
    fn default() -> TaskLimits {
        TaskLimits {
            ttl: Duration::from_secs(60 * 60),
            poll_interval: Duration::from_secs(1),
            max_per_owner: 100,
            max_running: 1000,
            max_result_bytes: 8 << 20,
            max_finished: 1000,
            max_finished_bytes: 64 << 20,
        }
    }
}
