//! Layers around handlers, in every protocol version.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use toolgate::layer::{Call, CallOutput, LayerError, Next};
use toolgate::model::{PromptOutput, ToolOutput};
use toolgate::testing::{TestClient, TestVersion};
use toolgate::{Builder, Context, Field, Form, HandlerError, ProtocolError, Server, items};

#[derive(Deserialize, JsonSchema)]
struct Add {
    #[schemars(range(min = 0))]
    a: i64,
    b: i64,
}

#[derive(Deserialize, JsonSchema)]
struct Typed {
    n: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Named {
    name: String,
}

/// What a layer saw: method, name and arguments, in order.
type Seen = Arc<Mutex<Vec<String>>>;

fn recorded(seen: &Seen) -> Vec<String> {
    std::mem::take(&mut *seen.lock().unwrap())
}

/// A server with one item of each kind.
fn server() -> Builder {
    Server::new("layered", "1.0.0")
        .tool("add", |args: Add| async move { args.a + args.b })
        .tool("typed", |args: Typed| async move { args.n })
        .tool("fail", || async { Err::<String, _>(HandlerError::new("it failed")) })
        .tool("reject", || async { ProtocolError::invalid_params("no") })
        .resource("note://one", || async { "the first" })
        .template("note://by/{name}", |args: Named| async move {
            (args.name != "nobody").then(|| format!("of {}", args.name))
        })
        .complete("name", |prefix, _| async move { [format!("{prefix}!")] })
        .prompt("greet", |args: Named| async move { format!("Greet {}", args.name) })
        .done()
}

/// Adds a layer that records calls and their ends.
fn recording(server: Builder, seen: &Seen, label: &'static str) -> Builder {
    let seen = Arc::clone(seen);
    server.layer(move |call, next| {
        let seen = Arc::clone(&seen);
        async move {
            let (method, name, arguments) = (call.method(), call.subject(), call.arguments());
            let begin = format!("{label} {} {method} {name} {arguments}", call.server());
            seen.lock().unwrap().push(begin);
            let result = next.run(call).await;
            let end = match &result {
                Ok(CallOutput::Tool(output)) => format!("{:?}", output.content[0].as_text().unwrap()),
                Ok(CallOutput::Resource(contents)) => format!("{} contents", contents.len()),
                Ok(CallOutput::Prompt(prompt)) => format!("{} messages", prompt.messages.len()),
                Ok(CallOutput::Completion(values)) => format!("{values:?}"),
                Ok(_) => "unknown".into(),
                Err(error) if error.is_suspended() => "suspended".into(),
                Err(error) => format!("error {error}"),
            };
            seen.lock().unwrap().push(format!("{label} {end}"));
            result
        }
    })
}

#[test]
fn layers_see_every_kind_of_call_in_every_version_and_nest() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for version in TestVersion::all() {
        for is_http in [false, true] {
            runtime.block_on(async {
                let seen = Seen::default();
                let built = recording(recording(server(), &seen, "outer"), &seen, "inner").build().unwrap();
                let client = TestClient::new(&built, version);
                let client = if is_http { client.over_http() } else { client };
                assert_eq!(client.call("add", json!({ "a": 1, "b": 2 })).await.text(), "3");
                assert_eq!(
                    recorded(&seen),
                    [
                        r#"outer layered tools/call add {"a":1,"b":2}"#,
                        r#"inner layered tools/call add {"a":1,"b":2}"#,
                        r#"inner "3""#,
                        r#"outer "3""#,
                    ]
                );
                assert_eq!(client.read("note://one").await.text(), "the first");
                assert_eq!(client.read("note://by/ada").await.text(), "of ada");
                client.read("note://by/nobody").await.error();
                assert_eq!(client.prompt("greet", json!({ "name": "ada" })).await.text(), "Greet ada");
                let seen = recorded(&seen);
                let outer: Vec<&str> = seen.iter().filter_map(|line| line.strip_prefix("outer ")).collect();
                assert_eq!(
                    outer[..4],
                    [
                        "layered resources/read note://one {}",
                        "1 contents",
                        r#"layered resources/read note://by/ada {"name":"ada"}"#,
                        "1 contents",
                    ]
                );
                assert!(outer[5].starts_with("error "), "{outer:?}");
                assert_eq!(outer[6..], [r#"layered prompts/get greet {"name":"ada"}"#, "1 messages"]);
            });
        }
    }
}

/// A server with layers answers exactly as one without, if they only pass calls on.
#[tokio::test]
async fn a_layer_that_passes_everything_on_changes_nothing() {
    let plain = server().build().unwrap();
    let layered = server().layer(|call, next| next.run(call)).build().unwrap();
    let requests = [
        ("tools/call", json!({ "name": "add", "arguments": { "a": 1, "b": 2 } })),
        ("tools/call", json!({ "name": "add", "arguments": { "a": "1", "b": 2 } })),
        ("tools/call", json!({ "name": "add", "arguments": { "a": -1, "b": 2 } })),
        ("tools/call", json!({ "name": "typed", "arguments": { "n": 1 } })),
        ("tools/call", json!({ "name": "typed", "arguments": { "n": "1" } })),
        ("tools/call", json!({ "name": "typed", "arguments": { "n": -1 } })),
        ("tools/call", json!({ "name": "fail" })),
        ("tools/call", json!({ "name": "reject" })),
        ("tools/call", json!({ "name": "unknown" })),
        ("resources/read", json!({ "uri": "note://one" })),
        ("resources/read", json!({ "uri": "note://by/nobody" })),
        ("prompts/get", json!({ "name": "greet", "arguments": { "name": "ada" } })),
        ("prompts/get", json!({ "name": "greet" })),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/resource", "uri": "note://by/{name}" },
                    "argument": { "name": "name", "value": "a" } }),
        ),
    ];
    for (method, params) in requests {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let (expected, found) = (plain.handle(request.clone()).await, layered.handle(request.clone()).await);
        assert_eq!(found, expected, "{request}");
    }
}

