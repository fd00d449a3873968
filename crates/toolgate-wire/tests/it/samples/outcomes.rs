//! Samples of tasks and results.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use toolgate_wire::model::*;

use super::*;

pub(crate) fn tasks() -> Vec<Task> {
    let bare = |state| Task {
        id: "t-8c1f".into(),
        status: state,
        status_message: None,
        created_at: "2026-08-30T10:00:00Z".into(),
        last_updated_at: "2026-08-30T10:01:00Z".into(),
        ttl_ms: None,
        poll_interval_ms: None,
        input_requests: BTreeMap::new(),
        outcome: None,
    };
    let rich = |state, asks, end| Task {
        id: "t-8c1f".into(),
        status: state,
        status_message: text("on it"),
        created_at: "2026-08-30T10:00:00Z".into(),
        last_updated_at: "2026-08-30T10:01:00Z".into(),
        ttl_ms: Some(600_000),
        poll_interval_ms: Some(2000),
        input_requests: asks,
        outcome: end,
    };
    let output = |output| Some(TaskOutcome::Result(Arc::new(Outcome::Tool(output))));
    let fault =
        ProtocolError::new(ProtocolErrorKind::Internal, "worker died").with_data(raw(json!({ "n": 1 })));
    let mut tasks: Vec<Task> = TaskStatus::ALL.map(bare).into();
    tasks.extend([
        rich(TaskStatus::Working, BTreeMap::new(), None),
        rich(TaskStatus::InputRequired, input_requests(), None),
        rich(TaskStatus::Completed, BTreeMap::new(), output(tool_outputs().remove(0))),
        rich(TaskStatus::Completed, BTreeMap::new(), output(ToolOutput::error("no"))),
        rich(TaskStatus::Failed, BTreeMap::new(), Some(TaskOutcome::Error(fault))),
        rich(TaskStatus::Cancelled, BTreeMap::new(), None),
    ]);
    tasks
}

/// Tasks without details, which only one of their forms has.
fn plain_tasks() -> Vec<Task> {
    tasks().into_iter().filter(|task| task.input_requests.is_empty() && task.outcome.is_none()).collect()
}

/// Returns a call by its method.
fn call(method: &str) -> Call {
    let calls = calls().into_iter().find(|call| call.method() == method);
    calls.unwrap_or_else(|| panic!("no sample of {method}"))
}

