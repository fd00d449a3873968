//! Asking the client in the middle of a call, as a handler sees it.
//!
//! How a question travels is not known here: a [`Voice`] carries it, and there is one for clients that
//! can be asked on the open stream and one for those that must call again.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use toolgate_wire::RawJson;
use toolgate_wire::model::{ClientResult, ServerRequest, LogLevel, Notification};

use crate::request::{BoxFuture, CallError};

/// How one call reaches its client while it runs.
pub(crate) trait Voice: Send + Sync {
    /// Whether the client wants log messages of this level.
    fn hears(&self, level: LogLevel) -> bool;

    /// Tells the client something. Lost if the client is behind or cannot hear it; says whether it was sent.
    fn tell(&self, notice: &Notification) -> bool;

    /// Asks the client. The key tells the questions of one call apart.
    fn ask<'a>(&'a self, key: &'a str, ask: ServerRequest) -> BoxFuture<'a, Result<ClientResult, AskError>>;

    /// What an earlier run of this call left under this name.
    fn recall(&self, name: &str) -> Option<RawJson>;

    /// Leaves something for later runs of this call.
    fn remember(&self, name: &str, value: RawJson);

    /// Why a handler that ended with these words may have done so: because an answer is missing.
    fn stopped(&self, said: &str) -> Option<CallError>;

    /// Sends the client away, to come back after this time for the rest.
    fn send_away(&self, retry: Duration);

    /// Asks the client what one of its tasks wants to know.
    fn ask_for<'a>(
        &'a self,
        _task: &'a str,
        key: &'a str,
        ask: ServerRequest,
    ) -> BoxFuture<'a, Result<ClientResult, AskError>> {
        self.ask(key, ask)
    }

    /// Waits until what was left for later runs would outlive this process, where anything does.
    fn settled(&self) -> Option<BoxFuture<'_, ()>> {
        None
    }

    /// What a task begins with that this call becomes.
    fn luggage(&self) -> Luggage {
        Luggage::default()
    }
}

/// What earlier runs of a call have left.
#[derive(Debug, Default)]
pub(crate) struct Luggage {
    /// Answers by key, in the form in which they are kept.
    pub(crate) answers: BTreeMap<String, RawJson>,
    /// Steps and state.
    pub(crate) memory: BTreeMap<String, RawJson>,
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
pub enum Elicited<T> {
    /// Yes, with this.
    Accept(T),
    /// No.
    Decline,
    /// Nothing: closed the question.
    Cancel,
}

impl<T> Elicited<T> {
    /// What was accepted, if it was.
    pub fn accepted(self) -> Option<T> {
        match self {
            Elicited::Accept(value) => Some(value),
            Elicited::Decline | Elicited::Cancel => None,
        }
    }
}

/// Why a question has no answer.
///
/// Pass it on with `?`. With clients of the newest revision a question ends the run of a handler: the
/// client answers by calling again, and the handler runs from its beginning with the answer at hand.
/// Before a question, a handler therefore does nothing that it would not do twice; what must happen once
/// goes into `Context::step`.
pub struct AskError(pub(crate) AskErrorKind);

#[derive(Debug)]
pub(crate) enum AskErrorKind {
    /// The answer comes with a later run.
    Suspended,
    /// The client cannot be asked this.
    Unsupported(&'static str),
    /// Nobody answered in time.
    TimedOut,
    /// The client is gone, or the call is over.
    Gone,
    /// The client refused, or answered something that is not an answer.
    Refused(String),
}

impl AskError {
    /// Whether this client cannot be asked this at all. A handler may go on without the answer.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self.0, AskErrorKind::Unsupported(_))
    }

    /// Whether the answer will come with a later run of the handler, which must end now.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        matches!(self.0, AskErrorKind::Suspended)
    }
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            AskErrorKind::Suspended => f.write_str("input is required from the client"),
            AskErrorKind::Unsupported(what) => write!(f, "this client does not support {what}"),
            AskErrorKind::TimedOut => f.write_str("nobody answered the question in time"),
            AskErrorKind::Gone => f.write_str("the client is gone"),
            AskErrorKind::Refused(why) => write!(f, "the client did not answer the question: {why}"),
        }
    }
}

impl fmt::Debug for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AskError").field(&self.0).finish()
    }
}

impl std::error::Error for AskError {}
