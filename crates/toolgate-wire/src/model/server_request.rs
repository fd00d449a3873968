//! What a server asks its client in the middle of a call, and what it hears.

use crate::json::RawJson;
use crate::model::{Content, Role, Tool};

/// A question.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ServerRequest {
    /// `elicitation/create`: for the user.
    Elicitation(ElicitRequest),
    /// `sampling/createMessage`: for the model.
    Sampling(Box<SamplingRequest>),
    /// `roots/list`: which folders are open.
    Roots,
}

/// Which kind of question, without its words.
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
    /// Which kind of question this is.
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

    /// The method that says this on the wire.
    #[must_use]
    pub fn method(&self) -> &'static str {
        match self {
            ServerRequest::Elicitation(_) => "elicitation/create",
            ServerRequest::Sampling(_) => "sampling/createMessage",
            ServerRequest::Roots => "roots/list",
        }
    }
}

/// A question for the user.
#[derive(Clone, Debug, PartialEq)]
pub enum ElicitRequest {
    /// Fill in a form.
    Form(ElicitForm),
    /// Open a link. Secrets belong there, never in a form.
    Url {
        /// Why.
        message: String,
        /// Where.
        url: String,
        /// What the end of it will be told by, where an edition has that.
        id: String,
    },
}

/// A form of single values.
#[derive(Clone, Debug, PartialEq)]
pub struct ElicitForm {
    /// Why.
    pub message: String,
    /// A JSON Schema of type `object` whose properties are strings, numbers, booleans and choices.
    pub schema: RawJson,
}

/// A question for the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplingRequest {
    /// The conversation so far.
    pub messages: Vec<SamplingMessage>,
    /// At most so many tokens.
    pub max_tokens: u64,
    /// The system prompt.
    pub system_prompt: Option<String>,
    /// Which model would be good.
    pub model_preferences: Option<ModelPreferences>,
    /// `none`, `thisServer` or `allServers`.
    pub include_context: Option<String>,
    /// How daring.
    pub temperature: Option<f64>,
    /// Where to stop.
    pub stop_sequences: Vec<String>,
    /// For the provider: a JSON object.
    pub metadata: Option<RawJson>,
    /// What the model may call.
    pub tools: Vec<Tool>,
    /// Whether it must.
    pub tool_choice: Option<ToolChoice>,
}

/// Which model would be good.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelPreferences {
    /// Names or parts of names, best first.
    pub hints: Vec<String>,
    /// From 0 to 1.
    pub cost: Option<f64>,
    /// From 0 to 1.
    pub speed: Option<f64>,
    /// From 0 to 1.
    pub intelligence: Option<f64>,
}

/// Whether a model must call a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ToolChoice {
    Auto,
    Required,
    None,
}

/// One turn of a conversation with a model.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingMessage {
    /// By whom.
    pub role: Role,
    /// What. Older editions take one block only.
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
    /// The model wants a tool called.
    ToolUse {
        /// To be matched by the result.
        id: String,
        /// Which tool.
        name: String,
        /// A JSON object.
        input: RawJson,
        /// `_meta`, a JSON object.
        meta: Option<RawJson>,
    },
    /// What the tool gave.
    ToolResult {
        /// The id of the wish.
        tool_use_id: String,
        /// For the model.
        content: Vec<Content>,
        /// For a program.
        structured_content: Option<RawJson>,
        /// It failed.
        is_error: bool,
        /// `_meta`, a JSON object.
        meta: Option<RawJson>,
    },
}

/// What a client heard.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ClientResult {
    /// From the user.
    Elicitation(ElicitResult),
    /// From the model.
    Sampling(Box<SamplingResult>),
    /// The open folders.
    Roots(Vec<Root>),
}

/// What the user said.
#[derive(Clone, Debug, PartialEq)]
pub enum ElicitResult {
    /// Yes; with the form's values, an object, if there was a form.
    Accept(Option<RawJson>),
    /// No.
    Decline,
    /// Nothing: closed the question.
    Cancel,
}

/// What the model said.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingResult {
    /// By whom: the assistant.
    pub role: Role,
    /// What.
    pub content: Vec<SamplingBlock>,
    /// Which model.
    pub model: String,
    /// Why it stopped: `endTurn`, `stopSequence`, `maxTokens`, `toolUse` or another.
    pub stop_reason: Option<String>,
    /// `_meta`, a JSON object.
    pub meta: Option<RawJson>,
}

/// An open folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Root {
    /// A `file:` URI.
    pub uri: String,
    /// A name for people.
    pub name: Option<String>,
    /// `_meta`, a JSON object.
    pub meta: Option<RawJson>,
}
