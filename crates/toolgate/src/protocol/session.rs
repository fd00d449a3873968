//! What is remembered of clients that shake hands: a session is only a memory of what a modern request
//! says about itself, and of where its client can be reached.

#[cfg(test)]
mod tests;

use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use toolgate_wire::model::{ClientCapabilities, LogLevel, ServerCapabilities, SubscriptionFilter};
use toolgate_wire::{
    Client, ProtocolError, ProtocolErrorKind, ProtocolVersion, RawJson, RemoteError, RequestId, Resumability,
    TasksMode,
};

use super::cluster::SessionReplica;
use super::handshake::session_not_found;
use super::{Peer, Protocol};
use crate::headers::{PROTOCOL_VERSION, SESSION_ID, single_value};
use crate::observe::SessionInfo;
use crate::request::{BoxFuture, Principal, task_owner};
use crate::seal::random_token;
use crate::stream::{Capacity, Stream};
use crate::subscriptions::{Subscriber, Subscriptions};
use crate::util::cancel::Cancel;
use crate::util::clock::Clock;

/// Calls of one standing connection that may be under way at once.
const MAX_CONNECTION_CALLS: usize = 1024;

/// How long a greeting may be: it is remembered as long as its session.
pub(super) const MAX_INITIALIZE_BYTES: usize = 32 << 10;

/// How many bytes of URIs one session may subscribe to.
pub(super) const MAX_SUBSCRIBED_URI_BYTES: usize = 256 << 10;

/// How often silent sessions are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// A session that was never used after its greeting makes room for another one after this time.
const UNUSED_SESSION_TTL: Duration = Duration::from_secs(30);

/// How many clients that greeted lately are compared with one that greets.
const MAX_RECENT_CLIENTS: usize = 32;

/// How many sessions, how long, and how much each may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionLimits {
    /// Nobody is remembered.
    pub(crate) is_disabled: bool,
    /// Who names no edition has to greet before anything else.
    pub(crate) requires_initialize: bool,
    pub(crate) max_sessions: usize,
    /// A session that says nothing for so long is over.
    pub(crate) idle_timeout: Duration,
    /// Streams of one session that can be resumed.
    pub(crate) max_streams: usize,
    /// How long a stream that has ended can be resumed.
    pub(crate) replay_ttl: Duration,
    /// How many bytes of streams that have ended are kept.
    pub(crate) max_replay_bytes: usize,
    /// Calls of one session that may be under way at once, whether their client still waits or not.
    pub(crate) max_calls: usize,
    /// Resources that one session may subscribe to.
    pub(crate) max_subscriptions: usize,
}

impl Default for SessionLimits {
    fn default() -> SessionLimits {
        SessionLimits {
            is_disabled: false,
            requires_initialize: false,
            max_sessions: 10_000,
            idle_timeout: Duration::from_secs(30 * 60),
            max_streams: 32,
            replay_ttl: Duration::from_secs(5 * 60),
            max_replay_bytes: 4 << 20,
            max_calls: 64,
            max_subscriptions: 1000,
        }
    }
}

/// All sessions of one server.
#[derive(Debug)]
pub(crate) struct Sessions {
    pub(super) limits: Arc<SessionLimits>,
    /// By bytes, as headers hold them: an id need not be known to be text to be looked for.
    by_id: RwLock<SessionMap>,
    /// Stand in for clients that say nothing of themselves but an edition, or not even that.
    default_clients: [Arc<Client>; ProtocolVersion::ALL.len()],
    /// Clients that greeted lately, the last one last: thousands of sessions come from the same program.
    recent_clients: Mutex<Vec<Arc<Client>>>,
    /// When all sessions were last looked at, in milliseconds of uptime.
    last_sweep_ms: AtomicU64,
}

type SessionMap = HashMap<Box<[u8]>, Arc<Session>, BuildHasherDefault<IdHasher>>;

