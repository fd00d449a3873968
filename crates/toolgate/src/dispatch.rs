//! The hall: one wish in, one outcome out.
//!
//! Everything that depends on an edition has been taken off before and is put on again behind. A handler
//! that panics, hangs or fails costs its own call only.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use tokio::time::Sleep;
use toolgate_wire::model::{
    CacheHint, Call, ClientCapabilities, Completing, Completion, Outcome, PromptOutput, Reference, ToolOutput,
};
use toolgate_wire::{Fault, Raw};

use crate::handler::{Context, Failed, Found, Rejection, Shared, Voice};
use crate::registry::{Pager, Registry, Snapshot, ToolEntry};
use crate::request::{BoxFuture, Caller, Request, Stop};
use crate::seal::reference;

/// See the module.
#[derive(Debug)]
pub(crate) struct Hall {
    pub(crate) registry: Arc<Registry>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) pager: Pager,
    /// How long a handler may run, unless its tool says otherwise.
    pub(crate) timeout: Duration,
}

impl Hall {
    /// Answers one wish. Wishes that are about the connection (greeting, subscribing) are not for the hall.
    ///
    /// Cancel safe: yes, a dropped call drops its handler.
    pub(crate) async fn answer(&self, request: Request, voice: &Arc<dyn Voice>) -> Result<Outcome, Stop> {
        let Request { call, caller, cancel } = request;
        let context = |caller: Caller, timeout: Option<Duration>| {
            let limit = timeout.unwrap_or(self.timeout);
            Context::new(caller, Arc::clone(voice), cancel.clone(), Arc::clone(&self.shared), limit)
        };
        let catalog = self.registry.snapshot();
        match call {
            Call::CallTool { name, arguments, .. } => {
                let entry = catalog.tools.get(&name).ok_or_else(|| unknown_tool(&catalog, &name))?;
                let entry = Arc::clone(entry);
                drop(catalog);
                self.call_tool(&entry, arguments, caller, context).await
            }
            Call::ListTools { .. } if catalog.tools.is_empty() => Err(Fault::method(call.method()).into()),
            Call::ListResources { .. } | Call::ListTemplates { .. } | Call::Read { .. }
                if catalog.resources.is_empty() && catalog.templates.is_empty() =>
            {
                Err(Fault::method(call.method()).into())
            }
            Call::ListPrompts { .. } if catalog.prompts.is_empty() => {
                Err(Fault::method(call.method()).into())
            }
            Call::Complete(_) if !catalog.completes() => Err(Fault::method(call.method()).into()),
            Call::ListTools { cursor } => {
                Ok(Outcome::Tools(self.pager.page("tools", &catalog.tools, cursor.as_deref())?))
            }
            Call::ListResources { cursor } => {
                Ok(Outcome::Resources(self.pager.page("resources", &catalog.resources, cursor.as_deref())?))
            }
            Call::ListTemplates { cursor } => {
                Ok(Outcome::Templates(self.pager.page("templates", &catalog.templates, cursor.as_deref())?))
            }
            Call::ListPrompts { cursor } => {
                Ok(Outcome::Prompts(self.pager.page("prompts", &catalog.prompts, cursor.as_deref())?))
            }
            Call::Read { uri, .. } => {
                let (run, cache, words) = match catalog.resources.get(&uri) {
                    Some(entry) => (Arc::clone(&entry.run), entry.cache, Vec::new()),
                    None => {
                        let (entry, words) =
                            catalog.template_of(&uri).ok_or_else(|| Fault::resource(&uri))?;
                        (Arc::clone(&entry.run), entry.cache, words)
                    }
                };
                drop(catalog);
                let cx = context(caller, None);
                let start = || run(cx.clone(), uri.clone(), words);
                self.read(&uri, &cx, cache.unwrap_or_default(), start).await
            }
            Call::GetPrompt { name, arguments, .. } => {
                let entry = catalog.prompts.get(&name).ok_or_else(|| unknown("prompt", &name))?;
                if let Some(missing) = entry
                    .prompt
                    .arguments
                    .iter()
                    .find(|known| known.required && !arguments.contains_key(&known.name))
                {
                    return Err(Fault::params(format!(
                        "argument `{}` is required and missing",
                        missing.name
                    ))
                    .into());
                }
                let run = Arc::clone(&entry.run);
                drop(catalog);
                let cx = context(caller, None);
                let start = || run(cx.clone(), arguments.into_iter().collect());
                self.prompt(&name, &cx, start).await
            }
            Call::Complete(completing) => {
                let completer = completer(&catalog, &completing)?;
                drop(catalog);
                let Some(completer) = completer else {
                    return Ok(Outcome::Completion(Completion::default()));
                };
                let cx = context(caller, None);
                let start = || completer(cx.clone(), completing.value);
                self.complete(&cx, start).await
            }
            other => Err(Fault::method(other.method()).into()),
        }
    }

