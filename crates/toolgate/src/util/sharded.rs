//! Per-thread shards for counters.
//!
//! The cache line of a counter that two cores increment moves between them, which takes longer than the rest of counting. So
//! every thread has a shard that no other thread writes, and needs no atomic read-modify-write to add to it. There are two
//! exclusive shards for each core; further threads write to a common shard, atomically. Readers add up all shards.
//!
//! Reference counts that every call changes are sharded too: see [`ShardedArc`].

use std::cell::OnceCell;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, OnceLock};

/// Maximum number of exclusive shards.
const MAX_SHARDS: usize = u64::BITS as usize;

/// One bit for each exclusive shard that a thread has.
static CLAIMED_SHARDS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static THREAD_SHARD: OnceCell<ShardClaim> = const { OnceCell::new() };
}

/// The exclusive shard of a thread, released when the thread ends. `None` if all were taken.
struct ShardClaim {
    index: Option<usize>,
    claimed: &'static AtomicU64,
}

impl ShardClaim {
    fn claim(claimed: &'static AtomicU64, max: usize) -> ShardClaim {
        let mut bits = claimed.load(Relaxed);
        loop {
            let index = bits.trailing_ones() as usize;
            if index >= max {
                return ShardClaim { index: None, claimed };
            }
            // `Acquire`: the writes of the thread that had it before are visible.
            match claimed.compare_exchange_weak(bits, bits | 1 << index, Acquire, Relaxed) {
                Ok(_) => return ShardClaim { index: Some(index), claimed },
                Err(others) => bits = others,
            }
        }
    }
}

impl Drop for ShardClaim {
    fn drop(&mut self) {
        if let Some(index) = self.index {
            self.claimed.fetch_and(!(1 << index), Release);
        }
    }
}

/// The shard of the current thread. Not `Send`: writes of another thread would be lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardId {
    index: usize,
    /// Whether no other thread writes to the shard.
    is_exclusive: bool,
    _not_send: PhantomData<*const ()>,
}

impl ShardId {
    /// Returns the shard of this thread.
    #[inline]
    pub(crate) fn current() -> ShardId {
        let own = THREAD_SHARD.try_with(|own| {
            own.get_or_init(|| ShardClaim::claim(&CLAIMED_SHARDS, exclusive_shard_count())).index
        });
        let own = own.ok().flatten();
        ShardId {
            index: own.unwrap_or_else(exclusive_shard_count),
            is_exclusive: own.is_some(),
            _not_send: PhantomData,
        }
    }

    /// Adds to a counter of this shard.
    #[inline]
    pub(crate) fn add(self, counter: &AtomicU64, amount: u64) {
        if self.is_exclusive {
            counter.store(counter.load(Relaxed).wrapping_add(amount), Relaxed);
        } else {
            counter.fetch_add(amount, Relaxed);
        }
    }

    /// Increments a counter of this shard and returns its previous value. `Release`: a thread that sees the new value sees earlier
    /// writes too.
    #[inline]
    pub(crate) fn increment(self, counter: &AtomicU64) -> u64 {
        if self.is_exclusive {
            let previous = counter.load(Relaxed);
            counter.store(previous.wrapping_add(1), Release);
            previous
        } else {
            counter.fetch_add(1, Release)
        }
    }
}

/// One value for each exclusive shard and one for the common shard, each created at its first use.
pub(crate) struct Sharded<T>(Box<[OnceLock<Box<T>>]>);

impl<T> Sharded<T> {
    pub(crate) fn new() -> Sharded<T> {
        Sharded((0..=exclusive_shard_count()).map(|_| OnceLock::new()).collect())
    }

    /// Returns the value of a shard.
    #[inline]
    pub(crate) fn get_or_init(&self, shard: ShardId, make: &dyn Fn() -> T) -> &T {
        match self.0[shard.index].get() {
            Some(value) => value,
            None => self.init_shard(shard, make),
        }
    }

