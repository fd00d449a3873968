//! The servers under test: the example `everything` (or another program with its arguments) for other implementations, and
//! the examples `boxlang` and `erlmcp` and the program itself for the checks of the seeds.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::Workspace;
use crate::process::{self, ChildGuard, OutputMode};

/// The server for third-party clients and the conformance suite.
pub(crate) const EVERYTHING: &str = "everything";
/// The server for the checks of the first two documents.
pub(crate) const BOXLANG: &str = "boxlang";
/// The server for the checks of the third document.
pub(crate) const ERLMCP: &str = "erlmcp";
const BUILD_TIMEOUT: Duration = Duration::from_secs(20 * 60);
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A server program; `Err` is the reason why it is not available.
pub(crate) struct Fixture {
    program: Result<PathBuf, String>,
    /// Whether it is one of our examples, which have more arguments than other programs.
    pub(crate) is_example: bool,
}

impl Fixture {
    pub(crate) fn new(server: Option<&str>, example: &str, workspace: &Workspace) -> Self {
        match server {
            Some(program) => Self { program: Ok(program.into()), is_example: false },
            None => Self::build_example(example, workspace),
        }
    }

    /// Builds the example with the packages and features of the tests, so that little is built twice.
    pub(crate) fn build_example(example: &str, workspace: &Workspace) -> Self {
        Self::build("--example", example, workspace)
    }

    /// Builds the program.
    pub(crate) fn build_program(workspace: &Workspace) -> Self {
        Self::build("--bin", "toolgate", workspace)
    }

    fn build(kind: &str, name: &str, workspace: &Workspace) -> Self {
        println!("\nbuilding `{name}`");
        let mut build = crate::rust::cargo(workspace);
        build.args(["build", "--workspace", "--all-features", kind, name]);
        build.args(["--message-format", "json-render-diagnostics"]);
        let program = match process::run(&mut build, BUILD_TIMEOUT, OutputMode::Quiet) {
            Ok(finished) if finished.is_success() => executable(&finished.stdout, name)
                .ok_or_else(|| format!("cargo named no executable for `{name}`")),
            Ok(finished) => {
                eprint!("{}", finished.stderr);
                Err(format!("`{name}` does not build: {}", finished.failure_summary()))
            }
            Err(error) => Err(format!("cannot run cargo: {error}")),
        };
        Self { program, is_example: true }
    }

    pub(crate) fn program(&self) -> Result<&Path, String> {
        self.program.as_deref().map_err(Clone::clone)
    }

    /// Starts the server with these arguments, which make it listen. Its output goes to `log`.
    pub(crate) fn listen(&self, arguments: &[&str], log: &Path) -> Result<Server, String> {
        self.listen_with(arguments, &[], log)
    }

    /// Starts the server with these environment variables.
    pub(crate) fn listen_with(
        &self,
        arguments: &[&str],
        variables: &[(String, String)],
        log: &Path,
    ) -> Result<Server, String> {
        let program = self.program()?;
        let mut log_file =
            File::create(log).map_err(|error| format!("cannot write {}: {error}", log.display()))?;
        let child = Command::new(program)
            .args(arguments)
            .envs(variables.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let mut child = ChildGuard(child);
        let stderr = child.0.stderr.take().ok_or("the server has no stderr")?;
        // Bounded to the one URL that is used; later ones are dropped.
        let (found, urls) = sync_channel(1);
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = writeln!(log_file, "{line}");
                if let Some(url) = parse_listening_url(&line) {
                    let _ = found.try_send(url);
                }
            }
        });
        let url = urls.recv_timeout(START_TIMEOUT).map_err(|_| {
            let output = std::fs::read_to_string(log).unwrap_or_default();
            format!("the server did not report its address; its output: {}", output.trim())
        })?;
        Ok(Server { child, url })
    }
}

/// A running server, which is stopped when this is dropped.
pub(crate) struct Server {
    child: ChildGuard,
    /// The URL that it reported; for `everything` the endpoint of Streamable HTTP, `http://ADDR/mcp`.
    pub(crate) url: String,
}

impl Server {
    /// The endpoint of the 2024 transport, `http://ADDR/sse`.
    pub(crate) fn sse_url(&self) -> String {
        format!("{}/sse", self.url.trim_end_matches("/mcp"))
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.is_running()
    }
}

fn parse_listening_url(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("listening on ")?;
    let url = rest.split_whitespace().next()?;
    url.starts_with("http://").then(|| url.to_owned())
}

/// The executable of a target in the messages of `cargo build`.
pub(crate) fn executable(messages: &str, example: &str) -> Option<PathBuf> {
    let messages = messages.lines().rev();
    let mut parsed = messages.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    parsed.find_map(|message| {
        let of_example = message["target"]["name"] == example;
        message["executable"].as_str().filter(|_| of_example).map(PathBuf::from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_read_from_the_line() {
        let found = parse_listening_url("INFO listening on http://127.0.0.1:4100/mcp (5 revisions)");
        assert_eq!(found.as_deref(), Some("http://127.0.0.1:4100/mcp"));
        assert_eq!(parse_listening_url("listening on stdio"), None);
    }

    #[test]
    fn executable_is_read_from_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"serde"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"everything"},"executable":"/t/examples/everything"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages, EVERYTHING), Some(PathBuf::from("/t/examples/everything")));
    }
}