#[tokio::test]
async fn a_layer_can_change_arguments_which_are_validated_again() {
    let server = server()
        .layer(async |mut call: Call, next: Next| {
            match call.method() {
                "tools/call" => call.set_argument("b", 40),
                "prompts/get" => call.set_argument("name", "Grace"),
                _ => {}
            }
            if call.arguments()["a"] == 7 {
                call.set_arguments([("a".to_owned(), Value::from(-7))].into_iter().collect());
            }
            next.run(call).await
        })
        .build()
        .unwrap();
    let client = server.test();
    assert_eq!(client.call("add", json!({ "a": 2, "b": 2 })).await.text(), "42");
    assert_eq!(client.prompt("greet", json!({ "name": "ada" })).await.text(), "Greet Grace");
    let rejected = client.call("add", json!({ "a": 7, "b": 2 })).await;
    assert!(rejected.is_error());
    assert!(rejected.text().contains("`b` is required") && rejected.text().contains("at least 0"));
}

#[tokio::test]
async fn a_layer_can_answer_without_the_handler() {
    let server = server()
        .layer(|call: Call, next: Next| async move {
            match (call.method(), call.subject()) {
                ("tools/call", "add") => Ok(CallOutput::Tool(ToolOutput::text("not today"))),
                ("tools/call", "typed") => Err(ProtocolError::invalid_params("not allowed"))?,
                ("tools/call", "fail") => Err(LayerError::new("switched off")),
                ("tools/call", "reject") => Err(HandlerError::new("switched off too"))?,
                ("resources/read", _) => Ok(CallOutput::Prompt(PromptOutput::default())),
                _ => next.run(call).await,
            }
        })
        .build()
        .unwrap();
    let client = server.test();
    assert_eq!(client.call("add", json!({ "a": 2, "b": 2 })).await.text(), "not today");
    assert_eq!(client.call("typed", json!({ "n": 1 })).await.error().message(), "not allowed");
    for (tool, text) in [("fail", "switched off"), ("reject", "switched off too")] {
        let output = client.call(tool, json!({})).await;
        assert!(output.is_error());
        assert_eq!(output.text(), text);
    }
    let error = client.read("note://one").await.error().message().to_owned();
    assert!(error.starts_with("internal error, ref "), "{error}");
}

/// Runs a failed call again.
async fn retry(call: Call, next: Next) -> Result<CallOutput, LayerError> {
    for _ in 0..2 {
        match next.clone().run(call.clone()).await {
            Err(error) if !error.is_suspended() => {}
            result => return result,
        }
    }
    next.run(call).await
}

#[tokio::test]
async fn a_layer_can_retry_and_replace_the_output() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&attempts);
    let server = Server::new("retry", "1.0.0")
        .tool("third", move || {
            let attempt = counted.fetch_add(1, Ordering::Relaxed);
            async move { if attempt < 2 { Err("not yet") } else { Ok("now") } }
        })
        .layer(async |call: Call, next: Next| {
            Ok(match next.run(call).await? {
                CallOutput::Tool(mut output) => {
                    output.content.push(toolgate::model::Content::text("checked"));
                    CallOutput::Tool(output)
                }
                other => other,
            })
        })
        .layer(retry)
        .build()
        .unwrap();
    let output = server.test().call("third", json!({})).await;
    let texts: Vec<_> = output.content().iter().filter_map(|content| content.as_text()).collect();
    assert_eq!(texts, ["now", "checked"]);
    assert_eq!(attempts.load(Ordering::Relaxed), 3);
}

