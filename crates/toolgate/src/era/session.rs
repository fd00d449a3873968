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
use toolgate_wire::model::{ClientCapabilities, SubscriptionFilter, LogLevel, ServerCapabilities};
use toolgate_wire::{Client, ProtocolVersion, ProtocolError, ProtocolErrorKind, RawJson, RemoteError, RequestId, Resumability, TasksMode};

use super::handshake::no_session;
use super::shared::Kin;
use super::{Era, Peer};
use crate::cancel::Cancel;
use crate::clock::Clock;
use crate::hub::{Hub, Subscriber};
use crate::letterhead::{SESSION, VERSION, single};
use crate::observe::SessionInfo;
use crate::request::{BoxFuture, Principal, owner};
use crate::seal::token;
use crate::stream::{Capacity, Stream};

/// Calls of one standing connection that may be under way at once.
const LINE_CALLS: usize = 1024;

/// How long a greeting may be: it is remembered as long as its session.
pub(super) const GREETING: usize = 32 << 10;

/// How many bytes of URIs one session may subscribe to.
pub(super) const SUBSCRIBED: usize = 256 << 10;

/// How often silent sessions are looked for.
const SWEEP: Duration = Duration::from_secs(60);

/// A session that was never used after its greeting makes room for another one after this time.
const UNUSED: Duration = Duration::from_secs(30);

/// How many clients that greeted lately are compared with one that greets.
const GREETED: usize = 32;

/// How many sessions, how long, and how much each may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionLimits {
    /// Nobody is remembered.
    pub(crate) off: bool,
    /// Who names no edition has to greet before anything else.
    pub(crate) required: bool,
    pub(crate) total: usize,
    /// A session that says nothing for so long is over.
    pub(crate) idle: Duration,
    /// Streams of one session that can be resumed.
    pub(crate) streams: usize,
    /// How long a stream that has ended can be resumed.
    pub(crate) replay: Duration,
    /// How many bytes of streams that have ended are kept.
    pub(crate) replay_bytes: usize,
    /// Calls of one session that may be under way at once, whether their client still waits or not.
    pub(crate) calls: usize,
    /// Resources that one session may subscribe to.
    pub(crate) subscriptions: usize,
}

impl Default for SessionLimits {
    fn default() -> SessionLimits {
        SessionLimits {
            off: false,
            required: false,
            total: 10_000,
            idle: Duration::from_secs(30 * 60),
            streams: 32,
            replay: Duration::from_secs(5 * 60),
            replay_bytes: 4 << 20,
            calls: 64,
            subscriptions: 1000,
        }
    }
}

/// All sessions of one server.
#[derive(Debug)]
pub(crate) struct Sessions {
    pub(super) limits: Arc<SessionLimits>,
    /// By bytes, as headers hold them: an id need not be known to be text to be looked for.
    open: RwLock<Open>,
    /// Stand in for clients that say nothing of themselves but an edition, or not even that.
    strangers: [Arc<Client>; ProtocolVersion::ALL.len()],
    /// Clients that greeted lately, the last one last: thousands of sessions come from the same program.
    greeted: Mutex<Vec<Arc<Client>>>,
    /// When all sessions were last looked at, in milliseconds of uptime.
    swept: AtomicU64,
}

type Open = HashMap<Box<[u8]>, Arc<Session>, BuildHasherDefault<ById>>;

/// One remembered client.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: Box<str>,
    pub(crate) client: Arc<Client>,
    pub(super) principal: Principal,
    pub(super) limits: Arc<SessionLimits>,
    /// The mildest level the client wants to hear of.
    level: AtomicU8,
    subscriber: Arc<Subscriber>,
    /// Questions under way. None once no answer can come any more.
    pending: Mutex<Option<Pending>>,
    pub(crate) calls: Calls,
    streams: Mutex<Streams>,
    /// When it was last heard of, in milliseconds of uptime.
    seen: AtomicU64,
    /// It was heard of again after its greeting.
    used: AtomicBool,
    /// Falls when the session ends.
    pub(crate) over: Cancel,
    /// What it has in common with the same session in other processes, if there are any.
    pub(super) kin: Option<Box<Kin>>,
}

