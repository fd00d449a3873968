//! What a client wants, both ways: method and params to [`Call`], and back.
//!
//! A method that an edition does not have is refused as unknown, even if a
//! neighbor edition has it. Arguments of tools stay raw: they are read once, by
//! the tool.

use std::collections::BTreeMap;

use super::capability::{read_client_capabilities, read_implementation};
use super::fields::Field;
use super::greeting::{RequestMeta, Said, read_level};
use super::object::{Flag, Object, Open, Put, nest};
use crate::Edition::{self, E2025_06_18, E2025_11_25, E2026_07_28};
use crate::Fault;
use crate::edition::{Asking, Feeding, Greeting, LogLevels, Tasks};
use crate::json::{Kind, Raw};
use crate::meta::{Client, Meta};
use crate::model::{Call, ClientCapabilities, Completing, Filter, Hello, Implementation, Reference, Retry};

/// The most things that one listening may name.
const MAX_NAMED: usize = 1000;

/// The longest half-written value, in bytes.
const MAX_VALUE: usize = 4096;

/// Reads a request. The fault says that the edition has no such method, or
/// names the parameter that does not fit.
pub fn read_call(edition: Edition, method: &str, params: Option<&Raw>) -> Result<Call, Fault> {
    Said::of(params)?.call(edition, method)
}

impl Said<'_> {
    /// The request that this is beside; see [`read_call`].
    ///
    /// # Errors
    /// As [`read_call`].
    pub fn call(&self, edition: Edition, method: &str) -> Result<Call, Fault> {
        read(edition, method, self)
    }
}

pub(super) fn read(edition: Edition, method: &str, params: &Said<'_>) -> Result<Call, Fault> {
    let facts = edition.facts();
    match method {
        "tools/call" => read_call_tool(edition, params),
        "tools/list" => Ok(Call::ListTools { cursor: read_cursor(params)? }),
        "resources/list" => Ok(Call::ListResources { cursor: read_cursor(params)? }),
        "resources/templates/list" => Ok(Call::ListTemplates { cursor: read_cursor(params)? }),
        "resources/read" => read_read(edition, params),
        "prompts/list" => Ok(Call::ListPrompts { cursor: read_cursor(params)? }),
        "prompts/get" => read_get_prompt(edition, params),
        "completion/complete" => read_complete(edition, params),
        "initialize" if facts.greeting == Greeting::Handshake => read_hello(params),
        "server/discover" if facts.greeting == Greeting::Each => Ok(Call::Discover),
        "ping" if facts.ping => Ok(Call::Ping),
        "logging/setLevel" if facts.log_levels == LogLevels::Session => {
            Ok(Call::SetLevel(read_level(&params.field("level"))?))
        }
        "resources/subscribe" if facts.feeding == Feeding::Session => {
            Ok(Call::Subscribe { uri: params.field("uri").text()? })
        }
        "resources/unsubscribe" if facts.feeding == Feeding::Session => {
            Ok(Call::Unsubscribe { uri: params.field("uri").text()? })
        }
        "subscriptions/listen" if facts.feeding == Feeding::Listen => {
            Ok(Call::Listen(read_filter(&params.field("notifications"))?))
        }
        "tasks/list" if facts.tasks == Tasks::Core => Ok(Call::ListTasks { cursor: read_cursor(params)? }),
        "tasks/result" if facts.tasks == Tasks::Core => Ok(Call::TaskResult { id: read_task_id(params)? }),
        "tasks/get" if facts.tasks != Tasks::Never => Ok(Call::GetTask { id: read_task_id(params)? }),
        "tasks/cancel" if facts.tasks != Tasks::Never => Ok(Call::CancelTask { id: read_task_id(params)? }),
        "tasks/update" if facts.tasks == Tasks::Extension => Ok(Call::UpdateTask {
            id: read_task_id(params)?,
            answers: params.field("inputResponses").map(|answer| Ok(answer.maybe_json()))?,
        }),
        _ => Err(Fault::method(method)),
    }
}

fn read_cursor(params: &Said<'_>) -> Result<Option<String>, Fault> {
    params.field("cursor").maybe_text()
}

fn read_task_id(params: &Said<'_>) -> Result<String, Fault> {
    params.field("taskId").text()
}

fn read_call_tool(edition: Edition, params: &Said<'_>) -> Result<Call, Fault> {
    Ok(Call::CallTool {
        name: params.field("name").text()?,
        arguments: params.field("arguments").maybe_object()?,
        retry: read_retry(edition, params)?,
        task: match (edition.facts().tasks, params.has("task")) {
            (Tasks::Core, true) => read_task_wish(&params.field("task"))?,
            _ => None,
        },
    })
}

