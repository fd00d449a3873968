//! Where everything in a schema is: names, addresses, and what a reference leads to.
//!
//! Only places where a schema may stand are looked at, so that an `$id` in a default means nothing. Nothing is fetched.

use std::collections::HashMap;

use serde_json::Value;

use crate::address;
use crate::shape;

/// Which edition of JSON Schema a part is written in, as far as that changes what words mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Draft {
    Four,
    /// 6 and 7.
    Six,
    Y2019,
    Y2020,
}

impl Draft {
    fn named(address: &str) -> Option<Draft> {
        let name = address.trim_end_matches('#').split_once("json-schema.org/")?.1;
        match name {
            "draft-04/schema" => Some(Draft::Four),
            "draft-06/schema" | "draft-07/schema" => Some(Draft::Six),
            "draft/2019-09/schema" => Some(Draft::Y2019),
            "draft/2020-12/schema" => Some(Draft::Y2020),
            _ => None,
        }
    }

    /// Words beside a `$ref` mean nothing.
    pub(crate) fn has_lone_references(self) -> bool {
        self <= Draft::Six
    }
}

/// A part of a document that has an address of its own.
pub(crate) struct Resource<'a> {
    address: String,
    root: &'a Value,
    pub(crate) draft: Draft,
    /// Places in the list of all anchors, by name.
    anchors: Places,
}

/// What a reference leads to.
pub(crate) enum Target<'a> {
    /// `dynamic`: the name that a dynamic reference looks for.
    Schema { value: &'a Value, resource: usize, dynamic: Option<&'a str> },
    /// What describes schemas.
    MetaSchema,
}

/// Places in a list, by name. One type for all of them needs one code.
type Places = HashMap<String, usize>;

/// Numbers of parts of a schema, by where they are. One type for all of them needs one code.
pub(crate) type Numbers = HashMap<*const Value, usize>;

pub(crate) struct Index<'a> {
    pub(crate) resources: Vec<Resource<'a>>,
    addresses: Places,
    anchors: Vec<Anchor<'a>>,
    /// Where resources begin.
    starts: Numbers,
    /// All that was looked at; the numbers mean nothing.
    known: Numbers,
}

struct Anchor<'a> {
    name: &'a str,
    value: &'a Value,
    is_dynamic: bool,
}

/// The name of the anchor that `$recursiveAnchor` is.
const RECURSIVE: &str = "$recursiveAnchor";

/// Something is wrong with a part of the schema.
pub(crate) struct Wrong<'a> {
    pub(crate) what: &'a Value,
    pub(crate) why: String,
}

