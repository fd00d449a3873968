//! The listeners of one hub, and calling them so that a failing one does not affect requests.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Events;
use super::background::{BackgroundWorker, EventQueue};
use crate::observe::events::{ErrorContext, ErrorEvent, Event, EventKind, EventKinds, RequestEvent};
use crate::request::BoxFuture;
use crate::util::clock::timer_now;
use crate::util::lock;
use crate::util::spawn;

/// Default for how long an `async` listener may take.
const LISTENER_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of timeouts in a row; a listener that reaches it is suspended.
const MAX_CONSECUTIVE_STALLS: u32 = 3;

/// How long a stalled listener is suspended.
const STALL_SUSPENSION: Duration = Duration::from_secs(60);

/// The shared state of all [`Events`] handles of one hub.
pub(super) struct EventBus {
    /// The bits of the [`EventKinds`] that have a listener here.
    subscribed_kinds: AtomicU32,
    pub(super) listeners: ArcSwap<Vec<Arc<EventListener>>>,
    /// Held while `listeners` or `parents` is replaced.
    pub(super) update_lock: Mutex<()>,
    last_id: AtomicU64,
    pub(super) timeout_ms: AtomicU64,
    /// Events for background listeners. Bounded: a full queue drops its oldest event.
    pub(super) queue: Mutex<EventQueue>,
    /// Notified when an event is queued or the last handle is dropped.
    pub(super) wakeup: Notify,
    /// Notified when the queue is empty and all background listeners have returned.
    pub(super) idle: Notify,
    /// Events that are queued or being delivered.
    pub(super) n_pending: AtomicU64,
    pub(super) n_dropped: AtomicU64,
    /// Whether the background worker runs.
    pub(super) is_running: AtomicBool,
    /// Whether the last handle was dropped.
    pub(super) is_closed: AtomicBool,
    /// Hubs to which all events are forwarded.
    pub(super) parents: ArcSwap<Vec<Events>>,
    /// Whether `parents` is not empty. Parents are never removed.
    pub(super) has_parents: AtomicBool,
    /// HTTP status of rejections for which a listener chose none.
    pub(super) default_status: u16,
}

/// A subscribed listener.
pub(super) struct EventListener {
    pub(super) id: u64,
    kinds: EventKinds,
    pub(super) callback: ListenerFn,
    n_failures: AtomicU64,
    /// Consecutive timeouts.
    n_stalls: AtomicU32,
    /// Set when the listener timed out too often; it gets no events until then.
    suspended_until: Mutex<Option<Instant>>,
}

/// The function of a listener.
pub(super) enum ListenerFn {
    /// Called inline.
    Sync(Box<dyn Fn(&mut Event) + Send + Sync>),
    /// Awaited before the request is handled; returns the event, possibly changed.
    AsyncRequest(Box<dyn Fn(RequestEvent) -> BoxFuture<'static, RequestEvent> + Send + Sync>),
    /// Run in the background. Returns `None` if it does not handle this type of event.
    Background(Box<dyn Fn(Event) -> Option<BoxFuture<'static, ()>> + Send + Sync>),
}

impl EventBus {
    pub(super) fn new(default_status: u16) -> EventBus {
        EventBus {
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
            default_status,
        }
    }

    pub(super) fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Relaxed) + 1
    }

