//! One operation: its parameters and its body become arguments, and places in a request.

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

/// Longest description of an operation or an argument.
const MAX_DESCRIPTION_CHARS: usize = 4000;
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
