//! Tool backends: each source turns a description into a [`ToolBackend`].
//!
//! This module is shared with the program `toolgate`, and hidden: it may change in any release.

#[cfg(any(feature = "http", feature = "template"))]
mod bounded_writer;
pub mod call_observer;
#[cfg(any(feature = "http", feature = "command"))]
mod call_queue;
#[cfg(feature = "command")]
pub mod command;
#[cfg(feature = "http")]
pub mod egress;
#[cfg(feature = "files")]
pub mod files;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "openapi")]
pub mod openapi;
#[cfg(any(feature = "http", feature = "files"))]
mod percent;
#[cfg(feature = "command")]
pub mod placeholders;
#[cfg(feature = "template")]
pub mod prompt;
pub mod sanitize;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub mod sql;
#[cfg(feature = "template")]
pub mod text;

use std::pin::Pin;
use std::sync::Arc;

use serde_json::{Map, Value};
use toolgate::model::ToolOutput;
use toolgate::{Context, HandlerError, ToolSpec};

/// The boxed future of a call.
pub type BackendFuture<'a> = Pin<Box<dyn Future<Output = Result<ToolOutput, HandlerError>> + Send + 'a>>;

/// The boxed future of a resource read. Its value is `None` if the resource does not exist.
pub type BackendReadFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Option<ToolOutput>, HandlerError>> + Send + 'a>>;

/// Executes a tool or reads a resource.
///
/// Arguments have been validated against their schema, defaults are filled in, and arguments that come from the
/// caller's identity are among them.
pub trait ToolBackend: Send + Sync + 'static {
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

/// A tool that a backend executes.
pub fn backend_tool(name: &str, backend: Arc<dyn ToolBackend>) -> ToolSpec {
    ToolSpec::new(name, move |arguments: Value, cx: Context| {
        let backend = Arc::clone(&backend);
        async move {
            let arguments = match arguments {
                Value::Object(arguments) => arguments,
                _ => Map::new(),
            };
            backend.execute(&cx, &arguments).await
        }
    })
}

/// An error in a description: its location (a dotted path below the source's own table) and the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub path: String,
    pub message: String,
}

/// A JSON value as text: strings without quotes, everything else as JSON.
pub fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
