//! The vestibule: where a message takes off its edition, and an answer puts it on.
//!
//! What comes out of here on the way in is canonical, whatever the client speaks; what comes out on the
//! way back is bytes and a status. Which file does the work is chosen by the facts of an edition, never by
//! its date. Handlers and policy are not known here.

mod ask_retry;
mod ask_reverse;
mod cluster;
mod handshake;
mod list_cache;
mod notifications;
mod session;
mod sessionless;
mod stateless;
mod unversioned;
mod version_header;
mod wire_format;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use toolgate_wire::model::{
    CacheHint, Call, Implementation, Notification, Outcome, ServerCapabilities, ToolOutput,
};
use toolgate_wire::{
    Client, Dialect, Frame, FrameError, FrameErrorKind, Meta, ParamsIndex, ProtocolError, ProtocolErrorKind,
    ProtocolVersion, RawJson, RequestId, ServerRequestMode, codec, meta_key,
};

pub(crate) use cluster::{ClusterSessions, ClusterStream};
pub(crate) use notifications::ListenSubscription;
pub(crate) use session::{DuplexConnection, ResumeInfo, SessionLimits, Sessions, event_id};
pub(crate) use wire_format::reject_head;

use crate::dispatch::tasks_undeclared;
use crate::handler::ClientChannel;
use crate::headers::RequestHeaders;
use crate::observe::SessionInfo;
use crate::observe::Transport;
use crate::profile::Profile;
use crate::request::{
    BoxFuture, CallError, Caller, ClientTaskSupport, Principal, Request, UNVERSIONED_OWNER, task_owner,
};
use crate::seal::Seal;
use crate::stream::Stream;
use crate::subscriptions::Subscriptions;
use crate::task::Tasks;
use crate::util::cancel::{Cancel, CancelOnDrop};
use crate::util::clock::Clock;
use crate::util::option_cell::OptionCell;
use crate::util::segments::Segments;
use ask_retry::{RetryChannel, StateSealer};
use ask_reverse::ReverseChannel;
use list_cache::ListCache;
use session::{InFlightGuard, Session};
use sessionless::SessionlessClients;
use stateless::StatelessRequest;
use wire_format::WireFormat;

/// Who sent a message, and over what.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) principal: Principal,
    pub(crate) headers: Arc<RequestHeaders>,
    pub(crate) remote_addr: Option<SocketAddr>,
    pub(crate) via: Channel,
    /// How those are spoken to who name no edition. None: as the protocol says.
    pub(crate) dialect: Option<Arc<Dialect>>,
    /// For those who listen.
    pub(crate) transport: Transport,
    /// Somebody who listens has made another request of it: what its headers say is no longer about it.
    pub(crate) is_rewritten: bool,
}

/// What a message came over.
#[derive(Clone, Debug)]
pub(crate) enum Channel {
    /// A request of its own. `streams`: its answer may be a stream.
    Post { accepts_stream: bool },
    /// A standing connection, on which everything is answered.
    Duplex(Arc<DuplexConnection>),
}

/// What a transport sends back.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Nothing: it was no question.
    Accepted,
    /// Nothing: the question was taken back.
    NoResponse,
    /// One message, with the status it has where there are statuses.
    Body { status: u16, body: Segments, session_id: Option<Box<str>>, kind: ReplyKind },
}

/// What an answer tells, for those who keep count.
#[derive(Debug)]
pub(crate) enum ReplyKind {
    /// What was wanted.
    Success,
    /// That a greeting was heard; this message follows at once.
    Initialized(Bytes),
    /// That a tool failed, in its result.
    ToolError(Box<str>),
    /// That there is no answer.
    ProtocolError { code: i64, message: Box<str> },
}

