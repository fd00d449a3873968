//! Elicitation forms: flat lists of values and choices, which every client can display.

use serde_json::{Map, Value, json};
use toolgate_wire::RawJson;
use toolgate_wire::model;

/// A form for elicitation; see [`Context::elicit`](crate::Context::elicit). Do not ask for secrets in a form: use
/// [`Context::elicit_url`](crate::Context::elicit_url).
///
/// ```
/// # use toolgate::{Field, Form};
/// let form = Form::new("Where should the order go?")
///     .field("street", Field::text())
///     .field("express", Field::flag().default(false))
///     .optional("note", Field::text().describe("For the driver"));
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "elicitation")]
pub struct Form {
    message: String,
    schema: Value,
}

impl Form {
    /// Creates a form without fields: a question to accept or decline.
    pub fn new(message: impl Into<String>) -> Form {
        Form { message: message.into(), schema: json!({ "type": "object", "properties": {} }) }
    }

    /// Creates a form from a JSON Schema of type `object` with flat properties.
    pub fn with_schema(message: impl Into<String>, schema: Value) -> Form {
        Form { message: message.into(), schema }
    }

    /// Adds a required field.
    #[must_use]
    pub fn field(mut self, name: &str, field: Field) -> Form {
        self.insert_property(name, field);
        if let Some(schema) = self.schema.as_object_mut() {
            let required = schema.entry("required").or_insert_with(|| json!([]));
            if let Some(required) = required.as_array_mut() {
                required.push(name.into());
            }
        }
        self
    }

    /// Adds an optional field.
    #[must_use]
    pub fn optional(mut self, name: &str, field: Field) -> Form {
        self.insert_property(name, field);
        self
    }

    /// Returns the message to the user.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the JSON Schema of the fields.
    #[must_use]
    pub fn schema(&self) -> &Value {
        &self.schema
    }

    fn insert_property(&mut self, name: &str, field: Field) {
        if let Some(properties) = self.schema.get_mut("properties").and_then(Value::as_object_mut) {
            properties.insert(name.to_owned(), Value::Object(field.0));
        }
    }

    pub(crate) fn into_model(self) -> model::ElicitForm {
        model::ElicitForm { message: self.message, schema: RawJson::from(self.schema) }
    }
}

/// One field of a [`Form`].
///
/// ```
/// # use toolgate::{Field, Form};
/// let form = Form::new("Order tea?")
///     .field("pots", Field::integer().min(1).max(9).default(1))
///     .optional("kind", Field::choice(["green", "black"]));
/// # let _ = form;
/// ```
#[derive(Clone, Debug)]
pub struct Field(Map<String, Value>);

impl Field {
    fn with_type(kind: &str) -> Field {
        Field(Map::from_iter([("type".to_owned(), kind.into())]))
    }

    /// A string field.
    #[must_use]
    pub fn text() -> Field {
        Field::with_type("string")
    }

    /// A field for an e-mail address.
    #[must_use]
    pub fn email() -> Field {
        Field::with_type("string").with_keyword("format", "email")
    }

    /// A field for a date.
    #[must_use]
    pub fn date() -> Field {
        Field::with_type("string").with_keyword("format", "date")
    }

    /// A number field.
    #[must_use]
    pub fn number() -> Field {
        Field::with_type("number")
    }

    /// An integer field.
    #[must_use]
    pub fn integer() -> Field {
        Field::with_type("integer")
    }

    /// A boolean field.
    #[must_use]
    pub fn flag() -> Field {
        Field::with_type("boolean")
    }

    /// A choice of one of these values.
    #[must_use]
    pub fn choice<'a>(options: impl IntoIterator<Item = &'a str>) -> Field {
        Field::with_type("string").with_keyword("enum", Value::from_iter(options))
    }

    /// A choice of one of these values, each with a title.
    #[must_use]
    pub fn titled_choice<'a>(options: impl IntoIterator<Item = (&'a str, &'a str)>) -> Field {
        Field::with_type("string").with_keyword("oneOf", titled_options(options))
    }

    /// A choice of one of these values with titles, in the older encoding (`enumNames`) that some clients still expect.
    #[must_use]
    pub fn legacy_choice<'a>(options: impl IntoIterator<Item = (&'a str, &'a str)>) -> Field {
        let (values, titles): (Vec<&str>, Vec<&str>) = options.into_iter().unzip();
        Field::with_type("string").with_keyword("enum", values).with_keyword("enumNames", titles)
    }

    /// A choice of any number of these values.
    #[must_use]
    pub fn choices<'a>(options: impl IntoIterator<Item = &'a str>) -> Field {
        Field::with_type("array")
            .with_keyword("items", json!({ "type": "string", "enum": Value::from_iter(options) }))
    }

    /// A choice of any number of these values, each with a title.
    #[must_use]
    pub fn titled_choices<'a>(options: impl IntoIterator<Item = (&'a str, &'a str)>) -> Field {
        Field::with_type("array").with_keyword("items", json!({ "anyOf": titled_options(options) }))
    }

    /// Sets the label.
    #[must_use]
    pub fn title(self, title: &str) -> Field {
        self.with_keyword("title", title)
    }

    /// Sets the help text.
    #[must_use]
    pub fn describe(self, description: &str) -> Field {
        self.with_keyword("description", description)
    }

    /// Sets the initial value.
    #[must_use]
    pub fn default(self, value: impl Into<Value>) -> Field {
        self.with_keyword("default", value)
    }

    /// Sets the minimum: of a number's value, a string's length, or the number of choices.
    #[must_use]
    pub fn min(self, min: impl Into<Value>) -> Field {
        let key = self.bound_keyword("minimum", "minLength", "minItems");
        self.with_keyword(key, min)
    }

    /// Sets the maximum: of a number's value, a string's length, or the number of choices.
    #[must_use]
    pub fn max(self, max: impl Into<Value>) -> Field {
        let key = self.bound_keyword("maximum", "maxLength", "maxItems");
        self.with_keyword(key, max)
    }

    fn bound_keyword(&self, number: &'static str, text: &'static str, choices: &'static str) -> &'static str {
        match self.0.get("type").and_then(Value::as_str) {
            Some("string") => text,
            Some("array") => choices,
            _ => number,
        }
    }

    fn with_keyword(mut self, key: &str, value: impl Into<Value>) -> Field {
        self.0.insert(key.to_owned(), value.into());
        self
    }
}

fn titled_options<'a>(options: impl IntoIterator<Item = (&'a str, &'a str)>) -> Value {
    options.into_iter().map(|(value, title)| json!({ "const": value, "title": title })).collect()
}
