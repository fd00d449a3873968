//! The registry of tools, resources, templates and prompts: an immutable snapshot that is swapped on change.
//!
//! Readers load the snapshot without a lock; a change builds a new one. Lists are in the order of registration. The registry
//! does not know callers, except in `view`.

#[cfg(feature = "validate")]
mod argument_messages;
mod header_params;
mod known_arguments;
mod output_validator;
mod page;
mod prompt;
mod resource;
mod roots;
mod template;
mod tool;
mod validator;
mod view;

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use toolgate_wire::model::TaskSupport;

pub(crate) use header_params::{decode_header_value, validate_header_params};
pub(crate) use known_arguments::KnownArguments;
pub(crate) use output_validator::OutputValidator;
pub(crate) use page::{ListEntry, Pager};
pub(crate) use prompt::PromptEntry;
pub(crate) use resource::{ResourceEntry, TemplateEntry};
pub(crate) use roots::read_in_roots;
pub(crate) use tool::ToolEntry;
pub(crate) use validator::{ArgumentValidator, validate_elicitation};
pub(crate) use view::View;

pub use prompt::PromptSpec;
pub(crate) use resource::cache_hint;
pub use resource::{ResourceSpec, TemplateSpec};
pub use roots::Roots;
pub use template::{TemplateError, UriTemplate, UriValue};
pub use tool::{ClientCapability, ToolSpec};

use crate::subscriptions::{ChangeTopic, Subscriptions};
use crate::util::hash::FnvHasher;

/// All items of a server at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) tools: OrderedMap<ToolEntry>,
    pub(crate) resources: OrderedMap<ResourceEntry>,
    pub(crate) templates: OrderedMap<TemplateEntry>,
    pub(crate) prompts: OrderedMap<PromptEntry>,
}

impl Snapshot {
    /// Returns the first template that matches a URI, and its variables.
    pub(crate) fn match_template(&self, uri: &str) -> Option<(&TemplateEntry, Vec<(String, String)>)> {
        self.templates.iter().find_map(|entry| Some((&**entry, entry.pattern.match_uri(uri)?)))
    }

    pub(crate) fn has_completers(&self) -> bool {
        self.prompts.iter().any(|entry| !entry.completers.is_empty())
            || self.templates.iter().any(|entry| !entry.completers.is_empty())
            || self.resources.iter().any(|entry| !entry.completers.is_empty())
    }
}

/// An item with a unique key.
pub(crate) trait Keyed {
    fn key(&self) -> &str;

    /// Further keys by which the item is found, unless they are the key of another item.
    fn aliases(&self) -> &[String] {
        &[]
    }
}

/// Items in order of insertion, with lookup by key and alias.
#[derive(Debug)]
pub(crate) struct OrderedMap<T> {
    items: Vec<Arc<T>>,
    indices: HashMap<Box<str>, usize, BuildHasherDefault<FnvHasher>>,
    /// Indices of items by alias. No alias is a key of `indices`.
    aliases: HashMap<Box<str>, usize, BuildHasherDefault<FnvHasher>>,
}

impl<T> Default for OrderedMap<T> {
    fn default() -> OrderedMap<T> {
        OrderedMap { items: Vec::new(), indices: HashMap::default(), aliases: HashMap::default() }
    }
}

impl<T> Clone for OrderedMap<T> {
    fn clone(&self) -> OrderedMap<T> {
        OrderedMap { items: self.items.clone(), indices: self.indices.clone(), aliases: self.aliases.clone() }
    }
}

impl<T: Keyed> OrderedMap<T> {
    pub(crate) fn get(&self, key: &str) -> Option<&Arc<T>> {
        self.indices.get(key).map(|index| &self.items[*index])
    }

    /// Returns the item with this key, or else the one with this alias.
    pub(crate) fn get_or_alias(&self, key: &str) -> Option<&Arc<T>> {
        self.get(key).or_else(|| self.aliases.get(key).map(|index| &self.items[*index]))
    }

    /// Returns why an item cannot be inserted: its key or an alias belongs to another item. An item with the same key is not a
    /// conflict, because it would be replaced.
    pub(crate) fn find_conflict(&self, item: &T) -> Option<String> {
        let own = self.index_of(item.key());
        let is_other = |index: Option<&usize>| index.is_some_and(|index| Some(*index) != own);
        if let Some(index) = self.aliases.get(item.key()) {
            return Some(format!("its name is an alias of `{}`", self.items[*index].key()));
        }
        item.aliases().iter().find_map(|alias| {
            if is_other(self.indices.get(alias.as_str())) {
                return Some(format!("its alias `{alias}` is the name of another"));
            }
            let index = self.aliases.get(alias.as_str()).filter(|index| is_other(Some(index)))?;
            Some(format!("its alias `{alias}` is one of `{}` too", self.items[*index].key()))
        })
    }

