//! The only module that knows protocol versions: converts messages of any version to canonical calls, and outcomes back to
//! bytes.
//!
//! Incoming messages become a canonical [`Call`](toolgate_wire::model::Call), whatever version the client uses; outcomes
//! become bytes and an HTTP status. Code here branches on the behavior of a version, never on its date. It must not know
//! handlers or policy.
//!
//! A message passes through [`exchange`] (identifies the client: its session is looked up), then [`decode`] and [`route`] if it
//! is a request, else [`receive`]; [`response`] encodes the result.

mod ask_retry;
mod ask_reverse;
mod call_span;
mod cluster;
mod decode;
mod duplex;
mod exchange;
mod handshake;
mod in_flight;
mod list_cache;
mod notifications;
mod receive;
mod response;
mod route;
mod session;
mod sessionless;
mod stateless;
mod unversioned;
mod wire_format;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use toolgate_wire::model::{CacheHint, Implementation, ServerCapabilities};
use toolgate_wire::{Dialect, ProtocolError, ProtocolVersion, RequestId, codec};

pub(crate) use cluster::{ClusterSessions, ClusterStream};
pub(crate) use duplex::DuplexConnection;
pub(crate) use exchange::{Envelope, Exchange, RequestParts};
pub(crate) use response::{ResponseContext, encode_error};
pub(crate) use session::{ResumeInfo, SessionLimits, Sessions, event_id};
pub(crate) use wire_format::reject_head;

use crate::handler::ClientChannel;
use crate::headers::RequestHeaders;
use crate::observe::SessionInfo;
use crate::observe::Transport;
use crate::profile::Profile;
use crate::request::{BoxFuture, Principal, Request};
use crate::seal::Seal;
use crate::subscriptions::Subscriptions;
use crate::task::Tasks;
use crate::util::clock::Clock;
use crate::util::option_cell::OptionCell;
use crate::util::segments::Segments;
use ask_retry::StateSealer;
use list_cache::ListCache;
use sessionless::SessionlessClients;
use wire_format::WireFormat;

/// The sender of a message, as the transport knows it.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) principal: Principal,
    pub(crate) headers: Arc<RequestHeaders>,
    /// Extensions of the HTTP request. `None` if there are none.
    pub(crate) extensions: Option<Arc<http::Extensions>>,
    pub(crate) remote_addr: Option<SocketAddr>,
    pub(crate) via: Channel,
    /// The dialect for clients that name no protocol version. `None` for the official one.
    pub(crate) dialect: Option<Arc<Dialect>>,
    /// For event listeners.
    pub(crate) transport: Transport,
}

/// How a message arrived.
#[derive(Clone, Debug)]
pub(crate) enum Channel {
    /// In an HTTP POST. `accepts_stream`: the response may be an event stream.
    Post { accepts_stream: bool },
    /// On a duplex connection, which carries everything in both directions.
    Duplex(Arc<DuplexConnection>),
}

/// The reply that a transport sends to a message.
#[derive(Debug)]
pub(crate) enum Reply {
    /// No body: the message was not a request.
    Accepted,
    /// No body: the request was cancelled.
    NoResponse,
    /// One message, with an HTTP status.
    Body { status: u16, body: Segments, session_id: Option<Box<str>>, kind: ReplyKind },
}

/// The outcome of a request, for statistics.
#[derive(Debug)]
pub(crate) enum ReplyKind {
    Success,
    /// The result of `initialize`; this notification follows it at once.
    Initialized(Bytes),
    /// A tool result with `isError`.
    ToolError(Box<str>),
    ProtocolError {
        code: i64,
        message: Box<str>,
    },
}

