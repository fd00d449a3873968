//! What a server counts: requests, tools, resources, prompts, errors, and who was not let in.
//!
//! Recording takes no lock and waits for nobody; switched off it is one look at a flag. Everything that a
//! reset clears stands in one [`Book`], which is replaced as a whole: whoever is recording at that moment
//! writes into the old one, so no number ever runs below zero. What peers choose (methods, names, URIs) can
//! grow to a bound only. A book has a [`CounterShard`] for each desk where somebody writes: 22 KiB with its first request,
//! 43 KiB with its first call of a tool.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;

use super::named_counters::{MAX_FAILED_NAMES, MAX_NAMES, NamedCounters, clip};
use super::timing::{Sample, Timing, TimingTotals, millis, newest_samples, summarize};
use super::view::{
    ErrorCode, ErrorStats, LastError, PromptStats, RequestStats, ResourceStats, SecurityStats, StatsDetail,
    StatsSummary, ToolCalls, ToolStats,
};
use crate::util::clock::{Clock, format_iso8601};
use crate::util::sharded::{ShardId, Sharded};

/// The longest message that is remembered of an error.
const MAX_ERROR_MESSAGE_BYTES: usize = 256;

/// The seconds of which requests are counted one by one.
const WINDOW_SECONDS: u64 = 60;

/// See the module.
pub(crate) struct Stats {
    is_enabled: AtomicBool,
    /// Held by requests that are being answered. No part of the book: they outlive a reset.
    active: Sharded<Arc<ActiveMarker>>,
    clock: Clock,
    /// When it was made: on the clock, and in milliseconds since 1970.
    created_nanos: u64,
    created_unix_millis: u64,
    counters: ArcSwap<Counters>,
}

/// A request that is being answered and counted. Dropped before its end, it is one that nobody waited for: it
/// is no longer active, and not counted otherwise.
#[must_use = "dropping it means that the request came to nothing"]
pub(crate) struct ActiveRequest {
    _active: Arc<ActiveMarker>,
    start_nanos: u64,
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestEnd<'a> {
    pub(crate) method: &'a str,
    /// What it was about, if it was about one thing.
    pub(crate) subject: Option<Subject<'a>>,
    pub(crate) status: EndStatus<'a>,
}

/// What a request is about.
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
    /// With a result that is marked as an error.
    ToolError {
        message: &'a str,
    },
    /// With an error. What it was about was not carried out, and perhaps does not exist.
    ProtocolError {
        code: i64,
        message: &'a str,
    },
}

/// Who was not let in.
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
    /// In one word.
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

/// Whoever holds it is being answered. Its count of holders shares a line of memory with nothing else.
#[derive(Default)]
#[repr(align(64))]
struct ActiveMarker;

/// Everything that a reset clears.
struct Counters {
    shards: Sharded<CounterShard>,
    by_method: NamedCounters<Sharded<AtomicU64>>,
    by_tool: NamedCounters<Sharded<ToolCallCounters>>,
    by_uri: NamedCounters<AtomicU64>,
    by_prompt: NamedCounters<AtomicU64>,
    /// Also the number of errors.
    failed: AtomicU64,
    /// Many servers never need it.
    errors: OnceLock<Box<ErrorCounters>>,
    rejections: [AtomicU64; 6],
}

/// What is written of every request, at one desk.
#[repr(align(64))]
struct CounterShard {
    requests: Timing,
    /// On the clock, one more than it is: zero is never.
    last_request: AtomicU64,
    last_minute: MinuteWindow,
    tools: Timing,
    resource_reads: AtomicU64,
    prompt_generations: AtomicU64,
}

#[derive(Default)]
struct ToolCallCounters {
    count: AtomicU64,
    total_nanos: AtomicU64,
    errors: AtomicU64,
}

struct ErrorCounters {
    by_code: NamedCounters<AtomicU64>,
    by_tool: NamedCounters<AtomicU64>,
    last_error: Mutex<Option<RecordedError>>,
}

/// The last error; its timestamp is written when somebody looks.
struct RecordedError {
    code: ErrorCode,
    message: Box<str>,
    at: u64,
}

impl Stats {
    /// Counts from now on.
    pub(crate) fn new(clock: Clock) -> Arc<Stats> {
        Arc::new(Stats {
            is_enabled: AtomicBool::new(true),
            active: Sharded::new(),
            created_nanos: clock.uptime_nanos(),
            created_unix_millis: clock.unix_millis(),
            clock,
            counters: ArcSwap::from_pointee(Counters::new()),
        })
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.is_enabled.load(Relaxed)
    }

