//! Generates the JSON Schema of configurations, for editors, from the key tables.

use serde_json::{Map, Value, json};

use super::keys::{Kind, Presence, ROOT, Table};

/// The schema as text.
pub(crate) fn text() -> String {
    format!("{:#}\n", schema())
}

pub(crate) fn schema() -> Value {
    let mut schema = table_schema(&ROOT);
    if let Some(root) = schema.as_object_mut() {
        root.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
        root.insert("title".into(), "Toolgate configuration".into());
    }
    schema
}

fn table_schema(table: &Table) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for key in table.keys.iter().filter(|key| key.kind.is_supported()) {
        let mut property = kind_schema(&key.kind);
        if let Some(property) = property.as_object_mut() {
            property.insert("description".into(), key.description.into());
            if let Presence::WithDefault(default) = key.presence {
                property.insert("default".into(), serde_json::from_str(default).unwrap_or_default());
            }
        }
        properties.insert(key.name.into(), property);
        if key.presence == Presence::Required {
            required.push(key.name);
        }
    }
    let mut schema = json!({
        "type": "object",
        "description": table.description,
        "properties": properties,
        "additionalProperties": false,
    });
    if let Some(schema) = schema.as_object_mut() {
        if !required.is_empty() {
            schema.insert("required".into(), required.into());
        }
        if !table.one_of.is_empty() {
            let is_supported =
                |kind: &&&str| table.keys.iter().any(|key| key.name == **kind && key.kind.is_supported());
            let kinds = table.one_of.iter().filter(is_supported);
            let alternatives: Vec<Value> = kinds.map(|kind| json!({ "required": [kind] })).collect();
            schema.insert("oneOf".into(), alternatives.into());
        }
    }
    schema
}

fn kind_schema(kind: &Kind) -> Value {
    match kind {
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Integer(min, max) => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::Text | Kind::Secret | Kind::Path => json!({ "type": "string" }),
        Kind::Duration => json!({ "type": "string", "examples": ["500ms", "20s", "5m"] }),
        Kind::Size => json!({ "type": ["string", "integer"], "examples": ["64KiB", "4MiB"] }),
        Kind::Rate => json!({ "type": "string", "examples": ["600/min", "10/s"] }),
        Kind::Choice(choices) => json!({ "enum": choices }),
        Kind::List(inner) => json!({ "type": "array", "items": kind_schema(inner) }),
        Kind::OneOrMany(inner) => {
            json!({ "anyOf": [kind_schema(inner), { "type": "array", "items": kind_schema(inner) }] })
        }
        Kind::Map(inner) => json!({ "type": "object", "additionalProperties": kind_schema(inner) }),
        Kind::Table(inner) => table_schema(inner),
        Kind::Either(kinds) => json!({ "anyOf": kinds.iter().map(kind_schema).collect::<Vec<_>>() }),
        Kind::Any => json!({}),
        Kind::PackOnly | Kind::Planned(_) | Kind::Unsupported(_) => json!(false),
    }
}
