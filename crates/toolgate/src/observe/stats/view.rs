//! Snapshots of a server's statistics, as plain values.
//!
//! Serialized, they have the field names that existing MCP dashboards expect. Durations are in milliseconds, timestamps
//! are ISO 8601 in UTC.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::observe::outcome::CallOutcome;

/// Key figures of a server. Cheap enough to poll.
///
/// ```
/// # let summary = toolgate::stats::StatsSummary::default();
/// println!("{} requests, {:.1} % succeeded", summary.total_requests, summary.success_rate);
/// assert!(serde_json::to_value(&summary).unwrap()["totalRequests"].is_u64());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StatsSummary {
    /// Time since the server was created, in milliseconds.
    pub uptime: u64,
    /// Completed requests.
    pub total_requests: u64,
    /// Percentage of requests that succeeded; 0 before the first request. Cancelled requests did not succeed.
    pub success_rate: f64,
    /// Average response time.
    pub avg_response_time: f64,
    /// Tool calls.
    pub total_tool_invocations: u64,
    /// Resource reads.
    pub total_resource_reads: u64,
    /// Prompts generated.
    pub total_prompt_generations: u64,
    /// Requests that ended in an error, including results marked as errors.
    pub total_errors: u64,
    /// Requests that were cancelled or whose client disconnected.
    pub total_cancelled: u64,
    /// Time of the last completed request; empty before the first.
    pub last_request_at: String,
    /// Requests in progress.
    pub active_requests: u64,
    /// Requests completed in the last sixty seconds.
    pub requests_per_minute: u64,
    /// Rejected clients.
    pub security: SecurityStats,
}

/// All statistics of a server. Copies up to two thousand samples; [`StatsSummary`] copies none.
///
/// ```
/// # let detail = toolgate::stats::StatsDetail::default();
/// for (tool, calls) in &detail.tools.by_tool {
///     println!("{tool}: {} calls, {:.2} ms each", calls.count, calls.avg_time);
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StatsDetail {
    /// Whether statistics are currently recorded.
    pub enabled: bool,
    /// Creation time of the server.
    pub created_at: String,
    /// Time since the server was created, in milliseconds.
    pub uptime: u64,
    /// Requests in progress.
    pub active_requests: u64,
    /// Requests completed in the last sixty seconds.
    pub requests_per_minute: u64,
    /// Rejected clients.
    pub security: SecurityStats,
    /// Requests of all methods.
    pub requests: RequestStats,
    /// Tool calls.
    pub tools: ToolStats,
    /// Resource reads.
    pub resources: ResourceStats,
    /// Prompts generated.
    pub prompts: PromptStats,
    /// Errors.
    pub errors: ErrorStats,
}

/// Rejected clients, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SecurityStats {
    /// Wrong or missing credentials.
    pub auth_failures: u64,
    /// Wrong or missing API keys.
    pub api_key_failures: u64,
    /// Request bodies that were too large.
    pub body_size_violations: u64,
    /// Client addresses that are not allowed.
    pub ip_filter_failures: u64,
    /// `Host` or `Origin` headers that are not allowed.
    pub origin_failures: u64,
    /// Requests over the rate limit.
    pub rate_limited: u64,
}

/// Requests of all methods.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RequestStats {
    /// Completed requests.
    pub total: u64,
    /// Requests that succeeded.
    pub successful: u64,
    /// Requests that failed, including results marked as errors.
    pub failed: u64,
    /// Requests that were cancelled or whose client disconnected. Neither successful nor failed.
    pub cancelled: u64,
    /// Completed requests by outcome.
    pub by_outcome: OutcomeCounts,
    /// Requests by method; at most a thousand names, the rest under `(other)`.
    pub by_method: BTreeMap<String, u64>,
    /// The newest thousand response times, oldest first.
    pub response_times: Vec<f64>,
    /// Average response time.
    pub avg_response_time: f64,
    /// Minimum response time.
    pub min_response_time: f64,
    /// Maximum response time.
    pub max_response_time: f64,
    /// Median response time.
    pub p50_response_time: f64,
    /// 95th percentile of the response times.
    pub p95_response_time: f64,
    /// 99th percentile of the response times.
    pub p99_response_time: f64,
    /// Time of the last completed request; empty before the first.
    pub last_request_at: String,
}

/// Tool calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolStats {
    /// Tool calls of all tools.
    pub total_invocations: u64,
    /// Calls by tool name; at most a thousand names, the rest under `(other)`.
    pub by_tool: BTreeMap<String, ToolCalls>,
    /// The newest thousand execution times, oldest first.
    pub execution_times: Vec<f64>,
    /// Average execution time.
    pub avg_execution_time: f64,
    /// Minimum execution time.
    pub min_execution_time: f64,
    /// Maximum execution time.
    pub max_execution_time: f64,
    /// Median execution time.
    pub p50_execution_time: f64,
    /// 95th percentile of the execution times.
    pub p95_execution_time: f64,
    /// 99th percentile of the execution times.
    pub p99_execution_time: f64,
}

