//! How many requests are too many: one bucket for each caller, in a table that cannot grow without end.
//!
//! A bucket that is full again is as good as none and can be dropped. If there is no room for a new one even
//! then, all newcomers share a single bucket: a caller that was slowed down never starts afresh because
//! others came.

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

/// More than this is no limit.
const MAX_AMOUNT: u32 = 1_000_000;
/// So many callers have a bucket of their own.
const MAX_KEYS: usize = 100_000;
const SHARDS: usize = 16;
/// A full table is searched for buckets to drop at most so often.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
const NEVER: u64 = u64::MAX;
/// How long the store may take to count.
const STORE_TIMEOUT: Duration = Duration::from_millis(500);

/// How many requests are served in which time.
///
/// After a pause so many may come at once, which is called the burst; unless said otherwise it is the whole
/// amount.
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
pub struct Rate {
    amount: NonZeroU32,
    per: Duration,
    burst: NonZeroU32,
    is_shared: bool,
    is_window: bool,
}

impl Rate {
    /// So many a second, at least 1 and at most a million.
    #[must_use]
    pub fn per_second(amount: u32) -> Rate {
        Rate::per(amount, 1)
    }

    /// So many a minute, at least 1 and at most a million.
    #[must_use]
    pub fn per_minute(amount: u32) -> Rate {
        Rate::per(amount, 60)
    }

    /// So many an hour, at least 1 and at most a million.
    #[must_use]
    pub fn per_hour(amount: u32) -> Rate {
        Rate::per(amount, 3600)
    }

    /// So many a day, at least 1 and at most a million.
    #[must_use]
    pub fn per_day(amount: u32) -> Rate {
        Rate::per(amount, 86_400)
    }

    fn per(amount: u32, seconds: u64) -> Rate {
        let amount = clamp_amount(amount);
        Rate { amount, per: Duration::from_secs(seconds), burst: amount, is_shared: false, is_window: false }
    }

    /// The same, with so many at once after a pause: at least 1 and at most a million. Clients list and call
    /// in one go, so that less than 20 is felt by everybody.
    #[must_use]
    pub fn burst(mut self, burst: u32) -> Rate {
        self.burst = clamp_amount(burst);
        self
    }

    /// The same, counted together by all processes that share the server's store. Each keeps to its own count as well,
    /// which is all there is while the store is away. The common one counts from the beginning of a second, a minute or
    /// an hour, and costs a look into the store for each request.
    #[must_use]
    pub fn shared(mut self) -> Rate {
        self.is_shared = true;
        self
    }

