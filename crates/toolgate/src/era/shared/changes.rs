//! Changes on their way through the store: one log for all nodes, in which each change has a number.
//!
//! Who makes a change never waits: it lies in the outbox of the hub until it is in the log. Every node reads the log,
//! its own changes too, and tells those who listen there. A standing stream of a session reads it at its own pace, so
//! its events have the numbers of the log and any node can go on behind any of them; a slow reader keeps nothing in
//! memory. What was cut off at the old end of the log is made up for by telling everything once.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use toolgate_wire::{ProtocolVersion, codec};

use super::kin::Place;
use super::lock;
use crate::bus::{Bus, Word, jittered, pause, within};
use crate::era::feed::notice_of;
use crate::era::session::Session;
use crate::hub::{Hub, Pending, Topic};
use crate::store::{Key, StoreError};
use crate::stream::{Gone, Stream};

/// How many changes are kept.
const MOST: usize = 10_000;
/// How long they are kept at least.
const LIFE: Duration = Duration::from_secs(60 * 60);
/// How many of them each node remembers, so that not every stream asks the store.
const RECENT: usize = 1024;
/// How many are read at once.
const PAGE: usize = 256;
/// How often the log is looked at though nobody said that it grew.
const LOOK: Duration = Duration::from_secs(5);

/// The log of changes, as seen from this node.
pub(super) struct Changes {
    bus: Arc<Bus>,
    hub: Arc<Hub>,
    log: Key,
    life: Duration,
    /// Oldest first.
    recent: Mutex<Vec<(u64, Change)>>,
    /// The number of the last change that was told here.
    seen: watch::Sender<u64>,
    look: Notify,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Topic(Topic),
    Everything,
    /// It only keeps the log alive, or is not understood here.
    Nothing,
}

/// What has changed since somewhere.
enum Since {
    Changes(Vec<(u64, Change)>),
    /// More than is known. It is over with this number.
    TooMuch(u64),
}

impl Change {
    fn write(&self) -> Bytes {
        match self {
            Change::Topic(Topic::Tools) => Bytes::from_static(b"tools"),
            Change::Topic(Topic::Prompts) => Bytes::from_static(b"prompts"),
            Change::Topic(Topic::Resources) => Bytes::from_static(b"resources"),
            Change::Topic(Topic::Resource(uri)) => format!("uri {uri}").into(),
            Change::Topic(Topic::Roots) => Bytes::from_static(b"roots"),
            Change::Everything => Bytes::from_static(b"everything"),
            // Of tasks every process hears by itself.
            Change::Topic(Topic::Task { .. }) => Bytes::from_static(b"nothing"),
            Change::Nothing => Bytes::from_static(b"nothing"),
        }
    }

    fn read(bytes: &[u8]) -> Change {
        match std::str::from_utf8(bytes) {
            Ok("tools") => Change::Topic(Topic::Tools),
            Ok("prompts") => Change::Topic(Topic::Prompts),
            Ok("resources") => Change::Topic(Topic::Resources),
            Ok("roots") => Change::Topic(Topic::Roots),
            Ok("everything") => Change::Everything,
            Ok(text) => text
                .strip_prefix("uri ")
                .map_or(Change::Nothing, |uri| Change::Topic(Topic::Resource(uri.into()))),
            Err(_) => Change::Nothing,
        }
    }
}

impl Changes {
    pub(super) fn new(bus: Arc<Bus>, hub: Arc<Hub>, idle: Duration) -> Changes {
        let log = bus.cellar.key("changes", "log");
        // As long as a session that says nothing: it may come back to where it was.
        let life = LIFE.max(idle.saturating_mul(2));
        let (recent, look) = (Mutex::default(), Notify::new());
        Changes { bus, hub, log, life, recent, seen: watch::Sender::new(0), look }
    }

    /// The number of the last change that was told here.
    pub(super) fn seen(&self) -> u64 {
        *self.seen.borrow()
    }

    /// The log may have grown.
    pub(super) fn look(&self) {
        self.look.notify_one();
    }

    /// Whoever listens here hears of what changes from now on.
    pub(super) async fn begin(&self) -> Result<(), StoreError> {
        let page = within(self.bus.cellar.store.read(&self.log, 0, 1)).await?;
        self.seen.send_replace(page.newest);
        Ok(())
    }

