//! What a call brings beside what the model wrote: defaults, and arguments that come from the caller.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use toolgate::{Context, HandlerError};
use toolgate_schema::Schema;

use crate::config::{Argument, ArgumentOrigin, Arguments};

/// A text that is one argument of a prompt or of a template.
const MAX_TEXT_ARGUMENT_BYTES: usize = 64 * 1024;

/// Completes the arguments of a call.
#[derive(Debug)]
pub(super) struct ArgumentResolver(Vec<(Argument, Option<Schema>)>);

impl ArgumentResolver {
    /// For tools, whose other arguments are checked before anybody sees them.
    pub(super) fn for_tool(arguments: &Arguments) -> ArgumentResolver {
        ArgumentResolver::new(arguments, |argument| argument.origin.is_some())
    }

    /// For prompts and resources, whose arguments come as texts.
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

    /// With defaults, and with what comes from the caller. What a caller sends under such a name is not looked at.
    pub(super) fn resolve(&self, given: Value, cx: &Context) -> Result<Map<String, Value>, HandlerError> {
        let mut all = match given {
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

    /// Texts as what they are meant to be, each as its schema says.
    pub(super) fn coerce_texts(&self, words: Vec<(String, String)>) -> Result<Value, HandlerError> {
        let mut all = Map::new();
        for (name, word) in words {
            let Some((argument, validator)) = self.0.iter().find(|(known, _)| known.name == name) else {
                continue;
            };
            let value = coerce(&Value::String(word), &argument.schema);
            if let Some(Err(error)) = validator.as_ref().map(|validator| validator.validate(&value)) {
                return Err(HandlerError::new(format!("`{name}`: {error}")));
            }
            all.insert(name, value);
        }
        Ok(Value::Object(all))
    }

    /// Whether these texts can be arguments.
    pub(super) fn check(&self, words: &BTreeMap<String, String>) -> Result<(), String> {
        if let Some((name, _)) = words.iter().find(|(_, word)| word.len() > MAX_TEXT_ARGUMENT_BYTES) {
            return Err(format!("`{name}` is longer than 64 KiB"));
        }
        let pairs = words.iter().map(|(name, word)| (name.clone(), word.clone())).collect();
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

/// A text where something else is wanted, as that.
fn coerce(value: &Value, schema: &Value) -> Value {
    let Value::String(text) = value else {
        return value.clone();
    };
    let read: Option<Value> = match schema["type"].as_str() {
        Some("integer") => text.trim().parse::<i64>().ok().map(Value::from),
        Some("number") => text.trim().parse::<f64>().ok().map(Value::from),
        Some("boolean") => text.trim().parse::<bool>().ok().map(Value::from),
        Some("array" | "object") => serde_json::from_str(text).ok(),
        _ => None,
    };
    read.unwrap_or_else(|| value.clone())
}

/// Whether the caller has all of these. What is listed hides what they may not call; this holds for those of whom no list
/// was made.
pub(super) fn require_scopes(cx: &Context, needed: &[String]) -> Result<(), HandlerError> {
    let empty = Vec::new();
    let has = cx.principal().attribute("scopes").and_then(Value::as_array).unwrap_or(&empty);
    match needed.iter().find(|scope| !has.iter().any(|known| known.as_str() == Some(scope))) {
        None => Ok(()),
        Some(scope) => Err(HandlerError::new(format!("this requires the scope `{scope}`"))),
    }
}
