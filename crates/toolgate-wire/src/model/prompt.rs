//! Prompts: message templates that a user selects.

use crate::json::RawJson;
use crate::model::{Content, Icon, Role};

/// A prompt, as listed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    /// The name, unique on the server.
    pub name: String,
    /// The display name.
    pub title: Option<String>,
    /// The purpose of the prompt.
    pub description: Option<String>,
    /// The arguments of the prompt.
    pub arguments: Vec<PromptArgument>,
    /// Icons for display.
    pub icons: Vec<Icon>,
    /// `_meta`, a JSON object.
    pub meta: Option<RawJson>,
}

/// An argument of a prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PromptArgument {
    /// The name, unique in the prompt.
    pub name: String,
    /// The display name.
    pub title: Option<String>,
    /// The meaning of the argument.
    pub description: Option<String>,
    /// Whether the argument is required.
    pub required: bool,
}

/// The result of `prompts/get`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PromptOutput {
    /// The purpose of the prompt.
    pub description: Option<String>,
    /// The messages, in order.
    pub messages: Vec<PromptMessage>,
    /// `_meta`, a JSON object.
    pub meta: Option<RawJson>,
}

/// A message of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptMessage {
    /// The sender.
    pub role: Role,
    /// The content.
    pub content: Content,
}
