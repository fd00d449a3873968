//! The post room: who wants to hear of which change.
//!
//! A subscriber is not a queue but a set of topics that have changed since it last looked: a slow reader
//! is told once of what changed a thousand times, and cannot make memory grow. The hub knows no
//! encodings; whoever reads a subscriber writes the notices.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;
use toolgate_wire::model::Filter;

/// Something that can change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    Tools,
    Prompts,
    Resources,
    Resource(Box<str>),
    /// The roots of the server's own workspace.
    Roots,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    subscribers: Mutex<Vec<Weak<Subscriber>>>,
}

/// One who wants to hear of changes.
#[derive(Debug)]
pub(crate) struct Subscriber {
    state: Mutex<State>,
    stirred: Notify,
}

#[derive(Debug)]
struct State {
    wants: Filter,
    /// And to hear of roots, for which filters have no word.
    roots: bool,
    /// Bounded by what is wanted.
    changed: BTreeSet<Topic>,
}

impl Hub {
    /// Hears of what `wants` names, until the subscriber is dropped.
    pub(crate) fn subscribe(&self, wants: Filter) -> Arc<Subscriber> {
        let state = Mutex::new(State { wants, roots: false, changed: BTreeSet::new() });
        let subscriber = Arc::new(Subscriber { state, stirred: Notify::new() });
        let mut subscribers = lock(&self.subscribers);
        if subscribers.len() == subscribers.capacity() {
            // Before the list grows, those who left go: it stays within twice the number of the living.
            subscribers.retain(|subscriber| subscriber.strong_count() > 0);
        }
        subscribers.push(Arc::downgrade(&subscriber));
        subscriber
    }

    /// Tells everyone who wants to know that `topic` has changed.
    pub(crate) fn publish(&self, topic: &Topic) {
        let mut subscribers = lock(&self.subscribers);
        subscribers.retain(|subscriber| match subscriber.upgrade() {
            Some(subscriber) => {
                subscriber.tell(topic);
                true
            }
            None => false,
        });
    }
}

impl Subscriber {
    fn tell(&self, topic: &Topic) {
        let mut state = lock(&self.state);
        let wanted = state.wants.covers(topic) || (state.roots && *topic == Topic::Roots);
        if wanted && state.changed.insert(topic.clone()) {
            drop(state);
            // All of them: one that was told and is never polled again must not keep it from the others.
            self.stirred.notify_waiters();
        }
    }

    /// Waits until something has changed since it was last taken.
    ///
    /// Cancel safe: yes, it takes nothing.
    pub(crate) async fn stirred(&self) {
        loop {
            // Created before the look, so that a change in between is not missed.
            let stirred = self.stirred.notified();
            if !lock(&self.state).changed.is_empty() {
                return;
            }
            stirred.await;
        }
    }

    /// Takes something that has changed. Whoever cannot tell of it gives it back.
    pub(crate) fn take(&self) -> Option<Topic> {
        lock(&self.state).changed.pop_first()
    }

    /// Gives back what was taken.
    pub(crate) fn give_back(&self, topic: Topic) {
        lock(&self.state).changed.insert(topic);
    }

    /// Wants to hear of one more resource. False if that would be too many.
    pub(crate) fn add(&self, uri: &str, most: usize, most_bytes: usize) -> bool {
        let mut state = lock(&self.state);
        if state.wants.uris.iter().any(|known| known == uri) {
            return true;
        }
        let bytes: usize = state.wants.uris.iter().map(String::len).sum();
        if state.wants.uris.len() >= most || bytes + uri.len() > most_bytes {
            return false;
        }
        state.wants.uris.push(uri.to_owned());
        true
    }

    /// Wants to hear of roots too.
    pub(crate) fn add_roots(&self) {
        lock(&self.state).roots = true;
    }

    /// Wants to hear no more of a resource.
    pub(crate) fn remove(&self, uri: &str) {
        let mut state = lock(&self.state);
        state.wants.uris.retain(|known| known != uri);
        state.changed.retain(|topic| !matches!(topic, Topic::Resource(changed) if **changed == *uri));
    }
}

/// Whether a filter names a topic.
trait Covers {
    fn covers(&self, topic: &Topic) -> bool;
}

impl Covers for Filter {
    fn covers(&self, topic: &Topic) -> bool {
        match topic {
            Topic::Tools => self.tools,
            Topic::Prompts => self.prompts,
            Topic::Resources => self.resources,
            Topic::Resource(uri) => self.uris.iter().any(|wanted| **wanted == **uri),
            Topic::Roots => false,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn changes_coalesce_and_only_what_is_wanted_arrives() {
        let hub = Hub::default();
        let subscriber =
            hub.subscribe(Filter { tools: true, uris: vec!["a://b".into()], ..Filter::default() });
        for _ in 0..1000 {
            hub.publish(&Topic::Tools);
            hub.publish(&Topic::Prompts);
            hub.publish(&Topic::Resource("a://b".into()));
            hub.publish(&Topic::Resource("a://c".into()));
        }
        subscriber.stirred().await;
        let changes: Vec<_> = std::iter::from_fn(|| subscriber.take()).collect();
        assert_eq!(changes, [Topic::Tools, Topic::Resource("a://b".into())]);
    }

    #[tokio::test]
    async fn those_who_left_are_forgotten() {
        let hub = Hub::default();
        for _ in 0..1000 {
            drop(hub.subscribe(Filter::default()));
        }
        hub.publish(&Topic::Tools);
        assert_eq!(lock(&hub.subscribers).len(), 0);
    }

    #[tokio::test]
    async fn a_resource_can_be_left_again() {
        let hub = Hub::default();
        let subscriber = hub.subscribe(Filter::default());
        assert!(subscriber.add("a://b", 1, 100));
        assert!(subscriber.add("a://b", 1, 100));
        assert!(!subscriber.add("a://c", 1, 100));
        assert!(!subscriber.add("a://c", 2, 9), "too many bytes");
        hub.publish(&Topic::Resource("a://b".into()));
        subscriber.remove("a://b");
        hub.publish(&Topic::Resource("a://b".into()));
        assert!(lock(&subscriber.state).changed.is_empty());
    }
}
