//! A schema as it is used: nodes with rules, all references found.

use serde_json::{Map, Number, Value};

use crate::Malformed;
use crate::index::{Draft, Index, Numbers, Target, Wrong, place};
use crate::kind::{Type, Types};
use crate::number;
use crate::pattern::{Pattern, Unread};

/// The number of a node.
pub(crate) type Id = u32;

pub(crate) type Names = Box<[Box<str>]>;

/// One schema. A value must have one of its types and obey all its rules.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) types: Types,
    /// Cheap ones first; those that ask what the others have looked at last.
    pub(crate) rules: Box<[Rule]>,
    pub(crate) resource: u32,
    /// It leads back to itself without a step into the value.
    pub(crate) is_loop: bool,
}

#[derive(Debug)]
pub(crate) enum Rule {
    /// The schema `false`.
    Never,
    /// The schema that describes schemas.
    MetaSchema,
    Const(Box<Value>),
    /// An array.
    Enum(Box<Value>),
    Least(Number),
    Most(Number),
    Above(Number),
    Below(Number),
    Multiple(Number),
    MinLength(u64),
    MaxLength(u64),
    Pattern(Box<Pattern>),
    Array(Box<ArrayRule>),
    Object(Box<ObjectRule>),
    /// If there is a member, these must be there too.
    Together(Box<[(Box<str>, Names)]>),
    Reference(Id),
    /// Where it leads to is decided by how it was reached.
    Dynamic {
        name: Box<str>,
        otherwise: Id,
    },
    All(Box<[Id]>),
    Any(Box<[Id]>),
    One(Box<[Id]>),
    Not(Id, Box<Value>),
    If(Id, Option<Id>, Option<Id>),
    /// If there is a member, the whole must obey.
    With(Box<[(Box<str>, Id)]>),
    UnevaluatedItems(Id),
    UnevaluatedProperties(Id),
}

#[derive(Debug, Default)]
pub(crate) struct ArrayRule {
    pub(crate) min: u64,
    pub(crate) max: Option<u64>,
    pub(crate) is_unique: bool,
    pub(crate) first: Box<[Id]>,
    pub(crate) rest: Option<Id>,
    pub(crate) contains: Option<Contains>,
}

#[derive(Debug)]
pub(crate) struct Contains {
    pub(crate) what: Id,
    pub(crate) min: u64,
    pub(crate) max: Option<u64>,
    /// What it finds is looked at, so that `unevaluatedItems` does not.
    pub(crate) is_look: bool,
}

#[derive(Debug, Default)]
pub(crate) struct ObjectRule {
    pub(crate) min: u64,
    pub(crate) max: Option<u64>,
    /// Sorted by name: what is described, and what is required.
    pub(crate) members: Box<[Member]>,
    /// In the order of the schema.
    pub(crate) required: Names,
    pub(crate) patterns: Box<[(Pattern, Id)]>,
    pub(crate) rest: Option<Rest>,
    /// One of its patterns is not enforced and might have looked at any member.
    pub(crate) is_open: bool,
    pub(crate) names: Option<Id>,
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: Box<str>,
    pub(crate) what: Option<Id>,
    pub(crate) is_required: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Rest {
    Never,
    Schema(Id),
}

impl ObjectRule {
    /// What is said of a member.
    #[inline]
    pub(crate) fn member(&self, name: &str) -> Option<&Member> {
        match self.members.len() {
            0..=8 => self.members.iter().find(|member| *member.name == *name),
            _ => {
                let found = self.members.binary_search_by(|member| (*member.name).cmp(name));
                found.ok().map(|at| &self.members[at])
            }
        }
    }
}

/// All nodes; the first is the whole.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) nodes: Box<[Node]>,
    /// Where dynamic references may lead, by resource and name.
    pub(crate) dynamic: Box<[(u32, Box<str>, Id)]>,
    pub(crate) unread: Vec<String>,
}

