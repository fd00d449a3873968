//! Where a thread writes its numbers.
//!
//! A counter that two cores add to is handed to and fro between them, and that takes longer than all the rest of
//! counting. So every thread that answers has a desk of its own, with sheets that nobody else writes: it need not even
//! lock out the others to add to a number. There are as many desks as cores; threads that find none write at the
//! common one, together. Whoever reads, adds up all sheets.
//!
//! What everybody holds for the time of a call has such a counter too: see [`Spread`].

use std::cell::OnceCell;
use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::{Arc, OnceLock};

/// The most desks that threads have alone.
const MOST: usize = u64::BITS as usize;

/// One bit for each desk that somebody has.
static TAKEN: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static OWN: OnceCell<Desk> = const { OnceCell::new() };
}

/// A desk that this thread has alone, as long as it lives; none if all were taken.
struct Desk(Option<usize>);

impl Desk {
    fn take() -> Desk {
        let mut taken = TAKEN.load(Relaxed);
        loop {
            let number = taken.trailing_ones() as usize;
            if number >= MOST {
                return Desk(None);
            }
            // Whoever had it before has written its last number.
            match TAKEN.compare_exchange_weak(taken, taken | 1 << number, Acquire, Relaxed) {
                Ok(_) => return Desk(Some(number)),
                Err(others) => taken = others,
            }
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if let Some(number) = self.0 {
            TAKEN.fetch_and(!(1 << number), Release);
        }
    }
}

/// How numbers are written at a desk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pen {
    /// Nobody else writes here.
    Own,
    /// Others may write at the same moment.
    Common,
}

impl Pen {
    /// Adds to a number, and gives what it was.
    #[inline]
    pub(crate) fn add(self, number: &AtomicU64, more: u64) -> u64 {
        match self {
            Pen::Own => {
                let was = number.load(Relaxed);
                // Whoever sees it sees what was written before.
                number.store(was.wrapping_add(more), Release);
                was
            }
            Pen::Common => number.fetch_add(more, AcqRel),
        }
    }
}

/// One thing at each desk, made when somebody first writes there.
pub(crate) struct Desks<T>(Box<[OnceLock<Box<T>>]>);

impl<T> Desks<T> {
    pub(crate) fn new() -> Desks<T> {
        Desks((0..=n_own()).map(|_| OnceLock::new()).collect())
    }

    /// What this thread writes on, and how.
    #[inline]
    pub(crate) fn mine(&self, make: impl FnOnce() -> T) -> (&T, Pen) {
        let common = self.0.len() - 1;
        let own = OWN.try_with(|own| own.get_or_init(Desk::take).0).ok().flatten();
        let (number, pen) = match own {
            Some(number) if number < common => (number, Pen::Own),
            _ => (common, Pen::Common),
        };
        (self.0[number].get_or_init(|| Box::new(make())), pen)
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = &T> + Clone {
        self.0.iter().filter_map(|made| made.get().map(|made| &**made))
    }
}

/// Something that all calls hold at once, and whose holders are counted at each desk.
pub(crate) struct Spread<T> {
    one: Arc<T>,
    desks: Desks<Held<T>>,
}

/// A hold on what belongs to all. Clones are counted among themselves, and not where all holders are.
pub(crate) type Held<T> = Arc<Hold<T>>;

/// See [`Held`].
#[derive(Debug)]
pub(crate) struct Hold<T>(Arc<T>);

impl<T> Hold<T> {
    pub(crate) fn of(one: &Arc<T>) -> Held<T> {
        Arc::new(Hold(Arc::clone(one)))
    }

    /// What is held.
    pub(crate) fn one(&self) -> &Arc<T> {
        &self.0
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
        Arc::clone(self.desks.mine(|| Hold::of(&self.one)).0)
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

/// How many desks there are beside the common one.
fn n_own() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from).min(MOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_desk_has_one_owner_at_a_time() {
        let mut desks: Vec<Desk> = (0..2 * MOST).map(|_| Desk::take()).collect();
        let mut numbers: Vec<usize> = desks.iter().filter_map(|desk| desk.0).collect();
        let n_taken = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        // Other tests may have some.
        assert!(numbers.len() == n_taken && (1..=MOST).contains(&n_taken), "{numbers:?}");
        assert!(desks.iter().any(|desk| desk.0.is_none()), "they do not last forever");
        desks.clear();
        assert!(Desk::take().0.is_some(), "what is given back can be taken again");
    }

    #[test]
    fn many_lose_no_number() {
        let desks = Desks::<AtomicU64>::new();
        for _ in 0..20 {
            std::thread::scope(|scope| {
                for _ in 0..16 {
                    scope.spawn(|| {
                        for _ in 0..500 {
                            let (sheet, pen) = desks.mine(AtomicU64::default);
                            pen.add(sheet, 1);
                        }
                    });
                }
            });
        }
        assert_eq!(desks.each().map(|sheet| sheet.load(Relaxed)).sum::<u64>(), 160_000);
    }
}
