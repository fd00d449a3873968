//! What holds for all tools of a server: how many calls run at once, and how large a result may be.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use toolgate::HandlerError;
use toolgate::model::{Content, ContentKind, ResourceBody, ToolOutput};

use crate::config::ResponseLimit;
use crate::source::http::OnExceed;

/// How long a call waits for its turn.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
/// How many calls wait for each that runs, and how many in all.
const QUEUED_PER_RUNNING: usize = 4;
const MAX_QUEUED_CALLS: usize = 256;

/// Turns of the calls of one server.
pub(super) struct CallQueue {
    run_permits: Semaphore,
    /// Seats, and places to wait.
    admit_permits: Semaphore,
}

impl CallQueue {
    pub(super) fn new(at_once: usize) -> CallQueue {
        let queue = at_once.saturating_mul(QUEUED_PER_RUNNING).min(MAX_QUEUED_CALLS);
        CallQueue {
            run_permits: Semaphore::new(at_once),
            admit_permits: Semaphore::new(at_once.saturating_add(queue)),
        }
    }

    /// Waits for a turn. Who finds too many waiting already is told so, and who waits too long.
    ///
    /// Cancel safe: yes, because places are given back by guards.
    async fn acquire(&self) -> Result<(SemaphorePermit<'_>, SemaphorePermit<'_>), HandlerError> {
        let busy = || HandlerError::new("busy: too many calls are running; try again later");
        let place = self.admit_permits.try_acquire().map_err(|_| busy())?;
        match tokio::time::timeout(QUEUE_TIMEOUT, self.run_permits.acquire()).await {
            Ok(Ok(seat)) => Ok((place, seat)),
            _ => Err(busy()),
        }
    }
}

/// See the module.
#[derive(Clone, Default)]
pub(super) struct CallLimits {
    pub(super) queue: Option<Arc<CallQueue>>,
    pub(super) response_limit: Option<ResponseLimit>,
}

impl CallLimits {
    /// The same for tools whose calls run as tasks: what may take hours keeps nobody else waiting.
    pub(super) fn for_tasks(&self) -> CallLimits {
        CallLimits { queue: None, response_limit: self.response_limit }
    }

    /// Runs a call when it is its turn, and looks at what it gives.
    pub(super) async fn run(
        &self,
        run: impl Future<Output = Result<ToolOutput, HandlerError>>,
    ) -> Result<ToolOutput, HandlerError> {
        let _turn = match &self.queue {
            Some(turns) => Some(turns.acquire().await?),
            None => None,
        };
        let output = run.await?;
        match self.response_limit {
            Some(response) => enforce_response_limit(output, response),
            None => Ok(output),
        }
    }
}

/// A result that is not too large, or what can be said instead.
fn enforce_response_limit(
    output: ToolOutput,
    ResponseLimit { max_bytes: max, on_exceed }: ResponseLimit,
) -> Result<ToolOutput, HandlerError> {
    let structured = output.structured_content.as_ref().map_or(0, |structured| structured.as_bytes().len());
    let whole = output.content.iter().map(content_bytes).sum::<usize>().max(structured);
    if whole <= max {
        return Ok(output);
    }
    if on_exceed == OnExceed::Error {
        let said = format!("too large: the result has {whole} bytes, the limit is {max}; ask for less");
        return Err(HandlerError::new(said));
    }
    let mut left = max;
    let mut content = Vec::new();
    for mut block in output.content {
        if let ContentKind::Text(text) = &mut block.kind {
            text.truncate(text.floor_char_boundary(left.min(text.len())));
        } else if content_bytes(&block) > left {
            continue;
        }
        left -= content_bytes(&block);
        content.push(block);
    }
    content.push(Content::text(format!("[truncated: {max} of {whole} bytes are shown]")));
    // A part of structured output is none: who reads it by its schema is told that this is not it.
    let is_error = output.is_error || output.structured_content.is_some();
    Ok(ToolOutput {
        content,
        structured_content: None,
        is_error,
        is_unavailable: output.is_unavailable,
        meta: output.meta,
    })
}

pub(super) fn content_bytes(content: &Content) -> usize {
    match &content.kind {
        ContentKind::Text(text) => text.len(),
        ContentKind::Image { data, .. } | ContentKind::Audio { data, .. } => data.len(),
        ContentKind::Embedded(contents) => match &contents.body {
            ResourceBody::Text(text) => text.len(),
            ResourceBody::Blob(blob) => blob.len(),
        },
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_is_refused_or_cut() {
        let text = |text: &str| ToolOutput::text(text);
        let check = |output: ToolOutput, max_bytes, on_exceed| {
            enforce_response_limit(output, ResponseLimit { max_bytes, on_exceed })
        };
        assert_eq!(check(text("12345"), 5, OnExceed::Error).unwrap().content.len(), 1);
        let refused = check(text("123456"), 5, OnExceed::Error).unwrap_err().to_string();
        assert!(refused.contains("6 bytes, the limit is 5"), "{refused}");
        let cut = check(text("12é456"), 3, OnExceed::Truncate).unwrap();
        assert_eq!(cut.content[0].as_text(), Some("12"), "no letter is cut in two");
        assert!(cut.content[1].as_text().unwrap().contains("7 bytes") && !cut.is_error);
        let structured = ToolOutput {
            structured_content: Some(toolgate::RawJson::from(serde_json::json!([1, 2, 3, 4]))),
            ..text("1")
        };
        let cut = check(structured, 5, OnExceed::Truncate).unwrap();
        assert!(cut.structured_content.is_none() && cut.is_error);
    }
}
