//! Asking on the open stream: a request of the server's own, answered by a message of the client's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use toolgate_wire::model::{ClientResult, ServerRequest, LogLevel, Notification};
use toolgate_wire::{ProtocolVersion, RawJson, RequestId, Resumability, codec, write_request};

use super::session::Session;
use crate::cancel::Cancel;
use crate::handler::{AskError, AskErrorKind, Voice};
use crate::registry::is_right;
use crate::request::{BoxFuture, Stop};
use crate::stream::Stream;

/// How long a person may think.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// The voice of one call of a client that can be asked while it waits.
pub(super) struct Reversing {
    edition: ProtocolVersion,
    session: Option<Arc<Session>>,
    /// None: the client takes one message only, the answer.
    out: Option<Arc<Stream>>,
    cancel: Cancel,
    /// From which level on a client without a session hears log lines.
    level: Option<LogLevel>,
    /// It came by a request of its own, whose connection can be freed.
    posted: bool,
    /// There is one run only; what is set aside stays here.
    memory: Mutex<BTreeMap<String, RawJson>>,
}

impl Reversing {
    pub(super) fn new(
        edition: ProtocolVersion,
        session: Option<Arc<Session>>,
        out: Option<Arc<Stream>>,
        cancel: Cancel,
        posted: bool,
    ) -> Reversing {
        Reversing { edition, session, out, cancel, level: None, posted, memory: Mutex::default() }
    }

    /// The same, which tells log lines to a client without a session too.
    pub(super) fn hearing(self, level: Option<LogLevel>) -> Reversing {
        Reversing { level, ..self }
    }

    /// `task`: the core task that wants to know.
    async fn ask_session(
        &self,
        session: &Session,
        out: &Stream,
        ask: &ServerRequest,
        task: Option<&str>,
    ) -> Result<ClientResult, AskError> {
        let (id, answer) = session.expect().ok_or(AskError(AskErrorKind::Gone))?;
        let mut forget = Forget { session, id: &id, taken_back: Some((out, self.edition)) };
        let mut params = Vec::new();
        match task {
            Some(task) => codec::write_task_request_params(&mut params, self.edition, ask, task),
            None => codec::write_server_request_params(&mut params, self.edition, ask),
        }
        let mut message = Vec::with_capacity(params.len() + 128);
        write_request(&mut message, &id, ask.method(), Some(&params));
        let asking = async {
            out.send(Bytes::from(message)).await.map_err(|_| AskError(AskErrorKind::Gone))?;
            answer.await.map_err(|_| AskError(AskErrorKind::Gone))
        };
        let outcome = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(AskError(AskErrorKind::Gone)),
            outcome = tokio::time::timeout(PATIENCE, asking) => outcome,
        };
        let result = outcome.map_err(|_| AskError(AskErrorKind::TimedOut))??;
        forget.taken_back = None;
        let result = result.map_err(|error| AskError(AskErrorKind::Refused(error.message)))?;
        let refused = |why: String| AskError(AskErrorKind::Refused(why));
        let answer =
            codec::read_client_result(self.edition, ask, &result).map_err(|fault| refused(fault.to_string()))?;
        is_right(ask, &answer).map_err(refused)?;
        Ok(answer)
    }
}

impl Reversing {
    async fn ask_related(&self, ask: ServerRequest, task: Option<&str>) -> Result<ClientResult, AskError> {
        let (Some(session), Some(out)) = (&self.session, &self.out) else {
            return Err(AskError(AskErrorKind::Unsupported("questions on this connection")));
        };
        if let Some((what, _)) = codec::missing_capabilities(&session.client, &ask) {
            return Err(AskError(AskErrorKind::Unsupported(what)));
        }
        self.ask_session(session, out, &ask, task).await
    }
}

impl Voice for Reversing {
    fn hears(&self, level: LogLevel) -> bool {
        self.out.is_some()
            && match &self.session {
                Some(session) => session.hears(level),
                None => self.level.is_some_and(|from| level >= from),
            }
    }

    fn tell(&self, notice: &Notification) -> bool {
        let Some(out) = &self.out else { return false };
        let mut message = Vec::with_capacity(192);
        codec::write_notification(&mut message, self.edition, notice, None) && out.hint(message.into())
    }

    fn ask<'a>(&'a self, _: &'a str, ask: ServerRequest) -> BoxFuture<'a, Result<ClientResult, AskError>> {
        Box::pin(self.ask_related(ask, None))
    }

    fn ask_for<'a>(&'a self, task: &'a str, _: &'a str, ask: ServerRequest) -> BoxFuture<'a, Result<ClientResult, AskError>> {
        Box::pin(self.ask_related(ask, Some(task)))
    }

    fn recall(&self, name: &str) -> Option<RawJson> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn remember(&self, name: &str, value: RawJson) {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), value);
    }

    fn stopped(&self, _: &str) -> Option<Stop> {
        None
    }

    fn send_away(&self, retry: Duration) {
        if self.posted
            && self.edition.behavior().resumability == Resumability::Polling
            && self.session.is_some()
            && let Some(out) = &self.out
        {
            out.cut(retry);
        }
    }
}

/// Nobody waits for the answer any more, however the waiting ended.
struct Forget<'a> {
    session: &'a Session,
    id: &'a RequestId,
    /// Where the client is told that the question is taken back, unless it was answered.
    taken_back: Option<(&'a Stream, ProtocolVersion)>,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        // Where all questions were dropped at once, the client has left.
        let (true, Some((out, edition))) = (self.session.forget(self.id), self.taken_back) else {
            return;
        };
        let notice = Notification::Cancelled { request: Some(self.id.clone()), reason: None };
        let mut message = Vec::with_capacity(128);
        if codec::write_notification(&mut message, edition, &notice, None) {
            out.hint(message.into());
        }
    }
}
