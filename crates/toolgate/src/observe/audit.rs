//! The audit log: one line of JSON for the end of each call, for each error and for each rejected client.
//!
//! A dedicated thread writes the lines from a bounded queue, so that no call waits for a disk. Lines that do not fit
//! are counted, and a later line reports how many are missing. Arguments are written only on request, with secrets
//! masked; headers and results are never written. Files are appended to, not rotated.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::events::{ErrorContext, ErrorEvent, Event, RequestInfo, ResponseEvent, ToolEvent};
use super::listeners::{Events, Subscription};
use super::outcome::CallOutcome;
use super::redact::{mask_secrets, mask_uri};
use super::stats::{ErrorCode, clip};
use crate::error::Error;
use crate::util::clock::{Clock, format_iso8601};
use crate::util::lock;

/// Limit of queued lines. If the queue is full, a new line is dropped and counted.
const MAX_QUEUED_LINES: usize = 4096;

/// How long a flush waits for a slow disk.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Length at which text from a client is cut.
const MAX_TEXT_BYTES: usize = 1024;

/// Limit of the serialized arguments.
const MAX_ARGUMENTS_BYTES: usize = 16 << 10;

/// Writes a line of JSON for the end of each call, for each error and for each rejected client.
///
/// A line says when (`time`), where (`server`, `transport`, `remote`, `principal`), what (`event`, `id`, `method`,
/// `name`) and how it ended (`ok`, `outcome`, `code`, `status`, `ms`; for an error without a response `context`, `kind` and
/// `message`). The `event` is `response` for the end of a request, also of one that was cancelled, `task` for the end of a
/// task (with its id as `task`), and `begin` for a tool marked as destructive that is about to run, so that a run
/// is recorded even if the process dies during it. Lines are written in the background. They are complete once this log and
/// the [`Events`] to which it is attached are dropped.
///
/// ```
/// use toolgate::events::{AuditLog, Events};
///
/// # let path = std::env::temp_dir().join(format!("toolgate-audit-doc-{}.jsonl", std::process::id()));
/// let events = Events::new();
/// let log = AuditLog::file(&path)?.with_arguments();
/// log.attach(&events);
/// # drop((events, log));
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), toolgate::Error>(())
/// ```
#[derive(Clone)]
#[doc(alias("observability", "access log"))]
pub struct AuditLog {
    queue: Arc<AuditQueue>,
    has_arguments: bool,
}

struct AuditQueue {
    /// `None` once the queue is closed.
    sender: Option<SyncSender<Vec<u8>>>,
    n_sent: AtomicU64,
    state: Arc<AuditState>,
    clock: Clock,
}

/// State shared by the queue and the writer thread.
#[derive(Default)]
struct AuditState {
    n_dropped: AtomicU64,
    /// Dropped lines that are not reported by a line yet.
    n_unreported: AtomicU64,
    progress: Mutex<WriteProgress>,
    progress_changed: Condvar,
}

#[derive(Default)]
struct WriteProgress {
    /// Lines taken from the queue.
    n_received: u64,
    /// Whether the last flush failed, so that some lines are not written.
    is_failing: bool,
    is_finished: bool,
}

impl AuditLog {
    /// Appends to a file. A new file is readable and writable by its owner only.
    ///
    /// # Errors
    /// If the file cannot be opened, or the writer thread cannot be started.
    pub fn file(path: impl AsRef<Path>) -> Result<AuditLog, Error> {
        let path = path.as_ref();
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options
            .open(path)
            .map_err(|error| Error::io(format!("cannot open the audit log {}", path.display()), error))?;
        AuditLog::new(file)
    }

    /// Writes to `out`, which is buffered and flushed whenever the queue is empty.
    ///
    /// # Errors
    /// If the writer thread cannot be started.
    pub fn new(out: impl Write + Send + 'static) -> Result<AuditLog, Error> {
        let (sender, lines) = sync_channel(MAX_QUEUED_LINES);
        let (state, clock) = (Arc::new(AuditState::default()), Clock::system());
        let writer =
            AuditWriter { out: BufWriter::new(out), state: Arc::clone(&state), clock: clock.clone() };
        std::thread::Builder::new()
            .name("toolgate-audit".into())
            .spawn(move || writer.run(lines))
            .map_err(|error| Error::io("cannot start the thread of the audit log", error))?;
        let queue = AuditQueue { sender: Some(sender), n_sent: AtomicU64::new(0), state, clock };
        Ok(AuditLog { queue: Arc::new(queue), has_arguments: false })
    }

