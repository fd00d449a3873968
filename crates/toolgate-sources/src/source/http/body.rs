//! Request bodies: JSON, forms, multipart forms, text and bytes, built from arguments.

use std::hash::{BuildHasher as _, RandomState};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde_json::{Map, Value};
use toolgate::HandlerError;

use super::encode::{Serialization, encode_query_value};
use super::template::{BraceSyntax, JsonTemplate, StringTemplate, get_argument};
use super::{BodySpec, Field, PartSpec};
use crate::source::percent::percent_decode;
use crate::source::value_text;

/// A parsed request body.
pub(super) enum BodyTemplate {
    None,
    Json { template: JsonTemplate, is_optional: bool },
    Form(Vec<FieldTemplate>),
    Multipart(Vec<PartTemplate>),
    Text { text: StringTemplate, mime: String },
    Bytes { argument: String, mime: String },
}

/// One field of a query, a form, the headers or the cookies.
pub(super) struct FieldTemplate {
    pub(super) name: String,
    pub(super) value: StringTemplate,
    pub(super) serialization: Serialization,
}

pub(super) struct PartTemplate {
    name: String,
    content: PartContent,
}

enum PartContent {
    Text(StringTemplate),
    File { argument: String, filename: StringTemplate, mime: String },
}

impl FieldTemplate {
    pub(super) fn parse(field: &Field) -> Result<FieldTemplate, String> {
        let value = StringTemplate::parse(&field.value, BraceSyntax::Strict)?;
        Ok(FieldTemplate { name: field.name.clone(), value, serialization: field.serialization })
    }

