//! The small server of the benchmarks on tower-mcp, with JSON responses.
//!
//! `--listen ADDR` serves HTTP with its defaults, which open a session for each 2025 request without one;
//! `--stateless --listen ADDR` has no sessions, but rejects `subscriptions/listen`; `--stdio` serves standard input and
//! output.

use axum::serve::ListenerExt;
use schemars::JsonSchema;
use serde::Deserialize;
use tower_mcp::resource::ResourceBuilder;
use tower_mcp::stateless::StatelessConfig;
use tower_mcp::transport::http::SubscriptionLimits;
use tower_mcp::{BoxError, CallToolResult, HttpTransport, McpRouter, StdioTransport, ToolBuilder};

#[derive(Debug, Deserialize, JsonSchema)]
struct Echo {
    /// What to say
    message: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Add {
    /// The first number
    a: i64,
    /// The second number
    b: i64,
}

fn router() -> McpRouter {
    let echo = |name: String, description: &str| {
        ToolBuilder::new(name)
            .description(description)
            .handler(|args: Echo| async move { Ok(CallToolResult::text(args.message)) })
            .build()
    };
    let add = ToolBuilder::new("add")
        .description("Adds two numbers")
        .handler(|args: Add| async move { Ok(CallToolResult::text((args.a + args.b).to_string())) })
        .build();
    let text = ResourceBuilder::new("bench://text").name("text").mime_type("text/plain").text("A short text");
    let router = McpRouter::new()
        .server_info("bench", "1.0.0")
        .resource(text)
        .tool(echo("echo".to_owned(), "Says it again"))
        .tool(add);
    (1..=50).fold(router, |router, number| router.tool(echo(format!("dummy_{number}"), "One of many")))
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--stdio"] => StdioTransport::new(router()).run().await?,
        ["--listen", address] => listen(address, transport()).await?,
        ["--stateless", "--listen", address] => {
            listen(address, transport().stateless(StatelessConfig::backward_compatible())).await?;
        }
        _ => return Err("usage: peer-tower-mcp [--stateless] --listen ADDR | --stdio".into()),
    }
    Ok(())
}

/// The default limits are lower than what the benchmark opens.
fn transport() -> HttpTransport {
    HttpTransport::new(router())
        .subscription_limits(SubscriptionLimits::default().max_active(10_000))
        .max_sessions(20_000)
}

async fn listen(address: &str, transport: HttpTransport) -> Result<(), BoxError> {
    let listener = tokio::net::TcpListener::bind(address).await?;
    eprintln!("listening on http://{}/mcp", listener.local_addr()?);
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, transport.into_router_at("/mcp")).await?;
    Ok(())
}
