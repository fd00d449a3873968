//! A listener that writes down who asked for what, and what came of it: one JSON text a line.
//!
//! Lines are written by a thread of its own behind a bounded queue, so that no call waits for a disk; what does
//! not fit is counted, and a later line tells. Arguments are written only if asked for, without their secrets;
//! headers and results never are. Lines are appended, files are not rotated.

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

use super::bus::{Events, Subscription};
use super::event::{ErrorContext, ErrorEvent, Event, RequestInfo, ResponseEvent};
use super::mask::{mask, mask_uri};
use super::names::clip;
use super::view::ErrorCode;
use crate::clock::{Clock, format_iso8601};
use crate::error::Error;

/// How many lines wait to be written. When they are full, a new one is dropped and counted.
const WAITING: usize = 4096;

/// How long a flush waits for a disk that does not answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest text that a peer can put into a line, in bytes.
const LONGEST: usize = 1024;

/// The longest arguments, in bytes.
const LONGEST_ARGUMENTS: usize = 16 << 10;

/// Writes a line of JSON for each answer, each error, and each one who was not let in.
///
/// A line says when (`time`), where (`server`, `transport`, `remote`, `principal`), what (`event`, `id`,
/// `method`, `name`) and how it ended (`ok`, `code`, `status`, `ms`; `context`, `kind` and `message` of an error
/// that has no answer). Lines are written in the background and complete when the log is dropped: that is, this
/// and the events it is attached to.
///
/// ```
/// use toolgate::{AuditLog, Events};
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
pub struct AuditLog {
    desk: Arc<Desk>,
    has_arguments: bool,
}

struct Desk {
    /// None once it closes.
    sender: Option<SyncSender<Vec<u8>>>,
    n_sent: AtomicU64,
    ledger: Arc<Ledger>,
    clock: Clock,
}

/// What the thread and its desk both know.
#[derive(Default)]
struct Ledger {
    n_dropped: AtomicU64,
    /// Those of them that no line has told yet.
    n_untold: AtomicU64,
    progress: Mutex<Progress>,
    moved: Condvar,
}

#[derive(Default)]
struct Progress {
    /// Lines that the thread has taken.
    n_taken: u64,
    /// The last flush failed: some of them are not written.
    is_failing: bool,
    is_over: bool,
}

impl AuditLog {
    /// Appends to a file, which is made if it does not exist: readable and writable for its owner alone.
    ///
    /// # Errors
    /// If the file cannot be opened, or no thread started.
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

    /// Writes to anything. It is buffered here, and flushed whenever there is nothing more to write.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn new(out: impl Write + Send + 'static) -> Result<AuditLog, Error> {
        let (sender, lines) = sync_channel(WAITING);
        let (ledger, clock) = (Arc::new(Ledger::default()), Clock::system());
        let writer = Writer { out: BufWriter::new(out), ledger: Arc::clone(&ledger), clock: clock.clone() };
        std::thread::Builder::new()
            .name("toolgate-audit".into())
            .spawn(move || writer.run(lines))
            .map_err(|error| Error::io("cannot start the thread of the audit log", error))?;
        let desk = Desk { sender: Some(sender), n_sent: AtomicU64::new(0), ledger, clock };
        Ok(AuditLog { desk: Arc::new(desk), has_arguments: false })
    }

    /// Writes the arguments of calls too, their secrets [hidden](crate::mask_secrets). What is longer than
    /// 16 KiB is left out.
    #[must_use]
    pub fn with_arguments(mut self) -> AuditLog {
        self.has_arguments = true;
        self
    }

    /// Begins to write down what is told there.
    pub fn attach(&self, events: &Events) -> Subscription {
        let log = self.clone();
        events.on_outcome(move |event| match event {
            Event::Response(event) => log.desk.write(&log.line_of_answer(event)),
            // What has an answer has its line.
            Event::Error(event) if event.context() != ErrorContext::HandleRequest => {
                log.desk.write(&log.line_of_error(event));
            }
            _ => {}
        })
    }

    /// How many lines could not be written.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.desk.ledger.n_dropped.load(Relaxed)
    }

    /// Waits until everything so far is written, at most five seconds, and says whether it was. Blocks its
    /// thread.
    pub fn flush(&self) -> bool {
        let sent = self.desk.n_sent.load(Relaxed);
        let progress = self.desk.ledger.wait(|progress| progress.n_taken >= sent || progress.is_over);
        progress.n_taken >= sent && !progress.is_failing
    }

    fn line_of_answer<'a>(&self, event: &'a ResponseEvent) -> Line<'a> {
        let request = event.request();
        let (ok, code) = (event.is_success(), event.error_code());
        let line = Line {
            ok: Some(ok),
            code,
            status: Some(event.status()),
            ms: Some(event.time_ms()),
            ..self.line()
        };
        self.about(line, "response", request)
    }

    fn line_of_error<'a>(&self, event: &'a ErrorEvent) -> Line<'a> {
        let line = Line {
            event: "error",
            server: event.server(),
            transport: event.transport().map(|transport| transport.as_str()),
            remote: event.remote().map(|remote| remote.to_string()),
            ok: Some(false),
            code: event.error_code(),
            ms: event.time().map(|time| time.as_secs_f64() * 1e3),
            context: Some(event.context().as_str()),
            kind: event.kind(),
            message: clip(event.message(), LONGEST),
            ..self.line()
        };
        match event.request() {
            Some(request) => self.about(line, "error", request),
            None => line,
        }
    }

    fn line<'a>(&self) -> Line<'a> {
        Line { time: format_iso8601(self.desk.clock.unix_millis()), ..Line::default() }
    }

    fn about<'a>(&self, line: Line<'a>, event: &'static str, request: &'a RequestInfo) -> Line<'a> {
        let name = request.subject().map(|name| {
            let name = if name.contains("://") { Cow::Owned(mask_uri(&name)) } else { name };
            clip(&name, LONGEST).to_owned()
        });
        Line {
            event,
            server: request.server(),
            transport: Some(request.transport().as_str()),
            remote: request.remote().map(|remote| remote.to_string()),
            principal: request.principal().id().map(|id| clip(id, LONGEST)),
            id: match request.id() {
                Value::String(id) => Some(clip(&id, LONGEST).into()),
                id => Some(id),
            },
            method: clip(request.method(), LONGEST),
            name,
            arguments: self.has_arguments.then(|| arguments(request)).flatten(),
            ..line
        }
    }
}

