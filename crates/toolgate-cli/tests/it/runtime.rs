//! The pack `runtime` in a running program.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{RunningServer, TempDir, request, send, wait_until};

const CONFIG: &str = r#"
[auth.ops]
bearer = [{ token = "s3cret-token", subject = "ada" }]

[stats.prometheus]

[security.egress]
allow = ["127.0.0.1"]

[connections.shop]
sqlite = "shop.db"

[connections.nobody]
http = "http://127.0.0.1:9/s3cret-path"
headers = { X-Key = "s3cret-header" }
retry = { max = 0 }

[servers.ops]
path = "/ops"
version = "7.1.0"
auth = "ops"
packs = ["runtime"]

[servers.shop]
path = "/shop"

[servers.shop.tools.count]
args = { word = "string" }
sql = { on = "shop", query = "select :word as word, count(*) as n from sqlite_master where name <> 's3cret-literal'" }

[servers.shop.tools.ask]
args = { q = "string", name = "string" }
http = { on = "nobody", path = "/orders/{name}", query = { q = "{q}" } }

[servers.shop.resources.docs]
files = { root = "docs", uri = "docs:///{path}", watch = true }
"#;

const TOKEN: (&str, &str) = ("authorization", "Bearer s3cret-token");

fn serve_config(folder: &TempDir) -> RunningServer {
    folder.write("docs/a.md", "a");
    // An empty file is an empty database.
    folder.write("shop.db", "");
    RunningServer::new(folder, CONFIG)
}

/// Calls a tool of the pack and returns its JSON.
fn call_runtime_tool(served: &RunningServer, tool: &str, arguments: &Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments });
    let (status, response) = served.request("/ops", &[TOKEN], "tools/call", &params);
    let result = &response["result"];
    assert!(status == 200 && result["isError"] != true, "{tool}: {response}");
    serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap()
}

fn call_shop_tool(served: &RunningServer, tool: &str, arguments: &Value) -> Value {
    served.request("/shop", &[], "tools/call", &json!({ "name": tool, "arguments": arguments })).1
}

#[test]
fn slow_statements_and_calls_are_recorded_without_arguments() {
    let folder = TempDir::new();
    let served = serve_config(&folder);
    for tool in ["sql_set_config", "slow_http_set_config", "requests_set_config"] {
        assert_eq!(call_runtime_tool(&served, tool, &json!({ "thresholdMs": 0 }))["thresholdMs"], 0);
    }
    assert_eq!(
        call_shop_tool(&served, "count", &json!({ "word": "s3cret-word" }))["result"]["isError"],
        Value::Null
    );
    assert_eq!(
        call_shop_tool(&served, "ask", &json!({ "q": "s3cret-question", "name": "s3cret-name" }))["result"]["isError"],
        true
    );

    let queries = call_runtime_tool(&served, "sql_get_slow_queries", &json!({}));
    assert_eq!((&queries[0]["connection"], &queries[0]["rows"]), (&json!("shop"), &json!(1)), "{queries}");
    assert!(queries[0]["statement"].as_str().unwrap().starts_with("select :word as word"), "{queries}");
    let calls = call_runtime_tool(&served, "slow_http_get_calls", &json!({}));
    assert_eq!((&calls[0]["method"], &calls[0]["ok"]), (&json!("GET"), &json!(false)), "{calls}");
    assert_eq!(calls[0]["path"], "/s3cret-path/orders/{name}");
    let requests = call_runtime_tool(&served, "requests_get_slow_requests", &json!({ "limit": 50 }));
    assert!(
        requests.as_array().unwrap().iter().any(|one| one["subject"] == "ask" && one["error"] == "isError")
    );
    let route = call_runtime_tool(&served, "routes_get_route", &json!({ "key": "tools/call /shop/ask" }));
    assert_eq!((&route["count"], &route["errors"]), (&json!(1), &json!(1)));
    for (tool, shown) in [("sql", &queries), ("http", &calls), ("requests", &requests)] {
        for secret in ["s3cret-word", "s3cret-question", "s3cret-name", "s3cret-header", "s3cret-token"] {
            assert!(!shown.to_string().contains(secret), "{tool} shows {secret}: {shown}");
        }
    }

    let stores = call_runtime_tool(&served, "datasource_get_all", &json!({}));
    assert_eq!((&stores["count"], &stores["datasources"][0]["driver"]), (&json!(1), &json!("sqlite")));
    assert_eq!(call_runtime_tool(&served, "datasource_test", &json!({ "dsn": "shop" }))["ok"], true);
    let upstreams = call_runtime_tool(&served, "http_get_upstreams", &json!({}));
    assert_eq!(upstreams["upstreams"][0]["reachable"], false, "{upstreams}");
    let config = call_runtime_tool(&served, "runtime_get_config", &json!({}));
    for secret in ["s3cret-token", "s3cret-header"] {
        assert!(!config.to_string().contains(secret), "{config:#}");
    }
    assert_eq!(call_runtime_tool(&served, "runtime_get_info", &json!({}))["version"], "7.1.0");
}

