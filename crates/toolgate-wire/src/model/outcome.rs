//! Everything a server can answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::RequestId;
use crate::model::{
    Implementation, Prompt, PromptOutput, Resource, ResourceContents, ResourceTemplate, Root,
    ServerCapabilities, ServerRequest, Task, Tool, ToolOutput,
};

/// A server's answer, whatever the edition it will be put in.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// Done, nothing to say.
    Empty,
    /// Answers `initialize`.
    Initialize(Box<InitializeResult>),
    /// Answers `server/discover`.
    Discover(Box<DiscoverResult>),
    /// Answers `tools/list`.
    Tools(Page<Tool>),
    /// Answers `tools/call`.
    Tool(ToolOutput),
    /// Answers `resources/list`.
    Resources(Page<Resource>),
    /// Answers `resources/templates/list`.
    Templates(Page<ResourceTemplate>),
    /// Answers `resources/read`.
    ReadResource {
        /// What was read.
        contents: Vec<ResourceContents>,
        /// How long that stays true.
        cache: CacheHint,
    },
    /// Answers `prompts/list`.
    Prompts(Page<Prompt>),
    /// Answers `prompts/get`.
    Prompt(PromptOutput),
    /// Answers `completion/complete`.
    Completion(Completion),
    /// Not an answer yet: the client must bring these first.
    InputRequired(InputRequired),
    /// Ends `subscriptions/listen`.
    ListenEnded {
        /// The id of the listen request.
        subscription_id: RequestId,
    },
    /// The call goes on as this task.
    TaskStarted(Task),
    /// Answers `tasks/create`, which only a dialect has.
    TaskCreated(Box<Task>),
    /// Answers `tasks/get`, and `tasks/cancel` in core tasks.
    TaskStatus(Box<Task>),
    /// Answers `tasks/list`.
    Tasks(Page<Task>),
    /// Answers `tasks/result`: the result that the call would have had.
    TaskPayload {
        /// Which task.
        id: String,
        /// What it gave.
        output: Arc<Outcome>,
    },
    /// Answers `roots/list`: only to who names no edition.
    Roots(Vec<Root>),
}

/// What a server says of itself when it shakes hands.
#[derive(Clone, Debug, PartialEq)]
pub struct InitializeResult {
    /// The edition that both will speak, as the wire spells it.
    pub version: String,
    /// What it can do.
    pub capabilities: ServerCapabilities,
    /// Who it is.
    pub server_info: Implementation,
    /// How to use it, for a model.
    pub instructions: Option<String>,
}

/// What a server says of itself to a client that shakes no hands.
#[derive(Clone, Debug, PartialEq)]
pub struct DiscoverResult {
    /// The editions it speaks, as the wire spells them, newest first.
    pub versions: Vec<String>,
    /// What it can do.
    pub capabilities: ServerCapabilities,
    /// How to use it, for a model.
    pub instructions: Option<String>,
    /// Who it is: in the answer's `_meta`.
    pub server_info: Option<Implementation>,
    /// How long that stays true.
    pub cache: CacheHint,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// In the server's order, which is the same every time.
    pub items: Vec<Arc<T>>,
    /// Where the next page starts.
    pub next_cursor: Option<String>,
    /// How long that stays true.
    pub cache: CacheHint,
}

/// How long, and for whom, an answer stays true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheHint {
    /// Milliseconds.
    pub ttl_ms: u64,
    /// Who may share it.
    pub scope: CacheScope,
}

/// Who may share an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheScope {
    /// Only the caller it was made for.
    #[default]
    Private,
    /// Everybody.
    Public,
}

/// How a half-written value could go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// At most a hundred.
    pub values: Vec<String>,
    /// How many there are in all.
    pub total: Option<u64>,
    /// There are more than these.
    pub has_more: Option<bool>,
}

impl Completion {
    /// What the protocol allows in one answer.
    pub const MAX_VALUES: usize = 100;
}

/// What a client must bring before it calls again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InputRequired {
    /// Questions by key.
    pub input_requests: BTreeMap<String, ServerRequest>,
    /// What the client carries to the next call. At least one of the two is there.
    pub request_state: Option<String>,
}
