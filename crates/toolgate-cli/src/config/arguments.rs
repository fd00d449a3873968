//! Reads the arguments of tools, templates and prompts, in their short and long forms.

use serde_json::{Map, Value, json};
use toolgate_schema::Schema;

use super::diagnostics::{Diagnostics, suggest};
use super::tree::{Node, TableEntry};

/// The arguments of a tool, template or prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Arguments {
    /// In the order of the file.
    pub(crate) list: Vec<Argument>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Argument {
    pub(crate) name: String,
    /// Its JSON Schema, without the keys of this program (`from`, `clean`, `required`).
    pub(crate) schema: Value,
    pub(crate) default: Option<Value>,
    pub(crate) is_required: bool,
    /// Set if the value comes from the call; clients neither see nor send the argument then.
    pub(crate) origin: Option<ArgumentOrigin>,
    /// Whether the argument is sanitized before validation, if that differs from the tool.
    pub(crate) clean: Option<bool>,
}

/// The part of a call that an argument is taken from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ArgumentOrigin {
    /// The id of the principal.
    Subject,
    /// An attribute of the principal.
    Attribute(String),
    /// A header of the request.
    Header(String),
}

impl Arguments {
    /// The JSON Schema of the arguments that clients send.
    pub(crate) fn visible_schema(&self) -> Value {
        object_schema(self.list.iter().filter(|argument| argument.origin.is_none()))
    }

    /// The JSON Schema of all arguments that a backend receives.
    pub(crate) fn full_schema(&self) -> Value {
        object_schema(self.list.iter())
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|argument| argument.name.as_str())
    }
}

fn object_schema<'a>(arguments: impl Iterator<Item = &'a Argument>) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for argument in arguments {
        properties.insert(argument.name.clone(), argument.schema.clone());
        if argument.is_required {
            required.push(Value::from(argument.name.as_str()));
        }
    }
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if let (Some(schema), false) = (schema.as_object_mut(), required.is_empty()) {
        schema.insert("required".into(), required.into());
    }
    schema
}

const TYPE_NAMES: [&str; 6] = ["string", "integer", "number", "boolean", "array", "object"];

/// Keywords that the schema of an argument may contain. JSON Schema ignores unknown keywords, so a typo would allow values
/// that the author meant to forbid.
const SCHEMA_KEYWORDS: [&str; 42] = [
    "type",
    "enum",
    "const",
    "title",
    "description",
    "default",
    "examples",
    "format",
    "deprecated",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "contentEncoding",
    "contentMediaType",
];

/// Reads a table of arguments and reports invalid ones.
pub(crate) fn read(entries: &[TableEntry], diagnostics: &mut Diagnostics) -> Arguments {
    let mut list = Vec::new();
    for entry in entries {
        let name = &entry.key;
        let is_valid = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        if name.is_empty() || name.len() > 64 || !is_valid {
            diagnostics.report(
                entry.span,
                format!("{name:?} is not a valid argument name; use 1 to 64 letters, digits, `_` and `-`"),
            );
            continue;
        }
        let argument = match entry.node.as_text() {
            Some(short) => parse_shorthand(name, short),
            None => parse_table(name, &entry.node, diagnostics),
        };
        match argument.and_then(validate) {
            Ok(argument) => list.push(argument),
            Err(message) => {
                // An empty message means that the problem has been reported already.
                if !message.is_empty() {
                    diagnostics.report(entry.node.span, format!("argument `{name}`: {message}"));
                }
                // Added with an empty schema, so that its uses are not reported as unknown arguments.
                let (name, schema) = (name.clone(), json!({}));
                list.push(Argument {
                    name,
                    schema,
                    default: None,
                    is_required: false,
                    origin: None,
                    clean: None,
                });
            }
        }
    }
    Arguments { list }
}

