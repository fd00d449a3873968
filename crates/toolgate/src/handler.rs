//! Handlers: user functions that implement tools, resources, templates and prompts.
//!
//! A handler is an async function whose parameters are extracted from the call ([`Extract`]): typed arguments, the
//! [`Context`], shared [`State`]. Schemas are generated from the types. Type erasure happens here and nowhere else; the
//! rest of the crate sees `ToolFn`, `ReadFn`, `PromptFn` and `CompleteFn`. This module knows no protocol versions and no
//! transports.

mod argument_names;
mod blocking;
mod client_channel;
mod constraints;
mod context;
mod elicitation;
mod error;
mod extract;
mod form;
mod known_fields;
pub mod layer;
mod notifier;
mod output;
mod parameters;
pub(crate) mod public;
mod return_types;
mod sampling;
mod schema;
mod session_state;
mod text_arguments;

use std::any::TypeId;
use std::sync::Arc;

use schemars::Schema;
use toolgate_wire::RawJson;
use toolgate_wire::model::{PromptOutput, ResourceContents, ToolOutput};

pub use client_channel::{ElicitOutcome, ServerRequestError};
pub use context::Context;
pub use error::HandlerError;
pub use extract::{Extension, Extract, Headers, State};
pub use form::{Field, Form};
pub use notifier::Notifier;
pub use output::{IntoCompletion, IntoContents, IntoOutput, IntoPrompt, Json};
pub use sampling::SamplingBuilder;
pub use session_state::{SessionError, SessionState};

pub(crate) use client_channel::{ClientChannel, ReplayState, ServerRequestErrorKind};
pub(crate) use context::HandlerEnv;
pub(crate) use error::{ErrorReply, HandlerFailure};
pub(crate) use extract::{Arguments, ExtractError, StateType};
pub(crate) use output::ReadOutcome;
pub(crate) use schema::{is_numeric_format, output_schema_of, schema_of, tidy, tidy_output};
pub(crate) use session_state::{MAX_SESSION_STATE_BYTES, SessionAccess, SessionErrorKind};
pub(crate) use text_arguments::TextArguments;

use crate::request::BoxFuture;

/// Items that only macro-generated code uses.
pub(crate) mod macros {
    pub use super::blocking::{run_blocking, run_blocking_prompt, run_blocking_read, run_blocking_tool};
    pub use super::constraints::{ArgumentPattern, at_least, at_most, below, max_len, min_len};
    pub use super::error::HandlerFailure;
    pub use super::parameters::{
        ArgumentKind, DeserializeOnlyKind, ExtractorKind, HandlerFn, ParameterField, ParameterInfo,
        Parameters, Probe, SchemaOnlyKind, UnsupportedKind,
    };
    pub use super::return_types::{
        CompleteFallible, CompletePlain, CompleteUnsupported, PromptPlain, PromptUnsupported, ReadFallible,
        ReadFallibleOption, ReadOption, ReadPlain, ReadUnsupported, ReadValue, ReturnType, ToolFallible,
        ToolPlain, ToolUnsupported, ToolValue, require_send,
    };
}

/// An async function that can serve as a tool, a resource, a template or a prompt.
///
/// It is implemented for functions and closures of up to eight parameters, each of which is one of
///
/// * a type that is `serde::de::DeserializeOwned + schemars::JsonSchema`: the arguments (at most one such parameter),
/// * [`Context`]: everything else about the call,
/// * [`State<T>`](State): a value passed to [`Builder::state`](crate::Builder::state),
/// * [`Principal`](crate::Principal) or an `Option` of it, [`Headers`], or your own type that implements [`Extract`].
///
/// The return type of a tool implements [`IntoOutput`], of a resource or template [`IntoContents`], and of a prompt
/// [`IntoPrompt`]. The parameter `A` only distinguishes the implementations for different arities; it is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot serve as a handler",
    label = "not an async function of arguments, `Context` and `State<_>`",
    note = "pass the function itself, with at most eight parameters; a closure needs their types: `|args: Type|`"
)]
pub trait Handler<A>: HandlerSignature<A> + Send + Sync + 'static {
    /// The output of the returned future.
    type Output;

    /// Returns the schema of the arguments, if the function has any.
    #[doc(hidden)]
    fn schema() -> Option<Schema>;

    /// Returns the state types that the function needs, and the number of its arguments parameters.
    #[doc(hidden)]
    fn requirements() -> HandlerRequirements;

    /// Extracts the parameters from a call and starts the function.
    #[doc(hidden)]
    fn start(
        &self,
        cx: &Context,
        arguments: Arguments<'_>,
    ) -> Result<impl Future<Output = Self::Output> + Send + 'static, HandlerFailure>;
}

