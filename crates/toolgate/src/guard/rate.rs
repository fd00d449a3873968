//! Rate limits: one bucket for each caller, in a table of limited size.
//!
//! A bucket that is full again is equal to a new one and can be dropped. If the table is full even then, all new
//! callers share one bucket, so that a limited caller never starts afresh because others arrived.

mod bucket;
mod window;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use self::bucket::Buckets;
use self::window::Windows;
use crate::store::ScopedStore;
use crate::util::clock::Clock;

/// A larger amount is not a limit.
const MAX_AMOUNT: u32 = 1_000_000;
/// How many callers have a bucket of their own.
const MAX_KEYS: usize = 100_000;
const SHARDS: usize = 16;
/// Minimum time between two searches of a full table for buckets to drop.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
const NEVER: u64 = u64::MAX;
/// How long the store may take to count.
const STORE_TIMEOUT: Duration = Duration::from_millis(500);

/// A rate limit: how many requests are allowed in which time.
///
/// After a pause, a burst of requests is allowed at once; by default, it is the whole amount.
///
/// ```
/// # use toolgate::guard::Rate;
/// let rate = Rate::per_minute(600).burst(20);
/// assert_eq!("600/min".parse::<Rate>()?.burst(20), rate);
/// assert_eq!("10/s".parse(), Ok(Rate::per_second(10)));
/// assert_eq!("100/h".parse(), Ok(Rate::per_hour(100)));
/// assert_eq!("1000/day".parse(), Ok(Rate::per_day(1000)));
/// assert!("fast".parse::<Rate>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[doc(alias("rate limit", "throttle"))]
pub struct Rate {
    amount: NonZeroU32,
    per: Duration,
    burst: NonZeroU32,
    is_shared: bool,
    is_window: bool,
}

impl Rate {
    /// Allows this many requests per second, from 1 to a million.
    #[must_use]
    pub fn per_second(amount: u32) -> Rate {
        Rate::per(amount, 1)
    }

    /// Allows this many requests per minute, from 1 to a million.
    #[must_use]
    pub fn per_minute(amount: u32) -> Rate {
        Rate::per(amount, 60)
    }

    /// Allows this many requests per hour, from 1 to a million.
    #[must_use]
    pub fn per_hour(amount: u32) -> Rate {
        Rate::per(amount, 3600)
    }

    /// Allows this many requests per day, from 1 to a million.
    #[must_use]
    pub fn per_day(amount: u32) -> Rate {
        Rate::per(amount, 86_400)
    }

    fn per(amount: u32, seconds: u64) -> Rate {
        let amount = clamp_amount(amount);
        Rate { amount, per: Duration::from_secs(seconds), burst: amount, is_shared: false, is_window: false }
    }

    /// Sets how many requests are allowed at once after a pause, from 1 to a million. Clients send several requests
    /// in a row, so values below 20 affect everyone.
    #[must_use]
    pub fn burst(mut self, burst: u32) -> Rate {
        self.burst = clamp_amount(burst);
        self
    }

    /// Counts requests of all processes that share the server's store together. Each process counts for itself as
    /// well, which is all there is while the store is unavailable. The shared count starts with each second, minute
    /// or hour, and costs an access to the store for every request.
    #[must_use]
    pub fn shared(mut self) -> Rate {
        self.is_shared = true;
        self
    }

    /// Counts requests in a sliding window: the first one beyond the amount is rejected, however slowly they arrive,
    /// until the earlier ones are that long ago. Without this, the bucket is refilled continuously, so that a caller
    /// who never pauses gets up to twice the amount in the first window, and the exact rate from then on. There is no
    /// burst with a window.
    #[must_use]
    pub fn window(mut self) -> Rate {
        self.is_window = true;
        self
    }
}

fn clamp_amount(amount: u32) -> NonZeroU32 {
    NonZeroU32::new(amount.min(MAX_AMOUNT)).unwrap_or(NonZeroU32::MIN)
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let error = || format!("{text:?} is not a rate such as `600/min`, `10/s`, `100/h` or `1000/day`");
        let (amount, unit) = text.split_once('/').ok_or_else(error)?;
        let amount = amount.trim();
        if !amount.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(error());
        }
        let amount =
            amount.parse().ok().filter(|amount| (1..=MAX_AMOUNT).contains(amount)).ok_or_else(error)?;
        match unit.trim() {
            "s" | "sec" | "second" => Ok(Rate::per_second(amount)),
            "m" | "min" | "minute" => Ok(Rate::per_minute(amount)),
            "h" | "hour" => Ok(Rate::per_hour(amount)),
            "d" | "day" => Ok(Rate::per_day(amount)),
            _ => Err(error()),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.per.as_secs() {
            1 => "s",
            60 => "min",
            3600 => "h",
            _ => "day",
        };
        write!(f, "{}/{unit}", self.amount)
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = if self.is_shared { ", shared" } else { "" };
        match self.is_window {
            true => write!(f, "Rate({self}, window{shared})"),
            false => write!(f, "Rate({self}, burst {}{shared})", self.burst),
        }
    }
}

