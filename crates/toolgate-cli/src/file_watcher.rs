//! Who tells when something in a folder changes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

/// Changes come in bursts; what is done about them waits until one is over.
pub(crate) const FOLDER_DEBOUNCE: Duration = Duration::from_millis(100);
/// The same for a file that is written at once: long enough for who empties it first.
pub(crate) const FILE_DEBOUNCE: Duration = Duration::from_millis(15);

/// Stirs when something changes below folders. However much changes, it stirs once.
pub(crate) struct FileWatcher {
    watcher: Option<RecommendedWatcher>,
    change_notify: Arc<Notify>,
}

impl FileWatcher {
    pub(crate) fn new() -> FileWatcher {
        let change_notify = Arc::new(Notify::new());
        let stir = Arc::clone(&change_notify);
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // Reading a file is no change of it, and we read it ourselves when it changes.
            if !matches!(event, Ok(Event { kind: EventKind::Access(_), .. })) {
                stir.notify_one();
            }
        });
        let watcher =
            watcher.inspect_err(|error| tracing::warn!(%error, "cannot watch files for changes")).ok();
        FileWatcher { watcher, change_notify }
    }

    /// Also looks at this folder, and at those in it if `mode` says so.
    pub(crate) fn add(&mut self, folder: &Path, mode: RecursiveMode) {
        if let Some(Err(error)) = self.watcher.as_mut().map(|watcher| watcher.watch(folder, mode)) {
            tracing::warn!(folder = %folder.display(), %error, "cannot watch this folder for changes");
        }
    }

    /// Waits until something has changed, and until nothing more has for a while. Cancel safe: no, a change may be missed.
    pub(crate) async fn changed(&self, pause: Duration) {
        self.change_notify.notified().await;
        // Ends even where something changes all the time.
        for _ in 0..10 {
            if tokio::time::timeout(pause, self.change_notify.notified()).await.is_err() {
                break;
            }
        }
    }
}
