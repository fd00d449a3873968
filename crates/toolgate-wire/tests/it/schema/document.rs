//! An official schema document: loads it, closes it, and validates values against its definitions.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use jsonschema::Validator;
use serde_json::{Map, Value, json};
use toolgate_wire::ProtocolVersion;

const SCHEMA_DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/schema");

/// Values with a shape of their own, which no schema of the protocol closes.
const OPEN_DEFINITIONS: [&str; 10] = [
    "_meta",
    "inputSchema",
    "outputSchema",
    "experimental",
    "extensions",
    "arguments",
    "metadata",
    "data",
    "input",
    "structuredContent",
];

/// Definitions that others extend.
const BASE_DEFINITIONS: [&str; 12] = [
    "Result",
    "Request",
    "Notification",
    "JSONRPCRequest",
    "JSONRPCNotification",
    "JSONRPCResponse",
    "JSONRPCResultResponse",
    "MetaObject",
    "RequestMetaObject",
    "ResultMetaObject",
    "NotificationMetaObject",
    "SubscriptionsListenResultMetaObject",
];

/// An official schema, as it is and closed, with the properties that were validated.
pub(super) struct SchemaDocument {
    pub(super) open: Value,
    pub(super) closed: Value,
    /// `definitions` or `$defs`.
    pub(super) definitions_key: &'static str,
    validators: RefCell<BTreeMap<(String, bool), Validator>>,
    pub(super) used_definitions: RefCell<BTreeSet<String>>,
    /// `Definition.property` of all validated properties.
    pub(super) seen_properties: RefCell<BTreeSet<String>>,
}

impl SchemaDocument {
    pub(super) fn load(name: &str) -> Option<SchemaDocument> {
        let path = format!("{SCHEMA_DIR}/{name}.json");
        let Ok(text) = std::fs::read_to_string(&path) else {
            eprintln!("SKIPPED: official schemas not found at {path}");
            return None;
        };
        let mut open: Value = serde_json::from_str(&text).unwrap();
        let schemas = if open.get("$defs").is_some() { "$defs" } else { "definitions" };
        patch_schema(name, &mut open[schemas]);
        let mut closed = open.clone();
        let definitions = open[schemas].as_object().unwrap();
        for (name, definition) in closed[schemas].as_object_mut().unwrap() {
            let base = BASE_DEFINITIONS.contains(&name.as_str());
            close(definition, definitions, if base { CloseMode::Base } else { CloseMode::Closed });
        }
        let (validators, used, said) = Default::default();
        Some(SchemaDocument {
            open,
            closed,
            definitions_key: schemas,
            validators,
            used_definitions: used,
            seen_properties: said,
        })
    }

    pub(super) fn has(&self, definition: &str) -> bool {
        self.open[self.definitions_key].get(definition).is_some()
    }

    /// Returns the first validation error of `value`.
    pub(super) fn validation_error(&self, definition: &str, closed: bool, value: &Value) -> Option<String> {
        assert!(self.has(definition), "no definition {definition}");
        self.used_definitions.borrow_mut().insert(definition.to_owned());
        let mut validators = self.validators.borrow_mut();
        let validator = validators.entry((definition.to_owned(), closed)).or_insert_with(|| {
            let mut schema = if closed { self.closed.clone() } else { self.open.clone() };
            schema["$ref"] = json!(format!("#/{}/{definition}", self.definitions_key));
            jsonschema::options().should_validate_formats(true).build(&schema).unwrap()
        });
        let error = validator.iter_errors(value).next()?;
        Some(format!("{definition} (closed: {closed}): {error} at {}", error.instance_path()))
    }

