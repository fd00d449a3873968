//! Long work that outlives the call that began it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ProtocolError;
use crate::model::{Outcome, ServerRequest};

/// A task as a client sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Unguessable.
    pub id: String,
    /// Where it stands.
    pub status: TaskStatus,
    /// In words.
    pub status_message: Option<String>,
    /// When it began, ISO 8601.
    pub created_at: String,
    /// When it last moved, ISO 8601.
    pub last_updated_at: String,
    /// How long it is kept, in milliseconds; none: for ever.
    pub ttl_ms: Option<u64>,
    /// How often to ask, in milliseconds.
    pub poll_interval_ms: Option<u64>,
    /// What it waits for, by key: the extension only.
    pub input_requests: BTreeMap<String, ServerRequest>,
    /// How it ended: the extension only; core tasks tell it by `tasks/result`.
    pub outcome: Option<TaskOutcome>,
}

/// Where a task stands. The last three are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum TaskStatus {
    Working,
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

impl TaskStatus {
    /// Every state.
    pub const ALL: [TaskStatus; 5] = [
        TaskStatus::Working,
        TaskStatus::InputRequired,
        TaskStatus::Completed,
        TaskStatus::Failed,
        TaskStatus::Cancelled,
    ];

    /// Its name on the wire.
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

    /// The state with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<TaskStatus> {
        TaskStatus::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether it will not move again.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled)
    }
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskOutcome {
    /// With the result that the call would have had. Shared: whoever asks for the task gets one.
    Result(Arc<Outcome>),
    /// With a refusal.
    Error(ProtocolError),
}
