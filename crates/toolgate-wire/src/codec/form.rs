//! Forms for a user, as the edition can show them.
//!
//! The first edition with forms has fewer words: choices carry their titles in
//! a list beside them, only checkboxes have a default, and nothing can be
//! chosen twice.

use super::object::{Object, Put};
use crate::Edition::{self, E2025_06_18};
use crate::json::{Kind, Raw, View};

/// The schema of a form.
pub(super) struct FormSchema<'a>(pub(super) &'a Raw);

impl Put for FormSchema<'_> {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        if edition > E2025_06_18 {
            return self.0.put(out, edition);
        }
        let form = self.0.view();
        let required = form.get("required").filter(|required| required.kind() == Kind::Array);
        Object::open(out, edition)
            .field("type", "object")
            .field("properties", &Properties(form.get("properties")))
            .some("required", &required)
            .close();
    }
}

/// Whether the first edition with forms can show all of a form.
pub(super) fn is_plain(schema: &Raw) -> bool {
    let properties = schema.view().get("properties");
    let mut properties = properties.iter().flat_map(View::members);
    properties.all(|(_, property)| shape(property) != Shape::Other)
}

#[derive(PartialEq)]
enum Shape {
    Text,
    Number,
    Bool,
    /// Several of many, or nothing that a form may have.
    Other,
}

fn shape(property: View<'_>) -> Shape {
    let kind = property.get("type").and_then(|kind| kind.as_text());
    match kind.as_deref() {
        Some("string") => Shape::Text,
        Some("number" | "integer") => Shape::Number,
        Some("boolean") => Shape::Bool,
        _ => Shape::Other,
    }
}

struct Properties<'a>(Option<View<'a>>);

impl Put for Properties<'_> {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let properties = self.0.iter().flat_map(View::members);
        properties
            .fold(Object::open(out, edition), |object, (name, property)| {
                object.entry(&name, &Property(property))
            })
            .close();
    }
}

struct Property<'a>(View<'a>);

impl Put for Property<'_> {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let property = self.0;
        let object = Object::open(out, edition);
        let object = copy(object, property, &["type", "title", "description"]);
        match shape(property) {
            Shape::Text => match (property.get("oneOf"), property.get("enum")) {
                (Some(choices), _) => object
                    .field("enum", &Choices { choices, name: "const" })
                    .field("enumNames", &Choices { choices, name: "title" }),
                (None, Some(_)) => copy(object, property, &["enum", "enumNames"]),
                (None, None) => {
                    let format = property.get("format").filter(is_known_format);
                    copy(object, property, &["minLength", "maxLength"]).some("format", &format)
                }
            },
            Shape::Number => copy(object, property, &["minimum", "maximum"]),
            Shape::Bool => copy(object, property, &["default"]),
            Shape::Other => object,
        }
        .close();
    }
}

fn copy<'o>(object: Object<'o>, property: View<'_>, names: &[&str]) -> Object<'o> {
    names.iter().fold(object, |object, name| object.some(name, &property.get(name)))
}

fn is_known_format(format: &View<'_>) -> bool {
    ["email", "uri", "date", "date-time"].iter().any(|known| format.is_text(known))
}

/// One member of each choice; its value stands in for a title that is missing.
struct Choices<'a> {
    choices: View<'a>,
    name: &'static str,
}

impl<'a> Put for Choices<'a> {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let member = |choice: View<'a>| choice.get(self.name).or_else(|| choice.get("const"));
        let members: Vec<View<'a>> = self.choices.items().filter_map(member).collect();
        members.put(out, edition);
    }
}
