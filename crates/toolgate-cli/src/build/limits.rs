//! Limits of all tools of a server: the number of concurrent calls and the size of results.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use toolgate::HandlerError;
use toolgate::model::{Content, ContentKind, ResourceBody, ToolOutput};
use toolgate_sources::source::http::OnExceed;

use crate::config::ResponseLimit;

/// How long a call waits in the queue.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of calls that may wait for each one that may run, up to [`MAX_QUEUED_CALLS`].
const QUEUED_PER_RUNNING: usize = 4;
const MAX_QUEUED_CALLS: usize = 256;

/// Limits the number of calls of one server that run and wait.
pub(super) struct ServerCallQueue {
    run_permits: Semaphore,
    /// Permits for calls that run or wait.
    admit_permits: Semaphore,
}

impl ServerCallQueue {
    pub(super) fn new(max_running: usize) -> ServerCallQueue {
        let queue = max_running.saturating_mul(QUEUED_PER_RUNNING).min(MAX_QUEUED_CALLS);
        ServerCallQueue {
            run_permits: Semaphore::new(max_running),
            admit_permits: Semaphore::new(max_running.saturating_add(queue)),
        }
    }

    /// Waits until the call may run. Fails if too many calls wait already, or after [`QUEUE_TIMEOUT`].
    ///
    /// Cancel safe: yes, because permits are released by guards.
    async fn acquire(&self) -> Result<(SemaphorePermit<'_>, SemaphorePermit<'_>), HandlerError> {
        let busy = || HandlerError::new("busy: too many calls are running; try again later");
        let admit_permit = self.admit_permits.try_acquire().map_err(|_| busy())?;
        match tokio::time::timeout(QUEUE_TIMEOUT, self.run_permits.acquire()).await {
            Ok(Ok(run_permit)) => Ok((admit_permit, run_permit)),
            _ => Err(busy()),
        }
    }
}

/// The limits of a server, which its tools share.
#[derive(Clone, Default)]
pub(super) struct CallLimits {
    pub(super) queue: Option<Arc<ServerCallQueue>>,
    pub(super) response_limit: Option<ResponseLimit>,
}

impl CallLimits {
    /// The limits of tools whose calls run as tasks: they may take hours, so they do not occupy the queue.
    pub(super) fn for_tasks(&self) -> CallLimits {
        CallLimits { queue: None, response_limit: self.response_limit }
    }

    /// Runs a call within the limits.
    pub(super) async fn run(
        &self,
        run: impl Future<Output = Result<ToolOutput, HandlerError>>,
    ) -> Result<ToolOutput, HandlerError> {
        let _permits = match &self.queue {
            Some(queue) => Some(queue.acquire().await?),
            None => None,
        };
        let output = run.await?;
        match self.response_limit {
            Some(limit) => enforce_response_limit(output, limit),
            None => Ok(output),
        }
    }
}

/// Rejects or truncates a result that is too large.
fn enforce_response_limit(
    mut output: ToolOutput,
    ResponseLimit { max_bytes, on_exceed }: ResponseLimit,
) -> Result<ToolOutput, HandlerError> {
    let structured = output.structured_content.as_ref().map_or(0, |structured| structured.as_bytes().len());
    let total_bytes = output.content.iter().map(content_bytes).sum::<usize>().max(structured);
    if total_bytes <= max_bytes {
        return Ok(output);
    }
    if on_exceed == OnExceed::Error {
        let message =
            format!("too large: the result has {total_bytes} bytes, the limit is {max_bytes}; ask for less");
        return Err(HandlerError::new(message));
    }
    let mut bytes_left = max_bytes;
    let mut content = Vec::new();
    for mut block in std::mem::take(&mut output.content) {
        if let ContentKind::Text(text) = &mut block.kind {
            text.truncate(text.floor_char_boundary(bytes_left.min(text.len())));
        } else if content_bytes(&block) > bytes_left {
            continue;
        }
        bytes_left -= content_bytes(&block);
        content.push(block);
    }
    content.push(Content::text(format!("[truncated: {max_bytes} of {total_bytes} bytes are shown]")));
    // Truncated structured output would not match its schema, so it is left out and the result is an error.
    let is_error = output.is_error || output.structured_content.is_some();
    output.content = content;
    output.structured_content = None;
    output.is_error = is_error;
    Ok(output)
}

pub(super) fn content_bytes(content: &Content) -> usize {
    match &content.kind {
        ContentKind::Text(text) => text.len(),
        ContentKind::Image { data, .. } | ContentKind::Audio { data, .. } => data.len(),
        ContentKind::Embedded(contents) => match &contents.body {
            ResourceBody::Text(text) => text.len(),
            ResourceBody::Blob(blob) => blob.len(),
            _ => 0,
        },
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_result_is_rejected_or_truncated() {
        let text = |text: &str| ToolOutput::text(text);
        let check = |output: ToolOutput, max_bytes, on_exceed| {
            enforce_response_limit(output, ResponseLimit { max_bytes, on_exceed })
        };
        assert_eq!(check(text("12345"), 5, OnExceed::Error).unwrap().content.len(), 1);
        let refused = check(text("123456"), 5, OnExceed::Error).unwrap_err().to_string();
        assert!(refused.contains("6 bytes, the limit is 5"), "{refused}");
        let cut = check(text("12é456"), 3, OnExceed::Truncate).unwrap();
        assert_eq!(cut.content[0].as_text(), Some("12"), "a character is not split");
        assert!(cut.content[1].as_text().unwrap().contains("7 bytes") && !cut.is_error);
        let structured = toolgate::RawJson::from(serde_json::json!([1, 2, 3, 4]));
        let structured = text("1").with_structured_content(structured);
        let cut = check(structured, 5, OnExceed::Truncate).unwrap();
        assert!(cut.structured_content.is_none() && cut.is_error);
    }
}