pub(crate) fn plan(schema: &Value, others: &[(&str, &Value)]) -> Result<Plan, Malformed> {
    let make = || {
        let mut index = Index::new();
        index.add("", schema)?;
        for (address, other) in others {
            index.add(address, other)?;
        }
        Planner {
            index,
            nodes: Vec::new(),
            ids: Numbers::new(),
            left: Vec::new(),
            dynamic: Vec::new(),
            unread: Vec::new(),
        }
        .plan(schema)
    };
    make().map_err(|Wrong { what, why }| {
        let place = place(schema, what);
        let other = || {
            others
                .iter()
                .find_map(|(address, other)| Some(format!("{address}#{}", crate::index::place(other, what)?)))
        };
        Malformed { place: place.or_else(other).unwrap_or_default(), why }
    })
}

struct Planner<'a> {
    index: Index<'a>,
    nodes: Vec<Node>,
    ids: Numbers,
    left: Vec<(Id, &'a Value, usize)>,
    dynamic: Vec<(u32, Box<str>, Id)>,
    unread: Vec<String>,
}

impl<'a> Planner<'a> {
    fn plan(mut self, schema: &'a Value) -> Result<Plan, Wrong<'a>> {
        self.node(schema, 0);
        while let Some((id, schema, resource)) = self.left.pop() {
            let node = self.build(schema, resource)?;
            self.nodes[id as usize] = node;
        }
        let is_dynamic = !self.dynamic.is_empty();
        if !is_dynamic {
            shorten(&mut self.nodes);
        }
        find_loops(&mut self.nodes, &self.dynamic);
        Ok(Plan { nodes: self.nodes.into(), dynamic: self.dynamic.into(), unread: self.unread })
    }

    /// The node of a schema, which is made later if it is a new one.
    fn node(&mut self, schema: &'a Value, outer: usize) -> Id {
        let of = |number: usize| Id::try_from(number).unwrap_or(Id::MAX);
        if let Some(number) = self.ids.get(&std::ptr::from_ref(schema)) {
            return of(*number);
        }
        let resource = self.index.resource_of(schema, outer);
        let id = of(self.nodes.len());
        self.ids.insert(schema, self.nodes.len());
        self.nodes.push(Node { types: Types::ANY, rules: Box::default(), resource: 0, is_loop: false });
        self.left.push((id, schema, resource));
        id
    }

    fn nodes(&mut self, all: &'a [Value], resource: usize) -> Box<[Id]> {
        all.iter().map(|one| self.node(one, resource)).collect()
    }

    fn build(&mut self, schema: &'a Value, resource: usize) -> Result<Node, Wrong<'a>> {
        if !self.index.is_known(schema) {
            self.index.look(schema, resource)?;
        }
        let mut node = Node {
            types: Types::ANY,
            rules: Box::default(),
            resource: u32::try_from(resource).unwrap_or_default(),
            is_loop: false,
        };
        let mut rules = Vec::new();
        match schema {
            Value::Bool(false) => rules.push(Rule::Never),
            Value::Object(members) => {
                let is_lone = self.index.resources[resource].draft.has_lone_references();
                if !is_lone || !members.contains_key("$ref") {
                    node.types = types(members);
                    self.plain(members, &mut rules);
                    self.array(members, resource, &mut rules);
                    self.object(members, resource, &mut rules);
                    self.logic(members, resource, &mut rules);
                }
                self.references(members, resource, &mut rules)?;
                if !is_lone {
                    self.unevaluated(members, resource, &mut rules);
                }
            }
            _ => {}
        }
        node.rules = rules.into();
        Ok(node)
    }

    fn plain(&mut self, members: &'a Map<String, Value>, rules: &mut Vec<Rule>) {
        for (word, value) in members {
            let limit = value.as_number();
            let is_flag = |word: &str| members.get(word) == Some(&Value::Bool(true));
            let rule = match (word.as_str(), limit) {
                ("const", _) => Rule::Const(Box::new(value.clone())),
                ("enum", _) => Rule::Enum(Box::new(value.clone())),
                // A flag beside the limit, as drafts before 6 have it.
                ("minimum", Some(limit)) if is_flag("exclusiveMinimum") => Rule::Above(limit.clone()),
                ("maximum", Some(limit)) if is_flag("exclusiveMaximum") => Rule::Below(limit.clone()),
                ("minimum", Some(limit)) => Rule::Least(limit.clone()),
                ("maximum", Some(limit)) => Rule::Most(limit.clone()),
                ("exclusiveMinimum", Some(limit)) => Rule::Above(limit.clone()),
                ("exclusiveMaximum", Some(limit)) => Rule::Below(limit.clone()),
                ("multipleOf", Some(limit)) => Rule::Multiple(limit.clone()),
                ("minLength", Some(limit)) => Rule::MinLength(number::count(limit).unwrap_or_default()),
                ("maxLength", Some(limit)) => Rule::MaxLength(number::count(limit).unwrap_or(u64::MAX)),
                ("pattern", _) => match self.pattern(value.as_str().unwrap_or_default()) {
                    Some(pattern) => Rule::Pattern(Box::new(pattern)),
                    None => continue,
                },
                _ => continue,
            };
            rules.push(rule);
        }
    }

    /// A pattern that can be matched. Others are told, and nothing has to fit them.
    fn pattern(&mut self, text: &str) -> Option<Pattern> {
        match Pattern::new(text) {
            Ok(pattern) => Some(pattern),
            Err(Unread::Wrong(why) | Unread::Foreign(why)) => {
                let told = format!("the pattern {text:?} is not enforced: {why}");
                if !self.unread.contains(&told) {
                    self.unread.push(told);
                }
                None
            }
        }
    }

    fn array(&mut self, members: &'a Map<String, Value>, resource: usize, rules: &mut Vec<Rule>) {
        let draft = self.index.resources[resource].draft;
        let mut rule = ArrayRule::default();
        let mut is_used = false;
        for (word, value) in members {
            match word.as_str() {
                "minItems" => rule.min = limit(value),
                "maxItems" => rule.max = Some(limit(value)),
                "uniqueItems" => rule.is_unique = value == &Value::Bool(true),
                "prefixItems" if draft >= Draft::Y2020 => {
                    rule.first = self.nodes(value.as_array().map_or(&[], Vec::as_slice), resource);
                }
                "items" => match value {
                    Value::Array(all) => {
                        rule.first = self.nodes(all, resource);
                        rule.rest = members.get("additionalItems").map(|rest| self.node(rest, resource));
                    }
                    rest => rule.rest = Some(self.node(rest, resource)),
                },
                "contains" => {
                    let what = self.node(value, resource);
                    let min = members.get("minContains").map_or(1, limit);
                    let max = members.get("maxContains").map(limit);
                    rule.contains = Some(Contains { what, min, max, is_look: draft >= Draft::Y2020 });
                }
                _ => continue,
            }
            is_used = true;
        }
        if is_used {
            rules.push(Rule::Array(Box::new(rule)));
        }
    }

    fn object(&mut self, members: &'a Map<String, Value>, resource: usize, rules: &mut Vec<Rule>) {
        let mut rule = ObjectRule::default();
        let mut listed: Vec<Member> = Vec::new();
        let mut patterns = Vec::new();
        let mut is_used = false;
        for (word, value) in members {
            match word.as_str() {
                "minProperties" => rule.min = limit(value),
                "maxProperties" => rule.max = Some(limit(value)),
                "properties" => {
                    let Some(all) = value.as_object() else { continue };
                    // Nodes come in the order of the schema, members sorted by name.
                    for one in all.values() {
                        self.node(one, resource);
                    }
                    let mut names: Vec<&str> = all.keys().map(String::as_str).collect();
                    names.sort_unstable();
                    for name in names {
                        let what = all.get(name).map(|one| self.node(one, resource));
                        listed.push(Member { name: name.into(), what, is_required: false });
                    }
                }
                "required" => rule.required = names(value),
                "patternProperties" => {
                    for (text, one) in value.as_object().into_iter().flatten() {
                        let what = self.node(one, resource);
                        patterns.extend(self.pattern(text).map(|pattern| (pattern, what)));
                    }
                }
                "additionalProperties" => {
                    rule.rest = Some(match value {
                        Value::Bool(false) => Rest::Never,
                        rest => Rest::Schema(self.node(rest, resource)),
                    });
                }
                "propertyNames" => rule.names = Some(self.node(value, resource)),
                _ => continue,
            }
            is_used = true;
        }
        if !is_used {
            return;
        }
        for name in &rule.required {
            match listed.binary_search_by(|member| member.name.cmp(name)) {
                Ok(at) => listed[at].is_required = true,
                Err(at) => listed.insert(at, Member { name: name.clone(), what: None, is_required: true }),
            }
        }
        // A pattern that is not enforced might have allowed what is left: then all is.
        let n_patterns = members.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
        if patterns.len() < n_patterns {
            rule.rest = None;
            rule.is_open = true;
        }
        rule.members = listed.into();
        rule.patterns = patterns.into();
        rules.push(Rule::Object(Box::new(rule)));
    }

    fn logic(&mut self, members: &'a Map<String, Value>, resource: usize, rules: &mut Vec<Rule>) {
        let list = |value: &'a Value| value.as_array().map_or(&[][..], Vec::as_slice);
        for (word, value) in members {
            let rule = match word.as_str() {
                "dependentRequired" => Rule::Together(together(value)),
                "dependentSchemas" => Rule::With(self.with(value, resource)),
                "dependencies" => {
                    rules.push(Rule::Together(together(value)));
                    Rule::With(self.with(value, resource))
                }
                "allOf" => Rule::All(self.nodes(list(value), resource)),
                "anyOf" => Rule::Any(self.nodes(list(value), resource)),
                "oneOf" => Rule::One(self.nodes(list(value), resource)),
                "not" => Rule::Not(self.node(value, resource), Box::new(value.clone())),
                "if" => {
                    let then = members.get("then").map(|then| self.node(then, resource));
                    let otherwise = members.get("else").map(|otherwise| self.node(otherwise, resource));
                    Rule::If(self.node(value, resource), then, otherwise)
                }
                _ => continue,
            };
            rules.push(rule);
        }
    }

    fn with(&mut self, value: &'a Value, resource: usize) -> Box<[(Box<str>, Id)]> {
        let all = value.as_object().into_iter().flatten().filter(|(_, one)| !one.is_array());
        all.map(|(name, one)| (name.as_str().into(), self.node(one, resource))).collect()
    }

    fn references(
        &mut self,
        members: &'a Map<String, Value>,
        resource: usize,
        rules: &mut Vec<Rule>,
    ) -> Result<(), Wrong<'a>> {
        for (word, value) in members {
            let (target, is_dynamic) = match (word.as_str(), value.as_str()) {
                ("$ref", Some(reference)) => (self.index.find(resource, reference), false),
                ("$dynamicRef", Some(reference)) => (self.index.find(resource, reference), true),
                ("$recursiveRef", Some(_)) => (Some(self.index.find_recursive(resource)), true),
                _ => continue,
            };
            let lost = || format!("{value} leads to nothing in this schema, and nothing is fetched");
            let rule = match target.ok_or_else(|| Wrong { what: value, why: lost() })? {
                Target::MetaSchema => Rule::MetaSchema,
                Target::Schema { value, resource, dynamic } => {
                    let id = self.node(value, resource);
                    match dynamic.filter(|_| is_dynamic) {
                        Some(name) => {
                            self.gather(name);
                            Rule::Dynamic { name: name.into(), otherwise: id }
                        }
                        None => Rule::Reference(id),
                    }
                }
            };
            rules.push(rule);
        }
        Ok(())
    }

    fn gather(&mut self, name: &'a str) {
        if self.dynamic.iter().any(|(_, known, _)| **known == *name) {
            return;
        }
        for (resource, value) in self.index.dynamic(name) {
            let id = self.node(value, resource);
            self.dynamic.push((u32::try_from(resource).unwrap_or_default(), name.into(), id));
        }
    }

    fn unevaluated(&mut self, members: &'a Map<String, Value>, resource: usize, rules: &mut Vec<Rule>) {
        if let Some(value) = members.get("unevaluatedItems") {
            rules.push(Rule::UnevaluatedItems(self.node(value, resource)));
        }
        if let Some(value) = members.get("unevaluatedProperties") {
            rules.push(Rule::UnevaluatedProperties(self.node(value, resource)));
        }
    }
}

fn types(members: &Map<String, Value>) -> Types {
    let one = |name: &Value| name.as_str().and_then(Type::named);
    match members.get("type") {
        Some(Value::Array(names)) => names.iter().filter_map(one).fold(Types::NONE, Types::with),
        Some(name) => one(name).map_or(Types::ANY, |one| Types::NONE.with(one)),
        None => Types::ANY,
    }
}

fn limit(value: &Value) -> u64 {
    value.as_number().and_then(number::count).unwrap_or_default()
}

fn names(value: &Value) -> Names {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(Box::from).collect()
}

fn together(value: &Value) -> Box<[(Box<str>, Names)]> {
    let all = value.as_object().into_iter().flatten().filter(|(_, needed)| needed.is_array());
    all.map(|(name, needed)| (name.as_str().into(), names(needed))).collect()
}

impl Rule {
    /// All nodes that it names.
    fn each(&mut self, visit: &mut dyn FnMut(&mut Id)) {
        match self {
            Rule::Array(rule) => {
                let contains = rule.contains.as_mut().map(|contains| &mut contains.what);
                rule.first.iter_mut().chain(&mut rule.rest).chain(contains).for_each(visit);
            }
            Rule::Object(rule) => {
                let members = rule.members.iter_mut().filter_map(|member| member.what.as_mut());
                let patterns = rule.patterns.iter_mut().map(|(_, id)| id);
                let rest = match &mut rule.rest {
                    Some(Rest::Schema(id)) => Some(id),
                    _ => None,
                };
                members.chain(patterns).chain(rest).chain(&mut rule.names).for_each(visit);
            }
            Rule::UnevaluatedItems(id) | Rule::UnevaluatedProperties(id) => visit(id),
            other => other.each_in_place(visit),
        }
    }

