//! The hall: one wish in, one outcome out.
//!
//! Everything that depends on an edition has been taken off before and is put on again behind. A handler
//! that panics, hangs or fails costs its own call only.

use std::future::{poll_fn, ready as at_once};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Duration;

use tokio::time::Sleep;
use toolgate_wire::model::{
    CacheHint, Call, ClientCapabilities, ClientResult, CompleteParams, Completion, CompletionReference,
    Outcome, Page, Prompt, PromptArgument, PromptOutput, ServerRequest, TaskSupport, ToolOutput,
};
use toolgate_wire::{ProtocolError, ProtocolErrorKind, RawJson, meta_key};

use crate::handler::{
    ClientChannel, Context, ExtractError, HandlerEnv, HandlerFailure, ReadOutcome, ReplayState,
};
use crate::observe::Subject;
use crate::profile::Profile;
use crate::registry::{
    Pager, Registry, Roots, Snapshot, ToolEntry, View, read_in_roots, validate_elicitation,
};
use crate::request::{
    ArgumentErrors, BoxFuture, CallError, Caller, ClientTaskSupport, Request, ToolFailure, task_owner,
    truncate_chars,
};
use crate::seal::error_reference;
use crate::task::{TaskExecutor, TaskRequest, TaskRun, Tasks};
use crate::util::option_cell::OptionCell;
use crate::util::sharded::{AlignedArc, ShardedArc};

/// The kind of handlers whose failures are results.
const TOOL_KIND: &str = "tool";

/// See the module.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    pub(crate) registry: Arc<Registry>,
    pub(crate) shared: ShardedArc<HandlerEnv>,
    pub(crate) pager: Pager,
    /// How long a handler may run, unless its tool says otherwise.
    pub(crate) timeout: Duration,
    /// Arguments of the wrong type are refused even if it is plain what was meant.
    pub(crate) is_strict: bool,
    /// What anybody may see. None: everything.
    pub(crate) default_profile: Arc<OptionCell<Profile>>,
    /// The workspace that files are read from. None: handlers read what they like.
    pub(crate) roots: Mutex<Option<Arc<Roots>>>,
    pub(crate) tasks: Arc<Tasks>,
}

impl Dispatcher {
    /// What reading is confined to, if it is.
    pub(crate) fn roots(&self) -> Option<Arc<Roots>> {
        self.lock_roots().clone()
    }

    /// The same. If it was not confined, it is from now on, to nothing.
    pub(crate) fn roots_or_insert(&self) -> Arc<Roots> {
        Arc::clone(self.lock_roots().get_or_insert_with(|| Arc::new(Roots::new([""; 0]))))
    }

    pub(crate) fn set_roots(&self, roots: Roots) {
        *self.lock_roots() = Some(Arc::new(roots));
    }

    fn lock_roots(&self) -> MutexGuard<'_, Option<Arc<Roots>>> {
        self.roots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tools that somebody sees, in their order.
    #[cfg(feature = "http")]
    pub(crate) fn visible_tools(
        &self,
        principal: &crate::request::Principal,
    ) -> Vec<Arc<toolgate_wire::model::Tool>> {
        let (catalog, shown) = (self.registry.snapshot(), self.default_profile.load());
        let view = View::new(shown.as_deref(), principal.profile());
        let seen = catalog.tools.iter().filter(|entry| view.shows_tool(&entry.tool.name));
        seen.map(|entry| Arc::clone(&entry.tool)).collect()
    }

