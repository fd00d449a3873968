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
    ClientResult, ServerRequest, CacheHint, Call, ClientCapabilities, CompleteParams, Completion, Outcome, Page, Prompt,
    PromptArgument, PromptOutput, CompletionReference, TaskSupport, ToolOutput,
};
use toolgate_wire::{ProtocolError, ProtocolErrorKind, RawJson, key};

use crate::desk::{Hold, Spread};
use crate::handler::{Context, Failed, Found, Luggage, Rejection, Shared, Voice};
use crate::observe::Subject;
use crate::profile::Profile;
use crate::registry::{Pager, Registry, Roots, Snapshot, ToolEntry, View, is_right, read_within};
use crate::request::{BoxFuture, Caller, Failure, Request, Stop, TaskWay, owner};
use crate::seal::reference;
use crate::seldom::Seldom;
use crate::task::{Crew, Job, Tasks, Wish};

/// The kind of handlers whose failures are results.
const TOOL: &str = "tool";

/// See the module.
#[derive(Debug)]
pub(crate) struct Hall {
    pub(crate) registry: Arc<Registry>,
    pub(crate) shared: Spread<Shared>,
    pub(crate) pager: Pager,
    /// How long a handler may run, unless its tool says otherwise.
    pub(crate) timeout: Duration,
    /// Arguments of the wrong type are refused even if it is plain what was meant.
    pub(crate) strict: bool,
    /// What anybody may see. None: everything.
    pub(crate) shown: Arc<Seldom<Profile>>,
    /// The workspace that files are read from. None: handlers read what they like.
    pub(crate) roots: Mutex<Option<Arc<Roots>>>,
    pub(crate) tasks: Arc<Tasks>,
}

impl Hall {
    /// What reading is confined to, if it is.
    pub(crate) fn roots(&self) -> Option<Arc<Roots>> {
        self.lock_roots().clone()
    }

