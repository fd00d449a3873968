//! Completes the arguments of a call with defaults and with values of the caller.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use toolgate::{Context, HandlerError};
use toolgate_schema::Schema;

use crate::config::{Argument, ArgumentOrigin, Arguments};

/// Maximum size of one argument of a prompt or template.
const MAX_TEXT_ARGUMENT_BYTES: usize = 64 * 1024;

/// Completes the arguments of a call. Each argument has a validator if it is not validated elsewhere.
#[derive(Debug)]
pub(super) struct ArgumentResolver(Vec<(Argument, Option<Schema>)>);

impl ArgumentResolver {
    /// For tools: the library validates the arguments that clients send, so only values of the caller are validated here.
    pub(super) fn for_tool(arguments: &Arguments) -> ArgumentResolver {
        ArgumentResolver::new(arguments, |argument| argument.origin.is_some())
    }

    /// For prompts and templates, whose arguments are texts.
    pub(super) fn for_text_arguments(arguments: &Arguments) -> ArgumentResolver {
        ArgumentResolver::new(arguments, |_| true)
    }

    fn new(arguments: &Arguments, is_checked: impl Fn(&Argument) -> bool) -> ArgumentResolver {
        let checked = |argument: &Argument| {
            let validator = is_checked(argument).then(|| Schema::new(&argument.schema).ok());
            (argument.clone(), validator.flatten())
        };
        ArgumentResolver(arguments.list.iter().map(checked).collect())
    }

    /// Adds defaults and values of the caller. An argument that a client sends under the name of such a value is dropped.
    pub(super) fn resolve(&self, arguments: Value, cx: &Context) -> Result<Map<String, Value>, HandlerError> {
        let mut all = match arguments {
            Value::Object(all) => all,
            _ => Map::new(),
        };
        for (argument, validator) in &self.0 {
            let name = &argument.name;
            if let Some(origin) = &argument.origin {
                all.remove(name);
                match value_from_caller(origin, cx) {
                    Some(value) => {
                        let value = coerce(&value, &argument.schema);
                        if !validator.as_ref().is_some_and(|validator| validator.is_valid(&value)) {
                            return Err(HandlerError::new(format!(
                                "{} is not valid for this tool",
                                origin_name(origin)
                            )));
                        }
                        all.insert(name.clone(), value);
                        continue;
                    }
                    None if argument.default.is_none() && argument.is_required => {
                        return Err(HandlerError::new(format!(
                            "this requires {}, which the call does not have",
                            origin_name(origin)
                        )));
                    }
                    None => {}
                }
            }
            if let (false, Some(default)) = (all.contains_key(name), &argument.default) {
                all.insert(name.clone(), default.clone());
            }
        }
        Ok(all)
    }

    /// Converts texts to the types of their schemas and validates them. Unknown names are dropped.
    pub(super) fn coerce_texts(&self, texts: Vec<(String, String)>) -> Result<Value, HandlerError> {
        let mut all = Map::new();
        for (name, text) in texts {
            let Some((argument, validator)) = self.0.iter().find(|(known, _)| known.name == name) else {
                continue;
            };
            let value = coerce(&Value::String(text), &argument.schema);
            if let Some(Err(error)) = validator.as_ref().map(|validator| validator.validate(&value)) {
                return Err(HandlerError::new(format!("`{name}`: {error}")));
            }
            all.insert(name, value);
        }
        Ok(Value::Object(all))
    }

    /// Checks the size and the values of text arguments.
    pub(super) fn check(&self, texts: &BTreeMap<String, String>) -> Result<(), String> {
        if let Some((name, _)) = texts.iter().find(|(_, text)| text.len() > MAX_TEXT_ARGUMENT_BYTES) {
            return Err(format!("`{name}` is longer than 64 KiB"));
        }
        let pairs = texts.iter().map(|(name, text)| (name.clone(), text.clone())).collect();
        self.coerce_texts(pairs).map(|_| ()).map_err(|error| error.to_string())
    }
}

fn value_from_caller(origin: &ArgumentOrigin, cx: &Context) -> Option<Value> {
    match origin {
        ArgumentOrigin::Subject => cx.principal().id().map(Value::from),
        ArgumentOrigin::Attribute(name) => cx.principal().attribute(name).cloned(),
        ArgumentOrigin::Header(name) => {
            cx.headers().get(name).and_then(|value| value.to_str().ok()).map(Value::from)
        }
    }
}

fn origin_name(origin: &ArgumentOrigin) -> String {
    match origin {
        ArgumentOrigin::Subject => "the name of the caller".into(),
        ArgumentOrigin::Attribute(name) => format!("the caller's `{name}`"),
        ArgumentOrigin::Header(name) => format!("the header `{name}`"),
    }
}

/// Converts a text to the type of a schema, or returns it unchanged.
fn coerce(value: &Value, schema: &Value) -> Value {
    let Value::String(text) = value else {
        return value.clone();
    };
    let parsed: Option<Value> = match schema["type"].as_str() {
        Some("integer") => text.trim().parse::<i64>().ok().map(Value::from),
        Some("number") => text.trim().parse::<f64>().ok().map(Value::from),
        Some("boolean") => text.trim().parse::<bool>().ok().map(Value::from),
        Some("array" | "object") => serde_json::from_str(text).ok(),
        _ => None,
    };
    parsed.unwrap_or_else(|| value.clone())
}

/// Checks that the caller has all scopes. Credentials hide tools whose scopes they lack; this also covers callers without a
/// credential of the configuration.
pub(super) fn require_scopes(cx: &Context, required: &[String]) -> Result<(), HandlerError> {
    let empty = Vec::new();
    let granted = cx.principal().attribute("scopes").and_then(Value::as_array).unwrap_or(&empty);
    match required.iter().find(|scope| !granted.iter().any(|known| known.as_str() == Some(scope))) {
        None => Ok(()),
        Some(scope) => Err(HandlerError::new(format!("this requires the scope `{scope}`"))),
    }
}