    /// Also writes the arguments of calls, with [secrets masked](crate::events::mask_secrets). Arguments longer than 16 KiB are
    /// replaced by their size.
    #[must_use]
    pub fn with_arguments(mut self) -> AuditLog {
        self.has_arguments = true;
        self
    }

    /// Starts to log the calls and errors published by `events`.
    pub fn attach(&self, events: &Events) -> Subscription {
        let log = self.clone();
        events.on_audited(move |event| match event {
            Event::Response(event) => log.queue.write(&log.response_line(event)),
            Event::Tool(event) if event.is_end() && event.request().task_id().is_some() => {
                log.queue.write(&log.task_line(event));
            }
            Event::Tool(event) if !event.is_end() && event.is_destructive() => {
                log.queue.write(&log.with_request(log.new_line(), "begin", event.request()));
            }
            // Failed requests are logged with their response.
            Event::Error(event) if event.context() != ErrorContext::HandleRequest => {
                log.queue.write(&log.error_line(event));
            }
            _ => {}
        })
    }

    /// Returns how many lines could not be written.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.queue.state.n_dropped.load(Relaxed)
    }

    /// Waits until all lines so far are written, for at most five seconds. Returns whether they were.
    ///
    /// Blocks the current thread.
    pub fn flush(&self) -> bool {
        let sent = self.queue.n_sent.load(Relaxed);
        let progress =
            self.queue.state.wait_until(|progress| progress.n_received >= sent || progress.is_finished);
        progress.n_received >= sent && !progress.is_failing
    }

    fn response_line<'a>(&self, event: &'a ResponseEvent) -> AuditLine<'a> {
        let request = event.request();
        let (ok, code) = (event.is_success(), event.error_code());
        let line = AuditLine {
            ok: Some(ok),
            outcome: Some(event.outcome()),
            code,
            status: Some(event.status()),
            ms: Some(event.time_ms()),
            ..self.new_line()
        };
        self.with_request(line, "response", request)
    }

    fn task_line<'a>(&self, event: &'a ToolEvent) -> AuditLine<'a> {
        let line = AuditLine {
            ok: event.is_success(),
            outcome: event.outcome(),
            ms: event.time().map(|time| time.as_secs_f64() * 1e3),
            ..self.new_line()
        };
        self.with_request(line, "task", event.request())
    }

    fn error_line<'a>(&self, event: &'a ErrorEvent) -> AuditLine<'a> {
        let line = AuditLine {
            event: "error",
            server: event.server(),
            transport: event.transport().map(|transport| transport.as_str()),
            remote: event.remote().map(|remote| remote.to_string()),
            ok: Some(false),
            code: event.error_code(),
            ms: event.time().map(|time| time.as_secs_f64() * 1e3),
            context: Some(event.context().as_str()),
            kind: event.kind(),
            message: clip(event.message(), MAX_TEXT_BYTES),
            ..self.new_line()
        };
        match event.request() {
            Some(request) => self.with_request(line, "error", request),
            None => line,
        }
    }

    fn new_line<'a>(&self) -> AuditLine<'a> {
        AuditLine { time: format_iso8601(self.queue.clock.unix_millis()), ..AuditLine::default() }
    }

    fn with_request<'a>(
        &self,
        line: AuditLine<'a>,
        event: &'static str,
        request: &'a RequestInfo,
    ) -> AuditLine<'a> {
        let name = request.subject().map(|name| {
            let name = if name.contains("://") { Cow::Owned(mask_uri(&name)) } else { name };
            clip(&name, MAX_TEXT_BYTES).to_owned()
        });
        AuditLine {
            event,
            server: request.server(),
            transport: Some(request.transport().as_str()),
            remote: request.remote().map(|remote| remote.to_string()),
            principal: request.principal().id().map(|id| clip(id, MAX_TEXT_BYTES)),
            id: match request.id() {
                Value::String(id) => Some(clip(&id, MAX_TEXT_BYTES).into()),
                Value::Null if request.task_id().is_some() => None,
                id => Some(id),
            },
            task: request.task_id(),
            method: clip(request.method(), MAX_TEXT_BYTES),
            name,
            arguments: self.has_arguments.then(|| masked_arguments(request)).flatten(),
            ..line
        }
    }
}

impl std::fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuditLog").field("dropped", &self.dropped()).finish_non_exhaustive()
    }
}

