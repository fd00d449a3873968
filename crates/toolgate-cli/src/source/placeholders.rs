//! Texts with `{name}` in them: arguments that are put into a place and cannot leave it.
//!
//! One pass: what is put in is never looked at again.

use serde_json::{Map, Value};

use super::value_text;

/// A text with holes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placeholders(Vec<PlaceholderPart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum PlaceholderPart {
    Text(String),
    Placeholder(String),
}

impl Placeholders {
    /// `{name}` is a hole, `{{` and `}}` are braces, and braces around anything else are what they are.
    pub(crate) fn parse(text: &str) -> Placeholders {
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
                        parts.push(PlaceholderPart::Text(std::mem::take(&mut plain)));
                    }
                    parts.push(PlaceholderPart::Placeholder(name.to_owned()));
                    rest = &rest[name.len() + 1..];
                }
                None => plain.push_str(brace),
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(PlaceholderPart::Text(plain));
        }
        Placeholders(parts)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            PlaceholderPart::Placeholder(name) => Some(name.as_str()),
            PlaceholderPart::Text(_) => None,
        })
    }

    /// The hole that is all there is.
    pub(crate) fn sole_name(&self) -> Option<&str> {
        match self.0.as_slice() {
            [PlaceholderPart::Placeholder(name)] => Some(name),
            _ => None,
        }
    }

    /// The hole that it begins with.
    pub(crate) fn leading_name(&self) -> Option<&str> {
        match self.0.first() {
            Some(PlaceholderPart::Placeholder(name)) => Some(name),
            _ => None,
        }
    }

    /// With everything put in; none if an argument was not given.
    pub(crate) fn render(&self, arguments: &Map<String, Value>) -> Option<String> {
        let mut filled = String::new();
        for part in &self.0 {
            match part {
                PlaceholderPart::Text(text) => filled.push_str(text),
                PlaceholderPart::Placeholder(name) => filled.push_str(&argument_text(arguments.get(name)?)?),
            }
        }
        Some(filled)
    }
}

/// An argument as text; none for what was not given.
pub(crate) fn argument_text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        value => Some(value_text(value)),
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
            assert_eq!(Placeholders::parse(text).render(arguments).as_deref(), wanted, "{text}");
        }
        assert_eq!(Placeholders::parse("{a}").sole_name(), Some("a"));
        assert_eq!(Placeholders::parse("{a}x").sole_name(), None);
        assert_eq!(Placeholders::parse("{a}x").leading_name(), Some("a"));
    }
}
