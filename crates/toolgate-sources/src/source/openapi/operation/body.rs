//! The request body of an operation: its members become arguments and fields of a request.

use serde_json::{Map, Value, json};

use super::parameter::{Parameter, parse_style};
use super::{OperationReader, sanitize_description};
use crate::source::http::{BodySpec, Field, PartSpec, Serialization, Style};
use crate::source::openapi::document::OpenApiVersion;
use crate::source::openapi::schema::{SchemaDirection, inline_schema};

/// An object with more members than this stays one argument.
const MAX_FLATTENED_MEMBERS: usize = 60;

impl<'a> OperationReader<'a> {
    pub(super) fn read_body(&mut self, operation: &'a Value) -> Result<(), String> {
        let Some(body) = operation.get("requestBody") else { return Ok(()) };
        let (file_index, body) = self.document.follow(self.file_index, body)?;
        let is_required = body.get("required") == Some(&Value::Bool(true));
        let Some(content) =
            body.get("content").and_then(Value::as_object).filter(|content| !content.is_empty())
        else {
            return Ok(());
        };
        let mut candidates: Vec<(&String, &Value)> = content.iter().collect();
        candidates.sort_by_key(|(mime, _)| media_type_rank(mime));
        let (mime, media) = candidates[0];
        let schema = match media.get("schema") {
            Some(schema) => inline_schema(self.document, file_index, schema, SchemaDirection::Input)?,
            None => json!({}),
        };
        let text = body.get("description").and_then(Value::as_str).and_then(sanitize_description);
        self.set_body(mime, schema, media.get("encoding"), is_required, text);
        Ok(())
    }

