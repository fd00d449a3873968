//! Return types of handlers, for tools, resources and prompts.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use toolgate_wire::model::{Content, PromptMessage, PromptOutput, ResourceContents, ToolOutput};
use toolgate_wire::{ProtocolError, RawJson};

use super::{ExtractError, schema_of};

/// The failure of a handler.
#[derive(Debug)]
#[doc(hidden)]
pub enum HandlerFailure {
    /// The parameters could not be extracted; the handler did not run.
    Extract(ExtractError),
    /// The handler returned an error, which becomes a result with `isError`.
    ErrorOutput(Box<ToolOutput>),
    /// The handler returned a JSON-RPC error.
    Protocol(ProtocolError),
}

/// The outcome of reading a resource.
#[derive(Debug)]
#[doc(hidden)]
pub enum ReadOutcome {
    /// The contents of the resource.
    Contents(Vec<ResourceContents>),
    /// There is no resource with this URI.
    NotFound,
}

/// Structured output: a value returned as JSON.
///
/// The result of a tool gets `structuredContent`, the same JSON as text, and an `outputSchema`. The contents of a resource are
/// JSON text.
///
/// ```
/// # use toolgate::{Json, Server};
/// #[derive(serde::Serialize, schemars::JsonSchema)]
/// struct Sum { total: i64 }
///
/// let server = Server::new("demo", "1.0.0").tool("sum", || async { Json(Sum { total: 42 }) });
/// ```
#[derive(Clone, Copy, Debug)]
#[doc(alias("structured output", "structuredContent"))]
pub struct Json<T>(pub T);

/// The error of a handler: a message that the model can act on. Also named [`ToolError`](crate::ToolError).
///
/// Every `std::error::Error` converts into it with `?`. Handlers may return any other error type that implements `Display`;
/// this one is for handlers with several kinds of errors. To reply with a JSON-RPC error, return a
/// [`ProtocolError`].
///
/// ```
/// # use toolgate::ToolError;
/// fn read() -> Result<String, ToolError> {
///     let number: u32 = "not a number".parse()?;
///     if number > 9 {
///         return Err(ToolError::new("`number` must be at most 9"));
///     }
///     Ok(number.to_string())
/// }
/// assert_eq!(read().unwrap_err().to_string(), "invalid digit found in string");
/// ```
#[doc(alias("isError", "tool error"))]
pub struct HandlerError(String);

impl HandlerError {
    /// Creates an error with this message.
    pub fn new(message: impl Into<String>) -> HandlerError {
        HandlerError(message.into())
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HandlerError").field(&self.0).finish()
    }
}

// `HandlerError` does not implement `std::error::Error`: this impl would then overlap with `From<T> for T`.
impl<E: std::error::Error> From<E> for HandlerError {
    fn from(error: E) -> HandlerError {
        HandlerError(error.to_string())
    }
}

/// A return type of tool handlers: strings, numbers, booleans, one or more [`Content`] blocks, [`Json`] for structured output,
/// `()`, a complete [`ToolOutput`], a [`ProtocolError`], or a `Result` of these with an error that implements `Display`. An `Err`
/// becomes a result with `isError`, which the model sees.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the result of a tool",
    label = "neither text, `Content`, `Json<_>`, nor a `Result` of these",
    note = "a value that is `serde::Serialize + schemars::JsonSchema` can be returned by a function with `#[tool]` as it is, and by any other handler in `toolgate::Json`"
)]
pub trait IntoOutput {
    /// Returns the schema of structured output, if there is any.
    #[doc(hidden)]
    #[must_use]
    fn schema() -> Option<Schema> {
        None
    }

    /// Converts the value into the output of the tool.
    #[doc(hidden)]
    fn into_output(self) -> Result<ToolOutput, HandlerFailure>;
}

impl IntoOutput for ToolOutput {
    fn into_output(self) -> Result<ToolOutput, HandlerFailure> {
        Ok(self)
    }
}

/// Replies with a JSON-RPC error, which is for the host and not for the model.
impl IntoOutput for ProtocolError {
    fn into_output(self) -> Result<ToolOutput, HandlerFailure> {
        Err(HandlerFailure::Protocol(self))
    }
}

