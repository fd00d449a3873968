//! Telemetry of a server: statistics, events for listeners, and the audit log.
//!
//! Nothing here decides how a request is handled, and nothing may slow one down: counters are atomics, listeners are
//! awaited with a timeout only, and the audit log is written by its own thread.

mod audit;
mod events;
mod listeners;
mod prometheus;
mod redact;
mod stats;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;

use crate::util::clock::Clock;

pub use audit::AuditLog;
pub use events::{
    ErrorContext, ErrorEvent, Event, RequestEvent, RequestInfo, ResponseEvent, ServerChange, ServerEvent,
    ToolEvent, Transport,
};
pub(crate) use events::{EventKind, EventKinds, ListenerRejection, RequestInfoParts};
pub(crate) use listeners::ListenerPoll;
pub use listeners::{Events, Subscription};
pub(crate) use prometheus::{ServerMetrics, encode as prometheus};
pub use redact::mask_secrets;
pub(crate) use stats::{ActiveRequest, EndStatus, RequestEnd, SecurityRejection, Stats, Subject};
pub use stats::{
    ErrorCode, ErrorStats, LastError, PromptStats, RequestStats, ResourceStats, SecurityStats, SessionInfo,
    StatsDetail, StatsSummary, ToolCalls, ToolStats,
};

/// Observes the requests of one server: records statistics and notifies listeners.
///
/// The path of a request. With statistics enabled and no listeners it costs two atomic loads and the counting:
///
/// ```text
/// let mut observed = observer.begin();                    // before anything else is done for the request
/// if observed.has_listeners() {
///     let event = match observer.notify_request(&observed, &parts) {
///         ListenerPoll::Ready(event) => event,
///         ListenerPoll::Pending(event) => event.await,
///     };
///     match observed.decide(event) {
///         Decision { rejection: Some(rejection), .. } => ..  // respond with its code, message and status
///         Decision { is_changed: true, info, .. } => ..      // handle info.method and info.params instead
///         _ => ..
///     }
///     observer.notify_tool_start(&observed);              // before a tool runs
/// }
/// let body = observer.end(observed, &end, status, body);  // before the response is sent
/// ```
#[derive(Clone, Debug)]
pub(crate) struct Observer {
    pub(crate) server: Arc<str>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) events: Events,
}

/// One request, from its receipt to its response. Dropping it before [`Observer::end`] means that it was abandoned.
#[derive(Debug)]
pub(crate) struct ObservedRequest {
    active: Option<ActiveRequest>,
    kinds: EventKinds,
    info: Option<Arc<RequestInfo>>,
}

/// The decision of the listeners about a request.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) info: Arc<RequestInfo>,
    /// Whether listeners changed the method or the parameters.
    pub(crate) is_changed: bool,
    pub(crate) rejection: Option<ListenerRejection>,
}

impl Observer {
    pub(crate) fn new(server: Arc<str>, clock: Clock, events: Events) -> Observer {
        Observer { server, stats: Stats::new(clock), events }
    }

    #[inline]
    pub(crate) fn begin(&self) -> ObservedRequest {
        ObservedRequest { active: self.stats.begin(), kinds: self.events.subscribed_kinds(), info: None }
    }

    /// Offers a request to the request listeners.
    ///
    /// Must also be called if there are only listeners for other events: their events refer to the resulting request.
    #[cold]
    pub(crate) fn notify_request(
        &self,
        observed: &ObservedRequest,
        parts: &RequestInfoParts<'_>,
    ) -> ListenerPoll {
        let event = RequestEvent::new(RequestInfo::new(&self.server, &self.stats, parts));
        if observed.kinds.contains(EventKind::Request) {
            self.events.notify_request(event)
        } else {
            ListenerPoll::Ready(event)
        }
    }

    /// Publishes the event of a tool that is about to run.
    pub(crate) fn notify_tool_start(&self, observed: &ObservedRequest) {
        if observed.kinds.contains(EventKind::ToolStart)
            && let Some(info) = &observed.info
        {
            self.events.publish(ToolEvent::start(Arc::clone(info)));
        }
    }

    /// Records the end of a request, then notifies listeners. Returns the response body to send.
    #[inline]
    pub(crate) fn end(
        &self,
        observed: ObservedRequest,
        end: &RequestEnd<'_>,
        status: u16,
        body: Bytes,
    ) -> Bytes {
        let nanos = observed.active.map(|active| self.stats.end(active, end));
        match observed.info {
            None => body,
            Some(info) => {
                let nanos = nanos.unwrap_or_else(|| info.elapsed_nanos());
                let error = end.status.error_code();
                let response = ResponseEvent::new(info, body, status, error, nanos);
                self.notify_end(observed.kinds, response, end)
            }
        }
    }

    #[cold]
    fn notify_end(&self, kinds: EventKinds, response: ResponseEvent, end: &RequestEnd<'_>) -> Bytes {
        if let (Some(Subject::Tool(_)), EndStatus::Ok | EndStatus::ToolError { .. }) =
            (end.subject, end.status)
            && kinds.contains(EventKind::ToolEnd)
        {
            self.events.publish(ToolEvent::end(&response));
        }
        if kinds.contains(EventKind::Error) {
            let error = match end.status {
                EndStatus::Ok => None,
                EndStatus::ToolError { message } => Some(("ToolError", message)),
                EndStatus::ProtocolError { code, message } => Some((error_kind_name(code), message)),
            };
            if let Some((kind, message)) = error {
                let error = ErrorEvent::new(&self.server, ErrorContext::HandleRequest, message);
                self.events.publish(error.with_kind(kind).with_response(&response));
            }
        }
        let response = if kinds.contains(EventKind::Response) {
            self.events.notify_response(response)
        } else {
            response
        };
        response.into_bytes()
    }

    /// Records a client that was rejected before its request was read.
    pub(crate) fn record_rejection(
        &self,
        rejection: SecurityRejection,
        transport: Transport,
        remote: Option<SocketAddr>,
        message: &str,
    ) {
        self.stats.record_rejection(rejection);
        if self.events.subscribed_kinds().contains(EventKind::Error) {
            let context = match rejection {
                SecurityRejection::BodySize => ErrorContext::Transport,
                _ => ErrorContext::Auth,
            };
            let error = ErrorEvent::new(&self.server, context, message);
            self.events.publish(error.with_kind(rejection.name()).with_origin(transport, remote));
        }
    }
}

impl ObservedRequest {
    /// Returns whether any kind of event has a listener.
    #[inline]
    pub(crate) fn has_listeners(&self) -> bool {
        !self.kinds.is_empty()
    }

    /// Takes the request as the listeners left it.
    pub(crate) fn decide(&mut self, event: RequestEvent) -> Decision {
        let (info, is_changed, rejection) = event.into_parts();
        self.info = Some(Arc::clone(&info));
        Decision { info, is_changed, rejection }
    }
}

/// Returns the name of a JSON-RPC error code for error events.
fn error_kind_name(code: i64) -> &'static str {
    match code {
        -32700 => "ParseError",
        -32600 => "InvalidRequest",
        -32601 => "MethodNotFound",
        -32602 => "InvalidParams",
        -32603 => "InternalError",
        -32002 => "ResourceNotFound",
        -32000 => "Rejected",
        _ => "ServerError",
    }
}

#[cfg(test)]
mod tests;
