//! Sessions that are shared by several processes (nodes): the store has their records, and each node has replicas of those it
//! serves.
//!
//! Messages are decoded without waiting. So a session is loaded from the store before ([`ClusterSessions::prepare`]), and a
//! change is stored before the response. The store is authoritative: replicas are updated by messages of other nodes, and
//! reloaded if such messages may have been missed. None of this is used if the store belongs to one process.

mod admission;
mod changes;
mod get_stream;
mod keep_alive;
mod log_writer;
mod messages;
mod record;
mod replica;
mod state;
mod stream_log;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, OnceCell, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolgate_wire::model::{Call, InitializeParams, ServerCapabilities};
use toolgate_wire::{Client, ProtocolError, ProtocolErrorKind};

pub(crate) use get_stream::ClusterStream;
pub(super) use replica::SessionReplica;

use super::session::{
    MAX_SUBSCRIBED_URI_BYTES, Session, SessionLimits, Sessions, list_change_filter, session_not_found,
    too_many_sessions,
};
use super::{Channel, Peer};
use crate::cluster_bus::{ClusterBus, NodeMessage, retry_delay, sleep_or_cancelled, with_store_timeout};
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
use log_writer::Backlogs;
use record::SessionRecord;

/// Maximum number of sessions whose TTL is extended in the store at the same time. Others wait for their next message.
const MAX_CONCURRENT_TOUCHES: usize = 64;
/// How often an update of a record is repeated if another node changed it meanwhile.
const MAX_UPDATE_ATTEMPTS: usize = 16;
/// How long the store keeps a session that was not used after `initialize`.
const UNUSED_RECORD_TTL: Duration = Duration::from_secs(60);
/// How long requests are rejected without a store operation after the store failed.
const STORE_BACKOFF: Duration = Duration::from_secs(1);

/// A change of a session record.
type SessionRecordUpdate<'a> = &'a (dyn Fn(&mut SessionRecord) -> Result<(), ProtocolError> + Sync);

/// The sessions of all nodes, as seen from this one.
pub(crate) struct ClusterSessions {
    bus: Arc<ClusterBus>,
    sessions: Arc<Sessions>,
    /// Gets the secret that all nodes share. `None` if the keys were configured.
    seal: Option<Seal>,
    clock: Clock,
    changes: Arc<ChangeLog>,
    /// Set when the node receives messages of others and has loaded its initial state.
    ready: OnceCell<()>,
    is_starting: AtomicBool,
    /// When the store last failed, in milliseconds of uptime; 0 if never.
    last_failure_ms: AtomicU64,
    /// Incremented when messages may have been missed: replicas of an older epoch are reloaded.
    epoch: AtomicU64,
    /// Counts messages about sessions, so that a load notices those that came meanwhile.
    updates_received: AtomicU64,
    /// Notified when messages may have been missed.
    lagged: Arc<Notify>,
    touch_permits: Arc<Semaphore>,
    /// Limits the rate of new sessions.
    new_sessions: Mutex<NewSessionLimiter>,
    /// The logs that this node writes.
    backlogs: Mutex<Backlogs>,
    pub(super) drain: CancellationToken,
    subscriptions: Arc<Subscriptions>,
    /// The tasks whose changes are sent to sessions.
    mcp_tasks: Arc<Tasks>,
    tracker: Tracker,
    shutdown: CancellationToken,
    _shutdown_guard: DropGuard,
}

