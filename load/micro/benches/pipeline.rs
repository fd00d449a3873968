//! One message through the whole server, in memory: headers, guards, body, frame, protocol version, dispatch, handler,
//! response. There is no socket, so only our own code is measured.

use std::convert::Infallible;
use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use http::Request;
use http_body_util::{BodyExt, Full};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use toolgate::Server;
use toolgate::http::{Body, ServerService};
use tower_service::Service;

#[derive(Deserialize, JsonSchema)]
struct Echo {
    message: String,
}

fn server() -> Server {
    let server = Server::new("bench", "1.0.0").tool("echo", |args: Echo| async move { args.message });
    dummies(server.describe("Says it again"), 51).build().expect("a valid server")
}

/// Adds more tools, so that a list of tools is long enough to measure.
fn dummies(server: toolgate::Builder, count: usize) -> toolgate::Builder {
    let mut server = server.tool("add", |args: Echo| async move { args.message.len() });
    for number in 1..count {
        server = server.tool(format!("dummy_{number}"), |args: Echo| async move { args.message });
        server = server.describe("One of many");
    }
    server
}

struct Message {
    headers: Vec<(&'static str, String)>,
    body: Bytes,
}

fn unversioned(method: &str, params: &serde_json::Value) -> Message {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    Message { headers: Vec::new(), body: body.to_string().into() }
}

fn stateless(method: &str, mut params: serde_json::Value, name: Option<&str>) -> Message {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "bench", "version": "1.0.0" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let mut message = unversioned(method, &params);
    message.headers = vec![("mcp-protocol-version", "2026-07-28".into()), ("mcp-method", method.into())];
    message.headers.extend(name.map(|name| ("mcp-name", name.into())));
    message
}

fn request(message: &Message) -> Request<Full<Bytes>> {
    let mut request = Request::post("/mcp")
        .header("host", "127.0.0.1:8080")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    for (name, value) in &message.headers {
        request = request.header(*name, value);
    }
    request.body(Full::new(message.body.clone())).expect("a valid request")
}

async fn send(service: &mut ServerService, message: &Message) -> Bytes {
    let response: Result<http::Response<Body>, Infallible> = service.call(request(message)).await;
    let Ok(response) = response;
    let Ok(body) = response.into_body().collect().await;
    body.to_bytes()
}

fn pipeline(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut service = server().into_service();
    let long = "x".repeat(64 << 10);
    let echo = |message: &str| json!({ "name": "echo", "arguments": { "message": message } });
    let messages = [
        ("echo, unversioned", unversioned("tools/call", &echo("hello"))),
        ("echo, 2026", stateless("tools/call", echo("hello"), Some("echo"))),
        ("echo of 64 KiB, 2026", stateless("tools/call", echo(&long), Some("echo"))),
        ("ping, unversioned", unversioned("ping", &json!({}))),
        ("list of 52, unversioned", unversioned("tools/list", &json!({}))),
        ("list of 52, 2026", stateless("tools/list", json!({}), None)),
        ("discover, 2026", stateless("server/discover", json!({}), None)),
    ];
    let mut group = criterion.benchmark_group("pipeline");
    for (name, message) in &messages {
        let response = runtime.block_on(send(&mut service, message));
        assert!(response.starts_with(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":"), "{name}: {response:?}");
        group.throughput(Throughput::Bytes((message.body.len() + response.len()) as u64));
        group.bench_function(*name, |bencher| {
            bencher.iter(|| black_box(runtime.block_on(send(&mut service, black_box(message)))));
        });
    }
    group.finish();
}

/// The cost of statistics, listeners and guards, compared with the same call without them.
fn observed(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let message =
        stateless("tools/call", json!({ "name": "echo", "arguments": { "message": "x" } }), Some("echo"));
    let with_listener = server();
    with_listener.on_response(|response| {
        black_box(response.is_success());
    });
    let guarded =
        server().set_tokens(["secret"]).set_rate_per_principal(toolgate::guard::Rate::per_second(u32::MAX));
    let mut group = criterion.benchmark_group("observed");
    for (name, server, credentials) in [
        ("statistics off", server().disable_stats(), None),
        ("statistics on", server(), None),
        ("statistics on, one listener", with_listener, None),
        ("statistics on, token and rate", guarded, Some("Bearer secret")),
    ] {
        let mut service = server.into_service();
        let mut message = Message { headers: message.headers.clone(), body: message.body.clone() };
        message.headers.extend(credentials.map(|value| ("authorization", value.into())));
        let response = runtime.block_on(send(&mut service, &message));
        assert!(response.starts_with(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":"), "{name}: {response:?}");
        group.bench_function(name, |bencher| {
            bencher.iter(|| black_box(runtime.block_on(send(&mut service, black_box(&message)))));
        });
    }
    group.finish();
}

criterion_group!(benches, pipeline, observed);
criterion_main!(benches);
