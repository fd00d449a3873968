//! Delivery of events to background listeners: a bounded queue and the task that drains it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::task::Poll;

use super::bus::{EventBus, ListenerFn};
use crate::observe::events::Event;
use crate::request::BoxFuture;
use crate::util::lock;

/// Limit of queued events. If there are more, the oldest is dropped and counted.
pub(super) const MAX_QUEUED_EVENTS: usize = 1024;

/// Limit of the request and response bytes that queued events keep alive.
const MAX_QUEUED_BYTES: usize = 16 << 20;

/// Queued events and the bytes they keep alive.
#[derive(Default)]
pub(super) struct EventQueue {
    events: VecDeque<Event>,
    bytes: usize,
}

impl EventQueue {
    pub(super) fn push_back(&mut self, event: Event) {
        self.bytes += event.retained_bytes();
        self.events.push_back(event);
    }

    pub(super) fn pop_front(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        self.bytes -= event.retained_bytes();
        Some(event)
    }

    /// A single event always fits, whatever its size.
    pub(super) fn is_full(&self) -> bool {
        self.events.len() > MAX_QUEUED_EVENTS || (self.bytes > MAX_QUEUED_BYTES && self.events.len() > 1)
    }
}

/// The background task. Dropping it, at its end or with the runtime, allows another one to start.
pub(super) struct BackgroundWorker(pub(super) Arc<EventBus>);

impl BackgroundWorker {
    pub(super) async fn run(self) {
        let bus = &self.0;
        loop {
            let next = lock(&bus.queue).pop_front();
            match next {
                Some(event) => {
                    let _guard = DeliveryGuard(bus);
                    call_listeners(bus, event).await;
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

/// Counts an event as delivered when dropped.
struct DeliveryGuard<'a>(&'a EventBus);

impl Drop for DeliveryGuard<'_> {
    fn drop(&mut self) {
        if self.0.n_pending.fetch_sub(1, AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

/// Calls all background listeners of an event concurrently, so that a slow one delays only the next event.
async fn call_listeners(bus: &Arc<EventBus>, event: Event) {
    let listeners = bus.listeners_for(event.kind()).filter(|listener| listener.is_background());
    let mut calls: Vec<BoxFuture<'_, ()>> = listeners
        .map(|listener| -> BoxFuture<'_, ()> {
            let event = event.clone();
            Box::pin(async move {
                if let ListenerFn::Background(callback) = &listener.callback {
                    bus.call_async(&listener, &event, || callback(event.clone())).await;
                }
            })
        })
        .collect();
    poll_fn(|cx| {
        calls.retain_mut(|call| call.as_mut().poll(cx).is_pending());
        if calls.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
