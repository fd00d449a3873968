//! Use this to monitor a server: number of calls, latency, errors, rejections.
//!
//! `cargo run --example statistics -- --http :8080`, then `curl http://127.0.0.1:8080/stats/shop/summary`.

use std::time::Duration;

use toolgate::prelude::*;
use toolgate::{App, Mount, registry};

/// What tea costs
#[tool(read_only)]
fn price(kind: String) -> Result<u32, String> {
    match kind.as_str() {
        "green" => Ok(3),
        "black" => Ok(2),
        _ => Err(format!("there is no {kind} tea")),
    }
}

/// What this server has counted about its tools
#[tool(read_only)]
fn numbers() -> Result<serde_json::Value, HandlerError> {
    let server = registry().get("shop").ok_or(HandlerError::new("the shop is gone"))?;
    Ok(serde_json::to_value(server.stats().tools.by_tool)?)
}

async fn app() -> App {
    let shop = registry().server_with("shop", |server| server.collect());

    // Statistics can be read at any time: the summary is cheap, the detailed form copies its samples.
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(10)).await;
            let now = shop.stats_summary();
            eprintln!("{} requests, {:.1} % went well", now.total_requests, now.success_rate);
        }
    });

    // `GET /stats/shop`, `GET /stats/shop/summary`, `POST /stats/shop/reset`, behind the guards of the server.
    App::new(registry()).mount("/mcp", Mount::fixed("shop")).stats_at("/stats")
}

toolgate::main!(app().await);
