//! Messages that want no answer, in both directions.

use crate::json::RawJson;
use crate::model::{SubscriptionFilter, Task};
use crate::{ProgressToken, RequestId};

/// A message that wants no answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Notification {
    /// The client has read the welcome.
    Initialized,
    /// The sender wants no answer to this request any more, or has ended this listening.
    Cancelled {
        /// Which request.
        request: Option<RequestId>,
        /// Why, for a log.
        reason: Option<String>,
    },
    /// How far a request has come.
    Progress {
        /// What the request gave to be recognized by.
        token: ProgressToken,
        /// Grows.
        progress: f64,
        /// Where it will end.
        total: Option<f64>,
        /// In words.
        message: Option<String>,
    },
    /// A line for the client's log.
    LogMessage {
        /// How bad.
        level: LogLevel,
        /// Who says it.
        logger: Option<String>,
        /// What: any JSON.
        data: RawJson,
    },
    /// The list of tools has changed.
    ToolsChanged,
    /// The list of prompts has changed.
    PromptsChanged,
    /// The list of resources has changed.
    ResourcesChanged,
    /// A resource has changed.
    ResourceUpdated {
        /// Which.
        uri: String,
    },
    /// The client's roots have changed.
    RootsChanged,
    /// What the user was asked to do behind a link is done.
    ElicitationComplete {
        /// Which question.
        id: String,
    },
    /// A task has moved.
    TaskStatus(Box<Task>),
    /// What of a listen request the server will tell.
    SubscriptionAcknowledged(SubscriptionFilter),
}

/// How bad a log message is. Worse compares greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
    /// Every level, mildest first.
    pub const ALL: [LogLevel; 8] = [
        LogLevel::Debug,
        LogLevel::Info,
        LogLevel::Notice,
        LogLevel::Warning,
        LogLevel::Error,
        LogLevel::Critical,
        LogLevel::Alert,
        LogLevel::Emergency,
    ];

    /// Its name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Notice => "notice",
            LogLevel::Warning => "warning",
            LogLevel::Error => "error",
            LogLevel::Critical => "critical",
            LogLevel::Alert => "alert",
            LogLevel::Emergency => "emergency",
        }
    }

    /// The level with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<LogLevel> {
        LogLevel::ALL.into_iter().find(|level| level.name() == name)
    }
}
