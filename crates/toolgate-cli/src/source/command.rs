//! Programs as tools: an argument list, never a shell.
//!
//! Each argument of the tool stays inside the element it was put into. The program gets an empty environment but for
//! what is named, runs in a process group of its own, and the whole group ends when its time is over, when it prints too
//! much, or when nobody waits for it any more.

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

/// What a program is called with. Its environment may hold secrets, so it cannot be printed.
#[derive(Clone, PartialEq)]
pub(crate) struct CommandSpec {
    pub(crate) argv: Vec<ArgvItem>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) pass_env: Vec<String>,
    /// Where a relative path to the program begins.
    pub(crate) base_dir: PathBuf,
    pub(crate) cwd: PathBuf,
    pub(crate) stdin: Option<String>,
    pub(crate) stdout: StdoutFormat,
    pub(crate) max_output: usize,
    pub(crate) timeout: Duration,
    pub(crate) exit_codes: Vec<i32>,
    pub(crate) progress: bool,
    pub(crate) allow_leading_dash: bool,
    pub(crate) concurrency: usize,
    pub(crate) queue: usize,
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

/// One element of an argument list, or several that are there together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ArgvItem {
    Single(String),
    Group(Vec<String>),
}

/// What a program prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StdoutFormat {
    Text,
    Json,
}

/// A program that acts.
pub(crate) struct CommandBackend {
    spec: CommandSpec,
    program: PathBuf,
    elements: Vec<ArgvElement>,
    stdin: Option<Placeholders>,
    environment: Vec<(OsString, OsString)>,
    queue: CallQueue,
}

impl CommandBackend {
    /// Finds the program and looks at every place that an argument is put into.
    pub(crate) fn new(spec: CommandSpec, arguments: &Value) -> Result<CommandBackend, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut say = |at: String, said: String| problems.push(Problem { path: at, message: said });
        let program = match spec.argv.first() {
            Some(ArgvItem::Single(name)) if Placeholders::parse(name).names().next().is_some() => {
                say("argv.0".into(), "the program itself cannot be an argument".into());
                PathBuf::new()
            }
            Some(ArgvItem::Single(name)) => resolve_program(name, &spec.base_dir).unwrap_or_else(|said| {
                say("argv.0".into(), said);
                PathBuf::new()
            }),
            _ => {
                say("argv".into(), "`argv` begins with the name of a program".into());
                PathBuf::new()
            }
        };
        let mut rest = Vec::new();
        let mut is_open = true;
        for (n, piece) in spec.argv.iter().enumerate().skip(1) {
            let (texts, is_group) = match piece {
                ArgvItem::Single(text) => (std::slice::from_ref(text), false),
                ArgvItem::Group(texts) => (texts.as_slice(), true),
            };
            let parts: Vec<Placeholders> = texts.iter().map(|text| Placeholders::parse(text)).collect();
            for holes in &parts {
                let at = format!("argv.{n}");
                if let Some(said) = unknown_argument_message(holes, arguments) {
                    say(at.clone(), said);
                } else if let (true, Some(name)) = (is_script(&spec.argv, &program, n), holes.names().next())
                {
                    say(at, script_message(name));
                } else if let (true, false, Some(name)) =
                    (is_open, spec.allow_leading_dash, holes.leading_name())
                    && may_begin_with_dash(arguments, name)
                {
                    say(at, leading_dash_message(name));
                }
            }
            rest.push(ArgvElement { parts, is_group, accepts_options: is_open && !spec.allow_leading_dash });
            is_open &= !texts.iter().any(|text| text == "--");
        }
        let stdin = spec.stdin.as_deref().map(Placeholders::parse);
        if let Some(said) = stdin.as_ref().and_then(|holes| unknown_argument_message(holes, arguments)) {
            say("stdin".into(), said);
        }
        if !spec.cwd.is_dir() {
            say("cwd".into(), format!("there is no folder `{}`", spec.cwd.display()));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let environment = build_environment(&spec);
        let queue = CallQueue::new(spec.concurrency, spec.queue);
        Ok(CommandBackend { program, elements: rest, stdin, environment, queue, spec })
    }

