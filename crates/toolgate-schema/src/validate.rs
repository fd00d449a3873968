//! A value beside a plan: one walk that answers yes or no, or gathers what is wrong.
//!
//! Every node costs fuel and every level counts, so that neither a schema nor a value can make a walk long or deep
//! without end. A walk that runs dry refuses the value.

mod collections;
mod unevaluated;

use serde_json::Value;

use crate::compile::{CompiledSchema, Node, NodeId, Rule};
use crate::equality;
use crate::keywords;
use crate::number;
use crate::pattern;
use crate::validation_error::{ValidationError, ValidationErrorKind};

/// What one walk may cost: nodes, and steps of patterns. The longest text that is matched may add to it.
const MAX_FUEL: u64 = 20_000_000;
/// How many nodes may be in each other. A value that is nested as deep as `serde_json` reads passes three of them on
/// each level.
const MAX_DEPTH: usize = 400;

/// Where in a value a walk is.
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
    /// What the longest text so far may cost with one pattern. A longer one brings the difference with it.
    max_pattern_steps: u64,
    depth: usize,
    is_exhausted: bool,
    /// How many faults are still wanted. None: the first one ends it.
    n_errors_left: usize,
    errors: Vec<ValidationError<'s, 'v>>,
    /// Nodes that lead back to themselves, and what they are judging.
    active_cycles: Vec<(NodeId, &'v Value)>,
    /// Resources that the walk is in, for dynamic references.
    dynamic_scope: Vec<u32>,
}

impl<'s, 'v> Validator<'s, 'v> {
    pub(crate) fn is_valid(plan: &'s CompiledSchema, value: &'v Value) -> bool {
        let mut walk = Validator::new(plan, 0);
        walk.check_node(0, value, &Location::Root) && !walk.is_exhausted
    }

    pub(crate) fn errors(
        plan: &'s CompiledSchema,
        value: &'v Value,
        n_wanted: usize,
    ) -> Vec<ValidationError<'s, 'v>> {
        let mut walk = Validator::new(plan, n_wanted);
        walk.check_node(0, value, &Location::Root);
        if walk.is_exhausted {
            walk.errors.clear();
            walk.n_errors_left = 1;
            walk.add_error(&Location::Root, value, ValidationErrorKind::LimitExceeded);
        }
        walk.errors
    }

    fn new(schema: &'s CompiledSchema, n_errors_left: usize) -> Validator<'s, 'v> {
        Validator {
            schema,
            fuel: MAX_FUEL,
            max_pattern_steps: pattern::step_limit(""),
            depth: 0,
            is_exhausted: false,
            n_errors_left,
            errors: Vec::new(),
            active_cycles: Vec::new(),
            dynamic_scope: Vec::new(),
        }
    }

    /// Notes a fault if there is somebody to tell. Never true, so that it can be what a rule says.
    // Never: it is behind every rule, and hardly ever reached.
    #[inline(never)]
    fn add_error(&mut self, place: &Location<'_>, value: &'v Value, kind: ValidationErrorKind<'s>) -> bool {
        if self.n_errors_left > 0 {
            self.n_errors_left -= 1;
            let mut text = String::new();
            place.write_pointer(&mut text);
            self.errors.push(ValidationError { pointer: text, value, kind });
        }
        false
    }

    /// Whether a value obeys a node, with nobody to be told why not.
    fn is_node_valid(&mut self, id: NodeId, value: &'v Value) -> bool {
        let n_wanted = std::mem::take(&mut self.n_errors_left);
        let is_fine = self.check_node(id, value, &Location::Root);
        self.n_errors_left = n_wanted;
        is_fine
    }

