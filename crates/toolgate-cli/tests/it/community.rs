//! Users of a site: the site says who they are, and what cannot be asked about lets nobody in.

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

/// A site that knows a few, one request a connection. Whatever comes for `mallory` is answered with what it knows of the
/// administrator, as something careless between us might do.
fn start_site() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, heard) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let noted = Arc::clone(&heard);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                head.push(byte[0]);
            }
            let head = text(&head);
            let given =
                head.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap_or("nobody");
            let line = head.lines().next().unwrap_or_default().to_owned();
            noted.lock().unwrap().push(format!("{line} as {given}"));
            let user = |id: u64, name: &str, is_admin: bool| json!({ "id": id, "username": name, "capabilities": { "manage_options": is_admin } });
            let (status, body) = match (line.contains("/wp/v2/users/me?context=edit "), given) {
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
    (format!("http://{address}"), heard)
}

fn example_config() -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join("examples/buddyboss.toml")).unwrap()
}

#[test]
fn the_example_is_right_without_a_site() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let checked = run(&root, &["check", "examples/buddyboss.toml"]);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    assert!(text(&checked.stdout).contains("65 tools"), "{}", text(&checked.stdout));
    let folder = TempDir::new();
    // Nobody listens there: nobody can be asked, and so nobody comes in.
    let served = RunningServer::with(&folder, &example_config(), &[], &[("WP_URL", "http://127.0.0.1:9")]);
    let asked = |headers: &[(&str, &str)]| {
        parse_response(&send(&served.address, &format!("POST {PATH}"), headers, PING))
    };
    assert_eq!(asked(&[("authorization", ADMIN)]).0, 503);
    assert_eq!(asked(&[]).0, 401);
}

#[test]
fn a_site_says_who_comes_in() {
    let (folder, (url, heard)) = (TempDir::new(), start_site());
    let served = RunningServer::with(&folder, &example_config(), &[], &[("WP_URL", &url)]);
    let asked = |who: &str, body: &str| -> (u16, Value) {
        parse_response(&send(&served.address, &format!("POST {PATH}"), &[("authorization", who)], body))
    };
    assert_eq!(asked(SPACED, PING), (200, json!({ "jsonrpc": "2.0", "id": 1, "result": {} })));
    let (status, said) = asked(EDITOR, PING);
    assert_eq!((status, &said["message"]), (403, &json!("Insufficient permissions.")));
    let (status, said) = asked("Basic bm9ib2R5Ong=", PING);
    assert_eq!((status, &said["message"]), (401, &json!("user or password is wrong")), "not which of them");
    assert_eq!(asked(MALLORY, PING).0, 401, "a success that is somebody else's proves nothing");
    assert_eq!(asked(SITE_ERROR, PING).0, 503);
    // Each request is made as its caller, and the site is asked once who that is.
    heard.lock().unwrap().clear();
    for _ in 0..3 {
        let call =
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"buddyboss_list_friends"}}"#;
        assert_eq!(asked(ADMIN, call).1["result"]["content"][0]["text"], r#"[{"id":1}]"#);
    }
    let heard = heard.lock().unwrap().clone();
    let n_asked = heard.iter().filter(|line| line.contains("users/me")).count();
    assert_eq!((n_asked, heard.len()), (1, 4), "{heard:?}");
    assert!(heard.iter().all(|line| line.ends_with(ADMIN)), "{heard:?}");
    assert!(heard[1].contains("/wp-json/buddyboss/v1/friends?page=1&per_page=20&user_id=1 "), "{heard:?}");
    assert!(!served.log().contains("abcdef") && !served.log().contains("YWRtaW46"), "{}", served.log());
}
