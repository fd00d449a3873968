//! `toolgate::main!` from the command line: the examples `hello` and `macros`, as processes.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

/// Returns the example, built next to this test; it may not be built if only one test is run.
fn example_command(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let directory = test.parent().and_then(|deps| deps.parent()).unwrap();
    let program = directory.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    if !program.exists() {
        let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let target = directory.parent().unwrap();
        let built = Command::new(env!("CARGO"))
            .args(["build", "--example", name, "--manifest-path"])
            .arg(manifest)
            .arg("--target-dir")
            .arg(target)
            .status();
        assert!(built.unwrap().success());
    }
    let mut command = Command::new(program);
    command.env_remove("MCP_SERVER_NAME").stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Sends one line, and returns all output until the program ends.
fn run_with_line(mut command: Command, line: &str) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn request(method: &str, mut params: Value) -> String {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

#[test]
fn hello_serves_the_client_that_started_it() {
    let call = request("tools/call", json!({ "name": "greet", "arguments": { "name": "Ann" } }));
    let mut plain = example_command("hello");
    plain.env("MCP_SERVER_NAME", " ");
    let mut named = example_command("hello");
    named.args(["--stdio", "--server", "nobody", "toolgate"]).env("MCP_SERVER_NAME", "nobody either");
    for command in [plain, named] {
        let output = run_with_line(command, &call);
        assert!(output.status.success(), "{}", text(&output.stderr));
        // Only the response is printed; name and version are those of the compiled package.
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["result"]["content"][0]["text"], "Hello, Ann!");
        let info = &answer["result"]["_meta"]["io.modelcontextprotocol/serverInfo"];
        assert_eq!(
            (&info["name"], &info["version"]),
            (&json!("toolgate"), &json!(env!("CARGO_PKG_VERSION")))
        );
        assert_eq!(info["description"], env!("CARGO_PKG_DESCRIPTION"));
    }
}

#[test]
fn a_program_serves_an_impl_block_and_linked_items() {
    let output = run_with_line(example_command("macros"), &request("tools/list", json!({})));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let tools = answer["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["add", "newest", "count", "whoami"]);
}

#[test]
fn a_wrong_command_line_exits_with_two() {
    for (arguments, named, expected) in [
        (vec!["--htpp", ":1"], "", "unknown option `--htpp`"),
        (vec!["--http", "nowhere"], "", "`nowhere` is not an address"),
        (vec!["ghost"], "", "there is no server `ghost`; there is `toolgate`"),
        (vec!["--server", "ghost"], "", "there is no server `ghost`"),
        (vec![], "ghost", "there is no server `ghost`"),
    ] {
        let output =
            example_command("hello").args(&arguments).env("MCP_SERVER_NAME", named).output().unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(output.stdout.is_empty() && message.contains(expected), "{arguments:?}: {message}");
    }
}

#[test]
fn help_and_version_are_printed() {
    let help = text(&example_command("hello").arg("--help").output().unwrap().stdout);
    for part in ["usage: hello", "--stdio", "--http", "--server", "MCP_SERVER_NAME"] {
        assert!(help.contains(part), "{help}");
    }
    let version = example_command("hello").arg("--version").output().unwrap();
    assert_eq!(text(&version.stdout), concat!("toolgate ", env!("CARGO_PKG_VERSION")));
}

#[test]
#[cfg(feature = "http")]
fn http_is_served_at_the_printed_address() {
    let mut child = example_command("hello").args(["--http", ":0"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on http://").and_then(|rest| rest.strip_suffix("/mcp"));
    let address = address.unwrap_or_else(|| panic!("unexpected line {line:?}"));
    assert!(address.starts_with("127.0.0.1:"), "only this machine: {address}");
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"greet\""), "{answer}");
}
