//! The state of the process that builtins of packs have access to.

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
use crate::sync::lock;
use events::{push_event, record_response, redacted_subject};
use toolgate_sources::source::http::HttpClient;
use toolgate_sources::source::sql::SqlPool;

/// The state of the process. There is one, and it outlives configuration reloads.
#[derive(Debug, Default)]
pub(crate) struct RuntimeState {
    pub(crate) servers: Servers,
    /// Notified when a reload of the configuration is requested.
    pub(crate) reload: Notify,
    snapshot: Mutex<Arc<ConfigSnapshot>>,
    jobs: Mutex<Vec<Arc<ScheduledJob>>>,
    watchers: Mutex<Vec<Arc<FolderWatcher>>>,
    events: Arc<Mutex<VecDeque<Value>>>,
    subscriptions: Mutex<Vec<Subscription>>,
    heartbeat: Mutex<Heartbeat>,
}

/// The configuration that is being served.
#[derive(Debug, Default)]
pub(crate) struct ConfigSnapshot {
    pub(crate) config_file: PathBuf,
    /// All files of the configuration.
    pub(crate) config_files: Vec<PathBuf>,
    /// The content of the files, without secrets.
    pub(crate) config: Value,
    pub(crate) servers: Vec<ServerSummary>,
    pub(crate) databases: Vec<DatabaseHandle>,
    pub(crate) apis: Vec<ApiHandle>,
    /// OpenAPI documents that were fetched from URLs, and their sizes in bytes.
    pub(crate) documents: Vec<(String, usize)>,
    pub(crate) connections: Option<Connections>,
    pub(crate) max_connections: usize,
    pub(crate) address: Option<String>,
    pub(crate) loaded_at: u64,
    pub(crate) n_loads: u64,
}

/// Settings of a server.
#[derive(Clone, Debug)]
pub(crate) struct ServerSummary {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) dialect: String,
    pub(crate) packs: Vec<String>,
    pub(crate) has_sessions: bool,
    pub(crate) is_guarded: bool,
}

/// A database connection.
#[derive(Clone)]
pub(crate) struct DatabaseHandle {
    pub(crate) name: String,
    pub(crate) driver: &'static str,
    /// The address without the password.
    pub(crate) address: String,
    pub(crate) pool: Arc<SqlPool>,
}

/// An HTTP backend.
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

/// The load of the async runtime at the last measurement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heartbeat {
    measured_at: Option<Stopwatch>,
    busy: Duration,
    /// The fraction of time that workers were busy since the previous measurement.
    pub(crate) load: f64,
    /// How late a timer fired.
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

    /// Replaces the snapshot after a (re)load.
    pub(crate) fn set_snapshot(&self, mut snapshot: ConfigSnapshot) {
        let mut current = lock(&self.snapshot);
        snapshot.n_loads = current.n_loads + 1;
        snapshot.loaded_at = unix_millis();
        let is_enabled =
            snapshot.servers.iter().any(|server| server.packs.iter().any(|pack| pack == "runtime"));
        *current = Arc::new(snapshot);
        drop(current);
        self.update_subscriptions(is_enabled);
    }

    /// Requests a reload of the configuration.
    pub(crate) fn request_reload(&self) {
        self.reload.notify_one();
    }

    /// Whether a server uses the pack `runtime`, so that requests are recorded.
    pub(crate) fn is_collecting(&self) -> bool {
        observe::is_enabled()
    }

    /// Subscribes to the events of all servers, or unsubscribes.
    fn update_subscriptions(&self, is_enabled: bool) {
        observe::set_enabled(is_enabled);
        let mut subscriptions = lock(&self.subscriptions);
        if !is_enabled {
            subscriptions.drain(..).for_each(|subscription| subscription.off());
            return;
        }
        if !subscriptions.is_empty() {
            return;
        }
        let events = self.servers.events();
        let servers = self.servers.clone();
        subscriptions.push(events.on_response(move |response| record_response(&servers, response)));
        let (buffer, servers) = (Arc::clone(&self.events), self.servers.clone());
        subscriptions.push(events.on_error(move |error| {
            push_event(
                &buffer,
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
        let buffer = Arc::clone(&self.events);
        subscriptions.push(events.on_server(move |event| {
            push_event(
                &buffer,
                &format!("{:?}", event.change()),
                event.name(),
                &json!({ "version": event.version() }),
            );
        }));
    }

    /// The newest events, newest first.
    pub(crate) fn events(&self, limit: usize) -> Vec<Value> {
        lock(&self.events).iter().rev().take(limit).cloned().collect()
    }

    /// Returns the job with this name, creating it if necessary.
    pub(crate) fn job(&self, name: &'static str, description: &'static str) -> Arc<ScheduledJob> {
        let mut jobs = lock(&self.jobs);
        if let Some(current) = jobs.iter().find(|job| job.name == name) {
            return Arc::clone(current);
        }
        let job = Arc::new(ScheduledJob::new(name, description));
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

    /// Measures the load of the runtime. `lag` is how late the caller's timer fired.
    pub(crate) fn record_heartbeat(&self, lag: Duration) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let metrics = runtime.metrics();
        let n_workers = metrics.num_workers();
        let busy: Duration = (0..n_workers).map(|worker| metrics.worker_total_busy_duration(worker)).sum();
        let mut heartbeat = lock(&self.heartbeat);
        if let Some(previous) = heartbeat.measured_at {
            let available_secs = previous.elapsed().as_secs_f64() * n_workers as f64;
            let busy_secs = busy.saturating_sub(heartbeat.busy).as_secs_f64();
            heartbeat.load = if available_secs > 0.0 { (busy_secs / available_secs).min(1.0) } else { 0.0 };
        }
        *heartbeat = Heartbeat { measured_at: Some(Stopwatch::start()), busy, lag, ..*heartbeat };
    }
}
