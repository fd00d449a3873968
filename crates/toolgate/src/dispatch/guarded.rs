//! Running one handler: its panics are caught, its time is limited, and its end is converted.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, ready};

use tokio::time::Sleep;
use toolgate_wire::model::ToolOutput;
use toolgate_wire::{ProtocolError, ProtocolErrorKind};

use crate::handler::{ClientChannel, Context, ErrorReply, ExtractError, HandlerError, HandlerFailure};
use crate::observe::CallOutcome;
use crate::request::{BoxFuture, CallError, ToolFailure};
use crate::seal::error_reference;

/// The kind of handlers whose failures are results and not protocol errors.
pub(super) const TOOL_KIND: &str = "tool";

/// A handler whose panics are caught and whose time is limited, so that they cost only its own call.
pub(crate) struct GuardedHandler<T> {
    kind: &'static str,
    pub(super) cx: Context,
    /// The panic message if it panicked before its future existed: in the code of the closure, or reading arguments.
    future: Result<BoxFuture<'static, Result<T, HandlerFailure>>, String>,
    /// Created when the handler first has to wait: most handlers never do.
    sleep: Option<Pin<Box<Sleep>>>,
    /// The number of requests to the client when the timer was last set: time that the user takes to answer does not count.
    request_count: u32,
    /// Set when it panicked or timed out: what the client gets does not tell these from other failures.
    abnormal_end: Option<CallOutcome>,
}

impl<T> GuardedHandler<T> {
    pub(super) fn start(
        kind: &'static str,
        cx: Context,
        start: impl FnOnce(&Context) -> BoxFuture<'static, Result<T, HandlerFailure>>,
    ) -> Result<GuardedHandler<T>, CallError> {
        check_replay_state(&**cx.client_channel())?;
        Ok(GuardedHandler::start_unchecked(kind, cx, start))
    }

    /// Like [`GuardedHandler::start`], for callers that have checked the replay state.
    pub(super) fn start_unchecked(
        kind: &'static str,
        cx: Context,
        start: impl FnOnce(&Context) -> BoxFuture<'static, Result<T, HandlerFailure>>,
    ) -> GuardedHandler<T> {
        let future = std::panic::catch_unwind(AssertUnwindSafe(|| start(&cx)));
        GuardedHandler {
            kind,
            cx,
            future: future.map_err(|panic| panic_message(panic.as_ref())),
            sleep: None,
            request_count: 0,
            abnormal_end: None,
        }
    }

    /// Converts the end of the handler: to its result, or to the reason why the call stops.
    pub(super) fn resolve(
        &self,
        name: &str,
        end: HandlerEnd<T>,
    ) -> Result<Result<T, HandlerFailure>, CallError> {
        let GuardedHandler { kind, cx, .. } = self;
        match end {
            HandlerEnd::Returned(Err(failure)) => {
                match cx.client_channel().suspension_error() {
                    // It ended because an answer of the client is missing: that is not a failure.
                    Some(error) => Err(error),
                    None if cx.is_deferred() => Err(CallError::Deferred),
                    None => Ok(Err(failure)),
                }
            }
            HandlerEnd::Returned(returned) => Ok(returned),
            HandlerEnd::Panicked(panic) => {
                let reference = error_reference();
                tracing::error!(kind, name, reference, %panic, "handler panicked");
                let message = format!("the {kind} failed unexpectedly, ref {reference}");
                self.fail(ToolFailure::Internal { reference: Some(reference.into()) }, message)
            }
            HandlerEnd::TimedOut => {
                let limit = cx.timeout();
                tracing::warn!(kind, name, ?limit, "handler exceeded its time limit");
                self.fail(
                    ToolFailure::TimedOut,
                    format!("timeout: the {kind} did not finish within {limit:?}"),
                )
            }
        }
    }

    fn fail(&self, failure: ToolFailure, message: String) -> Result<Result<T, HandlerFailure>, CallError> {
        if self.kind == TOOL_KIND {
            Err(CallError::Tool(failure, Box::new(ToolOutput::error(message))))
        } else {
            Ok(Err(HandlerError::new(message).into()))
        }
    }

    /// How the handler ended, if it panicked or timed out.
    pub(super) fn abnormal_end(&self) -> Option<CallOutcome> {
        self.abnormal_end
    }