impl<'a> Index<'a> {
    pub(crate) fn new() -> Index<'a> {
        Index {
            resources: Vec::new(),
            addresses: Places::new(),
            anchors: Vec::new(),
            starts: Numbers::new(),
            known: Numbers::new(),
        }
    }

    /// Looks at a whole document. It is of the draft of the first one unless it says otherwise, and so are its parts.
    pub(crate) fn add(&mut self, address: &str, root: &'a Value) -> Result<(), Wrong<'a>> {
        let draft = self.resources.first().map_or(Draft::Y2020, |first| first.draft);
        let resource = self.begin(address.to_owned(), root, draft);
        self.look(root, resource)
    }

    fn begin(&mut self, address: String, root: &'a Value, draft: Draft) -> usize {
        let said = root.get("$schema").and_then(Value::as_str).and_then(Draft::named);
        let resource = self.resources.len();
        self.addresses.entry(address.clone()).or_insert(resource);
        self.starts.insert(root, resource);
        self.resources.push(Resource { address, root, draft: said.unwrap_or(draft), anchors: Places::new() });
        resource
    }

    /// Looks at a schema that nobody looked at before, and at all in it.
    pub(crate) fn look(&mut self, schema: &'a Value, resource: usize) -> Result<(), Wrong<'a>> {
        let mut left = vec![(schema, resource)];
        while let Some((schema, resource)) = left.pop() {
            if self.known.insert(schema, resource).is_some() {
                continue;
            }
            let members = match schema {
                Value::Object(members) => members,
                Value::Bool(_) => continue,
                other => return Err(Wrong { what: schema, why: shape::no_schema(other) }),
            };
            for (word, value) in members {
                if let Some(why) = shape::fault(word, value) {
                    return Err(Wrong { what: value, why });
                }
            }
            let draft = self.resources[resource].draft;
            let resource = match draft.has_lone_references() && members.contains_key("$ref") {
                true => resource,
                false => self.note(schema, resource),
            };
            shape::inner(members, &mut |one| left.push((one, resource)));
        }
        Ok(())
    }

    /// Notes what a schema is called.
    fn note(&mut self, schema: &'a Value, resource: usize) -> usize {
        let text = |word: &str| schema.get(word).and_then(Value::as_str);
        let mut resource = resource;
        let draft = self.resources[resource].draft;
        if let Some(id) = text(if draft == Draft::Four { "id" } else { "$id" }) {
            let (address, fragment) = address::resolve(&self.resources[resource].address, id);
            if !id.starts_with('#') && address != self.resources[resource].address {
                resource = match self.starts.get(&std::ptr::from_ref(schema)) {
                    // The address that a document has by itself holds beside the one it is given.
                    Some(known) => {
                        self.addresses.entry(address.clone()).or_insert(*known);
                        self.resources[*known].address = address;
                        *known
                    }
                    None => self.begin(address, schema, draft),
                };
            }
            if !fragment.is_empty()
                && let Some((_, name)) = id.split_once('#')
            {
                self.name(resource, name, schema, false);
            }
        }
        for (word, is_dynamic) in [("$anchor", false), ("$dynamicAnchor", true)] {
            if let Some(name) = text(word) {
                self.name(resource, name, schema, is_dynamic);
            }
        }
        if schema.get(RECURSIVE) == Some(&Value::Bool(true)) {
            self.name(resource, RECURSIVE, schema, true);
        }
        resource
    }

    fn name(&mut self, resource: usize, name: &'a str, value: &'a Value, is_dynamic: bool) {
        // The first of a name counts.
        self.resources[resource].anchors.entry(name.to_owned()).or_insert(self.anchors.len());
        self.anchors.push(Anchor { name, value, is_dynamic });
    }

    /// The resource that a schema is in, if another one begins with it.
    pub(crate) fn resource_of(&self, schema: &Value, outer: usize) -> usize {
        self.starts.get(&std::ptr::from_ref(schema)).copied().unwrap_or(outer)
    }

    pub(crate) fn is_known(&self, schema: &Value) -> bool {
        self.known.contains_key(&std::ptr::from_ref(schema))
    }

    /// What a reference leads to from a resource. None if it leads out of all that is known.
    pub(crate) fn find(&self, from: usize, reference: &str) -> Option<Target<'a>> {
        let (address, fragment) = address::resolve(&self.resources[from].address, reference);
        let Some(resource) = self.addresses.get(&address).copied() else {
            let is_whole = fragment.is_empty() || fragment == "meta";
            return (is_whole && Draft::named(&address).is_some()).then_some(Target::MetaSchema);
        };
        let fragment = address::decoded(&fragment);
        let root = self.resources[resource].root;
        if fragment.is_empty() {
            return Some(Target::Schema { value: root, resource, dynamic: None });
        }
        if !fragment.starts_with('/') {
            let anchor = &self.anchors[*self.resources[resource].anchors.get(&fragment)?];
            let dynamic = anchor.is_dynamic.then_some(anchor.name);
            return Some(Target::Schema { value: anchor.value, resource, dynamic });
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
        Some(Target::Schema { value, resource, dynamic: None })
    }

    /// The same for `$recursiveRef`, which is always `#`.
    pub(crate) fn find_recursive(&self, from: usize) -> Target<'a> {
        let is_dynamic = self.resources[from].anchors.contains_key(RECURSIVE);
        let dynamic = is_dynamic.then_some(RECURSIVE);
        Target::Schema { value: self.resources[from].root, resource: from, dynamic }
    }

    /// All that a dynamic reference may lead to.
    pub(crate) fn dynamic(&self, name: &str) -> Vec<(usize, &'a Value)> {
        let found = self.resources.iter().enumerate();
        let found = found.filter_map(|(n, one)| Some((n, &self.anchors[*one.anchors.get(name)?])));
        found.filter(|(_, anchor)| anchor.is_dynamic).map(|(n, anchor)| (n, anchor.value)).collect()
    }
}

/// Where in a document something stands, as a JSON pointer.
pub(crate) fn place(document: &Value, what: &Value) -> Option<String> {
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
