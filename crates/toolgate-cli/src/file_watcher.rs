//! Watches folders for changes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

/// How long a folder must be quiet before a burst of changes is handled.
pub(crate) const FOLDER_DEBOUNCE: Duration = Duration::from_millis(100);
/// Like [`FOLDER_DEBOUNCE`], for a configuration file, which is usually written at once. Long enough for programs that
/// truncate the file first.
pub(crate) const FILE_DEBOUNCE: Duration = Duration::from_millis(15);

/// Notifies of changes in folders. Several changes are one notification.
pub(crate) struct FileWatcher {
    watcher: Option<RecommendedWatcher>,
    change_notify: Arc<Notify>,
}

impl FileWatcher {
    pub(crate) fn new() -> FileWatcher {
        let change_notify = Arc::new(Notify::new());
        let changed = Arc::clone(&change_notify);
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // Reading a file is not a change, and a reload reads it.
            if !matches!(event, Ok(Event { kind: EventKind::Access(_), .. })) {
                changed.notify_one();
            }
        });
        let watcher =
            watcher.inspect_err(|error| tracing::warn!(%error, "cannot watch files for changes")).ok();
        FileWatcher { watcher, change_notify }
    }

    /// Adds a folder, with its subfolders if `mode` is recursive.
    pub(crate) fn add(&mut self, folder: &Path, mode: RecursiveMode) {
        if let Some(Err(error)) = self.watcher.as_mut().map(|watcher| watcher.watch(folder, mode)) {
            tracing::warn!(folder = %folder.display(), %error, "cannot watch this folder for changes");
        }
    }

    /// Waits for a change, and then until nothing has changed for the duration of `pause`.
    ///
    /// Cancel safe: no, because a change may be missed.
    pub(crate) async fn changed(&self, pause: Duration) {
        self.change_notify.notified().await;
        // Returns even if changes never stop.
        for _ in 0..10 {
            if tokio::time::timeout(pause, self.change_notify.notified()).await.is_err() {
                break;
            }
        }
    }
}
