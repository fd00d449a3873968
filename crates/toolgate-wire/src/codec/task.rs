//! Reads and writes tasks: the core tasks of one version and the extension of the next, which differ in field names only.

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

/// Writes a task in a list.
impl WriteJson for Task {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        add_task_fields(ObjectWriter::open(out, version), version, self).close();
    }
}

/// Adds the fields that a task always has.
pub(super) fn add_task_fields<'o>(
    object: ObjectWriter<'o>,
    version: ProtocolVersion,
    task: &Task,
) -> ObjectWriter<'o> {
    // `add_task_time_fields` writes the times, `add_task_details` the last two.
    let Task {
        id,
        status,
        status_message,
        created_at: _,
        last_updated_at: _,
        ttl_ms: _,
        poll_interval_ms: _,
        input_requests: _,
        outcome: _,
    } = task;
    let (status, status_message) = match tool_failure_message(task).filter(|_| version < V2026_07_28) {
        Some(failure) => (TaskStatus::Failed, status_message.as_deref().or(failure)),
        None => (*status, status_message.as_deref()),
    };
    let object =
        object.field("taskId", id).field("status", &status).optional("statusMessage", &status_message);
    add_task_time_fields(object, version, task)
}

/// Adds the times of a task.
pub(super) fn add_task_time_fields<'o>(
    object: ObjectWriter<'o>,
    version: ProtocolVersion,
    task: &Task,
) -> ObjectWriter<'o> {
    let (ttl, poll_interval) = match version >= V2026_07_28 {
        true => ("ttlMs", "pollIntervalMs"),
        false => ("ttl", "pollInterval"),
    };
    object
        .field("createdAt", &task.created_at)
        .field("lastUpdatedAt", &task.last_updated_at)
        // `null` is meaningful here: the task is kept without limit.
        .field(ttl, &task.ttl_ms)
        .optional(poll_interval, &task.poll_interval_ms)
}

/// Returns the message of a tool that failed in its result. Spec, core tasks: such a task is failed; in the extension it is
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

/// Adds the requests of a task that waits for input, or its result or error. The status determines which, since readers
/// expect exactly the member that belongs to it.
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
        (TaskStatus::Failed, Some(TaskOutcome::Error(error))) => object.since(V2026_07_28, "error", error),
        (TaskStatus::Failed, _) => {
            let status_message = task.status_message.as_deref().unwrap_or("the task failed");
            object.since(
                V2026_07_28,
                "error",
                &ProtocolError::new(ProtocolErrorKind::Internal, status_message),
            )
        }
    }
}

/// A value that is written even if it is empty.
struct AlwaysPresent<'a, T>(&'a T);

impl<T: WriteJson> WriteJson for AlwaysPresent<'_, T> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        self.0.write_json(out, version);
    }
}

pub(super) fn read_task_item(version: ProtocolVersion, field: &Field<'_>) -> Result<Task, ProtocolError> {
    read_task(version, &field.reader("task")?)
}

pub(super) fn read_task(version: ProtocolVersion, reader: &ObjectReader<'_>) -> Result<Task, ProtocolError> {
    let (ttl, poll_interval) = match version == V2025_11_25 {
        true => ("ttl", "pollInterval"),
        false => ("ttlMs", "pollIntervalMs"),
    };
    let [
        id,
        status,
        status_message,
        created_at,
        updated_at,
        ttl,
        poll_interval,
        input_requests,
        result,
        error,
    ] = &reader.pick([
        "taskId",
        "status",
        "statusMessage",
        "createdAt",
        "lastUpdatedAt",
        ttl,
        poll_interval,
        "inputRequests",
        "result",
        "error",
    ]);
    let status = status.keyword("a task status", TaskStatus::from_name)?;
    let is_extension = version >= V2026_07_28;
    Ok(Task {
        id: id.string()?,
        status,
        status_message: status_message.maybe_string()?,
        created_at: created_at.string()?,
        last_updated_at: updated_at.string()?,
        ttl_ms: ttl.maybe_count()?,
        poll_interval_ms: poll_interval.maybe_count()?,
        input_requests: match status {
            TaskStatus::InputRequired if is_extension => {
                input_requests.maybe_map(|request| read_input_request(version, request).map(Some))?
            }
            _ => Default::default(),
        },
        outcome: match status {
            TaskStatus::Completed if is_extension => read_task_result(version, result)?,
            TaskStatus::Failed if is_extension => {
                let error = error.maybe_reader("error")?.map(|error| read_protocol_error(version, &error));
                error.transpose()?.map(TaskOutcome::Error)
            }
            _ => None,
        },
    })
}

/// Only tool calls run as tasks.
fn read_task_result(
    version: ProtocolVersion,
    field: &Field<'_>,
) -> Result<Option<TaskOutcome>, ProtocolError> {
    let Some(reader) = field.maybe_reader("result")? else {
        return Ok(None);
    };
    let outcome = match reader.field("content").value_or_null() {
        Some(_) => Outcome::Tool(read_tool_output(version, &reader)?),
        None => Outcome::Empty,
    };
    Ok(Some(TaskOutcome::Result(Arc::new(outcome))))
}
