//! A call between its start and its outcome.

use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};

use toolgate_wire::model::{CacheHint, Completion, Outcome, Prompt, PromptOutput, Tool, ToolOutput};
use toolgate_wire::{ProtocolError, RawJson};

use super::arguments::{Coercion, deserialization_errors, invalid_arguments};
use super::guarded::{GuardedHandler, TOOL_KIND, handler_protocol_error, tool_error};
use super::layered::run_tool;
use super::tasks::begin_task;
use crate::handler::{Context, ErrorReply, ExtractError, HandlerFailure, ReadOutcome};
use crate::observe::{CallOutcome, Subject};
use crate::registry::ToolEntry;
use crate::request::{BoxFuture, CallError, ToolFailure};
use crate::seal::error_reference;
use crate::task::{TaskRequest, Tasks};

/// A call that was begun, and is driven by polling.
pub(crate) enum PendingCall {
    Done(Outcome),
    Tool {
        entry: Arc<ToolEntry>,
        arguments: RawJson,
        handler: GuardedHandler<ToolOutput>,
        coercion: Coercion,
        /// Where it can continue as a task.
        defer_to: Option<Arc<Tasks>>,
    },
    /// A new task, or a call that concerns an existing one. `entry`: the tool, if it ran in this call before it was deferred.
    Task {
        entry: Option<Arc<ToolEntry>>,
        future: BoxFuture<'static, Result<Outcome, CallError>>,
    },
    Read {
        uri: String,
        cache: CacheHint,
        handler: GuardedHandler<ReadOutcome>,
    },
    Prompt {
        prompt: Arc<Prompt>,
        handler: GuardedHandler<PromptOutput>,
    },
    Complete(GuardedHandler<Vec<String>>),
}

impl PendingCall {
    /// The tool that is about to run in this call.
    pub(crate) fn started_tool(&self) -> Option<&Tool> {
        match self {
            PendingCall::Tool { entry, .. } => Some(&entry.tool),
            _ => None,
        }
    }

    /// How the handler ended, if it panicked or timed out.
    pub(crate) fn abnormal_end(&self) -> Option<CallOutcome> {
        match self {
            PendingCall::Tool { handler, .. } => handler.abnormal_end(),
            PendingCall::Read { handler, .. } => handler.abnormal_end(),
            PendingCall::Prompt { handler, .. } => handler.abnormal_end(),
            PendingCall::Complete(handler) => handler.abnormal_end(),
            PendingCall::Done(_) | PendingCall::Task { .. } => None,
        }
    }

    /// The tool, resource or prompt that runs in this call.
    pub(crate) fn subject(&self) -> Option<Subject<'_>> {
        match self {
            PendingCall::Tool { entry, .. } | PendingCall::Task { entry: Some(entry), .. } => {
                Some(Subject::Tool(&entry.tool.name))
            }
            PendingCall::Read { uri, .. } => Some(Subject::Resource(uri)),
            PendingCall::Prompt { prompt, .. } => Some(Subject::Prompt(&prompt.name)),
            PendingCall::Done(_) | PendingCall::Complete(_) | PendingCall::Task { entry: None, .. } => None,
        }
    }

    /// Polls for the outcome. Not `async`, so that only this value is kept while the call waits.
    ///
    /// Cancel safe: yes, dropping the call drops the handler.
    pub(crate) fn poll(&mut self, task: &mut TaskContext<'_>) -> Poll<Result<Outcome, CallError>> {
        match ready!(self.poll_once(task)) {
            Err(CallError::Deferred) => {
                *self = self.to_task()?;
                self.poll_once(task)
            }
            result => Poll::Ready(result),
        }
    }

    /// Converts the call to a task, in which the handler runs again with its recorded values.
    fn to_task(&self) -> Result<PendingCall, CallError> {
        match self {
            PendingCall::Tool { entry, arguments, handler, defer_to: Some(tasks), .. } => {
                let request = TaskRequest {
                    tool: entry.tool.name.clone(),
                    arguments: arguments.clone(),
                    caller: handler.cx.caller().clone(),
                    ttl: None,
                    default_ttl: entry.task_ttl,
                    timeout: None,
                    replay_state: handler.cx.client_channel().replay_state(),
                    session: handler.cx.client_channel().session(),
                };
                Ok(begin_task(tasks, Some(Arc::clone(entry)), request))
            }
            _ => Err(ProtocolError::internal(&error_reference()).into()),
        }
    }

    fn poll_once(&mut self, task: &mut TaskContext<'_>) -> Poll<Result<Outcome, CallError>> {
        Poll::Ready(match self {
            PendingCall::Done(outcome) => Ok(std::mem::replace(outcome, Outcome::Empty)),
            PendingCall::Task { future, .. } => return future.as_mut().poll(task),
            PendingCall::Tool { entry, arguments, handler, coercion, .. } => loop {
                let start = entry.poll_watch.begin();
                let polled = handler.poll(task);
                entry.poll_watch.end(start, TOOL_KIND, &entry.tool.name);
                let end = ready!(polled);
                let result = handler.resolve(&entry.tool.name, end)?;
                // Deserialization rejected the arguments, so the handler has not run. It is started once more with coerced
                // arguments.
                if let Err(HandlerFailure::Extract(ExtractError::Arguments(_))) = &result
                    && let Some(coerced) =
                        std::mem::replace(coercion, Coercion::Never).coerce(entry, arguments)
                {
                    *arguments = coerced;
                    *handler = GuardedHandler::start(TOOL_KIND, handler.cx.clone(), |cx| {
                        run_tool(entry, cx, arguments, Coercion::Never)
                    })?;
                    continue;
                }
                break finish_tool(entry, arguments, &handler.cx, result);
            },
            PendingCall::Read { uri, cache, handler } => {
                let end = ready!(handler.poll_watched(uri, task));
                match handler.resolve(uri, end)? {
                    Ok(ReadOutcome::Contents(contents)) => {
                        Ok(Outcome::ReadResource { contents, cache: *cache })
                    }
                    // Variables that do not fit the handler's type match no resource.
                    Ok(ReadOutcome::NotFound) | Err(HandlerFailure::Extract(ExtractError::Arguments(_))) => {
                        Err(ProtocolError::resource_not_found(uri).into())
                    }
                    Err(failure) => Err(handler_protocol_error("resource", uri, failure).into()),
                }
            }
            PendingCall::Prompt { prompt, handler } => {
                let name = &prompt.name;
                let end = ready!(handler.poll_watched(name, task));
                match handler.resolve(name, end)? {
                    // The registered description is the default.
                    Ok(mut output) => {
                        output.description = output.description.or_else(|| prompt.description.clone());
                        Ok(Outcome::Prompt(output))
                    }
                    Err(failure) => Err(handler_protocol_error("prompt", name, failure).into()),
                }
            }
            PendingCall::Complete(handler) => {
                let end = ready!(handler.poll_watched("", task));
                match handler.resolve("", end)? {
                    Ok(values) => Ok(Outcome::Completion(completion(values))),
                    Err(failure) => finish_failed_completion(failure),
                }
            }
        })
    }
}

