//! Validates a value against a compiled schema: decides whether it is valid, or collects errors.
//!
//! Every node costs fuel and the depth is limited, so that neither a schema nor a value can make validation take unbounded
//! time or stack. A value that exceeds a limit is rejected.

mod branches;
mod collections;
mod unevaluated;

use serde_json::Value;

use crate::compile::{CompiledSchema, Node, NodeId, Rule};
use crate::equality;
use crate::keywords;
use crate::number;
use crate::pattern;
use crate::validation_error::{ValidationError, ValidationErrorKind};

/// The fuel of one validation, for nodes and pattern steps. The longest matched text may add to it.
const MAX_FUEL: u64 = 20_000_000;
/// The maximum depth of nested nodes. A value that is nested as deep as `serde_json` allows passes three of them per level.
const MAX_DEPTH: usize = 400;

/// The location in a value.
#[derive(Clone, Copy)]
enum Location<'a> {
    Root,
    Property(&'a Location<'a>, &'a str),
    Item(&'a Location<'a>, usize),
}

impl Location<'_> {
    fn write_pointer(&self, to: &mut String) {
        match self {
            Location::Root => {}
            Location::Property(outer, name) => {
                outer.write_pointer(to);
                to.push('/');
                to.push_str(&name.replace('~', "~0").replace('/', "~1"));
            }
            Location::Item(outer, n) => {
                outer.write_pointer(to);
                to.push('/');
                to.push_str(&n.to_string());
            }
        }
    }
}

pub(crate) struct Validator<'s, 'v> {
    schema: &'s CompiledSchema,
    fuel: u64,
    /// Remaining steps of pattern matches.
    pattern_steps: u64,
    depth: usize,
    is_exhausted: bool,
    /// How many more errors to collect. Zero: stop at the first.
    n_errors_left: usize,
    errors: Vec<ValidationError<'s, 'v>>,
    /// Cyclic nodes that are being checked, with their values.
    active_cycles: Vec<(NodeId, &'v Value)>,
    /// The dynamic scope: resources that validation is in.
    dynamic_scope: Vec<u32>,
}

impl<'s, 'v> Validator<'s, 'v> {
    pub(crate) fn is_valid(schema: &'s CompiledSchema, value: &'v Value) -> bool {
        let mut validator = Validator::new(schema, 0);
        validator.check_node(0, value, &Location::Root) && !validator.is_exhausted
    }

    pub(crate) fn errors(
        schema: &'s CompiledSchema,
        value: &'v Value,
        max_errors: usize,
    ) -> Vec<ValidationError<'s, 'v>> {
        let mut validator = Validator::new(schema, max_errors);
        validator.check_node(0, value, &Location::Root);
        if validator.is_exhausted {
            validator.errors.clear();
            validator.n_errors_left = 1;
            validator.add_error(&Location::Root, value, ValidationErrorKind::LimitExceeded);
        }
        validator.errors
    }

    fn new(schema: &'s CompiledSchema, n_errors_left: usize) -> Validator<'s, 'v> {
        Validator {
            schema,
            fuel: MAX_FUEL,
            pattern_steps: pattern::STEP_LIMIT,
            depth: 0,
            is_exhausted: false,
            n_errors_left,
            errors: Vec::new(),
            active_cycles: Vec::new(),
            dynamic_scope: Vec::new(),
        }
    }

    /// Records an error, if errors are collected. Always returns false, which is the result of the failed rule.
    // Never inlined: it is called by every rule, and rarely reached.
    #[inline(never)]
    fn add_error(
        &mut self,
        location: &Location<'_>,
        value: &'v Value,
        kind: ValidationErrorKind<'s>,
    ) -> bool {
        if self.n_errors_left > 0 {
            self.n_errors_left -= 1;
            let mut text = String::new();
            location.write_pointer(&mut text);
            self.errors.push(ValidationError { pointer: text, value, kind });
        }
        false
    }

    /// Returns whether a value matches a node, without collecting errors.
    fn is_node_valid(&mut self, id: NodeId, value: &'v Value) -> bool {
        let max_errors = std::mem::take(&mut self.n_errors_left);
        let is_valid = self.check_node(id, value, &Location::Root);
        self.n_errors_left = max_errors;
        is_valid
    }

