//! Sessions that several processes serve: what any of them must know is in the store, and each has a copy of what it
//! needs itself.
//!
//! A message is read without waiting, so whatever must be fetched is fetched before ([`Shared::prepare`]) and whatever
//! must be kept is kept before it is answered. What is in the store is right; a copy is corrected by what other nodes
//! tell, and after a time in which nothing could be heard it is compared again. Nothing here is touched where the store
//! belongs to one process alone.

mod changes;
mod desk;
mod kin;
mod newcomers;
mod record;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, OnceCell, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolgate_wire::model::{Call, InitializeParams, ServerCapabilities};
use toolgate_wire::{
    Client, ProtocolError, ProtocolErrorKind, Frame, Limits, Message, RawJson, RemoteError, RequestId, read_message, write_error,
    write_result,
};

pub(crate) use desk::Stood;
pub(super) use kin::Kin;

use super::handshake::no_session;
use super::session::{SUBSCRIBED, Session, SessionLimits, Sessions, lists};
use super::{Peer, Road};
use crate::bus::{Bus, Ear, Word, jittered, pause, within};
use crate::clock::Clock;
use crate::hub::{Hub, Subscriber};
use crate::letterhead::{SESSION, single};
use crate::request::{BoxFuture, Principal};
use crate::seal::{Seal, token};
use crate::store::{Expect, Key, StoreError};
use crate::task::Tasks;
use crate::tracker::Tracker;
use changes::Changes;
use desk::Paces;
use newcomers::Newcomers;
use record::Record;

/// Sessions whose life is being prolonged at once. More wait for their next message.
const TOUCHING: usize = 64;
/// How often a change of a record is tried again because somebody else made one.
const TRIES: usize = 16;
/// A session that nobody has used since its greeting is kept for so long.
const UNUSED: Duration = Duration::from_secs(60);
/// A store that did not answer is left alone for so long.
const REST: Duration = Duration::from_secs(1);

/// A change of what is remembered of a session.
type Change<'a> = &'a (dyn Fn(&mut Record) -> Result<(), ProtocolError> + Sync);

/// See the module.
pub(crate) struct Shared {
    bus: Arc<Bus>,
    sessions: Arc<Sessions>,
    /// Takes the secret that all nodes have; none if each was given its own.
    seal: Option<Seal>,
    clock: Clock,
    changes: Arc<Changes>,
    /// It listens, and has what it needs to begin.
    ready: OnceCell<()>,
    is_waking: AtomicBool,
    /// When the store last failed us, in milliseconds of uptime; 0 if never.
    failed: AtomicU64,
    /// Grows when words may have been missed: copies from before are compared again.
    epoch: AtomicU64,
    /// Counts what was heard of sessions, for those who fetch one meanwhile.
    heard: AtomicU64,
    /// Woken when words may have been missed.
    missed: Arc<Notify>,
    touching: Arc<Semaphore>,
    /// Who greeted here lately.
    newcomers: Mutex<Newcomers>,
    /// Who writes which log here.
    desks: Mutex<Paces>,
    pub(super) drain: CancellationToken,
    hub: Arc<Hub>,
    /// Long work, of which sessions are told.
    works: Arc<Tasks>,
    tasks: Tracker,
    over: CancellationToken,
    _over: DropGuard,
}

impl Shared {
    pub(crate) fn new(
        bus: Bus,
        sessions: Arc<Sessions>,
        hub: Arc<Hub>,
        seal: Option<Seal>,
        clock: Clock,
        drain: CancellationToken,
        works: Arc<Tasks>,
    ) -> Arc<Shared> {
        hub.relay();
        let over = CancellationToken::new();
        let bus = Arc::new(bus);
        Arc::new(Shared {
            changes: Arc::new(Changes::new(Arc::clone(&bus), Arc::clone(&hub), sessions.limits.idle)),
            bus,
            sessions,
            seal,
            clock,
            ready: OnceCell::new(),
            is_waking: AtomicBool::new(false),
            failed: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            missed: Arc::default(),
            touching: Arc::new(Semaphore::new(TOUCHING)),
            newcomers: Mutex::default(),
            desks: Mutex::default(),
            drain,
            hub,
            works,
            tasks: Tracker::new(),
            _over: over.clone().drop_guard(),
            over,
        })
    }

