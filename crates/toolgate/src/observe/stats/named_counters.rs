//! Counters by name, found without a lock.
//!
//! A hash table whose slots are filled once and never emptied: a lookup is one hash, a few probes and one comparison.
//! Names come from clients, so their number and length are bounded, and a lookup probes a fixed number of slots however
//! the names were chosen. Names that do not fit are counted under [`OTHER`].

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The name under which everything is counted that does not fit.
pub(crate) const OTHER: &str = "(other)";

/// Limit of the names in a table.
pub(crate) const MAX_NAMES: usize = 1000;

/// Limit of the names at which failed requests add new ones, so that names of things that do not exist leave room.
pub(crate) const MAX_FAILED_NAMES: usize = 100;

/// Length at which names are cut; names with the same prefix of this length are counted together.
const MAX_NAME_BYTES: usize = 256;

/// Slots probed in each table before the next one is tried.
const MAX_PROBES: usize = 4;

/// Slots of the tables: 2, 16 and 64 KiB, each allocated when first needed. Most servers need only the first.
const TABLE_SIZES: [usize; 3] = [128, 1024, 4096];

type SlotTable<T> = Box<[OnceLock<Box<NamedCounter<T>>>]>;

/// Counters of type `T` by name. See the module documentation.
pub(crate) struct NamedCounters<T> {
    tables: [OnceLock<SlotTable<T>>; TABLE_SIZES.len()],
    n_names: AtomicUsize,
    other: OnceLock<Box<T>>,
    /// Random, so that clients cannot choose names that share a slot.
    seed: u64,
}

struct NamedCounter<T> {
    hash: u64,
    name: Box<str>,
    value: T,
}

impl<T: Default> NamedCounters<T> {
    pub(crate) fn new() -> NamedCounters<T> {
        NamedCounters {
            tables: Default::default(),
            n_names: AtomicUsize::new(0),
            other: OnceLock::new(),
            seed: RandomState::new().hash_one(0),
        }
    }

    /// Returns the counter of a name. A new name is added if there are fewer than `max_names`.
    #[inline]
    pub(crate) fn get(&self, name: &str, max_names: usize) -> &T {
        let name = clip(name, MAX_NAME_BYTES);
        let hash = hash(self.seed, name.as_bytes());
        // Nearly always the first slot of the first table.
        if let Some(table) = self.tables[0].get()
            && let Some(counter) = table[slot_index(hash, 0, TABLE_SIZES[0])].get()
            && counter.matches(hash, name)
        {
            return &counter.value;
        }
        self.find_or_insert(hash, name, max_names)
    }

    fn find_or_insert(&self, hash: u64, name: &str, max_names: usize) -> &T {
        for (table, size) in self.tables.iter().zip(TABLE_SIZES) {
            let table = match table.get() {
                Some(table) => table,
                None if self.n_names.load(Ordering::Relaxed) >= max_names => return self.other(),
                None => table.get_or_init(|| (0..size).map(|_| OnceLock::new()).collect()),
            };
            for probe in 0..MAX_PROBES {
                let slot = &table[slot_index(hash, probe, size)];
                let counter = match slot.get() {
                    Some(counter) => counter,
                    None => match self.fill_slot(slot, hash, name, max_names) {
                        Some(counter) => counter,
                        None => return self.other(),
                    },
                };
                if counter.matches(hash, name) {
                    return &counter.value;
                }
            }
        }
        self.other()
    }

    /// Returns all counters by name.
    pub(crate) fn to_map<V>(&self, mut view: impl FnMut(&T) -> V) -> BTreeMap<String, V> {
        let mut all = BTreeMap::new();
        for counter in self.tables.iter().filter_map(OnceLock::get).flatten().filter_map(OnceLock::get) {
            all.insert(counter.name.to_string(), view(&counter.value));
        }
        if let Some(other) = self.other.get() {
            all.insert(OTHER.into(), view(other));
        }
        all
    }

    /// Fills an empty slot, unless another thread fills it first, possibly with another name.
    #[cold]
    fn fill_slot<'a>(
        &self,
        slot: &'a OnceLock<Box<NamedCounter<T>>>,
        hash: u64,
        name: &str,
        max_names: usize,
    ) -> Option<&'a NamedCounter<T>> {
        let mut is_ours = false;
        if self.n_names.fetch_add(1, Ordering::Relaxed) < max_names {
            slot.get_or_init(|| {
                is_ours = true;
                Box::new(NamedCounter { hash, name: name.into(), value: T::default() })
            });
        }
        if !is_ours {
            self.n_names.fetch_sub(1, Ordering::Relaxed);
        }
        slot.get().map(|counter| &**counter)
    }

    #[cold]
    fn other(&self) -> &T {
        self.other.get_or_init(Box::default)
    }
}

