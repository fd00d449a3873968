//! What tools are made of, where nobody writes Rust: each source turns a description into something that acts.

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

/// A future with its type forgotten.
pub(crate) type BackendFuture<'a> =
    Pin<Box<dyn Future<Output = Result<ToolOutput, HandlerError>> + Send + 'a>>;

/// The same for those who read: none if there is no such thing.
pub(crate) type BackendReadFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Option<ToolOutput>, HandlerError>> + Send + 'a>>;

/// What a tool does with its arguments, whatever it is made of. They have been checked against their schema, defaults
/// are filled in, and those that come from the caller are among them.
pub(crate) trait ToolBackend: Send + Sync + 'static {
    fn execute<'a>(&'a self, cx: &'a Context, arguments: &'a Map<String, Value>) -> BackendFuture<'a>;

    /// What a resource does, that may not be there.
    fn read<'a>(&'a self, cx: &'a Context, arguments: &'a Map<String, Value>) -> BackendReadFuture<'a> {
        Box::pin(async move { self.execute(cx, arguments).await.map(Some) })
    }

    /// What the result looks like, where the source knows.
    fn output_schema(&self) -> Option<Value> {
        None
    }
}

/// Why a description cannot be served: where in the description (a dotted path below the source's own table), what is wrong, what to do.
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
