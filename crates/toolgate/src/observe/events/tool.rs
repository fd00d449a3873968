//! The event of a tool call that is about to start or has ended.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::request_info::RequestInfo;
use super::response::ResponseEvent;
use crate::observe::outcome::CallOutcome;

/// A tool call that is about to start or has ended. Every call that starts ends once, also if it is cancelled.
///
/// A tool that runs as a task has these events for its run, which has a [task id](RequestInfo::task_id).
///
/// ```
/// # use toolgate::events::Events;
/// Events::new().on_tool(|tool| match tool.time() {
///     None => println!("{} starts with {}", tool.tool(), tool.arguments()),
///     Some(time) => println!("{} took {time:?}", tool.tool()),
/// });
/// ```
#[derive(Clone, Debug)]
pub struct ToolEvent {
    request: Arc<RequestInfo>,
    tool: Arc<str>,
    is_destructive: bool,
    /// `None` before the call has ended.
    end: Option<ResponseEvent>,
}

impl ToolEvent {
    /// Creates the event of a call that is about to start.
    pub(crate) fn start(request: Arc<RequestInfo>, is_destructive: bool) -> ToolEvent {
        let tool = request.subject().unwrap_or_default().into();
        ToolEvent { request, tool, is_destructive, end: None }
    }

    /// Creates the event of a call that ended with `response`.
    pub(crate) fn end(response: &ResponseEvent, is_destructive: bool) -> ToolEvent {
        let start = ToolEvent::start(Arc::clone(&response.request), is_destructive);
        ToolEvent { end: Some(response.clone()), ..start }
    }

    /// Returns the name of the server.
    #[must_use]
    pub fn server(&self) -> &str {
        self.request.server()
    }

    /// Returns the request that called the tool.
    #[must_use]
    pub fn request(&self) -> &RequestInfo {
        &self.request
    }

    /// Returns the name of the tool.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Returns whether the tool is marked as destructive (`destructiveHint`).
    #[must_use]
    pub fn is_destructive(&self) -> bool {
        self.is_destructive
    }

    /// Returns the arguments; null if there are none.
    #[must_use]
    pub fn arguments(&self) -> &Value {
        &self.request.params()["arguments"]
    }

    /// Returns whether the call has ended.
    #[must_use]
    pub fn is_end(&self) -> bool {
        self.end.is_some()
    }

    /// Returns the result of the call, once it has ended. `None` if it was cancelled, and for a task.
    #[must_use]
    pub fn result(&self) -> Option<&Value> {
        self.end.as_ref()?.response().get("result")
    }

    /// Returns how the call ended; `None` before it has ended.
    #[must_use]
    pub fn outcome(&self) -> Option<CallOutcome> {
        self.end.as_ref().map(ResponseEvent::outcome)
    }

    /// Returns whether the call succeeded; `None` before it has ended.
    ///
    /// A result marked as an error is not a success.
    #[must_use]
    pub fn is_success(&self) -> Option<bool> {
        self.end.as_ref().map(ResponseEvent::is_success)
    }

    /// Returns how long the call took, once it has ended.
    #[must_use]
    pub fn time(&self) -> Option<Duration> {
        self.end.as_ref().map(ResponseEvent::time)
    }

    /// Returns the whole event as JSON; see [`Event::data`](super::Event::data).
    #[must_use]
    pub fn data(&self) -> Value {
        let mut data = json!({
            "server": self.server(),
            "serverName": self.server(),
            "requestId": self.request.id(),
            "tool": self.tool(),
            "name": self.tool(),
            "arguments": self.arguments(),
        });
        if let Some(end) = &self.end {
            data["results"] = self.result().cloned().unwrap_or_default();
            data["success"] = end.is_success().into();
            data["outcome"] = end.outcome().as_str().into();
            data["executionTime"] = end.time_ms().into();
        }
        data
    }

    pub(super) fn retained_bytes(&self) -> usize {
        self.end.as_ref().map_or(self.request.params_bytes, ResponseEvent::retained_bytes)
    }
}
