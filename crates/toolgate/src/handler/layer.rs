//! Layers: middleware around the handlers of a server, for timing, transactions, feature flags and retries.
//!
//! A layer is an async function that receives a [`Call`] and [`Next`], as with `axum::middleware::from_fn`.
//! [`Builder::layer`](crate::Builder::layer) adds it. It runs around the handlers of tools, resources, templates, prompts and
//! completions, in every protocol version and over every transport, and around the runs of tasks.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), toolgate::Error> {
//! use toolgate::Server;
//! use toolgate::layer::{Call, CallOutput, LayerError, Next};
//!
//! /// Rejects calls of tools that are switched off.
//! async fn check_flags(call: Call, next: Next) -> Result<CallOutput, LayerError> {
//!     if call.method() == "tools/call" && call.subject().starts_with("beta_") {
//!         return Err(LayerError::new("this tool is not available yet"));
//!     }
//!     next.run(call).await
//! }
//!
//! /// Runs a failed call once more.
//! async fn retry(call: Call, next: Next) -> Result<CallOutput, LayerError> {
//!     match next.clone().run(call.clone()).await {
//!         Err(error) if !error.is_suspended() => next.run(call).await,
//!         result => result,
//!     }
//! }
//!
//! let server = Server::new("demo", "1.0.0")
//!     .layer(check_flags)
//!     .layer(retry)
//!     .tool("hello", || async { "Hello!" })
//!     .tool("beta_hello", || async { "Hello?" })
//!     .build()?;
//! let result = server.call_tool("beta_hello", serde_json::json!({})).await?;
//! assert_eq!(result["content"][0]["text"], "this tool is not available yet");
//! # Ok(())
//! # }
//! ```
//!
//! Calls that are rejected before their handler would start (by guards and profiles, because of unknown names or invalid
//! arguments), and methods without a handler such as `tools/list`, do not reach the layers; see [`events`](crate::events)
//! for those. A layer can
//!
//! * read and [change the arguments](Call::set_arguments), which are validated again,
//! * return a result or an error without running the handler,
//! * run the handler more than once: [`Next`] and [`Call`] can be cloned,
//! * inspect and replace the output.
//!
//! A panic or a timeout of a layer fails the call as one of its handler does. If a handler must wait for its client in
//! the newest protocol version, or defers its call to a task, [`Next::run`] returns an error that
//! [is suspended](LayerError::is_suspended): return it. The layers run again with the repeated call, or with the task.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};
use toolgate_wire::model::{PromptOutput, ResourceContents, ToolOutput};
use toolgate_wire::{ProtocolError, RawJson};

use super::{Context, ExtractError, HandlerError, HandlerFailure};
use crate::request::BoxFuture;

/// A call on its way to a handler: the tool, resource, prompt or completer that is called, and its arguments.
///
/// A clone can be run again, for example by a layer that retries.
#[derive(Clone, Debug)]
pub struct Call {
    server: Arc<str>,
    method: &'static str,
    subject: Arc<str>,
    arguments: CallArguments,
    /// Whether a layer has set arguments, which must then be validated again.
    is_changed: bool,
    cx: Context,
}

/// The arguments of a call, in one of the two forms of the protocol.
#[derive(Clone, Debug)]
pub(crate) enum CallArguments {
    /// Arguments of a tool.
    Json(RawJson),
    /// Variables of a template, arguments of a prompt, or the text to complete.
    Text(Vec<(String, String)>),
}

