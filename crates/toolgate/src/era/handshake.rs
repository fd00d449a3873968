//! Editions that begin with a handshake: `initialize`, and finding the session of everything after it.

use std::sync::Arc;

use toolgate_wire::model::{Call, Outcome, InitializeResult};
use toolgate_wire::{Client, ProtocolVersion, ProtocolError, ProtocolErrorKind, RawJson, RequestId, TasksMode, codec, key};

use super::bare::{announcement, unheard};
use super::header::edition;
use super::session::GREETING;
use super::{Answer, Arrival, Era, Peer, Road, Speaker, Speech, Told};
use crate::letterhead::Labels;
use crate::maps::take;
use crate::parcel::Parcel;
use crate::request::BoxFuture;

impl Era {
    /// Answers `initialize` and remembers who greeted.
    pub(super) fn shake_hands(
        &self,
        id: &RequestId,
        params: Option<&RawJson>,
        peer: &Peer,
    ) -> Result<Arrival, ProtocolError> {
        let greeted = match &peer.road {
            Road::Line(line) => line.session().is_some(),
            Road::Post { .. } => matches!(self.speaker(peer), Ok(Speaker::Session(_))),
        };
        if greeted {
            return Err(ProtocolError::invalid_params("this session has been initialized before"));
        }
        if params.is_some_and(|params| params.as_bytes().len() > GREETING) {
            return Err(ProtocolError::invalid_params(format!(
                "the params of `initialize` are longer than {GREETING} bytes"
            )));
        }
        let call = codec::read_call(ProtocolVersion::LATEST_WITH_HANDSHAKE, "initialize", params)?;
        let Call::Initialize(hello) = call else {
            return Err(ProtocolError::invalid_params("`initialize` expected"));
        };
        let edition = ProtocolVersion::negotiate(&hello.version);
        let client = Client { protocol_version: edition, capabilities: hello.capabilities, info: hello.client_info };
        let face = self.face.load();
        let mut capabilities = (self.offering)();
        if matches!(peer.road, Road::Post { .. }) && self.sessions.are_off() {
            capabilities = unheard(capabilities);
        }
        // An edition that has tasks in its core, or has none, knows no extension for them.
        if edition.behavior().tasks != TasksMode::Extension {
            take(&mut capabilities.extensions, key::TASKS_EXTENSION);
        }
        let offered = capabilities.clone();
        let welcome = Outcome::Initialize(Box::new(InitializeResult {
            version: edition.as_str().to_owned(),
            capabilities,
            server_info: face.info.clone(),
            instructions: face.instructions.clone(),
        }));
        let body = self.write(&edition.into(), id, &welcome, &face);
        let session = match &peer.road {
            Road::Line(line) => {
                line.greet(self.sessions.unlisted(client, peer.principal.clone(), &offered, &self.hub));
                None
            }
            Road::Post { .. } if self.sessions.are_off() => None,
            Road::Post { .. } => {
                if let Some(shared) = &self.shared {
                    let greeted = Arc::clone(shared).greet(client, peer.principal.clone(), offered);
                    return Ok(Arrival::Later(welcomed(greeted, id.clone(), body)));
                }
                let session =
                    self.sessions.open(client, peer.principal.clone(), &offered, &self.hub, &self.clock);
                let Some(session) = session else {
                    return Ok(Arrival::Answered(full(id)));
                };
                Some(session.id.clone())
            }
        };
        let told = announcement(peer).map_or(Told::Well, Told::Greeted);
        Ok(Arrival::Answered(Answer::Body { status: 200, body, session, told }))
    }

    /// Who sends a message of these editions.
    pub(super) fn speaker(&self, peer: &Peer) -> Result<Speaker, (Speech, ProtocolError)> {
        self.speaker_of(peer, peer.headers.labels())
    }

    /// The same, where the headers were looked at before.
    pub(super) fn speaker_of(&self, peer: &Peer, labels: &Labels) -> Result<Speaker, (Speech, ProtocolError)> {
        if let Road::Line(line) = &peer.road {
            return Ok(match line.session() {
                Some(session) => Speaker::Session(session),
                None if line.says_each() => Speaker::Stranger(ProtocolVersion::LATEST),
                None => Speaker::Bare,
            });
        }
        let refuse = |fault| (Speech::from(ProtocolVersion::LATEST_WITH_HANDSHAKE), fault);
        let session = labels
            .session
            .bytes()
            .map_err(|_| refuse(ProtocolError::new(ProtocolErrorKind::SessionNotFound, "header mcp-session-id must be sent once")))?;
        let version = match edition(&labels.version) {
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
        let session = session.filter(|_| !self.sessions.are_off());
        match (session, version) {
            (Some(id), _) => {
                let session = self.sessions.find(id, &peer.principal, &self.clock);
                session.map(Speaker::Session).ok_or_else(|| refuse(no_session()))
            }
            (None, Some(edition)) if !edition.has_handshake() => {
                Err((ProtocolVersion::LATEST.into(), ProtocolError::invalid_request("this message is none of the version it names")))
            }
            (None, Some(edition)) if self.sessions.are_off() => Ok(Speaker::Stranger(edition)),
            (None, Some(_)) => {
                Err(refuse(ProtocolError::invalid_request("header mcp-session-id is missing; send `initialize` first")))
            }
            (None, None) => Ok(Speaker::Bare),
        }
    }
}

/// Answered with an id, once everybody can find the session.
fn welcomed(
    greeted: impl Future<Output = Result<Box<str>, ProtocolError>> + Send + 'static,
    id: RequestId,
    body: Parcel,
) -> BoxFuture<'static, Answer> {
    Box::pin(async move {
        match greeted.await {
            Ok(session) => Answer::Body { status: 200, body, session: Some(session), told: Told::Well },
            Err(fault) => Speech::from(ProtocolVersion::LATEST_WITH_HANDSHAKE).refusal(Some(&id), &fault),
        }
    })
}

/// The same words for a session that never was, is over, or belongs to somebody else.
pub(super) fn no_session() -> ProtocolError {
    ProtocolError::new(ProtocolErrorKind::SessionNotFound, "no such session; send `initialize` again")
}

fn full(id: &RequestId) -> Answer {
    let fault = ProtocolError::new(ProtocolErrorKind::Busy, "too many sessions are open; try again later");
    Speech::from(ProtocolVersion::LATEST_WITH_HANDSHAKE).refusal(Some(id), &fault)
}