    /// Begins to fulfil a wish: everything that needs no waiting. Wishes that are about the connection
    /// (greeting, subscribing) are not for the hall.
    ///
    /// Not `async`, so that nothing of the request has to be kept while its handler runs.
    pub(crate) fn begin(
        &self,
        request: Request,
        voice: Arc<dyn ClientChannel>,
    ) -> Result<PendingCall, CallError> {
        let Request { call, caller, cancel } = request;
        let context = |caller: Box<Caller>, voice: Arc<dyn ClientChannel>, timeout: Option<Duration>| {
            Context::new(caller, voice, cancel, self.shared.acquire(), timeout.unwrap_or(self.timeout))
        };
        let catalog = self.registry.snapshot();
        // Some dialects are told that nothing of a kind is an empty list.
        if !caller.allows_empty_lists && !is_offered(&self.registry, &call) {
            return Err(ProtocolError::method_not_found(call.method()).into());
        }
        let (shown, principal) = (self.default_profile.load(), caller.principal.clone());
        let view = View::new(shown.as_deref(), principal.profile());
        match call {
            Call::CallTool { name, arguments, task, .. } => {
                let entry =
                    catalog.tools.get_or_alias(&name).filter(|entry| view.shows_tool(&entry.tool.name));
                let entry = entry.ok_or_else(|| unknown_tool(&catalog, view, &name))?;
                let stage = ExecutionMode::of(entry, &caller, task)?;
                let mending = Coercion::of(self.is_strict, &caller);
                let arguments = prepare_arguments(entry, arguments, mending, &caller, &*voice)?;
                let entry = Arc::clone(entry);
                match stage {
                    ExecutionMode::Inline => {
                        let cx = context(caller, voice, entry.timeout);
                        Ok(begin_tool(entry, arguments, mending, cx, None))
                    }
                    ExecutionMode::Deferrable => {
                        let cx = context(caller, voice, entry.timeout).deferrable();
                        Ok(begin_tool(entry, arguments, mending, cx, Some(Arc::clone(&self.tasks))))
                    }
                    ExecutionMode::Task { ttl } => {
                        let luggage = ReplayState::default();
                        let (tool, usual) = (entry.tool.name.clone(), entry.task_ttl);
                        let caller = *caller;
                        let wish = TaskRequest {
                            tool,
                            arguments,
                            caller,
                            ttl,
                            default_ttl: usual,
                            timeout: None,
                            replay_state: luggage,
                        };
                        Ok(begin_task(&self.tasks, entry, wish))
                    }
                }
            }
            Call::CreateTask { tool, arguments, timeout_ms } => {
                let entry =
                    catalog.tools.get_or_alias(&tool).filter(|entry| view.shows_tool(&entry.tool.name));
                let entry = entry.ok_or_else(|| unknown_tool(&catalog, view, &tool))?;
                ExecutionMode::of(entry, &caller, Some(None))?;
                let mending = Coercion::of(self.is_strict, &caller);
                let arguments = prepare_arguments(entry, arguments, mending, &caller, &*voice)?;
                let luggage = ReplayState::default();
                let tool = entry.tool.name.clone();
                let (ttl, usual, timeout) = (None, entry.task_ttl, timeout_ms);
                let wish = TaskRequest {
                    tool,
                    arguments,
                    caller: *caller,
                    ttl,
                    default_ttl: usual,
                    timeout,
                    replay_state: luggage,
                };
                let run = self.tasks.create(wish);
                let run = Box::pin(async move { Ok(Outcome::TaskCreated(Box::new(run.await?))) });
                Ok(PendingCall::Task { entry: Some(Arc::clone(entry)), future: run })
            }
            Call::GetTask { .. }
            | Call::UpdateTask { .. }
            | Call::CancelTask { .. }
            | Call::ListTasks { .. }
            | Call::TaskResult { .. } => begin_task_query(&self.tasks, call, &caller, voice),
            Call::ListTools { cursor } => {
                let page = self.pager.page("tools", &catalog.tools, cursor.as_deref(), view)?;
                Ok(PendingCall::Done(Outcome::Tools(page)))
            }
            Call::ListResources { cursor } => {
                let page = self.pager.page("resources", &catalog.resources, cursor.as_deref(), view)?;
                Ok(PendingCall::Done(Outcome::Resources(page)))
            }
            Call::ListTemplates { cursor } => {
                let page = self.pager.page("templates", &catalog.templates, cursor.as_deref(), view)?;
                Ok(PendingCall::Done(Outcome::Templates(page)))
            }
            Call::ListPrompts { cursor } => {
                let page = self.pager.page("prompts", &catalog.prompts, cursor.as_deref(), view)?;
                Ok(PendingCall::Done(Outcome::Prompts(page)))
            }
            Call::ReadResource { uri, retry } => {
                if !view.allows_reading(&uri) {
                    return Err(ProtocolError::resource_not_found(&uri).into());
                }
                let (run, cache, words) = match catalog.resources.get(&uri) {
                    Some(entry) => (&entry.run, entry.cache, Vec::new()),
                    None => {
                        let (entry, words) = catalog
                            .match_template(&uri)
                            .filter(|(entry, _)| view.shows_template(&entry.template.uri_template))
                            .ok_or_else(|| ProtocolError::resource_not_found(&uri))?;
                        (&entry.run, entry.cache, words)
                    }
                };
                let cx = context(caller, voice, None);
                let run = GuardedHandler::start("resource", cx, |cx| {
                    read_in_roots(self.roots(), run, cx.clone(), uri.clone(), words)
                })?;
                // What depends on answers of this caller is good for nobody else.
                let cache = cache.filter(|_| retry.is_empty()).unwrap_or_default();
                Ok(PendingCall::Read { uri, cache, handler: run })
            }
            Call::GetPrompt { name, arguments, .. } => {
                let entry = catalog.prompts.get(&name).filter(|_| view.shows_prompt(&name));
                let entry = entry.ok_or_else(|| ProtocolError::prompt_not_found(&name))?;
                let missing =
                    |known: &&PromptArgument| known.required && !arguments.contains_key(&known.name);
                if let Some(missing) = entry.prompt.arguments.iter().find(missing) {
                    return Err(ProtocolError::missing_prompt_argument(&missing.name).into());
                }
                if let Some(Err(said)) = entry.validate.as_ref().map(|check| check(&arguments)) {
                    return Err(ProtocolError::invalid_params(said).into());
                }
                let cx = context(caller, voice, None);
                let run = GuardedHandler::start("prompt", cx, |cx| {
                    (entry.run)(cx.clone(), arguments.into_iter().collect())
                })?;
                Ok(PendingCall::Prompt { prompt: Arc::clone(&entry.prompt), handler: run })
            }
            Call::Complete(completing) => {
                let Some(completer) = find_completer(&catalog, view, &completing)? else {
                    return Ok(PendingCall::Done(Outcome::Completion(Completion::default())));
                };
                let caller = Caller { other_arguments: Some(completing.context), ..*caller };
                let cx = context(Box::new(caller), voice, None);
                Ok(PendingCall::Complete(GuardedHandler::start("completion", cx, |cx| {
                    completer(cx.clone(), completing.value)
                })?))
            }
            call @ (Call::ListRoots | Call::AddRoot { .. } | Call::RemoveRoot { .. }) => {
                let roots = self.roots();
                // Who is shown only a part of the house does not move its walls.
                let roots =
                    roots.as_ref().filter(|_| matches!(call, Call::ListRoots) || view.is_unrestricted());
                let roots = roots.ok_or_else(|| ProtocolError::method_not_found(call.method()))?;
                Ok(PendingCall::Done(roots.handle_call(&call, &self.shared.subscriptions)?))
            }
            other => Err(ProtocolError::method_not_found(other.method()).into()),
        }
    }
}

