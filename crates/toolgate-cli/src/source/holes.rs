//! Texts with `{name}` in them: arguments that are put into a place and cannot leave it.
//!
//! One pass: what is put in is never looked at again.

use serde_json::{Map, Value};

/// A text with holes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holes(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Hole(String),
}

impl Holes {
    /// `{name}` is a hole, `{{` and `}}` are braces, and braces around anything else are what they are.
    pub(crate) fn parse(text: &str) -> Holes {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                plain.push_str(brace);
                rest = after;
                continue;
            }
            let name =
                rest.split_once('}').map(|(name, _)| name).filter(|name| brace == "{" && is_name(name));
            match name {
                Some(name) => {
                    if !plain.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut plain)));
                    }
                    parts.push(Part::Hole(name.to_owned()));
                    rest = &rest[name.len() + 1..];
                }
                None => plain.push_str(brace),
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Holes(parts)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Hole(name) => Some(name.as_str()),
            Part::Text(_) => None,
        })
    }

    /// The hole that is all there is.
    pub(crate) fn alone(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Part::Hole(name)] => Some(name),
            _ => None,
        }
    }

    /// The hole that it begins with.
    pub(crate) fn first(&self) -> Option<&str> {
        match self.0.first() {
            Some(Part::Hole(name)) => Some(name),
            _ => None,
        }
    }

    /// With everything put in; none if an argument was not given.
    pub(crate) fn fill(&self, arguments: &Map<String, Value>) -> Option<String> {
        let mut filled = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Hole(name) => filled.push_str(&said(arguments.get(name)?)?),
            }
        }
        Some(filled)
    }
}

/// An argument as text; none for what was not given.
pub(crate) fn said(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn holes_are_filled_once() {
        let arguments = json!({ "a": "{b}", "b": "B", "n": 5, "none": null });
        let arguments = arguments.as_object().unwrap();
        for (text, wanted) in [
            ("{a}", Some("{b}")),
            ("x{b}y{n}", Some("xBy5")),
            ("{{a}} {print $1} {} {1}", Some("{a} {print $1} {} {1}")),
            ("no holes", Some("no holes")),
            ("{gone}", None),
            ("{none}", None),
            ("{open", Some("{open")),
        ] {
            assert_eq!(Holes::parse(text).fill(arguments).as_deref(), wanted, "{text}");
        }
        assert_eq!(Holes::parse("{a}").alone(), Some("a"));
        assert_eq!(Holes::parse("{a}x").alone(), None);
        assert_eq!(Holes::parse("{a}x").first(), Some("a"));
    }
}
