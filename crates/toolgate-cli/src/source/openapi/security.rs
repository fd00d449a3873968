//! How callers show who they are, as a description says it.

use serde_json::Value;

use super::document::{Document, Version};

/// One way to show who is calling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scheme {
    pub(crate) name: String,
    pub(crate) kind: SchemeKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SchemeKind {
    /// A key in a header of this name.
    Header(String),
    /// A key in the query.
    Query(String),
    /// A key in a cookie.
    Cookie(String),
    /// A name and a password, as `name:password`.
    Basic,
    /// A token: also what OAuth and OpenID give.
    Bearer,
    /// Nothing that a text could be.
    Other,
}

impl Scheme {
    /// Whether a parameter is this credential: those are never arguments.
    pub(super) fn is(&self, place: &str, name: &str) -> bool {
        match (&self.kind, place) {
            (SchemeKind::Header(own), "header") => own.eq_ignore_ascii_case(name),
            (SchemeKind::Query(own), "query") | (SchemeKind::Cookie(own), "cookie") => own == name,
            _ => false,
        }
    }
}

pub(super) fn schemes(document: &Document) -> Vec<Scheme> {
    let pointer = if document.version() == Version::Two {
        "/securityDefinitions"
    } else {
        "/components/securitySchemes"
    };
    let all = document.root().pointer(pointer).and_then(Value::as_object);
    let read = |(name, value): (&String, &Value)| {
        let (_, scheme) = document.follow(0, value).ok()?;
        Some(Scheme { name: name.clone(), kind: kind(scheme) })
    };
    all.into_iter().flatten().filter_map(read).collect()
}

fn kind(scheme: &Value) -> SchemeKind {
    let text = |name: &str| scheme.get(name).and_then(Value::as_str).unwrap_or_default();
    let own = || text("name").to_owned();
    match (text("type"), text("in"), text("scheme").to_ascii_lowercase().as_str()) {
        ("apiKey", "header", _) => SchemeKind::Header(own()),
        ("apiKey", "query", _) => SchemeKind::Query(own()),
        ("apiKey", "cookie", _) => SchemeKind::Cookie(own()),
        ("basic", ..) | ("http", _, "basic") => SchemeKind::Basic,
        ("http", _, "bearer") | ("oauth2" | "openIdConnect", ..) => SchemeKind::Bearer,
        _ => SchemeKind::Other,
    }
}

/// The schemes that an operation asks for: the first set of them that is not empty.
pub(super) fn needed(document: &Document, operation: &Value) -> Vec<String> {
    let asked = operation.get("security").or_else(|| document.root().get("security"));
    let sets = asked.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object);
    sets.into_iter().find(|set| !set.is_empty()).map(|set| set.keys().cloned().collect()).unwrap_or_default()
}
