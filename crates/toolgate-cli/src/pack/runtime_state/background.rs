//! Background work: scheduled jobs and folder watchers.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::clock::{Stopwatch, format_iso8601, unix_millis};
use crate::sync::lock;

/// A job that runs periodically.
#[derive(Debug)]
pub(crate) struct ScheduledJob {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    interval: Mutex<Option<Duration>>,
    is_paused: AtomicBool,
    n_runs: AtomicU64,
    last_run: AtomicU64,
    last_run_micros: AtomicU64,
    /// Notified when a run is requested, or when the job is resumed.
    wake: Notify,
    is_requested: AtomicBool,
}

impl ScheduledJob {
    pub(super) fn new(name: &'static str, description: &'static str) -> ScheduledJob {
        ScheduledJob {
            name,
            description,
            interval: Mutex::default(),
            is_paused: AtomicBool::new(false),
            n_runs: AtomicU64::new(0),
            last_run: AtomicU64::new(0),
            last_run_micros: AtomicU64::new(0),
            wake: Notify::new(),
            is_requested: AtomicBool::new(false),
        }
    }

    /// Sets the interval; `None` deactivates the job.
    pub(crate) fn set_interval(&self, interval: Option<Duration>) {
        *lock(&self.interval) = interval;
    }

    pub(crate) fn interval(&self) -> Option<Duration> {
        *lock(&self.interval)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused.load(Relaxed)
    }

    pub(crate) fn pause(&self) {
        self.is_paused.store(true, Relaxed);
        self.wake.notify_one();
    }

    pub(crate) fn resume(&self) {
        self.is_paused.store(false, Relaxed);
        self.wake.notify_one();
    }

    pub(crate) fn request_run(&self) {
        self.is_requested.store(true, Relaxed);
        self.wake.notify_one();
    }

    /// Waits until the job is due.
    ///
    /// Cancel safe: yes, because a request stays pending.
    pub(crate) async fn wait_until_due(&self) {
        loop {
            if self.is_requested.swap(false, Relaxed) {
                return;
            }
            let interval = self.interval().filter(|_| !self.is_paused());
            let timer = async {
                match interval {
                    Some(interval) => tokio::time::sleep(interval).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.wake.notified() => {}
                () = timer => return,
            }
        }
    }

    /// Records a completed run.
    pub(crate) fn record_run(&self, stopwatch: Stopwatch) {
        self.n_runs.fetch_add(1, Relaxed);
        self.last_run.store(unix_millis(), Relaxed);
        self.last_run_micros
            .store(u64::try_from(stopwatch.elapsed().as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    pub(crate) fn to_json(&self) -> Value {
        let last_at = self.last_run.load(Relaxed);
        json!({
            "name": self.name,
            "description": self.description,
            "everyMs": self.interval().map(|interval| u64::try_from(interval.as_millis()).unwrap_or(u64::MAX)),
            "active": self.interval().is_some(),
            "paused": self.is_paused(),
            "runs": self.n_runs.load(Relaxed),
            "lastRunAt": (last_at > 0).then(|| format_iso8601(last_at)),
            "lastRunMs": self.last_run_micros.load(Relaxed) as f64 / 1000.0,
        })
    }
}

/// A watcher of folders.
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
    pub(crate) fn new(name: String, description: &'static str, folders: Vec<PathBuf>) -> Arc<FolderWatcher> {
        Arc::new(FolderWatcher {
            name,
            folders,
            description,
            is_stopped: AtomicBool::new(false),
            n_changes: AtomicU64::new(0),
            n_errors: AtomicU64::new(0),
            last_change: AtomicU64::new(0),
            wake: Notify::new(),
        })
    }

    /// Records a change.
    pub(crate) fn record_change(&self) {
        self.n_changes.fetch_add(1, Relaxed);
        self.last_change.store(unix_millis(), Relaxed);
    }

    /// Records an error while watching.
    pub(crate) fn record_error(&self) {
        self.n_errors.fetch_add(1, Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Relaxed)
    }

    pub(crate) fn n_errors(&self) -> u64 {
        self.n_errors.load(Relaxed)
    }

    pub(crate) fn stop(&self) {
        self.set_stopped(true);
    }

    pub(crate) fn start(&self) {
        self.set_stopped(false);
    }

    fn set_stopped(&self, is_stopped: bool) {
        self.is_stopped.store(is_stopped, Relaxed);
        self.wake.notify_waiters();
        self.wake.notify_one();
    }

    /// Waits while the watcher is stopped.
    ///
    /// Cancel safe: yes, because it changes nothing.
    pub(crate) async fn wait_while_stopped(&self) {
        while self.is_stopped() {
            self.wake.notified().await;
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let last_at = self.last_change.load(Relaxed);
        let folders = self.folders.iter().map(|folder| folder.display().to_string());
        json!({
            "name": self.name,
            "description": self.description,
            "paths": folders.collect::<Vec<_>>(),
            "running": !self.is_stopped(),
            "changes": self.n_changes.load(Relaxed),
            "errors": self.n_errors(),
            "lastChangeAt": (last_at > 0).then(|| format_iso8601(last_at)),
        })
    }
}