/// The caller that a bucket belongs to.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) enum LimitKey<'a> {
    V4([u8; 4]),
    /// An IPv6 /64 network: its owner has all of its addresses.
    V6([u16; 4]),
    /// All callers whose address is unknown share one.
    Unknown,
    Principal(&'a str),
}

impl LimitKey<'_> {
    pub(super) fn from_address(address: Option<IpAddr>) -> LimitKey<'static> {
        match address.map(|address| address.to_canonical()) {
            Some(IpAddr::V4(address)) => LimitKey::V4(address.octets()),
            Some(IpAddr::V6(address)) => LimitKey::V6(network_prefix(address)),
            None => LimitKey::Unknown,
        }
    }
}

impl LimitKey<'_> {
    /// A key that is the same in every process. Ids of principals are not stored.
    fn store_key(self) -> String {
        match self {
            LimitKey::V4([a, b, c, d]) => format!("{a}.{b}.{c}.{d}"),
            LimitKey::V6([a, b, c, d]) => format!("{a:x}.{b:x}.{c:x}.{d:x}.v6"),
            LimitKey::Unknown => "unknown".to_owned(),
            LimitKey::Principal(name) => URL_SAFE_NO_PAD.encode(Sha256::digest(name)),
        }
    }
}

fn network_prefix(address: Ipv6Addr) -> [u16; 4] {
    let [a, b, c, d, ..] = address.segments();
    [a, b, c, d]
}

/// Limits all callers to one rate.
pub(crate) struct RateLimiter {
    rate: Rate,
    buckets: Buckets,
    /// Instead of buckets, for a sliding window.
    windows: Option<Windows>,
    /// A keyed hash of callers, so that a caller cannot choose to share the bucket of another.
    hasher: RandomState,
    clock: Clock,
    /// When the table was last searched, in milliseconds of uptime, or `NEVER`.
    last_sweep_ms: AtomicU64,
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiter").field("rate", &self.rate).finish_non_exhaustive()
    }
}

impl RateLimiter {
    pub(super) fn is_shared(&self) -> bool {
        self.rate.is_shared
    }

    pub(super) fn new(rate: Rate, clock: &Clock) -> RateLimiter {
        RateLimiter::with_max_keys(rate, clock, MAX_KEYS)
    }

    fn with_max_keys(rate: Rate, clock: &Clock, keys: usize) -> RateLimiter {
        RateLimiter {
            rate,
            buckets: Buckets::new(rate.per / rate.amount.get(), rate.burst.get(), keys),
            windows: rate.is_window.then(|| Windows::new(rate.amount.get(), rate.per, keys)),
            hasher: RandomState::new(),
            clock: clock.clone(),
            last_sweep_ms: AtomicU64::new(NEVER),
        }
    }

    /// Counts a request.
    ///
    /// # Errors
    /// If it is over the limit: the seconds until one is allowed again, at least 1.
    pub(super) fn take(&self, caller: LimitKey<'_>) -> Result<(), u32> {
        let key = self.hasher.hash_one(caller);
        let now = self.clock.uptime();
        let result = match &self.windows {
            Some(windows) => windows.take(key, now),
            None => {
                if self.buckets.is_full() {
                    self.sweep(now);
                }
                self.buckets.take(key, now)
            }
        };
        result.map_err(|wait| {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            u32::try_from(seconds).unwrap_or(u32::MAX).max(1)
        })
    }

    /// Counts a request in the store, for all processes.
    ///
    /// # Errors
    /// If it is over the limit: the seconds until the next count, at least 1.
    pub(super) async fn take_shared(&self, caller: LimitKey<'_>, store: &ScopedStore) -> Result<(), u32> {
        if !self.rate.is_shared {
            return Ok(());
        }
        let (per, now) = (self.rate.per.as_secs().max(1), self.clock.unix_secs());
        let key = store.key("rate", &format!("{}-{per}-{}", caller.store_key(), now / per));
        let increment = store.backend.increment(&key, 1, self.rate.per * 2);
        // If the store is unavailable, the local count is enough, and the request does not wait.
        match tokio::time::timeout(STORE_TIMEOUT, increment).await {
            Ok(Ok(count)) if count > u64::from(self.rate.amount.get()) => {
                Err(u32::try_from(per - now % per).unwrap_or(u32::MAX).max(1))
            }
            _ => Ok(()),
        }
    }

    /// Drops buckets that are full again, unless that was just done.
    fn sweep(&self, now: Duration) {
        let last = self.last_sweep_ms.load(Ordering::Relaxed);
        if last != NEVER && now.saturating_sub(Duration::from_millis(last)) < SWEEP_INTERVAL {
            return;
        }
        let next = u64::try_from(now.as_millis()).unwrap_or(NEVER - 1);
        // The thread that changes the time does the work; the others continue.
        if self.last_sweep_ms.compare_exchange(last, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.buckets.remove_full(now);
        }
    }
}

