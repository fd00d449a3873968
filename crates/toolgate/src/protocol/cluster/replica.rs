//! The part of a session that only shared sessions have: how fresh the local replica is, and who reads its streams.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::record::SessionRecord;
use crate::cluster_bus::ClusterBus;
use crate::protocol::session::Session;
use crate::stream::Stream;
use crate::util::clock::Clock;
use crate::util::lock;

/// Maximum number of late subscriptions that wait to be checked.
const MAX_LATE_SUBSCRIPTIONS: usize = 2048;

/// The state of a session's replica on this node.
#[derive(Debug)]
pub(in crate::protocol) struct SessionReplica {
    pub(in crate::protocol) bus: Arc<ClusterBus>,
    revision: Mutex<u64>,
    /// The epoch in which it was last loaded from the store.
    pub(super) epoch: AtomicU64,
    /// Time of the last touch in the store, in milliseconds of uptime plus one; 0 if there was none.
    last_touch: AtomicU64,
    /// The last change that an ended standalone stream of this node has sent.
    pub(super) position: AtomicU64,
    readers: Mutex<Vec<AttachedReader>>,
    /// Logs of calls that ended on this node, oldest first, with their sizes in bytes.
    pub(super) ended_logs: Mutex<Vec<(u64, usize)>>,
    late_subscriptions: Mutex<Vec<LateSubscription>>,
    /// Notified when the record was updated, so that late subscriptions may exist.
    pub(super) updated: Notify,
}

/// A reader of one of the session's streams on this node.
#[derive(Debug)]
struct AttachedReader {
    stream: u64,
    reader_id: Box<str>,
    announcement: ReaderAnnouncement,
    out: Weak<Stream>,
    position: Arc<StreamPosition>,
}

/// Whether a reader was announced to all nodes. A reader that is announced later is newer, and replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReaderAnnouncement {
    Pending,
    Done,
}

/// The position of a standalone stream in the change log.
#[derive(Debug, Default)]
pub(super) struct StreamPosition {
    /// The last change that was matched with the subscriptions of the session. Locked while a change is matched, and while the
    /// subscriptions change.
    pub(super) evaluated: Mutex<u64>,
    /// The last change that was sent.
    pub(super) sent: AtomicU64,
}

/// A resource to which the session subscribed at change `since`, which this node learned when its stream was at `until`:
/// changes in between have to be sent late.
#[derive(Debug)]
pub(super) struct LateSubscription {
    pub(super) uri: Box<str>,
    pub(super) since: u64,
    pub(super) until: u64,
}

impl StreamPosition {
    /// Sets the position: everything up to this change was sent.
    pub(super) fn reset(&self, position: u64) {
        *lock(&self.evaluated) = position;
        self.sent.store(position, Ordering::Relaxed);
    }
}

impl SessionReplica {
    pub(super) fn new(bus: Arc<ClusterBus>, record: &SessionRecord) -> SessionReplica {
        SessionReplica {
            bus,
            revision: Mutex::new(record.revision),
            epoch: AtomicU64::new(0),
            last_touch: AtomicU64::new(0),
            position: AtomicU64::new(record.position),
            readers: Mutex::default(),
            ended_logs: Mutex::default(),
            late_subscriptions: Mutex::default(),
            updated: Notify::new(),
        }
    }

    /// Whether the last touch in the store is at least `interval` ago.
    pub(super) fn is_touch_due(&self, now: Duration, interval: Duration) -> bool {
        let last_touch = self.last_touch.load(Ordering::Relaxed);
        last_touch == 0 || now.saturating_sub(Duration::from_millis(last_touch - 1)) >= interval
    }

    /// Whether this node has not used it: the store may then keep it for a short time only.
    pub(super) fn is_unused(&self) -> bool {
        self.last_touch.load(Ordering::Relaxed) == 0
    }

    /// Records a touch that is about to happen. Returns the previous value, for [`SessionReplica::undo_touch`].
    pub(super) fn mark_touched(&self, now: Duration) -> u64 {
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.last_touch.swap(now.saturating_add(1), Ordering::Relaxed)
    }

    /// Takes a touch back that failed.
    pub(super) fn undo_touch(&self, before: u64) {
        self.last_touch.store(before, Ordering::Relaxed);
    }

