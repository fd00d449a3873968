//! BuddyBoss: checks that command lines cannot perform.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use toolgate::compat::Dialect;
use toolgate::guard::{BasicAuthProvider, KeyRequest, LoginError};
use toolgate::model::ToolOutput;
use toolgate::testing::ReceivedResponse;
use toolgate::{Context, Principal, Server, ToolSpec};

use super::{EventLog, PING, post, tool};

/// `admin:abcdef`, `editor:pw`, `admin:wrong`, `down:x`.
const ADMIN: &str = "Basic YWRtaW46YWJjZGVm";
const EDITOR: &str = "Basic ZWRpdG9yOnB3";
const WRONG: &str = "Basic YWRtaW46d3Jvbmc=";
const DOWN: &str = "Basic ZG93bjp4";

/// A provider that checks all logins; `n_checks` counts the calls.
fn site_logins(n_checks: &Arc<AtomicUsize>) -> BasicAuthProvider {
    let n_checks = Arc::clone(n_checks);
    BasicAuthProvider::provider(move |user: String, password: String, _: KeyRequest| {
        n_checks.fetch_add(1, Ordering::Relaxed);
        async move {
            match (user.as_str(), password.as_str()) {
                ("admin", "abcdef") => Ok(Principal::new("wp:1").with_attribute("id", 1)),
                ("editor", "pw") => Err(LoginError::forbidden("Insufficient permissions.")),
                ("down", _) => Err(LoginError::unavailable("the site does not answer")),
                _ => Err(LoginError::wrong()),
            }
        }
    })
}

fn community_server(logins: BasicAuthProvider) -> Server {
    Server::new("buddyboss-mcp-server", "1.0.0")
        .dialect(Dialect::buddyboss())
        .stateless()
        .basic_auth_provider(logins)
        .tool("away", || async { ToolOutput::unavailable("404 Not Found: no route (rest_no_route)") })
        .tool("explode", explode)
        .tool("whoami", |cx: Context| async move { json!(cx.principal().attribute("id")).to_string() })
        .build()
        .unwrap()
}

async fn explode() -> String {
    panic!("secret words of a panic")
}

async fn send(server: &Server, authorization: &str, more: &[(&str, &str)], body: &str) -> (u16, Value) {
    let headers = [&[("authorization", authorization)], more].concat();
    let ReceivedResponse { status, body, .. } = post(server, &headers, body).await;
    (status, serde_json::from_str(&body).unwrap_or_default())
}

async fn call_tool(server: &Server, tool: &str, more: &[(&str, &str)]) -> Value {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": tool } });
    send(server, ADMIN, more, &body.to_string()).await.1
}

#[tokio::test]
async fn s4_11_refusals_look_as_those_of_wordpress() {
    let server = community_server(site_logins(&Arc::default()));
    let answer = post(&server, &[], PING).await;
    assert_eq!(answer.status, 401);
    assert_eq!(
        answer.header("www-authenticate"),
        Some("Basic realm=\"buddyboss-mcp-server\", charset=\"UTF-8\"")
    );
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(body["code"], "rest_forbidden");
    assert_eq!(body["data"], json!({ "status": 401 }));
    let (status, body) = send(&server, WRONG, &[], PING).await;
    assert_eq!((status, &body["message"]), (401, &json!("user or password is wrong")));
    let (status, body) = send(&server, EDITOR, &[], PING).await;
    assert_eq!(status, 403);
    let insufficient = json!({ "code": "rest_forbidden", "message": "Insufficient permissions.", "data": { "status": 403 } });
    assert_eq!(body, insufficient);
    let (status, body) = send(&server, DOWN, &[], PING).await;
    assert_eq!(
        (status, body["error"]["message"].as_str()),
        (503, Some("credentials cannot be checked at the moment"))
    );
    // A client that sends a protocol version gets a regular error.
    let (status, body) = send(&server, EDITOR, &[("mcp-protocol-version", "2025-11-25")], PING).await;
    assert_eq!((status, &body["error"]["code"]), (403, &json!(-32000)), "{body}");
}

#[tokio::test]
async fn s4_13_a_tool_knows_whose_password_it_was() {
    let n_checks: Arc<AtomicUsize> = Arc::default();
    let server = community_server(site_logins(&n_checks));
    for _ in 0..3 {
        assert_eq!(call_tool(&server, "whoami", &[]).await["result"]["content"][0]["text"], "1");
    }
    assert_eq!(n_checks.load(Ordering::Relaxed), 1, "a valid login is cached");
}

