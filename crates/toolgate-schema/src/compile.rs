//! Compiles a schema into nodes with rules, with all references resolved.

mod graph;
mod rule;

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::SchemaError;
use crate::format::Format;
use crate::index::{Draft, InvalidKeyword, RefTarget, SchemaIndex, pointer_to};
use crate::number;
use crate::pattern::{Pattern, PatternError};
use crate::types::{Type, TypeSet};

pub(crate) use rule::{
    AdditionalProperties, ArrayRule, Contains, NameList, Node, NodeId, ObjectRule, PropertyRule, Rule,
};

use graph::{mark_cycles, skip_pure_refs};

/// All nodes; the first is the root.
#[derive(Debug)]
pub(crate) struct CompiledSchema {
    pub(crate) nodes: Box<[Node]>,
    /// Possible targets of dynamic references, by resource and name.
    pub(crate) dynamic_anchors: Box<[(u32, Box<str>, NodeId)]>,
    pub(crate) unsupported_patterns: Vec<String>,
}

/// What `format` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FormatMode {
    Annotate,
    Check,
}

pub(crate) fn compile(
    schema: &Value,
    others: &[(&str, &Value)],
    formats: FormatMode,
) -> Result<CompiledSchema, SchemaError> {
    let compile = || {
        let mut index = SchemaIndex::new();
        index.add("", schema)?;
        for (uri, other) in others {
            index.add(uri, other)?;
        }
        Compiler {
            index,
            nodes: Vec::new(),
            ids: HashMap::new(),
            pending: Vec::new(),
            dynamic_anchors: Vec::new(),
            unsupported_patterns: Vec::new(),
            formats,
        }
        .compile(schema)
    };
    compile().map_err(|InvalidKeyword { value, message }| {
        let pointer = pointer_to(schema, value);
        let other =
            || others.iter().find_map(|(uri, other)| Some(format!("{uri}#{}", pointer_to(other, value)?)));
        SchemaError { pointer: pointer.or_else(other).unwrap_or_default(), message }
    })
}

struct Compiler<'a> {
    index: SchemaIndex<'a>,
    nodes: Vec<Node>,
    ids: HashMap<*const Value, NodeId>,
    pending: Vec<(NodeId, &'a Value, usize)>,
    dynamic_anchors: Vec<(u32, Box<str>, NodeId)>,
    unsupported_patterns: Vec<String>,
    formats: FormatMode,
}

