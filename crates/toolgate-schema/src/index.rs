//! Where everything in a schema is: names, addresses, and what a reference leads to.
//!
//! Only places where a schema may stand are looked at, so that an `$id` in a default means nothing. Nothing is fetched.

use std::collections::HashMap;

use serde_json::Value;

use crate::keywords;
use crate::uri;

/// Which edition of JSON Schema a part is written in, as far as that changes what words mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Draft {
    Draft4,
    /// 6 and 7.
    Draft6,
    Draft2019,
    Draft2020,
}

impl Draft {
    fn from_uri(address: &str) -> Option<Draft> {
        let name = address.trim_end_matches('#').split_once("json-schema.org/")?.1;
        match name {
            "draft-04/schema" => Some(Draft::Draft4),
            "draft-06/schema" | "draft-07/schema" => Some(Draft::Draft6),
            "draft/2019-09/schema" => Some(Draft::Draft2019),
            "draft/2020-12/schema" => Some(Draft::Draft2020),
            _ => None,
        }
    }

    /// Words beside a `$ref` mean nothing.
    pub(crate) fn ref_overrides_siblings(self) -> bool {
        self <= Draft::Draft6
    }
}

/// A part of a document that has an address of its own.
pub(crate) struct Resource<'a> {
    base_uri: String,
    root: &'a Value,
    pub(crate) draft: Draft,
    /// Places in the list of all anchors, by name.
    anchors: IndexByName,
}

/// What a reference leads to.
pub(crate) enum RefTarget<'a> {
    /// `dynamic`: the name that a dynamic reference looks for.
    Schema { value: &'a Value, resource: usize, dynamic: Option<&'a str> },
    /// What describes schemas.
    MetaSchema,
}

/// Places in a list, by name. One type for all of them needs one code.
type IndexByName = HashMap<String, usize>;

/// Numbers of parts of a schema, by where they are. One type for all of them needs one code.
pub(crate) type IndexByValue = HashMap<*const Value, usize>;

pub(crate) struct SchemaIndex<'a> {
    pub(crate) resources: Vec<Resource<'a>>,
    resources_by_uri: IndexByName,
    anchors: Vec<Anchor<'a>>,
    /// Where resources begin.
    resource_roots: IndexByValue,
    /// All that was looked at; the numbers mean nothing.
    visited: IndexByValue,
}

struct Anchor<'a> {
    name: &'a str,
    value: &'a Value,
    is_dynamic: bool,
}

/// The name of the anchor that `$recursiveAnchor` is.
const RECURSIVE_ANCHOR: &str = "$recursiveAnchor";

/// Something is wrong with a part of the schema.
pub(crate) struct InvalidKeyword<'a> {
    pub(crate) value: &'a Value,
    pub(crate) message: String,
}

