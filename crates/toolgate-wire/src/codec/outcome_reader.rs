//! Reads results, on the client side.
//!
//! The call determines the expected result. A result that does not match it is rejected as an invalid message.

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

/// Reads the result of `call`.
///
/// # Errors
/// An [`InvalidRequest`](ProtocolErrorKind::InvalidRequest) error that names the invalid part, such as an unknown
/// `resultType`.
pub fn read_outcome(
    version: ProtocolVersion,
    call: &Call,
    result: &RawJson,
) -> Result<Outcome, ProtocolError> {
    let reader = ObjectReader::new(result, "result", ProtocolErrorKind::InvalidRequest)?;
    let behavior = version.behavior();
    let kind = match behavior.result_type {
        true => reader.field("resultType").maybe_string()?,
        false => None,
    };
    let may_require_input =
        matches!(call, Call::CallTool { .. } | Call::GetPrompt { .. } | Call::ReadResource { .. });
    match kind.as_deref() {
        None | Some("complete") => read_complete_result(version, call, &reader),
        Some("input_required")
            if may_require_input && behavior.server_requests == ServerRequestMode::Retry =>
        {
            read_input_required(version, &reader).map(Outcome::InputRequired)
        }
        Some("task") if matches!(call, Call::CallTool { .. }) && behavior.tasks == TasksMode::Extension => {
            read_task(version, &reader).map(Outcome::TaskStarted)
        }
        Some(other) => {
            Err(reader.error(format!("result.resultType of {} is unknown: {other:.64}", call.method())))
        }
    }
}

fn read_complete_result(
    version: ProtocolVersion,
    call: &Call,
    reader: &ObjectReader<'_>,
) -> Result<Outcome, ProtocolError> {
    Ok(match call {
        Call::Ping | Call::SetLevel(_) | Call::Subscribe { .. } | Call::Unsubscribe { .. } => Outcome::Empty,
        Call::UpdateTask { .. } | Call::AddRoot { .. } | Call::RemoveRoot { .. } => Outcome::Empty,
        Call::ListRoots => Outcome::Roots(reader.field("roots").list(read_root)?),
        Call::Initialize(_) => Outcome::Initialize(Box::new(read_initialize_result(reader)?)),
        Call::Discover => Outcome::Discover(Box::new(read_discover_result(reader)?)),
        Call::ListTools { .. } => Outcome::Tools(read_page(reader, "tools", read_tool)?),
        Call::CallTool { .. } => read_call_tool_result(version, reader)?,
        Call::ListResources { .. } => Outcome::Resources(read_page(reader, "resources", read_resource)?),
        Call::ListTemplates { .. } => {
            Outcome::Templates(read_page(reader, "resourceTemplates", read_template)?)
        }
        Call::ReadResource { .. } => Outcome::ReadResource {
            contents: reader.field("contents").list(read_contents)?,
            cache: read_cache(reader)?,
        },
        Call::ListPrompts { .. } => Outcome::Prompts(read_page(reader, "prompts", read_prompt)?),
        Call::GetPrompt { .. } => Outcome::Prompt(read_prompt_output(reader)?),
        Call::Complete(_) => Outcome::Completion(read_completion(&reader.field("completion"))?),
        Call::Listen(_) => match read_subscription_id(reader) {
            Some(subscription_id) => Outcome::ListenEnded { subscription_id },
            None => return Err(reader.error(format!("result._meta lacks {}", meta_key::SUBSCRIPTION_ID))),
        },
        Call::ListTasks { .. } => {
            Outcome::Tasks(read_page(reader, "tasks", |field| read_task_item(version, field))?)
        }
        Call::CreateTask { .. } => {
            return Err(reader.error("no protocol version defines tasks/create".to_owned()));
        }
        Call::GetTask { .. } => Outcome::TaskStatus(Box::new(read_task(version, reader)?)),
        Call::CancelTask { .. } => match version.behavior().tasks {
            TasksMode::Core => Outcome::TaskStatus(Box::new(read_task(version, reader)?)),
            TasksMode::Extension | TasksMode::Never => Outcome::Empty,
        },
        // Only tool calls run as tasks.
        Call::TaskResult { id } => Outcome::TaskPayload {
            id: id.clone(),
            output: Arc::new(Outcome::Tool(read_tool_output(version, reader)?)),
        },
    })
}

