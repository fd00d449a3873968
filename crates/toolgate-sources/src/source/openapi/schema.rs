//! Converts the schemas of a document to self-contained JSON Schema: references are inlined, cycles cut and OpenAPI
//! dialects normalized.

use serde_json::{Map, Value, json};
use toolgate_schema::Pattern;

use super::document::{OpenApiDocument, OpenApiVersion, reference_target};

/// Whether a schema is for input or output; `readOnly` and `writeOnly` members are left out accordingly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemaDirection {
    Input,
    Output,
}

/// Size limits for schemas, which a model reads with every tool list. A larger schema is cut at the first depth where
/// it fits.
const MAX_INPUT_NODES: usize = 600;
const INPUT_DEPTHS: &[usize] = &[8, 4, 2, 1];
const MAX_OUTPUT_NODES: usize = 200;
const OUTPUT_DEPTHS: &[usize] = &[4, 2, 1];

/// Why a schema cannot be inlined.
#[derive(Debug)]
enum InlineError {
    /// Too large at this depth.
    TooLarge,
    Invalid(String),
}

/// Inlines all references of a schema.
pub(super) fn inline_schema(
    document: &OpenApiDocument,
    file_index: usize,
    schema: &Value,
    direction: SchemaDirection,
) -> Result<Value, String> {
    let (nodes, depths) = match direction {
        SchemaDirection::Input => (MAX_INPUT_NODES, INPUT_DEPTHS),
        SchemaDirection::Output => (MAX_OUTPUT_NODES, OUTPUT_DEPTHS),
    };
    for depth in depths {
        let mut inliner = SchemaInliner { document, direction, nodes_left: nodes, stack: vec![schema] };
        match inliner.inline(file_index, schema, *depth) {
            Ok(schema) => return Ok(schema),
            Err(InlineError::Invalid(message)) => return Err(message),
            Err(InlineError::TooLarge) => {}
        }
    }
    Err("its schema is too large".into())
}

struct SchemaInliner<'a> {
    document: &'a OpenApiDocument,
    direction: SchemaDirection,
    nodes_left: usize,
    /// The schemas being inlined, to detect cycles.
    stack: Vec<&'a Value>,
}

impl<'a> SchemaInliner<'a> {
    fn inline(&mut self, file_index: usize, value: &'a Value, depth: usize) -> Result<Value, InlineError> {
        self.nodes_left = self.nodes_left.checked_sub(1).ok_or(InlineError::TooLarge)?;
        let members = match value {
            Value::Object(members) => members,
            Value::Bool(false) => return Ok(json!({ "not": {} })),
            // `true`, and anything that is not a schema, accepts everything.
            _ => return Ok(json!({})),
        };
        let Some(reference) = reference_target(value) else {
            return self.inline_object(file_index, members, depth);
        };
        let (target_file, target) = match self.local_definition(reference) {
            Some(target) => (file_index, target),
            None => self.document.resolve(file_index, reference).map_err(InlineError::Invalid)?,
        };
        let is_cycle =
            self.stack.iter().any(|ancestor| std::ptr::eq(*ancestor, target)) || self.stack.len() > 64;
        if is_cycle || depth == 0 {
            return Ok(truncated_schema(target));
        }
        self.stack.push(target);
        let inlined = self.inline(target_file, target, depth);
        self.stack.pop();
        let mut inlined = inlined?;
        // Since 3.1, a reference may have sibling keywords.
        for name in ["description", "title", "default"] {
            let own_value = members.get(name).filter(|own_value| is_valid_keyword(name, own_value));
            if let (Some(own_value), Some(inlined)) = (own_value, inlined.as_object_mut()) {
                inlined.insert(name.into(), own_value.clone());
            }
        }
        Ok(inlined)
    }

