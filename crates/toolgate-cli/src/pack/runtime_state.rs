//! What the acts of packs may look at: the program itself.

mod background;
mod events;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use toolgate::Servers;
use toolgate::events::Subscription;
use toolgate::http::Connections;

pub(crate) use background::{FolderWatcher, ScheduledJob};
pub(crate) use events::redact_uri;

use crate::clock::{Stopwatch, unix_millis};
use crate::observe::{self, truncate};
use crate::source::http::HttpClient;
use crate::source::sql::SqlPool;
use crate::sync::lock;
use events::{push_event, record_response, redacted_subject};

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
        let job = Arc::new(ScheduledJob::new(name, about));
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