/// Reads the result of `tools/call`. In core tasks, the result that starts a task has no `resultType`.
fn read_call_tool_result(
    version: ProtocolVersion,
    reader: &ObjectReader<'_>,
) -> Result<Outcome, ProtocolError> {
    let [task, content] = &reader.pick(["task", "content"]);
    let is_task = task.value().is_some() && content.value_or_null().is_none();
    match version.behavior().tasks == TasksMode::Core && is_task {
        true => read_task_item(version, task).map(Outcome::TaskStarted),
        false => read_tool_output(version, reader).map(Outcome::Tool),
    }
}

pub(super) fn read_tool_output(
    version: ProtocolVersion,
    reader: &ObjectReader<'_>,
) -> Result<ToolOutput, ProtocolError> {
    let [content, structured_content, is_error, meta] =
        &reader.pick(["content", "structuredContent", "isError", "_meta"]);
    Ok(ToolOutput {
        content: content.list(read_content)?,
        structured_content: read_structured(version, structured_content),
        is_error: is_error.maybe_bool()?.unwrap_or(false),
        is_unavailable: false,
        meta: meta.maybe_object()?,
    })
}

/// Reads structured content. In versions that allow any JSON, `null` is a value; in others, some writers send `null`
/// for absent content.
pub(super) fn read_structured(version: ProtocolVersion, field: &Field<'_>) -> Option<RawJson> {
    match version.behavior().structured_content {
        StructuredContent::Any => field.maybe_json(),
        StructuredContent::Object | StructuredContent::Never => field.value().and(field.maybe_json()),
    }
}

fn read_input_required(
    version: ProtocolVersion,
    reader: &ObjectReader<'_>,
) -> Result<InputRequired, ProtocolError> {
    let [input_requests, request_state] = &reader.pick(["inputRequests", "requestState"]);
    let required = InputRequired {
        input_requests: input_requests.maybe_map(|request| read_input_request(version, request).map(Some))?,
        request_state: request_state.maybe_string()?,
    };
    match required.input_requests.is_empty() && required.request_state.is_none() {
        true => {
            Err(reader
                .error("result requires input but has neither inputRequests nor requestState".to_owned()))
        }
        false => Ok(required),
    }
}

fn read_initialize_result(reader: &ObjectReader<'_>) -> Result<InitializeResult, ProtocolError> {
    let [version, capabilities, server_info, instructions] =
        &reader.pick(["protocolVersion", "capabilities", "serverInfo", "instructions"]);
    Ok(InitializeResult {
        version: version.string()?,
        capabilities: read_server_capabilities(&capabilities.reader("capabilities")?)?,
        server_info: read_implementation(server_info)?,
        instructions: instructions.maybe_string()?,
    })
}

fn read_discover_result(reader: &ObjectReader<'_>) -> Result<DiscoverResult, ProtocolError> {
    let [versions, capabilities, instructions] =
        &reader.pick(["supportedVersions", "capabilities", "instructions"]);
    Ok(DiscoverResult {
        versions: versions.list(Field::string)?,
        capabilities: read_server_capabilities(&capabilities.reader("capabilities")?)?,
        instructions: instructions.maybe_string()?,
        server_info: read_server_info(reader)?,
        cache: read_cache(reader)?,
    })
}

fn read_server_info(reader: &ObjectReader<'_>) -> Result<Option<Implementation>, ProtocolError> {
    let Some(meta) = reader.field("_meta").maybe_reader("result._meta")? else {
        return Ok(None);
    };
    let server_info = meta.field(meta_key::SERVER_INFO);
    server_info.value().map(|_| read_implementation(&server_info)).transpose()
}

fn read_page<'a, T>(
    reader: &ObjectReader<'a>,
    name: &'static str,
    read: impl Fn(&Field<'a>) -> Result<T, ProtocolError>,
) -> Result<Page<T>, ProtocolError> {
    let [items, next_cursor] = &reader.pick([name, "nextCursor"]);
    Ok(Page {
        items: items.list(|item| read(item).map(Arc::new))?,
        next_cursor: next_cursor.maybe_string()?,
        cache: read_cache(reader)?,
    })
}

/// Reads cache hints. Without them a result must not be cached.
fn read_cache(reader: &ObjectReader<'_>) -> Result<CacheHint, ProtocolError> {
    let [ttl, scope] = &reader.pick(["ttlMs", "cacheScope"]);
    Ok(CacheHint {
        ttl_ms: ttl.maybe_count()?.unwrap_or(0),
        scope: match scope.value() {
            Some(scope) if scope.eq_str("public") => CacheScope::Public,
            _ => CacheScope::Private,
        },
    })
}

fn read_prompt_output(reader: &ObjectReader<'_>) -> Result<PromptOutput, ProtocolError> {
    let [description, messages, meta] = &reader.pick(["description", "messages", "_meta"]);
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