#[test]
fn tools_change_the_running_program() {
    let folder = TempDir::new();
    let served = serve_config(&folder);
    call_runtime_tool(&served, "server_pause", &json!({ "name": "shop" }));
    assert_eq!(call_shop_tool(&served, "count", &json!({ "word": "a" }))["error"]["code"], -32005);
    call_runtime_tool(&served, "server_resume", &json!({ "name": "shop" }));
    assert!(call_shop_tool(&served, "count", &json!({ "word": "a" }))["result"].is_object());

    // A change made while the watcher is stopped is reported as a difference, and applied once it runs again.
    call_runtime_tool(&served, "watcher_stop", &json!({ "name": "configuration" }));
    folder.write("toolgate.toml", &CONFIG.replace("version = \"7.1.0\"", "version = \"7.2.0\""));
    let diff = call_runtime_tool(&served, "runtime_config_diff", &json!({}));
    assert_eq!(diff["changes"], json!([{ "path": "servers.ops.version", "live": "7.1.0", "file": "7.2.0" }]));
    assert_eq!(call_runtime_tool(&served, "runtime_get_info", &json!({}))["version"], "7.1.0");
    let health = call_runtime_tool(&served, "watcher_get_health", &json!({}));
    assert_eq!((&health["score"], &health["issues"][0]["code"]), (&json!(75), &json!("WATCHER_STOPPED")));
    call_runtime_tool(&served, "watcher_start", &json!({ "name": "configuration" }));
    wait_until("the change is served", || {
        call_runtime_tool(&served, "runtime_get_info", &json!({}))["version"] == "7.2.0"
    });
    let loads = call_runtime_tool(&served, "module_get_stats", &json!({}))["loads"].as_u64().unwrap();
    call_runtime_tool(&served, "module_reload_all", &json!({}));
    wait_until("the file is loaded again", || {
        call_runtime_tool(&served, "module_get_stats", &json!({}))["loads"].as_u64().unwrap() > loads
    });

    // A message written by a tool is in the log and can be searched.
    call_runtime_tool(
        &served,
        "logging_log_message",
        &json!({ "level": "warn", "text": "a mark\nin the log" }),
    );
    served.wait_for("a mark in the log", 1);
    let found = call_runtime_tool(&served, "logging_search_entries", &json!({ "keyword": "MARK in" }));
    assert_eq!((&found["count"], &found["entries"][0]["level"]), (&json!(1), &json!("warn")));
    assert_eq!(
        call_runtime_tool(&served, "runtime_toggle_debug_mode", &json!({ "enabled": true }))["level"],
        "debug"
    );
    assert_eq!(call_runtime_tool(&served, "runtime_toggle_debug_mode", &json!({}))["level"], "info");
}

