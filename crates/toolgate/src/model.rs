//! Types of the protocol that handlers use: content blocks, messages, descriptions of tools, resources and prompts.
//!
//! Later protocol versions may add fields and variants, so these types are `#[non_exhaustive]`. Create them with their
//! constructors and `with_…` methods:
//!
//! ```
//! use toolgate::model::{Annotations, Content, Role, ToolOutput};
//!
//! let for_users = Annotations::default().with_audience(vec![Role::User]);
//! let report = Content::text("42 rows").with_annotations(for_users);
//! let output = ToolOutput::new(vec![report]).with_structured_content(serde_json::json!({ "rows": 42 }));
//! # assert_eq!(output.content[0].as_text(), Some("42 rows"));
//! ```

pub use toolgate_wire::model::{
    Annotations, CacheScope, ClientCapabilities, Completion, CompletionReference, Content, ContentKind,
    ElicitationCapability, Icon, Implementation, LogLevel, ModelPreferences, Prompt, PromptArgument,
    PromptMessage, PromptOutput, Resource, ResourceBody, ResourceContents, ResourceTemplate, Role, Root,
    SamplingBlock, SamplingCapability, SamplingMessage, SamplingRequest, SamplingResult, ServerCapabilities,
    TaskCapability, TaskStatus, TaskSupport, Tool, ToolChoice, ToolHints, ToolOutput,
};
