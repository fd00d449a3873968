//! What a server counts: requests, tools, resources, prompts, errors, and who was not let in.
//!
//! Recording takes no lock and waits for nobody; switched off it is one look at a flag. Everything that a
//! reset clears stands in one [`Book`], which is replaced as a whole: whoever is recording at that moment
//! writes into the old one, so no number ever runs below zero. What peers choose (methods, names, URIs) can
//! grow to a bound only. A book has a [`Sheet`] for each desk where somebody writes: 22 KiB with its first request,
//! 43 KiB with its first call of a tool.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;

use super::names::{MOST, MOST_FAILED, Names, clip};
use super::timing::{Gathered, Sample, Timing, millis, newest, times};
use super::view::{
    ErrorCode, ErrorStats, LastError, PromptStats, RequestStats, ResourceStats, SecurityStats, StatsDetail,
    StatsSummary, ToolCalls, ToolStats,
};
use crate::clock::{Clock, format_iso8601};
use crate::desk::{Sharded, ShardId};

/// The longest message that is remembered of an error.
const LONGEST_MESSAGE: usize = 256;

/// The seconds of which requests are counted one by one.
const MINUTE: u64 = 60;

/// See the module.
pub(crate) struct Stats {
    is_on: AtomicBool,
    /// Held by requests that are being answered. No part of the book: they outlive a reset.
    active: Sharded<Arc<Active>>,
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
    _active: Arc<Active>,
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

/// Whoever holds it is being answered. Its count of holders shares a line of memory with nothing else.
#[derive(Default)]
#[repr(align(64))]
struct Active;

/// Everything that a reset clears.
struct Book {
    sheets: Sharded<Sheet>,
    by_method: Names<Sharded<AtomicU64>>,
    by_tool: Names<Sharded<Calls>>,
    by_uri: Names<AtomicU64>,
    by_prompt: Names<AtomicU64>,
    /// Also the number of errors.
    failed: AtomicU64,
    /// Many servers never need it.
    errors: OnceLock<Box<Errors>>,
    refusals: [AtomicU64; 6],
}

/// What is written of every request, at one desk.
#[repr(align(64))]
struct Sheet {
    requests: Timing,
    /// On the clock, one more than it is: zero is never.
    last_request: AtomicU64,
    minute: Minute,
    tools: Timing,
    reads: AtomicU64,
    generations: AtomicU64,
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
            active: Sharded::new(),
            born: clock.uptime_nanos(),
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
        self.clock.uptime_nanos()
    }

    /// A request begins to be answered; none if nothing is counted.
    #[inline]
    pub(crate) fn begin(&self) -> Option<Began> {
        if !self.is_on.load(Relaxed) {
            return None;
        }
        let active = self.active.get_or_init(ShardId::current(), &Arc::default);
        Some(Began { _active: Arc::clone(active), at: self.clock.uptime_nanos() })
    }

    /// A request is answered. How long it took, in nanoseconds.
    pub(crate) fn end(&self, began: Began, finished: &Finished<'_>) -> u64 {
        let now = self.clock.uptime_nanos();
        let took = now.saturating_sub(began.at);
        if self.is_on.load(Relaxed) {
            self.book.load().record(now, took, finished);
        }
        drop(began);
        took
    }

    /// How long a request takes so far, in nanoseconds.
    #[cfg(test)]
    pub(crate) fn elapsed(&self, began: &Began) -> u64 {
        self.clock.uptime_nanos().saturating_sub(began.at)
    }

