//! Programs as tools: an argument list, never a shell.
//!
//! Each argument of the tool stays inside the element it was put into. The program gets an empty environment but for
//! what is named, runs in a process group of its own, and the whole group ends when its time is over, when it prints too
//! much, or when nobody waits for it any more.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::sync::{Semaphore, SemaphorePermit};
use toolgate::model::ToolOutput;
use toolgate::{Context, HandlerError, RawJson};

use super::placeholders::{Placeholders, argument_text};
use super::{BackendFuture, Problem, ToolBackend};

/// The largest argument, and how many there may be: systems refuse more, less clearly.
const MAX_ARGUMENT_BYTES: usize = 128 * 1024;
const MAX_ARGUMENTS: usize = 256;
/// So much of what it says on the side is kept.
const MAX_STDERR_BYTES: usize = 8 * 1024;
/// How long a program that was asked to end may take to do so.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(1);

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
    permits: Semaphore,
    n_queued: AtomicUsize,
}

#[derive(Debug)]
struct ArgvElement {
    /// There together or not at all.
    parts: Vec<Placeholders>,
    is_group: bool,
    /// The program takes what begins with a dash for an option here.
    accepts_options: bool,
}

/// Programs that run a text, and the option before it.
const INTERPRETERS: [(&str, &str); 19] = [
    ("sh", "c"),
    ("bash", "c"),
    ("dash", "c"),
    ("ash", "c"),
    ("zsh", "c"),
    ("ksh", "c"),
    ("mksh", "c"),
    ("fish", "c"),
    ("csh", "c"),
    ("tcsh", "c"),
    ("busybox", "c"),
    ("pwsh", "c"),
    ("python", "c"),
    ("perl", "eE"),
    ("ruby", "e"),
    ("node", "ep"),
    ("php", "r"),
    ("lua", "e"),
    ("osascript", "e"),
];

/// Whether this element is a text that an interpreter runs: behind `-c` of a shell, say.
fn is_script(argv: &[ArgvItem], program: &Path, n: usize) -> bool {
    let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = name.trim_end_matches(|last: char| last.is_ascii_digit() || last == '.');
    let Some((_, options)) = INTERPRETERS.iter().find(|(known, _)| *known == name) else { return false };
    let before = n.checked_sub(1).and_then(|before| argv.get(before));
    let Some(ArgvItem::Single(before)) = before else { return false };
    match before.strip_prefix('-') {
        Some(letters) if !letters.starts_with('-') => letters.contains(|letter| options.contains(letter)),
        _ => false,
    }
}

fn script_message(name: &str) -> String {
    format!(
        "this text is a program, and `{{{name}}}` could become a part of it: write `\"$1\"` for it and put `{{{name}}}` behind, as an element of its own"
    )
}