    /// Begins to listen, if that has not happened yet.
    pub(super) async fn ready(self: &Arc<Self>) -> Result<(), StoreError> {
        if self.ready.initialized() {
            return Ok(());
        }
        let failed = Duration::from_millis(self.failed.load(Ordering::Relaxed));
        if !failed.is_zero() && self.clock.uptime().saturating_sub(failed) < REST {
            return Err(StoreError::Unavailable("it did not answer a moment ago".into()));
        }
        let opened = self.ready.get_or_try_init(|| self.open()).await;
        opened.map(|_| ()).inspect_err(|_| {
            let now = u64::try_from(self.clock.uptime().as_millis()).unwrap_or(u64::MAX);
            self.failed.store(now.max(1), Ordering::Relaxed);
        })
    }

    async fn open(self: &Arc<Self>) -> Result<(), StoreError> {
        // Before anything is read: what changes from then on is heard.
        let ears = self.bus.open().await?;
        if let Some(seal) = &self.seal {
            seal.adopt(within(self.bus.cellar.secret("seal")).await?);
        }
        self.changes.begin().await?;
        self.bus.attend(ears, Arc::downgrade(self), &self.tasks, &self.over);
        self.tasks.spawn_home(Arc::clone(&self.changes).tend(self.over.clone()));
        self.tasks.spawn_home(Shared::keep(
            Arc::downgrade(self),
            self.sessions.limits.idle,
            self.over.clone(),
        ));
        Ok(())
    }