impl ClusterSessions {
    pub(crate) fn new(
        bus: ClusterBus,
        sessions: Arc<Sessions>,
        subscriptions: Arc<Subscriptions>,
        seal: Option<Seal>,
        clock: Clock,
        drain: CancellationToken,
        mcp_tasks: Arc<Tasks>,
    ) -> Arc<ClusterSessions> {
        subscriptions.enable_outbox();
        let shutdown = CancellationToken::new();
        let bus = Arc::new(bus);
        Arc::new(ClusterSessions {
            changes: Arc::new(ChangeLog::new(
                Arc::clone(&bus),
                Arc::clone(&subscriptions),
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
            subscriptions,
            mcp_tasks,
            tracker: Tracker::new(),
            _shutdown_guard: shutdown.clone().drop_guard(),
            shutdown,
        })
    }

    /// Starts to receive messages of other nodes, if that has not happened yet.
    pub(super) async fn ensure_ready(self: &Arc<Self>) -> Result<(), StoreError> {
        if self.ready.initialized() {
            return Ok(());
        }
        let last_failure = Duration::from_millis(self.last_failure_ms.load(Ordering::Relaxed));
        if !last_failure.is_zero() && self.clock.uptime().saturating_sub(last_failure) < STORE_BACKOFF {
            return Err(StoreError::Unavailable("it did not answer a moment ago".into()));
        }
        let started = self.ready.get_or_try_init(|| self.start()).await;
        started.map(|_| ()).inspect_err(|_| {
            let now = u64::try_from(self.clock.uptime().as_millis()).unwrap_or(u64::MAX);
            self.last_failure_ms.store(now.max(1), Ordering::Relaxed);
        })
    }

    async fn start(self: &Arc<Self>) -> Result<(), StoreError> {
        // Before anything is loaded, so that no later change is missed.
        let inbox = self.bus.join().await?;
        if let Some(seal) = &self.seal {
            seal.add_secret(with_store_timeout(self.bus.scoped_store.shared_secret("seal")).await?);
        }
        self.changes.start().await?;
        self.bus.spawn_loops(inbox, Arc::downgrade(self), &self.tracker, &self.shutdown);
        self.tracker.spawn_main(Arc::clone(&self.changes).run(self.shutdown.clone()));
        self.tracker.spawn_main(ClusterSessions::keep_sessions_alive(
            Arc::downgrade(self),
            self.sessions.limits.idle_timeout,
            self.shutdown.clone(),
        ));
        Ok(())
    }

    /// Starts in the background. Without a runtime it does nothing, and the first message starts it.
    pub(crate) fn start_in_background(self: &Arc<Self>) {
        if self.ready.initialized()
            || tokio::runtime::Handle::try_current().is_err()
            || self.is_starting.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let (cluster, shutdown) = (Arc::downgrade(self), self.shutdown.clone());
        self.tracker.spawn_main(async move {
            while let Some(cluster) = cluster.upgrade() {
                if cluster.ensure_ready().await.is_ok() {
                    return;
                }
                drop(cluster);
                if sleep_or_cancelled(retry_delay(), &shutdown).await {
                    return;
                }
            }
        });
    }

    /// Loads the session of a message before it is decoded. Returns `None` if nothing has to be loaded.
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
            // A message without a session does not need the store.
            let Some(id) = id else { return Ok(()) };
            ready.map_err(store_unavailable)?;
            self.load_session(id, &peer.principal).await
        }))
    }

    /// Whether this node has an up-to-date replica of a session.
    fn has_fresh_replica(self: &Arc<Self>, id: &str) -> bool {
        let Some(session) = self.sessions.get(id) else { return false };
        let Some(replica) = &session.replica else { return true };
        let is_fresh = replica.epoch.load(Ordering::Relaxed) == self.epoch.load(Ordering::Relaxed);
        let now = self.clock.uptime();
        // The store has removed an unused session by now, unless another node has used it.
        let may_have_expired = replica.is_unused() && session.idle_time(now) > UNUSED_RECORD_TTL;
        if !is_fresh || may_have_expired || session.is_expired(now) {
            return false;
        }
        self.schedule_touch(&session);
        true
    }

    fn record_key(&self, session: &str) -> Key {
        record_key(&self.bus, session)
    }

    /// Loads a session from the store into the table. One that does not exist, or belongs to another principal, is not added.
    async fn load_session(self: &Arc<Self>, id: &str, principal: &Principal) -> Result<(), ProtocolError> {
        for _ in 0..MAX_UPDATE_ATTEMPTS {
            let (updates_received, epoch) =
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
                    // When it subscribed is unknown, so its late subscriptions start at 0: a duplicate notification is better
                    // than a missing one.
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
            // A message that came meanwhile may have been about this session, which was not in the table yet.
            if self.updates_received.load(Ordering::Acquire) == updates_received {
                break;
            }
        }
        Ok(())
    }

    /// Creates this node's replica of a session.
    fn create_replica(
        &self,
        id: Box<str>,
        client: Client,
        principal: Principal,
        record: &SessionRecord,
    ) -> Arc<Session> {
        let subscriber = Subscriber::detached(record.filter());
        let replica = Box::new(SessionReplica::new(Arc::clone(&self.bus), record));
        let client = self.sessions.intern_client(client);
        let session = self.sessions.build_session(id, client, principal, subscriber, Some(replica));
        session.set_level(record.level());
        Arc::new(session)
    }

    /// Creates a session, here and in the store, and returns its id.
    pub(super) async fn create_session(
        self: Arc<Self>,
        client: Client,
        principal: Principal,
        capabilities: ServerCapabilities,
    ) -> Result<Box<str>, ProtocolError> {
        self.ensure_ready().await.map_err(store_unavailable)?;
        let (id, max): (Box<str>, _) = (random_token().into(), self.sessions.limits.max_sessions);
        let (now, window) = (self.clock.uptime(), UNUSED_RECORD_TTL.min(session_ttl(&self.sessions.limits)));
        if self.sessions.is_full() || !lock(&self.new_sessions).try_admit(&id, max, now, window) {
            return Err(too_many_sessions());
        }
        let stored = self.store_new_session(&id, client, principal, &capabilities, window).await;
        stored.inspect_err(|_| lock(&self.new_sessions).release(&id))?;
        Ok(id)
    }

    /// Stores a new session with a short TTL, which the first use extends.
    async fn store_new_session(
        &self,
        id: &str,
        client: Client,
        principal: Principal,
        capabilities: &ServerCapabilities,
        ttl: Duration,
    ) -> Result<(), ProtocolError> {
        let params = InitializeParams {
            version: client.protocol_version.as_str().to_owned(),
            capabilities: client.capabilities.clone(),
            client_info: client.info.clone(),
        };
        let filter = list_change_filter(capabilities);
        let (position, created) = (self.changes.last_seen(), self.clock.unix_secs());
        let record =
            SessionRecord::new(&params, principal.id(), [filter.tools, filter.prompts, filter.resources])
                .with_start(position, created);
        let key = self.record_key(id);
        let put = self.bus.scoped_store.backend.put(&key, record.encode(), Some(ttl), Expect::Absent);
        with_store_timeout(put)
            .await
            .map_err(store_unavailable)?
            .ok_or_else(|| store_unavailable(StoreError::Corrupt("two ids alike".into())))?;
        let session = self.create_replica(id.into(), client, principal, &record);
        session.mark_fresh(self.epoch.load(Ordering::Relaxed), &self.clock);
        self.sessions.insert(session, &self.clock).ok_or_else(too_many_sessions)?;
        Ok(())
    }

    /// Applies `logging/setLevel` and (un)subscribing to a session, on all nodes. Other calls change nothing.
    pub(super) async fn update_session(&self, session: &Session, call: &Call) -> Result<(), ProtocolError> {
        let max = session.limits.max_subscriptions;
        let change = |record: &mut SessionRecord| {
            match call {
                Call::SetLevel(level) => record.set_level(*level),
                Call::Unsubscribe { uri } => record.uris.retain(|known| known != uri),
                Call::Subscribe { uri } if !record.subscribe(uri, max, MAX_SUBSCRIBED_URI_BYTES) => {
                    return Err(session.too_many_subscriptions());
                }
                _ => {}
            }
            Ok(())
        };
        // Read before the change, so that nodes that get it after a newer change can send the notification late.
        let seen = self.changes.last_seen();
        let record = self.update_record(session, &change).await?;
        session.apply_record(&record, seen);
        let text = String::from_utf8_lossy(&record.without_state().encode()).into();
        let message = NodeMessage::SessionUpdated { session: session.id.clone(), record: text, seen };
        self.bus.broadcast(&message).await.map_err(store_unavailable)
    }

    async fn update_record(
        &self,
        session: &Session,
        change: SessionRecordUpdate<'_>,
    ) -> Result<SessionRecord, ProtocolError> {
        update_record(&self.bus, session, change).await
    }

    /// Ends a session on all nodes.
    pub(super) async fn end_session(&self, session: &Session) -> Result<(), ProtocolError> {
        let store = &self.bus.scoped_store.backend;
        let key = self.record_key(&session.id);
        with_store_timeout(store.delete(&key, Expect::Anything)).await.map_err(store_unavailable)?;
        lock(&self.new_sessions).release(&session.id);
        // The session has ended now. A node that misses the message notices it when it loads the session.
        let notified = self.bus.broadcast(&NodeMessage::SessionEnded { session: session.id.clone() }).await;
        let deleted = self.delete_logs(&session.id).await;
        if let Err(error) = notified.and(deleted) {
            tracing::debug!(%error, "the logs of an ended session could not be deleted and will expire");
        }
        Ok(())
    }

    fn backlogs(&self) -> MutexGuard<'_, Backlogs> {
        lock(&self.backlogs)
    }
}

