//! The acts of the pack `runtime`: what a person on call asks a running program, and what they may do about it.
//!
//! Whatever is not there on a system, or has no counterpart in this program, is answered with `{"available": false}` and a
//! reason instead of an error, so that whoever asks for everything gets everything else.

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

use super::runtime_state::RuntimeState;
use crate::source::{BackendFuture, BackendReadFuture, ToolBackend};

/// What an act says: JSON, or why not.
type BuiltinResult = Result<Value, HandlerError>;

type BuiltinFuture<'a> = Pin<Box<dyn Future<Output = BuiltinResult> + Send + 'a>>;

/// What does something, or looks.
#[derive(Clone, Copy)]
enum Builtin {
    Sync(fn(&BuiltinContext, BuiltinArguments<'_>) -> BuiltinResult),
    /// It has to wait for something.
    Async(for<'a> fn(&'a BuiltinContext, BuiltinArguments<'a>) -> BuiltinFuture<'a>),
    /// There is nothing like it in this program; why.
    Unavailable(&'static str),
}

/// Where an act finds itself.
struct BuiltinContext {
    state: Arc<RuntimeState>,
    /// The server that it is called through.
    server: String,
}

/// The arguments of a call.
#[derive(Clone, Copy)]
struct BuiltinArguments<'a>(&'a Map<String, Value>);

impl<'a> BuiltinArguments<'a> {
    fn text(self, name: &str) -> Option<&'a str> {
        self.0.get(name)?.as_str().filter(|text| !text.is_empty())
    }

    /// One that cannot be missing.
    fn require(self, name: &str) -> Result<&'a str, HandlerError> {
        self.text(name).ok_or_else(|| HandlerError::new(format!("`{name}` is missing")))
    }

    fn number(self, name: &str) -> Option<u64> {
        // Variables of URIs are texts.
        let value = self.0.get(name)?;
        value.as_u64().or_else(|| value.as_str()?.parse().ok())
    }

    fn flag(self, name: &str) -> Option<bool> {
        self.0.get(name)?.as_bool()
    }

    /// How many are wanted.
    fn limit(self, otherwise: usize) -> usize {
        self.number("limit")
            .map_or(otherwise, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
            .clamp(1, 10_000)
    }
}

/// The builtins of every module, by name.
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

/// What looks at the program, by name.
pub(super) fn builtin(name: &str, server: &str, world: &Arc<RuntimeState>) -> Option<Arc<dyn ToolBackend>> {
    let found = BUILTINS.iter().find_map(|builtin| builtin(name))?;
    let here = BuiltinContext { state: Arc::clone(world), server: server.to_owned() };
    Some(Arc::new(BuiltinBackend { context: here, builtin: found }))
}

struct BuiltinBackend {
    context: BuiltinContext,
    builtin: Builtin,
}

impl BuiltinBackend {
    async fn run(&self, arguments: &Map<String, Value>) -> BuiltinResult {
        match self.builtin {
            Builtin::Sync(act) => act(&self.context, BuiltinArguments(arguments)),
            Builtin::Async(act) => act(&self.context, BuiltinArguments(arguments)).await,
            Builtin::Unavailable(reason) => Ok(procfs::unavailable(reason)),
        }
    }
}

impl ToolBackend for BuiltinBackend {
    fn execute<'a>(&'a self, _: &'a Context, arguments: &'a Map<String, Value>) -> BackendFuture<'a> {
        Box::pin(async move { self.run(arguments).await.map(|said| to_output(&said)) })
    }

    /// What can be read and says that it is not there, is not there.
    fn read<'a>(&'a self, _: &'a Context, arguments: &'a Map<String, Value>) -> BackendReadFuture<'a> {
        Box::pin(async move {
            let said = self.run(arguments).await?;
            Ok((!said.is_null()).then(|| to_output(&said)))
        })
    }
}

/// JSON, as text for models and, where it is an object, as itself for programs. A text is itself.
fn to_output(value: &Value) -> ToolOutput {
    if let Value::String(text) = value {
        return ToolOutput::text(text.clone());
    }
    let raw = RawJson::from(value);
    let structured = value.is_object().then(|| raw.clone());
    ToolOutput { structured_content: structured, ..ToolOutput::text(raw.as_str()) }
}

/// The one of that name, or who there is instead.
fn find_by_name<'a, T>(
    what: &str,
    name: &str,
    all: impl IntoIterator<Item = T>,
    name_of: impl Fn(&T) -> &str + 'a,
) -> Result<T, HandlerError> {
    let mut names = Vec::new();
    for one in all {
        if name_of(&one) == name {
            return Ok(one);
        }
        names.push(name_of(&one).to_owned());
    }
    let there =
        if names.is_empty() { "there is none".to_owned() } else { format!("there is {}", names.join(", ")) };
    Err(HandlerError::new(format!("there is no {what} `{name}`; {there}")))
}

/// How well everything is, part by part.
pub(crate) fn health(world: &RuntimeState) -> Value {
    health::overall_health(&subsystems::health_reports(world))
}

/// A list as an answer: an object, so that programs get it as structure.
fn list_json(key: &str, items: Vec<Value>) -> Value {
    let count = Value::from(items.len());
    Value::Object(Map::from_iter([("count".to_owned(), count), (key.to_owned(), Value::Array(items))]))
}