    /// Swagger 2.0: a `body` parameter, or several `formData` parameters.
    pub(super) fn read_swagger_body(
        &mut self,
        operation: &Value,
        parameters: &[Parameter<'a>],
    ) -> Result<(), String> {
        let media_types = operation.get("consumes").or_else(|| self.document.root().get("consumes"));
        let media_types: Vec<&str> =
            media_types.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        if let Some(body) = parameters.iter().find(|parameter| parameter.location == "body") {
            let schema = body.value.get("schema").map_or(Ok(json!({})), |schema| {
                inline_schema(self.document, body.file_index, schema, SchemaDirection::Input)
            })?;
            let mime = media_types
                .iter()
                .min_by_key(|mime| media_type_rank(mime))
                .copied()
                .unwrap_or("application/json");
            let is_required = body.value.get("required") == Some(&Value::Bool(true));
            let text = body.value.get("description").and_then(Value::as_str).and_then(sanitize_description);
            self.set_body(mime, schema, None, is_required, text);
            return Ok(());
        }
        let fields: Vec<&Parameter<'a>> =
            parameters.iter().filter(|parameter| parameter.location == "formData").collect();
        if fields.is_empty() {
            return Ok(());
        }
        let is_file = |parameter: &&Parameter<'a>| parameter.value.get("type") == Some(&json!("file"));
        let is_multipart = fields.iter().any(is_file) || media_types.first() == Some(&"multipart/form-data");
        let (mut form, mut parts) = (Vec::new(), Vec::new());
        for field in fields {
            let schema = self.parameter_schema(field)?;
            let is_required = field.value.get("required") == Some(&Value::Bool(true));
            let serialization = field.serialization(OpenApiVersion::V2);
            let is_binary = is_binary(&schema);
            let argument = self.add_argument(field.name, "form", schema, is_required);
            if !is_multipart {
                form.push(
                    Field::new(field.name, format!("{{{argument}}}")).with_serialization(serialization),
                );
            } else if is_binary {
                parts.push(self.file_part(field.name, &argument, "application/octet-stream"));
            } else {
                parts.push(PartSpec::Text { name: field.name.into(), value: format!("{{{argument}}}") });
            }
        }
        self.spec.body = if is_multipart { BodySpec::Multipart(parts) } else { BodySpec::Form(form) };
        Ok(())
    }

    /// Sets the body by its media type.
    fn set_body(
        &mut self,
        mime: &str,
        schema: Value,
        encoding: Option<&Value>,
        is_required: bool,
        text: Option<String>,
    ) {
        let media_type = mime.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let concrete_type = |mime: &str| {
            if mime.contains('*') { "application/octet-stream".to_owned() } else { mime.to_owned() }
        };
        match media_type_rank(mime) {
            0 | 1 => self.set_json_body(schema, is_required, text),
            2 | 3 if schema_properties(&schema).is_some() => {
                self.set_form_body(&media_type, &schema, encoding)
            }
            2 => {
                let argument = self.add_argument("body", "body", with_description(schema, text), is_required);
                let field = Field::new("body", format!("{{{argument}}}"));
                self.spec.body = BodySpec::Form(vec![field]);
            }
            4 => {
                let schema = json!({ "type": "string" });
                let argument = self.add_argument("body", "body", with_description(schema, text), is_required);
                self.spec.body = BodySpec::Text {
                    text: format!("{{{{ {argument} }}}}"),
                    mime: concrete_type(&media_type),
                };
            }
            _ => {
                let schema = json!({ "type": "string", "contentEncoding": "base64" });
                let argument = self.add_argument("body", "body", with_description(schema, text), is_required);
                self.spec.body = BodySpec::Bytes { argument, mime: concrete_type(&media_type) };
            }
        }
    }

    /// The members of a plain object become arguments; any other schema becomes one argument.
    fn set_json_body(&mut self, schema: Value, is_required: bool, text: Option<String>) {
        let is_flat = ["oneOf", "anyOf", "allOf", "not"].iter().all(|word| schema.get(word).is_none())
            && schema.get("type").is_none_or(|kind| kind == "object")
            && schema.get("additionalProperties").is_none_or(|more| !more.is_object());
        let Some(members) =
            schema_properties(&schema).filter(|all| is_flat && all.len() <= MAX_FLATTENED_MEMBERS).cloned()
        else {
            let argument = self.add_argument("body", "body", with_description(schema, text), is_required);
            let value = json!(format!("{{{argument}}}"));
            self.spec.body = BodySpec::Json { value, is_optional: !is_required };
            return;
        };
        let required = required_names(&schema);
        let mut value = Map::new();
        for (name, member) in members {
            let is_member_required = is_required && required.contains(&name);
            let argument = self.add_argument(&name, "body", member, is_member_required);
            value.insert(name, format!("{{{argument}}}").into());
        }
        self.spec.body = BodySpec::Json { value: Value::Object(value), is_optional: !is_required };
    }

    fn set_form_body(&mut self, mime: &str, schema: &Value, encoding: Option<&Value>) {
        let required = required_names(schema);
        let (mut form, mut parts) = (Vec::new(), Vec::new());
        for (name, member) in schema_properties(schema).cloned().unwrap_or_default() {
            let field_encoding = encoding.and_then(|encoding| encoding.get(&name));
            let text = |name: &str| {
                field_encoding.and_then(|field_encoding| field_encoding.get(name)).and_then(Value::as_str)
            };
            let is_object = member.get("type") == Some(&json!("object"));
            let is_binary = is_binary(&member);
            let default = if is_object { Style::DeepObject } else { Style::Form };
            let style = text("style").map_or(default, |style| parse_style(style, default));
            let explode = field_encoding
                .and_then(|field_encoding| field_encoding.get("explode"))
                .and_then(Value::as_bool)
                .unwrap_or(true);
            let part_type = text("contentType").unwrap_or("application/octet-stream").to_owned();
            let argument = self.add_argument(&name, "form", member, required.contains(&name));
            if mime == "application/x-www-form-urlencoded" {
                form.push(
                    Field::new(name, format!("{{{argument}}}"))
                        .with_serialization(Serialization { style, explode }),
                );
            } else if is_binary {
                parts.push(self.file_part(&name, &argument, &part_type));
            } else {
                parts.push(PartSpec::Text { name, value: format!("{{{argument}}}") });
            }
        }
        self.spec.body = if mime == "application/x-www-form-urlencoded" {
            BodySpec::Form(form)
        } else {
            BodySpec::Multipart(parts)
        };
    }

    /// A file part has a file name, which is an argument of its own.
    fn file_part(&mut self, name: &str, argument: &str, mime: &str) -> PartSpec {
        let schema = json!({ "type": "string", "description": format!("The file name of `{argument}`") });
        let filename = self.add_argument(&format!("{argument}_filename"), "form", schema, false);
        let mime = mime.split(',').next().unwrap_or_default().trim();
        let mime = if mime.contains('*') { "application/octet-stream" } else { mime };
        PartSpec::File {
            name: name.into(),
            argument: argument.into(),
            filename: format!("{{{filename}}}"),
            mime: mime.into(),
        }
    }
}

/// The order of preference of media types; lower is better.
pub(super) fn media_type_rank(mime: &str) -> u8 {
    let mime = mime.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match mime.as_str() {
        "application/json" => 0,
        "*/*" | "application/*" => 1,
        "application/x-www-form-urlencoded" => 2,
        "multipart/form-data" => 3,
        _ if mime.ends_with("+json") => 1,
        _ if mime.starts_with("text/") || mime.ends_with("/xml") || mime.ends_with("+xml") => 4,
        _ => 5,
    }
}

fn is_binary(schema: &Value) -> bool {
    schema.get("contentEncoding").is_some() || schema.get("contentMediaType").is_some()
}

fn schema_properties(schema: &Value) -> Option<&Map<String, Value>> {
    schema.get("properties").and_then(Value::as_object).filter(|all| !all.is_empty())
}

fn required_names(schema: &Value) -> Vec<String> {
    let all = schema.get("required").and_then(Value::as_array);
    all.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn with_description(mut schema: Value, text: Option<String>) -> Value {
    if let (Some(members), Some(text)) = (schema.as_object_mut(), text) {
        members.entry("description").or_insert(text.into());
    }
    schema
}