fn read_task_wish(task: &Field<'_>) -> Result<Option<Option<u64>>, Fault> {
    let task = task.maybe_part("params.task")?;
    task.map(|task| read_life(&task.field("ttl"))).transpose()
}

/// Any whole number, however it is written: what is too short or too long is put right by whoever keeps the task.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it saturates, which is what is wanted"
)]
fn read_life(field: &Field<'_>) -> Result<Option<u64>, Fault> {
    match field.maybe_number()? {
        Some(number) if number.fract() != 0.0 => Err(field.wrong("a whole number")),
        number => Ok(number.map(|number| number as u64)),
    }
}

pub(super) fn read_create_task(params: &Said<'_>) -> Result<Call, Fault> {
    let [action, timeout] = &params.field("task").part("params.task")?.pick(["action", "timeoutMs"]);
    let [kind, name, arguments] = &action.part("params.task.action")?.pick(["type", "name", "arguments"]);
    match kind.maybe_text()?.as_deref() {
        None | Some("tool") => Ok(Call::CreateTask {
            tool: name.text()?,
            arguments: arguments.maybe_object()?,
            timeout_ms: read_life(timeout)?,
        }),
        Some(_) => Err(kind.wrong("\"tool\"")),
    }
}

/// A member of `inputResponses` that is no object is kept: whether it answers
/// anything is known where the question is.
fn read_retry(edition: Edition, params: &Said<'_>) -> Result<Retry, Fault> {
    if edition.facts().asking == Asking::Reverse {
        return Ok(Retry::default());
    }
    Ok(Retry {
        responses: match params.has("inputResponses") {
            true => params.field("inputResponses").map(|answer| Ok(answer.maybe_json()))?,
            false => BTreeMap::new(),
        },
        state: match params.has("requestState") {
            true => Some(params.field("requestState").text()?),
            false => None,
        },
    })
}

fn read_read(edition: Edition, params: &Said<'_>) -> Result<Call, Fault> {
    Ok(Call::Read { uri: params.field("uri").text()?, retry: read_retry(edition, params)? })
}

fn read_get_prompt(edition: Edition, params: &Said<'_>) -> Result<Call, Fault> {
    Ok(Call::GetPrompt {
        name: params.field("name").text()?,
        arguments: read_texts(&params.field("arguments"))?,
        retry: read_retry(edition, params)?,
    })
}

/// Texts by name. The protocol knows texts only, but clients send what a form
/// gave them: other single values are taken as they are written, and `null` as
/// not given.
fn read_texts(field: &Field<'_>) -> Result<BTreeMap<String, String>, Fault> {
    field.maybe_map(|entry| match entry.given() {
        Some(value) => match value.kind() {
            Kind::Null => Ok(None),
            Kind::Text => entry.text().map(Some),
            Kind::Bool | Kind::Number => Ok(Some(value.to_string())),
            Kind::Array | Kind::Object => Err(entry.wrong("a string")),
        },
        None => Ok(None),
    })
}

fn read_complete(edition: Edition, params: &Said<'_>) -> Result<Call, Fault> {
    let [reference, argument, context] = &params.pick(["ref", "argument", "context"]);
    let [name, value] = &argument.part("params.argument")?.pick(["name", "value"]);
    let completing = Completing {
        reference: read_reference(reference)?,
        argument: name.text()?,
        value: value.text()?,
        context: match context.maybe_part("params.context")? {
            Some(context) if edition >= E2025_06_18 => read_texts(&context.field("arguments"))?,
            _ => BTreeMap::new(),
        },
    };
    if completing.value.len() > MAX_VALUE {
        return Err(value.wrong(&format!("at most {MAX_VALUE} bytes")));
    }
    Ok(Call::Complete(completing))
}

fn read_reference(field: &Field<'_>) -> Result<Reference, Fault> {
    let [kind, name, uri] = &field.part("params.ref")?.pick(["type", "name", "uri"]);
    match kind.text()?.as_str() {
        // Some clients leave out what both begin with.
        "ref/prompt" | "prompt" => Ok(Reference::Prompt(name.text()?)),
        "ref/resource" | "resource" => Ok(Reference::Resource(uri.text()?)),
        _ => Err(kind.wrong("\"ref/prompt\" or \"ref/resource\"")),
    }
}

fn read_hello(params: &Said<'_>) -> Result<Call, Fault> {
    let [version, capabilities, client] = &params.pick(["protocolVersion", "capabilities", "clientInfo"]);
    Ok(Call::Hello(Hello {
        version: version.text()?,
        capabilities: match capabilities.maybe_part("params.capabilities")? {
            Some(capabilities) => read_client_capabilities(&capabilities)?,
            None => ClientCapabilities::default(),
        },
        client: client.value().map(|_| read_implementation(client)).transpose()?,
    }))
}

