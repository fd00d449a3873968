//! Telemetry of a server: statistics, events for listeners, and the audit log.
//!
//! Nothing here decides how a request is handled, and nothing may slow one down: counters are atomics, listeners are
//! awaited with a timeout only, and the audit log is written by its own thread.

mod audit;
mod events;
mod listeners;
mod outcome;
mod prometheus;
mod redact;
mod stats;
mod task_run;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;

use crate::util::clock::Clock;

pub use audit::AuditLog;
pub(crate) use events::{CallEnd, EventKind, EventKinds, ListenerRejection, RequestInfoParts};
pub use events::{
    ErrorContext, ErrorEvent, Event, RequestEvent, RequestInfo, ResponseEvent, ServerChange, ServerEvent,
    ToolEvent, Transport,
};
pub(crate) use listeners::ListenerPoll;
pub use listeners::{Events, Subscription};
pub use outcome::CallOutcome;
pub(crate) use prometheus::{ServerMetrics, encode as prometheus};
pub use redact::mask_secrets;
pub(crate) use redact::mask_uri;
pub(crate) use stats::{ActiveRequest, EndStatus, RequestEnd, SecurityRejection, Stats, Subject};
pub use stats::{
    ErrorCode, ErrorStats, LastError, OutcomeCounts, PromptStats, RequestStats, ResourceStats, SecurityStats,
    SessionInfo, StatsDetail, StatsSummary, ToolCalls, ToolStats,
};
pub(crate) use task_run::TaskRunInfo;

/// The status of a cancelled call in events and in the audit log. No response with it is sent.
const CANCELLED_STATUS: u16 = 499;

/// The method under which a dropped request is counted whose method was not decoded.
const UNKNOWN_METHOD: &str = "(unknown)";

/// Observes the requests of one server: records statistics and notifies listeners.
///
/// The path of a request. With statistics enabled and no listeners it costs two atomic loads and the counting:
///
/// ```text
/// let mut observed = observer.begin();                    // before anything else is done for the request
/// if observed.has_listeners() {
///     let event = match observer.notify_request(&mut observed, &parts) {
///         ListenerPoll::Ready(event) => event,
///         ListenerPoll::Pending(event) => event.await,
///     };
///     match observed.decide(event) {
///         Decision { rejection: Some(rejection), .. } => ..  // respond with its code, message and status
///         Decision { is_changed: true, info, .. } => ..      // handle info.method and info.params instead
///         _ => ..
///     }
///     observed.notify_tool_start(is_destructive);         // before a tool runs
/// }
/// let body = observer.end(observed, &end, status, body);  // before the response is sent
/// ```
///
/// An [`ObservedRequest`] that is dropped anywhere on this path ends as cancelled.
#[derive(Clone, Debug)]
pub(crate) struct Observer {
    pub(crate) server: Arc<str>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) events: Events,
}

/// One request, from its receipt to its end. Ends as cancelled if it is dropped before [`Observer::end`], so that every
/// request that began has exactly one end.
#[derive(Debug)]
pub(crate) struct ObservedRequest {
    /// Taken at the end. `None` if statistics are disabled.
    active: Option<ActiveRequest>,
    kinds: EventKinds,
    /// Taken at the end. `None` until the request was offered to its listeners, and if there are none.
    published: Option<Box<PublishedRequest>>,
}