impl<'a> Compiler<'a> {
    fn compile(mut self, schema: &'a Value) -> Result<CompiledSchema, InvalidKeyword<'a>> {
        self.node_id(schema, 0);
        while let Some((id, schema, resource)) = self.pending.pop() {
            let node = self.build_node(schema, resource)?;
            self.nodes[id as usize] = node;
        }
        let is_dynamic = !self.dynamic_anchors.is_empty();
        if !is_dynamic {
            skip_pure_refs(&mut self.nodes);
        }
        mark_cycles(&mut self.nodes, &self.dynamic_anchors);
        Ok(CompiledSchema {
            nodes: self.nodes.into(),
            dynamic_anchors: self.dynamic_anchors.into(),
            unsupported_patterns: self.unsupported_patterns,
        })
    }

    /// Returns the node of a schema. A new one is built later.
    fn node_id(&mut self, schema: &'a Value, outer: usize) -> NodeId {
        if let Some(id) = self.ids.get(&std::ptr::from_ref(schema)) {
            return *id;
        }
        let resource = self.index.resource_of(schema, outer);
        let id = NodeId::try_from(self.nodes.len()).unwrap_or(NodeId::MAX);
        self.ids.insert(schema, id);
        self.nodes.push(Node { types: TypeSet::ANY, rules: Box::default(), resource: 0, is_cyclic: false });
        self.pending.push((id, schema, resource));
        id
    }

    fn node_ids(&mut self, all: &'a [Value], resource: usize) -> Box<[NodeId]> {
        all.iter().map(|schema| self.node_id(schema, resource)).collect()
    }

    fn build_node(&mut self, schema: &'a Value, resource: usize) -> Result<Node, InvalidKeyword<'a>> {
        if !self.index.is_indexed(schema) {
            self.index.index_schema(schema, resource)?;
        }
        let mut node = Node {
            types: TypeSet::ANY,
            rules: Box::default(),
            resource: u32::try_from(resource).unwrap_or_default(),
            is_cyclic: false,
        };
        let mut rules = Vec::new();
        match schema {
            Value::Bool(false) => rules.push(Rule::False),
            Value::Object(members) => {
                let ref_overrides_siblings = self.index.resources[resource].draft.ref_overrides_siblings();
                if !ref_overrides_siblings || !members.contains_key("$ref") {
                    node.types = read_types(members);
                    self.simple_rules(members, &mut rules);
                    self.array_rule(members, resource, &mut rules);
                    self.object_rule(members, resource, &mut rules);
                    self.applicator_rules(members, resource, &mut rules);
                }
                self.ref_rules(members, resource, &mut rules)?;
                if !ref_overrides_siblings {
                    self.unevaluated_rules(members, resource, &mut rules);
                }
            }
            _ => {}
        }
        node.rules = rules.into();
        Ok(node)
    }

    fn simple_rules(&mut self, members: &'a Map<String, Value>, rules: &mut Vec<Rule>) {
        for (keyword, value) in members {
            let limit = value.as_number();
            let is_flag = |keyword: &str| members.get(keyword) == Some(&Value::Bool(true));
            let rule = match (keyword.as_str(), limit) {
                ("const", _) => Rule::Const(Box::new(value.clone())),
                ("enum", _) => Rule::Enum(Box::new(value.clone())),
                // In drafts before 6, `exclusiveMinimum` is a flag next to the limit.
                ("minimum", Some(limit)) if is_flag("exclusiveMinimum") => {
                    Rule::ExclusiveMinimum(limit.clone())
                }
                ("maximum", Some(limit)) if is_flag("exclusiveMaximum") => {
                    Rule::ExclusiveMaximum(limit.clone())
                }
                ("minimum", Some(limit)) => Rule::Minimum(limit.clone()),
                ("maximum", Some(limit)) => Rule::Maximum(limit.clone()),
                ("exclusiveMinimum", Some(limit)) => Rule::ExclusiveMinimum(limit.clone()),
                ("exclusiveMaximum", Some(limit)) => Rule::ExclusiveMaximum(limit.clone()),
                ("multipleOf", Some(limit)) => Rule::MultipleOf(limit.clone()),
                ("minLength", Some(limit)) => Rule::MinLength(number::as_count(limit).unwrap_or_default()),
                ("maxLength", Some(limit)) => Rule::MaxLength(number::as_count(limit).unwrap_or(u64::MAX)),
                ("pattern", _) => match self.compile_pattern(value.as_str().unwrap_or_default()) {
                    Some(pattern) => Rule::Pattern(Box::new(pattern)),
                    None => continue,
                },
                ("format", _) if self.formats == FormatMode::Check => {
                    match value.as_str().and_then(Format::from_name) {
                        Some(format) => Rule::Format(format),
                        None => continue,
                    }
                }
                _ => continue,
            };
            rules.push(rule);
        }
    }

    /// Compiles a pattern. An unsupported one is recorded and not enforced.
    fn compile_pattern(&mut self, text: &str) -> Option<Pattern> {
        match Pattern::new(text) {
            Ok(pattern) => Some(pattern),
            Err(PatternError::Invalid(detail) | PatternError::Unsupported(detail)) => {
                let warning = format!("the pattern {text:?} is not enforced: {detail}");
                if !self.unsupported_patterns.contains(&warning) {
                    self.unsupported_patterns.push(warning);
                }
                None
            }
        }
    }

    fn array_rule(&mut self, members: &'a Map<String, Value>, resource: usize, rules: &mut Vec<Rule>) {
        let draft = self.index.resources[resource].draft;
        let mut rule = ArrayRule::default();
        let mut is_used = false;
        for (keyword, value) in members {
            match keyword.as_str() {
                "minItems" => rule.min = read_limit(value),
                "maxItems" => rule.max = Some(read_limit(value)),
                "uniqueItems" => rule.is_unique = value == &Value::Bool(true),
                "prefixItems" if draft >= Draft::Draft2020 => {
                    rule.prefix_items = self.node_ids(value.as_array().map_or(&[], Vec::as_slice), resource);
                }
                "items" => match value {
                    Value::Array(all) => {
                        rule.prefix_items = self.node_ids(all, resource);
                        rule.items = members.get("additionalItems").map(|rest| self.node_id(rest, resource));
                    }
                    rest => rule.items = Some(self.node_id(rest, resource)),
                },
                "contains" => {
                    let schema = self.node_id(value, resource);
                    let min = members.get("minContains").map_or(1, read_limit);
                    let max = members.get("maxContains").map(read_limit);
                    rule.contains =
                        Some(Contains { schema, min, max, marks_evaluated: draft >= Draft::Draft2020 });
                }
                _ => continue,
            }
            is_used = true;
        }
        if is_used {
            rules.push(Rule::Array(Box::new(rule)));
        }
    }

    fn object_rule(&mut self, members: &'a Map<String, Value>, resource: usize, rules: &mut Vec<Rule>) {
        let mut rule = ObjectRule::default();
        let mut properties: Vec<PropertyRule> = Vec::new();
        let mut patterns = Vec::new();
        let mut is_used = false;
        for (keyword, value) in members {
            match keyword.as_str() {
                "minProperties" => rule.min = read_limit(value),
                "maxProperties" => rule.max = Some(read_limit(value)),
                "properties" => {
                    let Some(all) = value.as_object() else { continue };
                    // Nodes are in the order of the schema, properties sorted by name.
                    for property in all.values() {
                        self.node_id(property, resource);
                    }
                    let mut names: Vec<&str> = all.keys().map(String::as_str).collect();
                    names.sort_unstable();
                    for name in names {
                        let schema = all.get(name).map(|property| self.node_id(property, resource));
                        properties.push(PropertyRule { name: name.into(), schema, is_required: false });
                    }
                }
                "required" => rule.required = read_names(value),
                "patternProperties" => {
                    for (text, schema) in value.as_object().into_iter().flatten() {
                        let id = self.node_id(schema, resource);
                        patterns.extend(self.compile_pattern(text).map(|pattern| (pattern, id)));
                    }
                }
                "additionalProperties" => {
                    rule.additional = Some(match value {
                        Value::Bool(false) => AdditionalProperties::Forbidden,
                        rest => AdditionalProperties::Schema(self.node_id(rest, resource)),
                    });
                }
                "propertyNames" => rule.property_names = Some(self.node_id(value, resource)),
                _ => continue,
            }
            is_used = true;
        }
        if !is_used {
            return;
        }
        for name in &rule.required {
            match properties.binary_search_by(|member| member.name.cmp(name)) {
                Ok(position) => properties[position].is_required = true,
                Err(position) => properties
                    .insert(position, PropertyRule { name: name.clone(), schema: None, is_required: true }),
            }
        }
        // A pattern that is not enforced might allow any additional property, so all are allowed.
        let n_patterns = members.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
        if patterns.len() < n_patterns {
            rule.additional = None;
            rule.has_unsupported_pattern = true;
        }
        rule.properties = properties.into();
        rule.patterns = patterns.into();
        rules.push(Rule::Object(Box::new(rule)));
    }

    fn applicator_rules(&mut self, members: &'a Map<String, Value>, resource: usize, rules: &mut Vec<Rule>) {
        let list = |value: &'a Value| value.as_array().map_or(&[][..], Vec::as_slice);
        for (keyword, value) in members {
            let rule = match keyword.as_str() {
                "dependentRequired" => Rule::DependentRequired(dependent_required(value)),
                "dependentSchemas" => Rule::DependentSchemas(self.dependent_schemas(value, resource)),
                "dependencies" => {
                    rules.push(Rule::DependentRequired(dependent_required(value)));
                    Rule::DependentSchemas(self.dependent_schemas(value, resource))
                }
                "allOf" => Rule::AllOf(self.node_ids(list(value), resource)),
                "anyOf" => Rule::AnyOf(self.node_ids(list(value), resource)),
                "oneOf" => Rule::OneOf(self.node_ids(list(value), resource)),
                "not" => Rule::Not(self.node_id(value, resource), Box::new(value.clone())),
                "if" => {
                    let then = members.get("then").map(|then| self.node_id(then, resource));
                    let otherwise = members.get("else").map(|otherwise| self.node_id(otherwise, resource));
                    Rule::If(self.node_id(value, resource), then, otherwise)
                }
                _ => continue,
            };
            rules.push(rule);
        }
    }

    fn dependent_schemas(&mut self, value: &'a Value, resource: usize) -> Box<[(Box<str>, NodeId)]> {
        let all = value.as_object().into_iter().flatten().filter(|(_, schema)| !schema.is_array());
        all.map(|(name, schema)| (name.as_str().into(), self.node_id(schema, resource))).collect()
    }

    fn ref_rules(
        &mut self,
        members: &'a Map<String, Value>,
        resource: usize,
        rules: &mut Vec<Rule>,
    ) -> Result<(), InvalidKeyword<'a>> {
        for (keyword, value) in members {
            let (target, is_dynamic) = match (keyword.as_str(), value.as_str()) {
                ("$ref", Some(reference)) => (self.index.resolve(resource, reference), false),
                ("$dynamicRef", Some(reference)) => (self.index.resolve(resource, reference), true),
                ("$recursiveRef", Some(_)) => (Some(self.index.resolve_recursive(resource)), true),
                _ => continue,
            };
            let message =
                || format!("{value} does not resolve within this schema, and remote schemas are not fetched");
            let rule = match target.ok_or_else(|| InvalidKeyword { value, message: message() })? {
                RefTarget::MetaSchema => Rule::MetaSchema,
                RefTarget::Schema { value, resource, dynamic } => {
                    let id = self.node_id(value, resource);
                    match dynamic.filter(|_| is_dynamic) {
                        Some(name) => {
                            self.add_dynamic_anchors(name);
                            Rule::DynamicRef { name: name.into(), fallback: id }
                        }
                        None => Rule::Ref(id),
                    }
                }
            };
            rules.push(rule);
        }
        Ok(())
    }

    fn add_dynamic_anchors(&mut self, name: &'a str) {
        if self.dynamic_anchors.iter().any(|(_, known, _)| **known == *name) {
            return;
        }
        for (resource, value) in self.index.dynamic_targets(name) {
            let id = self.node_id(value, resource);
            self.dynamic_anchors.push((u32::try_from(resource).unwrap_or_default(), name.into(), id));
        }
    }

    fn unevaluated_rules(&mut self, members: &'a Map<String, Value>, resource: usize, rules: &mut Vec<Rule>) {
        if let Some(value) = members.get("unevaluatedItems") {
            rules.push(Rule::UnevaluatedItems(self.node_id(value, resource)));
        }
        if let Some(value) = members.get("unevaluatedProperties") {
            rules.push(Rule::UnevaluatedProperties(self.node_id(value, resource)));
        }
    }
}

fn read_types(members: &Map<String, Value>) -> TypeSet {
    let parse = |name: &Value| name.as_str().and_then(Type::from_name);
    match members.get("type") {
        Some(Value::Array(names)) => names.iter().filter_map(parse).fold(TypeSet::NONE, TypeSet::with),
        Some(name) => parse(name).map_or(TypeSet::ANY, |one| TypeSet::NONE.with(one)),
        None => TypeSet::ANY,
    }
}

fn read_limit(value: &Value) -> u64 {
    value.as_number().and_then(number::as_count).unwrap_or_default()
}

fn read_names(value: &Value) -> NameList {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(Box::from).collect()
}

fn dependent_required(value: &Value) -> Box<[(Box<str>, NameList)]> {
    let all = value.as_object().into_iter().flatten().filter(|(_, needed)| needed.is_array());
    all.map(|(name, needed)| (name.as_str().into(), read_names(needed))).collect()
}
