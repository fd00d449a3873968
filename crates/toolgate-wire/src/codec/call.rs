//! Converts between method and params and a [`Call`], in both directions.
//!
//! A method that a version does not have is rejected as unknown, even if other versions have it. Tool arguments stay raw:
//! the tool parses them once.

use std::collections::BTreeMap;

use super::capability::{read_client_capabilities, read_implementation};
use super::fields::Field;
use super::meta_writer::RequestMeta;
use super::object::{ObjectOrAbsent, ObjectWriter, TrueOrAbsent, WriteJson, nest};
use super::params_view::{ParamsView, read_log_level};
use crate::ProtocolError;
use crate::ProtocolVersion::{self, V2025_06_18, V2025_11_25, V2026_07_28};
use crate::json::{Kind, RawJson};
use crate::meta::{Client, Meta};
use crate::model::{
    Call, ClientCapabilities, CompleteParams, CompletionReference, Implementation, InitializeParams, Retry,
    SubscriptionFilter,
};
use crate::protocol_version::{ChangeDelivery, Lifecycle, LogLevelScope, ServerRequestMode, TasksMode};

/// The maximum number of URIs or task ids in a subscription.
const MAX_FILTER_ITEMS: usize = 1000;

/// The maximum length of the value to complete, in bytes.
const MAX_COMPLETION_VALUE_BYTES: usize = 4096;

/// Reads a request. The error states that the version has no such method, or names the invalid parameter.
pub fn read_call(
    version: ProtocolVersion,
    method: &str,
    params: Option<&RawJson>,
) -> Result<Call, ProtocolError> {
    ParamsView::new(params)?.read_call(version, method)
}

impl ParamsView<'_> {
    /// Reads the request that has these parameters; see [`read_call`].
    ///
    /// # Errors
    /// As [`read_call`].
    pub fn read_call(&self, version: ProtocolVersion, method: &str) -> Result<Call, ProtocolError> {
        read_call_params(version, method, self)
    }
}

pub(super) fn read_call_params(
    version: ProtocolVersion,
    method: &str,
    params: &ParamsView<'_>,
) -> Result<Call, ProtocolError> {
    let behavior = version.behavior();
    match method {
        "tools/call" => read_call_tool(version, params),
        "tools/list" => Ok(Call::ListTools { cursor: read_cursor(params)? }),
        "resources/list" => Ok(Call::ListResources { cursor: read_cursor(params)? }),
        "resources/templates/list" => Ok(Call::ListTemplates { cursor: read_cursor(params)? }),
        "resources/read" => read_read_resource(version, params),
        "prompts/list" => Ok(Call::ListPrompts { cursor: read_cursor(params)? }),
        "prompts/get" => read_get_prompt(version, params),
        "completion/complete" => read_complete(version, params),
        "initialize" if behavior.lifecycle == Lifecycle::Handshake => read_initialize(params),
        "server/discover" if behavior.lifecycle == Lifecycle::Stateless => Ok(Call::Discover),
        "ping" if behavior.ping => Ok(Call::Ping),
        "logging/setLevel" if behavior.log_level_scope == LogLevelScope::Session => {
            Ok(Call::SetLevel(read_log_level(&params.field("level"))?))
        }
        "resources/subscribe" if behavior.change_delivery == ChangeDelivery::Session => {
            Ok(Call::Subscribe { uri: params.field("uri").string()? })
        }
        "resources/unsubscribe" if behavior.change_delivery == ChangeDelivery::Session => {
            Ok(Call::Unsubscribe { uri: params.field("uri").string()? })
        }
        "subscriptions/listen" if behavior.change_delivery == ChangeDelivery::Listen => {
            Ok(Call::Listen(read_filter(&params.field("notifications"))?))
        }
        "tasks/list" if behavior.tasks == TasksMode::Core => {
            Ok(Call::ListTasks { cursor: read_cursor(params)? })
        }
        "tasks/result" if behavior.tasks == TasksMode::Core => {
            Ok(Call::TaskResult { id: read_task_id(params)? })
        }
        "tasks/get" if behavior.tasks != TasksMode::Never => Ok(Call::GetTask { id: read_task_id(params)? }),
        "tasks/cancel" if behavior.tasks != TasksMode::Never => {
            Ok(Call::CancelTask { id: read_task_id(params)? })
        }
        "tasks/update" if behavior.tasks == TasksMode::Extension => Ok(Call::UpdateTask {
            id: read_task_id(params)?,
            input_responses: params.field("inputResponses").map(|response| Ok(response.maybe_json()))?,
        }),
        _ => Err(ProtocolError::method_not_found(method)),
    }
}

