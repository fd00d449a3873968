//! What a server answered, from JSON: what a client reads.
//!
//! Which result to expect follows from the call. An answer that does not fit is
//! refused as an invalid message, never guessed at.

use std::sync::Arc;

use super::ask::{read_embedded, read_root};
use super::capability::{read_implementation, read_server_capabilities};
use super::content::{read_content, read_contents, read_resource};
use super::fields::{Field, Part};
use super::greeting::read_subscription;
use super::item::{read_prompt, read_prompt_message, read_template, read_tool};
use super::task::{read_task, read_task_item};
use crate::Edition;
use crate::edition::{Asking, Structured, Tasks};
use crate::json::Raw;
use crate::meta::key;
use crate::model::{
    CacheHint, CacheScope, Call, Completion, Discovery, Implementation, InputRequired, Outcome, Page,
    PromptOutput, ToolOutput, Welcome,
};
use crate::{Fault, FaultKind};

/// Reads the result of `call`. The fault, a [`FaultKind::Invalid`], says what
/// of it does not fit, an unknown type of result included.
pub fn read_outcome(edition: Edition, call: &Call, result: &Raw) -> Result<Outcome, Fault> {
    let part = Part::of(result, "result", FaultKind::Invalid)?;
    let facts = edition.facts();
    let kind = match facts.result_type {
        true => part.field("resultType").maybe_text()?,
        false => None,
    };
    let may_ask = matches!(call, Call::CallTool { .. } | Call::GetPrompt { .. } | Call::Read { .. });
    match kind.as_deref() {
        None | Some("complete") => read_complete(edition, call, &part),
        Some("input_required") if may_ask && facts.asking == Asking::Retry => {
            read_input_required(edition, &part).map(Outcome::InputRequired)
        }
        Some("task") if matches!(call, Call::CallTool { .. }) && facts.tasks == Tasks::Extension => {
            read_task(edition, &part).map(Outcome::TaskStarted)
        }
        Some(other) => {
            Err(part.refuse(format!("result.resultType of {} is unknown: {other:.64}", call.method())))
        }
    }
}

fn read_complete(edition: Edition, call: &Call, part: &Part<'_>) -> Result<Outcome, Fault> {
    Ok(match call {
        Call::Ping | Call::SetLevel(_) | Call::Subscribe { .. } | Call::Unsubscribe { .. } => Outcome::Done,
        Call::UpdateTask { .. } | Call::AddRoot { .. } | Call::RemoveRoot { .. } => Outcome::Done,
        Call::ListRoots => Outcome::Roots(part.field("roots").list(read_root)?),
        Call::Hello(_) => Outcome::Welcome(Box::new(read_welcome(part)?)),
        Call::Discover => Outcome::Discovery(Box::new(read_discovery(part)?)),
        Call::ListTools { .. } => Outcome::Tools(read_page(part, "tools", read_tool)?),
        Call::CallTool { .. } => read_called(edition, part)?,
        Call::ListResources { .. } => Outcome::Resources(read_page(part, "resources", read_resource)?),
        Call::ListTemplates { .. } => {
            Outcome::Templates(read_page(part, "resourceTemplates", read_template)?)
        }
        Call::Read { .. } => {
            Outcome::Read { contents: part.field("contents").list(read_contents)?, cache: read_cache(part)? }
        }
        Call::ListPrompts { .. } => Outcome::Prompts(read_page(part, "prompts", read_prompt)?),
        Call::GetPrompt { .. } => Outcome::Prompt(read_prompt_output(part)?),
        Call::Complete(_) => Outcome::Completion(read_completion(&part.field("completion"))?),
        Call::Listen(_) => match read_subscription(part) {
            Some(subscription) => Outcome::Listened { subscription },
            None => return Err(part.refuse(format!("result._meta lacks {}", key::SUBSCRIPTION))),
        },
        Call::ListTasks { .. } => {
            Outcome::Tasks(read_page(part, "tasks", |field| read_task_item(edition, field))?)
        }
        Call::CreateTask { .. } => return Err(part.refuse("no edition has tasks/create".to_owned())),
        Call::GetTask { .. } => Outcome::TaskStatus(Box::new(read_task(edition, part)?)),
        Call::CancelTask { .. } => match edition.facts().tasks {
            Tasks::Core => Outcome::TaskStatus(Box::new(read_task(edition, part)?)),
            Tasks::Extension | Tasks::Never => Outcome::Done,
        },
        // Only calls of tools run as tasks.
        Call::TaskResult { id } => Outcome::TaskPayload {
            id: id.clone(),
            output: Arc::new(Outcome::Tool(read_tool_output(edition, part)?)),
        },
    })
}

