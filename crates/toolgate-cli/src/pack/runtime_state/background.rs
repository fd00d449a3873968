//! Background work: scheduled jobs and folder watchers.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::clock::{Stopwatch, format_iso8601, unix_millis};
use crate::sync::lock;

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
    pub(super) fn new(name: &'static str, about: &'static str) -> ScheduledJob {
        ScheduledJob {
            name,
            description: about,
            interval: Mutex::default(),
            is_paused: AtomicBool::new(false),
            n_runs: AtomicU64::new(0),
            last_run: AtomicU64::new(0),
            last_run_micros: AtomicU64::new(0),
            wake: Notify::new(),
            is_requested: AtomicBool::new(false),
        }
    }

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