fn record_key(bus: &ClusterBus, session: &str) -> Key {
    bus.scoped_store.key(&session_space(session), "record")
}

/// Changes a record by compare-and-swap, repeated if another node changed it meanwhile.
async fn update_record(
    bus: &ClusterBus,
    session: &Session,
    change: SessionRecordUpdate<'_>,
) -> Result<SessionRecord, ProtocolError> {
    let (key, ttl) = (record_key(bus, &session.id), Some(session_ttl(&session.limits)));
    let store = &bus.scoped_store.backend;
    for _ in 0..MAX_UPDATE_ATTEMPTS {
        let found = with_store_timeout(store.get(&key))
            .await
            .map_err(store_unavailable)?
            .ok_or_else(session_not_found)?;
        let mut record = SessionRecord::decode(&found.value).ok_or_else(session_not_found)?;
        change(&mut record)?;
        record.revision += 1;
        let put = store.put(&key, record.encode(), ttl, Expect::Is(found.version));
        if with_store_timeout(put).await.map_err(store_unavailable)?.is_some() {
            return Ok(record);
        }
    }
    Err(ProtocolError::new(ProtocolErrorKind::Busy, "this session is being modified concurrently; try again"))
}

/// How long the store keeps a session after a touch: a little longer than the idle timeout, because not every message touches
/// it.
fn session_ttl(limits: &SessionLimits) -> Duration {
    limits.idle_timeout + limits.idle_timeout / 8
}

/// The key space of one session.
fn session_space(session: &str) -> String {
    format!("session/{session}")
}

/// Whether this has the form of a session id. Nothing else becomes part of a key in the store.
fn is_session_id(id: &str) -> bool {
    id.len() == 27 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// The error for a request that needs the store while it fails.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn store_unavailable(error: StoreError) -> ProtocolError {
    tracing::debug!(%error, "a request was rejected because the store failed");
    ProtocolError::new(
        ProtocolErrorKind::Busy,
        "the session store is unavailable; try again in a few seconds",
    )
}
