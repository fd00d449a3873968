//! Errors of handlers: a message for the model, a protocol error, or a request to the client without a reply.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;

use toolgate_wire::ProtocolError;
use toolgate_wire::model::ToolOutput;

use super::{ExtractError, ServerRequestError};

/// The failure of a handler.
#[derive(Debug)]
#[doc(hidden)]
pub enum HandlerFailure {
    /// The parameters could not be extracted; the handler did not run.
    Extract(ExtractError),
    /// The handler or an extractor returned an error.
    Returned(HandlerError),
}

impl From<HandlerError> for HandlerFailure {
    fn from(error: HandlerError) -> HandlerFailure {
        HandlerFailure::Returned(error)
    }
}

/// The error of a handler. Also named [`ToolError`](crate::ToolError).
///
/// The message of a tool's error is a result with `isError`, which the model can act on. Every `std::error::Error` converts
/// into a `HandlerError` with `?`; the client sees its message, and the log its [sources](HandlerError::source). Handlers may
/// return any other error type that implements `Display`; this one is for handlers with several kinds of errors.
///
/// A [`ProtocolError`] is not a message for the model: returned by itself or converted with `?`, it is the JSON-RPC error that
/// the client receives, with this code, message and data.
///
/// ```
/// # use toolgate::{ProtocolError, ToolError};
/// fn read(page: &str) -> Result<String, ToolError> {
///     let number: u32 = page.parse()?;
///     if number > 9 {
///         return Err(ToolError::new("`page` must be at most 9"));
///     }
///     if number == 0 {
///         Err(ProtocolError::invalid_params("there is no page 0"))?;
///     }
///     Ok(number.to_string())
/// }
/// assert_eq!(read("one").unwrap_err().to_string(), "invalid digit found in string");
/// assert!(read("10").unwrap_err().protocol_error().is_none());
/// assert!(read("0").unwrap_err().protocol_error().is_some());
/// ```
#[doc(alias("isError", "tool error"))]
pub struct HandlerError(Repr);

enum Repr {
    Message(String),
    Output(Box<ToolOutput>),
    Protocol(ProtocolError),
    ServerRequest(ServerRequestError),
    Other(BoxedError),
}

type BoxedError = Box<dyn StdError + Send + Sync>;

/// The reply to a call whose handler returned an error.
pub(crate) enum ErrorReply {
    Output(Box<ToolOutput>),
    Protocol(ProtocolError),
}

impl HandlerError {
    /// Creates an error with this message.
    pub fn new(message: impl Into<String>) -> HandlerError {
        HandlerError(Repr::Message(message.into()))
    }

    /// Creates an error with this output, for tool errors that are more than a text. Outside of tools, its first text is the
    /// message.
    #[must_use]
    pub fn from_output(mut output: ToolOutput) -> HandlerError {
        output.is_error = true;
        HandlerError(Repr::Output(Box::new(output)))
    }

    /// Creates an error from a boxed one, which `?` does not convert.
    #[must_use]
    pub fn from_boxed(error: Box<dyn StdError + Send + Sync>) -> HandlerError {
        let error = match error.downcast::<ProtocolError>() {
            Ok(error) => return HandlerError(Repr::Protocol(*error)),
            Err(error) => error,
        };
        HandlerError(match error.downcast::<ServerRequestError>() {
            Ok(error) => Repr::ServerRequest(*error),
            Err(error) => Repr::Other(error),
        })
    }

