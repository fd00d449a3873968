//! Requests of a server to its client during a call, and their results.

use crate::json::RawJson;
use crate::model::{Content, Role, Tool};

/// A request of a server to its client.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ServerRequest {
    /// `elicitation/create`: asks the user.
    Elicitation(ElicitRequest),
    /// `sampling/createMessage`: asks the model.
    Sampling(Box<SamplingRequest>),
    /// `roots/list`: asks for the client's roots.
    Roots,
}

/// The kind of a [`ServerRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ServerRequestKind {
    ElicitForm,
    ElicitUrl,
    Sampling,
    SamplingWithTools,
    Roots,
}

impl ServerRequest {
    /// Returns the kind of the request.
    #[must_use]
    pub fn kind(&self) -> ServerRequestKind {
        match self {
            ServerRequest::Elicitation(ElicitRequest::Form(_)) => ServerRequestKind::ElicitForm,
            ServerRequest::Elicitation(ElicitRequest::Url { .. }) => ServerRequestKind::ElicitUrl,
            ServerRequest::Sampling(sample) if sample.tools.is_empty() => ServerRequestKind::Sampling,
            ServerRequest::Sampling(_) => ServerRequestKind::SamplingWithTools,
            ServerRequest::Roots => ServerRequestKind::Roots,
        }
    }

    /// Returns the method name.
    #[must_use]
    pub fn method(&self) -> &'static str {
        match self {
            ServerRequest::Elicitation(_) => "elicitation/create",
            ServerRequest::Sampling(_) => "sampling/createMessage",
            ServerRequest::Roots => "roots/list",
        }
    }
}

/// A request for input from the user.
#[derive(Clone, Debug, PartialEq)]
pub enum ElicitRequest {
    /// Asks the user to fill in a form.
    Form(ElicitForm),
    /// Asks the user to open a URL. Secrets must be entered there, never in a form.
    Url {
        /// The reason, for the user.
        message: String,
        /// The URL to open.
        url: String,
        /// The id that the completion notification carries, in versions that have one.
        id: String,
    },
}

/// A form of primitive values.
#[derive(Clone, Debug, PartialEq)]
pub struct ElicitForm {
    /// The reason, for the user.
    pub message: String,
    /// A JSON Schema of type `object` whose properties are strings, numbers, booleans and choices.
    pub schema: RawJson,
}

/// A request to sample from the client's model.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SamplingRequest {
    /// The conversation so far.
    pub messages: Vec<SamplingMessage>,
    /// The maximum number of tokens to sample.
    pub max_tokens: u64,
    /// The system prompt.
    pub system_prompt: Option<String>,
    /// Preferences for the model.
    pub model_preferences: Option<ModelPreferences>,
    /// The context to include: `none`, `thisServer` or `allServers`.
    pub include_context: Option<String>,
    /// The sampling temperature.
    pub temperature: Option<f64>,
    /// Sequences that end the output.
    pub stop_sequences: Vec<String>,
    /// Metadata for the provider, a JSON object.
    pub metadata: Option<RawJson>,
    /// Tools that the model may call.
    pub tools: Vec<Tool>,
    /// Whether the model must call a tool.
    pub tool_choice: Option<ToolChoice>,
}

/// A conversation with one text of the user.
impl From<String> for SamplingRequest {
    fn from(text: String) -> SamplingRequest {
        vec![SamplingMessage::user(text)].into()
    }
}

/// A conversation with one text of the user.
impl From<&str> for SamplingRequest {
    fn from(text: &str) -> SamplingRequest {
        text.to_owned().into()
    }
}

impl From<Vec<SamplingMessage>> for SamplingRequest {
    fn from(messages: Vec<SamplingMessage>) -> SamplingRequest {
        SamplingRequest { messages, ..SamplingRequest::default() }
    }
}

/// Preferences for the model to sample from.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ModelPreferences {
    /// Model names or parts of names, best first.
    pub hints: Vec<String>,
    /// The importance of low cost, from 0 to 1.
    pub cost: Option<f64>,
    /// The importance of speed, from 0 to 1.
    pub speed: Option<f64>,
    /// The importance of intelligence, from 0 to 1.
    pub intelligence: Option<f64>,
}

/// Whether a model must call a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum ToolChoice {
    Auto,
    Required,
    None,
}

/// A message of a conversation with a model.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SamplingMessage {
    /// The sender.
    pub role: Role,
    /// The content. Older protocol versions accept one block only.
    pub content: Vec<SamplingBlock>,
    /// `_meta`, a JSON object.
    pub meta: Option<RawJson>,
}

/// A block in a conversation with a model.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SamplingBlock {
    /// Text, image or audio.
    Content(Content),
    /// A tool call of the model.
    ToolUse {
        /// The id, repeated in the result.
        id: String,
        /// The name of the tool.
        name: String,
        /// The arguments, a JSON object.
        input: RawJson,
        /// `_meta`, a JSON object.
        meta: Option<RawJson>,
    },
    /// The result of a tool call.
    ToolResult {
        /// The id of the tool call.
        tool_use_id: String,
        /// Content for the model.
        content: Vec<Content>,
        /// Structured content for a program.
        structured_content: Option<RawJson>,
        /// Whether the tool failed.
        is_error: bool,
        /// `_meta`, a JSON object.
        meta: Option<RawJson>,
    },
}

