//! Sessions that several processes serve: what any of them must know is in the store, and each has a copy of what it
//! needs itself.
//!
//! A message is read without waiting, so whatever must be fetched is fetched before ([`Shared::prepare`]) and whatever
//! must be kept is kept before it is answered. What is in the store is right; a copy is corrected by what other nodes
//! tell, and after a time in which nothing could be heard it is compared again. Nothing here is touched where the store
//! belongs to one process alone.

mod admission;
mod changes;
mod record;
mod replica;
mod stream_log;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::{Notify, OnceCell, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolgate_wire::model::{Call, InitializeParams, ServerCapabilities};
use toolgate_wire::{
    Client, Frame, Limits, Message, ProtocolError, ProtocolErrorKind, RawJson, RemoteError, RequestId,
    read_message, write_error, write_result,
};

pub(super) use replica::SessionReplica;
pub(crate) use stream_log::ClusterStream;

use super::session::{
    MAX_SUBSCRIBED_URI_BYTES, Session, SessionLimits, Sessions, list_change_filter, session_not_found,
    too_many_sessions,
};
use super::{Channel, Peer};
use crate::cluster_bus::{
    ClusterBus, MessageSink, NodeMessage, retry_delay, sleep_or_cancelled, with_store_timeout,
};
use crate::headers::{SESSION_ID, single_value};
use crate::request::{BoxFuture, Principal};
use crate::seal::{Seal, random_token};
use crate::store::{Expect, Key, StoreError};
use crate::subscriptions::{Subscriber, Subscriptions};
use crate::task::Tasks;
use crate::util::clock::Clock;
use crate::util::lock;
use crate::util::spawn::Tracker;
use admission::NewSessionLimiter;
use changes::ChangeLog;
use record::SessionRecord;
use stream_log::Backlogs;

/// Sessions whose life is being prolonged at once. More wait for their next message.
const MAX_CONCURRENT_TOUCHES: usize = 64;
/// How often a change of a record is tried again because somebody else made one.
const MAX_UPDATE_ATTEMPTS: usize = 16;
/// A session that nobody has used since its greeting is kept for so long.
const UNUSED_RECORD_TTL: Duration = Duration::from_secs(60);
/// A store that did not answer is left alone for so long.
const STORE_BACKOFF: Duration = Duration::from_secs(1);

/// A change of what is remembered of a session.
type SessionRecordUpdate<'a> = &'a (dyn Fn(&mut SessionRecord) -> Result<(), ProtocolError> + Sync);

/// See the module.
pub(crate) struct ClusterSessions {
    bus: Arc<ClusterBus>,
    sessions: Arc<Sessions>,
    /// Takes the secret that all nodes have; none if each was given its own.
    seal: Option<Seal>,
    clock: Clock,
    changes: Arc<ChangeLog>,
    /// It listens, and has what it needs to begin.
    ready: OnceCell<()>,
    is_starting: AtomicBool,
    /// When the store last failed us, in milliseconds of uptime; 0 if never.
    last_failure_ms: AtomicU64,
    /// Grows when words may have been missed: copies from before are compared again.
    epoch: AtomicU64,
    /// Counts what was heard of sessions, for those who fetch one meanwhile.
    updates_received: AtomicU64,
    /// Woken when words may have been missed.
    lagged: Arc<Notify>,
    touch_permits: Arc<Semaphore>,
    /// Who greeted here lately.
    new_sessions: Mutex<NewSessionLimiter>,
    /// Who writes which log here.
    backlogs: Mutex<Backlogs>,
    pub(super) drain: CancellationToken,
    subscriptions: Arc<Subscriptions>,
    /// Long work, of which sessions are told.
    mcp_tasks: Arc<Tasks>,
    tracker: Tracker,
    shutdown: CancellationToken,
    _shutdown_guard: DropGuard,
}

impl ClusterSessions {
    pub(crate) fn new(
        bus: ClusterBus,
        sessions: Arc<Sessions>,
        hub: Arc<Subscriptions>,
        seal: Option<Seal>,
        clock: Clock,
        drain: CancellationToken,
        works: Arc<Tasks>,
    ) -> Arc<ClusterSessions> {
        hub.enable_outbox();
        let over = CancellationToken::new();
        let bus = Arc::new(bus);
        Arc::new(ClusterSessions {
            changes: Arc::new(ChangeLog::new(
                Arc::clone(&bus),
                Arc::clone(&hub),
                sessions.limits.idle_timeout,
            )),
            bus,
            sessions,
            seal,
            clock,
            ready: OnceCell::new(),
            is_starting: AtomicBool::new(false),
            last_failure_ms: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            updates_received: AtomicU64::new(0),
            lagged: Arc::default(),
            touch_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_TOUCHES)),
            new_sessions: Mutex::default(),
            backlogs: Mutex::default(),
            drain,
            subscriptions: hub,
            mcp_tasks: works,
            tracker: Tracker::new(),
            _shutdown_guard: over.clone().drop_guard(),
            shutdown: over,
        })
    }

    /// Begins to listen, if that has not happened yet.
    pub(super) async fn ensure_ready(self: &Arc<Self>) -> Result<(), StoreError> {
        if self.ready.initialized() {
            return Ok(());
        }
        let failed = Duration::from_millis(self.last_failure_ms.load(Ordering::Relaxed));
        if !failed.is_zero() && self.clock.uptime().saturating_sub(failed) < STORE_BACKOFF {
            return Err(StoreError::Unavailable("it did not answer a moment ago".into()));
        }
        let opened = self.ready.get_or_try_init(|| self.start()).await;
        opened.map(|_| ()).inspect_err(|_| {
            let now = u64::try_from(self.clock.uptime().as_millis()).unwrap_or(u64::MAX);
            self.last_failure_ms.store(now.max(1), Ordering::Relaxed);
        })
    }

    async fn start(self: &Arc<Self>) -> Result<(), StoreError> {
        // Before anything is read: what changes from then on is heard.
        let ears = self.bus.join().await?;
        if let Some(seal) = &self.seal {
            seal.add_secret(with_store_timeout(self.bus.scoped_store.shared_secret("seal")).await?);
        }
        self.changes.start().await?;
        self.bus.spawn_loops(ears, Arc::downgrade(self), &self.tracker, &self.shutdown);
        self.tracker.spawn_main(Arc::clone(&self.changes).run(self.shutdown.clone()));
        self.tracker.spawn_main(ClusterSessions::keep_sessions_alive(
            Arc::downgrade(self),
            self.sessions.limits.idle_timeout,
            self.shutdown.clone(),
        ));
        Ok(())
    }

    /// Begins without being waited for; where there is no runtime yet, the first message does it.
    pub(crate) fn start_in_background(self: &Arc<Self>) {
        if self.ready.initialized()
            || tokio::runtime::Handle::try_current().is_err()
            || self.is_starting.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let (shared, over) = (Arc::downgrade(self), self.shutdown.clone());
        self.tracker.spawn_main(async move {
            while let Some(shared) = shared.upgrade() {
                if shared.ensure_ready().await.is_ok() {
                    return;
                }
                drop(shared);
                if sleep_or_cancelled(retry_delay(), &over).await {
                    return;
                }
            }
        });
    }

    /// What must be fetched before a message of this peer can be read; none if it can be read right away.
    pub(crate) fn prepare<'a>(
        self: &'a Arc<Self>,
        peer: &'a Peer,
    ) -> Option<BoxFuture<'a, Result<(), ProtocolError>>> {
        if matches!(peer.via, Channel::Duplex(_)) {
            self.start_in_background();
            return None;
        }
        let id = single_value(&peer.headers, &SESSION_ID).ok().flatten().filter(|id| is_session_id(id));
        if self.ready.initialized() && id.is_none_or(|id| self.has_fresh_replica(id)) {
            return None;
        }
        Some(Box::pin(async move {
            let ready = self.ensure_ready().await;
            // Whoever has no session needs no store.
            let Some(id) = id else { return Ok(()) };
            ready.map_err(store_unavailable)?;
            self.load_session(id, &peer.principal).await
        }))
    }

    /// Whether there is a copy of this session here that can be relied on.
    fn has_fresh_replica(self: &Arc<Self>, id: &str) -> bool {
        let Some(session) = self.sessions.get(id) else { return false };
        let Some(kin) = &session.replica else { return true };
        let is_fresh = kin.epoch.load(Ordering::Relaxed) == self.epoch.load(Ordering::Relaxed);
        let now = self.clock.uptime();
        // What nobody used for so long is over, unless another node knows better.
        let is_forgotten = kin.is_unused() && session.idle_time(now) > UNUSED_RECORD_TTL;
        if !is_fresh || is_forgotten || session.is_expired(now) {
            return false;
        }
        self.schedule_touch(&session);
        true
    }

    fn record_key(&self, session: &str) -> Key {
        self.bus.scoped_store.key(&session_space(session), "record")
    }

    /// Fetches a session, whoever opened it. One that is not there, or is somebody else's, is not listed.
    async fn load_session(self: &Arc<Self>, id: &str, principal: &Principal) -> Result<(), ProtocolError> {
        for _ in 0..MAX_UPDATE_ATTEMPTS {
            let (heard, epoch) =
                (self.updates_received.load(Ordering::Acquire), self.epoch.load(Ordering::Relaxed));
            let key = self.record_key(id);
            let found = with_store_timeout(self.bus.scoped_store.backend.get(&key))
                .await
                .map_err(store_unavailable)?;
            let known = self.sessions.get(id);
            let record = found.as_ref().and_then(|entry| SessionRecord::decode(&entry.value));
            match (record, known) {
                (None, Some(session)) => self.sessions.close(&session),
                (None, None) => {}
                (Some(record), Some(session)) => {
                    // Since when it wants what is new in it was missed: better twice than never.
                    session.apply_record(&record, 0);
                    session.mark_fresh(epoch, &self.clock);
                    self.schedule_touch(&session);
                }
                (Some(record), None) if record.principal.as_deref() != principal.id() => {}
                (Some(record), None) => {
                    let Some(client) = record.client() else { return Ok(()) };
                    let session = self.create_replica(id.into(), client, principal.clone(), &record);
                    session.mark_fresh(epoch, &self.clock);
                    let session = self.sessions.insert(session, &self.clock).ok_or_else(too_many_sessions)?;
                    self.schedule_touch(&session);
                }
            }
            // What was heard meanwhile may have been about this one, which was not listed then.
            if self.updates_received.load(Ordering::Acquire) == heard {
                break;
            }
        }
        Ok(())
    }

    /// This node's copy of a session.
    fn create_replica(
        &self,
        id: Box<str>,
        client: Client,
        principal: Principal,
        record: &SessionRecord,
    ) -> Arc<Session> {
        let subscriber = Subscriber::detached(record.filter());
        let kin = Box::new(SessionReplica::new(Arc::clone(&self.bus.node), record));
        let client = self.sessions.intern_client(client);
        let session = self.sessions.build_session(id, client, principal, subscriber, Some(kin));
        session.set_level(record.level());
        Arc::new(session)
    }

    /// Remembers a client that shook hands, here and in the store. Its id.
    pub(super) async fn create_session(
        self: Arc<Self>,
        client: Client,
        principal: Principal,
        offered: ServerCapabilities,
    ) -> Result<Box<str>, ProtocolError> {
        self.ensure_ready().await.map_err(store_unavailable)?;
        let (id, most): (Box<str>, _) = (random_token().into(), self.sessions.limits.max_sessions);
        let (now, window) = (self.clock.uptime(), UNUSED_RECORD_TTL.min(session_ttl(&self.sessions.limits)));
        if self.sessions.is_full() || !lock(&self.new_sessions).try_admit(&id, most, now, window) {
            return Err(too_many_sessions());
        }
        let admitted = self.store_new_session(&id, client, principal, &offered, window).await;
        admitted.inspect_err(|_| lock(&self.new_sessions).release(&id))?;
        Ok(id)
    }

    /// Keeps a new session, for a short time: who comes back has it for longer.
    async fn store_new_session(
        &self,
        id: &str,
        client: Client,
        principal: Principal,
        offered: &ServerCapabilities,
        life: Duration,
    ) -> Result<(), ProtocolError> {
        let hello = InitializeParams {
            version: client.protocol_version.as_str().to_owned(),
            capabilities: client.capabilities.clone(),
            client_info: client.info.clone(),
        };
        let wants = list_change_filter(offered);
        let (position, created) = (self.changes.last_seen(), self.clock.unix_secs());
        let record =
            SessionRecord::new(&hello, principal.id(), [wants.tools, wants.prompts, wants.resources])
                .with_start(position, created);
        let key = self.record_key(id);
        let put = self.bus.scoped_store.backend.put(&key, record.encode(), Some(life), Expect::Absent);
        with_store_timeout(put)
            .await
            .map_err(store_unavailable)?
            .ok_or_else(|| store_unavailable(StoreError::Corrupt("two ids alike".into())))?;
        let session = self.create_replica(id.into(), client, principal, &record);
        session.mark_fresh(self.epoch.load(Ordering::Relaxed), &self.clock);
        self.sessions.insert(session, &self.clock).ok_or_else(too_many_sessions)?;
        Ok(())
    }

    /// Remembers what a client wants to hear of from now on, everywhere. Other wishes change nothing.
    pub(super) async fn update_session(&self, session: &Session, wish: &Call) -> Result<(), ProtocolError> {
        let most = session.limits.max_subscriptions;
        let change = |record: &mut SessionRecord| {
            match wish {
                Call::SetLevel(level) => record.set_level(*level),
                Call::Unsubscribe { uri } => record.uris.retain(|known| known != uri),
                Call::Subscribe { uri } if !record.subscribe(uri, most, MAX_SUBSCRIBED_URI_BYTES) => {
                    return Err(session.too_many_subscriptions());
                }
                _ => {}
            }
            Ok(())
        };
        // From before the change: whoever is told of it later than of something newer can make up for it.
        let seen = self.changes.last_seen();
        let record = self.update_record(session, &change).await?;
        session.apply_record(&record, seen);
        let text = String::from_utf8_lossy(&record.encode()).into();
        let word = NodeMessage::SessionUpdated { session: session.id.clone(), record: text, seen };
        self.bus.broadcast(&word).await.map_err(store_unavailable)
    }

    /// Changes a record, whoever else does so at the same time.
    async fn update_record(
        &self,
        session: &Session,
        change: SessionRecordUpdate<'_>,
    ) -> Result<SessionRecord, ProtocolError> {
        let (key, life) = (self.record_key(&session.id), Some(session_ttl(&session.limits)));
        let store = &self.bus.scoped_store.backend;
        for _ in 0..MAX_UPDATE_ATTEMPTS {
            let found = with_store_timeout(store.get(&key))
                .await
                .map_err(store_unavailable)?
                .ok_or_else(session_not_found)?;
            let mut record = SessionRecord::decode(&found.value).ok_or_else(session_not_found)?;
            change(&mut record)?;
            record.revision += 1;
            let put = store.put(&key, record.encode(), life, Expect::Is(found.version));
            if with_store_timeout(put).await.map_err(store_unavailable)?.is_some() {
                return Ok(record);
            }
        }
        Err(ProtocolError::new(
            ProtocolErrorKind::Busy,
            "this session is being changed by many at once; try again",
        ))
    }

    /// Ends a session everywhere.
    pub(super) async fn end_session(&self, session: &Session) -> Result<(), ProtocolError> {
        let store = &self.bus.scoped_store.backend;
        let key = self.record_key(&session.id);
        with_store_timeout(store.delete(&key, Expect::Anything)).await.map_err(store_unavailable)?;
        lock(&self.new_sessions).release(&session.id);
        // From here on it is over. Who does not hear it now finds out when it looks.
        let told = self.bus.broadcast(&NodeMessage::SessionEnded { session: session.id.clone() }).await;
        let cleared = self.delete_logs(&session.id).await;
        if let Err(error) = told.and(cleared) {
            tracing::debug!(%error, "what a session left behind expires by itself");
        }
        Ok(())
    }

    /// An answer of the client: to a question that was asked here, or on another node. None if nobody needs to be
    /// told.
    pub(super) fn forward_response(
        self: &Arc<Self>,
        session: &Session,
        id: &RequestId,
        outcome: &Result<RawJson, RemoteError>,
    ) -> Option<impl Future<Output = Result<(), ProtocolError>> + use<>> {
        let RequestId::String(text) = id else { return None };
        let (node, _) = text.split_once('.')?;
        if node == &*self.bus.node || !ClusterBus::is_node_name(node) || session.is_request_pending(id) {
            return None;
        }
        let mut message = Vec::new();
        match outcome {
            Ok(result) => write_result(&mut message, id, result.as_bytes()),
            Err(error) => {
                let data = error.data.as_ref().map(RawJson::as_bytes);
                write_error(&mut message, Some(id), error.code, &error.message, data);
            }
        }
        let message = String::from_utf8_lossy(&message).into();
        let word = NodeMessage::Response { session: session.id.clone(), message };
        let (shared, node) = (Arc::clone(self), node.to_owned());
        Some(async move { shared.bus.send_to_node(&node, &word).await.map_err(store_unavailable) })
    }

    /// The client takes back a request that is not under way here.
    pub(super) fn forward_cancel(
        self: &Arc<Self>,
        session: &Session,
        id: &RequestId,
    ) -> impl Future<Output = Result<(), ProtocolError>> + use<> {
        let mut request = Vec::new();
        id.write(&mut request);
        let request = String::from_utf8_lossy(&request).into();
        let word = NodeMessage::Cancel { session: session.id.clone(), request };
        let shared = Arc::clone(self);
        async move { shared.bus.broadcast(&word).await.map_err(store_unavailable) }
    }

    /// A session that is used lives on in the store too: told there at most eight times in its life.
    fn schedule_touch(self: &Arc<Self>, session: &Arc<Session>) {
        let Some(kin) = &session.replica else { return };
        if !kin.is_touch_due(self.clock.uptime(), session.limits.idle_timeout / 8) {
            return;
        }
        // Nobody waits for it. Where many are at it, the next message tries again, if there is time for that.
        if self.touch_permits.available_permits() == 0 && !kin.is_unused() {
            return;
        }
        let before = kin.mark_touched(self.clock.uptime());
        let (shared, touching) = (Arc::downgrade(self), Arc::clone(&self.touch_permits));
        let (session, over) = (Arc::clone(session), self.shutdown.clone());
        self.tracker.spawn(async move {
            for _ in 0..MAX_UPDATE_ATTEMPTS {
                let Ok(permit) = touching.acquire().await else { return };
                let Some(shared) = shared.upgrade() else { return };
                if shared.touch(&session).await {
                    return;
                }
                drop((shared, permit));
                if session.closed.is_cancelled() || sleep_or_cancelled(retry_delay(), &over).await {
                    return;
                }
            }
            // The next message tries again.
            session.replica.as_deref().inspect(|kin| kin.undo_touch(before));
        });
    }

    /// False if the store could not be told.
    async fn touch(&self, session: &Session) -> bool {
        let key = self.record_key(&session.id);
        match with_store_timeout(self.bus.scoped_store.backend.touch(&key, session_ttl(&session.limits)))
            .await
        {
            Ok(true) => {}
            // Over there is over everywhere.
            Ok(false) => self.sessions.close(session),
            Err(error) => {
                tracing::debug!(%error, "a session could not be prolonged");
                return false;
            }
        }
        true
    }

    /// Looks after sessions in which somebody waits, though they say nothing: prolongs their life, and compares them
    /// when something may have been missed.
    async fn keep_sessions_alive(shared: Weak<ClusterSessions>, idle: Duration, over: CancellationToken) {
        let every = (idle / 8).clamp(Duration::from_millis(100), Duration::from_secs(60));
        let mut epoch = 0;
        loop {
            let Some(this) = shared.upgrade() else { return };
            let now = this.epoch.load(Ordering::Relaxed);
            let is_doubtful = std::mem::replace(&mut epoch, now) != now;
            for session in this.sessions.active() {
                if is_doubtful && this.load_session(&session.id, &Principal::anonymous()).await.is_err() {
                    // The store is away again. What is doubtful stays so.
                    epoch = now.wrapping_sub(1);
                }
                let is_due = |kin: &&SessionReplica| kin.is_touch_due(this.clock.uptime(), idle / 8);
                if let Some(kin) = session.replica.as_deref().filter(is_due) {
                    let before = kin.mark_touched(this.clock.uptime());
                    if !this.touch(&session).await {
                        kin.undo_touch(before);
                    }
                }
            }
            let missed = Arc::clone(&this.lagged);
            drop(this);
            tokio::select! {
                biased;
                () = over.cancelled() => return,
                () = missed.notified() => {}
                () = tokio::time::sleep(every) => {}
            }
        }
    }

    fn backlogs(&self) -> MutexGuard<'_, Backlogs> {
        lock(&self.backlogs)
    }
}