impl IntoOutput for () {
    fn into_output(self) -> Result<ToolOutput, HandlerFailure> {
        Ok(ToolOutput::default())
    }
}

impl IntoOutput for Content {
    fn into_output(self) -> Result<ToolOutput, HandlerFailure> {
        vec![self].into_output()
    }
}

impl IntoOutput for Vec<Content> {
    fn into_output(self) -> Result<ToolOutput, HandlerFailure> {
        Ok(ToolOutput::new(self))
    }
}

macro_rules! text_output {
    ($($type:ty),*) => {$(
        impl IntoOutput for $type {
            fn into_output(self) -> Result<ToolOutput, HandlerFailure> {
                Ok(ToolOutput::text(self))
            }
        }
    )*};
}
text_output!(String, &'static str, Cow<'static, str>, Box<str>);

macro_rules! displayed_output {
    ($($type:ty),*) => {$(
        impl IntoOutput for $type {
            fn into_output(self) -> Result<ToolOutput, HandlerFailure> {
                Ok(ToolOutput::text(self.to_string()))
            }
        }
    )*};
}
displayed_output!(bool, i8, i16, i32, i64, u8, u16, u32, u64, usize, f32, f64);

impl IntoOutput for serde_json::Value {
    fn into_output(self) -> Result<ToolOutput, HandlerFailure> {
        Ok(structured_output(RawJson::from(self)))
    }
}

impl<T: Serialize + JsonSchema> IntoOutput for Json<T> {
    fn schema() -> Option<Schema> {
        Some(schema_of::<T>())
    }

    fn into_output(self) -> Result<ToolOutput, HandlerFailure> {
        Ok(structured_output(to_raw(&self.0)?))
    }
}

impl<T: IntoOutput, E: fmt::Display> IntoOutput for Result<T, E> {
    fn schema() -> Option<Schema> {
        T::schema()
    }

    fn into_output(self) -> Result<ToolOutput, HandlerFailure> {
        match self {
            Ok(output) => output.into_output(),
            Err(error) => Err(handler_failure(&error)),
        }
    }
}

fn structured_output(value: RawJson) -> ToolOutput {
    // Spec: the JSON is repeated as text, for clients without support for structured output.
    let text = value.as_str().to_owned();
    ToolOutput::text(text).with_structured_content(value)
}

fn to_raw(value: &impl Serialize) -> Result<RawJson, HandlerFailure> {
    RawJson::from_serializable(value)
        .map_err(|error| handler_failure(&format_args!("the result is not JSON: {error}")))
}

/// Formats the error with `{:#}`, which includes the causes of error types that keep a chain.
pub(super) fn handler_failure(error: &impl fmt::Display) -> HandlerFailure {
    HandlerFailure::ErrorOutput(Box::new(ToolOutput::error(format!("{error:#}"))))
}

/// A return type of resource and template handlers: strings, bytes, [`Json`], complete [`ResourceContents`], an `Option` of these
/// (`None`: there is no such resource), or a `Result`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the contents of a resource",
    label = "neither text, bytes, `Json<_>`, `ResourceContents`, nor an `Option` or `Result` of these",
    note = "a value that is `serde::Serialize` can be returned by a function with `#[resource]` or `#[template]` as it is, and by any other handler in `toolgate::Json`"
)]
pub trait IntoContents {
    /// Returns the MIME type, if the Rust type determines it.
    #[doc(hidden)]
    #[must_use]
    fn mime() -> Option<&'static str> {
        None
    }

    /// Converts the value into the contents of the resource with this URI.
    #[doc(hidden)]
    fn into_contents(self, uri: &str) -> Result<ReadOutcome, HandlerFailure>;
}

impl IntoContents for ResourceContents {
    fn into_contents(self, _: &str) -> Result<ReadOutcome, HandlerFailure> {
        Ok(ReadOutcome::Contents(vec![self]))
    }
}

impl IntoContents for Vec<ResourceContents> {
    fn into_contents(self, _: &str) -> Result<ReadOutcome, HandlerFailure> {
        Ok(ReadOutcome::Contents(self))
    }
}