    /// A definition inside a schema that is being inlined, if the document has none of that name.
    fn local_definition(&self, reference: &str) -> Option<&'a Value> {
        let name = reference.strip_prefix("#/$defs/").or_else(|| reference.strip_prefix("#/definitions/"))?;
        if self.document.root().pointer(reference.trim_start_matches('#')).is_some() {
            return None;
        }
        let find_definition = |schema: &&'a Value| {
            let schema: &'a Value = schema;
            schema.get("$defs").or_else(|| schema.get("definitions")).and_then(|all| all.get(name))
        };
        self.stack.iter().rev().find_map(find_definition)
    }

    fn inline_object(
        &mut self,
        file_index: usize,
        members: &'a Map<String, Value>,
        depth: usize,
    ) -> Result<Value, InlineError> {
        let mut result = Map::new();
        let depth_below = depth.saturating_sub(1);
        for (name, value) in members {
            match (name.as_str(), value) {
                ("properties", Value::Object(all)) if depth > 0 => {
                    let inlined_value = self.inline_properties(file_index, all, depth_below)?;
                    result.insert("properties".into(), Value::Object(inlined_value));
                }
                ("patternProperties", Value::Object(_)) => {}
                ("items" | "additionalProperties" | "not" | "contains" | "propertyNames", value) => {
                    let inlined_value = match value {
                        Value::Bool(_) => value.clone(),
                        _ if depth == 0 => json!({}),
                        // An array of schemas, which 3.1 calls `prefixItems`.
                        Value::Array(_) => json!({}),
                        _ => self.inline(file_index, value, depth_below)?,
                    };
                    result.insert(name.clone(), inlined_value);
                }
                ("allOf" | "oneOf" | "anyOf" | "prefixItems", Value::Array(all)) => {
                    if depth == 0 || all.is_empty() {
                        continue;
                    }
                    let inlined_value: Result<Vec<Value>, InlineError> =
                        all.iter().map(|one| self.inline(file_index, one, depth_below)).collect();
                    result.insert(name.clone(), Value::Array(inlined_value?));
                }
                ("type" | "required", Value::Array(all)) if is_valid_keyword(name, value) => {
                    // Duplicates would make the schema invalid.
                    let mut unique: Vec<&Value> = Vec::new();
                    all.iter().for_each(|one| {
                        if !unique.contains(&one) {
                            unique.push(one)
                        }
                    });
                    result.insert(name.clone(), unique.into_iter().cloned().collect());
                }
                (plain, value) if is_valid_keyword(plain, value) => {
                    result.insert(name.clone(), value.clone());
                }
                _ => {}
            }
        }
        if let Some(Value::Array(all)) = result.remove("allOf") {
            merge_all_of(&mut result, all);
        }
        self.normalize(&mut result, members);
        Ok(Value::Object(result))
    }

    fn inline_properties(
        &mut self,
        file_index: usize,
        all: &'a Map<String, Value>,
        depth: usize,
    ) -> Result<Map<String, Value>, InlineError> {
        let hidden_keyword = match self.direction {
            SchemaDirection::Input => "readOnly",
            SchemaDirection::Output => "writeOnly",
        };
        let mut inlined_value = Map::new();
        for (name, value) in all {
            let is_hidden = |value: &Value| value.get(hidden_keyword) == Some(&Value::Bool(true));
            let target = self.document.follow(file_index, value).map(|(_, target)| target);
            if is_hidden(value) || target.is_ok_and(is_hidden) {
                // Marked with `null`, so that it is removed from `required` too.
                inlined_value.insert(name.clone(), Value::Null);
                continue;
            }
            inlined_value.insert(name.clone(), self.inline(file_index, value, depth)?);
        }
        Ok(inlined_value)
    }

    /// Converts OpenAPI dialects to JSON Schema 2020-12 and removes what cannot be validated.
    fn normalize(&self, schema: &mut Map<String, Value>, members: &Map<String, Value>) {
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            let hidden_names: Vec<String> = properties
                .iter()
                .filter(|(_, value)| value.is_null())
                .map(|(name, _)| name.clone())
                .collect();
            properties.retain(|_, value| !value.is_null());
            if let Some(Value::Array(required)) = schema.get_mut("required") {
                required.retain(|name| {
                    name.as_str().is_some_and(|name| !hidden_names.iter().any(|other| other == name))
                });
            }
        }
        if !matches!(schema.get("required"), Some(Value::Array(names)) if !names.is_empty()) {
            schema.remove("required");
        }
        for (limit, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
            match schema.get(exclusive) {
                Some(Value::Bool(true)) => match schema.remove(limit) {
                    Some(number) => schema.insert(exclusive.into(), number),
                    None => schema.remove(exclusive),
                },
                Some(Value::Number(_)) | None => None,
                Some(_) => schema.remove(exclusive),
            };
        }
        let is_binary =
            schema.get("type") == Some(&json!("file")) || schema.get("format") == Some(&json!("binary"));
        if is_binary {
            schema.insert("type".into(), json!("string"));
            schema.remove("format");
            schema.insert("contentEncoding".into(), json!("base64"));
        }
        let is_nullable = self.document.version() != OpenApiVersion::V3_1
            && ["nullable", "x-nullable"].iter().any(|name| members.get(*name) == Some(&Value::Bool(true)));
        if is_nullable {
            make_nullable(schema);
        }
    }
}

/// Whether a keyword is passed on: one invalid keyword must not exclude the operation.
fn is_valid_keyword(name: &str, value: &Value) -> bool {
    match name {
        "default" | "const" | "exclusiveMinimum" | "exclusiveMaximum" => true,
        "type" => is_valid_type(value),
        "format" | "title" | "description" | "contentEncoding" | "contentMediaType" => value.is_string(),
        "enum" => value.as_array().is_some_and(|all| !all.is_empty() && all.len() <= 1000),
        "minimum" | "maximum" => value.is_number(),
        "multipleOf" => value.as_f64().is_some_and(|number| number > 0.0),
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
            value.is_u64()
        }
        "uniqueItems" | "deprecated" => value.is_boolean(),
        "pattern" => is_valid_pattern(value),
        "examples" => value.is_array(),
        "required" => value.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(Value::is_string)),
        _ => false,
    }
}

