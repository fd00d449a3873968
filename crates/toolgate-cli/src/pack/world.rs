//! What the acts of packs may look at: the program itself.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use toolgate::{
    Connections, ErrorCode, RequestInfo, ResponseEvent, Server, Servers, Subscription, UriTemplate,
};

use crate::clock::{Stopwatch, iso8601, unix_millis};
use crate::observe::{self, brief, collectors};
use crate::source::http::HttpConnection;
use crate::source::sql::SqlConnection;

/// How many events are kept.
const EVENTS: usize = 200;

/// The longest URI for which somebody looks which template it is of.
const LONGEST: usize = 8 << 10;

/// The program, seen from inside. There is one, and it stays while configurations come and go.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) servers: Servers,
    /// Somebody wants the configuration to be read again.
    pub(crate) reload: Notify,
    seen: Mutex<Arc<Seen>>,
    jobs: Mutex<Vec<Arc<Job>>>,
    watchers: Mutex<Vec<Arc<Watcher>>>,
    events: Arc<Mutex<VecDeque<Value>>>,
    listening: Mutex<Vec<Subscription>>,
    pulse: Mutex<Pulse>,
}

/// What is served at present.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) file: PathBuf,
    /// The files of the configuration.
    pub(crate) files: Vec<PathBuf>,
    /// What the files say, without secrets.
    pub(crate) config: Value,
    pub(crate) servers: Vec<Served>,
    pub(crate) stores: Vec<Store>,
    pub(crate) apis: Vec<Api>,
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
pub(crate) struct Served {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) dialect: String,
    pub(crate) packs: Vec<String>,
    pub(crate) has_sessions: bool,
    pub(crate) is_guarded: bool,
}

/// A database.
#[derive(Clone)]
pub(crate) struct Store {
    pub(crate) name: String,
    pub(crate) engine: &'static str,
    /// Without a password.
    pub(crate) address: String,
    pub(crate) connection: Arc<SqlConnection>,
}

/// An API.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) name: String,
    pub(crate) base: String,
    pub(crate) timeout: Duration,
    pub(crate) connection: Arc<HttpConnection>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("name", &self.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Something that is done from time to time.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    every: Mutex<Option<Duration>>,
    is_paused: AtomicBool,
    n_runs: AtomicU64,
    last: AtomicU64,
    last_took: AtomicU64,
    /// Somebody wants it to be done now, or its pause is over.
    stirred: Notify,
    is_asked: AtomicBool,
}

impl Job {
    /// Says how often it is done from now on; none: it is not needed.
    pub(crate) fn set_every(&self, every: Option<Duration>) {
        *lock(&self.every) = every;
    }

    pub(crate) fn every(&self) -> Option<Duration> {
        *lock(&self.every)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused.load(Relaxed)
    }