    pub(crate) fn enable(&self) {
        self.is_enabled.store(true, Relaxed);
    }

    /// Stops counting. What was counted stays.
    pub(crate) fn disable(&self) {
        self.is_enabled.store(false, Relaxed);
    }

    /// Forgets everything but the requests that are being answered, and when the server was made.
    pub(crate) fn reset(&self) {
        self.counters.store(Arc::new(Counters::new()));
    }

    /// Now, on the clock that times are measured with.
    pub(crate) fn nanos(&self) -> u64 {
        self.clock.uptime_nanos()
    }

    /// A request begins to be answered; none if nothing is counted.
    #[inline]
    pub(crate) fn begin(&self) -> Option<ActiveRequest> {
        if !self.is_enabled.load(Relaxed) {
            return None;
        }
        let active = self.active.get_or_init(ShardId::current(), &Arc::default);
        Some(ActiveRequest { _active: Arc::clone(active), start_nanos: self.clock.uptime_nanos() })
    }

    /// A request is answered. How long it took, in nanoseconds.
    pub(crate) fn end(&self, began: ActiveRequest, finished: &RequestEnd<'_>) -> u64 {
        let now = self.clock.uptime_nanos();
        let took = now.saturating_sub(began.start_nanos);
        if self.is_enabled.load(Relaxed) {
            self.counters.load().record(now, took, finished);
        }
        drop(began);
        took
    }

    /// How long a request takes so far, in nanoseconds.
    #[cfg(test)]
    pub(crate) fn elapsed(&self, began: &ActiveRequest) -> u64 {
        self.clock.uptime_nanos().saturating_sub(began.start_nanos)
    }

    fn active(&self) -> u64 {
        self.active.iter().map(|active| Arc::strong_count(active) as u64 - 1).sum()
    }

    /// Somebody was not let in.
    pub(crate) fn record_rejection(&self, refusal: SecurityRejection) {
        if self.is_enabled.load(Relaxed) {
            self.counters.load().rejections[refusal as usize].fetch_add(1, Relaxed);
        }
    }

    /// The few numbers that are worth a look often. Copies no samples.
    pub(crate) fn summary(&self) -> StatsSummary {
        let book = self.counters.load();
        let failed = book.failed.load(Relaxed);
        let requests = TimingTotals::from(book.each_shard(|sheet| &sheet.requests));
        let total = requests.count;
        StatsSummary {
            uptime: self.uptime(),
            total_requests: total,
            success_rate: if total == 0 {
                0.0
            } else {
                total.saturating_sub(failed) as f64 * 100.0 / total as f64
            },
            avg_response_time: requests.average(),
            total_tool_invocations: book.each_shard(|sheet| &sheet.tools).map(Timing::count).sum(),
            total_resource_reads: book.each_shard(|sheet| &sheet.resource_reads).map(load).sum(),
            total_prompt_generations: book.each_shard(|sheet| &sheet.prompt_generations).map(load).sum(),
            total_errors: failed,
            last_request_at: self.last_request(&book),
            active_requests: self.active(),
            requests_per_minute: self.requests_per_minute(&book),
            security: book.security(),
        }
    }

    /// Everything.
    pub(crate) fn detail(&self) -> StatsDetail {
        let book = self.counters.load();
        StatsDetail {
            enabled: self.is_enabled(),
            created_at: format_iso8601(self.created_unix_millis),
            uptime: self.uptime(),
            active_requests: self.active(),
            requests_per_minute: self.requests_per_minute(&book),
            security: book.security(),
            requests: book.requests(self.last_request(&book)),
            tools: book.tools(),
            resources: ResourceStats {
                total_reads: book.each_shard(|sheet| &sheet.resource_reads).map(load).sum(),
                by_uri: book.by_uri.to_map(load),
            },
            prompts: PromptStats {
                total_generations: book.each_shard(|sheet| &sheet.prompt_generations).map(load).sum(),
                by_name: book.by_prompt.to_map(load),
            },
            errors: self.errors(&book),
        }
    }

    fn errors(&self, book: &Counters) -> ErrorStats {
        let total = book.failed.load(Relaxed);
        let Some(errors) = book.errors.get() else {
            return ErrorStats { total, ..ErrorStats::default() };
        };
        let last = errors.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        let last_error = last.as_ref().map(|last| LastError {
            code: last.code,
            message: last.message.to_string(),
            timestamp: self.timestamp(last.at),
        });
        ErrorStats {
            total,
            by_code: errors.by_code.to_map(load),
            by_tool: errors.by_tool.to_map(load),
            last_error,
        }
    }

