//! Imported operations as tools of a server.

use std::sync::Arc;

use serde_json::{Map, Value};
use toolgate::{Context, HandlerError, Server, ToolSpec};

use super::Operation;
use crate::source::{BackendFuture, ToolBackend, backend_tool};

impl Operation {
    /// The tool of this operation, which `backend` executes.
    pub fn tool_spec(&self, backend: Arc<dyn ToolBackend>) -> ToolSpec {
        let mut spec = backend_tool(&self.name, backend)
            .input_schema(self.input_schema.clone())
            .hints(self.hints.clone());
        if let Some(title) = &self.title {
            spec = spec.title(title);
        }
        if let Some(description) = &self.description {
            spec = spec.describe(description);
        }
        if let Some(schema) = &self.output_schema {
            spec = spec.output_schema(schema.clone());
        }
        spec
    }
}

/// Checks whether a server with the tools of these operations can be built. The error is the last problem.
pub fn validate_tools<'a>(operations: impl IntoIterator<Item = &'a Operation>) -> Result<(), String> {
    let mut builder = Server::new("trial", "1");
    for operation in operations {
        builder = builder.add_tool(operation.tool_spec(Arc::new(UnavailableBackend))).done();
    }
    match builder.build() {
        Ok(_) => Ok(()),
        Err(error) => Err(error.problems().last().map_or_else(|| error.to_string(), ToString::to_string)),
    }
}

/// A backend for servers that are built to check their tools, and never called.
struct UnavailableBackend;

impl ToolBackend for UnavailableBackend {
    fn execute<'a>(&'a self, _: &'a Context, _: &'a Map<String, Value>) -> BackendFuture<'a> {
        Box::pin(async { Err(HandlerError::new("this backend is never called")) })
    }
}
