//! Where a thread writes its numbers.
//!
//! A counter that two cores add to is handed to and fro between them, and that takes longer than all the rest of
//! counting. So every thread that answers has a desk of its own, with sheets that nobody else writes: it need not even
//! lock out the others to add to a number. There are two desks for each core; threads that find none write at the
//! common one, together. Whoever reads, adds up all sheets.
//!
//! What everybody holds for the time of a call has such a counter too: see [`ShardedArc`].

use std::cell::OnceCell;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, OnceLock};

/// The most desks that threads have alone.
const MAX_SHARDS: usize = u64::BITS as usize;

/// One bit for each desk that somebody has.
static CLAIMED_SHARDS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static THREAD_SHARD: OnceCell<ShardClaim> = const { OnceCell::new() };
}

/// A desk that this thread has alone, as long as it lives; none if all were taken when it came.
struct ShardClaim {
    index: Option<usize>,
    claimed: &'static AtomicU64,
}

impl ShardClaim {
    fn claim(taken: &'static AtomicU64, most: usize) -> ShardClaim {
        let mut bits = taken.load(Relaxed);
        loop {
            let number = bits.trailing_ones() as usize;
            if number >= most {
                return ShardClaim { index: None, claimed: taken };
            }
            // Whoever had it before has written its last number.
            match taken.compare_exchange_weak(bits, bits | 1 << number, Acquire, Relaxed) {
                Ok(_) => return ShardClaim { index: Some(number), claimed: taken },
                Err(others) => bits = others,
            }
        }
    }
}

impl Drop for ShardClaim {
    fn drop(&mut self) {
        if let Some(number) = self.index {
            self.claimed.fetch_and(!(1 << number), Release);
        }
    }
}

/// Where this thread writes, and how. It is for this thread alone: what it writes elsewhere would be lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardId {
    index: usize,
    /// Nobody else writes here.
    is_exclusive: bool,
    _not_send: PhantomData<*const ()>,
}

impl ShardId {
    /// The pen of this thread.
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

    /// Adds to a number.
    #[inline]
    pub(crate) fn add(self, number: &AtomicU64, more: u64) {
        if self.is_exclusive {
            number.store(number.load(Relaxed).wrapping_add(more), Relaxed);
        } else {
            number.fetch_add(more, Relaxed);
        }
    }

    /// Counts one more, and gives how many there were. Whoever sees it counted sees what was written before.
    #[inline]
    pub(crate) fn increment(self, number: &AtomicU64) -> u64 {
        if self.is_exclusive {
            let were = number.load(Relaxed);
            number.store(were.wrapping_add(1), Release);
            were
        } else {
            number.fetch_add(1, Release)
        }
    }
}

/// One thing at each desk, made when somebody first writes there, and one more at the common desk.
pub(crate) struct Sharded<T>(Box<[OnceLock<Box<T>>]>);

impl<T> Sharded<T> {
    pub(crate) fn new() -> Sharded<T> {
        Sharded((0..=exclusive_shard_count()).map(|_| OnceLock::new()).collect())
    }

    /// What is written on with this pen.
    #[inline]
    pub(crate) fn get_or_init(&self, pen: ShardId, make: &dyn Fn() -> T) -> &T {
        match self.0[pen.index].get() {
            Some(made) => made,
            None => self.init_shard(pen, make),
        }
    }

    #[cold]
    fn init_shard(&self, pen: ShardId, make: &dyn Fn() -> T) -> &T {
        self.0[pen.index].get_or_init(|| Box::new(make()))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        self.0.iter().filter_map(|made| made.get().map(|made| &**made))
    }
}

impl<T> Default for Sharded<T> {
    fn default() -> Sharded<T> {
        Sharded::new()
    }
}

/// Something that all calls hold at once, and whose holders are counted at each desk.
pub(crate) struct ShardedArc<T> {
    value: Arc<T>,
    shards: Sharded<ShardedRef<T>>,
}

/// A hold on what belongs to all. Clones are counted among themselves, and not where all holders are.
pub(crate) type ShardedRef<T> = Arc<AlignedArc<T>>;

/// See [`Held`]. Its count shares a line of memory with nothing else.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct AlignedArc<T>(Arc<T>);

impl<T> AlignedArc<T> {
    pub(crate) fn new_ref(one: &Arc<T>) -> ShardedRef<T> {
        Arc::new(AlignedArc(Arc::clone(one)))
    }
}

impl<T> Deref for AlignedArc<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

impl<T> ShardedArc<T> {
    pub(crate) fn new(one: impl Into<Arc<T>>) -> ShardedArc<T> {
        ShardedArc { value: one.into(), shards: Sharded::new() }
    }

    /// To be kept for the time of a call: what is kept for longer belongs to nobody's desk.
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

/// How many desks there are beside the common one: more than cores, because not every thread that has one is busy.
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
        let mut desks: Vec<ShardClaim> = (0..7).map(|_| ShardClaim::claim(&BITS, 5)).collect();
        let numbers: Vec<_> = desks.iter().map(|desk| desk.index).collect();
        assert_eq!(numbers, [Some(0), Some(1), Some(2), Some(3), Some(4), None, None]);
        desks.remove(2);
        assert_eq!(ShardClaim::claim(&BITS, 5).index, Some(2), "what is given back can be taken again");
        desks.clear();
        assert_eq!(BITS.load(Relaxed), 0);
    }

    #[test]
    fn many_lose_no_number() {
        let desks = Sharded::<AtomicU64>::new();
        for _ in 0..20 {
            std::thread::scope(|scope| {
                for _ in 0..16 {
                    scope.spawn(|| {
                        for round in 0..500 {
                            let pen = ShardId::current();
                            let sheet = desks.get_or_init(pen, &AtomicU64::default);
                            if round % 2 == 0 { pen.add(sheet, 1) } else { _ = pen.increment(sheet) }
                        }
                    });
                }
            });
        }
        assert_eq!(desks.iter().map(|sheet| sheet.load(Relaxed)).sum::<u64>(), 160_000);
    }

    #[test]
    fn what_is_held_lives_until_the_last_has_let_go() {
        let one = Arc::new(7);
        let spread = ShardedArc::<i32>::new(Arc::clone(&one));
        let held: Vec<ShardedRef<i32>> = (0..8)
            .map(|_| std::thread::scope(|scope| scope.spawn(|| spread.acquire()).join().unwrap()))
            .collect();
        assert!(held.iter().all(|held| ****held == 7));
        drop(spread);
        assert!(Arc::strong_count(&one) > 1);
        drop(held);
        assert_eq!(Arc::strong_count(&one), 1);
    }
}