#[test]
fn prometheus_metrics_need_authorization() {
    let folder = TempDir::new();
    let served = serve_config(&folder);
    call_shop_tool(&served, "count", &json!({ "word": "a" }));
    let get =
        |path: &str, headers: &[(&str, &str)]| send(&served.address, &format!("GET {path}"), headers, "");
    let authorized = get("/metrics", &[TOKEN]);
    assert!(authorized.contains("text/plain; version=0.0.4"), "{authorized}");
    assert!(authorized.contains("mcp_tool_calls_total{server=\"shop\",tool=\"count\"} 1\n"), "{authorized}");
    assert!(authorized.contains("mcp_requests_total{server=\"ops\"} 0\n"), "{authorized}");
    let open = get("/metrics", &[]);
    assert!(
        open.starts_with("HTTP/1.1 200") && open.contains("server=\"shop\"") && !open.contains("\"ops\""),
        "{open}"
    );
    assert!(get("/metrics/ops", &[]).starts_with("HTTP/1.1 401"));
    assert!(get("/metrics/nobody", &[TOKEN]).starts_with("HTTP/1.1 404"));
    assert!(get("/metrics/shop", &[]).contains("mcp_requests_total{server=\"shop\"} 1\n"));
    assert!(send(&served.address, "POST /metrics", &[TOKEN], "{}").starts_with("HTTP/1.1 405"));
    let read = served.request("/ops", &[TOKEN], "resources/read", &json!({ "uri": "runtime://metrics" })).1;
    assert!(
        read["result"]["contents"][0]["text"]
            .as_str()
            .unwrap()
            .contains("mcp_requests_total{server=\"shop\"} 1")
    );
}

#[test]
fn subscribers_are_notified_when_the_health_changes() {
    let folder = TempDir::new();
    let served = serve_config(&folder);
    let initialize = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "pager", "version": "1" } });
    let opened = send(
        &served.address,
        "POST /ops",
        &[TOKEN, ("accept", "application/json, text/event-stream")],
        &request(1, "initialize", &initialize),
    );
    let session = opened.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().to_owned();
    let headers =
        [TOKEN, ("mcp-session-id", session.as_str()), ("accept", "application/json, text/event-stream")];
    let subscribed = send(
        &served.address,
        "POST /ops",
        &headers,
        &request(2, "resources/subscribe", &json!({ "uri": "runtime://health" })),
    );
    assert!(subscribed.contains("\"result\""), "{subscribed}");

    let mut stream = TcpStream::connect(&served.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (name, token) = TOKEN;
    write!(stream, "GET /ops HTTP/1.1\r\nhost: {}\r\naccept: text/event-stream\r\n{name}: {token}\r\nmcp-session-id: {session}\r\n\r\n", served.address).unwrap();
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 200"), "{line}");

    let clients = call_runtime_tool(&served, "mcp_get_clients", &json!({}));
    assert_eq!(
        clients["clients"][0],
        json!({ "client": "pager", "version": "1", "revision": "2025-06-18", "sessions": 1 })
    );
    // Changes are relative to the first run of the health check.
    wait_until("the health check has run", || {
        let jobs = call_runtime_tool(&served, "scheduler_get_all_tasks", &json!({}));
        jobs["tasks"].as_array().unwrap().iter().any(|job| job["name"] == "watch_health" && job["runs"] != 0)
    });
    call_runtime_tool(&served, "watcher_stop", &json!({ "name": "configuration" }));
    call_runtime_tool(&served, "scheduler_run_task", &json!({ "task": "watch_health" }));
    while !line.contains("notifications/resources/updated") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the stream ended");
    }
    assert!(line.contains("runtime://health"), "{line}");
    let read = served.request("/ops", &[TOKEN], "resources/read", &json!({ "uri": "runtime://health" })).1;
    let health: Value =
        serde_json::from_str(read["result"]["contents"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(health["status"], "warning", "{health:#}");
}
