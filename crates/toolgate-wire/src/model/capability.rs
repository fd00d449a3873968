//! Implementations and capabilities of clients and servers.

use std::collections::BTreeMap;

use crate::json::RawJson;
use crate::model::Icon;

/// Name and version of a client or server. For display only: not a basis for trust or for behavior.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Implementation {
    /// The programmatic name.
    pub name: String,
    /// The version of the implementation.
    pub version: String,
    /// The display name.
    pub title: Option<String>,
    /// A description.
    pub description: Option<String>,
    /// The URL of a website.
    pub website: Option<String>,
    /// Icons for display.
    pub icons: Vec<Icon>,
}

/// The capabilities of a client.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ClientCapabilities {
    /// The client lists its roots; the value is `listChanged`.
    pub roots: Option<bool>,
    /// The client supports sampling.
    pub sampling: Option<SamplingCapability>,
    /// The client supports elicitation.
    pub elicitation: Option<ElicitationCapability>,
    /// The client runs requests as tasks; core tasks only.
    pub tasks: Option<TaskCapability>,
    /// Extensions by id, with their settings.
    pub extensions: BTreeMap<String, RawJson>,
    /// Experimental capabilities by name, with their settings.
    pub experimental: BTreeMap<String, RawJson>,
}

/// What kind of sampling a client supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SamplingCapability {
    /// Sampling with context from servers.
    pub context: bool,
    /// Sampling with tools.
    pub tools: bool,
}

/// Which modes of elicitation a client supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElicitationCapability {
    /// Forms.
    pub form: bool,
    /// URLs to open.
    pub url: bool,
}

/// The parts of core tasks that a client or server supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskCapability {
    /// `tasks/list`.
    pub list: bool,
    /// `tasks/cancel`.
    pub cancel: bool,
    /// `tools/call` as a task (servers).
    pub tools: bool,
    /// `sampling/createMessage` as a task (clients).
    pub sampling: bool,
    /// `elicitation/create` as a task (clients).
    pub elicitation: bool,
}

/// The capabilities of a server.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ServerCapabilities {
    /// The server has tools; the value is `listChanged`.
    pub tools: Option<bool>,
    /// The server has prompts; the value is `listChanged`.
    pub prompts: Option<bool>,
    /// The server has resources; the value is `listChanged`.
    pub resources: Option<bool>,
    /// The server supports subscriptions to single resources.
    pub resource_updates: bool,
    /// The server completes arguments.
    pub completions: bool,
    /// The server sends log messages.
    pub logging: bool,
    /// The server runs calls as tasks; core tasks only.
    pub tasks: Option<TaskCapability>,
    /// Extensions by id, with their settings.
    pub extensions: BTreeMap<String, RawJson>,
    /// Experimental capabilities by name, with their settings.
    pub experimental: BTreeMap<String, RawJson>,
}

impl Implementation {
    /// An implementation with this name and version.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Implementation {
        Implementation { name: name.into(), version: version.into(), ..Implementation::default() }
    }
}

setters! { impl Implementation {
    /// Sets the display name.
    fn with_title(title: impl Into<String>) = Some(title.into());
    /// Sets the description.
    fn with_description(description: impl Into<String>) = Some(description.into());
    /// Sets the address of the website.
    fn with_website(website: impl Into<String>) = Some(website.into());
    /// Sets the icons.
    fn with_icons(icons: Vec<Icon>) = icons;
} }

impl SamplingCapability {
    /// Sampling with tools.
    #[must_use]
    pub fn with_tools() -> SamplingCapability {
        SamplingCapability { context: false, tools: true }
    }
}

impl ElicitationCapability {
    /// Elicitation with forms.
    #[must_use]
    pub fn form() -> ElicitationCapability {
        ElicitationCapability { form: true, url: false }
    }

    /// Elicitation with forms and URLs.
    #[must_use]
    pub fn form_and_url() -> ElicitationCapability {
        ElicitationCapability { form: true, url: true }
    }
}