/// Who waits for which answer. Each is asked by a call under way, so there are never many.
#[derive(Debug, Default)]
struct Pending(Vec<(RequestId, oneshot::Sender<Result<RawJson, RemoteError>>)>);

impl Pending {
    fn place(&self, id: &RequestId) -> Option<usize> {
        self.0.iter().position(|(asked, _)| asked == id)
    }

    fn take(&mut self, id: &RequestId) -> Option<oneshot::Sender<Result<RawJson, RemoteError>>> {
        self.place(id).map(|place| self.0.swap_remove(place).1)
    }
}

/// Streams that can be resumed. Number 0 is the standing one, for what belongs to no request.
#[derive(Debug, Default)]
struct Streams {
    next: u64,
    /// Oldest first.
    kept: Vec<Kept>,
    standing: Option<Arc<Stream>>,
}

#[derive(Debug)]
struct Kept {
    number: u64,
    stream: Arc<Stream>,
    /// When it was first seen to have ended.
    ended: Option<Duration>,
}

impl Streams {
    /// Forgets what nobody came back for: streams that ended long ago, the oldest of those that have ended
    /// while they hold too much, and if there are still too many the oldest of all.
    fn sweep(&mut self, limits: &SessionLimits, now: Duration) {
        for kept in &mut self.kept {
            if kept.ended.is_none() && kept.stream.is_finished() {
                kept.ended = Some(now);
            }
        }
        self.kept.retain(|kept| kept.ended.is_none_or(|ended| now.saturating_sub(ended) < limits.replay));
        let mut held: usize =
            self.kept.iter().filter(|kept| kept.ended.is_some()).map(|kept| kept.stream.held()).sum();
        while held > limits.replay_bytes || self.kept.len() >= limits.streams {
            let ended = self.kept.iter().position(|kept| kept.ended.is_some());
            let gone = self.kept.remove(ended.unwrap_or(0));
            held = held.saturating_sub(gone.stream.held());
        }
    }
}

/// How a stream can be resumed.
pub(crate) struct Opened {
    /// Which of its session's streams it is.
    pub(crate) number: u64,
    /// It starts with an event that only says so.
    pub(crate) primes: bool,
    /// Where to read it instead, and what brings its messages there by way of the store.
    pub(crate) pumped: Option<(Arc<Stream>, BoxFuture<'static, ()>)>,
}

/// A stream to be read on a GET, from the message after `after`.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) number: u64,
    pub(crate) after: Option<u64>,
    pub(crate) stream: Arc<Stream>,
    pub(crate) session: Arc<Session>,
}

impl Sessions {
    pub(crate) fn new(limits: SessionLimits) -> Sessions {
        let strangers = ProtocolVersion::ALL.map(|edition| {
            Arc::new(Client { protocol_version: edition, capabilities: ClientCapabilities::default(), info: None })
        });
        let limits = Arc::new(limits);
        Sessions {
            limits,
            open: RwLock::default(),
            strangers,
            greeted: Mutex::default(),
            swept: AtomicU64::new(0),
        }
    }

    /// A client that greets: if one just like it did so lately, that one.
    pub(super) fn known(&self, client: Client) -> Arc<Client> {
        let mut greeted = lock(&self.greeted);
        let place = greeted.iter().rposition(|known| **known == client);
        let client = place.map_or_else(|| Arc::new(client), |place| greeted.remove(place));
        if greeted.len() >= GREETED {
            greeted.remove(0);
        }
        greeted.push(Arc::clone(&client));
        client
    }

    /// Stands in for a client of whom no more is known.
    pub(super) fn stranger(&self, edition: ProtocolVersion) -> Arc<Client> {
        Arc::clone(&self.strangers[edition as usize])
    }

    /// Whether nobody is remembered.
    pub(super) fn are_off(&self) -> bool {
        self.limits.off
    }