/// A method whose capability is not offered is unknown.
fn is_offered(registry: &Registry, call: &Call) -> bool {
    let offer = registry.features();
    match call {
        Call::ListTools { .. } | Call::CallTool { .. } => offer.tools,
        Call::ListResources { .. } | Call::ListTemplates { .. } | Call::ReadResource { .. } => {
            offer.resources
        }
        Call::ListPrompts { .. } | Call::GetPrompt { .. } => offer.prompts,
        Call::Complete(_) => offer.completions,
        Call::GetTask { .. }
        | Call::UpdateTask { .. }
        | Call::CancelTask { .. }
        | Call::ListTasks { .. }
        | Call::TaskResult { .. }
        | Call::CreateTask { .. } => offer.tasks,
        _ => true,
    }
}

/// Checks whether a tool can be called like this, and gives the arguments as they were meant.
fn prepare_arguments(
    entry: &ToolEntry,
    arguments: Option<RawJson>,
    mending: Coercion,
    caller: &Caller,
    voice: &dyn ClientChannel,
) -> Result<RawJson, CallError> {
    let mut arguments = arguments.unwrap_or_else(RawJson::empty_object);
    if caller.requires_header_params && !entry.header_params.is_empty() {
        crate::registry::validate_header_params(&entry.header_params, &arguments, &caller.headers)?;
    }
    check_required_capabilities(entry, caller)?;
    check_replay_state(voice)?;
    if let Some(prepare) = &entry.prepare {
        let given = arguments.to_value();
        let prepared = std::panic::catch_unwind(AssertUnwindSafe(|| prepare(given)));
        arguments = RawJson::from(prepared.map_err(|panic| {
            let (reference, panic) = (error_reference(), panic_message(panic.as_ref()));
            tracing::error!(tool = %entry.tool.name, reference, panic, "preparing the arguments panicked");
            let message = format!("the tool failed unexpectedly, ref {reference}");
            let failure = ToolFailure::Internal { reference: Some(reference.into()) };
            CallError::Tool(failure, Box::new(ToolOutput::error(message)))
        })?);
    }
    if entry.validator.is_precheck_required()
        && let Some(errors) = entry.validator.find_errors(&arguments)
    {
        match mending.coerce(entry, &arguments) {
            Some(mended) => arguments = mended,
            None => return Err(invalid_arguments(errors)),
        }
    }
    Ok(arguments)
}

