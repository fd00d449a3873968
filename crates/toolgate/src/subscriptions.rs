//! Subscriptions to changes: of lists, resources, roots and tasks.
//!
//! A subscriber is not a queue but the set of topics that have changed since it was last read: a slow reader is notified once
//! of a topic that changed a thousand times, and cannot make memory grow. Encodings are not known here; the reader of a
//! subscriber writes the notifications.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use tokio::sync::Notify;
use toolgate_wire::model::SubscriptionFilter;

use crate::util::lock;

/// Maximum number of changed topics of a subscriber at which task changes are still added. A reader that is further behind
/// misses task changes; it can poll the tasks.
const MAX_PENDING_TASK_TOPICS: usize = 256;

/// A topic of change notifications.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ChangeTopic {
    Tools,
    Prompts,
    Resources,
    Resource(Box<str>),
    /// The roots of the server's own workspace.
    Roots,
    /// A task of this owner.
    Task {
        owner: Box<str>,
        id: Box<str>,
    },
}

/// All subscribers of a server.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    subscribers: Mutex<Vec<Weak<Subscriber>>>,
    /// Changes that wait to be sent to other processes. Empty if the store is not shared.
    outbox: OnceLock<Outbox>,
    /// Subscribers to tasks, by the owner of the tasks: tasks change often, and each concerns few subscribers.
    subscribers_by_owner: Mutex<HashMap<Arc<str>, Vec<Weak<Subscriber>>>>,
}

/// Changes of this process that no subscriber was notified of yet.
#[derive(Debug, Default)]
struct Outbox {
    pending: Mutex<PendingChanges>,
    notify: Notify,
}

/// The changes in an outbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PendingChanges {
    /// At most [`MAX_PENDING_TOPICS`]; with one more, `is_everything` is set instead.
    pub(crate) topics: TopicSet,
    pub(crate) is_everything: bool,
}

/// A sorted set of topics. It is small, so a list suffices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TopicSet(Vec<ChangeTopic>);

impl TopicSet {
    /// Adds a topic. Returns false if it is there already.
    pub(crate) fn insert(&mut self, topic: ChangeTopic) -> bool {
        let found = self.0.binary_search(&topic);
        if let Err(index) = found {
            self.0.insert(index, topic);
        }
        found.is_err()
    }

    pub(crate) fn pop_first(&mut self) -> Option<ChangeTopic> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }
}

/// Maximum number of topics in the outbox.
const MAX_PENDING_TOPICS: usize = 1024;

/// A subscriber: its filter, and the topics in it that have changed.
#[derive(Debug)]
pub(crate) struct Subscriber {
    state: Mutex<State>,
    notify: Notify,
}

#[derive(Debug)]
struct State {
    filter: SubscriptionFilter,
    /// Whether it subscribed to roots, which a filter cannot express.
    wants_roots: bool,
    /// The owner of the tasks that it may be notified of.
    owner: Option<Arc<str>>,
    /// Whether it is notified of all tasks of the owner, not only of those in the filter.
    wants_all_tasks: bool,
    /// Limited by the filter; tasks by [`MAX_PENDING_TASK_TOPICS`].
    changed: TopicSet,
}

impl Subscriptions {
    /// Adds a subscriber to the topics of `filter`, until it is dropped.
    pub(crate) fn subscribe(&self, filter: SubscriptionFilter) -> Arc<Subscriber> {
        self.register(State::new(filter))
    }

    /// Like [`Subscriptions::subscribe`], including the tasks of this owner in `filter`.
    pub(crate) fn subscribe_with_tasks(
        &self,
        filter: SubscriptionFilter,
        owner: Arc<str>,
    ) -> Arc<Subscriber> {
        if filter.tasks.is_empty() {
            return self.subscribe(filter);
        }
        self.register(State { owner: Some(owner), ..State::new(filter) })
    }

