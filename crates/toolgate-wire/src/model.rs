//! The canonical words: what every edition says, in the shape of the newest.
//!
//! Nothing here can be serialized: the writers in `codec` decide, per edition, what of a value exists.
//! Fields are public, because a value is data and not a promise; what must hold is said on the field.

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
