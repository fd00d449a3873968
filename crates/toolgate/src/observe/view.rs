//! The numbers of a server at one moment, as plain values.
//!
//! As JSON they have the names that dashboards of this protocol already know. Times are in milliseconds,
//! timestamps are ISO 8601 in UTC.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

/// The few numbers that are worth a look often: cheap enough to be polled.
///
/// ```
/// # let summary = toolgate::stats::StatsSummary::default();
/// println!("{} requests, {:.1} % went well", summary.total_requests, summary.success_rate);
/// assert!(serde_json::to_value(&summary).unwrap()["totalRequests"].is_u64());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StatsSummary {
    /// How long the server exists, in milliseconds.
    pub uptime: u64,
    /// Requests answered.
    pub total_requests: u64,
    /// How many of a hundred went well; 0 before the first.
    pub success_rate: f64,
    /// How long an answer took, on average.
    pub avg_response_time: f64,
    /// Tools called.
    pub total_tool_invocations: u64,
    /// Resources read.
    pub total_resource_reads: u64,
    /// Prompts filled.
    pub total_prompt_generations: u64,
    /// Requests that ended in an error, results marked as errors among them.
    pub total_errors: u64,
    /// When the last request was answered; empty before the first.
    pub last_request_at: String,
    /// Requests that are being answered now.
    pub active_requests: u64,
    /// Requests answered in the last sixty seconds.
    pub requests_per_minute: u64,
    /// Those who were not let in.
    pub security: SecurityStats,
}

/// Everything that is counted. Copies up to two thousand samples; [`StatsSummary`] does not.
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
    /// Whether anything is counted at present.
    pub enabled: bool,
    /// When the server was made.
    pub created_at: String,
    /// How long the server exists, in milliseconds.
    pub uptime: u64,
    /// Requests that are being answered now.
    pub active_requests: u64,
    /// Requests answered in the last sixty seconds.
    pub requests_per_minute: u64,
    /// Those who were not let in.
    pub security: SecurityStats,
    /// Requests of all kinds.
    pub requests: RequestStats,
    /// Calls of tools.
    pub tools: ToolStats,
    /// Resources read.
    pub resources: ResourceStats,
    /// Prompts filled.
    pub prompts: PromptStats,
    /// What went wrong.
    pub errors: ErrorStats,
}

/// Those who were not let in, by who refused them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SecurityStats {
    /// Wrong or missing credentials.
    pub auth_failures: u64,
    /// Wrong or missing API keys.
    pub api_key_failures: u64,
    /// Bodies that were too large.
    pub body_size_violations: u64,
    /// Addresses that are not on the list.
    pub ip_filter_failures: u64,
    /// Hosts and origins that are not served.
    pub origin_failures: u64,
    /// Too many requests in too short a time.
    pub rate_limited: u64,
}

/// Requests of all kinds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RequestStats {
    /// Requests answered.
    pub total: u64,
    /// Those that went well.
    pub successful: u64,
    /// Those that did not; results marked as errors among them.
    pub failed: u64,
    /// Requests by method; at most a thousand names, the rest under `(other)`.
    pub by_method: BTreeMap<String, u64>,
    /// The newest thousand response times, the oldest of them first.
    pub response_times: Vec<f64>,
    /// The average.
    pub avg_response_time: f64,
    /// The shortest.
    pub min_response_time: f64,
    /// The longest.
    pub max_response_time: f64,
    /// Half of the answers took no longer.
    pub p50_response_time: f64,
    /// 95 of 100 answers took no longer.
    pub p95_response_time: f64,
    /// 99 of 100 answers took no longer.
    pub p99_response_time: f64,
    /// When the last request was answered; empty before the first.
    pub last_request_at: String,
}

/// Calls of tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolStats {
    /// Tools called.
    pub total_invocations: u64,
    /// Calls by name; at most a thousand, the rest under `(other)`.
    pub by_tool: BTreeMap<String, ToolCalls>,
    /// The newest thousand execution times, the oldest of them first.
    pub execution_times: Vec<f64>,
    /// The average.
    pub avg_execution_time: f64,
    /// The shortest.
    pub min_execution_time: f64,
    /// The longest.
    pub max_execution_time: f64,
    /// Half of the calls took no longer.
    pub p50_execution_time: f64,
    /// 95 of 100 calls took no longer.
    pub p95_execution_time: f64,
    /// 99 of 100 calls took no longer.
    pub p99_execution_time: f64,
}

/// Calls of one tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolCalls {
    /// How often it was called.
    pub count: u64,
    /// How long that took altogether.
    pub total_time: f64,
    /// How long a call took on average.
    pub avg_time: f64,
    /// How many results were marked as errors.
    pub errors: u64,
}

/// Resources read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ResourceStats {
    /// Resources read.
    pub total_reads: u64,
    /// Reads by URI; at most a thousand, the rest under `(other)`.
    pub by_uri: BTreeMap<String, u64>,
}

/// Prompts filled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PromptStats {
    /// Prompts filled.
    pub total_generations: u64,
    /// Prompts by name; at most a thousand, the rest under `(other)`.
    pub by_name: BTreeMap<String, u64>,
}

/// What went wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ErrorStats {
    /// Requests that ended in an error.
    pub total: u64,
    /// Errors by code; results marked as errors are under `isError`.
    pub by_code: BTreeMap<String, u64>,
    /// Errors by the tool that was asked for.
    pub by_tool: BTreeMap<String, u64>,
    /// The last one; as JSON an empty object before the first.
    #[serde(serialize_with = "serialize_last_error")]
    pub last_error: Option<LastError>,
}

/// An error, as it was told to the peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct LastError {
    /// Its code.
    pub code: ErrorCode,
    /// Its message, or what the result of the tool said; cut after 256 bytes.
    pub message: String,
    /// When.
    pub timestamp: String,
}

/// A client that a server remembers: one of [`Server::sessions`](crate::Server::sessions).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SessionInfo {
    /// What the client calls itself.
    pub client: Option<String>,
    /// The version it says it has.
    pub client_version: Option<String>,
    /// The protocol revision that was agreed on.
    pub revision: String,
    /// Who it is, if that was proven.
    pub principal: Option<String>,
    /// How long it has said nothing, in milliseconds.
    pub idle_ms: u64,
    /// Calls of it that are under way.
    pub calls: usize,
    /// Whether its standing stream is being read.
    pub listening: bool,
}

/// What kind of error an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorCode {
    /// The code of a JSON-RPC error.
    Number(i64),
    /// No such error, but the result of a tool that is marked as one: `isError`.
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

/// A number, or the text `isError`.
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
