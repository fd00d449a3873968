//! A configuration, served: over HTTP or to the one client that started us, and anew when it changes.
//!
//! What a changed file says is made ready beside what is served, and put in its place in one step. Where anything is
//! wrong with it, nothing is touched.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::RecursiveMode;
use tokio::task::JoinSet;
use toolgate::http::{Connections, ListenOptions, MountHandle};
use toolgate::{App, Mount, Server};

use crate::build::{BuiltServer, ServeMode, Upstreams, build_servers, file_resource};
use crate::catalog;
use crate::cli::LogFormat;
use crate::clock::Stopwatch;
use crate::config::{self, ConfigFiles, FileStamp, LoadedConfig, parent_folder};
use crate::file_watcher::{self, FileWatcher};
use crate::pack::runtime::health;
use crate::pack::runtime_state::{ConfigSnapshot, FolderWatcher, RuntimeState, ScheduledJob, ServerSummary};
use crate::source::files::Files;
use crate::{CliError, bind};

/// What was made of a configuration.
pub(crate) struct PreparedServers {
    pub(crate) loaded: LoadedConfig,
    pub(crate) servers: Vec<BuiltServer>,
    pub(crate) upstreams: Upstreams,
    pub(crate) runtime_state: Arc<RuntimeState>,
}

/// Reads a configuration and makes its servers, or says everything that is wrong.
pub(crate) async fn prepare(file: &Path, road: ServeMode) -> Result<PreparedServers, CliError> {
    prepare_with(file, road, Upstreams::default()).await
}

/// The same with what is known of databases and APIs already.
pub(crate) async fn prepare_with(
    file: &Path,
    road: ServeMode,
    mut backends: Upstreams,
) -> Result<PreparedServers, CliError> {
    let file = file.to_owned();
    // Files are read and sources may ask a database what it has: where nobody else has to wait for it.
    let made = tokio::task::spawn_blocking(move || {
        let mut loaded = config::load(&file);
        let world = Arc::default();
        let composed = build_servers(&loaded.config, road, &world, &mut backends, &mut loaded.diagnostics);
        PreparedServers { loaded, servers: composed, upstreams: backends, runtime_state: world }
    });
    let prepared = made.await.map_err(|error| CliError::Run(error.to_string()))?;
    match prepared.loaded.error_report() {
        None => Ok(prepared),
        Some(told) => Err(CliError::Config(told)),
    }
}

/// Serves a configuration over HTTP.
pub(crate) async fn http(file: &Path, listen: Option<String>, format: LogFormat) -> Result<(), CliError> {
    let prepared = prepare_with(file, ServeMode::Http, Upstreams::with_storage()).await?;
    let PreparedServers { loaded, servers: composed, upstreams: backends, runtime_state: world } = prepared;
    let config = &loaded.config;
    let servers = &world.servers;
    let options = ListenOptions::default().max_connections(config.listen.max_connections);
    let connections = options.connections();
    let mut app = App::new(servers).health().shutdown_timeout(config.listen.shutdown_grace).listener(options);
    if let Some(path) = &config.stats_path {
        app = app.stats_at(path);
    }
    if let Some(path) = &config.metrics_path {
        app = app.metrics_at(path);
    }
    for made in &composed {
        servers.replace(&made.server);
    }
    for (path, mount) in mounts(&composed) {
        app = app.mount(path, mount);
    }
    let listener = bind(listen.as_deref().unwrap_or(&config.listen.http)).await.map_err(CliError::Run)?;
    let address = listener.local_addr().map_err(|error| CliError::Run(error.to_string()))?;
    if let Some(open) =
        composed.iter().find(|made| made.config.is_runtime_exposed() && !address.ip().is_loopback())
    {
        let name = &open.config.name;
        return Err(CliError::Usage(format!(
            "the server `{name}` shows the inside of this program (pack `runtime`) to whoever reaches {address}: give it an `auth`"
        )));
    }
    let mut keeper = Reloader::new(file, ServeMode::Http, world, Some(app.mounts()), loaded, backends);
    keeper.listener = Some((address.to_string(), connections));
    let keeping = async {
        // Polled after the serving: whoever reads that we serve may ask us to end, or change the file, at once.
        print_listening(&address.to_string(), &composed, format);
        keeper.activate(composed);
        keeper.run().await;
    };
    let served = tokio::select! {
        biased;
        served = app.serve(listener) => served.map_err(|error| CliError::Run(error.to_string())),
        () = keeping => Ok(()),
    };
    keeper.upstreams.close().await;
    served
}