/// One remembered client.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: Box<str>,
    pub(crate) client: Arc<Client>,
    pub(super) principal: Principal,
    pub(super) limits: Arc<SessionLimits>,
    /// The mildest level the client wants to hear of.
    log_level: AtomicU8,
    subscriber: Arc<Subscriber>,
    /// Questions under way. None once no answer can come any more.
    pending_requests: Mutex<Option<PendingRequests>>,
    pub(crate) in_flight: InFlight,
    streams: Mutex<SessionStreams>,
    /// When it was last heard of, in milliseconds of uptime.
    last_seen_ms: AtomicU64,
    /// It was heard of again after its greeting.
    is_used: AtomicBool,
    /// Falls when the session ends.
    pub(crate) closed: Cancel,
    /// What it has in common with the same session in other processes, if there are any.
    pub(super) replica: Option<Box<SessionReplica>>,
}

/// Who waits for which answer. Each is asked by a call under way, so there are never many.
#[derive(Debug, Default)]
struct PendingRequests(Vec<(RequestId, oneshot::Sender<Result<RawJson, RemoteError>>)>);

impl PendingRequests {
    fn position(&self, id: &RequestId) -> Option<usize> {
        self.0.iter().position(|(asked, _)| asked == id)
    }

    fn remove(&mut self, id: &RequestId) -> Option<oneshot::Sender<Result<RawJson, RemoteError>>> {
        self.position(id).map(|place| self.0.swap_remove(place).1)
    }
}

/// Streams that can be resumed. Number 0 is the standing one, for what belongs to no request.
#[derive(Debug, Default)]
struct SessionStreams {
    last_number: u64,
    /// Oldest first.
    resumable: Vec<ResumableStream>,
    standalone: Option<Arc<Stream>>,
}

#[derive(Debug)]
struct ResumableStream {
    number: u64,
    stream: Arc<Stream>,
    /// When it was first seen to have ended.
    ended_at: Option<Duration>,
}

impl SessionStreams {
    /// Forgets what nobody came back for: streams that ended long ago, the oldest of those that have ended
    /// while they hold too much, and if there are still too many the oldest of all.
    fn sweep(&mut self, limits: &SessionLimits, now: Duration) {
        for kept in &mut self.resumable {
            if kept.ended_at.is_none() && kept.stream.is_finished() {
                kept.ended_at = Some(now);
            }
        }
        self.resumable
            .retain(|kept| kept.ended_at.is_none_or(|ended| now.saturating_sub(ended) < limits.replay_ttl));
        let mut held: usize = self
            .resumable
            .iter()
            .filter(|kept| kept.ended_at.is_some())
            .map(|kept| kept.stream.held_bytes())
            .sum();
        while held > limits.max_replay_bytes || self.resumable.len() >= limits.max_streams {
            let ended = self.resumable.iter().position(|kept| kept.ended_at.is_some());
            let gone = self.resumable.remove(ended.unwrap_or(0));
            held = held.saturating_sub(gone.stream.held_bytes());
        }
    }
}

/// How a stream can be resumed.
pub(crate) struct ResumeInfo {
    /// Which of its session's streams it is.
    pub(crate) number: u64,
    /// It starts with an event that only says so.
    pub(crate) sends_priming_event: bool,
    /// Where to read it instead, and what brings its messages there by way of the store.
    pub(crate) relay: Option<(Arc<Stream>, BoxFuture<'static, ()>)>,
}

/// A stream to be read on a GET, from the message after `after`.
#[derive(Debug)]
pub(crate) struct OpenStream {
    pub(crate) number: u64,
    pub(crate) after: Option<u64>,
    pub(crate) stream: Arc<Stream>,
    pub(crate) session: Arc<Session>,
}

impl Sessions {
    pub(crate) fn new(limits: SessionLimits) -> Sessions {
        let default_clients = ProtocolVersion::ALL.map(|edition| {
            Arc::new(Client {
                protocol_version: edition,
                capabilities: ClientCapabilities::default(),
                info: None,
            })
        });
        let limits = Arc::new(limits);
        Sessions {
            limits,
            by_id: RwLock::default(),
            default_clients,
            recent_clients: Mutex::default(),
            last_sweep_ms: AtomicU64::new(0),
        }
    }

