//! The counters behind [`Stats`](super::Stats): everything that a reset clears.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

use super::minute_window::MinuteWindow;
use super::named_counters::{MAX_FAILED_NAMES, MAX_NAMES, NamedCounters, clip};
use super::timing::{Sample, Timing, TimingTotals, millis, newest_samples, summarize};
use super::view::{
    ErrorCode, ErrorStats, LastError, OutcomeCounts, PromptStats, RequestStats, ResourceStats, SecurityStats,
    ToolCalls, ToolStats,
};
use super::{EndStatus, RequestEnd, SecurityRejection, Subject};
use crate::observe::outcome::CallOutcome;
use crate::util::lock;
use crate::util::sharded::{ShardId, Sharded};

/// Length at which the recorded message of the last error is cut.
const MAX_ERROR_MESSAGE_BYTES: usize = 256;

/// All counters of a server. Names are counted across shards, everything recorded for each request in a shard.
pub(super) struct Counters {
    shards: Sharded<CounterShard>,
    by_method: NamedCounters<Sharded<AtomicU64>>,
    by_tool: NamedCounters<Sharded<ToolCallCounters>>,
    by_uri: NamedCounters<AtomicU64>,
    by_prompt: NamedCounters<AtomicU64>,
    /// Requests that did not succeed.
    not_ok: NotOkCounters,
    /// Allocated with the first error.
    errors: OnceLock<Box<ErrorCounters>>,
    /// Indexed by [`SecurityRejection`].
    rejections: [AtomicU64; 6],
}

/// The counters written for every request, one set for each shard of threads.
#[repr(align(64))]
pub(super) struct CounterShard {
    requests: Timing,
    /// Time of the last request on the clock plus one; zero if there was none.
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
    not_ok: NotOkCounters,
}

/// Counts by outcome, in the order of [`CallOutcome::NOT_OK`]. Successes are the rest of a total.
#[derive(Default)]
struct NotOkCounters([AtomicU64; CallOutcome::NOT_OK.len()]);

struct ErrorCounters {
    by_code: NamedCounters<AtomicU64>,
    by_tool: NamedCounters<AtomicU64>,
    last_error: Mutex<Option<RecordedError>>,
}

/// The last error. Its timestamp is formatted when read.
struct RecordedError {
    code: ErrorCode,
    message: Box<str>,
    /// On the clock, in nanoseconds.
    at: u64,
}

impl Counters {
    pub(super) fn new() -> Counters {
        Counters {
            shards: Sharded::new(),
            by_method: NamedCounters::new(),
            by_tool: NamedCounters::new(),
            by_uri: NamedCounters::new(),
            by_prompt: NamedCounters::new(),
            not_ok: NotOkCounters::default(),
            errors: OnceLock::new(),
            rejections: Default::default(),
        }
    }

