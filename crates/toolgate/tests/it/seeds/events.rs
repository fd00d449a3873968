//! Events, and listeners that change or reject requests.

use std::io::Write;
use std::sync::{Arc, Mutex};

use serde_json::json;
use toolgate::events::{AuditLog, ErrorContext, ServerChange};
use toolgate::{HandlerError, Server, Servers, ToolSpec};

use super::{EventLog, PING, ask, call, echo_server, empty_server, fetch, post, tool};

/// Records events with these names as JSON.
fn log_events(server: &Server, names: &str) -> EventLog {
    let events = EventLog::default();
    let log = events.clone();
    server.events().on(names, move |event| log.push(event.data())).unwrap();
    events
}

#[test]
fn s1_197_a_server_is_created_once() {
    let (servers, events) = (Servers::new(), EventLog::default());
    servers
        .events()
        .on("onMCPServerCreate", {
            let events = events.clone();
            move |event| events.push(event.data())
        })
        .unwrap();
    servers.server("evt");
    servers.server("evt");
    let data = events.only();
    assert_eq!((&data["name"], &data["server"]), (&json!("evt"), &json!("evt")));
    assert_eq!((&data["version"], &data["description"]), (&json!("1.0.0"), &json!("")));
}

#[test]
fn s1_198_a_server_is_removed() {
    let (servers, events) = (Servers::new(), EventLog::default());
    servers
        .events()
        .on("onMCPServerRemove", {
            let events = events.clone();
            move |event| events.push(event.data())
        })
        .unwrap();
    servers.server("evt");
    servers.remove("evt");
    servers.remove("evt");
    assert_eq!(events.only()["name"], "evt");
}

#[tokio::test]
async fn s1_199_a_request_is_reported_before_it_is_answered() {
    let events = EventLog::default();
    let server = empty_server("s")
        .add_tool(ToolSpec::new("t", {
            let events = events.clone();
            move || {
                events.push("the tool");
                async { "x" }
            }
        }))
        .unwrap();
    server
        .events()
        .on("onMCPRequest", {
            let events = events.clone();
            move |event| events.push(event.data())
        })
        .unwrap();
    call(&server, "t", json!({ "a": 1 })).await;
    // A tool without arguments rejects unknown ones; a correct call runs.
    call(&server, "t", json!({})).await;
    let all = events.all();
    assert_eq!(all.last().unwrap(), "the tool");
    let data = &all[0];
    assert_eq!((&data["server"], &data["serverName"]), (&json!("s"), &json!("s")));
    assert_eq!(
        (&data["requestData"]["id"], &data["requestData"]["method"], &data["requestData"]["params"]["name"]),
        (&json!(1), &json!("tools/call"), &json!("t"))
    );
}

#[tokio::test]
async fn s1_200_a_response_is_reported_before_it_is_sent() {
    let server = echo_server("s");
    let events = log_events(&server, "onMCPResponse");
    call(&server, "echo", json!({})).await;
    let data = events.only();
    assert_eq!((&data["server"], &data["success"]), (&json!("s"), &json!(true)));
    assert_eq!(data["requestData"]["method"], "tools/call");
    assert_eq!(data["responseData"]["result"]["content"][0]["text"], "echo");
    assert!(data["responseTime"].as_f64().unwrap() >= 0.0);
}

#[tokio::test]
async fn s1_201_a_response_that_failed_says_so() {
    let boom = || async { Err::<String, _>(HandlerError::new("boom")) };
    let server = empty_server("s").add_tool(ToolSpec::new("boom", boom)).unwrap();
    let events = log_events(&server, "onMCPResponse");
    call(&server, "boom", json!({})).await;
    ask(&server, "nope", json!({})).await;
    assert!(events.all().iter().all(|data| data["success"] == false), "{:?}", events.all());
    assert_eq!(events.len(), 2);
}

#[tokio::test]
async fn s1_202_an_error_is_reported() {
    let server = echo_server("s");
    let events = log_events(&server, "onMCPError");
    ask(&server, "unknown/method", json!({})).await;
    let data = events.only();
    assert_eq!((&data["server"], &data["context"]), (&json!("s"), &json!("handleRequest")));
    let exception = &data["exception"];
    assert!(exception["message"].as_str().unwrap().contains("unknown/method"));
    assert!(exception.get("detail").is_some() && exception.get("stacktrace").is_some());
}