/// What the client carries was looked at before. `later`: where the call may go on as a task, when its handler says so.
fn begin_tool(
    entry: Arc<ToolEntry>,
    arguments: RawJson,
    mending: Coercion,
    cx: Context,
    later: Option<Arc<Tasks>>,
) -> PendingCall {
    let run = GuardedHandler::start_unchecked(TOOL_KIND, cx, |cx| (entry.run)(cx, &arguments));
    PendingCall::Tool { entry, arguments, handler: run, coercion: mending, defer_to: later }
}

fn begin_task(tasks: &Tasks, entry: Arc<ToolEntry>, wish: TaskRequest) -> PendingCall {
    let run = tasks.create(wish);
    PendingCall::Task {
        entry: Some(entry),
        future: Box::pin(async move { run.await.map(Outcome::TaskStarted) }),
    }
}

/// Where a tool runs.
enum ExecutionMode {
    /// In the call.
    Inline,
    /// In a task, kept for so many milliseconds if the client says so.
    Task { ttl: Option<u64> },
    /// In the call, until its handler wants a task.
    Deferrable,
}

impl ExecutionMode {
    /// `wish` is what a client says that asks for tasks.
    fn of(
        entry: &ToolEntry,
        caller: &Caller,
        wish: Option<Option<u64>>,
    ) -> Result<ExecutionMode, ProtocolError> {
        let name = &entry.tool.name;
        let refuse = |said: &str| {
            Err(ProtocolError::new(ProtocolErrorKind::MethodNotFound, format!("tool `{name}` {said}")))
        };
        match (entry.tool.task_support, caller.task_support) {
            (TaskSupport::Forbidden, ClientTaskSupport::OnRequest) if wish.is_some() => {
                refuse("does not run as a task")
            }
            (TaskSupport::Forbidden, _) => Ok(ExecutionMode::Inline),
            (_, ClientTaskSupport::ServerChoice) if entry.is_deferrable => Ok(ExecutionMode::Deferrable),
            (_, ClientTaskSupport::ServerChoice) => Ok(ExecutionMode::Task { ttl: None }),
            (_, ClientTaskSupport::OnRequest) if let Some(ttl) = wish => Ok(ExecutionMode::Task { ttl }),
            (TaskSupport::Optional, _) => Ok(ExecutionMode::Inline),
            (TaskSupport::Required, ClientTaskSupport::OnRequest) => {
                refuse("runs as a task only: call it with `task`")
            }
            (TaskSupport::Required, ClientTaskSupport::Undeclared) => Err(tasks_undeclared()),
            (TaskSupport::Required, ClientTaskSupport::Unsupported) => {
                refuse("runs as a task only, which this protocol version does not have")
            }
        }
    }
}

/// The client would have to say that it knows what a task is.
pub(crate) fn tasks_undeclared() -> ProtocolError {
    let mut missing = ClientCapabilities::default();
    missing.extensions.insert(meta_key::TASKS_EXTENSION.to_owned(), RawJson::empty_object());
    ProtocolError::missing_capability(&missing, "the client does not declare the tasks extension")
}

/// Looks after a task that is there already.
fn begin_task_query(
    tasks: &Arc<Tasks>,
    call: Call,
    caller: &Caller,
    voice: Arc<dyn ClientChannel>,
) -> Result<PendingCall, CallError> {
    if caller.task_support == ClientTaskSupport::Undeclared {
        return Err(tasks_undeclared().into());
    }
    let is_asked = caller.task_support == ClientTaskSupport::OnRequest;
    let known = caller.owner.is_some() || caller.principal.id().is_some();
    let owner = caller.owner.clone().unwrap_or_else(|| task_owner(&caller.principal, None));
    let tasks = Arc::clone(tasks);
    let run: BoxFuture<'static, Result<Outcome, CallError>> = match call {
        Call::GetTask { id } => Box::pin(async move {
            let task = tasks.get(&owner, &id).await?;
            Ok(Outcome::TaskStatus(Box::new(task)))
        }),
        Call::UpdateTask { id, input_responses: answers } => Box::pin(async move {
            tasks.update(&owner, &id, answers).await?;
            Ok(Outcome::Empty)
        }),
        Call::CancelTask { id } => Box::pin(async move {
            let (task, is_new) = tasks.cancel(&owner, &id).await?;
            match (is_asked, is_new) {
                // Spec, core tasks: the answer is the task, and one that has ended cannot be cancelled.
                (true, true) => Ok(Outcome::TaskStatus(Box::new(task))),
                (true, false) => {
                    let said = format!("the task has ended already: {}", task.status.name());
                    Err(ProtocolError::invalid_params(said).into())
                }
                (false, _) => Ok(Outcome::Empty),
            }
        }),
        // Spec, core tasks: nobody is shown a list who cannot be told apart from others.
        Call::ListTasks { .. } if !known => {
            let page = Page { items: Vec::new(), next_cursor: None, cache: CacheHint::default() };
            Box::pin(at_once(Ok(Outcome::Tasks(page))))
        }
        Call::ListTasks { cursor } => Box::pin(async move {
            let page = tasks.list(&owner, cursor.as_deref()).await?;
            Ok(Outcome::Tasks(page))
        }),
        Call::TaskResult { id } => Box::pin(async move { tasks.result(&owner, &id, &*voice).await }),
        other => return Err(ProtocolError::method_not_found(other.method()).into()),
    };
    Ok(PendingCall::Task { entry: None, future: run })
}

