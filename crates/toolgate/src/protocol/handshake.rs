//! Editions that begin with a handshake: `initialize`, and finding the session of everything after it.

use std::sync::Arc;

use toolgate_wire::model::{Call, InitializeResult, Outcome};
use toolgate_wire::{
    Client, ProtocolError, ProtocolErrorKind, ProtocolVersion, RawJson, RequestId, TasksMode, codec, meta_key,
};

use super::session::MAX_INITIALIZE_BYTES;
use super::unversioned::{initialized_notification, without_notifications};
use super::version_header::parse_version;
use super::{Channel, ClientState, DecodedMessage, Peer, Protocol, Reply, ReplyKind, WireFormat};
use crate::headers::McpHeaders;
use crate::request::BoxFuture;
use crate::util::name_map::remove_entry;
use crate::util::segments::Segments;

impl Protocol {
    /// Answers `initialize` and remembers who greeted.
    pub(super) fn initialize(
        &self,
        id: &RequestId,
        params: Option<&RawJson>,
        peer: &Peer,
    ) -> Result<DecodedMessage, ProtocolError> {
        let greeted = match &peer.via {
            Channel::Duplex(line) => line.session().is_some(),
            Channel::Post { .. } => matches!(self.client_state(peer), Ok(ClientState::Session(_))),
        };
        if greeted {
            return Err(ProtocolError::invalid_params("this session is already initialized"));
        }
        if params.is_some_and(|params| params.as_bytes().len() > MAX_INITIALIZE_BYTES) {
            return Err(ProtocolError::invalid_params(format!(
                "the params of `initialize` are longer than {MAX_INITIALIZE_BYTES} bytes"
            )));
        }
        let call = codec::read_call(ProtocolVersion::LATEST_WITH_HANDSHAKE, "initialize", params)?;
        let Call::Initialize(hello) = call else {
            return Err(ProtocolError::invalid_params("`initialize` expected"));
        };
        let edition = ProtocolVersion::negotiate(&hello.version);
        let client =
            Client { protocol_version: edition, capabilities: hello.capabilities, info: hello.client_info };
        let face = self.server_info.load();
        let mut capabilities = (self.capabilities)();
        if matches!(peer.via, Channel::Post { .. }) && self.sessions.is_disabled() {
            capabilities = without_notifications(capabilities);
        }
        // An edition that has tasks in its core, or has none, knows no extension for them.
        if edition.behavior().tasks != TasksMode::Extension {
            remove_entry(&mut capabilities.extensions, meta_key::TASKS_EXTENSION);
        }
        let offered = capabilities.clone();
        let welcome = Outcome::Initialize(Box::new(InitializeResult {
            version: edition.as_str().to_owned(),
            capabilities,
            server_info: face.implementation.clone(),
            instructions: face.instructions.clone(),
        }));
        let body = self.encode_response(&edition.into(), id, &welcome, &face);
        let session = match &peer.via {
            Channel::Duplex(line) => {
                line.set_session(self.sessions.create_unlisted(
                    client,
                    peer.principal.clone(),
                    &offered,
                    &self.subscriptions,
                ));
                None
            }
            Channel::Post { .. } if self.sessions.is_disabled() => None,
            Channel::Post { .. } => {
                if let Some(shared) = &self.cluster {
                    let greeted = Arc::clone(shared).create_session(client, peer.principal.clone(), offered);
                    return Ok(DecodedMessage::Deferred(reply_when_stored(greeted, id.clone(), body)));
                }
                let session = self.sessions.create(
                    client,
                    peer.principal.clone(),
                    &offered,
                    &self.subscriptions,
                    &self.clock,
                );
                let Some(session) = session else {
                    return Ok(DecodedMessage::Reply(reject_too_many_sessions(id)));
                };
                Some(session.id.clone())
            }
        };
        let told = initialized_notification(peer).map_or(ReplyKind::Success, ReplyKind::Initialized);
        Ok(DecodedMessage::Reply(Reply::Body { status: 200, body, session_id: session, kind: told }))
    }

    /// Who sends a message of these editions.
    pub(super) fn client_state(&self, peer: &Peer) -> Result<ClientState, (WireFormat, ProtocolError)> {
        self.client_state_from(peer, peer.headers.mcp())
    }

    /// The same, where the headers were looked at before.
    pub(super) fn client_state_from(
        &self,
        peer: &Peer,
        labels: &McpHeaders,
    ) -> Result<ClientState, (WireFormat, ProtocolError)> {
        if let Channel::Duplex(line) = &peer.via {
            return Ok(match line.session() {
                Some(session) => ClientState::Session(session),
                None if line.is_stateless() => ClientState::Sessionless(ProtocolVersion::LATEST),
                None => ClientState::Unversioned,
            });
        }
        let refuse = |fault| (WireFormat::from(ProtocolVersion::LATEST_WITH_HANDSHAKE), fault);
        let session = labels.session.bytes().map_err(|_| {
            refuse(ProtocolError::new(
                ProtocolErrorKind::SessionNotFound,
                "header mcp-session-id must be sent once",
            ))
        })?;
        let version = match parse_version(&labels.version) {
            Some(edition) => Some(edition),
            None => match labels.version.text() {
                Ok(None) => None,
                Ok(Some(unknown)) => return Err(refuse(ProtocolError::unsupported_version(unknown))),
                Err(_) => {
                    let said = "header mcp-protocol-version must be sent once, as text";
                    return Err(refuse(ProtocolError::invalid_request(said)));
                }
            },
        };
        // Where nobody is remembered, nobody can claim to be: the header says nothing.
        let session = session.filter(|_| !self.sessions.is_disabled());
        match (session, version) {
            (Some(id), _) => {
                let session = self.sessions.find(id, &peer.principal, &self.clock);
                session.map(ClientState::Session).ok_or_else(|| refuse(session_not_found()))
            }
            (None, Some(edition)) if !edition.has_handshake() => Err((
                ProtocolVersion::LATEST.into(),
                ProtocolError::invalid_request(
                    "the message does not have the form of the protocol version in its header",
                ),
            )),
            (None, Some(edition)) if self.sessions.is_disabled() => Ok(ClientState::Sessionless(edition)),
            (None, Some(_)) => Err(refuse(ProtocolError::invalid_request(
                "header mcp-session-id is missing; send `initialize` first",
            ))),
            (None, None) => Ok(ClientState::Unversioned),
        }
    }
}

/// Answered with an id, once everybody can find the session.
fn reply_when_stored(
    greeted: impl Future<Output = Result<Box<str>, ProtocolError>> + Send + 'static,
    id: RequestId,
    body: Segments,
) -> BoxFuture<'static, Reply> {
    Box::pin(async move {
        match greeted.await {
            Ok(session) => {
                Reply::Body { status: 200, body, session_id: Some(session), kind: ReplyKind::Success }
            }
            Err(fault) => {
                WireFormat::from(ProtocolVersion::LATEST_WITH_HANDSHAKE).error_reply(Some(&id), &fault)
            }
        }
    })
}

/// The same words for a session that never was, is over, or belongs to somebody else.
pub(super) fn session_not_found() -> ProtocolError {
    ProtocolError::new(ProtocolErrorKind::SessionNotFound, "no such session; send `initialize` again")
}

fn reject_too_many_sessions(id: &RequestId) -> Reply {
    let fault = ProtocolError::new(ProtocolErrorKind::Busy, "too many sessions are open; try again later");
    WireFormat::from(ProtocolVersion::LATEST_WITH_HANDSHAKE).error_reply(Some(id), &fault)
}
