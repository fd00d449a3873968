//! Programs as tools: an argument list, never a shell.
//!
//! Each argument of the tool stays inside the element it was inserted into. The program gets an empty environment
//! except for named variables and runs in its own process group. The whole group is killed when it times out, prints
//! too much, or the caller stops waiting.

mod arguments;
mod process;
mod program;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::sync::SemaphorePermit;
use toolgate::model::ToolOutput;
use toolgate::{Context, HandlerError, RawJson};

use super::call_queue::CallQueue;
use super::placeholders::Placeholders;
use super::{BackendFuture, Problem, ToolBackend};
use arguments::{
    ArgvElement, expand_arguments, is_script, leading_dash_message, may_begin_with_dash, script_message,
    unknown_argument_message,
};
use process::{ProcessError, ProcessGroup, read_limited, read_stderr, set_no_new_privs};
use program::{build_environment, resolve_program};

/// The description of a program call. The environment may hold secrets, so there is no `Debug`.
#[derive(Clone, PartialEq)]
pub struct CommandSpec {
    pub argv: Vec<ArgvItem>,
    pub env: Vec<(String, String)>,
    pub pass_env: Vec<String>,
    /// The directory for relative program paths.
    pub base_dir: PathBuf,
    pub cwd: PathBuf,
    pub stdin: Option<String>,
    pub stdout: StdoutFormat,
    pub max_output: usize,
    pub timeout: Duration,
    pub exit_codes: Vec<i32>,
    pub progress: bool,
    pub allow_leading_dash: bool,
    pub concurrency: usize,
    pub queue: usize,
}

impl Default for CommandSpec {
    fn default() -> CommandSpec {
        CommandSpec {
            argv: Vec::new(),
            env: Vec::new(),
            pass_env: Vec::new(),
            base_dir: PathBuf::from("."),
            cwd: PathBuf::from("."),
            stdin: None,
            stdout: StdoutFormat::Text,
            max_output: 64 * 1024,
            timeout: Duration::from_secs(60),
            exit_codes: vec![0],
            progress: false,
            allow_leading_dash: false,
            concurrency: 8,
            queue: 64,
        }
    }
}

/// One element of an argument list, or a group of elements that is used as a whole or left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgvItem {
    Single(String),
    Group(Vec<String>),
}

/// The format of standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdoutFormat {
    Text,
    Json,
}

/// A tool that runs a program.
pub struct CommandBackend {
    spec: CommandSpec,
    program: PathBuf,
    elements: Vec<ArgvElement>,
    stdin: Option<Placeholders>,
    environment: Vec<(OsString, OsString)>,
    queue: CallQueue,
}

impl CommandBackend {
    /// Resolves the program and validates every placeholder.
    pub fn new(spec: CommandSpec, arguments: &Value) -> Result<CommandBackend, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut report = |path: String, message: String| problems.push(Problem { path, message });
        let program = match spec.argv.first() {
            Some(ArgvItem::Single(name)) if Placeholders::parse(name).names().next().is_some() => {
                report("argv.0".into(), "the program name must not contain arguments".into());
                PathBuf::new()
            }
            Some(ArgvItem::Single(name)) => resolve_program(name, &spec.base_dir).unwrap_or_else(|message| {
                report("argv.0".into(), message);
                PathBuf::new()
            }),
            _ => {
                report("argv".into(), "`argv` must begin with the name of a program".into());
                PathBuf::new()
            }
        };
        let mut elements = Vec::new();
        let mut options_allowed = true;
        for (n, item) in spec.argv.iter().enumerate().skip(1) {
            let (texts, is_group) = match item {
                ArgvItem::Single(text) => (std::slice::from_ref(text), false),
                ArgvItem::Group(texts) => (texts.as_slice(), true),
            };
            let parts: Vec<Placeholders> = texts.iter().map(|text| Placeholders::parse(text)).collect();
            for placeholders in &parts {
                let path = format!("argv.{n}");
                if let Some(message) = unknown_argument_message(placeholders, arguments) {
                    report(path.clone(), message);
                } else if let (true, Some(name)) =
                    (is_script(&spec.argv, &program, n), placeholders.names().next())
                {
                    report(path, script_message(name));
                } else if let (true, false, Some(name)) =
                    (options_allowed, spec.allow_leading_dash, placeholders.leading_name())
                    && may_begin_with_dash(arguments, name)
                {
                    report(path, leading_dash_message(name));
                }
            }
            elements.push(ArgvElement {
                parts,
                is_group,
                accepts_options: options_allowed && !spec.allow_leading_dash,
            });
            options_allowed &= !texts.iter().any(|text| text == "--");
        }
        let stdin = spec.stdin.as_deref().map(Placeholders::parse);
        if let Some(message) =
            stdin.as_ref().and_then(|placeholders| unknown_argument_message(placeholders, arguments))
        {
            report("stdin".into(), message);
        }
        if !spec.cwd.is_dir() {
            report("cwd".into(), format!("there is no folder `{}`", spec.cwd.display()));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let environment = build_environment(&spec);
        let queue = CallQueue::new(spec.concurrency, spec.queue);
        Ok(CommandBackend { program, elements, stdin, environment, queue, spec })
    }

