//! Who listens, and how they are told without harm.
//!
//! A listener that panics is caught, logged and forgiven. One that is `async` is waited for only where its word
//! counts (requests), and not longer than the patience of the bus; all else it hears from one task in the
//! background, behind a bounded queue. No lock is held while anybody listens, and where nobody does, that is
//! seen by one look at a number.

use std::any::Any;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::event::{
    ErrorContext, ErrorEvent, Event, EventKind, RequestEvent, ResponseEvent, ServerEvent, ToolEvent,
};
use crate::error::{Error, ErrorKind};
use crate::request::BoxFuture;
use crate::util::clock::timer_now;
use crate::util::spawn;

/// How many events wait for listeners in the background. When they are full, the oldest goes and is counted.
const MAX_QUEUED_EVENTS: usize = 1024;

/// How many bytes of requests and answers wait with them.
const MAX_QUEUED_BYTES: usize = 16 << 20;

/// How long an `async` listener may take, unless somebody says otherwise.
const LISTENER_TIMEOUT: Duration = Duration::from_secs(5);

/// After so many in a row that it did not hear in time, a listener is told nothing for a while.
const MAX_CONSECUTIVE_STALLS: u32 = 3;

/// The while.
const STALL_SUSPENSION: Duration = Duration::from_secs(60);

/// Where listeners subscribe to what happens: requests, answers, errors, servers that come and go.
///
/// A handle that is cheap to clone. Each server has one of its own, and a collection of servers has one for all
/// of them. What is told is the same on every transport.
///
/// A plain listener is called where it happens: it must not block. Listeners that have to wait are `async`. For
/// a request they are waited for, one after the other and [five seconds each](Events::set_patience); everything
/// else they hear in the background, a moment later, and an answer never waits for them. A listener that panics
/// or takes too long has said nothing, and the request is answered all the same: who must be kept out is the
/// business of guards, not of listeners. One that stalls three times in a row is left alone for a minute.
///
/// The background task ends, when it has told what is left, with the last handle; so a listener should not hold
/// a handle of the events it listens to.
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
/// let both = events.on("onMCPRequest,onMCPError", |event| println!("{}", event.data()))?;
/// both.off();
/// # Ok::<(), toolgate::Error>(())
/// ```
#[derive(Clone)]
pub struct Events {
    bus: Arc<EventBus>,
    /// Whoever drops the last handle ends the background task.
    _close_on_drop: Arc<CloseOnDrop>,
}

struct EventBus {
    /// The topics that anybody listens to.
    subscribed_kinds: AtomicU32,
    listeners: ArcSwap<Vec<Arc<EventListener>>>,
    /// Held while the list of listeners is replaced.
    update_lock: Mutex<()>,
    last_id: AtomicU64,
    timeout_ms: AtomicU64,
    queue: Mutex<EventQueue>,
    /// Something came into the queue, or the last handle is gone.
    wakeup: Notify,
    /// The queue is empty and everyone has heard.
    idle: Notify,
    /// Events that not everyone has heard yet.
    n_pending: AtomicU64,
    n_dropped: AtomicU64,
    is_running: AtomicBool,
    is_closed: AtomicBool,
    /// Who else is to be told.
    parents: ArcSwap<Vec<Events>>,
    /// There are some. They are never fewer than before.
    has_parents: AtomicBool,
    /// The status of refusals for which a listener chose none.
    default_status: u16,
}

/// Events that wait, and how many bytes they keep.
#[derive(Default)]
struct EventQueue {
    events: VecDeque<Event>,
    bytes: usize,
}

impl EventQueue {
    fn push_back(&mut self, event: Event) {
        self.bytes += event.retained_bytes();
        self.events.push_back(event);
    }

    fn pop_front(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        self.bytes -= event.retained_bytes();
        Some(event)
    }

    /// There is always room for one.
    fn is_full(&self) -> bool {
        self.events.len() > MAX_QUEUED_EVENTS || (self.bytes > MAX_QUEUED_BYTES && self.events.len() > 1)
    }
}

struct CloseOnDrop(Arc<EventBus>);