/// Who does the work of tasks: the same as in the hall, without a call around it.
#[derive(Debug)]
pub(crate) struct ToolTaskExecutor {
    pub(crate) registry: Arc<Registry>,
    pub(crate) shared: Arc<HandlerEnv>,
    pub(crate) is_strict: bool,
}

impl TaskExecutor for ToolTaskExecutor {
    fn start(&self, job: TaskRun) -> Option<BoxFuture<'static, Result<Outcome, CallError>>> {
        let TaskRun { tool, arguments, caller, channel: voice, cancel, timeout: limit } = job;
        let entry = Arc::clone(self.registry.snapshot().tools.get(&tool)?);
        let mending = Coercion::of(self.is_strict, &caller);
        let limit = entry.timeout.unwrap_or(limit);
        let shared = AlignedArc::new_ref(&self.shared);
        let cx = Context::new(Box::new(caller), voice, cancel, shared, limit);
        Some(match check_replay_state(&**cx.client_channel()) {
            Ok(()) => {
                let mut work = begin_tool(entry, arguments, mending, cx, None);
                Box::pin(poll_fn(move |task| work.poll(task)))
            }
            Err(stop) => Box::pin(at_once(Err(stop))),
        })
    }

    fn is_resumable(&self, tool: &str) -> bool {
        self.registry.snapshot().tools.get(tool).is_some_and(|entry| entry.is_resumable)
    }

    fn is_valid_response(&self, ask: &ServerRequest, answer: &ClientResult) -> bool {
        validate_elicitation(ask, answer).is_ok()
    }
}

/// What is done about arguments of the wrong type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coercion {
    /// They are refused.
    Never,
    /// Texts are read as what is wanted.
    Strings,
    /// And everything is read as a text where one is wanted.
    All,
}

impl Coercion {
    fn of(strict: bool, caller: &Caller) -> Coercion {
        match (strict, caller.is_lenient) {
            (true, _) => Coercion::Never,
            (false, false) => Coercion::Strings,
            (false, true) => Coercion::All,
        }
    }

    fn coerce(self, entry: &ToolEntry, arguments: &RawJson) -> Option<RawJson> {
        match self {
            Coercion::Never => None,
            Coercion::Strings => entry.validator.coerce(arguments, false),
            Coercion::All => entry.validator.coerce(arguments, true),
        }
    }
}

/// A wish that is being fulfilled.
pub(crate) enum PendingCall {
    Done(Outcome),
    Tool {
        entry: Arc<ToolEntry>,
        arguments: RawJson,
        handler: GuardedHandler<ToolOutput>,
        coercion: Coercion,
        /// Where it may go on as a task.
        defer_to: Option<Arc<Tasks>>,
    },
    /// A task that begins, or is looked after. `entry`: the tool that it is of, if it begins.
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
    /// What it is about, if it is about one thing.
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

    /// Waits for what comes of it. By hand, so that what waits is this value and nothing around it.
    ///
    /// Cancel safe: yes, whoever drops it drops the handler.
    pub(crate) fn poll(&mut self, task: &mut TaskContext<'_>) -> Poll<Result<Outcome, CallError>> {
        match ready!(self.poll_once(task)) {
            Err(CallError::Deferred) => {
                *self = self.to_task()?;
                self.poll_once(task)
            }
            ended => Poll::Ready(ended),
        }
    }

    /// A call that goes on as a task: the handler runs once more, with what it has found out.
    fn to_task(&self) -> Result<PendingCall, CallError> {
        match self {
            PendingCall::Tool { entry, arguments, handler: run, defer_to: Some(tasks), .. } => {
                let wish = TaskRequest {
                    tool: entry.tool.name.clone(),
                    arguments: arguments.clone(),
                    caller: run.cx.caller().clone(),
                    ttl: None,
                    default_ttl: entry.task_ttl,
                    timeout: None,
                    replay_state: run.cx.client_channel().replay_state(),
                };
                Ok(begin_task(tasks, Arc::clone(entry), wish))
            }
            _ => Err(ProtocolError::internal(&error_reference()).into()),
        }
    }

