//! The event of a response that is about to be sent, which listeners may replace.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::request_info::RequestInfo;
use crate::observe::stats::{ErrorCode, StatsSummary, millis};
use crate::util::stored_json;

/// A response that is about to be sent. Listeners may replace it.
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
    error: Option<ErrorCode>,
    pub(super) nanos: u64,
    /// The parsed response, filled on first access. Shared by all clones.
    parsed: Arc<OnceLock<Value>>,
}

impl ResponseEvent {
    pub(crate) fn new(
        request: Arc<RequestInfo>,
        body: Bytes,
        status: u16,
        error: Option<ErrorCode>,
        nanos: u64,
    ) -> ResponseEvent {
        ResponseEvent { request, body, status, error, nanos, parsed: Arc::default() }
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

    /// Returns the response as a JSON-RPC message. Parsed on first access.
    #[must_use]
    pub fn response(&self) -> &Value {
        self.parsed.get_or_init(|| stored_json::response_value(&self.body))
    }

    /// Returns the response as it will be sent.
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

    /// Returns whether the response is neither a JSON-RPC error nor a tool result marked as an error.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.error.is_none()
    }

    /// Returns the kind of error, if the response is one.
    #[must_use]
    pub fn error_code(&self) -> Option<ErrorCode> {
        self.error
    }

    /// Returns how long the request took.
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// Returns how long the request took, in milliseconds.
    #[must_use]
    pub fn time_ms(&self) -> f64 {
        millis(self.nanos)
    }

    /// Returns the HTTP status; on other transports, the status that HTTP would have.
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
            .field("error", &self.error)
            .field("time", &self.time())
            .finish_non_exhaustive()
    }
}