/// Ignores poisoning: no panic can leave the table half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address_key(n: u32) -> LimitKey<'static> {
        LimitKey::from_address(Some(IpAddr::from(n.to_be_bytes())))
    }

    #[test]
    fn rates_are_parsed_and_displayed() {
        for (text, rate) in [
            ("600/min", Rate::per_minute(600)),
            (" 10 / s ", Rate::per_second(10)),
            ("100/h", Rate::per_hour(100)),
            ("100/hour", Rate::per_hour(100)),
            ("100/day", Rate::per_day(100)),
            ("1000000/s", Rate::per_second(2_000_000)),
        ] {
            assert_eq!(text.parse(), Ok(rate), "{text}");
        }
        for wrong in
            ["", "600", "/min", "x/min", "-1/s", "+1/s", "0/s", "1/week", "1000001/s", "1/s/s", "1.5/s"]
        {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong:?}");
        }
        assert_eq!(format!("{:?}", Rate::per_minute(600).burst(20)), "Rate(600/min, burst 20)");
        for rate in [Rate::per_second(0), Rate::per_hour(1).burst(u32::MAX), Rate::per_second(u32::MAX)] {
            assert!(RateLimiter::new(rate, &Clock::manual()).take(LimitKey::Unknown).is_ok(), "{rate:?}");
        }
    }

    #[test]
    fn a_burst_passes_and_then_one_at_a_time() {
        let clock = Clock::manual();
        let limiter = RateLimiter::new(Rate::per_minute(60).burst(20), &clock);
        for _ in 0..20 {
            assert_eq!(limiter.take(address_key(1)), Ok(()));
        }
        assert_eq!(limiter.take(address_key(1)), Err(1));
        assert_eq!(limiter.take(address_key(2)), Ok(()), "another caller has its own bucket");
        clock.advance(Duration::from_secs(1));
        assert_eq!(limiter.take(address_key(1)), Ok(()));
        assert_eq!(limiter.take(address_key(1)), Err(1));
        clock.advance(Duration::from_secs(3600));
        let passed = (0..100).filter(|_| limiter.take(address_key(1)).is_ok()).count();
        assert_eq!(passed, 20, "a long pause gives one burst, not more");
    }

    #[test]
    fn the_retry_delay_is_in_whole_seconds() {
        let clock = Clock::manual();
        let limiter = RateLimiter::new(Rate::per_hour(60).burst(1), &clock);
        assert_eq!(limiter.take(address_key(1)), Ok(()));
        assert_eq!(limiter.take(address_key(1)), Err(60));
        clock.advance(Duration::from_millis(58_500));
        assert_eq!(limiter.take(address_key(1)), Err(2));
        clock.advance(Duration::from_millis(1_400));
        assert_eq!(limiter.take(address_key(1)), Err(1));
        clock.advance(Duration::from_millis(100));
        assert_eq!(limiter.take(address_key(1)), Ok(()));
    }

    /// L03
    #[test]
    fn an_ipv6_network_is_one_caller() {
        let limiter = RateLimiter::new(Rate::per_hour(1), &Clock::manual());
        let address = |last: u16, network: u16| {
            LimitKey::from_address(Some(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, network, 9, 9, 9, last))))
        };
        let passed = (0..=u16::MAX).filter(|last| limiter.take(address(*last, 1)).is_ok()).count();
        assert_eq!((passed, limiter.buckets.len()), (1, 1));
        assert!(limiter.take(address(0, 2)).is_ok());
        let mapped = "::ffff:192.0.2.1".parse().ok();
        assert!(limiter.take(LimitKey::from_address(mapped)).is_ok(), "a mapped address is an IPv4 address");
        assert!(limiter.take(LimitKey::from_address("192.0.2.1".parse().ok())).is_err());
        assert!(limiter.take(LimitKey::from_address("192.0.2.2".parse().ok())).is_ok());
    }

    /// L04
    #[test]
    fn a_full_table_never_resets_a_limited_caller() {
        let clock = Clock::manual();
        let limiter = RateLimiter::with_max_keys(Rate::per_minute(60).burst(3), &clock, 1000);
        let hot = LimitKey::Principal("hot");
        while limiter.take(hot).is_ok() {}
        let mut passed = 0;
        for n in 0..20_000 {
            passed += u32::from(limiter.take(address_key(n)).is_ok());
            assert!(limiter.take(hot).is_err(), "after {n} others");
        }
        assert_eq!(limiter.buckets.len(), 1000);
        assert_eq!(passed, 999 + 3, "new callers share one bucket while the table is full");
        // All but the busy one are idle by now; new callers make room for themselves.
        for _ in 0..10 {
            clock.advance(Duration::from_secs(1));
            while limiter.take(hot).is_ok() {}
        }
        assert!(limiter.take(address_key(1_000_000)).is_ok());
        assert!(limiter.buckets.len() < 10, "{}", limiter.buckets.len());
        assert!(limiter.take(hot).is_err());
    }

    #[test]
    fn the_table_counts_correctly_with_many_threads() {
        let limiter = RateLimiter::with_max_keys(Rate::per_hour(5), &Clock::manual(), 100);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..2000).filter(|n| limiter.take(address_key(n % 300)).is_ok()).count());
            }
        });
        assert_eq!((limiter.buckets.len(), limiter.buckets.key_count()), (100, 100));
    }
}
