//! Reloads a configuration while it is served.
//!
//! The servers of a changed configuration are built next to those that are served, and replace them in one step. If
//! anything is wrong with it, the old ones stay.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::RecursiveMode;
use tokio::task::JoinSet;
use toolgate::http::{Connections, MountHandle};

use super::background::{sync_file_resources, watch_health};
use super::{config_snapshot, mounts};
use crate::build::{BuiltServer, ServeMode, Upstreams, build_servers};
use crate::clock::Stopwatch;
use crate::config::{self, ConfigFiles, FileStamp, LoadedConfig, parent_folder};
use crate::file_watcher::{self, FileWatcher};
use crate::pack::runtime_state::{ConfigSnapshot, FolderWatcher, RuntimeState, ScheduledJob};

/// How long to wait before a document that could not be fetched is fetched again.
const MISSING_DOCUMENT_RETRY: Duration = Duration::from_secs(30);

/// The address that the program listens on, and its connections.
pub(super) struct ActiveListener {
    pub(super) address: String,
    pub(super) connections: Connections,
}

/// Whether a configuration is read because a file may have changed, or because a reload was requested.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReloadTrigger {
    FileChange,
    Request,
}

/// Updates the running servers when the configuration changes.
pub(super) struct Reloader {
    config_path: PathBuf,
    mode: ServeMode,
    runtime_state: Arc<RuntimeState>,
    mounts: Option<MountHandle>,
    files: ConfigFiles,
    listen: config::Listen,
    stats_path: Option<String>,
    metrics_path: Option<String>,
    /// The configuration as written, without secrets.
    redacted: serde_json::Value,
    pub(super) listener: Option<ActiveListener>,
    refresh_job: Arc<ScheduledJob>,
    watcher: Arc<FolderWatcher>,
    /// The settings of the servers that are served.
    current_servers: Vec<config::Server>,
    pub(super) upstreams: Upstreams,
    /// Files that the configuration names, as they were read.
    file_stamps: Vec<FileStamp>,
    /// Files that the last rejected configuration names: it may become valid when one of them changes.
    rejected_file_stamps: Vec<FileStamp>,
    /// How often databases were asked again for missing output schemas; `None` if none is missing.
    describe_retries: Option<u32>,
    /// Whether the configuration that was read last is not served.
    is_rejected: bool,
    file_watcher: FileWatcher,
    reload_signal: ReloadSignal,
    /// Background tasks of the servers that are served. They end when the set is replaced.
    tasks: JoinSet<()>,
}

impl Reloader {
    pub(super) fn new(
        file: &Path,
        mode: ServeMode,
        runtime_state: Arc<RuntimeState>,
        mounts: Option<MountHandle>,
        loaded: LoadedConfig,
        upstreams: Upstreams,
    ) -> Reloader {
        let config = loaded.config;
        let refresh_job =
            runtime_state.job("refresh_descriptions", "fetches API documents again to find changes");
        let folders = config.files.folders().into_iter().collect();
        let watcher =
            FolderWatcher::new("configuration".to_owned(), "the files of the configuration", folders);
        let mut reloader = Reloader {
            config_path: file.to_owned(),
            mode,
            runtime_state,
            mounts,
            files: config.files,
            listen: config.listen,
            stats_path: config.stats_path,
            metrics_path: config.metrics_path,
            redacted: config.redacted,
            listener: None,
            refresh_job,
            watcher,
            current_servers: Vec::new(),
            upstreams,
            file_stamps: Vec::new(),
            rejected_file_stamps: Vec::new(),
            describe_retries: None,
            is_rejected: false,
            file_watcher: FileWatcher::new(),
            reload_signal: ReloadSignal::new(),
            tasks: JoinSet::new(),
        };
        reloader.watch_files();
        reloader
    }

    /// Watches the folders of all files of the configuration. The files themselves are not enough, because editors
    /// replace them.
    fn watch_files(&mut self) {
        self.file_watcher = FileWatcher::new();
        let mut folders = self.files.folders();
        folders.insert(parent_folder(&self.config_path));
        folders.extend(self.file_stamps.iter().chain(&self.rejected_file_stamps).map(FileStamp::folder));
        for folder in folders.iter().filter(|folder| folder.is_dir()) {
            self.file_watcher.add(folder, RecursiveMode::NonRecursive);
        }
    }

