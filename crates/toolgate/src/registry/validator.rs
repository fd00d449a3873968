//! Argument validation: validates a tool's arguments against its JSON Schema, with messages that a model can act on.
//!
//! The dispatcher calls [`ArgumentValidator::find_errors`] before the handler runs, and [`ArgumentValidator::coerce`] if that
//! failed. Without the feature `validate`, only deserialization checks arguments.

#[cfg(feature = "validate")]
use std::sync::OnceLock;

#[cfg(feature = "validate")]
use bytes::Bytes;
use serde_json::{Map, Value};
#[cfg(feature = "validate")]
use toolgate_schema::{Schema, SchemaError, Type, ValidationErrorKind};
use toolgate_wire::RawJson;
use toolgate_wire::model::{ClientResult, ElicitRequest, ElicitResult, ServerRequest};

#[cfg(feature = "validate")]
use super::argument_messages::explain_error;
use crate::handler::is_numeric_format;
use crate::request::ArgumentErrors;
#[cfg(feature = "validate")]
use crate::util::stored_json;

/// Maximum number of errors in one message.
const MAX_REPORTED_ERRORS: usize = 10;

/// Validates arguments against a JSON Schema, which is compiled once.
pub(crate) struct ArgumentValidator {
    /// A compiled schema is many times larger than its JSON. If deserialization detects every violation by itself, the schema is
    /// only compiled when an error has to be explained, which may be never.
    #[cfg(feature = "validate")]
    compiled: OnceLock<Option<Box<Schema>>>,
    #[cfg(feature = "validate")]
    schema: RawJson,
    #[cfg(feature = "validate")]
    formats: FormatMode,
    /// Deserialization into the handler's type detects every violation by itself.
    is_typed: bool,
}

/// Whether `format` is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FormatMode {
    Check,
    /// For output: types that have a format guarantee it, and what another service returns need not follow it.
    Ignore,
}

#[cfg(feature = "validate")]
impl FormatMode {
    fn compile(self, schema: &Value) -> Result<Schema, SchemaError> {
        match self {
            FormatMode::Check => Schema::with_formats(schema),
            FormatMode::Ignore => Schema::new(schema),
        }
    }
}

impl std::fmt::Debug for ArgumentValidator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArgumentValidator").field("typed", &self.is_typed).finish_non_exhaustive()
    }
}

impl ArgumentValidator {
    /// Creates a validator. `is_typed`: the schema was generated from the Rust type that the arguments are deserialized into.
    ///
    /// # Errors
    /// If it is not a valid JSON Schema, or refers to another document.
    pub(crate) fn new(schema: &Value, is_typed: bool) -> Result<ArgumentValidator, String> {
        ArgumentValidator::with_formats(schema, is_typed, FormatMode::Check)
    }

    /// Creates a validator for structured output. `is_typed`: it is serialized from the type that the schema was generated from.
    ///
    /// # Errors
    /// As [`ArgumentValidator::new`].
    pub(super) fn for_output(schema: &Value, is_typed: bool) -> Result<ArgumentValidator, String> {
        ArgumentValidator::with_formats(schema, is_typed, FormatMode::Ignore)
    }

    fn with_formats(
        schema: &Value,
        is_typed: bool,
        formats: FormatMode,
    ) -> Result<ArgumentValidator, String> {
        if depth(schema) > 64 {
            return Err("the schema is nested deeper than 64 levels".into());
        }
        let is_typed = is_typed && !has_value_constraints(schema, formats);
        let validator = ArgumentValidator {
            #[cfg(feature = "validate")]
            compiled: OnceLock::new(),
            #[cfg(feature = "validate")]
            schema: RawJson::from(schema),
            #[cfg(feature = "validate")]
            formats,
            is_typed,
        };
        #[cfg(feature = "validate")]
        if !is_typed {
            let compiled = formats.compile(schema).map_err(|error| error.to_string())?;
            // The cell is new, so it is empty.
            let _ = validator.compiled.set(Some(Box::new(compiled)));
        }
        Ok(validator)
    }

