//! The table of sessions: creates them, looks them up by id, and removes those that are idle.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasher as _, BuildHasherDefault, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use toolgate_wire::model::{ClientCapabilities, LogLevel, ServerCapabilities};
use toolgate_wire::{Client, ProtocolVersion, TasksMode};

use super::{PendingRequests, Session, list_change_filter};
use crate::observe::SessionInfo;
use crate::protocol::cluster::SessionReplica;
use crate::protocol::in_flight::InFlight;
use crate::request::{Principal, task_owner};
use crate::seal::random_token;
use crate::subscriptions::{Subscriber, Subscriptions};
use crate::util::cancel::Cancel;
use crate::util::clock::Clock;
use crate::util::hash::IdHasher;
use crate::util::lock;
use crate::util::network::client_network;

/// How often expired sessions are removed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// How often sessions are removed while the table is full.
const FULL_SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The owner of sessions whose client has neither a principal nor a known address.
pub(super) const UNKNOWN_OWNER: u32 = 0;

/// How many recent clients a new one is compared with, to share their `Client` value.
pub(super) const MAX_RECENT_CLIENTS: usize = 32;

/// Limits of the number of sessions, their lifetime, and the size of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionLimits {
    /// No sessions are created.
    pub(crate) is_disabled: bool,
    /// A client that names no protocol version must send `initialize` before anything else.
    pub(crate) requires_initialize: bool,
    pub(crate) max_sessions: usize,
    /// A session without messages, calls in flight and readers expires after this time.
    pub(crate) idle_timeout: Duration,
    /// Maximum number of resumable streams of one session.
    pub(crate) max_streams: usize,
    /// How long a stream can be resumed after it has ended.
    pub(crate) replay_ttl: Duration,
    /// Maximum number of bytes that the ended streams of one session hold.
    pub(crate) max_replay_bytes: usize,
    /// Maximum number of calls in flight in one session, including those whose client has disconnected.
    pub(crate) max_calls: usize,
    /// Maximum number of resources that one session may subscribe to.
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

/// All sessions of one server, by id.
#[derive(Debug)]
pub(crate) struct Sessions {
    pub(in crate::protocol) limits: Arc<SessionLimits>,
    /// Keyed by bytes, because header values are bytes: an id need not be checked for UTF-8 before the lookup.
    pub(super) by_id: RwLock<SessionMap>,
    /// Clients of which only the protocol version is known, one for each version.
    default_clients: [Arc<Client>; ProtocolVersion::ALL.len()],
    /// Clients that initialized recently, newest last: thousands of sessions may come from the same program.
    pub(super) recent_clients: Mutex<Vec<Arc<Client>>>,
    /// Time of the last sweep, in milliseconds of uptime.
    last_sweep_ms: AtomicU64,
    /// Hashes the clients to which sessions belong.
    owner_hasher: RandomState,
    /// When no session could be evicted, in milliseconds of uptime; `u64::MAX` if that never happened.
    last_failed_eviction_ms: AtomicU64,
}

type SessionMap = HashMap<Box<[u8]>, Arc<Session>, BuildHasherDefault<IdHasher>>;

impl Sessions {
    pub(crate) fn new(limits: SessionLimits) -> Sessions {
        let default_clients = ProtocolVersion::ALL.map(|protocol_version| {
            let capabilities = ClientCapabilities::default();
            Arc::new(Client { protocol_version, capabilities, info: None })
        });
        Sessions {
            limits: Arc::new(limits),
            by_id: RwLock::default(),
            default_clients,
            recent_clients: Mutex::default(),
            last_sweep_ms: AtomicU64::new(0),
            owner_hasher: RandomState::new(),
            last_failed_eviction_ms: AtomicU64::new(u64::MAX),
        }
    }

    /// Returns a hash of the client to which a session belongs: its principal, or the network of its address.
    pub(in crate::protocol) fn owner(&self, principal: &Principal, address: Option<IpAddr>) -> u32 {
        let hash = match (principal.id(), address) {
            (Some(id), _) => self.owner_hasher.hash_one(id),
            (None, Some(address)) => self.owner_hasher.hash_one(client_network(address)),
            (None, None) => return UNKNOWN_OWNER,
        };
        // Two clients with the same hash share a place, which is harmless and improbable.
        hash as u32 | 1
    }

    /// Returns the `Arc` of an equal client that initialized recently, or a new one.
    pub(in crate::protocol) fn intern_client(&self, client: Client) -> Arc<Client> {
        let mut recent = lock(&self.recent_clients);
        let index = recent.iter().rposition(|known| **known == client);
        let client = index.map_or_else(|| Arc::new(client), |index| recent.remove(index));
        if recent.len() >= MAX_RECENT_CLIENTS {
            recent.remove(0);
        }
        recent.push(Arc::clone(&client));
        client
    }

