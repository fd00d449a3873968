//! The program, run as a user runs it.

// A test that cannot go on says so by panicking, in helpers too.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// A running program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn toolgate(arguments: &[&str]) -> Running {
    let child = Command::new(env!("CARGO_BIN_EXE_toolgate"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    Running(child)
}

fn request(id: u64, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

/// The welcome text, up to its last line, and the address in it.
fn welcome(running: &mut Running) -> (String, String) {
    let mut lines = BufReader::new(running.0.stderr.take().unwrap());
    let mut text = String::new();
    while !text.contains("Ctrl-C") {
        assert_ne!(lines.read_line(&mut text).unwrap(), 0, "ended early:\n{text}");
    }
    // Keeps the pipe open and empty while the program lives.
    std::thread::spawn(move || lines.read_to_end(&mut Vec::new()));
    let address = text.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    (text, address)
}

fn post(address: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn without_arguments_it_serves_the_demo_and_what_it_prints_works() {
    let mut running = toolgate(&["--listen", "127.0.0.1:0"]);
    let (text, address) = welcome(&mut running);
    let body = text.lines().find_map(|line| line.trim().strip_prefix("-d '")?.strip_suffix('\'')).unwrap();
    let answer = post(&address, body);
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains(r#""text":"hello""#), "{answer}");
}

#[cfg(unix)]
#[test]
fn it_ends_well_when_asked_to() {
    let mut running = toolgate(&["serve", "--listen", "127.0.0.1:0"]);
    welcome(&mut running);
    let pid = running.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(running.0.wait().unwrap().success());
}

#[test]
fn over_stdio_it_answers_lines_and_ends_with_its_input() {
    let mut running = toolgate(&["stdio"]);
    let mut input = running.0.stdin.take().unwrap();
    let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    writeln!(input, "{}", request(1, "initialize", &hello)).unwrap();
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
    let answers: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers[0]["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(answers[1]["error"]["code"], -32700);
    assert_eq!(answers[2]["result"]["structuredContent"]["sum"], 3.0);
    assert!(running.0.wait().unwrap().success());
}

#[test]
fn an_address_in_use_is_explained() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut running = toolgate(&["--listen", &address]);
    let mut said = String::new();
    running.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!running.0.wait().unwrap().success());
    assert!(said.contains(&address) && said.contains("--listen 127.0.0.1:0"), "{said}");
}
