//! Schemas of a description as JSON Schema that stands by itself: references inlined, circles cut, dialects mended.

use serde_json::{Map, Value, json};
use toolgate_schema::Pattern;

use super::document::{OpenApiDocument, OpenApiVersion, reference_target};

/// Whose schema it is: what only the other side sets is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemaDirection {
    Input,
    Output,
}

/// How many values a schema may have: a model reads it with every list of tools. One that is larger is cut at a depth
/// where it is not.
const MAX_INPUT_NODES: usize = 600;
const INPUT_DEPTHS: &[usize] = &[8, 4, 2, 1];
const MAX_OUTPUT_NODES: usize = 200;
const OUTPUT_DEPTHS: &[usize] = &[4, 2, 1];

/// Why there is no schema.
#[derive(Debug)]
enum InlineError {
    /// Not that deep, then.
    TooLarge,
    Invalid(String),
}

/// A schema that stands by itself.
pub(super) fn inline_schema(
    document: &OpenApiDocument,
    home: usize,
    schema: &Value,
    side: SchemaDirection,
) -> Result<Value, String> {
    let (nodes, depths) = match side {
        SchemaDirection::Input => (MAX_INPUT_NODES, INPUT_DEPTHS),
        SchemaDirection::Output => (MAX_OUTPUT_NODES, OUTPUT_DEPTHS),
    };
    for depth in depths {
        let mut walk = SchemaInliner { document, direction: side, nodes_left: nodes, stack: vec![schema] };
        match walk.inline(home, schema, *depth) {
            Ok(schema) => return Ok(schema),
            Err(InlineError::Invalid(said)) => return Err(said),
            Err(InlineError::TooLarge) => {}
        }
    }
    Err("its schema is too large".into())
}

struct SchemaInliner<'a> {
    document: &'a OpenApiDocument,
    direction: SchemaDirection,
    nodes_left: usize,
    /// What is being inlined at this moment: who comes back is in a circle.
    stack: Vec<&'a Value>,
}

impl<'a> SchemaInliner<'a> {
    fn inline(&mut self, home: usize, value: &'a Value, depth: usize) -> Result<Value, InlineError> {
        self.nodes_left = self.nodes_left.checked_sub(1).ok_or(InlineError::TooLarge)?;
        let members = match value {
            Value::Object(members) => members,
            Value::Bool(false) => return Ok(json!({ "not": {} })),
            // True, and what is no schema at all: anything.
            _ => return Ok(json!({})),
        };
        let Some(reference) = reference_target(value) else {
            return self.inline_object(home, members, depth);
        };
        let (there, target) = match self.local_definition(reference) {
            Some(target) => (home, target),
            None => self.document.resolve(home, reference).map_err(InlineError::Invalid)?,
        };
        let is_circle = self.stack.iter().any(|seen| std::ptr::eq(*seen, target)) || self.stack.len() > 64;
        if is_circle || depth == 0 {
            return Ok(truncated_schema(target));
        }
        self.stack.push(target);
        let inlined = self.inline(there, target, depth);
        self.stack.pop();
        let mut inlined = inlined?;
        // Since 3.1 a reference may have words of its own beside it.
        for name in ["description", "title", "default"] {
            let own = members.get(name).filter(|own| is_valid_keyword(name, own));
            if let (Some(own), Some(inlined)) = (own, inlined.as_object_mut()) {
                inlined.insert(name.into(), own.clone());
            }
        }
        Ok(inlined)
    }

