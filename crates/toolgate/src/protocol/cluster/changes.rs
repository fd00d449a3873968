//! The change log in the store: one log for all nodes, in which each change has a number.
//!
//! Publishing a change never waits: it stays in the outbox of [`Subscriptions`] until it is in the log. Every node reads the
//! log, including its own changes, and notifies its subscribers. The standalone stream of a session reads the log at its own
//! pace, so its events have the numbers of the log, any node can resume after any of them, and a slow reader holds nothing in
//! memory. Where old changes were cut off the log, a reader is notified of everything once.

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

/// Maximum number of changes in the log.
const MAX_LOG_CHANGES: usize = 10_000;
/// Minimum time that changes are kept.
const MIN_LOG_TTL: Duration = Duration::from_secs(60 * 60);
/// How many changes each node keeps in memory, so that streams need not read the store.
const MAX_RECENT_CHANGES: usize = 1024;
/// How many changes are read at once.
const READ_PAGE_SIZE: usize = 256;
/// How often the log is read without a message that it has grown.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The change log, as seen from this node.
pub(super) struct ChangeLog {
    bus: Arc<ClusterBus>,
    subscriptions: Arc<Subscriptions>,
    log_key: Key,
    ttl: Duration,
    /// Oldest first.
    recent: Mutex<Vec<(u64, LogChange)>>,
    /// The number of the last change that subscribers of this node were notified of.
    last_seen: watch::Sender<u64>,
    wakeup: Notify,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LogChange {
    Topic(ChangeTopic),
    All,
    /// Keeps the log from expiring. Unknown entries are read as this one.
    Noop,
}

/// The changes after a position.
enum ChangesSince {
    Complete(Vec<(u64, LogChange)>),
    /// The log no longer has all of them. Its newest change has this number.
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
            // Task events have their own channel to all processes.
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
        // Longer than the idle timeout of a session, so that it can resume.
        let ttl = MIN_LOG_TTL.max(idle.saturating_mul(2));
        let (recent, wakeup) = (Mutex::default(), Notify::new());
        ChangeLog { bus, subscriptions, log_key, ttl, recent, last_seen: watch::Sender::new(0), wakeup }
    }

    /// The number of the last change that subscribers of this node were notified of.
    pub(super) fn last_seen(&self) -> u64 {
        *self.last_seen.borrow()
    }

    /// Reads the log soon, because it may have grown.
    pub(super) fn wake(&self) {
        self.wakeup.notify_one();
    }

    /// Skips all changes until now: subscribers of this node are notified of later ones.
    pub(super) async fn start(&self) -> Result<(), StoreError> {
        let page = with_store_timeout(self.bus.scoped_store.backend.read(&self.log_key, 0, 1)).await?;
        self.last_seen.send_replace(page.newest);
        Ok(())
    }