fn is_valid_type(value: &Value) -> bool {
    let is_known = |value: &Value| {
        value.as_str().is_some_and(|name| {
            ["string", "number", "integer", "boolean", "array", "object", "null", "file"].contains(&name)
        })
    };
    is_known(value) || value.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(is_known))
}

/// A pattern that our regex engine cannot parse is dropped, rather than rejecting all arguments. The backend
/// validates them anyway.
fn is_valid_pattern(value: &Value) -> bool {
    value.as_str().is_some_and(|pattern| pattern.len() <= 1000 && Pattern::new(pattern).is_ok())
}

/// The rest of a schema that is cut: type, title and description.
fn truncated_schema(target: &Value) -> Value {
    let mut kept_keywords = Map::new();
    for name in ["type", "title", "description"] {
        if let Some(value) = target.get(name).filter(|value| is_valid_keyword(name, value)) {
            kept_keywords.insert(name.into(), value.clone());
        }
    }
    Value::Object(kept_keywords)
}

fn make_nullable(schema: &mut Map<String, Value>) {
    match schema.get_mut("type") {
        Some(Value::String(name)) => {
            let nullable_type = json!([name, "null"]);
            schema.insert("type".into(), nullable_type);
        }
        Some(Value::Array(names)) if !names.contains(&json!("null")) => names.push(json!("null")),
        Some(_) => {}
        None => {
            for union in ["oneOf", "anyOf"] {
                if let Some(Value::Array(all)) = schema.get_mut(union) {
                    all.push(json!({ "type": "null" }));
                }
            }
        }
    }
    if let Some(Value::Array(all)) = schema.get_mut("enum")
        && !all.contains(&Value::Null)
    {
        all.push(Value::Null);
    }
}

/// Merges the objects of an `allOf`; other schemas stay a list.
fn merge_all_of(into: &mut Map<String, Value>, all: Vec<Value>) {
    let is_plain = |schema: &Value| {
        schema.as_object().is_some_and(|members| {
            members.keys().all(|name| {
                [
                    "type",
                    "properties",
                    "required",
                    "description",
                    "title",
                    "additionalProperties",
                    "deprecated",
                ]
                .contains(&name.as_str())
            }) && members.get("type").is_none_or(|kind| kind == "object")
                && members.get("additionalProperties").is_none_or(Value::is_boolean)
        })
    };
    if all.len() == 1 {
        let only = all
            .into_iter()
            .next()
            .and_then(|only| if let Value::Object(only) = only { Some(only) } else { None });
        merge_members(into, only.unwrap_or_default());
        return;
    }
    if !all.iter().all(is_plain) || into.get("type").is_some_and(|kind| kind != "object") {
        into.insert("allOf".into(), Value::Array(all));
        return;
    }
    into.insert("type".into(), json!("object"));
    for schema in all {
        if let Value::Object(members) = schema {
            merge_members(into, members);
        }
    }
}

/// Merges properties and `required`.
fn merge_members(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (name, value) in from {
        match (name.as_str(), value) {
            ("properties", Value::Object(more)) => {
                let merged = into.entry("properties").or_insert_with(|| json!({}));
                if let Value::Object(merged) = merged {
                    for (name, value) in more {
                        merged.entry(name).or_insert(value);
                    }
                }
            }
            ("required", Value::Array(more)) => {
                let merged = into.entry("required").or_insert_with(|| json!([]));
                if let Value::Array(merged) = merged {
                    more.into_iter().for_each(|name| {
                        if !merged.contains(&name) {
                            merged.push(name)
                        }
                    });
                }
            }
            // Each closed schema would reject the members of the others.
            ("additionalProperties", _) => {}
            (_, value) => {
                into.entry(name).or_insert(value);
            }
        }
    }
}

/// The parts of an output schema that can be relied on: which members may occur. Documents are often wrong about
/// types and required members, and a call must not fail because of that.
pub(super) fn lenient_output_schema(schema: &Value) -> Option<Value> {
    if schema.get("type") != Some(&json!("object")) {
        return None;
    }
    let mut outline = resultline(schema);
    let has_members = outline.get("properties").and_then(Value::as_object).is_some_and(|all| !all.is_empty());
    outline.as_object_mut()?.insert("type".into(), json!("object"));
    has_members.then_some(outline)
}

fn resultline(schema: &Value) -> Value {
    let mut result = Map::new();
    if let Some(text) = schema.get("description").filter(|text| text.is_string()) {
        result.insert("description".into(), text.clone());
    }
    if let Some(Value::Object(all)) = schema.get("properties") {
        let members: Map<String, Value> =
            all.iter().map(|(name, value)| (name.clone(), resultline(value))).collect();
        result.insert("properties".into(), Value::Object(members));
    }
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        result.insert("items".into(), resultline(items));
    }
    Value::Object(result)
}
