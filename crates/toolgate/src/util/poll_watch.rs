//! Detection of futures that keep the thread of the runtime that polls them.
//!
//! Reading the clock twice in every poll would be a noticeable part of a short call. So the first polls are timed, which finds
//! a handler that always blocks when it is first called, and a sample of later ones. The others cost a thread-local counter.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use super::clock::Clock;

/// Longest time that a poll should take.
const MAX_POLL: Duration = Duration::from_millis(100);
/// Number of first polls that are all timed.
const TIMED_POLLS: u32 = 100;
/// Of later polls, one of this many is timed.
const SAMPLE_INTERVAL: u8 = 32;

thread_local! {
    /// Counts the polls of this thread, to sample them.
    static POLL_COUNT: Cell<u8> = const { Cell::new(0) };
}

/// Times polls, and reports the first slow one in the log.
#[derive(Debug, Default)]
pub(crate) struct PollWatch {
    timed_polls: AtomicU32,
    is_reported: AtomicBool,
}

impl PollWatch {
    /// Begins a poll. Returns its start, if it is timed.
    #[inline]
    pub(crate) fn begin(&self) -> Option<Clock> {
        self.is_due().then(Clock::system)
    }

    /// Ends a poll. `kind` and `name` identify the handler in the log.
    #[inline]
    pub(crate) fn end(&self, start: Option<Clock>, kind: &str, name: &str) {
        if let Some(duration) = start.map(|start| start.uptime()).filter(|duration| *duration > MAX_POLL) {
            self.report(kind, name, duration);
        }
    }

    /// Whether the next poll is timed.
    #[inline]
    fn is_due(&self) -> bool {
        let timed_polls = self.timed_polls.load(Relaxed);
        if timed_polls < TIMED_POLLS {
            // Threads that count at the same time count once, which does no harm.
            self.timed_polls.store(timed_polls + 1, Relaxed);
            return true;
        }
        let count = POLL_COUNT.get().wrapping_add(1);
        POLL_COUNT.set(count);
        count.is_multiple_of(SAMPLE_INTERVAL)
    }

    #[cold]
    fn report(&self, kind: &str, name: &str, duration: Duration) {
        if !self.is_reported.swap(true, Relaxed) {
            tracing::warn!(
                kind,
                name,
                ?duration,
                "a handler kept a thread of the runtime busy, which delays other calls; use \
                 `tokio::task::spawn_blocking`, or a function that is not `async` (without `inline`)"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_polls_and_a_sample_of_later_ones_are_timed() {
        let watch = PollWatch::default();
        assert!((0..TIMED_POLLS).all(|_| watch.is_due()));
        let sampled = (0..u32::from(SAMPLE_INTERVAL) * 10).filter(|_| watch.is_due()).count();
        assert_eq!(sampled, 10);
        assert!((0..TIMED_POLLS).all(|_| PollWatch::default().is_due()), "each is counted by itself");
    }
}
