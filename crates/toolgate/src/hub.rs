//! The post room: who wants to hear of which change.
//!
//! A subscriber is not a queue but a set of topics that have changed since it last looked: a slow reader
//! is told once of what changed a thousand times, and cannot make memory grow. The hub knows no
//! encodings; whoever reads a subscriber writes the notices.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use tokio::sync::Notify;
use toolgate_wire::model::SubscriptionFilter;

use crate::maps::ByName;

/// A reader that is further behind than this hears of no more tasks until it has caught up; it can look for itself.
const MANY_TASKS: usize = 256;

/// Something that can change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Topic {
    Tools,
    Prompts,
    Resources,
    Resource(Box<str>),
    /// The roots of the server's own workspace.
    Roots,
    /// A task of somebody's.
    Task {
        owner: Box<str>,
        id: Box<str>,
    },
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    subscribers: Mutex<Vec<Weak<Subscriber>>>,
    /// Where changes wait first, if other processes are to hear of them too.
    outbox: OnceLock<Outbox>,
    /// Those who hear of tasks, by whose. Tasks change often, and each is the business of few.
    owners: Mutex<ByName<Vec<Weak<Subscriber>>>>,
}

/// Changes that were made here and not yet told to anybody.
#[derive(Debug, Default)]
struct Outbox {
    pending: Mutex<Pending>,
    stirred: Notify,
}

/// What has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pending {
    /// At most [`PENDING`] of them: one more, and everything has changed.
    pub(crate) topics: Topics,
    pub(crate) everything: bool,
}

/// Topics in order, each once. There are never many, so a list does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Topics(Vec<Topic>);

impl Topics {
    /// False if it is there already.
    pub(crate) fn insert(&mut self, topic: Topic) -> bool {
        let place = self.0.binary_search(&topic);
        if let Err(place) = place {
            self.0.insert(place, topic);
        }
        place.is_err()
    }

    pub(crate) fn pop_first(&mut self) -> Option<Topic> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }
}

/// How many changes wait one by one.
const PENDING: usize = 1024;

/// One who wants to hear of changes.
#[derive(Debug)]
pub(crate) struct Subscriber {
    state: Mutex<State>,
    stirred: Notify,
}

#[derive(Debug)]
struct State {
    wants: SubscriptionFilter,
    /// And to hear of roots, for which filters have no word.
    roots: bool,
    /// Whose tasks it may hear of.
    owner: Option<Arc<str>>,
    /// It hears of all of them, not of those it names.
    all_tasks: bool,
    /// Bounded by what is wanted; tasks by [`MANY_TASKS`].
    changed: Topics,
}

impl Hub {
    /// Hears of what `wants` names, until the subscriber is dropped.
    pub(crate) fn subscribe(&self, wants: SubscriptionFilter) -> Arc<Subscriber> {
        self.enlist(State::of(wants))
    }

    /// The same, and of those tasks of this owner that `wants` names.
    pub(crate) fn subscribe_as(&self, wants: SubscriptionFilter, owner: Arc<str>) -> Arc<Subscriber> {
        if wants.tasks.is_empty() {
            return self.subscribe(wants);
        }
        self.enlist(State { owner: Some(owner), ..State::of(wants) })
    }

    /// The same, and of all tasks of this owner.
    pub(crate) fn subscribe_to_all(&self, wants: SubscriptionFilter, owner: Arc<str>) -> Arc<Subscriber> {
        self.enlist(State { owner: Some(owner), all_tasks: true, ..State::of(wants) })
    }

    fn enlist(&self, state: State) -> Arc<Subscriber> {
        let owner = state.owner.clone();
        let subscriber = Arc::new(Subscriber { state: Mutex::new(state), stirred: Notify::new() });
        if let Some(owner) = owner {
            let mut owners = lock(&self.owners);
            owners.tidy(|theirs| theirs.iter().any(|subscriber| subscriber.strong_count() > 0));
            push(owners.or_default(&owner), &subscriber);
        }
        push(&mut lock(&self.subscribers), &subscriber);
        subscriber
    }

    /// From now on changes wait in an outbox, for whoever brings them to all processes.
    pub(crate) fn relay(&self) {
        self.outbox.get_or_init(Outbox::default);
    }

    /// Something has changed: everyone who wants to know is told, here or, by way of the outbox, everywhere.
    pub(crate) fn publish(&self, topic: &Topic) {
        match self.outbox.get() {
            // What becomes of tasks reaches every process by itself.
            Some(outbox) if !matches!(topic, Topic::Task { .. }) => {
                lock(&outbox.pending).add(topic.clone());
                outbox.stirred.notify_one();
            }
            _ => self.tell(topic),
        }
    }

