//! Two HTTP requests as one tool: the result of the first is an argument of the second.

use serde_json::{Map, Value};
use toolgate::{Context, HandlerError};

use super::HttpBackend;
use crate::source::{BackendFuture, ToolBackend};

/// The argument of the second request that holds the result of the first.
pub const FIRST_RESULT_ARGUMENT: &str = "first";

/// A tool that sends two requests in sequence.
pub struct ChainBackend {
    pub first: HttpBackend,
    pub second: HttpBackend,
}

impl ToolBackend for ChainBackend {
    /// Cancel safe: no, because a dropped call may have sent the first request without the second.
    fn execute<'a>(&'a self, cx: &'a Context, arguments: &'a Map<String, Value>) -> BackendFuture<'a> {
        Box::pin(async move {
            let first = self.first.execute(cx, arguments).await?;
            if first.is_error {
                return Ok(first);
            }
            let mut second_arguments = arguments.clone();
            let result = first.structured_content.map(|result| result.to_value()).unwrap_or_default();
            // As text, the members of an object would become fields that no description names.
            if result.is_object() && self.second.writes_as_text(FIRST_RESULT_ARGUMENT) {
                return Err(HandlerError::new(
                    "the first request returned an object, which can only be sent as JSON; select a value with `pick`",
                ));
            }
            second_arguments.insert(FIRST_RESULT_ARGUMENT.into(), result);
            self.second.execute(cx, &second_arguments).await
        })
    }

    fn output_schema(&self) -> Option<Value> {
        self.second.output_schema()
    }
}
