//! Decoding of requests: from the format of a protocol version to a canonical [`Call`] and its [`Caller`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use toolgate_wire::model::{Call, Outcome};
use toolgate_wire::{
    Client, Meta, ProtocolError, ProtocolErrorKind, ProtocolVersion, RawJson, RequestId, TasksMode, codec,
    meta_key,
};

use super::exchange::{ClientState, Envelope, Exchange, FormattedError, RequestParts};
use super::session::Session;
use super::stateless::StatelessRequest;
use super::wire_format::WireFormat;
use super::{Channel, DecodedMessage, Peer, Protocol, Reply, unversioned};
use crate::request::{Caller, ClientTaskSupport, UNVERSIONED_OWNER};

/// A request after decoding: the call, its caller, and the format of the response.
pub(super) struct DecodedCall {
    pub(super) format: WireFormat,
    pub(super) session: Option<Arc<Session>>,
    pub(super) call: Call,
    pub(super) caller: Box<Caller>,
}

impl Protocol {
    /// Decodes a request. Requests that concern the protocol itself are served at once.
    #[inline]
    pub(crate) fn decode_request(
        &self,
        exchange: &mut Exchange<'_>,
        request: RequestParts<'_>,
    ) -> DecodedMessage {
        match self.try_decode_request(exchange, request) {
            Ok(decoded) => decoded,
            Err(error) => DecodedMessage::Reply(error.reply(Some(request.id))),
        }
    }

    /// Corrects small mistakes in a request of a client that names no protocol version, where its dialect allows it.
    /// Returns `None` if nothing needs to be changed.
    pub(crate) fn normalize(
        &self,
        exchange: &mut Exchange<'_>,
        method: &str,
        params: Option<&RawJson>,
    ) -> Option<(String, Option<RawJson>)> {
        let (method, normalized) = unversioned::normalize(exchange.peer, method, params)?;
        let names_no_version = codec::read_protocol_version(params).is_none();
        (names_no_version && exchange.is_unversioned(self)).then(|| (method.to_owned(), normalized))
    }