/// All results, each with a call that has this result.
pub(crate) fn outcomes() -> Vec<(Call, Outcome)> {
    let mut outcomes = Vec::new();
    let mut add = |method: &str, outcome: Outcome| outcomes.push((call(method), outcome));
    for method in ["ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "tasks/update"]
    {
        add(method, Outcome::Empty);
    }
    for (n, capabilities) in server_capabilities().into_iter().enumerate() {
        let server = [server(), bare_implementation()][n % 2].clone();
        let instructions = [text("Use it well"), None][n % 2].clone();
        add(
            "initialize",
            Outcome::Initialize(Box::new(InitializeResult {
                version: ProtocolVersion::LATEST_WITH_HANDSHAKE.as_str().into(),
                capabilities: capabilities.clone(),
                server_info: server.clone(),
                instructions: instructions.clone(),
            })),
        );
        add(
            "server/discover",
            Outcome::Discover(Box::new(DiscoverResult {
                versions: ProtocolVersion::supported().map(String::from).collect(),
                capabilities: ServerCapabilities { tasks: None, ..capabilities },
                instructions,
                server_info: [Some(server), None][n % 2].clone(),
                cache: cache(),
            })),
        );
    }
    for page in pages(tools()).into_iter().chain(pages(latest_version_tools())) {
        add("tools/list", Outcome::Tools(page));
    }
    add("tools/list", Outcome::Tools(uncached(task_tools())));
    for page in pages(resources()) {
        add("resources/list", Outcome::Resources(page));
    }
    for page in pages(templates()) {
        add("resources/templates/list", Outcome::Templates(page));
    }
    for page in pages(prompts()) {
        add("prompts/list", Outcome::Prompts(page));
    }
    add("tasks/list", Outcome::Tasks(uncached(plain_tasks())));
    add("tasks/list", Outcome::Tasks(uncached(vec![])));
    for output in tool_outputs() {
        add("tools/call", Outcome::Tool(output));
    }
    add("resources/read", Outcome::ReadResource { contents: contents(), cache: cache() });
    add("resources/read", Outcome::ReadResource { contents: vec![], cache: CacheHint::default() });
    let messages = content().into_iter().zip([Role::User, Role::Assistant].into_iter().cycle());
    let messages = messages.map(|(content, role)| PromptMessage { role, content }).collect();
    add(
        "prompts/get",
        Outcome::Prompt(PromptOutput { description: text("A prompt"), messages, meta: meta() }),
    );
    add("prompts/get", Outcome::Prompt(PromptOutput::default()));
    add(
        "completion/complete",
        Outcome::Completion(Completion {
            values: vec!["me".into(), "myself".into()],
            total: Some(3),
            has_more: Some(true),
        }),
    );
    add("completion/complete", Outcome::Completion(Completion::default()));
    let asks = input_requests();
    for method in ["tools/call", "prompts/get", "resources/read"] {
        let state = text("v1.k3.AAAA");
        add(
            method,
            Outcome::InputRequired(InputRequired {
                input_requests: asks.clone(),
                request_state: state.clone(),
            }),
        );
        add(
            method,
            Outcome::InputRequired(InputRequired { input_requests: asks.clone(), request_state: None }),
        );
        add(
            method,
            Outcome::InputRequired(InputRequired { input_requests: BTreeMap::new(), request_state: state }),
        );
    }
    for subscription in [RequestId::from("L1"), RequestId::from(7)] {
        add("subscriptions/listen", Outcome::ListenEnded { subscription_id: subscription });
    }
    for task in tasks() {
        add("tasks/get", Outcome::TaskStatus(Box::new(task)));
    }
    for task in plain_tasks() {
        add("tasks/cancel", Outcome::TaskStatus(Box::new(task.clone())));
        add("tools/call", Outcome::TaskStarted(task));
    }
    add("tasks/cancel", Outcome::Empty);
    outcomes
}

/// Results with parts that do not read back: they are omitted in versions that have such a result, or converted.
pub(crate) fn downgraded_outcomes() -> Vec<(Call, Outcome)> {
    let mut outcomes = Vec::new();
    let mut add = |method: &str, outcome: Outcome| outcomes.push((call(method), outcome));
    for capabilities in server_capabilities() {
        add(
            "server/discover",
            Outcome::Discover(Box::new(DiscoverResult {
                versions: vec![],
                capabilities,
                instructions: None,
                server_info: None,
                cache: CacheHint::default(),
            })),
        );
    }
    for page in pages(tasks()) {
        add("tasks/list", Outcome::Tasks(page));
    }
    for page in pages(task_tools()) {
        add("tools/list", Outcome::Tools(page));
    }
    for output in tool_outputs() {
        let output = Arc::new(Outcome::Tool(output));
        add("tasks/result", Outcome::TaskPayload { id: "t-1".into(), output });
    }
    for task in tasks() {
        add("tasks/cancel", Outcome::TaskStatus(Box::new(task.clone())));
        add("tools/call", Outcome::TaskStarted(task));
    }
    // A link and its block have one field for these.
    let link = Content { annotations: Some(Annotations::default()), ..Content::link(resources().remove(0)) };
    let content = vec![link, Content::link(resources().remove(0))];
    add("tools/call", Outcome::Tool(ToolOutput { content, ..ToolOutput::default() }));
    let values = (0..=Completion::MAX_VALUES).map(|n| n.to_string()).collect();
    add("completion/complete", Outcome::Completion(Completion { values, ..Completion::default() }));
    outcomes
}
