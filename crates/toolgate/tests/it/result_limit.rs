//! The limit of results: `Builder::result_limit`.

use std::time::Duration;

use serde_json::{Value, json};
use toolgate::testing::{TestClient, TestVersion};
use toolgate::{Builder, Server};

const LIMIT: usize = 4096;

/// A server whose tool, resource and prompt return a text of `size` bytes.
fn server(size: usize) -> Builder {
    let text = move || async move { "x".repeat(size) };
    Server::new("limit", "1.0.0")
        .result_limit(LIMIT)
        .tool("text", text)
        .describe("y".repeat(2 * LIMIT))
        .tool("structured", move || async move { json!({ "text": "x".repeat(size) }) })
        .tool("failing", move || async move { Err::<String, _>("x".repeat(size)) })
        .resource("text://all", text)
        .prompt("text", text)
        .done()
}

#[tokio::test]
async fn a_result_that_is_too_large_becomes_an_error_in_every_version() {
    for version in TestVersion::all() {
        let client = TestClient::new(server(LIMIT), version);
        for tool in ["text", "structured", "failing"] {
            let response = client.call(tool, json!({})).await;
            assert!(response.is_error(), "{version}, {tool}");
            let text = response.text();
            assert!(text.starts_with("the result has "), "{version}, {tool}: {text}");
            assert!(text.ends_with(" bytes, the limit is 4096; ask for less"), "{version}, {tool}: {text}");
        }
        let (read, prompt) = (client.read("text://all").await, client.prompt("text", json!({})).await);
        for error in [read.error(), prompt.error()] {
            assert_eq!(error.code(), -32603, "{version}");
            assert!(error.message().ends_with("the limit is 4096; ask for less"), "{version}: {error}");
        }
        assert_eq!(client.tools().await.len(), 3, "{version}: lists have pages, and no limit");
    }
}

#[tokio::test]
async fn a_result_within_the_limit_is_not_changed() {
    // The response around the text has fewer bytes.
    for version in TestVersion::all() {
        let client = TestClient::new(server(LIMIT - 512), version);
        assert_eq!(client.call("text", json!({})).await.text().len(), LIMIT - 512, "{version}");
        assert_eq!(client.read("text://all").await.text().len(), LIMIT - 512, "{version}");
        assert_eq!(client.prompt("text", json!({})).await.text().len(), LIMIT - 512, "{version}");
    }
}

#[tokio::test]
async fn the_limit_can_be_turned_off_and_is_16_mib_by_default() {
    let call = |server: Server| async move {
        let result = tokio::time::timeout(Duration::from_secs(60), server.call_tool("text", json!({}))).await;
        result.unwrap().unwrap()
    };
    let size = |result: &Value| result["content"][0]["text"].as_str().unwrap().len();
    let off = server(2 * LIMIT).result_limit(usize::MAX).build().unwrap();
    assert_eq!(size(&call(off).await), 2 * LIMIT);
    let build = |size: usize| {
        Server::new("limit", "1").tool("text", move || async move { "x".repeat(size) }).build().unwrap()
    };
    assert_eq!(size(&call(build((16 << 20) - 200)).await), (16 << 20) - 200);
    let rejected = call(build(16 << 20)).await;
    assert_eq!(rejected["isError"], true);
    let text = rejected["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("the limit is 16777216"), "{text}");
}
