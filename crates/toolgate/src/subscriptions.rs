//! The post room: who wants to hear of which change.
//!
//! A subscriber is not a queue but a set of topics that have changed since it last looked: a slow reader
//! is told once of what changed a thousand times, and cannot make memory grow. The hub knows no
//! encodings; whoever reads a subscriber writes the notices.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use tokio::sync::Notify;
use toolgate_wire::model::SubscriptionFilter;

use crate::util::lock;

/// A reader that is further behind than this hears of no more tasks until it has caught up; it can look for itself.
const MAX_PENDING_TASK_TOPICS: usize = 256;

/// Something that can change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ChangeTopic {
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
pub(crate) struct Subscriptions {
    subscribers: Mutex<Vec<Weak<Subscriber>>>,
    /// Where changes wait first, if other processes are to hear of them too.
    outbox: OnceLock<Outbox>,
    /// Those who hear of tasks, by whose. Tasks change often, and each is the business of few.
    subscribers_by_owner: Mutex<HashMap<Arc<str>, Vec<Weak<Subscriber>>>>,
}

/// Changes that were made here and not yet told to anybody.
#[derive(Debug, Default)]
struct Outbox {
    pending: Mutex<PendingChanges>,
    notify: Notify,
}

/// What has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PendingChanges {
    /// At most [`MAX_PENDING_TOPICS`] of them: one more, and everything has changed.
    pub(crate) topics: TopicSet,
    pub(crate) is_everything: bool,
}

/// Topics in order, each once. There are never many, so a list does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TopicSet(Vec<ChangeTopic>);

impl TopicSet {
    /// False if it is there already.
    pub(crate) fn insert(&mut self, topic: ChangeTopic) -> bool {
        let place = self.0.binary_search(&topic);
        if let Err(place) = place {
            self.0.insert(place, topic);
        }
        place.is_err()
    }

    pub(crate) fn pop_first(&mut self) -> Option<ChangeTopic> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }
}

/// How many changes wait one by one.
const MAX_PENDING_TOPICS: usize = 1024;

/// One who wants to hear of changes.
#[derive(Debug)]
pub(crate) struct Subscriber {
    state: Mutex<State>,
    notify: Notify,
}

#[derive(Debug)]
struct State {
    filter: SubscriptionFilter,
    /// And to hear of roots, for which filters have no word.
    wants_roots: bool,
    /// Whose tasks it may hear of.
    owner: Option<Arc<str>>,
    /// It hears of all of them, not of those it names.
    wants_all_tasks: bool,
    /// Bounded by what is wanted; tasks by [`MAX_PENDING_TASK_TOPICS`].
    changed: TopicSet,
}

impl Subscriptions {
    /// Hears of what `wants` names, until the subscriber is dropped.
    pub(crate) fn subscribe(&self, wants: SubscriptionFilter) -> Arc<Subscriber> {
        self.register(State::new(wants))
    }

    /// The same, and of those tasks of this owner that `wants` names.
    pub(crate) fn subscribe_with_tasks(&self, wants: SubscriptionFilter, owner: Arc<str>) -> Arc<Subscriber> {
        if wants.tasks.is_empty() {
            return self.subscribe(wants);
        }
        self.register(State { owner: Some(owner), ..State::new(wants) })
    }

    /// The same, and of all tasks of this owner.
    pub(crate) fn subscribe_to_all_tasks(
        &self,
        wants: SubscriptionFilter,
        owner: Arc<str>,
    ) -> Arc<Subscriber> {
        self.register(State { owner: Some(owner), wants_all_tasks: true, ..State::new(wants) })
    }

    fn register(&self, state: State) -> Arc<Subscriber> {
        let owner = state.owner.clone();
        let subscriber = Arc::new(Subscriber { state: Mutex::new(state), notify: Notify::new() });
        if let Some(owner) = owner {
            let mut owners = lock(&self.subscribers_by_owner);
            if owners.len() == owners.capacity() {
                // Before the map grows, owners without subscribers are removed, so that it stays within twice the number of
                // those that have some. Room is reserved so that this is rare.
                owners.retain(|_, theirs| theirs.iter().any(|subscriber| subscriber.strong_count() > 0));
                let live = owners.len();
                owners.reserve(live);
            }
            push_subscriber(owners.entry(owner).or_default(), &subscriber);
        }
        push_subscriber(&mut lock(&self.subscribers), &subscriber);
        subscriber
    }