    fn uptime(&self) -> u64 {
        self.clock.uptime_nanos().saturating_sub(self.created_nanos) / 1_000_000
    }

    fn requests_per_minute(&self, book: &Counters) -> u64 {
        let second = self.clock.uptime_nanos() / 1_000_000_000;
        book.each_shard(|sheet| &sheet.last_minute).map(|minute| minute.sum(second)).sum()
    }

    fn last_request(&self, book: &Counters) -> String {
        match book.each_shard(|sheet| &sheet.last_request).map(load).max().unwrap_or(0) {
            0 => String::new(),
            at => self.timestamp(at - 1),
        }
    }

    /// A moment on the clock as a date: reckoned from the birth, so that recording reads one clock only.
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
        f.write_str("Began")
    }
}

impl Counters {
    fn new() -> Counters {
        Counters {
            shards: Sharded::new(),
            by_method: NamedCounters::new(),
            by_tool: NamedCounters::new(),
            by_uri: NamedCounters::new(),
            by_prompt: NamedCounters::new(),
            failed: AtomicU64::new(0),
            errors: OnceLock::new(),
            rejections: Default::default(),
        }
    }

    /// A part of each sheet.
    fn each_shard<'a, T>(
        &'a self,
        part: fn(&'a CounterShard) -> &'a T,
    ) -> impl Iterator<Item = &'a T> + Clone {
        self.shards.iter().map(part)
    }

    fn record(&self, now: u64, took: u64, finished: &RequestEnd<'_>) {
        let took = Sample::new(now, took);
        let RequestEnd { method, subject, status: verdict } = *finished;
        let (most, is_error) = match verdict {
            EndStatus::Ok => (MAX_NAMES, false),
            EndStatus::ToolError { .. } => (MAX_NAMES, true),
            EndStatus::ProtocolError { .. } => (MAX_FAILED_NAMES, true),
        };
        if is_error {
            self.record_error(now, subject, verdict);
        }
        let pen = ShardId::current();
        let sheet = self.shards.get_or_init(pen, &CounterShard::new);
        pen.add(self.by_method.get(method, most).get_or_init(pen, &AtomicU64::default), 1);
        if most == MAX_NAMES
            && let Some(subject) = subject
        {
            self.record_subject(pen, sheet, subject, took, is_error);
        }
        sheet.last_minute.add(pen, now / 1_000_000_000);
        sheet.last_request.store(now + 1, Relaxed);
        sheet.requests.record(pen, took);
    }

    fn record_subject(
        &self,
        pen: ShardId,
        sheet: &CounterShard,
        subject: Subject<'_>,
        took: Sample,
        is_error: bool,
    ) {
        match subject {
            Subject::Tool(name) => {
                let calls = self.by_tool.get(name, MAX_NAMES).get_or_init(pen, &ToolCallCounters::default);
                pen.add(&calls.count, 1);
                pen.add(&calls.total_nanos, took.nanos);
                if is_error {
                    pen.add(&calls.errors, 1);
                }
                sheet.tools.record(pen, took);
            }
            Subject::Resource(uri) => {
                pen.add(&sheet.resource_reads, 1);
                self.by_uri.get(uri, MAX_NAMES).fetch_add(1, Relaxed);
            }
            Subject::Prompt(name) => {
                pen.add(&sheet.prompt_generations, 1);
                self.by_prompt.get(name, MAX_NAMES).fetch_add(1, Relaxed);
            }
        }
    }

    #[cold]
    fn record_error(&self, at: u64, subject: Option<Subject<'_>>, verdict: EndStatus<'_>) {
        let (code, message, most) = match verdict {
            EndStatus::Ok => return,
            EndStatus::ToolError { message } => (ErrorCode::ToolError, message, MAX_NAMES),
            EndStatus::ProtocolError { code, message } => {
                (ErrorCode::Number(code), message, MAX_FAILED_NAMES)
            }
        };
        self.failed.fetch_add(1, Relaxed);
        let errors = self.errors.get_or_init(Box::default);
        errors.by_code.get(&code.to_string(), MAX_NAMES).fetch_add(1, Relaxed);
        if let Some(Subject::Tool(name)) = subject {
            errors.by_tool.get(name, most).fetch_add(1, Relaxed);
        }
        let message = clip(message, MAX_ERROR_MESSAGE_BYTES).into();
        *errors.last_error.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(RecordedError { code, message, at });
    }

    fn requests(&self, last_request_at: String) -> RequestStats {
        let failed = self.failed.load(Relaxed);
        let requests = self.each_shard(|sheet| &sheet.requests);
        let total = requests.clone().map(Timing::count).sum::<u64>();
        let times = summarize(requests.clone());
        RequestStats {
            total,
            successful: total.saturating_sub(failed),
            failed,
            by_method: self.by_method.to_map(|counts| counts.iter().map(load).sum()),
            response_times: newest_samples(requests),
            avg_response_time: times.avg,
            min_response_time: times.min,
            max_response_time: times.max,
            p50_response_time: times.p50,
            p95_response_time: times.p95,
            p99_response_time: times.p99,
            last_request_at,
        }
    }

    fn tools(&self) -> ToolStats {
        let tools = self.each_shard(|sheet| &sheet.tools);
        let times = summarize(tools.clone());
        ToolStats {
            total_invocations: tools.clone().map(Timing::count).sum(),
            by_tool: self.by_tool.to_map(tool_calls),
            execution_times: newest_samples(tools),
            avg_execution_time: times.avg,
            min_execution_time: times.min,
            max_execution_time: times.max,
            p50_execution_time: times.p50,
            p95_execution_time: times.p95,
            p99_execution_time: times.p99,
        }
    }

    fn security(&self) -> SecurityStats {
        let of = |refusal: SecurityRejection| self.rejections[refusal as usize].load(Relaxed);
        SecurityStats {
            auth_failures: of(SecurityRejection::Auth),
            api_key_failures: of(SecurityRejection::ApiKey),
            body_size_violations: of(SecurityRejection::BodySize),
            ip_filter_failures: of(SecurityRejection::Ip),
            origin_failures: of(SecurityRejection::Origin),
            rate_limited: of(SecurityRejection::RateLimit),
        }
    }
}