    /// Waits until there is something in the outbox.
    ///
    /// Cancel safe: yes, it takes nothing.
    pub(crate) async fn pending(&self) {
        let Some(outbox) = self.outbox.get() else { return std::future::pending().await };
        loop {
            let stirred = outbox.stirred.notified();
            if *lock(&outbox.pending) != Pending::default() {
                return;
            }
            stirred.await;
        }
    }

    /// Empties the outbox. Whoever cannot bring it gives it back.
    pub(crate) fn take_pending(&self) -> Pending {
        self.outbox.get().map(|outbox| std::mem::take(&mut *lock(&outbox.pending))).unwrap_or_default()
    }

    /// Gives back what was taken.
    pub(crate) fn give_back_pending(&self, rest: Pending) {
        if let Some(outbox) = self.outbox.get() {
            let mut pending = lock(&outbox.pending);
            pending.everything |= rest.everything;
            rest.topics.0.into_iter().for_each(|topic| pending.add(topic));
        }
    }

    /// Tells everyone here who wants to know that anything may have changed.
    pub(crate) fn tell_everything(&self) {
        let subscribers: Vec<_> = lock(&self.subscribers).iter().filter_map(Weak::upgrade).collect();
        for subscriber in subscribers {
            for topic in subscriber.everything() {
                subscriber.tell(&topic);
            }
        }
    }

    /// Tells everyone here who wants to know that `topic` has changed.
    pub(crate) fn tell(&self, topic: &Topic) {
        match topic {
            Topic::Task { owner, .. } => {
                let mut owners = lock(&self.owners);
                if let Some(theirs) = owners.get_mut(owner) {
                    tell(theirs, topic);
                }
            }
            _ => tell(&mut lock(&self.subscribers), topic),
        }
    }
}

impl Pending {
    fn add(&mut self, topic: Topic) {
        if self.everything {
            return;
        }
        self.topics.insert(topic);
        if self.topics.0.len() > PENDING {
            *self = Pending { everything: true, topics: Topics::default() };
        }
    }
}

/// Before the list grows, those who left go: it stays within twice the number of the living.
fn push(subscribers: &mut Vec<Weak<Subscriber>>, subscriber: &Arc<Subscriber>) {
    if subscribers.len() == subscribers.capacity() {
        subscribers.retain(|subscriber| subscriber.strong_count() > 0);
        // So that this happens seldom.
        subscribers.reserve(subscribers.len());
    }
    subscribers.push(Arc::downgrade(subscriber));
}

fn tell(subscribers: &mut Vec<Weak<Subscriber>>, topic: &Topic) {
    subscribers.retain(|subscriber| match subscriber.upgrade() {
        Some(subscriber) => {
            subscriber.tell(topic);
            true
        }
        None => false,
    });
}

impl Subscriber {
    /// One whom the hub does not tell: it looks for changes itself.
    pub(crate) fn apart(wants: SubscriptionFilter) -> Arc<Subscriber> {
        Arc::new(Subscriber { state: Mutex::new(State::of(wants)), stirred: Notify::new() })
    }

    /// Whether it wants to hear of this.
    pub(crate) fn wants(&self, topic: &Topic) -> bool {
        lock(&self.state).covers(topic)
    }

    /// Everything it wants to hear of.
    pub(crate) fn everything(&self) -> Vec<Topic> {
        let state = lock(&self.state);
        let lists = [
            (state.wants.tools, Topic::Tools),
            (state.wants.prompts, Topic::Prompts),
            (state.wants.resources, Topic::Resources),
        ];
        let mut topics = Vec::new();
        for (is_wanted, topic) in lists {
            if is_wanted {
                topics.push(topic);
            }
        }
        for uri in &state.wants.uris {
            topics.push(Topic::Resource(uri.as_str().into()));
        }
        topics
    }

    /// Wants to hear of these resources and no others. Gives those that are new.
    pub(crate) fn set_uris(&self, uris: &[String]) -> Vec<Box<str>> {
        let mut state = lock(&self.state);
        let known = std::mem::replace(&mut state.wants.uris, uris.to_vec());
        uris.iter().filter(|uri| !known.contains(uri)).map(|uri| uri.as_str().into()).collect()
    }

