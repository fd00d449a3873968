//! Requests from a handler to its client during a call: elicitation, sampling, roots.
//!
//! [`ClientChannel`] is the interface; the protocol implements it once for clients that reply on the open stream, and once
//! for clients that repeat the call with the reply. This module does not know which one is used.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use toolgate_wire::model::{ClientCapabilities, ClientResult, LogLevel, Notification, ServerRequest};
use toolgate_wire::{ProtocolError, RawJson};

use super::SessionAccess;
use crate::request::{BoxFuture, CallError};

/// The channel from one call to its client.
pub(crate) trait ClientChannel: Send + Sync {
    /// Returns whether the client's log level includes this one.
    fn is_log_enabled(&self, level: LogLevel) -> bool;

    /// Sends a notification. It is dropped if the client is too slow or has no stream; returns whether it was sent.
    fn notify(&self, notification: &Notification) -> bool;

    /// Sends a request to the client. The key identifies it among the requests of this call.
    fn request<'a>(
        &'a self,
        key: &'a str,
        request: ServerRequest,
    ) -> BoxFuture<'a, Result<ClientResult, ServerRequestError>>;

    /// Returns the value that an earlier run of this call recorded under this name.
    fn recorded_value(&self, name: &str) -> Option<RawJson>;

    /// Records a value for later runs of this call.
    fn record_value(&self, name: &str, value: RawJson);

    /// Returns why this run of the handler cannot complete the call: a reply is missing, or the state that the client returned
    /// is invalid. Asked before the handler starts, and when it has failed, whatever its error is.
    fn suspension_error(&self) -> Option<CallError>;

    /// Returns the id of the client's session, if it has one.
    fn session_id(&self) -> Option<&str> {
        None
    }

    /// Returns the client's session, if it has one.
    fn session(&self) -> Option<Arc<dyn SessionAccess>> {
        None
    }

    /// Closes the stream; the client reconnects after this time for the rest.
    fn release_stream(&self, retry: Duration);

    /// Sends a request to the client on behalf of one of its tasks.
    fn request_for_task<'a>(
        &'a self,
        _task: &'a str,
        key: &'a str,
        request: ServerRequest,
    ) -> BoxFuture<'a, Result<ClientResult, ServerRequestError>> {
        self.request(key, request)
    }

    /// Waits until the recorded values are persisted, if the channel persists them.
    fn wait_persisted(&self) -> Option<BoxFuture<'_, ()>> {
        None
    }

    /// Returns the state that a task needs if this call becomes one.
    fn replay_state(&self) -> ReplayState {
        ReplayState::default()
    }
}

/// Values recorded by earlier runs of a call.
#[derive(Debug, Default)]
pub(crate) struct ReplayState {
    /// Client replies by key, in stored form.
    pub(crate) responses: BTreeMap<String, RawJson>,
    /// Results of steps, and carried state.
    pub(crate) recorded_values: BTreeMap<String, RawJson>,
}

/// The user's reply to an elicitation.
///
/// ```
/// # use toolgate::ElicitOutcome;
/// fn describe(outcome: ElicitOutcome<u32>) -> String {
///     match outcome {
///         ElicitOutcome::Accept(pots) => format!("{pots} pots of tea"),
///         ElicitOutcome::Decline | ElicitOutcome::Cancel => "no tea".into(),
///     }
/// }
/// assert_eq!(describe(ElicitOutcome::Accept(2)), "2 pots of tea");
/// assert_eq!(ElicitOutcome::Accept(2).accepted(), Some(2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElicitOutcome<T> {
    /// The user accepted, with this content.
    Accept(T),
    /// The user declined.
    Decline,
    /// The user dismissed the request without a choice.
    Cancel,
}

impl<T> ElicitOutcome<T> {
    /// Returns the content, if the user accepted.
    pub fn accepted(self) -> Option<T> {
        match self {
            ElicitOutcome::Accept(value) => Some(value),
            ElicitOutcome::Decline | ElicitOutcome::Cancel => None,
        }
    }
}

/// The error of a request from a handler to its client.
///
/// Propagate it with `?`. In the newest protocol version, a request ends the run of the handler: the client repeats the call
/// with the reply, and the handler runs from its beginning, where the request then returns at once. Code before a request
/// therefore runs more than once; wrap side effects in [`Context::step`](crate::Context::step).
pub struct ServerRequestError(pub(crate) ServerRequestErrorKind);

#[derive(Debug)]
pub(crate) enum ServerRequestErrorKind {
    /// The reply will arrive with a repeated call.
    Suspended,
    /// The client lacks this capability.
    Unsupported(&'static str),
    /// The client lacks this capability, and its protocol version has an error code for that.
    MissingCapability(&'static str, Box<ClientCapabilities>),
    /// The reply did not arrive in time.
    TimedOut,
    /// The client disconnected, or the call has ended.
    Disconnected,
    /// The client refused, or its reply is invalid.
    Rejected(String),
}

impl ServerRequestError {
    /// Returns whether the client does not support this request. A handler may continue without the reply.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self.0,
            ServerRequestErrorKind::Unsupported(_) | ServerRequestErrorKind::MissingCapability(..)
        )
    }

    /// Returns whether the reply will arrive with a repeated call. The handler must end now.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        matches!(self.0, ServerRequestErrorKind::Suspended)
    }

    /// Returns the error for a client whose protocol version has one for missing capabilities.
    pub(super) fn missing_capability(&self) -> Option<ProtocolError> {
        match &self.0 {
            ServerRequestErrorKind::MissingCapability(_, required) => {
                Some(ProtocolError::missing_capability(required, self.to_string()))
            }
            _ => None,
        }
    }
}

impl fmt::Display for ServerRequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ServerRequestErrorKind::Suspended => f.write_str("input is required from the client"),
            ServerRequestErrorKind::Unsupported(what)
            | ServerRequestErrorKind::MissingCapability(what, _) => {
                write!(f, "this client does not support {what}")
            }
            ServerRequestErrorKind::TimedOut => f.write_str("the client did not respond in time"),
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