    /// Brings changes to the log and from there to those who listen, until `over` falls.
    pub(super) async fn tend(self: Arc<Self>, over: CancellationToken) {
        let mut quiet = Duration::ZERO;
        loop {
            let before = self.seen();
            tokio::select! {
                biased;
                () = over.cancelled() => return,
                () = self.hub.pending() => {}
                () = self.look.notified() => {}
                () = tokio::time::sleep(LOOK) => quiet += LOOK,
            }
            let tended = async {
                self.flush().await?;
                self.catch_up().await?;
                if quiet > self.life / 2 {
                    quiet = Duration::ZERO;
                    // Numbers must not begin again while somebody remembers old ones.
                    self.append(&Change::Nothing).await?;
                }
                Ok::<(), StoreError>(())
            };
            if let Err(error) = tended.await {
                tracing::debug!(%error, "changes cannot be brought to other nodes yet");
                if pause(jittered(), &over).await {
                    return;
                }
            }
            if self.seen() != before {
                quiet = Duration::ZERO;
            }
        }
    }

    async fn append(&self, change: &Change) -> Result<u64, StoreError> {
        within(self.bus.cellar.store.append(&self.log, change.write(), self.life, MOST)).await
    }

    /// What lies in the outbox goes to the log; what finds no way there stays.
    async fn flush(&self) -> Result<(), StoreError> {
        let pending = self.hub.take_pending();
        if pending == Pending::default() {
            return Ok(());
        }
        let Pending { topics: mut rest, everything } = pending;
        let flushed = async {
            if everything {
                self.append(&Change::Everything).await.inspect_err(|_| {
                    self.hub.give_back_pending(Pending { everything: true, ..Pending::default() });
                })?;
            }
            while let Some(topic) = rest.pop_first() {
                let change = Change::Topic(topic);
                if let Err(error) = self.append(&change).await {
                    if let Change::Topic(topic) = change {
                        rest.insert(topic);
                    }
                    return Err(error);
                }
            }
            Ok(())
        };
        let flushed = flushed.await;
        self.hub.give_back_pending(Pending { topics: rest, everything: false });
        flushed?;
        self.bus.tell_all(&Word::Changed).await
    }

    /// Tells those who listen here what is new in the log.
    async fn catch_up(&self) -> Result<(), StoreError> {
        loop {
            let seen = self.seen();
            let page = within(self.bus.cellar.store.read(&self.log, seen, PAGE)).await?;
            if page.newest < seen || page.oldest > seen + 1 {
                lock(&self.recent).clear();
                self.hub.tell_everything();
                self.seen.send_replace(page.newest);
                return Ok(());
            }
            let Some((last, _)) = page.entries.last() else { return Ok(()) };
            let last = *last;
            {
                let mut recent = lock(&self.recent);
                for (number, bytes) in &page.entries {
                    let change = Change::read(bytes);
                    match &change {
                        Change::Topic(topic) => self.hub.tell(topic),
                        Change::Everything => self.hub.tell_everything(),
                        Change::Nothing => {}
                    }
                    recent.push((*number, change));
                }
                let over = recent.len().saturating_sub(RECENT);
                recent.drain(..over);
            }
            self.seen.send_replace(last);
        }
    }

    /// What has changed after `position`, from memory if it is there.
    async fn since(&self, position: u64) -> Result<Since, StoreError> {
        if position == self.seen() {
            return Ok(Since::Changes(Vec::new()));
        }
        {
            let recent = lock(&self.recent);
            let newest = recent.last().map_or(0, |(number, _)| *number);
            if let Some((oldest, _)) = recent.first()
                && (*oldest..=newest).contains(&(position + 1))
            {
                let index = usize::try_from(position + 1 - *oldest).unwrap_or(usize::MAX);
                return Ok(Since::Changes(recent.iter().skip(index).take(PAGE).cloned().collect()));
            }
        }
        let page = within(self.bus.cellar.store.read(&self.log, position, PAGE)).await?;
        if page.newest < position || page.oldest > position + 1 {
            return Ok(Since::TooMuch(page.newest));
        }
        let entries = page.entries.iter().map(|(number, bytes)| (*number, Change::read(bytes)));
        Ok(Since::Changes(entries.collect()))
    }

    /// Whether somebody can go on behind this number.
    pub(super) async fn is_place(&self, position: u64) -> Result<bool, StoreError> {
        let seen = self.seen();
        if position <= seen {
            return Ok(true);
        }
        let page = within(self.bus.cellar.store.read(&self.log, seen, 1)).await?;
        // A store that lost its last moments counts them again: whoever saw them must not be locked out.
        Ok(position <= page.newest.saturating_add(MOST as u64))
    }

