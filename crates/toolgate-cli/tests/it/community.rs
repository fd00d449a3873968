//! Users of a WordPress site: the site authenticates them, and if it cannot be reached nobody is let in.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::harness::{RunningServer, TempDir, parse_response, run, send, text};

const PATH: &str = "/wp-json/buddyboss-mcp/v1/mcp";
const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
/// `admin:abcdef`, `admin:ab cd ef`, `editor:pw`, `mallory:x`, `late:x`.
const ADMIN: &str = "Basic YWRtaW46YWJjZGVm";
const SPACED: &str = "Basic YWRtaW46YWIgY2QgZWY=";
const EDITOR: &str = "Basic ZWRpdG9yOnB3";
const MALLORY: &str = "Basic bWFsbG9yeTp4";
const SITE_ERROR: &str = "Basic bGF0ZTp4";

/// A site with a few users and one request per connection. Requests of `mallory` get the administrator's user, as a
/// misconfigured cache between the two programs might respond.
fn start_site() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, requests) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let log = Arc::clone(&requests);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                head.push(byte[0]);
            }
            let head = text(&head);
            let credentials =
                head.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap_or("nobody");
            let line = head.lines().next().unwrap_or_default().to_owned();
            log.lock().unwrap().push(format!("{line} as {credentials}"));
            let user = |id: u64, name: &str, is_admin: bool| json!({ "id": id, "username": name, "capabilities": { "manage_options": is_admin } });
            let (status, body) = match (line.contains("/wp/v2/users/me?context=edit "), credentials) {
                (false, _) => (200, json!([{ "id": 1 }])),
                (true, ADMIN | MALLORY) => (200, user(1, "admin", true)),
                (true, EDITOR) => (200, user(2, "editor", false)),
                (true, SITE_ERROR) => (500, json!({})),
                _ => (401, json!({ "code": "invalid_username", "message": "<strong>no</strong> such user" })),
            };
            let body = body.to_string();
            let _ = write!(
                stream,
                "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    (format!("http://{address}"), requests)
}

fn example_config() -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join("examples/buddyboss.toml")).unwrap()
}

#[test]
fn the_example_is_valid_without_a_site() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let checked = run(&root, &["check", "examples/buddyboss.toml"]);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    assert!(text(&checked.stdout).contains("65 tools"), "{}", text(&checked.stdout));
    let folder = TempDir::new();
    // Nothing listens on this port: users cannot be authenticated and are rejected.
    let served = RunningServer::with(&folder, &example_config(), &[], &[("WP_URL", "http://127.0.0.1:9")]);
    let ping = |headers: &[(&str, &str)]| {
        parse_response(&send(&served.address, &format!("POST {PATH}"), headers, PING))
    };
    assert_eq!(ping(&[("authorization", ADMIN)]).0, 503);
    assert_eq!(ping(&[]).0, 401);
}

#[test]
fn the_site_authenticates_users() {
    let (folder, (url, requests)) = (TempDir::new(), start_site());
    let served = RunningServer::with(&folder, &example_config(), &[], &[("WP_URL", &url)]);
    let post_as = |authorization: &str, body: &str| -> (u16, Value) {
        parse_response(&send(
            &served.address,
            &format!("POST {PATH}"),
            &[("authorization", authorization)],
            body,
        ))
    };
    assert_eq!(post_as(SPACED, PING), (200, json!({ "jsonrpc": "2.0", "id": 1, "result": {} })));
    let (status, body) = post_as(EDITOR, PING);
    assert_eq!((status, &body["message"]), (403, &json!("Insufficient permissions.")));
    let (status, body) = post_as("Basic bm9ib2R5Ong=", PING);
    assert_eq!(
        (status, &body["message"]),
        (401, &json!("user or password is wrong")),
        "the message does not say which of them"
    );
    assert_eq!(post_as(MALLORY, PING).0, 401, "a response about another user does not authenticate");
    assert_eq!(post_as(SITE_ERROR, PING).0, 503);
    // Each request uses the credentials of its caller, and the user is looked up once.
    requests.lock().unwrap().clear();
    for _ in 0..3 {
        let call =
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"buddyboss_list_friends"}}"#;
        assert_eq!(post_as(ADMIN, call).1["result"]["content"][0]["text"], r#"[{"id":1}]"#);
    }
    let requests = requests.lock().unwrap().clone();
    let n_lookups = requests.iter().filter(|line| line.contains("users/me")).count();
    assert_eq!((n_lookups, requests.len()), (1, 4), "{requests:?}");
    assert!(requests.iter().all(|line| line.ends_with(ADMIN)), "{requests:?}");
    assert!(
        requests[1].contains("/wp-json/buddyboss/v1/friends?page=1&per_page=20&user_id=1 "),
        "{requests:?}"
    );
    assert!(!served.log().contains("abcdef") && !served.log().contains("YWRtaW46"), "{}", served.log());
}
