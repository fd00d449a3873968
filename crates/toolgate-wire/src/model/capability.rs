//! Who each side is, and what it can do.

use std::collections::BTreeMap;

use crate::json::RawJson;
use crate::model::Icon;

/// A program that speaks the protocol. For display: never a reason to trust or to branch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Implementation {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// A name for people.
    pub title: Option<String>,
    /// What it is.
    pub description: Option<String>,
    /// Where to read more.
    pub website: Option<String>,
    /// Pictures for lists.
    pub icons: Vec<Icon>,
}

/// What a client can do for a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientCapabilities {
    /// Tells its roots; the value says whether it also tells when they change.
    pub roots: Option<bool>,
    /// Asks its model.
    pub sampling: Option<SamplingCapability>,
    /// Asks its user.
    pub elicitation: Option<ElicitationCapability>,
    /// Runs requests as tasks: core tasks only.
    pub tasks: Option<TaskCapability>,
    /// Extensions by id, with their settings.
    pub extensions: BTreeMap<String, RawJson>,
    /// Experiments by name, with their settings.
    pub experimental: BTreeMap<String, RawJson>,
}

/// How a client asks its model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SamplingCapability {
    /// With the context of servers.
    pub context: bool,
    /// With tools.
    pub tools: bool,
}

/// How a client asks its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElicitationCapability {
    /// By a form.
    pub form: bool,
    /// By a link to open.
    pub url: bool,
}

/// What of core tasks one side offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCapability {
    /// `tasks/list`.
    pub list: bool,
    /// `tasks/cancel`.
    pub cancel: bool,
    /// Tool calls as tasks: servers.
    pub tools: bool,
    /// Sampling as a task: clients.
    pub sampling: bool,
    /// Elicitation as a task: clients.
    pub elicitation: bool,
}

/// What a server offers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerCapabilities {
    /// Tools; the value says whether it tells when the list changes.
    pub tools: Option<bool>,
    /// Prompts; likewise.
    pub prompts: Option<bool>,
    /// Resources; likewise.
    pub resources: Option<bool>,
    /// Tells when a single resource changes.
    pub resource_updates: bool,
    /// Completes arguments.
    pub completions: bool,
    /// Sends log messages.
    pub logging: bool,
    /// Runs calls as tasks: core tasks only.
    pub tasks: Option<TaskCapability>,
    /// Extensions by id, with their settings.
    pub extensions: BTreeMap<String, RawJson>,
    /// Experiments by name, with their settings.
    pub experimental: BTreeMap<String, RawJson>,
}