/// Why a program was stopped.
#[derive(Debug)]
enum ProcessError {
    OutputLimit,
    Io,
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
        let turns = Semaphore::new(spec.concurrency.max(1));
        Ok(CommandBackend {
            program,
            elements: rest,
            stdin,
            environment,
            permits: turns,
            n_queued: AtomicUsize::new(0),
            spec,
        })
    }

    /// Where the program was found.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    fn expand_arguments(&self, given: &Map<String, Value>) -> Result<Vec<String>, HandlerError> {
        let mut list = Vec::new();
        for element in &self.elements {
            let filled: Option<Vec<Vec<String>>> =
                element.parts.iter().map(|holes| expand_element(holes, given)).collect();
            let filled = match filled {
                Some(filled) => filled,
                // What was not given leaves its element out, or its group.
                None if element.is_group || element.parts.iter().all(|holes| holes.sole_name().is_some()) => {
                    continue;
                }
                None => {
                    let missing = element
                        .parts
                        .iter()
                        .flat_map(Placeholders::names)
                        .find(|name| !is_present(given, name));
                    return Err(HandlerError::new(format!("`{}` is missing", missing.unwrap_or_default())));
                }
            };
            for (holes, texts) in element.parts.iter().zip(filled) {
                for text in texts {
                    let name = holes.names().next();
                    if let Some(fault) = name.and_then(|_| {
                        argument_error(&text, element.accepts_options && holes.leading_name().is_some())
                    }) {
                        return Err(HandlerError::new(format!(
                            "invalid argument `{}`: {fault}",
                            name.unwrap_or_default()
                        )));
                    }
                    list.push(text);
                }
            }
        }
        if list.len() > MAX_ARGUMENTS {
            return Err(HandlerError::new(format!("invalid argument: more than {MAX_ARGUMENTS} of them")));
        }
        Ok(list)
    }

    /// Waits for a turn. Who finds too many waiting already is told so.
    ///
    /// Cancel safe: yes, because what is counted is given back by a guard.
    async fn acquire_permit(&self) -> Result<SemaphorePermit<'_>, HandlerError> {
        if let Ok(permit) = self.permits.try_acquire() {
            return Ok(permit);
        }
        let busy = || HandlerError::new("busy: too many of these run already; try again later");
        let _waiting = CommandQueueSlot::try_acquire(&self.n_queued, self.spec.queue).ok_or_else(busy)?;
        self.permits.acquire().await.map_err(|_| busy())
    }

    async fn run(&self, cx: &Context, given: &Map<String, Value>) -> Result<ToolOutput, HandlerError> {
        let list = self.expand_arguments(given)?;
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

/// Where a program is, once and for all: what stands in a path later, or in a folder, does not matter any more.
fn resolve_program(name: &str, home: &Path) -> Result<PathBuf, String> {
    if name.is_empty() || name.contains('\0') {
        return Err("`argv` begins with the name of a program".into());
    }
    if name.contains('/') {
        let joined = home.join(name);
        let path: PathBuf = joined.components().filter(|part| *part != Component::CurDir).collect();
        let found = std::path::absolute(&path).ok().filter(|path| is_program(path));
        let why = || {
            if path.is_file() {
                format!("`{0}` is not executable: `chmod +x {0}`", path.display())
            } else {
                format!("there is no program `{}`", path.display())
            }
        };
        return found.ok_or_else(why);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|path| is_program(path))
        .ok_or_else(|| format!("there is no program `{name}` in PATH"))
}

#[cfg(unix)]
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_program(path: &Path) -> bool {
    path.is_file()
}

fn build_environment(spec: &CommandSpec) -> Vec<(OsString, OsString)> {
    let mut all: Vec<(OsString, OsString)> = vec![("LANG".into(), "C.UTF-8".into())];
    for name in ["PATH"].into_iter().chain(spec.pass_env.iter().map(String::as_str)) {
        all.extend(std::env::var_os(name).map(|value| (name.into(), value)));
    }
    all.extend(spec.env.iter().map(|(name, value)| (name.into(), value.into())));
    all
}

fn unknown_argument_message(holes: &Placeholders, arguments: &Value) -> Option<String> {
    let known = arguments["properties"].as_object();
    let name = holes.names().find(|name| !known.is_some_and(|known| known.contains_key(*name)))?;
    Some(format!(
        "there is no argument `{name}`; add it to `args`, or write `{{{{{name}}}}}` for the text itself"
    ))
}

/// Whether a value of this argument may look like an option.
fn may_begin_with_dash(arguments: &Value, name: &str) -> bool {
    let schema = &arguments["properties"][name];
    let values =
        schema["enum"].as_array().cloned().or_else(|| schema.get("const").map(|one| vec![one.clone()]));
    if let Some(values) = values {
        return values.iter().filter_map(argument_text).any(|text| text.starts_with('-'));
    }
    match schema["type"].as_str() {
        Some("boolean") => false,
        Some("integer" | "number") => !["minimum", "exclusiveMinimum"]
            .iter()
            .any(|key| schema[*key].as_f64().is_some_and(|least| least >= 0.0)),
        // What a pattern lets through is looked at when it comes.
        Some("string") => !schema["pattern"].is_string(),
        _ => true,
    }
}

fn leading_dash_message(name: &str) -> String {
    format!(
        "`{{{name}}}` may begin with `-`, and the program would take it for an option: put \"--\" before it, \
         give the argument an `enum` or a `pattern`, or say `allow_leading_dash = true`"
    )
}

/// The elements that one becomes: a list that stands alone becomes several.
fn expand_element(holes: &Placeholders, given: &Map<String, Value>) -> Option<Vec<String>> {
    if let Some(Value::Array(items)) = holes.sole_name().and_then(|name| given.get(name)) {
        return Some(items.iter().filter_map(argument_text).collect());
    }
    holes.render(given).map(|text| vec![text])
}

fn is_present(given: &Map<String, Value>, name: &str) -> bool {
    given.get(name).is_some_and(|value| !value.is_null())
}

fn argument_error(text: &str, is_open: bool) -> Option<String> {
    if text.contains('\0') {
        return Some("it has a NUL character".into());
    }
    if text.len() > MAX_ARGUMENT_BYTES {
        return Some(format!("it has more than {MAX_ARGUMENT_BYTES} bytes"));
    }
    (is_open && text.starts_with('-')).then(|| "it begins with `-`".into())
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

async fn read_limited(pipe: Option<impl AsyncRead + Unpin>, limit: usize) -> Result<Vec<u8>, ProcessError> {
    let mut all = Vec::new();
    if let Some(pipe) = pipe {
        let mut limited = pipe.take(limit as u64 + 1);
        limited.read_to_end(&mut all).await.map_err(|_| ProcessError::Io)?;
        if all.len() > limit {
            return Err(ProcessError::OutputLimit);
        }
    }
    Ok(all)
}

/// Keeps the beginning of what is said on the side, reads all of it, and passes lines on to whoever wants them.
async fn read_stderr(
    pipe: Option<impl AsyncRead + Unpin>,
    cx: Option<&Context>,
) -> Result<Vec<u8>, ProcessError> {
    let mut kept = Vec::new();
    let Some(mut pipe) = pipe else {
        return Ok(kept);
    };
    let mut line = Vec::new();
    let mut n_lines = 0_u32;
    let mut chunk = [0; 4096];
    loop {
        let n = pipe.read(&mut chunk).await.map_err(|_| ProcessError::Io)?;
        if n == 0 {
            return Ok(kept);
        }
        let room = MAX_STDERR_BYTES.saturating_sub(kept.len());
        kept.extend_from_slice(&chunk[..n.min(room)]);
        let Some(cx) = cx else { continue };
        for byte in &chunk[..n] {
            match byte {
                b'\n' | b'\r' if !line.is_empty() => {
                    n_lines += 1;
                    report_progress(cx, &String::from_utf8_lossy(&line), n_lines).await;
                    line.clear();
                }
                b'\n' | b'\r' => {}
                // A line that does not end is no progress.
                byte if line.len() < 1024 => line.push(*byte),
                _ => {}
            }
        }
    }
}

async fn report_progress(cx: &Context, line: &str, n_lines: u32) {
    let word = line.split_whitespace().next().unwrap_or_default();
    let measure = match (word.strip_suffix('%'), word.split_once('/')) {
        (Some(percent), _) => percent.parse().ok().map(|percent: f64| (percent, 100.0)),
        (None, Some((done, total))) => done.parse().ok().zip(total.parse().ok()),
        _ => None,
    };
    match measure {
        Some((done, total)) => cx.progress_of(done, total, line).await,
        None => cx.progress(f64::from(n_lines), line).await,
    }
}

/// One who waits for a turn.
struct CommandQueueSlot<'a>(&'a AtomicUsize);

impl<'a> CommandQueueSlot<'a> {
    fn try_acquire(count: &'a AtomicUsize, most: usize) -> Option<CommandQueueSlot<'a>> {
        let more = |now: usize| (now < most).then_some(now + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| CommandQueueSlot(count))
    }
}

impl Drop for CommandQueueSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What this thread starts gets no rights that we do not have: `sudo` and its like do not work.
fn set_no_new_privs() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::set_no_new_privs(true) {
        tracing::debug!(%error, "programs may get more rights than we have");
    }
}

/// A program and everything it started. Whoever drops it before its end ends it.
struct ProcessGroup {
    #[cfg(unix)]
    leader: Option<rustix::process::Pid>,
}

#[cfg(unix)]
impl ProcessGroup {
    fn new(child: &Child) -> ProcessGroup {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        ProcessGroup { leader: id.and_then(rustix::process::Pid::from_raw) }
    }

    /// Whatever leaves the group, and lives on, has only so much of the processor; and nobody's memory is written to a file.
    #[cfg(target_os = "linux")]
    fn set_resource_limits(&self, timeout: Duration) {
        use rustix::process::{Resource, Rlimit, prlimit};
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        let seconds = timeout.as_secs().saturating_add(1).saturating_mul(threads);
        for (resource, most) in [(Resource::Cpu, seconds), (Resource::Core, 0)] {
            // It may have ended already.
            let _ = prlimit(self.leader, resource, Rlimit { current: Some(most), maximum: Some(most) });
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn set_resource_limits(&self, _: Duration) {}

    fn signal(&self, signal: rustix::process::Signal) {
        if let Some(leader) = self.leader {
            // It may have ended by itself.
            let _ = rustix::process::kill_process_group(leader, signal);
        }
    }

    /// Ends what is left, at once. Called right after the leader was seen to end: its number is not given to
    /// another group as long as one of this group lives, and where none does, nobody is hit.
    fn kill(&mut self) {
        self.signal(rustix::process::Signal::KILL);
        self.leader = None;
    }

    /// Asks it to end, and ends it.
    async fn terminate(&mut self, child: &mut Child) {
        self.signal(rustix::process::Signal::TERM);
        let gone = tokio::time::timeout(TERMINATION_TIMEOUT, child.wait()).await.is_ok();
        self.kill();
        if !gone {
            let _ = tokio::time::timeout(TERMINATION_TIMEOUT, child.wait()).await;
        }
    }
}

#[cfg(unix)]
impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(not(unix))]
impl ProcessGroup {
    fn new(_: &Child) -> ProcessGroup {
        ProcessGroup {}
    }

    fn kill(&mut self) {}

    fn set_resource_limits(&self, _: Duration) {}

    async fn terminate(&mut self, child: &mut Child) {
        let _ = child.kill().await;
        let _ = TERMINATION_TIMEOUT;
    }
}
