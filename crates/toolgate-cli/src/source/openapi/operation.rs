//! One operation: its parameters and its body become arguments, and places in a request.

use std::collections::HashSet;

use serde_json::{Map, Value, json};
use toolgate::model::ToolHints;

use super::document::{OpenApiDocument, OpenApiVersion};
use super::schema::{SchemaDirection, inline_schema, lenient_output_schema};
use super::security::{self, SecurityScheme};
use super::{Operation, OperationKind, naming};
use crate::source::http::{BodySpec, Field, HttpSpec, PartSpec, PathStyle, Serialization, Style};

/// Longest description of an operation or an argument.
const MAX_DESCRIPTION_CHARS: usize = 4000;
/// More members than this stay together in one argument.
const MAX_FLATTENED_MEMBERS: usize = 60;
/// Headers that are not arguments: by the specification, or because they belong to the connection.
const EXCLUDED_HEADERS: [&str; 7] =
    ["accept", "content-type", "authorization", "content-length", "transfer-encoding", "connection", "host"];

/// Reads one operation.
pub(super) struct OperationReader<'a> {
    document: &'a OpenApiDocument,
    file_index: usize,
    schemes: &'a [SecurityScheme],
    spec: HttpSpec,
    properties: Map<String, Value>,
    required: Vec<String>,
    used_names: HashSet<String>,
}