    /// Moves changes from the outbox to the log, and notifies subscribers of new changes in the log, until `shutdown` is
    /// cancelled.
    pub(super) async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let mut idle_time = Duration::ZERO;
        loop {
            let before = self.last_seen();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = self.subscriptions.wait_for_pending() => {}
                () = self.wakeup.notified() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => idle_time += POLL_INTERVAL,
            }
            let round = async {
                self.flush_outbox().await?;
                self.catch_up().await?;
                if idle_time > self.ttl / 2 {
                    idle_time = Duration::ZERO;
                    // The log must not expire and number changes from 1 again while clients hold old positions.
                    self.append(&LogChange::Noop).await?;
                }
                Ok::<(), StoreError>(())
            };
            if let Err(error) = round.await {
                tracing::debug!(%error, "changes could not be written to or read from the change log");
                if sleep_or_cancelled(retry_delay(), &shutdown).await {
                    return;
                }
            }
            if self.last_seen() != before {
                idle_time = Duration::ZERO;
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

    /// Moves changes from the outbox to the log. Those that cannot be appended stay in the outbox.
    async fn flush_outbox(&self) -> Result<(), StoreError> {
        let pending = self.subscriptions.take_pending();
        if pending == PendingChanges::default() {
            return Ok(());
        }
        let PendingChanges { topics: mut rest, is_everything } = pending;
        let flushed = async {
            if is_everything {
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

    /// Notifies subscribers of this node of new changes in the log.
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
                let excess = recent.len().saturating_sub(MAX_RECENT_CHANGES);
                recent.drain(..excess);
            }
            self.last_seen.send_replace(last);
        }
    }

    /// Returns the changes after `position`, from memory if possible.
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

    /// Whether a stream can be resumed after this number.
    pub(super) async fn is_valid_position(&self, position: u64) -> Result<bool, StoreError> {
        let seen = self.last_seen();
        if position <= seen {
            return Ok(true);
        }
        let page = with_store_timeout(self.bus.scoped_store.backend.read(&self.log_key, seen, 1)).await?;
        // A store that lost its last writes reuses their numbers; clients that saw these must not be rejected.
        Ok(position <= page.newest.saturating_add(MAX_LOG_CHANGES as u64))
    }

    /// Sends change notifications of a session on `out`, from `position` on. Ends when the reader is gone.
    pub(super) async fn send_to_session(&self, session: &Session, out: &Stream, position: &StreamPosition) {
        let mut seen = self.last_seen.subscribe();
        let Some(replica) = &session.replica else { return };
        loop {
            // Both before the log is read, so that no later change is missed.
            seen.borrow_and_update();
            let updated = replica.updated.notified();
            let round = async {
                self.send_late(session, out).await?;
                self.send_new(session, out, position).await
            };
            match round.await {
                Err(ChangeSendError::ReaderGone) => return,
                Err(ChangeSendError::Store(error)) => {
                    tracing::debug!(%error, "the change log could not be read");
                    tokio::time::sleep(retry_delay()).await;
                }
                Ok(true) => {}
                Ok(false) => tokio::select! {
                    _ = seen.changed() => {}
                    () = updated => {}
                },
            }
        }
    }

    /// Sends the changes after `position`. Returns false if there were none.
    async fn send_new(
        &self,
        session: &Session,
        out: &Stream,
        position: &StreamPosition,
    ) -> Result<bool, ChangeSendError> {
        let (version, subscriber) = (session.client.protocol_version, session.subscriber());
        let changes = match self
            .read_since(position.sent.load(Ordering::Relaxed))
            .await
            .map_err(ChangeSendError::Store)?
        {
            ChangesSince::Complete(changes) => changes,
            ChangesSince::Truncated(newest) => vec![(newest, LogChange::All)],
        };
        // Of several changes of a topic, only the last one is sent.
        let mut last: Vec<(&ChangeTopic, u64)> = Vec::new();
        for (number, change) in &changes {
            if let LogChange::Topic(topic) = change {
                match last.binary_search_by_key(&topic, |(topic, _)| topic) {
                    Ok(index) => last[index].1 = *number,
                    Err(index) => last.insert(index, (topic, *number)),
                }
            }
        }
        for (number, change) in &changes {
            let topics = {
                let mut evaluated = lock(&position.evaluated);
                *evaluated = *number;
                match change {
                    LogChange::Topic(topic)
                        if last.binary_search(&(topic, *number)).is_ok()
                            && subscriber.is_subscribed(topic) =>
                    {
                        vec![topic.clone()]
                    }
                    LogChange::All => subscriber.subscribed_topics(),
                    LogChange::Topic(_) | LogChange::Noop => Vec::new(),
                }
            };
            send_topics(out, version, &topics, *number).await?;
            position.sent.store(*number, Ordering::Relaxed);
        }
        Ok(!changes.is_empty())
    }

    /// Sends the notifications that are late: the resource changed after the session subscribed to it, but this node received
    /// the change before the subscription. They have no numbers, because the stream is past these changes.
    async fn send_late(&self, session: &Session, out: &Stream) -> Result<(), ChangeSendError> {
        let Some(replica) = &session.replica else { return Ok(()) };
        let mut rest = replica.take_late_subscriptions();
        while let Some(late) = rest.pop() {
            let topic = ChangeTopic::Resource(late.uri.clone());
            match self.has_changed(&topic, late.since, late.until).await {
                Ok(true) => send_topic(out, session.client.protocol_version, &topic, None).await?,
                Ok(false) => {}
                Err(error) => {
                    rest.push(late);
                    replica.restore_late_subscriptions(rest);
                    return Err(ChangeSendError::Store(error));
                }
            }
        }
        Ok(())
    }

    /// Whether a topic changed after `after` and up to `until`.
    async fn has_changed(&self, topic: &ChangeTopic, mut after: u64, until: u64) -> Result<bool, StoreError> {
        while after < until {
            let ChangesSince::Complete(changes) = self.read_since(after).await? else { return Ok(true) };
            let mut between = changes.iter().take_while(|(number, _)| *number <= until);
            if between.any(|(_, change)| matches!(change, LogChange::Topic(changed) if changed == topic)) {
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

/// Why a notification could not be sent.
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
    version: ProtocolVersion,
    topics: &[ChangeTopic],
    number: u64,
) -> Result<(), ReaderGone> {
    for (index, topic) in topics.iter().enumerate() {
        // Only the last one has the number: a client that disconnects in between gets all of them again.
        let is_last = index + 1 == topics.len();
        send_topic(out, version, topic, is_last.then_some(number)).await?;
    }
    Ok(())
}

async fn send_topic(
    out: &Stream,
    version: ProtocolVersion,
    topic: &ChangeTopic,
    number: Option<u64>,
) -> Result<(), ReaderGone> {
    let mut message = Vec::with_capacity(160);
    let notification = notification_for(topic.clone());
    if notification
        .is_some_and(|notification| codec::write_notification(&mut message, version, &notification, None))
    {
        out.send_numbered(message.into(), number).await?;
    }
    Ok(())
}
