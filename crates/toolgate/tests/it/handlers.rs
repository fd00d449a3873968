//! Guarantees for handlers: schemas are enforced, for arguments and for results.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use toolgate::guard::Rate;
use toolgate::model::CacheScope;
use toolgate::store::{MemoryStore, Store};
use toolgate::testing::{HttpExchange, http_request};
use toolgate::{Context, Field, Form, HandlerError, Principal, Server, State, ToolSpec};

/// Sends a request of the newest protocol version; returns `result` or `error`.
pub(crate) async fn ask(server: &Server, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
    });
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string() + "\n";
    let (output, answers) = tokio::io::duplex(1 << 20);
    let (serving, line) = tokio::join!(server.serve_io(request.as_bytes(), output), async {
        let mut line = String::new();
        BufReader::new(answers).read_line(&mut line).await.unwrap();
        line
    });
    serving.unwrap();
    let answer: Value = serde_json::from_str(&line).unwrap();
    answer.get("result").or(answer.get("error")).cloned().unwrap()
}

pub(crate) async fn call(server: &Server, tool: &str, arguments: Value) -> Value {
    ask(server, "tools/call", json!({ "name": tool, "arguments": arguments })).await
}

#[derive(Deserialize, JsonSchema)]
struct Payment {
    #[schemars(range(min = 0))]
    amount: i64,
    #[schemars(range(min = 1, max = 9))]
    parts: Option<u32>,
}

#[tokio::test]
async fn limits_are_enforced_and_null_means_absent() {
    let pay = |args: Payment| async move { format!("{} in {:?}", args.amount, args.parts) };
    let server = Server::new("pay", "1").tool("pay", pay).build().unwrap();
    let refused = call(&server, "pay", json!({ "amount": -5 })).await;
    assert_eq!(
        refused["content"][0]["text"],
        "Validation error: `amount` must be at least 0, got the number -5"
    );
    for good in [json!({ "amount": 5, "parts": null }), json!({ "amount": 5 })] {
        assert_eq!(call(&server, "pay", good).await["content"][0]["text"], "5 in None");
    }
    let listed = ask(&server, "tools/list", json!({})).await;
    assert_eq!(
        listed["tools"][0]["inputSchema"]["properties"]["parts"],
        json!({ "type": "integer", "minimum": 1, "maximum": 9 })
    );
}

#[tokio::test]
async fn output_is_checked_against_its_schema() {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let server = Server::new("promise", "1")
        .tool("kept", || async { json!({ "n": 1 }) })
        .output_schema(schema.clone())
        .tool("broken", || async { json!({ "n": "one" }) })
        .output_schema(schema.clone())
        .tool("missing", || async { "no structure" })
        .output_schema(schema)
        .build()
        .unwrap();
    assert_eq!(call(&server, "kept", json!({})).await["structuredContent"], json!({ "n": 1 }));
    for tool in ["broken", "missing"] {
        let answer = call(&server, tool, json!({})).await;
        assert_eq!(answer["isError"], true, "{tool}: {answer}");
        assert!(answer.get("structuredContent").is_none());
    }
}

#[tokio::test]
async fn results_that_depend_on_the_caller_are_not_cached() {
    let read = |cx: Context| async move {
        cx.elicit("who", Form::new("Who?").optional("name", Field::text())).await?;
        Ok::<_, HandlerError>("for you only")
    };
    let server = Server::new("cache", "1")
        .resource("x://asks", read)
        .cache(Duration::from_secs(3600), CacheScope::Public)
        .resource("x://plain", || async { "for all" })
        .cache(Duration::from_secs(3600), CacheScope::Public)
        .build()
        .unwrap();
    let plain = ask(&server, "resources/read", json!({ "uri": "x://plain" })).await;
    assert_eq!((&plain["ttlMs"], &plain["cacheScope"]), (&json!(3_600_000), &json!("public")));
    let asked = ask(&server, "resources/read", json!({ "uri": "x://asks" })).await;
    let brought = json!({
        "uri": "x://asks",
        "inputResponses": { "who": { "action": "decline" } },
        "requestState": asked["requestState"],
    });
    let answered = ask(&server, "resources/read", brought).await;
    assert_eq!((&answered["ttlMs"], &answered["cacheScope"]), (&json!(0), &json!("private")), "{answered}");
}

#[tokio::test]
async fn capabilities_stay_declared() {
    let server = Server::new("empty", "1").announce_changes().build().unwrap();
    assert_eq!(ask(&server, "tools/list", json!({})).await["tools"], json!([]));
    server.add_tool(ToolSpec::new("late", || async { "here" })).unwrap();
    assert_eq!(call(&server, "late", json!({})).await["content"][0]["text"], "here");
    assert!(server.remove_tool("late"));
    assert!(!server.remove_tool("late"));
    assert_eq!(ask(&server, "tools/list", json!({})).await["tools"], json!([]));

    let none = Server::new("none", "1").build().unwrap();
    for (method, params) in [
        ("tools/list", json!({})),
        ("tools/call", json!({ "name": "x" })),
        ("prompts/get", json!({ "name": "x" })),
    ] {
        assert_eq!(ask(&none, method, params).await["code"], -32601, "{method}");
    }
}

#[derive(Deserialize, JsonSchema)]
struct Place {
    country: String,
    city: String,
}

