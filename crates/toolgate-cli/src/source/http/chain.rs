//! Two requests that are one tool: what the first answers is an argument of the second.

use serde_json::{Map, Value};
use toolgate::{Context, HandlerError};

use super::HttpBackend;
use crate::source::{BackendFuture, ToolBackend};

/// What the second request knows the answer of the first by.
pub(crate) const FIRST_RESULT_ARGUMENT: &str = "first";

/// See the module.
pub(crate) struct ChainBackend {
    pub(crate) first: HttpBackend,
    pub(crate) second: HttpBackend,
}

impl ToolBackend for ChainBackend {
    /// Cancel safe: no; the second request may be missing then, as it may when the program is killed.
    fn execute<'a>(&'a self, cx: &'a Context, arguments: &'a Map<String, Value>) -> BackendFuture<'a> {
        Box::pin(async move {
            let first = self.first.execute(cx, arguments).await?;
            if first.is_error {
                return Ok(first);
            }
            let mut known = arguments.clone();
            let answer = first.structured_content.map(|answer| answer.to_value()).unwrap_or_default();
            // The members of an object would become fields that nobody has written.
            if answer.is_object() && self.second.writes_as_text(FIRST_RESULT_ARGUMENT) {
                return Err(HandlerError::new(
                    "the first request answered with an object, which fits only in JSON: `pick` what is meant of it",
                ));
            }
            known.insert(FIRST_RESULT_ARGUMENT.into(), answer);
            self.second.execute(cx, &known).await
        })
    }

    fn output_schema(&self) -> Option<Value> {
        self.second.output_schema()
    }
}
