//! The configuration as written, without secrets.
//!
//! The key tables state which keys are secrets. Variables are not expanded, and credentials are removed from URLs.

use serde_json::{Map, Value};

use super::keys::{Kind, ROOT, Table};
use super::tree::{Node, NodeValue};

const MASK: &str = "***";

/// Converts a whole configuration to JSON, without secrets.
pub(crate) fn redact_config(tree: &Node) -> Value {
    redact_table(tree, &ROOT)
}

fn redact_table(node: &Node, table: &Table) -> Value {
    let members = node.entries().iter().map(|entry| {
        let kind = table.keys.iter().find(|key| key.name == entry.key).map(|key| &key.kind);
        let value = match kind {
            // A short secret can be guessed from its digest.
            _ if entry.key == "sha256" => mask(&entry.node),
            // Attributes and headers may contain credentials for other systems.
            _ if ["attributes", "headers", "cookies"].contains(&entry.key.as_str()) => mask(&entry.node),
            Some(kind) => redact_value(&entry.node, kind),
            None => redact_named(&entry.key, to_json(&entry.node)),
        };
        (entry.key.clone(), value)
    });
    Value::Object(members.collect::<Map<_, _>>())
}

fn redact_value(node: &Node, kind: &Kind) -> Value {
    match (kind, &node.value) {
        (Kind::Secret, _) => mask(node),
        (Kind::List(inner) | Kind::OneOrMany(inner), NodeValue::List(items)) => {
            items.iter().map(|item| redact_value(item, inner)).collect()
        }
        (Kind::OneOrMany(inner), _) => redact_value(node, inner),
        (Kind::Map(inner), NodeValue::Table(entries)) => {
            let members = entries.iter().map(|entry| {
                let value = redact_value(&entry.node, inner);
                // The name may indicate that the value is a secret. The keys of tables have been handled already.
                let value = if value.is_object() { value } else { redact_named(&entry.key, value) };
                (entry.key.clone(), value)
            });
            Value::Object(members.collect())
        }
        (Kind::Table(table), NodeValue::Table(_)) => redact_table(node, table),
        // The first kind that can have this shape; `Secret` comes before other kinds of text.
        (Kind::Either(kinds), value) => {
            let matching = kinds.iter().find(|kind| match (kind, value) {
                (Kind::Table(_) | Kind::Map(_), NodeValue::Table(_)) => true,
                (Kind::List(_) | Kind::OneOrMany(_), NodeValue::List(_)) => true,
                (Kind::Table(_) | Kind::Map(_) | Kind::List(_), _) => false,
                (_, NodeValue::Table(_) | NodeValue::List(_)) => false,
                _ => true,
            });
            matching.map_or_else(|| to_json(node), |kind| redact_value(node, kind))
        }
        (Kind::Any, _) => {
            let mut value = to_json(node);
            toolgate::events::mask_secrets(&mut value);
            value
        }
        _ => to_json(node),
    }
}

/// Masks a value whose name, which the author chose, is that of a secret.
fn redact_named(name: &str, value: Value) -> Value {
    let mut value = Value::Object(Map::from_iter([(name.to_owned(), value)]));
    toolgate::events::mask_secrets(&mut value);
    value.get_mut(name).map(Value::take).unwrap_or_default()
}

/// Masks all values, and keeps the structure.
fn mask(node: &Node) -> Value {
    match &node.value {
        NodeValue::List(items) => items.iter().map(mask).collect(),
        NodeValue::Table(entries) => {
            Value::Object(entries.iter().map(|entry| (entry.key.clone(), mask(&entry.node))).collect())
        }
        _ => MASK.into(),
    }
}

fn to_json(node: &Node) -> Value {
    match &node.value {
        NodeValue::Text(text) => redact_url(text).into(),
        NodeValue::Integer(integer) => (*integer).into(),
        NodeValue::Number(number) => (*number).into(),
        NodeValue::Flag(flag) => (*flag).into(),
        NodeValue::DateTime(time) => time.clone().into(),
        NodeValue::List(items) => items.iter().map(to_json).collect(),
        NodeValue::Table(entries) => {
            Value::Object(entries.iter().map(|entry| (entry.key.clone(), to_json(&entry.node))).collect())
        }
        NodeValue::Invalid => Value::Null,
    }
}

/// Masks the credentials and the query of a URL; queries often contain keys.
pub(crate) fn redact_url(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let is_scheme = !scheme.is_empty()
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    if !is_scheme {
        return text.to_owned();
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    // A database password may contain any character; in an HTTP URL, `@` may be part of the path.
    let end = match rest.rfind('@') {
        Some(at) if !scheme.starts_with("http") => {
            rest[at..].find(['/', '?', '#']).map_or(rest.len(), |n| at + n)
        }
        _ => end,
    };
    let (authority, path) = rest.split_at(end);
    let authority = match authority.rsplit_once('@') {
        Some((_, host)) => format!("{MASK}@{host}"),
        None => authority.to_owned(),
    };
    match path.split_once('?') {
        Some((path, _)) => format!("{scheme}://{authority}{path}?{MASK}"),
        None => format!("{scheme}://{authority}{path}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::diagnostics::{ConfigFiles, Diagnostics};
    use super::super::tree;
    use super::*;

    #[test]
    fn a_redacted_configuration_contains_no_secret() {
        let text = r#"
            [auth.a]
            bearer = ["s3cret-1", { token = "s3cret-2", subject = "ada", profile = "admin" }]
            [auth.b]
            basic = [{ user = "ada", password = "s3cret-3" }]
            api_keys = [{ id = "x", key = "s3cret-4" }]
            [connections.db]
            postgres = "postgres://ada:s3cret-5@host/db"
            [connections.api]
            http = "https://ada:s3cret-6@host/v1?key=s3cret-7"
            headers = { X-Warehouse = "s3cret-8" }
            [servers.shop]
            title = "Shop"
            tools.a = { text = "hello", meta = { api_key = "s3cret-9" } }
            tools.b = { http = { on = "api", path = "/", headers = { X-Auth = "s3cret-10" } } }
        "#;
        let mut files = ConfigFiles::default();
        let file = files.add("x.toml".into(), text.to_owned());
        let mut diagnostics = Diagnostics::default();
        let redacted = redact_config(&tree::parse(&files, file, &mut diagnostics));
        assert!(diagnostics.is_empty());
        assert!(!redacted.to_string().contains("s3cret"), "{redacted:#}");
        assert_eq!(redacted["servers"]["shop"]["title"], "Shop");
        assert_eq!(redacted["connections"]["api"]["http"], "https://***@host/v1?***");
        assert_eq!(redacted["auth"]["b"]["basic"][0], json!({ "user": "ada", "password": "***" }));
    }

    #[test]
    fn credentials_are_removed_from_urls() {
        let rows = [
            ("mysql://a:b@c@host/db", "mysql://***@host/db"),
            ("postgres://u:ab/c?d@host/db?x=1", "postgres://***@host/db?***"),
            ("https://host/x@y", "https://host/x@y"),
            ("file:data.db?mode=ro", "file:data.db?mode=ro"),
            ("what is this://?", "what is this://?"),
        ];
        for (text, wanted) in rows {
            assert_eq!(redact_url(text), wanted);
        }
    }
}