    /// Begins without being waited for; where there is no runtime yet, the first message does it.
    pub(crate) fn wake(self: &Arc<Self>) {
        if self.ready.initialized()
            || tokio::runtime::Handle::try_current().is_err()
            || self.is_waking.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let (shared, over) = (Arc::downgrade(self), self.over.clone());
        self.tasks.spawn_home(async move {
            while let Some(shared) = shared.upgrade() {
                if shared.ready().await.is_ok() {
                    return;
                }
                drop(shared);
                if pause(jittered(), &over).await {
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
        if matches!(peer.road, Road::Line(_)) {
            self.wake();
            return None;
        }
        let id = single(&peer.headers, &SESSION).ok().flatten().filter(|id| is_id(id));
        if self.ready.initialized() && id.is_none_or(|id| self.knows(id)) {
            return None;
        }
        Some(Box::pin(async move {
            let ready = self.ready().await;
            // Whoever has no session needs no store.
            let Some(id) = id else { return Ok(()) };
            ready.map_err(away)?;
            self.recall(id, &peer.principal).await
        }))
    }

    /// Whether there is a copy of this session here that can be relied on.
    fn knows(self: &Arc<Self>, id: &str) -> bool {
        let Some(session) = self.sessions.peek(id) else { return false };
        let Some(kin) = &session.kin else { return true };
        let is_fresh = kin.epoch.load(Ordering::Relaxed) == self.epoch.load(Ordering::Relaxed);
        let now = self.clock.uptime();
        // What nobody used for so long is over, unless another node knows better.
        let is_forgotten = kin.is_unused() && session.silent(now) > UNUSED;
        if !is_fresh || is_forgotten || session.is_stale(now) {
            return false;
        }
        self.prolong(&session);
        true
    }

    fn key(&self, session: &str) -> Key {
        self.bus.cellar.key(&space(session), "record")
    }

    /// Fetches a session, whoever opened it. One that is not there, or is somebody else's, is not listed.
    async fn recall(self: &Arc<Self>, id: &str, principal: &Principal) -> Result<(), ProtocolError> {
        for _ in 0..TRIES {
            let (heard, epoch) = (self.heard.load(Ordering::Acquire), self.epoch.load(Ordering::Relaxed));
            let key = self.key(id);
            let found = within(self.bus.cellar.store.get(&key)).await.map_err(away)?;
            let known = self.sessions.peek(id);
            let record = found.as_ref().and_then(|entry| Record::read(&entry.value));
            match (record, known) {
                (None, Some(session)) => self.sessions.close(&session),
                (None, None) => {}
                (Some(record), Some(session)) => {
                    // Since when it wants what is new in it was missed: better twice than never.
                    session.adapt(&record, 0);
                    session.renew(epoch, &self.clock);
                    self.prolong(&session);
                }
                (Some(record), None) if record.principal.as_deref() != principal.id() => {}
                (Some(record), None) => {
                    let Some(client) = record.client() else { return Ok(()) };
                    let session = self.copy(id.into(), client, principal.clone(), &record);
                    session.renew(epoch, &self.clock);
                    let session = self.sessions.list(session, &self.clock).ok_or_else(full)?;
                    self.prolong(&session);
                }
            }
            // What was heard meanwhile may have been about this one, which was not listed then.
            if self.heard.load(Ordering::Acquire) == heard {
                break;
            }
        }
        Ok(())
    }

    /// This node's copy of a session.
    fn copy(&self, id: Box<str>, client: Client, principal: Principal, record: &Record) -> Arc<Session> {
        let subscriber = Subscriber::apart(record.wants());
        let kin = Box::new(Kin::new(Arc::clone(&self.bus.node), record));
        let client = self.sessions.known(client);
        let session = self.sessions.made(id, client, principal, subscriber, Some(kin));
        session.set_level(record.level());
        Arc::new(session)
    }

    /// Remembers a client that shook hands, here and in the store. Its id.
    pub(super) async fn greet(
        self: Arc<Self>,
        client: Client,
        principal: Principal,
        offered: ServerCapabilities,
    ) -> Result<Box<str>, ProtocolError> {
        self.ready().await.map_err(away)?;
        let (id, most): (Box<str>, _) = (token().into(), self.sessions.limits.total);
        let (now, window) = (self.clock.uptime(), UNUSED.min(life(&self.sessions.limits)));
        if self.sessions.are_full() || !lock(&self.newcomers).enter(&id, most, now, window) {
            return Err(full());
        }
        let admitted = self.admit(&id, client, principal, &offered, window).await;
        admitted.inspect_err(|_| lock(&self.newcomers).leave(&id))?;
        Ok(id)
    }

    /// Keeps a new session, for a short time: who comes back has it for longer.
    async fn admit(
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
        let wants = lists(offered);
        let (position, created) = (self.changes.seen(), self.clock.unix());
        let record = Record::new(&hello, principal.id(), [wants.tools, wants.prompts, wants.resources])
            .beginning(position, created);
        let key = self.key(id);
        let put = self.bus.cellar.store.put(&key, record.write(), Some(life), Expect::Absent);
        within(put).await.map_err(away)?.ok_or_else(|| away(StoreError::Broken("two ids alike".into())))?;
        let session = self.copy(id.into(), client, principal, &record);
        session.renew(self.epoch.load(Ordering::Relaxed), &self.clock);
        self.sessions.list(session, &self.clock).ok_or_else(full)?;
        Ok(())
    }

    /// Remembers what a client wants to hear of from now on, everywhere. Other wishes change nothing.
    pub(super) async fn remember(&self, session: &Session, wish: &Call) -> Result<(), ProtocolError> {
        let most = session.limits.subscriptions;
        let change = |record: &mut Record| {
            match wish {
                Call::SetLevel(level) => record.set_level(*level),
                Call::Unsubscribe { uri } => record.uris.retain(|known| known != uri),
                Call::Subscribe { uri } if !record.subscribe(uri, most, SUBSCRIBED) => {
                    return Err(session.too_many());
                }
                _ => {}
            }
            Ok(())
        };
        // From before the change: whoever is told of it later than of something newer can make up for it.
        let seen = self.changes.seen();
        let record = self.rewrite(session, &change).await?;
        session.adapt(&record, seen);
        let text = String::from_utf8_lossy(&record.write()).into();
        let word = Word::Record { session: session.id.clone(), record: text, seen };
        self.bus.tell_all(&word).await.map_err(away)
    }

    /// Changes a record, whoever else does so at the same time.
    async fn rewrite(&self, session: &Session, change: Change<'_>) -> Result<Record, ProtocolError> {
        let (key, life) = (self.key(&session.id), Some(life(&session.limits)));
        let store = &self.bus.cellar.store;
        for _ in 0..TRIES {
            let found = within(store.get(&key)).await.map_err(away)?.ok_or_else(no_session)?;
            let mut record = Record::read(&found.value).ok_or_else(no_session)?;
            change(&mut record)?;
            record.revision += 1;
            let put = store.put(&key, record.write(), life, Expect::Is(found.version));
            if within(put).await.map_err(away)?.is_some() {
                return Ok(record);
            }
        }
        Err(ProtocolError::new(ProtocolErrorKind::Busy, "this session is being changed by many at once; try again"))
    }

    /// Ends a session everywhere.
    pub(super) async fn end(&self, session: &Session) -> Result<(), ProtocolError> {
        let store = &self.bus.cellar.store;
        let key = self.key(&session.id);
        within(store.delete(&key, Expect::Anything)).await.map_err(away)?;
        lock(&self.newcomers).leave(&session.id);
        // From here on it is over. Who does not hear it now finds out when it looks.
        let told = self.bus.tell_all(&Word::Over { session: session.id.clone() }).await;
        let cleared = self.clear(&session.id).await;
        if let Err(error) = told.and(cleared) {
            tracing::debug!(%error, "what a session left behind expires by itself");
        }
        Ok(())
    }

    /// An answer of the client: to a question that was asked here, or on another node. None if nobody needs to be
    /// told.
    pub(super) fn answer(
        self: &Arc<Self>,
        session: &Session,
        id: &RequestId,
        outcome: &Result<RawJson, RemoteError>,
    ) -> Option<impl Future<Output = Result<(), ProtocolError>> + use<>> {
        let RequestId::String(text) = id else { return None };
        let (node, _) = text.split_once('.')?;
        if node == &*self.bus.node || !Bus::is_name(node) || session.expects(id) {
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
        let word = Word::Answer { session: session.id.clone(), message };
        let (shared, node) = (Arc::clone(self), node.to_owned());
        Some(async move { shared.bus.tell_node(&node, &word).await.map_err(away) })
    }

    /// The client takes back a request that is not under way here.
    pub(super) fn cancel(
        self: &Arc<Self>,
        session: &Session,
        id: &RequestId,
    ) -> impl Future<Output = Result<(), ProtocolError>> + use<> {
        let mut request = Vec::new();
        id.write(&mut request);
        let request = String::from_utf8_lossy(&request).into();
        let word = Word::Cancel { session: session.id.clone(), request };
        let shared = Arc::clone(self);
        async move { shared.bus.tell_all(&word).await.map_err(away) }
    }

    /// A session that is used lives on in the store too: told there at most eight times in its life.
    fn prolong(self: &Arc<Self>, session: &Arc<Session>) {
        let Some(kin) = &session.kin else { return };
        if !kin.is_due(self.clock.uptime(), session.limits.idle / 8) {
            return;
        }
        // Nobody waits for it. Where many are at it, the next message tries again, if there is time for that.
        if self.touching.available_permits() == 0 && !kin.is_unused() {
            return;
        }
        let before = kin.note_touched(self.clock.uptime());
        let (shared, touching) = (Arc::downgrade(self), Arc::clone(&self.touching));
        let (session, over) = (Arc::clone(session), self.over.clone());
        self.tasks.spawn(async move {
            for _ in 0..TRIES {
                let Ok(permit) = touching.acquire().await else { return };
                let Some(shared) = shared.upgrade() else { return };
                if shared.touch(&session).await {
                    return;
                }
                drop((shared, permit));
                if session.over.is_cancelled() || pause(jittered(), &over).await {
                    return;
                }
            }
            // The next message tries again.
            session.kin.as_deref().inspect(|kin| kin.take_back_touch(before));
        });
    }

    /// False if the store could not be told.
    async fn touch(&self, session: &Session) -> bool {
        let key = self.key(&session.id);
        match within(self.bus.cellar.store.touch(&key, life(&session.limits))).await {
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
    async fn keep(shared: Weak<Shared>, idle: Duration, over: CancellationToken) {
        let every = (idle / 8).clamp(Duration::from_millis(100), Duration::from_secs(60));
        let mut epoch = 0;
        loop {
            let Some(this) = shared.upgrade() else { return };
            let now = this.epoch.load(Ordering::Relaxed);
            let is_doubtful = std::mem::replace(&mut epoch, now) != now;
            for session in this.sessions.busy() {
                if is_doubtful && this.recall(&session.id, &Principal::anonymous()).await.is_err() {
                    // The store is away again. What is doubtful stays so.
                    epoch = now.wrapping_sub(1);
                }
                let is_due = |kin: &&Kin| kin.is_due(this.clock.uptime(), idle / 8);
                if let Some(kin) = session.kin.as_deref().filter(is_due) {
                    let before = kin.note_touched(this.clock.uptime());
                    if !this.touch(&session).await {
                        kin.take_back_touch(before);
                    }
                }
            }
            let missed = Arc::clone(&this.missed);
            drop(this);
            tokio::select! {
                biased;
                () = over.cancelled() => return,
                () = missed.notified() => {}
                () = tokio::time::sleep(every) => {}
            }
        }
    }

    fn desks(&self) -> MutexGuard<'_, Paces> {
        self.desks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ear for Shared {
    fn hear(&self, word: Word) {
        match word {
            Word::Answer { session, message } => {
                let Some(session) = self.sessions.peek(&session) else { return };
                let bytes = message.into_string().into();
                // Whoever took it has seen to its size.
                let limits = Limits { max_bytes: usize::MAX, ..Limits::default() };
                if let Ok(Message::Single(Frame::Response { id, outcome })) = read_message(&bytes, &limits) {
                    session.hear(&id, outcome);
                }
            }
            Word::Cancel { session, request } => {
                let id = RawJson::parse(request.into_string().into()).ok();
                let id = id.and_then(|id| RequestId::read(id.view()));
                if let (Some(session), Some(id)) = (self.sessions.peek(&session), id) {
                    session.calls.cancel(&id);
                }
            }
            Word::Record { session, record, seen } => {
                self.heard.fetch_add(1, Ordering::AcqRel);
                if let (Some(session), Some(record)) =
                    (self.sessions.peek(&session), Record::read(record.as_bytes()))
                {
                    session.adapt(&record, seen);
                }
            }
            Word::Over { session } => {
                self.heard.fetch_add(1, Ordering::AcqRel);
                lock(&self.newcomers).leave(&session);
                if let Some(session) = self.sessions.peek(&session) {
                    self.sessions.close(&session);
                }
            }
            Word::Reading { session, stream, reader } => {
                if let Some(pace) = self.desks().get(stream) {
                    pace.note_read();
                }
                // Without a name: somebody who is known already has come so far.
                if !reader.is_empty()
                    && let Some(session) = self.sessions.peek(&session)
                    && let Some(kin) = &session.kin
                {
                    kin.hear_reader(stream, &reader);
                }
            }
            Word::Changed => self.changes.look(),
        }
    }

    fn miss(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
        self.missed.notify_one();
        self.changes.look();
    }
}

/// How long the store keeps a session that is used: it is not told of every use, so a little longer than it may be silent.
fn life(limits: &SessionLimits) -> Duration {
    limits.idle + limits.idle / 8
}

/// Where everything of one session is.
fn space(session: &str) -> String {
    format!("session/{session}")
}

/// Whether this could be one of our ids. Nothing else becomes part of a name in the store.
fn is_id(id: &str) -> bool {
    id.len() == 27 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// The store does not answer.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn away(error: StoreError) -> ProtocolError {
    tracing::debug!(%error, "a request was refused because of the store");
    ProtocolError::new(ProtocolErrorKind::Busy, "sessions cannot be reached at the moment; try again in a few seconds")
}

fn full() -> ProtocolError {
    ProtocolError::new(ProtocolErrorKind::Busy, "too many sessions are open; try again later")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