    /// A client that greets: if one just like it did so lately, that one.
    pub(super) fn intern_client(&self, client: Client) -> Arc<Client> {
        let mut greeted = lock(&self.recent_clients);
        let place = greeted.iter().rposition(|known| **known == client);
        let client = place.map_or_else(|| Arc::new(client), |place| greeted.remove(place));
        if greeted.len() >= MAX_RECENT_CLIENTS {
            greeted.remove(0);
        }
        greeted.push(Arc::clone(&client));
        client
    }

    /// Stands in for a client of whom no more is known.
    pub(super) fn default_client(&self, edition: ProtocolVersion) -> Arc<Client> {
        Arc::clone(&self.default_clients[edition as usize])
    }

    /// Whether nobody is remembered.
    pub(super) fn is_disabled(&self) -> bool {
        self.limits.is_disabled
    }

    /// Whether a greeting has to come first.
    pub(super) fn requires_initialize(&self) -> bool {
        self.limits.requires_initialize
    }

    /// Remembers a client under a fresh id; none if there are too many.
    pub(super) fn create(
        &self,
        client: Client,
        principal: Principal,
        offered: &ServerCapabilities,
        hub: &Subscriptions,
        clock: &Clock,
    ) -> Option<Arc<Session>> {
        let session = self.create_unlisted(client, principal, offered, hub);
        session.touch(clock);
        let now = clock.uptime();
        let mut open = self.by_id.write().unwrap_or_else(PoisonError::into_inner);
        let full = open.len() >= self.limits.max_sessions;
        // Looking at all of them takes a while, so even a full house does it once a second at most.
        if self.is_sweep_due(now, if full { Duration::from_secs(1) } else { SWEEP_INTERVAL }) {
            open.retain(|_, session| !(session.is_expired(now) || full && session.is_unused(now)));
        }
        if open.len() >= self.limits.max_sessions {
            return None;
        }
        open.insert(session.id.as_bytes().into(), Arc::clone(&session));
        Some(session)
    }

    /// A session that is found by its connection and not by its id.
    pub(super) fn create_unlisted(
        &self,
        client: Client,
        principal: Principal,
        offered: &ServerCapabilities,
        hub: &Subscriptions,
    ) -> Arc<Session> {
        let (id, wants): (Box<str>, _) = (random_token().into(), list_change_filter(offered));
        let client = self.intern_client(client);
        let subscriber = match client.protocol_version.behavior().tasks {
            TasksMode::Core if offered.tasks.is_some() => {
                hub.subscribe_to_all_tasks(wants, task_owner(&principal, Some(&id)))
            }
            _ => hub.subscribe(wants),
        };
        Arc::new(self.build_session(id, client, principal, subscriber, None))
    }

    /// A session that is in no list yet.
    pub(super) fn build_session(
        &self,
        id: Box<str>,
        client: Arc<Client>,
        principal: Principal,
        subscriber: Arc<Subscriber>,
        kin: Option<Box<SessionReplica>>,
    ) -> Session {
        Session {
            id,
            client,
            principal,
            limits: Arc::clone(&self.limits),
            log_level: AtomicU8::new(LogLevel::Info as u8),
            subscriber,
            pending_requests: Mutex::new(Some(PendingRequests::default())),
            in_flight: InFlight::default(),
            streams: Mutex::default(),
            last_seen_ms: AtomicU64::new(0),
            is_used: AtomicBool::new(false),
            closed: Cancel::new(),
            replica: kin,
        }
    }

