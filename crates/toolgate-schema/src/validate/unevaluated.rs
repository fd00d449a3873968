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
        location: &Location<'_>,
    ) -> bool {
        let mut evaluated = vec![false; items.len()];
        self.mark_evaluated(rules, value, &mut evaluated);
        let mut n_unexpected = 0;
        for item in
            items.iter().zip(evaluated).filter(|(_, is_evaluated)| !is_evaluated).map(|(item, _)| item)
        {
            n_unexpected += usize::from(!self.is_node_valid(id, item));
        }
        n_unexpected == 0
            || self.add_error(location, value, ValidationErrorKind::UnevaluatedItems(n_unexpected))
    }

    pub(super) fn check_unevaluated_properties(
        &mut self,
        rules: &'s [Rule],
        id: NodeId,
        members: &'v Map<String, Value>,
        value: &'v Value,
        location: &Location<'_>,
    ) -> bool {
        let mut evaluated = vec![false; members.len()];
        self.mark_evaluated(rules, value, &mut evaluated);
        let mut unexpected = Vec::new();
        for ((name, inner), _) in members.iter().zip(evaluated).filter(|(_, is_evaluated)| !is_evaluated) {
            if !self.is_node_valid(id, inner) {
                unexpected.push(name.clone());
            }
        }
        unexpected.is_empty()
            || self.add_error(location, value, ValidationErrorKind::UnevaluatedProperties(unexpected))
    }

    /// Marks the items or properties that rules have evaluated. Only used if the value satisfies the rules.
    fn mark_evaluated(&mut self, rules: &'s [Rule], value: &'v Value, evaluated: &mut [bool]) {
        for rule in rules {
            match (rule, value) {
                (Rule::Array(rule), Value::Array(items)) => {
                    let n_first = if rule.items.is_some() { items.len() } else { rule.prefix_items.len() };
                    evaluated.iter_mut().take(n_first).for_each(|evaluated| *evaluated = true);
                    if let Some(contains) = rule.contains.as_ref().filter(|contains| contains.marks_evaluated)
                    {
                        for (item, evaluated) in items.iter().zip(evaluated.iter_mut()) {
                            *evaluated = *evaluated || self.is_node_valid(contains.schema, item);
                        }
                    }
                }
                (Rule::Object(rule), Value::Object(members)) => {
                    for (name, evaluated) in members.keys().zip(evaluated.iter_mut()) {
                        *evaluated = *evaluated
                            || rule.additional.is_some()
                            || rule.has_unsupported_pattern
                            || rule.property(name).is_some_and(|member| member.schema.is_some())
                            || rule.patterns.iter().any(|(pattern, _)| self.is_pattern_match(pattern, name));
                    }
                }
                (Rule::UnevaluatedItems(_), Value::Array(_))
                | (Rule::UnevaluatedProperties(_), Value::Object(_)) => {
                    evaluated.iter_mut().for_each(|evaluated| *evaluated = true);
                }
                (Rule::Ref(id), _) => self.mark_node_evaluated(*id, value, evaluated),
                (Rule::DynamicRef { name, fallback }, _) => {
                    self.mark_node_evaluated(self.resolve_dynamic(name, *fallback), value, evaluated);
                }
                (Rule::AllOf(all), _) => {
                    all.iter().for_each(|id| self.mark_node_evaluated(*id, value, evaluated))
                }
                (Rule::AnyOf(all) | Rule::OneOf(all), _) => {
                    for id in all {
                        if self.is_node_valid(*id, value) {
                            self.mark_node_evaluated(*id, value, evaluated);
                        }
                    }
                }
                (Rule::If(condition, then, fallback), _) => {
                    let next = match self.is_node_valid(*condition, value) {
                        true => {
                            self.mark_node_evaluated(*condition, value, evaluated);
                            then
                        }
                        false => fallback,
                    };
                    next.iter().for_each(|id| self.mark_node_evaluated(*id, value, evaluated));
                }
                (Rule::DependentSchemas(all), Value::Object(members)) => {
                    for (_, id) in all.iter().filter(|(name, _)| members.contains_key(&**name)) {
                        self.mark_node_evaluated(*id, value, evaluated);
                    }
                }
                _ => {}
            }
        }
    }

    fn mark_node_evaluated(&mut self, id: NodeId, value: &'v Value, evaluated: &mut [bool]) {
        let schema = self.schema;
        let node = &schema.nodes[id as usize];
        if node.is_cyclic && self.is_checking(id, value) {
            return;
        }
        if let Some(enters_resource) = self.enter(id, node, value) {
            self.mark_evaluated(&node.rules, value, evaluated);
            self.leave(node, enters_resource);
        }
    }
}