    #[cold]
    fn init_shard(&self, shard: ShardId, make: &dyn Fn() -> T) -> &T {
        self.0[shard.index].get_or_init(|| Box::new(make()))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        self.0.iter().filter_map(|shard| shard.get().map(|value| &**value))
    }
}

impl<T> Default for Sharded<T> {
    fn default() -> Sharded<T> {
        Sharded::new()
    }
}

/// An `Arc` whose reference count is sharded, for a value that every call holds.
pub(crate) struct ShardedArc<T> {
    value: Arc<T>,
    shards: Sharded<ShardedRef<T>>,
}

/// A reference to the value of a [`ShardedArc`]. Its clones share the reference count of one shard.
pub(crate) type ShardedRef<T> = Arc<AlignedArc<T>>;

/// The content of a [`ShardedRef`]. Its reference count shares its cache line with nothing else.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct AlignedArc<T>(Arc<T>);

impl<T> AlignedArc<T> {
    pub(crate) fn new_ref(value: &Arc<T>) -> ShardedRef<T> {
        Arc::new(AlignedArc(Arc::clone(value)))
    }
}

impl<T> Deref for AlignedArc<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

impl<T> ShardedArc<T> {
    pub(crate) fn new(value: impl Into<Arc<T>>) -> ShardedArc<T> {
        ShardedArc { value: value.into(), shards: Sharded::new() }
    }

    /// Returns a reference for the time of a call. For longer times, clone the `Arc` itself.
    #[inline]
    pub(crate) fn acquire(&self) -> ShardedRef<T> {
        Arc::clone(self.shards.get_or_init(ShardId::current(), &|| AlignedArc::new_ref(&self.value)))
    }
}

impl<T> Deref for ShardedArc<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.value
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for ShardedArc<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.value.fmt(f)
    }
}

/// The number of exclusive shards: more than cores, because not every thread that has one is busy.
fn exclusive_shard_count() -> usize {
    static SHARD_COUNT: OnceLock<usize> = OnceLock::new();
    *SHARD_COUNT.get_or_init(|| {
        std::thread::available_parallelism().map_or(2, |cores| 2 * cores.get()).min(MAX_SHARDS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_has_one_owner_at_a_time() {
        static BITS: AtomicU64 = AtomicU64::new(0);
        let mut claims: Vec<ShardClaim> = (0..7).map(|_| ShardClaim::claim(&BITS, 5)).collect();
        let indices: Vec<_> = claims.iter().map(|claim| claim.index).collect();
        assert_eq!(indices, [Some(0), Some(1), Some(2), Some(3), Some(4), None, None]);
        claims.remove(2);
        assert_eq!(ShardClaim::claim(&BITS, 5).index, Some(2), "a released shard can be claimed again");
        claims.clear();
        assert_eq!(BITS.load(Relaxed), 0);
    }

    #[test]
    fn concurrent_threads_lose_no_increment() {
        let counters = Sharded::<AtomicU64>::new();
        for _ in 0..20 {
            std::thread::scope(|scope| {
                for _ in 0..16 {
                    scope.spawn(|| {
                        for round in 0..500 {
                            let shard = ShardId::current();
                            let counter = counters.get_or_init(shard, &AtomicU64::default);
                            if round % 2 == 0 { shard.add(counter, 1) } else { _ = shard.increment(counter) }
                        }
                    });
                }
            });
        }
        assert_eq!(counters.iter().map(|counter| counter.load(Relaxed)).sum::<u64>(), 160_000);
    }

    #[test]
    fn the_value_lives_until_the_last_reference_is_dropped() {
        let value = Arc::new(7);
        let sharded = ShardedArc::<i32>::new(Arc::clone(&value));
        let held: Vec<ShardedRef<i32>> = (0..8)
            .map(|_| std::thread::scope(|scope| scope.spawn(|| sharded.acquire()).join().unwrap()))
            .collect();
        assert!(held.iter().all(|held| ****held == 7));
        drop(sharded);
        assert!(Arc::strong_count(&value) > 1);
        drop(held);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