    /// Tells a session of changes on `out`, from behind `place`. Ends when nobody reads any more.
    pub(super) async fn feed(&self, session: &Session, out: &Stream, place: &Place) {
        let mut seen = self.seen.subscribe();
        let Some(kin) = &session.kin else { return };
        loop {
            // Both before the look: what comes after it is not missed.
            seen.borrow_and_update();
            let stirred = kin.stirred.notified();
            let told = async {
                self.make_up(session, out).await?;
                self.tell(session, out, place).await
            };
            match told.await {
                Err(Unfed::Gone) => return,
                Err(Unfed::Store(error)) => {
                    tracing::debug!(%error, "changes cannot be read yet");
                    tokio::time::sleep(jittered()).await;
                }
                Ok(true) => {}
                Ok(false) => tokio::select! {
                    _ = seen.changed() => {}
                    () = stirred => {}
                },
            }
        }
    }

    /// Tells what comes after `place`; false if there was nothing.
    async fn tell(&self, session: &Session, out: &Stream, place: &Place) -> Result<bool, Unfed> {
        let (edition, wants) = (session.client.protocol_version, session.subscriber());
        let changes = match self.since(place.told.load(Ordering::Relaxed)).await.map_err(Unfed::Store)? {
            Since::Changes(changes) => changes,
            Since::TooMuch(newest) => vec![(newest, Change::Everything)],
        };
        // Of what changed several times the last one is told.
        let mut last: Vec<(&Topic, u64)> = Vec::new();
        for (number, change) in &changes {
            if let Change::Topic(topic) = change {
                match last.binary_search_by_key(&topic, |(topic, _)| topic) {
                    Ok(place) => last[place].1 = *number,
                    Err(place) => last.insert(place, (topic, *number)),
                }
            }
        }
        for (number, change) in &changes {
            let told = {
                let mut judged = lock(&place.judged);
                *judged = *number;
                match change {
                    Change::Topic(topic)
                        if last.binary_search(&(topic, *number)).is_ok() && wants.wants(topic) =>
                    {
                        vec![topic.clone()]
                    }
                    Change::Everything => wants.everything(),
                    Change::Topic(_) | Change::Nothing => Vec::new(),
                }
            };
            write_all(out, edition, &told, *number).await?;
            place.told.store(*number, Ordering::Relaxed);
        }
        Ok(!changes.is_empty())
    }

    /// Tells of resources that were asked for before they changed, although the changes were heard of first. Without
    /// numbers: the stream is beyond them.
    async fn make_up(&self, session: &Session, out: &Stream) -> Result<(), Unfed> {
        let Some(kin) = &session.kin else { return Ok(()) };
        let mut rest = kin.take_late();
        while let Some(late) = rest.pop() {
            let topic = Topic::Resource(late.uri.clone());
            match self.has_changed(&topic, late.since, late.until).await {
                Ok(true) => write(out, session.client.protocol_version, &topic, None).await?,
                Ok(false) => {}
                Err(error) => {
                    rest.push(late);
                    kin.give_back_late(rest);
                    return Err(Unfed::Store(error));
                }
            }
        }
        Ok(())
    }

    /// Whether something changed after one number and not after another.
    async fn has_changed(&self, topic: &Topic, mut after: u64, until: u64) -> Result<bool, StoreError> {
        while after < until {
            let Since::Changes(changes) = self.since(after).await? else { return Ok(true) };
            let mut between = changes.iter().take_while(|(number, _)| *number <= until);
            if between.any(|(_, change)| matches!(change, Change::Topic(one) if one == topic)) {
                return Ok(true);
            }
            match changes.last() {
                Some((last, _)) => after = *last,
                None => break,
            }
        }
        Ok(false)
    }
}

/// Why a stream was not told.
enum Unfed {
    Gone,
    Store(StoreError),
}

impl From<Gone> for Unfed {
    fn from(_: Gone) -> Unfed {
        Unfed::Gone
    }
}

async fn write_all(out: &Stream, edition: ProtocolVersion, topics: &[Topic], number: u64) -> Result<(), Gone> {
    for (index, topic) in topics.iter().enumerate() {
        // Whoever leaves in the middle hears it all again.
        let is_last = index + 1 == topics.len();
        write(out, edition, topic, is_last.then_some(number)).await?;
    }
    Ok(())
}

async fn write(out: &Stream, edition: ProtocolVersion, topic: &Topic, number: Option<u64>) -> Result<(), Gone> {
    let mut message = Vec::with_capacity(160);
    let notice = notice_of(topic.clone());
    if notice.is_some_and(|notice| codec::write_notification(&mut message, edition, &notice, None)) {
        out.send_as(message.into(), number).await?;
    }
    Ok(())
}
