//! Command line templates with `{name}` placeholders.
//!
//! Arguments are inserted in one pass and never parsed again.

use serde_json::{Map, Value};

use super::value_text;

/// A parsed template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placeholders(Vec<PlaceholderPart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum PlaceholderPart {
    Text(String),
    Placeholder(String),
}

impl Placeholders {
    /// `{name}` is a placeholder, `{{` and `}}` are literal braces, and all other braces are literal too.
    pub fn parse(text: &str) -> Placeholders {
        let mut parts = Vec::new();
        let mut literal_text = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal_text.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                literal_text.push_str(brace);
                rest = after;
                continue;
            }
            let name =
                rest.split_once('}').map(|(name, _)| name).filter(|name| brace == "{" && is_name(name));
            match name {
                Some(name) => {
                    if !literal_text.is_empty() {
                        parts.push(PlaceholderPart::Text(std::mem::take(&mut literal_text)));
                    }
                    parts.push(PlaceholderPart::Placeholder(name.to_owned()));
                    rest = &rest[name.len() + 1..];
                }
                None => literal_text.push_str(brace),
            }
        }
        literal_text.push_str(rest);
        if !literal_text.is_empty() {
            parts.push(PlaceholderPart::Text(literal_text));
        }
        Placeholders(parts)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            PlaceholderPart::Placeholder(name) => Some(name.as_str()),
            PlaceholderPart::Text(_) => None,
        })
    }

    /// The name, if the template is a single placeholder.
    pub fn sole_name(&self) -> Option<&str> {
        match self.0.as_slice() {
            [PlaceholderPart::Placeholder(name)] => Some(name),
            _ => None,
        }
    }

    /// The name of the placeholder at the start of the template.
    pub fn leading_name(&self) -> Option<&str> {
        match self.0.first() {
            Some(PlaceholderPart::Placeholder(name)) => Some(name),
            _ => None,
        }
    }

    /// Inserts the arguments. Returns `None` if one of them is missing or `null`.
    pub fn render(&self, arguments: &Map<String, Value>) -> Option<String> {
        let mut rendered = String::new();
        for part in &self.0 {
            match part {
                PlaceholderPart::Text(text) => rendered.push_str(text),
                PlaceholderPart::Placeholder(name) => {
                    rendered.push_str(&argument_text(arguments.get(name)?)?)
                }
            }
        }
        Some(rendered)
    }
}

/// An argument as text, or `None` for `null`.
pub fn argument_text(value: &Value) -> Option<String> {
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
    fn placeholders_are_replaced_once() {
        let arguments = json!({ "a": "{b}", "b": "B", "n": 5, "none": null });
        let arguments = arguments.as_object().unwrap();
        for (text, wanted) in [
            ("{a}", Some("{b}")),
            ("x{b}y{n}", Some("xBy5")),
            ("{{a}} {print $1} {} {1}", Some("{a} {print $1} {} {1}")),
            ("no placeholders", Some("no placeholders")),
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
