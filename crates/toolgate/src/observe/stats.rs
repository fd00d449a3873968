//! What a server counts: requests, tools, resources, prompts, errors, and who was not let in.
//!
//! Recording takes no lock and waits for nobody; switched off it is one look at a flag. Everything that a
//! reset clears stands in one [`Book`], which is replaced as a whole: whoever is recording at that moment
//! writes into the old one, so no number ever runs below zero. What peers choose (methods, names, URIs) can
//! grow to a bound only. An idle server has one book of about 2 KiB; the first request makes it 16 KiB, the
//! first call of a tool 30 KiB.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;

use super::names::{MOST, MOST_FAILED, Names, clip};
use super::timing::{Sample, Timing, millis};
use super::view::{
    ErrorCode, ErrorStats, LastError, PromptStats, RequestStats, ResourceStats, SecurityStats, StatsDetail,
    StatsSummary, ToolCalls, ToolStats,
};
use crate::clock::{Clock, iso8601};

/// The longest message that is remembered of an error.
const LONGEST_MESSAGE: usize = 256;

/// The seconds of which requests are counted one by one.
const MINUTE: u64 = 60;

/// See the module.
pub(crate) struct Stats {
    is_on: AtomicBool,
    /// Requests that are being answered. No part of the book: they outlive a reset.
    active: AtomicU64,
    clock: Clock,
    /// When it was made: on the clock, and in milliseconds since 1970.
    born: u64,
    created: u64,
    book: ArcSwap<Book>,
}

/// A request that is being answered and counted. Dropped before its end, it is one that nobody waited for: it
/// is no longer active, and not counted otherwise.
#[must_use = "dropping it means that the request came to nothing"]
pub(crate) struct Began {
    stats: Arc<Stats>,
    at: u64,
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished<'a> {
    pub(crate) method: &'a str,
    /// What it was about, if it was about one thing.
    pub(crate) subject: Option<Subject<'a>>,
    pub(crate) verdict: Verdict<'a>,
}

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject<'a> {
    Tool(&'a str),
    Uri(&'a str),
    Prompt(&'a str),
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict<'a> {
    Ok,
    /// With a result that is marked as an error.
    ToolError {
        message: &'a str,
    },
    /// With an error. What it was about was not carried out, and perhaps does not exist.
    Fault {
        code: i64,
        message: &'a str,
    },
}

/// Who was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Auth,
    ApiKey,
    BodySize,
    Ip,
    Origin,
    Rate,
}

impl Refusal {
    /// In one word.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Refusal::Auth => "AuthFailure",
            Refusal::ApiKey => "ApiKeyFailure",
            Refusal::BodySize => "BodySizeViolation",
            Refusal::Ip => "IpFilterFailure",
            Refusal::Origin => "OriginFailure",
            Refusal::Rate => "RateLimited",
        }
    }
}

/// Everything that a reset clears.
struct Book {
    requests: Timing,
    /// Also the number of errors.
    failed: AtomicU64,
    by_method: Names<AtomicU64>,
    /// On the clock, one more than it is: zero is never.
    last_request: AtomicU64,
    minute: Minute,
    tools: Timing,
    by_tool: Names<Calls>,
    reads: AtomicU64,
    by_uri: Names<AtomicU64>,
    generations: AtomicU64,
    by_prompt: Names<AtomicU64>,
    /// Many servers never need it.
    errors: OnceLock<Box<Errors>>,
    refusals: [AtomicU64; 6],
}

#[derive(Default)]
struct Calls {
    count: AtomicU64,
    sum: AtomicU64,
    errors: AtomicU64,
}

struct Errors {
    by_code: Names<AtomicU64>,
    by_tool: Names<AtomicU64>,
    last: Mutex<Option<Mishap>>,
}

/// The last error; its timestamp is written when somebody looks.
struct Mishap {
    code: ErrorCode,
    message: Box<str>,
    at: u64,
}

