//! Reads one operation: its parameters and body become arguments and fields of a request.

mod body;
mod parameter;

use std::collections::HashSet;

use serde_json::{Map, Value, json};
use toolgate::model::ToolHints;

use super::document::{OpenApiDocument, OpenApiVersion};
use super::schema::{SchemaDirection, inline_schema, lenient_output_schema};
use super::security::{self, SecurityScheme};
use super::{Operation, OperationKind, naming};
use crate::source::http::{Field, HttpSpec, PathStyle, Serialization};
use body::media_type_rank;
use parameter::Parameter;

/// Maximum length of a description of an operation or argument.
const MAX_DESCRIPTION_CHARS: usize = 4000;
/// Headers that are not arguments, by the specification or because they belong to the connection.
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
            return Err("its path is invalid: a path begins with `/` and has no `#`".into());
        }
        self.reject_other_server(item, operation)?;
        let parameters = self.collect_parameters(item, operation)?;
        self.read_path(path, &parameters)?;
        for parameter in &parameters {
            self.read_parameter(parameter)?;
        }
        match self.document.version() {
            // Some documents give every request an optional body.
            _ if matches!(method, "GET" | "HEAD") => {
                if operation.pointer("/requestBody/required") == Some(&Value::Bool(true)) {
                    return Err("it is a GET with a required body".into());
                }
            }
            OpenApiVersion::V2 => self.read_swagger_body(operation, &parameters)?,
            _ => self.read_body(operation)?,
        }
        let output_schema = self.output_schema(operation);
        self.spec.output_schema.clone_from(&output_schema);
        let text = |name: &str| operation.get(name).and_then(Value::as_str).and_then(sanitize_description);
        let (summary, description) = (text("summary"), text("description"));
        let combined = match (&summary, description) {
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
            description: combined.or_else(|| Some(naming::display_text(route))),
            input_schema,
            output_schema,
            hints: method_hints(method),
            spec: self.spec,
            kind: OperationKind::Tool,
            security: security::required_schemes(self.document, operation),
            route: naming::display_text(route),
        })
    }

    /// Rejects an operation with another server, which this connection does not reach.
    fn reject_other_server(&self, item: &Value, operation: &Value) -> Result<(), String> {
        let server =
            operation.pointer("/servers/0").or_else(|| item.pointer("/servers/0")).and_then(server_url);
        let all = self.document.root().get("servers").and_then(Value::as_array);
        let is_known = |server: &str| {
            all.into_iter()
                .flatten()
                .filter_map(server_url)
                .any(|known| without_scheme(&known) == without_scheme(server))
        };
        match server {
            Some(server) if server.contains("://") && !is_known(&server) => {
                Err(format!("it is on another server, {}", naming::display_text(&server)))
            }
            _ => Ok(()),
        }
    }

    /// Collects the parameters of the path item and of the operation; the latter take precedence.
    fn collect_parameters(
        &self,
        item: &'a Value,
        operation: &'a Value,
    ) -> Result<Vec<Parameter<'a>>, String> {
        let mut found: Vec<Parameter<'a>> = Vec::new();
        for owner in [item, operation] {
            let all = owner.get("parameters").and_then(Value::as_array);
            for value in all.into_iter().flatten() {
                let (file_index, value) = self.document.follow(self.file_index, value)?;
                let text = |name: &str| value.get(name).and_then(Value::as_str);
                let (Some(name), Some(location)) = (text("name"), text("in")) else {
                    return Err("a parameter has no `name` or no `in`".into());
                };
                let parameter = Parameter { file_index, name, location, value };
                match found.iter_mut().find(|known| known.name == name && known.location == location) {
                    Some(known) => *known = parameter,
                    None => found.push(parameter),
                }
            }
        }
        Ok(found)
    }

    /// Converts the path to a template with argument names; undescribed placeholders are strings.
    fn read_path(&mut self, path: &str, parameters: &[Parameter<'a>]) -> Result<(), String> {
        let mut template = String::new();
        let mut rest = path;
        while let Some(start) = rest.find(['{', '}']) {
            let (before, after_brace) = rest.split_at(start);
            template.push_str(before);
            let placeholder =
                after_brace.strip_prefix('{').and_then(|after_brace| after_brace.split_once('}'));
            let Some((parameter_name, after)) = placeholder
                .filter(|(parameter_name, _)| !parameter_name.is_empty() && !parameter_name.contains('{'))
            else {
                return Err("its path has an unbalanced brace".into());
            };
            let known = parameters
                .iter()
                .find(|parameter| parameter.location == "path" && parameter.name == parameter_name);
            let (schema, serialization) = match known {
                Some(parameter) => {
                    (self.parameter_schema(parameter)?, parameter.serialization(self.document.version()))
                }
                None => (json!({ "type": "string" }), Serialization::SIMPLE),
            };
            let argument = self.add_argument(parameter_name, "path", schema, true);
            template.push_str(&format!("{{{argument}}}"));
            if serialization != Serialization::SIMPLE || argument != parameter_name {
                self.spec.path_styles.push(PathStyle {
                    argument,
                    name: parameter_name.to_owned(),
                    serialization,
                });
            }
            rest = after;
        }
        template.push_str(rest);
        self.spec.path = template.replace(' ', "%20");
        Ok(())
    }

    fn read_parameter(&mut self, parameter: &Parameter<'a>) -> Result<(), String> {
        let Parameter { name: parameter_name, location, value, .. } = *parameter;
        let is_credential =
            self.schemes.iter().any(|scheme| scheme.matches_parameter(location, parameter_name));
        let is_excluded =
            location == "header" && EXCLUDED_HEADERS.contains(&parameter_name.to_ascii_lowercase().as_str());
        if !["query", "header", "cookie"].contains(&location) || is_credential || is_excluded {
            return match location {
                "path" | "body" | "formData" | "query" | "header" | "cookie" => Ok(()),
                other => Err(format!(
                    "the parameter `{}` is in `{}`, which is not a known location",
                    naming::display_text(parameter_name),
                    naming::display_text(other)
                )),
            };
        }
        let schema = self.parameter_schema(parameter)?;
        let is_required = value.get("required") == Some(&Value::Bool(true));
        // A required parameter with a single allowed value is a constant.
        let only_value =
            schema.get("enum").and_then(Value::as_array).filter(|all| all.len() == 1 && is_required);
        let argument =
            match only_value.and_then(|all| all[0].as_str()).filter(|only| !only.contains(['{', '}'])) {
                Some(only) => only.to_owned(),
                None => format!("{{{}}}", self.add_argument(parameter_name, location, schema, is_required)),
            };
        let field = Field::new(parameter_name, argument)
            .with_serialization(parameter.serialization(self.document.version()));
        match location {
            "query" => self.spec.query.push(field),
            "header" => self.spec.headers.push(field),
            _ => self.spec.cookies.push(field),
        }
        Ok(())
    }

    fn parameter_schema(&self, parameter: &Parameter<'a>) -> Result<Value, String> {
        let Parameter { file_index, value, .. } = *parameter;
        let own_schema = value.get("schema").or_else(|| parameter.content()?.get("schema"));
        let mut schema = match (own_schema, self.document.version()) {
            (Some(own_schema), _) => {
                inline_schema(self.document, file_index, own_schema, SchemaDirection::Input)?
            }
            (None, OpenApiVersion::V2) => {
                inline_schema(self.document, file_index, value, SchemaDirection::Input)?
            }
            (None, _) => json!({ "type": "string" }),
        };
        let text = value.get("description").and_then(Value::as_str).and_then(sanitize_description);
        if let (Some(members), Some(text)) = (schema.as_object_mut(), text) {
            members.insert("description".into(), text.into());
        }
        Ok(schema)
    }

    /// Adds an argument and returns its name.
    fn add_argument(&mut self, wanted: &str, location: &str, schema: Value, is_required: bool) -> String {
        let name = naming::unique_argument_name(wanted, location, &self.used_names);
        self.used_names.insert(name.clone());
        let has_default = schema.get("default").is_some();
        self.properties.insert(name.clone(), schema);
        if is_required && !(has_default && location != "path") {
            self.required.push(name.clone());
        }
        name
    }

    /// The schema of the first success response, if it can be relied on.
    fn output_schema(&self, operation: &Value) -> Option<Value> {
        let responses = operation.get("responses")?.as_object()?;
        let mut codes: Vec<&String> = responses.keys().filter(|code| code.starts_with('2')).collect();
        codes.sort();
        let response =
            codes.first().and_then(|code| responses.get(*code)).or_else(|| responses.get("default"))?;
        let (file_index, response) = self.document.follow(self.file_index, response).ok()?;
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
        lenient_output_schema(
            &inline_schema(self.document, file_index, schema, SchemaDirection::Output).ok()?,
        )
    }
}

/// Removes invisible characters from a description and truncates it.
fn sanitize_description(text: &str) -> Option<String> {
    let is_visible = |character: &char| {
        let is_invisible = matches!(*character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
        !is_invisible && (!character.is_control() || "\n\t".contains(*character))
    };
    let text = text.trim();
    let mut visible: String = text.chars().filter(is_visible).take(MAX_DESCRIPTION_CHARS).collect();
    if text.chars().count() > MAX_DESCRIPTION_CHARS {
        visible.push('…');
    }
    (!visible.is_empty()).then_some(visible)
}

/// The URL of a server, with the defaults of its variables.
pub(super) fn server_url(server: &Value) -> Option<String> {
    let mut url = server.get("url")?.as_str()?.to_owned();
    for (name, variable) in server.get("variables").and_then(Value::as_object).into_iter().flatten() {
        let default = variable.get("default").and_then(Value::as_str).unwrap_or_default();
        url = url.replace(&format!("{{{name}}}"), default);
    }
    Some(url)
}

/// The URL without its scheme, for comparing servers.
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
    ToolHints::default()
        .with_read_only(read_only)
        .with_destructive(destructive)
        .with_idempotent(idempotent)
        .with_open_world(true)
}