    /// Whether a greeting has to come first.
    pub(super) fn are_required(&self) -> bool {
        self.limits.required
    }

    /// Remembers a client under a fresh id; none if there are too many.
    pub(super) fn open(
        &self,
        client: Client,
        principal: Principal,
        offered: &ServerCapabilities,
        hub: &Hub,
        clock: &Clock,
    ) -> Option<Arc<Session>> {
        let session = self.unlisted(client, principal, offered, hub);
        session.touch(clock);
        let now = clock.uptime();
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let full = open.len() >= self.limits.total;
        // Looking at all of them takes a while, so even a full house does it once a second at most.
        if self.is_due(now, if full { Duration::from_secs(1) } else { SWEEP }) {
            open.retain(|_, session| !(session.is_stale(now) || full && session.is_unused(now)));
        }
        if open.len() >= self.limits.total {
            return None;
        }
        open.insert(session.id.as_bytes().into(), Arc::clone(&session));
        Some(session)
    }

    /// A session that is found by its connection and not by its id.
    pub(super) fn unlisted(
        &self,
        client: Client,
        principal: Principal,
        offered: &ServerCapabilities,
        hub: &Hub,
    ) -> Arc<Session> {
        let (id, wants): (Box<str>, _) = (token().into(), lists(offered));
        let client = self.known(client);
        let subscriber = match client.protocol_version.behavior().tasks {
            TasksMode::Core if offered.tasks.is_some() => {
                hub.subscribe_to_all(wants, owner(&principal, Some(&id)))
            }
            _ => hub.subscribe(wants),
        };
        Arc::new(self.made(id, client, principal, subscriber, None))
    }

    /// A session that is in no list yet.
    pub(super) fn made(
        &self,
        id: Box<str>,
        client: Arc<Client>,
        principal: Principal,
        subscriber: Arc<Subscriber>,
        kin: Option<Box<Kin>>,
    ) -> Session {
        Session {
            id,
            client,
            principal,
            limits: Arc::clone(&self.limits),
            level: AtomicU8::new(LogLevel::Info as u8),
            subscriber,
            pending: Mutex::new(Some(Pending::default())),
            calls: Calls::default(),
            streams: Mutex::default(),
            seen: AtomicU64::new(0),
            used: AtomicBool::new(false),
            over: Cancel::new(),
            kin,
        }
    }

    /// Lists a session that lives in a store. None if there are too many here that somebody uses.
    pub(super) fn list(&self, session: Arc<Session>, clock: &Clock) -> Option<Arc<Session>> {
        session.touch(clock);
        let now = clock.uptime();
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = open.get(session.id.as_bytes()) {
            return Some(Arc::clone(known));
        }
        if open.len() >= self.limits.total {
            // Those that are silent longest go, a tenth of all at once: they are found again when they speak.
            let idle = || open.values().filter(|session| session.is_idle());
            let tenth = idle().count() / 10;
            let mut oldest = BinaryHeap::new();
            for session in idle() {
                let seen = session.seen.load(Ordering::Relaxed);
                if oldest.len() <= tenth {
                    oldest.push(seen);
                } else if oldest.peek().is_some_and(|newest| seen < *newest) {
                    oldest.pop();
                    oldest.push(seen);
                }
            }
            let bound = oldest.pop()?;
            open.retain(|_, session| !session.is_idle() || session.seen.load(Ordering::Relaxed) > bound);
        } else if self.is_due(now, SWEEP) {
            open.retain(|_, session| !session.is_stale(now));
        }
        open.insert(session.id.as_bytes().into(), Arc::clone(&session));
        Some(session)
    }