/// Calls of one tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolCalls {
    /// Number of calls, however they ended. A run of a task counts as one call.
    pub count: u64,
    /// Total execution time.
    pub total_time: f64,
    /// Average execution time.
    pub avg_time: f64,
    /// Number of calls that failed: results marked as errors, protocol errors, timeouts and panics.
    pub errors: u64,
    /// Calls by outcome.
    pub by_outcome: OutcomeCounts,
}

/// Numbers of calls by [outcome](CallOutcome). Serialized with the names of the outcomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OutcomeCounts {
    /// Calls that returned a result.
    pub ok: u64,
    /// Tool results marked as errors.
    pub tool_error: u64,
    /// JSON-RPC errors.
    pub protocol_error: u64,
    /// Calls that were cancelled or whose client disconnected.
    pub cancelled: u64,
    /// Calls whose handler exceeded its time limit.
    pub timeout: u64,
    /// Calls whose handler panicked.
    pub panic: u64,
}

impl OutcomeCounts {
    /// Returns the number of calls with one outcome.
    #[must_use]
    pub fn get(&self, outcome: CallOutcome) -> u64 {
        let mut counts = *self;
        *counts.count_mut(outcome)
    }

    /// Returns the number of all calls.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.ok + self.cancelled + self.failed()
    }

    /// Returns the number of calls that neither succeeded nor were cancelled.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.tool_error + self.protocol_error + self.timeout + self.panic
    }

    pub(super) fn count_mut(&mut self, outcome: CallOutcome) -> &mut u64 {
        match outcome {
            CallOutcome::Ok => &mut self.ok,
            CallOutcome::ToolError => &mut self.tool_error,
            CallOutcome::ProtocolError => &mut self.protocol_error,
            CallOutcome::Cancelled => &mut self.cancelled,
            CallOutcome::Timeout => &mut self.timeout,
            CallOutcome::Panic => &mut self.panic,
        }
    }

    pub(super) fn add(self, other: OutcomeCounts) -> OutcomeCounts {
        OutcomeCounts {
            ok: self.ok + other.ok,
            tool_error: self.tool_error + other.tool_error,
            protocol_error: self.protocol_error + other.protocol_error,
            cancelled: self.cancelled + other.cancelled,
            timeout: self.timeout + other.timeout,
            panic: self.panic + other.panic,
        }
    }

    /// Counts the rest of `total` calls as successes.
    pub(super) fn with_total(self, total: u64) -> OutcomeCounts {
        OutcomeCounts { ok: total.saturating_sub(self.cancelled + self.failed()), ..self }
    }
}

/// Resource reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ResourceStats {
    /// Reads of all resources.
    pub total_reads: u64,
    /// Reads by URI; at most a thousand URIs, the rest under `(other)`.
    pub by_uri: BTreeMap<String, u64>,
}

/// Prompts generated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PromptStats {
    /// Prompts generated, of all names.
    pub total_generations: u64,
    /// Prompts by name; at most a thousand names, the rest under `(other)`.
    pub by_name: BTreeMap<String, u64>,
}

/// Errors, by code and by tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ErrorStats {
    /// Requests that ended in an error.
    pub total: u64,
    /// Errors by JSON-RPC code; results marked as errors are under `isError`.
    pub by_code: BTreeMap<String, u64>,
    /// Errors by the name of the called tool.
    pub by_tool: BTreeMap<String, u64>,
    /// The last error; serialized as an empty object before the first.
    #[serde(serialize_with = "serialize_last_error")]
    pub last_error: Option<LastError>,
}

/// An error, as sent to the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct LastError {
    /// The error code.
    pub code: ErrorCode,
    /// The error message, or the text of the tool result; cut at 256 bytes.
    pub message: String,
    /// When the error occurred.
    pub timestamp: String,
}

/// An open session, as listed by [`Server::sessions`](crate::Server::sessions).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SessionInfo {
    /// The client name from `initialize`.
    pub client: Option<String>,
    /// The client version from `initialize`.
    pub client_version: Option<String>,
    /// The negotiated protocol version.
    pub revision: String,
    /// The authenticated principal, if any.
    pub principal: Option<String>,
    /// Time since the last message of the client, in milliseconds.
    pub idle_ms: u64,
    /// Calls in progress.
    pub calls: usize,
    /// Whether the client reads its notification stream.
    pub listening: bool,
}

/// The kind of error of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorCode {
    /// The code of a JSON-RPC error.
    Number(i64),
    /// A tool result marked as an error: `isError`.
    ToolError,
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ErrorCode::Number(number) => number.fmt(f),
            ErrorCode::ToolError => f.write_str("isError"),
        }
    }
}

/// Serializes as a number, or as the string `isError`.
impl Serialize for ErrorCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            ErrorCode::Number(number) => serializer.serialize_i64(*number),
            ErrorCode::ToolError => serializer.serialize_str("isError"),
        }
    }
}

fn serialize_last_error<S: Serializer>(error: &Option<LastError>, serializer: S) -> Result<S::Ok, S::Error> {
    match error {
        Some(error) => error.serialize(serializer),
        None => serializer.collect_map(std::iter::empty::<((), ())>()),
    }
}
