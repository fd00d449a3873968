//! Validates arrays and objects, whose items and members are values with a location of their own.

use serde_json::{Map, Value};

use super::{Location, Validator};
use crate::compile::{AdditionalProperties, ArrayRule, NodeId, ObjectRule, Rule};
use crate::equality;
use crate::validation_error::ValidationErrorKind;

impl<'s, 'v> Validator<'s, 'v> {
    pub(super) fn check_array(
        &mut self,
        rule: &'s ArrayRule,
        items: &'v [Value],
        value: &'v Value,
        location: &Location<'_>,
    ) -> bool {
        let n_items = items.len() as u64;
        let mut is_valid = true;
        if n_items < rule.min {
            is_valid = self.add_error(location, value, ValidationErrorKind::MinItems(rule.min));
        }
        let max = rule.max.filter(|max| n_items > *max);
        if let Some(max) = max {
            is_valid = self.add_error(location, value, ValidationErrorKind::MaxItems(max));
        }
        if !is_valid && self.n_errors_left == 0 {
            return false;
        }
        // Uniqueness is not checked for a list that is too long.
        if rule.is_unique && max.is_none() {
            match equality::are_unique(items, &mut self.fuel) {
                Some(true) => {}
                Some(false) => is_valid = self.add_error(location, value, ValidationErrorKind::UniqueItems),
                None => {
                    self.is_exhausted = true;
                    return false;
                }
            }
        }
        let rest = rule.items.iter().cycle();
        for (n, (item, id)) in items.iter().zip(rule.prefix_items.iter().chain(rest)).enumerate() {
            is_valid &= self.check_node(*id, item, &Location::Item(location, n));
            if self.should_stop(is_valid) {
                return false;
            }
        }
        if let Some(contains) = &rule.contains {
            let mut n_matches = 0;
            for item in items {
                n_matches += u64::from(self.is_node_valid(contains.schema, item));
                if n_matches >= contains.min && contains.max.is_none_or(|max| n_matches > max) {
                    break;
                }
            }
            if n_matches < contains.min || contains.max.is_some_and(|max| n_matches > max) {
                let (min, max) = (contains.min, contains.max);
                is_valid = self.add_error(location, value, ValidationErrorKind::Contains { min, max });
            }
        }
        is_valid
    }

    pub(super) fn check_object(
        &mut self,
        rule: &'s ObjectRule,
        members: &'v Map<String, Value>,
        value: &'v Value,
        location: &Location<'_>,
    ) -> bool {
        let n_members = members.len() as u64;
        let mut is_valid = true;
        if n_members < rule.min {
            is_valid = self.add_error(location, value, ValidationErrorKind::MinProperties(rule.min));
        }
        if let Some(max) = rule.max.filter(|max| n_members > *max) {
            is_valid = self.add_error(location, value, ValidationErrorKind::MaxProperties(max));
        }
        let mut n_required = 0;
        let mut unexpected = Vec::new();
        for (name, inner) in members {
            if self.should_stop(is_valid) {
                return false;
            }
            let member = rule.property(name);
            n_required += usize::from(member.is_some_and(|member| member.is_required));
            let mut is_evaluated = false;
            let inner_location = Location::Property(location, name);
            if let Some(id) = member.and_then(|member| member.schema) {
                is_evaluated = true;
                is_valid &= self.check_node(id, inner, &inner_location);
            }
            for (pattern, id) in &rule.patterns {
                if self.is_pattern_match(pattern, name) {
                    is_evaluated = true;
                    is_valid &= self.check_node(*id, inner, &inner_location);
                }
            }
            match rule.additional {
                Some(AdditionalProperties::Schema(id)) if !is_evaluated => {
                    is_valid &= self.check_node(id, inner, &inner_location)
                }
                Some(AdditionalProperties::Forbidden) if !is_evaluated && self.n_errors_left == 0 => {
                    return false;
                }
                Some(AdditionalProperties::Forbidden) if !is_evaluated => unexpected.push(name.clone()),
                _ => {}
            }
            if let Some(names) = rule.property_names {
                is_valid &= self.check_property_name(names, name, value, location);
            }
        }
        if !unexpected.is_empty() {
            is_valid = self.add_error(location, value, ValidationErrorKind::AdditionalProperties(unexpected));
        }
        if n_required < rule.required.len() {
            for name in rule.required.iter().filter(|name| !members.contains_key(&***name)) {
                is_valid = self.add_error(location, value, ValidationErrorKind::Required(name));
            }
        }
        is_valid
    }

    /// Validates the name of a property as a string value.
    fn check_property_name(
        &mut self,
        id: NodeId,
        name: &str,
        value: &'v Value,
        location: &Location<'_>,
    ) -> bool {
        let text = Value::String(name.to_owned());
        let mut inner = Validator::new(self.schema, usize::from(self.n_errors_left > 0));
        (inner.fuel, inner.pattern_steps) = (self.fuel, self.pattern_steps);
        (inner.depth, inner.dynamic_scope) = (self.depth, std::mem::take(&mut self.dynamic_scope));
        let is_valid = inner.check_node(id, &text, &Location::Root);
        let detail = inner.errors.first().map(ToString::to_string);
        (self.fuel, self.pattern_steps, self.dynamic_scope) =
            (inner.fuel, inner.pattern_steps, inner.dynamic_scope);
        self.is_exhausted |= inner.is_exhausted;
        is_valid
            || self.add_error(location, value, ValidationErrorKind::PropertyNames(detail.unwrap_or_default()))
    }

    pub(super) fn check_dependent(
        &mut self,
        rule: &'s Rule,
        members: &'v Map<String, Value>,
        value: &'v Value,
        location: &Location<'_>,
    ) -> bool {
        let mut is_valid = true;
        match rule {
            Rule::DependentRequired(all) => {
                for (_, needed) in all.iter().filter(|(name, _)| members.contains_key(&**name)) {
                    for name in needed.iter().filter(|name| !members.contains_key(&***name)) {
                        is_valid = self.add_error(location, value, ValidationErrorKind::Required(name));
                    }
                }
            }
            Rule::DependentSchemas(all) => {
                for (_, id) in all.iter().filter(|(name, _)| members.contains_key(&**name)) {
                    is_valid &= self.check_node(*id, value, location);
                }
            }
            _ => {}
        }
        is_valid
    }
}
