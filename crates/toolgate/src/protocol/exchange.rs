//! One message of a client, and who that client is.
//!
//! This is where a session is looked up for a message, and where the protocol version of its sender is found: from the
//! session, from the `MCP-Protocol-Version` header, or neither, for a client that names no protocol version. It happens at
//! most once per message; the result is kept in the [`Exchange`].

use std::sync::Arc;

use toolgate_wire::{ParamsIndex, ProtocolError, ProtocolErrorKind, ProtocolVersion, RawJson, RequestId};

use super::session::{Session, session_not_found};
use super::wire_format::WireFormat;
use super::{Channel, Peer, Protocol, Reply};
use crate::headers::HeaderField;
use crate::stream::Stream;

/// One message of a client: who sent it, and where messages that belong to it go.
pub(crate) struct Exchange<'a> {
    pub(crate) peer: &'a Peer,
    /// The stream for notifications and server requests that precede the response.
    pub(crate) out: &'a Arc<Stream>,
    pub(crate) envelope: Envelope,
    /// Whether an event listener has replaced the request, so that its HTTP headers no longer describe it.
    pub(crate) is_rewritten: bool,
    /// The sender, once it was looked up.
    client: Option<Result<ClientState, FormattedError>>,
}

/// Whether a message is sent by itself or as an element of a JSON-RPC batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Envelope {
    Single,
    Batch,
}

/// The members of a JSON-RPC request.
#[derive(Clone, Copy)]
pub(crate) struct RequestParts<'a> {
    pub(crate) id: &'a RequestId,
    pub(crate) method: &'a str,
    pub(crate) params: Option<&'a RawJson>,
    /// The positions of common members of `params`, found while the message was parsed. May be empty.
    pub(crate) index: &'a ParamsIndex<'a>,
}

/// The sender of a message that does not carry the client info itself.
pub(super) enum ClientState {
    /// A client that sent `initialize`.
    Session(Arc<Session>),
    /// A client that names its protocol version but has no session, because sessions are disabled or its version has none.
    Sessionless(ProtocolVersion),
    /// A client that names no protocol version and no session.
    Unversioned,
}

/// A protocol error and the format to encode it in.
#[derive(Clone, Debug)]
pub(super) struct FormattedError {
    pub(super) format: WireFormat,
    pub(super) error: ProtocolError,
}

impl FormattedError {
    pub(super) fn new(format: impl Into<WireFormat>, error: ProtocolError) -> FormattedError {
        FormattedError { format: format.into(), error }
    }

    pub(super) fn reply(&self, id: Option<&RequestId>) -> Reply {
        self.format.error_reply(id, &self.error)
    }
}

impl<'a> Exchange<'a> {
    pub(crate) fn new(peer: &'a Peer, out: &'a Arc<Stream>) -> Exchange<'a> {
        Exchange { peer, out, envelope: Envelope::Single, is_rewritten: false, client: None }
    }

    /// Returns the sender, looking it up if that has not happened yet.
    pub(super) fn client(&mut self, protocol: &Protocol) -> Result<&ClientState, &FormattedError> {
        let peer = self.peer;
        self.client.get_or_insert_with(|| protocol.look_up_client(peer)).as_ref()
    }

    /// Like [`Exchange::client`], by value.
    pub(super) fn take_client(&mut self, protocol: &Protocol) -> Result<ClientState, FormattedError> {
        self.client.take().unwrap_or_else(|| protocol.look_up_client(self.peer))
    }

    /// Whether the sender is a client that names no protocol version.
    pub(super) fn is_unversioned(&mut self, protocol: &Protocol) -> bool {
        matches!(self.client(protocol), Ok(ClientState::Unversioned))
    }

    /// The format for the sender, as far as its headers and its connection tell.
    pub(super) fn wire_format(&mut self, protocol: &Protocol) -> WireFormat {
        let peer = self.peer;
        match self.client(protocol) {
            Ok(ClientState::Session(session)) => session.client.protocol_version.into(),
            Ok(ClientState::Sessionless(version)) => (*version).into(),
            Ok(ClientState::Unversioned) => WireFormat::unversioned(peer),
            Err(error) => error.format.clone(),
        }
    }

    /// Whether the message came in a POST, and not on a duplex connection.
    pub(super) fn is_post(&self) -> bool {
        matches!(self.peer.via, Channel::Post { .. })
    }
}

impl Protocol {
    /// Looks up a session for a message, by its connection or its `Mcp-Session-Id` header; without one, the sender is
    /// identified by the protocol version that the headers name, or is a client that names no protocol version.
    ///
    /// Fails for an unknown session or version, and for a version whose messages need a session.
    pub(super) fn look_up_client(&self, peer: &Peer) -> Result<ClientState, FormattedError> {
        if let Channel::Duplex(connection) = &peer.via {
            return Ok(match connection.session() {
                Some(session) => ClientState::Session(session),
                None if connection.is_stateless() => ClientState::Sessionless(ProtocolVersion::LATEST),
                None => ClientState::Unversioned,
            });
        }
        let reject = |error| FormattedError::new(ProtocolVersion::LATEST_WITH_HANDSHAKE, error);
        let headers = peer.headers.mcp();
        let session_id = headers.session.bytes().map_err(|_| {
            let message = "header mcp-session-id must be sent once";
            reject(ProtocolError::new(ProtocolErrorKind::SessionNotFound, message))
        })?;
        let version = match parse_version_header(&headers.version) {
            Some(version) => Some(version),
            None => match headers.version.text() {
                Ok(None) => None,
                Ok(Some(unknown)) => return Err(reject(ProtocolError::unsupported_version(unknown))),
                Err(_) => {
                    let message = "header mcp-protocol-version must be sent once, as text";
                    return Err(reject(ProtocolError::invalid_request(message)));
                }
            },
        };
        // Where sessions are disabled, the header is ignored.
        let session_id = session_id.filter(|_| !self.sessions.is_disabled());
        match (session_id, version) {
            (Some(id), _) => {
                let session = self.sessions.find(id, &peer.principal, &self.clock);
                session.map(ClientState::Session).ok_or_else(|| reject(session_not_found()))
            }
            (None, Some(version)) if !version.has_handshake() => Err(FormattedError::new(
                ProtocolVersion::LATEST,
                ProtocolError::invalid_request(
                    "the message does not have the form of the protocol version in its header",
                ),
            )),
            (None, Some(version)) if self.sessions.is_disabled() => Ok(ClientState::Sessionless(version)),
            (None, Some(_)) => Err(reject(ProtocolError::invalid_request(
                "header mcp-session-id is missing; send `initialize` first",
            ))),
            (None, None) => Ok(ClientState::Unversioned),
        }
    }

    /// Whether a peer names neither a session nor a protocol version.
    pub(super) fn is_unversioned(&self, peer: &Peer) -> bool {
        matches!(self.look_up_client(peer), Ok(ClientState::Unversioned))
    }
}

/// Parses the `MCP-Protocol-Version` header. Returns `None` if it is absent or names no known version.
pub(super) fn parse_version_header(header: &HeaderField) -> Option<ProtocolVersion> {
    let mut newest_first = ProtocolVersion::ALL.into_iter().rev();
    newest_first
        .find(|version| header.equals(version.as_str()))
        .or_else(|| ProtocolVersion::parse(header.text().ok()??))
}