impl CounterShard {
    fn new() -> CounterShard {
        CounterShard {
            requests: Timing::new(),
            last_request: AtomicU64::new(0),
            last_minute: MinuteWindow::default(),
            tools: Timing::new(),
            resource_reads: AtomicU64::new(0),
            prompt_generations: AtomicU64::new(0),
        }
    }
}

/// What is told of the calls of one tool.
fn tool_calls(calls: &Sharded<ToolCallCounters>) -> ToolCalls {
    let sum = |part: fn(&ToolCallCounters) -> &AtomicU64| calls.iter().map(part).map(load).sum::<u64>();
    let (count, nanos) = (sum(|calls| &calls.count), sum(|calls| &calls.total_nanos));
    ToolCalls {
        count,
        total_time: millis(nanos),
        avg_time: if count == 0 { 0.0 } else { millis(nanos) / count as f64 },
        errors: sum(|calls| &calls.errors),
    }
}

impl Default for ErrorCounters {
    fn default() -> ErrorCounters {
        ErrorCounters {
            by_code: NamedCounters::new(),
            by_tool: NamedCounters::new(),
            last_error: Mutex::default(),
        }
    }
}

fn load(count: &AtomicU64) -> u64 {
    count.load(Relaxed)
}

/// How many requests were answered in each of the last sixty seconds: a second in the upper half of a place,
/// its count in the lower.
struct MinuteWindow([AtomicU64; WINDOW_SECONDS as usize]);

impl Default for MinuteWindow {
    fn default() -> MinuteWindow {
        MinuteWindow([const { AtomicU64::new(0) }; WINDOW_SECONDS as usize])
    }
}

impl MinuteWindow {
    fn add(&self, pen: ShardId, second: u64) {
        // One more than it is, so that an empty place belongs to no second.
        let tag = (second + 1) << 32;
        let place = &self.0[(second % WINDOW_SECONDS) as usize];
        let mut held = place.load(Relaxed);
        // The first in a second takes the place of the one a minute before; it is never taken back.
        while held >> 32 < second + 1 {
            match place.compare_exchange_weak(held, tag | 1, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(newer) => held = newer,
            }
        }
        pen.add(place, 1);
    }

    fn sum(&self, second: u64) -> u64 {
        let places = self.0.iter().map(|place| place.load(Relaxed));
        places.filter(|held| (held >> 32) + WINDOW_SECONDS > second + 1).map(|held| held & 0xffff_ffff).sum()
    }
}

#[cfg(test)]
// Said, because the bench takes this file in by its path.
#[path = "stats/tests.rs"]
mod tests;
