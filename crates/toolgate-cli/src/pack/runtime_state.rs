//! What the acts of packs may look at: the program itself.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use toolgate::events::{ErrorCode, RequestInfo, ResponseEvent, Subscription};
use toolgate::http::Connections;
use toolgate::uri_template::UriTemplate;
use toolgate::{Server, Servers};

use crate::clock::{Stopwatch, format_iso8601, unix_millis};
use crate::observe::{self, collectors, truncate};
use crate::source::http::HttpClient;
use crate::source::sql::SqlPool;

/// How many events are kept.
const MAX_EVENTS: usize = 200;

/// The longest URI for which somebody looks which template it is of.
const MAX_MATCHED_URI_BYTES: usize = 8 << 10;

/// The program, seen from inside. There is one, and it stays while configurations come and go.
#[derive(Debug, Default)]
pub(crate) struct RuntimeState {
    pub(crate) servers: Servers,
    /// Somebody wants the configuration to be read again.
    pub(crate) reload: Notify,
    snapshot: Mutex<Arc<ConfigSnapshot>>,
    jobs: Mutex<Vec<Arc<ScheduledJob>>>,
    watchers: Mutex<Vec<Arc<FolderWatcher>>>,
    events: Arc<Mutex<VecDeque<Value>>>,
    subscriptions: Mutex<Vec<Subscription>>,
    heartbeat: Mutex<Heartbeat>,
}

/// What is served at present.
#[derive(Debug, Default)]
pub(crate) struct ConfigSnapshot {
    pub(crate) config_file: PathBuf,
    /// The files of the configuration.
    pub(crate) config_files: Vec<PathBuf>,
    /// What the files say, without secrets.
    pub(crate) config: Value,
    pub(crate) servers: Vec<ServerSummary>,
    pub(crate) databases: Vec<DatabaseHandle>,
    pub(crate) apis: Vec<ApiHandle>,
    /// Descriptions of APIs that were read from URLs, and how long each is.
    pub(crate) documents: Vec<(String, usize)>,
    pub(crate) connections: Option<Connections>,
    pub(crate) max_connections: usize,
    pub(crate) address: Option<String>,
    pub(crate) loaded_at: u64,
    pub(crate) n_loads: u64,
}

/// A server, as its configuration describes it.
#[derive(Clone, Debug)]
pub(crate) struct ServerSummary {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) dialect: String,
    pub(crate) packs: Vec<String>,
    pub(crate) has_sessions: bool,
    pub(crate) is_guarded: bool,
}

/// A database.
#[derive(Clone)]
pub(crate) struct DatabaseHandle {
    pub(crate) name: String,
    pub(crate) driver: &'static str,
    /// Without a password.
    pub(crate) address: String,
    pub(crate) pool: Arc<SqlPool>,
}

/// An API.
#[derive(Clone)]
pub(crate) struct ApiHandle {
    pub(crate) name: String,
    pub(crate) base_url: String,
    pub(crate) timeout: Duration,
    pub(crate) client: Arc<HttpClient>,
}

impl std::fmt::Debug for DatabaseHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatabaseHandle").field("name", &self.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ApiHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiHandle").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Something that is done from time to time.
#[derive(Debug)]
pub(crate) struct ScheduledJob {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    interval: Mutex<Option<Duration>>,
    is_paused: AtomicBool,
    n_runs: AtomicU64,
    last_run: AtomicU64,
    last_run_micros: AtomicU64,
    /// Somebody wants it to be done now, or its pause is over.
    wake: Notify,
    is_requested: AtomicBool,
}

impl ScheduledJob {
    /// Says how often it is done from now on; none: it is not needed.
    pub(crate) fn set_interval(&self, every: Option<Duration>) {
        *lock(&self.interval) = every;
    }

    pub(crate) fn interval(&self) -> Option<Duration> {
        *lock(&self.interval)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused.load(Relaxed)
    }

