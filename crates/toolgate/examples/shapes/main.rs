//! Structured output of every shape: the fixture of the tests with clients that validate results against the announced output
//! schema. Read `structured_output` to see how a tool returns a struct.
//!
//! `shapes --listen 127.0.0.1:3000` serves HTTP, `shapes --stdio` standard input and output.

mod values;

use schemars::JsonSchema;
use serde::Serialize;
use toolgate::Json;

/// Output that its schema does not allow, so that a test can see that a client validates.
#[derive(Serialize, JsonSchema)]
struct Mislabeled {
    #[schemars(with = "u32")]
    id: &'static str,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server =
        values::shapes().tool("mislabeled", || async { Json(Mislabeled { id: "seven" }) }).build()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--stdio"] => server.serve_stdio().await?,
        ["--listen", address] => {
            let listener = tokio::net::TcpListener::bind(address).await?;
            eprintln!("listening on http://{}/mcp", listener.local_addr()?);
            server.serve(listener).await?;
        }
        _ => return Err("usage: shapes --listen ADDR | --stdio".into()),
    }
    Ok(())
}
