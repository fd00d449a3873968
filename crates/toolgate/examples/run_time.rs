//! Use this when the features of a server are not known at its start, or change while clients are connected: they are
//! notified, and the next request sees the change.
//!
//! `cargo run --example run_time -- --http :8080`, then call `learn` and look at the list of tools again.

use toolgate::prelude::*;
use toolgate::{ToolSpec, registry};

const NAME: &str = "parrot";

/// Learn a new word: it becomes a tool
#[tool]
fn learn(#[arg(pattern = "^[a-z_]{1,32}$")] word: String) -> Result<usize, HandlerError> {
    let server = registry().get(NAME).ok_or(HandlerError::new("the parrot is gone"))?;
    let said = word.clone();
    let tool = ToolSpec::new(word, move || std::future::ready(said.clone())).describe("Says it");
    server.add_tool(tool)?;
    Ok(server.tool_count())
}

/// Forget a word
#[tool(destructive)]
fn forget(word: String) -> bool {
    registry().get(NAME).is_some_and(|server| server.remove_tool(&word))
}

/// Answer nothing but pings for some seconds
#[tool]
async fn sleep(#[arg(default = 5, range = 1..=60)] seconds: u64) -> &'static str {
    let server = registry().server(NAME).pause();
    tokio::spawn(async move {
        tokio::time::sleep(std::time::Duration::from_secs(seconds)).await;
        server.resume();
    });
    "good night"
}

// The registry of the process is one list of servers that every function can access.
toolgate::main!(registry().server_with(NAME, |server| server.collect()));