/// The parameter types of a function, whether or not they can be extracted.
///
/// A bound on it in front of a bound on [`Handler`] determines `A`. Then the compiler error of a function that is no handler
/// names the cause: the parameter that cannot be extracted, the variable that makes the future `!Send`, or the missing `async`.
/// With `Handler` alone, no implementation applies, and the error can only say that.
#[doc(hidden)]
pub trait HandlerSignature<A> {}

macro_rules! handlers {
    ($(($($part:ident $via:ident),*))*) => {$(
        impl<F, Fut, $($part, $via,)*> HandlerSignature<($(($part, $via),)*)> for F
        where
            F: Fn($($part),*) -> Fut,
        {
        }

        #[allow(non_snake_case, unused_variables)]
        impl<F, Fut, $($part, $via,)*> Handler<($(($part, $via),)*)> for F
        where
            F: Fn($($part),*) -> Fut + Send + Sync + 'static,
            Fut: Future + Send + 'static,
            $($part: Extract<$via>,)*
        {
            type Output = Fut::Output;

            fn schema() -> Option<Schema> {
                None$(.or_else(<$part as Extract<$via>>::schema))*
            }

            fn requirements() -> HandlerRequirements {
                let arguments: usize = 0 $(+ usize::from(<$part as Extract<$via>>::schema().is_some()))*;
                let states: &[Option<StateType>] = &[$(<$part as Extract<$via>>::state_type()),*];
                let argument_names = None$(.or_else(<$part as Extract<$via>>::argument_names))*;
                HandlerRequirements {
                    states: states.iter().flatten().copied().collect(),
                    arguments,
                    argument_names: argument_names.map(<[&'static str]>::to_vec),
                }
            }

            fn start(
                &self,
                cx: &Context,
                arguments: Arguments<'_>,
            ) -> Result<impl Future<Output = Self::Output> + Send + 'static, HandlerFailure> {
                $(let $part = <$part as Extract<$via>>::extract(cx, arguments)?;)*
                Ok(self($($part),*))
            }
        }
    )*};
}

handlers! {
    ()
    (A1 V1)
    (A1 V1, A2 V2)
    (A1 V1, A2 V2, A3 V3)
    (A1 V1, A2 V2, A3 V3, A4 V4)
    (A1 V1, A2 V2, A3 V3, A4 V4, A5 V5)
    (A1 V1, A2 V2, A3 V3, A4 V4, A5 V5, A6 V6)
    (A1 V1, A2 V2, A3 V3, A4 V4, A5 V5, A6 V6, A7 V7)
    (A1 V1, A2 V2, A3 V3, A4 V4, A5 V5, A6 V6, A7 V7, A8 V8)
}

/// The requirements of a handler's parameters on the server.
#[derive(Clone, Debug, Default)]
#[doc(hidden)]
pub struct HandlerRequirements {
    states: Vec<StateType>,
    /// Number of parameters that are arguments. More than one is an error.
    arguments: usize,
    /// The names of all arguments, if they are a struct with known fields.
    pub(crate) argument_names: Option<Vec<&'static str>>,
}

impl HandlerRequirements {
    /// Adds the state types of a completer. Arguments are not merged: the completer has its own.
    pub(crate) fn merge_states(&mut self, other: &HandlerRequirements) {
        self.states.extend_from_slice(&other.states);
    }

    /// Returns why a server with these states cannot run the handler, or `None` if it can.
    pub(crate) fn find_missing(&self, has_state: impl Fn(&TypeId) -> bool) -> Option<String> {
        if self.arguments > 1 {
            return Some("its handler takes two arguments structs; put their fields into one".into());
        }
        let missing = self.states.iter().find(|state| !has_state(&state.id))?;
        Some(format!(
            "its handler takes `State<{}>`, which the server was not given: add `.state(…)`",
            missing.name
        ))
    }
}

/// The type-erased handler of a tool.
pub(crate) type ToolFn =
    Arc<dyn Fn(&Context, &RawJson) -> BoxFuture<'static, Result<ToolOutput, HandlerFailure>> + Send + Sync>;
/// The type-erased handler of a resource or template. Takes the requested URI and the template's variables.
pub(crate) type ReadFn = Arc<
    dyn Fn(Context, String, Vec<(String, String)>) -> BoxFuture<'static, Result<ReadOutcome, HandlerFailure>>
        + Send
        + Sync,
>;
/// The type-erased handler of a prompt. Takes the prompt's arguments.
pub(crate) type PromptFn = Arc<
    dyn Fn(Context, Vec<(String, String)>) -> BoxFuture<'static, Result<PromptOutput, HandlerFailure>>
        + Send
        + Sync,
>;
/// A type-erased completer. Takes the text typed so far.
pub(crate) type CompleteFn =
    Arc<dyn Fn(Context, String) -> BoxFuture<'static, Result<Vec<String>, HandlerFailure>> + Send + Sync>;

pub(crate) fn erase_tool<A: 'static, H>(handler: H) -> ToolFn
where
    H: Handler<A>,
    H::Output: IntoOutput,
{
    Arc::new(move |cx, arguments| match handler.start(cx, Arguments::Json(arguments)) {
        Ok(run) => Box::pin(async move { run.await.into_output() }),
        Err(failure) => Box::pin(async move { Err(failure) }),
    })
}

pub(crate) fn erase_read<A: 'static, H>(handler: H, mime: Option<String>) -> ReadFn
where
    H: Handler<A>,
    H::Output: IntoContents,
{
    Arc::new(move |cx, uri, variables| {
        let mime = mime.clone();
        match handler.start(&cx, Arguments::Text(&variables)) {
            Ok(run) => Box::pin(async move {
                let outcome = run.await.into_contents(&uri)?;
                Ok(fill_mime_type(outcome, mime.as_deref()))
            }),
            Err(failure) => Box::pin(async move { Err(failure) }),
        }
    })
}

/// Applies the resource's MIME type to contents that have none of their own.
fn fill_mime_type(outcome: ReadOutcome, mime: Option<&str>) -> ReadOutcome {
    let ReadOutcome::Contents(mut contents) = outcome else {
        return outcome;
    };
    for ResourceContents { mime: own, .. } in &mut contents {
        if own.is_none() {
            *own = mime.map(str::to_owned);
        }
    }
    ReadOutcome::Contents(contents)
}

pub(crate) fn erase_prompt<A: 'static, H>(handler: H) -> PromptFn
where
    H: Handler<A>,
    H::Output: IntoPrompt,
{
    Arc::new(move |cx, arguments| match handler.start(&cx, Arguments::Text(&arguments)) {
        Ok(run) => Box::pin(async move { run.await.into_prompt() }),
        Err(failure) => Box::pin(async move { Err(failure) }),
    })
}

pub(crate) fn erase_complete<F, Fut, M>(complete: F) -> CompleteFn
where
    F: Fn(String, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoCompletion<M>> + Send + 'static,
{
    Arc::new(move |cx, prefix| {
        let run = complete(prefix, cx);
        Box::pin(async move { run.await.into_completion() })
    })
}

/// Erases a completer that is a handler. The text typed so far is passed as the argument `prefix_argument`.
pub(crate) fn erase_complete_handler<A: 'static, H>(handler: H, prefix_argument: &'static str) -> CompleteFn
where
    H: Handler<A, Output = Result<Vec<String>, HandlerFailure>>,
{
    Arc::new(move |cx, prefix| {
        let arguments = [(prefix_argument.to_owned(), prefix)];
        match handler.start(&cx, Arguments::Text(&arguments)) {
            Ok(run) => Box::pin(run),
            Err(failure) => Box::pin(async move { Err(failure) }),
        }
    })
}
