//! The workshop: user code, seen from the house.
//!
//! A handler is an async function of things that can be taken out of a call ([`Extract`]): its typed
//! arguments, the [`Context`], shared [`State`]. Schemas come from the types. Erasure happens here, once,
//! so that the rest of the house deals with plain function pointers.

mod client_channel;
mod constraints;
mod context;
mod extract;
mod form;
mod output;
mod return_types;
mod schema;
mod text_arguments;

use std::any::TypeId;
use std::sync::Arc;

use schemars::Schema;
use toolgate_wire::RawJson;
use toolgate_wire::model::{PromptOutput, ResourceContents, ToolOutput};

pub use client_channel::{ElicitOutcome, ServerRequestError};
pub use context::{Context, Notifier};
pub use extract::{Extract, Headers, State};
pub use form::{Field, Form};
pub use output::{HandlerError, IntoContents, IntoOutput, IntoPrompt, Json};

pub(crate) use client_channel::{ClientChannel, ReplayState, ServerRequestErrorKind};
pub(crate) use context::HandlerEnv;
pub(crate) use extract::{Arguments, ExtractError, StateType};
pub(crate) use output::{HandlerFailure, ReadOutcome};
pub(crate) use schema::{is_numeric_format, schema_of, tidy};
pub(crate) use text_arguments::TextArguments;

use crate::request::BoxFuture;

/// What only code that macros write uses.
pub(crate) mod macros {
    pub use super::constraints::{ArgumentPattern, at_least, at_most, below, max_len, min_len};
    pub use super::extract::{Extract, Parameters, ValidArguments};
    pub use super::return_types::{
        CompleteFallible, CompletePlain, CompleteUnsupported, PromptPlain, PromptUnsupported, ReadFallible,
        ReadFallibleOption, ReadOption, ReadPlain, ReadUnsupported, ReadValue, ReturnType, ToolFallible,
        ToolPlain, ToolUnsupported, ToolValue, require_extract, require_send,
    };
}

/// An async function that can serve as a tool, a resource, a template or a prompt.
///
/// It is implemented for functions and closures of up to eight parameters, each of which is one of
///
/// * a type that is `serde::de::DeserializeOwned + schemars::JsonSchema`: the arguments (at most one),
/// * [`Context`]: everything else about the call,
/// * [`State<T>`](State): what the server was given with `state`,
/// * [`Principal`](crate::Principal), [`Headers`], or a type of your own that is [`Extract`].
///
/// What it may return depends on what it serves as: [`IntoOutput`], [`IntoContents`], [`IntoPrompt`].
/// The parameter `A` only keeps the implementations for different arities apart; it is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot serve as a handler",
    label = "not an async function of arguments, `Context` and `State<_>`",
    note = "arguments must implement `serde::Deserialize` and `schemars::JsonSchema`, closures need `|args: Type|` annotations, and the returned future must be `Send`"
)]
pub trait Handler<A>: Send + Sync + 'static {
    /// What the function returns.
    type Output;

    /// The schema of the arguments, if the function has any.
    #[doc(hidden)]
    fn schema() -> Option<Schema>;

    /// What the function cannot do without, and whether it can be called at all.
    #[doc(hidden)]
    fn requirements() -> HandlerRequirements;

    /// Takes the parameters out of a call and starts the function.
    #[doc(hidden)]
    fn start(
        &self,
        cx: &Context,
        arguments: Arguments<'_>,
    ) -> Result<impl Future<Output = Self::Output> + Send + 'static, HandlerFailure>;
}

macro_rules! handlers {
    ($(($($part:ident),*))*) => {$(
        #[allow(non_snake_case, unused_variables)]
        impl<F, Fut, $($part,)*> Handler<($($part,)*)> for F
        where
            F: Fn($($part),*) -> Fut + Send + Sync + 'static,
            Fut: Future + Send + 'static,
            $($part: Extract,)*
        {
            type Output = Fut::Output;

            fn schema() -> Option<Schema> {
                None$(.or_else(<$part as Extract>::schema))*
            }

            fn requirements() -> HandlerRequirements {
                let arguments: usize = 0 $(+ usize::from(<$part as Extract>::schema().is_some()))*;
                let states: [Option<StateType>; _] = [$(<$part as Extract>::state_type()),*];
                HandlerRequirements { states: states.into_iter().flatten().collect(), arguments }
            }

            fn start(
                &self,
                cx: &Context,
                arguments: Arguments<'_>,
            ) -> Result<impl Future<Output = Self::Output> + Send + 'static, HandlerFailure> {
                $(let $part = <$part as Extract>::extract(cx, arguments)?;)*
                Ok(self($($part),*))
            }
        }
    )*};
}