    /// From now on changes wait in an outbox, for whoever brings them to all processes.
    pub(crate) fn enable_outbox(&self) {
        self.outbox.get_or_init(Outbox::default);
    }

    /// Something has changed: everyone who wants to know is told, here or, by way of the outbox, everywhere.
    pub(crate) fn publish(&self, topic: &ChangeTopic) {
        match self.outbox.get() {
            // What becomes of tasks reaches every process by itself.
            Some(outbox) if !matches!(topic, ChangeTopic::Task { .. }) => {
                lock(&outbox.pending).add(topic.clone());
                outbox.notify.notify_one();
            }
            _ => self.notify(topic),
        }
    }

    /// Waits until there is something in the outbox.
    ///
    /// Cancel safe: yes, it takes nothing.
    pub(crate) async fn wait_for_pending(&self) {
        let Some(outbox) = self.outbox.get() else { return std::future::pending().await };
        loop {
            let stirred = outbox.notify.notified();
            if *lock(&outbox.pending) != PendingChanges::default() {
                return;
            }
            stirred.await;
        }
    }

    /// Empties the outbox. Whoever cannot bring it gives it back.
    pub(crate) fn take_pending(&self) -> PendingChanges {
        self.outbox.get().map(|outbox| std::mem::take(&mut *lock(&outbox.pending))).unwrap_or_default()
    }

    /// Gives back what was taken.
    pub(crate) fn restore_pending(&self, rest: PendingChanges) {
        if let Some(outbox) = self.outbox.get() {
            let mut pending = lock(&outbox.pending);
            pending.is_everything |= rest.is_everything;
            rest.topics.0.into_iter().for_each(|topic| pending.add(topic));
        }
    }

    /// Tells everyone here who wants to know that anything may have changed.
    pub(crate) fn notify_everything(&self) {
        let subscribers: Vec<_> = lock(&self.subscribers).iter().filter_map(Weak::upgrade).collect();
        for subscriber in subscribers {
            for topic in subscriber.subscribed_topics() {
                subscriber.notify(&topic);
            }
        }
    }

    /// Tells everyone here who wants to know that `topic` has changed.
    pub(crate) fn notify(&self, topic: &ChangeTopic) {
        match topic {
            ChangeTopic::Task { owner, .. } => {
                let mut owners = lock(&self.subscribers_by_owner);
                if let Some(theirs) = owners.get_mut(&**owner) {
                    notify_all(theirs, topic);
                }
            }
            _ => notify_all(&mut lock(&self.subscribers), topic),
        }
    }
}

impl PendingChanges {
    fn add(&mut self, topic: ChangeTopic) {
        if self.is_everything {
            return;
        }
        self.topics.insert(topic);
        if self.topics.0.len() > MAX_PENDING_TOPICS {
            *self = PendingChanges { is_everything: true, topics: TopicSet::default() };
        }
    }
}

/// Before the list grows, those who left go: it stays within twice the number of the living.
fn push_subscriber(subscribers: &mut Vec<Weak<Subscriber>>, subscriber: &Arc<Subscriber>) {
    if subscribers.len() == subscribers.capacity() {
        subscribers.retain(|subscriber| subscriber.strong_count() > 0);
        // So that this happens seldom.
        subscribers.reserve(subscribers.len());
    }
    subscribers.push(Arc::downgrade(subscriber));
}

fn notify_all(subscribers: &mut Vec<Weak<Subscriber>>, topic: &ChangeTopic) {
    subscribers.retain(|subscriber| match subscriber.upgrade() {
        Some(subscriber) => {
            subscriber.notify(topic);
            true
        }
        None => false,
    });
}

impl Subscriber {
    /// One whom the hub does not tell: it looks for changes itself.
    pub(crate) fn detached(wants: SubscriptionFilter) -> Arc<Subscriber> {
        Arc::new(Subscriber { state: Mutex::new(State::new(wants)), notify: Notify::new() })
    }

    /// Whether it wants to hear of this.
    pub(crate) fn is_subscribed(&self, topic: &ChangeTopic) -> bool {
        lock(&self.state).matches(topic)
    }