/// Parses the short form: `string`, `string?`, `integer=20`, `string[]`.
fn parse_shorthand(name: &str, text: &str) -> Result<Argument, String> {
    let (kind, default) = match text.split_once('=') {
        Some((kind, default)) => (kind.trim(), Some(default.trim())),
        None => (text.trim(), None),
    };
    let (kind, is_optional) = match kind.strip_suffix('?') {
        Some(kind) => (kind, true),
        None => (kind, false),
    };
    let (kind, is_list) = match kind.strip_suffix("[]") {
        Some(kind) => (kind, true),
        None => (kind, false),
    };
    if !TYPE_NAMES.contains(&kind) {
        let hint = match suggest(kind, TYPE_NAMES) {
            Some(similar) => format!("; did you mean `{similar}`?"),
            None => "; write `string`, `integer`, `number` or `boolean`, optionally followed by `?` or `=default`, or a table"
                .into(),
        };
        return Err(format!("{text:?} is not a type{hint}"));
    }
    let mut schema = json!({ "type": kind });
    if is_list {
        schema = json!({ "type": "array", "items": schema });
    }
    let default = match default {
        None => None,
        Some(text) if kind == "string" && !is_list => Some(Value::from(text)),
        Some(text) => Some(
            serde_json::from_str(text).map_err(|_| format!("the default {text:?} is not a valid {kind}"))?,
        ),
    };
    if let (Some(default), Some(schema)) = (&default, schema.as_object_mut()) {
        schema.insert("default".into(), default.clone());
    }
    let is_required = !is_optional && default.is_none();
    Ok(Argument { name: name.to_owned(), schema, default, is_required, origin: None, clean: None })
}

/// Parses the long form: JSON Schema keywords and `from`, `clean` and `required`.
fn parse_table(name: &str, node: &Node, diagnostics: &mut Diagnostics) -> Result<Argument, String> {
    let Value::Object(mut schema) = node.to_json() else {
        return Err(String::new());
    };
    let n_before = diagnostics.len();
    check_keywords(node, diagnostics);
    if diagnostics.len() > n_before {
        return Err(String::new());
    }
    let origin = match schema.remove("from") {
        Some(Value::String(from)) => Some(parse_origin(&from)?),
        Some(_) => return Err("`from` must be a string".into()),
        None => None,
    };
    let clean = match schema.remove("clean") {
        Some(Value::Bool(clean)) => Some(clean),
        Some(_) => return Err("`clean` must be true or false".into()),
        None => None,
    };
    let required = match schema.get("required") {
        Some(Value::Bool(required)) => {
            let required = *required;
            schema.remove("required");
            Some(required)
        }
        _ => None,
    };
    if let (false, Some(Value::Array(values))) = (schema.contains_key("type"), schema.get("enum"))
        && values.iter().all(Value::is_string)
    {
        schema.insert("type".into(), "string".into());
    }
    let default = schema.get("default").cloned();
    let is_required = required.unwrap_or(default.is_none());
    Ok(Argument { name: name.to_owned(), schema: Value::Object(schema), default, is_required, origin, clean })
}

/// Reports unknown keywords and types, at each level of a schema.
fn check_keywords(node: &Node, diagnostics: &mut Diagnostics) {
    for entry in node.entries() {
        let key = entry.key.as_str();
        match key {
            "from" | "clean" => {}
            "type" => {
                let kinds = match entry.node.as_text() {
                    Some(_) => std::slice::from_ref(&entry.node),
                    None => entry.node.items(),
                };
                for kind in kinds {
                    let Some(name) =
                        kind.as_text().filter(|name| *name != "null" && !TYPE_NAMES.contains(name))
                    else {
                        continue;
                    };
                    let hint =
                        suggest(name, TYPE_NAMES).map(|similar| format!("; did you mean `{similar}`?"));
                    diagnostics
                        .report(kind.span, format!("{name:?} is not a type{}", hint.unwrap_or_default()));
                }
            }
            "properties" | "patternProperties" => {
                entry.node.entries().iter().for_each(|inner| check_keywords(&inner.node, diagnostics));
            }
            "items"
            | "contains"
            | "additionalProperties"
            | "propertyNames"
            | "not"
            | "if"
            | "then"
            | "else" => {
                check_keywords(&entry.node, diagnostics);
            }
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => {
                entry.node.items().iter().for_each(|inner| check_keywords(inner, diagnostics));
            }
            _ if SCHEMA_KEYWORDS.contains(&key) => {}
            _ => {
                let hint = match suggest(key, SCHEMA_KEYWORDS.into_iter().chain(["from", "clean"])) {
                    Some(similar) => format!("; did you mean `{similar}`?"),
                    None => String::new(),
                };
                diagnostics.report(entry.span, format!("`{key}` is not a JSON Schema keyword{hint}"));
            }
        }
    }
}