    #[cfg(feature = "validate")]
    fn compiled(&self) -> Option<&Schema> {
        let make = || self.formats.compile(&self.schema.to_value()).ok().map(Box::new);
        self.compiled.get_or_init(make).as_deref()
    }

    /// Returns warnings about patterns that are not enforced, because their syntax is not supported.
    pub(crate) fn unsupported_patterns(&self) -> &[String] {
        #[cfg(feature = "validate")]
        if let Some(Some(schema)) = self.compiled.get() {
            return schema.unsupported_patterns();
        }
        &[]
    }

    /// Returns whether every call must be validated before its arguments are deserialized. If not, validation is only used to
    /// explain why deserialization failed.
    pub(crate) fn is_precheck_required(&self) -> bool {
        cfg!(feature = "validate") && !self.is_typed
    }

    /// Validates the arguments of a tool call. Returns the violations, or `None` if there are none.
    pub(crate) fn find_errors(&self, arguments: &RawJson) -> Option<ArgumentErrors> {
        #[cfg(feature = "validate")]
        {
            let value = arguments.to_value();
            let errors = self.compiled()?.errors(&value, MAX_REPORTED_ERRORS);
            if !errors.is_empty() {
                let explained = errors.iter().flat_map(|error| explain_error(error, &self.schema).0);
                return Some(ArgumentErrors(explained.collect()));
            }
        }
        let _ = (arguments, MAX_REPORTED_ERRORS);
        None
    }
}

impl ArgumentValidator {
    /// Coerces invalid arguments: the string `"5"` to a number, a string of JSON to an array, `null` to the default. Returns
    /// `None` if the result is not valid. `as_text`: also converts other values to strings of JSON where strings are expected.
    ///
    /// Models often confuse these types, and send `null` for what they do not want to set. Only values that violate the schema are
    /// changed.
    pub(crate) fn coerce(&self, arguments: &RawJson, as_text: bool) -> Option<RawJson> {
        #[cfg(feature = "validate")]
        {
            let schema = self.compiled()?;
            let mut value = arguments.to_value();
            for mismatch in find_mismatches(schema, &value)? {
                mismatch.coerce(&mut value, as_text)?;
            }
            schema.is_valid(&value).then(|| RawJson::from(value))
        }
        #[cfg(not(feature = "validate"))]
        {
            let _ = (arguments, as_text);
            None
        }
    }
}

/// A value that may be coerced.
#[cfg(feature = "validate")]
enum Mismatch {
    /// A `null` at this path. If the member is not required, it is as if it were missing.
    Null(String),
    /// A value at this path, and the expected types.
    Type(String, Vec<Type>),
}

#[cfg(feature = "validate")]
impl Mismatch {
    fn coerce(self, arguments: &mut Value, as_text: bool) -> Option<()> {
        match self {
            Mismatch::Null(path) => {
                let (parent, name) = path.rsplit_once('/')?;
                let name = name.replace("~1", "/").replace("~0", "~");
                // One `null` may violate several keywords.
                arguments.pointer_mut(parent)?.as_object_mut()?.remove(&name);
            }
            Mismatch::Type(path, expected) => {
                let slot = arguments.pointer_mut(&path)?;
                *slot = expected.into_iter().find_map(|expected| convert_value(slot, expected, as_text))?;
            }
        }
        Some(())
    }
}

/// Returns all values that may be coerced. Returns `None` if there are other errors, or no errors at all.
#[cfg(feature = "validate")]
fn find_mismatches(schema: &Schema, value: &Value) -> Option<Vec<Mismatch>> {
    let mut mismatches = Vec::new();
    for error in schema.errors(value, MAX_REPORTED_ERRORS + 1) {
        let path = error.pointer().to_owned();
        // The arguments as a whole are never converted.
        if path.is_empty() || mismatches.len() == MAX_REPORTED_ERRORS {
            return None;
        }
        mismatches.push(match error.kind() {
            _ if error.value().is_null() => Mismatch::Null(path),
            ValidationErrorKind::Type(expected) => Mismatch::Type(path, expected.iter().collect()),
            _ => return None,
        });
    }
    (!mismatches.is_empty()).then_some(mismatches)
}

