//! Configurations served over HTTP and stdio, tested as clients see them.

use std::io::{Read as _, Write as _};

use serde_json::{Value, json};

use crate::harness::{RunningServer, TempDir, parse_response, request, send, spawn_toolgate, wait_until};

const SHOP_CONFIG: &str = r#"
    [listen]
    shutdown_grace = "5s"
    [stats]
    path = "/stats"
    [auth.partners]
    api_keys = [
        { id = "acme", sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", scopes = ["read"], attributes = { tenant = 7 } },
        { id = "beta", key = "${BETA_KEY}", scopes = ["read", "write"], attributes = { tenant = "8" } },
        { id = "look", key = "just-looking", profile = "readonly" },
    ]
    [auth.ops]
    bearer = ["${file:token}"]
    [servers.shop]
    auth = ["partners", "ops"]
    [servers.shop.tools.order_get]
    annotations = { readOnlyHint = true }
    args = { tenant = { from = "principal.tenant", type = "integer", default = 0 }, who = { from = "principal.sub", type = "string" }, lang = { from = "header.accept-language", type = "string", required = false } }
    template = "{{ who }} {{ tenant }} {{ lang }}"
    [servers.shop.tools.refund]
    scopes = ["write"]
    text = "refunded"
    [servers.open]
    limits = { body = "300", rate = [{ per = "ip", quota = "3/min" }] }
    profile = { deny = ["hidden*"] }
    [servers.open.tools.hidden_one]
    text = "no"
    [servers.open.tools.shown]
    text = "yes"
"#;

fn serve_shop() -> (TempDir, RunningServer) {
    let folder = TempDir::new();
    folder.write("token", "ops-token\n");
    let served = RunningServer::with(&folder, SHOP_CONFIG, &[], &[("BETA_KEY", "beta-key")]);
    (folder, served)
}

fn list_tools(served: &RunningServer, headers: &[(&str, &str)]) -> Vec<String> {
    let (_, listed) = served.request("/shop/mcp", headers, "tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect()
}

#[test]
fn tools_and_results_depend_on_the_caller() {
    let (_folder, served) = serve_shop();
    let call = |headers: &[(&str, &str)], name: &str| {
        served.request("/shop/mcp", headers, "tools/call", &json!({ "name": name }))
    };
    assert_eq!(call(&[], "order_get").0, 401);
    assert_eq!(call(&[("x-api-key", "wrong")], "order_get").0, 401);
    let acme = [("x-api-key", "test"), ("accept-language", "de")];
    assert_eq!(call(&acme, "order_get").1["result"]["content"][0]["text"], "acme 7 de");
    let beta = [("authorization", "Bearer beta-key")];
    assert_eq!(call(&beta, "order_get").1["result"]["content"][0]["text"], "beta 8 ");
    assert_eq!(call(&beta, "refund").1["result"]["content"][0]["text"], "refunded");
    // Without the scope the tool is neither listed nor callable.
    assert_eq!(list_tools(&served, &acme), ["order_get"]);
    assert_eq!(list_tools(&served, &beta), ["order_get", "refund"]);
    assert!(call(&acme, "refund").1["error"]["message"].as_str().unwrap().contains("refund"));
    assert_eq!(list_tools(&served, &[("x-api-key", "just-looking")]), ["order_get"]);
    let ops = [("authorization", "Bearer ops-token")];
    assert!(
        call(&ops, "order_get").1["result"]["content"][0]["text"].as_str().unwrap().starts_with("token:")
    );
    let sent = json!({ "name": "order_get", "arguments": { "tenant": 8 } });
    let (_, rejected) = served.request("/shop/mcp", &acme, "tools/call", &sent);
    assert_eq!(
        rejected["result"]["isError"], true,
        "callers cannot set arguments taken from the principal: {rejected}"
    );
}

#[test]
fn each_server_has_its_own_limits_and_profile() {
    let (_folder, served) = serve_shop();
    let call = |name: &str| served.request("/open/mcp", &[], "tools/call", &json!({ "name": name }));
    assert_eq!(call("shown").1["result"]["content"][0]["text"], "yes");
    assert!(call("hidden_one").1["error"]["message"].is_string());
    let long = json!({ "name": "shown", "arguments": { "x": "y".repeat(400) } });
    assert_eq!(served.request("/open/mcp", &[], "tools/call", &long).0, 413);
    wait_until("the rate limit applies", || call("shown").0 == 429);
}

#[test]
fn health_readiness_and_stats_are_served() {
    let (_folder, served) = serve_shop();
    let get = |path: &str| parse_response(&send(&served.address, &format!("GET {path}"), &[], ""));
    assert_eq!(get("/health"), (200, json!({ "status": "ok" })));
    assert_eq!(get("/ready"), (200, json!({ "status": "ready" })));
    let evil = send(&served.address, "GET /ready", &[("host", "10.0.0.9")], "");
    assert!(evil.starts_with("HTTP/1.1 4"), "two host headers are rejected: {evil}");
    assert_eq!(get("/stats/open/summary").0, 200);
    assert_eq!(get("/stats/shop/summary").0, 401, "stats need authorization");
    assert_eq!(get("/nothing").0, 404);
}

#[cfg(unix)]
#[test]
fn sigterm_drains_running_calls() {
    let folder = TempDir::new();
    let mut served =
        RunningServer::new(&folder, "[servers.s.tools.nap]\ncommand = { argv = [\"sleep\", \"0.5\"] }\n");
    let address = served.address.clone();
    let calling = std::thread::spawn(move || {
        parse_response(&send(
            &address,
            "POST /mcp",
            &[],
            &request(1, "tools/call", &json!({ "name": "nap" })),
        ))
    });
    std::thread::sleep(std::time::Duration::from_millis(200));
    served.signal("-TERM");
    assert!(served.child.0.wait().unwrap().success());
    let (status, received) = calling.join().unwrap();
    assert_eq!(
        (status, &received["result"]["isError"]),
        (200, &Value::Null),
        "a running call is completed: {received}"
    );
}

#[test]
fn one_server_is_served_over_stdio_without_authentication() {
    let folder = TempDir::new();
    folder.write("token", "ops-token");
    let path = folder.write("toolgate.toml", &SHOP_CONFIG.replace("${BETA_KEY}", "beta-key"));
    let mut running = spawn_toolgate(&["stdio", path.to_str().unwrap(), "--server", "shop"]);
    let mut input = running.0.stdin.take().unwrap();
    let initialize = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    writeln!(input, "{}", request(1, "initialize", &initialize)).unwrap();
    writeln!(input, "{}", request(2, "tools/call", &json!({ "name": "refund" }))).unwrap();
    writeln!(input, "{}", request(3, "tools/call", &json!({ "name": "order_get" }))).unwrap();
    drop(input);
    let mut output = String::new();
    running.0.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    let mut responses: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    responses.sort_by_key(|response| response["id"].as_u64());
    assert_eq!(responses[0]["result"]["serverInfo"]["name"], "shop");
    assert_eq!(responses[1]["result"]["content"][0]["text"], "refunded", "over stdio no scope is needed");
    let received = responses[2]["result"]["content"][0]["text"].as_str().unwrap();
    assert!(received.contains("the name of the caller"), "the caller has no name: {received}");
    assert!(running.0.wait().unwrap().success());
}

#[test]
fn json_logs_are_valid_and_contain_no_secret() {
    let folder = TempDir::new();
    folder.write("token", "ops-token");
    let variables = [("BETA_KEY", "beta-key")];
    let served = RunningServer::with(
        &folder,
        SHOP_CONFIG,
        &["--log-format", "json", "--log-level", "debug"],
        &variables,
    );
    served.request("/shop/mcp", &[("x-api-key", "beta-key")], "tools/call", &json!({ "name": "refund" }));
    folder.write("toolgate.toml", &SHOP_CONFIG.replace("3/min", "${BETA_KEY}"));
    served.wait_for("keeping the old one", 1);
    let log = served.log();
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"));
        assert!(line["level"].is_string() && line["timestamp"].is_string());
    }
    assert!(!log.contains("beta-key") && !log.contains("ops-token"), "{log}");
}

#[test]
fn an_invalid_configuration_is_not_served() {
    let folder = TempDir::new();
    let path = folder.write("toolgate.toml", "[servers.s]\ntitel = \"x\"\n");
    let mut running = spawn_toolgate(&["serve", path.to_str().unwrap()]);
    let mut received = String::new();
    running.0.stderr.take().unwrap().read_to_string(&mut received).unwrap();
    assert_eq!(running.0.wait().unwrap().code(), Some(3));
    assert!(
        received.contains(":2:1: unknown key `titel`") && received.contains("did you mean `title`?"),
        "{received}"
    );
}

#[test]
fn a_program_reports_its_progress() {
    let folder = TempDir::new();
    let text = r#"
        [servers.s.tools.work]
        command = { argv = ["sh", "-c", "echo '1/3 begun' >&2; echo '66% on it' >&2; echo 'so so' >&2; echo done"], progress = "stderr" }
    "#;
    let path = folder.write("toolgate.toml", text);
    let mut running = spawn_toolgate(&["stdio", path.to_str().unwrap()]);
    let mut input = running.0.stdin.take().unwrap();
    let initialize = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    writeln!(input, "{}", request(1, "initialize", &initialize)).unwrap();
    writeln!(
        input,
        "{}",
        request(2, "tools/call", &json!({ "name": "work", "_meta": { "progressToken": 7 } }))
    )
    .unwrap();
    drop(input);
    let mut output = String::new();
    running.0.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    let received: Vec<Value> =
        output.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
    let progress = |n: usize| {
        (
            &received[n]["params"]["progress"],
            &received[n]["params"]["total"],
            &received[n]["params"]["message"],
        )
    };
    assert_eq!(progress(0), (&json!(1), &json!(3), &json!("1/3 begun")), "{output}");
    assert_eq!(progress(1), (&json!(66), &json!(100), &json!("66% on it")), "{output}");
    assert_eq!(
        received[2]["result"]["content"][0]["text"], "done",
        "progress that does not increase is not sent: {output}"
    );
}