    /// The same. If it was not confined, it is from now on, to nothing.
    pub(crate) fn some_roots(&self) -> Arc<Roots> {
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
    pub(crate) fn tools_for(
        &self,
        principal: &crate::request::Principal,
    ) -> Vec<Arc<toolgate_wire::model::Tool>> {
        let (catalog, shown) = (self.registry.snapshot(), self.shown.load());
        let view = View::new(shown.as_deref(), principal.profile());
        let seen = catalog.tools.iter().filter(|entry| view.shows_tool(&entry.tool.name));
        seen.map(|entry| Arc::clone(&entry.tool)).collect()
    }

    /// Begins to fulfil a wish: everything that needs no waiting. Wishes that are about the connection
    /// (greeting, subscribing) are not for the hall.
    ///
    /// Not `async`, so that nothing of the request has to be kept while its handler runs.
    pub(crate) fn begin(&self, request: Request, voice: Arc<dyn Voice>) -> Result<Work, Stop> {
        let Request { call, caller, cancel } = request;
        let context = |caller: Box<Caller>, voice: Arc<dyn Voice>, timeout: Option<Duration>| {
            Context::new(caller, voice, cancel, self.shared.hold(), timeout.unwrap_or(self.timeout))
        };
        let catalog = self.registry.snapshot();
        // Some dialects are told that nothing of a kind is an empty list.
        if !caller.empty_lists && !is_offered(&self.registry, &call) {
            return Err(ProtocolError::method_not_found(call.method()).into());
        }
        let (shown, principal) = (self.shown.load(), caller.principal.clone());
        let view = View::new(shown.as_deref(), principal.profile());
        match call {
            Call::CallTool { name, arguments, task, .. } => {
                let entry = catalog.tools.find(&name).filter(|entry| view.shows_tool(&entry.tool.name));
                let entry = entry.ok_or_else(|| unknown_tool(&catalog, view, &name))?;
                let stage = Stage::of(entry, &caller, task)?;
                let mending = Mending::of(self.strict, &caller);
                let arguments = ready_arguments(entry, arguments, mending, &caller, &*voice)?;
                let entry = Arc::clone(entry);
                match stage {
                    Stage::Here => {
                        let cx = context(caller, voice, entry.timeout);
                        Ok(begin_tool(entry, arguments, mending, cx, None))
                    }
                    Stage::Later => {
                        let cx = context(caller, voice, entry.timeout).deferrable();
                        Ok(begin_tool(entry, arguments, mending, cx, Some(Arc::clone(&self.tasks))))
                    }
                    Stage::Task { ttl } => {
                        let luggage = Luggage::default();
                        let (tool, usual) = (entry.tool.name.clone(), entry.task_ttl);
                        let caller = *caller;
                        let wish = Wish { tool, arguments, caller, ttl, usual, timeout: None, luggage };
                        Ok(begin_task(&self.tasks, entry, wish))
                    }
                }
            }
            Call::CreateTask { tool, arguments, timeout_ms } => {
                let entry = catalog.tools.find(&tool).filter(|entry| view.shows_tool(&entry.tool.name));
                let entry = entry.ok_or_else(|| unknown_tool(&catalog, view, &tool))?;
                Stage::of(entry, &caller, Some(None))?;
                let mending = Mending::of(self.strict, &caller);
                let arguments = ready_arguments(entry, arguments, mending, &caller, &*voice)?;
                let luggage = Luggage::default();
                let tool = entry.tool.name.clone();
                let (ttl, usual, timeout) = (None, entry.task_ttl, timeout_ms);
                let wish = Wish { tool, arguments, caller: *caller, ttl, usual, timeout, luggage };
                let run = self.tasks.create(wish);
                let run = Box::pin(async move { Ok(Outcome::TaskCreated(Box::new(run.await?))) });
                Ok(Work::Task { entry: Some(Arc::clone(entry)), run })
            }
            Call::GetTask { .. }
            | Call::UpdateTask { .. }
            | Call::CancelTask { .. }
            | Call::ListTasks { .. }
            | Call::TaskResult { .. } => begin_looking(&self.tasks, call, &caller, voice),
            Call::ListTools { cursor } => {
                let page = self.pager.page("tools", &catalog.tools, cursor.as_deref(), view)?;
                Ok(Work::Done(Outcome::Tools(page)))
            }
            Call::ListResources { cursor } => {
                let page = self.pager.page("resources", &catalog.resources, cursor.as_deref(), view)?;
                Ok(Work::Done(Outcome::Resources(page)))
            }
            Call::ListTemplates { cursor } => {
                let page = self.pager.page("templates", &catalog.templates, cursor.as_deref(), view)?;
                Ok(Work::Done(Outcome::Templates(page)))
            }
            Call::ListPrompts { cursor } => {
                let page = self.pager.page("prompts", &catalog.prompts, cursor.as_deref(), view)?;
                Ok(Work::Done(Outcome::Prompts(page)))
            }
            Call::ReadResource { uri, retry } => {
                if !view.shows_reading(&uri) {
                    return Err(ProtocolError::resource_not_found(&uri).into());
                }
                let (run, cache, words) = match catalog.resources.get(&uri) {
                    Some(entry) => (&entry.run, entry.cache, Vec::new()),
                    None => {
                        let (entry, words) = catalog
                            .template_of(&uri)
                            .filter(|(entry, _)| view.shows_template(&entry.template.uri_template))
                            .ok_or_else(|| ProtocolError::resource_not_found(&uri))?;
                        (&entry.run, entry.cache, words)
                    }
                };
                let cx = context(caller, voice, None);
                let run = Running::start("resource", cx, |cx| {
                    read_within(self.roots(), run, cx.clone(), uri.clone(), words)
                })?;
                // What depends on answers of this caller is good for nobody else.
                let cache = cache.filter(|_| retry.is_empty()).unwrap_or_default();
                Ok(Work::Read { uri, cache, run })
            }
            Call::GetPrompt { name, arguments, .. } => {
                let entry = catalog.prompts.get(&name).filter(|_| view.shows_prompt(&name));
                let entry = entry.ok_or_else(|| ProtocolError::prompt_not_found(&name))?;
                let missing =
                    |known: &&PromptArgument| known.required && !arguments.contains_key(&known.name);
                if let Some(missing) = entry.prompt.arguments.iter().find(missing) {
                    return Err(ProtocolError::missing_prompt_argument(&missing.name).into());
                }
                if let Some(Err(said)) = entry.check.as_ref().map(|check| check(&arguments)) {
                    return Err(ProtocolError::invalid_params(said).into());
                }
                let cx = context(caller, voice, None);
                let run = Running::start("prompt", cx, |cx| {
                    (entry.run)(cx.clone(), arguments.into_iter().collect())
                })?;
                Ok(Work::Prompt { prompt: Arc::clone(&entry.prompt), run })
            }
            Call::Complete(completing) => {
                let Some(completer) = completer(&catalog, view, &completing)? else {
                    return Ok(Work::Done(Outcome::Completion(Completion::default())));
                };
                let caller = Caller { given: Some(completing.context), ..*caller };
                let cx = context(Box::new(caller), voice, None);
                Ok(Work::Complete(Running::start("completion", cx, |cx| {
                    completer(cx.clone(), completing.value)
                })?))
            }
            call @ (Call::ListRoots | Call::AddRoot { .. } | Call::RemoveRoot { .. }) => {
                let roots = self.roots();
                // Who is shown only a part of the house does not move its walls.
                let roots = roots.as_ref().filter(|_| matches!(call, Call::ListRoots) || view.is_whole());
                let roots = roots.ok_or_else(|| ProtocolError::method_not_found(call.method()))?;
                Ok(Work::Done(roots.answer(&call, &self.shared.hub)?))
            }
            other => Err(ProtocolError::method_not_found(other.method()).into()),
        }
    }
}

/// A method whose capability is not offered is unknown.
fn is_offered(registry: &Registry, call: &Call) -> bool {
    let offer = registry.offer();
    match call {
        Call::ListTools { .. } | Call::CallTool { .. } => offer.tools,
        Call::ListResources { .. } | Call::ListTemplates { .. } | Call::ReadResource { .. } => offer.resources,
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
fn ready_arguments(
    entry: &ToolEntry,
    arguments: Option<RawJson>,
    mending: Mending,
    caller: &Caller,
    voice: &dyn Voice,
) -> Result<RawJson, Stop> {
    let mut arguments = arguments.unwrap_or_else(RawJson::empty_object);
    if caller.mirrors && !entry.mirrors.is_empty() {
        crate::registry::agree(&entry.mirrors, &arguments, &caller.headers)?;
    }
    check_needs(entry, caller)?;
    check_luggage(voice)?;
    if let Some(prepare) = &entry.prepare {
        let given = arguments.to_value();
        let prepared = std::panic::catch_unwind(AssertUnwindSafe(|| prepare(given)));
        arguments = RawJson::from(prepared.map_err(|panic| {
            let (reference, panic) = (reference(), words(panic.as_ref()));
            tracing::error!(tool = %entry.tool.name, reference, panic, "preparing the arguments panicked");
            let said = format!("the tool failed unexpectedly, ref {reference}");
            Stop::Tool(Failure::Broken, Box::new(ToolOutput::error(said)))
        })?);
    }
    if entry.check.is_needed()
        && let Some(faults) = entry.check.faults(&arguments)
    {
        match mending.mend(entry, &arguments) {
            Some(mended) => arguments = mended,
            None => return Err(bad_arguments(&faults)),
        }
    }
    Ok(arguments)
}

/// What the client carries was looked at before. `later`: where the call may go on as a task, when its handler says so.
fn begin_tool(
    entry: Arc<ToolEntry>,
    arguments: RawJson,
    mending: Mending,
    cx: Context,
    later: Option<Arc<Tasks>>,
) -> Work {
    let run = Running::begin(TOOL, cx, |cx| (entry.run)(cx, &arguments));
    Work::Tool { entry, arguments, run, mending, later }
}

fn begin_task(tasks: &Tasks, entry: Arc<ToolEntry>, wish: Wish) -> Work {
    let run = tasks.create(wish);
    Work::Task { entry: Some(entry), run: Box::pin(async move { run.await.map(Outcome::TaskStarted) }) }
}

/// Where a tool runs.
enum Stage {
    /// In the call.
    Here,
    /// In a task, kept for so many milliseconds if the client says so.
    Task { ttl: Option<u64> },
    /// In the call, until its handler wants a task.
    Later,
}

impl Stage {
    /// `wish` is what a client says that asks for tasks.
    fn of(entry: &ToolEntry, caller: &Caller, wish: Option<Option<u64>>) -> Result<Stage, ProtocolError> {
        let name = &entry.tool.name;
        let refuse = |said: &str| Err(ProtocolError::new(ProtocolErrorKind::MethodNotFound, format!("tool `{name}` {said}")));
        match (entry.tool.task_support, caller.tasks) {
            (TaskSupport::Forbidden, TaskWay::Asked) if wish.is_some() => refuse("does not run as a task"),
            (TaskSupport::Forbidden, _) => Ok(Stage::Here),
            (_, TaskWay::Free) if entry.later => Ok(Stage::Later),
            (_, TaskWay::Free) => Ok(Stage::Task { ttl: None }),
            (_, TaskWay::Asked) if let Some(ttl) = wish => Ok(Stage::Task { ttl }),
            (TaskSupport::Optional, _) => Ok(Stage::Here),
            (TaskSupport::Required, TaskWay::Asked) => refuse("runs as a task only: call it with `task`"),
            (TaskSupport::Required, TaskWay::Undeclared) => Err(undeclared()),
            (TaskSupport::Required, TaskWay::Never) => {
                refuse("runs as a task only, which this protocol version does not have")
            }
        }
    }
}

/// The client would have to say that it knows what a task is.
pub(crate) fn undeclared() -> ProtocolError {
    let mut missing = ClientCapabilities::default();
    missing.extensions.insert(key::TASKS_EXTENSION.to_owned(), RawJson::empty_object());
    ProtocolError::missing_capability(&missing, "the client does not declare the tasks extension")
}

/// Looks after a task that is there already.
fn begin_looking(
    tasks: &Arc<Tasks>,
    call: Call,
    caller: &Caller,
    voice: Arc<dyn Voice>,
) -> Result<Work, Stop> {
    if caller.tasks == TaskWay::Undeclared {
        return Err(undeclared().into());
    }
    let is_asked = caller.tasks == TaskWay::Asked;
    let known = caller.owner.is_some() || caller.principal.id().is_some();
    let owner = caller.owner.clone().unwrap_or_else(|| owner(&caller.principal, None));
    let tasks = Arc::clone(tasks);
    let run: BoxFuture<'static, Result<Outcome, Stop>> = match call {
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
    Ok(Work::Task { entry: None, run })
}

/// Who does the work of tasks: the same as in the hall, without a call around it.
#[derive(Debug)]
pub(crate) struct Hands {
    pub(crate) registry: Arc<Registry>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) strict: bool,
}

impl Crew for Hands {
    fn start(&self, job: Job) -> Option<BoxFuture<'static, Result<Outcome, Stop>>> {
        let Job { tool, arguments, caller, voice, cancel, limit } = job;
        let entry = Arc::clone(self.registry.snapshot().tools.get(&tool)?);
        let mending = Mending::of(self.strict, &caller);
        let limit = entry.timeout.unwrap_or(limit);
        let shared = Hold::of(&self.shared);
        let cx = Context::new(Box::new(caller), voice, cancel, shared, limit);
        Some(match check_luggage(&**cx.voice()) {
            Ok(()) => {
                let mut work = begin_tool(entry, arguments, mending, cx, None);
                Box::pin(poll_fn(move |task| work.poll(task)))
            }
            Err(stop) => Box::pin(at_once(Err(stop))),
        })
    }

    fn is_resumable(&self, tool: &str) -> bool {
        self.registry.snapshot().tools.get(tool).is_some_and(|entry| entry.resumable)
    }

    fn is_right(&self, ask: &ServerRequest, answer: &ClientResult) -> bool {
        is_right(ask, answer).is_ok()
    }
}

/// What is done about arguments of the wrong type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mending {
    /// They are refused.
    Never,
    /// Texts are read as what is wanted.
    Texts,
    /// And everything is read as a text where one is wanted.
    Everything,
}

