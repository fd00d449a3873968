//! The small server of the benchmarks on rmcp, in its fastest configuration: the tools are created once and shared.
//!
//! `--listen ADDR` responds with JSON and has no sessions; `--sessions --listen ADDR` is its default configuration,
//! sessions with responses over SSE; `--stdio` serves standard input and output. The examples in its documentation create
//! the tools for every request, which costs ten times as much and would not be a fair comparison.

use std::sync::Arc;

use axum::serve::ListenerExt;
use rmcp::handler::server::router::tool::{ToolRoute, ToolRouter};
use rmcp::handler::server::tool::{ToolCallContext, schema_for_type};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, Implementation, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Resource,
    ResourceContents, ServerCapabilities, ServerConfig, SubscriptionFilter, Tool,
};
use rmcp::schemars::{self, JsonSchema};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde::Deserialize;

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

#[derive(Clone)]
struct Bench {
    tools: Arc<ToolRouter<Self>>,
}

impl Bench {
    fn new() -> Self {
        let echo = Tool::new("echo", "Says it again", schema_for_type::<Echo>());
        let add = Tool::new("add", "Adds two numbers", schema_for_type::<Add>());
        let mut tools = ToolRouter::new();
        tools.add_route(ToolRoute::new(echo, say));
        tools.add_route(ToolRoute::new(add, sum));
        for number in 1..=50 {
            let dummy = Tool::new(format!("dummy_{number}"), "One of many", schema_for_type::<Echo>());
            tools.add_route(ToolRoute::new(dummy, say));
        }
        Self { tools: Arc::new(tools) }
    }
}

fn say(Parameters(args): Parameters<Echo>) -> String {
    args.message
}

fn sum(Parameters(args): Parameters<Add>) -> String {
    (args.a + args.b).to_string()
}

impl ServerHandler for Bench {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("bench", "1.0.0"))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.tools.call(ToolCallContext::new(self, request, context)).await
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.list_all()))
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(vec![Resource::new("bench://text", "text")]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let text = ResourceContents::text("A short text", request.uri);
        Ok(ReadResourceResult::new(vec![text]).into())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--stdio"] => {
            let service = Bench::new().serve(rmcp::transport::stdio()).await?;
            service.waiting().await?;
        }
        ["--listen", address] => {
            let plain = StreamableHttpServerConfig::default().with_legacy_session_mode(false);
            let listener = tokio::net::TcpListener::bind(address).await?;
            eprintln!("listening on http://{}/mcp", listener.local_addr()?);
            // Each response is one write, so this makes no difference; it is set for all servers.
            let listener = listener.tap_io(|stream| {
                let _ = stream.set_nodelay(true);
            });
            axum::serve(listener, router(plain.with_json_response(true))).await?;
        }
        ["--sessions", "--listen", address] => {
            let listener = tokio::net::TcpListener::bind(address).await?;
            eprintln!("listening on http://{}/mcp", listener.local_addr()?);
            axum::serve(listener, router(StreamableHttpServerConfig::default())).await?;
        }
        _ => return Err("usage: peer-rmcp [--sessions] --listen ADDR | --stdio".into()),
    }
    Ok(())
}

fn router(config: StreamableHttpServerConfig) -> axum::Router {
    let bench = Bench::new();
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(bench.clone()), sessions, config);
    axum::Router::new().nest_service("/mcp", service)
}
