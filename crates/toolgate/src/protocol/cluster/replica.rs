//! What a copy of a session has beside the session itself: how old it is, and who reads its streams.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::record::SessionRecord;
use crate::protocol::session::Session;
use crate::stream::Stream;
use crate::util::clock::Clock;
use crate::util::lock;

/// How many resources are made up for at once.
const MAX_LATE_SUBSCRIPTIONS: usize = 2048;

/// See the module.
#[derive(Debug)]
pub(in crate::protocol) struct SessionReplica {
    /// The node this copy is on.
    pub(in crate::protocol) node: Arc<str>,
    revision: Mutex<u64>,
    /// What could be heard when it was last compared with the store.
    pub(super) epoch: AtomicU64,
    /// When the store was last told that it lives, in milliseconds of uptime and one more; 0 if it was not.
    last_touch: AtomicU64,
    /// The last change that a standing stream here told of, once it has ended.
    pub(super) position: AtomicU64,
    readers: Mutex<Vec<AttachedReader>>,
    /// Logs of calls that ended here, oldest first, with what they hold.
    pub(super) ended_logs: Mutex<Vec<(u64, usize)>>,
    late_subscriptions: Mutex<Vec<LateSubscription>>,
    /// Woken when something was added to these.
    pub(super) updated: Notify,
}

/// One who reads a stream of the session here.
#[derive(Debug)]
struct AttachedReader {
    stream: u64,
    reader_id: Box<str>,
    /// Everybody has been told of it: whoever is told of after it came after it.
    is_announced: bool,
    out: Weak<Stream>,
    position: Arc<StreamPosition>,
}

/// How far a standing stream is.
#[derive(Debug, Default)]
pub(super) struct StreamPosition {
    /// The last change of which it was decided whether the session wants to hear of it. Held while that is decided, and
    /// while what it wants changes.
    pub(super) evaluated: Mutex<u64>,
    /// The last change that was told of.
    pub(super) sent: AtomicU64,
}

/// A resource that a session wants to hear of since one change, while a stream is beyond another.
#[derive(Debug)]
pub(super) struct LateSubscription {
    pub(super) uri: Box<str>,
    pub(super) since: u64,
    pub(super) until: u64,
}

impl StreamPosition {
    /// Everything up to this change was told.
    pub(super) fn reset(&self, position: u64) {
        *lock(&self.evaluated) = position;
        self.sent.store(position, Ordering::Relaxed);
    }
}

impl SessionReplica {
    pub(super) fn new(node: Arc<str>, record: &SessionRecord) -> SessionReplica {
        SessionReplica {
            node,
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

    /// Whether the store was last told so long ago that it lives.
    pub(super) fn is_touch_due(&self, now: Duration, every: Duration) -> bool {
        let touched = self.last_touch.load(Ordering::Relaxed);
        touched == 0 || now.saturating_sub(Duration::from_millis(touched - 1)) >= every
    }

    /// Whether nobody here has used it: then the store may not keep it for long.
    pub(super) fn is_unused(&self) -> bool {
        self.last_touch.load(Ordering::Relaxed) == 0
    }

    /// The store is being told. What was noted before, for when that fails.
    pub(super) fn mark_touched(&self, now: Duration) -> u64 {
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.last_touch.swap(now.saturating_add(1), Ordering::Relaxed)
    }

    /// The store could not be told: it is as due as it was.
    pub(super) fn undo_touch(&self, before: u64) {
        self.last_touch.store(before, Ordering::Relaxed);
    }

    /// Whether any of its streams is read here.
    pub(in crate::protocol) fn has_reader(&self) -> bool {
        lock(&self.readers).iter().any(|seat| seat.is_active())
    }

    /// How far its standing stream is, if it is read here.
    fn standalone_position(&self) -> Option<Arc<StreamPosition>> {
        let seats = lock(&self.readers);
        let seat = seats.iter().find(|seat| seat.stream == 0 && seat.is_active())?;
        Some(Arc::clone(&seat.position))
    }

    /// Somebody reads a stream here from now on. Whoever did so before leaves; where a standing stream was, what it had
    /// told.
    pub(super) fn attach_reader(
        &self,
        stream: u64,
        reader: &str,
        out: &Arc<Stream>,
        place: &Arc<StreamPosition>,
        is_announced: bool,
    ) -> Option<u64> {
        let mut seats = lock(&self.readers);
        seats.retain(AttachedReader::is_active);
        let before =
            seats.iter().position(|seat| seat.stream == stream).map(|place| seats.swap_remove(place));
        seats.push(AttachedReader {
            stream,
            reader_id: reader.into(),
            is_announced,
            out: Arc::downgrade(out),
            position: Arc::clone(place),
        });
        let before = before?;
        let out = before.out.upgrade()?;
        let told = out.resume_position().unwrap_or_else(|| before.position.sent.load(Ordering::Relaxed));
        out.detach_reader();
        Some(told)
    }

    /// Somebody reads a stream of this session, here or elsewhere.
    pub(super) fn handle_reader_attached(&self, stream: u64, reader: &str) {
        let mut seats = lock(&self.readers);
        let Some(place) = seats.iter().position(|seat| seat.stream == stream) else { return };
        let seat = &mut seats[place];
        match (*seat.reader_id == *reader, seat.is_announced) {
            (true, _) => seat.is_announced = true,
            // It was there before ours, which is still to be told of.
            (false, false) => {}
            (false, true) => {
                let seat = seats.swap_remove(place);
                drop(seats);
                if let Some(out) = seat.out.upgrade() {
                    out.detach_reader();
                }
            }
        }
    }

    /// Resources that were asked for while newer changes may have been told already.
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
    /// What is remembered of it is this now, unless something newer is known.
    pub(super) fn apply_record(&self, record: &SessionRecord, seen: u64) {
        let Some(kin) = &self.replica else { return };
        {
            let mut revision = lock(&kin.revision);
            if record.revision <= *revision {
                return;
            }
            *revision = record.revision;
            self.set_level(record.level());
            let place = kin.standalone_position();
            let judged = place.as_ref().map(|place| lock(&place.evaluated));
            let added = self.subscriber().set_uris(&record.uris);
            let mut late = lock(&kin.late_subscriptions);
            match judged {
                Some(judged) => {
                    late.extend(added.into_iter().map(|uri| LateSubscription {
                        uri,
                        since: seen,
                        until: *judged,
                    }));
                    // Whoever asks for more than that while it does not read is told when they change again.
                    late.truncate(MAX_LATE_SUBSCRIPTIONS);
                }
                None => late.clear(),
            }
        }
        kin.updated.notify_waiters();
    }

    /// It was compared with the store.
    pub(super) fn mark_fresh(&self, epoch: u64, clock: &Clock) {
        if let Some(kin) = &self.replica {
            kin.epoch.store(epoch, Ordering::Relaxed);
        }
        self.touch(clock);
    }
}