    /// Those that judge the same value.
    fn each_in_place(&mut self, visit: &mut dyn FnMut(&mut Id)) {
        match self {
            Rule::Reference(id) | Rule::Dynamic { otherwise: id, .. } | Rule::Not(id, _) => visit(id),
            Rule::All(all) | Rule::Any(all) | Rule::One(all) => all.iter_mut().for_each(visit),
            Rule::If(id, then, otherwise) => {
                std::iter::once(id).chain(then).chain(otherwise).for_each(visit);
            }
            Rule::With(all) => all.iter_mut().map(|(_, id)| id).for_each(visit),
            _ => {}
        }
    }
}

/// What is nothing but a reference is passed by.
fn shorten(nodes: &mut [Node]) {
    let ends: Vec<Id> = (0..nodes.len())
        .map(|start| {
            let mut id = Id::try_from(start).unwrap_or_default();
            for _ in 0..16 {
                match &nodes[id as usize] {
                    Node { types, rules, .. } if *types == Types::ANY => match &**rules {
                        [Rule::Reference(next)] => id = *next,
                        _ => break,
                    },
                    _ => break,
                }
            }
            id
        })
        .collect();
    for node in nodes {
        node.rules.iter_mut().for_each(|rule| rule.each(&mut |id| *id = ends[*id as usize]));
    }
}

/// Marks at least one node of every way that leads back to where it began without a step into the value.
fn find_loops(nodes: &mut [Node], dynamic: &[(u32, Box<str>, Id)]) {
    let next: Vec<Vec<Id>> = nodes
        .iter_mut()
        .map(|node| {
            let mut all = Vec::new();
            for rule in &mut node.rules {
                if let Rule::Dynamic { name, .. } = &*rule {
                    all.extend(dynamic.iter().filter(|(_, known, _)| known == name).map(|(_, _, id)| *id));
                }
                rule.each_in_place(&mut |id| all.push(*id));
            }
            all
        })
        .collect();
    // 0: not seen, 1: on the way, 2: done.
    let mut seen = vec![0_u8; nodes.len()];
    for start in 0..nodes.len() {
        if seen[start] != 0 {
            continue;
        }
        let mut way = vec![(start, 0)];
        seen[start] = 1;
        while let Some((at, n_taken)) = way.last_mut() {
            let Some(to) = next[*at].get(*n_taken).map(|to| *to as usize) else {
                seen[*at] = 2;
                way.pop();
                continue;
            };
            *n_taken += 1;
            match seen[to] {
                0 => {
                    seen[to] = 1;
                    way.push((to, 0));
                }
                1 => nodes[to].is_loop = true,
                _ => {}
            }
        }
    }
}