    fn try_decode_request(
        &self,
        exchange: &mut Exchange<'_>,
        request: RequestParts<'_>,
    ) -> Result<DecodedMessage, FormattedError> {
        let RequestParts { id, method, params, index } = request;
        let peer = exchange.peer;
        if self.is_paused.load(Ordering::Relaxed) && method != "ping" {
            let error =
                ProtocolError::new(ProtocolErrorKind::Paused, "the server is paused; try again later");
            return Err(FormattedError::new(exchange.wire_format(self), error));
        }
        let view = codec::ParamsView::with_index(params, index)
            .map_err(|error| FormattedError::new(exchange.wire_format(self), error))?;
        let headers = peer.headers.mcp();
        if self.is_stateless(method, &view, headers) {
            let reject = |error| FormattedError::new(ProtocolVersion::LATEST, error);
            if exchange.envelope == Envelope::Batch {
                let message = "a request of this kind cannot be part of a batch";
                return Err(reject(ProtocolError::invalid_request(message)));
            }
            if let Channel::Duplex(connection) = &peer.via {
                connection.mark_stateless();
            }
            let decoded = self.decode_stateless(exchange, method, &view).map_err(reject)?;
            let StatelessRequest { version, call, client, meta, requires_header_params } = decoded;
            let format = WireFormat::from(version);
            if let Some(reply) = self.immediate_reply(&format, id, &call) {
                return Ok(DecodedMessage::Reply(reply));
            }
            let mut caller = build_caller(peer, client, meta);
            caller.requires_header_params = requires_header_params;
            return self.route_call(exchange, request, DecodedCall { format, session: None, call, caller });
        }
        if method == "initialize" {
            let reject = |error| FormattedError::new(ProtocolVersion::LATEST_WITH_HANDSHAKE, error);
            if exchange.envelope == Envelope::Batch {
                return Err(reject(ProtocolError::invalid_request("`initialize` cannot be part of a batch")));
            }
            if let Some(reply) = self.lenient_initialize(exchange, id, params) {
                return Ok(DecodedMessage::Reply(reply));
            }
            self.check_initialize(exchange, params)?;
            return self.initialize(exchange, id, params).map_err(reject);
        }
        let (format, session) = match exchange.take_client(self)? {
            ClientState::Session(session) => (session.client.protocol_version.into(), Some(session)),
            ClientState::Sessionless(version) if !version.has_handshake() => {
                let message = "send `initialize` first, or the protocol version and client capabilities in the `_meta` of each request";
                return Err(FormattedError::new(version, ProtocolError::invalid_params(message)));
            }
            ClientState::Sessionless(version) => (version.into(), None),
            ClientState::Unversioned if self.requires_initialize(method, peer) => {
                let error = ProtocolError::new(ProtocolErrorKind::NotInitialized, "send `initialize` first");
                return Err(FormattedError::new(WireFormat::unversioned(peer), error));
            }
            ClientState::Unversioned => (WireFormat::unversioned(peer), None),
        };
        if method == "shutdown"
            && let Channel::Duplex(connection) = &peer.via
            && connection.request_shutdown()
        {
            return Ok(DecodedMessage::Reply(self.reply(&format, id, &Outcome::Empty)));
        }
        let call = match &format {
            WireFormat::Versioned(version) => view.read_call(*version, method),
            WireFormat::Unversioned(_) => view.read_unversioned_call(peer.dialect(), method),
        };
        let (call, meta) = match call.and_then(|call| Ok((call, view.meta()?))) {
            Ok(decoded) => decoded,
            Err(error) => return Err(FormattedError { format, error }),
        };
        if let Some(reply) = self.immediate_reply(&format, id, &call) {
            return Ok(DecodedMessage::Reply(reply));
        }
        let client = match &session {
            Some(session) => Arc::clone(&session.client),
            None => self.sessions.default_client(format.version()),
        };
        let mut caller = build_caller(peer, client, meta);
        if matches!(format, WireFormat::Unversioned(_)) {
            caller.is_lenient = peer.dialect().lenient;
            caller.allows_empty_lists = peer.dialect().empty_lists;
            if peer.dialect().tasks_create {
                caller.task_support = ClientTaskSupport::OnRequest;
                caller.owner = caller.principal.id().is_none().then(|| UNVERSIONED_OWNER.into());
            }
        }
        self.route_call(exchange, request, DecodedCall { format, session, call, caller })
    }

    /// Replies to calls that do not depend on the caller: `ping` and `server/discover`.
    fn immediate_reply(&self, format: &WireFormat, id: &RequestId, call: &Call) -> Option<Reply> {
        match call {
            Call::Ping => Some(self.reply(format, id, &Outcome::Empty)),
            Call::Discover => {
                let discovery = Outcome::Discover(Box::new(self.discovery()));
                Some(self.reply(format, id, &discovery))
            }
            _ => None,
        }
    }
}

fn build_caller(peer: &Peer, client: Arc<Client>, meta: Meta) -> Box<Caller> {
    Box::new(Caller {
        task_support: client_task_support(&client),
        owner: None,
        principal: peer.principal.clone(),
        client,
        headers: Arc::clone(&peer.headers),
        extensions: peer.extensions.clone(),
        remote_addr: peer.remote_addr,
        meta,
        requires_header_params: false,
        is_lenient: false,
        rejects_unknown_arguments: false,
        allows_empty_lists: false,
        other_arguments: None,
    })
}

/// How a client supports tasks: by its protocol version, and by the extension it declares.
fn client_task_support(client: &Client) -> ClientTaskSupport {
    match client.protocol_version.behavior().tasks {
        TasksMode::Never => ClientTaskSupport::Unsupported,
        TasksMode::Core => ClientTaskSupport::OnRequest,
        TasksMode::Extension => {
            match client.capabilities.extensions.contains_key(meta_key::TASKS_EXTENSION) {
                true => ClientTaskSupport::ServerChoice,
                false => ClientTaskSupport::Undeclared,
            }
        }
    }
}