impl Stats {
    /// Counts from now on.
    pub(crate) fn new(clock: Clock) -> Arc<Stats> {
        Arc::new(Stats {
            is_on: AtomicBool::new(true),
            active: AtomicU64::new(0),
            born: clock.nanos(),
            created: clock.unix_millis(),
            clock,
            book: ArcSwap::from_pointee(Book::new()),
        })
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    pub(crate) fn enable(&self) {
        self.is_on.store(true, Relaxed);
    }

    /// Stops counting. What was counted stays.
    pub(crate) fn disable(&self) {
        self.is_on.store(false, Relaxed);
    }

    /// Forgets everything but the requests that are being answered, and when the server was made.
    pub(crate) fn reset(&self) {
        self.book.store(Arc::new(Book::new()));
    }

    /// Now, on the clock that times are measured with.
    pub(crate) fn nanos(&self) -> u64 {
        self.clock.nanos()
    }

    /// A request begins to be answered; none if nothing is counted.
    #[inline]
    pub(crate) fn begin(self: &Arc<Stats>) -> Option<Began> {
        if !self.is_on.load(Relaxed) {
            return None;
        }
        self.active.fetch_add(1, Relaxed);
        Some(Began { stats: Arc::clone(self), at: self.clock.nanos() })
    }

    /// Somebody was not let in.
    pub(crate) fn refused(&self, refusal: Refusal) {
        if self.is_on.load(Relaxed) {
            self.book.load().refusals[refusal as usize].fetch_add(1, Relaxed);
        }
    }

    /// The few numbers that are worth a look often. Copies no samples.
    pub(crate) fn summary(&self) -> StatsSummary {
        let book = self.book.load();
        let failed = book.failed.load(Relaxed);
        let total = book.requests.count();
        StatsSummary {
            uptime: self.uptime(),
            total_requests: total,
            success_rate: if total == 0 {
                0.0
            } else {
                total.saturating_sub(failed) as f64 * 100.0 / total as f64
            },
            avg_response_time: book.requests.average(),
            total_tool_invocations: book.tools.count(),
            total_resource_reads: book.reads.load(Relaxed),
            total_prompt_generations: book.generations.load(Relaxed),
            total_errors: failed,
            last_request_at: self.last_request(&book),
            active_requests: self.active.load(Relaxed),
            requests_per_minute: self.per_minute(&book),
            security: book.security(),
        }
    }

    /// Everything.
    pub(crate) fn detail(&self) -> StatsDetail {
        let book = self.book.load();
        StatsDetail {
            enabled: self.is_enabled(),
            created_at: iso8601(self.created),
            uptime: self.uptime(),
            active_requests: self.active.load(Relaxed),
            requests_per_minute: self.per_minute(&book),
            security: book.security(),
            requests: book.requests(self.last_request(&book)),
            tools: book.tools(),
            resources: ResourceStats {
                total_reads: book.reads.load(Relaxed),
                by_uri: book.by_uri.each(read),
            },
            prompts: PromptStats {
                total_generations: book.generations.load(Relaxed),
                by_name: book.by_prompt.each(read),
            },
            errors: self.errors(&book),
        }
    }

    fn errors(&self, book: &Book) -> ErrorStats {
        let total = book.failed.load(Relaxed);
        let Some(errors) = book.errors.get() else {
            return ErrorStats { total, ..ErrorStats::default() };
        };
        let last = errors.last.lock().unwrap_or_else(PoisonError::into_inner);
        let last_error = last.as_ref().map(|last| LastError {
            code: last.code,
            message: last.message.to_string(),
            timestamp: self.date(last.at),
        });
        ErrorStats {
            total,
            by_code: errors.by_code.each(read),
            by_tool: errors.by_tool.each(read),
            last_error,
        }
    }

    fn uptime(&self) -> u64 {
        self.clock.nanos().saturating_sub(self.born) / 1_000_000
    }

    fn per_minute(&self, book: &Book) -> u64 {
        book.minute.sum(self.clock.nanos() / 1_000_000_000)
    }

    fn last_request(&self, book: &Book) -> String {
        match book.last_request.load(Relaxed) {
            0 => String::new(),
            at => self.date(at - 1),
        }
    }

    /// A moment on the clock as a date: reckoned from the birth, so that recording reads one clock only.
    fn date(&self, nanos: u64) -> String {
        iso8601(self.created + nanos.saturating_sub(self.born) / 1_000_000)
    }
}

impl std::fmt::Debug for Stats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stats").field("enabled", &self.is_enabled()).finish_non_exhaustive()
    }
}

impl Began {
    /// The request is answered. How long it took, in nanoseconds.
    pub(crate) fn end(self, finished: &Finished<'_>) -> u64 {
        let now = self.stats.clock.nanos();
        let took = now.saturating_sub(self.at);
        if self.stats.is_on.load(Relaxed) {
            self.stats.book.load().record(now, took, finished);
        }
        took
    }

    /// How long it takes so far, in nanoseconds.
    #[cfg(test)]
    pub(crate) fn elapsed(&self) -> u64 {
        self.stats.clock.nanos().saturating_sub(self.at)
    }
}

impl Drop for Began {
    fn drop(&mut self) {
        self.stats.active.fetch_sub(1, Relaxed);
    }
}

impl std::fmt::Debug for Began {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Began")
    }
}

impl Book {
    fn new() -> Book {
        Book {
            requests: Timing::new(),
            failed: AtomicU64::new(0),
            by_method: Names::new(),
            last_request: AtomicU64::new(0),
            minute: Minute::default(),
            tools: Timing::new(),
            by_tool: Names::new(),
            reads: AtomicU64::new(0),
            by_uri: Names::new(),
            generations: AtomicU64::new(0),
            by_prompt: Names::new(),
            errors: OnceLock::new(),
            refusals: Default::default(),
        }
    }

    fn record(&self, now: u64, took: u64, finished: &Finished<'_>) {
        let took = Sample::new(took);
        let Finished { method, subject, verdict } = *finished;
        let (most, is_error) = match verdict {
            Verdict::Ok => (MOST, false),
            Verdict::ToolError { .. } => (MOST, true),
            Verdict::Fault { .. } => (MOST_FAILED, true),
        };
        if is_error {
            self.mishap(now, subject, verdict);
        }
        self.by_method.get(method, most).fetch_add(1, Relaxed);
        if most == MOST
            && let Some(subject) = subject
        {
            self.carried_out(subject, took, is_error);
        }
        self.minute.add(now / 1_000_000_000);
        self.last_request.store(now + 1, Relaxed);
        self.requests.record(took);
    }