impl Mending {
    fn of(strict: bool, caller: &Caller) -> Mending {
        match (strict, caller.lenient) {
            (true, _) => Mending::Never,
            (false, false) => Mending::Texts,
            (false, true) => Mending::Everything,
        }
    }

    fn mend(self, entry: &ToolEntry, arguments: &RawJson) -> Option<RawJson> {
        match self {
            Mending::Never => None,
            Mending::Texts => entry.check.mend(arguments, false),
            Mending::Everything => entry.check.mend(arguments, true),
        }
    }
}

/// A wish that is being fulfilled.
pub(crate) enum Work {
    Done(Outcome),
    Tool {
        entry: Arc<ToolEntry>,
        arguments: RawJson,
        run: Running<ToolOutput>,
        mending: Mending,
        /// Where it may go on as a task.
        later: Option<Arc<Tasks>>,
    },
    /// A task that begins, or is looked after. `entry`: the tool that it is of, if it begins.
    Task {
        entry: Option<Arc<ToolEntry>>,
        run: BoxFuture<'static, Result<Outcome, Stop>>,
    },
    Read {
        uri: String,
        cache: CacheHint,
        run: Running<Found>,
    },
    Prompt {
        prompt: Arc<Prompt>,
        run: Running<PromptOutput>,
    },
    Complete(Running<Vec<String>>),
}

