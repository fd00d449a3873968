//! A value beside a plan: one walk that answers yes or no, or gathers what is wrong.
//!
//! Every node costs fuel and every level counts, so that neither a schema nor a value can make a walk long or deep
//! without end. A walk that runs dry refuses the value.

use serde_json::{Map, Value};

use crate::fault::{Fault, FaultKind};
use crate::number;
use crate::pattern;
use crate::plan::{ArrayRule, Id, Node, ObjectRule, Plan, Rest, Rule};
use crate::shape;
use crate::value;

/// What one walk may cost: nodes, and steps of patterns. The longest text that is matched may add to it.
const FUEL: u64 = 20_000_000;
/// How many nodes may be in each other. A value that is nested as deep as `serde_json` reads passes three of them on
/// each level.
const DEEPEST: usize = 400;

/// Where in a value a walk is.
#[derive(Clone, Copy)]
enum Place<'a> {
    Top,
    Name(&'a Place<'a>, &'a str),
    Item(&'a Place<'a>, usize),
}

impl Place<'_> {
    fn write(&self, to: &mut String) {
        match self {
            Place::Top => {}
            Place::Name(outer, name) => {
                outer.write(to);
                to.push('/');
                to.push_str(&name.replace('~', "~0").replace('/', "~1"));
            }
            Place::Item(outer, n) => {
                outer.write(to);
                to.push('/');
                to.push_str(&n.to_string());
            }
        }
    }
}

pub(crate) struct Walk<'s, 'v> {
    plan: &'s Plan,
    fuel: u64,
    /// What the longest text so far may cost with one pattern. A longer one brings the difference with it.
    longest: u64,
    depth: usize,
    is_dry: bool,
    /// How many faults are still wanted. None: the first one ends it.
    n_wanted: usize,
    faults: Vec<Fault<'s, 'v>>,
    /// Nodes that lead back to themselves, and what they are judging.
    loops: Vec<(Id, &'v Value)>,
    /// Resources that the walk is in, for dynamic references.
    scope: Vec<u32>,
}

impl<'s, 'v> Walk<'s, 'v> {
    pub(crate) fn is_valid(plan: &'s Plan, value: &'v Value) -> bool {
        let mut walk = Walk::new(plan, 0);
        walk.node(0, value, &Place::Top) && !walk.is_dry
    }

    pub(crate) fn faults(plan: &'s Plan, value: &'v Value, n_wanted: usize) -> Vec<Fault<'s, 'v>> {
        let mut walk = Walk::new(plan, n_wanted);
        walk.node(0, value, &Place::Top);
        if walk.is_dry {
            walk.faults.clear();
            walk.n_wanted = 1;
            walk.fault(&Place::Top, value, FaultKind::TooLong);
        }
        walk.faults
    }

    fn new(plan: &'s Plan, n_wanted: usize) -> Walk<'s, 'v> {
        Walk {
            plan,
            fuel: FUEL,
            longest: pattern::most_steps(""),
            depth: 0,
            is_dry: false,
            n_wanted,
            faults: Vec::new(),
            loops: Vec::new(),
            scope: Vec::new(),
        }
    }

    /// Notes a fault if there is somebody to tell. Never true, so that it can be what a rule says.
    // Never: it is behind every rule, and hardly ever reached.
    #[inline(never)]
    fn fault(&mut self, place: &Place<'_>, value: &'v Value, kind: FaultKind<'s>) -> bool {
        if self.n_wanted > 0 {
            self.n_wanted -= 1;
            let mut text = String::new();
            place.write(&mut text);
            self.faults.push(Fault { place: text, value, kind });
        }
        false
    }

    /// Whether a value obeys a node, with nobody to be told why not.
    fn quietly(&mut self, id: Id, value: &'v Value) -> bool {
        let n_wanted = std::mem::take(&mut self.n_wanted);
        let is_fine = self.node(id, value, &Place::Top);
        self.n_wanted = n_wanted;
        is_fine
    }

    fn node(&mut self, id: Id, value: &'v Value, place: &Place<'_>) -> bool {
        let plan = self.plan;
        let node = &plan.nodes[id as usize];
        if node.is_loop && self.is_judging(id, value) {
            return true;
        }
        let mut is_fine = node.types.fit(value) || self.fault(place, value, FaultKind::Type(node.types));
        if node.rules.is_empty() || !is_fine && self.n_wanted == 0 {
            return is_fine;
        }
        let Some(is_elsewhere) = self.enter(id, node, value) else {
            return false;
        };
        for (n, rule) in node.rules.iter().enumerate() {
            if !self.rule(node, n, rule, value, place) {
                is_fine = false;
                if self.n_wanted == 0 || self.is_dry {
                    break;
                }
            }
        }
        self.leave(node, is_elsewhere);
        is_fine
    }

