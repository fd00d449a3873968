//! What a handler can take out of a call.

use std::any::{TypeId, type_name};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use http::HeaderMap;
use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use toolgate_wire::RawJson;

use super::output::handler_failure;
use super::{Context, HandlerError, HandlerFailure, TextArguments, schema_of};
use crate::headers::RequestHeaders;
use crate::request::Principal;

/// Something a handler can take out of a call.
///
/// Implemented for arguments (whatever `serde` can read and `schemars` can describe), [`Context`],
/// [`State`], [`Principal`] and [`Headers`]. For a type of your own, write [`Extract::from_call`] and nothing
/// else; functions with `#[tool]` and its like mark such a parameter with `#[extract]`.
///
/// ```
/// # use toolgate::{Context, Extract, Server, ToolError};
/// struct Tenant(String);
///
/// impl Extract for Tenant {
///     fn from_call(cx: &Context) -> Result<Tenant, ToolError> {
///         let tenant = cx.headers().get("x-tenant").and_then(|value| value.to_str().ok());
///         tenant.map(|name| Tenant(name.into())).ok_or(ToolError::new("the header `x-tenant` is missing"))
///     }
/// }
///
/// let server = Server::new("demo", "1.0.0").tool("who", |tenant: Tenant| async { tenant.0 });
/// # server.build().unwrap();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be taken out of a call",
    label = "neither arguments, nor `Context`, `State<_>`, `Principal` or `Headers`",
    note = "to serve as arguments, derive `serde::Deserialize` and `schemars::JsonSchema`",
    note = "to be taken out of the call, implement `toolgate::Extract`"
)]
pub trait Extract: Sized + Send {
    /// Takes it out of the call. An error is told to the caller, and the handler is not started.
    ///
    /// # Errors
    /// If the call lacks what this needs.
    fn from_call(cx: &Context) -> Result<Self, HandlerError> {
        let _ = cx;
        Err(HandlerError::new(format!(
            "`{}` does not say how it is taken out of a call",
            type_name::<Self>()
        )))
    }

    /// The schema of the arguments, if this reads them.
    #[doc(hidden)]
    #[must_use]
    fn schema() -> Option<Schema> {
        None
    }

    /// The shared state that this is, if it is any.
    #[doc(hidden)]
    #[must_use]
    fn state_type() -> Option<StateType> {
        None
    }

    /// Takes it out of the call or its arguments.
    #[doc(hidden)]
    fn extract(cx: &Context, arguments: Arguments<'_>) -> Result<Self, HandlerFailure> {
        let _ = arguments;
        Self::from_call(cx).map_err(|error| handler_failure(&error))
    }
}

/// Shared state that a handler cannot do without.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct StateType {
    pub(crate) id: TypeId,
    pub(crate) name: &'static str,
}

/// The arguments of a call, in one of the two shapes the protocol has for them.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub enum Arguments<'a> {
    /// Of tools: a JSON object.
    Json(&'a RawJson),
    /// Of prompts and templates: names and texts.
    Text(&'a [(String, String)]),
}

/// Why a handler cannot be started with what the caller gave.
#[derive(Debug)]
#[doc(hidden)]
pub enum ExtractError {
    /// The caller's mistake, in words a model can act on.
    Arguments(String),
    /// The server's mistake: it was not given this state.
    MissingState(&'static str),
}

impl<T: DeserializeOwned + JsonSchema + Send> Extract for T {
    fn schema() -> Option<Schema> {
        Some(schema_of::<T>())
    }

    fn extract(_: &Context, arguments: Arguments<'_>) -> Result<T, HandlerFailure> {
        deserialize_arguments(arguments)
    }
}

fn deserialize_arguments<T: DeserializeOwned>(arguments: Arguments<'_>) -> Result<T, HandlerFailure> {
    let read = match arguments {
        Arguments::Json(raw) => raw.parse_as().map_err(|error| message_without_position(&error)),
        Arguments::Text(words) => {
            T::deserialize(TextArguments::new(words)).map_err(|error| error.to_string())
        }
    };
    read.map_err(|error| HandlerFailure::Extract(ExtractError::Arguments(error)))
}

/// serde's words without the position: callers count parameters, not columns.
fn message_without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// The parameters of a function, as a macro has put them together.
#[doc(hidden)]
pub trait Parameters: DeserializeOwned + JsonSchema + Send {
    /// What the types do not say: ranges, lengths, patterns.
    ///
    /// # Errors
    /// In words that name the parameter.
    fn validate(&self) -> Result<(), String>;
}

/// Arguments that are within their limits, wherever they came from. A schema is checked only where JSON
/// comes in, and only with the feature `validate`; this holds for texts, and without it.
#[derive(Debug)]
#[doc(hidden)]
pub struct ValidArguments<P>(pub P);

impl<P: Parameters> Extract for ValidArguments<P> {
    fn schema() -> Option<Schema> {
        Some(schema_of::<P>())
    }

    fn extract(_: &Context, arguments: Arguments<'_>) -> Result<ValidArguments<P>, HandlerFailure> {
        let parameters: P = deserialize_arguments(arguments)?;
        match parameters.validate() {
            Ok(()) => Ok(ValidArguments(parameters)),
            Err(fault) => Err(HandlerFailure::Extract(ExtractError::Arguments(fault))),
        }
    }
}

impl Extract for Context {
    fn from_call(cx: &Context) -> Result<Context, HandlerError> {
        Ok(cx.clone())
    }
}

impl Extract for Principal {
    fn from_call(cx: &Context) -> Result<Principal, HandlerError> {
        Ok(cx.principal().clone())
    }
}

/// The HTTP headers of a call; empty over stdio.
///
/// ```
/// # use toolgate::{Headers, Server};
/// let server = Server::new("demo", "1.0.0").tool("language", |headers: Headers| async move {
///     headers.get("accept-language").and_then(|value| value.to_str().ok()).unwrap_or("en").to_owned()
/// });
/// # server.build().unwrap();
/// ```
#[derive(Clone)]
pub struct Headers(Arc<RequestHeaders>);

impl Deref for Headers {
    type Target = HeaderMap;

    fn deref(&self) -> &HeaderMap {
        &self.0
    }
}

impl fmt::Debug for Headers {
    // Names only: among the values are credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Extract for Headers {
    fn from_call(cx: &Context) -> Result<Headers, HandlerError> {
        Ok(Headers(cx.shared_headers()))
    }
}

/// Something the whole server shares, given with `state` when it was built.
///
/// ```
/// # use toolgate::{Server, State};
/// struct Greeting(String);
///
/// let server = Server::new("demo", "1.0.0")
///     .state(Greeting("Hello".into()))
///     .tool("greet", |greeting: State<Greeting>| async move { format!("{}, world!", greeting.0) });
/// ```
#[derive(Debug)]
pub struct State<T>(pub(crate) Arc<T>);

impl<T> Clone for State<T> {
    fn clone(&self) -> State<T> {
        State(Arc::clone(&self.0))
    }
}

impl<T> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Send + Sync + 'static> Extract for State<T> {
    fn state_type() -> Option<StateType> {
        Some(StateType { id: TypeId::of::<T>(), name: type_name::<T>() })
    }

    fn extract(cx: &Context, _: Arguments<'_>) -> Result<State<T>, HandlerFailure> {
        cx.shared_state()
            .map(State)
            .ok_or(HandlerFailure::Extract(ExtractError::MissingState(type_name::<T>())))
    }
}
