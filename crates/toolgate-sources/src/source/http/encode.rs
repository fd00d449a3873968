//! Serializes arguments into paths, queries, headers and forms. Each location has its own injection risks, which are
//! handled here.

use serde_json::Value;
use toolgate::HandlerError;

use crate::source::percent::percent_encode;
use crate::source::value_text;

/// How a list or an object is serialized as text: the styles of OpenAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serialization {
    pub style: Style,
    /// Whether each member is serialized separately.
    pub explode: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// `a=1&a=2`, or `a=1,2`
    Form,
    /// `a=1%202`
    SpaceDelimited,
    /// `a=1|2`
    PipeDelimited,
    /// `a[k]=1`
    DeepObject,
    /// `1,2`
    Simple,
    /// `.1.2`
    Label,
    /// `;a=1;a=2`
    Matrix,
    /// `a={"k":1}`
    Json,
}

impl Serialization {
    /// The default of queries, forms and cookies.
    pub const FORM: Serialization = Serialization { style: Style::Form, explode: true };
    /// The default of paths and headers.
    pub const SIMPLE: Serialization = Serialization { style: Style::Simple, explode: false };
}

/// Maximum length of a header value.
const MAX_HEADER_BYTES: usize = 8 * 1024;
/// Maximum depth of an object in a query.
const MAX_QUERY_DEPTH: usize = 6;

/// Serializes a value into one path segment.
pub(super) fn encode_path_value(
    name: &str,
    value: &Value,
    serialization: Serialization,
) -> Result<String, HandlerError> {
    let parts = value_members(value)
        .map(|(key, text)| {
            let key = key.map(|key| encode_path_segment(name, key)).transpose()?;
            Ok((key, encode_path_segment(name, &text)?))
        })
        .collect::<Result<Vec<_>, HandlerError>>()?;
    if parts.is_empty() {
        return Err(HandlerError::new(format!("`{name}` must not be empty: it is part of a path")));
    }
    let is_object = value.is_object();
    let pair = |(key, text): &(Option<String>, String), between: &str| match key {
        Some(key) => format!("{key}{between}{text}"),
        None => text.clone(),
    };
    let joined = |separator: &str, between: &str| {
        parts.iter().map(|part| pair(part, between)).collect::<Vec<_>>().join(separator)
    };
    let inner = if serialization.explode { "=" } else { "," };
    Ok(match (serialization.style, serialization.explode) {
        (Style::Label, true) => format!(".{}", joined(".", inner)),
        (Style::Label, false) => format!(".{}", joined(",", inner)),
        (Style::Matrix, true) if is_object => format!(";{}", joined(";", "=")),
        (Style::Matrix, true) => {
            format!(";{}={}", percent_encode(name), joined(&format!(";{}=", percent_encode(name)), "="))
        }
        (Style::Matrix, false) => format!(";{}={}", percent_encode(name), joined(",", ",")),
        _ => joined(",", inner),
    })
}

fn encode_path_segment(name: &str, text: &str) -> Result<String, HandlerError> {
    // `..%2Fadmin` is one segment here, but some proxies decode it.
    if text.is_empty() || text.split(['/', '\\']).any(|part| part == "." || part == "..") {
        return Err(HandlerError::new(format!("`{name}` must not be empty or contain `.` or `..` segments")));
    }
    if text.chars().any(char::is_control) {
        return Err(HandlerError::new(format!("`{name}` must not contain control characters")));
    }
    Ok(percent_encode(text))
}

/// Serializes a value as pairs of a query or a form. `others` are names that the value must not set.
pub(super) fn encode_query_value(
    name: &str,
    value: &Value,
    serialization: Serialization,
    others: &[&str],
    into: &mut Vec<String>,
) -> Result<(), HandlerError> {
    let key = percent_encode(name);
    let separator = match serialization.style {
        Style::SpaceDelimited => "%20",
        Style::PipeDelimited => "%7C",
        _ => ",",
    };
    match value {
        Value::Null => {}
        json if serialization.style == Style::Json => {
            into.push(format!("{key}={}", percent_encode(&json.to_string())))
        }
        Value::Array(items) if serialization.explode => {
            into.extend(items.iter().map(|item| format!("{key}={}", percent_encode(&value_text(item)))));
        }
        Value::Array(items) if items.is_empty() => {}
        Value::Array(items) => {
            let joined: Vec<String> = items.iter().map(|item| percent_encode(&value_text(item))).collect();
            into.push(format!("{key}={}", joined.join(separator)));
        }
        Value::Object(_) if serialization.style == Style::DeepObject => {
            encode_deep_object(&key, value, MAX_QUERY_DEPTH, into)?
        }
        Value::Object(members) if serialization.explode => {
            for (member, value) in members {
                // Member names come from the caller and must not override other fields.
                if others.contains(&member.as_str()) {
                    return Err(HandlerError::new(format!("`{name}` must not contain `{member}`")));
                }
                into.push(format!("{}={}", percent_encode(member), percent_encode(&value_text(value))));
            }
        }
        Value::Object(members) => {
            let parts = members
                .iter()
                .flat_map(|(member, value)| [percent_encode(member), percent_encode(&value_text(value))]);
            into.push(format!("{key}={}", parts.collect::<Vec<_>>().join(separator)));
        }
        single => into.push(format!("{key}={}", percent_encode(&value_text(single)))),
    }
    Ok(())
}

