//! Use this when you have a web application already and several servers to put beside its routes. For one server, or
//! for a login of your own, see `embed_in_axum.rs`.
//!
//! `cargo run --example axum_app -- 127.0.0.1:8080`

use axum::Router;
use axum::routing::get;
use toolgate::{App, Mount, Servers};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    let servers = Servers::new();
    servers.server_with("shop", |server| server.tool("hours", || async { "9 to 5" }));
    servers.server_with("admin", |server| server.tool("close", || async { "closed" }).tokens(["secret"]));

    // Mounts are whole paths: the app is a fallback, not a nest, whose prefix would be taken off.
    let tools = App::new(&servers).mount("/tools", Mount::select().or("shop")).stats_at("/stats");
    let app =
        Router::new().route("/health", get(|| async { "well" })).fallback_service(tools.into_service()?);

    let listener = tokio::net::TcpListener::bind(address).await?;
    eprintln!("listening on http://{}/tools", listener.local_addr()?);
    axum::serve(listener, app)
        .with_graceful_shutdown(async move {
            let _ = tokio::signal::ctrl_c().await;
            // Ends the streams of all servers, which would otherwise keep the shutdown waiting.
            servers.clear();
        })
        .await?;
    Ok(())
}