    pub(crate) fn index_of(&self, key: &str) -> Option<usize> {
        self.indices.get(key).copied()
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Arc<T>> {
        self.items.iter()
    }

    pub(crate) fn as_slice(&self) -> &[Arc<T>] {
        &self.items
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Inserts an item, or replaces the one with the same key. Always returns `true`. The caller has checked
    /// [`OrderedMap::find_conflict`].
    pub(crate) fn insert(&mut self, item: T) -> bool {
        let index = self.index_of(item.key()).unwrap_or(self.items.len());
        self.aliases.retain(|_, target| *target != index);
        self.aliases.extend(item.aliases().iter().map(|alias| (alias.as_str().into(), index)));
        match self.items.get_mut(index) {
            Some(old) => *old = Arc::new(item),
            None => {
                self.indices.insert(item.key().into(), index);
                self.items.push(Arc::new(item));
            }
        }
        true
    }

    /// Removes all items. Returns whether there were any.
    pub(crate) fn clear(&mut self) -> bool {
        self.indices.clear();
        self.aliases.clear();
        !std::mem::take(&mut self.items).is_empty()
    }

    /// Removes an item. Returns whether it existed.
    pub(crate) fn remove(&mut self, key: &str) -> bool {
        let Some(index) = self.indices.remove(key) else {
            return false;
        };
        self.items.remove(index);
        self.aliases.retain(|_, target| *target != index);
        for later in self.indices.values_mut().chain(self.aliases.values_mut()) {
            if *later > index {
                *later -= 1;
            }
        }
        true
    }
}

/// The current snapshot, and its updates.
#[derive(Debug)]
pub(crate) struct Registry {
    current: ArcSwap<Snapshot>,
    /// Capabilities announced so far. They are never withdrawn, because clients may rely on them; lists can become empty.
    features: FeatureFlags,
    /// Serializes updates, so that none is lost.
    write_lock: Mutex<()>,
    subscriptions: Arc<Subscriptions>,
}

/// The capabilities of a server that depend on its items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features {
    pub(crate) tools: bool,
    pub(crate) resources: bool,
    pub(crate) prompts: bool,
    pub(crate) completions: bool,
    /// Some tool supports tasks.
    pub(crate) tasks: bool,
}

impl Features {
    fn merged_with(self, catalog: &Snapshot) -> Features {
        Features {
            tools: self.tools || !catalog.tools.is_empty(),
            resources: self.resources || !catalog.resources.is_empty() || !catalog.templates.is_empty(),
            prompts: self.prompts || !catalog.prompts.is_empty(),
            completions: self.completions || catalog.has_completers(),
            tasks: self.tasks
                || catalog.tools.iter().any(|entry| entry.tool.task_support != TaskSupport::Forbidden),
        }
    }
}

/// [`Features`] as atomics, because every call reads them. Flags are only ever set.
#[derive(Debug, Default)]
struct FeatureFlags {
    tools: AtomicBool,
    resources: AtomicBool,
    prompts: AtomicBool,
    completions: AtomicBool,
    tasks: AtomicBool,
}

impl FeatureFlags {
    fn insert(&self, features: Features) {
        let Features { tools, resources, prompts, completions, tasks } = features;
        self.tools.fetch_or(tools, Ordering::Relaxed);
        self.resources.fetch_or(resources, Ordering::Relaxed);
        self.prompts.fetch_or(prompts, Ordering::Relaxed);
        self.completions.fetch_or(completions, Ordering::Relaxed);
        self.tasks.fetch_or(tasks, Ordering::Relaxed);
    }

    #[inline]
    fn load(&self) -> Features {
        Features {
            tools: self.tools.load(Ordering::Relaxed),
            resources: self.resources.load(Ordering::Relaxed),
            prompts: self.prompts.load(Ordering::Relaxed),
            completions: self.completions.load(Ordering::Relaxed),
            tasks: self.tasks.load(Ordering::Relaxed),
        }
    }
}

impl Registry {
    /// Creates a registry. `announced` are capabilities to announce even without items.
    pub(crate) fn new(
        snapshot: Snapshot,
        announced: Features,
        subscriptions: Arc<Subscriptions>,
    ) -> Registry {
        let features = FeatureFlags::default();
        features.insert(announced.merged_with(&snapshot));
        Registry {
            current: ArcSwap::from_pointee(snapshot),
            features,
            write_lock: Mutex::new(()),
            subscriptions,
        }
    }

    pub(crate) fn snapshot(&self) -> arc_swap::Guard<Arc<Snapshot>> {
        self.current.load()
    }

    pub(crate) fn features(&self) -> Features {
        self.features.load()
    }

    /// Applies `change` to a copy of the snapshot. If it returns `true`, the copy becomes current and clients are notified of the
    /// topic.
    pub(crate) fn update(&self, topic: &ChangeTopic, change: impl FnOnce(&mut Snapshot) -> bool) -> bool {
        self.update_boxed(topic, Box::new(change))
    }

