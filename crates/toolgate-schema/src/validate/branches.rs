//! Errors of `anyOf` and `oneOf`: those of the branch that a value is meant for, or a description of all branches.

use serde_json::Value;

use super::{Location, Validator};
use crate::compile::{AdditionalProperties, CompiledSchema, Node, NodeId, ObjectRule, Rule};
use crate::equality;
use crate::types::{Type, TypeSet};
use crate::validation_error::ValidationErrorKind;

/// References and nested branches that are followed.
const MAX_REFS: usize = 8;
/// Branches that are described.
const MAX_DESCRIPTIONS: usize = 64;

impl<'s, 'v> Validator<'s, 'v> {
    /// Records why a value matches none of the branches. Always returns false.
    pub(super) fn add_branch_errors(
        &mut self,
        branches: &'s [NodeId],
        value: &'v Value,
        location: &Location<'_>,
        kind: fn(Vec<String>) -> ValidationErrorKind<'s>,
    ) -> bool {
        if self.n_errors_left == 0 {
            return false;
        }
        if let Some(id) = select_branch(self.schema, branches, value) {
            let n_errors = self.errors.len();
            self.check_node(id, value, location);
            if self.errors.len() > n_errors || self.is_exhausted {
                return false;
            }
        }
        self.add_error(location, value, kind(describe_branches(self.schema, branches)))
    }
}

/// Returns the branch that a value is meant for: the one with its tag, or the only one beside `null`.
fn select_branch(schema: &CompiledSchema, branches: &[NodeId], value: &Value) -> Option<NodeId> {
    let only = |is_meant: &dyn Fn(&Node) -> bool| {
        let mut meant = branches.iter().copied().filter(|id| is_meant(resolve(schema, *id)));
        meant.next().filter(|_| meant.next().is_none())
    };
    only(&|node| object_rule(node).is_some_and(|rule| tag_of(schema, rule, value) == Tag::Same))
        .or_else(|| {
            only(&|node| {
                object_rule(node).is_some_and(|rule| {
                    let has_key = |name: &str| value.get(name).is_some();
                    tag_of(schema, rule, value) == Tag::None && single_required(rule).is_some_and(has_key)
                })
            })
        })
        .or_else(|| only(&|node| node.types != TypeSet::NONE.with(Type::Null)))
}

/// How a value compares with the constants that a branch requires.
#[derive(PartialEq, Eq)]
enum Tag {
    /// The branch requires no constant.
    None,
    Same,
    Other,
}

fn tag_of(schema: &CompiledSchema, rule: &ObjectRule, value: &Value) -> Tag {
    let mut tag = Tag::None;
    for (name, expected) in constants(schema, rule) {
        match value.get(name).is_some_and(|value| equality::is_equal(expected, value)) {
            true => tag = Tag::Same,
            false => return Tag::Other,
        }
    }
    tag
}

/// Returns the required properties with a constant value.
fn constants<'s>(
    schema: &'s CompiledSchema,
    rule: &'s ObjectRule,
) -> impl Iterator<Item = (&'s str, &'s Value)> {
    rule.properties.iter().filter(|property| property.is_required).filter_map(|property| {
        let node = resolve(schema, property.schema?);
        node.rules.iter().find_map(|rule| match rule {
            Rule::Const(value) => Some((&*property.name, &**value)),
            _ => None,
        })
    })
}

/// Returns the name of the required property, if it is the only one.
fn single_required(rule: &ObjectRule) -> Option<&str> {
    match &*rule.required {
        [name] => Some(&**name),
        _ => None,
    }
}

fn object_rule(node: &Node) -> Option<&ObjectRule> {
    node.rules.iter().find_map(|rule| match rule {
        Rule::Object(rule) => Some(&**rule),
        _ => None,
    })
}

/// Follows references.
fn resolve(schema: &CompiledSchema, id: NodeId) -> &Node {
    let mut node = &schema.nodes[id as usize];
    for _ in 0..MAX_REFS {
        match &*node.rules {
            [Rule::Ref(target)] if node.types == TypeSet::ANY => node = &schema.nodes[*target as usize],
            _ => break,
        }
    }
    node
}

/// Describes the branches by their constants, tags or types. Empty if one of them cannot be described.
fn describe_branches(schema: &CompiledSchema, branches: &[NodeId]) -> Vec<String> {
    let mut descriptions = Vec::new();
    for id in branches {
        if describe_node(schema, resolve(schema, *id), MAX_REFS, &mut descriptions).is_none() {
            return Vec::new();
        }
    }
    descriptions.truncate(MAX_DESCRIPTIONS);
    descriptions
}

fn describe_node(schema: &CompiledSchema, node: &Node, depth: usize, to: &mut Vec<String>) -> Option<()> {
    if to.len() >= MAX_DESCRIPTIONS {
        return Some(());
    }
    for rule in &node.rules {
        match rule {
            Rule::Const(value) => {
                to.push(value.to_string());
                return Some(());
            }
            Rule::Enum(options) => {
                to.extend(options.as_array()?.iter().take(MAX_DESCRIPTIONS).map(Value::to_string));
                return Some(());
            }
            Rule::AnyOf(branches) | Rule::OneOf(branches) if depth > 0 => {
                for id in branches {
                    describe_node(schema, resolve(schema, *id), depth - 1, to)?;
                }
                return Some(());
            }
            Rule::Object(rule) => {
                let constants: Vec<_> = constants(schema, rule).collect();
                let is_closed = matches!(rule.additional, Some(AdditionalProperties::Forbidden));
                if !constants.is_empty() {
                    let members: Vec<String> =
                        constants.iter().map(|(name, value)| format!("{name:?}: {value}")).collect();
                    let rest = if rule.properties.len() > constants.len() { ", …" } else { "" };
                    to.push(format!("{{{}{rest}}}", members.join(", ")));
                    return Some(());
                }
                if let (true, Some(name)) = (is_closed, single_required(rule)) {
                    to.push(format!("{{{name:?}: …}}"));
                    return Some(());
                }
            }
            _ => {}
        }
    }
    if node.types == TypeSet::ANY {
        return None;
    }
    to.extend(node.types.iter().map(|one| one.as_str().to_owned()));
    Some(())
}
