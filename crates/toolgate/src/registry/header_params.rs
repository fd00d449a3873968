//! Header parameters: arguments that clients repeat in HTTP headers, so that proxies can route without reading bodies.
//!
//! A property with `"x-mcp-header": "Region"` is repeated as `Mcp-Param-Region`. The keyword is checked when a tool is registered,
//! because clients drop tools with an invalid one; calls are checked for headers that differ from the arguments.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName};
use serde_json::Value;
use toolgate_wire::{Kind, ProtocolError, ProtocolErrorKind, RawJson, View};

const HEADER_KEYWORD: &str = "x-mcp-header";

/// A property that is repeated in a header.
#[derive(Clone, Debug)]
pub(crate) struct HeaderParam {
    /// Property names from the root of the arguments.
    path: Vec<String>,
    header: HeaderName,
}

/// Returns the header parameters of a schema.
///
/// # Errors
/// If a keyword is invalid. The message is for the author of the tool.
pub(crate) fn parse_header_params(schema: &Value) -> Result<Vec<HeaderParam>, String> {
    let mut found = Vec::new();
    let mut path = Vec::new();
    collect_header_params(schema, &mut path, &mut found)?;
    let marked = count_keywords(schema);
    if marked > found.len() {
        return Err(format!(
            "`{HEADER_KEYWORD}` works only on properties reached from the root through `properties`"
        ));
    }
    Ok(found)
}

fn collect_header_params(
    schema: &Value,
    path: &mut Vec<String>,
    found: &mut Vec<HeaderParam>,
) -> Result<(), String> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Ok(());
    };
    for (name, property) in properties {
        path.push(name.clone());
        if let Some(mark) = property.get(HEADER_KEYWORD) {
            found.push(parse_header_param(path, mark, property, found)?);
        }
        collect_header_params(property, path, found)?;
        path.pop();
    }
    Ok(())
}

fn parse_header_param(
    path: &[String],
    suffix: &Value,
    property: &Value,
    others: &[HeaderParam],
) -> Result<HeaderParam, String> {
    let name = path.join(".");
    let suffix = suffix.as_str().filter(|suffix| !suffix.is_empty());
    let suffix =
        suffix.ok_or_else(|| format!("`{HEADER_KEYWORD}` of `{name}` must be a non-empty string"))?;
    let header = HeaderName::from_bytes(format!("mcp-param-{suffix}").as_bytes())
        .map_err(|_| format!("`{HEADER_KEYWORD}` of `{name}` must be a header name, got {suffix:?}"))?;
    if others.iter().any(|other| other.header == header) {
        return Err(format!("two properties share the `{HEADER_KEYWORD}` {suffix:?}"));
    }
    match property.get("type").and_then(Value::as_str) {
        Some("string" | "integer" | "boolean") => Ok(HeaderParam { path: path.to_vec(), header }),
        _ => Err(format!(
            "`{name}` is marked `{HEADER_KEYWORD}` and must be a string, an integer or a boolean"
        )),
    }
}

/// Counts the keyword in the whole schema, including places where it has no effect.
fn count_keywords(schema: &Value) -> usize {
    match schema {
        Value::Object(object) => {
            usize::from(object.contains_key(HEADER_KEYWORD))
                + object.values().map(count_keywords).sum::<usize>()
        }
        Value::Array(items) => items.iter().map(count_keywords).sum(),
        _ => 0,
    }
}

/// Checks that the headers of a call match its arguments.
///
/// # Errors
/// If a header is missing, repeated, not decodable or different.
pub(crate) fn validate_header_params(
    params: &[HeaderParam],
    arguments: &RawJson,
    headers: &HeaderMap,
) -> Result<(), ProtocolError> {
    for HeaderParam { path, header } in params {
        let value = path.iter().try_fold(arguments.view(), |value, key| value.get(key));
        let Some(value) = value.filter(|value| !value.is_null()) else {
            continue;
        };
        let mut values = headers.get_all(header).iter();
        let (Some(text), None) = (values.next(), values.next()) else {
            return Err(header_error(header, "must be sent once, because the argument is there"));
        };
        let text =
            decode_header_value(text.as_bytes()).ok_or_else(|| header_error(header, "cannot be decoded"))?;
        if !is_same_value(value, &text) {
            return Err(header_error(header, "differs from the argument"));
        }
    }
    Ok(())
}