impl<'a> OperationReader<'a> {
    pub(super) fn new(
        document: &'a OpenApiDocument,
        file_index: usize,
        schemes: &'a [SecurityScheme],
    ) -> OperationReader<'a> {
        let (spec, properties, required) = (HttpSpec::default(), Map::new(), Vec::new());
        OperationReader {
            document,
            file_index,
            schemes,
            spec,
            properties,
            required,
            used_names: HashSet::new(),
        }
    }

    pub(super) fn read(
        mut self,
        route: &str,
        path: &str,
        item: &'a Value,
        operation: &'a Value,
    ) -> Result<Operation, String> {
        let (method, _) = route.split_once(' ').unwrap_or((route, ""));
        self.spec.method = method.to_owned();
        if !path.starts_with('/') || path.contains(['#', '\\']) || path.chars().any(char::is_control) {
            return Err("its path is no path: one begins with `/` and has no `#`".into());
        }
        self.reject_other_server(item, operation)?;
        let parameters = self.collect_parameters(item, operation)?;
        self.read_path(path, &parameters)?;
        for parameter in &parameters {
            self.read_parameter(parameter)?;
        }
        match self.document.version() {
            // Some descriptions give every request a body, which nobody has to send.
            _ if matches!(method, "GET" | "HEAD") => {
                if operation.pointer("/requestBody/required") == Some(&Value::Bool(true)) {
                    return Err("it is a GET that needs a body".into());
                }
            }
            OpenApiVersion::V2 => self.read_swagger_body(operation, &parameters)?,
            _ => self.read_body(operation)?,
        }
        let output_schema = self.output_schema(operation);
        self.spec.output_schema.clone_from(&output_schema);
        let text = |name: &str| operation.get(name).and_then(Value::as_str).and_then(sanitize_description);
        let (summary, description) = (text("summary"), text("description"));
        let both = match (&summary, description) {
            (Some(summary), Some(description)) if !description.starts_with(summary.as_str()) => {
                Some(format!("{summary}\n\n{description}"))
            }
            (summary, description) => description.or_else(|| summary.clone()),
        };
        let mut input_schema =
            json!({ "type": "object", "properties": self.properties, "additionalProperties": false });
        if !self.required.is_empty() {
            input_schema["required"] = json!(self.required);
        }
        Ok(Operation {
            name: String::new(),
            title: summary.filter(|summary| summary.chars().count() <= 100),
            description: both.or_else(|| Some(naming::display_text(route))),
            input_schema,
            output_schema,
            hints: method_hints(method),
            spec: self.spec,
            kind: OperationKind::Tool,
            security: security::required_schemes(self.document, operation),
            route: naming::display_text(route),
        })
    }

    /// An operation that lives on another server is not reached from this one.
    fn reject_other_server(&self, item: &Value, operation: &Value) -> Result<(), String> {
        let own = operation.pointer("/servers/0").or_else(|| item.pointer("/servers/0")).and_then(server_url);
        let all = self.document.root().get("servers").and_then(Value::as_array);
        let is_known = |own: &str| {
            all.into_iter()
                .flatten()
                .filter_map(server_url)
                .any(|known| without_scheme(&known) == without_scheme(own))
        };
        match own {
            Some(own) if own.contains("://") && !is_known(&own) => {
                Err(format!("it is on a server of its own, {}", naming::display_text(&own)))
            }
            _ => Ok(()),
        }
    }

    /// Parameters of the path and of the operation; the latter win.
    fn collect_parameters(
        &self,
        item: &'a Value,
        operation: &'a Value,
    ) -> Result<Vec<Parameter<'a>>, String> {
        let mut found: Vec<Parameter<'a>> = Vec::new();
        for owner in [item, operation] {
            let all = owner.get("parameters").and_then(Value::as_array);
            for value in all.into_iter().flatten() {
                let (home, value) = self.document.follow(self.file_index, value)?;
                let text = |name: &str| value.get(name).and_then(Value::as_str);
                let (Some(own), Some(place)) = (text("name"), text("in")) else {
                    return Err("a parameter has no `name` or no `in`".into());
                };
                let parameter = Parameter { file_index: home, name: own, location: place, value };
                match found.iter_mut().find(|known| known.name == own && known.location == place) {
                    Some(known) => *known = parameter,
                    None => found.push(parameter),
                }
            }
        }
        Ok(found)
    }

    /// The path with its own names of arguments; those that nobody described are texts.
    fn read_path(&mut self, path: &str, parameters: &[Parameter<'a>]) -> Result<(), String> {
        let mut made = String::new();
        let mut rest = path;
        while let Some(start) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(start);
            made.push_str(before);
            let inside = from.strip_prefix('{').and_then(|from| from.split_once('}'));
            let Some((wire, after)) = inside.filter(|(wire, _)| !wire.is_empty() && !wire.contains('{'))
            else {
                return Err("its path has a brace without its other half".into());
            };
            let known =
                parameters.iter().find(|parameter| parameter.location == "path" && parameter.name == wire);
            let (schema, serial) = match known {
                Some(parameter) => {
                    (self.parameter_schema(parameter)?, parameter.serialization(self.document.version()))
                }
                None => (json!({ "type": "string" }), Serialization::SIMPLE),
            };
            let argument = self.add_argument(wire, "path", schema, true);
            made.push_str(&format!("{{{argument}}}"));
            if serial != Serialization::SIMPLE || argument != wire {
                self.spec.path_styles.push(PathStyle {
                    argument,
                    name: wire.to_owned(),
                    serialization: serial,
                });
            }
            rest = after;
        }
        made.push_str(rest);
        self.spec.path = made.replace(' ', "%20");
        Ok(())
    }

    fn read_parameter(&mut self, parameter: &Parameter<'a>) -> Result<(), String> {
        let Parameter { name: wire, location: place, value, .. } = *parameter;
        let is_credential = self.schemes.iter().any(|scheme| scheme.matches_parameter(place, wire));
        let is_left_out = place == "header" && EXCLUDED_HEADERS.contains(&wire.to_ascii_lowercase().as_str());
        if !["query", "header", "cookie"].contains(&place) || is_credential || is_left_out {
            return match place {
                "path" | "body" | "formData" | "query" | "header" | "cookie" => Ok(()),
                other => Err(format!(
                    "the parameter `{}` is in `{}`, which is no place",
                    naming::display_text(wire),
                    naming::display_text(other)
                )),
            };
        }
        let schema = self.parameter_schema(parameter)?;
        let is_required = value.get("required") == Some(&Value::Bool(true));
        // A choice of one is no choice.
        let single = schema.get("enum").and_then(Value::as_array).filter(|all| all.len() == 1 && is_required);
        let argument = match single.and_then(|all| all[0].as_str()).filter(|only| !only.contains(['{', '}']))
        {
            Some(only) => only.to_owned(),
            None => format!("{{{}}}", self.add_argument(wire, place, schema, is_required)),
        };
        let field =
            Field::new(wire, argument).with_serialization(parameter.serialization(self.document.version()));
        match place {
            "query" => self.spec.query.push(field),
            "header" => self.spec.headers.push(field),
            _ => self.spec.cookies.push(field),
        }
        Ok(())
    }

    fn parameter_schema(&self, parameter: &Parameter<'a>) -> Result<Value, String> {
        let Parameter { file_index: home, value, .. } = *parameter;
        let inside = value.get("schema").or_else(|| parameter.content()?.get("schema"));
        let mut schema = match (inside, self.document.version()) {
            (Some(inside), _) => inline_schema(self.document, home, inside, SchemaDirection::Input)?,
            (None, OpenApiVersion::V2) => inline_schema(self.document, home, value, SchemaDirection::Input)?,
            (None, _) => json!({ "type": "string" }),
        };
        let text = value.get("description").and_then(Value::as_str).and_then(sanitize_description);
        if let (Some(members), Some(text)) = (schema.as_object_mut(), text) {
            members.insert("description".into(), text.into());
        }
        Ok(schema)
    }

    /// A new argument; gives its name.
    fn add_argument(&mut self, wanted: &str, place: &str, schema: Value, is_required: bool) -> String {
        let name = naming::unique_argument_name(wanted, place, &self.used_names);
        self.used_names.insert(name.clone());
        let has_default = schema.get("default").is_some();
        self.properties.insert(name.clone(), schema);
        if is_required && !(has_default && place != "path") {
            self.required.push(name.clone());
        }
        name
    }

    fn read_body(&mut self, operation: &'a Value) -> Result<(), String> {
        let Some(body) = operation.get("requestBody") else { return Ok(()) };
        let (home, body) = self.document.follow(self.file_index, body)?;
        let is_required = body.get("required") == Some(&Value::Bool(true));
        let Some(content) =
            body.get("content").and_then(Value::as_object).filter(|content| !content.is_empty())
        else {
            return Ok(());
        };
        let mut kinds: Vec<(&String, &Value)> = content.iter().collect();
        kinds.sort_by_key(|(mime, _)| media_type_rank(mime));
        let (mime, media) = kinds[0];
        let schema = match media.get("schema") {
            Some(schema) => inline_schema(self.document, home, schema, SchemaDirection::Input)?,
            None => json!({}),
        };
        let text = body.get("description").and_then(Value::as_str).and_then(sanitize_description);
        self.set_body(mime, schema, media.get("encoding"), is_required, text);
        Ok(())
    }

    /// As Swagger 2.0 has it: a parameter that is the body, or several that are a form.
    fn read_swagger_body(&mut self, operation: &Value, parameters: &[Parameter<'a>]) -> Result<(), String> {
        let consumed = operation.get("consumes").or_else(|| self.document.root().get("consumes"));
        let consumed: Vec<&str> =
            consumed.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        if let Some(body) = parameters.iter().find(|parameter| parameter.location == "body") {
            let schema = body.value.get("schema").map_or(Ok(json!({})), |schema| {
                inline_schema(self.document, body.file_index, schema, SchemaDirection::Input)
            })?;
            let mime = consumed
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
        let is_multipart = fields.iter().any(is_file) || consumed.first() == Some(&"multipart/form-data");
        let (mut form, mut parts) = (Vec::new(), Vec::new());
        for field in fields {
            let schema = self.parameter_schema(field)?;
            let is_required = field.value.get("required") == Some(&Value::Bool(true));
            let serial = field.serialization(OpenApiVersion::V2);
            let is_binary = is_binary(&schema);
            let argument = self.add_argument(field.name, "form", schema, is_required);
            if !is_multipart {
                form.push(Field::new(field.name, format!("{{{argument}}}")).with_serialization(serial));
            } else if is_binary {
                parts.push(self.file_part(field.name, &argument, "application/octet-stream"));
            } else {
                parts.push(PartSpec::Text { name: field.name.into(), value: format!("{{{argument}}}") });
            }
        }
        self.spec.body = if is_multipart { BodySpec::Multipart(parts) } else { BodySpec::Form(form) };
        Ok(())
    }

    /// A body of some kind.
    fn set_body(
        &mut self,
        mime: &str,
        schema: Value,
        encoding: Option<&Value>,
        is_required: bool,
        text: Option<String>,
    ) {
        let plain = mime.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let own = |mime: &str| {
            if mime.contains('*') { "application/octet-stream".to_owned() } else { mime.to_owned() }
        };
        match media_type_rank(mime) {
            0 | 1 => self.set_json_body(schema, is_required, text),
            2 | 3 if schema_properties(&schema).is_some() => self.set_form_body(&plain, &schema, encoding),
            2 => {
                let argument = self.add_argument("body", "body", with_description(schema, text), is_required);
                let field = Field::new("body", format!("{{{argument}}}"));
                self.spec.body = BodySpec::Form(vec![field]);
            }
            4 => {
                let schema = json!({ "type": "string" });
                let argument = self.add_argument("body", "body", with_description(schema, text), is_required);
                self.spec.body = BodySpec::Text { text: format!("{{{{ {argument} }}}}"), mime: own(&plain) };
            }
            _ => {
                let schema = json!({ "type": "string", "contentEncoding": "base64" });
                let argument = self.add_argument("body", "body", with_description(schema, text), is_required);
                self.spec.body = BodySpec::Bytes { argument, mime: own(&plain) };
            }
        }
    }

    /// Members of a plain object become arguments of their own; anything else is one argument.
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
        let needed = required_names(&schema);
        let mut value = Map::new();
        for (wire, member) in members {
            let is_needed = is_required && needed.contains(&wire);
            let argument = self.add_argument(&wire, "body", member, is_needed);
            value.insert(wire, format!("{{{argument}}}").into());
        }
        self.spec.body = BodySpec::Json { value: Value::Object(value), is_optional: !is_required };
    }

    fn set_form_body(&mut self, mime: &str, schema: &Value, encoding: Option<&Value>) {
        let needed = required_names(schema);
        let (mut form, mut parts) = (Vec::new(), Vec::new());
        for (wire, member) in schema_properties(schema).cloned().unwrap_or_default() {
            let own = encoding.and_then(|encoding| encoding.get(&wire));
            let text = |name: &str| own.and_then(|own| own.get(name)).and_then(Value::as_str);
            let is_object = member.get("type") == Some(&json!("object"));
            let is_binary = is_binary(&member);
            let default = if is_object { Style::DeepObject } else { Style::Form };
            let style = text("style").map_or(default, |style| parse_style(style, default));
            let explode = own.and_then(|own| own.get("explode")).and_then(Value::as_bool).unwrap_or(true);
            let kind = text("contentType").unwrap_or("application/octet-stream").to_owned();
            let argument = self.add_argument(&wire, "form", member, needed.contains(&wire));
            if mime == "application/x-www-form-urlencoded" {
                form.push(
                    Field::new(wire, format!("{{{argument}}}"))
                        .with_serialization(Serialization { style, explode }),
                );
            } else if is_binary {
                parts.push(self.file_part(&wire, &argument, &kind));
            } else {
                parts.push(PartSpec::Text { name: wire, value: format!("{{{argument}}}") });
            }
        }
        self.spec.body = if mime == "application/x-www-form-urlencoded" {
            BodySpec::Form(form)
        } else {
            BodySpec::Multipart(parts)
        };
    }

    /// A file has a name too, which is an argument of its own.
    fn file_part(&mut self, wire: &str, argument: &str, mime: &str) -> PartSpec {
        let schema = json!({ "type": "string", "description": format!("The file name of `{argument}`") });
        let filename = self.add_argument(&format!("{argument}_filename"), "form", schema, false);
        let mime = mime.split(',').next().unwrap_or_default().trim();
        let mime = if mime.contains('*') { "application/octet-stream" } else { mime };
        PartSpec::File {
            name: wire.into(),
            argument: argument.into(),
            filename: format!("{{{filename}}}"),
            mime: mime.into(),
        }
    }

    /// What the first good answer looks like, where that can be promised.
    fn output_schema(&self, operation: &Value) -> Option<Value> {
        let responses = operation.get("responses")?.as_object()?;
        let mut codes: Vec<&String> = responses.keys().filter(|code| code.starts_with('2')).collect();
        codes.sort();
        let response =
            codes.first().and_then(|code| responses.get(*code)).or_else(|| responses.get("default"))?;
        let (home, response) = self.document.follow(self.file_index, response).ok()?;
        let schema = match self.document.version() {
            OpenApiVersion::V2 => response.get("schema")?,
            _ => response
                .get("content")?
                .as_object()?
                .iter()
                .find(|(mime, _)| media_type_rank(mime) <= 1)?
                .1
                .get("schema")?,
        };
        lenient_output_schema(&inline_schema(self.document, home, schema, SchemaDirection::Output).ok()?)
    }
}

