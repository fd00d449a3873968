//! The dispatcher: from a canonical request to a registry entry to its handler, and from there to an outcome.
//!
//! Protocol versions are not known here. A handler that panics, hangs or fails costs only its own call.

mod arguments;
mod guarded;
mod layered;
mod lookup;
mod pending;
mod tasks;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use toolgate_wire::model::{Call, CompleteParams, Completion, CompletionReference, Outcome, Retry};
use toolgate_wire::{ProtocolError, RawJson};

pub(crate) use pending::PendingCall;
pub(crate) use tasks::{ToolTaskExecutor, tasks_undeclared};

use crate::handler::{ClientChannel, Context, HandlerEnv, ReplayState};
use crate::profile::Profile;
use crate::registry::{Pager, Registry, Roots, Snapshot, ToolEntry, View};
use crate::request::{CallError, Caller, Request};
use crate::task::{TaskRequest, Tasks};
use crate::util::cancel::Cancel;
use crate::util::lock;
use crate::util::option_cell::OptionCell;
use crate::util::sharded::ShardedArc;
use arguments::{Coercion, find_unknown, invalid_arguments, prepare_arguments, rejects_unknown};
use guarded::GuardedHandler;
use layered::{check_prompt_arguments, run_completer, run_prompt, run_read};
use lookup::{find_completer, is_supported, unknown_tool};
use pending::begin_tool;
use tasks::{ExecutionMode, begin_task, begin_task_query};

/// Finds the handler of a request and starts it.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    pub(crate) registry: Arc<Registry>,
    pub(crate) env: ShardedArc<HandlerEnv>,
    pub(crate) pager: Pager,
    /// Time limit of handlers, unless their tool has its own.
    pub(crate) timeout: Duration,
    /// Whether arguments of the wrong type are rejected even if they could be converted.
    pub(crate) is_strict: bool,
    /// The profile that applies to every caller. `None`: nothing is hidden.
    pub(crate) default_profile: Arc<OptionCell<Profile>>,
    /// The directories that resource reads are confined to. `None`: reads are not confined.
    pub(crate) roots: Mutex<Option<Arc<Roots>>>,
    pub(crate) tasks: Arc<Tasks>,
}

/// The caller of a call, and the channel to its client.
struct CallOrigin {
    caller: Box<Caller>,
    channel: Arc<dyn ClientChannel>,
    cancel: Cancel,
}

impl Dispatcher {
    /// The roots that resource reads are confined to, if they are.
    pub(crate) fn roots(&self) -> Option<Arc<Roots>> {
        lock(&self.roots).clone()
    }

    /// Like [`Dispatcher::roots`]. If reads were not confined, they are from now on, to an empty list of roots.
    pub(crate) fn roots_or_insert(&self) -> Arc<Roots> {
        Arc::clone(lock(&self.roots).get_or_insert_with(|| Arc::new(Roots::new([""; 0]))))
    }

    pub(crate) fn set_roots(&self, roots: Roots) {
        *lock(&self.roots) = Some(Arc::new(roots));
    }

    /// The tools that a principal may see, in their order.
    #[cfg(feature = "http")]
    pub(crate) fn visible_tools(
        &self,
        principal: &crate::request::Principal,
    ) -> Vec<Arc<toolgate_wire::model::Tool>> {
        let (snapshot, default_profile) = (self.registry.snapshot(), self.default_profile.load());
        let view = View::new(default_profile.as_deref(), principal.profile());
        let visible =
            snapshot.tools.iter().filter(|entry| view.shows_tool(&entry.tool.name, &entry.tool.hints));
        visible.map(|entry| Arc::clone(&entry.tool)).collect()
    }

