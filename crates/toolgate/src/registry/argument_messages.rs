//! Messages about invalid arguments, for the model that made the call: the argument, what is expected, and what it is.

use serde_json::Value;
use toolgate_schema::{Type, ValidationError, ValidationErrorKind};
use toolgate_wire::{RawJson, View};

use super::known_arguments::unknown_argument;
use crate::request::{ArgumentError, ArgumentErrors};

/// Maximum length of a value in a message.
const MAX_VALUE_CHARS: usize = 120;
/// Maximum length of the allowed values in a message.
const MAX_OPTIONS_CHARS: usize = 600;

/// Explains one violation of a schema. Several unknown arguments are one violation, and have one message each.
pub(super) fn explain_error(error: &ValidationError<'_, '_>, schema: &RawJson) -> ArgumentErrors {
    if let (ValidationErrorKind::AdditionalProperties(names), "") = (error.kind(), error.pointer()) {
        let properties = schema.view().get("properties");
        let known: Vec<_> = properties.iter().flat_map(View::members).map(|(name, _)| name).collect();
        let known = || known.iter().map(|name| &**name);
        return ArgumentErrors(names.iter().map(|name| unknown_argument(name, known())).collect());
    }
    let missing = match error.kind() {
        ValidationErrorKind::Required(name) if error.pointer().is_empty() => Some(name.to_string()),
        _ => None,
    };
    ArgumentErrors(vec![ArgumentError { message: explain(error), missing }])
}

/// Formats an error: the parameter, the expected value, and the actual one.
fn explain(error: &ValidationError<'_, '_>) -> String {
    let path = error.pointer();
    let place = if path.is_empty() {
        "the arguments".to_owned()
    } else {
        format!("`{}`", truncate(path.trim_start_matches('/')))
    };
    let got = describe_value(error.value());
    match error.kind() {
        ValidationErrorKind::Required(name) => {
            let inside = if path.is_empty() { String::new() } else { format!(" in {place}") };
            format!("`{name}` is required{inside} but missing")
        }
        ValidationErrorKind::Type(types) => {
            let expected = types.iter().map(Type::as_str).collect::<Vec<_>>().join(" or ");
            format!("{place} must be {expected}, got {got}")
        }
        ValidationErrorKind::Enum(options) => {
            format!(
                "{place} must be one of {}, got {got}",
                truncate_to(&options.to_string(), MAX_OPTIONS_CHARS)
            )
        }
        ValidationErrorKind::AnyOf(branches) | ValidationErrorKind::OneOfNone(branches)
            if !branches.is_empty() =>
        {
            let branches = truncate_to(&branches.join(", "), MAX_OPTIONS_CHARS);
            format!("{place} must be one of {branches}, got {got}")
        }
        ValidationErrorKind::Format(format) => {
            format!("{place} must be {}, got {got}", describe_format(format))
        }
        ValidationErrorKind::Const(expected) => {
            format!("{place} must be {}, got {got}", describe_value(expected))
        }
        ValidationErrorKind::Minimum(limit) => format!("{place} must be at least {limit}, got {got}"),
        ValidationErrorKind::Maximum(limit) => format!("{place} must be at most {limit}, got {got}"),
        ValidationErrorKind::MinLength(limit) => {
            format!("{place} must have at least {limit} characters, got {got}")
        }
        ValidationErrorKind::MaxLength(limit) => {
            format!("{place} must have at most {limit} characters, got {got}")
        }
        ValidationErrorKind::AdditionalProperties(unexpected) => {
            format!("unknown parameter `{}` in {place}", truncate(&unexpected.join("`, `")))
        }
        _ => format!("{place}: {}", truncate(&error.message_with_value(&got))),
    }
}

/// Describes a value in a message: its type, and the value itself if it is short.
fn describe_value(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".into(),
        Value::Array(_) => "an array".into(),
        Value::String(text) => format!("the string {}", truncate(&format!("{text:?}"))),
        Value::Number(number) => format!("the number {number}"),
        Value::Bool(_) | Value::Null => value.to_string(),
    }
}

fn truncate(text: &str) -> String {
    truncate_to(text, MAX_VALUE_CHARS)
}

fn truncate_to(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Names a format, with an example of those that a model may not know.
fn describe_format(format: &str) -> String {
    match format {
        "date" => "a date (YYYY-MM-DD)".into(),
        "date-time" => "a date and a time with an offset (YYYY-MM-DDThh:mm:ssZ)".into(),
        "time" => "a time with an offset (hh:mm:ssZ)".into(),
        "email" => "an email address".into(),
        "ipv4" => "an IPv4 address".into(),
        "ipv6" => "an IPv6 address".into(),
        "uri" => "a URI with a scheme (https://example.com/)".into(),
        "uuid" => "a UUID (2eb8aa08-aa98-11ea-b4aa-73b441d16380)".into(),
        other => format!("of format `{other}`"),
    }
}
