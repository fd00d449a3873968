//! Results of requests to a server.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::RequestId;
use crate::model::{
    Implementation, Prompt, PromptOutput, Resource, ResourceContents, ResourceTemplate, Root,
    ServerCapabilities, ServerRequest, Task, Tool, ToolOutput,
};

/// The result of a request, independent of the protocol version.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// An empty result.
    Empty,
    /// The result of `initialize`.
    Initialize(Box<InitializeResult>),
    /// The result of `server/discover`.
    Discover(Box<DiscoverResult>),
    /// The result of `tools/list`.
    Tools(Page<Tool>),
    /// The result of `tools/call`.
    Tool(ToolOutput),
    /// The result of `resources/list`.
    Resources(Page<Resource>),
    /// The result of `resources/templates/list`.
    Templates(Page<ResourceTemplate>),
    /// The result of `resources/read`.
    ReadResource {
        /// The contents of the resource.
        contents: Vec<ResourceContents>,
        /// How long the result may be cached.
        cache: CacheHint,
    },
    /// The result of `prompts/list`.
    Prompts(Page<Prompt>),
    /// The result of `prompts/get`.
    Prompt(PromptOutput),
    /// The result of `completion/complete`.
    Completion(Completion),
    /// The call requires input: the client must provide it and repeat the call.
    InputRequired(InputRequired),
    /// The end of `subscriptions/listen`.
    ListenEnded {
        /// The id of the listen request.
        subscription_id: RequestId,
    },
    /// The call continues as this task.
    TaskStarted(Task),
    /// The result of `tasks/create`, which exists in one dialect only.
    TaskCreated(Box<Task>),
    /// The result of `tasks/get`, and of `tasks/cancel` in core tasks.
    TaskStatus(Box<Task>),
    /// The result of `tasks/list`.
    Tasks(Page<Task>),
    /// The result of `tasks/result`: the result of the call that the task runs.
    TaskPayload {
        /// The id of the task.
        id: String,
        /// The result of the call.
        output: Arc<Outcome>,
    },
    /// The result of `roots/list`; only for clients that send no protocol version.
    Roots(Vec<Root>),
}

/// The result of `initialize`.
#[derive(Clone, Debug, PartialEq)]
pub struct InitializeResult {
    /// The negotiated protocol version.
    pub version: String,
    /// The capabilities of the server.
    pub capabilities: ServerCapabilities,
    /// Name and version of the server.
    pub server_info: Implementation,
    /// Instructions for the model on how to use the server.
    pub instructions: Option<String>,
}

/// The result of `server/discover`.
#[derive(Clone, Debug, PartialEq)]
pub struct DiscoverResult {
    /// The supported protocol versions, newest first.
    pub versions: Vec<String>,
    /// The capabilities of the server.
    pub capabilities: ServerCapabilities,
    /// Instructions for the model on how to use the server.
    pub instructions: Option<String>,
    /// Name and version of the server, sent in `_meta`.
    pub server_info: Option<Implementation>,
    /// How long the result may be cached.
    pub cache: CacheHint,
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// The items, in a stable order.
    pub items: Vec<Arc<T>>,
    /// The cursor of the next page.
    pub next_cursor: Option<String>,
    /// How long the result may be cached.
    pub cache: CacheHint,
}

/// How long, and for whom, a result may be cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheHint {
    /// The time to live, in milliseconds.
    pub ttl_ms: u64,
    /// Who may share a cached result.
    pub scope: CacheScope,
}

/// Who may share a cached result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheScope {
    /// Only the caller that requested it.
    #[default]
    Private,
    /// All callers.
    Public,
}

/// Suggestions for the value of an argument.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completion {
    /// The suggestions, at most [`MAX_VALUES`](Completion::MAX_VALUES).
    pub values: Vec<String>,
    /// The total number of suggestions.
    pub total: Option<u64>,
    /// Whether there are more suggestions than these.
    pub has_more: Option<bool>,
}

impl Completion {
    /// Suggestions that are all there are.
    #[must_use]
    pub fn new(values: Vec<String>) -> Completion {
        Completion { values, ..Completion::default() }
    }

    /// The maximum number of values in one result, as the protocol defines it.
    pub const MAX_VALUES: usize = 100;
}

/// The input that a client must provide before it repeats the call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InputRequired {
    /// The server's requests, by key.
    pub input_requests: BTreeMap<String, ServerRequest>,
    /// Opaque state that the client returns with the next attempt. At least one of the two fields is present.
    pub request_state: Option<String>,
}

setters! { impl Completion {
    /// Sets how many suggestions there are.
    fn with_total(total: impl Into<Option<u64>>) = total.into();
    /// Sets whether there are more suggestions than these.
    fn with_has_more(has_more: bool) = Some(has_more);
} }