impl Call {
    /// Returns the name of the server.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns the method: `tools/call` (also for the run of a task), `resources/read`, `prompts/get` or
    /// `completion/complete`.
    #[must_use]
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// Returns the name of the tool or prompt, or the URI of the resource. For completions: the name of the prompt, or the
    /// URI template.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Returns the context of the call: caller, headers, deadline, and the channel to the client.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.cx
    }

    /// Returns the arguments as a JSON object: of a tool, or of a prompt, the variables of a template, or the argument to
    /// complete with the text typed so far.
    #[must_use]
    pub fn arguments(&self) -> Value {
        match &self.arguments {
            CallArguments::Json(raw) => raw.to_value(),
            CallArguments::Text(pairs) => {
                let members = pairs.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str())));
                Value::Object(members.collect())
            }
        }
    }

    /// Replaces the arguments with those of a JSON object. They are validated again before the handler runs.
    ///
    /// The arguments of prompts, templates and completions are strings: other values are converted to JSON text, and
    /// `null` removes the argument.
    pub fn set_arguments(&mut self, arguments: Map<String, Value>) {
        self.is_changed = true;
        self.arguments = match &self.arguments {
            CallArguments::Json(_) => CallArguments::Json(RawJson::from(Value::Object(arguments))),
            CallArguments::Text(_) => CallArguments::Text(
                arguments
                    .into_iter()
                    .filter_map(|(name, value)| match value {
                        Value::Null => None,
                        Value::String(text) => Some((name, text)),
                        other => Some((name, other.to_string())),
                    })
                    .collect(),
            ),
        };
    }

    /// Sets one argument, as [`Call::set_arguments`] does.
    pub fn set_argument(&mut self, name: &str, value: impl Into<Value>) {
        let mut arguments = match self.arguments() {
            Value::Object(arguments) => arguments,
            _ => Map::new(),
        };
        arguments.insert(name.to_owned(), value.into());
        self.set_arguments(arguments);
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.is_changed
    }

    pub(crate) fn into_parts(self) -> (Context, CallArguments) {
        (self.cx, self.arguments)
    }
}

impl CallArguments {
    pub(crate) fn into_json(self) -> RawJson {
        match self {
            CallArguments::Json(raw) => raw,
            CallArguments::Text(_) => RawJson::empty_object(),
        }
    }

    pub(crate) fn into_text(self) -> Vec<(String, String)> {
        match self {
            CallArguments::Json(_) => Vec::new(),
            CallArguments::Text(pairs) => pairs,
        }
    }
}

/// The output of a call, by the kind of its handler.
///
/// A layer must return the kind that belongs to the [method](Call::method) of the call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CallOutput {
    /// The output of a tool. If the tool has an output schema, the structured content of a layer must fit it.
    Tool(ToolOutput),
    /// The contents of a resource.
    Resource(Vec<ResourceContents>),
    /// The messages of a prompt.
    Prompt(PromptOutput),
    /// The suggestions of a completer.
    Completion(Vec<String>),
}

impl CallOutput {
    /// Returns whether this is the output of a tool with `is_error`.
    #[must_use]
    pub fn is_error(&self) -> bool {
        matches!(self, CallOutput::Tool(output) if output.is_error)
    }
}

/// The error of a call: the handler or a layer failed, or the call waits for its client.
///
/// Every `std::error::Error` converts into it with `?`, and is reported as the error of a handler is: a result with
/// `isError` for tools, a JSON-RPC error otherwise. A [`ProtocolError`] stays one.
pub struct LayerError {
    failure: HandlerFailure,
    is_suspended: bool,
}

impl LayerError {
    /// Creates an error with this message.
    pub fn new(message: impl Into<String>) -> LayerError {
        HandlerError::new(message).into()
    }

    /// Returns whether the handler ended without a result because the call continues elsewhere: the client must first
    /// answer a request such as an elicitation and repeat the call, or the call becomes a task.
    ///
    /// Return such an error as it is. Nothing has failed: it should be neither logged as an error nor retried.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.is_suspended
    }

    /// Returns the JSON-RPC error, if the handler returned one.
    #[must_use]
    pub fn protocol_error(&self) -> Option<&ProtocolError> {
        match &self.failure {
            HandlerFailure::Returned(error) => error.protocol_error(),
            HandlerFailure::Extract(_) => None,
        }
    }

    /// The error of a handler with this context.
    pub(crate) fn from_handler(failure: HandlerFailure, cx: &Context) -> LayerError {
        LayerError { is_suspended: is_suspended(cx), failure }
    }

    pub(crate) fn into_failure(self) -> HandlerFailure {
        self.failure
    }
}

