//! Integration tests that run the `toolgate` program as a user runs it.

// Tests and their helpers may panic.
#![allow(clippy::unwrap_used)]

mod catalog;
mod commands;
mod community;
mod errors;
mod harness;
mod limits;
mod reload;
mod runtime;
mod serve;
mod sources;
mod storage;

use std::io::{Read, Write};
use std::process::Command;

use serde_json::{Value, json};

use harness::{post, read_startup_text, request, spawn_toolgate};

#[test]
fn without_arguments_it_serves_the_demo_and_the_printed_request_works() {
    let mut running = spawn_toolgate(&["--listen", "127.0.0.1:0"]);
    let (text, address) = read_startup_text(&mut running);
    let body = text.lines().find_map(|line| line.trim().strip_prefix("-d '")?.strip_suffix('\'')).unwrap();
    let response = post(&address, body);
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
    assert!(response.contains(r#""text":"hello""#), "{response}");
}

#[cfg(unix)]
#[test]
fn sigterm_ends_it_with_success() {
    let mut running = spawn_toolgate(&["serve", "--listen", "127.0.0.1:0"]);
    read_startup_text(&mut running);
    let pid = running.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(running.0.wait().unwrap().success());
}

#[test]
fn over_stdio_it_responds_to_lines_and_ends_at_eof() {
    let mut running = spawn_toolgate(&["stdio"]);
    let mut input = running.0.stdin.take().unwrap();
    let initialize = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    writeln!(input, "{}", request(1, "initialize", &initialize)).unwrap();
    writeln!(input, "not json").unwrap();
    writeln!(
        input,
        "{}",
        request(2, "tools/call", &json!({ "name": "add", "arguments": { "a": 1, "b": 2 } }))
    )
    .unwrap();
    drop(input);
    let mut output = String::new();
    running.0.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    let responses: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(responses[0]["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(responses[1]["error"]["code"], -32700);
    assert_eq!(responses[2]["result"]["structuredContent"]["sum"], 3.0);
    assert!(running.0.wait().unwrap().success());
}

#[test]
fn an_address_in_use_is_explained() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut running = spawn_toolgate(&["--listen", &address]);
    let mut stderr = String::new();
    running.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(!running.0.wait().unwrap().success());
    assert!(stderr.contains(&address) && stderr.contains("--listen 127.0.0.1:0"), "{stderr}");
}
