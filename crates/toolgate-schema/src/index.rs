//! Indexes a schema document: ids, anchors, and the targets of references.
//!
//! Only positions where a schema is allowed are visited, so that an `$id` inside a `default` is ignored. Nothing is
//! fetched.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::keywords;
use crate::uri;

/// The draft of JSON Schema that a resource uses, as far as keywords differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Draft {
    Draft4,
    /// Drafts 6 and 7.
    Draft6,
    Draft2019,
    Draft2020,
}

impl Draft {
    fn from_uri(schema_uri: &str) -> Option<Draft> {
        let name = schema_uri.trim_end_matches('#').split_once("json-schema.org/")?.1;
        match name {
            "draft-04/schema" => Some(Draft::Draft4),
            "draft-06/schema" | "draft-07/schema" => Some(Draft::Draft6),
            "draft/2019-09/schema" => Some(Draft::Draft2019),
            "draft/2020-12/schema" => Some(Draft::Draft2020),
            _ => None,
        }
    }

    /// Returns whether keywords next to a `$ref` are ignored.
    pub(crate) fn ref_overrides_siblings(self) -> bool {
        self <= Draft::Draft6
    }
}

/// A schema resource: a part of a document that has a URI of its own.
pub(crate) struct Resource<'a> {
    base_uri: String,
    root: &'a Value,
    pub(crate) draft: Draft,
    /// Indices into the list of all anchors, by name.
    anchors: HashMap<String, usize>,
}

/// The target of a reference.
pub(crate) enum RefTarget<'a> {
    /// `dynamic`: the anchor name of a dynamic reference.
    Schema { value: &'a Value, resource: usize, dynamic: Option<&'a str> },
    /// The meta-schema.
    MetaSchema,
}

pub(crate) struct SchemaIndex<'a> {
    pub(crate) resources: Vec<Resource<'a>>,
    resources_by_uri: HashMap<String, usize>,
    anchors: Vec<Anchor<'a>>,
    /// Resources by their root.
    resource_roots: HashMap<*const Value, usize>,
    /// All visited schemas.
    visited: HashSet<*const Value>,
}

struct Anchor<'a> {
    name: &'a str,
    value: &'a Value,
    is_dynamic: bool,
}

/// The anchor name that `$recursiveAnchor` defines.
const RECURSIVE_ANCHOR: &str = "$recursiveAnchor";

/// An invalid keyword or subschema.
pub(crate) struct InvalidKeyword<'a> {
    pub(crate) value: &'a Value,
    pub(crate) message: String,
}

