//! An issue tracker: sixteen tools, a resource template and a prompt, in an axum application.
//!
//! It uses most of the library as a real program would: structs with options, elicitation, sampling, tasks, a layer,
//! request extensions, and Redis if there are several processes. `cargo xtask interop` runs third-party clients
//! against it, which validate every result against the announced schema.
//!
//! `cargo run --example tracker --features redis -- 127.0.0.1:8080 [redis://127.0.0.1:6379]`

mod model;
mod tools;

use std::time::Instant;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use toolgate::prelude::*;
use toolgate::store::RedisStore;

use model::Tracker;

/// The team whose issues are served. The middleware of the web application sets it, and tools read it.
#[derive(Clone)]
struct Team(String);

async fn insert_team(mut request: Request, next: Next) -> Response {
    let team = request.headers().get("x-team").and_then(|team| team.to_str().ok()).unwrap_or("default");
    let team = Team(team.to_owned());
    request.extensions_mut().insert(team);
    next.run(request).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".into());

    let mut builder =
        Server::new("tracker", "1.0.0").add(Tracker::default()).layer(|call, next| async move {
            let (name, started) = (call.subject().to_owned(), Instant::now());
            let result = next.run(call).await;
            eprintln!("{name} took {:?}", started.elapsed());
            result
        });
    if let Some(url) = arguments.next() {
        builder = builder.store(RedisStore::connect(&url).await?);
    }
    let server = builder.build()?;

    let app = Router::new()
        .nest_service("/mcp", server.clone().into_service())
        .layer(middleware::from_fn(insert_team))
        .route("/health", get(|| async { "ok" }));
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
