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
        place: &Location<'_>,
    ) -> bool {
        let n_items = items.len() as u64;
        let mut is_fine = true;
        if n_items < rule.min {
            is_fine = self.add_error(place, value, ValidationErrorKind::MinItems(rule.min));
        }
        let max = rule.max.filter(|max| n_items > *max);
        if let Some(max) = max {
            is_fine = self.add_error(place, value, ValidationErrorKind::MaxItems(max));
        }
        if !is_fine && self.n_errors_left == 0 {
            return false;
        }
        // Whether too many differ is not asked.
        if rule.is_unique && max.is_none() {
            match equality::are_unique(items, &mut self.fuel) {
                Some(true) => {}
                Some(false) => is_fine = self.add_error(place, value, ValidationErrorKind::UniqueItems),
                None => {
                    self.is_exhausted = true;
                    return false;
                }
            }
        }
        let rest = rule.items.iter().cycle();
        for (n, (item, id)) in items.iter().zip(rule.prefix_items.iter().chain(rest)).enumerate() {
            is_fine &= self.check_node(*id, item, &Location::Item(place, n));
            if self.should_stop(is_fine) {
                return false;
            }
        }
        if let Some(contains) = &rule.contains {
            let mut n_found = 0;
            for item in items {
                n_found += u64::from(self.is_node_valid(contains.schema, item));
                if n_found >= contains.min && contains.max.is_none_or(|max| n_found > max) {
                    break;
                }
            }
            if n_found < contains.min || contains.max.is_some_and(|max| n_found > max) {
                let (min, max) = (contains.min, contains.max);
                is_fine = self.add_error(place, value, ValidationErrorKind::Contains { min, max });
            }
        }
        is_fine
    }

    pub(super) fn check_object(
        &mut self,
        rule: &'s ObjectRule,
        members: &'v Map<String, Value>,
        value: &'v Value,
        place: &Location<'_>,
    ) -> bool {
        let n_members = members.len() as u64;
        let mut is_fine = true;
        if n_members < rule.min {
            is_fine = self.add_error(place, value, ValidationErrorKind::MinProperties(rule.min));
        }
        if let Some(max) = rule.max.filter(|max| n_members > *max) {
            is_fine = self.add_error(place, value, ValidationErrorKind::MaxProperties(max));
        }
        let mut n_required = 0;
        let mut unexpected = Vec::new();
        for (name, inner) in members {
            if self.should_stop(is_fine) {
                return false;
            }
            let member = rule.property(name);
            n_required += usize::from(member.is_some_and(|member| member.is_required));
            let mut is_known = false;
            let inside = Location::Property(place, name);
            if let Some(id) = member.and_then(|member| member.schema) {
                is_known = true;
                is_fine &= self.check_node(id, inner, &inside);
            }
            for (pattern, id) in &rule.patterns {
                if self.is_pattern_match(pattern, name) {
                    is_known = true;
                    is_fine &= self.check_node(*id, inner, &inside);
                }
            }
            match rule.additional {
                Some(AdditionalProperties::Schema(id)) if !is_known => {
                    is_fine &= self.check_node(id, inner, &inside)
                }
                Some(AdditionalProperties::Forbidden) if !is_known && self.n_errors_left == 0 => {
                    return false;
                }
                Some(AdditionalProperties::Forbidden) if !is_known => unexpected.push(name.clone()),
                _ => {}
            }
            if let Some(names) = rule.property_names {
                is_fine &= self.check_property_name(names, name, value, place);
            }
        }
        if !unexpected.is_empty() {
            is_fine = self.add_error(place, value, ValidationErrorKind::AdditionalProperties(unexpected));
        }
        if n_required < rule.required.len() {
            for name in rule.required.iter().filter(|name| !members.contains_key(&***name)) {
                is_fine = self.add_error(place, value, ValidationErrorKind::Required(name));
            }
        }
        is_fine
    }

    /// The name of a member, as a value of its own.
    fn check_property_name(
        &mut self,
        id: NodeId,
        name: &str,
        value: &'v Value,
        place: &Location<'_>,
    ) -> bool {
        let text = Value::String(name.to_owned());
        let mut inner = Validator::new(self.schema, usize::from(self.n_errors_left > 0));
        (inner.fuel, inner.max_pattern_steps) = (self.fuel, self.max_pattern_steps);
        (inner.depth, inner.dynamic_scope) = (self.depth, std::mem::take(&mut self.dynamic_scope));
        let is_fine = inner.check_node(id, &text, &Location::Root);
        let why = inner.errors.first().map(ToString::to_string);
        (self.fuel, self.max_pattern_steps, self.dynamic_scope) =
            (inner.fuel, inner.max_pattern_steps, inner.dynamic_scope);
        self.is_exhausted |= inner.is_exhausted;
        is_fine || self.add_error(place, value, ValidationErrorKind::PropertyNames(why.unwrap_or_default()))
    }

    pub(super) fn check_dependent(
        &mut self,
        rule: &'s Rule,
        members: &'v Map<String, Value>,
        value: &'v Value,
        place: &Location<'_>,
    ) -> bool {
        let mut is_fine = true;
        match rule {
            Rule::DependentRequired(all) => {
                for (_, needed) in all.iter().filter(|(name, _)| members.contains_key(&**name)) {
                    for name in needed.iter().filter(|name| !members.contains_key(&***name)) {
                        is_fine = self.add_error(place, value, ValidationErrorKind::Required(name));
                    }
                }
            }
            Rule::DependentSchemas(all) => {
                for (_, id) in all.iter().filter(|(name, _)| members.contains_key(&**name)) {
                    is_fine &= self.check_node(*id, value, place);
                }
            }
            _ => {}
        }
        is_fine
    }
}
