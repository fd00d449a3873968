//! Compiles a schema into nodes with rules, with all references resolved.

use std::collections::HashMap;

use serde_json::{Map, Number, Value};

use crate::SchemaError;
use crate::index::{Draft, InvalidKeyword, RefTarget, SchemaIndex, pointer_to};
use crate::number;
use crate::pattern::{Pattern, PatternError};
use crate::types::{Type, TypeSet};

/// The index of a node.
pub(crate) type NodeId = u32;

pub(crate) type NameList = Box<[Box<str>]>;

/// A compiled schema. A value must have one of its types and satisfy all its rules.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) types: TypeSet,
    /// Cheap rules first; rules that depend on what the others evaluated last.
    pub(crate) rules: Box<[Rule]>,
    pub(crate) resource: u32,
    /// Whether the node refers back to itself without descending into the value.
    pub(crate) is_cyclic: bool,
}

#[derive(Debug)]
pub(crate) enum Rule {
    /// The schema `false`.
    False,
    /// The meta-schema.
    MetaSchema,
    Const(Box<Value>),
    /// Any of the items of an array.
    Enum(Box<Value>),
    Minimum(Number),
    Maximum(Number),
    ExclusiveMinimum(Number),
    ExclusiveMaximum(Number),
    MultipleOf(Number),
    MinLength(u64),
    MaxLength(u64),
    Pattern(Box<Pattern>),
    Array(Box<ArrayRule>),
    Object(Box<ObjectRule>),
    /// If the property is present, these are required.
    DependentRequired(Box<[(Box<str>, NameList)]>),
    Ref(NodeId),
    /// The target depends on the dynamic scope.
    DynamicRef {
        name: Box<str>,
        fallback: NodeId,
    },
    AllOf(Box<[NodeId]>),
    AnyOf(Box<[NodeId]>),
    OneOf(Box<[NodeId]>),
    Not(NodeId, Box<Value>),
    If(NodeId, Option<NodeId>, Option<NodeId>),
    /// If the property is present, the object must match the schema.
    DependentSchemas(Box<[(Box<str>, NodeId)]>),
    UnevaluatedItems(NodeId),
    UnevaluatedProperties(NodeId),
}

#[derive(Debug, Default)]
pub(crate) struct ArrayRule {
    pub(crate) min: u64,
    pub(crate) max: Option<u64>,
    pub(crate) is_unique: bool,
    pub(crate) prefix_items: Box<[NodeId]>,
    pub(crate) items: Option<NodeId>,
    pub(crate) contains: Option<Contains>,
}

#[derive(Debug)]
pub(crate) struct Contains {
    pub(crate) schema: NodeId,
    pub(crate) min: u64,
    pub(crate) max: Option<u64>,
    /// Whether matched items count as evaluated, for `unevaluatedItems`.
    pub(crate) marks_evaluated: bool,
}

#[derive(Debug, Default)]
pub(crate) struct ObjectRule {
    pub(crate) min: u64,
    pub(crate) max: Option<u64>,
    /// Properties that are described or required, sorted by name.
    pub(crate) properties: Box<[PropertyRule]>,
    /// In the order of the schema.
    pub(crate) required: NameList,
    pub(crate) patterns: Box<[(Pattern, NodeId)]>,
    pub(crate) additional: Option<AdditionalProperties>,
    /// Whether a pattern is not enforced, so that it might apply to any property.
    pub(crate) has_unsupported_pattern: bool,
    pub(crate) property_names: Option<NodeId>,
}