macro_rules! contents {
    ($make:ident, $mime:literal: $($type:ty),*) => {$(
        impl IntoContents for $type {
            fn mime() -> Option<&'static str> {
                Some($mime)
            }

            fn into_contents(self, uri: &str) -> Result<ReadOutcome, HandlerFailure> {
                ResourceContents::$make(uri, self).into_contents(uri)
            }
        }
    )*};
}
contents!(text, "text/plain": String, &'static str, Cow<'static, str>, Box<str>);
contents!(blob, "application/octet-stream": Bytes, Vec<u8>, &'static [u8]);

impl<T: Serialize> IntoContents for Json<T> {
    fn mime() -> Option<&'static str> {
        Some("application/json")
    }

    fn into_contents(self, uri: &str) -> Result<ReadOutcome, HandlerFailure> {
        let text = to_raw(&self.0)?;
        ResourceContents::text(uri, text.as_str()).with_mime("application/json").into_contents(uri)
    }
}

impl<T: IntoContents> IntoContents for Option<T> {
    fn mime() -> Option<&'static str> {
        T::mime()
    }

    fn into_contents(self, uri: &str) -> Result<ReadOutcome, HandlerFailure> {
        self.map_or(Ok(ReadOutcome::NotFound), |contents| contents.into_contents(uri))
    }
}

impl<T: IntoContents, E: fmt::Display> IntoContents for Result<T, E> {
    fn mime() -> Option<&'static str> {
        T::mime()
    }

    fn into_contents(self, uri: &str) -> Result<ReadOutcome, HandlerFailure> {
        match self {
            Ok(contents) => contents.into_contents(uri),
            Err(error) => Err(handler_failure(&error)),
        }
    }
}

/// A return type of prompt handlers: strings or [`Content`] (messages of the user), [`PromptMessage`]s, a complete
/// [`PromptOutput`], or a `Result` of these.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the messages of a prompt",
    label = "neither text, `PromptMessage`, `PromptOutput`, nor a `Result` of these"
)]
pub trait IntoPrompt {
    /// Converts the value into the messages of the prompt.
    #[doc(hidden)]
    fn into_prompt(self) -> Result<PromptOutput, HandlerFailure>;
}

impl IntoPrompt for PromptOutput {
    fn into_prompt(self) -> Result<PromptOutput, HandlerFailure> {
        Ok(self)
    }
}

impl IntoPrompt for Vec<PromptMessage> {
    fn into_prompt(self) -> Result<PromptOutput, HandlerFailure> {
        Ok(PromptOutput::new(self))
    }
}

impl IntoPrompt for PromptMessage {
    fn into_prompt(self) -> Result<PromptOutput, HandlerFailure> {
        vec![self].into_prompt()
    }
}

impl IntoPrompt for Content {
    fn into_prompt(self) -> Result<PromptOutput, HandlerFailure> {
        PromptMessage::user(self).into_prompt()
    }
}

impl IntoPrompt for Vec<Content> {
    fn into_prompt(self) -> Result<PromptOutput, HandlerFailure> {
        self.into_iter().map(PromptMessage::user).collect::<Vec<_>>().into_prompt()
    }
}

impl IntoPrompt for Vec<String> {
    fn into_prompt(self) -> Result<PromptOutput, HandlerFailure> {
        self.into_iter().map(Content::text).collect::<Vec<_>>().into_prompt()
    }
}

impl IntoPrompt for String {
    fn into_prompt(self) -> Result<PromptOutput, HandlerFailure> {
        Content::text(self).into_prompt()
    }
}

impl IntoPrompt for &'static str {
    fn into_prompt(self) -> Result<PromptOutput, HandlerFailure> {
        Content::text(self).into_prompt()
    }
}

impl<T: IntoPrompt, E: fmt::Display> IntoPrompt for Result<T, E> {
    fn into_prompt(self) -> Result<PromptOutput, HandlerFailure> {
        match self {
            Ok(prompt) => prompt.into_prompt(),
            Err(error) => Err(handler_failure(&error)),
        }
    }
}
