//! Reading tasks: `tasks/get`, `tasks/list` and `tasks/result`.

use std::sync::Arc;

use toolgate_wire::model::{
    CacheHint, ElicitRequest, Outcome, Page, ServerRequest, Task, TaskOutcome, TaskStatus, ToolOutput,
};
use toolgate_wire::{ProtocolError, ProtocolErrorKind, RawJson, codec};

use super::Tasks;
use super::errors::store_unavailable;
use super::record::TaskRecord;
use super::records::record_space;
use super::waiters::POLL_INTERVAL;
use crate::handler::{ClientChannel, ServerRequestErrorKind};
use crate::request::CallError;
use crate::seal::random_token;

/// Limit of the tasks on one page of a list.
const MAX_PAGE_TASKS: usize = 50;
/// Size of the records after which a page ends early.
const MAX_PAGE_BYTES: usize = 4 << 20;

impl Tasks {
    /// Returns a task.
    pub(crate) async fn get(&self, owner: &str, id: &str) -> Result<Task, ProtocolError> {
        self.start_background();
        let found = self.inner.find(owner, id).await.map_err(|error| store_unavailable(&error))?;
        Ok(found.ok_or_else(|| ProtocolError::task_not_found(id))?.0.task)
    }

    /// Returns a task for a change notification, or `None` if it is not found or the store fails.
    pub(crate) async fn try_get(&self, owner: &str, id: &str) -> Option<Task> {
        self.inner.find(owner, id).await.ok().flatten().map(|(record, _)| record.task)
    }

    /// Returns a page of an owner's tasks.
    pub(crate) async fn list(&self, owner: &str, cursor: Option<&str>) -> Result<Page<Task>, ProtocolError> {
        self.start_background();
        let purpose = format!("tasks of {owner}");
        let mut after = match cursor {
            None => None,
            Some(cursor) => {
                let unknown = || ProtocolError::invalid_params("unknown cursor; start again without one");
                let opened = self
                    .inner
                    .seal
                    .open(purpose.as_bytes(), cursor)
                    .ok()
                    .and_then(|key| String::from_utf8(key).ok());
                Some(Box::from(opened.ok_or_else(unknown)?))
            }
        };
        let space = self.inner.store.space(&record_space(owner));
        let (mut items, mut n_seen, mut bytes) = (Vec::new(), 0, 0);
        let next = loop {
            if n_seen == MAX_PAGE_TASKS || bytes >= MAX_PAGE_BYTES {
                break after.map(|name: Box<str>| self.inner.seal.seal(purpose.as_bytes(), name.as_bytes()));
            }
            // One at a time, because each record may be as large as the largest result.
            let found = self.inner.store.backend.list(&space, after.as_deref(), 1);
            let found = found.await.map_err(|error| store_unavailable(&error))?;
            let Some((name, entry)) = found.into_iter().next() else { break None };
            (n_seen, bytes, after) = (n_seen + 1, bytes + entry.value.len(), Some(name));
            items.extend(TaskRecord::decode(entry.value).map(|record| Arc::new(summarize(record.task))));
        };
        Ok(Page { items, next_cursor: next, cache: CacheHint::default() })
    }

    /// Waits until a task has ended and returns the result of its call.
    ///
    /// Input requests of the task are meanwhile sent to the client through `channel`.
    ///
    /// Cancel safe: yes, it can be called again.
    pub(crate) async fn result(
        &self,
        owner: &str,
        id: &str,
        channel: &dyn ClientChannel,
    ) -> Result<Outcome, CallError> {
        self.start_background();
        let inner = &self.inner;
        // Input requests that this client does not or cannot answer. Another client may.
        let mut unanswered = Vec::new();
        loop {
            let waiter = inner.waiter(id);
            let changed = waiter.notified();
            let found = inner.find(owner, id).await.map_err(|error| store_unavailable(&error))?;
            let (record, _) = found.ok_or_else(|| ProtocolError::task_not_found(id))?;
            if record.is_final() {
                return payload(record.task);
            }
            let pending = record.task.input_requests.into_iter().find(|(key, _)| !unanswered.contains(key));
            let Some((key, request)) = pending else {
                let _ = tokio::time::timeout(POLL_INTERVAL, changed).await;
                continue;
            };
            let result = tokio::select! {
                biased;
                result = channel.request_for_task(id, &key, with_elicitation_id(request)) => result,
                () = inner.wait_resolved(owner, id, &key) => continue,
            };
            let reply = match result {
                Ok(result) => codec::encode_client_result(&result),
                Err(error) => match error.0 {
                    ServerRequestErrorKind::Rejected(reason) => RawJson::string(&reason),
                    _ => {
                        unanswered.push(key);
                        continue;
                    }
                },
            };
            let mut set_reply = |record: &mut TaskRecord| record.set_reply(&key, reply.clone());
            let updated = inner.update_record(owner, id, None, &mut set_reply).await;
            updated.map_err(|error| store_unavailable(&error))?;
        }
    }
}

/// Returns the result of `tasks/result` for a task that has ended.
fn payload(task: Task) -> Result<Outcome, CallError> {
    match (task.status, task.outcome) {
        (TaskStatus::Cancelled, _) => Err(ProtocolError::new(
            ProtocolErrorKind::Internal,
            "the task was cancelled, so it has no result",
        )
        .into()),
        (_, Some(TaskOutcome::Result(output))) => Ok(Outcome::TaskPayload { id: task.id, output }),
        (_, Some(TaskOutcome::Error(error))) => Err(error.into()),
        (_, None) => Err(ProtocolError::new(ProtocolErrorKind::Internal, "the task has no result").into()),
    }
}

/// Gives a URL elicitation an id, which some protocol versions require. The id is not stored.
fn with_elicitation_id(request: ServerRequest) -> ServerRequest {
    match request {
        ServerRequest::Elicitation(ElicitRequest::Url { message, url, id }) if id.is_empty() => {
            ServerRequest::Elicitation(ElicitRequest::Url { message, url, id: random_token() })
        }
        request => request,
    }
}

/// Reduces a task to its form in lists: of its result, only whether it is an error.
fn summarize(task: Task) -> Task {
    let end = match task.outcome {
        Some(TaskOutcome::Result(outcome)) => match &*outcome {
            Outcome::Tool(ToolOutput { content, is_error: true, .. }) => {
                let content = content.iter().take(1).cloned().collect();
                let mut output = ToolOutput::new(content);
                output.is_error = true;
                Some(TaskOutcome::Result(Arc::new(Outcome::Tool(output))))
            }
            _ => None,
        },
        end => end,
    };
    Task { outcome: end, ..task }
}