impl<'a> SchemaIndex<'a> {
    pub(crate) fn new() -> SchemaIndex<'a> {
        SchemaIndex {
            resources: Vec::new(),
            resources_by_uri: HashMap::new(),
            anchors: Vec::new(),
            resource_roots: HashMap::new(),
            visited: HashSet::new(),
        }
    }

    /// Adds a document. Without `$schema` it uses the draft of the first document, and so do its parts.
    pub(crate) fn add(&mut self, schema_uri: &str, root: &'a Value) -> Result<(), InvalidKeyword<'a>> {
        let draft = self.resources.first().map_or(Draft::Draft2020, |first| first.draft);
        let resource = self.add_resource(schema_uri.to_owned(), root, draft);
        self.index_schema(root, resource)
    }

    fn add_resource(&mut self, schema_uri: String, root: &'a Value, draft: Draft) -> usize {
        let own_draft = root.get("$schema").and_then(Value::as_str).and_then(Draft::from_uri);
        let resource = self.resources.len();
        self.resources_by_uri.entry(schema_uri.clone()).or_insert(resource);
        self.resource_roots.insert(root, resource);
        self.resources.push(Resource {
            base_uri: schema_uri,
            root,
            draft: own_draft.unwrap_or(draft),
            anchors: HashMap::new(),
        });
        resource
    }

    /// Visits a schema and all its subschemas.
    pub(crate) fn index_schema(
        &mut self,
        schema: &'a Value,
        resource: usize,
    ) -> Result<(), InvalidKeyword<'a>> {
        let mut pending = vec![(schema, resource)];
        while let Some((schema, resource)) = pending.pop() {
            if !self.visited.insert(std::ptr::from_ref(schema)) {
                continue;
            }
            let members = match schema {
                Value::Object(members) => members,
                Value::Bool(_) => continue,
                other => {
                    return Err(InvalidKeyword { value: schema, message: keywords::not_a_schema(other) });
                }
            };
            for (keyword, value) in members {
                if let Some(message) = keywords::keyword_error(keyword, value) {
                    return Err(InvalidKeyword { value, message });
                }
            }
            let draft = self.resources[resource].draft;
            let resource = match draft.ref_overrides_siblings() && members.contains_key("$ref") {
                true => resource,
                false => self.index_names(schema, resource),
            };
            keywords::for_each_subschema(members, &mut |subschema| pending.push((subschema, resource)));
        }
        Ok(())
    }

    /// Records the id and anchors of a schema.
    fn index_names(&mut self, schema: &'a Value, resource: usize) -> usize {
        let text = |keyword: &str| schema.get(keyword).and_then(Value::as_str);
        let mut resource = resource;
        let draft = self.resources[resource].draft;
        if let Some(id) = text(if draft == Draft::Draft4 { "id" } else { "$id" }) {
            let (schema_uri, fragment) = uri::resolve(&self.resources[resource].base_uri, id);
            if !id.starts_with('#') && schema_uri != self.resources[resource].base_uri {
                resource = match self.resource_roots.get(&std::ptr::from_ref(schema)) {
                    // The `$id` of a document is valid in addition to the URI under which it was added.
                    Some(known) => {
                        self.resources_by_uri.entry(schema_uri.clone()).or_insert(*known);
                        self.resources[*known].base_uri = schema_uri;
                        *known
                    }
                    None => self.add_resource(schema_uri, schema, draft),
                };
            }
            if !fragment.is_empty()
                && let Some((_, name)) = id.split_once('#')
            {
                self.add_anchor(resource, name, schema, false);
            }
        }
        for (keyword, is_dynamic) in [("$anchor", false), ("$dynamicAnchor", true)] {
            if let Some(name) = text(keyword) {
                self.add_anchor(resource, name, schema, is_dynamic);
            }
        }
        if schema.get(RECURSIVE_ANCHOR) == Some(&Value::Bool(true)) {
            self.add_anchor(resource, RECURSIVE_ANCHOR, schema, true);
        }
        resource
    }

    fn add_anchor(&mut self, resource: usize, name: &'a str, value: &'a Value, is_dynamic: bool) {
        // The first definition of a name counts.
        self.resources[resource].anchors.entry(name.to_owned()).or_insert(self.anchors.len());
        self.anchors.push(Anchor { name, value, is_dynamic });
    }

    /// Returns the resource of a schema: its own, if it is the root of one.
    pub(crate) fn resource_of(&self, schema: &Value, outer: usize) -> usize {
        self.resource_roots.get(&std::ptr::from_ref(schema)).copied().unwrap_or(outer)
    }

    pub(crate) fn is_indexed(&self, schema: &Value) -> bool {
        self.visited.contains(&std::ptr::from_ref(schema))
    }

    /// Resolves a reference. Returns `None` if the target is not in any document.
    pub(crate) fn resolve(&self, from: usize, reference: &str) -> Option<RefTarget<'a>> {
        let (schema_uri, fragment) = uri::resolve(&self.resources[from].base_uri, reference);
        let Some(resource) = self.resources_by_uri.get(&schema_uri).copied() else {
            let is_root = fragment.is_empty() || fragment == "meta";
            return (is_root && Draft::from_uri(&schema_uri).is_some()).then_some(RefTarget::MetaSchema);
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

    /// Resolves `$recursiveRef`, which is always `#`.
    pub(crate) fn resolve_recursive(&self, from: usize) -> RefTarget<'a> {
        let is_dynamic = self.resources[from].anchors.contains_key(RECURSIVE_ANCHOR);
        let dynamic = is_dynamic.then_some(RECURSIVE_ANCHOR);
        RefTarget::Schema { value: self.resources[from].root, resource: from, dynamic }
    }

    /// Returns all possible targets of a dynamic reference.
    pub(crate) fn dynamic_targets(&self, name: &str) -> Vec<(usize, &'a Value)> {
        let found = self.resources.iter().enumerate();
        let found = found.filter_map(|(n, resource)| Some((n, &self.anchors[*resource.anchors.get(name)?])));
        found.filter(|(_, anchor)| anchor.is_dynamic).map(|(n, anchor)| (n, anchor.value)).collect()
    }
}

/// Returns the JSON pointer of a value in a document.
pub(crate) fn pointer_to(document: &Value, target: &Value) -> Option<String> {
    let mut pending = vec![(document, String::new())];
    while let Some((value, pointer)) = pending.pop() {
        if std::ptr::eq(value, target) {
            return Some(pointer);
        }
        match value {
            Value::Object(members) => pending.extend(members.iter().map(|(name, value)| {
                (value, format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1")))
            })),
            Value::Array(items) => {
                pending.extend(items.iter().enumerate().map(|(n, value)| (value, format!("{pointer}/{n}"))));
            }
            _ => {}
        }
    }
    None
}