    fn tell(&self, topic: &Topic) {
        let mut state = lock(&self.state);
        if state.covers(topic) && state.changed.insert(topic.clone()) {
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
            if !lock(&self.state).changed.0.is_empty() {
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
        state.changed.0.retain(|topic| !matches!(topic, Topic::Resource(changed) if **changed == *uri));
    }
}

impl State {
    fn of(wants: SubscriptionFilter) -> State {
        State { wants, roots: false, owner: None, all_tasks: false, changed: Topics::default() }
    }

    /// Whether this topic is wanted.
    fn covers(&self, topic: &Topic) -> bool {
        let State { wants, roots, owner, all_tasks, changed } = self;
        match topic {
            Topic::Roots => *roots,
            Topic::Tools => wants.tools,
            Topic::Prompts => wants.prompts,
            Topic::Resources => wants.resources,
            Topic::Resource(uri) => wants.uris.iter().any(|wanted| **wanted == **uri),
            Topic::Task { owner: of, id } => {
                let may = owner.as_deref() == Some(&**of) && changed.0.len() < MANY_TASKS;
                may && (*all_tasks || wants.tasks.iter().any(|wanted| **wanted == **id))
            }
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
            hub.subscribe(SubscriptionFilter { tools: true, uris: vec!["a://b".into()], ..SubscriptionFilter::default() });
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
            drop(hub.subscribe(SubscriptionFilter::default()));
        }
        hub.publish(&Topic::Tools);
        assert_eq!(lock(&hub.subscribers).len(), 0);
    }

    #[tokio::test]
    async fn of_tasks_hears_who_owns_them_and_names_them() {
        let hub = Hub::default();
        let wants = || SubscriptionFilter { tasks: vec!["one".into()], ..SubscriptionFilter::default() };
        let named = hub.subscribe_as(wants(), "ada".into());
        let all = hub.subscribe_to_all(SubscriptionFilter::default(), "ada".into());
        let others = [hub.subscribe_as(wants(), "bob".into()), hub.subscribe(wants())];
        let task = |id: &str| Topic::Task { owner: "ada".into(), id: id.into() };
        hub.publish(&task("one"));
        hub.publish(&task("two"));
        let taken = |subscriber: &Subscriber| std::iter::from_fn(|| subscriber.take()).collect::<Vec<_>>();
        assert_eq!(taken(&named), [task("one")]);
        assert_eq!(taken(&all), [task("one"), task("two")]);
        assert!(others.iter().all(|other| taken(other).is_empty()));
        (0..10_000).for_each(|n| hub.publish(&task(&n.to_string())));
        assert_eq!(taken(&all).len(), MANY_TASKS, "who does not read costs no memory");
    }

    #[tokio::test]
    async fn owners_who_left_are_forgotten() {
        let hub = Hub::default();
        for n in 0..1000 {
            drop(hub.subscribe_to_all(SubscriptionFilter::default(), n.to_string().into()));
        }
        assert!(lock(&hub.owners).len() < 10, "{}", lock(&hub.owners).len());
    }

    #[tokio::test]
    async fn a_resource_can_be_left_again() {
        let hub = Hub::default();
        let subscriber = hub.subscribe(SubscriptionFilter::default());
        assert!(subscriber.add("a://b", 1, 100));
        assert!(subscriber.add("a://b", 1, 100));
        assert!(!subscriber.add("a://c", 1, 100));
        assert!(!subscriber.add("a://c", 2, 9), "too many bytes");
        hub.publish(&Topic::Resource("a://b".into()));
        subscriber.remove("a://b");
        hub.publish(&Topic::Resource("a://b".into()));
        assert!(lock(&subscriber.state).changed.0.is_empty());
    }

    #[tokio::test]
    async fn what_others_are_to_hear_waits_and_does_not_grow_without_end() {
        let hub = Hub::default();
        let subscriber = hub.subscribe(SubscriptionFilter { tools: true, ..SubscriptionFilter::default() });
        hub.relay();
        hub.publish(&Topic::Tools);
        hub.publish(&Topic::Tools);
        hub.pending().await;
        assert!(subscriber.take().is_none(), "nobody is told before it went out");
        let taken = hub.take_pending();
        assert_eq!(taken.topics.0.len(), 1);
        hub.give_back_pending(taken);
        for n in 0..=PENDING {
            hub.publish(&Topic::Resource(format!("a://{n}").into()));
        }
        assert_eq!(hub.take_pending(), Pending { everything: true, topics: Topics::default() });
        hub.tell_everything();
        assert_eq!(subscriber.take(), Some(Topic::Tools));
    }
}
