//! API keys.

use std::time::Duration;

use serde_json::{Value, json};
use toolgate::guard::{ApiKeys, KeyError, KeyRequest};
use toolgate::{Context, Server, ToolSpec};

use super::{EventLog, PING, echo_server, empty_server, post};

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

/// A server whose provider records the result of this function.
fn logging_server(
    events: &EventLog,
    what: impl Fn(&str, &KeyRequest) -> Value + Send + Sync + 'static,
) -> Server {
    let events = events.clone();
    echo_server("keyed").set_api_keys(ApiKeys::provider(move |key: String, request: KeyRequest| {
        events.push(what(&key, &request));
        true
    }))
}

#[test]
fn s1_096_a_provider_of_keys() {
    let server = empty_server("s").set_api_keys(ApiKeys::provider(|key, _| key == "x"));
    assert!(server.has_api_key_provider());
    empty_server("s").set_api_keys(ApiKeys::provider(|key, _| {
        if key == "x" { Ok(true) } else { Err(KeyError::new("no")) }
    }));
}

#[test]
fn s1_097_no_provider_unless_one_is_set() {
    assert!(!empty_server("s").has_api_key_provider());
}

#[tokio::test]
async fn s1_105_a_provider_sees_the_method() {
    let events = EventLog::default();
    let server =
        logging_server(&events, |_, request| json!([request.method(), request.http_method().as_str()]));
    assert_eq!(post(&server, &[("x-api-key", "k")], LIST).await.status, 200);
    assert_eq!(events.only(), json!(["tools/list", "POST"]));
}

#[tokio::test]
async fn s1_106_a_provider_sees_the_server() {
    let events = EventLog::default();
    let server = logging_server(&events, |_, request| request.server_name().into());
    post(&server, &[("x-api-key", "k")], LIST).await;
    assert_eq!(events.only(), "keyed");
}

#[tokio::test]
async fn s1_107_a_provider_sees_the_body() {
    let events = EventLog::default();
    let server = logging_server(&events, |_, request| request.body().into());
    post(&server, &[("x-api-key", "k")], LIST).await;
    assert_eq!(events.only(), LIST);
}

#[tokio::test]
async fn s1_108_a_provider_sees_where_a_request_comes_from() {
    let events = EventLog::default();
    let server = logging_server(&events, |_, request| {
        json!([
            request.headers().contains_key("x-api-key"),
            request.remote_addr().map(|address| address.to_string()),
            request.request_id(),
            request.transport(),
        ])
    });
    let headers = [("x-api-key", "k"), ("x-request-id", "r-7")];
    let mut request = toolgate::testing::http_request("POST", "/", headers, LIST);
    let remote: std::net::SocketAddr = "192.0.2.1:99".parse().unwrap();
    request.extensions_mut().insert(toolgate::http::RemoteAddr(remote));
    toolgate::testing::HttpExchange::start(server.into_service(), request).fetch().await.unwrap();
    assert_eq!(events.only(), json!([true, "192.0.2.1", "r-7", "http"]));
}

#[tokio::test]
async fn s1_109_what_a_provider_says_of_the_caller_reaches_tools_and_listeners() {
    let events = EventLog::default();
    let tenant = |cx: Context| async move {
        cx.principal().attribute("tenantId").cloned().unwrap_or_default().to_string()
    };
    let server = empty_server("keyed").add_tool(ToolSpec::new("tenant", tenant)).unwrap().set_api_keys(
        ApiKeys::provider(|_: String, request: KeyRequest| {
            request.set("tenantId", 7);
            true
        }),
    );
    server.on_request({
        let events = events.clone();
        move |request| events.push(request.principal().attribute("tenantId").cloned().unwrap_or_default())
    });
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tenant"}}"#;
    let answer = post(&server, &[("x-api-key", "k")], call).await.json();
    assert_eq!(answer["result"]["content"][0]["text"], "7");
    assert_eq!(events.only(), 7);
}

#[tokio::test]
async fn s1_110_a_provider_may_wait() {
    let server = echo_server("keyed").set_api_keys(ApiKeys::provider(async |key: String, _| {
        tokio::time::sleep(Duration::from_millis(1)).await;
        key == "k"
    }));
    assert_eq!(post(&server, &[("x-api-key", "k")], PING).await.status, 200);
    assert_eq!(post(&server, &[("x-api-key", "no")], PING).await.status, 401);
}

#[tokio::test]
async fn s1_111_a_key_can_be_tried() {
    let request = KeyRequest::new("n");
    assert!(empty_server("n").verify_api_key("k", &request).await);
    let server = empty_server("n").set_api_keys(ApiKeys::provider(|key, _| key == "x"));
    assert!(server.verify_api_key("x", &request).await);
    assert!(!server.verify_api_key("k", &request).await);
}

#[tokio::test]
async fn s1_112_wrong_keys_are_counted() {
    let server = echo_server("keyed").set_api_keys(ApiKeys::provider(|_, _| false));
    assert_eq!(post(&server, &[("x-api-key", "no")], PING).await.status, 401);
    assert_eq!(json!(server.stats())["security"]["apiKeyFailures"], 1);
}

/// A list of keys or of their digests. A list in a file is read by the program; a remote lookup is a provider.
#[tokio::test]
async fn s1_113_a_list_of_keys_that_need_not_be_known() {
    // The digest of "secret".
    let digest = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    let server = echo_server("keyed").set_api_keys(ApiKeys::list([digest, "plain"]));
    for (key, status) in [("secret", 200), ("plain", 200), ("other", 401), (digest, 401)] {
        assert_eq!(post(&server, &[("x-api-key", key)], PING).await.status, status, "{key}");
    }
}
