//! The `tracing` span of a call: log lines of handlers belong to it.

use std::io::{self, Write};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use toolgate::testing::{TestClient, TestVersion};
use toolgate::{Principal, Server, items};
use tracing::Level;

/// Longer than a poll should take.
const LONG: Duration = Duration::from_millis(150);

static LINES: Mutex<Vec<Value>> = Mutex::new(Vec::new());

/// Collects log lines, which are JSON.
struct Collector;

impl Write for Collector {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        LINES.lock().unwrap().push(serde_json::from_slice(line).unwrap());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Installs a global subscriber, because handlers run on several threads.
fn install() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let lines = tracing_subscriber::fmt().json().with_max_level(Level::DEBUG).with_writer(|| Collector);
        lines.init();
    });
}

/// The lines of a server, which has its own name in each test: the span, and the fields of the line.
fn lines_of(server: &str) -> Vec<(Value, Value)> {
    let lines = LINES.lock().unwrap();
    let lines = lines.iter().filter(|line| line["span"]["server"] == server);
    lines.map(|line| (line["span"].clone(), line["fields"].clone())).collect()
}

mod marked {
    use toolgate::prelude::*;

    #[tool]
    pub(super) async fn waits() -> &'static str {
        tracing::info!(target: "collected", "before");
        tokio::task::yield_now().await;
        tracing::info!(target: "collected", "after");
        "ok"
    }

    #[tool]
    pub(super) fn plain() -> &'static str {
        tracing::info!(target: "collected", "on a thread");
        "ok"
    }

    #[tool]
    pub(super) fn pooled() {
        std::thread::sleep(super::LONG);
    }

    #[tool]
    pub(super) fn panics() -> &'static str {
        panic!("on purpose")
    }

    #[tool(task = "required")]
    pub(super) async fn render() -> &'static str {
        tracing::info!(target: "collected", "rendering");
        "rendered"
    }

    #[resource("log://read")]
    pub(super) async fn read() -> &'static str {
        tracing::info!(target: "collected", "reading");
        "ok"
    }
}

#[test]
fn log_lines_of_handlers_belong_to_a_call() {
    install();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for version in TestVersion::all() {
        let date = version.date();
        let name = format!("spans-{date}");
        let items = items![marked::waits, marked::plain, marked::panics, marked::read];
        let server = Server::new(&name, "1.0.0").add(items).build().unwrap();
        runtime.block_on(async {
            let client = TestClient::new(&server, version).over_http().with_principal(Principal::new("ada"));
            client.call("waits", json!({})).await.text();
            client.call("plain", json!({})).await.text();
            client.call("panics", json!({})).await.text();
            client.read("log://read").await.text();
        });
        let lines = lines_of(&name);
        let expected = [
            ("tools/call", "waits", "before"),
            ("tools/call", "waits", "after"),
            ("tools/call", "plain", "on a thread"),
            ("tools/call", "panics", "handler panicked"),
            ("resources/read", "log://read", "reading"),
        ];
        assert_eq!(lines.len(), expected.len(), "{lines:#?}");
        assert_eq!(lines[3].1["panic"], "on purpose");
        for ((mut span, fields), (method, subject, message)) in lines.into_iter().zip(expected) {
            assert_eq!(fields["message"], message);
            let id = span["id"].take();
            assert!(id.as_str().is_some_and(|id| id.parse::<i64>().is_ok()), "{id}");
            let session = span.as_object_mut().unwrap().remove("session");
            match version.has_handshake() {
                true => assert_eq!(session.unwrap().as_str().map(str::len), Some(8), "not all of it"),
                false => assert_eq!(session, None),
            }
            assert_eq!(
                span,
                json!({
                    "name": "call", "server": name, "method": method, "subject": subject, "principal": "ada",
                    "protocol_version": date, "id": null,
                })
            );
        }
    }
}

#[tokio::test]
async fn log_lines_of_tasks_belong_to_a_call() {
    install();
    let server = Server::new("task-spans", "1.0.0").add(items![marked::render]).build().unwrap();
    let id = crate::tasks::start_task(&server, "render", json!({})).await;
    crate::tasks::wait_for_status(&server, &id, "completed").await;
    let span = json!({
        "name": "call", "server": "task-spans", "method": "tools/call", "subject": "render",
        "protocol_version": "2026-07-28", "is_task": true,
    });
    assert_eq!(lines_of("task-spans"), [(span, json!({ "message": "rendering" }))]);
}

/// A handler that keeps its thread is reported once, with its name. A function on the blocking pool is not.
#[tokio::test]
async fn handlers_that_block_the_runtime_are_reported_once() {
    install();
    let server = Server::new("slow-polls", "1.0.0")
        .tool("blocks", || async { std::thread::sleep(LONG) })
        .tool("waits", || async { tokio::time::sleep(LONG).await })
        .resource("slow://read", || async {
            std::thread::sleep(LONG);
            "read"
        })
        .add(items![marked::pooled])
        .build()
        .unwrap();
    for tool in ["blocks", "blocks", "waits", "pooled"] {
        server.call_tool(tool, json!({})).await.unwrap();
    }
    server.read_resource("slow://read").await.unwrap();
    let lines = lines_of("slow-polls");
    let reported: Vec<_> = lines.iter().map(|(_, fields)| (&fields["kind"], &fields["name"])).collect();
    assert_eq!(reported, [(&json!("tool"), &json!("blocks")), (&json!("resource"), &json!("slow://read"))]);
    assert!(lines[0].1["message"].as_str().unwrap().contains("spawn_blocking"), "{lines:?}");
}
