//! Notifications of clients and servers.

use crate::json::RawJson;
use crate::model::{SubscriptionFilter, Task};
use crate::{ProgressToken, RequestId};

/// A notification, independent of the protocol version.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Notification {
    /// `notifications/initialized`: the client has received the result of `initialize`.
    Initialized,
    /// `notifications/cancelled`: the sender cancels a request, or has ended a subscription.
    Cancelled {
        /// The id of the request.
        request: Option<RequestId>,
        /// The reason, for logs.
        reason: Option<String>,
    },
    /// `notifications/progress`: progress of a request.
    Progress {
        /// The progress token of the request.
        token: ProgressToken,
        /// The progress so far; it increases with each notification.
        progress: f64,
        /// The value of `progress` at the end.
        total: Option<f64>,
        /// A description of the progress.
        message: Option<String>,
    },
    /// `notifications/message`: a log message.
    LogMessage {
        /// The severity.
        level: LogLevel,
        /// The name of the logger.
        logger: Option<String>,
        /// The message: any JSON value.
        data: RawJson,
    },
    /// `notifications/tools/list_changed`: the list of tools has changed.
    ToolsChanged,
    /// `notifications/prompts/list_changed`: the list of prompts has changed.
    PromptsChanged,
    /// `notifications/resources/list_changed`: the list of resources has changed.
    ResourcesChanged,
    /// `notifications/resources/updated`: a resource has changed.
    ResourceUpdated {
        /// The URI of the resource.
        uri: String,
    },
    /// `notifications/roots/list_changed`: the client's roots have changed.
    RootsChanged,
    /// `notifications/elicitation/complete`: the user has completed an elicitation by URL.
    ElicitationComplete {
        /// The id of the elicitation.
        id: String,
    },
    /// The status of a task has changed.
    TaskStatus(Box<Task>),
    /// The changes that the server will report on a subscription.
    SubscriptionAcknowledged(SubscriptionFilter),
}

/// The severity of a log message. More severe levels compare greater.
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
    /// All levels, least severe first.
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

    /// Returns the name of the level on the wire.
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

    /// Returns the level with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<LogLevel> {
        LogLevel::ALL.into_iter().find(|level| level.name() == name)
    }
}
