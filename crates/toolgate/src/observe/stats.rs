//! Request statistics of a server: requests, tools, resources, prompts, errors and rejected clients.
//!
//! Recording takes no lock and never waits; when disabled it costs one atomic load. Everything that a reset clears is
//! in one [`Counters`] value, which is replaced as a whole: requests recorded at that moment go to the old one, so no
//! number ever becomes negative. Names chosen by clients (methods, tool names, URIs) are bounded in number and length.
//! Counters have one [`CounterShard`](counters::CounterShard) for each shard of threads that records: 22 KiB from its
//! first request on, 43 KiB from its first tool call on.

mod counters;
mod minute_window;
mod named_counters;
mod timing;
mod view;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;

use super::outcome::CallOutcome;
use crate::util::clock::{Clock, format_iso8601};
use crate::util::sharded::{ShardId, Sharded};
use counters::Counters;

pub(crate) use named_counters::clip;
pub(crate) use timing::millis;
pub use view::{
    ErrorCode, ErrorStats, LastError, OutcomeCounts, PromptStats, RequestStats, ResourceStats, SecurityStats,
    SessionInfo, StatsDetail, StatsSummary, ToolCalls, ToolStats,
};

/// The statistics of one server. See the module documentation.
pub(crate) struct Stats {
    is_enabled: AtomicBool,
    /// Held by active requests. Not in `counters`, because active requests outlive a reset.
    active: Sharded<Arc<ActiveMarker>>,
    clock: Clock,
    /// Creation time on `clock`.
    created_nanos: u64,
    created_unix_millis: u64,
    counters: ArcSwap<Counters>,
    /// Reaches these statistics from the markers of active requests.
    weak: Weak<Stats>,
}

/// A request that is being handled. Dropping it before [`Stats::end`] means that it is no longer active and not counted.
#[must_use = "dropping it means that the request is not counted"]
pub(crate) struct ActiveRequest {
    marker: Arc<ActiveMarker>,
    start_nanos: u64,
}

/// A completed request, as it is recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestEnd<'a> {
    pub(crate) method: &'a str,
    /// The addressed tool, resource or prompt, if any.
    pub(crate) subject: Option<Subject<'a>>,
    pub(crate) status: EndStatus<'a>,
}

/// The tool, resource or prompt that a request addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject<'a> {
    Tool(&'a str),
    Resource(&'a str),
    Prompt(&'a str),
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndStatus<'a> {
    Ok,
    /// The result is marked as an error.
    ToolError {
        message: &'a str,
    },
    /// A JSON-RPC error.
    ProtocolError {
        code: i64,
        message: &'a str,
    },
    /// The request was cancelled or its client disconnected: no response was sent.
    Cancelled,
    /// The handler exceeded its time limit.
    TimedOut {
        code: ErrorCode,
        message: &'a str,
    },
    /// The handler panicked.
    Panicked {
        code: ErrorCode,
        message: &'a str,
    },
}

impl<'a> EndStatus<'a> {
    pub(crate) fn outcome(self) -> CallOutcome {
        match self {
            EndStatus::Ok => CallOutcome::Ok,
            EndStatus::ToolError { .. } => CallOutcome::ToolError,
            EndStatus::ProtocolError { .. } => CallOutcome::ProtocolError,
            EndStatus::Cancelled => CallOutcome::Cancelled,
            EndStatus::TimedOut { .. } => CallOutcome::Timeout,
            EndStatus::Panicked { .. } => CallOutcome::Panic,
        }
    }

    /// The end of a request whose response is an error. `abnormal_end`: whether its handler panicked or timed out.
    pub(crate) fn failed(
        code: ErrorCode,
        message: &'a str,
        abnormal_end: Option<CallOutcome>,
    ) -> EndStatus<'a> {
        match (abnormal_end, code) {
            (Some(CallOutcome::Timeout), code) => EndStatus::TimedOut { code, message },
            (Some(CallOutcome::Panic), code) => EndStatus::Panicked { code, message },
            (_, ErrorCode::ToolError) => EndStatus::ToolError { message },
            (_, ErrorCode::Number(code)) => EndStatus::ProtocolError { code, message },
        }
    }

    /// Returns the kind and the message of the error that is sent, if one is.
    pub(crate) fn error(self) -> Option<(ErrorCode, &'a str)> {
        match self {
            EndStatus::Ok | EndStatus::Cancelled => None,
            EndStatus::ToolError { message } => Some((ErrorCode::ToolError, message)),
            EndStatus::ProtocolError { code, message } => Some((ErrorCode::Number(code), message)),
            EndStatus::TimedOut { code, message } | EndStatus::Panicked { code, message } => {
                Some((code, message))
            }
        }
    }

    /// Returns the kind of error, if one is sent.
    pub(crate) fn error_code(self) -> Option<ErrorCode> {
        self.error().map(|(code, _)| code)
    }
}

/// The reason why a client was rejected before a request was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecurityRejection {
    Auth,
    ApiKey,
    BodySize,
    Ip,
    Origin,
    RateLimit,
}

impl SecurityRejection {
    /// Returns the name used in error events.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SecurityRejection::Auth => "AuthFailure",
            SecurityRejection::ApiKey => "ApiKeyFailure",
            SecurityRejection::BodySize => "BodySizeViolation",
            SecurityRejection::Ip => "IpFilterFailure",
            SecurityRejection::Origin => "OriginFailure",
            SecurityRejection::RateLimit => "RateLimited",
        }
    }
}

/// Marks active requests by its reference count, which is alone on its cache line.
#[repr(align(64))]
struct ActiveMarker {
    /// Read only if a request is dropped before its end.
    stats: Weak<Stats>,
}