    /// The session with this id, whoever asks.
    pub(super) fn peek(&self, id: &str) -> Option<Arc<Session>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).get(id.as_bytes()).cloned()
    }

    /// All that somebody waits for something in.
    pub(super) fn busy(&self) -> Vec<Arc<Session>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.values().filter(|session| !session.is_idle()).cloned().collect()
    }

    /// Whether there is no room for one more that will be used.
    pub(super) fn are_full(&self) -> bool {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.len() >= self.limits.total && !open.values().any(|session| session.is_idle())
    }

    /// The session with this id, if it belongs to this principal.
    pub(super) fn find(&self, id: &[u8], principal: &Principal, clock: &Clock) -> Option<Arc<Session>> {
        let session = {
            let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(open.get(id)?)
        };
        if session.principal != *principal {
            return None;
        }
        // What lives in a store is over when it is over there.
        let now = clock.uptime();
        if session.kin.is_none() && session.is_stale(now) {
            self.close(&session);
            return None;
        }
        session.touch_at(now);
        session.used.store(true, Ordering::Relaxed);
        Some(session)
    }

    /// Whether the last look at all sessions was so long ago.
    fn is_due(&self, now: Duration, every: Duration) -> bool {
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let last = self.swept.load(Ordering::Relaxed);
        let due = now.saturating_sub(last) >= u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
        if due {
            self.swept.store(now, Ordering::Relaxed);
        }
        due
    }

    /// What is known of each of them.
    pub(crate) fn each(&self, now: Duration) -> Vec<SessionInfo> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let told = open.values().filter(|session| !session.is_stale(now)).map(|session| {
            let info = session.client.info.as_ref();
            SessionInfo {
                client: info.map(|info| info.name.clone()),
                client_version: info.map(|info| info.version.clone()),
                revision: session.client.protocol_version.as_str().to_owned(),
                principal: session.principal.id().map(str::to_owned),
                idle_ms: u64::try_from(session.silent(now).as_millis()).unwrap_or(u64::MAX),
                calls: session.calls.len(),
                listening: session.is_listening(),
            }
        });
        told.collect()
    }

    /// Ends all of them here; says how many there were.
    pub(crate) fn clear(&self) -> usize {
        let all = std::mem::take(&mut *self.open.write().unwrap_or_else(PoisonError::into_inner));
        for session in all.values() {
            session.end();
        }
        all.len()
    }

    pub(super) fn close(&self, session: &Session) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
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
        self.seen.store(millis, Ordering::Relaxed);
    }

    pub(super) fn silent(&self, now: Duration) -> Duration {
        now.saturating_sub(Duration::from_millis(self.seen.load(Ordering::Relaxed)))
    }

    /// Whether nobody came back after the greeting.
    fn is_unused(&self, now: Duration) -> bool {
        !self.used.load(Ordering::Relaxed) && self.silent(now) > UNUSED
    }

    pub(super) fn is_stale(&self, now: Duration) -> bool {
        self.silent(now) > self.limits.idle && self.is_idle()
    }

    /// Whether nobody waits for anything in it here.
    fn is_idle(&self) -> bool {
        self.calls.is_empty() && !self.is_listening()
    }

    /// Whether its standing stream is being read.
    fn is_listening(&self) -> bool {
        if let Some(kin) = &self.kin {
            return kin.is_read();
        }
        lock(&self.streams).standing.as_ref().is_some_and(|stream| stream.is_read())
    }

    fn end(&self) {
        self.over.cancel();
        self.calls.cancel_all();
        *lock(&self.pending) = None;
    }

    pub(super) fn set_level(&self, level: LogLevel) {
        self.level.store(level as u8, Ordering::Relaxed);
    }

    pub(super) fn hears(&self, level: LogLevel) -> bool {
        level as u8 >= self.level.load(Ordering::Relaxed)
    }

    pub(super) fn subscribe(&self, uri: &str) -> Result<(), ProtocolError> {
        if self.subscriber.add(uri, self.limits.subscriptions, SUBSCRIBED) {
            return Ok(());
        }
        Err(self.too_many())
    }

    pub(super) fn too_many(&self) -> ProtocolError {
        let most = self.limits.subscriptions;
        let said =
            format!("a session may subscribe to {most} resources and {SUBSCRIBED} bytes of URIs at most");
        ProtocolError::invalid_params(said)
    }

    pub(super) fn unsubscribe(&self, uri: &str) {
        self.subscriber.remove(uri);
    }

    pub(super) fn subscriber(&self) -> &Subscriber {
        &self.subscriber
    }

    /// Waits for the answer to a question that is about to be asked under the returned id.
    /// None if no answer can come any more.
    pub(super) fn expect(&self) -> Option<(RequestId, oneshot::Receiver<Result<RawJson, RemoteError>>)> {
        let (sender, receiver) = oneshot::channel();
        // Unguessable, and looked up in this session only: no other client can answer it.
        let id = match &self.kin {
            // The answer may come to another process, which must know where to bring it.
            Some(kin) => RequestId::from(format!("{}.{}", kin.node, token())),
            None => RequestId::from(token()),
        };
        lock(&self.pending).as_mut()?.0.push((id.clone(), sender));
        Some((id, receiver))
    }

    /// Nobody waits for this answer any more; false if nobody did.
    pub(super) fn forget(&self, id: &RequestId) -> bool {
        lock(&self.pending).as_mut().is_some_and(|pending| pending.take(id).is_some())
    }

    /// Whether somebody here waits for this answer.
    pub(super) fn expects(&self, id: &RequestId) -> bool {
        lock(&self.pending).as_ref().is_some_and(|pending| pending.place(id).is_some())
    }

    /// An answer has come. One that nobody waits for, or a second one, is dropped.
    pub(super) fn hear(&self, id: &RequestId, outcome: Result<RawJson, RemoteError>) {
        let waiting = lock(&self.pending).as_mut().and_then(|pending| pending.take(id));
        if let Some(waiting) = waiting {
            // Nobody there any more: the question was taken back in this very moment.
            let _ = waiting.send(outcome);
        }
    }

    /// Refuses one call too many.
    pub(super) fn check_room(&self) -> Result<(), ProtocolError> {
        let most = self.limits.calls;
        if self.calls.len() < most {
            return Ok(());
        }
        Err(ProtocolError::new(ProtocolErrorKind::Busy, format!("a session may have {most} calls under way at once")))
    }

    /// Makes a stream resumable and gives it its number.
    fn keep(&self, stream: &Arc<Stream>, clock: &Clock) -> u64 {
        let mut streams = lock(&self.streams);
        streams.sweep(&self.limits, clock.uptime());
        streams.next += 1;
        let number = streams.next;
        stream.keep();
        streams.kept.push(Kept { number, stream: Arc::clone(stream), ended: None });
        number
    }

    fn standing(&self) -> Arc<Stream> {
        let mut streams = lock(&self.streams);
        let standing = streams.standing.get_or_insert_with(|| {
            let stream = Stream::new(Capacity::default());
            stream.keep();
            stream
        });
        Arc::clone(standing)
    }

    fn stream(&self, number: u64) -> Option<Arc<Stream>> {
        if number == 0 {
            return lock(&self.streams).standing.clone();
        }
        let streams = lock(&self.streams);
        streams.kept.iter().find(|kept| kept.number == number).map(|kept| Arc::clone(&kept.stream))
    }
}

