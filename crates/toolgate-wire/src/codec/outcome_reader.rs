//! What a server answered, from JSON: what a client reads.
//!
//! Which result to expect follows from the call. An answer that does not fit is
//! refused as an invalid message, never guessed at.

use std::sync::Arc;

use super::capability::{read_implementation, read_server_capabilities};
use super::content::{read_content, read_contents, read_resource};
use super::fields::{Field, ObjectReader};
use super::list_item::{read_prompt, read_prompt_message, read_template, read_tool};
use super::meta_writer::read_subscription_id;
use super::server_request::{read_input_request, read_root};
use super::task::{read_task, read_task_item};
use crate::ProtocolVersion;
use crate::json::RawJson;
use crate::meta::meta_key;
use crate::model::{
    CacheHint, CacheScope, Call, Completion, DiscoverResult, Implementation, InitializeResult, InputRequired,
    Outcome, Page, PromptOutput, ToolOutput,
};
use crate::protocol_version::{ServerRequestMode, StructuredContent, TasksMode};
use crate::{ProtocolError, ProtocolErrorKind};

/// Reads the result of `call`. The fault, a [`FaultKind::Invalid`], says what
/// of it does not fit, an unknown type of result included.
pub fn read_outcome(
    version: ProtocolVersion,
    call: &Call,
    result: &RawJson,
) -> Result<Outcome, ProtocolError> {
    let part = ObjectReader::new(result, "result", ProtocolErrorKind::InvalidRequest)?;
    let facts = version.behavior();
    let kind = match facts.result_type {
        true => part.field("resultType").maybe_string()?,
        false => None,
    };
    let may_ask = matches!(call, Call::CallTool { .. } | Call::GetPrompt { .. } | Call::ReadResource { .. });
    match kind.as_deref() {
        None | Some("complete") => read_complete_result(version, call, &part),
        Some("input_required") if may_ask && facts.server_requests == ServerRequestMode::Retry => {
            read_input_required(version, &part).map(Outcome::InputRequired)
        }
        Some("task") if matches!(call, Call::CallTool { .. }) && facts.tasks == TasksMode::Extension => {
            read_task(version, &part).map(Outcome::TaskStarted)
        }
        Some(other) => {
            Err(part.error(format!("result.resultType of {} is unknown: {other:.64}", call.method())))
        }
    }
}

fn read_complete_result(
    version: ProtocolVersion,
    call: &Call,
    part: &ObjectReader<'_>,
) -> Result<Outcome, ProtocolError> {
    Ok(match call {
        Call::Ping | Call::SetLevel(_) | Call::Subscribe { .. } | Call::Unsubscribe { .. } => Outcome::Empty,
        Call::UpdateTask { .. } | Call::AddRoot { .. } | Call::RemoveRoot { .. } => Outcome::Empty,
        Call::ListRoots => Outcome::Roots(part.field("roots").list(read_root)?),
        Call::Initialize(_) => Outcome::Initialize(Box::new(read_initialize_result(part)?)),
        Call::Discover => Outcome::Discover(Box::new(read_discover_result(part)?)),
        Call::ListTools { .. } => Outcome::Tools(read_page(part, "tools", read_tool)?),
        Call::CallTool { .. } => read_call_tool_result(version, part)?,
        Call::ListResources { .. } => Outcome::Resources(read_page(part, "resources", read_resource)?),
        Call::ListTemplates { .. } => {
            Outcome::Templates(read_page(part, "resourceTemplates", read_template)?)
        }
        Call::ReadResource { .. } => Outcome::ReadResource {
            contents: part.field("contents").list(read_contents)?,
            cache: read_cache(part)?,
        },
        Call::ListPrompts { .. } => Outcome::Prompts(read_page(part, "prompts", read_prompt)?),
        Call::GetPrompt { .. } => Outcome::Prompt(read_prompt_output(part)?),
        Call::Complete(_) => Outcome::Completion(read_completion(&part.field("completion"))?),
        Call::Listen(_) => match read_subscription_id(part) {
            Some(subscription) => Outcome::ListenEnded { subscription_id: subscription },
            None => return Err(part.error(format!("result._meta lacks {}", meta_key::SUBSCRIPTION_ID))),
        },
        Call::ListTasks { .. } => {
            Outcome::Tasks(read_page(part, "tasks", |field| read_task_item(version, field))?)
        }
        Call::CreateTask { .. } => {
            return Err(part.error("no protocol version defines tasks/create".to_owned()));
        }
        Call::GetTask { .. } => Outcome::TaskStatus(Box::new(read_task(version, part)?)),
        Call::CancelTask { .. } => match version.behavior().tasks {
            TasksMode::Core => Outcome::TaskStatus(Box::new(read_task(version, part)?)),
            TasksMode::Extension | TasksMode::Never => Outcome::Empty,
        },
        // Only calls of tools run as tasks.
        Call::TaskResult { id } => Outcome::TaskPayload {
            id: id.clone(),
            output: Arc::new(Outcome::Tool(read_tool_output(version, part)?)),
        },
    })
}