impl<'a> SchemaIndex<'a> {
    pub(crate) fn new() -> SchemaIndex<'a> {
        SchemaIndex {
            resources: Vec::new(),
            resources_by_uri: IndexByName::new(),
            anchors: Vec::new(),
            resource_roots: IndexByValue::new(),
            visited: IndexByValue::new(),
        }
    }

    /// Looks at a whole document. It is of the draft of the first one unless it says otherwise, and so are its parts.
    pub(crate) fn add(&mut self, address: &str, root: &'a Value) -> Result<(), InvalidKeyword<'a>> {
        let draft = self.resources.first().map_or(Draft::Draft2020, |first| first.draft);
        let resource = self.add_resource(address.to_owned(), root, draft);
        self.index_schema(root, resource)
    }

    fn add_resource(&mut self, address: String, root: &'a Value, draft: Draft) -> usize {
        let said = root.get("$schema").and_then(Value::as_str).and_then(Draft::from_uri);
        let resource = self.resources.len();
        self.resources_by_uri.entry(address.clone()).or_insert(resource);
        self.resource_roots.insert(root, resource);
        self.resources.push(Resource {
            base_uri: address,
            root,
            draft: said.unwrap_or(draft),
            anchors: IndexByName::new(),
        });
        resource
    }

    /// Looks at a schema that nobody looked at before, and at all in it.
    pub(crate) fn index_schema(
        &mut self,
        schema: &'a Value,
        resource: usize,
    ) -> Result<(), InvalidKeyword<'a>> {
        let mut left = vec![(schema, resource)];
        while let Some((schema, resource)) = left.pop() {
            if self.visited.insert(schema, resource).is_some() {
                continue;
            }
            let members = match schema {
                Value::Object(members) => members,
                Value::Bool(_) => continue,
                other => {
                    return Err(InvalidKeyword { value: schema, message: keywords::not_a_schema(other) });
                }
            };
            for (word, value) in members {
                if let Some(why) = keywords::keyword_error(word, value) {
                    return Err(InvalidKeyword { value, message: why });
                }
            }
            let draft = self.resources[resource].draft;
            let resource = match draft.ref_overrides_siblings() && members.contains_key("$ref") {
                true => resource,
                false => self.index_names(schema, resource),
            };
            keywords::for_each_subschema(members, &mut |one| left.push((one, resource)));
        }
        Ok(())
    }

    /// Notes what a schema is called.
    fn index_names(&mut self, schema: &'a Value, resource: usize) -> usize {
        let text = |word: &str| schema.get(word).and_then(Value::as_str);
        let mut resource = resource;
        let draft = self.resources[resource].draft;
        if let Some(id) = text(if draft == Draft::Draft4 { "id" } else { "$id" }) {
            let (address, fragment) = uri::resolve(&self.resources[resource].base_uri, id);
            if !id.starts_with('#') && address != self.resources[resource].base_uri {
                resource = match self.resource_roots.get(&std::ptr::from_ref(schema)) {
                    // The address that a document has by itself holds beside the one it is given.
                    Some(known) => {
                        self.resources_by_uri.entry(address.clone()).or_insert(*known);
                        self.resources[*known].base_uri = address;
                        *known
                    }
                    None => self.add_resource(address, schema, draft),
                };
            }
            if !fragment.is_empty()
                && let Some((_, name)) = id.split_once('#')
            {
                self.add_anchor(resource, name, schema, false);
            }
        }
        for (word, is_dynamic) in [("$anchor", false), ("$dynamicAnchor", true)] {
            if let Some(name) = text(word) {
                self.add_anchor(resource, name, schema, is_dynamic);
            }
        }
        if schema.get(RECURSIVE_ANCHOR) == Some(&Value::Bool(true)) {
            self.add_anchor(resource, RECURSIVE_ANCHOR, schema, true);
        }
        resource
    }

    fn add_anchor(&mut self, resource: usize, name: &'a str, value: &'a Value, is_dynamic: bool) {
        // The first of a name counts.
        self.resources[resource].anchors.entry(name.to_owned()).or_insert(self.anchors.len());
        self.anchors.push(Anchor { name, value, is_dynamic });
    }

    /// The resource that a schema is in, if another one begins with it.
    pub(crate) fn resource_of(&self, schema: &Value, outer: usize) -> usize {
        self.resource_roots.get(&std::ptr::from_ref(schema)).copied().unwrap_or(outer)
    }

    pub(crate) fn is_indexed(&self, schema: &Value) -> bool {
        self.visited.contains_key(&std::ptr::from_ref(schema))
    }

    /// What a reference leads to from a resource. None if it leads out of all that is known.
    pub(crate) fn resolve(&self, from: usize, reference: &str) -> Option<RefTarget<'a>> {
        let (address, fragment) = uri::resolve(&self.resources[from].base_uri, reference);
        let Some(resource) = self.resources_by_uri.get(&address).copied() else {
            let is_whole = fragment.is_empty() || fragment == "meta";
            return (is_whole && Draft::from_uri(&address).is_some()).then_some(RefTarget::MetaSchema);
        };
        let fragment = uri::percent_decode(&fragment);
        let root = self.resources[resource].root;
        if fragment.is_empty() {
            return Some(RefTarget::Schema { value: root, resource, dynamic: None });
        }
        if !fragment.starts_with('/') {
            let anchor = &self.anchors[*self.resources[resource].anchors.get(&fragment)?];
            let dynamic = anchor.is_dynamic.then_some(anchor.name);
            return Some(RefTarget::Schema { value: anchor.value, resource, dynamic });
        }
        let (mut value, mut resource) = (root, resource);
        for part in fragment.split('/').skip(1) {
            let part = part.replace("~1", "/").replace("~0", "~");
            value = match value {
                Value::Object(members) => members.get(&part)?,
                Value::Array(items) => items.get(part.parse::<usize>().ok()?)?,
                _ => return None,
            };
            resource = self.resource_of(value, resource);
        }
        Some(RefTarget::Schema { value, resource, dynamic: None })
    }

    /// The same for `$recursiveRef`, which is always `#`.
    pub(crate) fn resolve_recursive(&self, from: usize) -> RefTarget<'a> {
        let is_dynamic = self.resources[from].anchors.contains_key(RECURSIVE_ANCHOR);
        let dynamic = is_dynamic.then_some(RECURSIVE_ANCHOR);
        RefTarget::Schema { value: self.resources[from].root, resource: from, dynamic }
    }

    /// All that a dynamic reference may lead to.
    pub(crate) fn dynamic_targets(&self, name: &str) -> Vec<(usize, &'a Value)> {
        let found = self.resources.iter().enumerate();
        let found = found.filter_map(|(n, one)| Some((n, &self.anchors[*one.anchors.get(name)?])));
        found.filter(|(_, anchor)| anchor.is_dynamic).map(|(n, anchor)| (n, anchor.value)).collect()
    }
}

/// Where in a document something stands, as a JSON pointer.
pub(crate) fn pointer_to(document: &Value, what: &Value) -> Option<String> {
    let mut left = vec![(document, String::new())];
    while let Some((value, place)) = left.pop() {
        if std::ptr::eq(value, what) {
            return Some(place);
        }
        match value {
            Value::Object(members) => left.extend(members.iter().map(|(name, value)| {
                (value, format!("{place}/{}", name.replace('~', "~0").replace('/', "~1")))
            })),
            Value::Array(items) => {
                left.extend(items.iter().enumerate().map(|(n, value)| (value, format!("{place}/{n}"))));
            }
            _ => {}
        }
    }
    None
}
