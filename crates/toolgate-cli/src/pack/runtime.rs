//! Builtins of the pack `runtime`: inspect and control the running process.
//!
//! A value that does not exist on this system, or has no equivalent in this program, is reported as `{"available":
//! false}` with a reason instead of an error, so that a query for everything still returns the rest.

mod caches;
mod connections;
mod crates;
mod executors;
mod health;
mod host;
mod jobs;
mod modules;
mod process;
mod procfs;
mod program;
mod servers;
mod subsystems;
mod telemetry;

#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;

use serde_json::{Map, Value};
use toolgate::model::ToolOutput;
use toolgate::{Context, HandlerError, RawJson};
use toolgate_sources::source::{BackendFuture, BackendReadFuture, ToolBackend};

use super::runtime_state::RuntimeState;

/// The result of a builtin: JSON or an error.
type BuiltinResult = Result<Value, HandlerError>;

type BuiltinFuture<'a> = Pin<Box<dyn Future<Output = BuiltinResult> + Send + 'a>>;

/// The implementation of a builtin.
#[derive(Clone, Copy)]
enum Builtin {
    Sync(fn(&BuiltinContext, BuiltinArguments<'_>) -> BuiltinResult),
    /// An async implementation.
    Async(for<'a> fn(&'a BuiltinContext, BuiltinArguments<'a>) -> BuiltinFuture<'a>),
    /// This program has no equivalent, for the reason given.
    Unavailable(&'static str),
}

/// The context of a call.
struct BuiltinContext {
    state: Arc<RuntimeState>,
    /// The server that the tool belongs to.
    server: String,
}

/// The arguments of a call.
#[derive(Clone, Copy)]
struct BuiltinArguments<'a>(&'a Map<String, Value>);

impl<'a> BuiltinArguments<'a> {
    fn text(self, name: &str) -> Option<&'a str> {
        self.0.get(name)?.as_str().filter(|text| !text.is_empty())
    }

    /// Returns a required string argument.
    fn require(self, name: &str) -> Result<&'a str, HandlerError> {
        self.text(name).ok_or_else(|| HandlerError::new(format!("`{name}` is missing")))
    }

    fn number(self, name: &str) -> Option<u64> {
        // URI variables are strings.
        let value = self.0.get(name)?;
        value.as_u64().or_else(|| value.as_str()?.parse().ok())
    }

    fn flag(self, name: &str) -> Option<bool> {
        self.0.get(name)?.as_bool()
    }

    /// The `limit` argument, or a default.
    fn limit(self, default: usize) -> usize {
        self.number("limit")
            .map_or(default, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
            .clamp(1, 10_000)
    }
}

/// The lookup functions of all modules.
const BUILTINS: [fn(&str) -> Option<Builtin>; 11] = [
    program::builtin,
    crates::builtin,
    servers::builtin,
    modules::builtin,
    process::builtin,
    telemetry::builtin,
    caches::builtin,
    connections::builtin,
    executors::builtin,
    jobs::builtin,
    subsystems::builtin,
];

/// Returns the builtin with this name.
pub(super) fn builtin(name: &str, server: &str, state: &Arc<RuntimeState>) -> Option<Arc<dyn ToolBackend>> {
    let builtin = BUILTINS.iter().find_map(|builtin| builtin(name))?;
    let context = BuiltinContext { state: Arc::clone(state), server: server.to_owned() };
    Some(Arc::new(BuiltinBackend { context, builtin }))
}

struct BuiltinBackend {
    context: BuiltinContext,
    builtin: Builtin,
}

impl BuiltinBackend {
    async fn run(&self, arguments: &Map<String, Value>) -> BuiltinResult {
        match self.builtin {
            Builtin::Sync(function) => function(&self.context, BuiltinArguments(arguments)),
            Builtin::Async(function) => function(&self.context, BuiltinArguments(arguments)).await,
            Builtin::Unavailable(reason) => Ok(procfs::unavailable(reason)),
        }
    }
}

impl ToolBackend for BuiltinBackend {
    fn execute<'a>(&'a self, _: &'a Context, arguments: &'a Map<String, Value>) -> BackendFuture<'a> {
        Box::pin(async move { self.run(arguments).await.map(|value| to_output(&value)) })
    }

    /// A `null` result means that the resource does not exist.
    fn read<'a>(&'a self, _: &'a Context, arguments: &'a Map<String, Value>) -> BackendReadFuture<'a> {
        Box::pin(async move {
            let value = self.run(arguments).await?;
            Ok((!value.is_null()).then(|| to_output(&value)))
        })
    }
}

/// Converts JSON to a tool result: text for models, and structured content if it is an object. A string is returned
/// as text.
fn to_output(value: &Value) -> ToolOutput {
    if let Value::String(text) = value {
        return ToolOutput::text(text.clone());
    }
    let raw = RawJson::from(value);
    let structured = value.is_object().then(|| raw.clone());
    let mut output = ToolOutput::text(raw.as_str());
    output.structured_content = structured;
    output
}

/// Finds an item by name. The error lists the names that exist.
fn find_by_name<'a, T>(
    kind: &str,
    name: &str,
    all: impl IntoIterator<Item = T>,
    name_of: impl Fn(&T) -> &str + 'a,
) -> Result<T, HandlerError> {
    let mut names = Vec::new();
    for item in all {
        if name_of(&item) == name {
            return Ok(item);
        }
        names.push(name_of(&item).to_owned());
    }
    let known_names =
        if names.is_empty() { "there are none".to_owned() } else { format!("known: {}", names.join(", ")) };
    Err(HandlerError::new(format!("unknown {kind} `{name}`; {known_names}")))
}

/// The health of all subsystems.
pub(crate) fn health(state: &RuntimeState) -> Value {
    health::overall_health(&subsystems::health_reports(state))
}

/// A list as an object with a count, so that it can be structured content.
fn list_json(key: &str, items: Vec<Value>) -> Value {
    let count = Value::from(items.len());
    Value::Object(Map::from_iter([("count".to_owned(), count), (key.to_owned(), Value::Array(items))]))
}