    /// Begins a call: does all the work that needs no waiting. Calls that concern the connection (`initialize`,
    /// subscriptions) are not served here.
    ///
    /// Not `async`, so that nothing of the request is kept while its handler runs.
    pub(crate) fn begin(
        &self,
        request: Request,
        channel: Arc<dyn ClientChannel>,
    ) -> Result<PendingCall, CallError> {
        let Request { call, caller, cancel } = request;
        // Some dialects get an empty list for a capability that the server does not have.
        if !caller.allows_empty_lists && !is_supported(&self.registry, &call) {
            return Err(ProtocolError::method_not_found(call.method()).into());
        }
        let snapshot = self.registry.snapshot();
        let (default_profile, principal) = (self.default_profile.load(), caller.principal.clone());
        let view = View::new(default_profile.as_deref(), principal.profile());
        let origin = CallOrigin { caller, channel, cancel };
        match call {
            Call::CallTool { name, arguments, task, .. } => {
                self.begin_tool_call(origin, find_tool(&snapshot, view, &name)?, arguments, task)
            }
            Call::CreateTask { tool, arguments, timeout_ms } => {
                self.begin_task_creation(origin, find_tool(&snapshot, view, &tool)?, arguments, timeout_ms)
            }
            Call::GetTask { .. }
            | Call::UpdateTask { .. }
            | Call::CancelTask { .. }
            | Call::ListTasks { .. }
            | Call::TaskResult { .. } => begin_task_query(&self.tasks, call, &origin.caller, origin.channel),
            Call::ListTools { cursor } => {
                let page = self.pager.page("tools", &snapshot.tools, cursor.as_deref(), view)?;
                Ok(PendingCall::Done(Outcome::Tools(page)))
            }
            Call::ListResources { cursor } => {
                let page = self.pager.page("resources", &snapshot.resources, cursor.as_deref(), view)?;
                Ok(PendingCall::Done(Outcome::Resources(page)))
            }
            Call::ListTemplates { cursor } => {
                let page = self.pager.page("templates", &snapshot.templates, cursor.as_deref(), view)?;
                Ok(PendingCall::Done(Outcome::Templates(page)))
            }
            Call::ListPrompts { cursor } => {
                let page = self.pager.page("prompts", &snapshot.prompts, cursor.as_deref(), view)?;
                Ok(PendingCall::Done(Outcome::Prompts(page)))
            }
            Call::ReadResource { uri, retry } => self.begin_read(origin, &snapshot, view, uri, &retry),
            Call::GetPrompt { name, arguments, .. } => {
                let entry = snapshot.prompts.get(&name).filter(|_| view.shows_prompt(&name));
                let entry = entry.ok_or_else(|| ProtocolError::prompt_not_found(&name))?;
                check_prompt_arguments(entry, &arguments)?;
                let cx = self.context(origin, None);
                let handler = GuardedHandler::start("prompt", cx, |cx| {
                    run_prompt(entry, cx, arguments.into_iter().collect())
                })?;
                Ok(PendingCall::Prompt { prompt: Arc::clone(&entry.prompt), handler })
            }
            Call::Complete(params) => self.begin_completion(origin, &snapshot, view, params),
            call @ (Call::ListRoots | Call::AddRoot { .. } | Call::RemoveRoot { .. }) => {
                let roots = self.roots();
                // A caller that sees only part of the server must not change the roots.
                let roots =
                    roots.as_ref().filter(|_| matches!(call, Call::ListRoots) || view.is_unrestricted());
                let roots = roots.ok_or_else(|| ProtocolError::method_not_found(call.method()))?;
                Ok(PendingCall::Done(roots.handle_call(&call, &self.env.subscriptions)?))
            }
            other => Err(ProtocolError::method_not_found(other.method()).into()),
        }
    }

    /// The context of a handler. `timeout`: the time limit of its tool, if it has one.
    fn context(&self, origin: CallOrigin, timeout: Option<Duration>) -> Context {
        let CallOrigin { caller, channel, cancel } = origin;
        Context::new(caller, channel, cancel, self.env.acquire(), timeout.unwrap_or(self.timeout))
    }

    fn begin_tool_call(
        &self,
        mut origin: CallOrigin,
        entry: &Arc<ToolEntry>,
        arguments: Option<RawJson>,
        task: Option<Option<u64>>,
    ) -> Result<PendingCall, CallError> {
        let mode = ExecutionMode::new(entry, &origin.caller, task)?;
        let coercion = Coercion::new(self.is_strict, &origin.caller);
        let arguments = prepare_arguments(entry, arguments, coercion, &origin.caller, &*origin.channel)?;
        origin.caller.rejects_unknown_arguments = rejects_unknown(entry, &origin.caller);
        let entry = Arc::clone(entry);
        match mode {
            ExecutionMode::Inline => {
                let cx = self.context(origin, entry.timeout);
                Ok(begin_tool(entry, arguments, coercion, cx, None))
            }
            ExecutionMode::Deferrable => {
                let cx = self.context(origin, entry.timeout).deferrable();
                Ok(begin_tool(entry, arguments, coercion, cx, Some(Arc::clone(&self.tasks))))
            }
            ExecutionMode::Task { ttl } => {
                if let Some(errors) = find_unknown(&entry, &arguments, &origin.caller) {
                    return Err(invalid_arguments(errors));
                }
                let request = TaskRequest {
                    tool: entry.tool.name.clone(),
                    arguments,
                    caller: *origin.caller,
                    ttl,
                    default_ttl: entry.task_ttl,
                    timeout: None,
                    replay_state: ReplayState::default(),
                    session: origin.channel.session(),
                };
                Ok(begin_task(&self.tasks, None, request))
            }
        }
    }

