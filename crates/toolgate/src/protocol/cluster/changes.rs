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

use super::replica::StreamPosition;
use crate::cluster_bus::{ClusterBus, NodeMessage, retry_delay, sleep_or_cancelled, with_store_timeout};
use crate::protocol::notifications::notification_for;
use crate::protocol::session::Session;
use crate::store::{Key, StoreError};
use crate::stream::{ReaderGone, Stream};
use crate::subscriptions::{ChangeTopic, PendingChanges, Subscriptions};
use crate::util::lock;

/// How many changes are kept.
const MAX_LOG_CHANGES: usize = 10_000;
/// How long they are kept at least.
const MIN_LOG_TTL: Duration = Duration::from_secs(60 * 60);
/// How many of them each node remembers, so that not every stream asks the store.
const MAX_RECENT_CHANGES: usize = 1024;
/// How many are read at once.
const READ_PAGE_SIZE: usize = 256;
/// How often the log is looked at though nobody said that it grew.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The log of changes, as seen from this node.
pub(super) struct ChangeLog {
    bus: Arc<ClusterBus>,
    subscriptions: Arc<Subscriptions>,
    log_key: Key,
    ttl: Duration,
    /// Oldest first.
    recent: Mutex<Vec<(u64, LogChange)>>,
    /// The number of the last change that was told here.
    last_seen: watch::Sender<u64>,
    wakeup: Notify,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LogChange {
    Topic(ChangeTopic),
    All,
    /// It only keeps the log alive, or is not understood here.
    Noop,
}

/// What has changed since somewhere.
enum ChangesSince {
    Complete(Vec<(u64, LogChange)>),
    /// More than is known. It is over with this number.
    Truncated(u64),
}

impl LogChange {
    fn encode(&self) -> Bytes {
        match self {
            LogChange::Topic(ChangeTopic::Tools) => Bytes::from_static(b"tools"),
            LogChange::Topic(ChangeTopic::Prompts) => Bytes::from_static(b"prompts"),
            LogChange::Topic(ChangeTopic::Resources) => Bytes::from_static(b"resources"),
            LogChange::Topic(ChangeTopic::Resource(uri)) => format!("uri {uri}").into(),
            LogChange::Topic(ChangeTopic::Roots) => Bytes::from_static(b"roots"),
            LogChange::All => Bytes::from_static(b"everything"),
            // Of tasks every process hears by itself.
            LogChange::Topic(ChangeTopic::Task { .. }) => Bytes::from_static(b"nothing"),
            LogChange::Noop => Bytes::from_static(b"nothing"),
        }
    }

    fn decode(bytes: &[u8]) -> LogChange {
        match std::str::from_utf8(bytes) {
            Ok("tools") => LogChange::Topic(ChangeTopic::Tools),
            Ok("prompts") => LogChange::Topic(ChangeTopic::Prompts),
            Ok("resources") => LogChange::Topic(ChangeTopic::Resources),
            Ok("roots") => LogChange::Topic(ChangeTopic::Roots),
            Ok("everything") => LogChange::All,
            Ok(text) => text
                .strip_prefix("uri ")
                .map_or(LogChange::Noop, |uri| LogChange::Topic(ChangeTopic::Resource(uri.into()))),
            Err(_) => LogChange::Noop,
        }
    }
}

impl ChangeLog {
    pub(super) fn new(bus: Arc<ClusterBus>, subscriptions: Arc<Subscriptions>, idle: Duration) -> ChangeLog {
        let log_key = bus.scoped_store.key("changes", "log");
        // As long as a session that says nothing: it may come back to where it was.
        let ttl = MIN_LOG_TTL.max(idle.saturating_mul(2));
        let (recent, wakeup) = (Mutex::default(), Notify::new());
        ChangeLog { bus, subscriptions, log_key, ttl, recent, last_seen: watch::Sender::new(0), wakeup }
    }

    /// The number of the last change that was told here.
    pub(super) fn last_seen(&self) -> u64 {
        *self.last_seen.borrow()
    }

    /// The log may have grown.
    pub(super) fn wake(&self) {
        self.wakeup.notify_one();
    }

    /// Whoever listens here hears of what changes from now on.
    pub(super) async fn start(&self) -> Result<(), StoreError> {
        let page = with_store_timeout(self.bus.scoped_store.backend.read(&self.log_key, 0, 1)).await?;
        self.last_seen.send_replace(page.newest);
        Ok(())
    }