    /// A definition inside of a schema that is being inlined, where the document has none of that name.
    fn local_definition(&self, reference: &str) -> Option<&'a Value> {
        let name = reference.strip_prefix("#/$defs/").or_else(|| reference.strip_prefix("#/definitions/"))?;
        if self.document.root().pointer(reference.trim_start_matches('#')).is_some() {
            return None;
        }
        let own = |schema: &&'a Value| {
            let schema: &'a Value = schema;
            schema.get("$defs").or_else(|| schema.get("definitions")).and_then(|all| all.get(name))
        };
        self.stack.iter().rev().find_map(own)
    }

    fn inline_object(
        &mut self,
        home: usize,
        members: &'a Map<String, Value>,
        depth: usize,
    ) -> Result<Value, InlineError> {
        let mut made = Map::new();
        let below = depth.saturating_sub(1);
        for (name, value) in members {
            match (name.as_str(), value) {
                ("properties", Value::Object(all)) if depth > 0 => {
                    let inside = self.inline_properties(home, all, below)?;
                    made.insert("properties".into(), Value::Object(inside));
                }
                ("patternProperties", Value::Object(_)) => {}
                ("items" | "additionalProperties" | "not" | "contains" | "propertyNames", value) => {
                    let inside = match value {
                        Value::Bool(_) => value.clone(),
                        _ if depth == 0 => json!({}),
                        // A list of schemas is what 3.1 calls `prefixItems`.
                        Value::Array(_) => json!({}),
                        _ => self.inline(home, value, below)?,
                    };
                    made.insert(name.clone(), inside);
                }
                ("allOf" | "oneOf" | "anyOf" | "prefixItems", Value::Array(all)) => {
                    if depth == 0 || all.is_empty() {
                        continue;
                    }
                    let inside: Result<Vec<Value>, InlineError> =
                        all.iter().map(|one| self.inline(home, one, below)).collect();
                    made.insert(name.clone(), Value::Array(inside?));
                }
                ("type" | "required", Value::Array(all)) if is_valid_keyword(name, value) => {
                    // Each once: said twice, a schema is wrong.
                    let mut once: Vec<&Value> = Vec::new();
                    all.iter().for_each(|one| {
                        if !once.contains(&one) {
                            once.push(one)
                        }
                    });
                    made.insert(name.clone(), once.into_iter().cloned().collect());
                }
                (plain, value) if is_valid_keyword(plain, value) => {
                    made.insert(name.clone(), value.clone());
                }
                _ => {}
            }
        }
        if let Some(Value::Array(all)) = made.remove("allOf") {
            merge_all_of(&mut made, all);
        }
        self.normalize(&mut made, members);
        Ok(Value::Object(made))
    }

    fn inline_properties(
        &mut self,
        home: usize,
        all: &'a Map<String, Value>,
        depth: usize,
    ) -> Result<Map<String, Value>, InlineError> {
        let hidden = match self.direction {
            SchemaDirection::Input => "readOnly",
            SchemaDirection::Output => "writeOnly",
        };
        let mut inside = Map::new();
        for (name, value) in all {
            let is_hidden = |value: &Value| value.get(hidden) == Some(&Value::Bool(true));
            let target = self.document.follow(home, value).map(|(_, target)| target);
            if is_hidden(value) || target.is_ok_and(is_hidden) {
                // Noted, so that nobody is asked for it.
                inside.insert(name.clone(), Value::Null);
                continue;
            }
            inside.insert(name.clone(), self.inline(home, value, depth)?);
        }
        Ok(inside)
    }

    /// Dialects become JSON Schema 2020-12, and what cannot be checked is left out.
    fn normalize(&self, made: &mut Map<String, Value>, members: &Map<String, Value>) {
        if let Some(Value::Object(properties)) = made.get_mut("properties") {
            let hidden: Vec<String> = properties
                .iter()
                .filter(|(_, value)| value.is_null())
                .map(|(name, _)| name.clone())
                .collect();
            properties.retain(|_, value| !value.is_null());
            if let Some(Value::Array(required)) = made.get_mut("required") {
                required.retain(|name| {
                    name.as_str().is_some_and(|name| !hidden.iter().any(|other| other == name))
                });
            }
        }
        if !matches!(made.get("required"), Some(Value::Array(names)) if !names.is_empty()) {
            made.remove("required");
        }
        for (limit, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
            match made.get(exclusive) {
                Some(Value::Bool(true)) => match made.remove(limit) {
                    Some(number) => made.insert(exclusive.into(), number),
                    None => made.remove(exclusive),
                },
                Some(Value::Number(_)) | None => None,
                Some(_) => made.remove(exclusive),
            };
        }
        let is_binary =
            made.get("type") == Some(&json!("file")) || made.get("format") == Some(&json!("binary"));
        if is_binary {
            made.insert("type".into(), json!("string"));
            made.remove("format");
            made.insert("contentEncoding".into(), json!("base64"));
        }
        let is_nullable = self.document.version() != OpenApiVersion::V3_1
            && ["nullable", "x-nullable"].iter().any(|name| members.get(*name) == Some(&Value::Bool(true)));
        if is_nullable {
            make_nullable(made);
        }
    }
}