impl ActiveRequest {
    /// Returns the statistics that the request is counted in, unless their server is gone.
    pub(crate) fn stats(&self) -> Option<Arc<Stats>> {
        self.marker.stats.upgrade()
    }
}

impl Stats {
    /// Creates enabled statistics.
    pub(crate) fn new(clock: Clock) -> Arc<Stats> {
        Arc::new_cyclic(|weak| Stats {
            is_enabled: AtomicBool::new(true),
            active: Sharded::new(),
            created_nanos: clock.uptime_nanos(),
            created_unix_millis: clock.unix_millis(),
            clock,
            counters: ArcSwap::from_pointee(Counters::new()),
            weak: Weak::clone(weak),
        })
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.is_enabled.load(Relaxed)
    }

    pub(crate) fn enable(&self) {
        self.is_enabled.store(true, Relaxed);
    }

    /// Stops recording. Recorded numbers are kept.
    pub(crate) fn disable(&self) {
        self.is_enabled.store(false, Relaxed);
    }

    /// Clears all counters, except the active requests and the creation time.
    pub(crate) fn reset(&self) {
        self.counters.store(Arc::new(Counters::new()));
    }

    /// Returns the current time on the clock used for measuring.
    pub(crate) fn nanos(&self) -> u64 {
        self.clock.uptime_nanos()
    }

    /// Starts a request. Returns `None` if statistics are disabled.
    #[inline]
    pub(crate) fn begin(&self) -> Option<ActiveRequest> {
        if !self.is_enabled.load(Relaxed) {
            return None;
        }
        let new_marker = || Arc::new(ActiveMarker { stats: Weak::clone(&self.weak) });
        let marker = self.active.get_or_init(ShardId::current(), &new_marker);
        Some(ActiveRequest { marker: Arc::clone(marker), start_nanos: self.clock.uptime_nanos() })
    }

    /// Records a completed request and returns its duration in nanoseconds.
    pub(crate) fn end(&self, active: ActiveRequest, end: &RequestEnd<'_>) -> u64 {
        let now = self.clock.uptime_nanos();
        let nanos = now.saturating_sub(active.start_nanos);
        if self.is_enabled.load(Relaxed) {
            self.counters.load().record(now, nanos, end);
        }
        drop(active);
        nanos
    }

    /// Records a run of a tool that is not part of a request and started at `start_nanos`. Returns its duration in
    /// nanoseconds.
    pub(crate) fn record_tool_run(&self, start_nanos: u64, tool: &str, status: EndStatus<'_>) -> u64 {
        let now = self.clock.uptime_nanos();
        let nanos = now.saturating_sub(start_nanos);
        if self.is_enabled.load(Relaxed) {
            self.counters.load().record_tool_run(now, nanos, tool, status);
        }
        nanos
    }

    /// Returns the duration of a request so far, in nanoseconds.
    #[cfg(test)]
    pub(crate) fn elapsed(&self, active: &ActiveRequest) -> u64 {
        self.clock.uptime_nanos().saturating_sub(active.start_nanos)
    }

    fn active(&self) -> u64 {
        self.active.iter().map(|active| Arc::strong_count(active) as u64 - 1).sum()
    }

    pub(crate) fn record_rejection(&self, rejection: SecurityRejection) {
        if self.is_enabled.load(Relaxed) {
            self.counters.load().record_rejection(rejection);
        }
    }

    /// Returns the key figures. Copies no samples, so it is cheap enough to poll.
    pub(crate) fn summary(&self) -> StatsSummary {
        let counters = self.counters.load();
        let (failed, cancelled) = (counters.failed(), counters.cancelled());
        let requests = counters.request_totals();
        let total = requests.count;
        StatsSummary {
            uptime: self.uptime(),
            total_requests: total,
            success_rate: if total == 0 {
                0.0
            } else {
                total.saturating_sub(failed + cancelled) as f64 * 100.0 / total as f64
            },
            avg_response_time: requests.average(),
            total_tool_invocations: counters.tool_invocations(),
            total_resource_reads: counters.resource_reads(),
            total_prompt_generations: counters.prompt_generations(),
            total_errors: failed,
            total_cancelled: cancelled,
            last_request_at: self.last_request(&counters),
            active_requests: self.active(),
            requests_per_minute: self.requests_per_minute(&counters),
            security: counters.security(),
        }
    }

    /// Returns all statistics.
    pub(crate) fn detail(&self) -> StatsDetail {
        let counters = self.counters.load();
        StatsDetail {
            enabled: self.is_enabled(),
            created_at: format_iso8601(self.created_unix_millis),
            uptime: self.uptime(),
            active_requests: self.active(),
            requests_per_minute: self.requests_per_minute(&counters),
            security: counters.security(),
            requests: counters.requests(self.last_request(&counters)),
            tools: counters.tools(),
            resources: counters.resources(),
            prompts: counters.prompts(),
            errors: counters.errors(|nanos| self.timestamp(nanos)),
        }
    }

    fn uptime(&self) -> u64 {
        self.clock.uptime_nanos().saturating_sub(self.created_nanos) / 1_000_000
    }

    fn requests_per_minute(&self, counters: &Counters) -> u64 {
        counters.requests_per_minute(self.clock.uptime_nanos() / 1_000_000_000)
    }

    fn last_request(&self, counters: &Counters) -> String {
        counters.last_request().map_or_else(String::new, |nanos| self.timestamp(nanos))
    }

    /// Converts a time on the clock to a date, relative to the creation time, so that recording reads only one clock.
    fn timestamp(&self, nanos: u64) -> String {
        format_iso8601(self.created_unix_millis + nanos.saturating_sub(self.created_nanos) / 1_000_000)
    }
}

impl std::fmt::Debug for Stats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stats").field("enabled", &self.is_enabled()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ActiveRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ActiveRequest").field("start_nanos", &self.start_nanos).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