#[tokio::test]
async fn s1_203_an_error_of_a_request_says_which() {
    let server = echo_server("s");
    let events = log_events(&server, "onMCPError");
    ask(&server, "unknown/method", json!({ "a": 1 })).await;
    let data = events.only();
    assert_eq!(
        (&data["method"], &data["requestId"], &data["params"], &data["errorCode"]),
        (&json!("unknown/method"), &json!(1), &json!({ "a": 1 }), &json!(-32601))
    );
    assert!(data["responseTime"].as_f64().unwrap() >= 0.0);
}

#[tokio::test]
async fn s1_204_errors_elsewhere_say_where() {
    let server = echo_server("s").add_basic_auth("u", "p").set_body_limit(50);
    let events = EventLog::default();
    server.events().on_error({
        let events = events.clone();
        move |error| events.push(error.context().as_str())
    });
    assert!(server.collect_from("no::such").is_err());
    assert!(server.add_tool(tool("not a name")).is_err());
    post(&server, &[], PING).await;
    post(&server, &[("authorization", "Basic dTpw")], "x".repeat(51)).await;
    server.on_response(|_| panic!("a listener that fails"));
    ask(&server, "ping", json!({})).await;
    assert_eq!(events.all(), ["scanClass", "register", "auth", "transport", "listener"]);
    assert_eq!(ErrorContext::Callback.as_str(), "callback");
}

#[test]
fn s1_205_pause_and_resume_are_reported_when_they_change_something() {
    let (servers, events) = (Servers::new(), EventLog::default());
    servers.events().on_server({
        let events = events.clone();
        move |event| {
            let what = match event.change() {
                ServerChange::Paused => "paused",
                ServerChange::Resumed => "resumed",
                _ => return,
            };
            events.push(format!("{} {what}", event.name()));
        }
    });
    servers.server("s").resume().pause().pause().resume().resume();
    assert_eq!(events.all(), ["s paused", "s resumed"]);
}

#[tokio::test]
async fn s1_206_a_list_of_names() {
    let server = echo_server("s");
    let events = EventLog::default();
    server
        .events()
        .on("onMCPRequest,onMCPResponse, onMCPError", {
            let events = events.clone();
            move |event| events.push(event.name())
        })
        .unwrap();
    ask(&server, "nope", json!({})).await;
    let mut all: Vec<String> = events.all().iter().map(|name| name.as_str().unwrap().to_owned()).collect();
    all.sort();
    assert_eq!(all, ["onMCPError", "onMCPRequest", "onMCPResponse"]);
    assert!(server.events().on("onMCPNonsense", |_| {}).is_err());
}

#[derive(Clone, Default)]
struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A listener without code: an attached log. Configuration files come later.
#[tokio::test]
async fn s1_207_a_log_is_attached_and_writes_a_line() {
    let (server, paper) = (echo_server("s"), SharedBuffer::default());
    let log = AuditLog::new(paper.clone()).unwrap();
    log.attach(server.events());
    call(&server, "echo", json!({})).await;
    assert!(log.flush());
    let text = String::from_utf8(paper.0.lock().unwrap().clone()).unwrap();
    let line: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!(
        (&line["server"], &line["method"], &line["name"]),
        (&json!("s"), &json!("tools/call"), &json!("echo"))
    );
}

#[tokio::test]
async fn s1_209_a_listener_refuses_and_the_tool_does_not_run() {
    let ran = EventLog::default();
    let servers = Servers::new();
    servers
        .server("gated")
        .add_tool(ToolSpec::new("t", {
            let ran = ran.clone();
            move || {
                ran.push("ran");
                async { "x" }
            }
        }))
        .unwrap();
    servers.events().on_request(|request| request.reject("Rate limit exceeded"));
    let answer = call(&servers.server("gated"), "t", json!({})).await;
    assert_eq!(answer["error"], json!({ "code": -32000, "message": "Rate limit exceeded" }));
    assert_eq!(ran.len(), 0);
}

#[tokio::test]
async fn s1_210_a_listener_reads_headers() {
    let server = echo_server("s");
    server.on_request(|request| {
        if request.header("x-client-id") != Some("known") {
            request.reject("who are you?");
        }
    });
    assert_eq!(post(&server, &[("x-client-id", "known")], PING).await.status, 200);
    let refused = post(&server, &[("x-client-id", "other")], PING).await;
    assert_eq!(refused.json()["error"]["message"], "who are you?");
}