impl Work {
    /// What it is about, if it is about one thing.
    pub(crate) fn subject(&self) -> Option<Subject<'_>> {
        match self {
            Work::Tool { entry, .. } | Work::Task { entry: Some(entry), .. } => {
                Some(Subject::Tool(&entry.tool.name))
            }
            Work::Read { uri, .. } => Some(Subject::Uri(uri)),
            Work::Prompt { prompt, .. } => Some(Subject::Prompt(&prompt.name)),
            Work::Done(_) | Work::Complete(_) | Work::Task { entry: None, .. } => None,
        }
    }

    /// Waits for what comes of it. By hand, so that what waits is this value and nothing around it.
    ///
    /// Cancel safe: yes, whoever drops it drops the handler.
    pub(crate) fn poll(&mut self, task: &mut TaskContext<'_>) -> Poll<Result<Outcome, Stop>> {
        match ready!(self.poll_once(task)) {
            Err(Stop::Later) => {
                *self = self.deferred()?;
                self.poll_once(task)
            }
            ended => Poll::Ready(ended),
        }
    }

    /// A call that goes on as a task: the handler runs once more, with what it has found out.
    fn deferred(&self) -> Result<Work, Stop> {
        match self {
            Work::Tool { entry, arguments, run, later: Some(tasks), .. } => {
                let wish = Wish {
                    tool: entry.tool.name.clone(),
                    arguments: arguments.clone(),
                    caller: run.cx.caller().clone(),
                    ttl: None,
                    usual: entry.task_ttl,
                    timeout: None,
                    luggage: run.cx.voice().luggage(),
                };
                Ok(begin_task(tasks, Arc::clone(entry), wish))
            }
            _ => Err(ProtocolError::internal(&reference()).into()),
        }
    }

    fn poll_once(&mut self, task: &mut TaskContext<'_>) -> Poll<Result<Outcome, Stop>> {
        Poll::Ready(match self {
            Work::Done(outcome) => Ok(std::mem::replace(outcome, Outcome::Empty)),
            Work::Task { run, .. } => return run.as_mut().poll(task),
            Work::Tool { entry, arguments, run, mending, .. } => loop {
                let ended = ready!(run.poll(task));
                let ended = run.settle(&entry.tool.name, ended)?;
                // Its type has refused them, so nothing was done yet. It gets them once more, as they were meant.
                if let Err(Failed::Arguments(Rejection::Arguments(_))) = &ended
                    && let Some(mended) = std::mem::replace(mending, Mending::Never).mend(entry, arguments)
                {
                    *arguments = mended;
                    *run = Running::start(TOOL, run.cx.clone(), |cx| (entry.run)(cx, arguments))?;
                    continue;
                }
                break end_tool(entry, arguments, ended);
            },
            Work::Read { uri, cache, run } => {
                let ended = ready!(run.poll(task));
                match run.settle(uri, ended)? {
                    Ok(Found::Contents(contents)) => Ok(Outcome::ReadResource { contents, cache: *cache }),
                    // Variables that do not fit the template's type name nothing: there is no such resource.
                    Ok(Found::Nothing) | Err(Failed::Arguments(Rejection::Arguments(_))) => {
                        Err(ProtocolError::resource_not_found(uri).into())
                    }
                    Err(failed) => Err(failed_fault("resource", uri, &failed).into()),
                }
            }
            Work::Prompt { prompt, run } => {
                let name = &prompt.name;
                let ended = ready!(run.poll(task));
                match run.settle(name, ended)? {
                    // What it is for is told with it, unless the handler has said it better.
                    Ok(filled) => Ok(Outcome::Prompt(PromptOutput {
                        description: filled.description.or_else(|| prompt.description.clone()),
                        ..filled
                    })),
                    Err(Failed::Arguments(Rejection::Arguments(error))) => Err(ProtocolError::invalid_params(error).into()),
                    Err(failed) => Err(failed_fault("prompt", name, &failed).into()),
                }
            }
            Work::Complete(run) => {
                let ended = ready!(run.poll(task));
                Ok(Outcome::Completion(completion(run.settle("", ended)?.unwrap_or_default())))
            }
        })
    }
}