    /// Returns the JSON-RPC error that the client receives, if this is one.
    #[must_use]
    pub fn protocol_error(&self) -> Option<&ProtocolError> {
        match &self.0 {
            Repr::Protocol(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the cause of the error that this was created from. It is logged, and not sent to the client.
    #[must_use]
    pub fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.0 {
            Repr::Other(error) => error.source(),
            Repr::Protocol(error) => error.source(),
            Repr::ServerRequest(error) => error.source(),
            Repr::Message(_) | Repr::Output(_) => None,
        }
    }

    /// Returns the failed request to the client that this error is or was caused by.
    fn server_request_error(&self) -> Option<&ServerRequestError> {
        match &self.0 {
            Repr::ServerRequest(error) => Some(error),
            Repr::Other(_) => self.sources().find_map(|source| source.downcast_ref()),
            Repr::Message(_) | Repr::Output(_) | Repr::Protocol(_) => None,
        }
    }

    /// Returns whether the handler ended because an answer of the client is missing.
    pub(super) fn is_suspended(&self) -> bool {
        self.server_request_error().is_some_and(ServerRequestError::is_suspended)
    }

    fn sources(&self) -> impl Iterator<Item = &(dyn StdError + 'static)> {
        std::iter::successors(self.source(), |error| (**error).source())
    }

    /// Returns the messages of all sources, for the log; `None` if there are none.
    pub(crate) fn source_chain(&self) -> Option<String> {
        self.source()?;
        Some(self.sources().map(ToString::to_string).collect::<Vec<_>>().join(": "))
    }

    /// Converts the error into what the client receives.
    pub(crate) fn into_reply(self) -> ErrorReply {
        if let Some(error) = self.server_request_error().and_then(ServerRequestError::missing_capability) {
            return ErrorReply::Protocol(error);
        }
        let message = match self.0 {
            Repr::Protocol(error) => return ErrorReply::Protocol(error),
            Repr::Output(output) => return ErrorReply::Output(output),
            Repr::Message(message) => message,
            Repr::ServerRequest(error) => error.to_string(),
            Repr::Other(error) => error.to_string(),
        };
        ErrorReply::Output(Box::new(ToolOutput::error(message)))
    }

    /// Converts the error type of a handler's `Result`.
    ///
    /// There is one conversion for all types that implement `Display`, so the types with a meaning of their own are recognized
    /// by their type id.
    pub(super) fn from_returned<E: fmt::Display + 'static>(error: E) -> HandlerError {
        let mut slot = Some(error);
        if let Some(error) = take::<HandlerError>(&mut slot) {
            return error;
        }
        if let Some(error) = take::<ProtocolError>(&mut slot) {
            return HandlerError(Repr::Protocol(error));
        }
        if let Some(error) = take::<ServerRequestError>(&mut slot) {
            return HandlerError(Repr::ServerRequest(error));
        }
        if let Some(error) = take::<BoxedError>(&mut slot) {
            return HandlerError::from_boxed(error);
        }
        // `{:#}` includes the causes of error types that keep a chain.
        HandlerError::new(slot.map(|error| format!("{error:#}")).unwrap_or_default())
    }
}

fn first_text(output: &ToolOutput) -> Option<&str> {
    output.content.first()?.as_text()
}

/// Takes the value out of an `Option<T>` behind `slot`, if that is its type.
fn take<T: 'static>(slot: &mut dyn Any) -> Option<T> {
    slot.downcast_mut::<Option<T>>()?.take()
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Message(message) => f.write_str(message),
            Repr::Output(output) => f.write_str(first_text(output).unwrap_or("the call failed")),
            Repr::Protocol(error) => error.fmt(f),
            Repr::ServerRequest(error) => error.fmt(f),
            Repr::Other(error) => error.fmt(f),
        }
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tuple = f.debug_tuple("HandlerError");
        match &self.0 {
            Repr::Message(message) => tuple.field(message),
            Repr::Output(output) => tuple.field(output),
            Repr::Protocol(error) => tuple.field(error),
            Repr::ServerRequest(error) => tuple.field(error),
            Repr::Other(error) => tuple.field(error),
        };
        tuple.finish()
    }
}

// `HandlerError` does not implement `std::error::Error`: this impl would then overlap with `From<T> for T`.
impl<E: StdError + Send + Sync + 'static> From<E> for HandlerError {
    fn from(error: E) -> HandlerError {
        HandlerError::from_boxed(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Wrapped(ServerRequestError);

    impl fmt::Display for Wrapped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("no approval")
        }
    }

    impl StdError for Wrapped {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&self.0)
        }
    }

    fn question() -> ServerRequestError {
        ServerRequestError(super::super::ServerRequestErrorKind::TimedOut)
    }

    fn is_protocol<E: fmt::Display + 'static>(error: E) -> bool {
        HandlerError::from_returned(error).protocol_error().is_some()
    }

    #[test]
    fn a_protocol_error_is_recognized_by_itself_converted_and_boxed() {
        let error = ProtocolError::invalid_params("no");
        assert!(is_protocol(error.clone()));
        assert!(is_protocol(HandlerError::from(error.clone())));
        assert!(is_protocol(BoxedError::from(error.clone())));
        // The text of one is not one.
        assert!(!is_protocol(error.to_string()));
    }

    #[test]
    fn a_request_to_the_client_is_found_behind_an_error_that_names_it_as_its_source() {
        let found = |error: HandlerError| error.server_request_error().is_some();
        assert!(found(HandlerError::from_returned(question())));
        assert!(found(HandlerError::from(question())));
        assert!(found(HandlerError::from(Wrapped(question()))));
        assert!(found(HandlerError::from_returned(BoxedError::from(Wrapped(question())))));
        assert!(!found(HandlerError::new(question().to_string())));
    }

    #[test]
    fn sources_are_kept_and_are_not_part_of_the_message() {
        let error = HandlerError::from(Wrapped(question()));
        assert_eq!(error.to_string(), "no approval");
        assert_eq!(error.source_chain().as_deref(), Some("the client did not respond in time"));
        match error.into_reply() {
            ErrorReply::Output(output) => assert_eq!(first_text(&output), Some("no approval")),
            ErrorReply::Protocol(error) => panic!("{error}"),
        }
    }
}
