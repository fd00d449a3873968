//! Maps of the house.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Takes one of a few out of a map. The others are put in again: to take one out of a tree is half of its code, and each
/// kind of map would bring that into the program.
pub(crate) fn remove_entry<V>(map: &mut BTreeMap<String, V>, name: &str) -> Option<V> {
    if !map.contains_key(name) {
        return None;
    }
    let mut taken = None;
    for (key, value) in std::mem::take(map) {
        match key == name {
            true => taken = Some(value),
            false => drop(map.insert(key, value)),
        }
    }
    taken
}

/// Things by name, in no order. They stand in a row, and what is hashed are names and places: each kind of hash map
/// would bring a table of its own into the program, and this brings one for all.
#[derive(Clone, Debug)]
pub(crate) struct NameMap<T> {
    entries: Vec<(Arc<str>, T)>,
    index: NameIndex,
}

/// Where in the row the thing of a name stands.
#[derive(Clone, Debug, Default)]
struct NameIndex(HashMap<Arc<str>, usize>);

impl NameIndex {
    #[inline(never)]
    fn get(&self, name: &str) -> Option<usize> {
        self.0.get(name).copied()
    }

    #[inline(never)]
    fn insert(&mut self, name: &Arc<str>, place: usize) {
        self.0.insert(Arc::clone(name), place);
    }

    #[inline(never)]
    fn remove(&mut self, name: &str) -> Option<usize> {
        self.0.remove(name)
    }
}

impl<T> Default for NameMap<T> {
    fn default() -> NameMap<T> {
        NameMap { entries: Vec::new(), index: NameIndex::default() }
    }
}

impl<T> NameMap<T> {
    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        Some(&self.entries[self.index.get(name)?].1)
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        Some(&mut self.entries[self.index.get(name)?].1)
    }

    pub(crate) fn contains_key(&self, name: &str) -> bool {
        self.index.get(name).is_some()
    }

    /// Puts a thing in, or in the place of the one with this name.
    pub(crate) fn insert(&mut self, name: &str, thing: T) {
        match self.get_mut(name) {
            Some(before) => *before = thing,
            None => self.push(name.into(), thing),
        }
    }

    /// The thing with this name, which is there from now on.
    pub(crate) fn get_or_default(&mut self, name: &str) -> &mut T
    where
        T: Default,
    {
        let place = self.index.get(name).unwrap_or_else(|| {
            self.push(name.into(), T::default());
            self.entries.len() - 1
        });
        &mut self.entries[place].1
    }

    /// Takes a thing out, if it is there. The last one takes its place.
    pub(crate) fn remove(&mut self, name: &str) -> Option<T> {
        let place = self.index.remove(name)?;
        let (_, thing) = self.entries.swap_remove(place);
        if let Some((moved, _)) = self.entries.get(place) {
            self.index.insert(moved, place);
        }
        Some(thing)
    }

    /// Keeps those of which this is true.
    pub(crate) fn retain(&mut self, mut is_kept: impl FnMut(&T) -> bool) {
        let before = self.entries.len();
        self.entries.retain(|(_, thing)| is_kept(thing));
        if self.entries.len() == before {
            return;
        }
        self.index = NameIndex(HashMap::with_capacity(self.entries.len()));
        for (place, (name, _)) in self.entries.iter().enumerate() {
            self.index.insert(name, place);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Before the row grows, those go of which this is not true. It then has room for as many again, so that this
    /// happens seldom, and stays within twice the number of those that are kept.
    pub(crate) fn tidy(&mut self, is_kept: impl FnMut(&T) -> bool) {
        if self.entries.len() == self.entries.capacity() {
            self.retain(is_kept);
            self.entries.reserve(self.entries.len());
        }
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(name, _)| &**name)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|(_, thing)| thing)
    }

    fn push(&mut self, name: Arc<str>, thing: T) {
        self.index.insert(&name, self.entries.len());
        self.entries.push((name, thing));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum MapOp {
        Insert(u8, u8),
        Add(u8),
        Remove(u8),
        RetainBelow(u8),
    }

    fn map_op() -> impl Strategy<Value = MapOp> {
        prop_oneof![
            (0..12u8, any::<u8>()).prop_map(|(name, value)| MapOp::Insert(name, value)),
            (0..12u8).prop_map(MapOp::Add),
            (0..12u8).prop_map(MapOp::Remove),
            any::<u8>().prop_map(MapOp::RetainBelow),
        ]
    }

    proptest! {
        #[test]
        fn it_holds_what_a_hash_map_holds(deeds in proptest::collection::vec(map_op(), 0..60)) {
            let mut named = NameMap::default();
            let mut model: HashMap<String, u8> = HashMap::new();
            for deed in deeds {
                match deed {
                    MapOp::Insert(name, value) => {
                        named.insert(&name.to_string(), value);
                        model.insert(name.to_string(), value);
                    }
                    MapOp::Add(name) => {
                        *named.get_or_default(&name.to_string()) ^= 1;
                        *model.entry(name.to_string()).or_default() ^= 1;
                    }
                    MapOp::Remove(name) => {
                        prop_assert_eq!(named.remove(&name.to_string()), model.remove(&name.to_string()));
                    }
                    MapOp::RetainBelow(most) => {
                        named.retain(|value| *value < most);
                        model.retain(|_, value| *value < most);
                    }
                }
                prop_assert_eq!(named.len(), model.len());
                for name in 0..12u8 {
                    prop_assert_eq!(named.get(&name.to_string()), model.get(&name.to_string()));
                }
                prop_assert!(named.keys().all(|name| model.contains_key(name)));
            }
        }
    }
}
