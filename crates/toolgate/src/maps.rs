//! Maps of the house.

use std::collections::BTreeMap;

/// A map of these. They are put in one by one: `collect` sorts them first, and each kind of map would bring a sort of
/// its own into the program.
pub(crate) fn gather<K: Ord, V>(pairs: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut map = BTreeMap::new();
    map.extend(pairs);
    map
}