    /// Records which properties a value has, by the definitions that list them.
    pub(super) fn record_properties(&self, owner: &str, schema: &Value, value: &Value) {
        if let Some(name) = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
            return self.record_properties(name, &self.open[self.definitions_key][name], value);
        }
        for branch in ["anyOf", "allOf"].iter().filter_map(|name| schema[name].as_array()).flatten() {
            if self.could_match(branch, value) {
                self.record_properties(owner, branch, value);
            }
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let owner = format!("{owner}.{name}");
            if let Some(value) = value.get(name) {
                self.record_properties(&owner, property, value);
                self.seen_properties.borrow_mut().insert(owner);
            }
        }
        for item in value.as_array().into_iter().flatten() {
            self.record_properties(owner, &schema["items"], item);
        }
        if schema["additionalProperties"].is_object() {
            for value in value.as_object().into_iter().flat_map(|members| members.values()) {
                self.record_properties(owner, &schema["additionalProperties"], value);
            }
        }
    }

    /// Whether a value may belong to a branch of a union.
    pub(super) fn could_match(&self, schema: &Value, value: &Value) -> bool {
        if let Some(name) = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
            return self.could_match(&self.open[self.definitions_key][name], value);
        }
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut constants = schema["properties"].as_object().into_iter().flatten();
        required.into_iter().all(|name| value.get(name).is_some())
            && constants.all(|(name, property)| match (property.get("const"), value.get(name)) {
                (Some(constant), Some(value)) => constant == value,
                _ => true,
            })
    }

    /// Collects every property that the definitions reachable from `schema` list.
    pub(super) fn collect_properties(
        &self,
        owner: &str,
        schema: &Value,
        seen: &mut BTreeSet<String>,
        out: &mut BTreeSet<String>,
    ) {
        if let Some(name) = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
            if seen.insert(name.to_owned()) {
                self.collect_properties(name, &self.open[self.definitions_key][name], seen, out);
            }
            return;
        }
        for branch in ["anyOf", "allOf"].iter().filter_map(|name| schema[name].as_array()).flatten() {
            self.collect_properties(owner, branch, seen, out);
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let owner = format!("{owner}.{name}");
            self.collect_properties(&owner, property, seen, out);
            out.insert(owner);
        }
        for inner in ["items", "additionalProperties"] {
            if schema[inner].is_object() {
                self.collect_properties(owner, &schema[inner], seen, out);
            }
        }
    }

    pub(super) fn check(&self, version: ProtocolVersion, definition: &str, value: &Value) {
        self.record_properties(definition, &self.open[self.definitions_key][definition], value);
        for closed in [false, true] {
            if let Some(validation_error) = self.validation_error(definition, closed, value) {
                panic!("{version} {validation_error}\n{value:#}");
            }
        }
    }
}

/// Adds known extensions of the schemas.
fn patch_schema(name: &str, definitions: &mut Value) {
    match name {
        // Extensions are declared in this version too, since their own proposal (SEP-2133).
        "2025-11-25" => {
            for owner in ["ClientCapabilities", "ServerCapabilities"] {
                definitions[owner]["properties"]["extensions"] =
                    json!({ "type": "object", "additionalProperties": { "type": "object" } });
            }
        }
        // The tasks extension adds to the subscription filter.
        "2026-07-28" => {
            definitions["SubscriptionFilter"]["properties"]["taskIds"] =
                json!({ "type": "array", "items": { "type": "string" } });
        }
        _ => {}
    }
}

/// How an object is closed.
#[derive(Clone, Copy, PartialEq)]
enum CloseMode {
    Closed,
    /// Others extend it: only its members are closed.
    Base,
    /// The parameters of a message, which may always have `_meta`.
    Params,
}

fn close(schema: &mut Value, definitions: &Map<String, Value>, mode: CloseMode) {
    let Some(schema) = schema.as_object_mut() else {
        return;
    };
    for union in ["anyOf", "oneOf"] {
        let members = schema.get_mut(union).and_then(Value::as_array_mut);
        members.into_iter().flatten().for_each(|member| close(member, definitions, mode));
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(inner) {
            close(inner, definitions, CloseMode::Closed);
        }
    }
    if let Some(parts) = schema.get_mut("allOf").and_then(Value::as_array_mut) {
        for part in parts {
            // A closed part would forbid properties that its sibling allows.
            if let Some(name) = part.get("$ref").and_then(Value::as_str) {
                *part = definitions[name.rsplit('/').next().unwrap()].clone();
            }
            // A schema that allows everything would make every property known.
            part.as_object_mut().unwrap().remove("additionalProperties");
            close(part, definitions, CloseMode::Base);
        }
        if mode != CloseMode::Base {
            schema.insert("unevaluatedProperties".into(), json!(false));
        }
    }
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    let message = properties.contains_key("method");
    for (name, property) in properties.iter_mut() {
        let mode = if message && name == "params" { CloseMode::Params } else { CloseMode::Closed };
        if !OPEN_DEFINITIONS.contains(&name.as_str()) {
            close(property, definitions, mode);
        }
    }
    if message {
        // Older schemas define the envelope separately.
        properties.entry("jsonrpc").or_insert(json!({}));
        properties.entry("id").or_insert(json!({}));
    }
    if mode == CloseMode::Params {
        properties.entry("_meta").or_insert(json!({ "type": "object" }));
    }
    if mode != CloseMode::Base && !schema.contains_key("additionalProperties") {
        schema.insert("additionalProperties".into(), json!(false));
    }
}