/// A parameter where it is described.
struct Parameter<'a> {
    file_index: usize,
    name: &'a str,
    location: &'a str,
    value: &'a Value,
}

impl<'a> Parameter<'a> {
    /// The one media type of a parameter that is written as one.
    fn content(&self) -> Option<&'a Value> {
        self.value.get("content")?.as_object()?.values().next()
    }

    fn serialization(&self, version: OpenApiVersion) -> Serialization {
        let text = |name: &str| self.value.get(name).and_then(Value::as_str);
        let default = match self.location {
            "path" | "header" => Serialization::SIMPLE,
            _ => Serialization::FORM,
        };
        if version == OpenApiVersion::V2 {
            return match (text("collectionFormat"), self.location) {
                (Some("multi"), _) => Serialization::FORM,
                (Some("ssv"), "query" | "formData") => {
                    Serialization { style: Style::SpaceDelimited, explode: false }
                }
                (Some("pipes"), "query" | "formData") => {
                    Serialization { style: Style::PipeDelimited, explode: false }
                }
                (_, "query" | "formData") => Serialization { style: Style::Form, explode: false },
                _ => default,
            };
        }
        if self.value.get("schema").is_none() && self.content().is_some() {
            return Serialization { style: Style::Json, explode: false };
        }
        let style = text("style").map_or(default.style, |style| parse_style(style, default.style));
        let is_exploded = matches!(style, Style::Form | Style::DeepObject);
        let explode = self.value.get("explode").and_then(Value::as_bool).unwrap_or(is_exploded);
        Serialization { style, explode }
    }
}

