//! Long work that outlives the call that began it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Fault;
use crate::model::{Ask, Outcome};

/// A task as a client sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Unguessable.
    pub id: String,
    /// Where it stands.
    pub state: TaskState,
    /// In words.
    pub message: Option<String>,
    /// When it began, ISO 8601.
    pub created_at: String,
    /// When it last moved, ISO 8601.
    pub updated_at: String,
    /// How long it is kept, in milliseconds; none: for ever.
    pub ttl_ms: Option<u64>,
    /// How often to ask, in milliseconds.
    pub poll_ms: Option<u64>,
    /// What it waits for, by key: the extension only.
    pub asks: BTreeMap<String, Ask>,
    /// How it ended: the extension only; core tasks tell it by `tasks/result`.
    pub end: Option<TaskEnd>,
}

/// Where a task stands. The last three are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum TaskState {
    Working,
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

impl TaskState {
    /// Every state.
    pub const ALL: [TaskState; 5] = [
        TaskState::Working,
        TaskState::InputRequired,
        TaskState::Completed,
        TaskState::Failed,
        TaskState::Cancelled,
    ];

    /// Its name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TaskState::Working => "working",
            TaskState::InputRequired => "input_required",
            TaskState::Completed => "completed",
            TaskState::Failed => "failed",
            TaskState::Cancelled => "cancelled",
        }
    }

    /// The state with this name.
    #[must_use]
    pub fn of(name: &str) -> Option<TaskState> {
        TaskState::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether it will not move again.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, TaskState::Completed | TaskState::Failed | TaskState::Cancelled)
    }
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskEnd {
    /// With the result that the call would have had. Shared: whoever asks for the task gets one.
    Outcome(Arc<Outcome>),
    /// With a refusal.
    Fault(Fault),
}
