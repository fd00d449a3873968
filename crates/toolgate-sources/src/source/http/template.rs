//! String templates with `{name}` and `{{ name }}` placeholders. Arguments are inserted once and never parsed again.

use serde_json::{Map, Value};

use crate::source::value_text;

/// A parsed string template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StringTemplate(pub(super) Vec<TemplatePart>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TemplatePart {
    Text(String),
    Argument(String),
}

/// Which braces form a placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BraceSyntax {
    /// Single and double braces; any other brace is an error. For parts of a URL or header.
    Strict,
    /// Single and double braces; any other brace is literal. For strings inside JSON.
    Lenient,
    /// Double braces only. For texts in which single braces have another meaning.
    DoubleOnly,
}

impl StringTemplate {
    pub(super) fn parse(text: &str, braces: BraceSyntax) -> Result<StringTemplate, String> {
        let mut parts = Vec::new();
        let mut literal_text = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            literal_text.push_str(before);
            match parse_placeholder(from, braces) {
                Some((name, after)) => {
                    if !literal_text.is_empty() {
                        parts.push(TemplatePart::Text(std::mem::take(&mut literal_text)));
                    }
                    parts.push(TemplatePart::Argument(name.to_owned()));
                    rest = after;
                }
                None if braces == BraceSyntax::Strict => {
                    return Err(format!("`{text}` has an unbalanced brace; a placeholder is `{{name}}`"));
                }
                None if from.starts_with("{{") && !from.contains("}}") => {
                    return Err(format!("`{text}` has `{{{{` without `}}}}`"));
                }
                None => {
                    let (brace, after) = from.split_at(1);
                    literal_text.push_str(brace);
                    rest = after;
                }
            }
        }
        literal_text.push_str(rest);
        if !literal_text.is_empty() {
            parts.push(TemplatePart::Text(literal_text));
        }
        Ok(StringTemplate(parts))
    }

    /// The names of the arguments, in order.
    pub(super) fn argument_names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            TemplatePart::Argument(name) => Some(name.as_str()),
            TemplatePart::Text(_) => None,
        })
    }

    /// The argument name, if the template is a single placeholder: its value then keeps its type.
    pub(super) fn sole_argument(&self) -> Option<&str> {
        match self.0.as_slice() {
            [TemplatePart::Argument(name)] => Some(name),
            _ => None,
        }
    }

    /// The text, if the template has no placeholders.
    pub(super) fn literal(&self) -> Option<&str> {
        match self.0.as_slice() {
            [] => Some(""),
            [TemplatePart::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Inserts the arguments. Returns `None` if one of them is missing.
    pub(super) fn render(&self, arguments: &Map<String, Value>) -> Option<String> {
        let mut rendered = String::new();
        for part in &self.0 {
            match part {
                TemplatePart::Text(text) => rendered.push_str(text),
                TemplatePart::Argument(name) => {
                    rendered.push_str(&value_text(get_argument(arguments, name)?))
                }
            }
        }
        Some(rendered)
    }
}

/// Parses a placeholder at the start of the text. Returns its name and the rest.
fn parse_placeholder(text: &str, braces: BraceSyntax) -> Option<(&str, &str)> {
    if let Some(inside) = text.strip_prefix("{{")
        && let Some((name, after)) = inside.split_once("}}")
        && is_name(name.trim())
    {
        return Some((name.trim(), after));
    }
    let (name, after) =
        text.strip_prefix('{').filter(|_| braces != BraceSyntax::DoubleOnly)?.split_once('}')?;
    is_name(name).then_some((name, after))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

/// Returns an argument that is present and not `null`.
pub(super) fn get_argument<'a>(arguments: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    arguments.get(name).filter(|value| !value.is_null())
}

/// A JSON value with placeholders in its strings. A string that is a single placeholder becomes the argument itself,
/// with its type.
#[derive(Clone, Debug)]
pub(super) enum JsonTemplate {
    Literal(Value),
    Argument(String),
    Text(StringTemplate),
    Array(Vec<JsonTemplate>),
    Object(Vec<(String, JsonTemplate)>),
}

impl JsonTemplate {
    pub(super) fn parse(value: &Value) -> Result<JsonTemplate, String> {
        Ok(match value {
            Value::String(text) => {
                let template = StringTemplate::parse(text, BraceSyntax::Lenient)?;
                match (template.sole_argument(), template.literal()) {
                    (Some(name), _) => JsonTemplate::Argument(name.to_owned()),
                    (None, Some(_)) => JsonTemplate::Literal(value.clone()),
                    (None, None) => JsonTemplate::Text(template),
                }
            }
            Value::Array(items) => {
                JsonTemplate::Array(items.iter().map(JsonTemplate::parse).collect::<Result<_, _>>()?)
            }
            Value::Object(members) => {
                let parsed =
                    members.iter().map(|(name, value)| Ok((name.clone(), JsonTemplate::parse(value)?)));
                JsonTemplate::Object(parsed.collect::<Result<_, String>>()?)
            }
            other => JsonTemplate::Literal(other.clone()),
        })
    }

    pub(super) fn argument_names<'a>(&'a self, into: &mut Vec<&'a str>) {
        match self {
            JsonTemplate::Literal(_) => {}
            JsonTemplate::Argument(name) => into.push(name),
            JsonTemplate::Text(template) => into.extend(template.argument_names()),
            JsonTemplate::Array(items) => items.iter().for_each(|item| item.argument_names(into)),
            JsonTemplate::Object(members) => {
                members.iter().for_each(|(_, member)| member.argument_names(into))
            }
        }
    }

    /// Inserts the arguments. Members whose arguments are missing are left out; `None` means the whole value is. An
    /// argument that is `null` is present.
    pub(super) fn render(&self, arguments: &Map<String, Value>) -> Option<Value> {
        Some(match self {
            JsonTemplate::Literal(value) => value.clone(),
            JsonTemplate::Argument(name) => arguments.get(name)?.clone(),
            JsonTemplate::Text(template) => Value::String(template.render(arguments)?),
            JsonTemplate::Array(items) => items.iter().filter_map(|item| item.render(arguments)).collect(),
            JsonTemplate::Object(members) => {
                let rendered = members
                    .iter()
                    .filter_map(|(name, member)| Some((name.clone(), member.render(arguments)?)));
                Value::Object(rendered.collect())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn render_template(text: &str, braces: BraceSyntax) -> Result<Option<String>, String> {
        let arguments = json!({"a": "x", "n": 5, "none": null, "evil": "{a} {{ n }}", "l": [1, "b"]});
        StringTemplate::parse(text, braces).map(|template| template.render(arguments.as_object().unwrap()))
    }

    #[test]
    fn placeholders_are_replaced_once() {
        use BraceSyntax::{DoubleOnly, Lenient, Strict};
        for (text, braces, wanted) in [
            ("{a}-{{ n }}", Strict, Some("x-5")),
            ("{{evil}}", Strict, Some("{a} {{ n }}")),
            ("{none}", Strict, None),
            ("{gone}", Strict, None),
            ("{l}", Strict, Some("[1,\"b\"]")),
            ("a { b } {c d} }", Lenient, Some("a { b } {c d} }")),
            ("{a}{", Lenient, Some("x{")),
            ("query { a(id: {{ n }}) {a} }", DoubleOnly, Some("query { a(id: 5) {a} }")),
            ("", Strict, Some("")),
        ] {
            assert_eq!(render_template(text, braces), Ok(wanted.map(String::from)), "{text}");
        }
        for (text, braces) in
            [("{a", Strict), ("a}", Strict), ("{a b}", Strict), ("{{ a", Lenient), ("{{ a", DoubleOnly)]
        {
            assert!(render_template(text, braces).is_err(), "{text}");
        }
    }

    #[test]
    fn a_sole_placeholder_keeps_its_type_and_missing_members_are_omitted() {
        let template = json!({
            "n": "{n}", "t": "n={{ n }}", "gone": "{{ gone }}", "partly": "a {gone}", "null": "{{ none }}",
            "fixed": [true, "x", "{{ gone }}"], "deep": {"l": "{l}"},
        });
        let arguments = json!({"n": 5, "none": null, "l": [1]});
        let rendered =
            JsonTemplate::parse(&template).unwrap().render(arguments.as_object().unwrap()).unwrap();
        let wanted = json!({"n": 5, "t": "n=5", "null": null, "fixed": [true, "x"], "deep": {"l": [1]}});
        assert_eq!(rendered, wanted);
    }
}
