//! The subscription methods of [`Events`].

use std::sync::Arc;

use super::bus::{EventListener, ListenerFn};
use super::{Events, Subscription};
#[cfg(feature = "compat")]
use crate::error::{Error, ErrorKind};
use crate::observe::events::{
    ErrorEvent, Event, EventKind, RequestEvent, ResponseEvent, ServerEvent, ToolEvent,
};
use crate::request::BoxFuture;

const SERVER_KINDS: [EventKind; 4] =
    [EventKind::ServerCreated, EventKind::ServerRemoved, EventKind::ServerPaused, EventKind::ServerResumed];
const TOOL_KINDS: [EventKind; 2] = [EventKind::ToolStart, EventKind::ToolEnd];

impl Events {
    /// Calls `listener` with each request before it is handled. The listener may reject or change it.
    pub fn on_request(&self, listener: impl Fn(&mut RequestEvent) + Send + Sync + 'static) -> Subscription {
        self.add_sync(&[EventKind::Request], move |event| {
            if let Event::Request(event) = event {
                listener(event);
            }
        })
    }

    /// Like [`Events::on_request`], with an `async` listener that takes the request and returns it.
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
        let callback = move |event| -> BoxFuture<'static, RequestEvent> { Box::pin(listener(event)) };
        self.add(&[EventKind::Request], ListenerFn::AsyncRequest(Box::new(callback)))
    }

    /// Calls `listener` with each response before it is sent. The listener may replace it.
    ///
    /// Also called for requests that were cancelled, which have no response: see
    /// [`ResponseEvent::outcome`]. Then the listener runs while the call is dropped, and must not block.
    pub fn on_response(&self, listener: impl Fn(&mut ResponseEvent) + Send + Sync + 'static) -> Subscription {
        self.add_sync(&[EventKind::Response], move |event| {
            if let Event::Response(event) = event {
                listener(event);
            }
        })
    }

    /// Calls `listener` with each response, in the background.
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

    /// Calls `listener` with each error.
    pub fn on_error(&self, listener: impl Fn(&ErrorEvent) + Send + Sync + 'static) -> Subscription {
        self.add_sync(&[EventKind::Error], move |event| {
            if let Event::Error(event) = event {
                listener(event);
            }
        })
    }

    /// Calls `listener` with each error, in the background.
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

    /// Calls `listener` when a server is created, removed, paused or resumed.
    pub fn on_server(&self, listener: impl Fn(&ServerEvent) + Send + Sync + 'static) -> Subscription {
        self.add_sync(&SERVER_KINDS, move |event| {
            if let Event::Server(event) = event {
                listener(event);
            }
        })
    }

    /// Like [`Events::on_server`], in the background.
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

    /// Calls `listener` before and after each tool call. Every call that starts ends, also if it is cancelled.
    pub fn on_tool(&self, listener: impl Fn(&ToolEvent) + Send + Sync + 'static) -> Subscription {
        self.add_sync(&TOOL_KINDS, move |event| {
            if let Event::Tool(event) = event {
                listener(event);
            }
        })
    }

    /// Like [`Events::on_tool`], in the background.
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

    /// Calls `listener` with every event, of any kind. It can change and reject requests like one of
    /// [`Events::on_request`], and replace responses.
    ///
    /// ```
    /// # use toolgate::events::{Event, Events};
    /// Events::new().on_any(|event| match event {
    ///     Event::Response(response) => println!("{} {}", response.status(), response.request().method()),
    ///     other => println!("{}", other.data()),
    /// });
    /// ```
    pub fn on_any(&self, listener: impl Fn(&mut Event) + Send + Sync + 'static) -> Subscription {
        self.add_sync(&EventKind::ALL, listener)
    }

    /// Like [`Events::on_any`], with an `async` listener. All its events are delivered in the background, requests too.
    pub fn on_any_async<F, Fut>(&self, listener: F) -> Subscription
    where
        F: Fn(Event) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.add_background(&EventKind::ALL, move |event| Some(listener(event)))
    }

    /// Calls `listener` with every event whose name is in the comma-separated list `names`, which are those of BoxLang.
    ///
    /// The names are `onMCPServerCreate`, `onMCPServerRemove`, `onMCPServerPause`, `onMCPServerResume`,
    /// `onMCPRequest`, `onMCPResponse`, `onMCPError`, `beforeAIToolExecute` and `afterAIToolExecute`. Case is ignored.
    ///
    /// # Errors
    /// If a name is unknown, or the list is empty.
    #[cfg(feature = "compat")]
    pub fn on(
        &self,
        names: &str,
        listener: impl Fn(&mut Event) + Send + Sync + 'static,
    ) -> Result<Subscription, Error> {
        Ok(self.add_sync(&parse_kinds(names)?, listener))
    }

    /// Like [`Events::on`], with an `async` listener. All its events are delivered in the background, requests too.
    ///
    /// # Errors
    /// If a name is unknown, or the list is empty.
    #[cfg(feature = "compat")]
    pub fn on_async<F, Fut>(&self, names: &str, listener: F) -> Result<Subscription, Error>
    where
        F: Fn(Event) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Ok(self.add_background(&parse_kinds(names)?, move |event| Some(listener(event))))
    }

    /// Calls `listener` with the events that the audit log is made of.
    pub(crate) fn on_audited(&self, listener: impl Fn(&mut Event) + Send + Sync + 'static) -> Subscription {
        let [start, end] = TOOL_KINDS;
        self.add_sync(&[start, end, EventKind::Response, EventKind::Error], listener)
    }

    fn add_sync(
        &self,
        kinds: &[EventKind],
        callback: impl Fn(&mut Event) + Send + Sync + 'static,
    ) -> Subscription {
        self.add(kinds, ListenerFn::Sync(Box::new(callback)))
    }

    fn add_background<F, Fut>(&self, kinds: &[EventKind], callback: F) -> Subscription
    where
        F: Fn(Event) -> Option<Fut> + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let callback = move |event| Some(Box::pin(callback(event)?) as BoxFuture<'static, ()>);
        self.add(kinds, ListenerFn::Background(Box::new(callback)))
    }

    fn add(&self, kinds: &[EventKind], callback: ListenerFn) -> Subscription {
        let id = self.bus.next_id();
        let listener = EventListener::new(id, kinds.iter().copied().collect(), callback);
        self.bus.update_listeners(|listeners| listeners.push(Arc::new(listener)));
        Subscription { bus: Arc::downgrade(&self.bus), id }
    }
}

/// Parses a comma-separated list of event names.
#[cfg(feature = "compat")]
fn parse_kinds(names: &str) -> Result<Vec<EventKind>, Error> {
    let known = || EventKind::ALL.map(EventKind::name).join(", ");
    let mut kinds = Vec::new();
    for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let kind = EventKind::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name));
        kinds.push(kind.ok_or_else(|| {
            let message = format!("unknown event: {name}; known are {}", known());
            Error::new(ErrorKind::InvalidConfig, message)
        })?);
    }
    if kinds.is_empty() {
        let message = format!("no event is named; known are {}", known());
        return Err(Error::new(ErrorKind::InvalidConfig, message));
    }
    Ok(kinds)
}