    /// Lists a session that lives in a store. None if there are too many here that somebody uses.
    pub(super) fn insert(&self, session: Arc<Session>, clock: &Clock) -> Option<Arc<Session>> {
        session.touch(clock);
        let now = clock.uptime();
        let mut open = self.by_id.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = open.get(session.id.as_bytes()) {
            return Some(Arc::clone(known));
        }
        if open.len() >= self.limits.max_sessions {
            // Those that are silent longest go, a tenth of all at once: they are found again when they speak.
            let idle = || open.values().filter(|session| session.is_idle());
            let tenth = idle().count() / 10;
            let mut oldest = BinaryHeap::new();
            for session in idle() {
                let seen = session.last_seen_ms.load(Ordering::Relaxed);
                if oldest.len() <= tenth {
                    oldest.push(seen);
                } else if oldest.peek().is_some_and(|newest| seen < *newest) {
                    oldest.pop();
                    oldest.push(seen);
                }
            }
            let bound = oldest.pop()?;
            open.retain(|_, session| {
                !session.is_idle() || session.last_seen_ms.load(Ordering::Relaxed) > bound
            });
        } else if self.is_sweep_due(now, SWEEP_INTERVAL) {
            open.retain(|_, session| !session.is_expired(now));
        }
        open.insert(session.id.as_bytes().into(), Arc::clone(&session));
        Some(session)
    }

    /// The session with this id, whoever asks.
    pub(super) fn get(&self, id: &str) -> Option<Arc<Session>> {
        self.by_id.read().unwrap_or_else(PoisonError::into_inner).get(id.as_bytes()).cloned()
    }

    /// All that somebody waits for something in.
    pub(super) fn active(&self) -> Vec<Arc<Session>> {
        let open = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        open.values().filter(|session| !session.is_idle()).cloned().collect()
    }

    /// Whether there is no room for one more that will be used.
    pub(super) fn is_full(&self) -> bool {
        let open = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        open.len() >= self.limits.max_sessions && !open.values().any(|session| session.is_idle())
    }

    /// The session with this id, if it belongs to this principal.
    pub(super) fn find(&self, id: &[u8], principal: &Principal, clock: &Clock) -> Option<Arc<Session>> {
        let session = {
            let open = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(open.get(id)?)
        };
        if session.principal != *principal {
            return None;
        }
        // What lives in a store is over when it is over there.
        let now = clock.uptime();
        if session.replica.is_none() && session.is_expired(now) {
            self.close(&session);
            return None;
        }
        session.touch_at(now);
        session.is_used.store(true, Ordering::Relaxed);
        Some(session)
    }

    /// Whether the last look at all sessions was so long ago.
    fn is_sweep_due(&self, now: Duration, every: Duration) -> bool {
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let last = self.last_sweep_ms.load(Ordering::Relaxed);
        let due = now.saturating_sub(last) >= u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
        if due {
            self.last_sweep_ms.store(now, Ordering::Relaxed);
        }
        due
    }

    /// What is known of each of them.
    pub(crate) fn infos(&self, now: Duration) -> Vec<SessionInfo> {
        let open = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        let told = open.values().filter(|session| !session.is_expired(now)).map(|session| {
            let info = session.client.info.as_ref();
            SessionInfo {
                client: info.map(|info| info.name.clone()),
                client_version: info.map(|info| info.version.clone()),
                revision: session.client.protocol_version.as_str().to_owned(),
                principal: session.principal.id().map(str::to_owned),
                idle_ms: u64::try_from(session.idle_time(now).as_millis()).unwrap_or(u64::MAX),
                calls: session.in_flight.len(),
                listening: session.has_stream_reader(),
            }
        });
        told.collect()
    }

    /// Ends all of them here; says how many there were.
    pub(crate) fn clear(&self) -> usize {
        let all = std::mem::take(&mut *self.by_id.write().unwrap_or_else(PoisonError::into_inner));
        for session in all.values() {
            session.end();
        }
        all.len()
    }

