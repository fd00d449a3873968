//! Prompts: message templates with embedded resources.
//!
//! `{{ resource('uri') }}` inserts a marker. After rendering, each marker becomes a message of its own that contains
//! the resource.

use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;

use serde_json::{Map, Value};
use toolgate::model::{Content, PromptMessage, ResourceContents, Role};
use toolgate::{Context, HandlerError};

use super::Problem;
use super::text::TextTemplate;

/// Maximum number of embedded resources of a prompt.
const MAX_EMBEDDED_RESOURCES: usize = 32;

/// One message of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageTemplate {
    pub role: Role,
    pub text: String,
}

/// Reads resources for prompts.
pub trait ResourceProvider: Send + Sync {
    fn read<'a>(&'a self, cx: &'a Context, uri: &'a str) -> ResourceFuture<'a>;
}

pub type ResourceFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<ResourceContents>, HandlerError>> + Send + 'a>>;

/// A parsed prompt.
#[derive(Debug)]
pub struct PromptTemplate {
    messages: Vec<(Role, TextTemplate)>,
    /// Delimits a marker. Random, so that no argument can forge one.
    marker: String,
}

impl PromptTemplate {
    pub fn new(messages: &[MessageTemplate], known: &[&str]) -> Result<PromptTemplate, Vec<Problem>> {
        let marker = format!("\u{fffc}{:016x}:", RandomState::new().hash_one("mark"));
        let mut problems = Vec::new();
        let mut templates = Vec::new();
        for (index, message) in messages.iter().enumerate() {
            let marker_copy = marker.clone();
            let template = TextTemplate::new(&message.text, known, move |environment| {
                environment.add_function("resource", move |uri: String| {
                    format!("{marker_copy}{}{marker_copy}", hex_encode(&uri))
                });
            });
            match template {
                Ok(template) => templates.push((message.role, template)),
                Err(message) => problems.push(Problem { path: index.to_string(), message }),
            }
        }
        if messages.is_empty() {
            problems.push(Problem { path: String::new(), message: "`messages` must not be empty".into() });
        }
        if problems.is_empty() { Ok(PromptTemplate { messages: templates, marker }) } else { Err(problems) }
    }

    /// Renders the messages and embeds the resources.
    pub async fn render(
        &self,
        cx: &Context,
        arguments: &Map<String, Value>,
        resources: &dyn ResourceProvider,
    ) -> Result<Vec<PromptMessage>, HandlerError> {
        let mut messages = Vec::new();
        let mut n_resources = 0;
        for (role, template) in &self.messages {
            let text = template.render(arguments)?;
            for (index, part) in text.split(&self.marker).enumerate() {
                if index % 2 == 0 {
                    let is_whole_text = index == 0 && part.len() == text.len();
                    if is_whole_text || !part.trim().is_empty() {
                        messages.push(PromptMessage::new(*role, Content::text(part)));
                    }
                    continue;
                }
                n_resources += 1;
                if n_resources > MAX_EMBEDDED_RESOURCES {
                    return Err(HandlerError::new(format!(
                        "a prompt can embed at most {MAX_EMBEDDED_RESOURCES} resources"
                    )));
                }
                let uri = hex_decode(part)
                    .ok_or_else(|| HandlerError::new("`resource(…)` must not be changed by filters"))?;
                for contents in resources.read(cx, &uri).await? {
                    messages.push(PromptMessage::new(*role, Content::embedded(contents)));
                }
            }
        }
        Ok(messages)
    }
}

fn hex_encode(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn hex_decode(text: &str) -> Option<String> {
    let pairs = text.as_bytes().chunks(2);
    let bytes: Option<Vec<u8>> =
        pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect();
    String::from_utf8(bytes?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_keeps_its_uri() {
        for uri in ["shop://product/é", "", "a b"] {
            assert_eq!(hex_decode(&hex_encode(uri)).as_deref(), Some(uri));
        }
        assert_eq!(hex_decode("zz"), None);
    }
}
