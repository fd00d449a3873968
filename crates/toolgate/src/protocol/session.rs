//! Sessions of clients that send `initialize`: the version and capabilities negotiated there, and the streams to the client.
//!
//! A session is only a cache of the information that a stateless request carries itself, plus the streams of its client.

mod state;
mod streams;
mod table;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use toolgate_wire::model::{LogLevel, ServerCapabilities, SubscriptionFilter};
use toolgate_wire::{
    Client, ProtocolError, ProtocolErrorKind, ProtocolVersion, RawJson, RemoteError, RequestId,
};

pub(super) use state::{SessionValues, set_value};
pub(crate) use streams::{ResumeInfo, event_id};
pub(super) use streams::{invalid_event_id, parse_event_id, stream_not_resumable};
pub(crate) use table::{SessionLimits, Sessions};

use super::cluster::SessionReplica;
use super::in_flight::InFlight;
use super::{Peer, Protocol};
use crate::headers::{PROTOCOL_VERSION, SESSION_ID, single_value};
use crate::request::Principal;
use crate::seal::random_token;
use crate::subscriptions::Subscriber;
use crate::util::cancel::Cancel;
use crate::util::clock::Clock;
use crate::util::lock;
use streams::SessionStreams;

/// Maximum length of the params of `initialize`: they are kept as long as the session.
pub(super) const MAX_INITIALIZE_BYTES: usize = 32 << 10;

/// Maximum total length of the URIs that one session subscribes to.
pub(super) const MAX_SUBSCRIBED_URI_BYTES: usize = 256 << 10;

/// A session that was never used after `initialize` may be removed for a new one after this time.
const UNUSED_SESSION_TTL: Duration = Duration::from_secs(30);

/// The session of one client that sent `initialize`.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: Box<str>,
    pub(crate) client: Arc<Client>,
    pub(super) principal: Principal,
    pub(super) limits: Arc<SessionLimits>,
    /// Minimum level of the log messages that are sent to the client.
    log_level: AtomicU8,
    subscriber: Arc<Subscriber>,
    /// Requests of the server that wait for a response. `None` once no response can arrive any more.
    pending_requests: Mutex<Option<PendingRequests>>,
    pub(crate) in_flight: InFlight,
    streams: Mutex<SessionStreams>,
    /// When the last message arrived, in milliseconds of uptime.
    last_seen_ms: AtomicU64,
    /// Set by the first message after `initialize`.
    is_used: AtomicBool,
    /// A hash of the client to which it belongs; see [`Sessions::create`].
    owner: AtomicU32,
    /// Cancelled when the session ends.
    pub(crate) closed: Cancel,
    /// Values that handlers keep in the session, if it belongs to one process. `None` as long as there are none.
    state: Mutex<Option<Box<SessionValues>>>,
    /// State that is synchronized with other processes. `None` if the sessions belong to one process.
    pub(super) replica: Option<Box<SessionReplica>>,
}

type ResponseSender = oneshot::Sender<Result<RawJson, RemoteError>>;

/// Server-to-client requests that wait for a response. Each belongs to a call in flight, so there are few.
#[derive(Debug, Default)]
struct PendingRequests(Vec<(RequestId, ResponseSender)>);

impl PendingRequests {
    fn position(&self, id: &RequestId) -> Option<usize> {
        self.0.iter().position(|(pending, _)| pending == id)
    }

    fn remove(&mut self, id: &RequestId) -> Option<ResponseSender> {
        self.position(id).map(|index| self.0.swap_remove(index).1)
    }
}

impl Session {
    pub(super) fn touch(&self, clock: &Clock) {
        self.touch_at(clock.uptime());
    }

    fn touch_at(&self, now: Duration) {
        // Avoids the 128-bit arithmetic of `as_millis`.
        let millis = now.as_secs() * 1000 + u64::from(now.subsec_millis());
        self.last_seen_ms.store(millis, Ordering::Relaxed);
    }

    pub(super) fn idle_time(&self, now: Duration) -> Duration {
        now.saturating_sub(Duration::from_millis(self.last_seen_ms.load(Ordering::Relaxed)))
    }

    /// Whether no message came after `initialize` for [`UNUSED_SESSION_TTL`].
    fn is_unused(&self, now: Duration) -> bool {
        !self.is_used.load(Ordering::Relaxed) && self.idle_time(now) > UNUSED_SESSION_TTL
    }

    pub(super) fn is_expired(&self, now: Duration) -> bool {
        self.idle_time(now) > self.limits.idle_timeout && self.is_idle()
    }

    fn owner(&self) -> u32 {
        self.owner.load(Ordering::Relaxed)
    }

