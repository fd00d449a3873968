//! Limits, result cache, credentials, quotas and the audit log.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::harness::{RunningServer, TempDir, send, wait_until};

fn call_tool(
    served: &RunningServer,
    path: &str,
    headers: &[(&str, &str)],
    tool: &str,
    arguments: &Value,
) -> (u16, Value) {
    let params = json!({ "name": tool, "arguments": arguments });
    let (status, response) = served.request(path, headers, "tools/call", &params);
    (status, response["result"].clone())
}

fn result_text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}

/// An API that responds with the number of requests so far and the caller's credentials.
fn start_backend() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, n_requests) = (listener.local_addr().unwrap().to_string(), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&n_requests);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, counter) = (stream.unwrap(), Arc::clone(&counter));
            std::thread::spawn(move || {
                let (mut head, mut chunk) = (Vec::new(), [0; 1024]);
                while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                    match stream.read(&mut chunk) {
                        Ok(n) if n > 0 => head.extend_from_slice(&chunk[..n]),
                        _ => return,
                    }
                }
                let head = String::from_utf8_lossy(&head).to_lowercase();
                let who = head
                    .split("authorization: ")
                    .nth(1)
                    .map_or("nobody", |rest| rest.lines().next().unwrap());
                let n = counter.fetch_add(1, Ordering::SeqCst) + 1;
                std::thread::sleep(std::time::Duration::from_millis(200));
                let body = json!({ "n": n, "who": who }).to_string();
                let status = if head.contains("fail=yes") { "503 Busy" } else { "200 OK" };
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
            });
        }
    });
    (address, n_requests)
}

#[test]
fn results_are_cached_for_equal_calls_of_the_same_caller() {
    let (address, n_requests) = start_backend();
    let config = format!(
        r#"
[security.egress]
deny_private = false
[connections.open]
http = "http://{address}"
retry = {{ max = 0 }}
[connections.own]
http = "http://{address}"
auth = {{ forward = true }}
[servers.shop.tools.all]
http = {{ on = "open", path = "/", query = {{ q = "{{q}}", fail = "{{fail}}" }} }}
args = {{ q = "string", fail = "string?" }}
cache = "10m"
[servers.shop.tools.mine]
http = {{ on = "own", path = "/" }}
cache = "10m"
[servers.shop.tools.brief]
http = {{ on = "open", path = "/" }}
cache = "1ms"
"#
    );
    let folder = TempDir::new();
    let served = Arc::new(RunningServer::new(&folder, &config));
    let count = || n_requests.load(Ordering::SeqCst);
    // Concurrent equal calls share one request.
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let served = Arc::clone(&served);
            std::thread::spawn(move || served.call("all", &json!({ "q": "a" })))
        })
        .collect();
    let responses: Vec<String> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
    assert!(
        responses.iter().all(|response| *response == responses[0]) && responses[0].contains("\"n\""),
        "{responses:?}"
    );
    assert_eq!(count(), 1, "one request for all of them");
    assert_ne!(served.call("all", &json!({ "q": "b" })), responses[0], "other arguments");
    assert_eq!(served.call("all", &json!({ "q": "a" })), responses[0]);
    assert_eq!(count(), 2);
    // Errors are not cached.
    for _ in 0..2 {
        let (_, result) = call_tool(&served, "/mcp", &[], "all", &json!({ "q": "c", "fail": "yes" }));
        assert_eq!(result["isError"], true, "{result}");
    }
    assert_eq!(count(), 4);
    // Forwarded credentials separate the cache entries of callers.
    for (who, n) in [("Bearer ada", 5), ("Bearer bob", 6), ("Bearer ada", 6)] {
        let (_, result) = call_tool(&served, "/mcp", &[("authorization", who)], "mine", &json!({}));
        assert!(result_text(&result).contains(&who.to_lowercase()), "{who}: {result}");
        assert_eq!(count(), n);
    }
    // An entry expires.
    served.call("brief", &json!({}));
    std::thread::sleep(std::time::Duration::from_millis(5));
    served.call("brief", &json!({}));
    assert_eq!(count(), 8);
}

#[cfg(unix)]
#[test]
fn concurrency_and_queue_are_limited() {
    let folder = TempDir::new();
    let config = r#"
[limits]
concurrency = 1
[servers.shop.tools.slow]
command = { argv = ["sleep", "0.4"] }
[servers.shop.tools.work]
command = { argv = ["sleep", "0.1"] }
task = true
"#;
    let served = Arc::new(RunningServer::new(&folder, config));
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let served = Arc::clone(&served);
            std::thread::spawn(move || call_tool(&served, "/mcp", &[], "slow", &json!({})).1)
        })
        .collect();
    let results: Vec<Value> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
    let n_busy = results.iter().filter(|result| result_text(result).starts_with("busy: ")).count();
    assert_eq!(n_busy, 3, "one runs, four wait: {results:?}");
    // Tasks have their own limits.
    let (_, result) = call_tool(&served, "/mcp", &[], "work", &json!({}));
    assert_ne!(result["isError"], true, "{result}");
}

