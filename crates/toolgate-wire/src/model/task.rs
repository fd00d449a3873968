//! Tasks: calls that continue after their response.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ProtocolError;
use crate::model::{Outcome, ServerRequest};

/// A task, as sent to a client.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The id; must not be guessable.
    pub id: String,
    /// The status.
    pub status: TaskStatus,
    /// A description of the status.
    pub status_message: Option<String>,
    /// The time of creation, in ISO 8601.
    pub created_at: String,
    /// The time of the last update, in ISO 8601.
    pub last_updated_at: String,
    /// How long the task is kept, in milliseconds; `None` if unlimited.
    pub ttl_ms: Option<u64>,
    /// The recommended polling interval, in milliseconds.
    pub poll_interval_ms: Option<u64>,
    /// Requests that the task waits for, by key; tasks extension only.
    pub input_requests: BTreeMap<String, ServerRequest>,
    /// The result or error; tasks extension only. Core tasks send it in the result of `tasks/result`.
    pub outcome: Option<TaskOutcome>,
}

/// The status of a task. The last three are terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum TaskStatus {
    Working,
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

impl TaskStatus {
    /// All statuses.
    pub const ALL: [TaskStatus; 5] = [
        TaskStatus::Working,
        TaskStatus::InputRequired,
        TaskStatus::Completed,
        TaskStatus::Failed,
        TaskStatus::Cancelled,
    ];

    /// Returns the name of the status on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TaskStatus::Working => "working",
            TaskStatus::InputRequired => "input_required",
            TaskStatus::Completed => "completed",
            TaskStatus::Failed => "failed",
            TaskStatus::Cancelled => "cancelled",
        }
    }

    /// Returns the status with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<TaskStatus> {
        TaskStatus::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Returns whether the status is final.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled)
    }
}

/// The end of a task.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskOutcome {
    /// The result of the call. Shared, since each `tasks/get` returns it.
    Result(Arc<Outcome>),
    /// The error of the call.
    Error(ProtocolError),
}
