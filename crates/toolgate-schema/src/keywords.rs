//! The allowed values of keywords. A schema with an invalid keyword is rejected before it is used.

use serde_json::{Map, Value};

use crate::number;
use crate::pattern::{Pattern, PatternError};
use crate::types::Type;

/// Returns what is wrong with the value of a keyword.
pub(crate) fn keyword_error(keyword: &str, value: &Value) -> Option<String> {
    keyword_error_with_fuel(keyword, value, &mut u64::MAX.clone())
}

/// Like `keyword_error`, with a budget. If `fuel` is 0 afterwards, the result is meaningless.
fn keyword_error_with_fuel(keyword: &str, value: &Value, fuel: &mut u64) -> Option<String> {
    *fuel = fuel.saturating_sub(1 + visit_cost(value));
    let (is_valid, expected) = match keyword {
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
        // A flag in drafts before 6.
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
            value.as_object().is_some_and(|items| items.values().all(is_unique_strings)),
            "an object of arrays of unique strings",
        ),
        "properties" | "$defs" | "definitions" | "dependentSchemas" | "dependencies" => {
            (value.is_object(), "an object of schemas")
        }
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => {
            (value.as_array().is_some_and(|items| !items.is_empty()), "a non-empty array of schemas")
        }
        "examples" => (value.is_array(), "an array"),
        "$ref" | "$dynamicRef" | "$recursiveRef" | "$id" | "$schema" | "$anchor" | "$dynamicAnchor"
        | "$comment" | "title" | "description" | "format" | "contentEncoding" | "contentMediaType" => {
            (value.is_string(), "a string")
        }
        _ => return None,
    };
    (!is_valid).then(|| format!("must be {expected}, not {}", describe(value)))
}

/// Returns how many values the check may visit.
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
        Some(unknown) => Some(format!("{} is not a JSON Schema type", describe(unknown))),
        None if (1..names.len()).any(|end| names[..end].contains(&names[end])) => {
            Some("lists a type more than once".to_owned())
        }
        None => None,
    }
}

/// Only patterns that are invalid in every dialect are errors. Unsupported ones are not enforced.
fn pattern_error(text: &str, fuel: &mut u64) -> Option<String> {
    if *fuel == 0 {
        return None;
    }
    let (result, cost) = Pattern::new_with_cost(text);
    *fuel = fuel.saturating_sub(cost);
    match result {
        Err(PatternError::Invalid(detail)) => {
            Some(format!("{text:?} is not a valid regular expression: {detail}"))
        }
        _ => None,
    }
}

fn is_unique_strings(value: &Value) -> bool {
    value.as_array().is_some_and(|items| {
        let mut names: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
        names.sort_unstable();
        let n_names = names.len();
        names.dedup();
        names.len() == n_names && n_names == items.len()
    })
}

/// Describes a value for an error message.
pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".into(),
        Value::Array(_) => "an array".into(),
        Value::String(text) if text.len() > 100 => "a long string".into(),
        value => value.to_string(),
    }
}

/// Calls `visit` with every direct subschema.
pub(crate) fn for_each_subschema<'a>(schema: &'a Map<String, Value>, visit: &mut dyn FnMut(&'a Value)) {
    for (keyword, value) in schema {
        match keyword.as_str() {
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
                Value::Array(items) => items.iter().for_each(&mut *visit),
                schema => visit(schema),
            },
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => {
                value.as_array().into_iter().flatten().for_each(&mut *visit)
            }
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
                value.as_object().into_iter().flat_map(Map::values).for_each(&mut *visit);
            }
            "dependencies" => {
                let items = value.as_object().into_iter().flat_map(Map::values);
                items.filter(|schema| !is_unique_strings(schema)).for_each(&mut *visit);
            }
            _ => {}
        }
    }
}

/// Returns what is wrong with a schema and its subschemas, without resolving references. For `fuel` see
/// [`keyword_error_with_fuel`].
pub(crate) fn schema_error(schema: &Value, fuel: &mut u64) -> Option<String> {
    let mut pending = vec![schema];
    while let Some(schema) = pending.pop() {
        *fuel = fuel.saturating_sub(1);
        match schema {
            Value::Object(members) => {
                for (keyword, value) in members {
                    if let Some(detail) = keyword_error_with_fuel(keyword, value, fuel) {
                        return Some(format!("`{keyword}` {detail}"));
                    }
                    if *fuel == 0 {
                        return None;
                    }
                }
                for_each_subschema(members, &mut |schema| pending.push(schema));
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
