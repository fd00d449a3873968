//! Event subscription and delivery.
//!
//! A panicking listener is caught and logged; its changes to the event are undone. An `async` listener is awaited only
//! for request events, where it may reject or change the request, and no longer than the listener timeout. All other
//! events reach `async` listeners through one background task with a bounded queue. No lock is held while a listener
//! runs. Without listeners, publishing costs one atomic load.

mod background;
mod bus;
mod request_round;
mod subscribe;

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::events::{Event, EventKind, EventKinds, RequestEvent, ResponseEvent};
use crate::request::BoxFuture;
use crate::util::lock;
use bus::EventBus;
use request_round::RequestRound;

/// Event hub: listeners subscribe here to requests, responses, errors, tool calls and server changes.
///
/// `Events` is a handle that is cheap to clone. Each server has one, and a collection of servers has one that receives
/// the events of all of them. Events are the same on every transport.
///
/// Synchronous listeners run inline and must not block; use an `async` listener to wait for something. Async request
/// listeners are awaited one after the other, each for [at most five seconds](Events::set_listener_timeout). All other
/// events are delivered to async listeners in the background, so a response never waits for them.
///
/// If a listener panics or times out, its changes are dropped and the request is handled anyway, unless it was rejected
/// before: access control belongs in a guard, not in a listener. A listener that times out three times in a row is
/// suspended for one minute.
///
/// The background task ends when the last handle is dropped and the queue is empty. A listener should therefore not
/// hold a handle of the events it listens to.
///
/// ```
/// use toolgate::events::Events;
///
/// let events = Events::new();
/// events.on_request(|request| {
///     if request.header("x-client-id") == Some("flood") {
///         request.reject_with(429, -32000, "Rate limit exceeded");
///     }
/// });
/// events.on_response_async(|response| async move {
///     println!("{}: {}", response.request().method(), response.is_success());
/// });
/// let subscription = events.on_any(|event| println!("{}", event.data()));
/// subscription.off();
/// ```
#[derive(Clone)]
#[doc(alias("middleware", "interceptor", "hooks", "observability"))]
pub struct Events {
    bus: Arc<EventBus>,
    /// Ends the background task when the last handle is dropped.
    _close_on_drop: Arc<CloseOnDrop>,
}

