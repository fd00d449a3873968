//! Sanitizes arguments before validation, for backends that prefer less input over an error: numbers are clamped to
//! their range, strings lose HTML tags, and values that are not in an `enum` are removed.

use serde_json::Value;

/// Maximum length of a string without `maxLength`.
const DEFAULT_MAX_TEXT_CHARS: usize = 1000;
/// Maximum number of passes that remove nested tags.
const MAX_STRIP_PASSES: usize = 8;

/// Sanitizes each argument by its schema. Arguments that are `null` or not in the `enum` are removed.
pub fn sanitize_arguments(arguments: Value, schemas: &[(String, Value)]) -> Value {
    let Value::Object(mut all) = arguments else { return arguments };
    for (name, schema) in schemas {
        if let Some(value) = all.get_mut(name) {
            match sanitize_value(value.take(), schema) {
                Some(clean) => *value = clean,
                None => {
                    all.shift_remove(name);
                }
            }
        }
    }
    Value::Object(all)
}

fn sanitize_value(value: Value, schema: &Value) -> Option<Value> {
    let clean = match (schema["type"].as_str(), value) {
        (_, Value::Null) => return None,
        (Some("integer"), value) => sanitize_integer(&value, schema).unwrap_or(value),
        (Some("boolean"), value) => parse_boolean(&value).map_or(value, Value::Bool),
        (Some("string"), Value::String(text)) => {
            let max_chars =
                schema["maxLength"].as_u64().and_then(|max_chars| usize::try_from(max_chars).ok());
            Value::String(sanitize_text(&text, max_chars.unwrap_or(DEFAULT_MAX_TEXT_CHARS)))
        }
        (Some("array"), Value::Array(items)) => sanitize_list(items, &schema["items"]),
        // Accepts `1, 2` and `1` for a list.
        (Some("array"), Value::String(text)) if !text.trim_start().starts_with('[') => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            sanitize_list(items.map(Value::from).collect(), &schema["items"])
        }
        (Some("array"), value @ (Value::Number(_) | Value::Bool(_))) => {
            sanitize_list(vec![value], &schema["items"])
        }
        (_, value) => value,
    };
    match schema["enum"].as_array() {
        Some(known) if !known.contains(&clean) => None,
        _ => Some(clean),
    }
}

fn sanitize_list(items: Vec<Value>, schema: &Value) -> Value {
    items.into_iter().filter_map(|item| sanitize_value(item, schema)).collect()
}

/// The absolute value, clamped to the bounds of the schema.
fn sanitize_integer(value: &Value, schema: &Value) -> Option<Value> {
    let number = match value {
        Value::Number(number) => number.as_i64().or_else(|| exact_i64(number.as_f64()?))?,
        Value::String(text) => text.trim().parse().ok()?,
        _ => return None,
    };
    let number = number.checked_abs()?;
    let min = schema["minimum"].as_i64().unwrap_or(i64::MIN);
    let max = schema["maximum"].as_i64().unwrap_or(i64::MAX).max(min);
    Some(number.clamp(min, max).into())
}

/// A float with an integral value.
fn exact_i64(number: f64) -> Option<i64> {
    // Integers up to this are exact in a float.
    const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;
    #[allow(clippy::cast_possible_truncation)]
    (number.fract() == 0.0 && number.abs() <= MAX_EXACT_INTEGER).then_some(number as i64)
}