    /// Returns one field of each shard.
    fn each_shard<'a, T>(
        &'a self,
        field: fn(&'a CounterShard) -> &'a T,
    ) -> impl Iterator<Item = &'a T> + Clone {
        self.shards.iter().map(field)
    }

    /// Records a request that ended at `now` after `nanos`.
    pub(super) fn record(&self, now: u64, nanos: u64, end: &RequestEnd<'_>) {
        let sample = Sample::new(now, nanos);
        let RequestEnd { method, subject, status } = *end;
        let max_names = match status {
            EndStatus::Ok => MAX_NAMES,
            _ => self.record_not_ok(now, subject, status),
        };
        let shard_id = ShardId::current();
        let shard = self.shards.get_or_init(shard_id, &CounterShard::new);
        let method_count = self.by_method.get(method, max_names);
        shard_id.add(method_count.get_or_init(shard_id, &AtomicU64::default), 1);
        if let Some(subject) = subject {
            self.record_subject(shard_id, shard, subject, sample, status);
        }
        shard.last_minute.add(shard_id, now / 1_000_000_000);
        shard.last_request.store(now + 1, Relaxed);
        shard.requests.record(shard_id, sample);
    }

    /// Records a run of a tool that is not part of a request.
    pub(super) fn record_tool_run(&self, now: u64, nanos: u64, tool: &str, status: EndStatus<'_>) {
        let shard_id = ShardId::current();
        let shard = self.shards.get_or_init(shard_id, &CounterShard::new);
        let sample = Sample::new(now, nanos);
        self.record_subject(shard_id, shard, Subject::Tool(tool), sample, status);
    }

    fn record_subject(
        &self,
        shard_id: ShardId,
        shard: &CounterShard,
        subject: Subject<'_>,
        sample: Sample,
        status: EndStatus<'_>,
    ) {
        match subject {
            Subject::Tool(name) => {
                let calls = self.by_tool.get(name, MAX_NAMES);
                let calls = calls.get_or_init(shard_id, &ToolCallCounters::default);
                shard_id.add(&calls.count, 1);
                shard_id.add(&calls.total_nanos, sample.nanos);
                if status != EndStatus::Ok
                    && let Some(index) = status.outcome().not_ok_index()
                {
                    shard_id.add(&calls.not_ok.0[index], 1);
                }
                shard.tools.record(shard_id, sample);
            }
            // A failed read may name a resource that does not exist.
            Subject::Resource(_) | Subject::Prompt(_) if status != EndStatus::Ok => {}
            Subject::Resource(uri) => {
                shard_id.add(&shard.resource_reads, 1);
                self.by_uri.get(uri, MAX_NAMES).fetch_add(1, Relaxed);
            }
            Subject::Prompt(name) => {
                shard_id.add(&shard.prompt_generations, 1);
                self.by_prompt.get(name, MAX_NAMES).fetch_add(1, Relaxed);
            }
        }
    }

    /// Records a request that did not succeed. Returns the limit for its method name: a request that was not decoded may
    /// name any method.
    #[cold]
    fn record_not_ok(&self, at: u64, subject: Option<Subject<'_>>, status: EndStatus<'_>) -> usize {
        let max_names = match status {
            EndStatus::ProtocolError { .. } | EndStatus::Cancelled => MAX_FAILED_NAMES,
            _ => MAX_NAMES,
        };
        if let Some(index) = status.outcome().not_ok_index() {
            self.not_ok.0[index].fetch_add(1, Relaxed);
        }
        let Some((code, message)) = status.error() else { return max_names };
        let errors = self.errors.get_or_init(Box::default);
        errors.by_code.get(&code.to_string(), MAX_NAMES).fetch_add(1, Relaxed);
        if let Some(Subject::Tool(name)) = subject {
            errors.by_tool.get(name, max_names).fetch_add(1, Relaxed);
        }
        let message = clip(message, MAX_ERROR_MESSAGE_BYTES).into();
        *lock(&errors.last_error) = Some(RecordedError { code, message, at });
        max_names
    }

    pub(super) fn record_rejection(&self, rejection: SecurityRejection) {
        self.rejections[rejection as usize].fetch_add(1, Relaxed);
    }

    /// Returns the failed requests, which is also the number of errors.
    pub(super) fn failed(&self) -> u64 {
        self.not_ok.counts(0).failed()
    }

    pub(super) fn cancelled(&self) -> u64 {
        self.not_ok.counts(0).cancelled
    }

    pub(super) fn request_totals(&self) -> TimingTotals {
        TimingTotals::from(self.each_shard(|shard| &shard.requests))
    }

    pub(super) fn tool_invocations(&self) -> u64 {
        self.each_shard(|shard| &shard.tools).map(Timing::count).sum()
    }

    pub(super) fn resource_reads(&self) -> u64 {
        self.each_shard(|shard| &shard.resource_reads).map(load).sum()
    }

    pub(super) fn prompt_generations(&self) -> u64 {
        self.each_shard(|shard| &shard.prompt_generations).map(load).sum()
    }

    /// Returns the requests of the last minute before `second`.
    pub(super) fn requests_per_minute(&self, second: u64) -> u64 {
        self.each_shard(|shard| &shard.last_minute).map(|window| window.sum(second)).sum()
    }

    /// Returns the time of the last request on the clock.
    pub(super) fn last_request(&self) -> Option<u64> {
        self.each_shard(|shard| &shard.last_request).map(load).max().unwrap_or(0).checked_sub(1)
    }

    pub(super) fn requests(&self, last_request_at: String) -> RequestStats {
        let requests = self.each_shard(|shard| &shard.requests);
        let total = requests.clone().map(Timing::count).sum::<u64>();
        let times = summarize(requests.clone());
        let by_outcome = self.not_ok.counts(total);
        RequestStats {
            total,
            successful: by_outcome.ok,
            failed: by_outcome.failed(),
            cancelled: by_outcome.cancelled,
            by_outcome,
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

    pub(super) fn tools(&self) -> ToolStats {
        let tools = self.each_shard(|shard| &shard.tools);
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

    pub(super) fn resources(&self) -> ResourceStats {
        ResourceStats { total_reads: self.resource_reads(), by_uri: self.by_uri.to_map(load) }
    }

    pub(super) fn prompts(&self) -> PromptStats {
        PromptStats { total_generations: self.prompt_generations(), by_name: self.by_prompt.to_map(load) }
    }

    /// Returns the errors. `timestamp` formats a time on the clock.
    pub(super) fn errors(&self, timestamp: impl FnOnce(u64) -> String) -> ErrorStats {
        let total = self.failed();
        let Some(errors) = self.errors.get() else {
            return ErrorStats { total, ..ErrorStats::default() };
        };
        let last_error = lock(&errors.last_error).as_ref().map(|last| LastError {
            code: last.code,
            message: last.message.to_string(),
            timestamp: timestamp(last.at),
        });
        ErrorStats {
            total,
            by_code: errors.by_code.to_map(load),
            by_tool: errors.by_tool.to_map(load),
            last_error,
        }
    }

    pub(super) fn security(&self) -> SecurityStats {
        let count = |rejection: SecurityRejection| load(&self.rejections[rejection as usize]);
        SecurityStats {
            auth_failures: count(SecurityRejection::Auth),
            api_key_failures: count(SecurityRejection::ApiKey),
            body_size_violations: count(SecurityRejection::BodySize),
            ip_filter_failures: count(SecurityRejection::Ip),
            origin_failures: count(SecurityRejection::Origin),
            rate_limited: count(SecurityRejection::RateLimit),
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

/// Sums the calls of one tool over all shards.
fn tool_calls(calls: &Sharded<ToolCallCounters>) -> ToolCalls {
    let sum = |field: fn(&ToolCallCounters) -> &AtomicU64| calls.iter().map(field).map(load).sum::<u64>();
    let (count, nanos) = (sum(|calls| &calls.count), sum(|calls| &calls.total_nanos));
    let not_ok = calls.iter().map(|calls| calls.not_ok.counts(0));
    let by_outcome = not_ok.fold(OutcomeCounts::default(), OutcomeCounts::add).with_total(count);
    ToolCalls {
        count,
        total_time: millis(nanos),
        avg_time: if count == 0 { 0.0 } else { millis(nanos) / count as f64 },
        errors: by_outcome.failed(),
        by_outcome,
    }
}

impl NotOkCounters {
    /// Returns the counts of all outcomes of `total` calls.
    fn counts(&self, total: u64) -> OutcomeCounts {
        let mut counts = OutcomeCounts::default();
        for (outcome, count) in CallOutcome::NOT_OK.into_iter().zip(&self.0) {
            *counts.count_mut(outcome) = load(count);
        }
        counts.with_total(total)
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