    /// The absolute path of the program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Waits for a permit. Fails at once if the waiting queue is full.
    ///
    /// Cancel safe: yes, because the queue counts waiting calls with a guard.
    async fn acquire_permit(&self) -> Result<SemaphorePermit<'_>, HandlerError> {
        let busy = || HandlerError::new("busy: too many calls are running; try again later");
        self.queue.acquire().await.ok_or_else(busy)
    }

    async fn run(&self, cx: &Context, arguments: &Map<String, Value>) -> Result<ToolOutput, HandlerError> {
        let argv = expand_arguments(&self.elements, arguments)?;
        let input =
            self.stdin.as_ref().map(|placeholders| placeholders.render(arguments).unwrap_or_default());
        let _permit = self.acquire_permit().await?;
        let mut command = Command::new(&self.program);
        command
            .args(argv)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.spec.cwd)
            .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        set_no_new_privs();
        let mut child = command.spawn().map_err(|error| {
            tracing::warn!(program = %self.program.display(), %error, "cannot start program");
            HandlerError::new("the program could not be started")
        })?;
        let mut group = ProcessGroup::new(&child);
        group.set_resource_limits(self.spec.timeout);
        let pipe = child.stdin.take();
        let feed_stdin = async {
            if let (Some(input), Some(mut pipe)) = (input, pipe) {
                // A program may ignore its input.
                let _ = pipe.write_all(input.as_bytes()).await;
            }
            Ok(())
        };
        let (stdout_pipe, stderr_pipe) = (child.stdout.take(), child.stderr.take());
        let stdout = read_limited(stdout_pipe, self.spec.max_output);
        let stderr = read_stderr(stderr_pipe, self.spec.progress.then_some(cx));
        let wait_for_exit = async {
            let status = child.wait().await.map_err(|_| ProcessError::Io)?;
            // Background processes of the program would keep the pipes open.
            group.kill();
            Ok(status)
        };
        let all = async { tokio::try_join!(stdout, stderr, wait_for_exit, feed_stdin) };
        let outcome = tokio::time::timeout(self.spec.timeout, all).await;
        match outcome {
            Ok(Ok((stdout, stderr, status, ()))) => Ok(self.to_output(&stdout, &stderr, status)),
            Ok(Err(ProcessError::OutputLimit)) => {
                group.terminate(&mut child).await;
                Err(HandlerError::new(format!(
                    "output limit: the program printed more than {} bytes and was stopped",
                    self.spec.max_output
                )))
            }
            Ok(Err(ProcessError::Io)) => {
                group.terminate(&mut child).await;
                Err(HandlerError::new("the output of the program could not be read"))
            }
            Err(_) => {
                group.terminate(&mut child).await;
                Err(HandlerError::new(format!(
                    "timeout: the program did not finish within {:?} and was stopped",
                    self.spec.timeout
                )))
            }
        }
    }

    fn to_output(&self, stdout: &[u8], stderr: &[u8], status: ExitStatus) -> ToolOutput {
        let text = lossy_text(stdout);
        if !status.code().is_some_and(|code| self.spec.exit_codes.contains(&code)) {
            let reason = match status.code() {
                Some(code) => format!("exit code {code}"),
                None => "ended by a signal".to_owned(),
            };
            let parts = [reason, lossy_text(stderr), text];
            let message: Vec<&str> =
                parts.iter().map(|part| part.trim_end()).filter(|part| !part.is_empty()).collect();
            return ToolOutput::error(message.join("\n"));
        }
        match self.spec.stdout {
            StdoutFormat::Text => ToolOutput::text(text.strip_suffix('\n').unwrap_or(&text)),
            StdoutFormat::Json => match serde_json::from_str::<Value>(&text) {
                Ok(value) => {
                    let raw = RawJson::from(value);
                    ToolOutput::text(raw.as_str()).with_structured_content(raw.clone())
                }
                Err(_) => ToolOutput::error(invalid_json_message(&text)),
            },
        }
    }
}

impl ToolBackend for CommandBackend {
    fn execute<'a>(&'a self, cx: &'a Context, arguments: &'a Map<String, Value>) -> BackendFuture<'a> {
        Box::pin(self.run(cx, arguments))
    }
}

/// How much invalid JSON an error message quotes.
const MAX_QUOTED_CHARS: usize = 200;

fn invalid_json_message(stdout: &str) -> String {
    let stdout = stdout.trim();
    if stdout.is_empty() {
        return "the program printed nothing instead of JSON".to_owned();
    }
    let shown: String = stdout.chars().take(MAX_QUOTED_CHARS).collect();
    let ellipsis = if shown.len() < stdout.len() { "…" } else { "" };
    format!("the program did not print JSON: {shown}{ellipsis}")
}

/// Converts output to text. Invalid UTF-8 is replaced, and a note about it is appended.
fn lossy_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => {
            format!("{}\n[invalid UTF-8 is shown as \u{fffd}]", String::from_utf8_lossy(bytes))
        }
    }
}