struct CloseOnDrop(Arc<EventBus>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Handle of a subscribed listener. Dropping it keeps the listener subscribed; [`Subscription::off`] removes it.
///
/// ```
/// # use toolgate::events::Events;
/// let events = Events::new();
/// let subscription = events.on_error(|error| eprintln!("{}", error.message()));
/// subscription.off();
/// ```
#[derive(Clone)]
pub struct Subscription {
    bus: Weak<EventBus>,
    id: u64,
}

/// The result of offering a request to its listeners.
pub(crate) enum ListenerPoll {
    Ready(RequestEvent),
    /// At least one listener is `async`. Cancel safe: yes, the request has not been started.
    Pending(BoxFuture<'static, RequestEvent>),
}

impl Events {
    /// Creates a hub without listeners.
    #[must_use]
    pub fn new() -> Events {
        Events::with_default_status(200)
    }

    /// Creates the hub of one server, which forwards its events to `parent`.
    ///
    /// A rejection by one of its listeners has the HTTP status 401 unless the listener chose another.
    pub(crate) fn for_server(parent: Option<&Events>) -> Events {
        let events = Events::with_default_status(401);
        if let Some(parent) = parent {
            events.add_parent(parent);
        }
        events
    }

    fn with_default_status(status: u16) -> Events {
        let bus = Arc::new(EventBus::new(status));
        Events { _close_on_drop: Arc::new(CloseOnDrop(Arc::clone(&bus))), bus }
    }

    /// Forwards all further events to `parent` too.
    ///
    /// Does nothing if events are already forwarded there, or if `parent` forwards to this hub (that would be a cycle).
    pub(crate) fn add_parent(&self, parent: &Events) {
        if parent.forwards_to(&self.bus) {
            return;
        }
        let _guard = lock(&self.bus.update_lock);
        if !self.forwards_to(&parent.bus) {
            let mut parents = Vec::clone(&self.bus.parents.load());
            parents.push(parent.clone());
            self.bus.parents.store(Arc::new(parents));
            self.bus.has_parents.store(true, Release);
        }
    }

    /// Returns whether events published here reach `bus`.
    fn forwards_to(&self, bus: &Arc<EventBus>) -> bool {
        Arc::ptr_eq(&self.bus, bus) || self.bus.parents.load().iter().any(|parent| parent.forwards_to(bus))
    }

    /// Sets how long an `async` listener may take. The default is five seconds.
    pub fn set_listener_timeout(&self, timeout: Duration) {
        let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self.bus.timeout_ms.store(millis, Relaxed);
    }

    /// Returns the number of listeners for each kind of event, by the names that [`Events::on`] accepts.
    ///
    /// Listeners of the hubs to which events are forwarded are included.
    ///
    /// ```
    /// # use toolgate::events::Events;
    /// let events = Events::new();
    /// events.on_error(|error| eprintln!("{}", error.message()));
    /// assert!(events.listeners().contains(&("onMCPError", 1)));
    /// ```
    #[cfg(feature = "compat")]
    #[must_use]
    pub fn listeners(&self) -> Vec<(&'static str, usize)> {
        EventKind::ALL.iter().map(|kind| (kind.name(), self.count_listeners(*kind))).collect()
    }

    fn count_listeners(&self, kind: EventKind) -> usize {
        let parents = self.bus.parents.load();
        let inherited: usize = parents.iter().map(|parent| parent.count_listeners(kind)).sum();
        self.bus.listeners_for(kind).count() + inherited
    }

    /// Returns how many events background listeners missed because they were too slow.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.bus.n_dropped.load(Relaxed)
    }

    /// Waits until background listeners have received all events published so far.
    ///
    /// Useful in tests and before a program exits. Cancel safe: yes, it changes nothing.
    pub async fn wait_idle(&self) {
        loop {
            let idle = self.bus.idle.notified();
            if self.bus.n_pending.load(Relaxed) == 0 {
                break;
            }
            // Events published outside of a runtime are still queued.
            self.bus.wake();
            idle.await;
        }
        for parent in self.bus.parents.load_full().iter() {
            Box::pin(parent.wait_idle()).await;
        }
    }

    /// Returns the kinds of events that have listeners, here or in a hub to which events are forwarded.
    #[inline]
    pub(crate) fn subscribed_kinds(&self) -> EventKinds {
        let own = self.bus.subscribed_kinds();
        if !self.bus.has_parents.load(Acquire) {
            return own;
        }
        self.bus.parents.load().iter().fold(own, |kinds, parent| kinds.union(parent.subscribed_kinds()))
    }

    pub(crate) fn has_no_listeners(&self) -> bool {
        self.subscribed_kinds().is_empty()
    }

    #[cfg(test)]
    pub(crate) fn has_request_listeners(&self) -> bool {
        self.subscribed_kinds().contains(EventKind::Request)
    }

    #[cfg(test)]
    pub(crate) fn has_response_listeners(&self) -> bool {
        self.subscribed_kinds().contains(EventKind::Response)
    }

    /// Offers a request to all listeners: those of parents first, each hub in subscription order.
    ///
    /// All of them are called, also after a rejection.
    pub(crate) fn notify_request(&self, event: RequestEvent) -> ListenerPoll {
        let mut round = RequestRound::default();
        self.collect_request_listeners(&mut round);
        round.start(event)
    }

    /// Offers a response to all listeners and returns it as it is to be sent.
    ///
    /// Parents come last and see the changes made by the listeners here.
    pub(crate) fn notify_response(&self, event: ResponseEvent) -> ResponseEvent {
        match self.bus.dispatch(event.clone().into()) {
            Event::Response(event) => event,
            _ => event,
        }
    }

    /// Delivers an event to all listeners.
    pub(crate) fn publish(&self, event: impl Into<Event>) {
        self.bus.dispatch(event.into());
    }

    fn collect_request_listeners(&self, round: &mut RequestRound) {
        for parent in self.bus.parents.load().iter() {
            parent.collect_request_listeners(round);
        }
        round.add_bus(&self.bus);
    }
}

impl Default for Events {
    fn default() -> Events {
        Events::new()
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let n_listeners = self.bus.listeners.load().len();
        f.debug_struct("Events").field("listeners", &n_listeners).finish_non_exhaustive()
    }
}

impl Subscription {
    /// Removes the listener. An event that is being delivered right now may still reach it.
    pub fn off(&self) {
        if let Some(bus) = self.bus.upgrade() {
            bus.update_listeners(|listeners| listeners.retain(|listener| listener.id != self.id));
        }
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Subscription").field(&self.id).finish()
    }
}

#[cfg(test)]
mod tests;
