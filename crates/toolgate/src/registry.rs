//! The library: what a server offers, as an immutable snapshot that is swapped when it changes.
//!
//! Readers load the snapshot without a lock; a change builds a new one. Order is the order of
//! registration, so that a list is the same every time. Who is calling is not known here.

mod header_params;
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

/// Everything a server offers at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) tools: OrderedMap<ToolEntry>,
    pub(crate) resources: OrderedMap<ResourceEntry>,
    pub(crate) templates: OrderedMap<TemplateEntry>,
    pub(crate) prompts: OrderedMap<PromptEntry>,
}

impl Snapshot {
    /// The template that a URI was made of, and its variables. The first one registered wins.
    pub(crate) fn match_template(&self, uri: &str) -> Option<(&TemplateEntry, Vec<(String, String)>)> {
        self.templates.iter().find_map(|entry| Some((&**entry, entry.pattern.match_uri(uri)?)))
    }

    pub(crate) fn has_completers(&self) -> bool {
        self.prompts.iter().any(|entry| !entry.completers.is_empty())
            || self.templates.iter().any(|entry| !entry.completers.is_empty())
            || self.resources.iter().any(|entry| !entry.completers.is_empty())
    }
}

/// Something with a unique key.
pub(crate) trait Keyed {
    fn key(&self) -> &str;

    /// Other keys under which it is found too, if nothing has them for its own.
    fn aliases(&self) -> &[String] {
        &[]
    }
}