    /// Brings changes to the log and from there to those who listen, until `over` falls.
    pub(super) async fn run(self: Arc<Self>, over: CancellationToken) {
        let mut quiet = Duration::ZERO;
        loop {
            let before = self.last_seen();
            tokio::select! {
                biased;
                () = over.cancelled() => return,
                () = self.subscriptions.wait_for_pending() => {}
                () = self.wakeup.notified() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => quiet += POLL_INTERVAL,
            }
            let tended = async {
                self.flush_outbox().await?;
                self.catch_up().await?;
                if quiet > self.ttl / 2 {
                    quiet = Duration::ZERO;
                    // Numbers must not begin again while somebody remembers old ones.
                    self.append(&LogChange::Noop).await?;
                }
                Ok::<(), StoreError>(())
            };
            if let Err(error) = tended.await {
                tracing::debug!(%error, "changes cannot be brought to other nodes yet");
                if sleep_or_cancelled(retry_delay(), &over).await {
                    return;
                }
            }
            if self.last_seen() != before {
                quiet = Duration::ZERO;
            }
        }
    }

    async fn append(&self, change: &LogChange) -> Result<u64, StoreError> {
        with_store_timeout(self.bus.scoped_store.backend.append(
            &self.log_key,
            change.encode(),
            self.ttl,
            MAX_LOG_CHANGES,
        ))
        .await
    }

    /// What lies in the outbox goes to the log; what finds no way there stays.
    async fn flush_outbox(&self) -> Result<(), StoreError> {
        let pending = self.subscriptions.take_pending();
        if pending == PendingChanges::default() {
            return Ok(());
        }
        let PendingChanges { topics: mut rest, is_everything: everything } = pending;
        let flushed = async {
            if everything {
                self.append(&LogChange::All).await.inspect_err(|_| {
                    self.subscriptions
                        .restore_pending(PendingChanges { is_everything: true, ..PendingChanges::default() });
                })?;
            }
            while let Some(topic) = rest.pop_first() {
                let change = LogChange::Topic(topic);
                if let Err(error) = self.append(&change).await {
                    if let LogChange::Topic(topic) = change {
                        rest.insert(topic);
                    }
                    return Err(error);
                }
            }
            Ok(())
        };
        let flushed = flushed.await;
        self.subscriptions.restore_pending(PendingChanges { topics: rest, is_everything: false });
        flushed?;
        self.bus.broadcast(&NodeMessage::ChangesAppended).await
    }

    /// Tells those who listen here what is new in the log.
    async fn catch_up(&self) -> Result<(), StoreError> {
        loop {
            let seen = self.last_seen();
            let page =
                with_store_timeout(self.bus.scoped_store.backend.read(&self.log_key, seen, READ_PAGE_SIZE))
                    .await?;
            if page.newest < seen || page.oldest > seen + 1 {
                lock(&self.recent).clear();
                self.subscriptions.notify_everything();
                self.last_seen.send_replace(page.newest);
                return Ok(());
            }
            let Some((last, _)) = page.entries.last() else { return Ok(()) };
            let last = *last;
            {
                let mut recent = lock(&self.recent);
                for (number, bytes) in &page.entries {
                    let change = LogChange::decode(bytes);
                    match &change {
                        LogChange::Topic(topic) => self.subscriptions.notify(topic),
                        LogChange::All => self.subscriptions.notify_everything(),
                        LogChange::Noop => {}
                    }
                    recent.push((*number, change));
                }
                let over = recent.len().saturating_sub(MAX_RECENT_CHANGES);
                recent.drain(..over);
            }
            self.last_seen.send_replace(last);
        }
    }

    /// What has changed after `position`, from memory if it is there.
    async fn read_since(&self, position: u64) -> Result<ChangesSince, StoreError> {
        if position == self.last_seen() {
            return Ok(ChangesSince::Complete(Vec::new()));
        }
        {
            let recent = lock(&self.recent);
            let newest = recent.last().map_or(0, |(number, _)| *number);
            if let Some((oldest, _)) = recent.first()
                && (*oldest..=newest).contains(&(position + 1))
            {
                let index = usize::try_from(position + 1 - *oldest).unwrap_or(usize::MAX);
                return Ok(ChangesSince::Complete(
                    recent.iter().skip(index).take(READ_PAGE_SIZE).cloned().collect(),
                ));
            }
        }
        let page =
            with_store_timeout(self.bus.scoped_store.backend.read(&self.log_key, position, READ_PAGE_SIZE))
                .await?;
        if page.newest < position || page.oldest > position + 1 {
            return Ok(ChangesSince::Truncated(page.newest));
        }
        let entries = page.entries.iter().map(|(number, bytes)| (*number, LogChange::decode(bytes)));
        Ok(ChangesSince::Complete(entries.collect()))
    }

    /// Whether somebody can go on behind this number.
    pub(super) async fn is_valid_position(&self, position: u64) -> Result<bool, StoreError> {
        let seen = self.last_seen();
        if position <= seen {
            return Ok(true);
        }
        let page = with_store_timeout(self.bus.scoped_store.backend.read(&self.log_key, seen, 1)).await?;
        // A store that lost its last moments counts them again: whoever saw them must not be locked out.
        Ok(position <= page.newest.saturating_add(MAX_LOG_CHANGES as u64))
    }