/// Serves one server of a configuration to the client that started us.
pub(crate) async fn stdio(file: &Path, name: Option<&str>) -> Result<(), CliError> {
    let prepared = prepare_with(file, ServeMode::Local, Upstreams::with_storage()).await?;
    let PreparedServers { loaded, servers: composed, upstreams: backends, runtime_state: world } = prepared;
    let chosen = select_server(&composed, name)?;
    let server = chosen.server.clone();
    let only = chosen.config.name.clone();
    world.servers.replace(&server);
    let mut keeper = Reloader::new(file, ServeMode::Local, world, None, loaded, backends);
    keeper.activate(composed.into_iter().filter(|made| made.config.name == only).collect());
    let served = tokio::select! {
        biased;
        served = server.serve_stdio() => served.map_err(|error| CliError::Run(error.to_string())),
        () = keeper.run() => Ok(()),
    };
    keeper.upstreams.close().await;
    served
}

/// The server that is meant.
pub(crate) fn select_server<'a>(
    composed: &'a [BuiltServer],
    name: Option<&str>,
) -> Result<&'a BuiltServer, CliError> {
    let names: Vec<&str> = composed.iter().map(|made| made.config.name.as_str()).collect();
    match (name, composed) {
        (None, [only]) => Ok(only),
        (None, _) => {
            Err(CliError::Usage(format!("there are several servers: choose one of {}", names.join(", "))))
        }
        (Some(name), _) => composed.iter().find(|made| made.config.name == name).ok_or_else(|| {
            CliError::Usage(format!("there is no server `{name}`; there are {}", names.join(", ")))
        }),
    }
}

fn print_listening(address: &str, composed: &[BuiltServer], format: LogFormat) {
    for made in composed {
        let url = format!("http://{address}{}", made.config.path);
        let (name, server) = (&made.config.name, &made.server);
        let (tools, resources, prompts) =
            (server.tool_count(), server.resource_count(), server.prompt_count());
        match format {
            LogFormat::Json => tracing::info!(server = name, url, tools, resources, prompts, "listening"),
            LogFormat::Text => eprintln!(
                "{name}: listening on {url} ({tools} tools, {resources} resources, {prompts} prompts)"
            ),
        }
    }
    if format == LogFormat::Text {
        eprintln!("Ctrl-C ends it; a change of the configuration is served at once.");
    }
}

/// Keeps what is served as the configuration says.
struct Reloader {
    config_path: PathBuf,
    mode: ServeMode,
    runtime_state: Arc<RuntimeState>,
    mounts: Option<MountHandle>,
    files: ConfigFiles,
    listen: config::Listen,
    stats_path: Option<String>,
    metrics_path: Option<String>,
    /// What the files say, without secrets.
    redacted: serde_json::Value,
    /// Where it listens, and who is connected.
    listener: Option<(String, Connections)>,
    refresh_job: Arc<ScheduledJob>,
    watcher: Arc<FolderWatcher>,
    /// What each server was made of.
    current_servers: Vec<config::Server>,
    upstreams: Upstreams,
    /// Files beside the configuration, as they were read.
    file_stamps: Vec<FileStamp>,
    /// Files that a configuration names that was refused: one of them may be what it lacks.
    rejected_file_stamps: Vec<FileStamp>,
    /// Some database did not say what its statements give; how often it was asked again.
    describe_retries: Option<u32>,
    /// What was read last is not what is served.
    is_rejected: bool,
    file_watcher: FileWatcher,
    reload_signal: ReloadSignal,
    /// Tasks that watch folders. They end when something else takes their place.
    tasks: JoinSet<()>,
}

impl Reloader {
    fn new(
        file: &Path,
        road: ServeMode,
        world: Arc<RuntimeState>,
        mounts: Option<MountHandle>,
        loaded: LoadedConfig,
        backends: Upstreams,
    ) -> Reloader {
        let config = loaded.config;
        let refreshing =
            world.job("refresh_descriptions", "looks whether descriptions of APIs behind URLs have changed");
        let folders = config.files.folders().into_iter().collect();
        let mut keeper = Reloader {
            config_path: file.to_owned(),
            mode: road,
            runtime_state: world,
            mounts,
            listen: config.listen,
            stats_path: config.stats_path,
            metrics_path: config.metrics_path,
            redacted: config.redacted,
            listener: None,
            refresh_job: refreshing,
            watcher: FolderWatcher::new(
                "configuration".to_owned(),
                "the files of the configuration",
                folders,
            ),
            files: config.files,
            current_servers: Vec::new(),
            upstreams: backends,
            file_stamps: Vec::new(),
            rejected_file_stamps: Vec::new(),
            describe_retries: None,
            is_rejected: false,
            file_watcher: FileWatcher::new(),
            reload_signal: ReloadSignal::new(),
            tasks: JoinSet::new(),
        };
        keeper.watch_files();
        keeper
    }