    fn poll_once(&mut self, task: &mut TaskContext<'_>) -> Poll<Result<Outcome, CallError>> {
        Poll::Ready(match self {
            PendingCall::Done(outcome) => Ok(std::mem::replace(outcome, Outcome::Empty)),
            PendingCall::Task { future: run, .. } => return run.as_mut().poll(task),
            PendingCall::Tool { entry, arguments, handler: run, coercion: mending, .. } => loop {
                let ended = ready!(run.poll(task));
                let ended = run.resolve(&entry.tool.name, ended)?;
                // Its type has refused them, so nothing was done yet. It gets them once more, as they were meant.
                if let Err(HandlerFailure::Extract(ExtractError::Arguments(_))) = &ended
                    && let Some(mended) = std::mem::replace(mending, Coercion::Never).coerce(entry, arguments)
                {
                    *arguments = mended;
                    *run = GuardedHandler::start(TOOL_KIND, run.cx.clone(), |cx| (entry.run)(cx, arguments))?;
                    continue;
                }
                break finish_tool(entry, arguments, ended);
            },
            PendingCall::Read { uri, cache, handler: run } => {
                let ended = ready!(run.poll(task));
                match run.resolve(uri, ended)? {
                    Ok(ReadOutcome::Contents(contents)) => {
                        Ok(Outcome::ReadResource { contents, cache: *cache })
                    }
                    // Variables that do not fit the template's type name nothing: there is no such resource.
                    Ok(ReadOutcome::NotFound) | Err(HandlerFailure::Extract(ExtractError::Arguments(_))) => {
                        Err(ProtocolError::resource_not_found(uri).into())
                    }
                    Err(failed) => Err(handler_protocol_error("resource", uri, &failed).into()),
                }
            }
            PendingCall::Prompt { prompt, handler: run } => {
                let name = &prompt.name;
                let ended = ready!(run.poll(task));
                match run.resolve(name, ended)? {
                    // What it is for is told with it, unless the handler has said it better.
                    Ok(filled) => Ok(Outcome::Prompt(PromptOutput {
                        description: filled.description.or_else(|| prompt.description.clone()),
                        ..filled
                    })),
                    Err(HandlerFailure::Extract(ExtractError::Arguments(error))) => {
                        Err(ProtocolError::invalid_params(error).into())
                    }
                    Err(failed) => Err(handler_protocol_error("prompt", name, &failed).into()),
                }
            }
            PendingCall::Complete(run) => {
                let ended = ready!(run.poll(task));
                Ok(Outcome::Completion(completion(run.resolve("", ended)?.unwrap_or_default())))
            }
        })
    }
}

fn finish_tool(
    entry: &ToolEntry,
    arguments: &RawJson,
    ended: Result<ToolOutput, HandlerFailure>,
) -> Result<Outcome, CallError> {
    let name = &entry.tool.name;
    match ended {
        // However it is said: some ways of speaking have an error for it.
        Ok(output) if output.is_error => {
            let how =
                if output.is_unavailable { ToolFailure::Unavailable } else { ToolFailure::ReturnedError };
            Err(CallError::Tool(how, Box::new(output)))
        }
        Ok(output) => match output_schema_error(entry, &output) {
            None => Ok(Outcome::Tool(output)),
            Some(fault) => {
                let reference = error_reference();
                tracing::error!(tool = %name, reference, fault, "the output does not fit its schema");
                let message = format!("the tool gave a result that does not fit its schema, ref {reference}");
                let failure = ToolFailure::Internal { reference: Some(reference.into()) };
                Err(CallError::Tool(failure, Box::new(ToolOutput::error(message))))
            }
        },
        Err(HandlerFailure::ErrorOutput(output)) => Err(CallError::Tool(ToolFailure::ReturnedError, output)),
        Err(HandlerFailure::Protocol(fault)) => Err(fault.into()),
        Err(HandlerFailure::Extract(ExtractError::Arguments(error))) => {
            // The type has refused; the schema says it in words that name the parameter.
            Err(invalid_arguments(entry.validator.find_errors(arguments).unwrap_or_else(|| error.into())))
        }
        Err(failed @ HandlerFailure::Extract(ExtractError::MissingState(_))) => {
            Err(handler_protocol_error("tool", name, &failed).into())
        }
    }
}

/// Why an output is not what its schema promised. What a type describes is right by itself.
fn output_schema_error(entry: &ToolEntry, output: &ToolOutput) -> Option<String> {
    let check = entry.output_validator.as_ref().filter(|_| !output.is_error)?;
    match &output.structured_content {
        Some(structured) => check.find_errors(structured).map(|errors| errors.joined()),
        None => Some("there is no structured output".into()),
    }
}