    pub(super) fn close(&self, session: &Session) {
        let mut open = self.by_id.write().unwrap_or_else(PoisonError::into_inner);
        open.remove(session.id.as_bytes());
        drop(open);
        session.end();
    }
}

impl Session {
    pub(super) fn touch(&self, clock: &Clock) {
        self.touch_at(clock.uptime());
    }

    fn touch_at(&self, now: Duration) {
        // No 128 bits on the way.
        let millis = now.as_secs() * 1000 + u64::from(now.subsec_millis());
        self.last_seen_ms.store(millis, Ordering::Relaxed);
    }

    pub(super) fn idle_time(&self, now: Duration) -> Duration {
        now.saturating_sub(Duration::from_millis(self.last_seen_ms.load(Ordering::Relaxed)))
    }

    /// Whether nobody came back after the greeting.
    fn is_unused(&self, now: Duration) -> bool {
        !self.is_used.load(Ordering::Relaxed) && self.idle_time(now) > UNUSED_SESSION_TTL
    }

    pub(super) fn is_expired(&self, now: Duration) -> bool {
        self.idle_time(now) > self.limits.idle_timeout && self.is_idle()
    }

    /// Whether nobody waits for anything in it here.
    fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && !self.has_stream_reader()
    }

    /// Whether its standing stream is being read.
    fn has_stream_reader(&self) -> bool {
        if let Some(kin) = &self.replica {
            return kin.has_reader();
        }
        lock(&self.streams).standalone.as_ref().is_some_and(|stream| stream.has_reader())
    }

    fn end(&self) {
        self.closed.cancel();
        self.in_flight.cancel_all();
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
        let most = self.limits.max_subscriptions;
        let said = format!(
            "a session may subscribe to at most {most} resources with {MAX_SUBSCRIBED_URI_BYTES} bytes of URIs"
        );
        ProtocolError::invalid_params(said)
    }

    pub(super) fn unsubscribe(&self, uri: &str) {
        self.subscriber.remove_uri(uri);
    }

    pub(super) fn subscriber(&self) -> &Subscriber {
        &self.subscriber
    }

    /// Waits for the answer to a question that is about to be asked under the returned id.
    /// None if no answer can come any more.
    pub(super) fn register_request(
        &self,
    ) -> Option<(RequestId, oneshot::Receiver<Result<RawJson, RemoteError>>)> {
        let (sender, receiver) = oneshot::channel();
        // Unguessable, and looked up in this session only: no other client can answer it.
        let id = match &self.replica {
            // The answer may come to another process, which must know where to bring it.
            Some(kin) => RequestId::from(format!("{}.{}", kin.node, random_token())),
            None => RequestId::from(random_token()),
        };
        lock(&self.pending_requests).as_mut()?.0.push((id.clone(), sender));
        Some((id, receiver))
    }

    /// Nobody waits for this answer any more; false if nobody did.
    pub(super) fn forget_request(&self, id: &RequestId) -> bool {
        lock(&self.pending_requests).as_mut().is_some_and(|pending| pending.remove(id).is_some())
    }

    /// Whether somebody here waits for this answer.
    pub(super) fn is_request_pending(&self, id: &RequestId) -> bool {
        lock(&self.pending_requests).as_ref().is_some_and(|pending| pending.position(id).is_some())
    }

    /// An answer has come. One that nobody waits for, or a second one, is dropped.
    pub(super) fn resolve_response(&self, id: &RequestId, outcome: Result<RawJson, RemoteError>) {
        let waiting = lock(&self.pending_requests).as_mut().and_then(|pending| pending.remove(id));
        if let Some(waiting) = waiting {
            // Nobody there any more: the question was taken back in this very moment.
            let _ = waiting.send(outcome);
        }
    }