/// A request that listeners know.
#[derive(Debug)]
struct PublishedRequest {
    observer: Observer,
    info: Arc<RequestInfo>,
    /// Whether the tool that was started is marked as destructive.
    is_destructive: bool,
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
        ObservedRequest { active: self.stats.begin(), kinds: self.events.subscribed_kinds(), published: None }
    }

    /// Offers a request to the request listeners.
    ///
    /// Must also be called if there are only listeners for other events: their events refer to the resulting request.
    #[cold]
    pub(crate) fn notify_request(
        &self,
        observed: &mut ObservedRequest,
        parts: &RequestInfoParts<'_>,
    ) -> ListenerPoll {
        let info = Arc::new(RequestInfo::new(&self.server, &self.stats, parts));
        let event = RequestEvent::new(Arc::clone(&info));
        observed.published =
            Some(Box::new(PublishedRequest { observer: self.clone(), info, is_destructive: false }));
        if observed.kinds.contains(EventKind::Request) {
            self.events.notify_request(event)
        } else {
            ListenerPoll::Ready(event)
        }
    }

    /// Records the end of a request, then notifies listeners. Returns the response body to send.
    #[inline]
    pub(crate) fn end(
        &self,
        mut observed: ObservedRequest,
        end: &RequestEnd<'_>,
        status: u16,
        body: Bytes,
    ) -> Bytes {
        let nanos = observed.active.take().map(|active| self.stats.end(active, end));
        match observed.published.take() {
            None => body,
            Some(published) => (*published).notify_end(observed.kinds, end, nanos, status, body),
        }
    }

    /// Publishes the error event of a call that failed.
    fn publish_error(&self, response: &ResponseEvent, status: EndStatus<'_>) {
        let Some((code, message)) = status.error() else { return };
        let kind = match (status, code) {
            (EndStatus::TimedOut { .. }, _) => "Timeout",
            (EndStatus::Panicked { .. }, _) => "Panic",
            (_, ErrorCode::ToolError) => "ToolError",
            (_, ErrorCode::Number(code)) => error_kind_name(code),
        };
        let error = ErrorEvent::new(&self.server, ErrorContext::HandleRequest, message);
        self.events.publish(error.with_kind(kind).with_response(response));
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
        if let Some(published) = &mut self.published {
            published.info = Arc::clone(&info);
        }
        Decision { info, is_changed, rejection }
    }

    /// Publishes the event of a tool that is about to run. Its end is published when the request ends with this tool as
    /// its subject.
    pub(crate) fn notify_tool_start(&mut self, is_destructive: bool) {
        if let Some(published) = &mut self.published {
            published.is_destructive = is_destructive;
            if self.kinds.contains(EventKind::ToolStart) {
                let event = ToolEvent::start(Arc::clone(&published.info), is_destructive);
                published.observer.events.publish(event);
            }
        }
    }

    /// Ends the request as cancelled: its client does not wait for a response any more.
    #[cold]
    pub(crate) fn cancel(mut self, method: &str, subject: Option<Subject<'_>>) {
        self.end_cancelled(method, subject);
    }

    #[cold]
    fn end_cancelled(&mut self, method: &str, subject: Option<Subject<'_>>) {
        let end = RequestEnd { method, subject, status: EndStatus::Cancelled };
        let active = self.active.take();
        let nanos = active.and_then(|active| Some(active.stats()?.end(active, &end)));
        if let Some(published) = self.published.take() {
            (*published).notify_end(self.kinds, &end, nanos, CANCELLED_STATUS, Bytes::new());
        }
    }
}

impl Drop for ObservedRequest {
    #[inline]
    fn drop(&mut self) {
        if self.active.is_some() || self.published.is_some() {
            let info = self.published.as_ref().map(|published| Arc::clone(&published.info));
            self.end_cancelled(info.as_ref().map_or(UNKNOWN_METHOD, |info| info.method()), None);
        }
    }
}

impl PublishedRequest {
    /// Publishes the events of the end of a request. Returns the response body as listeners left it.
    #[cold]
    fn notify_end(
        self,
        kinds: EventKinds,
        end: &RequestEnd<'_>,
        nanos: Option<u64>,
        status: u16,
        body: Bytes,
    ) -> Bytes {
        let PublishedRequest { observer, info, is_destructive } = self;
        let nanos = nanos.unwrap_or_else(|| info.elapsed_nanos());
        let end_of_call = CallEnd { outcome: end.status.outcome(), error: end.status.error_code(), nanos };
        let response = ResponseEvent::new(info, body, status, end_of_call);
        if matches!(end.subject, Some(Subject::Tool(_))) && kinds.contains(EventKind::ToolEnd) {
            observer.events.publish(ToolEvent::end(&response, is_destructive));
        }
        if kinds.contains(EventKind::Error) {
            observer.publish_error(&response, end.status);
        }
        let response = if kinds.contains(EventKind::Response) {
            observer.events.notify_response(response)
        } else {
            response
        };
        response.into_bytes()
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
