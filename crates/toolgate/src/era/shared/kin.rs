//! What a copy of a session has beside the session itself: how old it is, and who reads its streams.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::lock;
use super::record::Record;
use crate::clock::Clock;
use crate::era::session::Session;
use crate::stream::Stream;

/// How many resources are made up for at once.
const LATE: usize = 2048;

/// See the module.
#[derive(Debug)]
pub(in crate::era) struct Kin {
    /// The node this copy is on.
    pub(in crate::era) node: Arc<str>,
    revision: Mutex<u64>,
    /// What could be heard when it was last compared with the store.
    pub(super) epoch: AtomicU64,
    /// When the store was last told that it lives, in milliseconds of uptime and one more; 0 if it was not.
    touched: AtomicU64,
    /// The last change that a standing stream here told of, once it has ended.
    pub(super) position: AtomicU64,
    seats: Mutex<Vec<Seat>>,
    /// Logs of calls that ended here, oldest first, with what they hold.
    pub(super) ended: Mutex<Vec<(u64, usize)>>,
    late: Mutex<Vec<Late>>,
    /// Woken when something was added to these.
    pub(super) stirred: Notify,
}

/// One who reads a stream of the session here.
#[derive(Debug)]
struct Seat {
    stream: u64,
    reader: Box<str>,
    /// Everybody has been told of it: whoever is told of after it came after it.
    is_announced: bool,
    out: Weak<Stream>,
    place: Arc<Place>,
}

/// How far a standing stream is.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// The last change of which it was decided whether the session wants to hear of it. Held while that is decided, and
    /// while what it wants changes.
    pub(super) judged: Mutex<u64>,
    /// The last change that was told of.
    pub(super) told: AtomicU64,
}

/// A resource that a session wants to hear of since one change, while a stream is beyond another.
#[derive(Debug)]
pub(super) struct Late {
    pub(super) uri: Box<str>,
    pub(super) since: u64,
    pub(super) until: u64,
}

impl Place {
    /// Everything up to this change was told.
    pub(super) fn begin(&self, position: u64) {
        *lock(&self.judged) = position;
        self.told.store(position, Ordering::Relaxed);
    }
}

impl Kin {
    pub(super) fn new(node: Arc<str>, record: &Record) -> Kin {
        Kin {
            node,
            revision: Mutex::new(record.revision),
            epoch: AtomicU64::new(0),
            touched: AtomicU64::new(0),
            position: AtomicU64::new(record.position),
            seats: Mutex::default(),
            ended: Mutex::default(),
            late: Mutex::default(),
            stirred: Notify::new(),
        }
    }

    /// Whether the store was last told so long ago that it lives.
    pub(super) fn is_due(&self, now: Duration, every: Duration) -> bool {
        let touched = self.touched.load(Ordering::Relaxed);
        touched == 0 || now.saturating_sub(Duration::from_millis(touched - 1)) >= every
    }

    /// Whether nobody here has used it: then the store may not keep it for long.
    pub(super) fn is_unused(&self) -> bool {
        self.touched.load(Ordering::Relaxed) == 0
    }

    /// The store is being told. What was noted before, for when that fails.
    pub(super) fn note_touched(&self, now: Duration) -> u64 {
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.touched.swap(now.saturating_add(1), Ordering::Relaxed)
    }

    /// The store could not be told: it is as due as it was.
    pub(super) fn take_back_touch(&self, before: u64) {
        self.touched.store(before, Ordering::Relaxed);
    }

    /// Whether any of its streams is read here.
    pub(in crate::era) fn is_read(&self) -> bool {
        lock(&self.seats).iter().any(|seat| seat.is_taken())
    }

    /// How far its standing stream is, if it is read here.
    fn standing(&self) -> Option<Arc<Place>> {
        let seats = lock(&self.seats);
        let seat = seats.iter().find(|seat| seat.stream == 0 && seat.is_taken())?;
        Some(Arc::clone(&seat.place))
    }

    /// Somebody reads a stream here from now on. Whoever did so before leaves; where a standing stream was, what it had
    /// told.
    pub(super) fn sit(
        &self,
        stream: u64,
        reader: &str,
        out: &Arc<Stream>,
        place: &Arc<Place>,
        is_announced: bool,
    ) -> Option<u64> {
        let mut seats = lock(&self.seats);
        seats.retain(Seat::is_taken);
        let before =
            seats.iter().position(|seat| seat.stream == stream).map(|place| seats.swap_remove(place));
        seats.push(Seat {
            stream,
            reader: reader.into(),
            is_announced,
            out: Arc::downgrade(out),
            place: Arc::clone(place),
        });
        let before = before?;
        let out = before.out.upgrade()?;
        let told = out.behind().unwrap_or_else(|| before.place.told.load(Ordering::Relaxed));
        out.dismiss();
        Some(told)
    }

    /// Somebody reads a stream of this session, here or elsewhere.
    pub(super) fn hear_reader(&self, stream: u64, reader: &str) {
        let mut seats = lock(&self.seats);
        let Some(place) = seats.iter().position(|seat| seat.stream == stream) else { return };
        let seat = &mut seats[place];
        match (*seat.reader == *reader, seat.is_announced) {
            (true, _) => seat.is_announced = true,
            // It was there before ours, which is still to be told of.
            (false, false) => {}
            (false, true) => {
                let seat = seats.swap_remove(place);
                drop(seats);
                if let Some(out) = seat.out.upgrade() {
                    out.dismiss();
                }
            }
        }
    }

    /// Resources that were asked for while newer changes may have been told already.
    pub(super) fn take_late(&self) -> Vec<Late> {
        std::mem::take(&mut *lock(&self.late))
    }

    pub(super) fn give_back_late(&self, rest: Vec<Late>) {
        lock(&self.late).extend(rest);
    }
}

impl Seat {
    fn is_taken(&self) -> bool {
        self.out.upgrade().is_some_and(|out| out.is_read())
    }
}

impl Session {
    /// What is remembered of it is this now, unless something newer is known.
    pub(super) fn adapt(&self, record: &Record, seen: u64) {
        let Some(kin) = &self.kin else { return };
        {
            let mut revision = lock(&kin.revision);
            if record.revision <= *revision {
                return;
            }
            *revision = record.revision;
            self.set_level(record.level());
            let place = kin.standing();
            let judged = place.as_ref().map(|place| lock(&place.judged));
            let added = self.subscriber().set_uris(&record.uris);
            let mut late = lock(&kin.late);
            match judged {
                Some(judged) => {
                    late.extend(added.into_iter().map(|uri| Late { uri, since: seen, until: *judged }));
                    // Whoever asks for more than that while it does not read is told when they change again.
                    late.truncate(LATE);
                }
                None => late.clear(),
            }
        }
        kin.stirred.notify_waiters();
    }

    /// It was compared with the store.
    pub(super) fn renew(&self, epoch: u64, clock: &Clock) {
        if let Some(kin) = &self.kin {
            kin.epoch.store(epoch, Ordering::Relaxed);
        }
        self.touch(clock);
    }
}
