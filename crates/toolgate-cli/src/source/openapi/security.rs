//! How callers show who they are, as a description says it.

use serde_json::Value;

use super::document::{OpenApiDocument, OpenApiVersion};

/// One way to show who is calling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecurityScheme {
    pub(crate) name: String,
    pub(crate) kind: SecuritySchemeKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SecuritySchemeKind {
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

impl SecurityScheme {
    /// Whether a parameter is this credential: those are never arguments.
    pub(super) fn matches_parameter(&self, place: &str, name: &str) -> bool {
        match (&self.kind, place) {
            (SecuritySchemeKind::Header(own), "header") => own.eq_ignore_ascii_case(name),
            (SecuritySchemeKind::Query(own), "query") | (SecuritySchemeKind::Cookie(own), "cookie") => {
                own == name
            }
            _ => false,
        }
    }
}

pub(super) fn security_schemes(document: &OpenApiDocument) -> Vec<SecurityScheme> {
    let pointer = if document.version() == OpenApiVersion::V2 {
        "/securityDefinitions"
    } else {
        "/components/securitySchemes"
    };
    let all = document.root().pointer(pointer).and_then(Value::as_object);
    let read = |(name, value): (&String, &Value)| {
        let (_, scheme) = document.follow(0, value).ok()?;
        Some(SecurityScheme { name: name.clone(), kind: scheme_kind(scheme) })
    };
    all.into_iter().flatten().filter_map(read).collect()
}

fn scheme_kind(scheme: &Value) -> SecuritySchemeKind {
    let text = |name: &str| scheme.get(name).and_then(Value::as_str).unwrap_or_default();
    let own = || text("name").to_owned();
    match (text("type"), text("in"), text("scheme").to_ascii_lowercase().as_str()) {
        ("apiKey", "header", _) => SecuritySchemeKind::Header(own()),
        ("apiKey", "query", _) => SecuritySchemeKind::Query(own()),
        ("apiKey", "cookie", _) => SecuritySchemeKind::Cookie(own()),
        ("basic", ..) | ("http", _, "basic") => SecuritySchemeKind::Basic,
        ("http", _, "bearer") | ("oauth2" | "openIdConnect", ..) => SecuritySchemeKind::Bearer,
        _ => SecuritySchemeKind::Other,
    }
}

/// The schemes that an operation asks for: the first set of them that is not empty.
pub(super) fn required_schemes(document: &OpenApiDocument, operation: &Value) -> Vec<String> {
    let asked = operation.get("security").or_else(|| document.root().get("security"));
    let sets = asked.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object);
    sets.into_iter().find(|set| !set.is_empty()).map(|set| set.keys().cloned().collect()).unwrap_or_default()
}