#[tokio::test]
async fn s4_09_wrong_passwords_of_one_address_come_to_an_end() {
    let n_checks: Arc<AtomicUsize> = Arc::default();
    let server = community_server(site_logins(&n_checks));
    let mut last = 0;
    for _ in 0..60 {
        last = send(&server, WRONG, &[], PING).await.0;
    }
    assert_eq!(last, 429);
    assert!(n_checks.load(Ordering::Relaxed) <= 51, "the provider is not called again: {n_checks:?}");
    assert_eq!(server.stats().security.auth_failures, 60);
}

#[tokio::test]
async fn s4_28_what_broke_stays_in_the_log() {
    let server = community_server(site_logins(&Arc::default()));
    let text = call_tool(&server, "explode", &[]).await["result"]["content"][0]["text"].to_string();
    assert!(text.starts_with("\"An unexpected error occurred (ref ") && !text.contains("secret"), "{text}");
    let named = call_tool(&server, "explode", &[("mcp-protocol-version", "2025-11-25")]).await;
    assert!(!named.to_string().contains("An unexpected error"), "{named}");
}

#[tokio::test]
async fn s4_31_what_is_not_there_has_a_number() {
    let server = community_server(site_logins(&Arc::default()));
    let error = json!({ "code": -32002, "message": "BuddyBoss not available" });
    assert_eq!(call_tool(&server, "away", &[]).await["error"], error);
    let named = call_tool(&server, "away", &[("mcp-protocol-version", "2025-11-25")]).await;
    assert_eq!(named["result"]["isError"], true, "with a version it is a result: {named}");
    assert_eq!(named["result"]["content"][0]["text"], "404 Not Found: no route (rest_no_route)");
}

#[tokio::test]
async fn s4_30_failures_can_be_errors_too() {
    let mut dialect = Dialect::buddyboss();
    dialect.tool_error_code = Some(-32000);
    let server =
        Server::new("s", "1").dialect(dialect).tool("fail", || async { Err::<String, _>("no luck") });
    let server = server.build().unwrap();
    let answer = super::call(&server, "fail", json!({})).await;
    assert_eq!(answer["error"]["code"], -32000, "{answer}");
}

#[tokio::test]
async fn s4_34_what_is_not_offered_is_no_method() {
    let server = community_server(site_logins(&Arc::default()));
    for method in ["resources/list", "prompts/list", "sampling/createMessage"] {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method }).to_string();
        assert_eq!(send(&server, ADMIN, &[], &body).await.1["error"]["code"], -32601, "{method}");
    }
}

/// Tools of a third party, as a list that is added to a server.
fn third_party_tools() -> Vec<ToolSpec> {
    vec![tool("theirs_one"), tool("theirs_two")]
}

#[tokio::test]
async fn s4_40_others_can_add_tools() {
    let events = EventLog::default();
    let server = super::empty_server("s").add_tool(tool("ours")).unwrap();
    for spec in third_party_tools() {
        server.add_tool(spec).unwrap();
    }
    let listed = super::ask(&server, "tools/list", json!({})).await;
    for tool in listed["result"]["tools"].as_array().unwrap() {
        events.push(tool["name"].clone());
    }
    assert_eq!(events.all(), [json!("ours"), json!("theirs_one"), json!("theirs_two")]);
    assert_eq!(super::call_text(&server, "theirs_two", json!({})).await, "theirs_two");
}

#[tokio::test]
async fn s4_36_arguments_can_be_put_right_before_they_are_checked() {
    let schema = json!({
        "type": "object",
        "properties": { "per_page": { "type": "integer", "maximum": 100 } },
        "required": ["per_page"]
    });
    let page = ToolSpec::new("page", |given: Value| async move { given["per_page"].to_string() })
        .input_schema(schema)
        .prepare(|mut given: Value| {
            assert!(given["per_page"] != 13, "an author's mistake");
            if given["per_page"].as_i64().is_some_and(|n| n > 100) {
                given["per_page"] = json!(100);
            }
            given
        });
    let server = super::empty_server("s").add_tool(page).unwrap();
    assert_eq!(super::call_text(&server, "page", json!({ "per_page": 5000 })).await, "100");
    assert_eq!(super::call_text(&server, "page", json!({ "per_page": 7 })).await, "7");
    // The result is validated like any other, and its panic only affects its own call.
    let message = super::call_text(&server, "page", json!({ "per_page": "many" })).await;
    assert!(message.starts_with("Validation error: `per_page`"), "{message}");
    let message = super::call_text(&server, "page", json!({ "per_page": 13 })).await;
    assert!(
        message.starts_with("the tool failed unexpectedly, ref ") && !message.contains("author"),
        "{message}"
    );
    assert_eq!(super::call_text(&server, "page", json!({ "per_page": 8 })).await, "8");
}