fn header_error(header: &HeaderName, what: &str) -> ProtocolError {
    ProtocolError::new(ProtocolErrorKind::HeaderMismatch, format!("header {header} {what}"))
}

fn is_same_value(value: View<'_>, text: &str) -> bool {
    match value.kind() {
        Kind::String => value.as_string().is_some_and(|value| value == text),
        Kind::Bool => value.as_bool().is_some_and(|value| text == if value { "true" } else { "false" }),
        // Compared as numbers: `42.0` equals `42`.
        Kind::Number => text.parse::<f64>().is_ok_and(|number| value.as_f64() == Some(number)),
        _ => false,
    }
}

/// Decodes the value of a parameter header: plain text, or base64 between `=?base64?` and `?=`.
pub(crate) fn decode_header_value(value: &[u8]) -> Option<Cow<'_, str>> {
    let value = std::str::from_utf8(value).ok()?.trim_matches([' ', '\t']);
    if !value.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~')) {
        return None;
    }
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok().map(Cow::Owned),
        None => Some(Cow::Borrowed(value)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(arguments: Value, headers: &[(&'static str, &'static str)]) -> bool {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": "integer", "x-mcp-header": "Count"},
            "deep": {"type": "object", "properties": {"on": {"type": "boolean", "x-mcp-header": "On"}}},
        }});
        let headers =
            headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        validate_header_params(
            &parse_header_params(&schema).unwrap(),
            &RawJson::from(arguments),
            &headers.collect(),
        )
        .is_ok()
    }

    #[test]
    fn headers_and_arguments_must_agree() {
        assert!(check(json!({"region": "Hello"}), &[("mcp-param-region", "Hello")]));
        assert!(check(json!({"region": "Hello"}), &[("mcp-param-region", "=?base64?SGVsbG8=?=")]));
        assert!(check(json!({"region": "SGVsbG8="}), &[("mcp-param-region", "SGVsbG8=")]));
        assert!(check(json!({"region": "=?base64?SGVsbG8="}), &[("mcp-param-region", "=?base64?SGVsbG8=")]));
        assert!(check(json!({}), &[]), "absent arguments need no header");
        assert!(check(json!({"region": null}), &[]));
        assert!(check(json!({"count": 42}), &[("mcp-param-count", "42.0")]));
        assert!(check(json!({"deep": {"on": true}}), &[("mcp-param-on", "true")]));

        assert!(!check(json!({"region": "Hello"}), &[]));
        assert!(!check(json!({"region": "Hello"}), &[("mcp-param-region", "hello")]));
        assert!(
            !check(json!({"region": "Hello"}), &[("mcp-param-region", "=?base64?SGVsbG8?=")]),
            "bad padding"
        );
        assert!(!check(json!({"region": "Hello"}), &[("mcp-param-region", "=?base64?SGVs!!!bG8=?=")]));
        assert!(!check(json!({"region": "a"}), &[("mcp-param-region", "a"), ("mcp-param-region", "a")]));
        assert!(!check(json!({"deep": {"on": true}}), &[("mcp-param-on", "True")]));
    }

    #[test]
    fn an_invalid_keyword_is_rejected() {
        let refused = |property: Value| {
            parse_header_params(&json!({"type": "object", "properties": {"p": property}})).unwrap_err()
        };
        for property in [
            json!({"type": "string", "x-mcp-header": ""}),
            json!({"type": "string", "x-mcp-header": 1}),
            json!({"type": "string", "x-mcp-header": "a b"}),
            json!({"type": "string", "x-mcp-header": "a:b"}),
            json!({"type": "string", "x-mcp-header": "é"}),
            json!({"type": "number", "x-mcp-header": "N"}),
            json!({"type": "object", "x-mcp-header": "O"}),
            json!({"type": "array", "items": {"type": "string", "x-mcp-header": "I"}}),
            json!({"oneOf": [{"type": "string", "x-mcp-header": "I"}]}),
        ] {
            refused(property);
        }
        let twice = json!({"type": "object", "properties": {
            "a": {"type": "string", "x-mcp-header": "Same"}, "b": {"type": "string", "x-mcp-header": "same"}}});
        assert!(parse_header_params(&twice).is_err());
    }
}
