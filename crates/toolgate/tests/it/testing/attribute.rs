//! Functions with `#[toolgate::test]`.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use toolgate::testing::{TestClient, TestVersion};
use toolgate::{Builder, Error, Server};

fn server() -> Builder {
    Server::new("hello", "1").tool("hi", || async { "Hello!" })
}

async fn build_server() -> Result<Server, Error> {
    tokio::task::yield_now().await;
    server().build()
}

static RUNS: AtomicUsize = AtomicUsize::new(0);

#[toolgate::test(server = server())]
async fn runs_in_every_version(client: TestClient) {
    assert_eq!(client.call("hi", json!({})).await.text(), "Hello!");
    // In order, and once each.
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    assert_eq!(Some(client.protocol_version()), TestVersion::all().nth(run));
}

#[toolgate::test(all_versions, http, server = build_server().await)]
async fn runs_over_http_and_may_end_with_a_result(client: TestClient) -> Result<(), String> {
    let called = client.call("hi", json!({})).await;
    assert_eq!(called.http().ok_or("no HTTP")?.status, 200);
    called.result().map(drop).map_err(ToString::to_string)
}

#[toolgate::test(versions = ["2025-11-25", "2026-07-28"], server = server())]
#[should_panic(expected = "failed in 1 of 2 protocol versions:\n  2025-11-25: not in this one")]
async fn names_the_version_that_fails(client: TestClient) {
    assert!(!client.protocol_version().has_handshake(), "not in this one");
}

#[toolgate::test(server = Server::new("none", "1").tool("no name", || async { "x" }))]
#[should_panic(expected = "failed in 5 of 5 protocol versions")]
async fn needs_a_server_that_can_be_built(_client: TestClient) {}

#[toolgate::test(server = server())]
#[should_panic(expected = "2024-11-05: \"so it goes\"")]
async fn fails_with_an_error_too(_: TestClient) -> Result<(), &'static str> {
    Err("so it goes")
}

#[toolgate::test]
async fn runs_without_a_client() -> Result<(), std::num::ParseIntError> {
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    "7".parse::<u8>().map(drop)
}
