//! Tasks: as clients of each protocol version see them, and as several processes share them.

mod processes;
mod storage;

use std::time::Duration;

use serde_json::{Value, json};
use toolgate::model::TaskSupport;
use toolgate::testing::{TestClient, TestVersion};
use toolgate::{Principal, Server, items};

use crate::transcript_player::{self, HttpExchange};

#[tokio::test]
async fn transcripts() {
    transcript_player::play_all("tasks").await;
}

mod marked {
    use toolgate::prelude::*;

    #[tool(task = "required", resumable)]
    pub(super) async fn render() -> &'static str {
        "rendered"
    }

    #[tool(task = "optional")]
    pub(super) async fn resize() -> &'static str {
        "resized"
    }

    #[tool(task = "later")]
    pub(super) async fn publish(cx: Context) -> Result<&'static str, HandlerError> {
        cx.defer().await?;
        Ok("published")
    }
}

#[tokio::test]
async fn marked_functions_can_be_tasks() {
    let marked = items![marked::render, marked::resize, marked::publish];
    let server = Server::new("marked", "1.0.0").add(marked).build().unwrap();
    let client = TestClient::new(&server, TestVersion::from_date("2025-11-25").unwrap());
    let supports = client.tools().await.into_iter().map(|tool| (tool.name.clone(), tool.task_support));
    assert_eq!(
        supports.collect::<Vec<_>>(),
        [
            ("render".to_owned(), TaskSupport::Required),
            ("resize".to_owned(), TaskSupport::Optional),
            ("publish".to_owned(), TaskSupport::Optional),
        ]
    );
    for (tool, message) in [("render", "rendered"), ("resize", "resized"), ("publish", "published")] {
        let id = start_task(&server, tool, json!({})).await;
        assert_eq!(wait_for_status(&server, &id, "completed").await["result"]["content"][0]["text"], message);
    }
}

/// Sends a request as a client of the newest protocol version that supports tasks and elicitation.
async fn ask(server: &Server, method: &str, params: Value) -> Value {
    ask_as(server, None, method, params).await
}

async fn ask_as(server: &Server, principal: Option<&str>, method: &str, params: Value) -> Value {
    let body = exchange(server, principal, method, params).body().await.unwrap();
    serde_json::from_str(&body).unwrap()
}

fn exchange(server: &Server, principal: Option<&str>, method: &str, mut params: Value) -> HttpExchange {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities":
            { "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } },
    });
    let name =
        params.get("name").or_else(|| params.get("taskId")).and_then(Value::as_str).unwrap_or_default();
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", method), ("mcp-name", name)];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let request = transcript_player::build_request(
        "POST",
        "/mcp",
        &headers,
        principal.map(Principal::new),
        body.into(),
    )
    .unwrap();
    HttpExchange::start(server.clone().into_service(), request)
}

/// Starts a task and returns its id.
pub(crate) async fn start_task(server: &Server, tool: &str, arguments: Value) -> String {
    let answer = ask(server, "tools/call", json!({ "name": tool, "arguments": arguments })).await;
    assert_eq!(answer["result"]["resultType"], "task", "{answer}");
    answer["result"]["taskId"].as_str().unwrap().to_owned()
}

async fn get_task(server: &Server, id: &str) -> Value {
    ask(server, "tasks/get", json!({ "taskId": id })).await["result"].take()
}

/// Polls until the task has this status; limited by the test's timeout.
pub(crate) async fn wait_for_status(server: &Server, id: &str, status: &str) -> Value {
    for _ in 0..20_000 {
        let task = get_task(server, id).await;
        if task["status"] == status {
            return task;
        }
        assert!(!matches!(task["status"].as_str(), Some("completed" | "failed" | "cancelled")), "{task}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("task {id} is never {status}");
}