    /// Polls a handler that has no watch of its own; see [`PollWatch`](crate::util::poll_watch::PollWatch).
    pub(super) fn poll_watched(&mut self, name: &str, task: &mut TaskContext<'_>) -> Poll<HandlerEnd<T>> {
        let start = self.cx.poll_watch().begin();
        let polled = self.poll(task);
        self.cx.poll_watch().end(start, self.kind, name);
        polled
    }

    /// Polls the handler, catching panics and limiting its time.
    pub(super) fn poll(&mut self, task: &mut TaskContext<'_>) -> Poll<HandlerEnd<T>> {
        let end = ready!(self.poll_end(task));
        self.abnormal_end = match &end {
            HandlerEnd::Returned(_) => None,
            HandlerEnd::Panicked(_) => Some(CallOutcome::Panic),
            HandlerEnd::TimedOut => Some(CallOutcome::Timeout),
        };
        Poll::Ready(end)
    }

    fn poll_end(&mut self, task: &mut TaskContext<'_>) -> Poll<HandlerEnd<T>> {
        let future = match &mut self.future {
            Ok(future) => future,
            Err(message) => return Poll::Ready(HandlerEnd::Panicked(std::mem::take(message))),
        };
        match std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(task))) {
            Ok(Poll::Ready(returned)) => return Poll::Ready(HandlerEnd::Returned(returned)),
            Ok(Poll::Pending) => {}
            Err(panic) => return Poll::Ready(HandlerEnd::Panicked(panic_message(panic.as_ref()))),
        }
        let cx = &self.cx;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(cx.deadline())));
        // A handler that is always ready uses up tokio's cooperative budget of a poll. Without `unconstrained`, the timer
        // would then never fire.
        while std::pin::pin!(tokio::task::unconstrained(sleep.as_mut())).poll(task).is_ready() {
            let count = cx.request_count();
            if !cx.has_pending_request() && count == self.request_count {
                return Poll::Ready(HandlerEnd::TimedOut);
            }
            self.request_count = count;
            sleep.as_mut().reset(cx.reset_deadline());
        }
        Poll::Pending
    }
}

/// How a handler ended.
pub(super) enum HandlerEnd<T> {
    Returned(Result<T, HandlerFailure>),
    Panicked(String),
    TimedOut,
}

/// Converts the failure of a resource, prompt or completion handler. The caller gets the protocol error or the message of the
/// handler, but not which state the server lacks.
pub(super) fn handler_protocol_error(kind: &str, name: &str, failure: HandlerFailure) -> ProtocolError {
    let (message, sources) = match failure {
        HandlerFailure::Extract(ExtractError::MissingState(missing)) => {
            let reference = error_reference();
            tracing::error!(kind, name, reference, missing, "the server was built without this state");
            return ProtocolError::internal(&reference);
        }
        HandlerFailure::Extract(ExtractError::Arguments(message)) => {
            return ProtocolError::invalid_params(message);
        }
        HandlerFailure::Returned(error) => {
            let (message, sources) = (error.to_string(), error.source_chain());
            match error.into_reply() {
                ErrorReply::Protocol(error) => return error,
                ErrorReply::Output(_) => (message, sources),
            }
        }
    };
    tracing::warn!(kind, name, message, sources, "handler failed");
    ProtocolError::new(ProtocolErrorKind::Internal, message)
}

/// Converts the error that a tool returned. Its sources are logged, because the client gets only its message.
pub(super) fn tool_error(name: &str, error: HandlerError) -> CallError {
    if let Some(sources) = error.source_chain() {
        tracing::warn!(tool = name, message = %error, sources, "the tool returned an error");
    }
    match error.into_reply() {
        ErrorReply::Protocol(error) => CallError::Protocol(error),
        ErrorReply::Output(output) => {
            let failure =
                if output.is_unavailable { ToolFailure::Unavailable } else { ToolFailure::ReturnedError };
            CallError::Tool(failure, output)
        }
    }
}

/// Checks the state that the client returned from an earlier run, before a handler runs with it: a handler that does not find
/// its earlier steps would repeat them.
pub(super) fn check_replay_state(channel: &dyn ClientChannel) -> Result<(), CallError> {
    channel.suspension_error().map_or(Ok(()), Err)
}

pub(super) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}
