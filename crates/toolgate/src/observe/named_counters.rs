//! Counters by name, found without a lock.
//!
//! A table whose slots are filled once and never emptied: finding a name is a hash, a handful of looks and one
//! comparison. Names come from peers, so there is a most of them, each is cut to a length, and a look goes to a
//! fixed number of slots however the names were chosen. What finds no room is counted under [`OTHER`].

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The name of all those for whom there is no room.
pub(crate) const OTHER: &str = "(other)";

/// The most names in a table.
pub(crate) const MAX_NAMES: usize = 1000;

/// The most names of things that failed: what does not exist must not keep the room of what does.
pub(crate) const MAX_FAILED_NAMES: usize = 100;

/// The longest name, in bytes; names that begin alike so far are one.
const MAX_NAME_BYTES: usize = 256;

/// Slots looked at in each shelf before the next is tried.
const MAX_PROBES: usize = 4;

/// The shelves: 2, 16 and 64 KiB, each made when it is first needed. Most servers need the first one only.
const TABLE_SIZES: [usize; 3] = [128, 1024, 4096];

type SlotTable<T> = Box<[OnceLock<Box<NamedCounter<T>>>]>;

/// See the module.
pub(crate) struct NamedCounters<T> {
    tables: [OnceLock<SlotTable<T>>; TABLE_SIZES.len()],
    n_names: AtomicUsize,
    other: OnceLock<Box<T>>,
    /// Nobody outside knows which names share a slot.
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

    /// What is counted under a name, new if there are fewer than `most` names.
    #[inline]
    pub(crate) fn get(&self, name: &str, most: usize) -> &T {
        let name = clip(name, MAX_NAME_BYTES);
        let hash = hash(self.seed, name.as_bytes());
        // Nearly always it is the first slot of the first shelf.
        if let Some(shelf) = self.tables[0].get()
            && let Some(named) = shelf[slot_index(hash, 0, TABLE_SIZES[0])].get()
            && named.matches(hash, name)
        {
            return &named.value;
        }
        self.find_or_insert(hash, name, most)
    }

    fn find_or_insert(&self, hash: u64, name: &str, most: usize) -> &T {
        for (shelf, size) in self.tables.iter().zip(TABLE_SIZES) {
            let shelf = match shelf.get() {
                Some(shelf) => shelf,
                None if self.n_names.load(Ordering::Relaxed) >= most => return self.other(),
                None => shelf.get_or_init(|| (0..size).map(|_| OnceLock::new()).collect()),
            };
            for look in 0..MAX_PROBES {
                let slot = &shelf[slot_index(hash, look, size)];
                let named = match slot.get() {
                    Some(named) => named,
                    None => match self.fill_slot(slot, hash, name, most) {
                        Some(named) => named,
                        None => return self.other(),
                    },
                };
                if named.matches(hash, name) {
                    return &named.value;
                }
            }
        }
        self.other()
    }

    /// Everything that was counted.
    pub(crate) fn to_map<V>(&self, mut view: impl FnMut(&T) -> V) -> BTreeMap<String, V> {
        let mut all = BTreeMap::new();
        for named in self.tables.iter().filter_map(OnceLock::get).flatten().filter_map(OnceLock::get) {
            all.insert(named.name.to_string(), view(&named.value));
        }
        if let Some(other) = self.other.get() {
            all.insert(OTHER.into(), view(other));
        }
        all
    }

    /// Fills an empty slot, perhaps later than somebody else who has another name in mind.
    #[cold]
    fn fill_slot<'a>(
        &self,
        slot: &'a OnceLock<Box<NamedCounter<T>>>,
        hash: u64,
        name: &str,
        most: usize,
    ) -> Option<&'a NamedCounter<T>> {
        let mut is_ours = false;
        if self.n_names.fetch_add(1, Ordering::Relaxed) < most {
            slot.get_or_init(|| {
                is_ours = true;
                Box::new(NamedCounter { hash, name: name.into(), value: T::default() })
            });
        }
        if !is_ours {
            self.n_names.fetch_sub(1, Ordering::Relaxed);
        }
        slot.get().map(|named| &**named)
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

/// The sizes are powers of two.
fn slot_index(hash: u64, look: usize, size: usize) -> usize {
    (hash as usize).wrapping_add(look) & (size - 1)
}

/// Eight bytes at a time, the last eight once more for what is left over. Whoever guessed the seed would gain
/// that names are counted together.
#[inline]
fn hash(seed: u64, bytes: &[u8]) -> u64 {
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    // Both halves of the product: the last letters of a name are its highest bits, and differ most.
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

/// At most so many bytes of a text, and no broken letter.
#[inline]
pub(crate) fn clip(text: &str, most: usize) -> &str {
    if text.len() <= most { text } else { &text[..text.floor_char_boundary(most)] }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    fn count(names: &NamedCounters<AtomicU64>, name: &str, most: usize) {
        names.get(name, most).fetch_add(1, Ordering::Relaxed);
    }

    fn all(names: &NamedCounters<AtomicU64>) -> BTreeMap<String, u64> {
        names.to_map(|count| count.load(Ordering::Relaxed))
    }

    #[test]
    fn a_thousand_names_are_kept_apart_and_the_rest_together() {
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
    fn what_failed_leaves_room_for_what_exists() {
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
    fn long_names_are_cut_between_letters() {
        let names = NamedCounters::new();
        count(&names, &"ä".repeat(300), MAX_NAMES);
        count(&names, &"ä".repeat(400), MAX_NAMES);
        count(&names, "", MAX_NAMES);
        assert_eq!(all(&names), BTreeMap::from([("ä".repeat(128), 2), (String::new(), 1)]));
    }

    #[test]
    fn names_that_differ_little_are_spread() {
        for seed in 0..100 {
            let slots = (0..100)
                .map(|number| slot_index(hash(seed, format!("some_tool_{number}").as_bytes()), 0, 128));
            let slots: std::collections::BTreeSet<_> = slots.collect();
            // A hundred throws at random meet 69 of 128 slots, give or take four.
            assert!(slots.len() > 50, "{} slots with seed {seed}", slots.len());
        }
    }

    #[test]
    fn many_at_once_lose_no_count_and_make_no_name_twice() {
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
