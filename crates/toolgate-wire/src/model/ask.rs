//! What a server asks its client in the middle of a call, and what it hears.

use crate::json::Raw;
use crate::model::{Content, Role, Tool};

/// A question.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Ask {
    /// `elicitation/create`: for the user.
    Elicit(Elicit),
    /// `sampling/createMessage`: for the model.
    Sample(Box<Sample>),
    /// `roots/list`: which folders are open.
    Roots,
}

/// Which kind of question, without its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum AskKind {
    ElicitForm,
    ElicitUrl,
    Sample,
    SampleWithTools,
    Roots,
}

impl Ask {
    /// Which kind of question this is.
    #[must_use]
    pub fn kind(&self) -> AskKind {
        match self {
            Ask::Elicit(Elicit::Form(_)) => AskKind::ElicitForm,
            Ask::Elicit(Elicit::Url { .. }) => AskKind::ElicitUrl,
            Ask::Sample(sample) if sample.tools.is_empty() => AskKind::Sample,
            Ask::Sample(_) => AskKind::SampleWithTools,
            Ask::Roots => AskKind::Roots,
        }
    }

    /// The method that says this on the wire.
    #[must_use]
    pub fn method(&self) -> &'static str {
        match self {
            Ask::Elicit(_) => "elicitation/create",
            Ask::Sample(_) => "sampling/createMessage",
            Ask::Roots => "roots/list",
        }
    }
}

/// A question for the user.
#[derive(Clone, Debug, PartialEq)]
pub enum Elicit {
    /// Fill in a form.
    Form(Form),
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
pub struct Form {
    /// Why.
    pub message: String,
    /// A JSON Schema of type `object` whose properties are strings, numbers, booleans and choices.
    pub schema: Raw,
}

/// A question for the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// The conversation so far.
    pub messages: Vec<SamplingMessage>,
    /// At most so many tokens.
    pub max_tokens: u64,
    /// The system prompt.
    pub system: Option<String>,
    /// Which model would be good.
    pub preferences: Option<ModelPreferences>,
    /// `none`, `thisServer` or `allServers`.
    pub include_context: Option<String>,
    /// How daring.
    pub temperature: Option<f64>,
    /// Where to stop.
    pub stop: Vec<String>,
    /// For the provider: a JSON object.
    pub metadata: Option<Raw>,
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
    pub meta: Option<Raw>,
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
        input: Raw,
        /// `_meta`, a JSON object.
        meta: Option<Raw>,
    },
    /// What the tool gave.
    ToolResult {
        /// The id of the wish.
        id: String,
        /// For the model.
        content: Vec<Content>,
        /// For a program.
        structured: Option<Raw>,
        /// It failed.
        is_error: bool,
        /// `_meta`, a JSON object.
        meta: Option<Raw>,
    },
}

/// What a client heard.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Answer {
    /// From the user.
    Elicit(ElicitAnswer),
    /// From the model.
    Sample(Box<Sampled>),
    /// The open folders.
    Roots(Vec<Root>),
}

/// What the user said.
#[derive(Clone, Debug, PartialEq)]
pub enum ElicitAnswer {
    /// Yes; with the form's values, an object, if there was a form.
    Accept(Option<Raw>),
    /// No.
    Decline,
    /// Nothing: closed the question.
    Cancel,
}

/// What the model said.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// By whom: the assistant.
    pub role: Role,
    /// What.
    pub content: Vec<SamplingBlock>,
    /// Which model.
    pub model: String,
    /// Why it stopped: `endTurn`, `stopSequence`, `maxTokens`, `toolUse` or another.
    pub stop_reason: Option<String>,
    /// `_meta`, a JSON object.
    pub meta: Option<Raw>,
}

/// An open folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Root {
    /// A `file:` URI.
    pub uri: String,
    /// A name for people.
    pub name: Option<String>,
    /// `_meta`, a JSON object.
    pub meta: Option<Raw>,
}
