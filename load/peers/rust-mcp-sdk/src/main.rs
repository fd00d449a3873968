//! The small server of the benchmarks on rust-mcp-sdk, which only supports 2026-07-28.
//!
//! `--listen ADDR` serves HTTP with JSON responses, `--stdio` standard input and output.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use rust_mcp_axum::{AxumServerOptions, create_axum_server};
use rust_mcp_sdk::macros::{JsonSchema, mcp_tool};
use rust_mcp_sdk::mcp_server::{McpServerOptions, ServerHandler, ToMcpServerHandler, server_runtime};
use rust_mcp_sdk::schema::schema_utils::CallToolError;
use rust_mcp_sdk::schema::{
    CallToolRequestParams, CallToolResult, Implementation, ListToolsResult, ListToolsResultCacheScope,
    PaginatedRequestParams, RpcError, ServerCapabilities, ServerCapabilitiesTools, ServerResult, TextContent,
    Tool,
};
use rust_mcp_sdk::{McpServer, RequestContext, ServerDetails, StdioTransport, TransportOptions};
use serde::{Deserialize, Serialize};

/// Says it again
#[mcp_tool(name = "echo", description = "Says it again")]
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Echo {
    /// What to say
    message: String,
}

/// Adds two numbers
#[mcp_tool(name = "add", description = "Adds two numbers")]
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Add {
    /// The first number
    a: i64,
    /// The second number
    b: i64,
}

struct Bench {
    /// Created once: its macro would create them for every list.
    tools: Vec<Tool>,
}

impl Bench {
    fn new() -> Self {
        let mut tools = vec![Echo::tool(), Add::tool()];
        tools.extend((1..=50).map(|number| {
            let mut dummy = Echo::tool();
            dummy.name = format!("dummy_{number}");
            dummy.description = Some("One of many".to_owned());
            dummy
        }));
        Self { tools }
    }
}

#[async_trait]
impl ServerHandler for Bench {
    async fn handle_list_tools_request(
        &self,
        _params: Option<PaginatedRequestParams>,
        _context: &RequestContext,
        _runtime: Arc<dyn McpServer>,
    ) -> Result<ListToolsResult, RpcError> {
        Ok(ListToolsResult {
            cache_scope: ListToolsResultCacheScope::Private,
            result_type: "complete".to_owned(),
            ttl_ms: 0,
            meta: None,
            next_cursor: None,
            tools: self.tools.clone(),
        })
    }

    async fn handle_call_tool_request(
        &self,
        params: CallToolRequestParams,
        _context: &RequestContext,
        _runtime: Arc<dyn McpServer>,
    ) -> Result<ServerResult, CallToolError> {
        let arguments = serde_json::Value::Object(params.arguments.unwrap_or_default());
        let text = match params.name.as_str() {
            "add" => {
                let add: Add = serde_json::from_value(arguments).map_err(CallToolError::new)?;
                (add.a + add.b).to_string()
            }
            _ => serde_json::from_value::<Echo>(arguments).map_err(CallToolError::new)?.message,
        };
        Ok(CallToolResult::text_content(vec![TextContent::from(text)]).into())
    }
}

fn details() -> ServerDetails {
    ServerDetails {
        server_info: Implementation {
            name: "bench".into(),
            version: "1.0.0".into(),
            title: None,
            description: None,
            icons: Vec::new(),
            website_url: None,
        },
        capabilities: ServerCapabilities {
            tools: Some(ServerCapabilitiesTools { list_changed: Some(true) }),
            ..Default::default()
        },
        meta: None,
        instructions: None,
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let handler = Bench::new().to_mcp_server_handler();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--stdio"] => {
            let transport = StdioTransport::new(TransportOptions::default())?;
            let server_details = details();
            let options = McpServerOptions { server_details, transport, handler, message_observer: None };
            server_runtime::create_server(options).start().await?;
        }
        ["--listen", address] => {
            let address = free(address.parse()?)?;
            eprintln!("listening on http://{address}/mcp");
            let options = AxumServerOptions {
                host: address.ip().to_string(),
                port: address.port(),
                enable_json_response: Some(true),
                sse_support: false,
                max_listen_streams: 10_000,
                ..Default::default()
            };
            create_axum_server(details(), handler, options).start().await?;
        }
        _ => return Err("usage: peer-rust-mcp-sdk --listen ADDR | --stdio".into()),
    }
    Ok(())
}

/// The SDK does not report the port it was assigned, so a free one is chosen here.
fn free(address: SocketAddr) -> std::io::Result<SocketAddr> {
    std::net::TcpListener::bind(address)?.local_addr()
}
