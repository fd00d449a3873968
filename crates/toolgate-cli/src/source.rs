//! Tool backends: each source turns a description from the configuration into a [`ToolBackend`].

pub(crate) mod bounded_writer;
pub(crate) mod call_queue;
pub(crate) mod command;
pub(crate) mod egress;
pub(crate) mod files;
pub(crate) mod http;
pub(crate) mod openapi;
pub(crate) mod percent;
pub(crate) mod placeholders;
pub(crate) mod prompt;
pub(crate) mod sanitize;
pub(crate) mod sql;
pub(crate) mod text;

use std::pin::Pin;

use serde_json::{Map, Value};
use toolgate::model::ToolOutput;
use toolgate::{Context, HandlerError};

/// The boxed future of a call.
pub(crate) type BackendFuture<'a> =
    Pin<Box<dyn Future<Output = Result<ToolOutput, HandlerError>> + Send + 'a>>;

/// The boxed future of a resource read. Its value is `None` if the resource does not exist.
pub(crate) type BackendReadFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Option<ToolOutput>, HandlerError>> + Send + 'a>>;

/// Executes a tool or reads a resource.
///
/// Arguments have been validated against their schema, defaults are filled in, and arguments that come from the
/// caller's identity are among them.
pub(crate) trait ToolBackend: Send + Sync + 'static {
    fn execute<'a>(&'a self, cx: &'a Context, arguments: &'a Map<String, Value>) -> BackendFuture<'a>;

    /// Reads a resource. Returns `None` if it does not exist.
    fn read<'a>(&'a self, cx: &'a Context, arguments: &'a Map<String, Value>) -> BackendReadFuture<'a> {
        Box::pin(async move { self.execute(cx, arguments).await.map(Some) })
    }

    /// The JSON Schema of the result, if the backend knows it.
    fn output_schema(&self) -> Option<Value> {
        None
    }
}

/// An error in a description: its location (a dotted path below the source's own table) and the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) path: String,
    pub(crate) message: String,
}

/// A JSON value as text: strings without quotes, everything else as JSON.
pub(crate) fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