fn parse_style(text: &str, default: Style) -> Style {
    match text {
        "form" => Style::Form,
        "spaceDelimited" => Style::SpaceDelimited,
        "pipeDelimited" => Style::PipeDelimited,
        "deepObject" => Style::DeepObject,
        "simple" => Style::Simple,
        "label" => Style::Label,
        "matrix" => Style::Matrix,
        _ => default,
    }
}

/// Which kind of body is preferred.
fn media_type_rank(mime: &str) -> u8 {
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

/// A text for people, as far as it can be shown: without what cannot be seen, and not without end.
fn sanitize_description(text: &str) -> Option<String> {
    let is_seen = |letter: &char| {
        let is_hidden = matches!(*letter, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
        !is_hidden && (!letter.is_control() || "\n\t".contains(*letter))
    };
    let text = text.trim();
    let mut shown: String = text.chars().filter(is_seen).take(MAX_DESCRIPTION_CHARS).collect();
    if text.chars().count() > MAX_DESCRIPTION_CHARS {
        shown.push('…');
    }
    (!shown.is_empty()).then_some(shown)
}

/// The address of a server, with the defaults of its variables.
pub(super) fn server_url(server: &Value) -> Option<String> {
    let mut url = server.get("url")?.as_str()?.to_owned();
    for (name, variable) in server.get("variables").and_then(Value::as_object).into_iter().flatten() {
        let default = variable.get("default").and_then(Value::as_str).unwrap_or_default();
        url = url.replace(&format!("{{{name}}}"), default);
    }
    Some(url)
}

/// What two addresses of one server have in common, however they are reached.
fn without_scheme(url: &str) -> &str {
    url.split_once("//").map_or(url, |(_, rest)| rest).trim_end_matches('/')
}

fn method_hints(method: &str) -> ToolHints {
    let (read_only, destructive, idempotent) = match method {
        "GET" | "HEAD" | "OPTIONS" => (true, false, true),
        "PUT" => (false, true, true),
        "DELETE" => (false, true, true),
        "PATCH" => (false, true, false),
        _ => (false, false, false),
    };
    ToolHints {
        title: None,
        read_only: Some(read_only),
        destructive: Some(destructive),
        idempotent: Some(idempotent),
        open_world: Some(true),
    }
}
