//! The protocol's data types, common to all protocol versions, in the shape of the newest.
//!
//! These types do not implement `Serialize`: the writers in `codec` decide which fields a protocol version has. Fields are
//! public, since the types are plain data; a field with an invariant documents it.
//!
//! Types that users of `toolgate` construct or match are `#[non_exhaustive]`, because a protocol version may add fields
//! and variants: they have constructors and `with_…` methods. The others are used by `toolgate` only.

/// Writes methods that set one field each and return the value.
macro_rules! setters {
    (impl $type:ident {
        $($(#[$doc:meta])* fn $name:ident($field:ident: $value_type:ty) = $value:expr;)+
    }) => {
        impl $type {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $name(mut self, $field: $value_type) -> $type {
                    self.$field = $value;
                    self
                }
            )+
        }
    };
}

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
