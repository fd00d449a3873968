//! Number of requests in the last sixty seconds.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::util::sharded::ShardId;

/// Length of the window.
const WINDOW_SECONDS: u64 = 60;

/// Counts requests for each of the last sixty seconds.
///
/// Each slot holds a second in its upper 32 bits and that second's count in the lower ones.
pub(super) struct MinuteWindow([AtomicU64; WINDOW_SECONDS as usize]);

impl Default for MinuteWindow {
    fn default() -> MinuteWindow {
        MinuteWindow([const { AtomicU64::new(0) }; WINDOW_SECONDS as usize])
    }
}

impl MinuteWindow {
    pub(super) fn add(&self, shard_id: ShardId, second: u64) {
        // One more than the second, so that an empty slot belongs to no second.
        let tag = (second + 1) << 32;
        let slot = &self.0[(second % WINDOW_SECONDS) as usize];
        let mut current = slot.load(Relaxed);
        // The first request in a second replaces the count of a minute before. A slot never goes back in time.
        while current >> 32 < second + 1 {
            match slot.compare_exchange_weak(current, tag | 1, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(newer) => current = newer,
            }
        }
        shard_id.add(slot, 1);
    }

    pub(super) fn sum(&self, second: u64) -> u64 {
        let slots = self.0.iter().map(|slot| slot.load(Relaxed));
        slots.filter(|slot| (slot >> 32) + WINDOW_SECONDS > second + 1).map(|slot| slot & 0xffff_ffff).sum()
    }
}