#[tokio::test]
async fn s1_211_a_refusal_may_choose_code_and_status() {
    let server = echo_server("s");
    server.on_request(|request| request.reject_with(429, -32099, "Rate limit exceeded"));
    let refused = post(&server, &[], PING).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &json!(-32099)));
}

#[tokio::test]
async fn s1_212_a_listener_sees_the_numbers() {
    let server = echo_server("s");
    let events = EventLog::default();
    server.on_response({
        let events = events.clone();
        move |event| events.push(event.stats().total_requests)
    });
    ask(&server, "ping", json!({})).await;
    ask(&server, "ping", json!({})).await;
    assert_eq!(events.all(), [1, 2]);
}

#[tokio::test]
async fn s1_213_callbacks_of_one_server_change_requests_and_answers() {
    let server = empty_server("s").add_tool(tool("b")).unwrap();
    let subscription = server.on_request(|request| {
        if request.method() == "tools/call" {
            request.params_mut()["name"] = "b".into();
        }
    });
    server.on_response(|event| {
        let mut response = event.response().clone();
        response["result"]["content"][0]["text"] = "changed".into();
        event.set_response(response);
    });
    server.on_response(|_| panic!("breaks nothing"));
    let answer = call(&server, "a", json!({})).await;
    assert_eq!(answer["result"]["content"][0]["text"], "changed");
    subscription.off();
    server.on_request(|request| request.reject("not today"));
    let refused = post(&server, &[], PING).await;
    assert_eq!((refused.status, &refused.json()["error"]["message"]), (401, &json!("not today")));
}

#[tokio::test]
async fn s1_214_tool_calls_are_reported_before_and_after() {
    let server = echo_server("s");
    let events = log_events(&server, "beforeAIToolExecute,afterAIToolExecute");
    call(&server, "echo", json!({})).await;
    let [before, after] = events.all().try_into().unwrap();
    assert_eq!((&before["tool"], &before["name"]), (&json!("echo"), &json!("echo")));
    assert!(before["arguments"].is_object() && before.get("results").is_none_or(serde_json::Value::is_null));
    assert_eq!(after["results"]["content"][0]["text"], "echo");
    assert!(after["executionTime"].as_f64().unwrap() >= 0.0);
}

#[tokio::test]
async fn s1_215_a_listener_that_panics_harms_nobody() {
    let server = echo_server("s");
    server.events().on("onMCPRequest,onMCPResponse", |_| panic!("on purpose")).unwrap();
    server.events().on_request_async(|_| async { panic!("on purpose") });
    assert_eq!(call(&server, "echo", json!({})).await["result"]["content"][0]["text"], "echo");
}

#[tokio::test]
async fn s1_216_guard_rejections_are_reported() {
    let server = echo_server("s").add_basic_auth("u", "p");
    let events = log_events(&server, "onMCPError");
    post(&server, &[], PING).await;
    assert_eq!(events.only()["context"], "auth");
}

#[tokio::test]
async fn s1_011_every_mount_emits_the_same_events() {
    let servers = Servers::new();
    servers.default_server().add_tool(tool("echo")).unwrap();
    let events = EventLog::default();
    servers
        .events()
        .on("onMCPRequest,onMCPResponse,onMCPError", {
            let events = events.clone();
            move |event| events.push(event.name())
        })
        .unwrap();
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    fetch(&servers, "POST", "/mcp.bxm", &[], list).await;
    fetch(&servers, "POST", "/mcp.bxm/default", &[], list).await;
    fetch(&servers, "POST", "/mcp.bxm?server=default", &[], r#"{"jsonrpc":"2.0","id":1,"method":"nope"}"#)
        .await;
    let count = |name: &str| events.all().iter().filter(|events| *events == name).count();
    assert_eq!((count("onMCPRequest"), count("onMCPResponse"), count("onMCPError")), (3, 3, 1));
}

/// Listeners see the id of a request, sent or generated.
#[tokio::test]
async fn s1_020_listeners_see_the_id_of_a_request() {
    let servers = Servers::new();
    servers.default_server();
    let events = EventLog::default();
    servers.events().on_request({
        let events = events.clone();
        move |request| events.push(request.header("x-request-id").unwrap_or_default())
    });
    fetch(&servers, "POST", "/mcp.bxm", &[("x-request-id", "abc")], PING).await;
    let minted = fetch(&servers, "POST", "/mcp.bxm", &[], PING).await;
    assert_eq!(events.all(), ["abc", minted.header("x-request-id").unwrap()]);
}
