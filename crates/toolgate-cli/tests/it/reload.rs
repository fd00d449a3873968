//! A configuration that changes while it is served.

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
                    assert!(now >= last, "the old one never comes back: {last} and then {now}");
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
    assert!(n_calls.load(Ordering::Relaxed) > 50, "there was load: {n_calls:?}");
}

#[test]
fn a_bad_file_leaves_the_old_one_in_use_and_says_why() {
    let folder = TempDir::new();
    let served = RunningServer::new(&folder, &config(1, 2));
    folder.write("toolgate.toml", &(config(2, 2) + "txet = \"x\"\n"));
    served.wait_for("did you mean `text`?", 1);
    assert!(served.log().contains("keeping the old one"));
    assert_eq!(served.call("t0", &json!({})), "1");
    // One part of a file is not served without the others.
    folder.write("toolgate.toml", &config(3, 1).replace("\"3\"", "\"3\"\nhttp = {}"));
    served.wait_for("keeping the old one", 2);
    assert_eq!(served.call("t1", &json!({})), "1");
    folder.write("toolgate.toml", &config(4, 1));
    wait_until("the good one is served", || served.call("t0", &json!({})) == "4");
    let (_, gone) = served.request("/mcp", &[], "tools/call", &json!({ "name": "t1" }));
    assert!(gone["error"]["message"].is_string(), "what is not there any more is gone: {gone}");
}

#[cfg(unix)]
#[test]
fn a_hangup_reads_it_again_and_new_secrets_with_it() {
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
    // An empty secret opens nothing.
    folder.write("secrets/token", "");
    served.signal("-HUP");
    served.wait_for("is empty", 1);
    assert_eq!((status(""), status("two")), (401, 200));
}

/// Opens a session, and gives its name.
fn open_session(served: &RunningServer) -> String {
    let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let accept = [("accept", "application/json, text/event-stream")];
    let whole = send(&served.address, "POST /mcp", &accept, &request(1, "initialize", &hello));
    let line = whole.lines().find(|line| line.to_ascii_lowercase().starts_with("mcp-session-id:")).unwrap();
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
fn clients_stay_connected_unless_who_may_call_changes() {
    let folder = TempDir::new();
    let served = RunningServer::new(&folder, &config(1, 2));
    let session = open_session(&served);
    assert_eq!(count_tools(&served, &session), (200, 2));
    folder.write("toolgate.toml", &config(1, 5));
    served.wait_for("configuration reloaded", 1);
    assert_eq!(count_tools(&served, &session), (200, 5), "the same session sees the new tools");
    folder.write("toolgate.toml", &format!("[security]\nip_allow = [\"127.0.0.1\"]\n{}", config(1, 5)));
    served.wait_for("configuration reloaded", 2);
    assert_eq!(count_tools(&served, &session).0, 404, "other guards are another server");
}

#[test]
fn paths_and_servers_come_and_go() {
    let folder = TempDir::new();
    let served =
        RunningServer::new(&folder, "[servers.a]\npath = \"/a\"\n[servers.a.tools.t]\ntext = \"a\"\n");
    let ask = |path: &str| served.request(path, &[], "tools/call", &json!({ "name": "t" }));
    assert_eq!(ask("/a").1["result"]["content"][0]["text"], "a");
    folder.write("more/b.toml", "[servers.b]\npath = \"/b\"\n[servers.b.tools.t]\ntext = \"b\"\n");
    folder.write(
        "toolgate.toml",
        "include = \"more/*.toml\"\n[servers.a]\npath = \"/moved\"\n[servers.a.tools.t]\ntext = \"a\"\n",
    );
    wait_until("both are served", || ask("/b").1["result"]["content"][0]["text"] == "b");
    assert_eq!((ask("/a").0, ask("/moved").0), (404, 200));
    // A new file in a folder that is included is a change too.
    folder.write("more/c.toml", "[servers.c]\npath = \"/c\"\n[servers.c.tools.t]\ntext = \"c\"\n");
    wait_until("the third is served", || ask("/c").1["result"]["content"][0]["text"] == "c");
    std::fs::remove_file(folder.path().join("more/b.toml")).unwrap();
    wait_until("the second is gone", || ask("/b").0 == 404);
}

#[test]
fn files_are_followed() {
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

/// Reads a stream until it has said this.
fn read_until(stream: &mut std::net::TcpStream, words: &str) {
    use std::io::Read as _;
    let (mut heard, mut chunk) = (String::new(), [0; 4096]);
    while !heard.contains(words) {
        let n = stream.read(&mut chunk).unwrap_or(0);
        assert_ne!(n, 0, "no {words:?} in {heard:?}");
        heard.push_str(&String::from_utf8_lossy(&chunk[..n]));
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
fn over_stdio_it_is_served_anew_too() {
    use std::io::{BufRead as _, BufReader, Write as _};

    let folder = TempDir::new();
    let path = folder.write("toolgate.toml", &config(1, 1));
    let mut running = crate::harness::spawn_toolgate(&["stdio", path.to_str().unwrap()]);
    let mut input = running.0.stdin.take().unwrap();
    let mut output = BufReader::new(running.0.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&output.next().unwrap().unwrap()).unwrap();
    let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    writeln!(input, "{}", request(1, "initialize", &hello)).unwrap();
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
fn files_that_a_description_refers_to_are_looked_at_too() {
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
        let (_, answer) = served.request("/mcp", &[], "tools/list", &json!({}));
        answer["result"]["tools"].to_string()
    };
    assert!(names().contains("first"), "{}", names());
    folder.write("api/paths/a.yaml", &path("second"));
    wait_until("the other file is served", || names().contains("second"));
    // One that makes no sense is told, and what was there stays or is left out; it can be mended.
    folder.write("api/paths/a.yaml", "a: [");
    std::thread::sleep(std::time::Duration::from_millis(300));
    folder.write("api/paths/a.yaml", &path("third"));
    wait_until("the mended file is served", || names().contains("third"));
}

/// What was refused for want of a file is served when the file is there.
#[test]
fn a_file_that_was_missing_is_waited_for() {
    let folder = TempDir::new();
    let served = RunningServer::new(&folder, &config(0, 1));
    let says =
        |n: usize| wait_until("the change is served", || served.call("t0", &json!({})) == n.to_string());
    let mut n_refused = 0;
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
        n_refused += 1;
        served.wait_for("keeping the old one", n_refused);
        assert_eq!(served.call("t0", &json!({})), (n - 1).to_string());
        folder.write(file, text);
        says(n);
        n_refused = served.log().matches("keeping the old one").count();
    }
    // So is the configuration itself.
    std::fs::remove_file(folder.path().join("toolgate.toml")).unwrap();
    served.wait_for("keeping the old one", n_refused + 1);
    folder.write("toolgate.toml", &config(4, 1));
    says(4);
}

#[cfg(unix)]
#[test]
fn a_program_that_becomes_one_is_served() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = TempDir::new();
    let served = RunningServer::new(&folder, &config(0, 1));
    let script = folder.write("run.sh", "#!/bin/sh\necho ran\n");
    folder.write("toolgate.toml", "[servers.s.tools.t0]\ncommand = { argv = [\"./run.sh\"] }\n");
    served.wait_for("is not executable", 1);
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    wait_until("the program is served", || served.call("t0", &json!({})) == "ran");
}