    /// Where the program was found.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Waits for a permit. Fails at once if the waiting queue is full.
    ///
    /// Cancel safe: yes, because the queue counts waiting calls with a guard.
    async fn acquire_permit(&self) -> Result<SemaphorePermit<'_>, HandlerError> {
        let busy = || HandlerError::new("busy: too many of these run already; try again later");
        self.queue.acquire().await.ok_or_else(busy)
    }

    async fn run(&self, cx: &Context, given: &Map<String, Value>) -> Result<ToolOutput, HandlerError> {
        let list = expand_arguments(&self.elements, given)?;
        let input = self.stdin.as_ref().map(|holes| holes.render(given).unwrap_or_default());
        let _turn = self.acquire_permit().await?;
        let mut command = Command::new(&self.program);
        command
            .args(list)
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
            tracing::warn!(program = %self.program.display(), %error, "cannot start a program");
            HandlerError::new("the program could not be started")
        })?;
        let mut group = ProcessGroup::new(&child);
        group.set_resource_limits(self.spec.timeout);
        let pipe = child.stdin.take();
        let fed = async {
            if let (Some(input), Some(mut pipe)) = (input, pipe) {
                // A program that does not read its input is none of our business.
                let _ = pipe.write_all(input.as_bytes()).await;
            }
            Ok(())
        };
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let printed = read_limited(out, self.spec.max_output);
        let told = read_stderr(err, self.spec.progress.then_some(cx));
        let ended = async {
            let status = child.wait().await.map_err(|_| ProcessError::Io)?;
            // What it left behind keeps its pipes open.
            group.kill();
            Ok(status)
        };
        let all = async { tokio::try_join!(printed, told, ended, fed) };
        let outcome = tokio::time::timeout(self.spec.timeout, all).await;
        match outcome {
            Ok(Ok((printed, told, status, ()))) => Ok(self.to_output(&printed, &told, status)),
            Ok(Err(ProcessError::OutputLimit)) => {
                group.terminate(&mut child).await;
                Err(HandlerError::new(format!(
                    "output limit: the program printed more than {} bytes and was stopped",
                    self.spec.max_output
                )))
            }
            Ok(Err(ProcessError::Io)) => {
                group.terminate(&mut child).await;
                Err(HandlerError::new("the program could not be followed"))
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

    fn to_output(&self, printed: &[u8], told: &[u8], status: ExitStatus) -> ToolOutput {
        let text = lossy_text(printed);
        if !status.code().is_some_and(|code| self.spec.exit_codes.contains(&code)) {
            let why = match status.code() {
                Some(code) => format!("exit code {code}"),
                None => "ended by a signal".to_owned(),
            };
            let parts = [why, lossy_text(told), text];
            let said: Vec<&str> =
                parts.iter().map(|part| part.trim_end()).filter(|part| !part.is_empty()).collect();
            return ToolOutput::error(said.join("\n"));
        }
        match self.spec.stdout {
            StdoutFormat::Text => ToolOutput::text(text.strip_suffix('\n').unwrap_or(&text)),
            StdoutFormat::Json => match serde_json::from_str::<Value>(&text) {
                Ok(value) => {
                    let raw = RawJson::from(value);
                    ToolOutput { structured_content: Some(raw.clone()), ..ToolOutput::text(raw.as_str()) }
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

/// So much is shown of what should have been JSON.
const MAX_QUOTED_CHARS: usize = 200;

fn invalid_json_message(printed: &str) -> String {
    let printed = printed.trim();
    if printed.is_empty() {
        return "the program printed no JSON: it printed nothing".to_owned();
    }
    let shown: String = printed.chars().take(MAX_QUOTED_CHARS).collect();
    let rest = if shown.len() < printed.len() { "…" } else { "" };
    format!("the program printed no JSON, but this: {shown}{rest}")
}

/// What was printed, as text. What is no text is marked.
fn lossy_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => {
            format!("{}\n[some bytes are no text and are shown as \u{fffd}]", String::from_utf8_lossy(bytes))
        }
    }
}