/// What became of a message in the vestibule.
// The largest variant is the common one, and lives for a moment.
#[allow(clippy::large_enum_variant)]
pub(crate) enum DecodedMessage {
    /// It is answered.
    Reply(Reply),
    /// It is answered when something is kept, or told to another node.
    Deferred(BoxFuture<'static, Reply>),
    /// It goes on to the hall.
    Call(PreparedCall),
    /// It stays here, listening.
    Subscription(Box<ListenSubscription>),
}

/// What the server says of itself. It may change while the server runs.
#[derive(Clone, Debug)]
pub(crate) struct ServerInfo {
    pub(crate) implementation: Implementation,
    /// The same as each edition says it.
    pub(crate) encoded_info: [codec::EncodedServerInfo; ProtocolVersion::ALL.len()],
    pub(crate) instructions: Option<String>,
    pub(crate) cache_hint: CacheHint,
}

impl ServerInfo {
    pub(crate) fn new(
        implementation: Implementation,
        instructions: Option<String>,
        cache_hint: CacheHint,
    ) -> ServerInfo {
        let encoded_info =
            ProtocolVersion::ALL.map(|edition| codec::EncodedServerInfo::new(edition, &implementation));
        ServerInfo { implementation, encoded_info, instructions, cache_hint }
    }
}

/// What a server offers now.
pub(crate) type CapabilitiesFn = Box<dyn Fn() -> ServerCapabilities + Send + Sync>;

/// See the module.
pub(crate) struct Protocol {
    pub(crate) server_info: Arc<ArcSwap<ServerInfo>>,
    capabilities: CapabilitiesFn,
    sessions: Arc<Sessions>,
    /// Those who have none.
    sessionless: SessionlessClients,
    /// What is known of sessions in other processes, where there are any.
    pub(crate) cluster: Option<Arc<ClusterSessions>>,
    clock: Clock,
    state_sealer: Arc<StateSealer>,
    pub(crate) subscriptions: Arc<Subscriptions>,
    /// Falls when the house closes: streams end.
    pub(crate) drain: CancellationToken,
    list_cache: ListCache,
    /// Clients that introduced themselves lately.
    pub(crate) client_cache: codec::ClientCache,
    /// What anybody may see, here as in the hall.
    default_profile: Arc<OptionCell<Profile>>,
    /// Nothing is served but `ping`.
    pub(crate) is_paused: AtomicBool,
    /// What changes are told of.
    tasks: Arc<Tasks>,
}

/// A request on its way through the house, and what is needed to answer it.
pub(crate) struct PreparedCall {
    pub(crate) request: Request,
    pub(crate) client_channel: Arc<dyn ClientChannel>,
    pub(crate) response_context: ResponseContext,
}

/// What is needed to answer a request.
pub(crate) struct ResponseContext {
    wire_format: WireFormat,
    id: RequestId,
    pub(crate) method: &'static str,
    /// Where answers wait that the client must bring.
    retry_channel: Option<Arc<RetryChannel>>,
    /// Keeps the request cancellable while it runs.
    _in_flight: Option<InFlightGuard>,
    /// Whoever drops this without an answer has left: work that was moved elsewhere should know.
    cancel_on_drop: CancelOnDrop,
}

impl ResponseContext {
    /// Falls when the request is cancelled.
    pub(crate) fn cancellation(&self) -> &Cancel {
        self.cancel_on_drop.cancellation()
    }
}

impl Protocol {
    /// What is known of every session here.
    pub(crate) fn session_infos(&self) -> Vec<SessionInfo> {
        self.sessions.infos(self.clock.uptime())
    }

    /// Ends every session here.
    pub(crate) fn clear_sessions(&self) -> usize {
        self.sessions.clear()
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        face: ServerInfo,
        capabilities: CapabilitiesFn,
        sessions: Arc<Sessions>,
        cluster: Option<Arc<ClusterSessions>>,
        seal: Seal,
        clock: Clock,
        subscriptions: Arc<Subscriptions>,
        default_profile: Arc<OptionCell<Profile>>,
        drain: CancellationToken,
        tasks: Arc<Tasks>,
    ) -> Protocol {
        let server_info = Arc::new(ArcSwap::from_pointee(face));
        let state_sealer =
            Arc::new(StateSealer { server_info: Arc::clone(&server_info), seal, clock: clock.clone() });
        Protocol {
            server_info,
            capabilities,
            sessions,
            sessionless: SessionlessClients::default(),
            cluster,
            clock,
            state_sealer,
            subscriptions,
            drain,
            list_cache: ListCache::default(),
            client_cache: codec::ClientCache::default(),
            default_profile,
            is_paused: AtomicBool::new(false),
            tasks,
        }
    }