fn read_cursor(params: &ParamsView<'_>) -> Result<Option<String>, ProtocolError> {
    params.field("cursor").maybe_string()
}

fn read_task_id(params: &ParamsView<'_>) -> Result<String, ProtocolError> {
    params.field("taskId").string()
}

fn read_call_tool(version: ProtocolVersion, params: &ParamsView<'_>) -> Result<Call, ProtocolError> {
    Ok(Call::CallTool {
        name: params.field("name").string()?,
        arguments: params.field("arguments").maybe_object()?,
        retry: read_retry(version, params)?,
        task: match (version.behavior().tasks, params.has("task")) {
            (TasksMode::Core, true) => read_task_params(&params.field("task"))?,
            _ => None,
        },
    })
}

fn read_task_params(task: &Field<'_>) -> Result<Option<Option<u64>>, ProtocolError> {
    let task = task.maybe_reader("params.task")?;
    task.map(|task| read_millis(&task.field("ttl"))).transpose()
}

/// Reads any whole number. Values out of range saturate; the owner of the task limits them.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it saturates, which is what is wanted"
)]
fn read_millis(field: &Field<'_>) -> Result<Option<u64>, ProtocolError> {
    match field.maybe_number()? {
        Some(number) if number.fract() != 0.0 => Err(field.type_error("a whole number")),
        number => Ok(number.map(|number| number as u64)),
    }
}

pub(super) fn read_create_task(params: &ParamsView<'_>) -> Result<Call, ProtocolError> {
    let [action, timeout] = &params.field("task").reader("params.task")?.pick(["action", "timeoutMs"]);
    let [kind, name, arguments] = &action.reader("params.task.action")?.pick(["type", "name", "arguments"]);
    match kind.maybe_string()?.as_deref() {
        None | Some("tool") => Ok(Call::CreateTask {
            tool: name.string()?,
            arguments: arguments.maybe_object()?,
            timeout_ms: read_millis(timeout)?,
        }),
        Some(_) => Err(kind.type_error("\"tool\"")),
    }
}

/// Keeps members of `inputResponses` that are not objects: they are validated against the request they belong to.
fn read_retry(version: ProtocolVersion, params: &ParamsView<'_>) -> Result<Retry, ProtocolError> {
    if version.behavior().server_requests == ServerRequestMode::Reverse {
        return Ok(Retry::default());
    }
    Ok(Retry {
        input_responses: match params.has("inputResponses") {
            true => params.field("inputResponses").map(|response| Ok(response.maybe_json()))?,
            false => BTreeMap::new(),
        },
        request_state: match params.has("requestState") {
            true => Some(params.field("requestState").string()?),
            false => None,
        },
    })
}

fn read_read_resource(version: ProtocolVersion, params: &ParamsView<'_>) -> Result<Call, ProtocolError> {
    Ok(Call::ReadResource { uri: params.field("uri").string()?, retry: read_retry(version, params)? })
}

fn read_get_prompt(version: ProtocolVersion, params: &ParamsView<'_>) -> Result<Call, ProtocolError> {
    Ok(Call::GetPrompt {
        name: params.field("name").string()?,
        arguments: read_string_map(&params.field("arguments"))?,
        retry: read_retry(version, params)?,
    })
}

