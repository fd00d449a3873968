//! Prompts: messages with holes, in which whole resources may stand.
//!
//! `{{ resource('uri') }}` leaves a mark where it stands. Once the text is made, marks become messages of their own that
//! carry the resource.

use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;

use serde_json::{Map, Value};
use toolgate::model::{Content, PromptMessage, ResourceContents, Role};
use toolgate::{Context, HandlerError};

use super::Problem;
use super::text::TextTemplate;

/// A prompt says at most so many things, and shows at most so many resources.
const MAX_EMBEDDED_RESOURCES: usize = 32;

/// One thing that is said.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MessageTemplate {
    pub(crate) role: Role,
    pub(crate) text: String,
}

/// Where resources are read.
pub(crate) trait ResourceProvider: Send + Sync {
    fn read<'a>(&'a self, cx: &'a Context, uri: &'a str) -> ResourceFuture<'a>;
}

pub(crate) type ResourceFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<ResourceContents>, HandlerError>> + Send + 'a>>;

/// A prompt that can be filled.
#[derive(Debug)]
pub(crate) struct PromptTemplate {
    messages: Vec<(Role, TextTemplate)>,
    /// Begins and ends a mark. Nobody outside knows it, so no argument can make one.
    marker: String,
}

impl PromptTemplate {
    pub(crate) fn new(messages: &[MessageTemplate], known: &[&str]) -> Result<PromptTemplate, Vec<Problem>> {
        let mark = format!("\u{fffc}{:016x}:", RandomState::new().hash_one("mark"));
        let mut problems = Vec::new();
        let mut pages = Vec::new();
        for (n, said) in messages.iter().enumerate() {
            let own = mark.clone();
            let page = TextTemplate::new(&said.text, known, move |environment| {
                environment
                    .add_function("resource", move |uri: String| format!("{own}{}{own}", hex_encode(&uri)));
            });
            match page {
                Ok(page) => pages.push((said.role, page)),
                Err(said) => problems.push(Problem { path: n.to_string(), message: said }),
            }
        }
        if messages.is_empty() {
            problems.push(Problem { path: String::new(), message: "a prompt says something".into() });
        }
        if problems.is_empty() { Ok(PromptTemplate { messages: pages, marker: mark }) } else { Err(problems) }
    }

    /// What is said, with arguments and resources put in.
    pub(crate) async fn render(
        &self,
        cx: &Context,
        arguments: &Map<String, Value>,
        library: &dyn ResourceProvider,
    ) -> Result<Vec<PromptMessage>, HandlerError> {
        let mut messages = Vec::new();
        let mut n_marks = 0;
        for (role, page) in &self.messages {
            let text = page.render(arguments)?;
            for (n, part) in text.split(&self.marker).enumerate() {
                if n % 2 == 0 {
                    let is_all = n == 0 && part.len() == text.len();
                    if is_all || !part.trim().is_empty() {
                        messages.push(PromptMessage { role: *role, content: Content::text(part) });
                    }
                    continue;
                }
                n_marks += 1;
                if n_marks > MAX_EMBEDDED_RESOURCES {
                    return Err(HandlerError::new(format!(
                        "a prompt shows at most {MAX_EMBEDDED_RESOURCES} resources"
                    )));
                }
                let uri = hex_decode(part)
                    .ok_or_else(|| HandlerError::new("`resource(…)` must stand for itself"))?;
                for contents in library.read(cx, &uri).await? {
                    messages.push(PromptMessage { role: *role, content: Content::embedded(contents) });
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
    fn a_mark_keeps_its_uri() {
        for uri in ["shop://product/é", "", "a b"] {
            assert_eq!(hex_decode(&hex_encode(uri)).as_deref(), Some(uri));
        }
        assert_eq!(hex_decode("zz"), None);
    }
}