    /// Steps into a node, if there is fuel for it; and whether that is in another resource.
    fn enter(&mut self, id: Id, node: &Node, value: &'v Value) -> Option<bool> {
        if self.fuel == 0 || self.depth == DEEPEST {
            self.is_dry = true;
            return None;
        }
        if node.is_loop {
            self.loops.push((id, value));
        }
        let is_elsewhere = !self.plan.dynamic.is_empty() && self.scope.last() != Some(&node.resource);
        if is_elsewhere {
            self.scope.push(node.resource);
        }
        self.fuel -= 1;
        self.depth += 1;
        Some(is_elsewhere)
    }

    fn leave(&mut self, node: &Node, is_elsewhere: bool) {
        self.depth -= 1;
        if is_elsewhere {
            self.scope.pop();
        }
        if node.is_loop {
            self.loops.pop();
        }
    }

    /// Whether a value is being judged by a node already, which adds nothing to what is asked of it.
    fn is_judging(&self, id: Id, value: &Value) -> bool {
        self.loops.iter().any(|(known, other)| *known == id && std::ptr::eq(*other, value))
    }

    fn rule(
        &mut self,
        node: &'s Node,
        n: usize,
        rule: &'s Rule,
        value: &'v Value,
        place: &Place<'_>,
    ) -> bool {
        match rule {
            Rule::Never => self.fault(place, value, FaultKind::Never),
            Rule::MetaSchema => match shape::fault_within(value, &mut self.fuel) {
                _ if self.fuel == 0 => {
                    self.is_dry = true;
                    false
                }
                None => true,
                Some(why) => self.fault(place, value, FaultKind::NoSchema(why)),
            },
            Rule::Const(wanted) => {
                value::is_same(wanted, value) || self.fault(place, value, FaultKind::Const(wanted))
            }
            Rule::Enum(options) => {
                let all = options.as_array().map_or(&[][..], Vec::as_slice);
                self.fuel = self.fuel.saturating_sub(all.len() as u64 / 4);
                all.iter().any(|option| value::is_same(option, value))
                    || self.fault(place, value, FaultKind::Enum(options))
            }
            Rule::Least(_) | Rule::Most(_) | Rule::Above(_) | Rule::Below(_) | Rule::Multiple(_) => {
                match value {
                    Value::Number(number) => self.number(rule, number, value, place),
                    _ => true,
                }
            }
            Rule::MinLength(_) | Rule::MaxLength(_) | Rule::Pattern(_) => match value {
                Value::String(text) => self.text(rule, text, value, place),
                _ => true,
            },
            Rule::Array(rule) => match value {
                Value::Array(items) => self.array(rule, items, value, place),
                _ => true,
            },
            Rule::Object(rule) => match value {
                Value::Object(members) => self.object(rule, members, value, place),
                _ => true,
            },
            Rule::Together(_) | Rule::With(_) => match value {
                Value::Object(members) => self.dependent(rule, members, value, place),
                _ => true,
            },
            Rule::Reference(id) => self.node(*id, value, place),
            Rule::Dynamic { name, otherwise } => self.node(self.dynamic(name, *otherwise), value, place),
            Rule::All(_) | Rule::Any(_) | Rule::One(_) | Rule::Not(..) | Rule::If(..) => {
                self.logic(rule, value, place)
            }
            Rule::UnevaluatedItems(id) => match value {
                Value::Array(items) => self.unevaluated_items(&node.rules[..n], *id, items, value, place),
                _ => true,
            },
            Rule::UnevaluatedProperties(id) => match value {
                Value::Object(members) => {
                    self.unevaluated_properties(&node.rules[..n], *id, members, value, place)
                }
                _ => true,
            },
        }
    }