    async fn call_tool(
        &self,
        entry: &ToolEntry,
        arguments: Option<Raw>,
        caller: Caller,
        context: impl FnOnce(Caller, Option<Duration>) -> Context,
    ) -> Result<Outcome, Stop> {
        let arguments = arguments.unwrap_or_else(Raw::empty_object);
        if caller.mirrors && !entry.mirrors.is_empty() {
            crate::registry::agree(&entry.mirrors, &arguments, &caller.headers)?;
        }
        check_needs(entry, &caller)?;
        let cx = context(caller, entry.timeout);
        check_luggage(&cx)?;
        if entry.check.is_needed()
            && let Some(faults) = entry.check.faults(&arguments)
        {
            return Ok(Outcome::Tool(bad_arguments(&faults)));
        }
        let start = || (entry.run)(cx.clone(), arguments.clone());
        let name = &entry.tool.name;
        match run("tool", name, &cx, start).await? {
            Ok(output) => {
                if entry.tool.output_schema.is_some() && output.structured.is_none() && !output.is_error {
                    tracing::warn!(tool = %name, "declares an output schema and returned no structured output");
                }
                Ok(Outcome::Tool(output))
            }
            Err(Failed::Handler(output)) => Ok(Outcome::Tool(*output)),
            Err(Failed::Arguments(Rejection::Arguments(error))) => {
                // The type has refused; the schema says it in words that name the parameter.
                let faults = entry.check.faults(&arguments).unwrap_or(error);
                Ok(Outcome::Tool(bad_arguments(&faults)))
            }
            Err(Failed::Arguments(Rejection::State(missing))) => Err(no_state("tool", name, missing).into()),
        }
    }

    async fn read(
        &self,
        uri: &str,
        cx: &Context,
        cache: CacheHint,
        start: impl FnOnce() -> BoxFuture<'static, Result<Found, Failed>>,
    ) -> Result<Outcome, Stop> {
        match run("resource", uri, cx, start).await? {
            Ok(Found::Contents(contents)) => Ok(Outcome::Read { contents, cache }),
            // Variables that do not fit the template's type name nothing: there is no such resource.
            Ok(Found::Nothing) | Err(Failed::Arguments(Rejection::Arguments(_))) => {
                Err(Fault::resource(uri).into())
            }
            Err(Failed::Arguments(Rejection::State(missing))) => {
                Err(no_state("resource", uri, missing).into())
            }
            Err(Failed::Handler(output)) => Err(failed("resource", uri, &output).into()),
        }
    }

    async fn prompt(
        &self,
        name: &str,
        cx: &Context,
        start: impl FnOnce() -> BoxFuture<'static, Result<PromptOutput, Failed>>,
    ) -> Result<Outcome, Stop> {
        match run("prompt", name, cx, start).await? {
            Ok(prompt) => Ok(Outcome::Prompt(prompt)),
            Err(Failed::Arguments(Rejection::Arguments(error))) => Err(Fault::params(error).into()),
            Err(Failed::Arguments(Rejection::State(missing))) => {
                Err(no_state("prompt", name, missing).into())
            }
            Err(Failed::Handler(output)) => Err(failed("prompt", name, &output).into()),
        }
    }

    async fn complete(
        &self,
        cx: &Context,
        start: impl FnOnce() -> BoxFuture<'static, Result<Vec<String>, Failed>>,
    ) -> Result<Outcome, Stop> {
        let mut values = run("completion", "", cx, start).await?.unwrap_or_default();
        let total = values.len();
        values.truncate(Completion::MAX);
        Ok(Outcome::Completion(Completion {
            has_more: Some(total > values.len()),
            total: u64::try_from(total).ok(),
            values,
        }))
    }
}

/// Runs a handler inside walls: its panic, its hanging and its questions stay its own.
async fn run<T>(
    kind: &'static str,
    name: &str,
    cx: &Context,
    start: impl FnOnce() -> BoxFuture<'static, Result<T, Failed>>,
) -> Result<Result<T, Failed>, Stop> {
    check_luggage(cx)?;
    // A handler may panic before its future exists: in a closure's own code, or reading its arguments.
    let ended = match std::panic::catch_unwind(AssertUnwindSafe(start)) {
        Ok(run) => Walled { run, sleep: None, asked: 0, cx }.await,
        Err(panic) => Ended::Panicked(words(panic.as_ref())),
    };
    match ended {
        Ended::Returned(Err(failed)) => match cx.voice().stopped(said(&failed)) {
            // It gave up because an answer is missing: that is no failure.
            Some(stop) => Err(stop),
            None => Ok(Err(failed)),
        },
        Ended::Returned(returned) => Ok(returned),
        Ended::Panicked(what) => {
            let reference = reference();
            tracing::error!(kind, name, reference, panic = %what, "handler panicked");
            Ok(Err(told(format!("the {kind} failed unexpectedly, ref {reference}"))))
        }
        Ended::TimedOut => {
            let limit = cx.limit();
            tracing::warn!(kind, name, ?limit, "handler ran out of time");
            Ok(Err(told(format!("timeout: the {kind} did not finish within {limit:?}"))))
        }
    }
}