/// Converts a value to another type, if the conversion is unambiguous.
#[cfg(feature = "validate")]
fn convert_value(value: &Value, expected: Type, as_text: bool) -> Option<Value> {
    match (expected, value) {
        (Type::String, Value::Object(_) | Value::Array(_) | Value::Number(_) | Value::Bool(_)) => {
            as_text.then(|| value.to_string().into())
        }
        (Type::Integer, Value::String(text)) => {
            let text = text.trim();
            text.parse()
                .map(|number: i64| number.into())
                .or_else(|_| text.parse().map(|n: u64| n.into()))
                .ok()
        }
        (Type::Number, Value::String(text)) => text.trim().parse().ok().and_then(json_number),
        (Type::Boolean, Value::String(text)) => text.trim().parse().ok().map(Value::Bool),
        (Type::Array, Value::String(text)) => parse_json_text(text).filter(Value::is_array),
        (Type::Object, Value::String(text)) => parse_json_text(text).filter(Value::is_object),
        _ => None,
    }
}

/// Parses a string that contains JSON.
#[cfg(feature = "validate")]
fn parse_json_text(text: &str) -> Option<Value> {
    stored_json::parse(Bytes::copy_from_slice(text.as_bytes())).map(|raw| raw.to_value())
}

#[cfg(feature = "validate")]
fn json_number(number: f64) -> Option<Value> {
    serde_json::Number::from_f64(number).map(Value::Number)
}

/// Returns whether a schema has constraints that a value of its type may violate.
fn has_value_constraints(schema: &Value, formats: FormatMode) -> bool {
    const TYPE_KEYWORDS: [&str; 15] = [
        "type",
        "properties",
        "required",
        "description",
        "title",
        "default",
        "items",
        "enum",
        "const",
        "anyOf",
        "oneOf",
        "$defs",
        "$ref",
        "examples",
        "additionalProperties",
    ];
    let is_constrained = |schema: &Value| has_value_constraints(schema, formats);
    let Value::Object(object) = schema else { return false };
    object.iter().any(|(key, inner)| match key.as_str() {
        "properties" | "$defs" => inner.as_object().is_some_and(|all| all.values().any(is_constrained)),
        "items" => is_constrained(inner),
        // The minimum and maximum of the type itself; anything else is a constraint.
        "minimum" => inner.as_i64() != Some(0) || !is_unsigned(object),
        "maximum" => max_of_format(object).is_none_or(|max| inner.as_u64() != Some(max)),
        // The length of a tuple.
        "minItems" | "maxItems" => {
            let tuple = object.get("prefixItems").and_then(Value::as_array);
            tuple.is_none_or(|items| inner.as_u64() != Some(items.len() as u64))
        }
        // Widths of numbers, which deserialization checks.
        "format" => formats == FormatMode::Check && !inner.as_str().is_some_and(is_numeric_format),
        "additionalProperties" => *inner == Value::Bool(false) || is_constrained(inner),
        "anyOf" | "oneOf" | "prefixItems" => {
            inner.as_array().is_some_and(|all| all.iter().any(is_constrained))
        }
        key => !TYPE_KEYWORDS.contains(&key) && !key.starts_with("x-"),
    })
}

/// Returns the maximum of an unsigned integer of this width.
fn max_of_format(schema: &Map<String, Value>) -> Option<u64> {
    match schema.get("format")?.as_str()? {
        "uint8" => Some(u8::MAX.into()),
        "uint16" => Some(u16::MAX.into()),
        "uint32" => Some(u32::MAX.into()),
        _ => None,
    }
}

