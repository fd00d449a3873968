//! Test helpers: a running program, a temporary directory, and raw HTTP requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A child process that is killed when dropped.
pub(crate) struct ChildGuard(pub(crate) Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_toolgate"))
}

pub(crate) fn spawn_toolgate(arguments: &[&str]) -> ChildGuard {
    let child = program()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    ChildGuard(child)
}

/// Runs the program until it exits.
pub(crate) fn run(folder: &Path, arguments: &[&str]) -> Output {
    program().current_dir(folder).args(arguments).stdin(Stdio::null()).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn request(id: u64, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

/// Reads the startup text up to its last line. Returns it with the address in it.
pub(crate) fn read_startup_text(running: &mut ChildGuard) -> (String, String) {
    let mut lines = BufReader::new(running.0.stderr.take().unwrap());
    let mut text = String::new();
    while !text.contains("Ctrl-C") {
        assert_ne!(lines.read_line(&mut text).unwrap(), 0, "ended early:\n{text}");
    }
    // Drains the pipe while the program runs.
    std::thread::spawn(move || lines.read_to_end(&mut Vec::new()));
    let address = text.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    (text, address)
}

pub(crate) fn post(address: &str, body: &str) -> String {
    send(address, "POST /mcp", &[], body)
}

/// Sends a request with these headers, and reads until the connection is closed.
pub(crate) fn send(address: &str, line: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    write!(
        stream,
        "{line} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

/// Returns the status and the JSON body of a response.
pub(crate) fn parse_response(response: &str) -> (u16, Value) {
    let status = response.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = response.split("\r\n\r\n").nth(1).unwrap_or_default();
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

/// A temporary directory that is removed when dropped.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> TempDir {
        static NEXT_ID: AtomicUsize = AtomicUsize::new(0);
        let name = format!("toolgate-it-{}-{}", std::process::id(), NEXT_ID.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file atomically, as editors do.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let temporary = path.with_extension("new");
        std::fs::write(&temporary, text).unwrap();
        std::fs::rename(&temporary, &path).unwrap();
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running `toolgate serve` with a configuration.
pub(crate) struct RunningServer {
    pub(crate) child: ChildGuard,
    pub(crate) address: String,
    log: Arc<Mutex<String>>,
}

impl RunningServer {
    pub(crate) fn new(folder: &TempDir, text: &str) -> RunningServer {
        RunningServer::with(folder, text, &[], &[])
    }

    pub(crate) fn with(
        folder: &TempDir,
        text: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> RunningServer {
        folder.write("toolgate.toml", text);
        let mut child = program()
            .current_dir(folder.path())
            .args(["serve", "toolgate.toml", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut first = String::new();
        while !first.contains("http://") {
            assert_ne!(lines.read_line(&mut first).unwrap(), 0, "ended early:\n{first}");
        }
        let address = first.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
        let log = Arc::new(Mutex::new(first));
        let log_writer = Arc::clone(&log);
        std::thread::spawn(move || {
            let mut line = String::new();
            while lines.read_line(&mut line).is_ok_and(|n| n > 0) {
                log_writer.lock().unwrap().push_str(&std::mem::take(&mut line));
            }
        });
        RunningServer { child: ChildGuard(child), address, log }
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until the log contains the text this many times.
    pub(crate) fn wait_for(&self, expected: &str, times: usize) {
        let started = Instant::now();
        while self.log().matches(expected).count() < times {
            assert!(
                started.elapsed() < Duration::from_secs(10),
                "no {expected:?}, {times} times, in:\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn request(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        method: &str,
        params: &Value,
    ) -> (u16, Value) {
        parse_response(&send(&self.address, &format!("POST {path}"), headers, &request(1, method, params)))
    }

    pub(crate) fn call(&self, tool: &str, arguments: &Value) -> String {
        let params = json!({ "name": tool, "arguments": arguments });
        let (status, response) = self.request("/mcp", &[], "tools/call", &params);
        assert_eq!(status, 200, "{response}");
        response["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
    }

    #[cfg(unix)]
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.0.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }
}

pub(crate) fn wait_until(description: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(10), "timed out after 10 s: {description}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
