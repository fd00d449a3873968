//! Use this when you already have a web application: the server is one of its routes, behind your own middleware, on your
//! own listener.
//!
//! `cargo run --example embed_in_axum -- 127.0.0.1:8080`

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use toolgate::{Context, Principal, Server};

async fn who_am_i(cx: Context) -> String {
    cx.principal().id().map_or_else(|| "nobody in particular".into(), |id| format!("you are {id}"))
}

/// Sets the principal, to which sessions and sealed state belong. Real middleware verifies a signature; this one knows a
/// single token.
async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let who = bearer(request.headers()).and_then(|token| (token == "secret").then_some("ann"));
    let who = who.ok_or(StatusCode::UNAUTHORIZED)?;
    request.extensions_mut().insert(Principal::new(who));
    Ok(next.run(request).await)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    let server = Server::new("embedded", "1.0.0")
        .tool("who_am_i", who_am_i)
        .describe("Tells you who you are")
        .read_only()
        .build()?;

    let tools = Router::new()
        .nest_service("/mcp", server.clone().into_service())
        .layer(middleware::from_fn(authenticate));
    let app = tools.route("/health", get(|| async { "well" }));

    let listener = tokio::net::TcpListener::bind(address).await?;
    eprintln!("listening on http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, app)
        .with_graceful_shutdown(async move {
            let _ = tokio::signal::ctrl_c().await;
            // Closes open streams, which would otherwise delay the shutdown.
            server.shutdown();
        })
        .await?;
    Ok(())
}
