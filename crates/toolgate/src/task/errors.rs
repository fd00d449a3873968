//! Errors that tasks report to clients. The details of store errors go to the log only.

use toolgate_wire::model::ToolOutput;
use toolgate_wire::{ProtocolError, ProtocolErrorKind};

use crate::request::{CallError, ToolFailure};
use crate::store::StoreError;

const STORE_UNAVAILABLE: &str = "storage unavailable, try again";

/// The store failed while a task was read or changed.
pub(super) fn store_unavailable(error: &StoreError) -> ProtocolError {
    tracing::warn!(%error, "cannot read or change a task");
    ProtocolError::new(ProtocolErrorKind::Busy, STORE_UNAVAILABLE)
}

/// The store failed while a task was created.
pub(super) fn create_failed(error: &StoreError) -> CallError {
    tracing::warn!(%error, "cannot store a new task");
    CallError::Tool(ToolFailure::Internal { reference: None }, Box::new(ToolOutput::error(STORE_UNAVAILABLE)))
}

/// A random id was drawn twice, or an operation took effect although the store reported an error.
pub(super) fn already_exists() -> StoreError {
    StoreError::Unavailable("it exists already".into())
}

pub(super) fn too_many_tasks() -> CallError {
    let message = "too many tasks: wait for some of them to end, or cancel them";
    CallError::Tool(ToolFailure::Internal { reference: None }, Box::new(ToolOutput::error(message)))
}
