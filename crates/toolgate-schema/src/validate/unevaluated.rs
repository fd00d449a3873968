//! Validates `unevaluatedItems` and `unevaluatedProperties`: finds the items and members that other keywords of the
//! same schema have evaluated.

use serde_json::{Map, Value};

use super::{Location, Validator};
use crate::compile::{NodeId, Rule};
use crate::validation_error::ValidationErrorKind;

impl<'s, 'v> Validator<'s, 'v> {
    pub(super) fn check_unevaluated_items(
        &mut self,
        rules: &'s [Rule],
        id: NodeId,
        items: &'v [Value],
        value: &'v Value,
        place: &Location<'_>,
    ) -> bool {
        let mut seen = vec![false; items.len()];
        self.mark_evaluated(rules, value, &mut seen);
        let mut n_unexpected = 0;
        for item in items.iter().zip(seen).filter(|(_, is_seen)| !is_seen).map(|(item, _)| item) {
            n_unexpected += usize::from(!self.is_node_valid(id, item));
        }
        n_unexpected == 0 || self.add_error(place, value, ValidationErrorKind::UnevaluatedItems(n_unexpected))
    }

    pub(super) fn check_unevaluated_properties(
        &mut self,
        rules: &'s [Rule],
        id: NodeId,
        members: &'v Map<String, Value>,
        value: &'v Value,
        place: &Location<'_>,
    ) -> bool {
        let mut seen = vec![false; members.len()];
        self.mark_evaluated(rules, value, &mut seen);
        let mut unexpected = Vec::new();
        for ((name, inner), _) in members.iter().zip(seen).filter(|(_, is_seen)| !is_seen) {
            if !self.is_node_valid(id, inner) {
                unexpected.push(name.clone());
            }
        }
        unexpected.is_empty()
            || self.add_error(place, value, ValidationErrorKind::UnevaluatedProperties(unexpected))
    }

    /// Marks the items or members that rules have looked at. The value obeys the rules, or what is marked is not used.
    fn mark_evaluated(&mut self, rules: &'s [Rule], value: &'v Value, seen: &mut [bool]) {
        for rule in rules {
            match (rule, value) {
                (Rule::Array(rule), Value::Array(items)) => {
                    let n_first = if rule.items.is_some() { items.len() } else { rule.prefix_items.len() };
                    seen.iter_mut().take(n_first).for_each(|seen| *seen = true);
                    if let Some(contains) = rule.contains.as_ref().filter(|contains| contains.marks_evaluated)
                    {
                        for (item, seen) in items.iter().zip(seen.iter_mut()) {
                            *seen = *seen || self.is_node_valid(contains.schema, item);
                        }
                    }
                }
                (Rule::Object(rule), Value::Object(members)) => {
                    for (name, seen) in members.keys().zip(seen.iter_mut()) {
                        *seen = *seen
                            || rule.additional.is_some()
                            || rule.has_unsupported_pattern
                            || rule.property(name).is_some_and(|member| member.schema.is_some())
                            || rule.patterns.iter().any(|(pattern, _)| self.is_pattern_match(pattern, name));
                    }
                }
                (Rule::UnevaluatedItems(_), Value::Array(_))
                | (Rule::UnevaluatedProperties(_), Value::Object(_)) => {
                    seen.iter_mut().for_each(|seen| *seen = true);
                }
                (Rule::Ref(id), _) => self.mark_node_evaluated(*id, value, seen),
                (Rule::DynamicRef { name, fallback: otherwise }, _) => {
                    self.mark_node_evaluated(self.resolve_dynamic(name, *otherwise), value, seen);
                }
                (Rule::AllOf(all), _) => all.iter().for_each(|id| self.mark_node_evaluated(*id, value, seen)),
                (Rule::AnyOf(all) | Rule::OneOf(all), _) => {
                    for id in all {
                        if self.is_node_valid(*id, value) {
                            self.mark_node_evaluated(*id, value, seen);
                        }
                    }
                }
                (Rule::If(condition, then, otherwise), _) => {
                    let next = match self.is_node_valid(*condition, value) {
                        true => {
                            self.mark_node_evaluated(*condition, value, seen);
                            then
                        }
                        false => otherwise,
                    };
                    next.iter().for_each(|id| self.mark_node_evaluated(*id, value, seen));
                }
                (Rule::DependentSchemas(all), Value::Object(members)) => {
                    for (_, id) in all.iter().filter(|(name, _)| members.contains_key(&**name)) {
                        self.mark_node_evaluated(*id, value, seen);
                    }
                }
                _ => {}
            }
        }
    }

    fn mark_node_evaluated(&mut self, id: NodeId, value: &'v Value, seen: &mut [bool]) {
        let plan = self.schema;
        let node = &plan.nodes[id as usize];
        if node.is_cyclic && self.is_checking(id, value) {
            return;
        }
        if let Some(is_elsewhere) = self.enter(id, node, value) {
            self.mark_evaluated(&node.rules, value, seen);
            self.leave(node, is_elsewhere);
        }
    }
}