    fn update_boxed(&self, topic: &ChangeTopic, change: Box<dyn FnOnce(&mut Snapshot) -> bool + '_>) -> bool {
        {
            let _lock = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
            let mut next = Snapshot::clone(&self.current.load());
            if !change(&mut next) {
                return false;
            }
            self.features.insert(self.features().merged_with(&next));
            self.current.store(Arc::new(next));
        }
        self.subscriptions.publish(topic);
        true
    }
}

impl Registry {
    /// Replaces all items atomically, and notifies clients of the lists that differ.
    pub(crate) fn replace(&self, next: &Snapshot) {
        let changed = {
            let _lock = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
            let old = self.current.load_full();
            self.features.insert(self.features().merged_with(next));
            self.current.store(Arc::new(next.clone()));
            old.changed_topics(next)
        };
        for topic in &changed {
            self.subscriptions.publish(topic);
        }
    }
}

impl Snapshot {
    /// Returns the lists that differ from those of another snapshot.
    fn changed_topics(&self, other: &Snapshot) -> Vec<ChangeTopic> {
        let mut topics = Vec::new();
        if !self.tools.iter().map(|entry| &entry.tool).eq(other.tools.iter().map(|entry| &entry.tool)) {
            topics.push(ChangeTopic::Tools);
        }
        let resources = |snapshot: &Snapshot| {
            snapshot.resources.iter().map(|entry| Arc::clone(&entry.resource)).collect::<Vec<_>>()
        };
        let templates = |snapshot: &Snapshot| {
            snapshot.templates.iter().map(|entry| Arc::clone(&entry.template)).collect::<Vec<_>>()
        };
        if resources(self) != resources(other) || templates(self) != templates(other) {
            topics.push(ChangeTopic::Resources);
        }
        if !self.prompts.iter().map(|entry| &entry.prompt).eq(other.prompts.iter().map(|entry| &entry.prompt))
        {
            topics.push(ChangeTopic::Prompts);
        }
        topics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thing(&'static str, u8, Vec<String>);

    impl Keyed for Thing {
        fn key(&self) -> &str {
            self.0
        }

        fn aliases(&self) -> &[String] {
            &self.2
        }
    }

    fn thing(key: &'static str, value: u8, aliases: &[&str]) -> Thing {
        Thing(key, value, aliases.iter().map(|alias| (*alias).to_owned()).collect())
    }

    fn keys(map: &OrderedMap<Thing>) -> Vec<(&str, u8)> {
        map.iter().map(|thing| (thing.0, thing.1)).collect()
    }

    #[test]
    fn order_is_the_order_of_registration() {
        let mut map = OrderedMap::default();
        for (key, value) in [("c", 1), ("a", 2), ("b", 3), ("a", 4)] {
            map.insert(thing(key, value, &[]));
        }
        assert_eq!(keys(&map), [("c", 1), ("a", 4), ("b", 3)]);
        assert!(map.remove("c"));
        assert!(!map.remove("c"));
        assert_eq!(keys(&map), [("a", 4), ("b", 3)]);
        assert_eq!(map.get("b").unwrap().1, 3);
        assert_eq!(map.index_of("b"), Some(1));
    }

    #[test]
    fn aliases_follow_their_item() {
        let mut map = OrderedMap::default();
        map.insert(thing("a", 1, &[]));
        map.insert(thing("b", 2, &["bee", "be"]));
        map.insert(thing("c", 3, &["see"]));
        let found = |map: &OrderedMap<Thing>, key: &str| map.get_or_alias(key).map(|thing| thing.1);
        assert_eq!([found(&map, "b"), found(&map, "bee"), found(&map, "see")], [Some(2), Some(2), Some(3)]);
        assert!(map.get("bee").is_none(), "an alias is not a key");
        assert!(!map.remove("bee"));
        assert!(map.remove("a"));
        assert_eq!([found(&map, "bee"), found(&map, "see")], [Some(2), Some(3)]);
        map.insert(thing("b", 4, &["be", "bea"]));
        assert_eq!([found(&map, "bee"), found(&map, "be"), found(&map, "bea")], [None, Some(4), Some(4)]);
        assert!(map.remove("b"));
        assert_eq!([found(&map, "be"), found(&map, "see")], [None, Some(3)]);
        assert!(map.clear());
        assert_eq!(found(&map, "see"), None);
    }

    #[test]
    fn conflicting_keys_and_aliases_are_found() {
        let mut map = OrderedMap::default();
        map.insert(thing("a", 1, &["ah"]));
        map.insert(thing("b", 2, &[]));
        let conflict = |key, aliases: &[&str]| map.find_conflict(&thing(key, 0, aliases)).unwrap_or_default();
        assert_eq!(conflict("ah", &[]), "its name is an alias of `a`");
        assert_eq!(conflict("c", &["x", "b"]), "its alias `b` is the name of another");
        assert_eq!(conflict("c", &["ah"]), "its alias `ah` is one of `a` too");
        assert_eq!(conflict("b", &["ah"]), "its alias `ah` is one of `a` too");
        assert_eq!(conflict("a", &["ah", "aha"]), "", "it replaces the item that has these aliases");
        assert_eq!(conflict("c", &["sea"]), "");
    }
}
