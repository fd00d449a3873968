//! Public modules for types that are rarely named.

/// Types that methods of [`Context`](crate::Context) return.
pub mod context {
    pub use crate::handler::{Notifier, SamplingBuilder, SessionError, SessionState};
}

/// Traits of the types that handlers return.
pub mod output {
    pub use crate::handler::{IntoCompletion, IntoContents, IntoOutput, IntoPrompt};
}
