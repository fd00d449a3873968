//! The small server that the benchmarks measure: `echo`, `add`, fifty dummy tools and a resource.
//!
//! `bench_server --listen 127.0.0.1:3000` serves HTTP, `bench_server --stdio` standard input and output.
//! `--no-statistics` disables counting, and `--stateless` disables sessions.

use std::pin::Pin;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio::runtime::Builder;
use toolgate::Server;
use toolgate::http::ListenOptions;

#[derive(Deserialize, JsonSchema)]
struct Echo {
    /// What to say
    message: String,
}

#[derive(Deserialize, JsonSchema)]
struct Add {
    /// The first number
    a: i64,
    /// The second number
    b: i64,
}

async fn echo(args: Echo) -> String {
    args.message
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // With one core a current-thread runtime is cheaper.
    let mut runtime = match std::thread::available_parallelism() {
        Ok(n) if n.get() == 1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    // Boxed, since each kind of runtime would compile a copy of it.
    let serving: Pin<Box<dyn Future<Output = _>>> = Box::pin(serve());
    runtime.enable_all().build()?.block_on(serving)
}

async fn serve() -> Result<(), Box<dyn std::error::Error>> {
    // The benchmark opens thousands of connections from one address.
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut has = |flag: &str| {
        let place = arguments.iter().position(|argument| argument == flag);
        place.map(|place| arguments.remove(place)).is_some()
    };
    let mut server = Server::new("bench", "1.0.0")
        .statistics(!has("--no-statistics"))
        .listener(ListenOptions::default().max_connections_per_ip(10_000))
        .resource("bench://text", || async { "A short text" })
        .mime("text/plain")
        .tool("echo", echo)
        .describe("Says it again")
        .tool("add", |args: Add| async move { args.a + args.b })
        .describe("Adds two numbers");
    for number in 1..=50 {
        let name = format!("dummy_{number}");
        server = server.tool(name, echo).describe("One of many");
    }
    let server = if has("--stateless") { server.stateless().build()? } else { server.build()? };
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--stdio"] => server.serve_stdio().await?,
        ["--listen", address] => {
            let listener = tokio::net::TcpListener::bind(address).await?;
            eprintln!("listening on http://{}/mcp", listener.local_addr()?);
            server.serve(listener).await?;
        }
        _ => return Err("usage: bench_server [--no-statistics] [--stateless] --listen ADDR | --stdio".into()),
    }
    Ok(())
}