    fn check_node(&mut self, id: NodeId, value: &'v Value, location: &Location<'_>) -> bool {
        let schema = self.schema;
        let node = &schema.nodes[id as usize];
        if node.is_cyclic && self.is_checking(id, value) {
            return true;
        }
        let mut is_valid = node.types.accepts(value)
            || self.add_error(location, value, ValidationErrorKind::Type(node.types));
        if node.rules.is_empty() || !is_valid && self.n_errors_left == 0 {
            return is_valid;
        }
        let Some(enters_resource) = self.enter(id, node, value) else {
            return false;
        };
        for (n, rule) in node.rules.iter().enumerate() {
            if !self.check_rule(node, n, rule, value, location) {
                is_valid = false;
                if self.n_errors_left == 0 || self.is_exhausted {
                    break;
                }
            }
        }
        self.leave(node, enters_resource);
        is_valid
    }

    /// Enters a node, if there is fuel left. Returns whether that enters another resource.
    fn enter(&mut self, id: NodeId, node: &Node, value: &'v Value) -> Option<bool> {
        if self.fuel == 0 || self.depth == MAX_DEPTH {
            self.is_exhausted = true;
            return None;
        }
        if node.is_cyclic {
            self.active_cycles.push((id, value));
        }
        let enters_resource =
            !self.schema.dynamic_anchors.is_empty() && self.dynamic_scope.last() != Some(&node.resource);
        if enters_resource {
            self.dynamic_scope.push(node.resource);
        }
        self.fuel -= 1;
        self.depth += 1;
        Some(enters_resource)
    }

    fn leave(&mut self, node: &Node, enters_resource: bool) {
        self.depth -= 1;
        if enters_resource {
            self.dynamic_scope.pop();
        }
        if node.is_cyclic {
            self.active_cycles.pop();
        }
    }

    /// Returns whether a node is already being checked against this value; checking it again adds nothing.
    fn is_checking(&self, id: NodeId, value: &Value) -> bool {
        self.active_cycles.iter().any(|(known, other)| *known == id && std::ptr::eq(*other, value))
    }

    fn check_rule(
        &mut self,
        node: &'s Node,
        n: usize,
        rule: &'s Rule,
        value: &'v Value,
        location: &Location<'_>,
    ) -> bool {
        match rule {
            Rule::False => self.add_error(location, value, ValidationErrorKind::FalseSchema),
            Rule::MetaSchema => match keywords::schema_error(value, &mut self.fuel) {
                _ if self.fuel == 0 => {
                    self.is_exhausted = true;
                    false
                }
                None => true,
                Some(why) => self.add_error(location, value, ValidationErrorKind::NotASchema(why)),
            },
            Rule::Const(expected) => {
                equality::is_equal(expected, value)
                    || self.add_error(location, value, ValidationErrorKind::Const(expected))
            }
            Rule::Enum(options) => {
                let all = options.as_array().map_or(&[][..], Vec::as_slice);
                self.fuel = self.fuel.saturating_sub(all.len() as u64 / 4);
                all.iter().any(|option| equality::is_equal(option, value))
                    || self.add_error(location, value, ValidationErrorKind::Enum(options))
            }
            Rule::Minimum(_)
            | Rule::Maximum(_)
            | Rule::ExclusiveMinimum(_)
            | Rule::ExclusiveMaximum(_)
            | Rule::MultipleOf(_) => match value {
                Value::Number(number) => self.check_number(rule, number, value, location),
                _ => true,
            },
            Rule::MinLength(_) | Rule::MaxLength(_) | Rule::Pattern(_) | Rule::Format(_) => match value {
                Value::String(text) => self.check_string(rule, text, value, location),
                _ => true,
            },
            Rule::Array(rule) => match value {
                Value::Array(items) => self.check_array(rule, items, value, location),
                _ => true,
            },
            Rule::Object(rule) => match value {
                Value::Object(members) => self.check_object(rule, members, value, location),
                _ => true,
            },
            Rule::DependentRequired(_) | Rule::DependentSchemas(_) => match value {
                Value::Object(members) => self.check_dependent(rule, members, value, location),
                _ => true,
            },
            Rule::Ref(id) => self.check_node(*id, value, location),
            Rule::DynamicRef { name, fallback } => {
                self.check_node(self.resolve_dynamic(name, *fallback), value, location)
            }
            Rule::AllOf(_) | Rule::AnyOf(_) | Rule::OneOf(_) | Rule::Not(..) | Rule::If(..) => {
                self.check_applicator(rule, value, location)
            }
            Rule::UnevaluatedItems(id) => match value {
                Value::Array(items) => {
                    self.check_unevaluated_items(&node.rules[..n], *id, items, value, location)
                }
                _ => true,
            },
            Rule::UnevaluatedProperties(id) => match value {
                Value::Object(members) => {
                    self.check_unevaluated_properties(&node.rules[..n], *id, members, value, location)
                }
                _ => true,
            },
        }
    }

