//! Extractors: parameters of handlers, taken from the call.
//!
//! Arguments are deserialized here; validation against the JSON Schema happens before, in `registry/validator.rs`.

use std::any::{TypeId, type_name};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use http::HeaderMap;
use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use toolgate_wire::{ProtocolError, RawJson};

use super::argument_names::argument_names;
use super::known_fields::deserialize_noting_unknown;
use super::{Context, HandlerError, HandlerFailure, TextArguments, schema_of};
use crate::headers::RequestHeaders;
use crate::request::Principal;
use crate::seal::error_reference;

/// A parameter type of handlers that is extracted from the call.
///
/// Implemented for arguments (types that implement `serde::Deserialize` and `schemars::JsonSchema`), [`Context`], [`State`],
/// [`Principal`], `Option<Principal>` (`None`: the caller is not authenticated), [`Headers`] and [`Extension`]. For your own
/// type, implement only [`Extract::from_call`].
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
///
/// The parameter `Via` distinguishes extractors from arguments. It is always inferred: write `impl Extract for Tenant`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a handler",
    label = "neither arguments, nor `Context`, `State<_>`, `Principal` or `Headers`",
    note = "to serve as arguments, derive `serde::Deserialize` and `schemars::JsonSchema`",
    note = "to be extracted from the call, implement `toolgate::Extract`"
)]
#[doc(alias("FromRequest", "dependency injection", "extractor"))]
pub trait Extract<Via = ViaCall>: Sized + Send {
    /// Extracts the value from the call.
    ///
    /// # Errors
    /// If the call lacks the required data. The error is the result of the call, and the handler does not run. A
    /// [`ProtocolError`](crate::ProtocolError), converted with `?` or `into`, is the JSON-RPC error that the client receives.
    fn from_call(cx: &Context) -> Result<Self, HandlerError> {
        let _ = cx;
        Err(HandlerError::new(format!("`{}` is not an extractor", type_name::<Self>())))
    }

    /// Returns the schema of the arguments, if this type is deserialized from them.
    #[doc(hidden)]
    #[must_use]
    fn schema() -> Option<Schema> {
        None
    }

    /// Returns the names of all arguments, if this type is a struct with known fields that is deserialized from them.
    #[doc(hidden)]
    #[must_use]
    fn argument_names() -> Option<&'static [&'static str]> {
        None
    }

    /// Returns the state type that this needs, if any.
    #[doc(hidden)]
    #[must_use]
    fn state_type() -> Option<StateType> {
        None
    }

    /// Extracts the value from the call or its arguments.
    #[doc(hidden)]
    fn extract(cx: &Context, arguments: Arguments<'_>) -> Result<Self, HandlerFailure> {
        let _ = arguments;
        Self::from_call(cx).map_err(HandlerFailure::from)
    }
}

/// Marks types that are extracted from the call; see [`Extract`].
#[derive(Debug)]
#[doc(hidden)]
pub struct ViaCall;

/// Marks types that are deserialized from the arguments; see [`Extract`].
#[derive(Debug)]
#[doc(hidden)]
pub struct ViaArguments;

/// A type of shared state that a handler needs.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct StateType {
    pub(crate) id: TypeId,
    pub(crate) name: &'static str,
}

/// The arguments of a call, in one of the two forms of the protocol.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub enum Arguments<'a> {
    /// Arguments of a tool: a JSON object.
    Json(&'a RawJson),
    /// Arguments of a prompt or variables of a template: names and strings.
    Text(&'a [(String, String)]),
}

/// The error of an extraction. The handler was not started.
#[derive(Debug)]
#[doc(hidden)]
pub enum ExtractError {
    /// Invalid arguments. The message is for the model.
    Arguments(String),
    /// The server has no state of this type.
    MissingState(&'static str),
}

impl<T: DeserializeOwned + JsonSchema + Send> Extract<ViaArguments> for T {
    fn schema() -> Option<Schema> {
        Some(schema_of::<T>())
    }

    fn argument_names() -> Option<&'static [&'static str]> {
        argument_names::<T>()
    }

    fn extract(cx: &Context, arguments: Arguments<'_>) -> Result<T, HandlerFailure> {
        let (value, has_unknown) = deserialize_arguments(arguments)?;
        check_unknown(cx, has_unknown)?;
        Ok(value)
    }
}

/// Deserializes the arguments. Also returns whether they have some that the type does not know.
pub(super) fn deserialize_arguments<T: DeserializeOwned>(
    arguments: Arguments<'_>,
) -> Result<(T, bool), HandlerFailure> {
    let deserialized = match arguments {
        Arguments::Json(raw) => {
            deserialize_noting_unknown(raw).map_err(|error| message_without_position(&error))
        }
        Arguments::Text(pairs) => T::deserialize(TextArguments::new(pairs))
            .map(|value| (value, false))
            .map_err(|error| error.to_string()),
    };
    deserialized.map_err(|error| HandlerFailure::Extract(ExtractError::Arguments(error)))
}

/// Fails for unknown arguments, if the tool rejects them. The dispatcher replaces the message by one with the names.
pub(super) fn check_unknown(cx: &Context, has_unknown: bool) -> Result<(), HandlerFailure> {
    match has_unknown && cx.caller().rejects_unknown_arguments {
        true => Err(HandlerFailure::Extract(ExtractError::Arguments("unknown parameter".into()))),
        false => Ok(()),
    }
}

/// Returns serde's message without the position, which means nothing to the caller.
fn message_without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
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

impl Extract for Option<Principal> {
    fn from_call(cx: &Context) -> Result<Option<Principal>, HandlerError> {
        let principal = cx.principal();
        Ok(principal.id().is_some().then(|| principal.clone()))
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
    // Names only: the values may be credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Extract for Headers {
    fn from_call(cx: &Context) -> Result<Headers, HandlerError> {
        Ok(Headers(cx.shared_headers()))
    }
}

/// A value from the extensions of the HTTP request, which a `tower` layer or axum middleware in front of the server put there: a
/// tenant, a request id, a database transaction.
///
/// A call without such a value, and every call over stdio, fails with an internal error; take the [`Context`] and use
/// [`Context::extension`] if that is expected.
///
/// ```
/// # use toolgate::{Extension, Server};
/// #[derive(Clone)]
/// struct Tenant(String);
///
/// let server = Server::new("demo", "1.0.0")
///     .tool("tenant", |Extension(tenant): Extension<Tenant>| async move { tenant.0 })
///     .build()?;
/// let app: axum::Router = axum::Router::new()
///     .nest_service("/mcp", server.into_service())
///     .layer(axum::Extension(Tenant("acme".into())));
/// # Ok::<(), toolgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Extension<T>(pub T);

impl<T> Deref for Extension<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone + Send + Sync + 'static> Extract for Extension<T> {
    fn from_call(cx: &Context) -> Result<Extension<T>, HandlerError> {
        cx.extension().cloned().map(Extension).ok_or_else(|| {
            let (reference, missing) = (error_reference(), type_name::<T>());
            tracing::error!(
                reference,
                missing,
                "the request has no extension of this type; a `tower` layer or axum middleware must insert it"
            );
            ProtocolError::internal(&reference).into()
        })
    }
}

/// A value shared by all handlers of a server, such as a database pool. Added with [`Builder::state`](crate::Builder::state).
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
#[doc(alias("dependency injection", "database pool", "lifespan"))]
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