fn end_tool(entry: &ToolEntry, arguments: &RawJson, ended: Result<ToolOutput, Failed>) -> Result<Outcome, Stop> {
    let name = &entry.tool.name;
    match ended {
        // However it is said: some ways of speaking have an error for it.
        Ok(output) if output.is_error => {
            let how = if output.is_unavailable { Failure::Unavailable } else { Failure::Returned };
            Err(Stop::Tool(how, Box::new(output)))
        }
        Ok(output) => match broken_promise(entry, &output) {
            None => Ok(Outcome::Tool(output)),
            Some(fault) => {
                let reference = reference();
                tracing::error!(tool = %name, reference, fault, "the output does not fit its schema");
                let said = format!("the tool gave a result that does not fit its schema, ref {reference}");
                Err(Stop::Tool(Failure::Broken, Box::new(ToolOutput::error(said))))
            }
        },
        Err(Failed::Handler(output)) => Err(Stop::Tool(Failure::Returned, output)),
        Err(Failed::Fault(fault)) => Err(fault.into()),
        Err(Failed::Arguments(Rejection::Arguments(error))) => {
            // The type has refused; the schema says it in words that name the parameter.
            let faults = entry.check.faults(arguments).unwrap_or(error);
            Err(bad_arguments(&faults))
        }
        Err(failed @ Failed::Arguments(Rejection::State(_))) => {
            Err(failed_fault("tool", name, &failed).into())
        }
    }
}