    /// Whether it has neither a call in flight nor a stream reader in this process.
    fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && !self.has_stream_reader()
    }

    /// Whether its standalone stream is being read.
    fn has_stream_reader(&self) -> bool {
        if let Some(replica) = &self.replica {
            return replica.has_reader();
        }
        lock(&self.streams).has_standalone_reader()
    }

    pub(super) fn end(&self) {
        self.closed.cancel();
        self.in_flight.cancel_all();
        self.drop_pending_requests();
    }

    /// Fails all server-to-client requests: the client sends no response any more.
    pub(super) fn drop_pending_requests(&self) {
        *lock(&self.pending_requests) = None;
    }

    pub(super) fn set_level(&self, level: LogLevel) {
        self.log_level.store(level as u8, Ordering::Relaxed);
    }

    pub(super) fn accepts_log_level(&self, level: LogLevel) -> bool {
        level as u8 >= self.log_level.load(Ordering::Relaxed)
    }

    pub(super) fn subscribe(&self, uri: &str) -> Result<(), ProtocolError> {
        if self.subscriber.add_uri(uri, self.limits.max_subscriptions, MAX_SUBSCRIBED_URI_BYTES) {
            return Ok(());
        }
        Err(self.too_many_subscriptions())
    }

    pub(super) fn too_many_subscriptions(&self) -> ProtocolError {
        let max = self.limits.max_subscriptions;
        let message = format!(
            "a session may subscribe to at most {max} resources with {MAX_SUBSCRIBED_URI_BYTES} bytes of URIs"
        );
        ProtocolError::invalid_params(message)
    }

    pub(super) fn unsubscribe(&self, uri: &str) {
        self.subscriber.remove_uri(uri);
    }

    pub(super) fn subscriber(&self) -> &Subscriber {
        &self.subscriber
    }

    /// Registers a request that the server is about to send, and returns its id and the receiver of its response. Returns
    /// `None` if no response can come any more.
    pub(super) fn register_request(
        &self,
    ) -> Option<(RequestId, oneshot::Receiver<Result<RawJson, RemoteError>>)> {
        let (sender, receiver) = oneshot::channel();
        // Unguessable, and looked up in this session only: no other client can respond to it.
        let id = match &self.replica {
            // The response may come to another process, which must know where to forward it.
            Some(replica) => RequestId::from(format!("{}.{}", replica.bus.node, random_token())),
            None => RequestId::from(random_token()),
        };
        lock(&self.pending_requests).as_mut()?.0.push((id.clone(), sender));
        Some((id, receiver))
    }

    /// Removes a pending server-to-client request. Returns false if it was not pending.
    pub(super) fn forget_request(&self, id: &RequestId) -> bool {
        lock(&self.pending_requests).as_mut().is_some_and(|pending| pending.remove(id).is_some())
    }

    /// Whether this process waits for the response to this request.
    pub(super) fn is_request_pending(&self, id: &RequestId) -> bool {
        lock(&self.pending_requests).as_ref().is_some_and(|pending| pending.position(id).is_some())
    }

    /// Delivers a response of the client. A second response, or one to an unknown request, is dropped.
    pub(super) fn resolve_response(&self, id: &RequestId, outcome: Result<RawJson, RemoteError>) {
        let sender = lock(&self.pending_requests).as_mut().and_then(|pending| pending.remove(id));
        if let Some(sender) = sender {
            // Fails if the request was withdrawn at this moment.
            let _ = sender.send(outcome);
        }
    }

    /// Rejects a call if too many are in flight.
    pub(super) fn check_call_limit(&self) -> Result<(), ProtocolError> {
        let max = self.limits.max_calls;
        if self.in_flight.len() < max {
            return Ok(());
        }
        Err(ProtocolError::new(
            ProtocolErrorKind::Busy,
            format!("a session may have at most {max} calls in flight"),
        ))
    }
}

impl Protocol {
    /// Ends the session that a DELETE names, in all processes.
    pub(crate) async fn end_session(&self, peer: &Peer) -> Result<(), ProtocolError> {
        let session = self.look_up_session(peer)?;
        if let Some(cluster) = &self.cluster {
            cluster.end_session(&session).await?;
        }
        self.sessions.close(&session);
        Ok(())
    }

    /// Looks up the session of an HTTP request without a body (GET, DELETE), by its `Mcp-Session-Id` header. For messages,
    /// the session is looked up in [`Protocol::look_up_client`].
    pub(super) fn look_up_session(&self, peer: &Peer) -> Result<Arc<Session>, ProtocolError> {
        let id = single_value(&peer.headers, &SESSION_ID)
            .map_err(|_| session_not_found())?
            .ok_or_else(session_not_found)?;
        if let Ok(Some(version)) = single_value(&peer.headers, &PROTOCOL_VERSION)
            && ProtocolVersion::parse(version).is_none()
        {
            return Err(ProtocolError::unsupported_version(version));
        }
        self.sessions.find(id.as_bytes(), &peer.principal, &self.clock).ok_or_else(session_not_found)
    }
}

/// The same error for a session that never existed, has ended, or belongs to another principal.
pub(super) fn session_not_found() -> ProtocolError {
    ProtocolError::new(ProtocolErrorKind::SessionNotFound, "no such session; send `initialize` again")
}

pub(super) fn too_many_sessions() -> ProtocolError {
    ProtocolError::new(ProtocolErrorKind::Busy, "too many sessions are open; try again later")
}

/// The list changes that a session is notified of: those that the server declared with `listChanged`.
pub(super) fn list_change_filter(capabilities: &ServerCapabilities) -> SubscriptionFilter {
    SubscriptionFilter {
        tools: capabilities.tools == Some(true),
        prompts: capabilities.prompts == Some(true),
        resources: capabilities.resources == Some(true),
        ..SubscriptionFilter::default()
    }
}