    /// Refuses one call too many.
    pub(super) fn check_call_limit(&self) -> Result<(), ProtocolError> {
        let most = self.limits.max_calls;
        if self.in_flight.len() < most {
            return Ok(());
        }
        Err(ProtocolError::new(
            ProtocolErrorKind::Busy,
            format!("a session may have at most {most} calls in flight"),
        ))
    }

    /// Makes a stream resumable and gives it its number.
    fn add_resumable(&self, stream: &Arc<Stream>, clock: &Clock) -> u64 {
        let mut streams = lock(&self.streams);
        streams.sweep(&self.limits, clock.uptime());
        streams.last_number += 1;
        let number = streams.last_number;
        stream.make_resumable();
        streams.resumable.push(ResumableStream { number, stream: Arc::clone(stream), ended_at: None });
        number
    }

    fn standalone_stream(&self) -> Arc<Stream> {
        let mut streams = lock(&self.streams);
        let standing = streams.standalone.get_or_insert_with(|| {
            let stream = Stream::new(Capacity::default());
            stream.make_resumable();
            stream
        });
        Arc::clone(standing)
    }

    fn stream(&self, number: u64) -> Option<Arc<Stream>> {
        if number == 0 {
            return lock(&self.streams).standalone.clone();
        }
        let streams = lock(&self.streams);
        streams.resumable.iter().find(|kept| kept.number == number).map(|kept| Arc::clone(&kept.stream))
    }
}

impl Protocol {
    /// Tells the client at the other end of a line of changes, as soon as it has greeted.
    pub(crate) async fn send_connection_changes(&self, line: &DuplexConnection) {
        let feeding = async {
            line.initialized.cancelled().await;
            if let Some(session) = line.session() {
                self.send_session_changes(&session, &line.out).await;
            }
        };
        tokio::select! {
            biased;
            () = line.input_closed.cancelled() => {}
            () = self.drain.cancelled() => {}
            () = feeding => {}
        }
    }

    /// The answer to a POST becomes a stream. If it can be resumed: how.
    pub(crate) fn make_resumable(&self, peer: &Peer, stream: &Arc<Stream>) -> Option<ResumeInfo> {
        if !stream.outlives_reader() {
            return None;
        }
        let session = self.session_of(peer).ok()?;
        let primes = match session.client.protocol_version.behavior().resumability {
            Resumability::Never => return None,
            Resumability::Replay => false,
            Resumability::Polling => true,
        };
        if let Some(shared) = &self.cluster {
            let (number, outer, pump) = shared.persist_stream(session, stream);
            return Some(ResumeInfo { number, sends_priming_event: primes, relay: Some((outer, pump)) });
        }
        Some(ResumeInfo {
            number: session.add_resumable(stream, &self.clock),
            sends_priming_event: primes,
            relay: None,
        })
    }

    /// The stream that a GET asks for: the standing one, or the rest of one that was cut.
    pub(crate) fn open_get_stream(
        &self,
        peer: &Peer,
        last_event: Option<&str>,
    ) -> Result<OpenStream, ProtocolError> {
        let session = self.session_of(peer)?;
        let (number, after) = match last_event {
            None => {
                return Ok(OpenStream {
                    number: 0,
                    after: None,
                    stream: session.standalone_stream(),
                    session,
                });
            }
            Some(id) => parse_event_id(id).ok_or_else(|| {
                ProtocolError::invalid_request("last-event-id was not issued by this server")
            })?,
        };
        let stream = session
            .stream(number)
            .ok_or_else(|| ProtocolError::invalid_request("that stream can no longer be resumed"))?;
        Ok(OpenStream { number, after: Some(after), stream, session })
    }

    /// Ends the session of a DELETE.
    pub(crate) async fn end_session(&self, peer: &Peer) -> Result<(), ProtocolError> {
        let session = self.session_of(peer)?;
        if let Some(shared) = &self.cluster {
            shared.end_session(&session).await?;
        }
        self.sessions.close(&session);
        Ok(())
    }

