//! The protocol's data types, common to all protocol versions, in the shape of the newest.
//!
//! These types do not implement `Serialize`: the writers in `codec` decide which fields a protocol version has. Fields are
//! public, since the types are plain data; a field with an invariant documents it.

mod call;
mod capability;
mod content;
mod notification;
mod outcome;
mod prompt;
mod resource;
mod server_request;
mod task;
mod tool;

pub use call::{Call, CompleteParams, CompletionReference, InitializeParams, Retry, SubscriptionFilter};
pub use capability::{
    ClientCapabilities, ElicitationCapability, Implementation, SamplingCapability, ServerCapabilities,
    TaskCapability,
};
pub use content::{Annotations, Content, ContentKind, Icon, ResourceBody, ResourceContents, Role};
pub use notification::{LogLevel, Notification};
pub use outcome::{
    CacheHint, CacheScope, Completion, DiscoverResult, InitializeResult, InputRequired, Outcome, Page,
};
pub use prompt::{Prompt, PromptArgument, PromptMessage, PromptOutput};
pub use resource::{Resource, ResourceTemplate};
pub use server_request::{
    ClientResult, ElicitForm, ElicitRequest, ElicitResult, ModelPreferences, Root, SamplingBlock,
    SamplingMessage, SamplingRequest, SamplingResult, ServerRequest, ServerRequestKind, ToolChoice,
};
pub use task::{Task, TaskOutcome, TaskStatus};
pub use tool::{TaskSupport, Tool, ToolHints, ToolOutput};