fn said(failed: &Failed) -> &str {
    match failed {
        Failed::Handler(output) => {
            output.content.first().and_then(|content| content.as_text()).unwrap_or_default()
        }
        Failed::Arguments(_) => "",
    }
}

fn told(text: String) -> Failed {
    Failed::Handler(Box::new(ToolOutput::error(text)))
}

fn bad_arguments(faults: &str) -> ToolOutput {
    ToolOutput::error(format!("Validation error: {faults}"))
}

fn check_needs(entry: &ToolEntry, caller: &Caller) -> Result<(), Fault> {
    let mut missing = ClientCapabilities::default();
    let mut any = false;
    for need in entry.needs.iter().filter(|need| !need.is_met(&caller.client.capabilities)) {
        need.add_to(&mut missing);
        any = true;
    }
    if any {
        let message =
            format!("tool `{}` needs capabilities that the client does not declare", entry.tool.name);
        return Err(Fault::capability(&missing, message));
    }
    Ok(())
}

/// What the client carried from an earlier run must be what it was given, before anything runs with it: a
/// handler that finds nothing of its earlier steps would do them again.
fn check_luggage(cx: &Context) -> Result<(), Stop> {
    cx.voice().stopped("").map_or(Ok(()), Err)
}

fn unknown_tool(catalog: &Snapshot, name: &str) -> Fault {
    let closest =
        catalog.tools.iter().map(|entry| entry.tool.name.as_str()).find(|known| is_close(known, name));
    match closest {
        Some(known) => Fault::params(format!("unknown tool: {}; did you mean {known}?", clip(name))),
        None => unknown("tool", name),
    }
}

fn unknown(kind: &str, name: &str) -> Fault {
    Fault::params(format!("unknown {kind}: {}", clip(name)))
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

fn clip(text: &str) -> &str {
    text.char_indices().nth(128).map_or(text, |(end, _)| &text[..end])
}

/// A resource or prompt that failed. Its own words are for the caller, like those of a tool.
fn failed(kind: &str, name: &str, output: &ToolOutput) -> Fault {
    let said = output.content.first().and_then(|content| content.as_text()).unwrap_or_default();
    tracing::warn!(kind, name, said, "handler failed");
    Fault::new(toolgate_wire::FaultKind::Internal, said.to_owned())
}

fn no_state(kind: &str, name: &str, missing: &str) -> Fault {
    let reference = reference();
    tracing::error!(kind, name, reference, missing, "the server was built without this state");
    Fault::internal(&reference)
}

fn completer(
    catalog: &Snapshot,
    completing: &Completing,
) -> Result<Option<crate::handler::CompleteFn>, Fault> {
    let Completing { reference, argument, .. } = completing;
    let completers = match reference {
        Reference::Prompt(name) => {
            let entry = catalog.prompts.get(name).ok_or_else(|| unknown("prompt", name))?;
            &entry.completers
        }
        Reference::Resource(uri) => match catalog.templates.get(uri) {
            Some(entry) => &entry.completers,
            None if catalog.resources.get(uri).is_some() => return Ok(None),
            None => return Err(unknown("resource template", uri)),
        },
    };
    Ok(completers.get(argument).cloned())
}

enum Ended<T> {
    Returned(Result<T, Failed>),
    Panicked(String),
    TimedOut,
}

/// A handler's future whose panics are caught and whose time is bounded. No timer is set before the first
/// time it has to wait: most handlers never do.
struct Walled<'a, T> {
    run: BoxFuture<'static, Result<T, Failed>>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Questions counted when the timer was last set: a human's time is not the handler's.
    asked: u32,
    cx: &'a Context,
}

impl<T> Future for Walled<'_, T> {
    type Output = Ended<T>;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Ended<T>> {
        let this = self.get_mut();
        let run = &mut this.run;
        match std::panic::catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(task))) {
            Ok(Poll::Ready(returned)) => return Poll::Ready(Ended::Returned(returned)),
            Ok(Poll::Pending) => {}
            Err(panic) => return Poll::Ready(Ended::Panicked(words(panic.as_ref()))),
        }
        let cx = this.cx;
        let sleep = this.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(cx.deadline())));
        // A handler that is never out of work uses up what tokio lets one poll do: without `unconstrained` its
        // time would never be seen to be over.
        while std::pin::pin!(tokio::task::unconstrained(sleep.as_mut())).poll(task).is_ready() {
            let asked = cx.asked();
            if !cx.is_asking() && asked == this.asked {
                return Poll::Ready(Ended::TimedOut);
            }
            this.asked = asked;
            sleep.as_mut().reset(cx.extend());
        }
        Poll::Pending
    }
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
