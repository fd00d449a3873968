//! The canonical words: what every edition says, in the shape of the newest.
//!
//! Nothing here can be serialized: the writers in `codec` decide, per edition, what of a value exists.
//! Fields are public, because a value is data and not a promise; what must hold is said on the field.

mod ask;
mod call;
mod capability;
mod content;
mod notice;
mod outcome;
mod prompt;
mod resource;
mod task;
mod tool;

pub use ask::{
    Answer, Ask, AskKind, Elicit, ElicitAnswer, Form, ModelPreferences, Root, Sample, Sampled, SamplingBlock,
    SamplingMessage, ToolChoice,
};
pub use call::{Call, Completing, Filter, Hello, Reference, Retry};
pub use capability::{
    ClientCapabilities, ElicitationCapability, Implementation, SamplingCapability, ServerCapabilities,
    TaskCapability,
};
pub use content::{Annotations, Content, ContentKind, Contents, ContentsBody, Icon, Role};
pub use notice::{LogLevel, Notice};
pub use outcome::{CacheHint, CacheScope, Completion, Discovery, InputRequired, Outcome, Page, Welcome};
pub use prompt::{Prompt, PromptArgument, PromptMessage, PromptOutput};
pub use resource::{Resource, ResourceTemplate};
pub use task::{Task, TaskEnd, TaskState};
pub use tool::{TaskSupport, Tool, ToolHints, ToolOutput};
