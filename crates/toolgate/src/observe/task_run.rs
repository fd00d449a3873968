//! One run of a tool as a task, which ends after the request that created the task.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use tokio::time::Instant;
use toolgate_wire::RawJson;

use super::events::{CallEnd, EventKind, RequestInfo, RequestInfoParts, ResponseEvent, ToolEvent, Transport};
use super::{CANCELLED_STATUS, EndStatus, EventKinds, Observer};
use crate::headers::RequestHeaders;
use crate::request::Principal;
use crate::util::clock::timer_now;

/// The kinds of events that a run has: it is not a request, and has no response.
const RUN_KINDS: [EventKind; 3] = [EventKind::ToolStart, EventKind::ToolEnd, EventKind::Error];

/// What is known about a run when it starts.
pub(crate) struct TaskRunInfo<'a> {
    pub(crate) task_id: &'a str,
    pub(crate) tool: &'a str,
    pub(crate) arguments: &'a RawJson,
    pub(crate) is_destructive: bool,
    pub(crate) headers: &'a Arc<RequestHeaders>,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) principal: &'a Principal,
    /// When the task fails unless it has ended.
    pub(crate) deadline: Option<Instant>,
}

/// One run of a tool as a task. Ends as cancelled if it is dropped before [`ObservedTaskRun::end`], or as timed out if
/// the deadline of its task has passed.
#[derive(Debug)]
pub(crate) struct ObservedTaskRun {
    observer: Observer,
    tool: Box<str>,
    is_destructive: bool,
    start_nanos: u64,
    deadline: Option<Instant>,
    kinds: EventKinds,
    /// `None` if there are no listeners.
    info: Option<Arc<RequestInfo>>,
    has_ended: bool,
}

impl Observer {
    /// Begins to observe a run, and publishes the event of its tool.
    pub(crate) fn begin_task_run(&self, run: &TaskRunInfo<'_>) -> ObservedTaskRun {
        let kinds = self.events.subscribed_kinds();
        let is_published = RUN_KINDS.into_iter().any(|kind| kinds.contains(kind));
        let info = is_published.then(|| {
            let params = json!({ "name": run.tool, "arguments": run.arguments.to_value() });
            let parts = RequestInfoParts {
                id: None,
                method: "tools/call",
                params: Some(&RawJson::from(params)),
                headers: run.headers,
                remote: run.remote,
                principal: run.principal,
                transport: Transport::Memory,
            };
            let info = RequestInfo::new(&self.server, &self.stats, &parts);
            Arc::new(RequestInfo { task: Some(run.task_id.into()), ..info })
        });
        if let Some(info) = info.as_ref().filter(|_| kinds.contains(EventKind::ToolStart)) {
            self.events.publish(ToolEvent::start(Arc::clone(info), run.is_destructive));
        }
        ObservedTaskRun {
            observer: self.clone(),
            tool: run.tool.into(),
            is_destructive: run.is_destructive,
            start_nanos: self.stats.nanos(),
            deadline: run.deadline,
            kinds,
            info,
            has_ended: false,
        }
    }
}

impl ObservedTaskRun {
    /// Records the end of the run, then notifies listeners.
    pub(crate) fn end(&mut self, status: EndStatus<'_>) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let ObservedTaskRun { observer, tool, is_destructive, kinds, .. } = self;
        let nanos = observer.stats.record_tool_run(self.start_nanos, tool, status);
        let Some(info) = self.info.take() else { return };
        let http_status = if status == EndStatus::Cancelled { CANCELLED_STATUS } else { 200 };
        // No response is sent, so there is no error code.
        let end = CallEnd { outcome: status.outcome(), error: None, nanos };
        let response = ResponseEvent::new(info, Bytes::new(), http_status, end);
        if kinds.contains(EventKind::ToolEnd) {
            observer.events.publish(ToolEvent::end(&response, *is_destructive));
        }
        if kinds.contains(EventKind::Error) {
            observer.publish_error(&response, status);
        }
    }
}

impl Drop for ObservedTaskRun {
    fn drop(&mut self) {
        let is_late = self.deadline.is_some_and(|deadline| timer_now() >= deadline);
        self.end(match is_late {
            true => EndStatus::TimedOut {
                code: super::ErrorCode::ToolError,
                message: "timeout: the task did not finish in the time it was given",
            },
            false => EndStatus::Cancelled,
        });
    }
}