    /// The client to assume if only its protocol version is known.
    pub(in crate::protocol) fn default_client(&self, version: ProtocolVersion) -> Arc<Client> {
        Arc::clone(&self.default_clients[version as usize])
    }

    /// Whether no sessions are created.
    pub(in crate::protocol) fn is_disabled(&self) -> bool {
        self.limits.is_disabled
    }

    /// Whether `initialize` has to come first.
    pub(in crate::protocol) fn requires_initialize(&self) -> bool {
        self.limits.requires_initialize
    }

    /// Creates a session with a new id. If the table is full, idle sessions are removed for it, first of all those of the
    /// client that has the most. Returns `None` if there are too many in use.
    pub(in crate::protocol) fn create(
        &self,
        client: Client,
        (principal, address): (Principal, Option<IpAddr>),
        capabilities: &ServerCapabilities,
        subscriptions: &Subscriptions,
        clock: &Clock,
    ) -> Option<Arc<Session>> {
        let owner = self.owner(&principal, address);
        let session = self.create_unlisted(client, principal, capabilities, subscriptions);
        session.owner.store(owner, Ordering::Relaxed);
        session.touch(clock);
        let now = clock.uptime();
        let mut by_id = self.write();
        let is_full = by_id.len() >= self.limits.max_sessions;
        // A sweep visits all sessions, so its rate is limited even if the table is full.
        if self.is_sweep_due(now, if is_full { FULL_SWEEP_INTERVAL } else { SWEEP_INTERVAL }) {
            by_id.retain(|_, session| !(session.is_expired(now) || is_full && session.is_unused(now)));
        }
        if by_id.len() >= self.limits.max_sessions {
            // Nothing could be evicted a moment ago: do not visit all sessions for each request.
            if !self.is_eviction_due(now) {
                return None;
            }
            if evict_from_largest_owner(&mut by_id).is_none() {
                self.last_failed_eviction_ms.store(millis(now), Ordering::Relaxed);
                return None;
            }
        }
        by_id.insert(session.id.as_bytes().into(), Arc::clone(&session));
        Some(session)
    }

    /// Creates a session that is found through its connection and not by its id.
    pub(in crate::protocol) fn create_unlisted(
        &self,
        client: Client,
        principal: Principal,
        capabilities: &ServerCapabilities,
        subscriptions: &Subscriptions,
    ) -> Arc<Session> {
        let (id, filter): (Box<str>, _) = (random_token().into(), list_change_filter(capabilities));
        let client = self.intern_client(client);
        let subscriber = match client.protocol_version.behavior().tasks {
            TasksMode::Core if capabilities.tasks.is_some() => {
                subscriptions.subscribe_to_all_tasks(filter, task_owner(&principal, Some(&id)))
            }
            _ => subscriptions.subscribe(filter),
        };
        Arc::new(self.build_session(id, client, principal, subscriber, None))
    }

