//! Prompts: texts with holes that a person chooses.

use crate::json::RawJson;
use crate::model::{Content, Icon, Role};

/// A prompt as a client sees it in a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    /// Unique on its server.
    pub name: String,
    /// A name for people.
    pub title: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// What fills its holes.
    pub arguments: Vec<PromptArgument>,
    /// Pictures for lists.
    pub icons: Vec<Icon>,
    /// `_meta`, a JSON object.
    pub meta: Option<RawJson>,
}

/// One hole of a prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PromptArgument {
    /// Unique in its prompt.
    pub name: String,
    /// A name for people.
    pub title: Option<String>,
    /// What belongs here.
    pub description: Option<String>,
    /// Must be given.
    pub required: bool,
}

/// A prompt with its holes filled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PromptOutput {
    /// What it is for.
    pub description: Option<String>,
    /// What is said, in order.
    pub messages: Vec<PromptMessage>,
    /// `_meta`, a JSON object.
    pub meta: Option<RawJson>,
}

/// One thing said.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptMessage {
    /// By whom.
    pub role: Role,
    /// What.
    pub content: Content,
}