/// Why an output is not what its schema promised. What a type describes is right by itself.
fn broken_promise(entry: &ToolEntry, output: &ToolOutput) -> Option<String> {
    let check = entry.output_check.as_ref().filter(|_| !output.is_error)?;
    match &output.structured_content {
        Some(structured) => check.faults(structured),
        None => Some("there is no structured output".into()),
    }
}

fn completion(mut values: Vec<String>) -> Completion {
    let total = values.len();
    values.truncate(Completion::MAX_VALUES);
    Completion { has_more: Some(total > values.len()), total: u64::try_from(total).ok(), values }
}

/// A handler inside walls: its panic, its hanging and its questions stay its own.
pub(crate) struct Running<T> {
    kind: &'static str,
    cx: Context,
    /// What it said if it panicked before its future existed: in a closure's own code, or reading arguments.
    run: Result<BoxFuture<'static, Result<T, Failed>>, String>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Questions counted when the timer was last set: a human's time is not the handler's.
    asked: u32,
}

impl<T> Running<T> {
    fn start(
        kind: &'static str,
        cx: Context,
        start: impl FnOnce(&Context) -> BoxFuture<'static, Result<T, Failed>>,
    ) -> Result<Running<T>, Stop> {
        check_luggage(&**cx.voice())?;
        Ok(Running::begin(kind, cx, start))
    }

    /// The same, where what the client carries was looked at before.
    fn begin(
        kind: &'static str,
        cx: Context,
        start: impl FnOnce(&Context) -> BoxFuture<'static, Result<T, Failed>>,
    ) -> Running<T> {
        let run = std::panic::catch_unwind(AssertUnwindSafe(|| start(&cx)));
        Running { kind, cx, run: run.map_err(|panic| words(panic.as_ref())), sleep: None, asked: 0 }
    }

    /// What an end means.
    fn settle(&self, name: &str, ended: Ended<T>) -> Result<Result<T, Failed>, Stop> {
        let Running { kind, cx, .. } = self;
        match ended {
            Ended::Returned(Err(failed)) => match cx.voice().stopped(said(&failed)) {
                // It gave up because an answer is missing: that is no failure.
                Some(stop) => Err(stop),
                None if cx.is_deferred() => Err(Stop::Later),
                None => Ok(Err(failed)),
            },
            Ended::Returned(returned) => Ok(returned),
            Ended::Panicked(what) => {
                let reference = reference();
                tracing::error!(kind, name, reference, panic = %what, "handler panicked");
                self.broken(Failure::Broken, format!("the {kind} failed unexpectedly, ref {reference}"))
            }
            Ended::TimedOut => {
                let limit = cx.limit();
                tracing::warn!(kind, name, ?limit, "handler ran out of time");
                self.broken(Failure::Late, format!("timeout: the {kind} did not finish within {limit:?}"))
            }
        }
    }

