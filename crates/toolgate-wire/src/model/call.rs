//! Everything a client can want of a server.

use std::collections::BTreeMap;

use crate::json::RawJson;
use crate::model::{ClientCapabilities, Implementation, LogLevel};

/// A client's wish, whatever the edition it was put in.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Call {
    /// `initialize`: handshake editions only.
    Initialize(InitializeParams),
    /// `server/discover`.
    Discover,
    /// `ping`.
    Ping,
    /// `logging/setLevel`.
    SetLevel(LogLevel),
    /// `tools/list`.
    ListTools {
        /// Where the page starts.
        cursor: Option<String>,
    },
    /// `tools/call`.
    CallTool {
        /// Which tool.
        name: String,
        /// A JSON object; none is the same as `{}`.
        arguments: Option<RawJson>,
        /// What the client brings of an earlier round.
        retry: Retry,
        /// Run it as a task and keep it this long, in milliseconds: core tasks only.
        task: Option<Option<u64>>,
    },
    /// `resources/list`.
    ListResources {
        /// Where the page starts.
        cursor: Option<String>,
    },
    /// `resources/templates/list`.
    ListTemplates {
        /// Where the page starts.
        cursor: Option<String>,
    },
    /// `resources/read`.
    ReadResource {
        /// Which resource.
        uri: String,
        /// What the client brings of an earlier round.
        retry: Retry,
    },
    /// `resources/subscribe`.
    Subscribe {
        /// Which resource.
        uri: String,
    },
    /// `resources/unsubscribe`.
    Unsubscribe {
        /// Which resource.
        uri: String,
    },
    /// `subscriptions/listen`.
    Listen(SubscriptionFilter),
    /// `prompts/list`.
    ListPrompts {
        /// Where the page starts.
        cursor: Option<String>,
    },
    /// `prompts/get`.
    GetPrompt {
        /// Which prompt.
        name: String,
        /// What fills its holes.
        arguments: BTreeMap<String, String>,
        /// What the client brings of an earlier round.
        retry: Retry,
    },
    /// `completion/complete`.
    Complete(CompleteParams),
    /// `tasks/list`: core tasks only.
    ListTasks {
        /// Where the page starts.
        cursor: Option<String>,
    },
    /// `tasks/get`.
    GetTask {
        /// Which task.
        id: String,
    },
    /// `tasks/result`: core tasks only.
    TaskResult {
        /// Which task.
        id: String,
    },
    /// `tasks/update`: the extension only.
    UpdateTask {
        /// Which task.
        id: String,
        /// What it asked for, by key; a client result each.
        input_responses: BTreeMap<String, RawJson>,
    },
    /// `tasks/cancel`.
    CancelTask {
        /// Which task.
        id: String,
    },
    /// `roots/list`: only of who names no edition. In editions it is the server who asks this.
    ListRoots,
    /// `roots/add`: only of who names no edition.
    AddRoot {
        /// The URI of a directory.
        uri: String,
        /// What to call it; none is the last part of the URI.
        name: Option<String>,
    },
    /// `roots/remove`: only of who names no edition.
    RemoveRoot {
        /// Which root.
        uri: String,
    },
    /// `tasks/create`: a dialect only.
    CreateTask {
        /// Which tool.
        tool: String,
        /// A JSON object; none is the same as `{}`.
        arguments: Option<RawJson>,
        /// The task fails after so many milliseconds.
        timeout_ms: Option<u64>,
    },
}

/// What a client says of itself when it shakes hands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InitializeParams {
    /// The edition it would like, as it spelled it.
    pub version: String,
    /// What it can do.
    pub capabilities: ClientCapabilities,
    /// Who it is.
    pub client_info: Option<Implementation>,
}

/// What a client brings when it calls again because the server asked for input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Retry {
    /// Bare client results by key. They stay raw until the question is known.
    pub input_responses: BTreeMap<String, RawJson>,
    /// What the server gave it to carry.
    pub request_state: Option<String>,
}

impl Retry {
    /// Whether this is a first call.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.input_responses.is_empty() && self.request_state.is_none()
    }
}

/// Which changes a listener wants to hear of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionFilter {
    /// The list of tools.
    pub tools: bool,
    /// The list of prompts.
    pub prompts: bool,
    /// The list of resources.
    pub resources: bool,
    /// These resources.
    pub uris: Vec<String>,
    /// These tasks: the extension only.
    pub tasks: Vec<String>,
}

/// A half-written value that wants completing.
#[derive(Clone, Debug, PartialEq)]
pub struct CompleteParams {
    /// Of what.
    pub completion_ref: CompletionReference,
    /// Which argument.
    pub argument: String,
    /// What is there so far.
    pub value: String,
    /// What the other arguments are already.
    pub context: BTreeMap<String, String>,
}

/// What an argument belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompletionReference {
    /// A prompt, by name.
    Prompt(String),
    /// A resource template, by its text.
    Resource(String),
}

impl Call {
    /// The name of the thing a call is about: what HTTP mirrors in `Mcp-Name`.
    #[must_use]
    pub fn mirrored_name(&self) -> Option<&str> {
        match self {
            Call::CallTool { name, .. } | Call::GetPrompt { name, .. } => Some(name),
            Call::ReadResource { uri, .. } => Some(uri),
            Call::GetTask { id } | Call::UpdateTask { id, .. } | Call::CancelTask { id } => Some(id),
            _ => None,
        }
    }

    /// The method that says this on the wire.
    #[must_use]
    pub fn method(&self) -> &'static str {
        match self {
            Call::Initialize(_) => "initialize",
            Call::Discover => "server/discover",
            Call::Ping => "ping",
            Call::SetLevel(_) => "logging/setLevel",
            Call::ListTools { .. } => "tools/list",
            Call::CallTool { .. } => "tools/call",
            Call::ListResources { .. } => "resources/list",
            Call::ListTemplates { .. } => "resources/templates/list",
            Call::ReadResource { .. } => "resources/read",
            Call::Subscribe { .. } => "resources/subscribe",
            Call::Unsubscribe { .. } => "resources/unsubscribe",
            Call::Listen(_) => "subscriptions/listen",
            Call::ListPrompts { .. } => "prompts/list",
            Call::GetPrompt { .. } => "prompts/get",
            Call::Complete(_) => "completion/complete",
            Call::ListTasks { .. } => "tasks/list",
            Call::GetTask { .. } => "tasks/get",
            Call::TaskResult { .. } => "tasks/result",
            Call::UpdateTask { .. } => "tasks/update",
            Call::CancelTask { .. } => "tasks/cancel",
            Call::ListRoots => "roots/list",
            Call::AddRoot { .. } => "roots/add",
            Call::RemoveRoot { .. } => "roots/remove",
            Call::CreateTask { .. } => "tasks/create",
        }
    }
}