    /// Starts the background tasks of servers that are served from now on, and logs their warnings.
    pub(super) fn activate(&mut self, servers: Vec<BuiltServer>) {
        self.tasks = JoinSet::new();
        let mut watchers = vec![Arc::clone(&self.watcher)];
        for built in &servers {
            for warning in &built.warnings {
                let (at, message) = (self.files.locate(warning.span), &warning.message);
                tracing::warn!(server = built.config.name, at, "{message}");
            }
            let Some(server) = self.runtime_state.servers.get(&built.config.name) else { continue };
            for files in &built.watched_folders {
                let name = format!("{}:{}", built.config.name, files.root().display());
                let description = "a folder whose files are resources";
                let watcher = FolderWatcher::new(name, description, vec![files.root().to_owned()]);
                self.tasks.spawn(sync_file_resources(
                    server.clone(),
                    Arc::clone(files),
                    Arc::clone(&watcher),
                ));
                watchers.push(watcher);
            }
        }
        self.publish_snapshot(&servers, watchers);
        let has_missing_schema = servers.iter().any(|built| built.has_missing_schema);
        self.describe_retries =
            has_missing_schema.then(|| self.describe_retries.map_or(0, |retries| retries + 1));
        self.file_stamps = servers.iter().flat_map(|built| built.file_stamps.clone()).collect();
        self.current_servers = servers.into_iter().map(|built| built.config).collect();
        self.watch_files();
    }

    /// Publishes the state that the pack `runtime` shows.
    fn publish_snapshot(&mut self, servers: &[BuiltServer], watchers: Vec<Arc<FolderWatcher>>) {
        self.runtime_state.set_watchers(watchers);
        let snapshot =
            config_snapshot(&self.config_path, &self.files, &self.redacted, servers, &self.upstreams);
        self.runtime_state.set_snapshot(ConfigSnapshot {
            connections: self.listener.as_ref().map(|listener| listener.connections.clone()),
            max_connections: self.listen.max_connections,
            address: self.listener.as_ref().map(|listener| listener.address.clone()),
            ..snapshot
        });
        if self.runtime_state.is_collecting() {
            self.tasks.spawn(watch_health(Arc::clone(&self.runtime_state)));
        }
    }

    /// Reloads the configuration whenever it changes or a reload is requested. Never returns.
    pub(super) async fn run(&mut self) {
        loop {
            // Finds changes made while nothing was watched.
            while !self.watcher.is_stopped() && self.reload(ReloadTrigger::FileChange).await {}
            self.refresh_job.set_interval(self.refresh_interval());
            let (refresh_job, watcher) = (Arc::clone(&self.refresh_job), Arc::clone(&self.watcher));
            let runtime_state = Arc::clone(&self.runtime_state);
            tokio::select! {
                biased;
                () = self.reload_signal.recv() => {
                    self.upstreams.invalidate();
                    self.reload(ReloadTrigger::Request).await;
                }
                () = runtime_state.reload.notified() => {
                    self.upstreams.invalidate();
                    self.reload(ReloadTrigger::Request).await;
                }
                () = self.file_watcher.changed(file_watcher::FILE_DEBOUNCE) => watcher.record_change(),
                () = watcher.wait_while_stopped(), if watcher.is_stopped() => {}
                () = refresh_job.wait_until_due() => {
                    let run_time = Stopwatch::start();
                    self.refresh_documents().await;
                    refresh_job.record_run(run_time);
                }
            }
        }
    }

    /// Fetches API documents again, and reloads if one has changed or an output schema is missing.
    async fn refresh_documents(&mut self) {
        let apis = self
            .current_servers
            .iter()
            .flat_map(|server| server.openapi.iter().map(|api| (server.name.as_str(), api)));
        let before = self.upstreams.clone();
        if self.upstreams.refresh_documents(apis).await || self.describe_retries.is_some() {
            self.reload(ReloadTrigger::Request).await;
            // If the new document is invalid, keeping it would also prevent later changes of the file from being
            // served.
            if self.is_rejected {
                self.upstreams = before;
            }
        }
    }

    /// How long to wait until documents are fetched again, or databases asked again; `None` if neither is needed.
    fn refresh_interval(&self) -> Option<Duration> {
        let apis = self.current_servers.iter().flat_map(|server| &server.openapi);
        let intervals = apis.filter_map(|api| match api.spec.url() {
            Some(url) if !self.upstreams.has_document(url) => {
                Some(api.refresh.unwrap_or(MISSING_DOCUMENT_RETRY).min(MISSING_DOCUMENT_RETRY))
            }
            Some(_) => api.refresh,
            None => None,
        });
        intervals.chain(self.describe_retries.map(describe_retry_delay)).min()
    }

    /// Reads the configuration and serves it if it is valid. Returns false if nothing had changed, or if reading it
    /// panicked.
    async fn reload(&mut self, trigger: ReloadTrigger) -> bool {
        let Some((loaded, mut servers, upstreams)) = self.load(trigger).await else { return false };
        let problems = loaded.error_summary().or_else(|| self.exposure(&servers));
        self.is_rejected = problems.is_some();
        if let Some(problems) = problems {
            // Remembered, so that the same text is not reported again.
            self.files = loaded.config.files;
            self.file_stamps.iter_mut().for_each(FileStamp::refresh);
            self.rejected_file_stamps = loaded.config.file_stamps;
            self.watch_files();
            tracing::error!(
                "the configuration is invalid; keeping the old one (`toolgate check` shows the lines):\n{problems}"
            );
            return true;
        }
        let paths = (&loaded.config.stats_path, &loaded.config.metrics_path);
        if loaded.config.listen != self.listen || paths != (&self.stats_path, &self.metrics_path) {
            tracing::warn!(
                "`[listen]` or a path of `[stats]` has changed, which takes effect after a restart; all other changes are applied"
            );
        }
        if self.mode == ServeMode::Local {
            servers.retain(|built| self.current_servers.iter().any(|known| known.name == built.config.name));
        }
        self.swap_servers(&servers);
        self.upstreams = upstreams;
        self.rejected_file_stamps = Vec::new();
        self.files = loaded.config.files;
        self.redacted = loaded.config.redacted;
        self.activate(servers);
        tracing::info!(servers = self.current_servers.len(), "configuration reloaded");
        true
    }

