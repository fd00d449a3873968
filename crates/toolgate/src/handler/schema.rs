//! JSON Schemas of Rust types, in a simple form that models and old clients understand.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value};

/// Returns the schema of the JSON that a type is deserialized from, for arguments.
pub(crate) fn schema_of<T: JsonSchema>() -> Schema {
    generate::<T>(SchemaSettings::draft2020_12().for_deserialize())
}

/// Returns the schema of the JSON that a type is serialized to, for structured output.
pub(crate) fn output_schema_of<T: JsonSchema>() -> Schema {
    generate::<T>(SchemaSettings::draft2020_12().for_serialize())
}

/// Generates a schema with all subschemas inlined, because many clients cannot resolve references.
fn generate<T: JsonSchema>(mut settings: SchemaSettings) -> Schema {
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    settings.into_generator().into_root_schema_for::<T>()
}

/// What a schema describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SchemaUse {
    Arguments,
    Output,
}

/// Removes the Rust-specific parts of a generated schema of arguments: the type's name as title, integer widths as formats, and
/// `null` for properties that are optional anyway.
pub(crate) fn tidy(schema: Value) -> Value {
    tidy_for(schema, SchemaUse::Arguments)
}

/// Removes the Rust-specific parts of a generated schema of structured output. `null` stays where serde may write it: clients
/// reject output that the schema does not allow.
pub(crate) fn tidy_output(schema: Value) -> Value {
    let mut schema = tidy_for(schema, SchemaUse::Output);
    if let Value::Object(root) = &mut schema {
        declare_object(root);
    }
    schema
}

fn tidy_for(mut schema: Value, schema_use: SchemaUse) -> Value {
    if let Value::Object(root) = &mut schema {
        root.remove("title");
        root.remove("$schema");
    }
    tidy_subschema(&mut schema, schema_use);
    schema
}

/// Adds `"type": "object"` to an enum whose variants are all objects. Older protocol versions announce only schemas that
/// say so.
fn declare_object(root: &mut Map<String, Value>) {
    let is_object = |variant: &Value| variant.get("type").and_then(Value::as_str) == Some("object");
    let mut variants = ["oneOf", "anyOf"].into_iter().filter_map(|keyword| root.get(keyword)?.as_array());
    if !root.contains_key("type") && variants.any(|all| !all.is_empty() && all.iter().all(is_object)) {
        root.insert("type".into(), "object".into());
    }
}

fn tidy_subschema(schema: &mut Value, schema_use: SchemaUse) {
    let Value::Object(object) = schema else { return };
    if object.get("format").and_then(Value::as_str).is_some_and(is_numeric_format) {
        object.remove("format");
    }
    let required: Vec<String> = match object.get("required") {
        Some(Value::Array(names)) => {
            names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect()
        }
        _ => Vec::new(),
    };
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        for (name, property) in properties {
            if schema_use == SchemaUse::Arguments && !required.contains(name) {
                drop_null(property);
            }
            tidy_subschema(property, schema_use);
        }
    }
    for key in ["items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"] {
        if let Some(inner) = object.get_mut(key) {
            tidy_subschema(inner, schema_use);
        }
    }
    for key in ["anyOf", "oneOf", "allOf", "prefixItems"] {
        if let Some(Value::Array(inner)) = object.get_mut(key) {
            inner.iter_mut().for_each(|one| tidy_subschema(one, schema_use));
        }
    }
    for key in ["$defs", "patternProperties", "dependentSchemas"] {
        if let Some(Value::Object(inner)) = object.get_mut(key) {
            inner.values_mut().for_each(|one| tidy_subschema(one, schema_use));
        }
    }
}

/// Returns whether a format is the width of a Rust number.
pub(crate) fn is_numeric_format(format: &str) -> bool {
    matches!(
        format,
        "int8"
            | "int16"
            | "int32"
            | "int64"
            | "int128"
            | "int"
            | "uint8"
            | "uint16"
            | "uint32"
            | "uint64"
            | "uint128"
            | "uint"
            | "float"
            | "double"
    )
}

/// `["integer", "null"]` becomes `"integer"`; `anyOf: [X, null]` becomes `X`.
fn drop_null(property: &mut Value) {
    let Value::Object(object) = property else { return };
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(variants)) = object.get_mut("anyOf") {
        variants.retain(|variant| variant.get("type").and_then(Value::as_str) != Some("null"));
        if let [Value::Object(only)] = variants.as_mut_slice() {
            let only = std::mem::take(only);
            object.remove("anyOf");
            merge(object, only);
        }
    }
    if let Some(Value::Array(values)) = object.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if object.get("default").is_some_and(Value::is_null) {
        object.remove("default");
    }
}

/// Merges the schema of the type into the property. Keywords of the property (its description) win.
fn merge(property: &mut Map<String, Value>, only: Map<String, Value>) {
    for (key, value) in only {
        property.entry(key).or_insert(value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(JsonSchema)]
    #[allow(dead_code)]
    enum Style {
        Short,
        Long,
    }

    /// Looks for things
    #[derive(JsonSchema)]
    #[allow(dead_code)]
    struct Search {
        /// What to look for
        query: String,
        limit: Option<u32>,
        /// How much to say
        style: Option<Style>,
    }

    #[derive(JsonSchema)]
    #[serde(tag = "kind", rename_all(serialize = "lowercase"))]
    #[allow(dead_code)]
    enum Hit {
        Page { rank: Option<u8> },
        Nothing,
    }

    #[test]
    fn an_output_schema_allows_null_and_uses_the_names_of_serialization() {
        assert_eq!(
            tidy_output(output_schema_of::<Search>().to_value()),
            json!({
                "type": "object",
                "description": "Looks for things",
                "properties": {
                    "query": { "type": "string", "description": "What to look for" },
                    "limit": { "type": ["integer", "null"], "minimum": 0 },
                    "style": {
                        "type": ["string", "null"],
                        "enum": ["Short", "Long", null],
                        "description": "How much to say"
                    }
                },
                "required": ["query", "limit", "style"]
            })
        );
        assert_eq!(
            tidy_output(output_schema_of::<Hit>().to_value()),
            json!({
                "type": "object",
                "oneOf": [
                    {
                        "type": "object",
                        "properties": {
                            "rank": { "type": ["integer", "null"], "minimum": 0, "maximum": 255 },
                            "kind": { "type": "string", "const": "page" }
                        },
                        "required": ["kind", "rank"]
                    },
                    {
                        "type": "object",
                        "properties": { "kind": { "type": "string", "const": "nothing" } },
                        "required": ["kind"]
                    }
                ]
            })
        );
    }

    #[test]
    fn a_tidied_schema_has_no_rust_specific_parts() {
        assert_eq!(
            tidy(schema_of::<Search>().to_value()),
            json!({
                "type": "object",
                "description": "Looks for things",
                "properties": {
                    "query": { "type": "string", "description": "What to look for" },
                    "limit": { "type": "integer", "minimum": 0 },
                    "style": { "type": "string", "enum": ["Short", "Long"], "description": "How much to say" }
                },
                "required": ["query"]
            })
        );
    }
}
