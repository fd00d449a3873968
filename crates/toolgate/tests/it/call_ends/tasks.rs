//! Tasks: the call that creates one ends at once, and the run of its tool has an end of its own.

use serde_json::{Value, json};
use toolgate::testing::{TestClient, TestVersion};

use super::{Recorded, arguments};

/// Sends a request of the newest version with the tasks extension.
async fn send(client: &TestClient, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "extensions": { "io.modelcontextprotocol/tasks": {} } },
    });
    client.request(method, params).await["result"].take()
}

#[tokio::test(start_paused = true)]
async fn the_run_of_a_task_has_one_end() {
    let recorded = Recorded::new();
    let client = TestClient::new(&recorded.server, TestVersion::newest());
    let rows = [("return", "ok"), ("fail", "tool_error"), ("panic", "panic"), ("wait", "cancelled")];
    for (key, (behavior, _)) in rows.into_iter().enumerate() {
        let params = json!({ "name": "work", "arguments": arguments(key as u64, behavior) });
        let created = send(&client, "tools/call", params).await;
        let id = created["taskId"].as_str().unwrap().to_owned();
        recorded.semaphores.acquire("started").await;
        if behavior == "wait" {
            send(&client, "tasks/cancel", json!({ "taskId": id })).await;
        }
        recorded.semaphores.acquire("dropped").await;
    }
    recorded.wait_idle().await;
    let ends: Vec<_> =
        recorded.events.lock().unwrap().tool_ends.values().map(|ends| ends.join("+")).collect();
    assert_eq!(ends, rows.map(|(_, outcome)| outcome.to_owned()));
    let lines = recorded.audit_lines("task");
    assert_eq!(lines.len(), 4);
    for (line, (_, outcome)) in lines.iter().zip(rows) {
        assert_eq!((&line["outcome"], &line["name"]), (&json!(outcome), &json!("work")), "{line}");
        assert!(line["task"].is_string() && line["id"].is_null() && line["ms"].is_f64(), "{line}");
    }
    let stats = recorded.server.stats();
    assert_eq!(stats.requests.by_outcome.ok, stats.requests.total, "the requests have succeeded");
    let work = &stats.tools.by_tool["work"];
    assert_eq!((work.count, work.errors, work.by_outcome.cancelled), (4, 2, 1));
    recorded.check();
}

#[tokio::test]
async fn a_task_that_runs_when_its_server_is_dropped_ends() {
    let recorded = Recorded::new();
    let client = TestClient::new(&recorded.server, TestVersion::newest());
    send(&client, "tools/call", json!({ "name": "work", "arguments": arguments(1, "wait") })).await;
    recorded.semaphores.acquire("started").await;
    let Recorded { server, semaphores, events, .. } = recorded;
    drop((client, server));
    semaphores.acquire("dropped").await;
    for _ in 0..1000 {
        if !events.lock().unwrap().tool_ends.is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert_eq!(events.lock().unwrap().tool_ends[&1], ["cancelled"]);
}
