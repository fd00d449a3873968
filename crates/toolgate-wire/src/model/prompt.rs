//! Prompts: message templates that a user selects.

use crate::json::RawJson;
use crate::model::{Content, Icon, Role};

/// A prompt, as listed.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
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
#[non_exhaustive]
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
#[non_exhaustive]
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
#[non_exhaustive]
pub struct PromptMessage {
    /// The sender.
    pub role: Role,
    /// The content.
    pub content: Content,
}

impl Prompt {
    /// A prompt without arguments.
    pub fn new(name: impl Into<String>) -> Prompt {
        Prompt { name: name.into(), ..Prompt::default() }
    }
}

setters! { impl Prompt {
    /// Sets the display name.
    fn with_title(title: impl Into<String>) = Some(title.into());
    /// Sets the description.
    fn with_description(description: impl Into<String>) = Some(description.into());
    /// Sets the arguments.
    fn with_arguments(arguments: Vec<PromptArgument>) = arguments;
    /// Sets the icons.
    fn with_icons(icons: Vec<Icon>) = icons;
    /// Sets `_meta`, a JSON object.
    fn with_meta(meta: impl Into<RawJson>) = Some(meta.into());
} }

impl PromptArgument {
    /// An optional argument.
    pub fn new(name: impl Into<String>) -> PromptArgument {
        PromptArgument { name: name.into(), ..PromptArgument::default() }
    }

    /// An argument that must be given.
    pub fn required(name: impl Into<String>) -> PromptArgument {
        PromptArgument { required: true, ..PromptArgument::new(name) }
    }
}

setters! { impl PromptArgument {
    /// Sets the display name.
    fn with_title(title: impl Into<String>) = Some(title.into());
    /// Sets the description.
    fn with_description(description: impl Into<String>) = Some(description.into());
} }

impl PromptOutput {
    /// A prompt with these messages.
    #[must_use]
    pub fn new(messages: Vec<PromptMessage>) -> PromptOutput {
        PromptOutput { messages, ..PromptOutput::default() }
    }
}

setters! { impl PromptOutput {
    /// Sets the description.
    fn with_description(description: impl Into<String>) = Some(description.into());
    /// Sets `_meta`, a JSON object.
    fn with_meta(meta: impl Into<RawJson>) = Some(meta.into());
} }

impl PromptMessage {
    /// A message in this role.
    pub fn new(role: Role, content: impl Into<Content>) -> PromptMessage {
        PromptMessage { role, content: content.into() }
    }

    /// A message of the user.
    pub fn user(content: impl Into<Content>) -> PromptMessage {
        PromptMessage::new(Role::User, content)
    }

    /// A message of the model.
    pub fn assistant(content: impl Into<Content>) -> PromptMessage {
        PromptMessage::new(Role::Assistant, content)
    }
}