fn parse_origin(from: &str) -> Result<ArgumentOrigin, String> {
    let invalid = || {
        format!(
            "`from` must be \"principal.sub\", \"principal.<attribute>\" or \"header.<name>\", not {from:?}"
        )
    };
    match from.split_once('.').ok_or_else(invalid)? {
        (_, "") => Err(invalid()),
        ("principal", "sub") => Ok(ArgumentOrigin::Subject),
        ("principal", attribute) => Ok(ArgumentOrigin::Attribute(attribute.to_owned())),
        ("header", name)
            if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) =>
        {
            Ok(ArgumentOrigin::Header(name.to_ascii_lowercase()))
        }
        _ => Err(invalid()),
    }
}

/// Checks that the schema is valid and accepts the default.
fn validate(argument: Argument) -> Result<Argument, String> {
    // A schema with only a type is valid. Most arguments are like that, so this saves time with many tools.
    let is_plain = argument.schema.as_object().is_some_and(|schema| schema.len() == 1);
    if is_plain && argument.schema["type"].is_string() {
        return Ok(argument);
    }
    let schema = Schema::new(&argument.schema).map_err(|error| format!("invalid schema: {error}"))?;
    if let Some(unsupported) = schema.unsupported_patterns().first() {
        return Err(format!("invalid schema: {unsupported}"));
    }
    if let Some(default) = &argument.default
        && let Err(error) = schema.validate(default)
    {
        return Err(format!("invalid default: {error}"));
    }
    Ok(argument)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_forms_are_parsed() {
        let check = |text: &str| {
            let Argument { schema, default, is_required, .. } = parse_shorthand("x", text).unwrap();
            (schema, default, is_required)
        };
        assert_eq!(check("string"), (json!({ "type": "string" }), None, true));
        assert_eq!(check("string?"), (json!({ "type": "string" }), None, false));
        assert_eq!(
            check("integer=20"),
            (json!({ "type": "integer", "default": 20 }), Some(json!(20)), false)
        );
        assert_eq!(
            check("string=very friendly"),
            (json!({ "type": "string", "default": "very friendly" }), Some(json!("very friendly")), false)
        );
        assert_eq!(
            check("string[]?"),
            (json!({ "type": "array", "items": { "type": "string" } }), None, false)
        );
        assert!(parse_shorthand("x", "strng").unwrap_err().contains("did you mean `string`?"));
        assert!(parse_shorthand("x", "integer=many").unwrap_err().contains("is not a valid integer"));
        assert!(parse_shorthand("x", "").is_err());
        assert!(validate(parse_shorthand("x", "integer=2.5").unwrap()).is_err());
    }

    #[test]
    fn origins_are_parsed() {
        assert_eq!(parse_origin("principal.sub"), Ok(ArgumentOrigin::Subject));
        assert_eq!(parse_origin("principal.tenant"), Ok(ArgumentOrigin::Attribute("tenant".into())));
        assert_eq!(parse_origin("header.X-Tenant"), Ok(ArgumentOrigin::Header("x-tenant".into())));
        for wrong in ["principal", "principal.", "env.HOME", "header.a b", ""] {
            assert!(parse_origin(wrong).is_err(), "{wrong}");
        }
    }
}
