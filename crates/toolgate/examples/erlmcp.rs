//! Use this when clients were written for erlmcp, a server in Erlang: its error codes, its short notification names, its
//! workspace roots and its completions, in addition to everything that clients of the protocol expect.
//!
//! It rebuilds the server that the reference of erlmcp describes; `cargo xtask seeds` runs the requests printed there
//! against it.
//!
//! `cargo run --example erlmcp -- --http :8080`, then
//! `curl http://localhost:8080/erl/mcp -H 'Content-Type: application/json' \
//! -d '{"jsonrpc":"2.0","id":13,"method":"roots/list"}'`;
//! `cargo run --example erlmcp -- --server erlmcp` serves the client that starts it.

use std::time::Duration;

use toolgate::compat::{Dialect, Roots};
use toolgate::guard::Rate;
use toolgate::model::TaskSupport;
use toolgate::model::{LogLevel, PromptOutput};
use toolgate::prelude::*;
use toolgate::{App, Builder, Error, Mount, Servers};

#[derive(Deserialize, JsonSchema)]
struct Sum {
    a: f64,
    b: f64,
    op: Op,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Op {
    Add,
    Subtract,
    Multiply,
    Divide,
}

async fn calculate(Sum { a, b, op }: Sum) -> Result<String, HandlerError> {
    Ok(match op {
        Op::Add => a + b,
        Op::Subtract => a - b,
        Op::Multiply => a * b,
        Op::Divide if b == 0.0 => return Err(HandlerError::new("division by zero")),
        Op::Divide => a / b,
    }
    .to_string())
}

/// A cancelled call is dropped at one of the `await`s.
async fn long_running_task(cx: Context) -> &'static str {
    for step in 1..=10 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        cx.progress_of(f64::from(step) / 10.0, 1.0, if step == 5 { "Halfway complete" } else { "working" })
            .await;
    }
    "done"
}

async fn touch_config(cx: Context) -> &'static str {
    cx.notify().resource_updated("mcp://config");
    "touched"
}

#[derive(Deserialize, JsonSchema)]
struct Day {
    date: String,
}

#[derive(Deserialize, JsonSchema)]
struct Essay {
    /// The essay topic
    topic: String,
}

async fn write_essay(Essay { topic }: Essay) -> PromptOutput {
    let text = Content::text(format!("Write a persuasive essay about {topic}."));
    PromptOutput::new(vec![PromptMessage::user(text)])
        .with_description(format!("Generate an essay about {topic}"))
}

#[derive(Deserialize, JsonSchema)]
struct File {
    path: String,
}

/// Files outside of the roots are rejected before this runs; `resolve` returns the real path.
async fn read_file(files: Roots, path: String) -> Option<String> {
    let read = move || std::fs::read_to_string(files.resolve(&format!("file:///{path}"))?).ok();
    tokio::task::spawn_blocking(read).await.ok()?
}

/// Returns the values with this prefix.
fn with_prefix(all: &'static [&'static str], prefix: &str) -> Vec<&'static str> {
    all.iter().copied().filter(|one| one.starts_with(prefix)).collect()
}

fn erlmcp(name: &str) -> Builder {
    // Clients may add roots, but none that lies elsewhere: `Roots::writable` would let them read everything.
    let roots = Roots::new(["file:///Users/user/project", "file:///Users/user/old-project", "file:///logs"])
        .writable_below("file:///Users/user");
    let files = roots.clone();
    Server::new(name, "3.0.0")
        .dialect(Dialect::erlmcp())
        .workspace_roots(roots)
        .message_limit(16 << 20)
        .sse_keep_alive(Duration::from_secs(5))
        .tool("calculate", calculate)
        .describe("Perform arithmetic operations")
        .tool("long_running_task", long_running_task)
        .describe("Takes a second and says how far it is")
        .tool("long_operation", long_running_task)
        .describe("Takes a second, as a task if the client likes")
        .task(TaskSupport::Optional)
        .tool("log_something", async |cx: Context| {
            let line = json!({ "message": "Server started successfully" });
            cx.log_as("erlmcp", LogLevel::Info, line).await;
            "logged"
        })
        .tool("touch_config", touch_config)
        .describe("Tells everybody who subscribed that the configuration has changed")
        .resource("mcp://config", || async { r#"{"version": "3.0.0", "features": ["resources", "tools"]}"# })
        .name("Configuration")
        .describe("Server configuration")
        .mime("application/json")
        .complete("feature", |prefix, _| async move { with_prefix(&["resources", "tools"], &prefix) })
        .resource("file:///logs/app.log", || async { "nothing happened" })
        .name("Application Logs")
        .mime("text/plain")
        .template("logs://{date}", |day: Day| async move { format!("nothing happened on {}", day.date) })
        .name("Daily Logs")
        .describe("Access logs by date")
        .mime("text/plain")
        .complete("date", |prefix, _| async move { with_prefix(&["2026-01-01", "2026-01-02"], &prefix) })
        .template("file:///{+path}", move |file: File| read_file(files.clone(), file.path))
        .name("Workspace files")
        .prompt("write_essay", write_essay)
        .describe("Generate an essay writing prompt")
        .complete(
            "topic",
            |prefix, _| async move { with_prefix(&["climate change", "cloud", "cities"], &prefix) },
        )
}

fn app() -> Result<App, Error> {
    let servers = Servers::new();
    servers.add(&erlmcp("erlmcp").build()?)?;
    // The defaults of erlmcp: `initialize` first, and at most 100 requests per minute from one address.
    let strict = erlmcp("erl-strict").require_initialize().rate_per_ip(Rate::per_minute(100).burst(100));
    servers.add(&strict.build()?)?;
    Ok(App::new(&servers)
        .mount("/erl/mcp", Mount::fixed("erlmcp"))
        .mount("/erl-strict/mcp", Mount::fixed("erl-strict")))
}

toolgate::main!(app());