handlers! {
    ()
    (A1)
    (A1, A2)
    (A1, A2, A3)
    (A1, A2, A3, A4)
    (A1, A2, A3, A4, A5)
    (A1, A2, A3, A4, A5, A6)
    (A1, A2, A3, A4, A5, A6, A7)
    (A1, A2, A3, A4, A5, A6, A7, A8)
}

/// What a handler's parameters demand of its server.
#[derive(Clone, Debug, Default)]
#[doc(hidden)]
pub struct HandlerRequirements {
    states: Vec<StateType>,
    /// How many of its parameters are arguments.
    arguments: usize,
}

impl HandlerRequirements {
    /// Also demands what something that belongs to it does. Its arguments are its own.
    pub(crate) fn merge_states(&mut self, other: &HandlerRequirements) {
        self.states.extend_from_slice(&other.states);
    }

    /// Why a handler cannot be served with these states; none if it can.
    pub(crate) fn find_missing(&self, has: impl Fn(&TypeId) -> bool) -> Option<String> {
        if self.arguments > 1 {
            return Some("its handler takes two arguments structs; put their fields into one".into());
        }
        let missing = self.states.iter().find(|needed| !has(&needed.id))?;
        Some(format!(
            "its handler takes `State<{}>`, which the server was not given: add `.state(…)`",
            missing.name
        ))
    }
}

/// A tool's function, erased.
pub(crate) type ToolFn =
    Arc<dyn Fn(&Context, &RawJson) -> BoxFuture<'static, Result<ToolOutput, HandlerFailure>> + Send + Sync>;
/// A resource's or template's function, erased: with the URI that was asked for and the template's variables.
pub(crate) type ReadFn = Arc<
    dyn Fn(Context, String, Vec<(String, String)>) -> BoxFuture<'static, Result<ReadOutcome, HandlerFailure>>
        + Send
        + Sync,
>;
/// A prompt's function, erased.
pub(crate) type PromptFn = Arc<
    dyn Fn(Context, Vec<(String, String)>) -> BoxFuture<'static, Result<PromptOutput, HandlerFailure>>
        + Send
        + Sync,
>;
/// A completer, erased: with what is there so far.
pub(crate) type CompleteFn =
    Arc<dyn Fn(Context, String) -> BoxFuture<'static, Result<Vec<String>, HandlerFailure>> + Send + Sync>;

pub(crate) fn erase_tool<A: 'static, H>(handler: H) -> ToolFn
where
    H: Handler<A>,
    H::Output: IntoOutput,
{
    Arc::new(move |cx, arguments| match handler.start(cx, Arguments::Json(arguments)) {
        Ok(run) => Box::pin(async move { run.await.into_output() }),
        Err(failed) => Box::pin(async move { Err(failed) }),
    })
}

pub(crate) fn erase_read<A: 'static, H>(handler: H, mime: Option<String>) -> ReadFn
where
    H: Handler<A>,
    H::Output: IntoContents,
{
    Arc::new(move |cx, uri, words| {
        let mime = mime.clone();
        match handler.start(&cx, Arguments::Text(&words)) {
            Ok(run) => Box::pin(async move {
                let found = run.await.into_contents(&uri)?;
                Ok(fill_mime_type(found, mime.as_deref()))
            }),
            Err(failed) => Box::pin(async move { Err(failed) }),
        }
    })
}

/// What the listing says of a resource holds for its contents too, where they say nothing themselves.
fn fill_mime_type(found: ReadOutcome, mime: Option<&str>) -> ReadOutcome {
    let ReadOutcome::Contents(mut contents) = found else {
        return found;
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
    Arc::new(move |cx, words| match handler.start(&cx, Arguments::Text(&words)) {
        Ok(run) => Box::pin(async move { run.await.into_prompt() }),
        Err(failed) => Box::pin(async move { Err(failed) }),
    })
}

pub(crate) fn erase_complete<F, Fut, I>(complete: F) -> CompleteFn
where
    F: Fn(String, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = I> + Send + 'static,
    I: IntoIterator,
    I::Item: Into<String>,
{
    Arc::new(move |cx, prefix| {
        let run = complete(prefix, cx);
        Box::pin(async move { Ok(run.await.into_iter().map(Into::into).collect()) })
    })
}

/// A completer that is a handler: what is there so far arrives as the argument `word`.
pub(crate) fn erase_complete_handler<A: 'static, H>(handler: H, word: &'static str) -> CompleteFn
where
    H: Handler<A, Output = Result<Vec<String>, HandlerFailure>>,
{
    Arc::new(move |cx, prefix| {
        let words = [(word.to_owned(), prefix)];
        match handler.start(&cx, Arguments::Text(&words)) {
            Ok(run) => Box::pin(run),
            Err(failed) => Box::pin(async move { Err(failed) }),
        }
    })
}