fn is_unsigned(schema: &Map<String, Value>) -> bool {
    schema.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint"))
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Object(object) => 1 + object.values().map(depth).max().unwrap_or(0),
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Validates the content of an accepted elicitation against the form's schema. Clients should do this, but not all do.
pub(crate) fn validate_elicitation(request: &ServerRequest, result: &ClientResult) -> Result<(), String> {
    let (
        ServerRequest::Elicitation(ElicitRequest::Form(form)),
        ClientResult::Elicitation(ElicitResult::Accept(content)),
    ) = (request, result)
    else {
        return Ok(());
    };
    let Ok(validator) = ArgumentValidator::new(&form.schema.to_value(), false) else {
        return Ok(());
    };
    match validator.find_errors(&content.clone().unwrap_or_else(RawJson::empty_object)) {
        None => Ok(()),
        Some(errors) => Err(errors.joined()),
    }
}

#[cfg(all(test, feature = "validate"))]
mod tests {
    use serde_json::json;

    use super::*;

    fn find_errors(schema: &Value, arguments: Value) -> String {
        ArgumentValidator::new(schema, false)
            .expect("the schema is right")
            .find_errors(&RawJson::from(arguments))
            .unwrap_or_default()
            .joined()
    }

    #[test]
    fn messages_name_the_parameter_and_the_expected_and_actual_values() {
        let schema = json!({
            "type": "object",
            "properties": {
                "limit": { "type": "integer", "minimum": 1, "maximum": 100 },
                "style": { "enum": ["short", "long"] },
                "who": { "type": "object", "properties": { "name": { "type": "string", "minLength": 2 } } }
            },
            "required": ["limit"],
            "additionalProperties": false
        });
        assert_eq!(find_errors(&schema, json!({})), "`limit` is required but missing");
        assert_eq!(
            find_errors(&schema, json!({"limit": "5"})),
            "`limit` must be integer, got the string \"5\""
        );
        assert_eq!(find_errors(&schema, json!({"limit": 0})), "`limit` must be at least 1, got the number 0");
        assert_eq!(find_errors(&schema, json!({"limit": 1, "x": 2})), "unknown parameter `x`");
        assert_eq!(
            find_errors(&schema, json!({"limit": 1, "styel": "long", "y": 1})),
            "unknown parameter `styel`; did you mean `style`?; unknown parameter `y`"
        );
        assert_eq!(
            find_errors(&schema, json!({"limit": 1, "style": "tiny"})),
            "`style` must be one of [\"short\",\"long\"], got the string \"tiny\""
        );
        assert_eq!(
            find_errors(&schema, json!({"limit": 1, "who": {"name": "x"}})),
            "`who/name` must have at least 2 characters, got the string \"x\""
        );
        assert_eq!(find_errors(&schema, json!({"limit": 7})), "");
    }

    #[test]
    fn messages_name_the_variants_and_the_format() {
        let schema = json!({"type": "object", "properties": {
            "shape": {"oneOf": [
                {"const": "point"},
                {"type": "object", "properties": {"circle": {"type": "number"}}, "required": ["circle"], "additionalProperties": false}
            ]},
            "when": {"type": "string", "format": "date"},
        }});
        assert_eq!(
            find_errors(&schema, json!({"shape": "dot"})),
            "`shape` must be one of \"point\", {\"circle\": …}, got the string \"dot\""
        );
        assert_eq!(
            find_errors(&schema, json!({"shape": {"circle": "x"}})),
            "`shape/circle` must be number, got the string \"x\""
        );
        assert_eq!(
            find_errors(&schema, json!({"when": "today"})),
            "`when` must be a date (YYYY-MM-DD), got the string \"today\""
        );
    }

    #[test]
    fn a_required_argument_is_not_null() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        let check = ArgumentValidator::new(&schema, false).unwrap();
        assert_eq!(check.coerce(&RawJson::from(json!({"n": null})), true), None);
        let items = json!({"type": "object", "properties": {"n": {"items": {"type": "integer"}}}});
        let check = ArgumentValidator::new(&items, false).unwrap();
        assert_eq!(check.coerce(&RawJson::from(json!({"n": [null]})), true), None);
    }

    #[test]
    fn unambiguous_values_are_coerced() {
        let schema = json!({
            "type": "object",
            "properties": {
                "limit": { "type": "integer", "minimum": 1, "maximum": 100 },
                "ratio": { "type": ["number", "null"] },
                "deep": { "type": "boolean" },
                "msg": { "type": "string" },
                "tags": { "type": "array", "items": { "type": "string" } },
                "who": { "type": "object", "properties": { "age": { "type": "integer" } } }
            },
            "additionalProperties": false
        });
        let check = ArgumentValidator::new(&schema, false).unwrap();
        let coerce =
            |arguments: Value| check.coerce(&RawJson::from(arguments), true).map(|raw| raw.to_value());
        for (sent, meant) in [
            (json!({"limit": "5"}), json!({"limit": 5})),
            (json!({"ratio": " 0.5 "}), json!({"ratio": 0.5})),
            (json!({"deep": "true"}), json!({"deep": true})),
            (json!({"msg": {"a": 1}}), json!({"msg": "{\"a\":1}"})),
            (json!({"msg": 7, "limit": "7"}), json!({"msg": "7", "limit": 7})),
            (json!({"tags": "[\"a\"]"}), json!({"tags": ["a"]})),
            (json!({"who": {"age": "40"}}), json!({"who": {"age": 40}})),
            (json!({"msg": null, "limit": "5"}), json!({"limit": 5})),
            (json!({"who": {"age": null}}), json!({"who": {}})),
        ] {
            assert_eq!(coerce(sent.clone()), Some(meant), "{sent}");
        }
        for wrong in [
            json!({"limit": "five"}),
            json!({"limit": "500"}),
            json!({"limit": "5", "other": 1}),
            json!({"limit": 0}),
            json!({"limit": true}),
            json!({"ratio": "NaN"}),
            json!({"tags": "a"}),
            json!({"who": "[]"}),
            json!({"limit": 5}),
        ] {
            assert_eq!(coerce(wrong.clone()), None, "{wrong}");
        }
        assert_eq!(check.coerce(&RawJson::from(json!("5")), true), None);
        assert_eq!(check.coerce(&RawJson::from(json!({"msg": 7})), false), None);
    }

    proptest::proptest! {
        /// Coercion never invents a value: the result is valid and means the same.
        #[test]
        fn coerced_arguments_are_valid(text in "\\PC{0,12}", is_flag: bool) {
            let name = if is_flag { "flag" } else { "n" };
            let schema = json!({"type": "object", "properties": {
                "n": {"type": "integer"}, "flag": {"type": "boolean"}}});
            let check = ArgumentValidator::new(&schema, false).unwrap();
            if let Some(coerced) = check.coerce(&RawJson::from(json!({name: text})), false) {
                let coerced = coerced.to_value();
                proptest::prop_assert_eq!(find_errors(&schema, coerced.clone()), "");
                let shown = coerced[name].to_string();
                proptest::prop_assert!(text.trim().trim_start_matches(['+', '-', '0']).ends_with(
                    shown.trim_start_matches(['-', '0'])), "{} is not {}", shown, text);
            }
        }
    }

    #[test]
    fn only_constraints_beyond_types_need_a_precheck() {
        let plain = json!({"type": "object", "properties": {
            "n": {"type": ["integer", "null"], "format": "uint32", "minimum": 0},
            "m": {"type": "integer", "format": "uint8", "minimum": 0, "maximum": 255}}});
        assert!(!ArgumentValidator::new(&plain, true).unwrap().is_precheck_required());
        assert!(ArgumentValidator::new(&plain, false).unwrap().is_precheck_required());
        for property in [
            json!({"type": "integer", "format": "uint32", "minimum": 1}),
            json!({"type": "integer", "format": "uint32", "minimum": 0, "maximum": 100}),
            json!({"type": "integer", "format": "uint8", "minimum": 0, "maximum": 100}),
            json!({"type": "integer", "format": "int64", "minimum": 0}),
            json!({"type": "number", "format": "double", "minimum": 0}),
            json!({"type": "string", "format": "email"}),
            json!({"type": "string", "minLength": 1}),
        ] {
            let ranged = json!({"type": "object", "properties": {"n": property}});
            assert!(ArgumentValidator::new(&ranged, true).unwrap().is_precheck_required(), "{ranged}");
        }
    }

    #[test]
    fn a_schema_with_external_references_is_rejected() {
        assert!(ArgumentValidator::new(&json!({"$ref": "https://example.com/schema"}), false).is_err());
        assert!(ArgumentValidator::new(&json!({"type": "no such type"}), false).is_err());
    }
}