/// Words that are passed on, if they are what they must be: one slip must not cost the operation.
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

/// Patterns are those of another language: what ours does not read is no reason to refuse arguments. The last word has
/// who checks them.
fn is_valid_pattern(value: &Value) -> bool {
    value.as_str().is_some_and(|pattern| pattern.len() <= 1000 && Pattern::new(pattern).is_ok())
}

/// What is left of a schema that would not end.
fn truncated_schema(target: &Value) -> Value {
    let mut left = Map::new();
    for name in ["type", "title", "description"] {
        if let Some(value) = target.get(name).filter(|value| is_valid_keyword(name, value)) {
            left.insert(name.into(), value.clone());
        }
    }
    Value::Object(left)
}

fn make_nullable(made: &mut Map<String, Value>) {
    match made.get_mut("type") {
        Some(Value::String(name)) => {
            let both = json!([name, "null"]);
            made.insert("type".into(), both);
        }
        Some(Value::Array(names)) if !names.contains(&json!("null")) => names.push(json!("null")),
        Some(_) => {}
        None => {
            for union in ["oneOf", "anyOf"] {
                if let Some(Value::Array(all)) = made.get_mut(union) {
                    all.push(json!({ "type": "null" }));
                }
            }
        }
    }
    if let Some(Value::Array(all)) = made.get_mut("enum")
        && !all.contains(&Value::Null)
    {
        all.push(Value::Null);
    }
}

/// Objects that must all hold become one; anything else stays a list.
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

/// Properties and what is required, of both.
fn merge_members(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (name, value) in from {
        match (name.as_str(), value) {
            ("properties", Value::Object(more)) => {
                let own = into.entry("properties").or_insert_with(|| json!({}));
                if let Value::Object(own) = own {
                    for (name, value) in more {
                        own.entry(name).or_insert(value);
                    }
                }
            }
            ("required", Value::Array(more)) => {
                let own = into.entry("required").or_insert_with(|| json!([]));
                if let Value::Array(own) = own {
                    more.into_iter().for_each(|name| {
                        if !own.contains(&name) {
                            own.push(name)
                        }
                    });
                }
            }
            // Closed alone, each would refuse what the others have.
            ("additionalProperties", _) => {}
            (_, value) => {
                into.entry(name).or_insert(value);
            }
        }
    }
}

/// The shape of an answer as far as it can be promised: which members there may be. Descriptions lie about types and
/// about what is always there, and a call must not fail because of that.
pub(super) fn lenient_output_schema(schema: &Value) -> Option<Value> {
    if schema.get("type") != Some(&json!("object")) {
        return None;
    }
    let mut shape = schema_outline(schema);
    let has_members = shape.get("properties").and_then(Value::as_object).is_some_and(|all| !all.is_empty());
    shape.as_object_mut()?.insert("type".into(), json!("object"));
    has_members.then_some(shape)
}

fn schema_outline(schema: &Value) -> Value {
    let mut made = Map::new();
    if let Some(text) = schema.get("description").filter(|text| text.is_string()) {
        made.insert("description".into(), text.clone());
    }
    if let Some(Value::Object(all)) = schema.get("properties") {
        let inside: Map<String, Value> =
            all.iter().map(|(name, value)| (name.clone(), schema_outline(value))).collect();
        made.insert("properties".into(), Value::Object(inside));
    }
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        made.insert("items".into(), schema_outline(items));
    }
    Value::Object(made)
}
