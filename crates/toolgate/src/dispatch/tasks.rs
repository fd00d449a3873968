//! Tools that run as tasks, and calls that concern existing tasks.

use std::future::{poll_fn, ready};
use std::sync::Arc;
use std::task::{Poll, ready as poll_ready};

use toolgate_wire::model::{
    CacheHint, Call, ClientCapabilities, ClientResult, Outcome, Page, ServerRequest, TaskSupport,
};
use toolgate_wire::{ProtocolError, ProtocolErrorKind, RawJson, meta_key};

use super::arguments::Coercion;
use super::guarded::check_replay_state;
use super::pending::{PendingCall, begin_tool};
use crate::handler::{ClientChannel, Context, HandlerEnv};
use crate::observe::{CallOutcome, EndStatus, ErrorCode, Observer, TaskRunInfo};
use crate::registry::{Registry, ToolEntry, validate_elicitation};
use crate::request::{BoxFuture, CallError, Caller, ClientTaskSupport, task_owner};
use crate::task::{TaskExecutor, TaskRequest, TaskRun, Tasks};
use crate::util::sharded::AlignedArc;

/// How a tool runs.
pub(super) enum ExecutionMode {
    /// In the call that requested it.
    Inline,
    /// As a task. `ttl`: the TTL that the client requests, in milliseconds.
    Task { ttl: Option<u64> },
    /// In the call, until its handler defers it to a task.
    Deferrable,
}

impl ExecutionMode {
    /// Decides how a tool runs. `requested` is the `task` member of the request: the TTL, if it has one.
    pub(super) fn new(
        entry: &ToolEntry,
        caller: &Caller,
        requested: Option<Option<u64>>,
    ) -> Result<ExecutionMode, ProtocolError> {
        let name = &entry.tool.name;
        let reject = |message: &str| {
            Err(ProtocolError::new(ProtocolErrorKind::MethodNotFound, format!("tool `{name}` {message}")))
        };
        match (entry.tool.task_support, caller.task_support) {
            (TaskSupport::Forbidden, ClientTaskSupport::OnRequest) if requested.is_some() => {
                reject("does not support tasks")
            }
            (TaskSupport::Forbidden, _) => Ok(ExecutionMode::Inline),
            (_, ClientTaskSupport::ServerChoice) if entry.is_deferrable => Ok(ExecutionMode::Deferrable),
            (_, ClientTaskSupport::ServerChoice) => Ok(ExecutionMode::Task { ttl: None }),
            (support, ClientTaskSupport::OnRequest) => match (requested, support) {
                (Some(ttl), _) => Ok(ExecutionMode::Task { ttl }),
                (None, TaskSupport::Required) => reject("must run as a task: call it with `task`"),
                (None, _) => Ok(ExecutionMode::Inline),
            },
            (TaskSupport::Optional, _) => Ok(ExecutionMode::Inline),
            (TaskSupport::Required, ClientTaskSupport::Undeclared) => Err(tasks_undeclared()),
            (TaskSupport::Required, ClientTaskSupport::Unsupported) => {
                reject("must run as a task, which this protocol version does not support")
            }
        }
    }
}

/// The error for a client that does not declare the tasks extension.
pub(crate) fn tasks_undeclared() -> ProtocolError {
    let mut missing = ClientCapabilities::default();
    missing.extensions.insert(meta_key::TASKS_EXTENSION.to_owned(), RawJson::empty_object());
    ProtocolError::missing_capability(&missing, "the client does not declare the tasks extension")
}

/// Serves a call that concerns an existing task: get, update, cancel, list, result.
pub(super) fn begin_task_query(
    tasks: &Arc<Tasks>,
    call: Call,
    caller: &Caller,
    channel: Arc<dyn ClientChannel>,
) -> Result<PendingCall, CallError> {
    if caller.task_support == ClientTaskSupport::Undeclared {
        return Err(tasks_undeclared().into());
    }
    let is_core = caller.task_support == ClientTaskSupport::OnRequest;
    let is_identified = caller.owner.is_some() || caller.principal.id().is_some();
    let owner = caller.owner.clone().unwrap_or_else(|| task_owner(&caller.principal, None));
    let tasks = Arc::clone(tasks);
    let future: BoxFuture<'static, Result<Outcome, CallError>> = match call {
        Call::GetTask { id } => Box::pin(async move {
            let task = tasks.get(&owner, &id).await?;
            Ok(Outcome::TaskStatus(Box::new(task)))
        }),
        Call::UpdateTask { id, input_responses } => Box::pin(async move {
            tasks.update(&owner, &id, input_responses).await?;
            Ok(Outcome::Empty)
        }),
        Call::CancelTask { id } => Box::pin(async move {
            let (task, is_new) = tasks.cancel(&owner, &id).await?;
            match (is_core, is_new) {
                // Spec, core tasks: the result is the task, and one that has ended cannot be cancelled.
                (true, true) => Ok(Outcome::TaskStatus(Box::new(task))),
                (true, false) => {
                    let message = format!("the task has already ended: {}", task.status.name());
                    Err(ProtocolError::invalid_params(message).into())
                }
                (false, _) => Ok(Outcome::Empty),
            }
        }),
        // Spec, core tasks: a requester that cannot be identified gets no list.
        Call::ListTasks { .. } if !is_identified => {
            let page = Page { items: Vec::new(), next_cursor: None, cache: CacheHint::default() };
            Box::pin(ready(Ok(Outcome::Tasks(page))))
        }
        Call::ListTasks { cursor } => Box::pin(async move {
            let page = tasks.list(&owner, cursor.as_deref()).await?;
            Ok(Outcome::Tasks(page))
        }),
        Call::TaskResult { id } => Box::pin(async move { tasks.result(&owner, &id, &*channel).await }),
        other => return Err(ProtocolError::method_not_found(other.method()).into()),
    };
    Ok(PendingCall::Task { entry: None, future })
}

