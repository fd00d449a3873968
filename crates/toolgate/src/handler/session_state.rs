//! State of a session: values that handlers keep from call to call of one client.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use toolgate_wire::RawJson;

use super::Context;
use crate::request::BoxFuture;

/// Maximum length of the state of one session: the keys and the JSON of the values.
pub(crate) const MAX_SESSION_STATE_BYTES: usize = 64 << 10;

/// The session of a call, as the protocol implements it.
pub(crate) trait SessionAccess: Send + Sync {
    fn id(&self) -> &str;

    /// Returns a value.
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<RawJson>, SessionError>>;

    /// Sets a value, or removes it if `value` is `None`. Returns whether there was one before.
    fn set<'a>(&'a self, key: &'a str, value: Option<RawJson>) -> BoxFuture<'a, Result<bool, SessionError>>;
}

/// The state of the client's session, from [`Context::session`](crate::Context::session): values by key, kept from call to call.
///
/// The state lives as long as the session: until the client ends it, it expires, or it is evicted while idle because there are
/// too many sessions. With a
/// [store that several processes share](crate::store), every process sees the same state; otherwise it is in memory.
/// At most 64 KiB of JSON are kept for one session. Of two calls that set the same key at once, the last one wins.
///
/// ```
/// # use toolgate::{Context, Server, ToolError};
/// async fn visit(cx: Context) -> Result<String, ToolError> {
///     let visits: u32 = cx.session().get("visits").await?.unwrap_or(0) + 1;
///     cx.session().set("visits", &visits).await?;
///     Ok(format!("visit {visits} in this session"))
/// }
/// # assert!(Server::new("demo", "1.0.0").tool("visit", visit).build().is_ok());
/// ```
///
/// # Clients without a session
///
/// The newest protocol version has no sessions: each request is complete in itself. Servers built with
/// [`Builder::stateless`](crate::Builder::stateless), and clients that never sent `initialize`, have none either. Every method then returns an error for which [`SessionError::has_no_session`] is true. Tools for such
/// clients return an id, such as that of a cart, and take it as an argument; state that belongs to a user is kept under the id of
/// the [`Principal`](crate::Principal).
#[derive(Clone)]
pub struct SessionState(Option<Arc<dyn SessionAccess>>);

impl SessionState {
    /// Returns the value of a key, or `None` if there is none.
    ///
    /// # Errors
    /// If there is no session, the value is not a `T`, or the store is unavailable.
    pub async fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, SessionError> {
        let Some(value) = self.access()?.get(key).await? else { return Ok(None) };
        value.parse_as().map(Some).map_err(|error| SessionError(SessionErrorKind::Json(error)))
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// If there is no session, the value cannot be serialized, the state becomes too large, or the store is unavailable.
    pub async fn set<T: Serialize + ?Sized>(&self, key: &str, value: &T) -> Result<(), SessionError> {
        let value =
            RawJson::from_serializable(value).map_err(|error| SessionError(SessionErrorKind::Json(error)))?;
        self.access()?.set(key, Some(value)).await.map(drop)
    }

    /// Removes a key. Returns whether it had a value.
    ///
    /// # Errors
    /// If there is no session, or the store is unavailable.
    pub async fn remove(&self, key: &str) -> Result<bool, SessionError> {
        self.access()?.set(key, None).await
    }

    fn access(&self) -> Result<&dyn SessionAccess, SessionError> {
        self.0.as_deref().ok_or(SessionError(SessionErrorKind::NoSession))
    }
}

impl Context {
    /// Returns the id of the client's session, or `None` if it has no session; see [`SessionState`]. Over stdio, the
    /// connection of a client that sent `initialize` is its session. The id is a secret of the client: do not log it.
    #[must_use]
    pub fn session_id(&self) -> Option<&str> {
        self.client_channel().session_id()
    }

    /// Returns the state of the client's session. Without a session, its methods return an error.
    #[must_use]
    pub fn session(&self) -> SessionState {
        SessionState(self.client_channel().session())
    }
}

impl fmt::Debug for SessionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionState").field("has_session", &self.0.is_some()).finish()
    }
}

/// The error of an operation on a [`SessionState`].
pub struct SessionError(pub(crate) SessionErrorKind);

#[derive(Debug)]
pub(crate) enum SessionErrorKind {
    /// The client has no session.
    NoSession,
    /// The session has ended.
    Ended,
    /// The state would exceed [`MAX_SESSION_STATE_BYTES`].
    TooLarge,
    /// The value cannot be serialized, or is not of the requested type.
    Json(serde_json::Error),
    /// The store failed, for the reason given.
    Unavailable(String),
}

impl SessionError {
    /// Returns whether the client has no session, or its session has ended.
    #[must_use]
    pub fn has_no_session(&self) -> bool {
        matches!(self.0, SessionErrorKind::NoSession | SessionErrorKind::Ended)
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            SessionErrorKind::NoSession => f.write_str(
                "this client has no session to keep state in: its protocol version or this server has none; pass an id as an argument instead",
            ),
            SessionErrorKind::Ended => f.write_str("the session has ended"),
            SessionErrorKind::TooLarge => {
                write!(f, "the state of a session may have at most {MAX_SESSION_STATE_BYTES} bytes")
            }
            SessionErrorKind::Json(error) => write!(f, "the value cannot be converted to or from the session state: {error}"),
            SessionErrorKind::Unavailable(reason) => write!(f, "the session state is unavailable: {reason}"),
        }
    }
}

impl fmt::Debug for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SessionError").field(&self.0).finish()
    }
}

impl StdError for SessionError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.0 {
            SessionErrorKind::Json(error) => Some(error),
            _ => None,
        }
    }
}