    fn broken(&self, how: Failure, said: String) -> Result<Result<T, Failed>, Stop> {
        let output = Box::new(ToolOutput::error(said));
        if self.kind == TOOL { Err(Stop::Tool(how, output)) } else { Ok(Err(Failed::Handler(output))) }
    }

    /// Panics are caught and time is bounded. No timer is set before the first time it has to wait: most
    /// handlers never do.
    fn poll(&mut self, task: &mut TaskContext<'_>) -> Poll<Ended<T>> {
        let run = match &mut self.run {
            Ok(run) => run,
            Err(what) => return Poll::Ready(Ended::Panicked(std::mem::take(what))),
        };
        match std::panic::catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(task))) {
            Ok(Poll::Ready(returned)) => return Poll::Ready(Ended::Returned(returned)),
            Ok(Poll::Pending) => {}
            Err(panic) => return Poll::Ready(Ended::Panicked(words(panic.as_ref()))),
        }
        let cx = &self.cx;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(cx.deadline())));
        // A handler that is never out of work uses up what tokio lets one poll do: without `unconstrained` its
        // time would never be seen to be over.
        while std::pin::pin!(tokio::task::unconstrained(sleep.as_mut())).poll(task).is_ready() {
            let asked = cx.asked();
            if !cx.is_asking() && asked == self.asked {
                return Poll::Ready(Ended::TimedOut);
            }
            self.asked = asked;
            sleep.as_mut().reset(cx.extend());
        }
        Poll::Pending
    }
}

enum Ended<T> {
    Returned(Result<T, Failed>),
    Panicked(String),
    TimedOut,
}

fn said(failed: &Failed) -> &str {
    match failed {
        Failed::Handler(output) => {
            output.content.first().and_then(|content| content.as_text()).unwrap_or_default()
        }
        Failed::Arguments(_) | Failed::Fault(_) => "",
    }
}

fn bad_arguments(faults: &str) -> Stop {
    let said = format!("Validation error: {}", clip(faults, 2000));
    Stop::Tool(Failure::Arguments, Box::new(ToolOutput::error(said)))
}

fn check_needs(entry: &ToolEntry, caller: &Caller) -> Result<(), ProtocolError> {
    let mut unmet = entry.needs.iter().filter(|need| !need.is_met(&caller.client.capabilities)).peekable();
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
fn check_luggage(voice: &dyn Voice) -> Result<(), Stop> {
    voice.stopped("").map_or(Ok(()), Err)
}

fn unknown_tool(catalog: &Snapshot, view: View<'_>, name: &str) -> ProtocolError {
    let names = catalog.tools.iter().map(|entry| entry.tool.name.as_str());
    ProtocolError::tool_not_found(name, { names }.find(|known| view.shows_tool(known) && is_close(known, name)))
}

/// The same but for case and separators, or for one character.
fn is_close(known: &str, name: &str) -> bool {
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

fn clip(text: &str, most: usize) -> &str {
    text.char_indices().nth(most).map_or(text, |(end, _)| &text[..end])
}

/// Why a handler gave nothing. Its own words are for the caller; what is missing in the server is not.
fn failed_fault(kind: &str, name: &str, failed: &Failed) -> ProtocolError {
    if let Failed::Fault(fault) = failed {
        return fault.clone();
    }
    if let Failed::Arguments(Rejection::State(missing)) = failed {
        let reference = reference();
        tracing::error!(kind, name, reference, missing, "the server was built without this state");
        return ProtocolError::internal(&reference);
    }
    let said = said(failed);
    tracing::warn!(kind, name, said, "handler failed");
    ProtocolError::new(ProtocolErrorKind::Internal, said)
}

fn completer(
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
        CompletionReference::Resource(uri) => match catalog.templates.get(uri).filter(|_| view.shows_resource(uri)) {
            Some(entry) => &entry.completers,
            None => match catalog.resources.get(uri).filter(|_| view.shows_resource(uri)) {
                Some(entry) => &entry.completers,
                None => return Err(ProtocolError::invalid_params(format!("unknown resource template: {}", clip(uri, 128)))),
            },
        },
    };
    Ok(completers.get(argument).cloned())
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_recognized() {
        assert!(is_close("add", "ad"));
        assert!(is_close("echo_message", "echoMessage"));
        assert!(is_close("search", "serch"));
        assert!(!is_close("search", "delete"));
        assert!(!is_close("add", "sub"));
    }
}