    fn check_node(&mut self, id: NodeId, value: &'v Value, place: &Location<'_>) -> bool {
        let plan = self.schema;
        let node = &plan.nodes[id as usize];
        if node.is_cyclic && self.is_checking(id, value) {
            return true;
        }
        let mut is_fine =
            node.types.accepts(value) || self.add_error(place, value, ValidationErrorKind::Type(node.types));
        if node.rules.is_empty() || !is_fine && self.n_errors_left == 0 {
            return is_fine;
        }
        let Some(is_elsewhere) = self.enter(id, node, value) else {
            return false;
        };
        for (n, rule) in node.rules.iter().enumerate() {
            if !self.check_rule(node, n, rule, value, place) {
                is_fine = false;
                if self.n_errors_left == 0 || self.is_exhausted {
                    break;
                }
            }
        }
        self.leave(node, is_elsewhere);
        is_fine
    }

    /// Steps into a node, if there is fuel for it; and whether that is in another resource.
    fn enter(&mut self, id: NodeId, node: &Node, value: &'v Value) -> Option<bool> {
        if self.fuel == 0 || self.depth == MAX_DEPTH {
            self.is_exhausted = true;
            return None;
        }
        if node.is_cyclic {
            self.active_cycles.push((id, value));
        }
        let is_elsewhere =
            !self.schema.dynamic_anchors.is_empty() && self.dynamic_scope.last() != Some(&node.resource);
        if is_elsewhere {
            self.dynamic_scope.push(node.resource);
        }
        self.fuel -= 1;
        self.depth += 1;
        Some(is_elsewhere)
    }

    fn leave(&mut self, node: &Node, is_elsewhere: bool) {
        self.depth -= 1;
        if is_elsewhere {
            self.dynamic_scope.pop();
        }
        if node.is_cyclic {
            self.active_cycles.pop();
        }
    }

    /// Whether a value is being judged by a node already, which adds nothing to what is asked of it.
    fn is_checking(&self, id: NodeId, value: &Value) -> bool {
        self.active_cycles.iter().any(|(known, other)| *known == id && std::ptr::eq(*other, value))
    }

