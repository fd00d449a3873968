//! Who greeted here lately. Each of them is in the store, whether anybody comes back for it or not, so there are only
//! so many.

use std::time::Duration;

use crate::maps::ByName;

/// Looking at all of them takes a while, so that is done once in this time at most.
const LOOK: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Newcomers {
    /// When each came.
    since: ByName<Duration>,
    looked: Duration,
}

impl Newcomers {
    /// One more; false if too many came within the window.
    pub(super) fn enter(&mut self, id: &str, most: usize, now: Duration, window: Duration) -> bool {
        if self.since.len() >= most && now.saturating_sub(self.looked) >= LOOK {
            self.looked = now;
            self.since.retain(|since| now.saturating_sub(*since) < window);
        }
        let has_room = self.since.len() < most;
        if has_room {
            self.since.insert(id, now);
        }
        has_room
    }

    /// It is over.
    pub(super) fn leave(&mut self, id: &str) {
        self.since.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_come_within_a_window() {
        let (mut newcomers, window) = (Newcomers::default(), Duration::from_secs(60));
        let mut enter = |id: &str, second| newcomers.enter(id, 2, Duration::from_secs(second), window);
        assert!(enter("a", 10) && enter("b", 40) && !enter("c", 41));
        assert!(!enter("c", 69) && enter("c", 70), "the first is no longer new");
        assert!(!enter("d", 99) && enter("d", 100));
        newcomers.leave("c");
        assert!(newcomers.enter("e", 2, Duration::from_secs(100), window), "one that is over makes room");
        assert!(!newcomers.enter("f", 2, Duration::from_secs(100), window));
    }
}
