//! The watch room: what a server counts, whom it tells, and what it writes down.
//!
//! Nothing here decides what a request means, and nothing here may slow one down: numbers are atomics, nobody
//! who listens is waited for without a limit, and what is written is written by a thread of its own.

mod event;
mod names;
mod stats;
mod timing;
mod view;

pub use event::Events;
pub(crate) use stats::{Began, Finished, Refusal, Stats, Subject, Verdict};
pub use view::{
    ErrorCode, ErrorStats, LastError, PromptStats, RequestStats, ResourceStats, SecurityStats, StatsDetail,
    StatsSummary, ToolCalls, ToolStats,
};