/// Things in order, to be found by key.
#[derive(Debug)]
pub(crate) struct OrderedMap<T> {
    items: Vec<Arc<T>>,
    indices: HashMap<Box<str>, usize, BuildHasherDefault<FnvHasher>>,
    /// Where things are that have further keys. None of these is in `places`.
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
        self.indices.get(key).map(|place| &self.items[*place])
    }

    /// The thing with this key, or else the one that has it for an alias.
    pub(crate) fn get_or_alias(&self, key: &str) -> Option<&Arc<T>> {
        self.get(key).or_else(|| self.aliases.get(key).map(|place| &self.items[*place]))
    }

    /// Why a thing cannot be put here: one of its keys leads to another thing. One with the same key is no hindrance, as
    /// this would be put in its place.
    pub(crate) fn find_conflict(&self, item: &T) -> Option<String> {
        let own = self.index_of(item.key());
        let is_other = |place: Option<&usize>| place.is_some_and(|place| Some(*place) != own);
        if let Some(place) = self.aliases.get(item.key()) {
            return Some(format!("its name is an alias of `{}`", self.items[*place].key()));
        }
        item.aliases().iter().find_map(|alias| {
            if is_other(self.indices.get(alias.as_str())) {
                return Some(format!("its alias `{alias}` is the name of another"));
            }
            let place = self.aliases.get(alias.as_str()).filter(|place| is_other(Some(place)))?;
            Some(format!("its alias `{alias}` is one of `{}` too", self.items[*place].key()))
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

    /// Adds a thing, or puts it in the place of the one with the same key. Always a change. Nothing clashes with it: who
    /// puts something that has aliases has asked.
    pub(crate) fn insert(&mut self, item: T) -> bool {
        let place = self.index_of(item.key()).unwrap_or(self.items.len());
        self.aliases.retain(|_, of| *of != place);
        self.aliases.extend(item.aliases().iter().map(|alias| (alias.as_str().into(), place)));
        match self.items.get_mut(place) {
            Some(before) => *before = Arc::new(item),
            None => {
                self.indices.insert(item.key().into(), place);
                self.items.push(Arc::new(item));
            }
        }
        true
    }

    /// Takes everything out, and says whether there was anything.
    pub(crate) fn clear(&mut self) -> bool {
        self.indices.clear();
        self.aliases.clear();
        !std::mem::take(&mut self.items).is_empty()
    }

    /// Takes a thing out, and says whether it was there.
    pub(crate) fn remove(&mut self, key: &str) -> bool {
        let Some(place) = self.indices.remove(key) else {
            return false;
        };
        self.items.remove(place);
        self.aliases.retain(|_, of| *of != place);
        for later in self.indices.values_mut().chain(self.aliases.values_mut()) {
            if *later > place {
                *later -= 1;
            }
        }
        true
    }
}

/// The present snapshot, and the way to change it.
#[derive(Debug)]
pub(crate) struct Registry {
    current: ArcSwap<Snapshot>,
    /// What has been offered. It stays offered: a client was told so, and lists may become empty.
    features: FeatureFlags,
    /// Held while a change is made, so that no change is lost to another.
    write_lock: Mutex<()>,
    subscriptions: Arc<Subscriptions>,
}

/// What a server offers at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features {
    pub(crate) tools: bool,
    pub(crate) resources: bool,
    pub(crate) prompts: bool,
    pub(crate) completions: bool,
    /// Calls of some tool may run as tasks.
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

/// The same, which every call asks for and which only ever grows.
#[derive(Debug, Default)]
struct FeatureFlags {
    tools: AtomicBool,
    resources: AtomicBool,
    prompts: AtomicBool,
    completions: AtomicBool,
    tasks: AtomicBool,
}

impl FeatureFlags {
    fn insert(&self, offer: Features) {
        let Features { tools, resources, prompts, completions, tasks } = offer;
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
    /// Offers what there is, and what is promised.
    pub(crate) fn new(snapshot: Snapshot, promised: Features, subscriptions: Arc<Subscriptions>) -> Registry {
        let features = FeatureFlags::default();
        features.insert(promised.merged_with(&snapshot));
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

    /// Changes what is offered, if `change` says that it did, and tells clients which list changed.
    pub(crate) fn update(&self, topic: &ChangeTopic, change: impl FnOnce(&mut Snapshot) -> bool) -> bool {
        self.update_boxed(topic, Box::new(change))
    }

    fn update_boxed(&self, topic: &ChangeTopic, change: Box<dyn FnOnce(&mut Snapshot) -> bool + '_>) -> bool {
        {
            let _changing = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
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
    /// Offers this and nothing else, in one step, and tells clients which lists changed: those that look otherwise now.
    pub(crate) fn replace(&self, next: &Snapshot) {
        let changed = {
            let _changing = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
            let before = self.current.load_full();
            self.features.insert(self.features().merged_with(next));
            self.current.store(Arc::new(next.clone()));
            before.changed_topics(next)
        };
        for topic in &changed {
            self.subscriptions.publish(topic);
        }
    }
}

impl Snapshot {
    /// Which lists look otherwise than those of another snapshot.
    fn changed_topics(&self, other: &Snapshot) -> Vec<ChangeTopic> {
        let mut topics = Vec::new();
        if !self.tools.iter().map(|entry| &entry.tool).eq(other.tools.iter().map(|entry| &entry.tool)) {
            topics.push(ChangeTopic::Tools);
        }
        let resources =
            |of: &Snapshot| of.resources.iter().map(|entry| Arc::clone(&entry.resource)).collect::<Vec<_>>();
        let templates =
            |of: &Snapshot| of.templates.iter().map(|entry| Arc::clone(&entry.template)).collect::<Vec<_>>();
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

    fn keys(shelf: &OrderedMap<Thing>) -> Vec<(&str, u8)> {
        shelf.iter().map(|thing| (thing.0, thing.1)).collect()
    }

    #[test]
    fn order_is_the_order_of_registration() {
        let mut shelf = OrderedMap::default();
        for (key, value) in [("c", 1), ("a", 2), ("b", 3), ("a", 4)] {
            shelf.insert(thing(key, value, &[]));
        }
        assert_eq!(keys(&shelf), [("c", 1), ("a", 4), ("b", 3)]);
        assert!(shelf.remove("c"));
        assert!(!shelf.remove("c"));
        assert_eq!(keys(&shelf), [("a", 4), ("b", 3)]);
        assert_eq!(shelf.get("b").unwrap().1, 3);
        assert_eq!(shelf.index_of("b"), Some(1));
    }

    #[test]
    fn aliases_lead_to_what_has_them_for_as_long_as_it_has_them() {
        let mut shelf = OrderedMap::default();
        shelf.insert(thing("a", 1, &[]));
        shelf.insert(thing("b", 2, &["bee", "be"]));
        shelf.insert(thing("c", 3, &["see"]));
        let found = |shelf: &OrderedMap<Thing>, key: &str| shelf.get_or_alias(key).map(|thing| thing.1);
        assert_eq!(
            [found(&shelf, "b"), found(&shelf, "bee"), found(&shelf, "see")],
            [Some(2), Some(2), Some(3)]
        );
        assert!(shelf.get("bee").is_none(), "an alias is no key");
        assert!(!shelf.remove("bee"));
        assert!(shelf.remove("a"));
        assert_eq!([found(&shelf, "bee"), found(&shelf, "see")], [Some(2), Some(3)]);
        shelf.insert(thing("b", 4, &["be", "bea"]));
        assert_eq!(
            [found(&shelf, "bee"), found(&shelf, "be"), found(&shelf, "bea")],
            [None, Some(4), Some(4)]
        );
        assert!(shelf.remove("b"));
        assert_eq!([found(&shelf, "be"), found(&shelf, "see")], [None, Some(3)]);
        assert!(shelf.clear());
        assert_eq!(found(&shelf, "see"), None);
    }

    #[test]
    fn keys_that_lead_elsewhere_clash() {
        let mut shelf = OrderedMap::default();
        shelf.insert(thing("a", 1, &["ah"]));
        shelf.insert(thing("b", 2, &[]));
        let clash = |key, aliases: &[&str]| shelf.find_conflict(&thing(key, 0, aliases)).unwrap_or_default();
        assert_eq!(clash("ah", &[]), "its name is an alias of `a`");
        assert_eq!(clash("c", &["x", "b"]), "its alias `b` is the name of another");
        assert_eq!(clash("c", &["ah"]), "its alias `ah` is one of `a` too");
        assert_eq!(clash("b", &["ah"]), "its alias `ah` is one of `a` too");
        assert_eq!(clash("a", &["ah", "aha"]), "", "it goes where the one was that has them");
        assert_eq!(clash("c", &["sea"]), "");
    }
}