    /// The session that a request without a body names.
    pub(super) fn session_of(&self, peer: &Peer) -> Result<Arc<Session>, ProtocolError> {
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

/// Lists of which a client wants to hear, because it was told that they can change.
pub(super) fn list_change_filter(offered: &ServerCapabilities) -> SubscriptionFilter {
    SubscriptionFilter {
        tools: offered.tools == Some(true),
        prompts: offered.prompts == Some(true),
        resources: offered.resources == Some(true),
        ..SubscriptionFilter::default()
    }
}

/// An event's id says which stream of its session it is from, and its place there.
pub(crate) fn event_id(stream: u64, seq: u64) -> String {
    format!("{stream}-{seq}")
}

pub(super) fn parse_event_id(id: &str) -> Option<(u64, u64)> {
    let (stream, seq) = id.split_once('-')?;
    Some((stream.parse().ok()?, seq.parse().ok()?))
}

/// A standing connection: stdio, or the two-endpoint HTTP of the first edition.
#[derive(Debug)]
pub(crate) struct DuplexConnection {
    session: OnceLock<Arc<Session>>,
    /// Falls when there is a session.
    initialized: CancellationToken,
    /// Falls when nothing more will come from the client.
    pub(crate) input_closed: CancellationToken,
    /// Falls when the client asks the process to end; none where it has no business asking.
    shutdown: Option<CancellationToken>,
    /// The client says who it is in each message, and has done so.
    is_stateless: AtomicBool,
    pub(crate) in_flight: InFlight,
    pub(crate) out: Arc<Stream>,
}

impl DuplexConnection {
    /// `closing` falls when the client asks for the end, where it may.
    pub(crate) fn new(out: Arc<Stream>, closing: Option<CancellationToken>) -> Arc<DuplexConnection> {
        Arc::new(DuplexConnection {
            session: OnceLock::new(),
            initialized: CancellationToken::new(),
            input_closed: CancellationToken::new(),
            shutdown: closing,
            is_stateless: AtomicBool::new(false),
            in_flight: InFlight::default(),
            out,
        })
    }

    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        self.session.get().cloned()
    }

    /// The client has said who it is in a message of its own, and will do so in every other.
    pub(super) fn mark_stateless(&self) {
        self.is_stateless.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stateless(&self) -> bool {
        self.is_stateless.load(Ordering::Relaxed)
    }

    /// The client asks for the end. False where that is no business of its.
    pub(super) fn request_shutdown(&self) -> bool {
        self.shutdown.as_ref().inspect(|closing| closing.cancel()).is_some()
    }

    pub(super) fn set_session(&self, session: Arc<Session>) {
        // Two greetings at once: the second was refused before, or loses here.
        let _ = self.session.set(session);
        self.initialized.cancel();
    }

    /// Refuses one call too many.
    pub(super) fn check_call_limit(&self) -> Result<(), ProtocolError> {
        if self.in_flight.len() < MAX_CONNECTION_CALLS {
            return Ok(());
        }
        Err(ProtocolError::new(
            ProtocolErrorKind::Busy,
            "too many calls are in flight; wait for some of them to finish",
        ))
    }

    /// Nothing more will come from the client: no answer, no greeting. Calls under way may still end.
    pub(crate) fn close_input(&self) {
        self.input_closed.cancel();
        if let Some(session) = self.session.get() {
            *lock(&session.pending_requests) = None;
        }
    }

    /// The connection is gone: nobody waits for anything.
    pub(crate) fn end(&self) {
        self.close_input();
        self.in_flight.cancel_all();
        if let Some(session) = self.session.get() {
            session.end();
        }
    }
}

/// Requests under way, so that they can be cancelled.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlight(Arc<Mutex<InFlightTable>>);

#[derive(Debug, Default)]
struct InFlightTable {
    /// Tells two calls of one id apart.
    last_serial: u64,
    calls: HashMap<RequestId, (u64, Cancel), SeededHashBuilder>,
    /// Calls that came with the id of another while that one was under way. No client should do that.
    duplicates: Vec<(RequestId, u64, Cancel)>,
}

/// The ids of sessions are random and chosen here: eight bytes of one are as good a hash as any.
#[derive(Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            // Folded, because letters do not use all bits of a byte.
            let product = u128::from(u64::from_le_bytes(*first)) * 0x9e37_79b9_7f4a_7c15;
            self.0 = (product as u64) ^ (product >> 64) as u64;
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Hashes ids that clients choose, by a number that nobody outside knows. Every call is looked for four times, and
/// there are never more than a thousand: whoever guessed the number would gain little.
#[derive(Clone, Copy, Debug, Default)]
struct SeededHashBuilder;

static HASH_SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));

