//! Texts with holes: `{name}` and `{{ name }}`, filled with arguments once. What is filled in is never read again.

use serde_json::{Map, Value};

/// A text with holes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template(pub(super) Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Argument(String),
}

/// Which braces make a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Braces {
    /// Both kinds, and a single brace that makes none is an error: places of a request.
    Every,
    /// Both kinds; a brace that makes no hole is a brace: texts inside JSON.
    Lenient,
    /// Only two of them: texts in which braces mean something else.
    Double,
}

impl Template {
    pub(super) fn parse(text: &str, braces: Braces) -> Result<Template, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            plain.push_str(before);
            match hole(from, braces) {
                Some((name, after)) => {
                    if !plain.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    }
                    pieces.push(Piece::Argument(name.to_owned()));
                    rest = after;
                }
                None if braces == Braces::Every => {
                    return Err(format!(
                        "`{text}` has a brace without its other half; a hole looks like `{{name}}`"
                    ));
                }
                None if from.starts_with("{{") && !from.contains("}}") => {
                    return Err(format!("`{text}` has `{{{{` without `}}}}`"));
                }
                None => {
                    let (brace, after) = from.split_at(1);
                    plain.push_str(brace);
                    rest = after;
                }
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Template(pieces))
    }

    /// The arguments that are filled in.
    pub(super) fn arguments(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Argument(name) => Some(name.as_str()),
            Piece::Text(_) => None,
        })
    }

    /// The one argument, if there is nothing else: then its value keeps its type.
    pub(super) fn whole(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Piece::Argument(name)] => Some(name),
            _ => None,
        }
    }

    /// The text without holes, if there are none.
    pub(super) fn literal(&self) -> Option<&str> {
        match self.0.as_slice() {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The text, filled. None: an argument is not there, so that this is left out.
    pub(super) fn fill(&self, arguments: &Map<String, Value>) -> Option<String> {
        let mut filled = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Argument(name) => filled.push_str(&plain(given(arguments, name)?)),
            }
        }
        Some(filled)
    }
}

/// The name in a hole that starts here, and what follows it.
fn hole(text: &str, braces: Braces) -> Option<(&str, &str)> {
    if let Some(inside) = text.strip_prefix("{{")
        && let Some((name, after)) = inside.split_once("}}")
        && is_name(name.trim())
    {
        return Some((name.trim(), after));
    }
    let (name, after) = text.strip_prefix('{').filter(|_| braces != Braces::Double)?.split_once('}')?;
    is_name(name).then_some((name, after))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

/// An argument that is there. `null` is as good as none, except in JSON.
pub(super) fn given<'a>(arguments: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    arguments.get(name).filter(|value| !value.is_null())
}

/// A value as text: texts as they are, the rest as JSON.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A JSON value with holes in its texts. A text that is nothing but a hole becomes the argument itself, with its type.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    Fixed(Value),
    Whole(String),
    Text(Template),
    List(Vec<Shape>),
    Object(Vec<(String, Shape)>),
}

impl Shape {
    pub(super) fn parse(value: &Value) -> Result<Shape, String> {
        Ok(match value {
            Value::String(text) => {
                let template = Template::parse(text, Braces::Lenient)?;
                match (template.whole(), template.literal()) {
                    (Some(name), _) => Shape::Whole(name.to_owned()),
                    (None, Some(_)) => Shape::Fixed(value.clone()),
                    (None, None) => Shape::Text(template),
                }
            }
            Value::Array(items) => Shape::List(items.iter().map(Shape::parse).collect::<Result<_, _>>()?),
            Value::Object(members) => {
                let shaped = members.iter().map(|(name, value)| Ok((name.clone(), Shape::parse(value)?)));
                Shape::Object(shaped.collect::<Result<_, String>>()?)
            }
            other => Shape::Fixed(other.clone()),
        })
    }

    pub(super) fn arguments<'a>(&'a self, into: &mut Vec<&'a str>) {
        match self {
            Shape::Fixed(_) => {}
            Shape::Whole(name) => into.push(name),
            Shape::Text(template) => into.extend(template.arguments()),
            Shape::List(items) => items.iter().for_each(|item| item.arguments(into)),
            Shape::Object(members) => members.iter().for_each(|(_, member)| member.arguments(into)),
        }
    }

    /// The value, filled. None: an argument is not there, so that this is left out. An argument that is `null` is
    /// there.
    pub(super) fn fill(&self, arguments: &Map<String, Value>) -> Option<Value> {
        Some(match self {
            Shape::Fixed(value) => value.clone(),
            Shape::Whole(name) => arguments.get(name)?.clone(),
            Shape::Text(template) => Value::String(template.fill(arguments)?),
            Shape::List(items) => items.iter().filter_map(|item| item.fill(arguments)).collect(),
            Shape::Object(members) => {
                let filled =
                    members.iter().filter_map(|(name, member)| Some((name.clone(), member.fill(arguments)?)));
                Value::Object(filled.collect())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn filled(text: &str, braces: Braces) -> Result<Option<String>, String> {
        let arguments = json!({"a": "x", "n": 5, "none": null, "evil": "{a} {{ n }}", "l": [1, "b"]});
        Template::parse(text, braces).map(|template| template.fill(arguments.as_object().unwrap()))
    }

    #[test]
    fn holes_are_filled_once() {
        use Braces::{Double, Every, Lenient};
        for (text, braces, wanted) in [
            ("{a}-{{ n }}", Every, Some("x-5")),
            ("{{evil}}", Every, Some("{a} {{ n }}")),
            ("{none}", Every, None),
            ("{gone}", Every, None),
            ("{l}", Every, Some("[1,\"b\"]")),
            ("a { b } {c d} }", Lenient, Some("a { b } {c d} }")),
            ("{a}{", Lenient, Some("x{")),
            ("query { a(id: {{ n }}) {a} }", Double, Some("query { a(id: 5) {a} }")),
            ("", Every, Some("")),
        ] {
            assert_eq!(filled(text, braces), Ok(wanted.map(String::from)), "{text}");
        }
        for (text, braces) in
            [("{a", Every), ("a}", Every), ("{a b}", Every), ("{{ a", Lenient), ("{{ a", Double)]
        {
            assert!(filled(text, braces).is_err(), "{text}");
        }
    }

    #[test]
    fn a_hole_alone_keeps_its_type_and_what_is_absent_is_left_out() {
        let shape = json!({
            "n": "{n}", "t": "n={{ n }}", "gone": "{{ gone }}", "partly": "a {gone}", "null": "{{ none }}",
            "fixed": [true, "x", "{{ gone }}"], "deep": {"l": "{l}"},
        });
        let arguments = json!({"n": 5, "none": null, "l": [1]});
        let filled = Shape::parse(&shape).unwrap().fill(arguments.as_object().unwrap()).unwrap();
        let wanted = json!({"n": 5, "t": "n=5", "null": null, "fixed": [true, "x"], "deep": {"l": [1]}});
        assert_eq!(filled, wanted);
    }
}