impl MessageSink for ClusterSessions {
    fn receive(&self, word: NodeMessage) {
        match word {
            NodeMessage::Response { session, message } => {
                let Some(session) = self.sessions.get(&session) else { return };
                let bytes = message.into_string().into();
                // Whoever took it has seen to its size.
                let limits = Limits { max_bytes: usize::MAX, ..Limits::default() };
                if let Ok(Message::Single(Frame::Response { id, outcome })) = read_message(&bytes, &limits) {
                    session.resolve_response(&id, outcome);
                }
            }
            NodeMessage::Cancel { session, request } => {
                let id = RawJson::parse(request.into_string().into()).ok();
                let id = id.and_then(|id| RequestId::read(id.view()));
                if let (Some(session), Some(id)) = (self.sessions.get(&session), id) {
                    session.in_flight.cancel(&id);
                }
            }
            NodeMessage::SessionUpdated { session, record, seen } => {
                self.updates_received.fetch_add(1, Ordering::AcqRel);
                if let (Some(session), Some(record)) =
                    (self.sessions.get(&session), SessionRecord::decode(record.as_bytes()))
                {
                    session.apply_record(&record, seen);
                }
            }
            NodeMessage::SessionEnded { session } => {
                self.updates_received.fetch_add(1, Ordering::AcqRel);
                lock(&self.new_sessions).release(&session);
                if let Some(session) = self.sessions.get(&session) {
                    self.sessions.close(&session);
                }
            }
            NodeMessage::ReaderAttached { session, stream, reader } => {
                if let Some(pace) = self.backlogs().get(stream) {
                    pace.reset();
                }
                // Without a name: somebody who is known already has come so far.
                if !reader.is_empty()
                    && let Some(session) = self.sessions.get(&session)
                    && let Some(kin) = &session.replica
                {
                    kin.handle_reader_attached(stream, &reader);
                }
            }
            NodeMessage::ChangesAppended => self.changes.wake(),
        }
    }

    fn handle_lag(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
        self.lagged.notify_one();
        self.changes.wake();
    }
}

/// How long the store keeps a session that is used: it is not told of every use, so a little longer than it may be silent.
fn session_ttl(limits: &SessionLimits) -> Duration {
    limits.idle_timeout + limits.idle_timeout / 8
}

/// Where everything of one session is.
fn session_space(session: &str) -> String {
    format!("session/{session}")
}

/// Whether this could be one of our ids. Nothing else becomes part of a name in the store.
fn is_session_id(id: &str) -> bool {
    id.len() == 27 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// The store does not answer.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn store_unavailable(error: StoreError) -> ProtocolError {
    tracing::debug!(%error, "a request was refused because of the store");
    ProtocolError::new(
        ProtocolErrorKind::Busy,
        "sessions cannot be reached at the moment; try again in a few seconds",
    )
}