    /// Returns why servers must not be served at the address that the program listens on, whatever the file says.
    fn exposure(&self, servers: &[BuiltServer]) -> Option<String> {
        let address = &self.listener.as_ref()?.address;
        if address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback()) {
            return None;
        }
        servers.iter().find_map(|built| {
            Some(format!("server `{}`: {}", built.config.name, built.config.exposure(address)?))
        })
    }

    /// Reads the configuration and builds its servers. Returns `None` if nothing has changed and no reload was
    /// requested.
    async fn load(&self, trigger: ReloadTrigger) -> Option<(LoadedConfig, Vec<BuiltServer>, Upstreams)> {
        let (file, mode, known) = (self.config_path.clone(), self.mode, self.files.clone());
        let runtime_state = Arc::clone(&self.runtime_state);
        let mut upstreams = self.upstreams.clone();
        let file_stamps: Vec<FileStamp> =
            self.file_stamps.iter().chain(&self.rejected_file_stamps).cloned().collect();
        let loaded = tokio::task::spawn_blocking(move || {
            let mut loaded = config::load(&file);
            let has_changed =
                || loaded.config.files != known || file_stamps.iter().any(FileStamp::has_changed);
            if trigger == ReloadTrigger::FileChange && !has_changed() {
                return None;
            }
            let servers =
                build_servers(&loaded.config, mode, &runtime_state, &mut upstreams, &mut loaded.diagnostics);
            Some((loaded, servers, upstreams))
        });
        loaded.await.unwrap_or_else(|error| {
            tracing::error!(%error, "cannot read the configuration; keeping the old one");
            None
        })
    }

    /// Replaces the servers that are served.
    fn swap_servers(&mut self, servers: &[BuiltServer]) {
        let served = &self.runtime_state.servers;
        for built in servers.iter().filter(|built| !served.has(&built.config.name)) {
            served.replace(&built.server);
        }
        if let Some(handle) = &self.mounts
            && let Err(error) = handle.replace(mounts(servers))
        {
            tracing::error!(%error, "cannot replace the paths; keeping the old ones");
        }
        for built in servers {
            let name = &built.config.name;
            let before = self.current_servers.iter().find(|known| known.name == *name);
            let live = served.get(name).filter(|live| !live.ptr_eq(&built.server));
            let (Some(before), Some(live)) = (before, live) else { continue };
            // With the same settings, clients stay connected. With other settings the server is replaced, so that no
            // session that the old guards admitted reaches the new server.
            let is_same = self.mode == ServeMode::Local || before.settings == built.config.settings;
            if !is_same {
                served.replace(&built.server);
            } else if let Err(error) = live.replace_catalog(&built.server) {
                tracing::error!(server = name, %error, "cannot replace the server; keeping the old one");
            }
        }
        if self.mode == ServeMode::Http {
            for name in served.names() {
                if !servers.iter().any(|built| built.config.name == name) {
                    served.remove(&name);
                }
            }
        }
    }
}

/// How long to wait before databases that did not answer are asked again: one second, doubled each time, at most five
/// minutes.
fn describe_retry_delay(retries: u32) -> Duration {
    (Duration::from_secs(1) * 2_u32.saturating_pow(retries.min(9))).min(Duration::from_secs(300))
}

/// Receives `SIGHUP`, which requests a reload. Other systems than Unix have no such signal.
struct ReloadSignal {
    #[cfg(unix)]
    sighup: Option<tokio::signal::unix::Signal>,
}

impl ReloadSignal {
    #[cfg(unix)]
    fn new() -> ReloadSignal {
        use tokio::signal::unix::{SignalKind, signal};
        ReloadSignal { sighup: signal(SignalKind::hangup()).ok() }
    }

    /// Cancel safe: yes, because a signal that arrives meanwhile is received by the next call.
    #[cfg(unix)]
    async fn recv(&mut self) {
        match &mut self.sighup {
            Some(sighup) => {
                sighup.recv().await;
            }
            None => std::future::pending().await,
        }
    }

    #[cfg(not(unix))]
    fn new() -> ReloadSignal {
        ReloadSignal {}
    }

    #[cfg(not(unix))]
    fn recv(&mut self) -> impl std::future::Future<Output = ()> {
        std::future::pending()
    }
}
