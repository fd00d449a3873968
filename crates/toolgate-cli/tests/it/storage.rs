//! Stored state: tasks and sessions that outlive a call or a process.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{RunningServer, TempDir, parse_response, request, run, send, text, wait_until};

const NEWEST_VERSION: &str = "2026-07-28";

/// Sends a stateless request of a client that supports tasks.
fn request_stateless(served: &RunningServer, method: &str, name: Option<&str>, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": NEWEST_VERSION,
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": { "extensions": { "io.modelcontextprotocol/tasks": {} } },
    });
    let mut headers = vec![("mcp-protocol-version", NEWEST_VERSION), ("mcp-method", method)];
    headers.extend(name.map(|name| ("mcp-name", name)));
    let (status, response) = served.request("/mcp", &headers, method, &params);
    assert_eq!(status, 200, "{response}");
    response
}

fn start_task(served: &RunningServer, tool: &str) -> Value {
    let response =
        request_stateless(served, "tools/call", Some(tool), json!({ "name": tool, "arguments": {} }));
    assert_eq!(response["result"]["resultType"], "task", "{response}");
    response["result"].clone()
}

fn get_task(served: &RunningServer, task: &Value) -> Value {
    let id = task["taskId"].as_str().unwrap();
    request_stateless(served, "tasks/get", Some(id), json!({ "taskId": id }))["result"].clone()
}

const FILE_STORE_CONFIG: &str = r#"
[storage]
default = "redb:state.redb"
[servers.shop.tools.report]
command = { argv = ["sh", "-c", "sleep 0.1; echo done"] }
task = { ttl = "2h" }
[servers.shop.tools.slow]
command = { argv = ["sh", "-c", "echo x >> runs; sleep 1; [ $(wc -l < runs) -ge 2 ] || sleep 60; echo twice"] }
task = { mode = "required", resumable = true }
"#;

#[cfg(unix)]
#[test]
fn tasks_in_a_file_store_outlive_the_process() {
    let folder = TempDir::new();
    let mut served = RunningServer::new(&folder, FILE_STORE_CONFIG);
    let task = start_task(&served, "report");
    assert_eq!(task["ttlMs"], 7_200_000, "{task}");
    wait_until("the task is done", || get_task(&served, &task)["status"] == "completed");
    let slow = start_task(&served, "slow");
    wait_until("it runs", || folder.path().join("runs").exists());
    served.child.0.kill().unwrap();
    served.child.0.wait().unwrap();

    let served = RunningServer::new(&folder, FILE_STORE_CONFIG);
    let found = get_task(&served, &task);
    assert_eq!(found["result"]["content"][0]["text"], "done", "{found}");
    wait_until("the other one is run again", || get_task(&served, &slow)["status"] == "completed");
    assert_eq!(get_task(&served, &slow)["result"]["content"][0]["text"], "twice");
    // A client without task support gets an error, or waits if the task mode allows it.
    let params = json!({ "name": "slow", "arguments": {} });
    let (_, rejected) = served.request("/mcp", &[], "tools/call", &params);
    assert!(rejected["error"]["message"].as_str().unwrap().contains("must run as a task"), "{rejected}");
    assert_eq!(served.call("report", &json!({})), "done");
}

#[test]
fn a_locked_store_file_does_not_block_call_and_check() {
    let folder = TempDir::new();
    let served = RunningServer::new(&folder, FILE_STORE_CONFIG);
    let called = run(folder.path(), &["call", "toolgate.toml", "report"]);
    assert_eq!((called.status.code(), text(&called.stdout).as_str()), (Some(0), "done\n"));
    // The same file, with the address that is served.
    let listening = format!("[listen]\nhttp = \"{}\"\n{FILE_STORE_CONFIG}", served.address);
    folder.write("same.toml", &listening);
    let checked = run(folder.path(), &["check", "--live", "same.toml"]);
    let output = text(&checked.stdout);
    assert_eq!(checked.status.code(), Some(0), "{output}{}", text(&checked.stderr));
    assert!(output.contains("state.redb is in use by another process"), "{output}");
    assert!(output.contains(&format!("{} is in use", served.address)), "{output}");
    // A second `serve` needs the file and fails.
    let second = run(folder.path(), &["serve", "toolgate.toml", "--listen", "127.0.0.1:0"]);
    let output = text(&second.stderr);
    assert_eq!(second.status.code(), Some(3), "{output}");
    assert!(output.contains("toolgate.toml:3:11: ") && output.contains("let them share a Redis"), "{output}");
}

