//! What a handler can take out of a call.

use std::any::{TypeId, type_name};
use std::ops::Deref;
use std::sync::Arc;

use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use toolgate_wire::Raw;

use super::{Context, Words, schema_of};

/// Something a handler can take out of a call.
///
/// Implemented for arguments (whatever `serde` can read and `schemars` can describe), [`Context`] and
/// [`State`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be taken out of a call",
    label = "neither arguments, nor `Context`, nor `State<_>`",
    note = "to serve as arguments, derive `serde::Deserialize` and `schemars::JsonSchema`"
)]
pub trait Extract: Sized + Send {
    /// The schema of the arguments, if this reads them.
    #[doc(hidden)]
    #[must_use]
    fn schema() -> Option<Schema> {
        None
    }

    /// The shared state that this is, if it is any.
    #[doc(hidden)]
    #[must_use]
    fn state() -> Option<Needed> {
        None
    }

    /// Takes it out.
    #[doc(hidden)]
    fn extract(cx: &Context, arguments: Arguments<'_>) -> Result<Self, Rejection>;
}

/// Shared state that a handler cannot do without.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct Needed {
    pub(crate) id: TypeId,
    pub(crate) name: &'static str,
}

/// The arguments of a call, in one of the two shapes the protocol has for them.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub enum Arguments<'a> {
    /// Of tools: a JSON object.
    Json(&'a Raw),
    /// Of prompts and templates: names and texts.
    Words(&'a [(String, String)]),
}

/// Why a handler cannot be started with what the caller gave.
#[derive(Debug)]
#[doc(hidden)]
pub enum Rejection {
    /// The caller's mistake, in words a model can act on.
    Arguments(String),
    /// The server's mistake: it was not given this state.
    State(&'static str),
}

impl<T: DeserializeOwned + JsonSchema + Send> Extract for T {
    fn schema() -> Option<Schema> {
        Some(schema_of::<T>())
    }

    fn extract(_: &Context, arguments: Arguments<'_>) -> Result<T, Rejection> {
        let read = match arguments {
            Arguments::Json(raw) => raw.parse_as().map_err(|error| plain(&error)),
            Arguments::Words(words) => T::deserialize(Words::new(words)).map_err(|error| error.to_string()),
        };
        read.map_err(Rejection::Arguments)
    }
}

/// serde's words without the position: callers count parameters, not columns.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

impl Extract for Context {
    fn extract(cx: &Context, _: Arguments<'_>) -> Result<Context, Rejection> {
        Ok(cx.clone())
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
    fn state() -> Option<Needed> {
        Some(Needed { id: TypeId::of::<T>(), name: type_name::<T>() })
    }

    fn extract(cx: &Context, _: Arguments<'_>) -> Result<State<T>, Rejection> {
        cx.shared_state().map(State).ok_or(Rejection::State(type_name::<T>()))
    }
}
