//! Nodes and rules of a compiled schema.

use serde_json::{Number, Value};

use crate::format::Format;
use crate::pattern::Pattern;
use crate::types::TypeSet;

/// The index of a node.
pub(crate) type NodeId = u32;

pub(crate) type NameList = Box<[Box<str>]>;

/// A compiled schema. A value must have one of its types and satisfy all its rules.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) types: TypeSet,
    /// Cheap rules come first; rules that depend on what other rules have evaluated come last.
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
    Format(Format),
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

impl Rule {
    /// Visits all nodes that the rule refers to.
    pub(super) fn for_each_node(&mut self, visit: &mut dyn FnMut(&mut NodeId)) {
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
    pub(super) fn for_each_in_place_node(&mut self, visit: &mut dyn FnMut(&mut NodeId)) {
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
