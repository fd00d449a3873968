//! Tests of the test kit: every feature of its client, in every protocol version and over both transports; and that its
//! failure messages are helpful.

mod attribute;
mod tasks;
mod transcripts;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use toolgate::model::{CompletionReference, ContentKind, LogLevel, Role, SamplingBlock};
use toolgate::testing::{TestCall, TestClient, TestVersion, http_request};
use toolgate::{Context, ElicitOutcome, Principal, Profile, Server, ToolSpec};

use crate::fixture::{self, NamedSemaphores, Options};

/// A client of each version over each transport, with a server of its own.
fn clients() -> impl Iterator<Item = (TestClient, Server, NamedSemaphores)> {
    TestVersion::all().flat_map(|version| {
        [false, true].map(|over_http| {
            let (server, semaphores) = fixture::serve(&Options::default());
            let client = TestClient::new(&server, version);
            (if over_http { client.over_http() } else { client }, server, semaphores)
        })
    })
}

fn small(version: TestVersion) -> TestClient {
    let options = Options { is_small: true, page_size: Some(1), ..Options::default() };
    TestClient::new(fixture::serve(&options).0, version)
}

/// Returns the panic message of a future.
async fn panic_message_of<T>(test: impl Future<Output = T> + Send + 'static) -> String
where
    T: Send + 'static,
{
    let Err(error) = tokio::spawn(test).await else { panic!("expected a panic") };
    panic_message(&*error.into_panic())
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

#[tokio::test]
async fn a_tool_is_called_in_every_version_over_both_transports() {
    for (client, _, _) in clients() {
        let called = client.call("echo", json!({ "message": "hi" })).await;
        assert_eq!(called.text(), "hi", "{client:?}");
        assert!(!called.is_error());
        assert_eq!(called.content().len(), 1);
        assert_eq!(called.message()["result"]["content"][0]["text"], "hi");
        let failed = client.call("fail", Value::Null).await;
        assert!(failed.is_error());
        assert_eq!(failed.text(), "no luck");
        let rejected = client.call("ecko", json!({})).await;
        assert!(rejected.error().message().contains("echo"), "{}", rejected.error());
        assert_eq!(rejected.result().unwrap_err().code(), -32602);
    }
}

#[tokio::test]
async fn lists_collect_all_pages() {
    for version in TestVersion::all() {
        let client = small(version);
        let tools = client.tools().await;
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["add", "numbers"]);
        assert_eq!(client.resources().await.len(), 2);
        assert_eq!(client.templates().await[0].uri_template, "fix://item/{id}");
        assert_eq!(client.prompts().await.len(), 2);
        let about = client.server_details().await;
        assert_eq!(about.server.unwrap().name, "fixture");
        assert_eq!(about.instructions.as_deref(), Some("Try things."));
        assert_eq!(about.capabilities.tools, Some(true));
    }
}

#[derive(Debug, PartialEq, serde::Deserialize)]
struct Sum {
    sum: i64,
}

#[tokio::test]
async fn structured_output_is_read_from_the_text_where_there_is_none() {
    for version in TestVersion::all() {
        let called = small(version).call("add", json!({ "a": 1, "b": 2 })).await;
        assert_eq!(called.structured::<Sum>(), Sum { sum: 3 });
        assert_eq!(called.json(), json!({ "sum": 3 }));
        let has_field = called.message()["result"].get("structuredContent").is_some();
        assert_eq!(has_field, version.has_structured_output());
    }
}

#[tokio::test]
async fn resources_prompts_and_completions_are_read() {
    for version in TestVersion::all() {
        let client = small(version);
        assert_eq!(client.read("fix://text").await.text(), "words");
        assert_eq!(client.read("fix://blob").await.bytes(), [0, 1].as_slice());
        assert_eq!(client.read("fix://item/7").await.contents()[0].uri, "fix://item/7");
        assert!(client.read("fix://gone").await.error().message().contains("fix://gone"));
        let prompted = client.prompt("greet", json!({ "name": "Ann", "style": "dry" })).await;
        assert_eq!(prompted.text(), "Greet Ann in a dry way");
        assert_eq!(prompted.messages()[0].role, Role::User);
        assert_eq!(client.prompt("greet", json!({})).await.error().code(), -32602);
        let completed = client.complete(CompletionReference::Prompt("greet".into()), "style", "fr").await;
        assert_eq!(completed.values(), ["friendly"]);
        let completed =
            client.complete(CompletionReference::Resource("fix://item/{id}".into()), "id", "29").await;
        assert_eq!(completed.values().len(), 11);
    }
}

#[tokio::test]
async fn other_arguments_are_given_with_a_completion() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    #[allow(dead_code)]
    struct Place {
        country: String,
        city: String,
    }
    let server = Server::new("places", "1")
        .prompt("place", |_: Place| async { "x" })
        .complete("city", |_, cx| async move { cx.other_argument("country").map(str::to_owned) });
    let client = TestClient::new(server, TestVersion::newest());
    let completed = client
        .complete(CompletionReference::Prompt("place".into()), "city", "")
        .other_argument("country", "fr")
        .await;
    assert_eq!(completed.values(), ["fr"]);
}

