//! Drives rmcp's client against a server with the conformance fixture, or against the example `tracker`.
//!
//! It prints `STEP ok <name>` or `STEP fail <name>: <why>`, one line per step, for `cargo xtask interop` to read,
//! and exits with 1 if any failed.
//!
//! usage: toolgate-interop <http|stdio|tracker> <legacy|auto> <url | command args...>

#![allow(deprecated, reason = "the newest protocol version deprecates sampling; servers still use it")]

mod tracker;

use std::error::Error;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientConfig, CreateMessageRequestParams, CreateMessageResult,
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability, GetPromptRequestParams,
    ProgressNotificationParam, ProtocolVersion, ReadResourceRequestParams, SamplingCapability,
    SamplingMessage,
};
use rmcp::service::{NotificationContext, RequestContext, RunningService};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData, RoleClient};
use serde_json::{Map, Value, json};
use tokio::process::Command;

type Outcome = Result<(), Box<dyn Error>>;
type Client = RunningService<RoleClient, Handler>;

const STEP_TIMEOUT: Duration = Duration::from_secs(20);

/// Accepts every elicitation, replies to every sampling request, and counts progress notifications.
#[derive(Clone, Default)]
struct Handler {
    n_progress: Arc<AtomicUsize>,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut info = ClientConfig::default();
        info.capabilities.elicitation = Some(ElicitationCapability::default());
        info.capabilities.sampling = Some(SamplingCapability::default());
        info
    }

    async fn create_elicitation(
        &self,
        _request: ElicitRequestParams,
        _cx: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(
            json!({"username": "ada", "email": "ada@example.com", "name": "ada", "sure": true}),
        ))
    }

    async fn create_message(
        &self,
        _request: CreateMessageRequestParams,
        _cx: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let message = SamplingMessage::assistant_text("It is broken.");
        Ok(CreateMessageResult::new(message, "test".into()))
    }

    async fn on_progress(&self, _note: ProgressNotificationParam, _cx: NotificationContext<RoleClient>) {
        self.n_progress.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [kind, mode, target @ ..] = args.as_slice() else {
        eprintln!("usage: toolgate-interop <http|stdio|tracker> <legacy|auto> <url | command args...>");
        return ExitCode::from(2);
    };
    let handler = Handler::default();
    let opened = tokio::time::timeout(STEP_TIMEOUT, connect(handler.clone(), kind, mode, target));
    let client = match opened.await {
        Ok(Ok(client)) => client,
        Ok(Err(error)) => {
            println!("STEP fail connect: {error}");
            return ExitCode::FAILURE;
        }
        Err(error) => {
            println!("STEP fail connect: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut passed = report("connect", async { check_version(&client, mode) }).await;
    passed &=
        if kind == "tracker" { tracker::run(&client).await } else { use_everything(&client, &handler).await };
    passed &= report("close", async { Ok(client.cancel().await.map(drop)?) }).await;
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the steps against the conformance fixture.
async fn use_everything(client: &Client, handler: &Handler) -> bool {
    let mut passed = report("list tools", list_tools(client)).await;
    passed &= report("call tool", call_tool(client)).await;
    passed &= report("progress", progress(client, handler)).await;
    passed &= report("read resource", read_resource(client)).await;
    passed &= report("get prompt", get_prompt(client)).await;
    passed &= report("complete", complete(client)).await;
    passed &= report("elicit", elicit(client)).await;
    passed
}

async fn report(name: &str, step: impl Future<Output = Outcome>) -> bool {
    let outcome = match tokio::time::timeout(STEP_TIMEOUT, step).await {
        Ok(outcome) => outcome,
        Err(late) => Err(late.into()),
    };
    match outcome {
        Ok(()) => println!("STEP ok {name}"),
        Err(ref error) => println!("STEP fail {name}: {}", error.to_string().replace('\n', " ")),
    }
    outcome.is_ok()
}

async fn connect(
    handler: Handler,
    kind: &str,
    mode: &str,
    target: &[String],
) -> Result<Client, Box<dyn Error>> {
    let lifecycle = match mode {
        "legacy" => ClientLifecycleMode::Initialize,
        _ => ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: None,
        },
    };
    let (first, rest) = target.split_first().ok_or("no target was given")?;
    if kind != "stdio" {
        let transport = StreamableHttpClientTransport::from_uri(first.as_str());
        return Ok(handler.serve_with_lifecycle(transport, lifecycle).await?);
    }
    let mut command = Command::new(first);
    command.args(rest);
    let (transport, _) = TokioChildProcess::builder(command).stderr(Stdio::null()).spawn()?;
    Ok(handler.serve_with_lifecycle(transport, lifecycle).await?)
}

/// `auto` negotiates the newest protocol version.
fn check_version(client: &Client, mode: &str) -> Outcome {
    let info = client.peer_info().ok_or("the server said nothing about itself")?;
    let modern = info.protocol_version == ProtocolVersion::V_2026_07_28;
    if mode == "auto" && !modern {
        return Err(format!("auto ended at {}", info.protocol_version).into());
    }
    Ok(())
}

async fn list_tools(client: &Client) -> Outcome {
    let tools = client.list_all_tools().await?;
    for name in ["test_simple_text", "test_tool_with_progress"] {
        if !tools.iter().any(|tool| tool.name == name) {
            return Err(format!("the tool {name} is not listed").into());
        }
    }
    Ok(())
}

async fn call_tool(client: &Client) -> Outcome {
    let result = call(client, "test_simple_text", json!({})).await?;
    expect(text_of(&result) == "This is a simple text response for testing.", &result)
}

async fn progress(client: &Client, handler: &Handler) -> Outcome {
    call(client, "test_tool_with_progress", json!({})).await?;
    // rmcp delivers notifications and results on different tasks: the last notification may come after the result.
    for _ in 0..50 {
        if handler.n_progress.load(Ordering::SeqCst) >= 3 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let n_notes = handler.n_progress.load(Ordering::SeqCst);
    Err(format!("expected at least 3 progress notes, got {n_notes}").into())
}

async fn read_resource(client: &Client) -> Outcome {
    let result = client.read_resource(ReadResourceRequestParams::new("test://static-text")).await?;
    let value = serde_json::to_value(&result)?;
    expect(value["contents"][0]["text"] == "This is the content of the static text resource.", &value)
}

async fn get_prompt(client: &Client) -> Outcome {
    let params = GetPromptRequestParams::new("test_prompt_with_arguments")
        .with_arguments(object(json!({"arg1": "a", "arg2": "b"})));
    let value = serde_json::to_value(client.get_prompt(params).await?)?;
    let text = value["messages"][0]["content"]["text"].as_str();
    let text = text.unwrap_or_default();
    expect(text.contains("arg1='a'") && text.contains("arg2='b'"), &value)
}

async fn complete(client: &Client) -> Outcome {
    client.complete_prompt_simple("test_prompt_with_arguments", "arg1", "test").await?;
    Ok(())
}

async fn elicit(client: &Client) -> Outcome {
    let result = call(client, "test_elicitation", json!({"message": "hi"})).await?;
    expect(text_of(&result).contains("ada"), &result)
}

async fn call(
    client: &Client,
    name: &'static str,
    arguments: Value,
) -> Result<CallToolResult, Box<dyn Error>> {
    let params = CallToolRequestParams::new(name).with_arguments(object(arguments));
    Ok(client.call_tool(params).await?)
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn text_of(result: &CallToolResult) -> String {
    let first = result.content.first().and_then(|block| block.as_text());
    first.map(|text| text.text.clone()).unwrap_or_default()
}

fn expect(holds: bool, seen: &impl std::fmt::Debug) -> Outcome {
    if holds {
        return Ok(());
    }
    Err(format!("unexpected answer {seen:?}").into())
}
