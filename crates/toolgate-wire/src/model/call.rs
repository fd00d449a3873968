//! Requests of a client to a server.

use std::collections::BTreeMap;

use crate::json::RawJson;
use crate::model::{ClientCapabilities, Implementation, LogLevel};

/// A request of a client, independent of the protocol version.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Call {
    /// `initialize`; only in versions with a handshake.
    Initialize(InitializeParams),
    /// `server/discover`.
    Discover,
    /// `ping`.
    Ping,
    /// `logging/setLevel`.
    SetLevel(LogLevel),
    /// `tools/list`.
    ListTools {
        /// The position of the page.
        cursor: Option<String>,
    },
    /// `tools/call`.
    CallTool {
        /// The name of the tool.
        name: String,
        /// A JSON object; absent means `{}`.
        arguments: Option<RawJson>,
        /// State from an earlier attempt.
        retry: Retry,
        /// `Some` to run the call as a task, with the requested time to live of the task in milliseconds; core tasks
        /// only.
        task: Option<Option<u64>>,
    },
    /// `resources/list`.
    ListResources {
        /// The position of the page.
        cursor: Option<String>,
    },
    /// `resources/templates/list`.
    ListTemplates {
        /// The position of the page.
        cursor: Option<String>,
    },
    /// `resources/read`.
    ReadResource {
        /// The URI of the resource.
        uri: String,
        /// State from an earlier attempt.
        retry: Retry,
    },
    /// `resources/subscribe`.
    Subscribe {
        /// The URI of the resource.
        uri: String,
    },
    /// `resources/unsubscribe`.
    Unsubscribe {
        /// The URI of the resource.
        uri: String,
    },
    /// `subscriptions/listen`.
    Listen(SubscriptionFilter),
    /// `prompts/list`.
    ListPrompts {
        /// The position of the page.
        cursor: Option<String>,
    },
    /// `prompts/get`.
    GetPrompt {
        /// The name of the prompt.
        name: String,
        /// Values of the prompt's arguments, by name.
        arguments: BTreeMap<String, String>,
        /// State from an earlier attempt.
        retry: Retry,
    },
    /// `completion/complete`.
    Complete(CompleteParams),
    /// `tasks/list`; core tasks only.
    ListTasks {
        /// The position of the page.
        cursor: Option<String>,
    },
    /// `tasks/get`.
    GetTask {
        /// The id of the task.
        id: String,
    },
    /// `tasks/result`; core tasks only.
    TaskResult {
        /// The id of the task.
        id: String,
    },
    /// `tasks/update`; tasks extension only.
    UpdateTask {
        /// The id of the task.
        id: String,
        /// Results of the task's input requests, by key.
        input_responses: BTreeMap<String, RawJson>,
    },
    /// `tasks/cancel`.
    CancelTask {
        /// The id of the task.
        id: String,
    },
    /// `roots/list`; only from clients that send no protocol version. In all versions it is a request of the server.
    ListRoots,
    /// `roots/add`; only from clients that send no protocol version.
    AddRoot {
        /// The URI of a directory.
        uri: String,
        /// A display name; defaults to the last segment of the URI.
        name: Option<String>,
    },
    /// `roots/remove`; only from clients that send no protocol version.
    RemoveRoot {
        /// The URI of the root.
        uri: String,
    },
    /// `tasks/create`; in one dialect only.
    CreateTask {
        /// The name of the tool.
        tool: String,
        /// A JSON object; absent means `{}`.
        arguments: Option<RawJson>,
        /// The task fails after this many milliseconds.
        timeout_ms: Option<u64>,
    },
}

/// The parameters of `initialize`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InitializeParams {
    /// The requested protocol version, as sent.
    pub version: String,
    /// The capabilities of the client.
    pub capabilities: ClientCapabilities,
    /// Name and version of the client.
    pub client_info: Option<Implementation>,
}

/// State that a client sends when it repeats a call that required input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Retry {
    /// Client results by key. They stay raw until the request they belong to is known.
    pub input_responses: BTreeMap<String, RawJson>,
    /// The opaque state that the server sent.
    pub request_state: Option<String>,
}

impl Retry {
    /// Returns whether this is a first attempt.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.input_responses.is_empty() && self.request_state.is_none()
    }
}

/// The changes that a subscription reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionFilter {
    /// Changes of the tool list.
    pub tools: bool,
    /// Changes of the prompt list.
    pub prompts: bool,
    /// Changes of the resource list.
    pub resources: bool,
    /// Updates of these resources.
    pub uris: Vec<String>,
    /// Status changes of these tasks; tasks extension only.
    pub tasks: Vec<String>,
}

/// The parameters of `completion/complete`.
#[derive(Clone, Debug, PartialEq)]
pub struct CompleteParams {
    /// The prompt or resource template that is completed.
    pub completion_ref: CompletionReference,
    /// The name of the argument.
    pub argument: String,
    /// The partial value of the argument.
    pub value: String,
    /// Values of other arguments, by name.
    pub context: BTreeMap<String, String>,
}

/// The prompt or resource template of a completion.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompletionReference {
    /// The name of a prompt.
    Prompt(String),
    /// The URI template of a resource template.
    Resource(String),
}

impl Call {
    /// Returns the name or URI that HTTP requests repeat in the `Mcp-Name` header.
    #[must_use]
    pub fn mirrored_name(&self) -> Option<&str> {
        match self {
            Call::CallTool { name, .. } | Call::GetPrompt { name, .. } => Some(name),
            Call::ReadResource { uri, .. } => Some(uri),
            Call::GetTask { id } | Call::UpdateTask { id, .. } | Call::CancelTask { id } => Some(id),
            _ => None,
        }
    }

    /// Returns the method name.
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