impl Era {
    /// Tells the client at the other end of a line of changes, as soon as it has greeted.
    pub(crate) async fn feed_line(&self, line: &Line) {
        let feeding = async {
            line.greeted.cancelled().await;
            if let Some(session) = line.session() {
                self.feed(&session, &line.out).await;
            }
        };
        tokio::select! {
            biased;
            () = line.hung_up.cancelled() => {}
            () = self.drain.cancelled() => {}
            () = feeding => {}
        }
    }

    /// The answer to a POST becomes a stream. If it can be resumed: how.
    pub(crate) fn open_stream(&self, peer: &Peer, stream: &Arc<Stream>) -> Option<Opened> {
        if !stream.outlives_reader() {
            return None;
        }
        let session = self.session_of(peer).ok()?;
        let primes = match session.client.protocol_version.behavior().resumability {
            Resumability::Never => return None,
            Resumability::Replay => false,
            Resumability::Polling => true,
        };
        if let Some(shared) = &self.shared {
            let (number, outer, pump) = shared.pump(session, stream);
            return Some(Opened { number, primes, pumped: Some((outer, pump)) });
        }
        Some(Opened { number: session.keep(stream, &self.clock), primes, pumped: None })
    }

    /// The stream that a GET asks for: the standing one, or the rest of one that was cut.
    pub(crate) fn stand(&self, peer: &Peer, last_event: Option<&str>) -> Result<Standing, ProtocolError> {
        let session = self.session_of(peer)?;
        let (number, after) = match last_event {
            None => {
                return Ok(Standing { number: 0, after: None, stream: session.standing(), session });
            }
            Some(id) => read_event_id(id).ok_or_else(|| ProtocolError::invalid_request("last-event-id is none of ours"))?,
        };
        let stream =
            session.stream(number).ok_or_else(|| ProtocolError::invalid_request("that stream cannot be resumed any more"))?;
        Ok(Standing { number, after: Some(after), stream, session })
    }

