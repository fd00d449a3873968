//! How a call ended.

use serde::{Serialize, Serializer};

/// How a call ended. Every call that began has exactly one outcome.
///
/// ```
/// # use toolgate::events::{CallOutcome, Events};
/// Events::new().on_response(|response| {
///     if response.outcome() == CallOutcome::Cancelled {
///         println!("{} was cancelled after {:?}", response.request().method(), response.time());
///     }
/// });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallOutcome {
    /// The call returned a result.
    Ok,
    /// The call returned a tool result marked as an error.
    ToolError,
    /// The call returned a JSON-RPC error.
    ProtocolError,
    /// The client cancelled the call or disconnected, or the server stopped. No response was sent.
    Cancelled,
    /// The handler exceeded its time limit.
    Timeout,
    /// The handler panicked.
    Panic,
}

impl CallOutcome {
    /// The outcomes other than [`CallOutcome::Ok`], which are counted one by one.
    pub(crate) const NOT_OK: [CallOutcome; 5] = [
        CallOutcome::ToolError,
        CallOutcome::ProtocolError,
        CallOutcome::Cancelled,
        CallOutcome::Timeout,
        CallOutcome::Panic,
    ];

    /// Returns the position in [`CallOutcome::NOT_OK`].
    pub(crate) fn not_ok_index(self) -> Option<usize> {
        CallOutcome::NOT_OK.iter().position(|outcome| *outcome == self)
    }

    /// Returns the name: `ok`, `tool_error`, `protocol_error`, `cancelled`, `timeout` or `panic`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            CallOutcome::Ok => "ok",
            CallOutcome::ToolError => "tool_error",
            CallOutcome::ProtocolError => "protocol_error",
            CallOutcome::Cancelled => "cancelled",
            CallOutcome::Timeout => "timeout",
            CallOutcome::Panic => "panic",
        }
    }
}

impl std::fmt::Display for CallOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Serializes as its name.
impl Serialize for CallOutcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