    fn carried_out(&self, subject: Subject<'_>, took: Sample, is_error: bool) {
        match subject {
            Subject::Tool(name) => {
                let calls = self.by_tool.get(name, MOST);
                calls.count.fetch_add(1, Relaxed);
                calls.sum.fetch_add(took.nanos, Relaxed);
                if is_error {
                    calls.errors.fetch_add(1, Relaxed);
                }
                self.tools.record(took);
            }
            Subject::Uri(uri) => {
                self.reads.fetch_add(1, Relaxed);
                self.by_uri.get(uri, MOST).fetch_add(1, Relaxed);
            }
            Subject::Prompt(name) => {
                self.generations.fetch_add(1, Relaxed);
                self.by_prompt.get(name, MOST).fetch_add(1, Relaxed);
            }
        }
    }

    #[cold]
    fn mishap(&self, at: u64, subject: Option<Subject<'_>>, verdict: Verdict<'_>) {
        let (code, message, most) = match verdict {
            Verdict::Ok => return,
            Verdict::ToolError { message } => (ErrorCode::ToolError, message, MOST),
            Verdict::Fault { code, message } => (ErrorCode::Number(code), message, MOST_FAILED),
        };
        self.failed.fetch_add(1, Relaxed);
        let errors = self.errors.get_or_init(Box::default);
        errors.by_code.get(&code.to_string(), MOST).fetch_add(1, Relaxed);
        if let Some(Subject::Tool(name)) = subject {
            errors.by_tool.get(name, most).fetch_add(1, Relaxed);
        }
        let message = clip(message, LONGEST_MESSAGE).into();
        *errors.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Mishap { code, message, at });
    }

    fn requests(&self, last_request_at: String) -> RequestStats {
        let failed = self.failed.load(Relaxed);
        let total = self.requests.count();
        let times = self.requests.times();
        RequestStats {
            total,
            successful: total.saturating_sub(failed),
            failed,
            by_method: self.by_method.each(read),
            response_times: self.requests.newest(),
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
        let times = self.tools.times();
        ToolStats {
            total_invocations: self.tools.count(),
            by_tool: self.by_tool.each(Calls::view),
            execution_times: self.tools.newest(),
            avg_execution_time: times.avg,
            min_execution_time: times.min,
            max_execution_time: times.max,
            p50_execution_time: times.p50,
            p95_execution_time: times.p95,
            p99_execution_time: times.p99,
        }
    }

    fn security(&self) -> SecurityStats {
        let of = |refusal: Refusal| self.refusals[refusal as usize].load(Relaxed);
        SecurityStats {
            auth_failures: of(Refusal::Auth),
            api_key_failures: of(Refusal::ApiKey),
            body_size_violations: of(Refusal::BodySize),
            ip_filter_failures: of(Refusal::Ip),
            origin_failures: of(Refusal::Origin),
            rate_limited: of(Refusal::Rate),
        }
    }
}

impl Calls {
    fn view(&self) -> ToolCalls {
        let (count, sum) = (self.count.load(Relaxed), self.sum.load(Relaxed));
        ToolCalls {
            count,
            total_time: millis(sum),
            avg_time: if count == 0 { 0.0 } else { millis(sum) / count as f64 },
            errors: self.errors.load(Relaxed),
        }
    }
}

impl Default for Errors {
    fn default() -> Errors {
        Errors { by_code: Names::new(), by_tool: Names::new(), last: Mutex::default() }
    }
}

fn read(count: &AtomicU64) -> u64 {
    count.load(Relaxed)
}

/// How many requests were answered in each of the last sixty seconds: a second in the upper half of a place,
/// its count in the lower.
struct Minute([AtomicU64; MINUTE as usize]);

impl Default for Minute {
    fn default() -> Minute {
        Minute([const { AtomicU64::new(0) }; MINUTE as usize])
    }
}

impl Minute {
    fn add(&self, second: u64) {
        // One more than it is, so that an empty place belongs to no second.
        let tag = (second + 1) << 32;
        let place = &self.0[(second % MINUTE) as usize];
        let mut held = place.load(Relaxed);
        // The first in a second takes the place of the one a minute before; it is never taken back.
        while held >> 32 < second + 1 {
            match place.compare_exchange_weak(held, tag | 1, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(newer) => held = newer,
            }
        }
        place.fetch_add(1, Relaxed);
    }

    fn sum(&self, second: u64) -> u64 {
        let places = self.0.iter().map(|place| place.load(Relaxed));
        places.filter(|held| (held >> 32) + MINUTE > second + 1).map(|held| held & 0xffff_ffff).sum()
    }
}

#[cfg(test)]
// Said, because the bench takes this file in by its path.
#[path = "stats/tests.rs"]
mod tests;
