//! Benchmark: tasks created and completed per second for each store, through the whole server except the socket.
//!
//! `cargo xtask state` runs it with its own Redis, and also measures memory per session and per listener.
//! `cargo bench -p toolgate --bench state --features redb,redis` runs only this benchmark; Redis is measured if
//! `TOOLGATE_TEST_REDIS` is set to its URL.

#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

mod stores;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use toolgate::Server;
use toolgate::http::ServerService;
use toolgate::model::TaskSupport;
use toolgate::store::Store;
use tower_service::Service;

/// Duration of each measurement.
const MEASURE_TIME: Duration = Duration::from_secs(3);

fn main() {
    // `cargo test` runs benchmarks with this flag; there is nothing to test here.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        println!("{:<8} {:>8} {:>22}", "store", "clients", "tasks per second");
        stores::each("state", measure).await;
    });
}

async fn measure(name: &'static str, store: Arc<dyn Store>) {
    for n_clients in [1, 32] {
        // The shortest TTL, so that the tasks left behind by one measurement are bounded.
        let server = Server::new(format!("state-{n_clients}"), "1.0.0")
            .store(Arc::clone(&store))
            .default_task_ttl(Duration::from_secs(60))
            .tool("work", || async { "done" })
            .task(TaskSupport::Required)
            .build()
            .unwrap();
        let endpoint = server.into_service();
        let finished = Arc::new(AtomicU64::new(0));
        let started = Instant::now();
        let clients = (0..n_clients).map(|_| {
            let (mut endpoint, finished) = (endpoint.clone(), Arc::clone(&finished));
            tokio::spawn(async move {
                while started.elapsed() < MEASURE_TIME {
                    run_one(&mut endpoint).await;
                    finished.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        for client in clients.collect::<Vec<_>>() {
            client.await.unwrap();
        }
        let rate = finished.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64();
        println!("{name:<8} {n_clients:>8} {rate:>22.0}");
    }
}

/// Starts a task and polls until it has completed.
async fn run_one(endpoint: &mut ServerService) {
    let created = send(endpoint, "tools/call", "work", json!({ "name": "work", "arguments": {} })).await;
    let id = created["result"]["taskId"].as_str().unwrap_or_else(|| panic!("{created}")).to_owned();
    loop {
        let task = send(endpoint, "tasks/get", &id, json!({ "taskId": id })).await;
        match task["result"]["status"].as_str() {
            Some("completed") => return,
            // A short poll interval; polling without a pause would measure the polling.
            Some("working") => tokio::time::sleep(Duration::from_millis(1)).await,
            _ => panic!("{task}"),
        }
    }
}

async fn send(endpoint: &mut ServerService, method: &str, name: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "bench", "version": "1.0.0" },
        "io.modelcontextprotocol/clientCapabilities":
            { "extensions": { "io.modelcontextprotocol/tasks": {} } },
    });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let request = Request::post("/mcp")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method)
        .header("mcp-name", name)
        .body(Full::<Bytes>::from(body))
        .unwrap();
    let response = endpoint.call(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap()
}