/// Converts the result of a tool handler.
fn finish_tool(
    entry: &ToolEntry,
    arguments: &RawJson,
    cx: &Context,
    result: Result<ToolOutput, HandlerFailure>,
) -> Result<Outcome, CallError> {
    let name = &entry.tool.name;
    match result {
        // A failure, even if the handler returned `Ok`: some dialects have an error code for it.
        Ok(output) if output.is_error => {
            let failure =
                if output.is_unavailable { ToolFailure::Unavailable } else { ToolFailure::ReturnedError };
            Err(CallError::Tool(failure, Box::new(output)))
        }
        Ok(output) => {
            let validator = entry.output_validator.as_ref();
            match validator.and_then(|validator| validator.find_error(&output, cx.layers().is_some())) {
                None => Ok(Outcome::Tool(output)),
                Some(error) => {
                    let reference = error_reference();
                    tracing::error!(tool = %name, reference, error, "the output does not fit its schema");
                    let message = format!(
                        "the tool returned a result that does not match its output schema, ref {reference}"
                    );
                    let failure = ToolFailure::Internal { reference: Some(reference.into()) };
                    Err(CallError::Tool(failure, Box::new(ToolOutput::error(message))))
                }
            }
        }
        Err(HandlerFailure::Returned(error)) => Err(tool_error(name, error)),
        Err(HandlerFailure::Extract(ExtractError::Arguments(error))) => {
            Err(invalid_arguments(deserialization_errors(entry, arguments, cx.caller(), error)))
        }
        Err(failure @ HandlerFailure::Extract(ExtractError::MissingState(_))) => {
            Err(handler_protocol_error("tool", name, failure).into())
        }
    }
}

/// Converts the failure of a completer: a user who types gets no suggestions, unless the completer chose a protocol error.
fn finish_failed_completion(failure: HandlerFailure) -> Result<Outcome, CallError> {
    if let HandlerFailure::Returned(error) = failure {
        let (message, sources) = (error.to_string(), error.source_chain());
        match error.into_reply() {
            ErrorReply::Protocol(error) => return Err(error.into()),
            ErrorReply::Output(_) => tracing::debug!(message, sources, "the completer returned an error"),
        }
    }
    Ok(Outcome::Completion(completion(Vec::new())))
}

/// Limits completion values to the number that the protocol allows.
fn completion(mut values: Vec<String>) -> Completion {
    let total = values.len();
    values.truncate(Completion::MAX_VALUES);
    let has_more = total > values.len();
    Completion::new(values).with_total(u64::try_from(total).ok()).with_has_more(has_more)
}

/// Starts a tool. The replay state was checked before. `defer_to`: the tasks, if the handler may defer the call.
pub(super) fn begin_tool(
    entry: Arc<ToolEntry>,
    arguments: RawJson,
    coercion: Coercion,
    cx: Context,
    defer_to: Option<Arc<Tasks>>,
) -> PendingCall {
    let handler =
        GuardedHandler::start_unchecked(TOOL_KIND, cx, |cx| run_tool(&entry, cx, &arguments, coercion));
    // Behind layers, arguments are coerced where the handler is called, so that the layers do not run twice.
    let coercion = if handler.cx.layers().is_some() { Coercion::Never } else { coercion };
    PendingCall::Tool { entry, arguments, handler, coercion, defer_to }
}
