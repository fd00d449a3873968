//! Who greeted here lately. Each of them is in the store, whether anybody comes back for it or not, so there are only
//! so many.

use std::collections::HashMap;
use std::time::Duration;

/// Looking at all of them takes a while, so that is done once in this time at most.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct NewSessionLimiter {
    /// When each came.
    created_at: HashMap<Box<str>, Duration>,
    last_sweep: Duration,
}

impl NewSessionLimiter {
    /// One more; false if too many came within the window.
    pub(super) fn try_admit(&mut self, id: &str, most: usize, now: Duration, window: Duration) -> bool {
        if self.created_at.len() >= most && now.saturating_sub(self.last_sweep) >= SWEEP_INTERVAL {
            self.last_sweep = now;
            self.created_at.retain(|_, since| now.saturating_sub(*since) < window);
        }
        let has_room = self.created_at.len() < most;
        if has_room {
            self.created_at.insert(id.into(), now);
        }
        has_room
    }

    /// It is over.
    pub(super) fn release(&mut self, id: &str) {
        self.created_at.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_come_within_a_window() {
        let (mut newcomers, window) = (NewSessionLimiter::default(), Duration::from_secs(60));
        let mut enter = |id: &str, second| newcomers.try_admit(id, 2, Duration::from_secs(second), window);
        assert!(enter("a", 10) && enter("b", 40) && !enter("c", 41));
        assert!(!enter("c", 69) && enter("c", 70), "the first is no longer new");
        assert!(!enter("d", 99) && enter("d", 100));
        newcomers.release("c");
        assert!(newcomers.try_admit("e", 2, Duration::from_secs(100), window), "one that is over makes room");
        assert!(!newcomers.try_admit("f", 2, Duration::from_secs(100), window));
    }
}
