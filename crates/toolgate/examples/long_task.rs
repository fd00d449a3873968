//! Use this when a tool takes minutes: it runs as a task, which the client can poll, respond to and cancel.
//!
//! `cargo run --example long_task`, then start one, with the headers of the newest protocol version:
//!
//! ```text
//! META='"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}'
//! call() { curl -s http://127.0.0.1:8080/mcp -H 'content-type: application/json' -H 'accept: application/json, text/event-stream' \
//!     -H 'mcp-protocol-version: 2026-07-28' -H "mcp-method: $1" -H "mcp-name: $2" \
//!     -d "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"$1\",\"params\":{$3,$META}}"; echo; }
//! call tools/call brew '"name":"brew","arguments":{"pots":3}'
//! call tasks/get $ID "\"taskId\":\"$ID\""
//! call tasks/update $ID "\"taskId\":\"$ID\",\"inputResponses\":{\"sugar\":{\"action\":\"accept\",\"content\":{\"lumps\":2}}}"
//! ```

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use toolgate::model::TaskSupport;
use toolgate::{Context, Field, Form, HandlerError, Server};

#[derive(Deserialize, JsonSchema)]
struct Brew {
    /// How many pots
    pots: u32,
}

/// Steps are not repeated: if the process ends here, another one continues with the next pot.
async fn brew(args: Brew, cx: Context) -> Result<String, HandlerError> {
    for pot in 1..=args.pots {
        cx.progress_of(f64::from(pot), f64::from(args.pots), "brewing").await;
        cx.step(&format!("pot {pot}"), || async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            Ok::<_, HandlerError>(())
        })
        .await?;
    }
    let sugar = Form::new("How much sugar?").field("lumps", Field::integer().min(0).max(9));
    let lumps = cx.elicit("sugar", sugar).await?.accepted().unwrap_or_default()["lumps"].take();
    Ok(format!("{} pots of tea, {lumps} lumps in each", args.pots))
}

#[tokio::main]
async fn main() -> Result<(), toolgate::Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    eprintln!("listening on http://{address}/mcp");
    Server::new("tea", "1.0.0")
        .tool("brew", brew)
        .describe("Brews tea, which takes its time")
        .task(TaskSupport::Optional)
        .resumable()
        .default_task_ttl(Duration::from_secs(2 * 60 * 60))
        // Without a persistent store, tasks end with the process.
        .listen(address)
        .await
}
