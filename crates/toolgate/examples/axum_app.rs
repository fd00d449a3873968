//! Use this when you already have a web application and want to add several servers to its routes. For one server, or
//! for authentication of your own, see `embed_in_axum.rs`.
//!
//! `cargo run --example axum_app -- 127.0.0.1:8080`

use std::net::SocketAddr;

use axum::Router;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use toolgate::guard::Rate;
use toolgate::http::RemoteAddr;
use toolgate::{App, Mount, Servers};

/// Provides the client address to guards (`allow_ips`, `rate_per_ip`) and handlers.
async fn insert_remote_addr(
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    request.extensions_mut().insert(RemoteAddr(peer));
    next.run(request).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    let servers = Servers::new();
    servers.server_with("shop", |server| {
        server.tool("hours", || async { "9 to 5" }).rate_per_ip(Rate::per_minute(60))
    });
    servers.server_with("admin", |server| server.tool("close", || async { "closed" }).allow_ips("127.0.0.1"));

    // Mounts are full paths: the app is a fallback. A nested router would strip the prefix.
    let tools = App::new(&servers).mount("/tools", Mount::select().or("shop")).stats_at("/stats");
    let app = Router::new()
        .route("/health", get(|| async { "well" }))
        .fallback_service(tools.into_service()?)
        .layer(middleware::from_fn(insert_remote_addr));

    let listener = tokio::net::TcpListener::bind(address).await?;
    eprintln!("listening on http://{}/tools", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())
        .with_graceful_shutdown(async move {
            let _ = tokio::signal::ctrl_c().await;
            // Closes the streams of all servers, which would otherwise delay the shutdown.
            servers.clear();
        })
        .await?;
    Ok(())
}
