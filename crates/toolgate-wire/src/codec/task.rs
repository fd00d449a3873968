//! Tasks, both ways: the core tasks of one edition and the extension of the
//! next, which are the same thing under different names.

use std::sync::Arc;

use super::error::read_protocol_error;
use super::fields::{Field, ObjectReader};
use super::object::{ObjectWriter, WriteJson};
use super::outcome_reader::read_tool_output;
use super::outcome_writer::EmbeddedOutcome;
use super::server_request::read_input_request;
use crate::ProtocolVersion::{self, V2025_11_25, V2026_07_28};
use crate::model::{Outcome, Task, TaskOutcome, TaskStatus};
use crate::{ProtocolError, ProtocolErrorKind};

impl WriteJson for TaskStatus {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        self.name().write_json(out, version);
    }
}

/// A task in a list.
impl WriteJson for Task {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        add_task_fields(ObjectWriter::open(out, version), version, self).close();
    }
}

/// What every shape of a task has.
pub(super) fn add_task_fields<'o>(
    object: ObjectWriter<'o>,
    version: ProtocolVersion,
    task: &Task,
) -> ObjectWriter<'o> {
    // Times are the rest, and the last two are details.
    let Task {
        id,
        status: state,
        status_message: message,
        created_at: _,
        last_updated_at: _,
        ttl_ms: _,
        poll_interval_ms: _,
        input_requests: _,
        outcome: _,
    } = task;
    let (state, message) = match tool_failure_message(task).filter(|_| version < V2026_07_28) {
        Some(said) => (TaskStatus::Failed, message.as_deref().or(said)),
        None => (*state, message.as_deref()),
    };
    let object = object.field("taskId", id).field("status", &state).optional("statusMessage", &message);
    add_task_time_fields(object, version, task)
}

/// When, and for how long.
pub(super) fn add_task_time_fields<'o>(
    object: ObjectWriter<'o>,
    version: ProtocolVersion,
    task: &Task,
) -> ObjectWriter<'o> {
    let (ttl, poll) = match version >= V2026_07_28 {
        true => ("ttlMs", "pollIntervalMs"),
        false => ("ttl", "pollInterval"),
    };
    object
        .field("createdAt", &task.created_at)
        .field("lastUpdatedAt", &task.last_updated_at)
        // Null is a word here: kept for ever.
        .field(ttl, &task.ttl_ms)
        .optional(poll, &task.poll_interval_ms)
}

/// What a tool said that failed in its result. Spec, core tasks: that is a failed task; the extension calls it
/// completed.
fn tool_failure_message(task: &Task) -> Option<Option<&str>> {
    match &task.outcome {
        Some(TaskOutcome::Result(outcome)) => match &**outcome {
            Outcome::Tool(output) if output.is_error => {
                Some(output.content.first().and_then(|content| content.as_text()))
            }
            _ => None,
        },
        _ => None,
    }
}

/// What a task waits for, or how it ended. The state decides which of them is
/// said, because a reader tells the shapes apart by it, and needs it then.
pub(super) fn add_task_details<'o>(object: ObjectWriter<'o>, task: &Task) -> ObjectWriter<'o> {
    match (task.status, &task.outcome) {
        (TaskStatus::Working | TaskStatus::Cancelled, _) => object,
        (TaskStatus::InputRequired, _) => {
            object.since(V2026_07_28, "inputRequests", &AlwaysPresent(&task.input_requests))
        }
        (TaskStatus::Completed, Some(TaskOutcome::Result(outcome))) => {
            object.since(V2026_07_28, "result", &EmbeddedOutcome(outcome))
        }
        (TaskStatus::Completed, _) => object.since(V2026_07_28, "result", &EmbeddedOutcome(&Outcome::Empty)),
        (TaskStatus::Failed, Some(TaskOutcome::Error(fault))) => object.since(V2026_07_28, "error", fault),
        (TaskStatus::Failed, _) => {
            let message = task.status_message.as_deref().unwrap_or("the task failed");
            object.since(V2026_07_28, "error", &ProtocolError::new(ProtocolErrorKind::Internal, message))
        }
    }
}

/// A value that is said even if it is empty.
struct AlwaysPresent<'a, T>(&'a T);

impl<T: WriteJson> WriteJson for AlwaysPresent<'_, T> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        self.0.write_json(out, version);
    }
}

pub(super) fn read_task_item(version: ProtocolVersion, field: &Field<'_>) -> Result<Task, ProtocolError> {
    read_task(version, &field.reader("task")?)
}

pub(super) fn read_task(version: ProtocolVersion, part: &ObjectReader<'_>) -> Result<Task, ProtocolError> {
    let (ttl, poll) = match version == V2025_11_25 {
        true => ("ttl", "pollInterval"),
        false => ("ttlMs", "pollIntervalMs"),
    };
    let [id, state, message, created_at, updated_at, ttl, poll, asks, result, error] = &part.pick([
        "taskId",
        "status",
        "statusMessage",
        "createdAt",
        "lastUpdatedAt",
        ttl,
        poll,
        "inputRequests",
        "result",
        "error",
    ]);
    let state = state.keyword("a task status", TaskStatus::from_name)?;
    let detailed = version >= V2026_07_28;
    Ok(Task {
        id: id.string()?,
        status: state,
        status_message: message.maybe_string()?,
        created_at: created_at.string()?,
        last_updated_at: updated_at.string()?,
        ttl_ms: ttl.maybe_count()?,
        poll_interval_ms: poll.maybe_count()?,
        input_requests: match state {
            TaskStatus::InputRequired if detailed => {
                asks.maybe_map(|ask| read_input_request(version, ask).map(Some))?
            }
            _ => Default::default(),
        },
        outcome: match state {
            TaskStatus::Completed if detailed => read_task_result(version, result)?,
            TaskStatus::Failed if detailed => {
                let error = error.maybe_reader("error")?.map(|error| read_protocol_error(version, &error));
                error.transpose()?.map(TaskOutcome::Error)
            }
            _ => None,
        },
    })
}

/// Only calls of tools run as tasks.
fn read_task_result(
    version: ProtocolVersion,
    field: &Field<'_>,
) -> Result<Option<TaskOutcome>, ProtocolError> {
    let Some(part) = field.maybe_reader("result")? else {
        return Ok(None);
    };
    let outcome = match part.field("content").value_or_null() {
        Some(_) => Outcome::Tool(read_tool_output(version, &part)?),
        None => Outcome::Empty,
    };
    Ok(Some(TaskOutcome::Result(Arc::new(outcome))))
}
