//! Events that listeners receive: server changes, requests, responses, errors and tool calls.
//!
//! An event is a handful of reference-counted pointers, so cloning it, storing it or sending it to another task is
//! cheap. JSON is parsed on first access. `Debug` and [`Event::data`] never show secrets carried in headers.

mod error;
mod kind;
mod request;
mod request_info;
mod response;
mod server;
mod tool;

use serde_json::Value;

pub use error::{ErrorContext, ErrorEvent};
pub(crate) use kind::{EventKind, EventKinds};
pub(crate) use request::ListenerRejection;
pub use request::RequestEvent;
pub(crate) use request_info::RequestInfoParts;
pub use request_info::{RequestInfo, Transport};
pub(crate) use response::CallEnd;
pub use response::ResponseEvent;
pub use server::{ServerChange, ServerEvent};
pub use tool::ToolEvent;

/// An event of any kind, as passed to listeners of [`Events::on_any`](super::Events::on_any).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A server was created, removed, paused or resumed.
    Server(ServerEvent),
    /// A request was received and is about to be handled.
    Request(RequestEvent),
    /// A response is about to be sent.
    Response(ResponseEvent),
    /// An error occurred.
    Error(ErrorEvent),
    /// A tool is about to run or has finished.
    Tool(ToolEvent),
}

impl Event {
    /// Returns the name by which [`Events::on`](super::Events::on) selects this kind of event.
    #[cfg(feature = "compat")]
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.kind().name()
    }

    /// Returns the name of the server that the event belongs to.
    #[must_use]
    pub fn server(&self) -> &str {
        match self {
            Event::Server(event) => event.name(),
            Event::Request(event) => event.server(),
            Event::Response(event) => event.server(),
            Event::Error(event) => event.server(),
            Event::Tool(event) => event.server(),
        }
    }

    /// Returns the whole event as JSON, for logging or forwarding.
    ///
    /// Headers that carry secrets are masked; parameters are not (see [`mask_secrets`](crate::events::mask_secrets)).
    #[must_use]
    pub fn data(&self) -> Value {
        match self {
            Event::Server(event) => event.data(),
            Event::Request(event) => event.data(),
            Event::Response(event) => event.data(),
            Event::Error(event) => event.data(),
            Event::Tool(event) => event.data(),
        }
    }

    /// Returns how many bytes of the request and the response the event keeps alive. Never changes.
    pub(crate) fn retained_bytes(&self) -> usize {
        match self {
            Event::Server(_) => 0,
            Event::Request(event) => event.params_bytes,
            Event::Response(event) => event.retained_bytes(),
            Event::Error(event) => event.request().map_or(0, |request| request.params_bytes),
            Event::Tool(event) => event.retained_bytes(),
        }
    }

    pub(crate) fn kind(&self) -> EventKind {
        match self {
            Event::Server(event) => match event.change() {
                ServerChange::Created => EventKind::ServerCreated,
                ServerChange::Removed => EventKind::ServerRemoved,
                ServerChange::Paused => EventKind::ServerPaused,
                ServerChange::Resumed => EventKind::ServerResumed,
            },
            Event::Request(_) => EventKind::Request,
            Event::Response(_) => EventKind::Response,
            Event::Error(_) => EventKind::Error,
            Event::Tool(event) if event.is_end() => EventKind::ToolEnd,
            Event::Tool(_) => EventKind::ToolStart,
        }
    }
}

impl From<ServerEvent> for Event {
    fn from(event: ServerEvent) -> Event {
        Event::Server(event)
    }
}

impl From<RequestEvent> for Event {
    fn from(event: RequestEvent) -> Event {
        Event::Request(event)
    }
}

impl From<ResponseEvent> for Event {
    fn from(event: ResponseEvent) -> Event {
        Event::Response(event)
    }
}

impl From<ErrorEvent> for Event {
    fn from(event: ErrorEvent) -> Event {
        Event::Error(event)
    }
}

impl From<ToolEvent> for Event {
    fn from(event: ToolEvent) -> Event {
        Event::Tool(event)
    }
}
