//! Server-to-client requests on the open stream: the client sends its response in a message of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use toolgate_wire::model::{ClientResult, LogLevel, Notification, ServerRequest};
use toolgate_wire::{ProtocolVersion, RawJson, RequestId, Resumability, codec, write_request};

use super::session::Session;
use crate::handler::{ClientChannel, ServerRequestError, ServerRequestErrorKind, SessionAccess};
use crate::registry::validate_elicitation;
use crate::request::{BoxFuture, CallError};
use crate::stream::Stream;
use crate::util::cancel::Cancel;
use crate::util::lock;

/// How long the user may take to answer.
const CLIENT_RESPONSE_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// The channel of one call to a client that can receive requests while it waits for the response.
pub(super) struct ReverseChannel {
    pub(super) version: ProtocolVersion,
    pub(super) session: Option<Arc<Session>>,
    /// `None` if the client accepts no stream, only the response.
    pub(super) out: Option<Arc<Stream>>,
    pub(super) cancel: Cancel,
    /// Minimum level of log messages for a client without a session. `None`: it gets none.
    pub(super) log_level: Option<LogLevel>,
    /// Whether the call came in a POST, whose connection can be released.
    pub(super) is_post: bool,
    /// Recorded values. The handler runs once, so they stay in memory.
    pub(super) recorded_values: Mutex<BTreeMap<String, RawJson>>,
}

impl ReverseChannel {
    /// Sends a request and waits for the response. `task`: the core task that sends it.
    async fn request_and_wait(
        &self,
        session: &Session,
        out: &Stream,
        request: &ServerRequest,
        task: Option<&str>,
    ) -> Result<ClientResult, ServerRequestError> {
        let (id, response) =
            session.register_request().ok_or(ServerRequestError(ServerRequestErrorKind::Disconnected))?;
        let mut guard = PendingRequestGuard { session, id: &id, cancel_target: Some((out, self.version)) };
        let mut params = Vec::new();
        match task {
            Some(task) => codec::write_task_request_params(&mut params, self.version, request, task),
            None => codec::write_server_request_params(&mut params, self.version, request),
        }
        let mut message = Vec::with_capacity(params.len() + 128);
        write_request(&mut message, &id, request.method(), Some(&params));
        let exchange = async {
            out.send(Bytes::from(message))
                .await
                .map_err(|_| ServerRequestError(ServerRequestErrorKind::Disconnected))?;
            response.await.map_err(|_| ServerRequestError(ServerRequestErrorKind::Disconnected))
        };
        let outcome = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(ServerRequestError(ServerRequestErrorKind::Disconnected)),
            outcome = tokio::time::timeout(CLIENT_RESPONSE_TIMEOUT, exchange) => outcome,
        };
        let result = outcome.map_err(|_| ServerRequestError(ServerRequestErrorKind::TimedOut))??;
        guard.cancel_target = None;
        let result =
            result.map_err(|error| ServerRequestError(ServerRequestErrorKind::Rejected(error.message)))?;
        let rejected = |reason: String| ServerRequestError(ServerRequestErrorKind::Rejected(reason));
        let result = codec::read_client_result(self.version, request, &result)
            .map_err(|error| rejected(error.to_string()))?;
        validate_elicitation(request, &result).map_err(rejected)?;
        Ok(result)
    }
}

impl ReverseChannel {
    /// Sends a request if the client can receive it.
    async fn try_request(
        &self,
        request: ServerRequest,
        task: Option<&str>,
    ) -> Result<ClientResult, ServerRequestError> {
        let (Some(session), Some(out)) = (&self.session, &self.out) else {
            return Err(ServerRequestError(ServerRequestErrorKind::Unsupported(
                "server requests on this connection",
            )));
        };
        if let Some((what, _)) = codec::missing_capabilities(&session.client, &request) {
            return Err(ServerRequestError(ServerRequestErrorKind::Unsupported(what)));
        }
        self.request_and_wait(session, out, &request, task).await
    }
}

impl ClientChannel for ReverseChannel {
    fn is_log_enabled(&self, level: LogLevel) -> bool {
        self.out.is_some()
            && match &self.session {
                Some(session) => session.accepts_log_level(level),
                None => self.log_level.is_some_and(|min| level >= min),
            }
    }

    fn notify(&self, notification: &Notification) -> bool {
        let Some(out) = &self.out else { return false };
        let mut message = Vec::with_capacity(192);
        codec::write_notification(&mut message, self.version, notification, None) && out.hint(message.into())
    }

    fn request<'a>(
        &'a self,
        _: &'a str,
        request: ServerRequest,
    ) -> BoxFuture<'a, Result<ClientResult, ServerRequestError>> {
        Box::pin(self.try_request(request, None))
    }

    fn request_for_task<'a>(
        &'a self,
        task: &'a str,
        _: &'a str,
        request: ServerRequest,
    ) -> BoxFuture<'a, Result<ClientResult, ServerRequestError>> {
        Box::pin(self.try_request(request, Some(task)))
    }

    fn recorded_value(&self, name: &str) -> Option<RawJson> {
        lock(&self.recorded_values).get(name).cloned()
    }

    fn record_value(&self, name: &str, value: RawJson) {
        lock(&self.recorded_values).insert(name.to_owned(), value);
    }

    fn session_id(&self) -> Option<&str> {
        self.session.as_ref().map(|session| &*session.id)
    }

    fn session(&self) -> Option<Arc<dyn SessionAccess>> {
        Some(Arc::clone(self.session.as_ref()?) as Arc<dyn SessionAccess>)
    }

    fn suspension_error(&self) -> Option<CallError> {
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

/// Removes a pending request when the wait for its response ends, and cancels it at the client.
struct PendingRequestGuard<'a> {
    session: &'a Session,
    id: &'a RequestId,
    /// Where `notifications/cancelled` is sent. `None` once the response arrived.
    cancel_target: Option<(&'a Stream, ProtocolVersion)>,
}

impl Drop for PendingRequestGuard<'_> {
    fn drop(&mut self) {
        // If the request is no longer pending, all were dropped because the client has left.
        let (true, Some((out, version))) = (self.session.forget_request(self.id), self.cancel_target) else {
            return;
        };
        let notification = Notification::Cancelled { request: Some(self.id.clone()), reason: None };
        let mut message = Vec::with_capacity(128);
        if codec::write_notification(&mut message, version, &notification, None) {
            out.hint(message.into());
        }
    }
}