/// Reads strings by name. The protocol allows strings only, but some clients send the values of a form: other primitive
/// values are taken as they are written, and `null` as absent.
fn read_string_map(field: &Field<'_>) -> Result<BTreeMap<String, String>, ProtocolError> {
    field.maybe_map(|entry| match entry.value_or_null() {
        Some(value) => match value.kind() {
            Kind::Null => Ok(None),
            Kind::String => entry.string().map(Some),
            Kind::Bool | Kind::Number => Ok(Some(value.to_string())),
            Kind::Array | Kind::Object => Err(entry.type_error("a string")),
        },
        None => Ok(None),
    })
}

fn read_complete(version: ProtocolVersion, params: &ParamsView<'_>) -> Result<Call, ProtocolError> {
    let [reference, argument, context] = &params.pick(["ref", "argument", "context"]);
    let [name, value] = &argument.reader("params.argument")?.pick(["name", "value"]);
    let params = CompleteParams {
        completion_ref: read_reference(reference)?,
        argument: name.string()?,
        value: value.string()?,
        context: match context.maybe_reader("params.context")? {
            Some(context) if version >= V2025_06_18 => read_string_map(&context.field("arguments"))?,
            _ => BTreeMap::new(),
        },
    };
    if params.value.len() > MAX_COMPLETION_VALUE_BYTES {
        return Err(value.type_error(&format!("at most {MAX_COMPLETION_VALUE_BYTES} bytes")));
    }
    Ok(Call::Complete(params))
}

fn read_reference(field: &Field<'_>) -> Result<CompletionReference, ProtocolError> {
    let [kind, name, uri] = &field.reader("params.ref")?.pick(["type", "name", "uri"]);
    match kind.string()?.as_str() {
        // Some clients omit the `ref/` prefix.
        "ref/prompt" | "prompt" => Ok(CompletionReference::Prompt(name.string()?)),
        "ref/resource" | "resource" => Ok(CompletionReference::Resource(uri.string()?)),
        _ => Err(kind.type_error("\"ref/prompt\" or \"ref/resource\"")),
    }
}

fn read_initialize(params: &ParamsView<'_>) -> Result<Call, ProtocolError> {
    let [version, capabilities, client] = &params.pick(["protocolVersion", "capabilities", "clientInfo"]);
    Ok(Call::Initialize(InitializeParams {
        version: version.string()?,
        capabilities: match capabilities.maybe_reader("params.capabilities")? {
            Some(capabilities) => read_client_capabilities(&capabilities)?,
            None => ClientCapabilities::default(),
        },
        client_info: client.value().map(|_| read_implementation(client)).transpose()?,
    }))
}

/// Reads a subscription filter.
pub(super) fn read_filter(field: &Field<'_>) -> Result<SubscriptionFilter, ProtocolError> {
    let reader = field.reader("notifications")?;
    let [tools, prompts, resources, uris, tasks] = &reader.pick([
        "toolsListChanged",
        "promptsListChanged",
        "resourcesListChanged",
        "resourceSubscriptions",
        "taskIds",
    ]);
    Ok(SubscriptionFilter {
        tools: tools.maybe_bool()?.unwrap_or(false),
        prompts: prompts.maybe_bool()?.unwrap_or(false),
        resources: resources.maybe_bool()?.unwrap_or(false),
        uris: read_filter_items(uris)?,
        tasks: read_filter_items(tasks)?,
    })
}

fn read_filter_items(field: &Field<'_>) -> Result<Vec<String>, ProtocolError> {
    let is_too_long = field.value().is_some_and(|list| list.items().nth(MAX_FILTER_ITEMS).is_some());
    match is_too_long {
        true => Err(field.type_error(&format!("at most {MAX_FILTER_ITEMS} strings"))),
        false => field.maybe_list(Field::string),
    }
}

impl WriteJson for SubscriptionFilter {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let SubscriptionFilter { tools, prompts, resources, uris, tasks } = self;
        ObjectWriter::open(out, version)
            .optional("toolsListChanged", &TrueOrAbsent(*tools))
            .optional("promptsListChanged", &TrueOrAbsent(*prompts))
            .optional("resourcesListChanged", &TrueOrAbsent(*resources))
            .optional("resourceSubscriptions", uris)
            .optional("taskIds", tasks)
            .close();
    }
}