/// Whether a run of this call has ended because an answer of the client is missing, or because it was deferred.
fn is_suspended(cx: &Context) -> bool {
    cx.is_deferred() || cx.client_channel().suspension_error().is_some()
}

impl fmt::Display for LayerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.failure {
            HandlerFailure::Returned(error) => fmt::Display::fmt(error, f),
            HandlerFailure::Extract(ExtractError::Arguments(message)) => f.write_str(message),
            HandlerFailure::Extract(ExtractError::MissingState(name)) => {
                write!(f, "the server was built without the state `{name}`")
            }
        }
    }
}

impl fmt::Debug for LayerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerError")
            .field("message", &self.to_string())
            .field("is_suspended", &self.is_suspended)
            .finish_non_exhaustive()
    }
}

// Like `HandlerError`, it does not implement `std::error::Error`: this impl would then overlap with `From<T> for T`.
impl<E: std::error::Error + Send + Sync + 'static> From<E> for LayerError {
    fn from(error: E) -> LayerError {
        HandlerError::from(error).into()
    }
}

impl From<HandlerError> for LayerError {
    fn from(error: HandlerError) -> LayerError {
        LayerError { is_suspended: error.is_suspended(), failure: HandlerFailure::Returned(error) }
    }
}

/// The result of a call.
pub(crate) type CallResult = Result<CallOutput, LayerError>;

/// A type-erased layer.
pub(crate) type LayerFn = Arc<dyn Fn(Call, Next) -> BoxFuture<'static, CallResult> + Send + Sync>;

/// The handler at the end of the chain.
type InnerHandler = Arc<dyn Fn(Call) -> BoxFuture<'static, CallResult> + Send + Sync>;

/// The rest of a call: the layers after this one, and the handler.
///
/// Clones run the same handler again.
#[derive(Clone)]
pub struct Next {
    layers: Arc<[LayerFn]>,
    /// Index of the layer that runs next.
    position: usize,
    handler: InnerHandler,
}

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers_left = self.layers.len() - self.position;
        f.debug_struct("Next").field("layers_left", &layers_left).finish_non_exhaustive()
    }
}

impl Next {
    /// Runs the rest of the call.
    ///
    /// A panic in the handler unwinds through the layers, and the time limit of the call includes them. When the call is
    /// cancelled or its time is over, the future of the layer is dropped. Release what a layer holds in a `Drop`.
    ///
    /// # Errors
    /// The error of the handler or of a later layer. If an earlier run of this call [is suspended](LayerError::is_suspended), the
    /// handler does not run again.
    pub async fn run(mut self, call: Call) -> Result<CallOutput, LayerError> {
        if is_suspended(&call.cx) {
            return Err(LayerError { is_suspended: true, ..LayerError::new("the call is suspended") });
        }
        match self.layers.get(self.position).map(Arc::clone) {
            Some(layer) => {
                self.position += 1;
                layer(call, self).await
            }
            None => (self.handler)(call).await,
        }
    }
}

/// The layers of a server, and the name that they see.
#[derive(Clone)]
pub(crate) struct Layers {
    pub(crate) server: Arc<str>,
    pub(crate) layers: Arc<[LayerFn]>,
}

impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layers").field("count", &self.layers.len()).finish_non_exhaustive()
    }
}

impl Layers {
    /// Runs a call through all layers to its handler.
    pub(crate) fn run(
        &self,
        method: &'static str,
        subject: &str,
        arguments: CallArguments,
        cx: Context,
        handler: impl Fn(Call) -> BoxFuture<'static, CallResult> + Send + Sync + 'static,
    ) -> impl Future<Output = CallResult> + Send + 'static {
        let server = Arc::clone(&self.server);
        let call = Call { server, method, subject: subject.into(), arguments, is_changed: false, cx };
        Next { layers: Arc::clone(&self.layers), position: 0, handler: Arc::new(handler) }.run(call)
    }
}

pub(crate) fn erase_layer<F, Fut>(layer: F) -> LayerFn
where
    F: Fn(Call, Next) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<CallOutput, LayerError>> + Send + 'static,
{
    Arc::new(move |call, next| Box::pin(layer(call, next)))
}
