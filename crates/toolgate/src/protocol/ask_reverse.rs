//! Asking on the open stream: a request of the server's own, answered by a message of the client's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use toolgate_wire::model::{ClientResult, LogLevel, Notification, ServerRequest};
use toolgate_wire::{ProtocolVersion, RawJson, RequestId, Resumability, codec, write_request};

use super::session::Session;
use crate::handler::{ClientChannel, ServerRequestError, ServerRequestErrorKind};
use crate::registry::validate_elicitation;
use crate::request::{BoxFuture, CallError};
use crate::stream::Stream;
use crate::util::cancel::Cancel;

/// How long a person may think.
const CLIENT_RESPONSE_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// The voice of one call of a client that can be asked while it waits.
pub(super) struct ReverseChannel {
    pub(super) version: ProtocolVersion,
    pub(super) session: Option<Arc<Session>>,
    /// None: the client takes one message only, the answer.
    pub(super) out: Option<Arc<Stream>>,
    pub(super) cancel: Cancel,
    /// From which level on a client without a session hears log lines.
    pub(super) log_level: Option<LogLevel>,
    /// It came by a request of its own, whose connection can be freed.
    pub(super) is_post: bool,
    /// There is one run only; what is set aside stays here.
    pub(super) saved_values: Mutex<BTreeMap<String, RawJson>>,
}

impl ReverseChannel {
    /// `task`: the core task that wants to know.
    async fn ask_session(
        &self,
        session: &Session,
        out: &Stream,
        ask: &ServerRequest,
        task: Option<&str>,
    ) -> Result<ClientResult, ServerRequestError> {
        let (id, answer) =
            session.register_request().ok_or(ServerRequestError(ServerRequestErrorKind::Disconnected))?;
        let mut forget = PendingRequestGuard { session, id: &id, cancel_target: Some((out, self.version)) };
        let mut params = Vec::new();
        match task {
            Some(task) => codec::write_task_request_params(&mut params, self.version, ask, task),
            None => codec::write_server_request_params(&mut params, self.version, ask),
        }
        let mut message = Vec::with_capacity(params.len() + 128);
        write_request(&mut message, &id, ask.method(), Some(&params));
        let asking = async {
            out.send(Bytes::from(message))
                .await
                .map_err(|_| ServerRequestError(ServerRequestErrorKind::Disconnected))?;
            answer.await.map_err(|_| ServerRequestError(ServerRequestErrorKind::Disconnected))
        };
        let outcome = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(ServerRequestError(ServerRequestErrorKind::Disconnected)),
            outcome = tokio::time::timeout(CLIENT_RESPONSE_TIMEOUT, asking) => outcome,
        };
        let result = outcome.map_err(|_| ServerRequestError(ServerRequestErrorKind::TimedOut))??;
        forget.cancel_target = None;
        let result =
            result.map_err(|error| ServerRequestError(ServerRequestErrorKind::Rejected(error.message)))?;
        let refused = |why: String| ServerRequestError(ServerRequestErrorKind::Rejected(why));
        let answer = codec::read_client_result(self.version, ask, &result)
            .map_err(|fault| refused(fault.to_string()))?;
        validate_elicitation(ask, &answer).map_err(refused)?;
        Ok(answer)
    }
}

impl ReverseChannel {
    async fn ask_related(
        &self,
        ask: ServerRequest,
        task: Option<&str>,
    ) -> Result<ClientResult, ServerRequestError> {
        let (Some(session), Some(out)) = (&self.session, &self.out) else {
            return Err(ServerRequestError(ServerRequestErrorKind::Unsupported(
                "questions on this connection",
            )));
        };
        if let Some((what, _)) = codec::missing_capabilities(&session.client, &ask) {
            return Err(ServerRequestError(ServerRequestErrorKind::Unsupported(what)));
        }
        self.ask_session(session, out, &ask, task).await
    }
}

impl ClientChannel for ReverseChannel {
    fn is_log_enabled(&self, level: LogLevel) -> bool {
        self.out.is_some()
            && match &self.session {
                Some(session) => session.accepts_log_level(level),
                None => self.log_level.is_some_and(|from| level >= from),
            }
    }

    fn notify(&self, notice: &Notification) -> bool {
        let Some(out) = &self.out else { return false };
        let mut message = Vec::with_capacity(192);
        codec::write_notification(&mut message, self.version, notice, None) && out.hint(message.into())
    }

    fn request<'a>(
        &'a self,
        _: &'a str,
        ask: ServerRequest,
    ) -> BoxFuture<'a, Result<ClientResult, ServerRequestError>> {
        Box::pin(self.ask_related(ask, None))
    }

    fn request_for_task<'a>(
        &'a self,
        task: &'a str,
        _: &'a str,
        ask: ServerRequest,
    ) -> BoxFuture<'a, Result<ClientResult, ServerRequestError>> {
        Box::pin(self.ask_related(ask, Some(task)))
    }

    fn recorded_value(&self, name: &str) -> Option<RawJson> {
        self.saved_values.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn record_value(&self, name: &str, value: RawJson) {
        self.saved_values.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), value);
    }

    fn suspension_error(&self, _: &str) -> Option<CallError> {
        None
    }

    fn release_stream(&self, retry: Duration) {
        if self.is_post
            && self.version.behavior().resumability == Resumability::Polling
            && self.session.is_some()
            && let Some(out) = &self.out
        {
            out.disconnect_reader(retry);
        }
    }
}

/// Nobody waits for the answer any more, however the waiting ended.
struct PendingRequestGuard<'a> {
    session: &'a Session,
    id: &'a RequestId,
    /// Where the client is told that the question is taken back, unless it was answered.
    cancel_target: Option<(&'a Stream, ProtocolVersion)>,
}

impl Drop for PendingRequestGuard<'_> {
    fn drop(&mut self) {
        // Where all questions were dropped at once, the client has left.
        let (true, Some((out, edition))) = (self.session.forget_request(self.id), self.cancel_target) else {
            return;
        };
        let notice = Notification::Cancelled { request: Some(self.id.clone()), reason: None };
        let mut message = Vec::with_capacity(128);
        if codec::write_notification(&mut message, edition, &notice, None) {
            out.hint(message.into());
        }
    }
}