/// In core tasks, a call that goes on as a task has no type to tell it by.
fn read_call_tool_result(
    version: ProtocolVersion,
    part: &ObjectReader<'_>,
) -> Result<Outcome, ProtocolError> {
    let [task, content] = &part.pick(["task", "content"]);
    let started = task.value().is_some() && content.value_or_null().is_none();
    match version.behavior().tasks == TasksMode::Core && started {
        true => read_task_item(version, task).map(Outcome::TaskStarted),
        false => read_tool_output(version, part).map(Outcome::Tool),
    }
}

pub(super) fn read_tool_output(
    version: ProtocolVersion,
    part: &ObjectReader<'_>,
) -> Result<ToolOutput, ProtocolError> {
    let [content, structured, is_error, meta] =
        &part.pick(["content", "structuredContent", "isError", "_meta"]);
    Ok(ToolOutput {
        content: content.list(read_content)?,
        structured_content: read_structured(version, structured),
        is_error: is_error.maybe_bool()?.unwrap_or(false),
        is_unavailable: false,
        meta: meta.maybe_object()?,
    })
}

/// Where any JSON may stand, `null` is a value like others; elsewhere it is
/// what some writers say for nothing.
pub(super) fn read_structured(version: ProtocolVersion, field: &Field<'_>) -> Option<RawJson> {
    match version.behavior().structured_content {
        StructuredContent::Any => field.maybe_json(),
        StructuredContent::Object | StructuredContent::Never => field.value().and(field.maybe_json()),
    }
}

fn read_input_required(
    version: ProtocolVersion,
    part: &ObjectReader<'_>,
) -> Result<InputRequired, ProtocolError> {
    let [asks, state] = &part.pick(["inputRequests", "requestState"]);
    let required = InputRequired {
        input_requests: asks.maybe_map(|ask| read_input_request(version, ask).map(Some))?,
        request_state: state.maybe_string()?,
    };
    match required.input_requests.is_empty() && required.request_state.is_none() {
        true => {
            Err(part.error("result requires input but has neither inputRequests nor requestState".to_owned()))
        }
        false => Ok(required),
    }
}

fn read_initialize_result(part: &ObjectReader<'_>) -> Result<InitializeResult, ProtocolError> {
    let [version, capabilities, server, instructions] =
        &part.pick(["protocolVersion", "capabilities", "serverInfo", "instructions"]);
    Ok(InitializeResult {
        version: version.string()?,
        capabilities: read_server_capabilities(&capabilities.reader("capabilities")?)?,
        server_info: read_implementation(server)?,
        instructions: instructions.maybe_string()?,
    })
}

fn read_discover_result(part: &ObjectReader<'_>) -> Result<DiscoverResult, ProtocolError> {
    let [versions, capabilities, instructions] =
        &part.pick(["supportedVersions", "capabilities", "instructions"]);
    Ok(DiscoverResult {
        versions: versions.list(Field::string)?,
        capabilities: read_server_capabilities(&capabilities.reader("capabilities")?)?,
        instructions: instructions.maybe_string()?,
        server_info: read_server_info(part)?,
        cache: read_cache(part)?,
    })
}

fn read_server_info(part: &ObjectReader<'_>) -> Result<Option<Implementation>, ProtocolError> {
    let Some(meta) = part.field("_meta").maybe_reader("result._meta")? else {
        return Ok(None);
    };
    let server = meta.field(meta_key::SERVER_INFO);
    server.value().map(|_| read_implementation(&server)).transpose()
}

fn read_page<'a, T>(
    part: &ObjectReader<'a>,
    name: &'static str,
    read: impl Fn(&Field<'a>) -> Result<T, ProtocolError>,
) -> Result<Page<T>, ProtocolError> {
    let [items, next] = &part.pick([name, "nextCursor"]);
    Ok(Page {
        items: items.list(|item| read(item).map(Arc::new))?,
        next_cursor: next.maybe_string()?,
        cache: read_cache(part)?,
    })
}

/// What is not said must not be cached.
fn read_cache(part: &ObjectReader<'_>) -> Result<CacheHint, ProtocolError> {
    let [ttl, scope] = &part.pick(["ttlMs", "cacheScope"]);
    Ok(CacheHint {
        ttl_ms: ttl.maybe_count()?.unwrap_or(0),
        scope: match scope.value() {
            Some(scope) if scope.eq_str("public") => CacheScope::Public,
            _ => CacheScope::Private,
        },
    })
}

fn read_prompt_output(part: &ObjectReader<'_>) -> Result<PromptOutput, ProtocolError> {
    let [description, messages, meta] = &part.pick(["description", "messages", "_meta"]);
    Ok(PromptOutput {
        description: description.maybe_string()?,
        messages: messages.list(read_prompt_message)?,
        meta: meta.maybe_object()?,
    })
}

fn read_completion(field: &Field<'_>) -> Result<Completion, ProtocolError> {
    let [values, total, has_more] = &field.reader("completion")?.pick(["values", "total", "hasMore"]);
    Ok(Completion {
        values: values.list(Field::string)?,
        total: total.maybe_count()?,
        has_more: has_more.maybe_bool()?,
    })
}