    /// Tells a session of changes on `out`, from behind `place`. Ends when nobody reads any more.
    pub(super) async fn send_to_session(&self, session: &Session, out: &Stream, place: &StreamPosition) {
        let mut seen = self.last_seen.subscribe();
        let Some(kin) = &session.replica else { return };
        loop {
            // Both before the look: what comes after it is not missed.
            seen.borrow_and_update();
            let stirred = kin.updated.notified();
            let told = async {
                self.send_late(session, out).await?;
                self.send_new(session, out, place).await
            };
            match told.await {
                Err(ChangeSendError::ReaderGone) => return,
                Err(ChangeSendError::Store(error)) => {
                    tracing::debug!(%error, "changes cannot be read yet");
                    tokio::time::sleep(retry_delay()).await;
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
    async fn send_new(
        &self,
        session: &Session,
        out: &Stream,
        place: &StreamPosition,
    ) -> Result<bool, ChangeSendError> {
        let (edition, wants) = (session.client.protocol_version, session.subscriber());
        let changes = match self
            .read_since(place.sent.load(Ordering::Relaxed))
            .await
            .map_err(ChangeSendError::Store)?
        {
            ChangesSince::Complete(changes) => changes,
            ChangesSince::Truncated(newest) => vec![(newest, LogChange::All)],
        };
        // Of what changed several times the last one is told.
        let mut last: Vec<(&ChangeTopic, u64)> = Vec::new();
        for (number, change) in &changes {
            if let LogChange::Topic(topic) = change {
                match last.binary_search_by_key(&topic, |(topic, _)| topic) {
                    Ok(place) => last[place].1 = *number,
                    Err(place) => last.insert(place, (topic, *number)),
                }
            }
        }
        for (number, change) in &changes {
            let told = {
                let mut judged = lock(&place.evaluated);
                *judged = *number;
                match change {
                    LogChange::Topic(topic)
                        if last.binary_search(&(topic, *number)).is_ok() && wants.is_subscribed(topic) =>
                    {
                        vec![topic.clone()]
                    }
                    LogChange::All => wants.subscribed_topics(),
                    LogChange::Topic(_) | LogChange::Noop => Vec::new(),
                }
            };
            send_topics(out, edition, &told, *number).await?;
            place.sent.store(*number, Ordering::Relaxed);
        }
        Ok(!changes.is_empty())
    }

    /// Tells of resources that were asked for before they changed, although the changes were heard of first. Without
    /// numbers: the stream is beyond them.
    async fn send_late(&self, session: &Session, out: &Stream) -> Result<(), ChangeSendError> {
        let Some(kin) = &session.replica else { return Ok(()) };
        let mut rest = kin.take_late_subscriptions();
        while let Some(late) = rest.pop() {
            let topic = ChangeTopic::Resource(late.uri.clone());
            match self.has_changed(&topic, late.since, late.until).await {
                Ok(true) => send_topic(out, session.client.protocol_version, &topic, None).await?,
                Ok(false) => {}
                Err(error) => {
                    rest.push(late);
                    kin.restore_late_subscriptions(rest);
                    return Err(ChangeSendError::Store(error));
                }
            }
        }
        Ok(())
    }

    /// Whether something changed after one number and not after another.
    async fn has_changed(&self, topic: &ChangeTopic, mut after: u64, until: u64) -> Result<bool, StoreError> {
        while after < until {
            let ChangesSince::Complete(changes) = self.read_since(after).await? else { return Ok(true) };
            let mut between = changes.iter().take_while(|(number, _)| *number <= until);
            if between.any(|(_, change)| matches!(change, LogChange::Topic(one) if one == topic)) {
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
enum ChangeSendError {
    ReaderGone,
    Store(StoreError),
}

impl From<ReaderGone> for ChangeSendError {
    fn from(_: ReaderGone) -> ChangeSendError {
        ChangeSendError::ReaderGone
    }
}

async fn send_topics(
    out: &Stream,
    edition: ProtocolVersion,
    topics: &[ChangeTopic],
    number: u64,
) -> Result<(), ReaderGone> {
    for (index, topic) in topics.iter().enumerate() {
        // Whoever leaves in the middle hears it all again.
        let is_last = index + 1 == topics.len();
        send_topic(out, edition, topic, is_last.then_some(number)).await?;
    }
    Ok(())
}

async fn send_topic(
    out: &Stream,
    edition: ProtocolVersion,
    topic: &ChangeTopic,
    number: Option<u64>,
) -> Result<(), ReaderGone> {
    let mut message = Vec::with_capacity(160);
    let notice = notification_for(topic.clone());
    if notice.is_some_and(|notice| codec::write_notification(&mut message, edition, &notice, None)) {
        out.send_numbered(message.into(), number).await?;
    }
    Ok(())
}
