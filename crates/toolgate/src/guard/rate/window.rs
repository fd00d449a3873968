//! A limit of requests in any window of time, such as 100 requests in any minute.
//!
//! Two numbers are stored for a caller: the requests in the current window, and those in the one before. The part of
//! the previous window that is still within the last window's length is counted proportionally. A window begins with
//! a caller's first request, so that the first request over the limit is rejected however slowly they arrive.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use super::{SHARDS, lock};

/// The counts of each caller, in a table of limited size.
#[derive(Debug)]
pub(super) struct Windows {
    per: Duration,
    amount: u32,
    shards: [Mutex<HashMap<u64, WindowCounter>>; SHARDS],
    max_keys: usize,
    /// The counts that all new callers share while the table is full.
    overflow: Mutex<WindowCounter>,
}

#[derive(Clone, Copy, Debug, Default)]
struct WindowCounter {
    /// When the current window began.
    start: Duration,
    previous_count: u32,
    current_count: u32,
}

impl WindowCounter {
    /// Counts a request, or returns how long to wait.
    fn take(&mut self, per: Duration, amount: u32, now: Duration) -> Result<(), Duration> {
        let since = now.saturating_sub(self.start);
        if self.current_count == 0 || since >= per * 2 {
            *self = WindowCounter { start: now, previous_count: 0, current_count: 0 };
        } else if since >= per {
            *self = WindowCounter {
                start: self.start + per,
                previous_count: self.current_count,
                current_count: 0,
            };
        }
        let elapsed = now.saturating_sub(self.start);
        let previous_share = 1.0 - elapsed.as_secs_f64() / per.as_secs_f64();
        let (amount, previous, current) =
            (f64::from(amount), f64::from(self.previous_count), f64::from(self.current_count));
        if previous * previous_share + current + 1.0 <= amount {
            self.current_count += 1;
            return Ok(());
        }
        let wait = if current + 1.0 > amount {
            // Only the next window has room, as soon as one request of this one has expired.
            (1.0 - elapsed.as_secs_f64() / per.as_secs_f64()) + 1.0 / amount
        } else {
            // As soon as enough of the previous window has expired.
            (1.0 - (amount - current - 1.0) / previous) - elapsed.as_secs_f64() / per.as_secs_f64()
        };
        Err(per.mul_f64(wait.clamp(0.0, 2.0)))
    }

    /// Whether it is equal to a new one.
    fn is_expired(&self, per: Duration, now: Duration) -> bool {
        now.saturating_sub(self.start) >= per * 2
    }
}

impl Windows {
    pub(super) fn new(amount: u32, per: Duration, max_keys: usize) -> Windows {
        Windows { per, amount, shards: Default::default(), max_keys, overflow: Mutex::default() }
    }

    /// Counts a request of a caller.
    ///
    /// # Errors
    /// If it is over the limit: how long to wait.
    pub(super) fn take(&self, key: u64, now: Duration) -> Result<(), Duration> {
        let [low, ..] = key.to_le_bytes();
        let mut shard = lock(&self.shards[usize::from(low) % SHARDS]);
        if let Some(slot) = shard.get_mut(&key) {
            return slot.take(self.per, self.amount, now);
        }
        let capacity = (self.max_keys / SHARDS).max(1);
        if shard.len() >= capacity {
            shard.retain(|_, slot| !slot.is_expired(self.per, now));
        }
        if shard.len() < capacity {
            return shard.entry(key).or_default().take(self.per, self.amount, now);
        }
        drop(shard);
        lock(&self.overflow).take(self.per, self.amount, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn requests_over_the_limit_are_rejected_however_slowly_they_arrive() {
        for pace in [0.0, 0.01, 0.3, 0.59] {
            let windows = Windows::new(100, MINUTE, 1000);
            for n in 0..100 {
                assert_eq!(windows.take(7, at(100.0 + pace * f64::from(n))), Ok(()), "{n} at {pace}");
            }
            assert!(windows.take(7, at(100.0 + pace * 100.0)).is_err(), "at {pace}");
            assert_eq!(windows.take(8, at(100.0 + pace * 100.0)), Ok(()), "another caller");
        }
    }

    #[test]
    fn the_window_slides_and_the_delay_is_sufficient() {
        let windows = Windows::new(100, MINUTE, 1000);
        let mut now = at(5.0);
        let mut served = Vec::new();
        for _ in 0..2000 {
            match windows.take(7, now) {
                Ok(()) => served.push(now),
                Err(wait) => {
                    assert!(wait > Duration::ZERO && wait <= MINUTE * 2, "{wait:?}");
                    // The smallest step beyond it, because fractions are not exact.
                    now += wait + Duration::from_micros(1);
                    assert_eq!(windows.take(7, now), Ok(()), "after {wait:?}");
                    served.push(now);
                }
            }
        }
        // Earlier requests count as if they had arrived evenly: no window has more than twice the limit, and over
        // time the limit holds.
        let span = (served[served.len() - 1] - served[0]).as_secs_f64();
        let rate = f64::from(u32::try_from(served.len()).unwrap()) / (span / 60.0);
        assert!((95.0..=110.0).contains(&rate), "{rate} a minute");
        let most = served.iter().map(|from| {
            served.iter().filter(|moment| **moment >= *from && **moment < *from + MINUTE).count()
        });
        assert!(most.max() <= Some(200));
    }

    #[test]
    fn a_pause_resets_and_a_full_table_does_not() {
        let windows = Windows::new(2, MINUTE, SHARDS);
        assert!(windows.take(0, at(0.0)).is_ok() && windows.take(0, at(0.0)).is_ok());
        assert!(windows.take(0, at(1.0)).is_err());
        // The shard has no room for others: they share the remaining counts.
        let others = (1..10_u64).filter(|n| windows.take(n << 8, at(1.0)).is_ok()).count();
        assert_eq!(others, 2);
        assert!(windows.take(0, at(2.0)).is_err());
        assert!(windows.take(0, at(130.0)).is_ok());
    }
}
