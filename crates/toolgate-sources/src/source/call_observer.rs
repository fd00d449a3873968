//! Reports how long calls of backends take.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

/// Receives the duration of each HTTP request and SQL statement.
pub trait CallObserver: fmt::Debug + Send + Sync + 'static {
    /// Whether calls are recorded at the moment. If not, they are not measured.
    fn is_enabled(&self) -> bool;

    /// Records a call.
    fn record(&self, call: &ObservedCall<'_>);
}

/// A call that has ended.
pub struct ObservedCall<'a> {
    pub kind: CallKind,
    pub duration: Duration,
    pub is_ok: bool,
    /// Describes the call, without arguments. The parameter states whether texts, such as a statement, may be included.
    pub details: &'a dyn Fn(bool) -> Value,
}

/// The kind of backend that was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    Http,
    Sql,
}
