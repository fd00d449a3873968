//! Calls the listeners of one request, which may reject or change it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::ListenerPoll;
use super::bus::{EventBus, EventListener, ListenerFn};
use crate::observe::events::{Event, EventKind, RequestEvent};

/// The listeners that are still to be called for one request.
#[derive(Default)]
pub(super) struct RequestRound {
    listeners: VecDeque<(Arc<EventBus>, Arc<EventListener>)>,
    /// The buses whose background listeners get the event once all others were called.
    buses: Vec<Arc<EventBus>>,
}

impl RequestRound {
    /// Adds the listeners of a bus, to be called after those added before.
    pub(super) fn add_bus(&mut self, bus: &Arc<EventBus>) {
        let listeners = bus.listeners_for(EventKind::Request).filter(|listener| !listener.is_background());
        self.listeners.extend(listeners.map(|listener| (Arc::clone(bus), listener)));
        self.buses.push(Arc::clone(bus));
    }

    /// Calls synchronous listeners at once. From the first `async` one on, the rest runs in the returned future.
    pub(super) fn start(mut self, mut event: RequestEvent) -> ListenerPoll {
        while let Some((bus, listener)) = self.listeners.pop_front() {
            if let ListenerFn::AsyncRequest(_) = listener.callback {
                self.listeners.push_front((bus, listener));
                return ListenerPoll::Pending(Box::pin(self.run(event)));
            }
            event = bus.call_sync_request(&listener, event);
        }
        self.enqueue_background(&event);
        ListenerPoll::Ready(event)
    }

    async fn run(mut self, mut event: RequestEvent) -> RequestEvent {
        while let Some((bus, listener)) = self.listeners.pop_front() {
            event = match &listener.callback {
                ListenerFn::AsyncRequest(callback) => {
                    let wrapped = Event::Request(event.clone());
                    let returned =
                        bus.call_async(&listener, &wrapped, || Some(callback(event.clone()))).await;
                    let mut event = returned.unwrap_or(event);
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
            if bus.listeners_for(EventKind::Request).any(|listener| listener.is_background()) {
                bus.enqueue(Event::Request(event.clone()));
            }
        }
    }
}
