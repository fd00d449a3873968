//! Use this when an API with an OpenAPI description should be available to MCP clients: each operation becomes a tool.
//!
//! `cargo run -p toolgate-sources --example openapi -- https://petstore3.swagger.io/api/v3/openapi.json`, as a command
//! that a client starts. `API_TOKEN` is sent as a bearer token, and the hosts in `ALLOWED_HOSTS`, separated by commas,
//! may be private.

use std::error::Error;

use toolgate::Server;
use toolgate_sources::OpenApi;

/// A server whose tools are the operations of a description.
pub(crate) async fn server(api: OpenApi) -> Result<Server, Box<dyn Error>> {
    let api = api.exclude(["deprecated"]);
    Ok(Server::new("openapi", "1.0.0").add(api.load().await?).build()?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("usage: openapi URL")?;
    let mut api = OpenApi::from_url(url);
    if let Ok(token) = std::env::var("API_TOKEN") {
        api = api.bearer_token(token);
    }
    for host in std::env::var("ALLOWED_HOSTS").unwrap_or_default().split(',').filter(|host| !host.is_empty())
    {
        api = api.allow_host(host);
    }
    server(api).await?.serve_stdio().await?;
    Ok(())
}
