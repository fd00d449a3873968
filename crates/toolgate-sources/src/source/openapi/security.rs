//! Security schemes of a document.

use serde_json::Value;

use super::document::{OpenApiDocument, OpenApiVersion};

/// A security scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecurityScheme {
    pub name: String,
    pub kind: SecuritySchemeKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecuritySchemeKind {
    /// An API key in this header.
    Header(String),
    /// An API key in this query parameter.
    Query(String),
    /// An API key in this cookie.
    Cookie(String),
    /// HTTP Basic: `name:password`.
    Basic,
    /// A bearer token, also from OAuth 2 or OpenID Connect.
    Bearer,
    /// A scheme that no header, parameter or cookie can satisfy.
    Other,
}

impl SecurityScheme {
    /// Whether a parameter carries this credential. Such parameters are never arguments.
    pub(super) fn matches_parameter(&self, location: &str, name: &str) -> bool {
        match (&self.kind, location) {
            (SecuritySchemeKind::Header(own_name), "header") => own_name.eq_ignore_ascii_case(name),
            (SecuritySchemeKind::Query(own_name), "query")
            | (SecuritySchemeKind::Cookie(own_name), "cookie") => own_name == name,
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
    let own_name = || text("name").to_owned();
    match (text("type"), text("in"), text("scheme").to_ascii_lowercase().as_str()) {
        ("apiKey", "header", _) => SecuritySchemeKind::Header(own_name()),
        ("apiKey", "query", _) => SecuritySchemeKind::Query(own_name()),
        ("apiKey", "cookie", _) => SecuritySchemeKind::Cookie(own_name()),
        ("basic", ..) | ("http", _, "basic") => SecuritySchemeKind::Basic,
        ("http", _, "bearer") | ("oauth2" | "openIdConnect", ..) => SecuritySchemeKind::Bearer,
        _ => SecuritySchemeKind::Other,
    }
}

/// The schemes that an operation requires: the first set that is not empty.
pub(super) fn required_schemes(document: &OpenApiDocument, operation: &Value) -> Vec<String> {
    let requirements = operation.get("security").or_else(|| document.root().get("security"));
    let sets = requirements.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object);
    sets.into_iter().find(|set| !set.is_empty()).map(|set| set.keys().cloned().collect()).unwrap_or_default()
}