    /// Everything it wants to hear of.
    pub(crate) fn subscribed_topics(&self) -> Vec<ChangeTopic> {
        let state = lock(&self.state);
        let lists = [
            (state.filter.tools, ChangeTopic::Tools),
            (state.filter.prompts, ChangeTopic::Prompts),
            (state.filter.resources, ChangeTopic::Resources),
        ];
        let mut topics = Vec::new();
        for (is_wanted, topic) in lists {
            if is_wanted {
                topics.push(topic);
            }
        }
        for uri in &state.filter.uris {
            topics.push(ChangeTopic::Resource(uri.as_str().into()));
        }
        topics
    }

    /// Wants to hear of these resources and no others. Gives those that are new.
    pub(crate) fn set_uris(&self, uris: &[String]) -> Vec<Box<str>> {
        let mut state = lock(&self.state);
        let known = std::mem::replace(&mut state.filter.uris, uris.to_vec());
        uris.iter().filter(|uri| !known.contains(uri)).map(|uri| uri.as_str().into()).collect()
    }

    fn notify(&self, topic: &ChangeTopic) {
        let mut state = lock(&self.state);
        if state.matches(topic) && state.changed.insert(topic.clone()) {
            drop(state);
            // All of them: one that was told and is never polled again must not keep it from the others.
            self.notify.notify_waiters();
        }
    }

    /// Waits until something has changed since it was last taken.
    ///
    /// Cancel safe: yes, it takes nothing.
    pub(crate) async fn notified(&self) {
        loop {
            // Created before the look, so that a change in between is not missed.
            let stirred = self.notify.notified();
            if !lock(&self.state).changed.0.is_empty() {
                return;
            }
            stirred.await;
        }
    }

    /// Takes something that has changed. Whoever cannot tell of it gives it back.
    pub(crate) fn take_changed(&self) -> Option<ChangeTopic> {
        lock(&self.state).changed.pop_first()
    }

    /// Gives back what was taken.
    pub(crate) fn restore_changed(&self, topic: ChangeTopic) {
        lock(&self.state).changed.insert(topic);
    }

    /// Wants to hear of one more resource. False if that would be too many.
    pub(crate) fn add_uri(&self, uri: &str, most: usize, most_bytes: usize) -> bool {
        let mut state = lock(&self.state);
        if state.filter.uris.iter().any(|known| known == uri) {
            return true;
        }
        let bytes: usize = state.filter.uris.iter().map(String::len).sum();
        if state.filter.uris.len() >= most || bytes + uri.len() > most_bytes {
            return false;
        }
        state.filter.uris.push(uri.to_owned());
        true
    }

    /// Wants to hear of roots too.
    pub(crate) fn subscribe_to_roots(&self) {
        lock(&self.state).wants_roots = true;
    }

    /// Wants to hear no more of a resource.
    pub(crate) fn remove_uri(&self, uri: &str) {
        let mut state = lock(&self.state);
        state.filter.uris.retain(|known| known != uri);
        state.changed.0.retain(|topic| !matches!(topic, ChangeTopic::Resource(changed) if **changed == *uri));
    }
}

impl State {
    fn new(filter: SubscriptionFilter) -> State {
        State {
            filter,
            wants_roots: false,
            owner: None,
            wants_all_tasks: false,
            changed: TopicSet::default(),
        }
    }

