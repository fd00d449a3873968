//! Editions that begin with a handshake: `initialize`, and finding the session of everything after it.

use std::sync::Arc;

use toolgate_wire::model::{Call, Outcome, Welcome};
use toolgate_wire::{Client, Edition, Fault, FaultKind, Raw, RequestId, Tasks, codec, key};

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
        params: Option<&Raw>,
        peer: &Peer,
    ) -> Result<Arrival, Fault> {
        let greeted = match &peer.road {
            Road::Line(line) => line.session().is_some(),
            Road::Post { .. } => matches!(self.speaker(peer), Ok(Speaker::Session(_))),
        };
        if greeted {
            return Err(Fault::params("this session has been initialized before"));
        }
        if params.is_some_and(|params| params.as_bytes().len() > GREETING) {
            return Err(Fault::params(format!(
                "the params of `initialize` are longer than {GREETING} bytes"
            )));
        }
        let call = codec::read_call(Edition::NEWEST_HANDSHAKE, "initialize", params)?;
        let Call::Hello(hello) = call else {
            return Err(Fault::params("`initialize` expected"));
        };
        let edition = Edition::negotiate(&hello.version);
        let client = Client { edition, capabilities: hello.capabilities, info: hello.client };
        let face = self.face.load();
        let mut capabilities = (self.offering)();
        if matches!(peer.road, Road::Post { .. }) && self.sessions.are_off() {
            capabilities = unheard(capabilities);
        }
        // An edition that has tasks in its core, or has none, knows no extension for them.
        if edition.facts().tasks != Tasks::Extension {
            take(&mut capabilities.extensions, key::TASKS_EXTENSION);
        }
        let offered = capabilities.clone();
        let welcome = Outcome::Welcome(Box::new(Welcome {
            version: edition.date().to_owned(),
            capabilities,
            server: face.info.clone(),
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
    pub(super) fn speaker(&self, peer: &Peer) -> Result<Speaker, (Speech, Fault)> {
        self.speaker_of(peer, peer.headers.labels())
    }

    /// The same, where the headers were looked at before.
    pub(super) fn speaker_of(&self, peer: &Peer, labels: &Labels) -> Result<Speaker, (Speech, Fault)> {
        if let Road::Line(line) = &peer.road {
            return Ok(match line.session() {
                Some(session) => Speaker::Session(session),
                None if line.says_each() => Speaker::Stranger(Edition::NEWEST),
                None => Speaker::Bare,
            });
        }
        let refuse = |fault| (Speech::from(Edition::NEWEST_HANDSHAKE), fault);
        let session = labels
            .session
            .bytes()
            .map_err(|_| refuse(Fault::new(FaultKind::Session, "header mcp-session-id must be sent once")))?;
        let version = match edition(&labels.version) {
            Some(edition) => Some(edition),
            None => match labels.version.text() {
                Ok(None) => None,
                Ok(Some(unknown)) => return Err(refuse(Fault::version(unknown))),
                Err(_) => {
                    let said = "header mcp-protocol-version must be sent once, as text";
                    return Err(refuse(Fault::invalid(said)));
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
            (None, Some(edition)) if !edition.shakes_hands() => {
                Err((Edition::NEWEST.into(), Fault::invalid("this message is none of the version it names")))
            }
            (None, Some(edition)) if self.sessions.are_off() => Ok(Speaker::Stranger(edition)),
            (None, Some(_)) => {
                Err(refuse(Fault::invalid("header mcp-session-id is missing; send `initialize` first")))
            }
            (None, None) => Ok(Speaker::Bare),
        }
    }
}

/// Answered with an id, once everybody can find the session.
fn welcomed(
    greeted: impl Future<Output = Result<Box<str>, Fault>> + Send + 'static,
    id: RequestId,
    body: Parcel,
) -> BoxFuture<'static, Answer> {
    Box::pin(async move {
        match greeted.await {
            Ok(session) => Answer::Body { status: 200, body, session: Some(session), told: Told::Well },
            Err(fault) => Speech::from(Edition::NEWEST_HANDSHAKE).refusal(Some(&id), &fault),
        }
    })
}

/// The same words for a session that never was, is over, or belongs to somebody else.
pub(super) fn no_session() -> Fault {
    Fault::new(FaultKind::Session, "no such session; send `initialize` again")
}

fn full(id: &RequestId) -> Answer {
    let fault = Fault::new(FaultKind::Busy, "too many sessions are open; try again later");
    Speech::from(Edition::NEWEST_HANDSHAKE).refusal(Some(id), &fault)
}