impl BuildHasher for SeededHashBuilder {
    type Hasher = SeededHasher;

    #[inline]
    fn build_hasher(&self) -> SeededHasher {
        SeededHasher(*HASH_SEED)
    }
}

#[derive(Debug)]
struct SeededHasher(u64);

impl Hasher for SeededHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        self.write_u64(rest.iter().fold(rest.len() as u64, |sum, byte| sum << 8 | u64::from(*byte)));
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        // Both halves of the product: a table takes its places from the lowest bits, and its marks from the highest.
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }

    #[inline]
    fn write_i64(&mut self, word: i64) {
        self.write_u64(word.cast_unsigned());
    }

    /// Which of the two kinds an id is.
    #[inline]
    fn write_isize(&mut self, kind: isize) {
        self.0 ^= kind.cast_unsigned() as u64;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// A request's entry among those under way; leaving it ends the entry.
#[derive(Debug)]
pub(crate) struct InFlightGuard {
    in_flight: InFlight,
    id: RequestId,
    serial: u64,
}

impl InFlight {
    pub(super) fn contains(&self, id: &RequestId) -> bool {
        lock(&self.0).calls.contains_key(id)
    }

    pub(super) fn insert(&self, id: &RequestId, cancel: &Cancel) -> InFlightGuard {
        let mut under_way = lock(&self.0);
        under_way.last_serial += 1;
        let serial = under_way.last_serial;
        match under_way.calls.entry(id.clone()) {
            Entry::Vacant(free) => {
                free.insert((serial, cancel.clone()));
            }
            Entry::Occupied(_) => under_way.duplicates.push((id.clone(), serial, cancel.clone())),
        }
        InFlightGuard { in_flight: self.clone(), id: id.clone(), serial }
    }

    /// False if there is no such request under way.
    pub(super) fn cancel(&self, id: &RequestId) -> bool {
        let under_way = lock(&self.0);
        let Some((_, cancel)) = under_way.calls.get(id) else {
            return cancel_duplicates(&under_way, id);
        };
        cancel.cancel();
        cancel_duplicates(&under_way, id);
        true
    }

    fn cancel_all(&self) {
        let under_way = lock(&self.0);
        let twins = under_way.duplicates.iter().map(|(_, _, cancel)| cancel);
        for cancel in under_way.calls.values().map(|(_, cancel)| cancel).chain(twins) {
            cancel.cancel();
        }
    }

    fn len(&self) -> usize {
        let under_way = lock(&self.0);
        under_way.calls.len() + under_way.duplicates.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn cancel_duplicates(under_way: &InFlightTable, id: &RequestId) -> bool {
    let twins = under_way.duplicates.iter().filter(|(twin, ..)| twin == id);
    twins.map(|(_, _, cancel)| cancel.cancel()).count() > 0
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let mut under_way = lock(&self.in_flight.0);
        if under_way.calls.get(&self.id).is_some_and(|(serial, _)| *serial == self.serial) {
            under_way.calls.remove(&self.id);
        } else {
            under_way.duplicates.retain(|(_, serial, _)| *serial != self.serial);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