/// Asks for a name, before which the handler counts its runs.
fn asking(runs: &Arc<AtomicUsize>) -> Builder {
    let runs = Arc::clone(runs);
    Server::new("asking", "1.0.0")
        .tool("ask", move |cx: Context| {
            runs.fetch_add(1, Ordering::Relaxed);
            async move {
                let form = Form::new("Who?").field("name", Field::text());
                let answer = cx.elicit("who", form).await?.accepted().unwrap_or_default();
                Ok::<_, HandlerError>(format!("Hello, {}", answer["name"].as_str().unwrap_or_default()))
            }
        })
        .done()
}

/// A call that waits for its client passes through layers, also through one that retries without a look at the error.
#[test]
fn suspended_calls_pass_through_layers_in_every_version() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for version in TestVersion::all().filter(|version| version.has_form_elicitation()) {
        runtime.block_on(async {
            let (seen, runs) = (Seen::default(), Arc::new(AtomicUsize::new(0)));
            let blind = async |call: Call, next: Next| match next.clone().run(call.clone()).await {
                Ok(output) => Ok(output),
                Err(_) => next.run(call).await,
            };
            let server = recording(asking(&runs), &seen, "outer").layer(blind).build().unwrap();
            let client = TestClient::new(&server, version).on_elicit(|_| json!({ "name": "Ada" }));
            assert_eq!(client.call("ask", json!({})).await.text(), "Hello, Ada", "{version:?}");
            let is_repeated = recorded(&seen).iter().any(|line| line == "outer suspended");
            let runs = runs.load(Ordering::Relaxed);
            match version.date() {
                "2026-07-28" => assert!(is_repeated && runs == 2, "{runs}"),
                _ => assert!(!is_repeated && runs == 1, "{runs}"),
            }
        });
    }
}

/// A layer can ask the client itself.
#[toolgate::test(
    server = asking(&Arc::default()).layer(async |call: Call, next: Next| {
        let form = Form::new("Sure?").field("sure", Field::flag());
        match call.context().elicit("sure", form).await?.accepted() {
            Some(answer) if answer["sure"] == true => next.run(call).await,
            _ => Err(LayerError::new("not confirmed")),
        }
    }),
    versions = ["2025-11-25", "2026-07-28"]
)]
async fn a_layer_can_ask_the_client(client: TestClient) {
    let client = client.on_elicit(|asked| match asked.message() {
        "Sure?" => json!({ "sure": true }),
        _ => json!({ "name": "Ada" }),
    });
    assert_eq!(client.call("ask", json!({})).await.text(), "Hello, Ada");
}

#[tokio::test(start_paused = true)]
async fn panics_and_timeouts_of_layers_are_those_of_the_call() {
    let dropped = Arc::new(());
    let held = Arc::clone(&dropped);
    let server = server()
        .handler_timeout(Duration::from_secs(1))
        .tool("later", || async { "later" })
        .layer(move |call: Call, next: Next| {
            let held = Arc::clone(&held);
            async move {
                let _held = held;
                match call.subject() {
                    "add" => panic!("on purpose"),
                    "later" => tokio::time::sleep(Duration::from_secs(5)).await,
                    _ => {}
                }
                next.run(call).await
            }
        })
        .build()
        .unwrap();
    let client = server.test();
    let panicked = client.call("add", json!({ "a": 2, "b": 2 })).await;
    assert!(panicked.is_error() && panicked.text().starts_with("the tool failed unexpectedly, ref "));
    let late = client.call("later", json!({})).await;
    assert!(late.is_error() && late.text().starts_with("timeout: "), "{}", late.text());
    assert_eq!(Arc::strong_count(&dropped), 2, "the futures of the layer were dropped");
}

mod marked {
    use toolgate::prelude::*;

    #[tool(task = "required")]
    pub(super) async fn render() -> &'static str {
        "rendered"
    }

    #[tool(task = "later")]
    pub(super) async fn publish(cx: Context) -> Result<&'static str, HandlerError> {
        cx.defer().await?;
        Ok("published")
    }
}

#[tokio::test]
async fn layers_run_around_tasks() {
    let seen = Seen::default();
    let server = Server::new("tasks", "1.0.0").add(items![marked::render, marked::publish]);
    let server = recording(server, &seen, "layer").build().unwrap();
    for (tool, text) in [("render", "rendered"), ("publish", "published")] {
        let id = crate::tasks::start_task(&server, tool, json!({})).await;
        let task = crate::tasks::wait_for_status(&server, &id, "completed").await;
        assert_eq!(task["result"]["content"][0]["text"], text);
    }
    assert_eq!(
        recorded(&seen),
        [
            "layer tasks tools/call render {}",
            r#"layer "rendered""#,
            "layer tasks tools/call publish {}",
            "layer suspended",
            "layer tasks tools/call publish {}",
            r#"layer "published""#,
        ]
    );
}