fn completion(mut values: Vec<String>) -> Completion {
    let total = values.len();
    values.truncate(Completion::MAX_VALUES);
    Completion { has_more: Some(total > values.len()), total: u64::try_from(total).ok(), values }
}

/// A handler inside walls: its panic, its hanging and its questions stay its own.
pub(crate) struct GuardedHandler<T> {
    kind: &'static str,
    cx: Context,
    /// What it said if it panicked before its future existed: in a closure's own code, or reading arguments.
    future: Result<BoxFuture<'static, Result<T, HandlerFailure>>, String>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Questions counted when the timer was last set: a human's time is not the handler's.
    asked_count: u32,
}

impl<T> GuardedHandler<T> {
    fn start(
        kind: &'static str,
        cx: Context,
        start: impl FnOnce(&Context) -> BoxFuture<'static, Result<T, HandlerFailure>>,
    ) -> Result<GuardedHandler<T>, CallError> {
        check_replay_state(&**cx.client_channel())?;
        Ok(GuardedHandler::start_unchecked(kind, cx, start))
    }

    /// The same, where what the client carries was looked at before.
    fn start_unchecked(
        kind: &'static str,
        cx: Context,
        start: impl FnOnce(&Context) -> BoxFuture<'static, Result<T, HandlerFailure>>,
    ) -> GuardedHandler<T> {
        let run = std::panic::catch_unwind(AssertUnwindSafe(|| start(&cx)));
        GuardedHandler {
            kind,
            cx,
            future: run.map_err(|panic| panic_message(panic.as_ref())),
            sleep: None,
            asked_count: 0,
        }
    }

    /// What an end means.
    fn resolve(&self, name: &str, ended: HandlerEnd<T>) -> Result<Result<T, HandlerFailure>, CallError> {
        let GuardedHandler { kind, cx, .. } = self;
        match ended {
            HandlerEnd::Returned(Err(failed)) => {
                match cx.client_channel().suspension_error(error_text(&failed)) {
                    // It gave up because an answer is missing: that is no failure.
                    Some(stop) => Err(stop),
                    None if cx.is_deferred() => Err(CallError::Deferred),
                    None => Ok(Err(failed)),
                }
            }
            HandlerEnd::Returned(returned) => Ok(returned),
            HandlerEnd::Panicked(what) => {
                let reference = error_reference();
                tracing::error!(kind, name, reference, panic = %what, "handler panicked");
                let message = format!("the {kind} failed unexpectedly, ref {reference}");
                self.fail(ToolFailure::Internal { reference: Some(reference.into()) }, message)
            }
            HandlerEnd::TimedOut => {
                let limit = cx.timeout();
                tracing::warn!(kind, name, ?limit, "handler ran out of time");
                self.fail(
                    ToolFailure::TimedOut,
                    format!("timeout: the {kind} did not finish within {limit:?}"),
                )
            }
        }
    }

    fn fail(&self, how: ToolFailure, said: String) -> Result<Result<T, HandlerFailure>, CallError> {
        let output = Box::new(ToolOutput::error(said));
        if self.kind == TOOL_KIND {
            Err(CallError::Tool(how, output))
        } else {
            Ok(Err(HandlerFailure::ErrorOutput(output)))
        }
    }

    /// Panics are caught and time is bounded. No timer is set before the first time it has to wait: most
    /// handlers never do.
    fn poll(&mut self, task: &mut TaskContext<'_>) -> Poll<HandlerEnd<T>> {
        let run = match &mut self.future {
            Ok(run) => run,
            Err(what) => return Poll::Ready(HandlerEnd::Panicked(std::mem::take(what))),
        };
        match std::panic::catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(task))) {
            Ok(Poll::Ready(returned)) => return Poll::Ready(HandlerEnd::Returned(returned)),
            Ok(Poll::Pending) => {}
            Err(panic) => return Poll::Ready(HandlerEnd::Panicked(panic_message(panic.as_ref()))),
        }
        let cx = &self.cx;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(cx.deadline())));
        // A handler that is never out of work uses up what tokio lets one poll do: without `unconstrained` its
        // time would never be seen to be over.
        while std::pin::pin!(tokio::task::unconstrained(sleep.as_mut())).poll(task).is_ready() {
            let asked = cx.request_count();
            if !cx.has_pending_request() && asked == self.asked_count {
                return Poll::Ready(HandlerEnd::TimedOut);
            }
            self.asked_count = asked;
            sleep.as_mut().reset(cx.reset_deadline());
        }
        Poll::Pending
    }
}

enum HandlerEnd<T> {
    Returned(Result<T, HandlerFailure>),
    Panicked(String),
    TimedOut,
}

