//! Samples of everything in the model: a rich one with every field, a minimal one without optional fields, and one per variant.
//!
//! The rich ones name every field of every type, so that a new field stops this file from compiling. Every sample reads back
//! completely in some version, except those named `worded`: they contain something that is converted to text.

mod outcomes;
mod server_requests;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use toolgate_wire::model::*;
use toolgate_wire::{
    Client, Meta, ProgressToken, ProtocolError, ProtocolErrorKind, ProtocolVersion, RawJson, RequestId,
};

pub(crate) use outcomes::*;
pub(crate) use server_requests::*;

pub(crate) fn raw(value: serde_json::Value) -> RawJson {
    RawJson::from(value)
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn meta() -> Option<RawJson> {
    Some(raw(json!({ "example.com/color": "red", "n": [1, { "deep": true }] })))
}

fn icons() -> Vec<Icon> {
    let rich = Icon {
        src: "https://example.com/i.png".into(),
        mime: text("image/png"),
        sizes: vec!["48x48".into(), "any".into()],
        theme: text("dark"),
    };
    let bare = Icon { src: "data:image/png;base64,AA==".into(), ..Icon::default() };
    vec![rich, bare]
}

fn annotations() -> Option<Annotations> {
    Some(Annotations {
        audience: vec![Role::User, Role::Assistant],
        priority: Some(0.25),
        last_modified: text("2025-01-12T15:00:58Z"),
    })
}

pub(crate) fn server() -> Implementation {
    implementation("server")
}

fn implementation(name: &str) -> Implementation {
    Implementation {
        name: name.into(),
        version: "1.2.3".into(),
        title: text("A \"title\""),
        description: text("What it is"),
        website: text("https://example.com/"),
        icons: icons(),
    }
}

fn bare_implementation() -> Implementation {
    Implementation { name: "bare".into(), version: "0".into(), ..Implementation::default() }
}

fn settings(name: &str) -> BTreeMap<String, RawJson> {
    let settings = json!({ "mode": "fast", "list": [1, "a", true], "deep": { "x": 1 } });
    [(name.to_owned(), raw(settings)), ("com.example/empty".to_owned(), raw(json!({})))].into()
}

pub(crate) fn client_capabilities() -> Vec<ClientCapabilities> {
    let elicitation = |form, url| ClientCapabilities {
        elicitation: Some(ElicitationCapability { form, url }),
        ..ClientCapabilities::default()
    };
    let rich = ClientCapabilities {
        roots: Some(true),
        sampling: Some(SamplingCapability { context: true, tools: true }),
        elicitation: Some(ElicitationCapability { form: true, url: true }),
        tasks: Some(TaskCapability {
            list: true,
            cancel: true,
            tools: false,
            sampling: true,
            elicitation: true,
        }),
        extensions: settings("io.modelcontextprotocol/ui"),
        experimental: settings("test"),
    };
    let plain = ClientCapabilities {
        roots: Some(false),
        sampling: Some(SamplingCapability::default()),
        tasks: Some(TaskCapability::default()),
        ..ClientCapabilities::default()
    };
    vec![rich, plain, elicitation(true, false), elicitation(false, true), ClientCapabilities::default()]
}

fn server_capabilities() -> Vec<ServerCapabilities> {
    let rich = ServerCapabilities {
        tools: Some(true),
        prompts: Some(true),
        resources: Some(true),
        resource_updates: true,
        completions: true,
        logging: true,
        tasks: Some(TaskCapability {
            list: true,
            cancel: true,
            tools: true,
            sampling: false,
            elicitation: false,
        }),
        extensions: settings("io.modelcontextprotocol/tasks"),
        experimental: settings("test"),
    };
    let plain = ServerCapabilities {
        tools: Some(false),
        prompts: Some(false),
        resources: Some(false),
        tasks: Some(TaskCapability::default()),
        ..ServerCapabilities::default()
    };
    vec![rich, plain, ServerCapabilities::default()]
}

pub(crate) fn clients(version: ProtocolVersion) -> Vec<Client> {
    let infos = [Some(implementation("client")), Some(bare_implementation()), None];
    client_capabilities()
        .into_iter()
        .zip(infos.into_iter().cycle())
        .map(|(capabilities, info)| Client { protocol_version: version, capabilities, info })
        .collect()
}

pub(crate) fn metas() -> Vec<Meta> {
    let trace = json!({ "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" });
    vec![
        Meta::default(),
        Meta {
            progress_token: Some(ProgressToken::from("p-1")),
            log_level: Some(LogLevel::Warning),
            raw: Some(raw(trace)),
        },
        Meta { progress_token: Some(ProgressToken::from(41)), ..Meta::default() },
    ]
}

fn object_schema() -> RawJson {
    raw(json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": { "a": { "type": "string" }, "b": { "anyOf": [{ "type": "integer" }] } },
        "required": ["a"],
        "additionalProperties": false,
        "$defs": { "x": { "$anchor": "here" } },
    }))
}