#[derive(Debug)]
pub(crate) struct PropertyRule {
    pub(crate) name: Box<str>,
    pub(crate) schema: Option<NodeId>,
    pub(crate) is_required: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum AdditionalProperties {
    Forbidden,
    Schema(NodeId),
}

impl ObjectRule {
    /// Returns the rule for a property.
    #[inline]
    pub(crate) fn property(&self, name: &str) -> Option<&PropertyRule> {
        match self.properties.len() {
            0..=8 => self.properties.iter().find(|member| *member.name == *name),
            _ => {
                let found = self.properties.binary_search_by(|member| (*member.name).cmp(name));
                found.ok().map(|position| &self.properties[position])
            }
        }
    }
}

/// All nodes; the first is the root.
#[derive(Debug)]
pub(crate) struct CompiledSchema {
    pub(crate) nodes: Box<[Node]>,
    /// Possible targets of dynamic references, by resource and name.
    pub(crate) dynamic_anchors: Box<[(u32, Box<str>, NodeId)]>,
    pub(crate) unsupported_patterns: Vec<String>,
}

pub(crate) fn compile(schema: &Value, others: &[(&str, &Value)]) -> Result<CompiledSchema, SchemaError> {
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

impl Rule {
    /// Visits all nodes that the rule refers to.
    fn for_each_node(&mut self, visit: &mut dyn FnMut(&mut NodeId)) {
        match self {
            Rule::Array(rule) => {
                let contains = rule.contains.as_mut().map(|contains| &mut contains.schema);
                rule.prefix_items.iter_mut().chain(&mut rule.items).chain(contains).for_each(visit);
            }
            Rule::Object(rule) => {
                let members = rule.properties.iter_mut().filter_map(|member| member.schema.as_mut());
                let patterns = rule.patterns.iter_mut().map(|(_, id)| id);
                let rest = match &mut rule.additional {
                    Some(AdditionalProperties::Schema(id)) => Some(id),
                    _ => None,
                };
                members.chain(patterns).chain(rest).chain(&mut rule.property_names).for_each(visit);
            }
            Rule::UnevaluatedItems(id) | Rule::UnevaluatedProperties(id) => visit(id),
            other => other.for_each_in_place_node(visit),
        }
    }

    /// Visits the nodes that apply to the same value.
    fn for_each_in_place_node(&mut self, visit: &mut dyn FnMut(&mut NodeId)) {
        match self {
            Rule::Ref(id) | Rule::DynamicRef { fallback: id, .. } | Rule::Not(id, _) => visit(id),
            Rule::AllOf(all) | Rule::AnyOf(all) | Rule::OneOf(all) => all.iter_mut().for_each(visit),
            Rule::If(id, then, otherwise) => {
                std::iter::once(id).chain(then).chain(otherwise).for_each(visit);
            }
            Rule::DependentSchemas(all) => all.iter_mut().map(|(_, id)| id).for_each(visit),
            _ => {}
        }
    }
}

/// Replaces nodes that consist of a `$ref` only by their targets.
fn skip_pure_refs(nodes: &mut [Node]) {
    let ends: Vec<NodeId> = (0..nodes.len())
        .map(|start| {
            let mut id = NodeId::try_from(start).unwrap_or_default();
            for _ in 0..16 {
                match &nodes[id as usize] {
                    Node { types, rules, .. } if *types == TypeSet::ANY => match &**rules {
                        [Rule::Ref(next)] => id = *next,
                        _ => break,
                    },
                    _ => break,
                }
            }
            id
        })
        .collect();
    for node in nodes {
        node.rules.iter_mut().for_each(|rule| rule.for_each_node(&mut |id| *id = ends[*id as usize]));
    }
}

/// Marks at least one node of every cycle that does not descend into the value.
fn mark_cycles(nodes: &mut [Node], dynamic: &[(u32, Box<str>, NodeId)]) {
    let next: Vec<Vec<NodeId>> = nodes
        .iter_mut()
        .map(|node| {
            let mut all = Vec::new();
            for rule in &mut node.rules {
                if let Rule::DynamicRef { name, .. } = &*rule {
                    all.extend(dynamic.iter().filter(|(_, known, _)| known == name).map(|(_, _, id)| *id));
                }
                rule.for_each_in_place_node(&mut |id| all.push(*id));
            }
            all
        })
        .collect();
    // 0: not visited, 1: on the current path, 2: done.
    let mut state = vec![0_u8; nodes.len()];
    for start in 0..nodes.len() {
        if state[start] != 0 {
            continue;
        }
        let mut path = vec![(start, 0)];
        state[start] = 1;
        while let Some((position, n_taken)) = path.last_mut() {
            let Some(to) = next[*position].get(*n_taken).map(|to| *to as usize) else {
                state[*position] = 2;
                path.pop();
                continue;
            };
            *n_taken += 1;
            match state[to] {
                0 => {
                    state[to] = 1;
                    path.push((to, 0));
                }
                1 => nodes[to].is_cyclic = true,
                _ => {}
            }
        }
    }
}
