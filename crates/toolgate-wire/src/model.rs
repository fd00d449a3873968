//! The canonical words: what every edition says, in the shape of the newest.
//!
//! Nothing here can be serialized: the writers in `codec` decide, per edition, what of a value exists.
//! Fields are public, because a value is data and not a promise; what must hold is said on the field.

mod server_request;
mod call;
mod capability;
mod content;
mod notification;
mod outcome;
mod prompt;
mod resource;
mod task;
mod tool;

pub use server_request::{
    ClientResult, ServerRequest, ServerRequestKind, ElicitRequest, ElicitResult, ElicitForm, ModelPreferences, Root, SamplingRequest, SamplingResult, SamplingBlock,
    SamplingMessage, ToolChoice,
};
pub use call::{Call, CompleteParams, SubscriptionFilter, InitializeParams, CompletionReference, Retry};
pub use capability::{
    ClientCapabilities, ElicitationCapability, Implementation, SamplingCapability, ServerCapabilities,
    TaskCapability,
};
pub use content::{Annotations, Content, ContentKind, ResourceContents, ResourceBody, Icon, Role};
pub use notification::{LogLevel, Notification};
pub use outcome::{CacheHint, CacheScope, Completion, DiscoverResult, InputRequired, Outcome, Page, InitializeResult};
pub use prompt::{Prompt, PromptArgument, PromptMessage, PromptOutput};
pub use resource::{Resource, ResourceTemplate};
pub use task::{Task, TaskOutcome, TaskStatus};
pub use tool::{TaskSupport, Tool, ToolHints, ToolOutput};