    pub(crate) fn set_paused(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Relaxed);
        self.wake.notify_one();
    }

    pub(crate) fn request_run(&self) {
        self.is_requested.store(true, Relaxed);
        self.wake.notify_one();
    }

    /// Waits until it is to be done. Cancel safe: yes, what was asked for stays asked for.
    pub(crate) async fn wait_until_due(&self) {
        loop {
            if self.is_requested.swap(false, Relaxed) {
                return;
            }
            let every = self.interval().filter(|_| !self.is_paused());
            let rest = async {
                match every {
                    Some(every) => tokio::time::sleep(every).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.wake.notified() => {}
                () = rest => return,
            }
        }
    }

    /// It was done.
    pub(crate) fn record_run(&self, watch: Stopwatch) {
        self.n_runs.fetch_add(1, Relaxed);
        self.last_run.store(unix_millis(), Relaxed);
        self.last_run_micros.store(u64::try_from(watch.elapsed().as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    pub(crate) fn to_json(&self) -> Value {
        let last = self.last_run.load(Relaxed);
        json!({
            "name": self.name,
            "description": self.description,
            "everyMs": self.interval().map(|every| u64::try_from(every.as_millis()).unwrap_or(u64::MAX)),
            "active": self.interval().is_some(),
            "paused": self.is_paused(),
            "runs": self.n_runs.load(Relaxed),
            "lastRunAt": (last > 0).then(|| format_iso8601(last)),
            "lastRunMs": self.last_run_micros.load(Relaxed) as f64 / 1000.0,
        })
    }
}

/// Something that looks at a folder.
#[derive(Debug)]
pub(crate) struct FolderWatcher {
    pub(crate) name: String,
    pub(crate) folders: Vec<PathBuf>,
    pub(crate) description: &'static str,
    is_stopped: AtomicBool,
    n_changes: AtomicU64,
    n_errors: AtomicU64,
    last_change: AtomicU64,
    wake: Notify,
}

impl FolderWatcher {
    pub(crate) fn new(name: String, about: &'static str, folders: Vec<PathBuf>) -> Arc<FolderWatcher> {
        Arc::new(FolderWatcher {
            name,
            folders,
            description: about,
            is_stopped: AtomicBool::new(false),
            n_changes: AtomicU64::new(0),
            n_errors: AtomicU64::new(0),
            last_change: AtomicU64::new(0),
            wake: Notify::new(),
        })
    }

    /// Something has changed.
    pub(crate) fn record_change(&self) {
        self.n_changes.fetch_add(1, Relaxed);
        self.last_change.store(unix_millis(), Relaxed);
    }

    /// Changes could not be looked at.
    pub(crate) fn record_error(&self) {
        self.n_errors.fetch_add(1, Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Relaxed)
    }

    pub(crate) fn n_errors(&self) -> u64 {
        self.n_errors.load(Relaxed)
    }

    pub(crate) fn set_stopped(&self, is_stopped: bool) {
        self.is_stopped.store(is_stopped, Relaxed);
        self.wake.notify_waiters();
        self.wake.notify_one();
    }

    /// Waits while it is stopped. Cancel safe: yes, it only looks.
    pub(crate) async fn wait_while_stopped(&self) {
        while self.is_stopped() {
            self.wake.notified().await;
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let last = self.last_change.load(Relaxed);
        let folders = self.folders.iter().map(|folder| folder.display().to_string());
        json!({
            "name": self.name,
            "description": self.description,
            "paths": folders.collect::<Vec<_>>(),
            "running": !self.is_stopped(),
            "changes": self.n_changes.load(Relaxed),
            "errors": self.n_errors(),
            "lastChangeAt": (last > 0).then(|| format_iso8601(last)),
        })
    }
}

/// How busy the runtime was when somebody last felt its pulse.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heartbeat {
    measured_at: Option<Stopwatch>,
    busy: Duration,
    /// Which part of the time workers had something to do, of the time since the look before.
    pub(crate) load: f64,
    /// How much later than it wanted a job was woken.
    pub(crate) lag: Duration,
}

impl Heartbeat {
    #[cfg(test)]
    pub(crate) fn new(lag: Duration, load: f64) -> Heartbeat {
        Heartbeat { lag, load, ..Heartbeat::default() }
    }
}

impl RuntimeState {
    pub(crate) fn snapshot(&self) -> Arc<ConfigSnapshot> {
        Arc::clone(&lock(&self.snapshot))
    }

    /// Something else is served from now on.
    pub(crate) fn set_snapshot(&self, mut seen: ConfigSnapshot) {
        let mut known = lock(&self.snapshot);
        seen.n_loads = known.n_loads + 1;
        seen.loaded_at = unix_millis();
        let is_wanted = seen.servers.iter().any(|server| server.packs.iter().any(|pack| pack == "runtime"));
        *known = Arc::new(seen);
        drop(known);
        self.update_subscriptions(is_wanted);
    }

    /// Whether any server shows what is noted.
    pub(crate) fn is_collecting(&self) -> bool {
        observe::is_enabled()
    }

    /// Listens to all servers, or no longer.
    fn update_subscriptions(&self, is_wanted: bool) {
        observe::set_enabled(is_wanted);
        let mut listening = lock(&self.subscriptions);
        if !is_wanted {
            listening.drain(..).for_each(|subscription| subscription.off());
            return;
        }
        if !listening.is_empty() {
            return;
        }
        let events = self.servers.events();
        let servers = self.servers.clone();
        listening.push(events.on_response(move |answer| record_response(&servers, answer)));
        let (kept, servers) = (Arc::clone(&self.events), self.servers.clone());
        listening.push(events.on_error(move |error| {
            push_event(
                &kept,
                "onMCPError",
                error.server(),
                &json!({
                    "context": error.context().as_str(),
                    "kind": error.kind(),
                    "method": error.request().map(|request| truncate(request.method())),
                    "subject": error.request().and_then(|request| redacted_subject(&servers, request)),
                }),
            );
        }));
        let kept = Arc::clone(&self.events);
        listening.push(events.on_server(move |event| {
            push_event(
                &kept,
                &format!("{:?}", event.change()),
                event.name(),
                &json!({ "version": event.version() }),
            );
        }));
    }

    /// The newest events, the newest first.
    pub(crate) fn events(&self, limit: usize) -> Vec<Value> {
        lock(&self.events).iter().rev().take(limit).cloned().collect()
    }

    /// A job of this name: the one that is known, or a new one.
    pub(crate) fn job(&self, name: &'static str, about: &'static str) -> Arc<ScheduledJob> {
        let mut jobs = lock(&self.jobs);
        if let Some(known) = jobs.iter().find(|job| job.name == name) {
            return Arc::clone(known);
        }
        let job = Arc::new(ScheduledJob {
            name,
            description: about,
            interval: Mutex::default(),
            is_paused: AtomicBool::new(false),
            n_runs: AtomicU64::new(0),
            last_run: AtomicU64::new(0),
            last_run_micros: AtomicU64::new(0),
            wake: Notify::new(),
            is_requested: AtomicBool::new(false),
        });
        jobs.push(Arc::clone(&job));
        job
    }

    pub(crate) fn jobs(&self) -> Vec<Arc<ScheduledJob>> {
        lock(&self.jobs).clone()
    }

    pub(crate) fn watchers(&self) -> Vec<Arc<FolderWatcher>> {
        lock(&self.watchers).clone()
    }

    pub(crate) fn set_watchers(&self, watchers: Vec<Arc<FolderWatcher>>) {
        *lock(&self.watchers) = watchers;
    }

    pub(crate) fn heartbeat(&self) -> Heartbeat {
        *lock(&self.heartbeat)
    }

    /// Looks how busy the runtime is. `lag` is how late whoever asks was woken.
    pub(crate) fn record_heartbeat(&self, lag: Duration) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let metrics = runtime.metrics();
        let n_workers = metrics.num_workers();
        let busy: Duration = (0..n_workers).map(|worker| metrics.worker_total_busy_duration(worker)).sum();
        let mut pulse = lock(&self.heartbeat);
        if let Some(before) = pulse.measured_at {
            let passed = before.elapsed().as_secs_f64() * n_workers as f64;
            let worked = busy.saturating_sub(pulse.busy).as_secs_f64();
            pulse.load = if passed > 0.0 { (worked / passed).min(1.0) } else { 0.0 };
        }
        *pulse = Heartbeat { measured_at: Some(Stopwatch::start()), busy, lag, ..*pulse };
    }
}

/// An answer is about to be sent: by any server.
fn record_response(servers: &Servers, answer: &ResponseEvent) {
    let (request, took) = (answer.request(), answer.time());
    let (method, subject) =
        (truncate(request.method()), redacted_subject(servers, request).unwrap_or_default());
    let error = answer.error_code().map(|code| match code {
        ErrorCode::Number(number) => number.to_string(),
        code => truncate(&code.to_string()),
    });
    let collectors = collectors();
    let is_good = error.is_none();
    collectors.requests.record(took, is_good, |captures| {
        json!({
            "server": request.server(),
            "method": method,
            "subject": subject,
            "transport": request.transport().as_str(),
            "status": answer.status(),
            "error": error,
            "principal": request.principal().id().map(truncate),
            "remote": captures.then(|| request.remote().map(|remote| remote.to_string())).flatten(),
        })
    });
    collectors.routes.record(&method, request.server(), &subject, took, error);
}

/// What a request is about, without what its caller put there.
fn redacted_subject(servers: &Servers, request: &RequestInfo) -> Option<String> {
    let subject = request.subject()?;
    if !request.method().starts_with("resources/") {
        return Some(truncate(&subject));
    }
    Some(redact_uri(servers.get(request.server()).as_ref(), &subject))
}

/// What a URI is like: one that is listed is itself, one of a template is the template. Of others only the scheme is
/// told; what follows it may be anything.
pub(crate) fn redact_uri(server: Option<&Server>, uri: &str) -> String {
    if let Some(server) = server.filter(|_| uri.len() <= MAX_MATCHED_URI_BYTES) {
        if server.has_resource(uri) {
            return truncate(uri.split(['?', '#']).next().unwrap_or_default());
        }
        let templates = server.templates();
        let is_its = |text: &str| UriTemplate::parse(text).is_ok_and(|known| known.match_uri(uri).is_some());
        if let Some(known) = templates.iter().find(|known| is_its(&known.uri_template)) {
            return truncate(&known.uri_template);
        }
    }
    let is_scheme = |text: &&str| {
        text.len() <= 32 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    match uri.split_once("://").map(|(scheme, _)| scheme).filter(is_scheme) {
        Some(scheme) => format!("{scheme}://…"),
        None => "…".to_owned(),
    }
}

fn push_event(events: &Mutex<VecDeque<Value>>, name: &str, server: &str, about: &Value) {
    let mut events = lock(events);
    // When it is full, the oldest goes.
    while events.len() >= MAX_EVENTS {
        events.pop_front();
    }
    events.push_back(
        json!({ "at": format_iso8601(unix_millis()), "event": name, "server": server, "data": about }),
    );
}

/// What is kept is whole at every point where a panic could happen, so poison says nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