/// In core tasks, a call that goes on as a task has no type to tell it by.
fn read_called(edition: Edition, part: &Part<'_>) -> Result<Outcome, Fault> {
    let [task, content] = &part.pick(["task", "content"]);
    let started = task.value().is_some() && content.given().is_none();
    match edition.facts().tasks == Tasks::Core && started {
        true => read_task_item(edition, task).map(Outcome::TaskStarted),
        false => read_tool_output(edition, part).map(Outcome::Tool),
    }
}

pub(super) fn read_tool_output(edition: Edition, part: &Part<'_>) -> Result<ToolOutput, Fault> {
    let [content, structured, is_error, meta] =
        &part.pick(["content", "structuredContent", "isError", "_meta"]);
    Ok(ToolOutput {
        content: content.list(read_content)?,
        structured: read_structured(edition, structured),
        is_error: is_error.maybe_bool()?.unwrap_or(false),
        is_unavailable: false,
        meta: meta.maybe_object()?,
    })
}

/// Where any JSON may stand, `null` is a value like others; elsewhere it is
/// what some writers say for nothing.
pub(super) fn read_structured(edition: Edition, field: &Field<'_>) -> Option<Raw> {
    match edition.facts().structured {
        Structured::Any => field.maybe_json(),
        Structured::Object | Structured::Never => field.value().and(field.maybe_json()),
    }
}

fn read_input_required(edition: Edition, part: &Part<'_>) -> Result<InputRequired, Fault> {
    let [asks, state] = &part.pick(["inputRequests", "requestState"]);
    let required = InputRequired {
        asks: asks.maybe_map(|ask| read_embedded(edition, ask).map(Some))?,
        state: state.maybe_text()?,
    };
    match required.asks.is_empty() && required.state.is_none() {
        true => Err(part.refuse("result asks for input but says neither which nor a state".to_owned())),
        false => Ok(required),
    }
}

fn read_welcome(part: &Part<'_>) -> Result<Welcome, Fault> {
    let [version, capabilities, server, instructions] =
        &part.pick(["protocolVersion", "capabilities", "serverInfo", "instructions"]);
    Ok(Welcome {
        version: version.text()?,
        capabilities: read_server_capabilities(&capabilities.part("capabilities")?)?,
        server: read_implementation(server)?,
        instructions: instructions.maybe_text()?,
    })
}

fn read_discovery(part: &Part<'_>) -> Result<Discovery, Fault> {
    let [versions, capabilities, instructions] =
        &part.pick(["supportedVersions", "capabilities", "instructions"]);
    Ok(Discovery {
        versions: versions.list(Field::text)?,
        capabilities: read_server_capabilities(&capabilities.part("capabilities")?)?,
        instructions: instructions.maybe_text()?,
        server: read_server(part)?,
        cache: read_cache(part)?,
    })
}

fn read_server(part: &Part<'_>) -> Result<Option<Implementation>, Fault> {
    let Some(meta) = part.field("_meta").maybe_part("result._meta")? else {
        return Ok(None);
    };
    let server = meta.field(key::SERVER);
    server.value().map(|_| read_implementation(&server)).transpose()
}

fn read_page<'a, T>(
    part: &Part<'a>,
    name: &'static str,
    read: impl Fn(&Field<'a>) -> Result<T, Fault>,
) -> Result<Page<T>, Fault> {
    let [items, next] = &part.pick([name, "nextCursor"]);
    Ok(Page {
        items: items.list(|item| read(item).map(Arc::new))?,
        next: next.maybe_text()?,
        cache: read_cache(part)?,
    })
}

/// What is not said must not be cached.
fn read_cache(part: &Part<'_>) -> Result<CacheHint, Fault> {
    let [ttl, scope] = &part.pick(["ttlMs", "cacheScope"]);
    Ok(CacheHint {
        ttl_ms: ttl.maybe_count()?.unwrap_or(0),
        scope: match scope.value() {
            Some(scope) if scope.is_text("public") => CacheScope::Public,
            _ => CacheScope::Private,
        },
    })
}

fn read_prompt_output(part: &Part<'_>) -> Result<PromptOutput, Fault> {
    let [description, messages, meta] = &part.pick(["description", "messages", "_meta"]);
    Ok(PromptOutput {
        description: description.maybe_text()?,
        messages: messages.list(read_prompt_message)?,
        meta: meta.maybe_object()?,
    })
}

fn read_completion(field: &Field<'_>) -> Result<Completion, Fault> {
    let [values, total, has_more] = &field.part("completion")?.pick(["values", "total", "hasMore"]);
    Ok(Completion {
        values: values.list(Field::text)?,
        total: total.maybe_count()?,
        has_more: has_more.maybe_bool()?,
    })
}