    /// Like [`Subscriptions::subscribe`], including all tasks of this owner.
    pub(crate) fn subscribe_to_all_tasks(
        &self,
        filter: SubscriptionFilter,
        owner: Arc<str>,
    ) -> Arc<Subscriber> {
        self.register(State { owner: Some(owner), wants_all_tasks: true, ..State::new(filter) })
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

    /// Collects changes in an outbox from now on, because the store is shared with other processes.
    pub(crate) fn enable_outbox(&self) {
        self.outbox.get_or_init(Outbox::default);
    }

    /// Publishes a change: notifies subscribers, or adds it to the outbox for the subscribers of all processes.
    pub(crate) fn publish(&self, topic: &ChangeTopic) {
        match self.outbox.get() {
            // Task events have their own channel to all processes.
            Some(outbox) if !matches!(topic, ChangeTopic::Task { .. }) => {
                lock(&outbox.pending).add(topic.clone());
                outbox.notify.notify_one();
            }
            _ => self.notify(topic),
        }
    }

    /// Waits until the outbox is not empty.
    ///
    /// Cancel safe: yes, it takes nothing.
    pub(crate) async fn wait_for_pending(&self) {
        let Some(outbox) = self.outbox.get() else { return std::future::pending().await };
        loop {
            let notified = outbox.notify.notified();
            if *lock(&outbox.pending) != PendingChanges::default() {
                return;
            }
            notified.await;
        }
    }

    /// Takes all changes from the outbox. Those that cannot be sent must be restored.
    pub(crate) fn take_pending(&self) -> PendingChanges {
        self.outbox.get().map(|outbox| std::mem::take(&mut *lock(&outbox.pending))).unwrap_or_default()
    }

    /// Adds changes to the outbox again that could not be sent.
    pub(crate) fn restore_pending(&self, rest: PendingChanges) {
        if let Some(outbox) = self.outbox.get() {
            let mut pending = lock(&outbox.pending);
            pending.is_everything |= rest.is_everything;
            rest.topics.0.into_iter().for_each(|topic| pending.add(topic));
        }
    }

    /// Notifies all subscribers of this process that anything may have changed.
    pub(crate) fn notify_everything(&self) {
        let subscribers: Vec<_> = lock(&self.subscribers).iter().filter_map(Weak::upgrade).collect();
        for subscriber in subscribers {
            for topic in subscriber.subscribed_topics() {
                subscriber.notify(&topic);
            }
        }
    }

    /// Notifies the subscribers of this process that `topic` has changed.
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

/// Adds a subscriber. Dropped ones are removed before the list grows, so that it stays within twice the number of live ones.
fn push_subscriber(subscribers: &mut Vec<Weak<Subscriber>>, subscriber: &Arc<Subscriber>) {
    if subscribers.len() == subscribers.capacity() {
        subscribers.retain(|subscriber| subscriber.strong_count() > 0);
        // So that this is rare.
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
    /// Creates a subscriber that is not notified: its reader reads the change log instead.
    pub(crate) fn detached(filter: SubscriptionFilter) -> Arc<Subscriber> {
        Arc::new(Subscriber { state: Mutex::new(State::new(filter)), notify: Notify::new() })
    }

    /// Whether it is subscribed to a topic.
    pub(crate) fn is_subscribed(&self, topic: &ChangeTopic) -> bool {
        lock(&self.state).matches(topic)
    }

    /// All lists and resources that it is subscribed to.
    pub(crate) fn subscribed_topics(&self) -> Vec<ChangeTopic> {
        let state = lock(&self.state);
        let lists = [
            (state.filter.tools, ChangeTopic::Tools),
            (state.filter.prompts, ChangeTopic::Prompts),
            (state.filter.resources, ChangeTopic::Resources),
        ];
        let mut topics = Vec::new();
        for (is_subscribed, topic) in lists {
            if is_subscribed {
                topics.push(topic);
            }
        }
        for uri in &state.filter.uris {
            topics.push(ChangeTopic::Resource(uri.as_str().into()));
        }
        topics
    }

    /// Replaces the subscribed resources. Returns those that are new.
    pub(crate) fn set_uris(&self, uris: &[String]) -> Vec<Box<str>> {
        let mut state = lock(&self.state);
        let known = std::mem::replace(&mut state.filter.uris, uris.to_vec());
        uris.iter().filter(|uri| !known.contains(uri)).map(|uri| uri.as_str().into()).collect()
    }

    fn notify(&self, topic: &ChangeTopic) {
        let mut state = lock(&self.state);
        if state.matches(topic) && state.changed.insert(topic.clone()) {
            drop(state);
            // All waiters: one that is never polled again must not keep the notification from the others.
            self.notify.notify_waiters();
        }
    }

    /// Waits until a topic has changed.
    ///
    /// Cancel safe: yes, it takes nothing.
    pub(crate) async fn notified(&self) {
        loop {
            // Created before the check, so that a change in between is not missed.
            let notified = self.notify.notified();
            if !lock(&self.state).changed.0.is_empty() {
                return;
            }
            notified.await;
        }
    }

    /// Takes a changed topic. If its notification cannot be sent, the topic must be restored.
    pub(crate) fn take_changed(&self) -> Option<ChangeTopic> {
        lock(&self.state).changed.pop_first()
    }

    /// Adds a topic again whose notification could not be sent.
    pub(crate) fn restore_changed(&self, topic: ChangeTopic) {
        lock(&self.state).changed.insert(topic);
    }

    /// Subscribes to a resource. Returns false if there are too many.
    pub(crate) fn add_uri(&self, uri: &str, max: usize, max_bytes: usize) -> bool {
        let mut state = lock(&self.state);
        if state.filter.uris.iter().any(|known| known == uri) {
            return true;
        }
        let bytes: usize = state.filter.uris.iter().map(String::len).sum();
        if state.filter.uris.len() >= max || bytes + uri.len() > max_bytes {
            return false;
        }
        state.filter.uris.push(uri.to_owned());
        true
    }

    /// Subscribes to roots.
    pub(crate) fn subscribe_to_roots(&self) {
        lock(&self.state).wants_roots = true;
    }

    /// Unsubscribes from a resource.
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

    /// Whether the subscription includes a topic.
    fn matches(&self, topic: &ChangeTopic) -> bool {
        let State { filter, wants_roots, owner, wants_all_tasks, changed } = self;
        match topic {
            ChangeTopic::Roots => *wants_roots,
            ChangeTopic::Tools => filter.tools,
            ChangeTopic::Prompts => filter.prompts,
            ChangeTopic::Resources => filter.resources,
            ChangeTopic::Resource(uri) => filter.uris.iter().any(|subscribed| **subscribed == **uri),
            ChangeTopic::Task { owner: task_owner, id } => {
                owner.as_deref() == Some(&**task_owner)
                    && changed.0.len() < MAX_PENDING_TASK_TOPICS
                    && (*wants_all_tasks || filter.tasks.iter().any(|subscribed| **subscribed == **id))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn changes_coalesce_and_only_subscribed_ones_arrive() {
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
    async fn dropped_subscribers_are_removed() {
        let hub = Subscriptions::default();
        for _ in 0..1000 {
            drop(hub.subscribe(SubscriptionFilter::default()));
        }
        hub.publish(&ChangeTopic::Tools);
        assert_eq!(lock(&hub.subscribers).len(), 0);
    }

    #[tokio::test]
    async fn task_changes_reach_subscribers_of_their_owner() {
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
        assert_eq!(
            taken(&all).len(),
            MAX_PENDING_TASK_TOPICS,
            "a subscriber that does not read needs no more memory"
        );
    }

    #[tokio::test]
    async fn owners_without_subscribers_are_removed() {
        let hub = Subscriptions::default();
        for n in 0..1000 {
            drop(hub.subscribe_to_all_tasks(SubscriptionFilter::default(), n.to_string().into()));
        }
        assert!(lock(&hub.subscribers_by_owner).len() < 10, "{}", lock(&hub.subscribers_by_owner).len());
    }

    #[tokio::test]
    async fn a_resource_can_be_unsubscribed() {
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
    async fn the_outbox_holds_changes_back_and_is_bounded() {
        let hub = Subscriptions::default();
        let subscriber = hub.subscribe(SubscriptionFilter { tools: true, ..SubscriptionFilter::default() });
        hub.enable_outbox();
        hub.publish(&ChangeTopic::Tools);
        hub.publish(&ChangeTopic::Tools);
        hub.wait_for_pending().await;
        assert!(
            subscriber.take_changed().is_none(),
            "subscribers are not notified before the change was sent"
        );
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
