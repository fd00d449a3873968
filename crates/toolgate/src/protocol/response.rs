//! Encoding of responses: from the outcome of a call to bytes and an HTTP status.

use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;
use toolgate_wire::model::{Outcome, ToolOutput};
use toolgate_wire::{ProtocolError, ProtocolErrorKind, ProtocolVersion, RequestId, codec};

use super::ask_retry::RetryChannel;
use super::in_flight::InFlightGuard;
use super::wire_format::WireFormat;
use super::{Protocol, Reply, ReplyKind, ServerInfo};
use crate::request::{CallError, ToolFailure};
use crate::seal::error_reference;
use crate::util::cancel::{Cancel, CancelOnDrop};
use crate::util::segments::Segments;

/// The context for encoding the response to a request when its call has ended.
pub(crate) struct ResponseContext {
    pub(super) wire_format: WireFormat,
    pub(super) id: RequestId,
    pub(crate) method: &'static str,
    /// Entered while the call is polled.
    pub(crate) span: tracing::Span,
    /// The requests to the client that its next attempt must answer.
    pub(super) retry_channel: Option<Arc<RetryChannel>>,
    /// Keeps the request cancellable while it runs.
    pub(super) _in_flight: Option<InFlightGuard>,
    /// Cancels work that was moved to other tasks if the call is dropped.
    pub(super) cancel_on_drop: CancelOnDrop,
}

impl ResponseContext {
    /// The cancellation of the request.
    pub(crate) fn cancellation(&self) -> &Cancel {
        self.cancel_on_drop.cancellation()
    }
}

impl Protocol {
    /// Encodes the response to a request that the dispatcher has served. A result that is too large becomes an error.
    pub(crate) fn encode_result(
        &self,
        context: &ResponseContext,
        result: Result<Outcome, CallError>,
    ) -> Reply {
        let reply = self.encode_unlimited(context, result);
        match &reply {
            Reply::Body { body, .. } if body.len() > self.max_result_bytes => {
                let bytes = body.len();
                self.too_large_error(context, bytes)
                    .map_or(reply, |error| self.encode_unlimited(context, Err(error)))
            }
            _ => reply,
        }
    }

    /// The error in place of a result of this size. `None` if such results are not limited.
    #[cold]
    fn too_large_error(&self, context: &ResponseContext, bytes: usize) -> Option<CallError> {
        let (method, limit) = (context.method, self.max_result_bytes);
        let message = format!("the result has {bytes} bytes, the limit is {limit}; ask for less");
        let error = match method {
            "tools/call" => CallError::Tool(ToolFailure::ReturnedError, Box::new(ToolOutput::error(message))),
            "resources/read" | "prompts/get" => {
                ProtocolError::new(ProtocolErrorKind::Internal, message).into()
            }
            _ => return None,
        };
        tracing::warn!(method, bytes, limit, "a result is too large; `Builder::result_limit` sets the limit");
        Some(error)
    }

    fn encode_unlimited(&self, context: &ResponseContext, result: Result<Outcome, CallError>) -> Reply {
        let ResponseContext { wire_format: format, id, method, retry_channel, .. } = context;
        let reject = |error: &ProtocolError| format.error_reply(Some(id), error);
        if let Some(error) = retry_channel.as_ref().and_then(|channel| channel.state_error()) {
            return reject(&error);
        }
        match result {
            Ok(outcome) => {
                if retry_channel.as_ref().is_some_and(|channel| channel.has_pending()) {
                    tracing::warn!(
                        method,
                        "a handler returned a result although its request to the client is pending"
                    );
                }
                self.reply(format, id, &outcome)
            }
            Err(CallError::Protocol(error)) => reject(&error),
            Err(CallError::Tool(failure, output)) => match format.tool_error(&failure, first_text(&output)) {
                Some(error) => reject(&error),
                None => self.reply(format, id, &Outcome::Tool(format.reword_failure(&failure, *output))),
            },
            Err(CallError::Cancelled) => Reply::NoResponse,
            // The dispatcher turns such a call into a task, so this does not happen.
            Err(CallError::Deferred) => reject(&ProtocolError::internal(&error_reference())),
            Err(CallError::InputRequired) => match retry_channel.as_ref().map(|channel| channel.suspend()) {
                Some(Ok(outcome)) => self.reply(format, id, &outcome),
                Some(Err(error)) => reject(&error),
                None => reject(&ProtocolError::internal(&error_reference())),
            },
        }
    }

    pub(super) fn reply(&self, format: &WireFormat, id: &RequestId, outcome: &Outcome) -> Reply {
        let body = self.encode_response(format, id, outcome, &self.server_info.load());
        let kind = match outcome {
            Outcome::Tool(output) if output.is_error => ReplyKind::ToolError(first_text(output).into()),
            _ => ReplyKind::Success,
        };
        Reply::Body { status: 200, body, session_id: None, kind }
    }

    /// Encodes a JSON-RPC response.
    pub(super) fn encode_response(
        &self,
        format: &WireFormat,
        id: &RequestId,
        outcome: &Outcome,
        server_info: &Arc<ServerInfo>,
    ) -> Segments {
        if let (
            WireFormat::Unversioned(Some(dialect)),
            Outcome::Prompt(_)
            | Outcome::ReadResource { .. }
            | Outcome::Completion(_)
            | Outcome::TaskCreated(_),
        ) = (format, outcome)
        {
            let mut out = begin_response(id);
            codec::write_unversioned_outcome(&mut out, dialect, outcome);
            out.push(b'}');
            return copy_scratch(out).into();
        }
        match self.list_cache.get_or_encode(format.version(), outcome, server_info) {
            Some(tail) => Segments { head: copy_scratch(begin_response(id)), tail },
            None => encode_versioned_response(format.version(), id, outcome, server_info),
        }
    }
}

/// Encodes a JSON-RPC response in the format of a protocol version.
pub(super) fn encode_versioned_response(
    version: ProtocolVersion,
    id: &RequestId,
    outcome: &Outcome,
    server_info: &ServerInfo,
) -> Segments {
    let mut out = begin_response(id);
    codec::write_outcome_from(&mut out, outcome, &server_info.encoded_info[version as usize]);
    out.push(b'}');
    copy_scratch(out).into()
}

/// Encodes an error response to a message of which at most the id was read.
pub(crate) fn encode_error(id: Option<&RequestId>, error: &ProtocolError) -> Bytes {
    let mut out = Vec::with_capacity(256);
    codec::write_protocol_error(&mut out, ProtocolVersion::LATEST, id, error);
    out.into()
}

/// The text that a tool's output starts with.
fn first_text(output: &ToolOutput) -> &str {
    output.content.first().and_then(|content| content.as_text()).unwrap_or_default()
}

/// Longer responses are not copied out of the scratch buffer; they take it along.
const MAX_COPIED_BYTES: usize = 4096;

thread_local! {
    /// Scratch buffer; the response is copied out once its length is known.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Takes the scratch buffer and writes a response up to its result.
fn begin_response(id: &RequestId) -> Vec<u8> {
    let mut out = SCRATCH.take();
    out.clear();
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    id.write(&mut out);
    out.extend_from_slice(b",\"result\":");
    out
}

fn copy_scratch(scratch: Vec<u8>) -> Bytes {
    if scratch.len() > MAX_COPIED_BYTES {
        return scratch.into();
    }
    let bytes = Bytes::copy_from_slice(&scratch);
    SCRATCH.set(scratch);
    bytes
}