impl std::fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuditLog").field("dropped", &self.dropped()).finish_non_exhaustive()
    }
}

fn arguments(request: &RequestInfo) -> Option<Value> {
    let mut arguments = request.params().get("arguments")?.clone();
    mask(&mut arguments);
    let length = arguments.to_string().len();
    if length > LONGEST_ARGUMENTS { Some(format!("({length} bytes)").into()) } else { Some(arguments) }
}

/// One line; what is not known is not written.
#[derive(Default, Serialize)]
struct Line<'a> {
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
    #[serde(skip_serializing_if = "str::is_empty")]
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ok: Option<bool>,
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
    /// Lines that are missing before this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<u64>,
}

impl Line<'_> {
    /// JSON escapes what could end a line.
    fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut bytes = serde_json::to_vec(self).ok()?;
        bytes.push(b'\n');
        Some(bytes)
    }
}

impl Desk {
    fn write(&self, line: &Line<'_>) {
        let sender = self.sender.as_ref();
        let sent = line.to_bytes().zip(sender).is_some_and(|(line, sender)| sender.try_send(line).is_ok());
        if sent {
            self.n_sent.fetch_add(1, Relaxed);
        } else {
            self.ledger.lost();
        }
    }
}

impl Drop for Desk {
    /// Waits until everything is written, but not for a disk that does not answer.
    fn drop(&mut self) {
        self.sender = None;
        drop(self.ledger.wait(|progress| progress.is_over));
    }
}

impl Ledger {
    fn lost(&self) {
        self.n_dropped.fetch_add(1, Relaxed);
        self.n_untold.fetch_add(1, Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, is_done: impl Fn(&Progress) -> bool) -> MutexGuard<'_, Progress> {
        let waited = self.moved.wait_timeout_while(self.lock(), PATIENCE, |progress| !is_done(progress));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The thread.
struct Writer<W: Write> {
    out: BufWriter<W>,
    ledger: Arc<Ledger>,
    clock: Clock,
}

impl<W: Write> Writer<W> {
    fn run(mut self, lines: Receiver<Vec<u8>>) {
        let _over = Over(Arc::clone(&self.ledger));
        // Goes before the line above does: what is sent after the end must be seen to fail.
        let lines = lines;
        let mut n_taken = 0;
        while let Ok(line) = lines.recv() {
            self.put(&line);
            n_taken += 1;
            while let Ok(line) = lines.try_recv() {
                self.put(&line);
                n_taken += 1;
            }
            let is_failing = !self.flush();
            let mut progress = self.ledger.lock();
            (progress.n_taken, progress.is_failing) = (n_taken, is_failing);
            drop(progress);
            self.ledger.moved.notify_all();
        }
        self.confess();
        self.flush();
    }

    /// What cannot be written now is tried again with the next line.
    fn flush(&mut self) -> bool {
        let flushed = self.out.flush();
        flushed.inspect_err(|error| self.complain(error)).is_ok()
    }

    fn put(&mut self, line: &[u8]) {
        self.confess();
        if let Err(error) = self.out.write_all(line) {
            self.ledger.lost();
            self.complain(&error);
        }
    }

    /// Tells how many lines are missing here.
    fn confess(&mut self) {
        let dropped = self.ledger.n_untold.swap(0, Relaxed);
        if dropped == 0 {
            return;
        }
        let time = format_iso8601(self.clock.unix_millis());
        let line = Line { time, event: "dropped", dropped: Some(dropped), ..Line::default() }.to_bytes();
        let written = line.is_some_and(|line| self.out.write_all(&line).is_ok());
        if !written {
            self.ledger.n_untold.fetch_add(dropped, Relaxed);
        }
    }

    fn complain(&self, error: &std::io::Error) {
        let dropped = self.ledger.n_dropped.load(Relaxed);
        if dropped < 2 || dropped.is_power_of_two() {
            tracing::error!(%error, dropped, "the audit log cannot be written");
        }
    }
}

/// However the thread ends, nobody waits for it any more.
struct Over(Arc<Ledger>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.moved.notify_all();
    }
}

#[cfg(test)]
mod tests;