    /// Begins `tasks/create`, which some dialects have.
    fn begin_task_creation(
        &self,
        origin: CallOrigin,
        entry: &Arc<ToolEntry>,
        arguments: Option<RawJson>,
        timeout: Option<u64>,
    ) -> Result<PendingCall, CallError> {
        ExecutionMode::new(entry, &origin.caller, Some(None))?;
        let coercion = Coercion::new(self.is_strict, &origin.caller);
        let arguments = prepare_arguments(entry, arguments, coercion, &origin.caller, &*origin.channel)?;
        if let Some(errors) = find_unknown(entry, &arguments, &origin.caller) {
            return Err(invalid_arguments(errors));
        }
        let created = self.tasks.create(TaskRequest {
            tool: entry.tool.name.clone(),
            arguments,
            caller: *origin.caller,
            ttl: None,
            default_ttl: entry.task_ttl,
            timeout,
            replay_state: ReplayState::default(),
            session: origin.channel.session(),
        });
        let future = Box::pin(async move { Ok(Outcome::TaskCreated(Box::new(created.await?))) });
        Ok(PendingCall::Task { entry: None, future })
    }

    fn begin_read(
        &self,
        origin: CallOrigin,
        snapshot: &Snapshot,
        view: View<'_>,
        uri: String,
        retry: &Retry,
    ) -> Result<PendingCall, CallError> {
        if !view.shows_resource(&uri) {
            return Err(ProtocolError::resource_not_found(&uri).into());
        }
        let (run, cache, variables) = match snapshot.resources.get(&uri) {
            Some(entry) => (&entry.run, entry.cache, Vec::new()),
            None => {
                let (entry, variables) = snapshot
                    .match_template(&uri)
                    .filter(|(entry, _)| view.shows_template(&entry.template.uri_template))
                    .ok_or_else(|| ProtocolError::resource_not_found(&uri))?;
                (&entry.run, entry.cache, variables)
            }
        };
        let cx = self.context(origin, None);
        let handler =
            GuardedHandler::start("resource", cx, |cx| run_read(run, self.roots(), cx, &uri, variables))?;
        // A result that depends on answers of this caller must not be cached for others.
        let cache = cache.filter(|_| retry.is_empty()).unwrap_or_default();
        Ok(PendingCall::Read { uri, cache, handler })
    }

    fn begin_completion(
        &self,
        mut origin: CallOrigin,
        snapshot: &Snapshot,
        view: View<'_>,
        params: CompleteParams,
    ) -> Result<PendingCall, CallError> {
        let Some(completer) = find_completer(snapshot, view, &params)? else {
            return Ok(PendingCall::Done(Outcome::Completion(Completion::default())));
        };
        origin.caller.other_arguments = Some(params.context);
        let cx = self.context(origin, None);
        let (CompletionReference::Prompt(name) | CompletionReference::Resource(name)) =
            &params.completion_ref
        else {
            return Ok(PendingCall::Done(Outcome::Completion(Completion::default())));
        };
        let argument = (params.argument, params.value);
        let handler =
            GuardedHandler::start("completion", cx, |cx| run_completer(&completer, cx, name, argument))?;
        Ok(PendingCall::Complete(handler))
    }
}

/// Looks up a tool by its name or an alias. A tool that the caller may not see is unknown.
fn find_tool<'a>(
    snapshot: &'a Snapshot,
    view: View<'_>,
    name: &str,
) -> Result<&'a Arc<ToolEntry>, ProtocolError> {
    let entry = snapshot
        .tools
        .get_or_alias(name)
        .filter(|entry| view.shows_tool(&entry.tool.name, &entry.tool.hints));
    entry.ok_or_else(|| unknown_tool(snapshot, view, name))
}
