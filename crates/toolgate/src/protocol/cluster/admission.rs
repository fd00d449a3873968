//! Limits how many sessions this node creates within a time window: each is in the store, even if its client never returns.

use std::collections::HashMap;
use std::time::Duration;

/// Minimum time between sweeps, which visit all entries.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The sessions that were created within the window.
#[derive(Debug, Default)]
pub(super) struct NewSessionLimiter {
    /// When each session was created, by its id.
    created_at: HashMap<Box<str>, Duration>,
    last_sweep: Duration,
}

impl NewSessionLimiter {
    /// Adds a session. Returns false if there are too many within the window.
    pub(super) fn try_admit(&mut self, id: &str, max: usize, now: Duration, window: Duration) -> bool {
        if self.created_at.len() >= max && now.saturating_sub(self.last_sweep) >= SWEEP_INTERVAL {
            self.last_sweep = now;
            self.created_at.retain(|_, since| now.saturating_sub(*since) < window);
        }
        let has_room = self.created_at.len() < max;
        if has_room {
            self.created_at.insert(id.into(), now);
        }
        has_room
    }

    /// Removes a session that has ended.
    pub(super) fn release(&mut self, id: &str) {
        self.created_at.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_sessions_in_a_window_is_limited() {
        let (mut limiter, window) = (NewSessionLimiter::default(), Duration::from_secs(60));
        let mut enter = |id: &str, second| limiter.try_admit(id, 2, Duration::from_secs(second), window);
        assert!(enter("a", 10) && enter("b", 40) && !enter("c", 41));
        assert!(!enter("c", 69) && enter("c", 70), "the first is no longer new");
        assert!(!enter("d", 99) && enter("d", 100));
        limiter.release("c");
        assert!(limiter.try_admit("e", 2, Duration::from_secs(100), window), "an ended session makes room");
        assert!(!limiter.try_admit("f", 2, Duration::from_secs(100), window));
    }
}