pub(crate) fn tools() -> Vec<Tool> {
    let rich = Tool {
        name: "stock.lookup".into(),
        title: text("Stock"),
        description: text("Looks things up\nin a \"book\"\u{2028}\u{1f4da}"),
        input_schema: object_schema(),
        output_schema: Some(object_schema()),
        hints: ToolHints {
            title: text("Stock (old)"),
            read_only: Some(true),
            destructive: Some(false),
            idempotent: Some(true),
            open_world: Some(false),
        },
        icons: icons(),
        task_support: TaskSupport::Forbidden,
        meta: meta(),
    };
    vec![rich, Tool::new("bare", raw(json!({ "type": "object" })))]
}

/// Tools that only one version supports.
pub(crate) fn task_tools() -> Vec<Tool> {
    let [rich, bare] = tools().try_into().expect("two tools");
    let optional = Tool { task_support: TaskSupport::Optional, ..rich };
    vec![optional, Tool { task_support: TaskSupport::Required, ..bare }]
}

/// Tools that only the newest version supports.
pub(crate) fn latest_version_tools() -> Vec<Tool> {
    let bare = tools().remove(1);
    vec![Tool { output_schema: Some(raw(json!({ "type": "array" }))), ..bare }]
}

pub(crate) fn resources() -> Vec<Resource> {
    let rich = Resource {
        uri: "file:///a.txt".into(),
        name: "a".into(),
        title: text("A"),
        description: text("The first"),
        mime: text("text/plain"),
        size: Some(12),
        annotations: annotations(),
        icons: icons(),
        meta: meta(),
    };
    let bare = Resource { uri: "test://b".into(), name: "b".into(), ..Resource::default() };
    vec![rich, bare]
}

fn templates() -> Vec<ResourceTemplate> {
    let rich = ResourceTemplate {
        uri_template: "notes://{id}".into(),
        name: "note".into(),
        title: text("Note"),
        description: text("One note"),
        mime: text("text/markdown"),
        annotations: annotations(),
        icons: icons(),
        meta: meta(),
    };
    let bare =
        ResourceTemplate { uri_template: "x://{y}".into(), name: "x".into(), ..ResourceTemplate::default() };
    vec![rich, bare]
}

fn prompts() -> Vec<Prompt> {
    let argument = PromptArgument {
        name: "who".into(),
        title: text("Who"),
        description: text("Whom to greet"),
        required: true,
    };
    let rich = Prompt {
        name: "greet".into(),
        title: text("Greet"),
        description: text("Greets"),
        arguments: vec![argument, PromptArgument { name: "how".into(), ..PromptArgument::default() }],
        icons: icons(),
        meta: meta(),
    };
    vec![rich, Prompt { name: "bare".into(), ..Prompt::default() }]
}

pub(crate) fn contents() -> Vec<ResourceContents> {
    let rich = |body| ResourceContents { uri: "test://x".into(), mime: text("text/x"), body, meta: meta() };
    vec![
        rich(ResourceBody::Text("words".into())),
        rich(ResourceBody::Blob(vec![0, 1, 254, 255].into())),
        ResourceContents::text("test://bare", ""),
        ResourceContents::blob("test://bare", vec![]),
    ]
}