/// Runs the tools of tasks, like the dispatcher but without a request.
#[derive(Debug)]
pub(crate) struct ToolTaskExecutor {
    pub(crate) registry: Arc<Registry>,
    pub(crate) env: Arc<HandlerEnv>,
    pub(crate) is_strict: bool,
    pub(crate) observer: Observer,
    /// The name of the server, for log lines.
    pub(crate) server: Arc<str>,
}

impl ToolTaskExecutor {
    /// Creates the span of a task's run, with the name and the fields of the span of a call.
    fn task_span(&self, tool: &str, caller: &Caller) -> tracing::Span {
        tracing::debug_span!(
            target: "toolgate::call",
            "call",
            server = &*self.server,
            method = "tools/call",
            subject = tool,
            principal = caller.principal.id(),
            protocol_version = caller.client.protocol_version.as_str(),
            is_task = true,
        )
    }
}

impl TaskExecutor for ToolTaskExecutor {
    fn start(&self, run: TaskRun) -> Option<BoxFuture<'static, Result<Outcome, CallError>>> {
        let TaskRun { id, tool, arguments, caller, channel, cancel, timeout, deadline } = run;
        let entry = Arc::clone(self.registry.snapshot().tools.get(&tool)?);
        let mut observed = self.observer.begin_task_run(&TaskRunInfo {
            task_id: &id,
            tool: &tool,
            arguments: &arguments,
            is_destructive: entry.tool.hints.destructive == Some(true),
            headers: &caller.headers,
            remote: caller.remote_addr,
            principal: &caller.principal,
            deadline,
        });
        let coercion = Coercion::new(self.is_strict, &caller);
        let timeout = entry.timeout.unwrap_or(timeout);
        let span = self.task_span(&tool, &caller);
        let env = AlignedArc::new_ref(&self.env);
        let cx = Context::new(Box::new(caller), channel, cancel, env, timeout);
        Some(match check_replay_state(&**cx.client_channel()) {
            Ok(()) => {
                let mut call = span.in_scope(|| begin_tool(entry, arguments, coercion, cx, None));
                Box::pin(poll_fn(move |task| {
                    let result = poll_ready!(span.in_scope(|| call.poll(task)));
                    observed.end(run_status(&result, call.abnormal_end()));
                    Poll::Ready(result)
                }))
            }
            Err(error) => {
                let result = Err(error);
                observed.end(run_status(&result, None));
                Box::pin(ready(result))
            }
        })
    }

    fn is_resumable(&self, tool: &str) -> bool {
        self.registry.snapshot().tools.get(tool).is_some_and(|entry| entry.is_resumable)
    }

    fn is_valid_response(&self, request: &ServerRequest, response: &ClientResult) -> bool {
        validate_elicitation(request, response).is_ok()
    }
}

/// How the run of a tool ended.
fn run_status(result: &Result<Outcome, CallError>, abnormal_end: Option<CallOutcome>) -> EndStatus<'_> {
    let (code, message) = match result {
        Ok(_) => return EndStatus::Ok,
        Err(CallError::Cancelled) => return EndStatus::Cancelled,
        Err(CallError::Tool(_, output)) => {
            let text = output.content.first().and_then(|content| content.as_text());
            (ErrorCode::ToolError, text.unwrap_or_default())
        }
        // The code depends on the protocol version of the client that fetches the result.
        Err(CallError::Protocol(error)) => (ErrorCode::Number(0), error.message()),
        Err(CallError::InputRequired | CallError::Deferred) => {
            (ErrorCode::ToolError, "the tool sent a request that tasks do not support")
        }
    };
    EndStatus::failed(code, message, abnormal_end)
}

/// Creates a task, whose handle is the outcome. `deferred`: the tool, if it ran in the call before.
pub(super) fn begin_task(
    tasks: &Tasks,
    deferred: Option<Arc<ToolEntry>>,
    request: TaskRequest,
) -> PendingCall {
    let created = tasks.create(request);
    PendingCall::Task {
        entry: deferred,
        future: Box::pin(async move { created.await.map(Outcome::TaskStarted) }),
    }
}
