//! The event of a request that has ended: its response is about to be sent and may be replaced, or it was cancelled.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::request_info::RequestInfo;
use crate::observe::outcome::CallOutcome;
use crate::observe::stats::{ErrorCode, StatsSummary, millis};
use crate::util::stored_json;

/// A request that has ended: its response is about to be sent. Listeners may replace it.
///
/// A cancelled request has this event too, with the outcome [`CallOutcome::Cancelled`], the status 499 and an empty body;
/// nothing is sent, even if a listener replaces the body.
///
/// ```
/// # use toolgate::events::Events;
/// Events::new().on_response(|response| {
///     println!("{} took {:.2} ms", response.request().method(), response.time_ms());
/// });
/// ```
#[derive(Clone)]
pub struct ResponseEvent {
    pub(super) request: Arc<RequestInfo>,
    body: Bytes,
    status: u16,
    pub(super) end: CallEnd,
    /// The parsed response, filled on first access. Shared by all clones.
    parsed: Arc<OnceLock<Value>>,
}

/// The end of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallEnd {
    pub(crate) outcome: CallOutcome,
    /// The kind of error that is sent, if one is.
    pub(crate) error: Option<ErrorCode>,
    pub(crate) nanos: u64,
}

impl ResponseEvent {
    pub(crate) fn new(request: Arc<RequestInfo>, body: Bytes, status: u16, end: CallEnd) -> ResponseEvent {
        ResponseEvent { request, body, status, end, parsed: Arc::default() }
    }

    /// Returns the request that is answered.
    #[must_use]
    pub fn request(&self) -> &RequestInfo {
        &self.request
    }

    /// Returns the name of the server that sends the response.
    #[must_use]
    pub fn server(&self) -> &str {
        self.request.server()
    }

    /// Returns the current statistics summary of the server, which includes this request.
    #[must_use]
    pub fn stats(&self) -> StatsSummary {
        self.request.stats()
    }

    /// Returns the response as a JSON-RPC message; null if the request was cancelled. Parsed on first access.
    #[must_use]
    pub fn response(&self) -> &Value {
        self.parsed.get_or_init(|| stored_json::response_value(&self.body))
    }

    /// Returns the response as it will be sent; empty if the request was cancelled.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.body
    }

    /// Replaces the response. Its `id` is set to the id of the request.
    ///
    /// A value that is not an object is ignored, and logged as a warning.
    pub fn set_response(&mut self, mut response: Value) {
        if let Some(members) = response.as_object_mut() {
            members.insert("jsonrpc".into(), "2.0".into());
            members.insert("id".into(), self.request.id());
            self.body = Bytes::from(response.to_string());
            self.parsed = Arc::new(OnceLock::from(response));
        } else {
            tracing::warn!(
                server = self.server(),
                "a listener set a response that is not a JSON object; the original is sent"
            );
        }
    }

    /// Returns how the request ended.
    #[must_use]
    pub fn outcome(&self) -> CallOutcome {
        self.end.outcome
    }

    /// Returns whether the request has a response that is neither a JSON-RPC error nor a tool result marked as an error.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.end.outcome == CallOutcome::Ok
    }

    /// Returns the kind of error, if the response is one.
    #[must_use]
    pub fn error_code(&self) -> Option<ErrorCode> {
        self.end.error
    }

    /// Returns how long the request took.
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.end.nanos)
    }

    /// Returns how long the request took, in milliseconds.
    #[must_use]
    pub fn time_ms(&self) -> f64 {
        millis(self.end.nanos)
    }

    /// Returns the HTTP status; on other transports, the status that HTTP would have. 499 if the request was cancelled.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the whole event as JSON; see [`Event::data`](super::Event::data).
    #[must_use]
    pub fn data(&self) -> Value {
        let mut data = self.request.data();
        data["responseData"] = self.response().clone();
        data["response"] = self.response().clone();
        data["success"] = self.is_success().into();
        data["outcome"] = self.outcome().as_str().into();
        data["responseTime"] = self.time_ms().into();
        data["status"] = self.status.into();
        data
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        self.body
    }
    pub(super) fn retained_bytes(&self) -> usize {
        self.request.params_bytes + self.body.len()
    }
}

impl std::fmt::Debug for ResponseEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseEvent")
            .field("request", &self.request)
            .field("status", &self.status)
            .field("outcome", &self.outcome())
            .field("time", &self.time())
            .finish_non_exhaustive()
    }
}