    /// Looks at the folders of all files of the configuration: editors put new files in the place of old ones.
    fn watch_files(&mut self) {
        self.file_watcher = FileWatcher::new();
        let mut folders = self.files.folders();
        folders.insert(parent_folder(&self.config_path));
        folders.extend(self.file_stamps.iter().chain(&self.rejected_file_stamps).map(FileStamp::folder));
        for folder in folders.iter().filter(|folder| folder.is_dir()) {
            self.file_watcher.add(folder, RecursiveMode::NonRecursive);
        }
    }

    /// What was made is served: from now on its folders are watched.
    fn activate(&mut self, composed: Vec<BuiltServer>) {
        self.tasks = JoinSet::new();
        let mut watchers = vec![Arc::clone(&self.watcher)];
        for made in &composed {
            for note in &made.warnings {
                let (at, said) = (self.files.locate(note.span), &note.message);
                tracing::warn!(server = made.config.name, at, "{said}");
            }
            let Some(server) = self.runtime_state.servers.get(&made.config.name) else { continue };
            for files in &made.watched_folders {
                let name = format!("{}:{}", made.config.name, files.root().display());
                let about = "a folder whose files are resources";
                let watcher = FolderWatcher::new(name, about, vec![files.root().to_owned()]);
                self.tasks.spawn(sync_file_resources(
                    server.clone(),
                    Arc::clone(files),
                    Arc::clone(&watcher),
                ));
                watchers.push(watcher);
            }
        }
        self.publish_snapshot(&composed, watchers);
        self.describe_retries = composed
            .iter()
            .any(|made| made.has_missing_schema)
            .then(|| self.describe_retries.map_or(0, |n| n + 1));
        self.file_stamps = composed.iter().flat_map(|made| made.file_stamps.clone()).collect();
        self.current_servers = composed.into_iter().map(|made| made.config).collect();
        self.watch_files();
    }

    /// What is served is there to be looked at.
    fn publish_snapshot(&mut self, composed: &[BuiltServer], watchers: Vec<Arc<FolderWatcher>>) {
        self.runtime_state.set_watchers(watchers);
        let seen = config_snapshot(&self.config_path, &self.files, &self.redacted, composed, &self.upstreams);
        self.runtime_state.set_snapshot(ConfigSnapshot {
            connections: self.listener.as_ref().map(|(_, connections)| connections.clone()),
            max_connections: self.listen.max_connections,
            address: self.listener.as_ref().map(|(address, _)| address.clone()),
            ..seen
        });
        if self.runtime_state.is_collecting() {
            self.tasks.spawn(watch_health(Arc::clone(&self.runtime_state)));
        }
    }

    /// Looks at the configuration whenever it changes, or when asked to. Never ends.
    async fn run(&mut self) {
        loop {
            // Whatever changed while nobody watched is seen here.
            while !self.watcher.is_stopped() && self.reload(false).await {}
            self.refresh_job.set_interval(self.refresh_interval());
            let (refreshing, watcher) = (Arc::clone(&self.refresh_job), Arc::clone(&self.watcher));
            let world = Arc::clone(&self.runtime_state);
            tokio::select! {
                biased;
                () = self.reload_signal.recv() => {
                    self.upstreams.invalidate();
                    self.reload(true).await;
                }
                () = world.reload.notified() => {
                    self.upstreams.invalidate();
                    self.reload(true).await;
                }
                () = self.file_watcher.changed(file_watcher::FILE_DEBOUNCE) => watcher.record_change(),
                () = watcher.wait_while_stopped(), if watcher.is_stopped() => {}
                () = refreshing.wait_until_due() => {
                    let watch = Stopwatch::start();
                    let apis = self.current_servers.iter().flat_map(|server| {
                        server.openapi.iter().map(|api| (server.name.as_str(), api))
                    });
                    let before = self.upstreams.clone();
                    if self.upstreams.refresh_documents(apis).await || self.describe_retries.is_some() {
                        self.reload(true).await;
                        // What nobody can read is not kept: the file can still change with the old one.
                        if self.is_rejected {
                            self.upstreams = before;
                        }
                    }
                    refreshing.record_run(watch);
                }
            }
        }
    }