    fn check_number(
        &mut self,
        rule: &'s Rule,
        number: &serde_json::Number,
        value: &'v Value,
        location: &Location<'_>,
    ) -> bool {
        let (is_valid, kind) = match rule {
            Rule::Minimum(limit) => {
                (number::compare(number, limit).is_ge(), ValidationErrorKind::Minimum(limit))
            }
            Rule::Maximum(limit) => {
                (number::compare(number, limit).is_le(), ValidationErrorKind::Maximum(limit))
            }
            Rule::ExclusiveMinimum(limit) => {
                (number::compare(number, limit).is_gt(), ValidationErrorKind::ExclusiveMinimum(limit))
            }
            Rule::ExclusiveMaximum(limit) => {
                (number::compare(number, limit).is_lt(), ValidationErrorKind::ExclusiveMaximum(limit))
            }
            Rule::MultipleOf(of) => (number::is_multiple(number, of), ValidationErrorKind::MultipleOf(of)),
            _ => return true,
        };
        is_valid || self.add_error(location, value, kind)
    }

    fn check_string(
        &mut self,
        rule: &'s Rule,
        text: &str,
        value: &'v Value,
        location: &Location<'_>,
    ) -> bool {
        let (is_valid, kind) = match rule {
            // A character has one to four bytes, so that most texts need not be counted.
            Rule::MinLength(limit) => (
                text.len() as u64 >= limit.saturating_mul(4) || char_count(text) >= *limit,
                ValidationErrorKind::MinLength(*limit),
            ),
            Rule::MaxLength(limit) => (
                text.len() as u64 <= *limit || char_count(text) <= *limit,
                ValidationErrorKind::MaxLength(*limit),
            ),
            Rule::Pattern(pattern) => {
                (self.is_pattern_match(pattern, text), ValidationErrorKind::Pattern(pattern.as_str()))
            }
            Rule::Format(format) => {
                self.fuel = self.fuel.saturating_sub(text.len() as u64 / 64);
                (format.is_valid(text), ValidationErrorKind::Format(format.name()))
            }
            _ => return true,
        };
        is_valid || self.add_error(location, value, kind)
    }

    fn is_pattern_match(&mut self, pattern: &crate::Pattern, text: &str) -> bool {
        let found = pattern.is_match_with_steps(text, &mut self.pattern_steps);
        self.is_exhausted |= found.is_err();
        found == Ok(true)
    }

    fn resolve_dynamic(&self, name: &str, fallback: NodeId) -> NodeId {
        let anchor_in = |resource: u32| {
            self.schema
                .dynamic_anchors
                .iter()
                .find(|(known, anchor, _)| *known == resource && **anchor == *name)
        };
        // The outermost resource with this anchor wins.
        self.dynamic_scope.iter().find_map(|resource| anchor_in(*resource)).map_or(fallback, |(_, _, id)| *id)
    }

    /// Returns whether checking can stop.
    fn should_stop(&self, is_valid: bool) -> bool {
        !is_valid && (self.n_errors_left == 0 || self.is_exhausted)
    }

    fn check_applicator(&mut self, rule: &'s Rule, value: &'v Value, location: &Location<'_>) -> bool {
        match rule {
            Rule::AllOf(all) => {
                let mut is_valid = true;
                for id in all {
                    is_valid &= self.check_node(*id, value, location);
                    if self.should_stop(is_valid) {
                        return false;
                    }
                }
                is_valid
            }
            Rule::AnyOf(all) => {
                all.iter().any(|id| self.is_node_valid(*id, value))
                    || self.add_branch_errors(all, value, location, ValidationErrorKind::AnyOf)
            }
            Rule::OneOf(all) => {
                let mut matching = all.iter().filter(|id| self.is_node_valid(**id, value));
                let (first, second) = (matching.next(), matching.next());
                match (first, second) {
                    (Some(_), None) => true,
                    (None, _) => self.add_branch_errors(all, value, location, ValidationErrorKind::OneOfNone),
                    (Some(_), Some(_)) => self.add_error(location, value, ValidationErrorKind::OneOfMany),
                }
            }
            Rule::Not(id, schema) => {
                !self.is_node_valid(*id, value)
                    || self.add_error(location, value, ValidationErrorKind::Not(schema))
            }
            Rule::If(condition, then, fallback) => {
                let next = if self.is_node_valid(*condition, value) { then } else { fallback };
                next.is_none_or(|id| self.check_node(id, value, location))
            }
            _ => true,
        }
    }
}

fn char_count(text: &str) -> u64 {
    text.chars().count() as u64
}