    fn number(
        &mut self,
        rule: &'s Rule,
        number: &serde_json::Number,
        value: &'v Value,
        place: &Place<'_>,
    ) -> bool {
        let (is_fine, kind) = match rule {
            Rule::Least(limit) => (number::compare(number, limit).is_ge(), FaultKind::Minimum(limit)),
            Rule::Most(limit) => (number::compare(number, limit).is_le(), FaultKind::Maximum(limit)),
            Rule::Above(limit) => {
                (number::compare(number, limit).is_gt(), FaultKind::ExclusiveMinimum(limit))
            }
            Rule::Below(limit) => {
                (number::compare(number, limit).is_lt(), FaultKind::ExclusiveMaximum(limit))
            }
            Rule::Multiple(of) => (number::is_multiple(number, of), FaultKind::MultipleOf(of)),
            _ => return true,
        };
        is_fine || self.fault(place, value, kind)
    }

    fn text(&mut self, rule: &'s Rule, text: &str, value: &'v Value, place: &Place<'_>) -> bool {
        let (is_fine, kind) = match rule {
            // Every character has one to four bytes, so that most need not be counted.
            Rule::MinLength(limit) => (
                text.len() as u64 >= limit.saturating_mul(4) || length(text) >= *limit,
                FaultKind::MinLength(*limit),
            ),
            Rule::MaxLength(limit) => {
                (text.len() as u64 <= *limit || length(text) <= *limit, FaultKind::MaxLength(*limit))
            }
            Rule::Pattern(pattern) => (self.fits(pattern, text), FaultKind::Pattern(pattern.as_str())),
            _ => return true,
        };
        is_fine || self.fault(place, value, kind)
    }

    fn fits(&mut self, pattern: &crate::Pattern, text: &str) -> bool {
        let most = pattern::most_steps(text);
        if most > self.longest {
            self.fuel = self.fuel.saturating_add(most - self.longest);
            self.longest = most;
        }
        let allowed = self.fuel.min(most);
        let mut left = allowed;
        let found = pattern.is_match_within(text, &mut left);
        self.fuel -= allowed - left;
        self.is_dry |= found.is_err();
        found == Ok(true)
    }

    fn array(
        &mut self,
        rule: &'s ArrayRule,
        items: &'v [Value],
        value: &'v Value,
        place: &Place<'_>,
    ) -> bool {
        let n_items = items.len() as u64;
        let mut is_fine = true;
        if n_items < rule.min {
            is_fine = self.fault(place, value, FaultKind::MinItems(rule.min));
        }
        let max = rule.max.filter(|max| n_items > *max);
        if let Some(max) = max {
            is_fine = self.fault(place, value, FaultKind::MaxItems(max));
        }
        if !is_fine && self.n_wanted == 0 {
            return false;
        }
        // Whether too many differ is not asked.
        if rule.is_unique && max.is_none() {
            match value::are_unique(items, &mut self.fuel) {
                Some(true) => {}
                Some(false) => is_fine = self.fault(place, value, FaultKind::UniqueItems),
                None => {
                    self.is_dry = true;
                    return false;
                }
            }
        }
        let rest = rule.rest.iter().cycle();
        for (n, (item, id)) in items.iter().zip(rule.first.iter().chain(rest)).enumerate() {
            is_fine &= self.node(*id, item, &Place::Item(place, n));
            if self.is_over(is_fine) {
                return false;
            }
        }
        if let Some(contains) = &rule.contains {
            let mut n_found = 0;
            for item in items {
                n_found += u64::from(self.quietly(contains.what, item));
                if n_found >= contains.min && contains.max.is_none_or(|max| n_found > max) {
                    break;
                }
            }
            if n_found < contains.min || contains.max.is_some_and(|max| n_found > max) {
                let (min, max) = (contains.min, contains.max);
                is_fine = self.fault(place, value, FaultKind::Contains { min, max });
            }
        }
        is_fine
    }

    /// Whether there is no need to look further.
    fn is_over(&self, is_fine: bool) -> bool {
        !is_fine && (self.n_wanted == 0 || self.is_dry)
    }