    /// Reads a request.
    #[allow(clippy::too_many_arguments)]
    #[inline]
    pub(crate) fn decode_request(
        &self,
        id: &RequestId,
        method: &str,
        params: Option<&RawJson>,
        index: &ParamsIndex<'_>,
        peer: &Peer,
        out: &Arc<Stream>,
        in_batch: bool,
    ) -> DecodedMessage {
        match self.try_decode_request(id, method, params, index, peer, out, in_batch) {
            Ok(arrival) => arrival,
            Err((speech, fault)) => DecodedMessage::Reply(speech.error_reply(Some(id), &fault)),
        }
    }

    /// A request as it was meant, where this peer names no edition and its dialect overlooks small mistakes. None if it
    /// needs no mending.
    pub(crate) fn normalize(
        &self,
        method: &str,
        params: Option<&RawJson>,
        peer: &Peer,
    ) -> Option<(String, Option<RawJson>)> {
        let (mended, changed) = unversioned::normalize(peer, method, params)?;
        let names_none = codec::read_protocol_version(params).is_none();
        (names_none && matches!(self.client_state(peer), Ok(ClientState::Unversioned)))
            .then(|| (mended.to_owned(), changed))
    }

    /// Hears a message that is no request.
    pub(crate) fn receive(&self, frame: Frame, peer: &Peer) -> DecodedMessage {
        let refused = |(speech, fault): (WireFormat, ProtocolError)| speech.error_reply(None, &fault);
        let answer = match frame {
            Frame::Notification { method, params } => {
                match self.receive_notification(&method, params.as_ref(), peer) {
                    Ok(None) => Reply::Accepted,
                    Ok(Some(later)) => return DecodedMessage::Deferred(later),
                    Err(error) => refused(error),
                }
            }
            Frame::Response { id, outcome } => match self.client_state(peer) {
                Ok(ClientState::Session(session)) => {
                    let elsewhere = self.cluster.as_ref().filter(|_| session.replica.is_some());
                    if let Some(told) =
                        elsewhere.and_then(|shared| shared.forward_response(&session, &id, &outcome))
                    {
                        return DecodedMessage::Deferred(accept_after(
                            session.client.protocol_version.into(),
                            told,
                        ));
                    }
                    session.resolve_response(&id, outcome);
                    Reply::Accepted
                }
                Ok(_) => self.receive_unexpected_response(peer),
                Err(error) => refused(error),
            },
            Frame::ErrorWithoutId { .. } | Frame::Request { .. } => self.receive_unexpected_response(peer),
        };
        DecodedMessage::Reply(answer)
    }

    /// What must be fetched before a message of this peer can be read; nothing where there is one process only.
    pub(crate) fn prepare<'a>(&'a self, peer: &'a Peer) -> Option<BoxFuture<'a, Result<(), ProtocolError>>> {
        self.cluster.as_ref()?.prepare(peer)
    }

    /// Refuses a message before it was read.
    pub(crate) fn reject_unprepared(&self, id: Option<&RequestId>, fault: &ProtocolError) -> Reply {
        WireFormat::from(ProtocolVersion::LATEST_WITH_HANDSHAKE).error_reply(id, fault)
    }

    /// Begins to listen to other processes, if there are any.
    pub(crate) fn start_cluster(&self) {
        if let Some(shared) = &self.cluster {
            shared.start_in_background();
        }
    }

    /// The stream that a GET asks for, where any process can give it.
    pub(crate) async fn open_cluster_stream(
        &self,
        shared: &Arc<ClusterSessions>,
        peer: &Peer,
        last_event: Option<&str>,
    ) -> Result<ClusterStream, ProtocolError> {
        let session = self.session_of(peer)?;
        shared.open_get_stream(session, last_event).await
    }

