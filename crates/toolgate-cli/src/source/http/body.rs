//! Bodies of requests: JSON, forms, forms with files, text and bytes, filled with arguments.

use std::hash::{BuildHasher as _, RandomState};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde_json::{Map, Value};
use toolgate::HandlerError;

use super::encode::{Serial, in_query, unescaped};
use super::template::{Braces, Shape, Template, given, plain};
use super::{BodySpec, Field, PartSpec};

/// A body, ready to be filled.
pub(super) enum Body {
    None,
    Json { shape: Shape, is_optional: bool },
    Form(Vec<Pair>),
    Multipart(Vec<Part>),
    Text { text: Template, mime: String },
    Bytes { argument: String, mime: String },
}

/// One field of a query or a form.
pub(super) struct Pair {
    pub(super) name: String,
    pub(super) value: Template,
    pub(super) serial: Serial,
}

pub(super) struct Part {
    name: String,
    content: Inside,
}

enum Inside {
    Text(Template),
    File { argument: String, filename: Template, mime: String },
}

impl Pair {
    pub(super) fn parse(field: &Field) -> Result<Pair, String> {
        let value = Template::parse(&field.value, Braces::Every)?;
        Ok(Pair { name: field.name.clone(), value, serial: field.serial })
    }

    /// Pairs for all fields whose arguments are there. What is among them already is somebody else's.
    pub(super) fn fill(
        pairs: &[Pair],
        arguments: &Map<String, Value>,
        into: &mut Vec<String>,
    ) -> Result<(), HandlerError> {
        let n_before = into.len();
        for pair in pairs {
            match pair.value.whole() {
                Some(name) => {
                    let Some(value) = given(arguments, name) else { continue };
                    let before: Vec<String> = match value {
                        Value::Object(_) => into.iter().take(n_before).map(|known| name_of(known)).collect(),
                        _ => Vec::new(),
                    };
                    let others = pairs.iter().map(|other| &other.name).chain(&before);
                    let others: Vec<&str> = others.map(String::as_str).collect();
                    in_query(&pair.name, value, pair.serial, &others, into)?;
                }
                None => {
                    if let Some(text) = pair.value.fill(arguments) {
                        in_query(&pair.name, &Value::String(text), pair.serial, &[], into)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The name in a pair that is written already.
fn name_of(pair: &str) -> String {
    unescaped(pair.split_once('=').map_or(pair, |(name, _)| name))
}

impl Body {
    /// A body, or where in its description something is wrong.
    pub(super) fn parse(spec: &BodySpec) -> Result<Body, (String, String)> {
        let inside = |name: &str, at: &str| format!("{name}.{at}");
        Ok(match spec {
            BodySpec::None => Body::None,
            BodySpec::Json { value, is_optional } => Body::Json {
                shape: Shape::parse(value).map_err(|said| ("json".into(), said))?,
                is_optional: *is_optional,
            },
            BodySpec::Form(fields) => {
                let pairs = fields
                    .iter()
                    .map(|field| Pair::parse(field).map_err(|said| (inside("form", &field.name), said)));
                Body::Form(pairs.collect::<Result<_, _>>()?)
            }
            BodySpec::Multipart(parts) => {
                let parts = parts
                    .iter()
                    .map(|part| Part::parse(part).map_err(|(name, said)| (inside("multipart", &name), said)));
                Body::Multipart(parts.collect::<Result<_, _>>()?)
            }
            BodySpec::Text { text, mime } => Body::Text {
                text: Template::parse(text, Braces::Double).map_err(|said| ("text".into(), said))?,
                mime: mime.clone(),
            },
            BodySpec::Bytes { argument, mime } => {
                Body::Bytes { argument: argument.clone(), mime: mime.clone() }
            }
        })
    }

    pub(super) fn arguments(&self) -> Vec<&str> {
        let mut names = Vec::new();
        match self {
            Body::None => {}
            Body::Json { shape, .. } => shape.arguments(&mut names),
            Body::Form(pairs) => names.extend(pairs.iter().flat_map(|pair| pair.value.arguments())),
            Body::Multipart(parts) => {
                for part in parts {
                    match &part.content {
                        Inside::Text(text) => names.extend(text.arguments()),
                        Inside::File { argument, filename, .. } => {
                            names.push(argument);
                            names.extend(filename.arguments());
                        }
                    }
                }
            }
            Body::Text { text, .. } => names.extend(text.arguments()),
            Body::Bytes { argument, .. } => names.push(argument),
        }
        names
    }

    /// The bytes and their type; none if there is no body.
    pub(super) fn fill(&self, arguments: &Map<String, Value>) -> Result<Option<(Bytes, String)>, HandlerError> {
        Ok(match self {
            Body::None => None,
            Body::Json { shape, is_optional } => {
                let filled = shape.fill(arguments);
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
            Body::Form(pairs) => {
                let mut filled = Vec::new();
                Pair::fill(pairs, arguments, &mut filled)?;
                Some((filled.join("&").into(), "application/x-www-form-urlencoded".into()))
            }
            Body::Multipart(parts) => Some(multipart(parts, arguments)?),
            Body::Text { text, mime } => text.fill(arguments).map(|text| (text.into(), mime.clone())),
            Body::Bytes { argument, mime } => match given(arguments, argument) {
                Some(value) => Some((decoded(argument, value)?.into(), mime.clone())),
                None => None,
            },
        })
    }
}

impl Part {
    fn parse(spec: &PartSpec) -> Result<Part, (String, String)> {
        let (PartSpec::Text { name, .. } | PartSpec::File { name, .. }) = spec;
        let wrong = |said| (name.clone(), said);
        let content = match spec {
            PartSpec::Text { value, .. } => {
                Inside::Text(Template::parse(value, Braces::Lenient).map_err(wrong)?)
            }
            PartSpec::File { argument, filename, mime, .. } => Inside::File {
                argument: argument.clone(),
                filename: Template::parse(filename, Braces::Every).map_err(wrong)?,
                mime: mime.clone(),
            },
        };
        Ok(Part { name: name.clone(), content })
    }
}

fn multipart(parts: &[Part], arguments: &Map<String, Value>) -> Result<(Bytes, String), HandlerError> {
    let mut filled: Vec<(String, Vec<u8>)> = Vec::new();
    for part in parts {
        let head = format!("Content-Disposition: form-data; name=\"{}\"", quoted(&part.name));
        match &part.content {
            Inside::Text(text) => match text.whole().map(|name| given(arguments, name)) {
                Some(None) => {}
                Some(Some(Value::Array(items))) => {
                    filled.extend(items.iter().map(|item| (head.clone(), plain(item).into_bytes())));
                }
                Some(Some(value)) => filled.push((head, plain(value).into_bytes())),
                None => filled.extend(text.fill(arguments).map(|text| (head, text.into_bytes()))),
            },
            Inside::File { argument, filename, mime } => {
                let Some(value) = given(arguments, argument) else { continue };
                let name = filename.fill(arguments).unwrap_or_else(|| "file".into());
                let head = format!("{head}; filename=\"{}\"\r\nContent-Type: {mime}", quoted(&name));
                filled.push((head, decoded(argument, value)?));
            }
        }
    }
    let boundary = boundary(&filled);
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
fn boundary(parts: &[(String, Vec<u8>)]) -> String {
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
fn quoted(text: &str) -> String {
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
fn decoded(name: &str, value: &Value) -> Result<Vec<u8>, HandlerError> {
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