fn error_text(failed: &HandlerFailure) -> &str {
    match failed {
        HandlerFailure::ErrorOutput(output) => {
            output.content.first().and_then(|content| content.as_text()).unwrap_or_default()
        }
        HandlerFailure::Extract(_) | HandlerFailure::Protocol(_) => "",
    }
}

fn invalid_arguments(errors: ArgumentErrors) -> CallError {
    let output = Box::new(ToolOutput::error(errors.message()));
    CallError::Tool(ToolFailure::InvalidArguments(errors), output)
}

fn check_required_capabilities(entry: &ToolEntry, caller: &Caller) -> Result<(), ProtocolError> {
    let mut unmet = entry
        .required_capabilities
        .iter()
        .filter(|need| !need.is_supported_by(&caller.client.capabilities))
        .peekable();
    if unmet.peek().is_none() {
        return Ok(());
    }
    let mut missing = ClientCapabilities::default();
    unmet.for_each(|need| need.add_to(&mut missing));
    let message = format!("tool `{}` needs capabilities that the client does not declare", entry.tool.name);
    Err(ProtocolError::missing_capability(&missing, message))
}

/// What the client carried from an earlier run must be what it was given, before anything runs with it: a
/// handler that finds nothing of its earlier steps would do them again.
fn check_replay_state(voice: &dyn ClientChannel) -> Result<(), CallError> {
    voice.suspension_error("").map_or(Ok(()), Err)
}

fn unknown_tool(catalog: &Snapshot, view: View<'_>, name: &str) -> ProtocolError {
    let names = catalog.tools.iter().map(|entry| entry.tool.name.as_str());
    ProtocolError::tool_not_found(
        name,
        { names }.find(|known| view.shows_tool(known) && is_similar(known, name)),
    )
}

/// The same but for case and separators, or for one character.
fn is_similar(known: &str, name: &str) -> bool {
    let plain = |text: &str| -> Vec<u8> {
        text.bytes().filter(u8::is_ascii_alphanumeric).map(|byte| byte.to_ascii_lowercase()).collect()
    };
    if name.len() > 128 {
        return false;
    }
    let (known, name) = (plain(known), plain(name));
    let same_start = known.iter().zip(&name).take_while(|(a, b)| a == b).count();
    let rest = known.len().max(name.len()) - same_start;
    let same_end =
        known[same_start..].iter().rev().zip(name[same_start..].iter().rev()).take_while(|(a, b)| a == b);
    rest - same_end.count() <= 1 && same_start > 0
}

/// Why a handler gave nothing. Its own words are for the caller; what is missing in the server is not.
fn handler_protocol_error(kind: &str, name: &str, failed: &HandlerFailure) -> ProtocolError {
    if let HandlerFailure::Protocol(fault) = failed {
        return fault.clone();
    }
    if let HandlerFailure::Extract(ExtractError::MissingState(missing)) = failed {
        let reference = error_reference();
        tracing::error!(kind, name, reference, missing, "the server was built without this state");
        return ProtocolError::internal(&reference);
    }
    let said = error_text(failed);
    tracing::warn!(kind, name, said, "handler failed");
    ProtocolError::new(ProtocolErrorKind::Internal, said)
}

fn find_completer(
    catalog: &Snapshot,
    view: View<'_>,
    completing: &CompleteParams,
) -> Result<Option<crate::handler::CompleteFn>, ProtocolError> {
    let CompleteParams { completion_ref: reference, argument, .. } = completing;
    let completers = match reference {
        CompletionReference::Prompt(name) => {
            let entry = catalog.prompts.get(name).filter(|_| view.shows_prompt(name));
            let entry = entry.ok_or_else(|| ProtocolError::prompt_not_found(name))?;
            &entry.completers
        }
        CompletionReference::Resource(uri) => {
            match catalog.templates.get(uri).filter(|_| view.shows_resource(uri)) {
                Some(entry) => &entry.completers,
                None => match catalog.resources.get(uri).filter(|_| view.shows_resource(uri)) {
                    Some(entry) => &entry.completers,
                    None => {
                        return Err(ProtocolError::invalid_params(format!(
                            "unknown resource template: {}",
                            truncate_chars(uri, 128)
                        )));
                    }
                },
            }
        }
    };
    Ok(completers.get(argument).cloned())
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_in_a_tool_name_is_recognized() {
        assert!(is_similar("add", "ad"));
        assert!(is_similar("echo_message", "echoMessage"));
        assert!(is_similar("search", "serch"));
        assert!(!is_similar("search", "delete"));
        assert!(!is_similar("add", "sub"));
    }
}
