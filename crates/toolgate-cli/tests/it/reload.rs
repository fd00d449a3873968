//! Reloading of a configuration while it is served.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::harness::{RunningServer, TempDir, parse_response, request, send, wait_until};

fn config(n: usize, tools: usize) -> String {
    let tool = |i: usize| format!("[servers.s.tools.t{i}]\ntext = \"{n}\"\nargs = {{ a = \"string?\" }}\n");
    (0..tools).map(tool).collect()
}

#[test]
fn reloading_fails_no_request() {
    let folder = TempDir::new();
    let served = Arc::new(RunningServer::new(&folder, &config(0, 30)));
    let stop = Arc::new(AtomicBool::new(false));
    let n_calls = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (served, stop, n_calls) = (Arc::clone(&served), Arc::clone(&stop), Arc::clone(&n_calls));
            std::thread::spawn(move || {
                let mut last = 0;
                while !stop.load(Ordering::Relaxed) {
                    let now: usize = served.call("t7", &json!({})).parse().unwrap();
                    assert!(now >= last, "an older configuration was served again: {last}, then {now}");
                    last = now;
                    n_calls.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for n in 1..=8 {
        folder.write("toolgate.toml", &config(n, 30));
        wait_until("the change is served", || served.call("t7", &json!({})) == n.to_string());
    }
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.join().unwrap();
    }
    assert!(n_calls.load(Ordering::Relaxed) > 50, "too few calls for a load test: {n_calls:?}");
}

#[test]
fn an_invalid_file_keeps_the_old_configuration_and_logs_why() {
    let folder = TempDir::new();
    let served = RunningServer::new(&folder, &config(1, 2));
    folder.write("toolgate.toml", &(config(2, 2) + "txet = \"x\"\n"));
    served.wait_for("did you mean `text`?", 1);
    assert!(served.log().contains("keeping the old one"));
    assert_eq!(served.call("t0", &json!({})), "1");
    // A file is never applied in part.
    folder.write("toolgate.toml", &config(3, 1).replace("\"3\"", "\"3\"\nhttp = {}"));
    served.wait_for("keeping the old one", 2);
    assert_eq!(served.call("t1", &json!({})), "1");
    folder.write("toolgate.toml", &config(4, 1));
    wait_until("the valid file is served", || served.call("t0", &json!({})) == "4");
    let (_, gone) = served.request("/mcp", &[], "tools/call", &json!({ "name": "t1" }));
    assert!(gone["error"]["message"].is_string(), "a removed tool is unknown: {gone}");
}

#[cfg(unix)]
#[test]
fn sighup_reloads_the_file_and_its_secrets() {
    let folder = TempDir::new();
    folder.write("secrets/token", "one");
    let text = "[auth.a]\nbearer = [\"${file:secrets/token}\"]\n[servers.s]\nauth = \"a\"\n[servers.s.tools.t]\ntext = \"in\"\n";
    let served = RunningServer::new(&folder, text);
    let status = |token: &str| {
        let header = format!("Bearer {token}");
        served.request("/mcp", &[("authorization", &header)], "tools/call", &json!({ "name": "t" })).0
    };
    assert_eq!((status("one"), status("two")), (200, 401));
    folder.write("secrets/token", "two");
    served.signal("-HUP");
    served.wait_for("configuration reloaded", 1);
    assert_eq!((status("one"), status("two")), (401, 200));
    // An empty secret is rejected.
    folder.write("secrets/token", "");
    served.signal("-HUP");
    served.wait_for("is empty", 1);
    assert_eq!((status(""), status("two")), (401, 200));
}

/// Opens a session and returns its id.
fn open_session(served: &RunningServer) -> String {
    let initialize = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let accept = [("accept", "application/json, text/event-stream")];
    let response = send(&served.address, "POST /mcp", &accept, &request(1, "initialize", &initialize));
    let line =
        response.lines().find(|line| line.to_ascii_lowercase().starts_with("mcp-session-id:")).unwrap();
    line.split_once(':').unwrap().1.trim().to_owned()
}

fn count_tools(served: &RunningServer, session: &str) -> (u16, usize) {
    let headers = [
        ("accept", "application/json, text/event-stream"),
        ("mcp-session-id", session),
        ("mcp-protocol-version", "2025-06-18"),
    ];
    let (status, listed) =
        parse_response(&send(&served.address, "POST /mcp", &headers, &request(2, "tools/list", &json!({}))));
    (status, listed["result"]["tools"].as_array().map_or(0, Vec::len))
}

#[test]
fn sessions_survive_a_reload_unless_authorization_changes() {
    let folder = TempDir::new();
    let served = RunningServer::new(&folder, &config(1, 2));
    let session = open_session(&served);
    assert_eq!(count_tools(&served, &session), (200, 2));
    folder.write("toolgate.toml", &config(1, 5));
    served.wait_for("configuration reloaded", 1);
    assert_eq!(count_tools(&served, &session), (200, 5), "the same session sees the new tools");
    folder.write("toolgate.toml", &format!("[security]\nip_allow = [\"127.0.0.1\"]\n{}", config(1, 5)));
    served.wait_for("configuration reloaded", 2);
    assert_eq!(count_tools(&served, &session).0, 404, "sessions end when the guards change");
}

#[test]
fn paths_and_servers_are_added_and_removed() {
    let folder = TempDir::new();
    let served =
        RunningServer::new(&folder, "[servers.a]\npath = \"/a\"\n[servers.a.tools.t]\ntext = \"a\"\n");
    let call = |path: &str| served.request(path, &[], "tools/call", &json!({ "name": "t" }));
    assert_eq!(call("/a").1["result"]["content"][0]["text"], "a");
    folder.write("more/b.toml", "[servers.b]\npath = \"/b\"\n[servers.b.tools.t]\ntext = \"b\"\n");
    folder.write(
        "toolgate.toml",
        "include = \"more/*.toml\"\n[servers.a]\npath = \"/moved\"\n[servers.a.tools.t]\ntext = \"a\"\n",
    );
    wait_until("both are served", || call("/b").1["result"]["content"][0]["text"] == "b");
    assert_eq!((call("/a").0, call("/moved").0), (404, 200));
    // A new file in an included directory triggers a reload.
    folder.write("more/c.toml", "[servers.c]\npath = \"/c\"\n[servers.c.tools.t]\ntext = \"c\"\n");
    wait_until("the third is served", || call("/c").1["result"]["content"][0]["text"] == "c");
    std::fs::remove_file(folder.path().join("more/b.toml")).unwrap();
    wait_until("the second is gone", || call("/b").0 == 404);
}

#[test]
fn file_resources_follow_the_directory() {
    let folder = TempDir::new();
    folder.write("docs/a.md", "one");
    let served = RunningServer::new(
        &folder,
        "servers.s.resources.d.files = { root = \"docs\", uri = \"d:///{path}\" }\n",
    );
    let listed = || -> Vec<Value> {
        let (_, listed) = served.request("/mcp", &[], "resources/list", &json!({}));
        let list = listed["result"]["resources"].as_array().cloned().unwrap_or_default();
        list.iter().map(|resource| resource["uri"].clone()).collect()
    };
    assert_eq!(listed(), [json!("d:///a.md")]);
    folder.write("docs/sub/b.md", "two");
    wait_until("a new file is listed", || listed().contains(&json!("d:///sub/b.md")));
    std::fs::remove_file(folder.path().join("docs/a.md")).unwrap();
    wait_until("a removed file is not", || listed() == [json!("d:///sub/b.md")]);
    let (_, read) = served.request("/mcp", &[], "resources/read", &json!({ "uri": "d:///sub/b.md" }));
    assert_eq!(read["result"]["contents"][0]["text"], "two");
}

/// Reads a stream until it contains the text.
fn read_until(stream: &mut std::net::TcpStream, expected: &str) {
    use std::io::Read as _;
    let (mut received, mut chunk) = (String::new(), [0; 4096]);
    while !received.contains(expected) {
        let n = stream.read(&mut chunk).unwrap_or(0);
        assert_ne!(n, 0, "no {expected:?} in {received:?}");
        received.push_str(&String::from_utf8_lossy(&chunk[..n]));
    }
}

#[test]
fn clients_are_notified_of_files_and_tools() {
    use std::io::Write as _;

    let folder = TempDir::new();
    folder.write("docs/a.md", "one");
    let files = "[servers.s.resources.d]\nfiles = { root = \"docs\", uri = \"d:///{path}\" }\n";
    let served = RunningServer::new(&folder, files);
    let session = open_session(&served);
    let headers = [
        ("accept", "application/json, text/event-stream"),
        ("mcp-session-id", session.as_str()),
        ("mcp-protocol-version", "2025-06-18"),
    ];
    let subscribed = served.request("/mcp", &headers, "resources/subscribe", &json!({ "uri": "d:///a.md" }));
    assert_eq!(subscribed.1["result"], json!({}));
    let mut stream = std::net::TcpStream::connect(&served.address).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    write!(
        stream,
        "GET /mcp HTTP/1.1\r\nhost: {}\r\naccept: text/event-stream\r\nmcp-session-id: {session}\r\nmcp-protocol-version: 2025-06-18\r\n\r\n",
        served.address
    )
    .unwrap();
    folder.write("docs/a.md", "longer");
    read_until(&mut stream, "notifications/resources/updated");
    folder.write("docs/b.md", "two");
    read_until(&mut stream, "notifications/resources/list_changed");
    folder.write("toolgate.toml", &format!("{files}[servers.s.tools.t]\ntext = \"x\"\n"));
    read_until(&mut stream, "notifications/tools/list_changed");
}

#[test]
fn stdio_servers_reload_too() {
    use std::io::{BufRead as _, BufReader, Write as _};

    let folder = TempDir::new();
    let path = folder.write("toolgate.toml", &config(1, 1));
    let mut running = crate::harness::spawn_toolgate(&["stdio", path.to_str().unwrap()]);
    let mut input = running.0.stdin.take().unwrap();
    let mut output = BufReader::new(running.0.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&output.next().unwrap().unwrap()).unwrap();
    let initialize = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    writeln!(input, "{}", request(1, "initialize", &initialize)).unwrap();
    assert_eq!(next()["id"], 1);
    writeln!(input, "{}", json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).unwrap();
    writeln!(input, "{}", request(2, "tools/call", &json!({ "name": "t0" }))).unwrap();
    assert_eq!(next()["result"]["content"][0]["text"], "1");
    folder.write("toolgate.toml", &config(2, 2));
    assert_eq!(next()["method"], "notifications/tools/list_changed");
    writeln!(input, "{}", request(3, "tools/call", &json!({ "name": "t1" }))).unwrap();
    assert_eq!(next()["result"]["content"][0]["text"], "2");
}

#[test]
fn files_referenced_by_an_openapi_description_are_watched() {
    let folder = TempDir::new();
    let spec = |name: &str| {
        format!(
            "openapi: 3.0.0\ninfo: {{ title: t, version: '1' }}\npaths:\n  /a:\n    $ref: 'paths/a.yaml#/{name}'\n"
        )
    };
    let path = |id: &str| {
        format!("a:\n  get:\n    operationId: {id}\n    responses: {{ '200': {{ description: ok }} }}\n")
    };
    folder.write("api/paths/a.yaml", &path("first"));
    folder.write("api/openapi.yaml", &spec("a"));
    let served = RunningServer::new(
        &folder,
        "[servers.s.openapi.api]\nspec = \"api/openapi.yaml\"\nbase = \"http://127.0.0.1:9\"\n[security.egress]\ndeny_private = false\n",
    );
    let names = || {
        let (_, response) = served.request("/mcp", &[], "tools/list", &json!({}));
        response["result"]["tools"].to_string()
    };
    assert!(names().contains("first"), "{}", names());
    folder.write("api/paths/a.yaml", &path("second"));
    wait_until("the other file is served", || names().contains("second"));
    // An invalid file is logged and can be corrected.
    folder.write("api/paths/a.yaml", "a: [");
    std::thread::sleep(std::time::Duration::from_millis(300));
    folder.write("api/paths/a.yaml", &path("third"));
    wait_until("the corrected file is served", || names().contains("third"));
}

/// A configuration rejected for a missing file is served once the file exists.
#[test]
fn a_file_that_was_missing_is_waited_for() {
    let folder = TempDir::new();
    let served = RunningServer::new(&folder, &config(0, 1));
    let wait_for_version =
        |n: usize| wait_until("the change is served", || served.call("t0", &json!({})) == n.to_string());
    let mut n_rejected = 0;
    for (n, more, file, text) in [
        (1, "[servers.s.resources.r]\nuri = \"r://r\"\nfile = \"LICENSE\"\n", "LICENSE", "free"),
        (2, "[servers.s.prompts.p]\nfile = \"not/yet/there.md\"\n", "not/yet/there.md", "Hello"),
        (
            3,
            "[connections.c]\nhttp = \"https://example.org\"\nheaders = { x = \"${file:run/key}\" }\n",
            "run/key",
            "k",
        ),
    ] {
        folder.write("toolgate.toml", &(config(n, 1) + more));
        n_rejected += 1;
        served.wait_for("keeping the old one", n_rejected);
        assert_eq!(served.call("t0", &json!({})), (n - 1).to_string());
        folder.write(file, text);
        wait_for_version(n);
        n_rejected = served.log().matches("keeping the old one").count();
    }
    // This also applies to the configuration file.
    std::fs::remove_file(folder.path().join("toolgate.toml")).unwrap();
    served.wait_for("keeping the old one", n_rejected + 1);
    folder.write("toolgate.toml", &config(4, 1));
    wait_for_version(4);
}

#[cfg(unix)]
#[test]
fn a_program_that_becomes_executable_is_served() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = TempDir::new();
    let served = RunningServer::new(&folder, &config(0, 1));
    let script = folder.write("run.sh", "#!/bin/sh\necho ran\n");
    folder.write("toolgate.toml", "[servers.s.tools.t0]\ncommand = { argv = [\"./run.sh\"] }\n");
    served.wait_for("is not executable", 1);
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    wait_until("the program is served", || served.call("t0", &json!({})) == "ran");
}