    fn object(
        &mut self,
        rule: &'s ObjectRule,
        members: &'v Map<String, Value>,
        value: &'v Value,
        place: &Place<'_>,
    ) -> bool {
        let n_members = members.len() as u64;
        let mut is_fine = true;
        if n_members < rule.min {
            is_fine = self.fault(place, value, FaultKind::MinProperties(rule.min));
        }
        if let Some(max) = rule.max.filter(|max| n_members > *max) {
            is_fine = self.fault(place, value, FaultKind::MaxProperties(max));
        }
        let mut n_required = 0;
        let mut unexpected = Vec::new();
        for (name, inner) in members {
            if self.is_over(is_fine) {
                return false;
            }
            let member = rule.member(name);
            n_required += usize::from(member.is_some_and(|member| member.is_required));
            let mut is_known = false;
            let inside = Place::Name(place, name);
            if let Some(id) = member.and_then(|member| member.what) {
                is_known = true;
                is_fine &= self.node(id, inner, &inside);
            }
            for (pattern, id) in &rule.patterns {
                if self.fits(pattern, name) {
                    is_known = true;
                    is_fine &= self.node(*id, inner, &inside);
                }
            }
            match rule.rest {
                Some(Rest::Schema(id)) if !is_known => is_fine &= self.node(id, inner, &inside),
                Some(Rest::Never) if !is_known && self.n_wanted == 0 => return false,
                Some(Rest::Never) if !is_known => unexpected.push(name.clone()),
                _ => {}
            }
            if let Some(names) = rule.names {
                is_fine &= self.name(names, name, value, place);
            }
        }
        if !unexpected.is_empty() {
            is_fine = self.fault(place, value, FaultKind::AdditionalProperties(unexpected));
        }
        if n_required < rule.required.len() {
            for name in rule.required.iter().filter(|name| !members.contains_key(&***name)) {
                is_fine = self.fault(place, value, FaultKind::Required(name));
            }
        }
        is_fine
    }

    /// The name of a member, as a value of its own.
    fn name(&mut self, id: Id, name: &str, value: &'v Value, place: &Place<'_>) -> bool {
        let text = Value::String(name.to_owned());
        let mut inner = Walk::new(self.plan, usize::from(self.n_wanted > 0));
        (inner.fuel, inner.longest) = (self.fuel, self.longest);
        (inner.depth, inner.scope) = (self.depth, std::mem::take(&mut self.scope));
        let is_fine = inner.node(id, &text, &Place::Top);
        let why = inner.faults.first().map(ToString::to_string);
        (self.fuel, self.longest, self.scope) = (inner.fuel, inner.longest, inner.scope);
        self.is_dry |= inner.is_dry;
        is_fine || self.fault(place, value, FaultKind::PropertyName(why.unwrap_or_default()))
    }

    fn dependent(
        &mut self,
        rule: &'s Rule,
        members: &'v Map<String, Value>,
        value: &'v Value,
        place: &Place<'_>,
    ) -> bool {
        let mut is_fine = true;
        match rule {
            Rule::Together(all) => {
                for (_, needed) in all.iter().filter(|(name, _)| members.contains_key(&**name)) {
                    for name in needed.iter().filter(|name| !members.contains_key(&***name)) {
                        is_fine = self.fault(place, value, FaultKind::Required(name));
                    }
                }
            }
            Rule::With(all) => {
                for (_, id) in all.iter().filter(|(name, _)| members.contains_key(&**name)) {
                    is_fine &= self.node(*id, value, place);
                }
            }
            _ => {}
        }
        is_fine
    }

    fn dynamic(&self, name: &str, otherwise: Id) -> Id {
        let is_it = |resource: u32| {
            self.plan.dynamic.iter().find(|(known, anchor, _)| *known == resource && **anchor == *name)
        };
        // The outermost one that has the name.
        self.scope.iter().find_map(|resource| is_it(*resource)).map_or(otherwise, |(_, _, id)| *id)
    }

    fn logic(&mut self, rule: &'s Rule, value: &'v Value, place: &Place<'_>) -> bool {
        match rule {
            Rule::All(all) => {
                let mut is_fine = true;
                for id in all {
                    is_fine &= self.node(*id, value, place);
                    if self.is_over(is_fine) {
                        return false;
                    }
                }
                is_fine
            }
            Rule::Any(all) => {
                all.iter().any(|id| self.quietly(*id, value)) || self.fault(place, value, FaultKind::AnyOf)
            }
            Rule::One(all) => {
                let mut fitting = all.iter().filter(|id| self.quietly(**id, value));
                let (first, second) = (fitting.next(), fitting.next());
                match (first, second) {
                    (Some(_), None) => true,
                    (None, _) => self.fault(place, value, FaultKind::OneOfNone),
                    (Some(_), Some(_)) => self.fault(place, value, FaultKind::OneOfMany),
                }
            }
            Rule::Not(id, schema) => {
                !self.quietly(*id, value) || self.fault(place, value, FaultKind::Not(schema))
            }
            Rule::If(condition, then, otherwise) => {
                let next = if self.quietly(*condition, value) { then } else { otherwise };
                next.is_none_or(|id| self.node(id, value, place))
            }
            _ => true,
        }
    }

