//! Return types of handlers, for tools, resources and prompts.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use toolgate_wire::model::{Content, PromptMessage, PromptOutput, ResourceContents, ToolOutput};
use toolgate_wire::{ProtocolError, RawJson};

use super::{HandlerError, HandlerFailure, output_schema_of};

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

/// A return type of tool handlers: strings, numbers, booleans, one or more [`Content`] blocks, [`Json`] for structured output,
/// `()`, a complete [`ToolOutput`], a [`ProtocolError`], or a `Result` of these with an error that implements `Display`. An `Err`
/// becomes a result with `isError`, which the model sees; an `Err` with a [`ProtocolError`] becomes that JSON-RPC error.
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
        Err(HandlerError::from(self).into())
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
        Some(output_schema_of::<T>())
    }

    fn into_output(self) -> Result<ToolOutput, HandlerFailure> {
        Ok(structured_output(to_raw(&self.0)?))
    }
}

impl<T: IntoOutput, E: fmt::Display + 'static> IntoOutput for Result<T, E> {
    fn schema() -> Option<Schema> {
        T::schema()
    }

    fn into_output(self) -> Result<ToolOutput, HandlerFailure> {
        match self {
            Ok(output) => output.into_output(),
            Err(error) => Err(HandlerError::from_returned(error).into()),
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
        .map_err(|error| HandlerError::new(format!("the result is not JSON: {error}")).into())
}

/// A return type of resource and template handlers: strings, bytes, [`Json`], complete [`ResourceContents`], an `Option` of these
/// (`None`: there is no such resource), or a `Result`. An `Err` with a [`ProtocolError`] is the JSON-RPC error that the client
/// receives; any other `Err` is an internal error with its message.
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

impl<T: IntoContents, E: fmt::Display + 'static> IntoContents for Result<T, E> {
    fn mime() -> Option<&'static str> {
        T::mime()
    }

    fn into_contents(self, uri: &str) -> Result<ReadOutcome, HandlerFailure> {
        match self {
            Ok(contents) => contents.into_contents(uri),
            Err(error) => Err(HandlerError::from_returned(error).into()),
        }
    }
}

/// A return type of prompt handlers: strings or [`Content`] (messages of the user), [`PromptMessage`]s, a complete
/// [`PromptOutput`], or a `Result` of these. An `Err` with a [`ProtocolError`] is the JSON-RPC error that the client receives; any
/// other `Err` is an internal error with its message.
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

impl<T: IntoPrompt, E: fmt::Display + 'static> IntoPrompt for Result<T, E> {
    fn into_prompt(self) -> Result<PromptOutput, HandlerFailure> {
        match self {
            Ok(prompt) => prompt.into_prompt(),
            Err(error) => Err(HandlerError::from_returned(error).into()),
        }
    }
}

/// A return type of completers: the suggestions as strings, or a `Result` of them. An `Err` with a [`ProtocolError`] is the
/// JSON-RPC error that the client receives; any other `Err` means that there are no suggestions. The parameter `M` only
/// distinguishes the two; it is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the suggestions of a completer",
    label = "neither strings nor a `Result` of strings"
)]
pub trait IntoCompletion<M> {
    /// Converts the value into suggestions.
    #[doc(hidden)]
    fn into_completion(self) -> Result<Vec<String>, HandlerFailure>;
}

impl<I: IntoIterator<Item: Into<String>>> IntoCompletion<()> for I {
    fn into_completion(self) -> Result<Vec<String>, HandlerFailure> {
        Ok(self.into_iter().map(Into::into).collect())
    }
}

impl<I, E> IntoCompletion<(E,)> for Result<I, E>
where
    I: IntoIterator<Item: Into<String>>,
    E: fmt::Display + 'static,
{
    fn into_completion(self) -> Result<Vec<String>, HandlerFailure> {
        match self {
            Ok(values) => values.into_completion(),
            Err(error) => Err(HandlerError::from_returned(error).into()),
        }
    }
}