pub(crate) fn content() -> Vec<Content> {
    let kinds = |contents: ResourceContents, link: Resource| {
        [
            ContentKind::Text("words \u{0}\u{1f4da}\"\\".into()),
            ContentKind::Image { data: vec![1, 2, 3, 4].into(), mime: "image/png".into() },
            ContentKind::Audio { data: vec![5, 6].into(), mime: "audio/wav".into() },
            ContentKind::Link(Box::new(link)),
            ContentKind::Embedded(contents),
        ]
    };
    let bare =
        contents().into_iter().zip(resources().into_iter().cycle()).flat_map(|(contents, resource)| {
            // A link has one field for these, and readers find them on the block.
            let link = Resource { annotations: None, meta: None, ..resource };
            kinds(contents, link).map(Content::from)
        });
    let bare: Vec<Content> = bare.collect();
    let rich =
        bare.iter().cloned().map(|content| Content { annotations: annotations(), meta: meta(), ..content });
    rich.chain(bare.iter().cloned()).collect()
}

fn cache() -> CacheHint {
    CacheHint { ttl_ms: 60_000, scope: CacheScope::Public }
}

fn pages<T>(items: Vec<T>) -> Vec<Page<T>> {
    let items: Vec<Arc<T>> = items.into_iter().map(Arc::new).collect();
    vec![
        Page { items, next_cursor: text("cursor=="), cache: cache() },
        Page { items: vec![], next_cursor: None, cache: CacheHint::default() },
    ]
}

fn uncached<T>(items: Vec<T>) -> Page<T> {
    let items = items.into_iter().map(Arc::new).collect();
    Page { items, next_cursor: text("next"), cache: CacheHint::default() }
}

pub(crate) fn tool_outputs() -> Vec<ToolOutput> {
    let with = |structured: serde_json::Value, content: Vec<Content>| ToolOutput {
        content,
        structured_content: Some(raw(structured)),
        ..ToolOutput::default()
    };
    vec![
        ToolOutput {
            content: content(),
            structured_content: Some(raw(json!({ "a": [1, 2.5, null] }))),
            is_error: true,
            meta: meta(),
            ..ToolOutput::default()
        },
        ToolOutput::default(),
        ToolOutput::text("ok"),
        with(json!([3, 9]), vec![Content::text("[3,9]")]),
        with(json!([3, 9]), vec![]),
        with(json!({ "a": 1 }), vec![]),
        with(json!(null), vec![]),
        with(json!("x"), vec![Content::text("x")]),
    ]
}

fn retries() -> Vec<Retry> {
    let responses = BTreeMap::from([
        ("who".to_owned(), raw(json!({ "action": "accept", "content": { "ok": true } }))),
        (
            "llm/0".to_owned(),
            raw(json!({
            "role": "assistant", "model": "m", "content": { "type": "text", "text": "x" } })),
        ),
        ("dirs".to_owned(), raw(json!({ "roots": [] }))),
    ]);
    vec![
        Retry::default(),
        Retry { input_responses: responses.clone(), request_state: text("v1.k3.AAAA") },
        Retry { input_responses: responses, request_state: None },
        Retry { input_responses: BTreeMap::new(), request_state: text("") },
    ]
}

/// All calls, each in some version.
pub(crate) fn calls() -> Vec<Call> {
    let mut calls = vec![
        Call::Discover,
        Call::Ping,
        Call::Subscribe { uri: "test://x".into() },
        Call::Unsubscribe { uri: "test://x".into() },
        Call::Listen(filter()),
        Call::Listen(SubscriptionFilter::default()),
        Call::GetTask { id: "t-1".into() },
        Call::TaskResult { id: "t-1".into() },
        Call::CancelTask { id: "t-1".into() },
    ];
    for cursor in [None, text(""), text("abc")] {
        calls.push(Call::ListTools { cursor: cursor.clone() });
        calls.push(Call::ListResources { cursor: cursor.clone() });
        calls.push(Call::ListTemplates { cursor: cursor.clone() });
        calls.push(Call::ListPrompts { cursor: cursor.clone() });
        calls.push(Call::ListTasks { cursor });
    }
    calls.extend(LogLevel::ALL.map(Call::SetLevel));
    for (n, retry) in retries().into_iter().enumerate() {
        let arguments = (n % 2 == 1).then(|| raw(json!({ "a": 1, "b": null })));
        let texts = [("who".to_owned(), "me".to_owned())].into_iter().take(n).collect();
        let answers = retry.input_responses.clone();
        calls.extend([
            Call::CallTool { name: "add".into(), arguments, retry: retry.clone(), task: None },
            Call::ReadResource { uri: "test://x".into(), retry: retry.clone() },
            Call::GetPrompt { name: "greet".into(), arguments: texts, retry },
            Call::UpdateTask { id: "t-1".into(), input_responses: answers },
        ]);
    }
    let retry = Retry::default;
    for task in [Some(None), Some(Some(600_000))] {
        calls.push(Call::CallTool { name: "add".into(), arguments: None, retry: retry(), task });
    }
    let references =
        [CompletionReference::Prompt("greet".into()), CompletionReference::Resource("x://{y}".into())];
    for (n, reference) in references.into_iter().enumerate() {
        calls.push(Call::Complete(CompleteParams {
            completion_ref: reference,
            argument: "who".into(),
            value: "m".into(),
            context: [("how".to_owned(), "well".to_owned())].into_iter().take(n).collect(),
        }));
    }
    for client in clients(ProtocolVersion::LATEST_WITH_HANDSHAKE) {
        calls.push(Call::Initialize(InitializeParams {
            version: ProtocolVersion::LATEST_WITH_HANDSHAKE.as_str().into(),
            capabilities: client.capabilities,
            client_info: client.info.or(Some(bare_implementation())),
        }));
    }
    calls
}

