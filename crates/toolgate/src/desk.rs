//! Where a thread writes its numbers.
//!
//! A counter that two cores add to is handed to and fro between them, and that takes longer than all the rest of
//! counting. So every thread that answers has a desk of its own, with sheets that nobody else writes: it need not even
//! lock out the others to add to a number. There are two desks for each core; threads that find none write at the
//! common one, together. Whoever reads, adds up all sheets.
//!
//! What everybody holds for the time of a call has such a counter too: see [`Spread`].

use std::cell::OnceCell;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, OnceLock};

/// The most desks that threads have alone.
const MOST: usize = u64::BITS as usize;

/// One bit for each desk that somebody has.
static TAKEN: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static OWN: OnceCell<Desk> = const { OnceCell::new() };
}

/// A desk that this thread has alone, as long as it lives; none if all were taken when it came.
struct Desk {
    number: Option<usize>,
    taken: &'static AtomicU64,
}

impl Desk {
    fn take(taken: &'static AtomicU64, most: usize) -> Desk {
        let mut bits = taken.load(Relaxed);
        loop {
            let number = bits.trailing_ones() as usize;
            if number >= most {
                return Desk { number: None, taken };
            }
            // Whoever had it before has written its last number.
            match taken.compare_exchange_weak(bits, bits | 1 << number, Acquire, Relaxed) {
                Ok(_) => return Desk { number: Some(number), taken },
                Err(others) => bits = others,
            }
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.taken.fetch_and(!(1 << number), Release);
        }
    }
}

/// Where this thread writes, and how. It is for this thread alone: what it writes elsewhere would be lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pen {
    number: usize,
    /// Nobody else writes here.
    is_own: bool,
    _here: PhantomData<*const ()>,
}

impl Pen {
    /// The pen of this thread.
    #[inline]
    pub(crate) fn mine() -> Pen {
        let own = OWN.try_with(|own| own.get_or_init(|| Desk::take(&TAKEN, n_own())).number);
        let own = own.ok().flatten();
        Pen { number: own.unwrap_or_else(n_own), is_own: own.is_some(), _here: PhantomData }
    }

    /// Adds to a number.
    #[inline]
    pub(crate) fn add(self, number: &AtomicU64, more: u64) {
        if self.is_own {
            number.store(number.load(Relaxed).wrapping_add(more), Relaxed);
        } else {
            number.fetch_add(more, Relaxed);
        }
    }

    /// Counts one more, and gives how many there were. Whoever sees it counted sees what was written before.
    #[inline]
    pub(crate) fn count(self, number: &AtomicU64) -> u64 {
        if self.is_own {
            let were = number.load(Relaxed);
            number.store(were.wrapping_add(1), Release);
            were
        } else {
            number.fetch_add(1, Release)
        }
    }
}

/// One thing at each desk, made when somebody first writes there, and one more at the common desk.
pub(crate) struct Desks<T>(Box<[OnceLock<Box<T>>]>);

impl<T> Desks<T> {
    pub(crate) fn new() -> Desks<T> {
        Desks((0..=n_own()).map(|_| OnceLock::new()).collect())
    }

    /// What is written on with this pen.
    #[inline]
    pub(crate) fn at(&self, pen: Pen, make: &dyn Fn() -> T) -> &T {
        match self.0[pen.number].get() {
            Some(made) => made,
            None => self.make(pen, make),
        }
    }

    #[cold]
    fn make(&self, pen: Pen, make: &dyn Fn() -> T) -> &T {
        self.0[pen.number].get_or_init(|| Box::new(make()))
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = &T> + Clone {
        self.0.iter().filter_map(|made| made.get().map(|made| &**made))
    }
}

impl<T> Default for Desks<T> {
    fn default() -> Desks<T> {
        Desks::new()
    }
}

/// Something that all calls hold at once, and whose holders are counted at each desk.
pub(crate) struct Spread<T> {
    one: Arc<T>,
    desks: Desks<Held<T>>,
}

/// A hold on what belongs to all. Clones are counted among themselves, and not where all holders are.
pub(crate) type Held<T> = Arc<Hold<T>>;

/// See [`Held`]. Its count shares a line of memory with nothing else.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Hold<T>(Arc<T>);

impl<T> Hold<T> {
    pub(crate) fn of(one: &Arc<T>) -> Held<T> {
        Arc::new(Hold(Arc::clone(one)))
    }
}

impl<T> Deref for Hold<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

impl<T> Spread<T> {
    pub(crate) fn new(one: impl Into<Arc<T>>) -> Spread<T> {
        Spread { one: one.into(), desks: Desks::new() }
    }

    /// To be kept for the time of a call: what is kept for longer belongs to nobody's desk.
    #[inline]
    pub(crate) fn hold(&self) -> Held<T> {
        Arc::clone(self.desks.at(Pen::mine(), &|| Hold::of(&self.one)))
    }
}

impl<T> Deref for Spread<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.one
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Spread<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.one.fmt(f)
    }
}

/// How many desks there are beside the common one: more than cores, because not every thread that has one is busy.
fn n_own() -> usize {
    static DESKS: OnceLock<usize> = OnceLock::new();
    *DESKS.get_or_init(|| std::thread::available_parallelism().map_or(2, |cores| 2 * cores.get()).min(MOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_desk_has_one_owner_at_a_time() {
        static BITS: AtomicU64 = AtomicU64::new(0);
        let mut desks: Vec<Desk> = (0..7).map(|_| Desk::take(&BITS, 5)).collect();
        let numbers: Vec<_> = desks.iter().map(|desk| desk.number).collect();
        assert_eq!(numbers, [Some(0), Some(1), Some(2), Some(3), Some(4), None, None]);
        desks.remove(2);
        assert_eq!(Desk::take(&BITS, 5).number, Some(2), "what is given back can be taken again");
        desks.clear();
        assert_eq!(BITS.load(Relaxed), 0);
    }

    #[test]
    fn many_lose_no_number() {
        let desks = Desks::<AtomicU64>::new();
        for _ in 0..20 {
            std::thread::scope(|scope| {
                for _ in 0..16 {
                    scope.spawn(|| {
                        for round in 0..500 {
                            let pen = Pen::mine();
                            let sheet = desks.at(pen, &AtomicU64::default);
                            if round % 2 == 0 { pen.add(sheet, 1) } else { _ = pen.count(sheet) }
                        }
                    });
                }
            });
        }
        assert_eq!(desks.each().map(|sheet| sheet.load(Relaxed)).sum::<u64>(), 160_000);
    }

    #[test]
    fn what_is_held_lives_until_the_last_has_let_go() {
        let one = Arc::new(7);
        let spread = Spread::<i32>::new(Arc::clone(&one));
        let held: Vec<Held<i32>> = (0..8)
            .map(|_| std::thread::scope(|scope| scope.spawn(|| spread.hold()).join().unwrap()))
            .collect();
        assert!(held.iter().all(|held| ****held == 7));
        drop(spread);
        assert!(Arc::strong_count(&one) > 1);
        drop(held);
        assert_eq!(Arc::strong_count(&one), 1);
    }
}
