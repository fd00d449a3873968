//! A bucket for each caller: it holds a burst, every request takes a token, and one token is added after each
//! interval.
//!
//! Only one number is stored for a bucket: the time when it will be full again. The missing tokens are the intervals
//! until then. (This is the generic cell rate algorithm, known from telephone networks.)

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use super::{SHARDS, lock};

/// When each bucket will be full again, in a table of limited size.
#[derive(Debug)]
pub(super) struct Buckets {
    /// The interval in which one token is added: never zero.
    step: Duration,
    /// How much may be missing in a bucket that still has a token.
    tolerance: Duration,
    shards: [Mutex<HashMap<u64, Duration>>; SHARDS],
    n_keys: AtomicUsize,
    max_keys: usize,
    /// The bucket that all new callers share while the table is full.
    overflow: Mutex<Duration>,
}

impl Buckets {
    pub(super) fn new(step: Duration, burst: u32, max_keys: usize) -> Buckets {
        let step = step.max(Duration::from_nanos(1));
        Buckets {
            step,
            tolerance: step.saturating_mul(burst.saturating_sub(1)),
            shards: Default::default(),
            n_keys: AtomicUsize::new(0),
            max_keys,
            overflow: Mutex::default(),
        }
    }

    /// Takes a token from a caller's bucket.
    ///
    /// # Errors
    /// If it is empty: the time until there is one again.
    pub(super) fn take(&self, key: u64, now: Duration) -> Result<(), Duration> {
        let mut shard = self.shard(key);
        if let Some(full_at) = shard.get_mut(&key) {
            return self.take_from(full_at, now);
        }
        if self.n_keys.fetch_add(1, Ordering::Relaxed) < self.max_keys {
            // A new bucket is full.
            shard.insert(key, now.saturating_add(self.step));
            return Ok(());
        }
        self.release_keys(1);
        drop(shard);
        self.take_from(&mut lock(&self.overflow), now)
    }

    fn take_from(&self, full_at: &mut Duration, now: Duration) -> Result<(), Duration> {
        let earliest = full_at.saturating_sub(self.tolerance);
        if now < earliest {
            return Err(earliest - now);
        }
        *full_at = now.max(*full_at).saturating_add(self.step);
        Ok(())
    }

    /// Whether there is no room for a new caller.
    pub(super) fn is_full(&self) -> bool {
        self.n_keys.load(Ordering::Relaxed) >= self.max_keys
    }

    /// Drops full buckets, which are equal to new ones.
    pub(super) fn remove_full(&self, now: Duration) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            let before = shard.len();
            shard.retain(|_, full_at| *full_at > now);
            self.release_keys(before - shard.len());
        }
    }

    fn release_keys(&self, n_keys: usize) {
        self.n_keys.fetch_sub(n_keys, Ordering::Relaxed);
    }

    fn shard(&self, key: u64) -> MutexGuard<'_, HashMap<u64, Duration>> {
        let [low, ..] = key.to_le_bytes();
        lock(&self.shards[usize::from(low) % SHARDS])
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    #[cfg(test)]
    pub(super) fn key_count(&self) -> usize {
        self.n_keys.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A straightforward bucket: a number of tokens, and one more at every whole interval since it was full.
    struct NaiveBucket {
        tokens: u128,
        burst: u128,
        step: u128,
        /// When the last token was added, or when it was last full.
        last_refill: u128,
    }

    impl NaiveBucket {
        fn take(&mut self, now: u128) -> Result<(), u128> {
            let drops = (now - self.last_refill) / self.step;
            self.last_refill += drops * self.step;
            self.tokens += drops;
            if self.tokens >= self.burst {
                (self.tokens, self.last_refill) = (self.burst, now);
            }
            if self.tokens == 0 {
                return Err(self.last_refill + self.step - now);
            }
            self.tokens -= 1;
            Ok(())
        }
    }

    proptest! {
        /// One number behaves as counting does, whenever requests arrive and whatever was dropped in between.
        #[test]
        fn one_number_behaves_as_counting(
            step in 1u64..5_000,
            burst in 1u32..40,
            visits in prop::collection::vec((0u64..10_000, any::<bool>()), 1..300),
        ) {
            let buckets = Buckets::new(Duration::from_nanos(step), burst, 8);
            let mut plain =
                NaiveBucket { tokens: burst.into(), burst: burst.into(), step: step.into(), last_refill: 0 };
            let mut now = 0;
            for (pause, sweeps) in visits {
                // Mostly short pauses, so that buckets run empty.
                now += if pause % 4 == 0 { pause } else { pause % (step / 2 + 1) };
                let at = Duration::from_nanos(now);
                if sweeps {
                    buckets.remove_full(at);
                }
                let expected = plain.take(now.into());
                prop_assert_eq!(buckets.take(7, at).map_err(|wait| wait.as_nanos()), expected);
            }
        }
    }

    #[test]
    fn the_end_of_time_does_not_overflow() {
        let buckets = Buckets::new(Duration::MAX, u32::MAX, 8);
        assert_eq!(buckets.take(1, Duration::MAX), Ok(()));
        let buckets = Buckets::new(Duration::from_secs(86_400), 1, 8);
        assert_eq!(buckets.take(1, Duration::ZERO), Ok(()));
        assert_eq!(buckets.take(1, Duration::ZERO), Err(Duration::from_secs(86_400)));
    }
}