#[tokio::test]
async fn server_requests_are_answered_in_every_version() {
    for (client, _, _) in clients() {
        let version = client.protocol_version();
        let client = client
            .on_elicit(|form| {
                assert_eq!(form.message(), "Really go?");
                assert_eq!(form.schema()["properties"]["ok"]["type"], "boolean");
                json!({ "ok": true })
            })
            .on_sample(|sample| {
                assert_eq!(sample.max_tokens, 50);
                "Because."
            })
            .on_roots(|| ["file:///a", "file:///b"]);
        let confirmed = client.call("confirm", json!({ "what": "go" })).await;
        if version.has_form_elicitation() {
            assert_eq!(confirmed.text(), r#"yes {"ok":true}"#, "{client:?}");
        } else {
            assert_eq!(confirmed.text(), "this client does not support form elicitation");
        }
        assert_eq!(client.call("sample", json!({})).await.text(), "test: Because.");
        assert_eq!(client.call("roots", json!({})).await.text(), "file:///a file:///b");
    }
}

#[tokio::test]
async fn server_requests_may_be_declined_and_repeated() {
    for (client, _, semaphores) in
        clients().filter(|(client, _, _)| client.protocol_version().has_form_elicitation())
    {
        let n_elicitations = Arc::new(AtomicUsize::new(0));
        let client = client.on_elicit({
            let n_elicitations = Arc::clone(&n_elicitations);
            move |form| {
                n_elicitations.fetch_add(1, Ordering::Relaxed);
                match form.message() {
                    "First?" => ElicitOutcome::Accept(json!({ "a": "x" })),
                    "Second?" => ElicitOutcome::Accept(json!({ "b": "y" })),
                    "Please log in" => {
                        assert_eq!(form.url(), Some("https://example.com/login"));
                        ElicitOutcome::Accept(Value::Null)
                    }
                    _ => ElicitOutcome::Decline,
                }
            }
        });
        assert_eq!(client.call("confirm", json!({})).await.text(), "declined");
        let steps = client.call("steps", json!({})).await.text();
        assert!(steps.starts_with(r#"made "x" "y" in run"#), "{steps}");
        assert_eq!(semaphores.available_permits("stepped"), 1);
        assert_eq!(n_elicitations.load(Ordering::Relaxed), 3);
        assert_eq!(client.prompt("ask", json!({})).await.text(), "Write about nothing");
        assert_eq!(client.read("fix://ask").await.text(), "page None");
        if client.protocol_version().has_url_elicitation() {
            assert_eq!(client.call("visit", json!({})).await.text(), "Accept(())");
        }
    }
}

#[tokio::test]
async fn a_client_without_closures_has_no_capabilities() {
    for (client, _, _) in clients() {
        assert_eq!(client.call("maybe", json!({})).await.text(), "did without");
    }
}

#[tokio::test]
async fn an_assertion_in_a_closure_fails_the_test() {
    for (client, _, _) in clients().filter(|(client, _, _)| client.protocol_version().has_form_elicitation())
    {
        let description = format!("{client:?}");
        let client = client.on_elicit(|_| -> Value { panic!("not this question") });
        let panic_text = panic_message_of(async move { client.call("confirm", json!({})).await }).await;
        assert_eq!(panic_text, "not this question", "{description}");
    }
}

#[tokio::test]
async fn progress_and_log_messages_are_recorded() {
    for (client, _, _) in clients() {
        let client = client.log(LogLevel::Info);
        assert_eq!(client.call("talk", json!({})).progress("p").await.text(), "talked");
        let progress = client.notification("progress").await;
        assert_eq!(progress.params()["progressToken"], "p");
        assert_eq!(progress.params()["progress"], 1.0);
        assert_eq!(client.notification("notifications/message").await.params()["level"], "info");
        let rest: Vec<String> =
            client.notifications().iter().map(|notification| notification.method().to_owned()).collect();
        assert_eq!(rest, ["notifications/message", "notifications/progress"], "{client:?}");
        assert!(client.notifications().is_empty(), "notified once");
    }
}

#[tokio::test]
async fn changes_are_received() {
    for (client, server, _) in clients() {
        client.listen().await;
        server.add_tool(ToolSpec::new("late", || async { "late" })).unwrap();
        client.notification("tools/list_changed").await;
        client.subscribe("fix://text").await;
        server.notify().resource_updated("fix://text");
        assert_eq!(
            client.notification("resources/updated").await.params()["uri"],
            "fix://text",
            "{client:?}"
        );
    }
}

#[tokio::test]
async fn a_call_is_cancelled_as_its_version_does() {
    for (client, _, semaphores) in clients() {
        let description = format!("{client:?}");
        let running = client.call("wait", json!({})).start();
        within_timeout(&description, semaphores.acquire("started")).await;
        running.cancel().await;
        within_timeout(&description, semaphores.acquire("dropped")).await;
        // A call that is not cancelled gets a response, and the connection continues.
        let running = client.call("wait", json!({})).start();
        within_timeout(&description, semaphores.acquire("started")).await;
        semaphores.add_permit("go");
        assert_eq!(running.await.text(), "went");
    }
}

async fn within_timeout(what: &str, wait: impl Future<Output = ()>) {
    assert!(tokio::time::timeout(Duration::from_secs(5), wait).await.is_ok(), "in time: {what}");
}

#[tokio::test]
async fn calls_run_concurrently() {
    for (client, _, semaphores) in clients() {
        let calls: Vec<_> = (0..8).map(|_| client.call("wait", json!({})).start()).collect();
        for _ in &calls {
            within_timeout("all begin before one ends", semaphores.acquire("started")).await;
        }
        calls.iter().for_each(|_| semaphores.add_permit("go"));
        for call in calls {
            assert_eq!(call.await.text(), "went");
        }
    }
}

#[tokio::test]
async fn raw_requests_and_notifications_use_the_version() {
    for (client, _, _) in clients() {
        let params = json!({ "name": "echo", "arguments": { "message": "raw" } });
        let response = client.request("tools/call", params).await;
        assert_eq!(response["result"]["content"][0]["text"], "raw", "{client:?}");
        assert_eq!(client.request("no/such", Value::Null).await["error"]["code"], -32601);
        client.notify("notifications/roots/list_changed", Value::Null).await;
    }
    // An input request in a result is left to the test.
    let (server, _) = fixture::serve(&Options::default());
    let client = server.test().on_elicit(|_| ElicitOutcome::Decline);
    let response = client.request("tools/call", json!({ "name": "confirm" })).await;
    assert_eq!(response["result"]["resultType"], "input_required");
}

#[tokio::test]
async fn the_client_sends_its_info_and_meta() {
    for (client, _, _) in clients() {
        let client = client.client_info("cli", "7");
        assert_eq!(client.call("whoami", json!({})).await.text(), r#"None by Some("cli")"#);
    }
    let server = Server::new("meta", "1")
        .tool("trace", |cx: Context| async move { format!("{}", cx.meta().unwrap().to_value()) });
    let client = TestClient::new(server, TestVersion::newest());
    let seen = client.call("trace", json!({})).meta("com.example/trace", 7).await.json();
    assert_eq!(seen["com.example/trace"], 7, "{seen}");
}

#[tokio::test]
async fn headers_principals_and_statuses_are_seen_over_http() {
    let who = |cx: Context| async move {
        let header = cx.headers().get("x-shop").and_then(|shop| shop.to_str().ok()).unwrap_or("-");
        format!("{} at {header}", cx.principal().id().unwrap_or("nobody"))
    };
    let server = Server::new("who", "1").tool("who", who).build().unwrap();
    for version in TestVersion::all() {
        let client = TestClient::new(&server, version).over_http();
        assert_eq!(client.call("who", json!({})).await.text(), "nobody at -");
        let called = client.call_with_headers("who", json!({}), [("x-shop", "north")]).await;
        assert_eq!(called.text(), "nobody at north");
        let http = called.http().unwrap();
        assert_eq!((http.status, http.header("content-type")), (200, Some("application/json")));
        assert_eq!(http.json()["result"]["content"][0]["text"], "nobody at north");
        let ada = TestClient::new(&server, version)
            .over_http()
            .with_header("x-shop", "south")
            .with_principal(Principal::new("ada"));
        assert_eq!(ada.call("who", json!({})).await.text(), "ada at south");
        assert_eq!(ada.call("who", json!({})).header("X-Shop", "west").await.text(), "ada at west");
        // Another principal in her session, where there is one.
        let eve = ada.clone().with_principal(Principal::new("eve")).call("who", json!({})).await;
        if version.has_handshake() {
            assert_eq!(eve.error().status(), Some(404), "{eve:?}");
        } else {
            assert_eq!(eve.text(), "eve at south");
        }
        let evil =
            TestClient::new(&server, version).over_http().with_header("origin", "https://evil.example");
        let rejected = evil.call("who", json!({})).await;
        assert_eq!(rejected.error().status(), Some(403), "{rejected:?}");
        assert_eq!(rejected.http().unwrap().status, 403);
    }
}

#[tokio::test]
async fn raw_http_is_sent_as_it_is() {
    let (server, _) = fixture::serve(&Options::default());
    let client = TestClient::http(&server);
    let request = http_request("POST", "/mcp", [("content-type", "text/plain")], "{}");
    let fetched = client.send(request).fetch().await.unwrap();
    assert_eq!(fetched.status, 415);
    let request = http_request("DELETE", "/mcp", [("", ""); 0], "");
    assert_eq!(client.send(request).head().await.unwrap().headers["allow"], "POST");
}

#[tokio::test]
async fn a_response_that_is_not_a_message_is_a_rejection() {
    let app =
        || axum::Router::new().fallback(|| async { (axum::http::StatusCode::UNAUTHORIZED, "who are you?") });
    for version in TestVersion::all() {
        let called = TestClient::service(app(), version).call("x", json!({})).await;
        let error = called.error();
        assert_eq!((error.code(), error.message(), error.status()), (0, "who are you?", Some(401)));
        let panic_text = panic_message_of(async move { called.text() }).await;
        assert_eq!(panic_text, "expected text, but the request failed: who are you? (HTTP status 401)");
    }
}

#[tokio::test]
async fn marked_arguments_are_repeated_in_headers() {
    let (server, _) = fixture::serve(&Options::default());
    let client = TestClient::http(&server);
    for region in ["north", "nörth", "=?base64?x?="] {
        let called = client.call("region", json!({ "region": region })).await;
        assert_eq!(called.text(), format!("region {region}"));
    }
    // Unless the test sets the headers itself.
    let called =
        client.call("region", json!({ "region": "north" })).header("mcp-param-region", "south").await;
    assert_eq!(called.error().status(), Some(400));
}

#[tokio::test]
async fn a_released_stream_is_resumed() {
    for version in TestVersion::all() {
        let (server, semaphores) = fixture::serve(&Options::default());
        let client = TestClient::new(&server, version).over_http();
        let running = client.call("leave", json!({})).start();
        within_timeout("the call begins", semaphores.acquire("started")).await;
        semaphores.add_permit("go");
        assert_eq!(running.await.text(), "come back", "{version}");
    }
}

#[tokio::test]
async fn failure_messages_list_alternatives() {
    async fn check<T: Send + 'static>(
        calling: TestCall<T>,
        inspect: fn(toolgate::testing::TestResponse<T>),
        wanted: &str,
    ) {
        let panic_text = panic_message_of(async move { inspect(calling.await) }).await;
        assert!(panic_text.contains(wanted), "expected {wanted:?} in {panic_text:?}");
    }
    let (server, _) = fixture::serve(&Options::default());
    let client = server.test().timeout(Duration::from_millis(50));
    let call = |tool: &str| client.call(tool, json!({}));
    check(call("nope"), |called| drop(called.text()), "expected text, but the request failed: unknown tool")
        .await;
    check(call("nope"), |called| assert!(called.is_error()), "(code -32602)").await;
    check(call("plain"), |called| drop(called.json()), r#"got the text "plain""#).await;
    check(call("plain"), |called| assert_eq!(called.error().code(), 0), "expected an error, got a result: {")
        .await;
    check(call("wait"), drop, "`tools/call` got no response within 50ms").await;
    let panic_text = panic_message_of({
        let client = client.clone();
        async move { client.notification("tools/list_changed").await }
    });
    let panic_text = panic_text.await;
    assert!(
        panic_text.contains("no `tools/list_changed` arrived within 50ms; received nothing"),
        "{panic_text}"
    );
    assert!(panic_text.contains("`listen()`"), "{panic_text}");
    let completed = client.call("plain", json!({})).start();
    client.tools().await;
    let panic_text = panic_message_of(completed.cancel()).await;
    assert!(panic_text.contains("the request had already completed; its response was {"), "{panic_text}");
    let after_connect =
        std::panic::catch_unwind(AssertUnwindSafe(|| client.clone().on_roots(|| ["file:///"])));
    assert_eq!(expect_panic_message(after_connect), "`on_roots` must be called before the client connects");
    let invalid_server = std::panic::catch_unwind(|| {
        TestClient::new(Server::new("x", "1").tool("no name", || async { "x" }), TestVersion::newest())
    });
    assert!(expect_panic_message(invalid_server).contains("`no name`"));
}

fn expect_panic_message<T: std::fmt::Debug>(caught: std::thread::Result<T>) -> String {
    panic_message(&*caught.expect_err("expected a panic"))
}

#[tokio::test]
async fn content_of_every_kind_arrives() {
    let (server, _) = fixture::serve(&Options::default());
    let client = TestClient::connect(&server).await;
    let shown = client.call("show", json!({ "kind": "image" })).await;
    let ContentKind::Image { data, mime } = &shown.content()[0].kind else { panic!("{shown:?}") };
    assert_eq!((&data[..], mime.as_str()), (&b"png"[..], "image/png"));
    // The callback returns the whole result of the model, here a tool call.
    let client = server.test().on_sample(|sample| {
        let tool = sample.tools[0].name.clone();
        let input = toolgate::RawJson::from(json!({ "sku": 1 }));
        let tool_use = SamplingBlock::ToolUse { id: "1".into(), name: tool, input, meta: None };
        toolgate::model::SamplingResult::new("m", vec![tool_use]).with_stop_reason("toolUse")
    });
    assert_eq!(client.call("sample_with_tools", json!({})).await.text(), r#"m: qty({"sku":1})"#);
}

#[tokio::test]
async fn profiles_of_principals_are_carried() {
    let who = |cx: Context| async move { cx.principal().profile().is_some().to_string() };
    let server = Server::new("who", "1").tool("who", who).read_only().tool("get_all", || async { "no" });
    let ada = Principal::new("ada").with_profile(Profile::readonly());
    let client = TestClient::http(server).with_principal(ada);
    // The whole profile is applied: it shows tools that are marked as read-only, whatever their names.
    assert_eq!(client.call("who", json!({})).await.text(), "true");
    assert_eq!(client.tools().await.len(), 1);
    assert_eq!(client.call("get_all", json!({})).await.error().message(), "unknown tool: get_all");
}
