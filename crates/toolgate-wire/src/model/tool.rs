//! Tools and their results.

use crate::json::RawJson;
use crate::model::{Content, Icon};

/// A tool, as listed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Tool {
    /// The name, unique on the server.
    pub name: String,
    /// The display name.
    pub title: Option<String>,
    /// What the tool does, for the model.
    pub description: Option<String>,
    /// The JSON Schema of the arguments; its root type is `object`.
    pub input_schema: RawJson,
    /// The JSON Schema of the structured content, with any root type.
    pub output_schema: Option<RawJson>,
    /// Hints about the tool's behavior.
    pub hints: ToolHints,
    /// Icons for display.
    pub icons: Vec<Icon>,
    /// Whether a call may, or must, run as a task.
    pub task_support: TaskSupport,
    /// `_meta`, a JSON object.
    pub meta: Option<RawJson>,
}

impl Tool {
    /// Creates a tool with a name and an input schema; all other fields are empty.
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

/// Hints about a tool's behavior. `None` means unspecified, which differs from `Some(false)`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ToolHints {
    /// The display name, as in versions before `Tool::title` existed.
    pub title: Option<String>,
    /// The tool does not modify its environment.
    pub read_only: Option<bool>,
    /// The tool may perform destructive updates.
    pub destructive: Option<bool>,
    /// Repeated calls with the same arguments have no additional effect.
    pub idempotent: Option<bool>,
    /// The tool interacts with external entities.
    pub open_world: Option<bool>,
}

impl ToolHints {
    /// Returns whether no hint is specified.
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

/// The result of a tool call.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ToolOutput {
    /// Content for the model.
    pub content: Vec<Content>,
    /// Structured content for a program: any JSON value.
    pub structured_content: Option<RawJson>,
    /// Whether the tool failed; the content explains why.
    pub is_error: bool,
    /// Whether the tool failed because a dependency, such as a backend, is unavailable. Only dialects with an error code for
    /// this distinguish it from other failures.
    pub is_unavailable: bool,
    /// `_meta`, a JSON object.
    pub meta: Option<RawJson>,
}

impl ToolOutput {
    /// A successful result of these content blocks.
    #[must_use]
    pub fn new(content: Vec<Content>) -> ToolOutput {
        ToolOutput { content, ..ToolOutput::default() }
    }

    /// Creates a result with one text block.
    pub fn text(text: impl Into<String>) -> ToolOutput {
        ToolOutput { content: vec![Content::text(text)], ..ToolOutput::default() }
    }

    /// Creates a failure with a message that the model can act on.
    pub fn error(text: impl Into<String>) -> ToolOutput {
        ToolOutput { is_error: true, ..ToolOutput::text(text) }
    }

    /// Creates a failure because a dependency of the tool is unavailable.
    pub fn unavailable(text: impl Into<String>) -> ToolOutput {
        ToolOutput { is_unavailable: true, ..ToolOutput::error(text) }
    }
}

setters! { impl Tool {
    /// Sets the display name.
    fn with_title(title: impl Into<String>) = Some(title.into());
    /// Sets the description.
    fn with_description(description: impl Into<String>) = Some(description.into());
    /// Sets the JSON Schema of the structured output.
    fn with_output_schema(output_schema: impl Into<RawJson>) = Some(output_schema.into());
    /// Sets the hints about the tool's behavior.
    fn with_hints(hints: ToolHints) = hints;
    /// Sets the icons.
    fn with_icons(icons: Vec<Icon>) = icons;
    /// Sets whether a call may run as a task.
    fn with_task_support(task_support: TaskSupport) = task_support;
    /// Sets `_meta`, a JSON object.
    fn with_meta(meta: impl Into<RawJson>) = Some(meta.into());
} }

setters! { impl ToolHints {
    /// Sets the display name.
    fn with_title(title: impl Into<String>) = Some(title.into());
    /// Sets whether the tool only reads.
    fn with_read_only(read_only: bool) = Some(read_only);
    /// Sets whether the tool may delete or overwrite something.
    fn with_destructive(destructive: bool) = Some(destructive);
    /// Sets whether calling the tool twice has the effect of calling it once.
    fn with_idempotent(idempotent: bool) = Some(idempotent);
    /// Sets whether the tool reaches beyond its server, for example to the web.
    fn with_open_world(open_world: bool) = Some(open_world);
} }

setters! { impl ToolOutput {
    /// Sets the content blocks.
    fn with_content(content: Vec<Content>) = content;
    /// Sets the structured content, a JSON object that fits the tool's output schema.
    fn with_structured_content(structured_content: impl Into<RawJson>) = Some(structured_content.into());
    /// Sets `_meta`, a JSON object.
    fn with_meta(meta: impl Into<RawJson>) = Some(meta.into());
} }