fn filter() -> SubscriptionFilter {
    SubscriptionFilter {
        tools: true,
        prompts: true,
        resources: true,
        uris: vec!["test://a".into(), "test://b".into()],
        tasks: vec!["t-1".into()],
    }
}

pub(crate) fn notifications() -> Vec<Notification> {
    let mut notices = vec![
        Notification::Initialized,
        Notification::Cancelled { request: Some(RequestId::from(7)), reason: text("enough") },
        Notification::Cancelled { request: Some(RequestId::from("7")), reason: None },
        Notification::Cancelled { request: None, reason: None },
        Notification::Progress {
            token: ProgressToken::from(41),
            progress: 0.5,
            total: Some(1.0),
            message: text("half"),
        },
        Notification::Progress { token: ProgressToken::from("p"), progress: 3.0, total: None, message: None },
        Notification::ToolsChanged,
        Notification::PromptsChanged,
        Notification::ResourcesChanged,
        Notification::ResourceUpdated { uri: "test://x".into() },
        Notification::RootsChanged,
        Notification::ElicitationComplete { id: "e-1".into() },
        Notification::SubscriptionAcknowledged(filter()),
        Notification::SubscriptionAcknowledged(SubscriptionFilter::default()),
    ];
    notices.extend(LogLevel::ALL.map(|level| Notification::LogMessage {
        level,
        logger: text("db"),
        data: raw(json!({ "rows": [1, null] })),
    }));
    notices.push(Notification::LogMessage { level: LogLevel::Info, logger: None, data: raw(json!("plain")) });
    notices.extend(tasks().into_iter().map(|task| Notification::TaskStatus(Box::new(task))));
    notices
}

pub(crate) fn protocol_errors() -> Vec<ProtocolError> {
    let kinds = [
        ProtocolErrorKind::ParseError,
        ProtocolErrorKind::InvalidRequest,
        ProtocolErrorKind::MethodNotFound,
        ProtocolErrorKind::InvalidParams,
        ProtocolErrorKind::InvalidClientMeta,
        ProtocolErrorKind::ResourceNotFound,
        ProtocolErrorKind::Internal,
        ProtocolErrorKind::HeaderMismatch,
        ProtocolErrorKind::SessionNotFound,
        ProtocolErrorKind::Other(-1),
    ];
    let mut faults: Vec<ProtocolError> =
        kinds.into_iter().map(|kind| ProtocolError::new(kind, "went \"wrong\"")).collect();
    let elicitations = json!({ "elicitations": [{
        "mode": "url", "elicitationId": "e-1", "url": "https://example.com/", "message": "Sign in" }] });
    faults.extend([
        ProtocolError::resource_not_found("test://nope"),
        ProtocolError::unsupported_version("2031-01-01"),
        ProtocolError::method_not_found("no/such"),
        ProtocolError::internal("r-1"),
        ProtocolError::new(ProtocolErrorKind::UrlElicitationRequired, "sign in first")
            .with_data(raw(elicitations)),
    ]);
    let needs =
        |required: ClientCapabilities| ProtocolError::missing_capability(&required, "this tool needs more");
    faults.extend(client_capabilities().into_iter().map(needs));
    faults
}
