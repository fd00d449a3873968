//! The handshake: `initialize`, which creates a session.

use std::sync::Arc;

use toolgate_wire::model::{Call, InitializeResult, Outcome};
use toolgate_wire::{Client, ProtocolError, ProtocolVersion, RawJson, RequestId, TasksMode, codec, meta_key};

use super::exchange::{ClientState, Exchange};
use super::session::{MAX_INITIALIZE_BYTES, too_many_sessions};
use super::unversioned::{initialized_notification, without_notifications};
use super::{Channel, DecodedMessage, Protocol, Reply, ReplyKind, WireFormat};
use crate::request::BoxFuture;
use crate::util::segments::Segments;

impl Protocol {
    /// Serves `initialize`: negotiates the protocol version and creates a session.
    pub(super) fn initialize(
        &self,
        exchange: &mut Exchange<'_>,
        id: &RequestId,
        params: Option<&RawJson>,
    ) -> Result<DecodedMessage, ProtocolError> {
        let peer = exchange.peer;
        let has_session = match &peer.via {
            Channel::Duplex(connection) => connection.session().is_some(),
            Channel::Post { .. } => matches!(exchange.client(self), Ok(ClientState::Session(_))),
        };
        if has_session {
            return Err(ProtocolError::invalid_params("this session is already initialized"));
        }
        if params.is_some_and(|params| params.as_bytes().len() > MAX_INITIALIZE_BYTES) {
            return Err(ProtocolError::invalid_params(format!(
                "the params of `initialize` are longer than {MAX_INITIALIZE_BYTES} bytes"
            )));
        }
        let call = codec::read_call(ProtocolVersion::LATEST_WITH_HANDSHAKE, "initialize", params)?;
        let Call::Initialize(params) = call else {
            return Err(ProtocolError::invalid_params("`initialize` expected"));
        };
        let version = ProtocolVersion::negotiate(&params.version);
        let client =
            Client { protocol_version: version, capabilities: params.capabilities, info: params.client_info };
        let server_info = self.server_info.load();
        let mut capabilities = (self.capabilities)();
        if exchange.is_post() && self.sessions.is_disabled() {
            capabilities = without_notifications(capabilities);
        }
        // A version with tasks in its core, or without tasks, does not have the extension.
        if version.behavior().tasks != TasksMode::Extension {
            capabilities.extensions.remove(meta_key::TASKS_EXTENSION);
        }
        let offered = capabilities.clone();
        let result = Outcome::Initialize(Box::new(InitializeResult {
            version: version.as_str().to_owned(),
            capabilities,
            server_info: server_info.implementation.clone(),
            instructions: server_info.instructions.clone(),
        }));
        let body = self.encode_response(&version.into(), id, &result, &server_info);
        let principal = peer.principal.clone();
        let session_id = match &peer.via {
            Channel::Duplex(connection) => {
                let session = self.sessions.create_unlisted(client, principal, &offered, &self.subscriptions);
                connection.set_session(session);
                None
            }
            Channel::Post { .. } if self.sessions.is_disabled() => None,
            Channel::Post { .. } => {
                if let Some(cluster) = &self.cluster {
                    let created = Arc::clone(cluster).create_session(client, principal, offered);
                    return Ok(DecodedMessage::Deferred(reply_when_stored(created, id.clone(), body)));
                }
                let owner = (principal, peer.remote_addr.map(|address| address.ip()));
                let session = self.sessions.create(client, owner, &offered, &self.subscriptions, &self.clock);
                let Some(session) = session else {
                    return Ok(DecodedMessage::Reply(reject_session(id, &too_many_sessions())));
                };
                Some(session.id.clone())
            }
        };
        let kind = initialized_notification(peer).map_or(ReplyKind::Success, ReplyKind::Initialized);
        Ok(DecodedMessage::Reply(Reply::Body { status: 200, body, session_id, kind }))
    }
}

/// Replies with the session id once the session is stored, so that every process finds it.
fn reply_when_stored(
    created: impl Future<Output = Result<Box<str>, ProtocolError>> + Send + 'static,
    id: RequestId,
    body: Segments,
) -> BoxFuture<'static, Reply> {
    Box::pin(async move {
        match created.await {
            Ok(session_id) => {
                Reply::Body { status: 200, body, session_id: Some(session_id), kind: ReplyKind::Success }
            }
            Err(error) => reject_session(&id, &error),
        }
    })
}

fn reject_session(id: &RequestId, error: &ProtocolError) -> Reply {
    WireFormat::from(ProtocolVersion::LATEST_WITH_HANDSHAKE).error_reply(Some(id), error)
}
