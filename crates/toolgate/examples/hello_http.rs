//! Use this when clients reach your server over the network: one process, many clients.
//!
//! `cargo run --example hello_http`, then
//! `curl http://127.0.0.1:8080/mcp -H 'content-type: application/json' -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"greet","arguments":{"name":"Ann"}}}'`

use schemars::JsonSchema;
use serde::Deserialize;
use toolgate::Server;

#[derive(Deserialize, JsonSchema)]
struct Greet {
    /// Whom to greet
    name: String,
}

#[tokio::main]
async fn main() -> Result<(), toolgate::Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    eprintln!("listening on http://{address}/mcp");
    Server::new("hello", "1.0.0")
        .tool("greet", |args: Greet| async move { format!("Hello, {}!", args.name) })
        .describe("Greets someone")
        .read_only()
        // Only requests to this machine are accepted. For a server with a public name:
        // .public_url("https://mcp.example.com")
        .listen(address)
        .await
}
