//! Tools and what they answer.

use crate::json::RawJson;
use crate::model::{Content, Icon};

/// A tool as a client sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Unique on its server.
    pub name: String,
    /// A name for people.
    pub title: Option<String>,
    /// What it does, for a model.
    pub description: Option<String>,
    /// JSON Schema of the arguments; its root type is `object`.
    pub input_schema: RawJson,
    /// JSON Schema of `structured`, any root type.
    pub output_schema: Option<RawJson>,
    /// What to expect of a call.
    pub hints: ToolHints,
    /// Pictures for lists.
    pub icons: Vec<Icon>,
    /// Whether a call may, or must, run as a task.
    pub task_support: TaskSupport,
    /// `_meta`, a JSON object.
    pub meta: Option<RawJson>,
}

impl Tool {
    /// A tool with a name and a schema, and nothing else said.
    pub fn new(name: impl Into<String>, input_schema: RawJson) -> Tool {
        Tool {
            name: name.into(),
            title: None,
            description: None,
            input_schema,
            output_schema: None,
            hints: ToolHints::default(),
            icons: Vec::new(),
            task_support: TaskSupport::Forbidden,
            meta: None,
        }
    }
}

/// What to expect of a call. Not said is not the same as no.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolHints {
    /// A name for people, older than `Tool::title`.
    pub title: Option<String>,
    /// Changes nothing.
    pub read_only: Option<bool>,
    /// May destroy something.
    pub destructive: Option<bool>,
    /// Twice is the same as once.
    pub idempotent: Option<bool>,
    /// Reaches beyond this server.
    pub open_world: Option<bool>,
}

impl ToolHints {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == ToolHints::default()
    }
}

/// Whether a call may run as a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TaskSupport {
    #[default]
    Forbidden,
    Optional,
    Required,
}

/// What a call of a tool gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolOutput {
    /// For the model to read.
    pub content: Vec<Content>,
    /// For a program to read: any JSON.
    pub structured_content: Option<RawJson>,
    /// The tool failed, in a way that the content explains.
    pub is_error: bool,
    /// It failed because something it needs is not there now, such as a backend. Only dialects that have a number for
    /// that tell it apart from other failures.
    pub is_unavailable: bool,
    /// `_meta`, a JSON object.
    pub meta: Option<RawJson>,
}

impl ToolOutput {
    /// One text.
    pub fn text(text: impl Into<String>) -> ToolOutput {
        ToolOutput { content: vec![Content::text(text)], ..ToolOutput::default() }
    }

    /// A failure that a model can act on.
    pub fn error(text: impl Into<String>) -> ToolOutput {
        ToolOutput { is_error: true, ..ToolOutput::text(text) }
    }

    /// A failure because something that the tool needs is not there now.
    pub fn unavailable(text: impl Into<String>) -> ToolOutput {
        ToolOutput { is_unavailable: true, ..ToolOutput::error(text) }
    }
}