    /// A response that nobody waits for.
    fn receive_unexpected_response(&self, peer: &Peer) -> Reply {
        match (&peer.via, self.client_state(peer)) {
            (Channel::Duplex(_), _) | (_, Ok(ClientState::Session(_))) => Reply::Accepted,
            (_, Ok(ClientState::Unversioned)) if peer.dialect().ignore_unmatched_responses => Reply::Accepted,
            _ => self.wire_format(peer).error_reply(
                None,
                &ProtocolError::invalid_request("the response does not match a pending request"),
            ),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn try_decode_request(
        &self,
        id: &RequestId,
        method: &str,
        params: Option<&RawJson>,
        index: &ParamsIndex<'_>,
        peer: &Peer,
        out: &Arc<Stream>,
        in_batch: bool,
    ) -> Result<DecodedMessage, (WireFormat, ProtocolError)> {
        if self.is_paused.load(Ordering::Relaxed) && method != "ping" {
            let said = "the server is paused; try again later";
            return Err((self.wire_format(peer), ProtocolError::new(ProtocolErrorKind::Paused, said)));
        }
        let said =
            codec::ParamsView::with_index(params, index).map_err(|fault| (self.wire_format(peer), fault))?;
        let labels = peer.headers.mcp();
        if self.is_stateless(method, &said, labels) {
            let newest = |fault| (WireFormat::from(ProtocolVersion::LATEST), fault);
            if in_batch {
                return Err(newest(ProtocolError::invalid_request(
                    "a request of this kind cannot be part of a batch",
                )));
            }
            if let Channel::Duplex(line) = &peer.via {
                line.mark_stateless();
            }
            let greeted = self.decode_stateless(method, &said, peer, labels).map_err(newest)?;
            let StatelessRequest { version: edition, call, client, meta, requires_header_params: mirrors } =
                greeted;
            if let Some(answer) = self.immediate_reply(&edition.into(), id, &call) {
                return Ok(DecodedMessage::Reply(answer));
            }
            let caller = self.build_caller(peer, client, meta, mirrors);
            return self.route_call(&edition.into(), id, call, params, caller, None, peer, out);
        }
        if method == "initialize" {
            if in_batch {
                let fault = ProtocolError::invalid_request("`initialize` cannot be part of a batch");
                return Err((ProtocolVersion::LATEST_WITH_HANDSHAKE.into(), fault));
            }
            if let Some(answer) = self.lenient_initialize(id, params, peer) {
                return Ok(DecodedMessage::Reply(answer));
            }
            self.check_initialize(params, peer)?;
            return self
                .initialize(id, params, peer)
                .map_err(|fault| (ProtocolVersion::LATEST_WITH_HANDSHAKE.into(), fault));
        }
        let (speech, session) = match self.client_state_from(peer, labels)? {
            ClientState::Session(session) => (session.client.protocol_version.into(), Some(session)),
            ClientState::Sessionless(edition) if !edition.has_handshake() => {
                let said = "send `initialize` first, or the protocol version and client capabilities in the `_meta` of each request";
                return Err((edition.into(), ProtocolError::invalid_params(said)));
            }
            ClientState::Sessionless(edition) => (edition.into(), None),
            ClientState::Unversioned if self.requires_initialize(method, peer) => {
                let fault = ProtocolError::new(ProtocolErrorKind::NotInitialized, "send `initialize` first");
                return Err((WireFormat::unversioned(peer), fault));
            }
            ClientState::Unversioned => (WireFormat::unversioned(peer), None),
        };
        if method == "shutdown"
            && let Channel::Duplex(line) = &peer.via
            && line.request_shutdown()
        {
            return Ok(DecodedMessage::Reply(self.reply(&speech, id, &Outcome::Empty)));
        }
        let told = |fault| (speech.clone(), fault);
        let call = match &speech {
            WireFormat::Versioned(edition) => said.read_call(*edition, method),
            WireFormat::Unversioned(_) => said.read_unversioned_call(peer.dialect(), method),
        };
        let call = call.map_err(told)?;
        let meta = said.meta().map_err(told)?;
        if let Some(answer) = self.immediate_reply(&speech, id, &call) {
            return Ok(DecodedMessage::Reply(answer));
        }
        let client = match &session {
            Some(session) => Arc::clone(&session.client),
            None => self.sessions.default_client(speech.version()),
        };
        let mut caller = self.build_caller(peer, client, meta, false);
        if matches!(speech, WireFormat::Unversioned(_)) {
            caller.is_lenient = peer.dialect().lenient;
            caller.allows_empty_lists = peer.dialect().empty_lists;
            if peer.dialect().tasks_create {
                caller.task_support = ClientTaskSupport::OnRequest;
                caller.owner = caller.principal.id().is_none().then(|| UNVERSIONED_OWNER.into());
            }
        }
        self.route_call(&speech, id, call, params, caller, session, peer, out)
    }

    /// What needs to know nothing of its caller.
    fn immediate_reply(&self, speech: &WireFormat, id: &RequestId, call: &Call) -> Option<Reply> {
        match call {
            Call::Ping => Some(self.reply(speech, id, &Outcome::Empty)),
            Call::Discover => {
                let discovery = Outcome::Discover(Box::new(self.discovery()));
                Some(self.reply(speech, id, &discovery))
            }
            _ => None,
        }
    }

    /// Gives a request its place: what is about the connection is answered here, the rest goes on.
    #[allow(clippy::too_many_arguments)]
    fn route_call(
        &self,
        speech: &WireFormat,
        id: &RequestId,
        call: Call,
        params: Option<&RawJson>,
        mut caller: Box<Caller>,
        session: Option<Arc<Session>>,
        peer: &Peer,
        out: &Arc<Stream>,
    ) -> Result<DecodedMessage, (WireFormat, ProtocolError)> {
        if caller.task_support == ClientTaskSupport::OnRequest
            && let Some(session) = &session
            && is_task_call(&call)
        {
            caller.owner = Some(task_owner(&caller.principal, Some(&session.id)));
        }
        let told = |fault| (speech.clone(), fault);
        let answered = |outcome| Ok(DecodedMessage::Reply(self.reply(speech, id, &outcome)));
        if let (Some(shared), Some(session)) = (&self.cluster, &session)
            && session.replica.is_some()
            && matches!(call, Call::SetLevel(_) | Call::Subscribe { .. } | Call::Unsubscribe { .. })
        {
            if let Call::Subscribe { uri } = &call
                && self.is_resource_hidden(&caller, uri)
            {
                return Err(told(ProtocolError::resource_not_found(uri)));
            }
            let (shared, session) = (Arc::clone(shared), Arc::clone(session));
            let (answer, speech, id) = (self.reply(speech, id, &Outcome::Empty), speech.clone(), id.clone());
            return Ok(DecodedMessage::Deferred(Box::pin(async move {
                let kept = shared.update_session(&session, &call).await;
                kept.map_or_else(|fault| speech.error_reply(Some(&id), &fault), |()| answer)
            })));
        }
        if !is_connection_call(&call) {
            return self
                .prepare_call(speech.clone(), id, call, params, caller, session, peer, out)
                .map_err(told);
        }
        match (call, &session) {
            (Call::Initialize(_), _) => Err(told(ProtocolError::method_not_found("initialize"))),
            (Call::SetLevel(level), session) => {
                if let Some(session) = session {
                    session.set_level(level);
                }
                answered(Outcome::Empty)
            }
            (Call::Subscribe { uri }, Some(session)) => {
                if self.is_resource_hidden(&caller, &uri) {
                    return Err(told(ProtocolError::resource_not_found(&uri)));
                }
                session.subscribe(&uri).map_err(told)?;
                answered(Outcome::Empty)
            }
            (Call::Unsubscribe { uri }, Some(session)) => {
                session.unsubscribe(&uri);
                answered(Outcome::Empty)
            }
            (Call::Subscribe { uri }, None) if self.can_subscribe_sessionless(speech, peer) => {
                if self.is_resource_hidden(&caller, &uri) {
                    return Err(told(ProtocolError::resource_not_found(&uri)));
                }
                self.subscribe_sessionless(peer, &uri).map_err(told)?;
                answered(Outcome::Empty)
            }
            (Call::Unsubscribe { uri }, None) if self.can_subscribe_sessionless(speech, peer) => {
                self.unsubscribe_sessionless(peer, &uri);
                answered(Outcome::Empty)
            }
            (call @ (Call::Subscribe { .. } | Call::Unsubscribe { .. }), None) => {
                Err(told(ProtocolError::method_not_found(call.method())))
            }
            (Call::Listen(mut filter), _) => {
                filter.uris.retain(|uri| !self.is_resource_hidden(&caller, uri));
                let offered = || (self.capabilities)().extensions.contains_key(meta_key::TASKS_EXTENSION);
                if !filter.tasks.is_empty()
                    && caller.task_support == ClientTaskSupport::Undeclared
                    && offered()
                {
                    return Err(told(tasks_undeclared()));
                }
                let (cancel, ticket) = self.register_in_flight(id, session.as_ref(), peer).map_err(told)?;
                let listening =
                    self.open_subscription(speech.version(), id, filter, cancel, ticket, &caller, peer, out);
                Ok(DecodedMessage::Subscription(Box::new(listening)))
            }
            (call, _) => Err(told(ProtocolError::method_not_found(call.method()))),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn prepare_call(
        &self,
        speech: WireFormat,
        id: &RequestId,
        call: Call,
        params: Option<&RawJson>,
        caller: Box<Caller>,
        session: Option<Arc<Session>>,
        peer: &Peer,
        out: &Arc<Stream>,
    ) -> Result<DecodedMessage, ProtocolError> {
        let (cancel, ticket) = self.register_in_flight(id, session.as_ref(), peer)?;
        let edition = speech.version();
        let posted = matches!(peer.via, Channel::Post { .. });
        if !edition.behavior().disconnect_cancels {
            out.set_outlives_reader();
        }
        let streams = match &peer.via {
            Channel::Post { accepts_stream: streams } => *streams,
            Channel::Duplex(_) => true,
        };
        let method = call.method();
        if posted && self.cluster.is_some() {
            out.add_request_id(id);
        }
        let out = streams.then(|| Arc::clone(out));
        let (voice, retrying): (Arc<dyn ClientChannel>, _) = match edition.behavior().server_requests {
            ServerRequestMode::Reverse => {
                let level = self.sessionless_log_level(&speech);
                let voice =
                    ReverseChannel::new(edition, session, out, cancel.clone(), posted).with_log_level(level);
                (Arc::new(voice), None)
            }
            ServerRequestMode::Retry => {
                let retrying = Arc::new(RetryChannel::new(edition, &call, params, &caller, out, self));
                (Arc::clone(&retrying) as Arc<dyn ClientChannel>, Some(retrying))
            }
        };
        let leaving = cancel.cancel_on_drop();
        let closing = ResponseContext {
            wire_format: speech,
            id: id.clone(),
            method,
            retry_channel: retrying,
            _in_flight: ticket,
            cancel_on_drop: leaving,
        };
        let request = Request { call, caller, cancel };
        Ok(DecodedMessage::Call(PreparedCall { request, client_channel: voice, response_context: closing }))
    }

    /// A token that falls when the request is cancelled, and its entry where cancellations are looked up.
    fn register_in_flight(
        &self,
        id: &RequestId,
        session: Option<&Arc<Session>>,
        peer: &Peer,
    ) -> Result<(Cancel, Option<InFlightGuard>), ProtocolError> {
        let cancel = Cancel::new();
        let calls = match (&peer.via, session) {
            (Channel::Duplex(line), _) => {
                if line.in_flight.contains(id) {
                    return Err(ProtocolError::invalid_request("a request with this id is in flight"));
                }
                line.check_call_limit()?;
                &line.in_flight
            }
            (Channel::Post { .. }, Some(session)) => {
                session.check_call_limit()?;
                &session.in_flight
            }
            (Channel::Post { .. }, None) => return Ok((cancel, None)),
        };
        let ticket = calls.insert(id, &cancel);
        Ok((cancel, Some(ticket)))
    }

    fn build_caller(&self, peer: &Peer, client: Arc<Client>, meta: Meta, mirrors: bool) -> Box<Caller> {
        Box::new(Caller {
            task_support: client_task_support(&client),
            owner: None,
            principal: peer.principal.clone(),
            client,
            headers: Arc::clone(&peer.headers),
            remote_addr: peer.remote_addr,
            meta,
            requires_header_params: mirrors,
            is_lenient: false,
            allows_empty_lists: false,
            other_arguments: None,
        })
    }

    /// Hears a notification; what is still to be done if it concerns another process.
    fn receive_notification(
        &self,
        method: &str,
        params: Option<&RawJson>,
        peer: &Peer,
    ) -> Result<Option<BoxFuture<'static, Reply>>, (WireFormat, ProtocolError)> {
        let said = codec::ParamsView::new(params).map_err(|fault| (self.wire_format(peer), fault))?;
        if self.is_stateless(method, &said, peer.headers.mcp()) {
            if let Channel::Duplex(line) = &peer.via
                && let Some((Notification::Cancelled { request: Some(id), .. }, _)) =
                    codec::read_notification(ProtocolVersion::LATEST, method, params)
            {
                line.in_flight.cancel(&id);
            }
            let checked = stateless::check_method_header(method, peer);
            return checked.map(|()| None).map_err(|fault| (ProtocolVersion::LATEST.into(), fault));
        }
        let (edition, calls) = match self.client_state(peer)? {
            ClientState::Session(session) => (session.client.protocol_version, Some(session)),
            ClientState::Sessionless(edition) => (edition, None),
            ClientState::Unversioned => (ProtocolVersion::FALLBACK, None),
        };
        let notice = codec::read_notification(edition, method, params).map(|(notice, _)| notice);
        if let Some(Notification::Cancelled { request: Some(id), .. }) = notice {
            // A stdio client of an edition without a handshake says nothing of itself in a notification.
            match (&peer.via, calls) {
                (Channel::Duplex(line), _) => {
                    line.in_flight.cancel(&id);
                }
                (_, Some(session)) => {
                    if !session.in_flight.cancel(&id)
                        && let Some(shared) = self.cluster.as_ref().filter(|_| session.replica.is_some())
                    {
                        return Ok(Some(accept_after(edition.into(), shared.forward_cancel(&session, &id))));
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Answers bytes that are no message.
    pub(crate) fn reject_frame(&self, broken: &FrameError, peer: &Peer) -> Reply {
        let kind = match broken.kind {
            FrameErrorKind::ParseError => ProtocolErrorKind::ParseError,
            FrameErrorKind::InvalidRequest => ProtocolErrorKind::InvalidRequest,
            FrameErrorKind::InvalidParams => ProtocolErrorKind::InvalidParams,
        };
        self.wire_format(peer)
            .error_reply(broken.id.as_ref(), &ProtocolError::new(kind, broken.detail.clone()))
    }

    /// Refuses a message that somebody who listens would not have.
    pub(crate) fn reject(&self, id: Option<&RequestId>, peer: &Peer, fault: &ProtocolError) -> Reply {
        self.wire_format(peer).error_reply(id, fault)
    }

    /// Whether this peer may send arrays of messages.
    pub(crate) fn accepts_batches(&self, peer: &Peer) -> bool {
        match self.client_state(peer) {
            Ok(ClientState::Session(session)) => session.client.protocol_version.behavior().batches,
            Ok(ClientState::Sessionless(edition)) => edition.behavior().batches,
            Ok(ClientState::Unversioned) => match (peer.dialect().batches, &peer.via) {
                (Some(takes), _) => takes,
                (None, Channel::Post { .. }) => ProtocolVersion::FALLBACK.behavior().batches,
                // Nobody who speaks on a standing connection has ever sent one before a greeting.
                (None, Channel::Duplex(_)) => false,
            },
            Err(_) => false,
        }
    }

    /// Whether a caller may not know of this resource.
    fn is_resource_hidden(&self, caller: &Caller, uri: &str) -> bool {
        let shown = self.default_profile.load();
        let profiles = [shown.as_deref(), caller.principal.profile()];
        profiles.into_iter().flatten().any(|profile| !profile.allows_reading(uri))
    }

    fn reply(&self, speech: &WireFormat, id: &RequestId, outcome: &Outcome) -> Reply {
        let body = self.encode_response(speech, id, outcome, &self.server_info.load());
        let told = match outcome {
            Outcome::Tool(output) if output.is_error => ReplyKind::ToolError(first_text(output).into()),
            _ => ReplyKind::Success,
        };
        Reply::Body { status: 200, body, session_id: None, kind: told }
    }

    /// Answers a request that went through the house.
    pub(crate) fn encode_result(
        &self,
        closing: &ResponseContext,
        ended: Result<Outcome, CallError>,
    ) -> Reply {
        let ResponseContext { wire_format: speech, id, method, retry_channel: retrying, .. } = closing;
        let refuse = |fault: &ProtocolError| speech.error_reply(Some(id), fault);
        if let Some(fault) = retrying.as_ref().and_then(|retrying| retrying.state_error()) {
            return refuse(&fault);
        }
        match ended {
            Ok(outcome) => {
                if retrying.as_ref().is_some_and(|retrying| retrying.has_pending()) {
                    tracing::warn!(method, "a handler ended well although its question was not answered");
                }
                self.reply(speech, id, &outcome)
            }
            Err(CallError::Protocol(fault)) => refuse(&fault),
            Err(CallError::Tool(failure, output)) => match speech.tool_error(failure, first_text(&output)) {
                Some(fault) => refuse(&fault),
                None => {
                    let output = speech.reword_failure(failure, *output);
                    self.reply(speech, id, &Outcome::Tool(output))
                }
            },
            Err(CallError::Cancelled) => Reply::NoResponse,
            // The hall makes a task of it.
            Err(CallError::Deferred) => refuse(&ProtocolError::internal(&crate::seal::error_reference())),
            Err(CallError::InputRequired) => match retrying.as_ref().map(|retrying| retrying.suspend()) {
                Some(Ok(outcome)) => self.reply(speech, id, &outcome),
                Some(Err(fault)) => refuse(&fault),
                None => refuse(&ProtocolError::internal(&crate::seal::error_reference())),
            },
        }
    }
}

/// Taken, once somebody else has been told.
fn accept_after(
    speech: WireFormat,
    told: impl Future<Output = Result<(), ProtocolError>> + Send + 'static,
) -> BoxFuture<'static, Reply> {
    Box::pin(
        async move { told.await.map_or_else(|fault| speech.error_reply(None, &fault), |()| Reply::Accepted) },
    )
}

/// How a client's way of speaking deals with work that takes long.
fn client_task_support(client: &Client) -> ClientTaskSupport {
    match client.protocol_version.behavior().tasks {
        toolgate_wire::TasksMode::Never => ClientTaskSupport::Unsupported,
        toolgate_wire::TasksMode::Core => ClientTaskSupport::OnRequest,
        toolgate_wire::TasksMode::Extension => {
            match client.capabilities.extensions.contains_key(meta_key::TASKS_EXTENSION) {
                true => ClientTaskSupport::ServerChoice,
                false => ClientTaskSupport::Undeclared,
            }
        }
    }
}

/// Whether a wish is fulfilled here, and not in the hall.
fn is_connection_call(call: &Call) -> bool {
    matches!(
        call,
        Call::Initialize(_)
            | Call::SetLevel(_)
            | Call::Subscribe { .. }
            | Call::Unsubscribe { .. }
            | Call::Listen(_)
    )
}

/// Whether it matters whose tasks a caller may see.
fn is_task_call(call: &Call) -> bool {
    matches!(
        call,
        Call::CallTool { task: Some(_), .. }
            | Call::GetTask { .. }
            | Call::UpdateTask { .. }
            | Call::CancelTask { .. }
            | Call::ListTasks { .. }
            | Call::TaskResult { .. }
            | Call::CreateTask { .. }
    )
}

/// What a tool's output begins with.
fn first_text(output: &ToolOutput) -> &str {
    output.content.first().and_then(|content| content.as_text()).unwrap_or_default()
}

/// Who sends a message of a handshake edition.
enum ClientState {
    /// One whose greeting is remembered.
    Session(Arc<Session>),
    /// One who names an edition, of whom nothing is remembered, because nothing ever is.
    Sessionless(ProtocolVersion),
    /// One who says nothing of itself.
    Unversioned,
}

/// A refusal before a message was looked at, or more of it than its id.
pub(crate) fn encode_error(id: Option<&RequestId>, fault: &ProtocolError) -> Bytes {
    let mut out = Vec::with_capacity(256);
    codec::write_protocol_error(&mut out, ProtocolVersion::LATEST, id, fault);
    out.into()
}
