//! Plays the transcripts of this directory with the library's own player, against the fixture.
//!
//! Extensions for these transcripts are here: the options after `@ stdio` and `@ http` (see `fixture::Options`), and the
//! actions `give`, `take`, `count`, `changed` and a few more.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use toolgate::testing::http_request;
use toolgate::testing::transcript::{Transcript, TranscriptHost};
use toolgate::{Principal, Server};

pub(crate) use toolgate::testing::HttpExchange;

use crate::fixture::{self, NamedSemaphores, Options};

/// The time limit for expected events. Only reached by failures.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);

/// Plays every transcript of a topic and reports all failures.
pub(crate) async fn play_all(topic: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/transcripts");
    let mut files: Vec<PathBuf> = std::fs::read_dir(root.join(topic))
        .unwrap_or_else(|error| panic!("no transcripts of {topic}: {error}"))
        .map(|entry| entry.expect("a directory can be read to its end").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no transcripts of {topic}");
    let prelude = std::fs::read_to_string(root.join("prelude.txt")).expect("the prelude is there");
    let mut failures = Vec::new();
    for file in files {
        let name = file.strip_prefix(&root).unwrap_or(&file).display();
        let transcript = Transcript::file(&file).expect("a transcript is text");
        let transcript = transcript.named(format!("transcripts/{name}")).prelude(&prelude);
        let played = transcript.play_with(FixtureHost::default).await;
        failures.extend(played.err().map(|failure| failure.to_string()));
    }
    assert!(failures.is_empty(), "\n\n{}\n", failures.join("\n\n"));
}

/// The server of one transcript, and its semaphores.
#[derive(Default)]
struct FixtureHost {
    options: Options,
    running: Option<(Server, NamedSemaphores)>,
}

impl TranscriptHost for FixtureHost {
    fn option(&mut self, option: &str) -> Result<(), String> {
        self.options.set(option).ok_or_else(|| format!("no such option: {option}"))
    }

    fn open_server(&mut self) -> Result<Server, String> {
        let (server, stage) = fixture::serve(&self.options);
        self.running = Some((server.clone(), stage));
        Ok(server)
    }

    async fn run_action(&mut self, action: &[&str]) -> Result<(), String> {
        let (server, stage) = self.running.as_ref().ok_or("there is no server yet")?;
        match *action {
            ["give", name] => stage.add_permit(name),
            ["take", name] => {
                let taken = tokio::time::timeout(STEP_TIMEOUT, stage.acquire(name)).await;
                taken.map_err(|_| format!("no handler gave `{name}`"))?;
            }
            ["count", name, wanted] => {
                let count = stage.available_permits(name);
                if wanted != count.to_string() {
                    return Err(format!("expected {wanted} × `{name}`, got {count}"));
                }
            }
            ["shut_down"] => server.shutdown(),
            ["until", who, wanted, task] => {
                let shown =
                    tokio::time::timeout(STEP_TIMEOUT, wait_for_task(server, who, wanted, task)).await;
                shown.map_err(|_| format!("task {task} never showed {wanted}"))??;
            }
            ["add_tool", name] => {
                server.add_tool(fixture::added_tool(name)).map_err(|error| error.to_string())?;
            }
            ["remove_tool", name] => {
                if !server.remove_tool(name) {
                    return Err(format!("there is no tool {name}"));
                }
            }
            ["changed", "tools"] => server.notify().tools_changed(),
            ["changed", "prompts"] => server.notify().prompts_changed(),
            ["changed", "resources"] => server.notify().resources_changed(),
            ["changed", uri] => server.notify().resource_updated(uri),
            _ => return Err(format!("no such action: {}", action.join(" "))),
        }
        Ok(())
    }
}

/// Polls a task until it has the expected status: as a client of the newest version, as one that sends no version, or in a
/// session.
async fn wait_for_task(server: &Server, who: &str, wanted: &str, task: &str) -> Result<(), String> {
    let modern = who == "modern";
    let meta = r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;
    let meta = if modern { meta } else { "" };
    let body =
        format!(r#"{{"jsonrpc":"2.0","id":0,"method":"tasks/get","params":{{"taskId":"{task}"{meta}}}}}"#);
    let headers: Vec<(String, String)> = match who {
        "modern" => [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tasks/get"), ("mcp-name", task)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        "bare" => Vec::new(),
        session => vec![("mcp-session-id".to_owned(), session.to_owned())],
    };
    loop {
        let request = build_request("POST", "/mcp", &headers, None, body.clone().into())?;
        let shown = HttpExchange::start(server.clone().into_service(), request).body().await?;
        if shown.contains(wanted) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Creates a request with these headers and those that every client sends.
pub(crate) fn build_request(
    method: &str,
    path: &str,
    headers: &[(String, String)],
    principal: Option<Principal>,
    body: Vec<u8>,
) -> Result<http::Request<String>, String> {
    let body = String::from_utf8(body).map_err(|error| error.to_string())?;
    let mut request = http_request(method, path, headers.iter().map(|(name, value)| (name, value)), body);
    if let Some(principal) = principal {
        request.extensions_mut().insert(principal);
    }
    Ok(request)
}

/// Reads everything from a reader, for tests with sockets.
pub(crate) async fn read_to_end(mut reader: impl tokio::io::AsyncRead + Unpin) -> String {
    let mut text = Vec::new();
    let read = tokio::time::timeout(STEP_TIMEOUT, reader.read_to_end(&mut text)).await;
    read.expect("the connection ends in time").expect("the connection can be read");
    String::from_utf8(text).expect("HTTP is text here")
}