    /// When to look at descriptions behind URLs again. None: there are none that would change.
    fn refresh_interval(&self) -> Option<Duration> {
        let apis = self.current_servers.iter().flat_map(|server| &server.openapi);
        let pauses = apis.filter_map(|api| match api.spec.url() {
            Some(url) if !self.upstreams.has_document(url) => {
                Some(api.refresh.unwrap_or(MISSING_DOCUMENT_RETRY).min(MISSING_DOCUMENT_RETRY))
            }
            Some(_) => api.refresh,
            None => None,
        });
        pauses.chain(self.describe_retries.map(describe_retry_delay)).min()
    }

    /// Serves the configuration as it is now. Where nothing was asked for and nothing has changed, nothing happens, and
    /// false is what it says.
    async fn reload(&mut self, is_asked: bool) -> bool {
        let (file, road, known) = (self.config_path.clone(), self.mode, self.files.clone());
        let world = Arc::clone(&self.runtime_state);
        let mut backends = self.upstreams.clone();
        let beside: Vec<FileStamp> =
            self.file_stamps.iter().chain(&self.rejected_file_stamps).cloned().collect();
        let made = tokio::task::spawn_blocking(move || {
            let mut loaded = config::load(&file);
            if !is_asked && loaded.config.files == known && !beside.iter().any(FileStamp::has_changed) {
                return None;
            }
            let composed =
                build_servers(&loaded.config, road, &world, &mut backends, &mut loaded.diagnostics);
            Some((loaded, composed, backends))
        });
        let (loaded, mut composed, backends) = match made.await {
            Ok(Some(made)) => made,
            Ok(None) => return false,
            Err(error) => {
                tracing::error!(%error, "the configuration could not be read; the old one stays");
                return false;
            }
        };
        let told = loaded.error_summary();
        self.is_rejected = told.is_some();
        if let Some(told) = told {
            // The same text is not complained about again.
            self.files = loaded.config.files;
            self.file_stamps.iter_mut().for_each(FileStamp::refresh);
            self.rejected_file_stamps = loaded.config.file_stamps;
            self.watch_files();
            tracing::error!(
                "the configuration is wrong and the old one stays (`toolgate check` shows the lines):\n{told}"
            );
            return true;
        }
        let paths = (&loaded.config.stats_path, &loaded.config.metrics_path);
        if loaded.config.listen != self.listen || paths != (&self.stats_path, &self.metrics_path) {
            tracing::warn!(
                "`[listen]` or a path of `[stats]` changed: that needs a restart; all else is served"
            );
        }
        if self.mode == ServeMode::Local {
            composed.retain(|made| self.current_servers.iter().any(|known| known.name == made.config.name));
        }
        self.swap_servers(&composed);
        self.upstreams = backends;
        self.rejected_file_stamps = Vec::new();
        self.files = loaded.config.files;
        self.redacted = loaded.config.redacted;
        self.activate(composed);
        tracing::info!(servers = self.current_servers.len(), "the configuration is served anew");
        true
    }

    fn swap_servers(&mut self, composed: &[BuiltServer]) {
        for made in composed.iter().filter(|made| !self.runtime_state.servers.has(&made.config.name)) {
            self.runtime_state.servers.replace(&made.server);
        }
        if let Some(places) = &self.mounts
            && let Err(error) = places.replace(mounts(composed))
        {
            tracing::error!(%error, "paths stay as they were");
        }
        for made in composed {
            let name = &made.config.name;
            let before = self.current_servers.iter().find(|known| known.name == *name);
            let live = self.runtime_state.servers.get(name).filter(|live| !live.ptr_eq(&made.server));
            let (Some(before), Some(live)) = (before, live) else { continue };
            // Who is connected to a server with the same frame stays connected. Another frame is another server: nobody
            // who was let in by the old one meets what the new one guards.
            let is_same = self.mode == ServeMode::Local || before.settings == made.config.settings;
            if !is_same {
                self.runtime_state.servers.replace(&made.server);
            } else if let Err(error) = live.replace_catalog(&made.server) {
                tracing::error!(server = name, %error, "it stays as it was");
            }
        }
        if self.mode == ServeMode::Http {
            for name in self.runtime_state.servers.names() {
                if !composed.iter().any(|made| made.config.name == name) {
                    self.runtime_state.servers.remove(&name);
                }
            }
        }
    }
}