    /// Ends the session of a DELETE.
    pub(crate) async fn end_session(&self, peer: &Peer) -> Result<(), ProtocolError> {
        let session = self.session_of(peer)?;
        if let Some(shared) = &self.shared {
            shared.end(&session).await?;
        }
        self.sessions.close(&session);
        Ok(())
    }

    /// The session that a request without a body names.
    pub(super) fn session_of(&self, peer: &Peer) -> Result<Arc<Session>, ProtocolError> {
        let id = single(&peer.headers, &SESSION).map_err(|_| no_session())?.ok_or_else(no_session)?;
        if let Ok(Some(version)) = single(&peer.headers, &VERSION)
            && ProtocolVersion::parse(version).is_none()
        {
            return Err(ProtocolError::unsupported_version(version));
        }
        self.sessions.find(id.as_bytes(), &peer.principal, &self.clock).ok_or_else(no_session)
    }
}

/// Lists of which a client wants to hear, because it was told that they can change.
pub(super) fn lists(offered: &ServerCapabilities) -> SubscriptionFilter {
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

pub(super) fn read_event_id(id: &str) -> Option<(u64, u64)> {
    let (stream, seq) = id.split_once('-')?;
    Some((stream.parse().ok()?, seq.parse().ok()?))
}

/// A standing connection: stdio, or the two-endpoint HTTP of the first edition.
#[derive(Debug)]
pub(crate) struct Line {
    session: OnceLock<Arc<Session>>,
    /// Falls when there is a session.
    greeted: CancellationToken,
    /// Falls when nothing more will come from the client.
    pub(crate) hung_up: CancellationToken,
    /// Falls when the client asks the process to end; none where it has no business asking.
    closing: Option<CancellationToken>,
    /// The client says who it is in each message, and has done so.
    says_each: AtomicBool,
    pub(crate) calls: Calls,
    pub(crate) out: Arc<Stream>,
}

impl Line {
    /// `closing` falls when the client asks for the end, where it may.
    pub(crate) fn new(out: Arc<Stream>, closing: Option<CancellationToken>) -> Arc<Line> {
        Arc::new(Line {
            session: OnceLock::new(),
            greeted: CancellationToken::new(),
            hung_up: CancellationToken::new(),
            closing,
            says_each: AtomicBool::new(false),
            calls: Calls::default(),
            out,
        })
    }

    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        self.session.get().cloned()
    }

    /// The client has said who it is in a message of its own, and will do so in every other.
    pub(super) fn note_each(&self) {
        self.says_each.store(true, Ordering::Relaxed);
    }

    pub(super) fn says_each(&self) -> bool {
        self.says_each.load(Ordering::Relaxed)
    }

    /// The client asks for the end. False where that is no business of its.
    pub(super) fn close(&self) -> bool {
        self.closing.as_ref().inspect(|closing| closing.cancel()).is_some()
    }

    pub(super) fn greet(&self, session: Arc<Session>) {
        // Two greetings at once: the second was refused before, or loses here.
        let _ = self.session.set(session);
        self.greeted.cancel();
    }

    /// Refuses one call too many.
    pub(super) fn check_room(&self) -> Result<(), ProtocolError> {
        if self.calls.len() < LINE_CALLS {
            return Ok(());
        }
        Err(ProtocolError::new(ProtocolErrorKind::Busy, "too many calls are under way; wait for some of them to end"))
    }

    /// Nothing more will come from the client: no answer, no greeting. Calls under way may still end.
    pub(crate) fn hang_up(&self) {
        self.hung_up.cancel();
        if let Some(session) = self.session.get() {
            *lock(&session.pending) = None;
        }
    }

    /// The connection is gone: nobody waits for anything.
    pub(crate) fn end(&self) {
        self.hang_up();
        self.calls.cancel_all();
        if let Some(session) = self.session.get() {
            session.end();
        }
    }
}