struct EventListener {
    id: u64,
    kinds: u32,
    callback: ListenerFn,
    n_failures: AtomicU64,
    /// One after the other, without having heard anything in between.
    n_stalls: AtomicU32,
    /// It stalled too often: until then it is told nothing.
    suspended_until: Mutex<Option<Instant>>,
}

enum ListenerFn {
    /// Called where it happens.
    Sync(Box<dyn Fn(&mut Event) + Send + Sync>),
    /// Waited for: gives back what it may have changed.
    AsyncRequest(Box<dyn Fn(RequestEvent) -> BoxFuture<'static, RequestEvent> + Send + Sync>),
    /// Told in the background, if the event is one of its kind.
    Background(Box<dyn Fn(Event) -> Option<BoxFuture<'static, ()>> + Send + Sync>),
}

/// A listener that was subscribed. Dropping this does not take it off: [`Subscription::off`] does.
///
/// ```
/// # use toolgate::events::Events;
/// let events = Events::new();
/// let heard = events.on_error(|error| eprintln!("{}", error.message()));
/// heard.off();
/// ```
#[derive(Clone)]
pub struct Subscription {
    bus: Weak<EventBus>,
    id: u64,
}

/// The topics that anybody listens to at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventKinds(u32);

/// What listeners made of a request.
pub(crate) enum ListenerPoll {
    Ready(RequestEvent),
    /// Some of them have to wait. Cancel safe: yes, the request was not begun.
    Pending(BoxFuture<'static, RequestEvent>),
}

impl Events {
    /// Nobody listens yet.
    #[must_use]
    pub fn new() -> Events {
        Events::with_default_status(200)
    }

    /// Those of one server: what is told there is told to `parent` too. Refusals of its listeners have the
    /// status 401 unless they chose one.
    pub(crate) fn for_server(parent: Option<&Events>) -> Events {
        let events = Events::with_default_status(401);
        if let Some(parent) = parent {
            events.add_parent(parent);
        }
        events
    }

    fn with_default_status(status: u16) -> Events {
        let bus = Arc::new(EventBus {
            subscribed_kinds: AtomicU32::new(0),
            listeners: ArcSwap::default(),
            update_lock: Mutex::default(),
            last_id: AtomicU64::new(0),
            timeout_ms: AtomicU64::new(LISTENER_TIMEOUT.as_millis() as u64),
            queue: Mutex::default(),
            wakeup: Notify::new(),
            idle: Notify::new(),
            n_pending: AtomicU64::new(0),
            n_dropped: AtomicU64::new(0),
            is_running: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            parents: ArcSwap::default(),
            has_parents: AtomicBool::new(false),
            default_status: status,
        });
        Events { _close_on_drop: Arc::new(CloseOnDrop(Arc::clone(&bus))), bus }
    }

    /// Tells everything to these as well, from now on. Whom it tells already, and who would tell it back, is not told
    /// again.
    pub(crate) fn add_parent(&self, parent: &Events) {
        if parent.forwards_to(&self.bus) {
            return;
        }
        let _changing = lock(&self.bus.update_lock);
        if !self.forwards_to(&parent.bus) {
            let mut parents = Vec::clone(&self.bus.parents.load());
            parents.push(parent.clone());
            self.bus.parents.store(Arc::new(parents));
            self.bus.has_parents.store(true, Release);
        }
    }

    /// Whether what is told here is told there.
    fn forwards_to(&self, bus: &Arc<EventBus>) -> bool {
        Arc::ptr_eq(&self.bus, bus) || self.bus.parents.load().iter().any(|parent| parent.forwards_to(bus))
    }

    /// Hears of each request before it is answered, and may refuse or change it.
    pub fn on_request(&self, listener: impl Fn(&mut RequestEvent) + Send + Sync + 'static) -> Subscription {
        self.add_sync(&[EventKind::Request], move |event| {
            if let Event::Request(event) = event {
                listener(event);
            }
        })
    }

    /// The same for a listener that has to wait: it gets the request and gives it back.
    ///
    /// ```
    /// # use toolgate::events::Events;
    /// # async fn is_allowed(client: Option<&str>) -> bool { true }
    /// Events::new().on_request_async(|mut request| async move {
    ///     if !is_allowed(request.header("x-client-id")).await {
    ///         request.reject("Rate limit exceeded");
    ///     }
    ///     request
    /// });
    /// ```
    pub fn on_request_async<F, Fut>(&self, listener: F) -> Subscription
    where
        F: Fn(RequestEvent) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = RequestEvent> + Send + 'static,
    {
        let run = move |event| -> BoxFuture<'static, RequestEvent> { Box::pin(listener(event)) };
        self.add(&[EventKind::Request], ListenerFn::AsyncRequest(Box::new(run)))
    }

    /// Hears of each answer before it is sent, and may replace it.
    pub fn on_response(&self, listener: impl Fn(&mut ResponseEvent) + Send + Sync + 'static) -> Subscription {
        self.add_sync(&[EventKind::Response], move |event| {
            if let Event::Response(event) = event {
                listener(event);
            }
        })
    }

    /// Hears of each answer in the background.
    pub fn on_response_async<F, Fut>(&self, listener: F) -> Subscription
    where
        F: Fn(ResponseEvent) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.add_background(&[EventKind::Response], move |event| match event {
            Event::Response(event) => Some(listener(event)),
            _ => None,
        })
    }

    /// Hears of each error.
    pub fn on_error(&self, listener: impl Fn(&ErrorEvent) + Send + Sync + 'static) -> Subscription {
        self.add_sync(&[EventKind::Error], move |event| {
            if let Event::Error(event) = event {
                listener(event);
            }
        })
    }

    /// Hears of each error in the background.
    pub fn on_error_async<F, Fut>(&self, listener: F) -> Subscription
    where
        F: Fn(ErrorEvent) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.add_background(&[EventKind::Error], move |event| match event {
            Event::Error(event) => Some(listener(event)),
            _ => None,
        })
    }

    /// Hears of servers that are made, removed, paused and resumed.
    pub fn on_server(&self, listener: impl Fn(&ServerEvent) + Send + Sync + 'static) -> Subscription {
        self.add_sync(&SERVER_KINDS, move |event| {
            if let Event::Server(event) = event {
                listener(event);
            }
        })
    }

    /// The same in the background.
    pub fn on_server_async<F, Fut>(&self, listener: F) -> Subscription
    where
        F: Fn(ServerEvent) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.add_background(&SERVER_KINDS, move |event| match event {
            Event::Server(event) => Some(listener(event)),
            _ => None,
        })
    }