    /// Builds a session without adding it to the table.
    pub(in crate::protocol) fn build_session(
        &self,
        id: Box<str>,
        client: Arc<Client>,
        principal: Principal,
        subscriber: Arc<Subscriber>,
        replica: Option<Box<SessionReplica>>,
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
            owner: AtomicU32::new(0),
            closed: Cancel::new(),
            state: Mutex::default(),
            replica,
        }
    }

    /// Adds the local replica of a session from the store, unless there is one already. Returns `None` if the table is full
    /// of sessions in use.
    pub(in crate::protocol) fn insert(&self, session: Arc<Session>, clock: &Clock) -> Option<Arc<Session>> {
        session.touch(clock);
        let now = clock.uptime();
        let mut by_id = self.write();
        if let Some(known) = by_id.get(session.id.as_bytes()) {
            return Some(Arc::clone(known));
        }
        if by_id.len() >= self.limits.max_sessions {
            evict_idle(&mut by_id)?;
        } else if self.is_sweep_due(now, SWEEP_INTERVAL) {
            by_id.retain(|_, session| !session.is_expired(now));
        }
        by_id.insert(session.id.as_bytes().into(), Arc::clone(&session));
        Some(session)
    }

    /// Looks up a session by its id, without checking the principal.
    pub(in crate::protocol) fn get(&self, id: &str) -> Option<Arc<Session>> {
        self.read().get(id.as_bytes()).cloned()
    }

    /// The sessions with a call in flight or a stream reader.
    pub(in crate::protocol) fn active(&self) -> Vec<Arc<Session>> {
        self.read().values().filter(|session| !session.is_idle()).cloned().collect()
    }

    /// Whether the table is full of sessions in use, so that none can be added.
    pub(in crate::protocol) fn is_full(&self) -> bool {
        let by_id = self.read();
        by_id.len() >= self.limits.max_sessions && !by_id.values().any(|session| session.is_idle())
    }

    /// Looks up a session by its id, for a principal. Returns `None` if it has expired or belongs to another principal.
    pub(in crate::protocol) fn find(
        &self,
        id: &[u8],
        principal: &Principal,
        clock: &Clock,
    ) -> Option<Arc<Session>> {
        let session = Arc::clone(self.read().get(id)?);
        if session.principal != *principal {
            return None;
        }
        // The store decides when a replica expires.
        let now = clock.uptime();
        if session.replica.is_none() && session.is_expired(now) {
            self.close(&session);
            return None;
        }
        session.touch_at(now);
        session.is_used.store(true, Ordering::Relaxed);
        Some(session)
    }

    /// Whether it is long enough ago that no session could be evicted.
    fn is_eviction_due(&self, now: Duration) -> bool {
        let last = self.last_failed_eviction_ms.load(Ordering::Relaxed);
        last == u64::MAX || millis(now).saturating_sub(last) >= millis(FULL_SWEEP_INTERVAL)
    }

    /// Whether the last sweep is at least `interval` ago. If so, now counts as the last sweep.
    fn is_sweep_due(&self, now: Duration, interval: Duration) -> bool {
        let now = millis(now);
        let last = self.last_sweep_ms.load(Ordering::Relaxed);
        let is_due = now.saturating_sub(last) >= millis(interval);
        if is_due {
            self.last_sweep_ms.store(now, Ordering::Relaxed);
        }
        is_due
    }

    /// Describes all sessions that have not expired.
    pub(crate) fn infos(&self, now: Duration) -> Vec<SessionInfo> {
        let by_id = self.read();
        let infos = by_id.values().filter(|session| !session.is_expired(now)).map(|session| {
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
        infos.collect()
    }

    /// Ends all sessions in this process and returns how many there were.
    pub(crate) fn clear(&self) -> usize {
        let all = std::mem::take(&mut *self.write());
        for session in all.values() {
            session.end();
        }
        all.len()
    }

    pub(in crate::protocol) fn close(&self, session: &Session) {
        self.write().remove(session.id.as_bytes());
        session.end();
    }

    fn read(&self) -> RwLockReadGuard<'_, SessionMap> {
        self.by_id.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, SessionMap> {
        self.by_id.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the tenth of the sessions that were idle longest: replicas, which are loaded again from the store when
/// their client sends a message. Returns `None` if no session is idle.
fn evict_idle(by_id: &mut SessionMap) -> Option<()> {
    let idle = || by_id.values().filter(|session| session.is_idle());
    let n_evicted = idle().count() / 10;
    let mut oldest = BinaryHeap::new();
    for session in idle() {
        let last_seen = session.last_seen_ms.load(Ordering::Relaxed);
        if oldest.len() <= n_evicted {
            oldest.push(last_seen);
        } else if oldest.peek().is_some_and(|newest| last_seen < *newest) {
            oldest.pop();
            oldest.push(last_seen);
        }
    }
    let bound = oldest.pop()?;
    by_id.retain(|_, session| !session.is_idle() || session.last_seen_ms.load(Ordering::Relaxed) > bound);
    Some(())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Ends a hundredth of the sessions, so that one client cannot take all places: those of the owner with the most sessions
/// first; of these the ones that were never used, then the ones that were idle longest. Returns `None` if none can be ended.
fn evict_from_largest_owner(by_id: &mut SessionMap) -> Option<()> {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    for session in by_id.values() {
        *counts.entry(session.owner()).or_default() += 1;
    }
    let n_evicted = by_id.len() / 100 + 1;
    let half = by_id.len() / 2;
    let mut candidates: Vec<_> = by_id
        .values()
        .filter_map(|session| {
            let n_owned = counts.get(&session.owner()).copied().unwrap_or(0);
            // A client that has more than half of all sessions loses those that only hold a stream open, too. Clients of
            // unknown address are not one client.
            let is_excessive = n_owned > half && session.owner() != UNKNOWN_OWNER;
            let can_end = session.is_idle() || is_excessive && session.in_flight.is_empty();
            let is_used = session.is_used.load(Ordering::Relaxed);
            let last_seen = session.last_seen_ms.load(Ordering::Relaxed);
            can_end.then(|| (Reverse(n_owned), !session.is_idle(), is_used, last_seen, Arc::clone(session)))
        })
        .collect();
    candidates.sort_unstable_by_key(|(n_owned, is_active, is_used, last_seen, _)| {
        (*n_owned, *is_active, *is_used, *last_seen)
    });
    candidates.truncate(n_evicted);
    for (.., session) in &candidates {
        by_id.remove(session.id.as_bytes());
        session.end();
    }
    (!candidates.is_empty()).then_some(())
}
