//! Bodies of requests: JSON, forms, forms with files, text and bytes, filled with arguments.

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

/// A body, ready to be filled.
pub(super) enum BodyTemplate {
    None,
    Json { template: JsonTemplate, is_optional: bool },
    Form(Vec<FieldTemplate>),
    Multipart(Vec<PartTemplate>),
    Text { text: StringTemplate, mime: String },
    Bytes { argument: String, mime: String },
}

/// One field of a query or a form.
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

    /// Pairs for all fields whose arguments are there. What is among them already is somebody else's.
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
                            into.iter().take(n_before).map(|known| pair_name(known)).collect()
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

/// The name in a pair that is written already.
fn pair_name(pair: &str) -> String {
    percent_decode(pair.split_once('=').map_or(pair, |(name, _)| name))
}

impl BodyTemplate {
    /// A body, or where in its description something is wrong.
    pub(super) fn parse(spec: &BodySpec) -> Result<BodyTemplate, (String, String)> {
        let inside = |name: &str, at: &str| format!("{name}.{at}");
        Ok(match spec {
            BodySpec::None => BodyTemplate::None,
            BodySpec::Json { value, is_optional } => BodyTemplate::Json {
                template: JsonTemplate::parse(value).map_err(|said| ("json".into(), said))?,
                is_optional: *is_optional,
            },
            BodySpec::Form(fields) => {
                let pairs = fields.iter().map(|field| {
                    FieldTemplate::parse(field).map_err(|said| (inside("form", &field.name), said))
                });
                BodyTemplate::Form(pairs.collect::<Result<_, _>>()?)
            }
            BodySpec::Multipart(parts) => {
                let parts = parts.iter().map(|part| {
                    PartTemplate::parse(part).map_err(|(name, said)| (inside("multipart", &name), said))
                });
                BodyTemplate::Multipart(parts.collect::<Result<_, _>>()?)
            }
            BodySpec::Text { text, mime } => BodyTemplate::Text {
                text: StringTemplate::parse(text, BraceSyntax::DoubleOnly)
                    .map_err(|said| ("text".into(), said))?,
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
            BodyTemplate::Json { template: shape, .. } => shape.argument_names(&mut names),
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

    /// The bytes and their type; none if there is no body.
    pub(super) fn encode(
        &self,
        arguments: &Map<String, Value>,
    ) -> Result<Option<(Bytes, String)>, HandlerError> {
        Ok(match self {
            BodyTemplate::None => None,
            BodyTemplate::Json { template: shape, is_optional } => {
                let filled = shape.render(arguments);
                let is_empty = match &filled {
                    Some(Value::Object(members)) => members.is_empty(),
                    Some(_) => false,
                    None => true,
                };
                if *is_optional && is_empty {
                    return Ok(None);
                }
                let Some(value) = filled else {
                    return Err(HandlerError::new("the body of the request is missing"));
                };
                Some((value.to_string().into(), "application/json".into()))
            }
            BodyTemplate::Form(pairs) => {
                let mut filled = Vec::new();
                FieldTemplate::render_all(pairs, arguments, &mut filled)?;
                Some((filled.join("&").into(), "application/x-www-form-urlencoded".into()))
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
        let wrong = |said| (name.clone(), said);
        let content = match spec {
            PartSpec::Text { value, .. } => {
                PartContent::Text(StringTemplate::parse(value, BraceSyntax::Lenient).map_err(wrong)?)
            }
            PartSpec::File { argument, filename, mime, .. } => PartContent::File {
                argument: argument.clone(),
                filename: StringTemplate::parse(filename, BraceSyntax::Strict).map_err(wrong)?,
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
    let mut filled: Vec<(String, Vec<u8>)> = Vec::new();
    for part in parts {
        let head = format!("Content-Disposition: form-data; name=\"{}\"", escape_quoted(&part.name));
        match &part.content {
            PartContent::Text(text) => match text.sole_argument().map(|name| get_argument(arguments, name)) {
                Some(None) => {}
                Some(Some(Value::Array(items))) => {
                    filled.extend(items.iter().map(|item| (head.clone(), value_text(item).into_bytes())));
                }
                Some(Some(value)) => filled.push((head, value_text(value).into_bytes())),
                None => filled.extend(text.render(arguments).map(|text| (head, text.into_bytes()))),
            },
            PartContent::File { argument, filename, mime } => {
                let Some(value) = get_argument(arguments, argument) else { continue };
                let name = filename.render(arguments).unwrap_or_else(|| "file".into());
                let head = format!("{head}; filename=\"{}\"\r\nContent-Type: {mime}", escape_quoted(&name));
                filled.push((head, decode_base64(argument, value)?));
            }
        }
    }
    let boundary = choose_boundary(&filled);
    let mut bytes = Vec::new();
    for (head, content) in filled {
        bytes.extend_from_slice(format!("--{boundary}\r\n{head}\r\n\r\n").as_bytes());
        bytes.extend_from_slice(&content);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    Ok((bytes.into(), format!("multipart/form-data; boundary={boundary}")))
}

/// A line that is in no part: nobody can guess it, and who could is looked for.
fn choose_boundary(parts: &[(String, Vec<u8>)]) -> String {
    let chance = RandomState::new();
    let mut turn = 0_u32;
    loop {
        let line = format!("toolgate-{:016x}{:016x}", chance.hash_one(turn), chance.hash_one((turn, "more")));
        if !parts
            .iter()
            .any(|(_, content)| content.windows(line.len()).any(|window| window == line.as_bytes()))
        {
            return line;
        }
        turn += 1;
    }
}

/// As browsers do it: what would end the text or the line becomes an escape.
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

/// Bytes that travel as base64, in any of its alphabets; also as the link that holds its data.
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
