//! The parsed and validated description of an HTTP tool.

use http::Method;
use serde_json::Value;

use crate::source::Problem;
use crate::source::http::body::{BodyTemplate, FieldTemplate};
use crate::source::http::headers::{parse_header, validate_auth};
use crate::source::http::jq::JqFilter;
use crate::source::http::template::{BraceSyntax, StringTemplate, TemplatePart};
use crate::source::http::{Field, HttpSpec};

/// A parsed description.
pub(super) struct RequestTemplate {
    pub(super) method: Method,
    pub(super) target: RequestTarget,
    pub(super) query: Vec<FieldTemplate>,
    pub(super) headers: Vec<FieldTemplate>,
    pub(super) cookies: Vec<FieldTemplate>,
    pub(super) body: BodyTemplate,
    pub(super) pick: Option<JqFilter>,
}

pub(super) enum RequestTarget {
    /// Path segments below the base URL.
    Path(Vec<StringTemplate>),
    /// An argument that holds the whole URL.
    Url(String),
}

impl RequestTemplate {
    pub(super) fn new(spec: &HttpSpec, arguments: &Value) -> Result<RequestTemplate, Vec<Problem>> {
        let mut validator = RequestValidator::new(arguments);
        let method = match Method::try_from(spec.method.to_ascii_uppercase().as_str()) {
            Ok(method)
                if ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"]
                    .contains(&method.as_str()) =>
            {
                method
            }
            _ => {
                validator.push_problem("method", format!("`{}` is not a supported method", spec.method));
                Method::GET
            }
        };
        let mut query = Vec::new();
        let target = match &spec.url {
            Some(url) => validator.parse_url(url),
            None => validator.parse_path(&spec.path, &mut query),
        };
        query.extend(validator.parse_fields("query", &spec.query));
        let headers = validator.parse_fields("headers", &spec.headers);
        for pair in &headers {
            if let Err(message) = parse_header(&pair.name, pair.value.literal().unwrap_or_default()) {
                validator.push_problem(&format!("headers.{}", pair.name), message);
            }
        }
        let cookies = validator.parse_fields("cookies", &spec.cookies);
        let body = validator.parse_body(spec, &method);
        let pick = spec.pick.as_deref().map(JqFilter::new).transpose().unwrap_or_else(|message| {
            validator.push_problem("pick", message);
            None
        });
        if let Some(Err(message)) = spec.auth.as_ref().map(validate_auth) {
            validator.push_problem("auth", message);
        }
        if spec.concurrency == 0 {
            validator.push_problem("concurrency", "`concurrency` must be at least 1".into());
        }
        if !validator.problems.is_empty() {
            return Err(validator.problems);
        }
        Ok(RequestTemplate { method, target, query, headers, cookies, body, pick })
    }
}

/// Validates a description against the argument schema and collects problems.
struct RequestValidator<'a> {
    argument_names: Vec<&'a str>,
    /// Arguments that are required or have a default.
    always_present: Vec<&'a str>,
    problems: Vec<Problem>,
}

impl<'a> RequestValidator<'a> {
    fn new(schema: &'a Value) -> RequestValidator<'a> {
        let properties = schema.get("properties").and_then(Value::as_object);
        let required = schema.get("required").and_then(Value::as_array);
        let mut always_present: Vec<&str> =
            required.into_iter().flatten().filter_map(Value::as_str).collect();
        always_present.extend(
            properties
                .into_iter()
                .flatten()
                .filter(|(_, property)| property.get("default").is_some())
                .map(|(name, _)| name.as_str()),
        );
        let argument_names = properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        RequestValidator { argument_names, always_present, problems: Vec::new() }
    }

    fn push_problem(&mut self, path: &str, message: String) {
        self.problems.push(Problem { path: path.into(), message });
    }

    fn check_arguments<'n>(&mut self, path: &str, names: impl IntoIterator<Item = &'n str>) {
        for name in names {
            if !self.argument_names.contains(&name) {
                let known_names = if self.argument_names.is_empty() {
                    "there are none".into()
                } else {
                    format!("there are: {}", self.argument_names.join(", "))
                };
                self.push_problem(path, format!("unknown argument `{name}`; {known_names}"));
            }
        }
    }

    fn parse_fields(&mut self, path: &str, fields: &[Field]) -> Vec<FieldTemplate> {
        let mut pairs = Vec::new();
        for field in fields {
            let path = format!("{path}.{}", field.name);
            match FieldTemplate::parse(field) {
                Ok(pair) => {
                    self.check_arguments(&path, pair.value.argument_names());
                    pairs.push(pair);
                }
                Err(message) => self.push_problem(&path, message),
            }
        }
        pairs
    }

    fn parse_url(&mut self, url: &str) -> RequestTarget {
        let template = StringTemplate::parse(url, BraceSyntax::Strict);
        let Some(name) = template.as_ref().ok().and_then(StringTemplate::sole_argument).map(str::to_owned)
        else {
            self.push_problem(
                "url",
                format!(
                    "`{url}` must be a single argument such as `{{url}}`; use a connection for a fixed host"
                ),
            );
            return RequestTarget::Url(String::new());
        };
        self.check_arguments("url", [name.as_str()]);
        RequestTarget::Url(name)
    }

    /// Parses a path. The part after a question mark becomes query fields.
    fn parse_path(&mut self, text: &str, query: &mut Vec<FieldTemplate>) -> RequestTarget {
        let (path, rest) = text.split_once('?').map_or((text, None), |(path, rest)| (path, Some(rest)));
        if !path.starts_with('/') || text.contains('#') {
            self.push_problem("path", format!("`{text}` must start with `/` and have no `#`"));
            return RequestTarget::Path(Vec::new());
        }
        let mut segments = Vec::new();
        for segment in path.split('/').skip(1) {
            match StringTemplate::parse(segment, BraceSyntax::Strict) {
                Ok(template) => {
                    let optional_names: Vec<String> = template
                        .argument_names()
                        .filter(|name| {
                            self.argument_names.contains(name) && !self.always_present.contains(name)
                        })
                        .map(str::to_owned)
                        .collect();
                    for name in optional_names {
                        self.push_problem(
                            "path",
                            format!("`{name}` is part of the path, so it must be required or have a default"),
                        );
                    }
                    self.check_arguments("path", template.argument_names());
                    let is_text = template.0.iter().all(|part| match part {
                        TemplatePart::Text(text) => {
                            text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`|".contains(&byte))
                        }
                        TemplatePart::Argument(_) => true,
                    });
                    if !is_text || matches!(template.literal(), Some("." | "..")) {
                        self.push_problem("path", format!("`{segment}` cannot be part of a path"));
                    }
                    segments.push(template);
                }
                Err(message) => self.push_problem("path", message),
            }
        }
        let pairs = rest.into_iter().flat_map(|rest| rest.split('&')).filter(|pair| !pair.is_empty());
        let fields: Vec<Field> = pairs
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| Field::new(name, value))
            .collect();
        query.extend(self.parse_fields("path", &fields));
        RequestTarget::Path(segments)
    }

    fn parse_body(&mut self, spec: &HttpSpec, method: &Method) -> BodyTemplate {
        match BodyTemplate::parse(&spec.body) {
            Ok(body) => {
                self.check_arguments("body", body.argument_names());
                if !matches!(body, BodyTemplate::None) && (method == Method::GET || method == Method::HEAD) {
                    self.push_problem(
                        "body",
                        format!("a request with the method {method} has no body; use `query`"),
                    );
                }
                body
            }
            Err((path, message)) => {
                self.push_problem(&path, message);
                BodyTemplate::None
            }
        }
    }
}
