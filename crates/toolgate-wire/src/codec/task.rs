//! Tasks, both ways: the core tasks of one edition and the extension of the
//! next, which are the same thing under different names.

use std::sync::Arc;

use super::ask::read_embedded;
use super::fields::{Field, Part};
use super::object::{Object, Put};
use super::put::{Inlined, read_fault};
use super::reply::read_tool_output;
use crate::Edition::{self, E2025_11_25, E2026_07_28};
use crate::model::{Outcome, Task, TaskEnd, TaskState};
use crate::{Fault, FaultKind};

impl Put for TaskState {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        self.name().put(out, edition);
    }
}

/// A task in a list.
impl Put for Task {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        put_task(Object::open(out, edition), edition, self).close();
    }
}

/// What every shape of a task has.
pub(super) fn put_task<'o>(object: Object<'o>, edition: Edition, task: &Task) -> Object<'o> {
    // Times are the rest, and the last two are details.
    let Task { id, state, message, created_at: _, updated_at: _, ttl_ms: _, poll_ms: _, asks: _, end: _ } =
        task;
    let (state, message) = match failure(task).filter(|_| edition < E2026_07_28) {
        Some(said) => (TaskState::Failed, message.as_deref().or(said)),
        None => (*state, message.as_deref()),
    };
    let object = object.field("taskId", id).field("status", &state).some("statusMessage", &message);
    put_rest_of_task(object, edition, task)
}

/// When, and for how long.
pub(super) fn put_rest_of_task<'o>(object: Object<'o>, edition: Edition, task: &Task) -> Object<'o> {
    let (ttl, poll) = match edition >= E2026_07_28 {
        true => ("ttlMs", "pollIntervalMs"),
        false => ("ttl", "pollInterval"),
    };
    object
        .field("createdAt", &task.created_at)
        .field("lastUpdatedAt", &task.updated_at)
        // Null is a word here: kept for ever.
        .field(ttl, &task.ttl_ms)
        .some(poll, &task.poll_ms)
}

/// What a tool said that failed in its result. Spec, core tasks: that is a failed task; the extension calls it
/// completed.
fn failure(task: &Task) -> Option<Option<&str>> {
    match &task.end {
        Some(TaskEnd::Outcome(outcome)) => match &**outcome {
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
pub(super) fn put_task_details<'o>(object: Object<'o>, task: &Task) -> Object<'o> {
    match (task.state, &task.end) {
        (TaskState::Working | TaskState::Cancelled, _) => object,
        (TaskState::InputRequired, _) => object.since(E2026_07_28, "inputRequests", &Given(&task.asks)),
        (TaskState::Completed, Some(TaskEnd::Outcome(outcome))) => {
            object.since(E2026_07_28, "result", &Inlined(outcome))
        }
        (TaskState::Completed, _) => object.since(E2026_07_28, "result", &Inlined(&Outcome::Done)),
        (TaskState::Failed, Some(TaskEnd::Fault(fault))) => object.since(E2026_07_28, "error", fault),
        (TaskState::Failed, _) => {
            let message = task.message.as_deref().unwrap_or("the task failed");
            object.since(E2026_07_28, "error", &Fault::new(FaultKind::Internal, message))
        }
    }
}

/// A value that is said even if it is empty.
struct Given<'a, T>(&'a T);

impl<T: Put> Put for Given<'_, T> {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        self.0.put(out, edition);
    }
}

pub(super) fn read_task_item(edition: Edition, field: &Field<'_>) -> Result<Task, Fault> {
    read_task(edition, &field.part("task")?)
}

pub(super) fn read_task(edition: Edition, part: &Part<'_>) -> Result<Task, Fault> {
    let (ttl, poll) = match edition == E2025_11_25 {
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
    let state = state.word("a state of a task", TaskState::of)?;
    let detailed = edition >= E2026_07_28;
    Ok(Task {
        id: id.text()?,
        state,
        message: message.maybe_text()?,
        created_at: created_at.text()?,
        updated_at: updated_at.text()?,
        ttl_ms: ttl.maybe_count()?,
        poll_ms: poll.maybe_count()?,
        asks: match state {
            TaskState::InputRequired if detailed => {
                asks.maybe_map(|ask| read_embedded(edition, ask).map(Some))?
            }
            _ => Default::default(),
        },
        end: match state {
            TaskState::Completed if detailed => read_result(edition, result)?,
            TaskState::Failed if detailed => {
                let error = error.maybe_part("error")?.map(|error| read_fault(edition, &error));
                error.transpose()?.map(TaskEnd::Fault)
            }
            _ => None,
        },
    })
}

/// Only calls of tools run as tasks.
fn read_result(edition: Edition, field: &Field<'_>) -> Result<Option<TaskEnd>, Fault> {
    let Some(part) = field.maybe_part("result")? else {
        return Ok(None);
    };
    let outcome = match part.field("content").given() {
        Some(_) => Outcome::Tool(read_tool_output(edition, &part)?),
        None => Outcome::Done,
    };
    Ok(Some(TaskEnd::Outcome(Arc::new(outcome))))
}
