//! Writes elicitation forms, as a protocol version supports them.
//!
//! The first version with forms supports less: titles of choices are in a separate list, only booleans have a default, and
//! there are no multiple choices.

use super::object::{ObjectWriter, WriteJson};
use crate::ProtocolVersion::{self, V2025_06_18};
use crate::json::{Kind, RawJson, View};

/// The schema of a form.
pub(super) struct FormSchema<'a>(pub(super) &'a RawJson);

impl WriteJson for FormSchema<'_> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        if version > V2025_06_18 {
            return self.0.write_json(out, version);
        }
        let form = self.0.view();
        let required = form.get("required").filter(|required| required.kind() == Kind::Array);
        ObjectWriter::open(out, version)
            .field("type", "object")
            .field("properties", &Properties(form.get("properties")))
            .optional("required", &required)
            .close();
    }
}

/// Whether the first version with forms supports a form.
pub(super) fn fits_first_version(schema: &RawJson) -> bool {
    let properties = schema.view().get("properties");
    let mut properties = properties.iter().flat_map(View::members);
    properties.all(|(_, property)| property_type(property) != PropertyType::Other)
}

#[derive(PartialEq)]
enum PropertyType {
    String,
    Number,
    Boolean,
    /// Multiple choices, or a type that forms do not support.
    Other,
}

fn property_type(property: View<'_>) -> PropertyType {
    let kind = property.get("type").and_then(|kind| kind.as_string());
    match kind.as_deref() {
        Some("string") => PropertyType::String,
        Some("number" | "integer") => PropertyType::Number,
        Some("boolean") => PropertyType::Boolean,
        _ => PropertyType::Other,
    }
}

struct Properties<'a>(Option<View<'a>>);

impl WriteJson for Properties<'_> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let properties = self.0.iter().flat_map(View::members);
        properties
            .fold(ObjectWriter::open(out, version), |object, (name, property)| {
                object.entry(&name, &Property(property))
            })
            .close();
    }
}

struct Property<'a>(View<'a>);

impl WriteJson for Property<'_> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let property = self.0;
        let object = ObjectWriter::open(out, version);
        let object = copy_members(object, property, &["type", "title", "description"]);
        match property_type(property) {
            PropertyType::String => match (property.get("oneOf"), property.get("enum")) {
                (Some(choices), _) => object
                    .field("enum", &Choices { choices, name: "const" })
                    .field("enumNames", &Choices { choices, name: "title" }),
                (None, Some(_)) => copy_members(object, property, &["enum", "enumNames"]),
                (None, None) => {
                    let format = property.get("format").filter(is_known_format);
                    copy_members(object, property, &["minLength", "maxLength"]).optional("format", &format)
                }
            },
            PropertyType::Number => copy_members(object, property, &["minimum", "maximum"]),
            PropertyType::Boolean => copy_members(object, property, &["default"]),
            PropertyType::Other => object,
        }
        .close();
    }
}

fn copy_members<'o>(object: ObjectWriter<'o>, property: View<'_>, names: &[&str]) -> ObjectWriter<'o> {
    names.iter().fold(object, |object, name| object.optional(name, &property.get(name)))
}

fn is_known_format(format: &View<'_>) -> bool {
    ["email", "uri", "date", "date-time"].iter().any(|known| format.eq_str(known))
}

/// One member of each choice. A missing title is replaced by the value.
struct Choices<'a> {
    choices: View<'a>,
    name: &'static str,
}

impl<'a> WriteJson for Choices<'a> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let member = |choice: View<'a>| choice.get(self.name).or_else(|| choice.get("const"));
        let members: Vec<View<'a>> = self.choices.items().filter_map(member).collect();
        members.write_json(out, version);
    }
}
