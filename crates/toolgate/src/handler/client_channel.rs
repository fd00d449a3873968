//! Asking the client in the middle of a call, as a handler sees it.
//!
//! How a question travels is not known here: a [`ClientChannel`] carries it, and there is one for clients that
//! can be asked on the open stream and one for those that must call again.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use toolgate_wire::RawJson;
use toolgate_wire::model::{ClientResult, LogLevel, Notification, ServerRequest};

use crate::request::{BoxFuture, CallError};

/// How one call reaches its client while it runs.
pub(crate) trait ClientChannel: Send + Sync {
    /// Whether the client wants log messages of this level.
    fn is_log_enabled(&self, level: LogLevel) -> bool;

    /// Tells the client something. Lost if the client is behind or cannot hear it; says whether it was sent.
    fn notify(&self, notice: &Notification) -> bool;

    /// Asks the client. The key tells the questions of one call apart.
    fn request<'a>(
        &'a self,
        key: &'a str,
        ask: ServerRequest,
    ) -> BoxFuture<'a, Result<ClientResult, ServerRequestError>>;

    /// What an earlier run of this call left under this name.
    fn recorded_value(&self, name: &str) -> Option<RawJson>;

    /// Leaves something for later runs of this call.
    fn record_value(&self, name: &str, value: RawJson);

    /// Why a handler that ended with these words may have done so: because an answer is missing.
    fn suspension_error(&self, said: &str) -> Option<CallError>;

    /// Sends the client away, to come back after this time for the rest.
    fn release_stream(&self, retry: Duration);

    /// Asks the client what one of its tasks wants to know.
    fn request_for_task<'a>(
        &'a self,
        _task: &'a str,
        key: &'a str,
        ask: ServerRequest,
    ) -> BoxFuture<'a, Result<ClientResult, ServerRequestError>> {
        self.request(key, ask)
    }

    /// Waits until what was left for later runs would outlive this process, where anything does.
    fn wait_persisted(&self) -> Option<BoxFuture<'_, ()>> {
        None
    }

    /// What a task begins with that this call becomes.
    fn replay_state(&self) -> ReplayState {
        ReplayState::default()
    }
}

/// What earlier runs of a call have left.
#[derive(Debug, Default)]
pub(crate) struct ReplayState {
    /// Answers by key, in the form in which they are kept.
    pub(crate) responses: BTreeMap<String, RawJson>,
    /// Steps and state.
    pub(crate) recorded_values: BTreeMap<String, RawJson>,
}

/// What the user said to a question.
///
/// ```
/// # use toolgate::Elicited;
/// fn words(said: Elicited<u32>) -> String {
///     match said {
///         Elicited::Accept(pots) => format!("{pots} pots of tea"),
///         Elicited::Decline | Elicited::Cancel => "no tea".into(),
///     }
/// }
/// assert_eq!(words(Elicited::Accept(2)), "2 pots of tea");
/// assert_eq!(Elicited::Accept(2).accepted(), Some(2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElicitOutcome<T> {
    /// Yes, with this.
    Accept(T),
    /// No.
    Decline,
    /// Nothing: closed the question.
    Cancel,
}

impl<T> ElicitOutcome<T> {
    /// What was accepted, if it was.
    pub fn accepted(self) -> Option<T> {
        match self {
            ElicitOutcome::Accept(value) => Some(value),
            ElicitOutcome::Decline | ElicitOutcome::Cancel => None,
        }
    }
}

/// Why a question has no answer.
///
/// Pass it on with `?`. With clients of the newest revision a question ends the run of a handler: the
/// client answers by calling again, and the handler runs from its beginning with the answer at hand.
/// Before a question, a handler therefore does nothing that it would not do twice; what must happen once
/// goes into `Context::step`.
pub struct ServerRequestError(pub(crate) ServerRequestErrorKind);

#[derive(Debug)]
pub(crate) enum ServerRequestErrorKind {
    /// The answer comes with a later run.
    Suspended,
    /// The client cannot be asked this.
    Unsupported(&'static str),
    /// Nobody answered in time.
    TimedOut,
    /// The client is gone, or the call is over.
    Disconnected,
    /// The client refused, or answered something that is not an answer.
    Rejected(String),
}

impl ServerRequestError {
    /// Whether this client cannot be asked this at all. A handler may go on without the answer.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self.0, ServerRequestErrorKind::Unsupported(_))
    }

    /// Whether the answer will come with a later run of the handler, which must end now.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        matches!(self.0, ServerRequestErrorKind::Suspended)
    }
}

impl fmt::Display for ServerRequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ServerRequestErrorKind::Suspended => f.write_str("input is required from the client"),
            ServerRequestErrorKind::Unsupported(what) => write!(f, "this client does not support {what}"),
            ServerRequestErrorKind::TimedOut => f.write_str("nobody answered the question in time"),
            ServerRequestErrorKind::Disconnected => f.write_str("the client is gone"),
            ServerRequestErrorKind::Rejected(why) => {
                write!(f, "the client did not answer the question: {why}")
            }
        }
    }
}

impl fmt::Debug for ServerRequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerRequestError").field(&self.0).finish()
    }
}

impl std::error::Error for ServerRequestError {}