    /// Whether any of its streams is read on this node.
    pub(in crate::protocol) fn has_reader(&self) -> bool {
        lock(&self.readers).iter().any(AttachedReader::is_active)
    }

    /// The position of its standalone stream, if that is read on this node.
    fn standalone_position(&self) -> Option<Arc<StreamPosition>> {
        let readers = lock(&self.readers);
        let reader = readers.iter().find(|reader| reader.stream == 0 && reader.is_active())?;
        Some(Arc::clone(&reader.position))
    }

    /// Adds a reader of a stream, and detaches the previous one on this node. Returns the position of the previous one.
    pub(super) fn attach_reader(
        &self,
        stream: u64,
        reader_id: &str,
        out: &Arc<Stream>,
        position: &Arc<StreamPosition>,
        announcement: ReaderAnnouncement,
    ) -> Option<u64> {
        let mut readers = lock(&self.readers);
        readers.retain(AttachedReader::is_active);
        let previous =
            readers.iter().position(|reader| reader.stream == stream).map(|index| readers.swap_remove(index));
        readers.push(AttachedReader {
            stream,
            reader_id: reader_id.into(),
            announcement,
            out: Arc::downgrade(out),
            position: Arc::clone(position),
        });
        let previous = previous?;
        let out = previous.out.upgrade()?;
        let sent = out.resume_position().unwrap_or_else(|| previous.position.sent.load(Ordering::Relaxed));
        out.detach_reader();
        Some(sent)
    }

    /// Handles the announcement of a reader, on this node or another: it replaces a reader that was announced before.
    pub(super) fn handle_reader_attached(&self, stream: u64, reader_id: &str) {
        let mut readers = lock(&self.readers);
        let Some(index) = readers.iter().position(|reader| reader.stream == stream) else { return };
        let reader = &mut readers[index];
        match (*reader.reader_id == *reader_id, reader.announcement) {
            (true, _) => reader.announcement = ReaderAnnouncement::Done,
            // It was attached before the reader of this node, whose announcement will follow.
            (false, ReaderAnnouncement::Pending) => {}
            (false, ReaderAnnouncement::Done) => {
                let replaced = readers.swap_remove(index);
                drop(readers);
                if let Some(out) = replaced.out.upgrade() {
                    out.detach_reader();
                }
            }
        }
    }

    /// Takes the late subscriptions.
    pub(super) fn take_late_subscriptions(&self) -> Vec<LateSubscription> {
        std::mem::take(&mut *lock(&self.late_subscriptions))
    }

    pub(super) fn restore_late_subscriptions(&self, rest: Vec<LateSubscription>) {
        lock(&self.late_subscriptions).extend(rest);
    }
}

impl AttachedReader {
    fn is_active(&self) -> bool {
        self.out.upgrade().is_some_and(|out| out.has_reader())
    }
}

impl Session {
    /// Applies a record from the store, unless a newer one was applied. `seen`: the last change that had been sent when
    /// the record was changed.
    pub(super) fn apply_record(&self, record: &SessionRecord, seen: u64) {
        let Some(replica) = &self.replica else { return };
        {
            let mut revision = lock(&replica.revision);
            if record.revision <= *revision {
                return;
            }
            *revision = record.revision;
            self.set_level(record.level());
            let position = replica.standalone_position();
            let evaluated = position.as_ref().map(|position| lock(&position.evaluated));
            let added = self.subscriber().set_uris(&record.uris);
            let mut late = lock(&replica.late_subscriptions);
            match evaluated {
                Some(evaluated) => {
                    late.extend(added.into_iter().map(|uri| LateSubscription {
                        uri,
                        since: seen,
                        until: *evaluated,
                    }));
                    // Beyond the limit, a client that does not read is notified of the next change only.
                    late.truncate(MAX_LATE_SUBSCRIPTIONS);
                }
                None => late.clear(),
            }
        }
        replica.updated.notify_waiters();
    }

    /// Records that it was loaded from the store in this epoch.
    pub(super) fn mark_fresh(&self, epoch: u64, clock: &Clock) {
        if let Some(replica) = &self.replica {
            replica.epoch.store(epoch, Ordering::Relaxed);
        }
        self.touch(clock);
    }
}