/// What there is to be looked at where these are served.
pub(crate) fn config_snapshot(
    file: &Path,
    texts: &ConfigFiles,
    told: &serde_json::Value,
    composed: &[BuiltServer],
    backends: &Upstreams,
) -> ConfigSnapshot {
    let packs = |name: &str| match &told["servers"][name]["packs"] {
        serde_json::Value::Array(names) => {
            names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect()
        }
        serde_json::Value::Object(named) => named.keys().cloned().collect(),
        _ => Vec::new(),
    };
    let servers = composed.iter().map(|made| {
        let (name, frame) = (&made.config.name, &made.config.settings);
        ServerSummary {
            name: name.clone(),
            path: made.config.path.clone(),
            dialect: frame.dialect.clone(),
            packs: packs(name),
            has_sessions: frame.sessions,
            is_guarded: frame.wordpress.is_some()
                || !(frame.users.is_empty() && frame.tokens.is_empty() && frame.api_keys.is_empty()),
        }
    });
    ConfigSnapshot {
        config_file: file.to_owned(),
        config_files: texts.paths(),
        config: told.clone(),
        servers: servers.collect(),
        databases: backends.sql_connections(),
        apis: backends.http_connections(),
        documents: backends.document_sizes(),
        ..ConfigSnapshot::default()
    }
}

/// Which path leads to which server, and to its catalogue.
fn mounts(composed: &[BuiltServer]) -> impl Iterator<Item = (&str, Mount)> {
    composed.iter().flat_map(|made| {
        let about = &made.config;
        let catalog = about.catalog_path.as_deref().map(|path| {
            let page = Mount::page(&about.name, |look| {
                let (query, category) = (look.query("query"), look.query("category"));
                catalog::list_tools(look.tools(), query.as_deref(), category.as_deref())
            });
            (path, page)
        });
        [(about.path.as_str(), Mount::fixed(&about.name))].into_iter().chain(catalog)
    })
}

/// When a description is asked for again that could not be had at all.
const MISSING_DOCUMENT_RETRY: Duration = Duration::from_secs(30);

/// How often somebody looks how well everything is.
const HEALTH_INTERVAL: Duration = Duration::from_secs(5);

/// Tells those who subscribed to it when the health of the program becomes another one. Never ends.
async fn watch_health(world: Arc<RuntimeState>) {
    let job = world
        .job("watch_health", "feels the pulse, and tells subscribers of `runtime://health` when it changes");
    job.set_interval(Some(HEALTH_INTERVAL));
    let mut before = None;
    world.record_heartbeat(Duration::ZERO);
    loop {
        let watch = Stopwatch::start();
        let looking = Arc::clone(&world);
        let Ok(found) = tokio::task::spawn_blocking(move || health(&looking)["status"].to_string()).await
        else {
            return;
        };
        if before.as_ref().is_some_and(|before| *before != found) {
            for served in &world.snapshot().servers {
                if served.packs.iter().any(|pack| pack == "runtime")
                    && let Some(server) = world.servers.get(&served.name)
                {
                    server.notify().resource_updated("runtime://health");
                }
            }
        }
        before = Some(found);
        job.record_run(watch);
        let waiting = Stopwatch::start();
        job.wait_until_due().await;
        // Asked for earlier, it is not late.
        let lag = waiting.elapsed().saturating_sub(HEALTH_INTERVAL);
        world.record_heartbeat(lag);
    }
}

/// When a database is asked again that did not answer: soon, and less and less often.
fn describe_retry_delay(n_asked: u32) -> Duration {
    (Duration::from_secs(1) * 2_u32.saturating_pow(n_asked.min(9))).min(Duration::from_secs(300))
}

/// Tells clients what becomes of the files of a folder.
async fn sync_file_resources(server: Server, files: Arc<Files>, watcher: Arc<FolderWatcher>) {
    let mut watch = FileWatcher::new();
    watch.add(files.root(), RecursiveMode::Recursive);
    loop {
        // What changed before anybody watched is seen now.
        let looking = Arc::clone(&files);
        let Ok(difference) = tokio::task::spawn_blocking(move || looking.take_changes()).await else {
            watcher.record_error();
            return;
        };
        for uri in &difference.removed {
            server.remove_resource(uri);
            server.notify().resource_updated(uri);
        }
        for listed in difference.added.iter().chain(&difference.changed) {
            if let Err(error) = server.add_resource(file_resource(&files, listed)) {
                tracing::error!(server = server.name(), %error, "cannot add a file resource");
            }
        }
        for listed in &difference.changed {
            server.notify().resource_updated(&listed.uri);
        }
        watch.changed(file_watcher::FOLDER_DEBOUNCE).await;
        watcher.record_change();
        watcher.wait_while_stopped().await;
    }
}

/// Hears whoever asks for the configuration to be read again.
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

    #[cfg(unix)]
    async fn recv(&mut self) {
        match &mut self.sighup {
            Some(hangup) => {
                hangup.recv().await;
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