/// Requests under way, so that they can be cancelled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls(Arc<Mutex<UnderWay>>);

#[derive(Debug, Default)]
struct UnderWay {
    /// Tells two calls of one id apart.
    serial: u64,
    calls: HashMap<RequestId, (u64, Cancel), Drawn>,
    /// Calls that came with the id of another while that one was under way. No client should do that.
    twins: Vec<(RequestId, u64, Cancel)>,
}

/// The ids of sessions are random and chosen here: eight bytes of one are as good a hash as any.
#[derive(Debug, Default)]
pub(crate) struct ById(u64);

impl Hasher for ById {
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
struct Drawn;

static DRAWN: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));

impl BuildHasher for Drawn {
    type Hasher = Mixed;

    #[inline]
    fn build_hasher(&self) -> Mixed {
        Mixed(*DRAWN)
    }
}

#[derive(Debug)]
struct Mixed(u64);

impl Hasher for Mixed {
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
pub(crate) struct Ticket {
    calls: Calls,
    id: RequestId,
    serial: u64,
}

impl Calls {
    pub(super) fn contains(&self, id: &RequestId) -> bool {
        lock(&self.0).calls.contains_key(id)
    }

    pub(super) fn enter(&self, id: &RequestId, cancel: &Cancel) -> Ticket {
        let mut under_way = lock(&self.0);
        under_way.serial += 1;
        let serial = under_way.serial;
        match under_way.calls.entry(id.clone()) {
            Entry::Vacant(free) => {
                free.insert((serial, cancel.clone()));
            }
            Entry::Occupied(_) => under_way.twins.push((id.clone(), serial, cancel.clone())),
        }
        Ticket { calls: self.clone(), id: id.clone(), serial }
    }

    /// False if there is no such request under way.
    pub(super) fn cancel(&self, id: &RequestId) -> bool {
        let under_way = lock(&self.0);
        let Some((_, cancel)) = under_way.calls.get(id) else {
            return cancel_twins(&under_way, id);
        };
        cancel.cancel();
        cancel_twins(&under_way, id);
        true
    }

    fn cancel_all(&self) {
        let under_way = lock(&self.0);
        let twins = under_way.twins.iter().map(|(_, _, cancel)| cancel);
        for cancel in under_way.calls.values().map(|(_, cancel)| cancel).chain(twins) {
            cancel.cancel();
        }
    }

    fn len(&self) -> usize {
        let under_way = lock(&self.0);
        under_way.calls.len() + under_way.twins.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn cancel_twins(under_way: &UnderWay, id: &RequestId) -> bool {
    let twins = under_way.twins.iter().filter(|(twin, ..)| twin == id);
    twins.map(|(_, _, cancel)| cancel.cancel()).count() > 0
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut under_way = lock(&self.calls.0);
        if under_way.calls.get(&self.id).is_some_and(|(serial, _)| *serial == self.serial) {
            under_way.calls.remove(&self.id);
        } else {
            under_way.twins.retain(|(_, serial, _)| *serial != self.serial);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
