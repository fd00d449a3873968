//! What the words of a schema must be. A schema that breaks this is refused before it judges anything.

use serde_json::{Map, Value};

use crate::number;
use crate::pattern::{Pattern, PatternError};
use crate::types::Type;

/// What is wrong with a word of a schema.
pub(crate) fn keyword_error(word: &str, value: &Value) -> Option<String> {
    keyword_error_with_fuel(word, value, &mut u64::MAX.clone())
}

/// The same, at a cost. What is left of the fuel is 0 if there was not enough, and then the answer means nothing.
fn keyword_error_with_fuel(word: &str, value: &Value, fuel: &mut u64) -> Option<String> {
    *fuel = fuel.saturating_sub(1 + visit_cost(value));
    let (is_right, wanted) = match word {
        "type" => return type_error(value),
        "pattern" => match value.as_str() {
            Some(text) => return pattern_error(text, fuel),
            None => (false, "a string"),
        },
        "patternProperties" => match value.as_object() {
            Some(members) => return members.keys().find_map(|name| pattern_error(name, fuel)),
            None => (false, "an object of schemas"),
        },
        "enum" => (value.is_array(), "an array"),
        "minimum" | "maximum" => (value.is_number(), "a number"),
        // Drafts before 6 have a flag here.
        "exclusiveMinimum" | "exclusiveMaximum" => (value.is_number() || value.is_boolean(), "a number"),
        "multipleOf" => (value.as_f64().is_some_and(|number| number > 0.0), "a number greater than 0"),
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
        | "minContains" | "maxContains" => (
            value.as_number().is_some_and(|limit| number::as_count(limit).is_some()),
            "a non-negative integer",
        ),
        "uniqueItems" | "deprecated" | "readOnly" | "writeOnly" => (value.is_boolean(), "a boolean"),
        "required" => (is_unique_strings(value), "an array of unique strings"),
        "dependentRequired" => (
            value.as_object().is_some_and(|all| all.values().all(is_unique_strings)),
            "an object of arrays of unique strings",
        ),
        "properties" | "$defs" | "definitions" | "dependentSchemas" | "dependencies" => {
            (value.is_object(), "an object of schemas")
        }
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => {
            (value.as_array().is_some_and(|all| !all.is_empty()), "a non-empty array of schemas")
        }
        "examples" => (value.is_array(), "an array"),
        "$ref" | "$dynamicRef" | "$recursiveRef" | "$id" | "$schema" | "$anchor" | "$dynamicAnchor"
        | "$comment" | "title" | "description" | "format" | "contentEncoding" | "contentMediaType" => {
            (value.is_string(), "a string")
        }
        _ => return None,
    };
    (!is_right).then(|| format!("must be {wanted}, not {}", describe(value)))
}

/// How much of a value may be looked at.
fn visit_cost(value: &Value) -> u64 {
    let n_items = |value: &Value| value.as_array().map_or(1, |items| 1 + items.len() as u64);
    match value {
        Value::Object(members) => members.values().map(n_items).sum(),
        other => n_items(other),
    }
}

fn type_error(value: &Value) -> Option<String> {
    let names = match value {
        Value::Array(names) if !names.is_empty() => names.as_slice(),
        Value::String(_) => std::slice::from_ref(value),
        _ => {
            return Some(format!("must be a type name or an array of type names, not {}", describe(value)));
        }
    };
    let is_known = |name: &Value| name.as_str().is_some_and(|name| Type::from_name(name).is_some());
    match names.iter().find(|name| !is_known(name)) {
        Some(odd) => Some(format!("{} is not a JSON Schema type", describe(odd))),
        None if (1..names.len()).any(|end| names[..end].contains(&names[end])) => {
            Some("lists a type more than once".to_owned())
        }
        None => None,
    }
}

/// What may be right elsewhere is no fault: it is left out, and told.
fn pattern_error(text: &str, fuel: &mut u64) -> Option<String> {
    if *fuel == 0 {
        return None;
    }
    let (read, cost) = Pattern::new_with_cost(text);
    *fuel = fuel.saturating_sub(cost);
    match read {
        Err(PatternError::Invalid(why)) => Some(format!("{text:?} is not a valid regular expression: {why}")),
        _ => None,
    }
}

fn is_unique_strings(value: &Value) -> bool {
    value.as_array().is_some_and(|all| {
        let mut names: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
        names.sort_unstable();
        let n_names = names.len();
        names.dedup();
        names.len() == n_names && n_names == all.len()
    })
}

/// A value as far as it helps.
pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".into(),
        Value::Array(_) => "an array".into(),
        Value::String(text) if text.len() > 100 => "a long string".into(),
        value => value.to_string(),
    }
}

/// Calls back with every schema that stands directly in another one.
pub(crate) fn for_each_subschema<'a>(schema: &'a Map<String, Value>, visit: &mut dyn FnMut(&'a Value)) {
    for (word, value) in schema {
        match word.as_str() {
            "additionalItems"
            | "additionalProperties"
            | "contains"
            | "contentSchema"
            | "else"
            | "if"
            | "not"
            | "propertyNames"
            | "then"
            | "unevaluatedItems"
            | "unevaluatedProperties" => visit(value),
            "items" => match value {
                Value::Array(all) => all.iter().for_each(&mut *visit),
                one => visit(one),
            },
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => {
                value.as_array().into_iter().flatten().for_each(&mut *visit)
            }
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
                value.as_object().into_iter().flat_map(Map::values).for_each(&mut *visit);
            }
            "dependencies" => {
                let all = value.as_object().into_iter().flat_map(Map::values);
                all.filter(|one| !is_unique_strings(one)).for_each(&mut *visit);
            }
            _ => {}
        }
    }
}

/// What is wrong with a schema and all schemas in it, without a look at its references. Fuel as in [`fault_for`].
pub(crate) fn schema_error(schema: &Value, fuel: &mut u64) -> Option<String> {
    let mut left = vec![schema];
    while let Some(one) = left.pop() {
        *fuel = fuel.saturating_sub(1);
        match one {
            Value::Object(members) => {
                for (word, value) in members {
                    if let Some(why) = keyword_error_with_fuel(word, value, fuel) {
                        return Some(format!("`{word}` {why}"));
                    }
                    if *fuel == 0 {
                        return None;
                    }
                }
                for_each_subschema(members, &mut |one| left.push(one));
            }
            Value::Bool(_) => {}
            other => return Some(not_a_schema(other)),
        }
    }
    None
}

pub(crate) fn not_a_schema(value: &Value) -> String {
    format!("must be a schema (an object or a boolean), not {}", describe(value))
}