fn masked_arguments(request: &RequestInfo) -> Option<Value> {
    let mut arguments = request.params().get("arguments")?.clone();
    mask_secrets(&mut arguments);
    let length = arguments.to_string().len();
    if length > MAX_ARGUMENTS_BYTES { Some(format!("({length} bytes)").into()) } else { Some(arguments) }
}

/// One line. Unknown fields are left out.
#[derive(Default, Serialize)]
struct AuditLine<'a> {
    time: String,
    event: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    server: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    transport: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ok: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<CallOutcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<ErrorCode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<&'static str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    kind: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    /// Number of lines missing before this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<u64>,
}

impl AuditLine<'_> {
    /// Encodes the line. JSON escapes line breaks, so this is a single line whatever the values contain.
    fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut bytes = serde_json::to_vec(self).ok()?;
        bytes.push(b'\n');
        Some(bytes)
    }
}

impl AuditQueue {
    fn write(&self, line: &AuditLine<'_>) {
        let sender = self.sender.as_ref();
        let sent = line.to_bytes().zip(sender).is_some_and(|(line, sender)| sender.try_send(line).is_ok());
        if sent {
            self.n_sent.fetch_add(1, Relaxed);
        } else {
            self.state.record_drop();
        }
    }
}

impl Drop for AuditQueue {
    /// Waits until all lines are written, at most for [`FLUSH_TIMEOUT`].
    fn drop(&mut self) {
        self.sender = None;
        drop(self.state.wait_until(|progress| progress.is_finished));
    }
}

impl AuditState {
    fn record_drop(&self) {
        self.n_dropped.fetch_add(1, Relaxed);
        self.n_unreported.fetch_add(1, Relaxed);
    }

    fn wait_until(&self, is_done: impl Fn(&WriteProgress) -> bool) -> MutexGuard<'_, WriteProgress> {
        let waited =
            self.progress_changed
                .wait_timeout_while(lock(&self.progress), FLUSH_TIMEOUT, |progress| !is_done(progress));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The writer thread.
struct AuditWriter<W: Write> {
    out: BufWriter<W>,
    state: Arc<AuditState>,
    clock: Clock,
}

impl<W: Write> AuditWriter<W> {
    fn run(mut self, lines: Receiver<Vec<u8>>) {
        let _finish = FinishOnDrop(Arc::clone(&self.state));
        // Rebound to be dropped before `_finish`: once the thread counts as finished, sending must fail.
        let lines = lines;
        let mut n_received = 0;
        while let Ok(line) = lines.recv() {
            self.write_line(&line);
            n_received += 1;
            while let Ok(line) = lines.try_recv() {
                self.write_line(&line);
                n_received += 1;
            }
            let is_failing = !self.flush();
            let mut progress = lock(&self.state.progress);
            (progress.n_received, progress.is_failing) = (n_received, is_failing);
            drop(progress);
            self.state.progress_changed.notify_all();
        }
        self.report_dropped();
        self.flush();
    }

    /// Flushes the buffer. Lines that cannot be written now are retried with the next one.
    fn flush(&mut self) -> bool {
        let flushed = self.out.flush();
        flushed.inspect_err(|error| self.log_error(error)).is_ok()
    }

    fn write_line(&mut self, line: &[u8]) {
        self.report_dropped();
        if let Err(error) = self.out.write_all(line) {
            self.state.record_drop();
            self.log_error(&error);
        }
    }

    /// Writes a line with the number of lines that are missing at this point.
    fn report_dropped(&mut self) {
        let dropped = self.state.n_unreported.swap(0, Relaxed);
        if dropped == 0 {
            return;
        }
        let time = format_iso8601(self.clock.unix_millis());
        let line =
            AuditLine { time, event: "dropped", dropped: Some(dropped), ..AuditLine::default() }.to_bytes();
        let written = line.is_some_and(|line| self.out.write_all(&line).is_ok());
        if !written {
            self.state.n_unreported.fetch_add(dropped, Relaxed);
        }
    }

    fn log_error(&self, error: &std::io::Error) {
        let dropped = self.state.n_dropped.load(Relaxed);
        if dropped < 2 || dropped.is_power_of_two() {
            tracing::error!(%error, dropped, "cannot write the audit log");
        }
    }
}

/// Marks the thread as finished, however it ends, so that no thread waits for it.
struct FinishOnDrop(Arc<AuditState>);

impl Drop for FinishOnDrop {
    fn drop(&mut self) {
        lock(&self.0.progress).is_finished = true;
        self.0.progress_changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