    pub(crate) fn pause(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Relaxed);
        self.stirred.notify_one();
    }

    pub(crate) fn ask(&self) {
        self.is_asked.store(true, Relaxed);
        self.stirred.notify_one();
    }

    /// Waits until it is to be done. Cancel safe: yes, what was asked for stays asked for.
    pub(crate) async fn due(&self) {
        loop {
            if self.is_asked.swap(false, Relaxed) {
                return;
            }
            let every = self.every().filter(|_| !self.is_paused());
            let rest = async {
                match every {
                    Some(every) => tokio::time::sleep(every).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.stirred.notified() => {}
                () = rest => return,
            }
        }
    }

    /// It was done.
    pub(crate) fn done(&self, watch: Stopwatch) {
        self.n_runs.fetch_add(1, Relaxed);
        self.last.store(unix_millis(), Relaxed);
        self.last_took.store(u64::try_from(watch.took().as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    pub(crate) fn shown(&self) -> Value {
        let last = self.last.load(Relaxed);
        json!({
            "name": self.name,
            "description": self.about,
            "everyMs": self.every().map(|every| u64::try_from(every.as_millis()).unwrap_or(u64::MAX)),
            "active": self.every().is_some(),
            "paused": self.is_paused(),
            "runs": self.n_runs.load(Relaxed),
            "lastRunAt": (last > 0).then(|| iso8601(last)),
            "lastRunMs": self.last_took.load(Relaxed) as f64 / 1000.0,
        })
    }
}

/// Something that looks at a folder.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) name: String,
    pub(crate) folders: Vec<PathBuf>,
    pub(crate) about: &'static str,
    is_stopped: AtomicBool,
    n_changes: AtomicU64,
    n_errors: AtomicU64,
    last: AtomicU64,
    stirred: Notify,
}

impl Watcher {
    pub(crate) fn new(name: String, about: &'static str, folders: Vec<PathBuf>) -> Arc<Watcher> {
        Arc::new(Watcher {
            name,
            folders,
            about,
            is_stopped: AtomicBool::new(false),
            n_changes: AtomicU64::new(0),
            n_errors: AtomicU64::new(0),
            last: AtomicU64::new(0),
            stirred: Notify::new(),
        })
    }

    /// Something has changed.
    pub(crate) fn changed(&self) {
        self.n_changes.fetch_add(1, Relaxed);
        self.last.store(unix_millis(), Relaxed);
    }

    /// Changes could not be looked at.
    pub(crate) fn failed(&self) {
        self.n_errors.fetch_add(1, Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Relaxed)
    }

    pub(crate) fn n_errors(&self) -> u64 {
        self.n_errors.load(Relaxed)
    }

    pub(crate) fn stop(&self, is_stopped: bool) {
        self.is_stopped.store(is_stopped, Relaxed);
        self.stirred.notify_waiters();
        self.stirred.notify_one();
    }

    /// Waits while it is stopped. Cancel safe: yes, it only looks.
    pub(crate) async fn stands(&self) {
        while self.is_stopped() {
            self.stirred.notified().await;
        }
    }

    pub(crate) fn shown(&self) -> Value {
        let last = self.last.load(Relaxed);
        let folders = self.folders.iter().map(|folder| folder.display().to_string());
        json!({
            "name": self.name,
            "description": self.about,
            "paths": folders.collect::<Vec<_>>(),
            "running": !self.is_stopped(),
            "changes": self.n_changes.load(Relaxed),
            "errors": self.n_errors(),
            "lastChangeAt": (last > 0).then(|| iso8601(last)),
        })
    }
}

/// How busy the runtime was when somebody last felt its pulse.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pulse {
    at: Option<Stopwatch>,
    busy: Duration,
    /// Which part of the time workers had something to do, of the time since the look before.
    pub(crate) load: f64,
    /// How much later than it wanted a job was woken.
    pub(crate) lag: Duration,
}

impl Pulse {
    #[cfg(test)]
    pub(crate) fn of(lag: Duration, load: f64) -> Pulse {
        Pulse { lag, load, ..Pulse::default() }
    }
}

impl World {
    pub(crate) fn seen(&self) -> Arc<Seen> {
        Arc::clone(&lock(&self.seen))
    }

    /// Something else is served from now on.
    pub(crate) fn see(&self, mut seen: Seen) {
        let mut known = lock(&self.seen);
        seen.n_loads = known.n_loads + 1;
        seen.loaded_at = unix_millis();
        let is_wanted = seen.servers.iter().any(|server| server.packs.iter().any(|pack| pack == "runtime"));
        *known = Arc::new(seen);
        drop(known);
        self.listen(is_wanted);
    }

    /// Whether any server shows what is noted.
    pub(crate) fn is_watched(&self) -> bool {
        observe::is_on()
    }

    /// Listens to all servers, or no longer.
    fn listen(&self, is_wanted: bool) {
        observe::switch(is_wanted);
        let mut listening = lock(&self.listening);
        if !is_wanted {
            listening.drain(..).for_each(|subscription| subscription.off());
            return;
        }
        if !listening.is_empty() {
            return;
        }
        let events = self.servers.events();
        let servers = self.servers.clone();
        listening.push(events.on_response(move |answer| note(&servers, answer)));
        let (kept, servers) = (Arc::clone(&self.events), self.servers.clone());
        listening.push(events.on_error(move |error| {
            keep(
                &kept,
                "onMCPError",
                error.server(),
                &json!({
                    "context": error.context().as_str(),
                    "kind": error.kind(),
                    "method": error.request().map(|request| brief(request.method())),
                    "subject": error.request().and_then(|request| subject(&servers, request)),
                }),
            );
        }));
        let kept = Arc::clone(&self.events);
        listening.push(events.on_server(move |event| {
            keep(
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
    pub(crate) fn job(&self, name: &'static str, about: &'static str) -> Arc<Job> {
        let mut jobs = lock(&self.jobs);
        if let Some(known) = jobs.iter().find(|job| job.name == name) {
            return Arc::clone(known);
        }
        let job = Arc::new(Job {
            name,
            about,
            every: Mutex::default(),
            is_paused: AtomicBool::new(false),
            n_runs: AtomicU64::new(0),
            last: AtomicU64::new(0),
            last_took: AtomicU64::new(0),
            stirred: Notify::new(),
            is_asked: AtomicBool::new(false),
        });
        jobs.push(Arc::clone(&job));
        job
    }

    pub(crate) fn jobs(&self) -> Vec<Arc<Job>> {
        lock(&self.jobs).clone()
    }

    pub(crate) fn watchers(&self) -> Vec<Arc<Watcher>> {
        lock(&self.watchers).clone()
    }

    pub(crate) fn set_watchers(&self, watchers: Vec<Arc<Watcher>>) {
        *lock(&self.watchers) = watchers;
    }

    pub(crate) fn pulse(&self) -> Pulse {
        *lock(&self.pulse)
    }

    /// Looks how busy the runtime is. `lag` is how late whoever asks was woken.
    pub(crate) fn feel_pulse(&self, lag: Duration) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let metrics = runtime.metrics();
        let n_workers = metrics.num_workers();
        let busy: Duration = (0..n_workers).map(|worker| metrics.worker_total_busy_duration(worker)).sum();
        let mut pulse = lock(&self.pulse);
        if let Some(before) = pulse.at {
            let passed = before.took().as_secs_f64() * n_workers as f64;
            let worked = busy.saturating_sub(pulse.busy).as_secs_f64();
            pulse.load = if passed > 0.0 { (worked / passed).min(1.0) } else { 0.0 };
        }
        *pulse = Pulse { at: Some(Stopwatch::start()), busy, lag, ..*pulse };
    }
}

/// An answer is about to be sent: by any server.
fn note(servers: &Servers, answer: &ResponseEvent) {
    let (request, took) = (answer.request(), answer.time());
    let (method, subject) = (brief(request.method()), subject(servers, request).unwrap_or_default());
    let error = answer.error_code().map(|code| match code {
        ErrorCode::Number(number) => number.to_string(),
        code => brief(&code.to_string()),
    });
    let collectors = collectors();
    let is_good = error.is_none();
    collectors.requests.note(took, is_good, |captures| {
        json!({
            "server": request.server(),
            "method": method,
            "subject": subject,
            "transport": request.transport().as_str(),
            "status": answer.status(),
            "error": error,
            "principal": request.principal().id().map(brief),
            "remote": captures.then(|| request.remote().map(|remote| remote.to_string())).flatten(),
        })
    });
    collectors.routes.note(&method, request.server(), &subject, took, error);
}

/// What a request is about, without what its caller put there.
fn subject(servers: &Servers, request: &RequestInfo) -> Option<String> {
    let subject = request.subject()?;
    if !request.method().starts_with("resources/") {
        return Some(brief(&subject));
    }
    Some(shape(servers.get(request.server()).as_ref(), &subject))
}

/// What a URI is like: one that is listed is itself, one of a template is the template. Of others only the scheme is
/// told; what follows it may be anything.
pub(crate) fn shape(server: Option<&Server>, uri: &str) -> String {
    if let Some(server) = server.filter(|_| uri.len() <= LONGEST) {
        if server.has_resource(uri) {
            return brief(uri.split(['?', '#']).next().unwrap_or_default());
        }
        let templates = server.templates();
        let is_its = |text: &str| UriTemplate::parse(text).is_ok_and(|known| known.match_uri(uri).is_some());
        if let Some(known) = templates.iter().find(|known| is_its(&known.uri_template)) {
            return brief(&known.uri_template);
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

fn keep(events: &Mutex<VecDeque<Value>>, name: &str, server: &str, about: &Value) {
    let mut events = lock(events);
    // When it is full, the oldest goes.
    while events.len() >= EVENTS {
        events.pop_front();
    }
    events.push_back(json!({ "at": iso8601(unix_millis()), "event": name, "server": server, "data": about }));
}

/// What is kept is whole at every point where a panic could happen, so poison says nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
