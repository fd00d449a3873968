//! The state that handlers keep in a session: in its record if sessions are shared by processes, else in memory.

use std::collections::BTreeMap;

use toolgate_wire::{ProtocolError, ProtocolErrorKind, RawJson};

use super::Session;
use crate::handler::{MAX_SESSION_STATE_BYTES, SessionAccess, SessionError, SessionErrorKind};
use crate::request::BoxFuture;
use crate::util::lock;

/// The values of a session by key.
pub(in crate::protocol) type SessionValues = BTreeMap<String, RawJson>;

impl SessionAccess for Session {
    fn id(&self) -> &str {
        &self.id
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<RawJson>, SessionError>> {
        Box::pin(async move {
            self.check_open()?;
            match &self.replica {
                Some(replica) => replica.state_value(self, key).await.map_err(session_error),
                None => Ok(lock(&self.state).as_ref().and_then(|values| values.get(key).cloned())),
            }
        })
    }

    fn set<'a>(&'a self, key: &'a str, value: Option<RawJson>) -> BoxFuture<'a, Result<bool, SessionError>> {
        Box::pin(async move {
            self.check_open()?;
            match &self.replica {
                Some(replica) => {
                    replica.set_state_value(self, key, value.as_ref()).await.map_err(session_error)
                }
                None => {
                    let mut values = lock(&self.state);
                    set_value(values.get_or_insert_default(), key, value.as_ref()).map_err(session_error)
                }
            }
        })
    }
}

impl Session {
    fn check_open(&self) -> Result<(), SessionError> {
        if self.closed.is_cancelled() {
            return Err(SessionError(SessionErrorKind::Ended));
        }
        Ok(())
    }
}

/// Sets or removes a value. Returns whether there was one before.
pub(in crate::protocol) fn set_value(
    values: &mut SessionValues,
    key: &str,
    value: Option<&RawJson>,
) -> Result<bool, ProtocolError> {
    let Some(value) = value else { return Ok(values.remove(key).is_some()) };
    let others = values.iter().filter(|(other, _)| *other != key);
    let bytes: usize = others.map(|(key, value)| key.len() + value.as_bytes().len()).sum();
    if bytes + key.len() + value.as_bytes().len() > MAX_SESSION_STATE_BYTES {
        return Err(ProtocolError::new(ProtocolErrorKind::TooLarge, "the session state is too large"));
    }
    Ok(values.insert(key.to_owned(), value.clone()).is_some())
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn session_error(error: ProtocolError) -> SessionError {
    SessionError(match error.kind() {
        ProtocolErrorKind::SessionNotFound => SessionErrorKind::Ended,
        ProtocolErrorKind::TooLarge => SessionErrorKind::TooLarge,
        _ => SessionErrorKind::Unavailable(error.message().to_owned()),
    })
}
