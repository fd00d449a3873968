//! Use this when a client starts your program itself and communicates over standard input and output: desktop
//! applications, editors, command-line agents.
//!
//! `cargo run --example hello_stdio`, then type one line:
//! `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"me","version":"1"}}}`

use schemars::JsonSchema;
use serde::Deserialize;
use toolgate::Server;

#[derive(Deserialize, JsonSchema)]
struct Greet {
    /// Whom to greet
    name: String,
}

async fn greet(args: Greet) -> String {
    // Standard output is reserved for the protocol. Output of handlers goes to standard error instead.
    println!("greeting {}", args.name);
    format!("Hello, {}!", args.name)
}

#[tokio::main]
async fn main() -> Result<(), toolgate::Error> {
    Server::new("hello", "1.0.0")
        .tool("greet", greet)
        .describe("Greets someone")
        .read_only()
        .serve_stdio()
        .await
}