    fn unevaluated_items(
        &mut self,
        rules: &'s [Rule],
        id: Id,
        items: &'v [Value],
        value: &'v Value,
        place: &Place<'_>,
    ) -> bool {
        let mut seen = vec![false; items.len()];
        self.mark(rules, value, &mut seen);
        let mut n_unexpected = 0;
        for item in items.iter().zip(seen).filter(|(_, is_seen)| !is_seen).map(|(item, _)| item) {
            n_unexpected += usize::from(!self.quietly(id, item));
        }
        n_unexpected == 0 || self.fault(place, value, FaultKind::UnevaluatedItems(n_unexpected))
    }

    fn unevaluated_properties(
        &mut self,
        rules: &'s [Rule],
        id: Id,
        members: &'v Map<String, Value>,
        value: &'v Value,
        place: &Place<'_>,
    ) -> bool {
        let mut seen = vec![false; members.len()];
        self.mark(rules, value, &mut seen);
        let mut unexpected = Vec::new();
        for ((name, inner), _) in members.iter().zip(seen).filter(|(_, is_seen)| !is_seen) {
            if !self.quietly(id, inner) {
                unexpected.push(name.clone());
            }
        }
        unexpected.is_empty() || self.fault(place, value, FaultKind::UnevaluatedProperties(unexpected))
    }

    /// Marks the items or members that rules have looked at. The value obeys the rules, or what is marked is not used.
    fn mark(&mut self, rules: &'s [Rule], value: &'v Value, seen: &mut [bool]) {
        for rule in rules {
            match (rule, value) {
                (Rule::Array(rule), Value::Array(items)) => {
                    let n_first = if rule.rest.is_some() { items.len() } else { rule.first.len() };
                    seen.iter_mut().take(n_first).for_each(|seen| *seen = true);
                    if let Some(contains) = rule.contains.as_ref().filter(|contains| contains.is_look) {
                        for (item, seen) in items.iter().zip(seen.iter_mut()) {
                            *seen = *seen || self.quietly(contains.what, item);
                        }
                    }
                }
                (Rule::Object(rule), Value::Object(members)) => {
                    for (name, seen) in members.keys().zip(seen.iter_mut()) {
                        *seen = *seen
                            || rule.rest.is_some()
                            || rule.is_open
                            || rule.member(name).is_some_and(|member| member.what.is_some())
                            || rule.patterns.iter().any(|(pattern, _)| self.fits(pattern, name));
                    }
                }
                (Rule::UnevaluatedItems(_), Value::Array(_))
                | (Rule::UnevaluatedProperties(_), Value::Object(_)) => {
                    seen.iter_mut().for_each(|seen| *seen = true);
                }
                (Rule::Reference(id), _) => self.mark_node(*id, value, seen),
                (Rule::Dynamic { name, otherwise }, _) => {
                    self.mark_node(self.dynamic(name, *otherwise), value, seen);
                }
                (Rule::All(all), _) => all.iter().for_each(|id| self.mark_node(*id, value, seen)),
                (Rule::Any(all) | Rule::One(all), _) => {
                    for id in all {
                        if self.quietly(*id, value) {
                            self.mark_node(*id, value, seen);
                        }
                    }
                }
                (Rule::If(condition, then, otherwise), _) => {
                    let next = match self.quietly(*condition, value) {
                        true => {
                            self.mark_node(*condition, value, seen);
                            then
                        }
                        false => otherwise,
                    };
                    next.iter().for_each(|id| self.mark_node(*id, value, seen));
                }
                (Rule::With(all), Value::Object(members)) => {
                    for (_, id) in all.iter().filter(|(name, _)| members.contains_key(&**name)) {
                        self.mark_node(*id, value, seen);
                    }
                }
                _ => {}
            }
        }
    }

    fn mark_node(&mut self, id: Id, value: &'v Value, seen: &mut [bool]) {
        let plan = self.plan;
        let node = &plan.nodes[id as usize];
        if node.is_loop && self.is_judging(id, value) {
            return;
        }
        if let Some(is_elsewhere) = self.enter(id, node, value) {
            self.mark(&node.rules, value, seen);
            self.leave(node, is_elsewhere);
        }
    }
}

fn length(text: &str) -> u64 {
    text.chars().count() as u64
}