fn parse_boolean(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::Number(number) => {
            number.as_i64().and_then(|number| [false, true].get(usize::try_from(number).ok()?).copied())
        }
        Value::String(text) => match text.trim().to_ascii_lowercase().as_str() {
            "1" | "true" | "yes" | "on" => Some(true),
            "0" | "false" | "no" | "off" | "" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// Removes tags and surrounding whitespace, and truncates. A `<` that does not start a tag stays.
fn sanitize_text(text: &str, max_chars: usize) -> String {
    let mut text_without_tags = strip_tags(text);
    // Removing tags may form new ones. Input with many levels is hostile, so the rest loses every `<`.
    for _ in 0..MAX_STRIP_PASSES {
        let next = strip_tags(&text_without_tags);
        if next.len() == text_without_tags.len() {
            return truncate_text(&text_without_tags, max_chars);
        }
        text_without_tags = next;
    }
    truncate_text(&text_without_tags.replace('<', ""), max_chars)
}

fn truncate_text(text_without_tags: &str, max_chars: usize) -> String {
    let characters = text_without_tags
        .trim()
        .chars()
        .filter(|character| !character.is_control() || "\n\t".contains(*character));
    characters.take(max_chars).collect()
}

fn strip_tags(text: &str) -> String {
    let mut text_without_tags = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        text_without_tags.push_str(&rest[..at]);
        let inside = &rest[at + 1..];
        let is_tag = inside.starts_with(|next: char| next.is_ascii_alphabetic() || "/!?".contains(next));
        match inside.find('>') {
            Some(end) if is_tag => rest = &inside[end + 1..],
            // An unterminated tag removes the rest.
            None if is_tag => rest = "",
            _ => {
                text_without_tags.push('<');
                rest = inside;
            }
        }
    }
    text_without_tags.push_str(rest);
    text_without_tags
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_sanitized_by_schema() {
        let page = json!({ "type": "integer", "minimum": 1, "maximum": 100 });
        let text = json!({ "type": "string" });
        let flag = json!({ "type": "boolean" });
        let status = json!({ "type": "string", "enum": ["public", "private"] });
        let ids = json!({ "type": "array", "items": { "type": "integer" } });
        let kinds = json!({ "type": "array", "items": status });
        for (schema, given, wanted) in [
            (&page, json!(5000), Some(json!(100))),
            (&page, json!(-7), Some(json!(7))),
            (&page, json!(0), Some(json!(1))),
            (&page, json!("12"), Some(json!(12))),
            (&page, json!(3.0), Some(json!(3))),
            (&page, json!(3.5), Some(json!(3.5))),
            (&page, json!("many"), Some(json!("many"))),
            (&page, json!(i64::MIN), Some(json!(i64::MIN))),
            (&page, json!(null), None),
            (&text, json!("<<b>script>alert(1)<<b>/script>"), Some(json!("alert(1)"))),
            (&text, json!("  <b>Jo</b>hn \u{7}<script>x"), Some(json!("John x"))),
            (&text, json!("1 < 2 > 0"), Some(json!("1 < 2 > 0"))),
            (&text, json!("a<img src=x"), Some(json!("a"))),
            (&text, json!("é".repeat(1200)), Some(json!("é".repeat(1000)))),
            (&json!({ "type": "string", "maxLength": 3 }), json!("abcd"), Some(json!("abc"))),
            (&flag, json!("yes"), Some(json!(true))),
            (&flag, json!("1"), Some(json!(true))),
            (&flag, json!(0), Some(json!(false))),
            (&flag, json!("perhaps"), Some(json!("perhaps"))),
            (&status, json!("weird"), None),
            (&status, json!(" private "), Some(json!("private"))),
            (&ids, json!("3, 4"), Some(json!([3, 4]))),
            (&ids, json!(5), Some(json!([5]))),
            (&ids, json!("[1]"), Some(json!("[1]"))),
            (&kinds, json!(["public", "weird", null]), Some(json!(["public"]))),
        ] {
            assert_eq!(sanitize_value(given.clone(), schema), wanted, "{given}");
        }
    }

    #[test]
    fn arguments_without_schema_stay() {
        let schemas = [("a".to_owned(), json!({ "enum": [1] }))];
        assert_eq!(sanitize_arguments(json!({ "a": 2, "b": " <i>" }), &schemas), json!({ "b": " <i>" }));
        assert_eq!(sanitize_arguments(json!([1]), &schemas), json!([1]));
    }
}
