//! The watch room: what a server counts, whom it tells, and what it writes down.
//!
//! Nothing here decides what a request means, and nothing here may slow one down: numbers are atomics, nobody
//! who listens is waited for without a limit, and what is written is written by a thread of its own.

mod audit;
mod bus;
mod event;
mod mask;
mod names;
mod prometheus;
mod stats;
mod timing;
mod view;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;

use crate::clock::Clock;

pub use audit::AuditLog;
pub(crate) use bus::{Asked, Wanted};
pub use bus::{Events, Subscription};
pub use event::{
    ErrorContext, ErrorEvent, Event, RequestEvent, RequestInfo, ResponseEvent, ServerChange, ServerEvent,
    ToolEvent, Transport,
};
pub(crate) use event::{Incoming, Rejection, Topic};
pub use mask::mask;
pub(crate) use prometheus::{Measured, text as prometheus};
pub(crate) use stats::{Began, Finished, Refusal, Stats, Subject, Verdict};
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
pub(crate) struct Watch {
    pub(crate) server: Arc<str>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) events: Events,
}

/// One request, as far as it is watched. Dropped before its end, nobody waited for it.
#[derive(Debug)]
pub(crate) struct Sight {
    began: Option<Began>,
    wanted: Wanted,
    info: Option<Arc<RequestInfo>>,
}

/// What listeners decided.
#[derive(Debug)]
pub(crate) struct Ruling {
    pub(crate) info: Arc<RequestInfo>,
    /// The method or the parameters are no longer those that came.
    pub(crate) is_changed: bool,
    pub(crate) rejection: Option<Rejection>,
}

impl Watch {
    pub(crate) fn new(server: Arc<str>, clock: Clock, events: Events) -> Watch {
        Watch { server, stats: Stats::new(clock), events }
    }

    #[inline]
    pub(crate) fn begin(&self) -> Sight {
        Sight { began: self.stats.begin(), wanted: self.events.wanted(), info: None }
    }

    /// Asks those who listen to requests. Also to be called for those who listen to anything else, since what
    /// comes of it is what they are told.
    #[cold]
    pub(crate) fn ask(&self, sight: &Sight, incoming: &Incoming<'_>) -> Asked {
        let event = RequestEvent::new(RequestInfo::new(&self.server, &self.stats, incoming));
        if sight.wanted.has(Topic::Request) { self.events.ask(event) } else { Asked::Now(event) }
    }

    /// A tool is about to run.
    pub(crate) fn starts(&self, sight: &Sight) {
        if sight.wanted.has(Topic::ToolStart)
            && let Some(info) = &sight.info
        {
            self.events.tell(ToolEvent::start(Arc::clone(info)));
        }
    }

    /// The answer is about to be sent: counts it first, then tells everyone. Returns the answer as it is to be
    /// sent.
    #[inline]
    pub(crate) fn end(&self, sight: Sight, finished: &Finished<'_>, status: u16, body: Bytes) -> Bytes {
        let nanos = sight.began.map(|began| self.stats.end(began, finished));
        match sight.info {
            None => body,
            Some(info) => self.tell_end(sight.wanted, info, nanos, finished, status, body),
        }
    }

    #[cold]
    fn tell_end(
        &self,
        wanted: Wanted,
        info: Arc<RequestInfo>,
        nanos: Option<u64>,
        finished: &Finished<'_>,
        status: u16,
        body: Bytes,
    ) -> Bytes {
        let nanos = nanos.unwrap_or_else(|| info.age());
        let wrong = match finished.verdict {
            Verdict::Ok => None,
            Verdict::ToolError { message } => Some((ErrorCode::ToolError, "ToolError", message)),
            Verdict::Fault { code, message } => Some((ErrorCode::Number(code), kind_of(code), message)),
        };
        let error = wrong.map(|(code, ..)| code);
        let answer = ResponseEvent::new(Arc::clone(&info), body, status, error, nanos);
        if let (Some(Subject::Tool(_)), Verdict::Ok | Verdict::ToolError { .. }) =
            (finished.subject, finished.verdict)
            && wanted.has(Topic::ToolEnd)
        {
            self.events.tell(ToolEvent::end(&answer));
        }
        if let Some((code, kind, message)) = wrong
            && wanted.has(Topic::Error)
        {
            let error = ErrorEvent::new(&self.server, ErrorContext::HandleRequest, message);
            self.events.tell(error.with_kind(kind).with_code(code).with_request(info, nanos));
        }
        if wanted.has(Topic::Response) { self.events.answer(answer) } else { answer }.into_bytes()
    }

    /// Somebody was not let in, and no request of theirs was read.
    pub(crate) fn refused(
        &self,
        refusal: Refusal,
        transport: Transport,
        remote: Option<SocketAddr>,
        message: &str,
    ) {
        self.stats.refused(refusal);
        if self.events.wanted().has(Topic::Error) {
            let context = match refusal {
                Refusal::BodySize => ErrorContext::Transport,
                _ => ErrorContext::Auth,
            };
            let error = ErrorEvent::new(&self.server, context, message);
            self.events.tell(error.with_kind(refusal.name()).with_origin(transport, remote));
        }
    }
}

impl Sight {
    /// Whether anybody listens to anything.
    #[inline]
    pub(crate) fn is_heard(&self) -> bool {
        !self.wanted.is_nothing()
    }

    /// Takes what listeners made of the request as the request.
    pub(crate) fn settle(&mut self, event: RequestEvent) -> Ruling {
        let (info, is_changed, rejection) = event.settle();
        self.info = Some(Arc::clone(&info));
        Ruling { info, is_changed, rejection }
    }
}

/// The kind of an error, in one word.
fn kind_of(code: i64) -> &'static str {
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