    /// Whether this topic is wanted.
    fn matches(&self, topic: &ChangeTopic) -> bool {
        let State { filter: wants, wants_roots: roots, owner, wants_all_tasks: all_tasks, changed } = self;
        match topic {
            ChangeTopic::Roots => *roots,
            ChangeTopic::Tools => wants.tools,
            ChangeTopic::Prompts => wants.prompts,
            ChangeTopic::Resources => wants.resources,
            ChangeTopic::Resource(uri) => wants.uris.iter().any(|wanted| **wanted == **uri),
            ChangeTopic::Task { owner: of, id } => {
                let may = owner.as_deref() == Some(&**of) && changed.0.len() < MAX_PENDING_TASK_TOPICS;
                may && (*all_tasks || wants.tasks.iter().any(|wanted| **wanted == **id))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn changes_coalesce_and_only_what_is_wanted_arrives() {
        let hub = Subscriptions::default();
        let subscriber = hub.subscribe(SubscriptionFilter {
            tools: true,
            uris: vec!["a://b".into()],
            ..SubscriptionFilter::default()
        });
        for _ in 0..1000 {
            hub.publish(&ChangeTopic::Tools);
            hub.publish(&ChangeTopic::Prompts);
            hub.publish(&ChangeTopic::Resource("a://b".into()));
            hub.publish(&ChangeTopic::Resource("a://c".into()));
        }
        subscriber.notified().await;
        let changes: Vec<_> = std::iter::from_fn(|| subscriber.take_changed()).collect();
        assert_eq!(changes, [ChangeTopic::Tools, ChangeTopic::Resource("a://b".into())]);
    }

    #[tokio::test]
    async fn those_who_left_are_forgotten() {
        let hub = Subscriptions::default();
        for _ in 0..1000 {
            drop(hub.subscribe(SubscriptionFilter::default()));
        }
        hub.publish(&ChangeTopic::Tools);
        assert_eq!(lock(&hub.subscribers).len(), 0);
    }

    #[tokio::test]
    async fn of_tasks_hears_who_owns_them_and_names_them() {
        let hub = Subscriptions::default();
        let wants = || SubscriptionFilter { tasks: vec!["one".into()], ..SubscriptionFilter::default() };
        let named = hub.subscribe_with_tasks(wants(), "ada".into());
        let all = hub.subscribe_to_all_tasks(SubscriptionFilter::default(), "ada".into());
        let others = [hub.subscribe_with_tasks(wants(), "bob".into()), hub.subscribe(wants())];
        let task = |id: &str| ChangeTopic::Task { owner: "ada".into(), id: id.into() };
        hub.publish(&task("one"));
        hub.publish(&task("two"));
        let taken =
            |subscriber: &Subscriber| std::iter::from_fn(|| subscriber.take_changed()).collect::<Vec<_>>();
        assert_eq!(taken(&named), [task("one")]);
        assert_eq!(taken(&all), [task("one"), task("two")]);
        assert!(others.iter().all(|other| taken(other).is_empty()));
        (0..10_000).for_each(|n| hub.publish(&task(&n.to_string())));
        assert_eq!(taken(&all).len(), MAX_PENDING_TASK_TOPICS, "who does not read costs no memory");
    }

    #[tokio::test]
    async fn owners_who_left_are_forgotten() {
        let hub = Subscriptions::default();
        for n in 0..1000 {
            drop(hub.subscribe_to_all_tasks(SubscriptionFilter::default(), n.to_string().into()));
        }
        assert!(lock(&hub.subscribers_by_owner).len() < 10, "{}", lock(&hub.subscribers_by_owner).len());
    }

    #[tokio::test]
    async fn a_resource_can_be_left_again() {
        let hub = Subscriptions::default();
        let subscriber = hub.subscribe(SubscriptionFilter::default());
        assert!(subscriber.add_uri("a://b", 1, 100));
        assert!(subscriber.add_uri("a://b", 1, 100));
        assert!(!subscriber.add_uri("a://c", 1, 100));
        assert!(!subscriber.add_uri("a://c", 2, 9), "too many bytes");
        hub.publish(&ChangeTopic::Resource("a://b".into()));
        subscriber.remove_uri("a://b");
        hub.publish(&ChangeTopic::Resource("a://b".into()));
        assert!(lock(&subscriber.state).changed.0.is_empty());
    }

    #[tokio::test]
    async fn what_others_are_to_hear_waits_and_does_not_grow_without_end() {
        let hub = Subscriptions::default();
        let subscriber = hub.subscribe(SubscriptionFilter { tools: true, ..SubscriptionFilter::default() });
        hub.enable_outbox();
        hub.publish(&ChangeTopic::Tools);
        hub.publish(&ChangeTopic::Tools);
        hub.wait_for_pending().await;
        assert!(subscriber.take_changed().is_none(), "nobody is told before it went out");
        let taken = hub.take_pending();
        assert_eq!(taken.topics.0.len(), 1);
        hub.restore_pending(taken);
        for n in 0..=MAX_PENDING_TOPICS {
            hub.publish(&ChangeTopic::Resource(format!("a://{n}").into()));
        }
        assert_eq!(hub.take_pending(), PendingChanges { is_everything: true, topics: TopicSet::default() });
        hub.notify_everything();
        assert_eq!(subscriber.take_changed(), Some(ChangeTopic::Tools));
    }
}
