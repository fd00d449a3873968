//! The watch room: what a server counts, whom it tells, and what it writes down.
//!
//! Nothing here decides what a request means, and nothing here may slow one down: numbers are atomics, nobody
//! who listens is waited for without a limit, and what is written is written by a thread of its own.

mod audit;
mod event;
mod listeners;
mod mask;
mod named_counters;
mod prometheus;
mod stats;
mod timing;
mod view;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;

use crate::util::clock::Clock;

pub use audit::AuditLog;
pub use event::{
    ErrorContext, ErrorEvent, Event, RequestEvent, RequestInfo, ResponseEvent, ServerChange, ServerEvent,
    ToolEvent, Transport,
};
pub(crate) use event::{EventKind, ListenerRejection, RequestInfoParts};
pub(crate) use listeners::{EventKinds, ListenerPoll};
pub use listeners::{Events, Subscription};
pub use mask::mask;
pub(crate) use prometheus::{ServerMetrics, encode as prometheus};
pub(crate) use stats::{ActiveRequest, EndStatus, RequestEnd, SecurityRejection, Stats, Subject};
pub use view::{
    ErrorCode, ErrorStats, LastError, PromptStats, RequestStats, ResourceStats, SecurityStats, SessionInfo,
    StatsDetail, StatsSummary, ToolCalls, ToolStats,
};

/// Everything that watches one server: what it counts, and whom it tells.
///
/// How a request goes by here. With statistics on and nobody listening this is a look at a flag, a look at a
/// number, and the counting:
///
/// ```text
/// let mut sight = watch.begin();                       // before anything is done for the request
/// if sight.is_heard() {                                // somebody listens
///     let event = match watch.ask(&sight, &incoming) {
///         Asked::Now(event) => event,
///         Asked::Later(event) => event.await,
///     };
///     match sight.settle(event) {
///         Ruling { rejection: Some(no), .. } => ..     // end it with no.code, no.message, no.status
///         Ruling { is_changed: true, info, .. } => ..  // info.method and info.params are another request
///         _ => ..
///     }
///     watch.starts(&sight);                            // a tool is about to run
/// }
/// let body = watch.end(sight, &finished, status, body); // before the answer is sent
/// ```
#[derive(Clone, Debug)]
pub(crate) struct Observer {
    pub(crate) server: Arc<str>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) events: Events,
}

/// One request, as far as it is watched. Dropped before its end, nobody waited for it.
#[derive(Debug)]
pub(crate) struct ObservedRequest {
    active: Option<ActiveRequest>,
    kinds: EventKinds,
    info: Option<Arc<RequestInfo>>,
}

/// What listeners decided.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) info: Arc<RequestInfo>,
    /// The method or the parameters are no longer those that came.
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

    /// Asks those who listen to requests. Also to be called for those who listen to anything else, since what
    /// comes of it is what they are told.
    #[cold]
    pub(crate) fn notify_request(
        &self,
        sight: &ObservedRequest,
        incoming: &RequestInfoParts<'_>,
    ) -> ListenerPoll {
        let event = RequestEvent::new(RequestInfo::new(&self.server, &self.stats, incoming));
        if sight.kinds.contains(EventKind::Request) {
            self.events.notify_request(event)
        } else {
            ListenerPoll::Ready(event)
        }
    }

    /// A tool is about to run.
    pub(crate) fn notify_tool_start(&self, sight: &ObservedRequest) {
        if sight.kinds.contains(EventKind::ToolStart)
            && let Some(info) = &sight.info
        {
            self.events.publish(ToolEvent::start(Arc::clone(info)));
        }
    }

    /// The answer is about to be sent: counts it first, then tells everyone. Returns the answer as it is to be
    /// sent.
    #[inline]
    pub(crate) fn end(
        &self,
        sight: ObservedRequest,
        finished: &RequestEnd<'_>,
        status: u16,
        body: Bytes,
    ) -> Bytes {
        let nanos = sight.active.map(|began| self.stats.end(began, finished));
        match sight.info {
            None => body,
            Some(info) => self.notify_end(sight.kinds, info, nanos, finished, status, body),
        }
    }

    #[cold]
    fn notify_end(
        &self,
        wanted: EventKinds,
        info: Arc<RequestInfo>,
        nanos: Option<u64>,
        finished: &RequestEnd<'_>,
        status: u16,
        body: Bytes,
    ) -> Bytes {
        let nanos = nanos.unwrap_or_else(|| info.elapsed_nanos());
        let wrong = match finished.status {
            EndStatus::Ok => None,
            EndStatus::ToolError { message } => Some((ErrorCode::ToolError, "ToolError", message)),
            EndStatus::ProtocolError { code, message } => {
                Some((ErrorCode::Number(code), error_kind_name(code), message))
            }
        };
        let error = wrong.map(|(code, ..)| code);
        let answer = ResponseEvent::new(Arc::clone(&info), body, status, error, nanos);
        if let (Some(Subject::Tool(_)), EndStatus::Ok | EndStatus::ToolError { .. }) =
            (finished.subject, finished.status)
            && wanted.contains(EventKind::ToolEnd)
        {
            self.events.publish(ToolEvent::end(&answer));
        }
        if let Some((code, kind, message)) = wrong
            && wanted.contains(EventKind::Error)
        {
            let error = ErrorEvent::new(&self.server, ErrorContext::HandleRequest, message);
            self.events.publish(error.with_kind(kind).with_code(code).with_request(info, nanos));
        }
        if wanted.contains(EventKind::Response) { self.events.notify_response(answer) } else { answer }
            .into_bytes()
    }

    /// Somebody was not let in, and no request of theirs was read.
    pub(crate) fn record_rejection(
        &self,
        refusal: SecurityRejection,
        transport: Transport,
        remote: Option<SocketAddr>,
        message: &str,
    ) {
        self.stats.record_rejection(refusal);
        if self.events.subscribed_kinds().contains(EventKind::Error) {
            let context = match refusal {
                SecurityRejection::BodySize => ErrorContext::Transport,
                _ => ErrorContext::Auth,
            };
            let error = ErrorEvent::new(&self.server, context, message);
            self.events.publish(error.with_kind(refusal.name()).with_origin(transport, remote));
        }
    }
}

impl ObservedRequest {
    /// Whether anybody listens to anything.
    #[inline]
    pub(crate) fn has_listeners(&self) -> bool {
        !self.kinds.is_empty()
    }

    /// Takes what listeners made of the request as the request.
    pub(crate) fn decide(&mut self, event: RequestEvent) -> Decision {
        let (info, is_changed, rejection) = event.into_parts();
        self.info = Some(Arc::clone(&info));
        Decision { info, is_changed, rejection }
    }
}

/// The kind of an error, in one word.
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