    fn check_rule(
        &mut self,
        node: &'s Node,
        n: usize,
        rule: &'s Rule,
        value: &'v Value,
        place: &Location<'_>,
    ) -> bool {
        match rule {
            Rule::False => self.add_error(place, value, ValidationErrorKind::FalseSchema),
            Rule::MetaSchema => match keywords::schema_error(value, &mut self.fuel) {
                _ if self.fuel == 0 => {
                    self.is_exhausted = true;
                    false
                }
                None => true,
                Some(why) => self.add_error(place, value, ValidationErrorKind::NotASchema(why)),
            },
            Rule::Const(wanted) => {
                equality::is_equal(wanted, value)
                    || self.add_error(place, value, ValidationErrorKind::Const(wanted))
            }
            Rule::Enum(options) => {
                let all = options.as_array().map_or(&[][..], Vec::as_slice);
                self.fuel = self.fuel.saturating_sub(all.len() as u64 / 4);
                all.iter().any(|option| equality::is_equal(option, value))
                    || self.add_error(place, value, ValidationErrorKind::Enum(options))
            }
            Rule::Minimum(_)
            | Rule::Maximum(_)
            | Rule::ExclusiveMinimum(_)
            | Rule::ExclusiveMaximum(_)
            | Rule::MultipleOf(_) => match value {
                Value::Number(number) => self.check_number(rule, number, value, place),
                _ => true,
            },
            Rule::MinLength(_) | Rule::MaxLength(_) | Rule::Pattern(_) => match value {
                Value::String(text) => self.check_string(rule, text, value, place),
                _ => true,
            },
            Rule::Array(rule) => match value {
                Value::Array(items) => self.check_array(rule, items, value, place),
                _ => true,
            },
            Rule::Object(rule) => match value {
                Value::Object(members) => self.check_object(rule, members, value, place),
                _ => true,
            },
            Rule::DependentRequired(_) | Rule::DependentSchemas(_) => match value {
                Value::Object(members) => self.check_dependent(rule, members, value, place),
                _ => true,
            },
            Rule::Ref(id) => self.check_node(*id, value, place),
            Rule::DynamicRef { name, fallback: otherwise } => {
                self.check_node(self.resolve_dynamic(name, *otherwise), value, place)
            }
            Rule::AllOf(_) | Rule::AnyOf(_) | Rule::OneOf(_) | Rule::Not(..) | Rule::If(..) => {
                self.check_applicator(rule, value, place)
            }
            Rule::UnevaluatedItems(id) => match value {
                Value::Array(items) => {
                    self.check_unevaluated_items(&node.rules[..n], *id, items, value, place)
                }
                _ => true,
            },
            Rule::UnevaluatedProperties(id) => match value {
                Value::Object(members) => {
                    self.check_unevaluated_properties(&node.rules[..n], *id, members, value, place)
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
        place: &Location<'_>,
    ) -> bool {
        let (is_fine, kind) = match rule {
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
        is_fine || self.add_error(place, value, kind)
    }

    fn check_string(&mut self, rule: &'s Rule, text: &str, value: &'v Value, place: &Location<'_>) -> bool {
        let (is_fine, kind) = match rule {
            // Every character has one to four bytes, so that most need not be counted.
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
            _ => return true,
        };
        is_fine || self.add_error(place, value, kind)
    }

    fn is_pattern_match(&mut self, pattern: &crate::Pattern, text: &str) -> bool {
        let most = pattern::step_limit(text);
        if most > self.max_pattern_steps {
            self.fuel = self.fuel.saturating_add(most - self.max_pattern_steps);
            self.max_pattern_steps = most;
        }
        let allowed = self.fuel.min(most);
        let mut left = allowed;
        let found = pattern.is_match_with_steps(text, &mut left);
        self.fuel -= allowed - left;
        self.is_exhausted |= found.is_err();
        found == Ok(true)
    }

    fn resolve_dynamic(&self, name: &str, otherwise: NodeId) -> NodeId {
        let is_it = |resource: u32| {
            self.schema
                .dynamic_anchors
                .iter()
                .find(|(known, anchor, _)| *known == resource && **anchor == *name)
        };
        // The outermost one that has the name.
        self.dynamic_scope.iter().find_map(|resource| is_it(*resource)).map_or(otherwise, |(_, _, id)| *id)
    }

    /// Whether there is no need to look further.
    fn should_stop(&self, is_fine: bool) -> bool {
        !is_fine && (self.n_errors_left == 0 || self.is_exhausted)
    }

    fn check_applicator(&mut self, rule: &'s Rule, value: &'v Value, place: &Location<'_>) -> bool {
        match rule {
            Rule::AllOf(all) => {
                let mut is_fine = true;
                for id in all {
                    is_fine &= self.check_node(*id, value, place);
                    if self.should_stop(is_fine) {
                        return false;
                    }
                }
                is_fine
            }
            Rule::AnyOf(all) => {
                all.iter().any(|id| self.is_node_valid(*id, value))
                    || self.add_error(place, value, ValidationErrorKind::AnyOf)
            }
            Rule::OneOf(all) => {
                let mut fitting = all.iter().filter(|id| self.is_node_valid(**id, value));
                let (first, second) = (fitting.next(), fitting.next());
                match (first, second) {
                    (Some(_), None) => true,
                    (None, _) => self.add_error(place, value, ValidationErrorKind::OneOfNone),
                    (Some(_), Some(_)) => self.add_error(place, value, ValidationErrorKind::OneOfMany),
                }
            }
            Rule::Not(id, schema) => {
                !self.is_node_valid(*id, value)
                    || self.add_error(place, value, ValidationErrorKind::Not(schema))
            }
            Rule::If(condition, then, otherwise) => {
                let next = if self.is_node_valid(*condition, value) { then } else { otherwise };
                next.is_none_or(|id| self.check_node(id, value, place))
            }
            _ => true,
        }
    }
}

fn char_count(text: &str) -> u64 {
    text.chars().count() as u64
}