fn encode_deep_object(
    key: &str,
    value: &Value,
    depth: usize,
    into: &mut Vec<String>,
) -> Result<(), HandlerError> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(HandlerError::new("an argument is nested too deeply for a query"));
    };
    match value {
        Value::Object(members) => {
            for (member, value) in members {
                encode_deep_object(&format!("{key}%5B{}%5D", percent_encode(member)), value, depth, into)?;
            }
        }
        Value::Array(items) => {
            for item in items {
                encode_deep_object(&format!("{key}%5B%5D"), item, depth, into)?;
            }
        }
        Value::Null => {}
        single => into.push(format!("{key}={}", percent_encode(&value_text(single)))),
    }
    Ok(())
}

/// Checks the value of a header or of a cookie. It is not changed.
pub(super) fn validate_header_value(name: &str, text: String) -> Result<String, HandlerError> {
    let is_valid = text.len() <= MAX_HEADER_BYTES && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if is_valid { Ok(text) } else { Err(HandlerError::new(format!("invalid header value for `{name}`"))) }
}

/// Serializes a value for a header: `a,b` or `k,v` or `k=v`.
pub(super) fn encode_header_value(value: &Value, serialization: Serialization) -> String {
    let between = if serialization.explode { "=" } else { "," };
    let parts = value_members(value).map(|(key, text)| match key {
        Some(key) => format!("{key}{between}{text}"),
        None => text,
    });
    parts.collect::<Vec<_>>().join(",")
}

fn value_members(value: &Value) -> impl Iterator<Item = (Option<&str>, String)> {
    let parts: Vec<(Option<&str>, String)> = match value {
        Value::Null => Vec::new(),
        Value::Array(items) => items.iter().map(|item| (None, value_text(item))).collect(),
        Value::Object(members) => {
            members.iter().map(|(key, value)| (Some(key.as_str()), value_text(value))).collect()
        }
        single => vec![(None, value_text(single))],
    };
    parts.into_iter()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The table of the OpenAPI specification, for `color` and its three kinds of values.
    #[test]
    fn every_style_writes_what_the_specification_shows() {
        let values = [json!("blue"), json!(["blue", "black"]), json!({"R": 100, "G": 200})];
        for (style, explode, wanted) in [
            (Style::Matrix, false, [";color=blue", ";color=blue,black", ";color=R,100,G,200"]),
            (Style::Matrix, true, [";color=blue", ";color=blue;color=black", ";R=100;G=200"]),
            (Style::Label, false, [".blue", ".blue,black", ".R,100,G,200"]),
            (Style::Label, true, [".blue", ".blue.black", ".R=100.G=200"]),
            (Style::Simple, false, ["blue", "blue,black", "R,100,G,200"]),
            (Style::Simple, true, ["blue", "blue,black", "R=100,G=200"]),
        ] {
            for (value, wanted) in values.iter().zip(wanted) {
                assert_eq!(
                    encode_path_value("color", value, Serialization { style, explode }).unwrap(),
                    wanted,
                    "{style:?} {explode}"
                );
            }
        }
        for (style, explode, wanted) in [
            (Style::Form, true, ["color=blue", "color=blue&color=black", "R=100&G=200"]),
            (Style::Form, false, ["color=blue", "color=blue,black", "color=R,100,G,200"]),
            (Style::SpaceDelimited, false, ["color=blue", "color=blue%20black", "color=R%20100%20G%20200"]),
            (Style::PipeDelimited, false, ["color=blue", "color=blue%7Cblack", "color=R%7C100%7CG%7C200"]),
            (
                Style::DeepObject,
                true,
                ["color=blue", "color=blue&color=black", "color%5BR%5D=100&color%5BG%5D=200"],
            ),
        ] {
            for (value, wanted) in values.iter().zip(wanted) {
                let mut pairs = Vec::new();
                encode_query_value("color", value, Serialization { style, explode }, &[], &mut pairs)
                    .unwrap();
                assert_eq!(pairs.join("&"), wanted, "{style:?} {explode}");
            }
        }
    }

    #[test]
    fn values_cannot_inject_into_the_request() {
        for bad in ["", ".", "..", "../x", "a/../b", "a\\..\\b", "a\0", "a\nb"] {
            assert!(encode_path_value("id", &json!(bad), Serialization::SIMPLE).is_err(), "{bad:?}");
            assert!(
                encode_path_value("id", &json!([bad]), Serialization { style: Style::Label, explode: true })
                    .is_err(),
                "{bad:?}"
            );
        }
        assert!(encode_path_value("id", &json!([]), Serialization::SIMPLE).is_err());
        let mut pairs = Vec::new();
        let hostile = json!({"key": "1"});
        assert!(encode_query_value("filter", &hostile, Serialization::FORM, &["key"], &mut pairs).is_err());
        for bad in ["a\r\nb", "a\n", "\0", "\u{2028}", "é", &"a".repeat(9000)] {
            assert!(validate_header_value("x", bad.to_owned()).is_err(), "{bad:?}");
        }
    }
}