/// The client's result of a [`ServerRequest`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ClientResult {
    /// The result of an elicitation.
    Elicitation(ElicitResult),
    /// The result of sampling.
    Sampling(Box<SamplingResult>),
    /// The client's roots.
    Roots(Vec<Root>),
}

/// The result of an elicitation.
#[derive(Clone, Debug, PartialEq)]
pub enum ElicitResult {
    /// The user accepted; with the values of the form, an object, if there was a form.
    Accept(Option<RawJson>),
    /// The user declined.
    Decline,
    /// The user dismissed the request.
    Cancel,
}

/// The result of sampling.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SamplingResult {
    /// The sender: the assistant.
    pub role: Role,
    /// The content.
    pub content: Vec<SamplingBlock>,
    /// The name of the model.
    pub model: String,
    /// Why sampling stopped: `endTurn`, `stopSequence`, `maxTokens`, `toolUse` or another value.
    pub stop_reason: Option<String>,
    /// `_meta`, a JSON object.
    pub meta: Option<RawJson>,
}

impl SamplingResult {
    /// Returns the text blocks of the message, joined by newlines. Images, audio and tool calls are left out.
    #[must_use]
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|block| match block {
            SamplingBlock::Content(content) => content.as_text(),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// A root: a directory that is open in the client.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Root {
    /// A `file:` URI.
    pub uri: String,
    /// The display name.
    pub name: Option<String>,
    /// `_meta`, a JSON object.
    pub meta: Option<RawJson>,
}

impl SamplingRequest {
    /// A request with these messages, for at most `max_tokens` tokens.
    #[must_use]
    pub fn new(messages: Vec<SamplingMessage>, max_tokens: u64) -> SamplingRequest {
        SamplingRequest { messages, max_tokens, ..SamplingRequest::default() }
    }
}

setters! { impl SamplingRequest {
    /// Sets the system prompt.
    fn with_system_prompt(system_prompt: impl Into<String>) = Some(system_prompt.into());
    /// Sets the preferences for the model.
    fn with_model_preferences(model_preferences: ModelPreferences) = Some(model_preferences);
    /// Sets the temperature.
    fn with_temperature(temperature: f64) = Some(temperature);
    /// Sets the texts at which the model stops.
    fn with_stop_sequences(stop_sequences: Vec<String>) = stop_sequences;
    /// Sets metadata for the provider of the model, a JSON object.
    fn with_metadata(metadata: impl Into<RawJson>) = Some(metadata.into());
    /// Sets the tools that the model may call.
    fn with_tools(tools: Vec<Tool>) = tools;
    /// Sets whether the model must call a tool.
    fn with_tool_choice(tool_choice: ToolChoice) = Some(tool_choice);
} }

setters! { impl ModelPreferences {
    /// Sets the names of preferred models or model families, the most preferred first.
    fn with_hints(hints: Vec<String>) = hints;
    /// Sets the importance of a low price, from 0.0 to 1.0.
    fn with_cost(cost: f64) = Some(cost);
    /// Sets the importance of a low latency, from 0.0 to 1.0.
    fn with_speed(speed: f64) = Some(speed);
    /// Sets the importance of capability, from 0.0 to 1.0.
    fn with_intelligence(intelligence: f64) = Some(intelligence);
} }

impl SamplingMessage {
    /// A message in this role.
    #[must_use]
    pub fn new(role: Role, content: Vec<SamplingBlock>) -> SamplingMessage {
        SamplingMessage { role, content, meta: None }
    }

    /// A message of the user.
    pub fn user(content: impl Into<Content>) -> SamplingMessage {
        SamplingMessage::new(Role::User, vec![SamplingBlock::Content(content.into())])
    }

    /// A message of the model.
    pub fn assistant(content: impl Into<Content>) -> SamplingMessage {
        SamplingMessage::new(Role::Assistant, vec![SamplingBlock::Content(content.into())])
    }
}

setters! { impl SamplingMessage {
    /// Sets `_meta`, a JSON object.
    fn with_meta(meta: impl Into<RawJson>) = Some(meta.into());
} }

impl SamplingResult {
    /// A message of the model with this name.
    pub fn new(model: impl Into<String>, content: Vec<SamplingBlock>) -> SamplingResult {
        SamplingResult { role: Role::Assistant, content, model: model.into(), stop_reason: None, meta: None }
    }
}

setters! { impl SamplingResult {
    /// Sets why the model stopped, for example `endTurn`, `maxTokens` or `toolUse`.
    fn with_stop_reason(stop_reason: impl Into<String>) = Some(stop_reason.into());
    /// Sets `_meta`, a JSON object.
    fn with_meta(meta: impl Into<RawJson>) = Some(meta.into());
} }

impl Root {
    /// The directory with this `file:` URI.
    pub fn new(uri: impl Into<String>) -> Root {
        Root { uri: uri.into(), ..Root::default() }
    }
}

setters! { impl Root {
    /// Sets the display name.
    fn with_name(name: impl Into<String>) = Some(name.into());
    /// Sets `_meta`, a JSON object.
    fn with_meta(meta: impl Into<RawJson>) = Some(meta.into());
} }
