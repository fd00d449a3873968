//! The small server of the benchmarks on pmcp.
//!
//! `--listen ADDR` responds with JSON and has no sessions, `--sessions --listen ADDR` has sessions, `--stdio` serves
//! standard input and output.

use std::sync::Arc;

use async_trait::async_trait;
use pmcp::server::streamable_http_server::{StreamableHttpServer, StreamableHttpServerConfig};
use pmcp::types::protocol::{LATEST_PROTOCOL_VERSION, PROTOCOL_VERSION_2026_07_28, ProtocolVersion};
use pmcp::types::{Content, ListResourcesResult, ReadResourceResult, ResourceInfo, ServerCapabilities};
use pmcp::{RequestHandlerExtra, ResourceHandler, Server};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

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

struct Text;

#[async_trait]
impl ResourceHandler for Text {
    async fn read(&self, uri: &str, _extra: RequestHandlerExtra) -> pmcp::Result<ReadResourceResult> {
        Ok(ReadResourceResult::new(vec![Content::resource_with_text(uri, "A short text", "text/plain")]))
    }

    async fn list(
        &self,
        _cursor: Option<String>,
        _extra: RequestHandlerExtra,
    ) -> pmcp::Result<ListResourcesResult> {
        Ok(ListResourcesResult::new(vec![ResourceInfo::new("bench://text", "text")]))
    }
}

fn server() -> pmcp::Result<Server> {
    let mut builder = Server::builder()
        .name("bench")
        .version("1.0.0")
        .capabilities(ServerCapabilities::tools_only())
        .with_supported_protocol_versions([
            ProtocolVersion(LATEST_PROTOCOL_VERSION.to_owned()),
            ProtocolVersion(PROTOCOL_VERSION_2026_07_28.to_owned()),
        ])
        .resources(Text)
        .tool_typed_sync_with_description("add", "Adds two numbers", |args: Add, _| {
            Ok(Value::String((args.a + args.b).to_string()))
        })
        .tool_typed_sync_with_description("echo", "Says it again", say);
    for number in 1..=50 {
        let name = format!("dummy_{number}");
        builder = builder.tool_typed_sync_with_description(name, "One of many", say);
    }
    builder.build()
}

fn say(args: Echo, _extra: RequestHandlerExtra) -> pmcp::Result<Value> {
    Ok(Value::String(args.message))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--stdio"] => server()?.run_stdio().await?,
        ["--listen", address] => listen(address, StreamableHttpServerConfig::stateless()).await?,
        ["--sessions", "--listen", address] => listen(address, StreamableHttpServerConfig::default()).await?,
        _ => return Err("usage: peer-pmcp [--sessions] --listen ADDR | --stdio".into()),
    }
    Ok(())
}

#[expect(clippy::disallowed_types, reason = "the type of the lock is part of its interface")]
async fn listen(address: &str, config: StreamableHttpServerConfig) -> Result<(), Box<dyn std::error::Error>> {
    let server = Arc::new(tokio::sync::Mutex::new(server()?));
    let http = StreamableHttpServer::with_config(address.parse()?, server, config);
    let (bound, handle) = http.start().await?;
    eprintln!("listening on http://{bound}/");
    handle.await?;
    Ok(())
}