#[test]
fn results_that_are_too_large_are_rejected_or_truncated() {
    let folder = TempDir::new();
    let config = format!(
        "[limits]\nresponse = \"50B\"\n\
         [servers.a]\n[servers.a.tools.long]\ntext = \"{0}\"\n[servers.a.tools.short]\ntext = \"ok\"\n\
         [servers.b]\nlimits = {{ response = {{ max = 60, on_exceed = \"truncate\" }} }}\n[servers.b.tools.long]\ntext = \"{0}\"\n",
        "x".repeat(100)
    );
    let served = RunningServer::new(&folder, &config);
    let (_, rejected) = call_tool(&served, "/a/mcp", &[], "long", &json!({}));
    assert_eq!(rejected["isError"], true, "{rejected}");
    assert!(result_text(&rejected).contains("100 bytes, the limit is 50"), "{rejected}");
    assert_eq!(result_text(&call_tool(&served, "/a/mcp", &[], "short", &json!({})).1), "ok");
    let (_, cut) = call_tool(&served, "/b/mcp", &[], "long", &json!({}));
    assert_eq!((result_text(&cut).len(), &cut["isError"]), (60, &Value::Null), "{cut}");
    assert!(cut["content"][1]["text"].as_str().unwrap().contains("truncated"), "{cut}");
}

#[test]
fn a_server_has_its_own_cors_origins_and_legacy_sse_can_be_disabled() {
    let folder = TempDir::new();
    let config = r#"
[listen]
legacy_sse = false
[security]
cors = { origins = ["https://all.example"], max_age = "10m" }
[servers.a.tools.hi]
text = "hi"
[servers.b]
cors = ["https://own.example"]
[servers.b.tools.hi]
text = "hi"
"#;
    let served = RunningServer::new(&folder, config);
    let preflight = |path: &str, origin: &str| {
        let headers = [("origin", origin), ("access-control-request-method", "POST")];
        send(&served.address, &format!("OPTIONS {path}"), &headers, "").to_lowercase()
    };
    let allowed = preflight("/a/mcp", "https://all.example");
    assert!(
        allowed.starts_with("http/1.1 204") && allowed.contains("access-control-max-age: 600\r"),
        "{allowed}"
    );
    let own = preflight("/b/mcp", "https://own.example");
    assert!(own.starts_with("http/1.1 204") && own.contains("access-control-max-age: 86400\r"), "{own}");
    assert!(
        preflight("/b/mcp", "https://all.example").starts_with("http/1.1 403"),
        "replaces the global origins"
    );
    assert!(preflight("/a/mcp", "https://own.example").starts_with("http/1.1 403"));
    assert!(send(&served.address, "GET /a/mcp/sse", &[], "").starts_with("HTTP/1.1 404"));
}

#[test]
fn users_have_scopes_attributes_and_a_quota() {
    let folder = TempDir::new();
    let config = r#"
[auth.people]
basic = [
  { user = "ada", password = "tiger", scopes = ["write"], attributes = { tenant = "t7" } },
  { user = "bob", password = "tiger", profile = "few", quota = "2/day" },
]
[auth.machines]
api_keys = [{ id = "acme", key = "k-1", quota = "1/day" }]
[profiles.few]
allow = ["hi"]
[servers.shop]
auth = ["people", "machines"]
[servers.shop.tools.hi]
text = "hi"
[servers.shop.tools.other]
text = "other"
[servers.shop.tools.change]
template = "changed {{ tenant }}"
args = { tenant = { type = "string", from = "principal.tenant" } }
scopes = ["write"]
"#;
    let served = RunningServer::new(&folder, config);
    let names = |who: &str| {
        let (status, response) = served.request("/mcp", &[("authorization", who)], "tools/list", &json!({}));
        assert_eq!(status, 200, "{response}");
        let tools = response["result"]["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (ada, bob) = ("Basic YWRhOnRpZ2Vy", "Basic Ym9iOnRpZ2Vy");
    assert_eq!(names(ada), ["hi", "other", "change"]);
    let (_, changed) = call_tool(&served, "/mcp", &[("authorization", ada)], "change", &json!({}));
    assert_eq!(result_text(&changed), "changed t7", "{changed}");
    assert_eq!(names(bob), ["hi"]);
    let hi = |header: (&str, &str)| call_tool(&served, "/mcp", &[header], "hi", &json!({})).0;
    assert_eq!([hi(("authorization", bob)), hi(("authorization", bob))], [200, 429], "two per day");
    assert_eq!([hi(("x-api-key", "k-1")), hi(("x-api-key", "k-1"))], [200, 429]);
    assert_eq!(hi(("authorization", ada)), 200, "other users have no quota");
}

#[test]
fn calls_are_written_to_the_audit_log() {
    let folder = TempDir::new();
    let config = r#"
[stats]
audit = { file = "audit.jsonl", args = true }
[servers.shop.tools.hi]
template = "hi {{ name }}"
args = { name = "string", password = "string?" }
"#;
    let served = RunningServer::new(&folder, config);
    served.call("hi", &json!({ "name": "Ada", "password": "hunter2hunter2" }));
    let written = || std::fs::read_to_string(folder.path().join("audit.jsonl")).unwrap_or_default();
    wait_until("a line is written", || written().ends_with('\n'));
    let line: Value = serde_json::from_str(written().lines().next().unwrap()).unwrap();
    assert_eq!(
        (&line["name"], &line["ok"], &line["server"]),
        (&json!("hi"), &json!(true), &json!("shop")),
        "{line}"
    );
    assert_eq!(line["arguments"]["name"], "Ada", "{line}");
    assert!(!written().contains("hunter2"), "{line}");
}