    /// Lets the background task end once the queue is empty.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Release);
        self.wakeup.notify_one();
    }

    #[inline]
    pub(super) fn subscribed_kinds(&self) -> EventKinds {
        EventKinds::from_bits(self.subscribed_kinds.load(Relaxed))
    }

    pub(super) fn update_listeners(&self, change: impl FnOnce(&mut Vec<Arc<EventListener>>)) {
        let _guard = lock(&self.update_lock);
        let mut listeners = Vec::clone(&self.listeners.load());
        change(&mut listeners);
        let kinds = listeners.iter().fold(EventKinds::EMPTY, |kinds, listener| kinds.union(listener.kinds));
        self.listeners.store(Arc::new(listeners));
        self.subscribed_kinds.store(kinds.bits(), Relaxed);
    }

    /// Returns the current listeners for `kind`. The iterator holds a snapshot, not a lock.
    pub(super) fn listeners_for(&self, kind: EventKind) -> impl Iterator<Item = Arc<EventListener>> + use<> {
        let listeners = self.listeners.load_full();
        (0..listeners.len()).filter_map(move |index| {
            let listener = listeners.get(index).filter(|listener| listener.kinds.contains(kind));
            listener.map(Arc::clone)
        })
    }

    /// Delivers an event to the listeners here, then to those of the parents. Returns the event as they changed it.
    pub(super) fn dispatch(self: &Arc<EventBus>, mut event: Event) -> Event {
        let kind = event.kind();
        let mut has_background_listeners = false;
        if self.subscribed_kinds().contains(kind) {
            for listener in self.listeners_for(kind) {
                match &listener.callback {
                    ListenerFn::Sync(callback) => self.call_sync(&listener, callback, &mut event),
                    ListenerFn::Background(_) => has_background_listeners = true,
                    ListenerFn::AsyncRequest(_) => {}
                }
            }
        }
        if has_background_listeners {
            self.enqueue(event.clone());
        }
        for parent in self.parents.load_full().iter() {
            event = parent.bus.dispatch(event);
        }
        event
    }

    /// Calls a synchronous listener. If it panics or replaces the event by one of another kind, its changes are undone.
    fn call_sync(
        self: &Arc<EventBus>,
        listener: &EventListener,
        callback: &(dyn Fn(&mut Event) + Send + Sync),
        event: &mut Event,
    ) {
        let before = event.clone();
        let result = catch_unwind(AssertUnwindSafe(|| callback(event)));
        if result.is_ok() && event.kind() == before.kind() {
            return;
        }
        match (&mut *event, before) {
            (Event::Request(event), Event::Request(before)) => event.restore(before),
            (event, before) => *event = before,
        }
        if let Err(panic) = result {
            self.report_panic(listener, event, panic.as_ref());
        }
    }

    pub(super) fn call_sync_request(
        self: &Arc<EventBus>,
        listener: &EventListener,
        event: RequestEvent,
    ) -> RequestEvent {
        let ListenerFn::Sync(callback) = &listener.callback else {
            return event;
        };
        let mut wrapped = Event::Request(event.clone());
        self.call_sync(listener, callback, &mut wrapped);
        match wrapped {
            Event::Request(mut event) => {
                event.set_default_status(self.default_status);
                event
            }
            _ => event,
        }
    }

    /// Awaits one listener, at most for the listener timeout. Returns `None` if it failed or is suspended.
    ///
    /// Cancel safe: yes, the listener's future is dropped with this one.
    pub(super) async fn call_async<T>(
        self: &Arc<EventBus>,
        listener: &EventListener,
        event: &Event,
        start: impl FnOnce() -> Option<BoxFuture<'static, T>>,
    ) -> Option<T> {
        if listener.is_suspended() {
            self.n_dropped.fetch_add(1, Relaxed);
            return None;
        }
        let result = match catch_unwind(AssertUnwindSafe(start)) {
            Ok(None) => return None,
            Ok(Some(mut future)) => {
                let caught =
                    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
                        Ok(poll) => poll.map(Ok),
                        Err(panic) => Poll::Ready(Err(panic)),
                    });
                let timeout = Duration::from_millis(self.timeout_ms.load(Relaxed));
                match tokio::time::timeout(timeout, caught).await {
                    Ok(result) => result,
                    Err(_) => {
                        listener.record_stall();
                        let message = format!("a listener took longer than {timeout:?}");
                        self.report_failure(listener, event, &message);
                        return None;
                    }
                }
            }
            Err(panic) => Err(panic),
        };
        listener.n_stalls.store(0, Relaxed);
        result.map_err(|panic| self.report_panic(listener, event, panic.as_ref())).ok()
    }

    fn report_panic(self: &Arc<EventBus>, listener: &EventListener, event: &Event, panic: &(dyn Any + Send)) {
        let message = format!("a listener panicked: {}", panic_message(panic));
        self.report_failure(listener, event, &message);
    }

    /// Reports a failed listener: to the log at its 1st, 2nd, 4th, 8th … failure, to error listeners each time.
    ///
    /// Failures of error listeners go to the log only; otherwise one failure could cause the next without end.
    #[cold]
    fn report_failure(self: &Arc<EventBus>, listener: &EventListener, event: &Event, message: &str) {
        let failures = listener.n_failures.fetch_add(1, Relaxed) + 1;
        if failures.is_power_of_two() {
            let (listener, event) = (listener.id, event.kind().label());
            tracing::error!(listener, event, failures, "{message}");
        }
        if event.kind() != EventKind::Error {
            let error = ErrorEvent::new(&event.server().into(), ErrorContext::Listener, message);
            let detail = format!("listener {} of {}", listener.id, event.kind().label());
            self.dispatch(error.with_kind("Listener").with_detail(detail).into());
        }
    }

    /// Queues an event for background listeners, dropping the oldest ones if the queue is full.
    pub(super) fn enqueue(self: &Arc<EventBus>, event: Event) {
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

    /// Starts or wakes the background task. Without a tokio runtime, events stay queued until the next call in one.
    pub(super) fn wake(self: &Arc<EventBus>) {
        if self.is_running.swap(true, AcqRel) {
            self.wakeup.notify_one();
            return;
        }
        let worker = BackgroundWorker(Arc::clone(self));
        if tokio::runtime::Handle::try_current().is_ok() {
            // Ends when the last handle is dropped, or with the runtime.
            spawn::spawn_main(worker.run());
        }
    }
}

impl EventListener {
    pub(super) fn new(id: u64, kinds: EventKinds, callback: ListenerFn) -> EventListener {
        EventListener {
            id,
            kinds,
            callback,
            n_failures: AtomicU64::new(0),
            n_stalls: AtomicU32::new(0),
            suspended_until: Mutex::new(None),
        }
    }

    pub(super) fn is_background(&self) -> bool {
        matches!(self.callback, ListenerFn::Background(_))
    }

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

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