    /// Appends the encoded pairs of all fields whose arguments are present. Pairs already in `into` belong to the
    /// connection, and arguments cannot set their names again.
    pub(super) fn render_all(
        pairs: &[FieldTemplate],
        arguments: &Map<String, Value>,
        into: &mut Vec<String>,
    ) -> Result<(), HandlerError> {
        let n_before = into.len();
        for pair in pairs {
            match pair.value.sole_argument() {
                Some(name) => {
                    let Some(value) = get_argument(arguments, name) else { continue };
                    let before: Vec<String> = match value {
                        Value::Object(_) => {
                            into.iter().take(n_before).map(|existing| pair_name(existing)).collect()
                        }
                        _ => Vec::new(),
                    };
                    let others = pairs.iter().map(|other| &other.name).chain(&before);
                    let others: Vec<&str> = others.map(String::as_str).collect();
                    encode_query_value(&pair.name, value, pair.serialization, &others, into)?;
                }
                None => {
                    if let Some(text) = pair.value.render(arguments) {
                        encode_query_value(&pair.name, &Value::String(text), pair.serialization, &[], into)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The decoded name of an encoded pair.
fn pair_name(pair: &str) -> String {
    percent_decode(pair.split_once('=').map_or(pair, |(name, _)| name))
}

impl BodyTemplate {
    /// Parses a body description. An error is the path in the description, and the message.
    pub(super) fn parse(spec: &BodySpec) -> Result<BodyTemplate, (String, String)> {
        let inside = |name: &str, at: &str| format!("{name}.{at}");
        Ok(match spec {
            BodySpec::None => BodyTemplate::None,
            BodySpec::Json { value, is_optional } => BodyTemplate::Json {
                template: JsonTemplate::parse(value).map_err(|message| ("json".into(), message))?,
                is_optional: *is_optional,
            },
            BodySpec::Form(fields) => {
                let pairs = fields.iter().map(|field| {
                    FieldTemplate::parse(field).map_err(|message| (inside("form", &field.name), message))
                });
                BodyTemplate::Form(pairs.collect::<Result<_, _>>()?)
            }
            BodySpec::Multipart(parts) => {
                let parts = parts.iter().map(|part| {
                    PartTemplate::parse(part).map_err(|(name, message)| (inside("multipart", &name), message))
                });
                BodyTemplate::Multipart(parts.collect::<Result<_, _>>()?)
            }
            BodySpec::Text { text, mime } => BodyTemplate::Text {
                text: StringTemplate::parse(text, BraceSyntax::DoubleOnly)
                    .map_err(|message| ("text".into(), message))?,
                mime: mime.clone(),
            },
            BodySpec::Bytes { argument, mime } => {
                BodyTemplate::Bytes { argument: argument.clone(), mime: mime.clone() }
            }
        })
    }

    pub(super) fn argument_names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        match self {
            BodyTemplate::None => {}
            BodyTemplate::Json { template, .. } => template.argument_names(&mut names),
            BodyTemplate::Form(pairs) => {
                names.extend(pairs.iter().flat_map(|pair| pair.value.argument_names()))
            }
            BodyTemplate::Multipart(parts) => {
                for part in parts {
                    match &part.content {
                        PartContent::Text(text) => names.extend(text.argument_names()),
                        PartContent::File { argument, filename, .. } => {
                            names.push(argument);
                            names.extend(filename.argument_names());
                        }
                    }
                }
            }
            BodyTemplate::Text { text, .. } => names.extend(text.argument_names()),
            BodyTemplate::Bytes { argument, .. } => names.push(argument),
        }
        names
    }

    /// Encodes the body. Returns the bytes and their media type, or `None` if the request has no body.
    pub(super) fn encode(
        &self,
        arguments: &Map<String, Value>,
    ) -> Result<Option<(Bytes, String)>, HandlerError> {
        Ok(match self {
            BodyTemplate::None => None,
            BodyTemplate::Json { template, is_optional } => {
                let rendered = template.render(arguments);
                let is_empty = match &rendered {
                    Some(Value::Object(members)) => members.is_empty(),
                    Some(_) => false,
                    None => true,
                };
                if *is_optional && is_empty {
                    return Ok(None);
                }
                let Some(value) = rendered else {
                    return Err(HandlerError::new("the body of the request is missing"));
                };
                Some((value.to_string().into(), "application/json".into()))
            }
            BodyTemplate::Form(pairs) => {
                let mut rendered = Vec::new();
                FieldTemplate::render_all(pairs, arguments, &mut rendered)?;
                Some((rendered.join("&").into(), "application/x-www-form-urlencoded".into()))
            }
            BodyTemplate::Multipart(parts) => Some(encode_multipart(parts, arguments)?),
            BodyTemplate::Text { text, mime } => {
                text.render(arguments).map(|text| (text.into(), mime.clone()))
            }
            BodyTemplate::Bytes { argument, mime } => match get_argument(arguments, argument) {
                Some(value) => Some((decode_base64(argument, value)?.into(), mime.clone())),
                None => None,
            },
        })
    }
}

impl PartTemplate {
    fn parse(spec: &PartSpec) -> Result<PartTemplate, (String, String)> {
        let (PartSpec::Text { name, .. } | PartSpec::File { name, .. }) = spec;
        let with_name = |message| (name.clone(), message);
        let content = match spec {
            PartSpec::Text { value, .. } => {
                PartContent::Text(StringTemplate::parse(value, BraceSyntax::Lenient).map_err(with_name)?)
            }
            PartSpec::File { argument, filename, mime, .. } => PartContent::File {
                argument: argument.clone(),
                filename: StringTemplate::parse(filename, BraceSyntax::Strict).map_err(with_name)?,
                mime: mime.clone(),
            },
        };
        Ok(PartTemplate { name: name.clone(), content })
    }
}

fn encode_multipart(
    parts: &[PartTemplate],
    arguments: &Map<String, Value>,
) -> Result<(Bytes, String), HandlerError> {
    let mut rendered: Vec<(String, Vec<u8>)> = Vec::new();
    for part in parts {
        let head = format!("Content-Disposition: form-data; name=\"{}\"", escape_quoted(&part.name));
        match &part.content {
            PartContent::Text(text) => match text.sole_argument().map(|name| get_argument(arguments, name)) {
                Some(None) => {}
                Some(Some(Value::Array(items))) => {
                    rendered.extend(items.iter().map(|item| (head.clone(), value_text(item).into_bytes())));
                }
                Some(Some(value)) => rendered.push((head, value_text(value).into_bytes())),
                None => rendered.extend(text.render(arguments).map(|text| (head, text.into_bytes()))),
            },
            PartContent::File { argument, filename, mime } => {
                let Some(value) = get_argument(arguments, argument) else { continue };
                let name = filename.render(arguments).unwrap_or_else(|| "file".into());
                let head = format!("{head}; filename=\"{}\"\r\nContent-Type: {mime}", escape_quoted(&name));
                rendered.push((head, decode_base64(argument, value)?));
            }
        }
    }
    let boundary = choose_boundary(&rendered);
    let mut bytes = Vec::new();
    for (head, content) in rendered {
        bytes.extend_from_slice(format!("--{boundary}\r\n{head}\r\n\r\n").as_bytes());
        bytes.extend_from_slice(&content);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    Ok((bytes.into(), format!("multipart/form-data; boundary={boundary}")))
}

/// Chooses a random boundary and checks that no part contains it.
fn choose_boundary(parts: &[(String, Vec<u8>)]) -> String {
    let random = RandomState::new();
    let mut attempt = 0_u32;
    loop {
        let boundary =
            format!("toolgate-{:016x}{:016x}", random.hash_one(attempt), random.hash_one((attempt, "more")));
        if !parts
            .iter()
            .any(|(_, content)| content.windows(boundary.len()).any(|window| window == boundary.as_bytes()))
        {
            return boundary;
        }
        attempt += 1;
    }
}

/// Escapes a quoted string of a part header as browsers do.
fn escape_quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("%22"),
            '\r' => quoted.push_str("%0D"),
            '\n' => quoted.push_str("%0A"),
            control if control.is_control() => quoted.push('_'),
            other => quoted.push(other),
        }
    }
    quoted
}

/// Decodes base64 of any alphabet, or a `data:` URL.
fn decode_base64(name: &str, value: &Value) -> Result<Vec<u8>, HandlerError> {
    let text = value.as_str().unwrap_or_default();
    let data = match text.strip_prefix("data:").and_then(|link| link.split_once(";base64,")) {
        Some((_, data)) => data,
        None => text,
    };
    let data: String = data.split_ascii_whitespace().collect();
    [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD]
        .iter()
        .find_map(|alphabet| alphabet.decode(&data).ok())
        .ok_or_else(|| HandlerError::new(format!("`{name}` must be base64")))
}