    /// The same, counted in a window that slides: the first one beyond the amount is refused, however slowly they come,
    /// until what came before is that long ago. Without this they are refilled one by one, so that a caller who never
    /// pauses gets up to twice the amount in the first window, and the exact rate from then on. There is no burst then.
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
        let wrong = || format!("{text:?} is not a rate such as `600/min`, `10/s`, `100/h` or `1000/day`");
        let (amount, unit) = text.split_once('/').ok_or_else(wrong)?;
        let amount = amount.trim();
        if !amount.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong());
        }
        let amount =
            amount.parse().ok().filter(|amount| (1..=MAX_AMOUNT).contains(amount)).ok_or_else(wrong)?;
        match unit.trim() {
            "s" | "sec" | "second" => Ok(Rate::per_second(amount)),
            "m" | "min" | "minute" => Ok(Rate::per_minute(amount)),
            "h" | "hour" => Ok(Rate::per_hour(amount)),
            "d" | "day" => Ok(Rate::per_day(amount)),
            _ => Err(wrong()),
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

/// Whose bucket it is.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) enum LimitKey<'a> {
    V4([u8; 4]),
    /// Whoever has a network of this size has all of its addresses.
    V6([u16; 4]),
    /// All who come from nobody knows where share one.
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
    /// The same name in every process. Names of people are not written down.
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

/// Buckets for everybody, of one rate.
pub(crate) struct RateLimiter {
    rate: Rate,
    buckets: Buckets,
    /// Instead of buckets, where a window is counted.
    windows: Option<Windows>,
    /// Who is who: keyed, so that nobody can choose to share a bucket with somebody else.
    hasher: RandomState,
    clock: Clock,
    /// When the table was last searched, in milliseconds of uptime, or `NO_EXPIRY`.
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

    /// Takes one out of somebody's bucket.
    ///
    /// # Errors
    /// If it is empty: the seconds until there is one again, at least 1.
    pub(super) fn take(&self, whose: LimitKey<'_>) -> Result<(), u32> {
        let key = self.hasher.hash_one(whose);
        let now = self.clock.uptime();
        let taken = match &self.windows {
            Some(windows) => windows.take(key, now),
            None => {
                if self.buckets.is_full() {
                    self.sweep(now);
                }
                self.buckets.take(key, now)
            }
        };
        taken.map_err(|wait| {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            u32::try_from(seconds).unwrap_or(u32::MAX).max(1)
        })
    }

    /// Counts one in the store, for all processes.
    ///
    /// # Errors
    /// If there were too many: the seconds until they are counted anew, at least 1.
    pub(super) async fn take_shared(&self, whose: LimitKey<'_>, cellar: &ScopedStore) -> Result<(), u32> {
        if !self.rate.is_shared {
            return Ok(());
        }
        let (per, now) = (self.rate.per.as_secs().max(1), self.clock.unix_secs());
        let key = cellar.key("rate", &format!("{}-{per}-{}", whose.store_key(), now / per));
        let counting = cellar.backend.increment(&key, 1, self.rate.per * 2);
        // Whoever cannot count together counts alone, and does not keep anybody waiting for it.
        match tokio::time::timeout(STORE_TIMEOUT, counting).await {
            Ok(Ok(count)) if count > u64::from(self.rate.amount.get()) => {
                Err(u32::try_from(per - now % per).unwrap_or(u32::MAX).max(1))
            }
            _ => Ok(()),
        }
    }

    /// Drops buckets that are full again, if that was not done just now.
    fn sweep(&self, now: Duration) {
        let last = self.last_sweep_ms.load(Ordering::Relaxed);
        if last != NEVER && now.saturating_sub(Duration::from_millis(last)) < SWEEP_INTERVAL {
            return;
        }
        let next = u64::try_from(now.as_millis()).unwrap_or(NEVER - 1);
        // Whoever changes the time does the work; the others go on.
        if self.last_sweep_ms.compare_exchange(last, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.buckets.remove_full(now);
        }
    }
}

/// Three lines that cannot leave a table half changed: what panicked while it held the lock did no harm.
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
    fn rates_are_read_and_written() {
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
        assert_eq!(limiter.take(address_key(2)), Ok(()), "somebody else has a bucket of their own");
        clock.advance(Duration::from_secs(1));
        assert_eq!(limiter.take(address_key(1)), Ok(()));
        assert_eq!(limiter.take(address_key(1)), Err(1));
        clock.advance(Duration::from_secs(3600));
        let passed = (0..100).filter(|_| limiter.take(address_key(1)).is_ok()).count();
        assert_eq!(passed, 20, "a long pause gives one burst, not more");
    }

    #[test]
    fn whoever_must_wait_is_told_how_long_in_whole_seconds() {
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
    fn a_network_of_ipv6_is_one_caller() {
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
    fn a_full_table_never_starts_a_hot_caller_afresh() {
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
        assert_eq!(passed, 999 + 3, "newcomers without room share one bucket");
        // All but the hot one are idle by now; those who come make room for themselves.
        for _ in 0..10 {
            clock.advance(Duration::from_secs(1));
            while limiter.take(hot).is_ok() {}
        }
        assert!(limiter.take(address_key(1_000_000)).is_ok());
        assert!(limiter.buckets.len() < 10, "{}", limiter.buckets.len());
        assert!(limiter.take(hot).is_err());
    }

    #[test]
    fn the_table_counts_right_under_many_threads() {
        let limiter = RateLimiter::with_max_keys(Rate::per_hour(5), &Clock::manual(), 100);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..2000).filter(|n| limiter.take(address_key(n % 300)).is_ok()).count());
            }
        });
        assert_eq!((limiter.buckets.len(), limiter.buckets.key_count()), (100, 100));
    }
}
