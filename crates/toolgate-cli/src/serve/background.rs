//! Background tasks of a configuration that is served: health notifications, and resources that follow files.

use std::sync::Arc;
use std::time::Duration;

use notify::RecursiveMode;
use toolgate::Server;
use toolgate_sources::source::files::Files;

use crate::build::file_resource;
use crate::clock::Stopwatch;
use crate::file_watcher::{self, FileWatcher};
use crate::pack::runtime::health;
use crate::pack::runtime_state::{FolderWatcher, RuntimeState};

const HEALTH_INTERVAL: Duration = Duration::from_secs(5);

/// Notifies subscribers of `runtime://health` when the status changes. Never returns while the runtime lives.
pub(super) async fn watch_health(runtime_state: Arc<RuntimeState>) {
    let job = runtime_state.job(
        "watch_health",
        "checks the health and notifies subscribers of `runtime://health` when it changes",
    );
    job.set_interval(Some(HEALTH_INTERVAL));
    let mut previous_status = None;
    runtime_state.record_heartbeat(Duration::ZERO);
    loop {
        let run_time = Stopwatch::start();
        let state = Arc::clone(&runtime_state);
        let Ok(status) = tokio::task::spawn_blocking(move || health(&state)["status"].to_string()).await
        else {
            return;
        };
        if previous_status.as_ref().is_some_and(|previous| *previous != status) {
            for summary in &runtime_state.snapshot().servers {
                if summary.packs.iter().any(|pack| pack == "runtime")
                    && let Some(server) = runtime_state.servers.get(&summary.name)
                {
                    server.notify().resource_updated("runtime://health");
                }
            }
        }
        previous_status = Some(status);
        job.record_run(run_time);
        let wait_time = Stopwatch::start();
        job.wait_until_due().await;
        // A run that was triggered early has no lag.
        let lag = wait_time.elapsed().saturating_sub(HEALTH_INTERVAL);
        runtime_state.record_heartbeat(lag);
    }
}

/// Registers and removes resources as the files of a folder change, and notifies clients. Returns only if listing the
/// files panics.
pub(super) async fn sync_file_resources(
    server: Server,
    files: Arc<Files>,
    folder_watcher: Arc<FolderWatcher>,
) {
    let mut file_watcher = FileWatcher::new();
    file_watcher.add(files.root(), RecursiveMode::Recursive);
    loop {
        // The first round finds changes made before the watcher was set up.
        let listed_files = Arc::clone(&files);
        let Ok(changes) = tokio::task::spawn_blocking(move || listed_files.take_changes()).await else {
            folder_watcher.record_error();
            return;
        };
        for uri in &changes.removed {
            server.remove_resource(uri);
            server.notify().resource_updated(uri);
        }
        for listed in changes.added.iter().chain(&changes.changed) {
            if let Err(error) = server.add_resource(file_resource(&files, listed)) {
                tracing::warn!(uri = listed.uri, %error, "cannot add the file as a resource");
            }
        }
        for listed in &changes.changed {
            server.notify().resource_updated(&listed.uri);
        }
        file_watcher.changed(file_watcher::FOLDER_DEBOUNCE).await;
        folder_watcher.record_change();
        folder_watcher.wait_while_stopped().await;
    }
}