/// A message after decoding.
// The largest variant is the common one, and is moved only once.
#[allow(clippy::large_enum_variant)]
pub(crate) enum DecodedMessage {
    /// It was served.
    Reply(Reply),
    /// The reply comes when something is stored or sent to another node.
    Deferred(BoxFuture<'static, Reply>),
    /// A call for the dispatcher.
    Call(PreparedCall),
    /// A `subscriptions/listen` stream. The future sends the notifications, and ends with the stream.
    Subscription(BoxFuture<'static, Reply>),
}

/// The description of the server. It may change while the server runs.
#[derive(Clone, Debug)]
pub(crate) struct ServerInfo {
    pub(crate) implementation: Implementation,
    /// `implementation`, encoded for each protocol version.
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
            ProtocolVersion::ALL.map(|version| codec::EncodedServerInfo::new(version, &implementation));
        ServerInfo { implementation, encoded_info, instructions, cache_hint }
    }
}

/// Returns the current capabilities of the server.
pub(crate) type CapabilitiesFn = Box<dyn Fn() -> ServerCapabilities + Send + Sync>;

/// The protocol layer of one server: all its sessions, and the conversion of its messages.
pub(crate) struct Protocol {
    pub(crate) server_info: Arc<ArcSwap<ServerInfo>>,
    capabilities: CapabilitiesFn,
    sessions: Arc<Sessions>,
    /// Subscriptions of clients without a session.
    sessionless: SessionlessClients,
    /// Sessions that are shared with other processes. `None` if the store belongs to one process.
    pub(crate) cluster: Option<Arc<ClusterSessions>>,
    clock: Clock,
    state_sealer: Arc<StateSealer>,
    pub(crate) subscriptions: Arc<Subscriptions>,
    /// Cancelled when the server shuts down: streams end.
    pub(crate) drain: CancellationToken,
    list_cache: ListCache,
    /// Clients that sent a stateless request recently.
    pub(crate) client_cache: codec::ClientCache,
    /// The profile that applies to every caller. `None`: nothing is hidden.
    default_profile: Arc<OptionCell<Profile>>,
    /// While set, only `ping` is served.
    pub(crate) is_paused: AtomicBool,
    /// The tasks whose changes are sent to subscribers.
    tasks: Arc<Tasks>,
    /// Limit of an encoded result of a tool, resource or prompt.
    max_result_bytes: usize,
}

/// The dependencies of a [`Protocol`].
pub(crate) struct ProtocolDeps {
    pub(crate) server_info: ServerInfo,
    pub(crate) capabilities: CapabilitiesFn,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) cluster: Option<Arc<ClusterSessions>>,
    pub(crate) seal: Seal,
    pub(crate) clock: Clock,
    pub(crate) subscriptions: Arc<Subscriptions>,
    pub(crate) default_profile: Arc<OptionCell<Profile>>,
    pub(crate) drain: CancellationToken,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) max_result_bytes: usize,
}

/// A call for the dispatcher, and the context of its response.
pub(crate) struct PreparedCall {
    pub(crate) request: Request,
    pub(crate) client_channel: Arc<dyn ClientChannel>,
    pub(crate) response_context: ResponseContext,
}

impl Protocol {
    pub(crate) fn new(deps: ProtocolDeps) -> Protocol {
        let server_info = Arc::new(ArcSwap::from_pointee(deps.server_info));
        let state_sealer = Arc::new(StateSealer {
            server_info: Arc::clone(&server_info),
            seal: deps.seal,
            clock: deps.clock.clone(),
        });
        Protocol {
            server_info,
            capabilities: deps.capabilities,
            sessions: deps.sessions,
            sessionless: SessionlessClients::default(),
            cluster: deps.cluster,
            clock: deps.clock,
            state_sealer,
            subscriptions: deps.subscriptions,
            drain: deps.drain,
            list_cache: ListCache::default(),
            client_cache: codec::ClientCache::default(),
            default_profile: deps.default_profile,
            is_paused: AtomicBool::new(false),
            tasks: deps.tasks,
            max_result_bytes: deps.max_result_bytes,
        }
    }

    /// Describes all sessions in this process.
    pub(crate) fn session_infos(&self) -> Vec<SessionInfo> {
        self.sessions.infos(self.clock.uptime())
    }

    /// Ends all sessions in this process and returns how many there were.
    pub(crate) fn clear_sessions(&self) -> usize {
        self.sessions.clear()
    }

    /// Loads the data for decoding a message of this peer from the store. Returns `None` if nothing has to be loaded,
    /// always so if the store belongs to one process.
    pub(crate) fn prepare<'a>(&'a self, peer: &'a Peer) -> Option<BoxFuture<'a, Result<(), ProtocolError>>> {
        self.cluster.as_ref()?.prepare(peer)
    }

    /// Rejects a message because [`Protocol::prepare`] failed.
    pub(crate) fn reject_unprepared(&self, id: Option<&RequestId>, error: &ProtocolError) -> Reply {
        WireFormat::from(ProtocolVersion::LATEST_WITH_HANDSHAKE).error_reply(id, error)
    }

    /// Rejects a request on behalf of an event listener.
    pub(crate) fn reject(
        &self,
        exchange: &mut Exchange<'_>,
        id: Option<&RequestId>,
        error: &ProtocolError,
    ) -> Reply {
        exchange.wire_format(self).error_reply(id, error)
    }

    /// Starts to receive messages of other processes, if the store is shared.
    pub(crate) fn start_cluster(&self) {
        if let Some(cluster) = &self.cluster {
            cluster.start_in_background();
        }
    }

    /// Opens the stream that a GET requests, where sessions are shared by processes.
    pub(crate) async fn open_cluster_stream(
        &self,
        cluster: &Arc<ClusterSessions>,
        peer: &Peer,
        last_event: Option<&str>,
    ) -> Result<ClusterStream, ProtocolError> {
        let session = self.look_up_session(peer)?;
        cluster.open_get_stream(session, last_event).await
    }
}
