//! What a call brings beside what the model wrote: defaults, and arguments that come from the caller.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use toolgate::{Context, HandlerError};
use toolgate_schema::Schema;

use crate::config::{Argument, Arguments, Origin};

/// A text that is one argument of a prompt or of a template.
const MAX_WORD: usize = 64 * 1024;

/// Completes the arguments of a call.
#[derive(Debug)]
pub(super) struct Taking(Vec<(Argument, Option<Schema>)>);

impl Taking {
    /// For tools, whose other arguments are checked before anybody sees them.
    pub(super) fn of_tool(arguments: &Arguments) -> Taking {
        Taking::new(arguments, |argument| argument.from.is_some())
    }

    /// For prompts and resources, whose arguments come as texts.
    pub(super) fn of_words(arguments: &Arguments) -> Taking {
        Taking::new(arguments, |_| true)
    }

    fn new(arguments: &Arguments, is_checked: impl Fn(&Argument) -> bool) -> Taking {
        let checked = |argument: &Argument| {
            let validator = is_checked(argument).then(|| Schema::new(&argument.schema).ok());
            (argument.clone(), validator.flatten())
        };
        Taking(arguments.list.iter().map(checked).collect())
    }

    /// With defaults, and with what comes from the caller. What a caller sends under such a name is not looked at.
    pub(super) fn fill(&self, given: Value, cx: &Context) -> Result<Map<String, Value>, HandlerError> {
        let mut all = match given {
            Value::Object(all) => all,
            _ => Map::new(),
        };
        for (argument, validator) in &self.0 {
            let name = &argument.name;
            if let Some(origin) = &argument.from {
                all.remove(name);
                match taken(origin, cx) {
                    Some(value) => {
                        let value = coerced(&value, &argument.schema);
                        if !validator.as_ref().is_some_and(|validator| validator.is_valid(&value)) {
                            return Err(HandlerError::new(format!("{} does not fit this tool", told(origin))));
                        }
                        all.insert(name.clone(), value);
                        continue;
                    }
                    None if argument.default.is_none() && argument.is_required => {
                        return Err(HandlerError::new(format!(
                            "this needs {}, which the call does not have",
                            told(origin)
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
    pub(super) fn typed(&self, words: Vec<(String, String)>) -> Result<Value, HandlerError> {
        let mut all = Map::new();
        for (name, word) in words {
            let Some((argument, validator)) = self.0.iter().find(|(known, _)| known.name == name) else {
                continue;
            };
            let value = coerced(&Value::String(word), &argument.schema);
            if let Some(Err(error)) = validator.as_ref().map(|validator| validator.validate(&value)) {
                return Err(HandlerError::new(format!("`{name}`: {error}")));
            }
            all.insert(name, value);
        }
        Ok(Value::Object(all))
    }

    /// Whether these texts can be arguments.
    pub(super) fn check(&self, words: &BTreeMap<String, String>) -> Result<(), String> {
        if let Some((name, _)) = words.iter().find(|(_, word)| word.len() > MAX_WORD) {
            return Err(format!("`{name}` is longer than 64 KiB"));
        }
        let pairs = words.iter().map(|(name, word)| (name.clone(), word.clone())).collect();
        self.typed(pairs).map(|_| ()).map_err(|error| error.to_string())
    }
}

fn taken(origin: &Origin, cx: &Context) -> Option<Value> {
    match origin {
        Origin::Subject => cx.principal().id().map(Value::from),
        Origin::Attribute(name) => cx.principal().attribute(name).cloned(),
        Origin::Header(name) => cx.headers().get(name).and_then(|value| value.to_str().ok()).map(Value::from),
    }
}

fn told(origin: &Origin) -> String {
    match origin {
        Origin::Subject => "the name of the caller".into(),
        Origin::Attribute(name) => format!("the caller's `{name}`"),
        Origin::Header(name) => format!("the header `{name}`"),
    }
}

/// A text where something else is wanted, as that.
fn coerced(value: &Value, schema: &Value) -> Value {
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
pub(super) fn has_scopes(cx: &Context, needed: &[String]) -> Result<(), HandlerError> {
    let empty = Vec::new();
    let has = cx.principal().attribute("scopes").and_then(Value::as_array).unwrap_or(&empty);
    match needed.iter().find(|scope| !has.iter().any(|known| known.as_str() == Some(scope))) {
        None => Ok(()),
        Some(scope) => Err(HandlerError::new(format!("this needs the scope `{scope}`"))),
    }
}