#[test]
fn check_creates_no_file() {
    let folder = TempDir::new();
    folder.write("toolgate.toml", &format!("[listen]\nhttp = \"127.0.0.1:0\"\n{FILE_STORE_CONFIG}"));
    for command in [["check", "--live", "toolgate.toml"].as_slice(), &["check", "toolgate.toml"]] {
        assert_eq!(run(folder.path(), command).status.code(), Some(0));
    }
    assert!(!folder.path().join("state.redb").exists());
}

/// A `redis-server` process and its port.
struct Redis(Child, u16);

impl Redis {
    fn start(folder: &TempDir) -> Option<Redis> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("redis-server")
            .args([
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--requirepass",
                "s3cret",
            ])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        let mut redis = Redis(child.ok()?, port);
        let started = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(redis.0.try_wait().unwrap().is_none() && started.elapsed() < Duration::from_secs(10));
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(redis)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn several_programs_share_sessions_in_redis() {
    let folder = TempDir::new();
    let Some(redis) = Redis::start(&folder) else {
        assert!(std::env::var_os("CI").is_none(), "there is no redis-server");
        eprintln!("SKIPPED: there is no redis-server");
        return;
    };
    let config = format!(
        "[storage]\ndefault = \"redis://:${{REDIS_PASSWORD}}@127.0.0.1:{}/0\"\nprefix = \"shop:\"\n\
         [servers.shop.tools.hi]\ntext = \"hello\"\n",
        redis.1
    );
    let right = [("REDIS_PASSWORD", "s3cret")];
    let first = RunningServer::with(&folder, &config, &[], &right);
    let second = RunningServer::with(&folder, &config, &[], &right);
    let initialize = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let initialized = send(&first.address, "POST /mcp", &[], &request(1, "initialize", &initialize));
    let session = initialized.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("mcp-session-id").then_some(value)
    });
    let session = session.unwrap();
    let call = request(2, "tools/call", &json!({ "name": "hi", "arguments": {} }));
    let response = send(&second.address, "POST /mcp", &[("mcp-session-id", session)], &call);
    let (status, output) = parse_response(&response);
    assert_eq!((status, &output["result"]["content"][0]["text"]), (200, &json!("hello")), "{response}");

    // A wrong password is reported with its location, without showing either password.
    let mut wrong = crate::harness::program();
    wrong.current_dir(folder.path()).env("REDIS_PASSWORD", "guess-guess");
    let rejected = wrong.args(["check", "--live", "toolgate.toml"]).output().unwrap();
    let output = text(&rejected.stderr);
    assert_eq!(rejected.status.code(), Some(1), "{output}");
    assert!(output.contains("toolgate.toml:2:11: ") && !output.contains("guess-guess"), "{output}");
}

#[test]
fn a_database_that_comes_later_reports_its_output_schema() {
    let folder = TempDir::new();
    let shop = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/shop/catalog.db");
    let served = RunningServer::new(
        &folder,
        "[connections.db]\nsqlite = \"file:late.db\"\n[servers.s.tools.find]\n\
         sql = { on = \"db\", query = \"SELECT sku, price FROM product\" }\n",
    );
    let tool = || request_stateless(&served, "tools/list", None, json!({}))["result"]["tools"][0].clone();
    assert!(tool()["outputSchema"].is_null(), "{}", tool());
    served.wait_for("the output schema is not known yet", 1);
    std::fs::copy(shop, folder.path().join("late.new")).unwrap();
    std::fs::rename(folder.path().join("late.new"), folder.path().join("late.db")).unwrap();
    wait_until("the schema is there", || tool().to_string().contains("price"));
    assert!(served.call("find", &json!({})).contains("TEA-B"));
}