    fn active(&self) -> u64 {
        self.active.iter().map(|active| Arc::strong_count(active) as u64 - 1).sum()
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
        let requests = Gathered::from(book.each(|sheet| &sheet.requests));
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
            total_tool_invocations: book.each(|sheet| &sheet.tools).map(Timing::count).sum(),
            total_resource_reads: book.each(|sheet| &sheet.reads).map(read).sum(),
            total_prompt_generations: book.each(|sheet| &sheet.generations).map(read).sum(),
            total_errors: failed,
            last_request_at: self.last_request(&book),
            active_requests: self.active(),
            requests_per_minute: self.per_minute(&book),
            security: book.security(),
        }
    }

    /// Everything.
    pub(crate) fn detail(&self) -> StatsDetail {
        let book = self.book.load();
        StatsDetail {
            enabled: self.is_enabled(),
            created_at: format_iso8601(self.created),
            uptime: self.uptime(),
            active_requests: self.active(),
            requests_per_minute: self.per_minute(&book),
            security: book.security(),
            requests: book.requests(self.last_request(&book)),
            tools: book.tools(),
            resources: ResourceStats {
                total_reads: book.each(|sheet| &sheet.reads).map(read).sum(),
                by_uri: book.by_uri.each(read),
            },
            prompts: PromptStats {
                total_generations: book.each(|sheet| &sheet.generations).map(read).sum(),
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
        self.clock.uptime_nanos().saturating_sub(self.born) / 1_000_000
    }

    fn per_minute(&self, book: &Book) -> u64 {
        let second = self.clock.uptime_nanos() / 1_000_000_000;
        book.each(|sheet| &sheet.minute).map(|minute| minute.sum(second)).sum()
    }

    fn last_request(&self, book: &Book) -> String {
        match book.each(|sheet| &sheet.last_request).map(read).max().unwrap_or(0) {
            0 => String::new(),
            at => self.date(at - 1),
        }
    }

    /// A moment on the clock as a date: reckoned from the birth, so that recording reads one clock only.
    fn date(&self, nanos: u64) -> String {
        format_iso8601(self.created + nanos.saturating_sub(self.born) / 1_000_000)
    }
}

impl std::fmt::Debug for Stats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stats").field("enabled", &self.is_enabled()).finish_non_exhaustive()
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
            sheets: Sharded::new(),
            by_method: Names::new(),
            by_tool: Names::new(),
            by_uri: Names::new(),
            by_prompt: Names::new(),
            failed: AtomicU64::new(0),
            errors: OnceLock::new(),
            refusals: Default::default(),
        }
    }

    /// A part of each sheet.
    fn each<'a, T>(&'a self, part: fn(&'a Sheet) -> &'a T) -> impl Iterator<Item = &'a T> + Clone {
        self.sheets.iter().map(part)
    }

    fn record(&self, now: u64, took: u64, finished: &Finished<'_>) {
        let took = Sample::new(now, took);
        let Finished { method, subject, verdict } = *finished;
        let (most, is_error) = match verdict {
            Verdict::Ok => (MOST, false),
            Verdict::ToolError { .. } => (MOST, true),
            Verdict::Fault { .. } => (MOST_FAILED, true),
        };
        if is_error {
            self.mishap(now, subject, verdict);
        }
        let pen = ShardId::current();
        let sheet = self.sheets.get_or_init(pen, &Sheet::new);
        pen.add(self.by_method.get(method, most).get_or_init(pen, &AtomicU64::default), 1);
        if most == MOST
            && let Some(subject) = subject
        {
            self.carried_out(pen, sheet, subject, took, is_error);
        }
        sheet.minute.add(pen, now / 1_000_000_000);
        sheet.last_request.store(now + 1, Relaxed);
        sheet.requests.record(pen, took);
    }

    fn carried_out(&self, pen: ShardId, sheet: &Sheet, subject: Subject<'_>, took: Sample, is_error: bool) {
        match subject {
            Subject::Tool(name) => {
                let calls = self.by_tool.get(name, MOST).get_or_init(pen, &Calls::default);
                pen.add(&calls.count, 1);
                pen.add(&calls.sum, took.nanos);
                if is_error {
                    pen.add(&calls.errors, 1);
                }
                sheet.tools.record(pen, took);
            }
            Subject::Uri(uri) => {
                pen.add(&sheet.reads, 1);
                self.by_uri.get(uri, MOST).fetch_add(1, Relaxed);
            }
            Subject::Prompt(name) => {
                pen.add(&sheet.generations, 1);
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
        let requests = self.each(|sheet| &sheet.requests);
        let total = requests.clone().map(Timing::count).sum::<u64>();
        let times = times(requests.clone());
        RequestStats {
            total,
            successful: total.saturating_sub(failed),
            failed,
            by_method: self.by_method.each(|counts| counts.iter().map(read).sum()),
            response_times: newest(requests),
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
        let tools = self.each(|sheet| &sheet.tools);
        let times = times(tools.clone());
        ToolStats {
            total_invocations: tools.clone().map(Timing::count).sum(),
            by_tool: self.by_tool.each(told),
            execution_times: newest(tools),
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

impl Sheet {
    fn new() -> Sheet {
        Sheet {
            requests: Timing::new(),
            last_request: AtomicU64::new(0),
            minute: Minute::default(),
            tools: Timing::new(),
            reads: AtomicU64::new(0),
            generations: AtomicU64::new(0),
        }
    }
}

/// What is told of the calls of one tool.
fn told(calls: &Sharded<Calls>) -> ToolCalls {
    let sum = |part: fn(&Calls) -> &AtomicU64| calls.iter().map(part).map(read).sum::<u64>();
    let (count, nanos) = (sum(|calls| &calls.count), sum(|calls| &calls.sum));
    ToolCalls {
        count,
        total_time: millis(nanos),
        avg_time: if count == 0 { 0.0 } else { millis(nanos) / count as f64 },
        errors: sum(|calls| &calls.errors),
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
    fn add(&self, pen: ShardId, second: u64) {
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
        pen.add(place, 1);
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