    /// Hears of each tool that begins and that has ended its work.
    pub fn on_tool(&self, listener: impl Fn(&ToolEvent) + Send + Sync + 'static) -> Subscription {
        self.add_sync(&TOOL_KINDS, move |event| {
            if let Event::Tool(event) = event {
                listener(event);
            }
        })
    }

    /// The same in the background.
    pub fn on_tool_async<F, Fut>(&self, listener: F) -> Subscription
    where
        F: Fn(ToolEvent) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.add_background(&TOOL_KINDS, move |event| match event {
            Event::Tool(event) => Some(listener(event)),
            _ => None,
        })
    }

    /// Hears of everything in a list of names: `onMCPServerCreate`, `onMCPServerRemove`, `onMCPServerPause`,
    /// `onMCPServerResume`, `onMCPRequest`, `onMCPResponse`, `onMCPError`, `beforeAIToolExecute`,
    /// `afterAIToolExecute`. Case does not count.
    ///
    /// # Errors
    /// If a name is unknown, or there is none.
    pub fn on(
        &self,
        names: &str,
        listener: impl Fn(&mut Event) + Send + Sync + 'static,
    ) -> Result<Subscription, Error> {
        Ok(self.add_sync(&parse_kinds(names)?, listener))
    }

    /// The same for a listener that has to wait; it hears everything in the background, requests too.
    ///
    /// # Errors
    /// If a name is unknown, or there is none.
    pub fn on_async<F, Fut>(&self, names: &str, listener: F) -> Result<Subscription, Error>
    where
        F: Fn(Event) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Ok(self.add_background(&parse_kinds(names)?, move |event| Some(listener(event))))
    }

    /// Hears of each answer and each error.
    pub(crate) fn on_outcome(&self, listener: impl Fn(&mut Event) + Send + Sync + 'static) -> Subscription {
        self.add_sync(&[EventKind::Response, EventKind::Error], listener)
    }

    /// How long an `async` listener may take: five seconds, unless this says otherwise.
    pub fn set_listener_timeout(&self, patience: Duration) {
        let millis = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        self.bus.timeout_ms.store(millis, Relaxed);
    }

    /// How many listen to each kind of event, here and where it is told on; by the names that [`Events::on`] takes.
    ///
    /// ```
    /// # use toolgate::events::Events;
    /// let events = Events::new();
    /// events.on_error(|error| eprintln!("{}", error.message()));
    /// assert!(events.listeners().contains(&("onMCPError", 1)));
    /// ```
    #[must_use]
    pub fn listeners(&self) -> Vec<(&'static str, usize)> {
        EventKind::ALL.iter().map(|topic| (topic.name(), self.count_listeners(*topic))).collect()
    }

    fn count_listeners(&self, topic: EventKind) -> usize {
        let parents = self.bus.parents.load();
        let above: usize = parents.iter().map(|parent| parent.count_listeners(topic)).sum();
        self.bus.listeners_for(topic).count() + above
    }

    /// How many events the listeners in the background have not heard, because they were too slow.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.bus.n_dropped.load(Relaxed)
    }

    /// Waits until the listeners in the background have heard everything so far; for tests, and before a
    /// program ends.
    ///
    /// Cancel safe: yes, it only looks.
    pub async fn wait_idle(&self) {
        loop {
            let rested = self.bus.idle.notified();
            if self.bus.n_pending.load(Relaxed) == 0 {
                break;
            }
            // What was told outside of a runtime has waited for one.
            self.bus.wake();
            rested.await;
        }
        for parent in self.bus.parents.load_full().iter() {
            Box::pin(parent.wait_idle()).await;
        }
    }

    /// The topics that anybody listens to, here or at the parent.
    #[inline]
    pub(crate) fn subscribed_kinds(&self) -> EventKinds {
        let own = self.bus.subscribed_kinds.load(Relaxed);
        if !self.bus.has_parents.load(Acquire) {
            return EventKinds(own);
        }
        EventKinds(self.bus.parents.load().iter().fold(own, |all, parent| all | parent.subscribed_kinds().0))
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

    /// Asks everyone what they make of a request: those of the parent first, each in the order in which they
    /// subscribed. All are asked, also after a refusal.
    pub(crate) fn notify_request(&self, mut event: RequestEvent) -> ListenerPoll {
        let mut round = RequestListeners::default();
        self.collect_request_listeners(&mut round);
        while let Some((bus, listener)) = round.listeners.pop_front() {
            if let ListenerFn::AsyncRequest(_) = listener.callback {
                round.listeners.push_front((bus, listener));
                return ListenerPoll::Pending(Box::pin(round.run(event)));
            }
            event = bus.call_sync_request(&listener, event);
        }
        round.enqueue_background(&event);
        ListenerPoll::Ready(event)
    }

    /// Tells everyone of an answer, and returns it as it is to be sent. The parent comes last and sees that.
    pub(crate) fn notify_response(&self, event: ResponseEvent) -> ResponseEvent {
        match self.dispatch(event.clone().into()) {
            Event::Response(event) => event,
            _ => event,
        }
    }

    /// Tells everyone.
    pub(crate) fn publish(&self, event: impl Into<Event>) {
        self.dispatch(event.into());
    }

    fn dispatch(&self, event: Event) -> Event {
        self.bus.dispatch(event)
    }

    fn collect_request_listeners(&self, round: &mut RequestListeners) {
        for parent in self.bus.parents.load().iter() {
            parent.collect_request_listeners(round);
        }
        let listeners = self.bus.listeners_for(EventKind::Request);
        let asked = listeners.filter(|listener| !matches!(listener.callback, ListenerFn::Background(_)));
        round.listeners.extend(asked.map(|listener| (Arc::clone(&self.bus), listener)));
        round.buses.push(Arc::clone(&self.bus));
    }

    fn add_sync(
        &self,
        topics: &[EventKind],
        run: impl Fn(&mut Event) + Send + Sync + 'static,
    ) -> Subscription {
        self.add(topics, ListenerFn::Sync(Box::new(run)))
    }

    fn add_background<F, Fut>(&self, topics: &[EventKind], run: F) -> Subscription
    where
        F: Fn(Event) -> Option<Fut> + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let run = move |event| Some(Box::pin(run(event)?) as BoxFuture<'static, ()>);
        self.add(topics, ListenerFn::Background(Box::new(run)))
    }

    fn add(&self, topics: &[EventKind], run: ListenerFn) -> Subscription {
        let id = self.bus.last_id.fetch_add(1, Relaxed) + 1;
        let topics = topics.iter().fold(0, |all, topic| all | topic.bit());
        let (n_faults, n_stalls, leave) = Default::default();
        let listener = Arc::new(EventListener {
            id,
            kinds: topics,
            callback: run,
            n_failures: n_faults,
            n_stalls,
            suspended_until: leave,
        });
        self.bus.update_listeners(|listeners| listeners.push(listener));
        Subscription { bus: Arc::downgrade(&self.bus), id }
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
    /// Takes the listener off. It may still hear what is being told right now.
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

impl EventKinds {
    pub(crate) const EMPTY: EventKinds = EventKinds(0);

    pub(crate) fn is_empty(self) -> bool {
        self == EventKinds::EMPTY
    }

    pub(crate) fn contains(self, topic: EventKind) -> bool {
        self.0 & topic.bit() != 0
    }
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.is_closed.store(true, Release);
        self.0.wakeup.notify_one();
    }
}

impl EventBus {
    fn update_listeners(&self, change: impl FnOnce(&mut Vec<Arc<EventListener>>)) {
        let _changing = lock(&self.update_lock);
        let mut listeners = Vec::clone(&self.listeners.load());
        change(&mut listeners);
        let wanted = listeners.iter().fold(0, |all, listener| all | listener.kinds);
        self.listeners.store(Arc::new(listeners));
        self.subscribed_kinds.store(wanted, Relaxed);
    }

    /// The list is kept while they listen, not locked.
    fn listeners_for(&self, topic: EventKind) -> impl Iterator<Item = Arc<EventListener>> + use<> {
        let listeners = self.listeners.load_full();
        (0..listeners.len()).filter_map(move |index| {
            let listener = listeners.get(index).filter(|listener| listener.kinds & topic.bit() != 0);
            listener.map(Arc::clone)
        })
    }

    fn dispatch(self: &Arc<EventBus>, mut event: Event) -> Event {
        let topic = event.kind();
        let mut is_told = false;
        if self.subscribed_kinds.load(Relaxed) & topic.bit() != 0 {
            for listener in self.listeners_for(topic) {
                match &listener.callback {
                    ListenerFn::Sync(run) => self.call_sync(&listener, run, &mut event),
                    ListenerFn::Background(_) => is_told = true,
                    ListenerFn::AsyncRequest(_) => {}
                }
            }
        }
        if is_told {
            self.enqueue(event.clone());
        }
        for parent in self.parents.load_full().iter() {
            event = parent.bus.dispatch(event);
        }
        event
    }

    /// One listener on the spot. What it leaves behind in panic, or makes another kind of event of, is undone.
    fn call_sync(
        self: &Arc<EventBus>,
        listener: &EventListener,
        run: &(dyn Fn(&mut Event) + Send + Sync),
        event: &mut Event,
    ) {
        let before = event.clone();
        let heard = catch_unwind(AssertUnwindSafe(|| run(event)));
        let topic = before.kind();
        if heard.is_ok() && event.kind() == topic {
            return;
        }
        match (&mut *event, before) {
            (Event::Request(event), Event::Request(before)) => event.restore(before),
            (event, before) => *event = before,
        }
        if let Err(panic) = heard {
            self.report_failure(
                listener,
                event,
                &format!("a listener panicked: {}", panic_message(panic.as_ref())),
            );
        }
    }

    fn call_sync_request(
        self: &Arc<EventBus>,
        listener: &EventListener,
        event: RequestEvent,
    ) -> RequestEvent {
        let ListenerFn::Sync(run) = &listener.callback else {
            return event;
        };
        let mut asked = Event::Request(event.clone());
        self.call_sync(listener, run, &mut asked);
        match asked {
            Event::Request(mut event) => {
                event.set_default_status(self.default_status);
                event
            }
            _ => event,
        }
    }

    /// Waits for one listener, not longer than patience lasts.
    ///
    /// Cancel safe: yes, the listener is dropped with it.
    async fn call_async<T>(
        self: &Arc<EventBus>,
        listener: &EventListener,
        event: &Event,
        start: impl FnOnce() -> Option<BoxFuture<'static, T>>,
    ) -> Option<T> {
        if listener.is_suspended() {
            self.n_dropped.fetch_add(1, Relaxed);
            return None;
        }
        let started = catch_unwind(AssertUnwindSafe(start));
        let ended = match started {
            Ok(None) => return None,
            Ok(Some(mut run)) => {
                let caught =
                    poll_fn(|task| match catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(task))) {
                        Ok(poll) => poll.map(Ok),
                        Err(panic) => Poll::Ready(Err(panic)),
                    });
                let patience = Duration::from_millis(self.timeout_ms.load(Relaxed));
                match tokio::time::timeout(patience, caught).await {
                    Ok(ended) => ended,
                    Err(_) => {
                        listener.record_stall();
                        self.report_failure(
                            listener,
                            event,
                            &format!("a listener took longer than {patience:?}"),
                        );
                        return None;
                    }
                }
            }
            Err(panic) => Err(panic),
        };
        listener.n_stalls.store(0, Relaxed);
        match ended {
            Ok(heard) => Some(heard),
            Err(panic) => {
                self.report_failure(
                    listener,
                    event,
                    &format!("a listener panicked: {}", panic_message(panic.as_ref())),
                );
                None
            }
        }
    }

    /// A listener failed: the log is told at the first, second, fourth, eighth … time, others who listen to
    /// errors each time. Errors of those go to the log only, or it would never end.
    #[cold]
    fn report_failure(self: &Arc<EventBus>, listener: &EventListener, event: &Event, what: &str) {
        let times = listener.n_failures.fetch_add(1, Relaxed) + 1;
        if times.is_power_of_two() {
            let (listener, event) = (listener.id, event.name());
            tracing::error!(listener, event, times, "{what}");
        }
        if event.kind() != EventKind::Error {
            let error = ErrorEvent::new(&event.server().into(), ErrorContext::Listener, what);
            let detail = format!("listener {} of {}", listener.id, event.name());
            self.dispatch(error.with_kind("Listener").with_detail(detail).into());
        }
    }

    fn enqueue(self: &Arc<EventBus>, event: Event) {
        {
            let mut queue = lock(&self.queue);
            self.n_pending.fetch_add(1, Relaxed);
            queue.push_back(event);
            while queue.is_full() {
                queue.pop_front();
                self.n_pending.fetch_sub(1, Relaxed);
                self.n_dropped.fetch_add(1, Relaxed);
            }
        }
        self.wake();
    }

    /// Starts the task in the background, or tells it to look. Without a runtime events wait for the next one.
    fn wake(self: &Arc<EventBus>) {
        if self.is_running.swap(true, AcqRel) {
            self.wakeup.notify_one();
            return;
        }
        let running = BackgroundWorker(Arc::clone(self));
        if tokio::runtime::Handle::try_current().is_ok() {
            // It belongs to the bus, whose last handle ends it; and to the runtime.
            spawn::spawn_main(running.run());
        }
    }

    async fn run_background_listeners(self: &Arc<EventBus>, event: Event) {
        let listeners = self.listeners_for(event.kind());
        let told = listeners.filter(|listener| matches!(listener.callback, ListenerFn::Background(_)));
        let mut calls: Vec<BoxFuture<'_, ()>> = told
            .map(|listener| -> BoxFuture<'_, ()> {
                let event = event.clone();
                Box::pin(async move {
                    if let ListenerFn::Background(run) = &listener.callback {
                        self.call_async(&listener, &event, || run(event.clone())).await;
                    }
                })
            })
            .collect();
        // All at once: one that is slow keeps the others from the next event only.
        poll_fn(|task| {
            calls.retain_mut(|call| call.as_mut().poll(task).is_pending());
            if calls.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl EventListener {
    fn record_stall(&self) {
        if self.n_stalls.fetch_add(1, Relaxed) + 1 >= MAX_CONSECUTIVE_STALLS {
            *lock(&self.suspended_until) = Some(timer_now() + STALL_SUSPENSION);
        }
    }

    fn is_suspended(&self) -> bool {
        if self.n_stalls.load(Relaxed) < MAX_CONSECUTIVE_STALLS {
            return false;
        }
        lock(&self.suspended_until).is_some_and(|until| timer_now() < until)
    }
}

/// Those who are to be asked about one request.
#[derive(Default)]
struct RequestListeners {
    listeners: VecDeque<(Arc<EventBus>, Arc<EventListener>)>,
    /// Where it is to be told in the background when everyone was asked.
    buses: Vec<Arc<EventBus>>,
}

impl RequestListeners {
    async fn run(mut self, mut event: RequestEvent) -> RequestEvent {
        while let Some((bus, listener)) = self.listeners.pop_front() {
            event = match &listener.callback {
                ListenerFn::AsyncRequest(run) => {
                    let asked = Event::Request(event.clone());
                    let answered = bus.call_async(&listener, &asked, || Some(run(event.clone()))).await;
                    let mut event = answered.unwrap_or(event);
                    event.set_default_status(bus.default_status);
                    event
                }
                _ => bus.call_sync_request(&listener, event),
            };
        }
        self.enqueue_background(&event);
        event
    }

    fn enqueue_background(&self, event: &RequestEvent) {
        for bus in &self.buses {
            if bus
                .listeners_for(EventKind::Request)
                .any(|listener| matches!(listener.callback, ListenerFn::Background(_)))
            {
                bus.enqueue(Event::Request(event.clone()));
            }
        }
    }
}

/// The task in the background. However it ends, the next one may start.
struct BackgroundWorker(Arc<EventBus>);

impl BackgroundWorker {
    async fn run(self) {
        let bus = &self.0;
        loop {
            let next = lock(&bus.queue).pop_front();
            match next {
                Some(event) => {
                    let _heard = DeliveryGuard(bus);
                    bus.run_background_listeners(event).await;
                }
                None if bus.is_closed.load(Acquire) => return,
                None => bus.wakeup.notified().await,
            }
        }
    }
}

impl Drop for BackgroundWorker {
    fn drop(&mut self) {
        self.0.is_running.store(false, Release);
    }
}

/// An event that was taken from the queue; dropped, it has been heard.
struct DeliveryGuard<'a>(&'a EventBus);

impl Drop for DeliveryGuard<'_> {
    fn drop(&mut self) {
        if self.0.n_pending.fetch_sub(1, AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

const SERVER_KINDS: [EventKind; 4] =
    [EventKind::ServerCreated, EventKind::ServerRemoved, EventKind::ServerPaused, EventKind::ServerResumed];
const TOOL_KINDS: [EventKind; 2] = [EventKind::ToolStart, EventKind::ToolEnd];

/// The topics of a list of names.
fn parse_kinds(names: &str) -> Result<Vec<EventKind>, Error> {
    let known = || EventKind::ALL.map(EventKind::name).join(", ");
    let mut topics = Vec::new();
    for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let topic = EventKind::ALL.into_iter().find(|topic| topic.name().eq_ignore_ascii_case(name));
        topics.push(topic.ok_or_else(|| {
            let said = format!("unknown event: {name}; known are {}", known());
            Error::new(ErrorKind::InvalidConfig, said)
        })?);
    }
    if topics.is_empty() {
        return Err(Error::new(
            ErrorKind::InvalidConfig,
            format!("no event is named; known are {}", known()),
        ));
    }
    Ok(topics)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a panic said.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no words")
}

#[cfg(test)]
mod tests;