/// Appends the params of a request. In a version without a handshake `client` is written to `_meta`; without it, the client
/// information of `meta.raw` is forwarded.
pub fn write_call_params(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    call: &Call,
    client: Option<&Client>,
    meta: &Meta,
) {
    let object = ObjectWriter::open(out, version);
    let object = match call {
        Call::Initialize(params) => add_initialize_fields(object, params),
        Call::Discover | Call::Ping | Call::ListRoots => object,
        Call::AddRoot { uri, name } => object.field("uri", uri).optional("name", name),
        Call::RemoveRoot { uri } => object.field("uri", uri),
        Call::SetLevel(level) => object.field("level", level),
        Call::ListTools { cursor }
        | Call::ListResources { cursor }
        | Call::ListTemplates { cursor }
        | Call::ListPrompts { cursor }
        | Call::ListTasks { cursor } => object.optional("cursor", cursor),
        Call::CallTool { name, arguments, retry, task } => {
            let task = task.map(|ttl| nest(move |object| object.optional("ttl", &ttl)));
            add_retry_fields(
                object.field("name", name).optional("arguments", &ObjectOrAbsent(arguments.as_ref())),
                retry,
            )
            .only(V2025_11_25, "task", &task)
        }
        Call::ReadResource { uri, retry } => add_retry_fields(object.field("uri", uri), retry),
        Call::Subscribe { uri } | Call::Unsubscribe { uri } => object.field("uri", uri),
        Call::Listen(filter) => object.field("notifications", filter),
        Call::GetPrompt { name, arguments, retry } => {
            add_retry_fields(object.field("name", name).optional("arguments", arguments), retry)
        }
        Call::Complete(params) => add_complete_fields(object, params),
        Call::GetTask { id } | Call::TaskResult { id } | Call::CancelTask { id } => {
            object.field("taskId", id)
        }
        Call::UpdateTask { id, input_responses } => {
            object.field("taskId", id).field("inputResponses", input_responses)
        }
        Call::CreateTask { tool, arguments, timeout_ms } => {
            let action = nest(|object| {
                let object = object.field("type", "tool").field("name", tool);
                object.optional("arguments", &ObjectOrAbsent(arguments.as_ref()))
            });
            let task = nest(|object| object.field("action", &action).optional("timeoutMs", timeout_ms));
            object.field("task", &task)
        }
    };
    object.optional("_meta", &RequestMeta::for_version(version, client, meta)).close();
}

fn add_retry_fields<'o>(object: ObjectWriter<'o>, retry: &Retry) -> ObjectWriter<'o> {
    let Retry { input_responses, request_state } = retry;
    object.since(V2026_07_28, "inputResponses", input_responses).since(
        V2026_07_28,
        "requestState",
        request_state,
    )
}

/// `initialize` requires client info: a missing one is written as `unknown`.
fn add_initialize_fields<'o>(object: ObjectWriter<'o>, params: &InitializeParams) -> ObjectWriter<'o> {
    let InitializeParams { version, capabilities, client_info: client } = params;
    let object = object.field("protocolVersion", version).field("capabilities", capabilities);
    match client {
        Some(client) => object.field("clientInfo", client),
        None => object.field(
            "clientInfo",
            &Implementation {
                name: "unknown".to_owned(),
                version: "0".to_owned(),
                ..Implementation::default()
            },
        ),
    }
}

fn add_complete_fields<'o>(object: ObjectWriter<'o>, params: &CompleteParams) -> ObjectWriter<'o> {
    let CompleteParams { completion_ref: reference, argument, value, context } = params;
    let reference = nest(|object| match reference {
        CompletionReference::Prompt(name) => object.field("type", "ref/prompt").field("name", name),
        CompletionReference::Resource(uri) => object.field("type", "ref/resource").field("uri", uri),
    });
    let context = (!context.is_empty()).then(|| nest(|object| object.field("arguments", context)));
    object
        .field("ref", &reference)
        .field("argument", &nest(|object| object.field("name", argument).field("value", value)))
        .since(V2025_06_18, "context", &context)
}