/// What a listening wants to hear of.
pub(super) fn read_filter(field: &Field<'_>) -> Result<Filter, Fault> {
    let part = field.part("notifications")?;
    let [tools, prompts, resources, uris, tasks] = &part.pick([
        "toolsListChanged",
        "promptsListChanged",
        "resourcesListChanged",
        "resourceSubscriptions",
        "taskIds",
    ]);
    Ok(Filter {
        tools: tools.maybe_bool()?.unwrap_or(false),
        prompts: prompts.maybe_bool()?.unwrap_or(false),
        resources: resources.maybe_bool()?.unwrap_or(false),
        uris: read_named(uris)?,
        tasks: read_named(tasks)?,
    })
}

fn read_named(field: &Field<'_>) -> Result<Vec<String>, Fault> {
    let many = field.value().is_some_and(|list| list.items().nth(MAX_NAMED).is_some());
    match many {
        true => Err(field.wrong(&format!("at most {MAX_NAMED} strings"))),
        false => field.maybe_list(Field::text),
    }
}

impl Put for Filter {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let Filter { tools, prompts, resources, uris, tasks } = self;
        Object::open(out, edition)
            .some("toolsListChanged", &Flag(*tools))
            .some("promptsListChanged", &Flag(*prompts))
            .some("resourcesListChanged", &Flag(*resources))
            .some("resourceSubscriptions", uris)
            .some("taskIds", tasks)
            .close();
    }
}

/// Appends the params of a request. In an edition without a handshake `client`
/// is said in `_meta`; without it, the greeting is whatever `meta.raw` has.
pub fn write_call_params(
    out: &mut Vec<u8>,
    edition: Edition,
    call: &Call,
    client: Option<&Client>,
    meta: &Meta,
) {
    let object = Object::open(out, edition);
    let object =
        match call {
            Call::Hello(hello) => put_hello(object, hello),
            Call::Discover | Call::Ping | Call::ListRoots => object,
            Call::AddRoot { uri, name } => object.field("uri", uri).some("name", name),
            Call::RemoveRoot { uri } => object.field("uri", uri),
            Call::SetLevel(level) => object.field("level", level),
            Call::ListTools { cursor }
            | Call::ListResources { cursor }
            | Call::ListTemplates { cursor }
            | Call::ListPrompts { cursor }
            | Call::ListTasks { cursor } => object.some("cursor", cursor),
            Call::CallTool { name, arguments, retry, task } => {
                let wish = task.map(|ttl| nest(move |object| object.some("ttl", &ttl)));
                put_retry(object.field("name", name).some("arguments", &Open(arguments.as_ref())), retry)
                    .only(E2025_11_25, "task", &wish)
            }
            Call::Read { uri, retry } => put_retry(object.field("uri", uri), retry),
            Call::Subscribe { uri } | Call::Unsubscribe { uri } => object.field("uri", uri),
            Call::Listen(filter) => object.field("notifications", filter),
            Call::GetPrompt { name, arguments, retry } => {
                put_retry(object.field("name", name).some("arguments", arguments), retry)
            }
            Call::Complete(completing) => put_completing(object, completing),
            Call::GetTask { id } | Call::TaskResult { id } | Call::CancelTask { id } => {
                object.field("taskId", id)
            }
            Call::UpdateTask { id, answers } => object.field("taskId", id).field("inputResponses", answers),
            Call::CreateTask { tool, arguments, timeout_ms } => {
                let action = nest(|object| {
                    let object = object.field("type", "tool").field("name", tool);
                    object.some("arguments", &Open(arguments.as_ref()))
                });
                let task = nest(|object| object.field("action", &action).some("timeoutMs", timeout_ms));
                object.field("task", &task)
            }
        };
    object.some("_meta", &RequestMeta::of(edition, client, meta)).close();
}

fn put_retry<'o>(object: Object<'o>, retry: &Retry) -> Object<'o> {
    let Retry { responses, state } = retry;
    object.since(E2026_07_28, "inputResponses", responses).since(E2026_07_28, "requestState", state)
}

/// A handshake must name the client: one that will not be known is `unknown`.
fn put_hello<'o>(object: Object<'o>, hello: &Hello) -> Object<'o> {
    let Hello { version, capabilities, client } = hello;
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

fn put_completing<'o>(object: Object<'o>, completing: &Completing) -> Object<'o> {
    let Completing { reference, argument, value, context } = completing;
    let of = nest(|object| match reference {
        Reference::Prompt(name) => object.field("type", "ref/prompt").field("name", name),
        Reference::Resource(uri) => object.field("type", "ref/resource").field("uri", uri),
    });
    let others = (!context.is_empty()).then(|| nest(|object| object.field("arguments", context)));
    object
        .field("ref", &of)
        .field("argument", &nest(|object| object.field("name", argument).field("value", value)))
        .since(E2025_06_18, "context", &others)
}