impl<T> NamedCounter<T> {
    fn matches(&self, hash: u64, name: &str) -> bool {
        self.hash == hash && *self.name == *name
    }
}

/// `size` is a power of two.
fn slot_index(hash: u64, probe: usize, size: usize) -> usize {
    (hash as usize).wrapping_add(probe) & (size - 1)
}

/// Hashes eight bytes at a time; the last eight bytes are hashed once more to cover the remainder.
///
/// Not resistant to attackers who know the seed: all they could achieve is that names are counted together.
#[inline]
fn hash(seed: u64, bytes: &[u8]) -> u64 {
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    // Both halves of the product: the last letters of a name are in its highest bits, and differ most.
    let mix = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word) * u128::from(MIX);
        product as u64 ^ (product >> 64) as u64
    };
    let seed = seed ^ bytes.len() as u64;
    match bytes.last_chunk::<8>() {
        Some(last) => {
            let (words, _) = bytes.as_chunks::<8>();
            let hash = words.iter().fold(seed, |hash, word| mix(hash, u64::from_le_bytes(*word)));
            mix(hash, u64::from_le_bytes(*last))
        }
        None => mix(seed, bytes.iter().fold(0, |rest, byte| rest << 8 | u64::from(*byte))),
    }
}

/// Cuts a text to at most `max_bytes`, at a character boundary.
#[inline]
pub(crate) fn clip(text: &str, max_bytes: usize) -> &str {
    if text.len() <= max_bytes {
        return text;
    }
    let mut end = max_bytes;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    fn count(names: &NamedCounters<AtomicU64>, name: &str, max_names: usize) {
        names.get(name, max_names).fetch_add(1, Ordering::Relaxed);
    }

    fn all(names: &NamedCounters<AtomicU64>) -> BTreeMap<String, u64> {
        names.to_map(|count| count.load(Ordering::Relaxed))
    }

    #[test]
    fn a_thousand_names_are_counted_apart_and_the_rest_together() {
        let names = NamedCounters::new();
        for round in 0..3 {
            for number in 0..1500 {
                count(&names, &format!("name {number}"), MAX_NAMES);
            }
            let all = all(&names);
            assert_eq!(all.len(), MAX_NAMES + 1, "in round {round}");
            assert_eq!(all[OTHER], 500 * (round + 1));
            assert_eq!(all["name 0"], round + 1);
            assert_eq!(all["name 999"], round + 1);
        }
    }

    #[test]
    fn failed_names_leave_room_for_existing_ones() {
        let names = NamedCounters::new();
        for number in 0..500 {
            count(&names, &format!("bad {number}"), MAX_FAILED_NAMES);
        }
        count(&names, "good", MAX_NAMES);
        count(&names, "good", MAX_FAILED_NAMES);
        let all = all(&names);
        assert_eq!((all.len(), all[OTHER], all["good"]), (MAX_FAILED_NAMES + 2, 400, 2));
    }

    #[test]
    fn long_names_are_cut_at_character_boundaries() {
        let names = NamedCounters::new();
        count(&names, &"ä".repeat(300), MAX_NAMES);
        count(&names, &"ä".repeat(400), MAX_NAMES);
        count(&names, "", MAX_NAMES);
        assert_eq!(all(&names), BTreeMap::from([("ä".repeat(128), 2), (String::new(), 1)]));
    }

    #[test]
    fn similar_names_are_spread_over_slots() {
        for seed in 0..100 {
            let slots = (0..100)
                .map(|number| slot_index(hash(seed, format!("some_tool_{number}").as_bytes()), 0, 128));
            let slots: std::collections::BTreeSet<_> = slots.collect();
            // A hundred random throws hit 69 of 128 slots, give or take four.
            assert!(slots.len() > 50, "{} slots with seed {seed}", slots.len());
        }
    }

    #[test]
    fn concurrent_counts_are_not_lost_and_names_not_duplicated() {
        let names = NamedCounters::new();
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    (0..2000).for_each(|number| count(&names, &format!("n{}", number % 700), MAX_NAMES))
                });
            }
        });
        let all = all(&names);
        assert_eq!(all.len(), 700);
        assert_eq!(all.values().sum::<u64>(), 32_000);
        assert_eq!(names.n_names.load(Ordering::Relaxed), 700);
    }
}