#[tokio::test]
async fn a_completer_knows_the_other_arguments() {
    let server = Server::new("complete", "1")
        .prompt("place", |args: Place| async move { format!("{}, {}", args.city, args.country) })
        .complete("city", |_, cx| async move {
            match cx.other_argument("country") {
                Some("france") => vec!["paris", "lyon"],
                _ => vec![],
            }
        })
        .build()
        .unwrap();
    let params = json!({
        "ref": { "type": "ref/prompt", "name": "place" },
        "argument": { "name": "city", "value": "" },
        "context": { "arguments": { "country": "france" } },
    });
    let answer = ask(&server, "completion/complete", params).await;
    assert_eq!(answer["completion"]["values"], json!(["paris", "lyon"]));
}

#[tokio::test]
async fn a_blocking_tool_does_not_block_reading() {
    let server = Server::new("block", "1")
        .tool("block", || async {
            std::thread::sleep(Duration::from_millis(300));
            "awake"
        })
        .build()
        .unwrap();
    let server = std::sync::Arc::new(server);
    // A runtime of its own with two threads: one to be blocked, one to continue.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (output, answers) = tokio::io::duplex(1 << 16);
    let (mut typed, input) = tokio::io::duplex(1 << 16);
    let serving = runtime.spawn({
        let server = std::sync::Arc::clone(&server);
        async move { server.serve_io(input, output).await }
    });
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    for request in [
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"block",{meta}}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{{{meta}}}}}"#),
    ] {
        typed.write_all((request + "\n").as_bytes()).await.unwrap();
    }
    let mut answers = BufReader::new(answers).lines();
    let first: Value = serde_json::from_str(&answers.next_line().await.unwrap().unwrap()).unwrap();
    assert_eq!(first["id"], 2, "the list does not wait for the one that blocks");
    let second: Value = serde_json::from_str(&answers.next_line().await.unwrap().unwrap()).unwrap();
    assert_eq!(second["result"]["content"][0]["text"], "awake");
    drop(typed);
    serving.await.unwrap().unwrap();
    runtime.shutdown_background();
}

#[test]
fn a_state_may_be_given_after_the_tool_that_takes_it() {
    let tool = |place: State<Place>| async move { place.city.clone() };
    let place = Place { country: "france".into(), city: "paris".into() };
    let server = Server::new("late", "1").tool("city", tool).state(place).build().unwrap();
    assert!(server.add_tool(ToolSpec::new("again", tool)).is_ok());
    let refused = server.add_tool(ToolSpec::new("other", |_: State<Payment>| async { "x" }));
    assert!(refused.unwrap_err().to_string().contains("Payment>`"));
}

#[test]
fn an_invalid_description_reports_all_errors() {
    let error = Server::new("wrong", "1")
        .tool("bad name", || async { "x" })
        .tool("twice", || async { "x" })
        .tool("twice", || async { "x" })
        .tool("list", |_: Vec<String>| async { "x" })
        .tool("stateless", |_: State<Place>| async { "x" })
        .tool("two", |_: Place, _: Payment| async { "x" })
        .resource("no-scheme", || async { "x" })
        .template("x://{", || async { "x" })
        .allow_origin("not an origin")
        .allow_host("host:1")
        .state_keys([])
        .build()
        .unwrap_err()
        .to_string();
    for part in [
        "`bad name`",
        "`twice`",
        "`list`",
        "Place>`, which the server was not given",
        "`two`",
        "`no-scheme`",
        "`x://{`",
        "allow_origin",
        "allow_host",
        "state_keys",
    ] {
        assert!(error.contains(part), "{part} is missing in:\n{error}");
    }
}

/// A nonce can be claimed once, on whichever of two servers that share a store.
#[tokio::test]
async fn a_nonce_is_claimed_once_in_a_cluster() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let shop = |name: &str| {
        Server::new(name, "1.0.0")
            .store(Arc::clone(&store))
            .tool("redeem", |cx: Context| async move {
                let first = cx.consume_once("voucher {7}\n", Duration::from_secs(60)).await?;
                Ok::<_, HandlerError>(if first { "redeemed" } else { "used before" })
            })
            .build()
            .unwrap()
    };
    let (one, other, stranger) = (shop("shop"), shop("shop"), shop("bar"));
    let mut replies = Vec::new();
    for server in [&one, &other, &one, &stranger] {
        let output = call(server, "redeem", json!({})).await;
        replies.push(output["content"][0]["text"].as_str().unwrap().to_owned());
    }
    assert_eq!(replies, ["redeemed", "used before", "used before", "redeemed"]);
}

/// A shared rate limit counts all processes together; a local one counts each process.
#[tokio::test]
async fn a_shared_rate_counts_everywhere() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let serve = |rate: Rate| {
        let server = Server::new("shop", "1.0.0").store(Arc::clone(&store)).rate_per_principal(rate);
        server.tool("echo", || async { "echo" }).build().unwrap()
    };
    let ask = async |server: &Server, who: &'static str| {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
        let mut request = http_request("POST", "/", [("content-type", "application/json")], body);
        request.extensions_mut().insert(Principal::new(who));
        let answer = HttpExchange::start(server.clone().into_service(), request).fetch().await.unwrap();
        answer.status
    };
    // Separately, each would accept a hundred.
    let rate = Rate::per_hour(3).burst(100);
    let (one, other, alone) = (serve(rate.shared()), serve(rate.shared()), serve(rate));
    let (mut replies, mut local_replies) = (Vec::new(), Vec::new());
    // Eight: if an hour ends in between, there are four in each.
    for _ in 0..4 {
        replies.extend([ask(&one, "ada").await, ask(&other, "ada").await]);
        local_replies.extend([ask(&alone, "ada").await, ask(&alone, "ada").await]);
    }
    assert!(replies[..3] == [200; 3] && replies.contains(&429), "{replies:?}");
    assert_eq!(local_replies, [200; 8]);
    assert_eq!(ask(&other, "bob").await, 200, "another principal");
}
