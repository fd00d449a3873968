//! A configuration, served: over HTTP or to the one client that started us, and anew when it changes.
//!
//! What a changed file says is made ready beside what is served, and put in its place in one step. Where anything is
//! wrong with it, nothing is touched.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::RecursiveMode;
use tokio::task::JoinSet;
use toolgate::{App, Connections, ListenOptions, Mount, MountHandle, Server};

use crate::catalog;
use crate::cli::LogFormat;
use crate::clock::Stopwatch;
use crate::compose::{Backends, Composed, Road, compose, file_resource};
use crate::config::{self, Beside, Loaded, Texts, folder_of};
use crate::pack::runtime::health;
use crate::pack::world::{Job, Seen, Served, Watcher, World};
use crate::source::files::Files;
use crate::watch::{self, Watch};
use crate::{Failure, bind};

/// What was made of a configuration.
pub(crate) struct Prepared {
    pub(crate) loaded: Loaded,
    pub(crate) composed: Vec<Composed>,
    pub(crate) backends: Backends,
    pub(crate) world: Arc<World>,
}

/// Reads a configuration and makes its servers, or says everything that is wrong.
pub(crate) async fn prepare(file: &Path, road: Road) -> Result<Prepared, Failure> {
    prepare_with(file, road, Backends::default()).await
}

/// The same with what is known of databases and APIs already.
pub(crate) async fn prepare_with(
    file: &Path,
    road: Road,
    mut backends: Backends,
) -> Result<Prepared, Failure> {
    let file = file.to_owned();
    // Files are read and sources may ask a database what it has: where nobody else has to wait for it.
    let made = tokio::task::spawn_blocking(move || {
        let mut loaded = config::load(&file);
        let world = Arc::default();
        let composed = compose(&loaded.config, road, &world, &mut backends, &mut loaded.troubles);
        Prepared { loaded, composed, backends, world }
    });
    let prepared = made.await.map_err(|error| Failure::Run(error.to_string()))?;
    match prepared.loaded.told() {
        None => Ok(prepared),
        Some(told) => Err(Failure::Config(told)),
    }
}

/// Serves a configuration over HTTP.
pub(crate) async fn http(file: &Path, listen: Option<String>, format: LogFormat) -> Result<(), Failure> {
    let prepared = prepare_with(file, Road::Http, Backends::keeping()).await?;
    let Prepared { loaded, composed, backends, world } = prepared;
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
    let listener = bind(listen.as_deref().unwrap_or(&config.listen.http)).await.map_err(Failure::Run)?;
    let address = listener.local_addr().map_err(|error| Failure::Run(error.to_string()))?;
    if let Some(open) =
        composed.iter().find(|made| made.config.is_open_inside() && !address.ip().is_loopback())
    {
        let name = &open.config.name;
        return Err(Failure::Usage(format!(
            "the server `{name}` shows the inside of this program (pack `runtime`) to whoever reaches {address}: give it an `auth`"
        )));
    }
    let mut keeper = Keeper::new(file, Road::Http, world, Some(app.mounts()), loaded, backends);
    keeper.door = Some((address.to_string(), connections));
    let keeping = async {
        // Polled after the serving: whoever reads that we serve may ask us to end, or change the file, at once.
        welcome(&address.to_string(), &composed, format);
        keeper.adopt(composed);
        keeper.keep().await;
    };
    let served = tokio::select! {
        biased;
        served = app.serve(listener) => served.map_err(|error| Failure::Run(error.to_string())),
        () = keeping => Ok(()),
    };
    keeper.backends.close().await;
    served
}

/// Serves one server of a configuration to the client that started us.
pub(crate) async fn stdio(file: &Path, name: Option<&str>) -> Result<(), Failure> {
    let prepared = prepare_with(file, Road::Local, Backends::keeping()).await?;
    let Prepared { loaded, composed, backends, world } = prepared;
    let chosen = choose(&composed, name)?;
    let server = chosen.server.clone();
    let only = chosen.config.name.clone();
    world.servers.replace(&server);
    let mut keeper = Keeper::new(file, Road::Local, world, None, loaded, backends);
    keeper.adopt(composed.into_iter().filter(|made| made.config.name == only).collect());
    let served = tokio::select! {
        biased;
        served = server.serve_stdio() => served.map_err(|error| Failure::Run(error.to_string())),
        () = keeper.keep() => Ok(()),
    };
    keeper.backends.close().await;
    served
}

/// The server that is meant.
pub(crate) fn choose<'a>(composed: &'a [Composed], name: Option<&str>) -> Result<&'a Composed, Failure> {
    let names: Vec<&str> = composed.iter().map(|made| made.config.name.as_str()).collect();
    match (name, composed) {
        (None, [only]) => Ok(only),
        (None, _) => {
            Err(Failure::Usage(format!("there are several servers: choose one of {}", names.join(", "))))
        }
        (Some(name), _) => composed.iter().find(|made| made.config.name == name).ok_or_else(|| {
            Failure::Usage(format!("there is no server `{name}`; there are {}", names.join(", ")))
        }),
    }
}

fn welcome(address: &str, composed: &[Composed], format: LogFormat) {
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
struct Keeper {
    file: PathBuf,
    road: Road,
    world: Arc<World>,
    mounts: Option<MountHandle>,
    texts: Texts,
    listen: config::Listen,
    stats_path: Option<String>,
    metrics_path: Option<String>,
    /// What the files say, without secrets.
    told: serde_json::Value,
    /// Where it listens, and who is connected.
    door: Option<(String, Connections)>,
    refreshing: Arc<Job>,
    watcher: Arc<Watcher>,
    /// What each server was made of.
    current: Vec<config::Server>,
    backends: Backends,
    /// Files beside the configuration, as they were read.
    beside: Vec<Beside>,
    /// Files that a configuration names that was refused: one of them may be what it lacks.
    wanted: Vec<Beside>,
    /// Some database did not say what its statements give; how often it was asked again.
    blank: Option<u32>,
    /// What was read last is not what is served.
    is_refused: bool,
    watch: Watch,
    asked: Asked,
    /// Tasks that watch folders. They end when something else takes their place.
    tasks: JoinSet<()>,
}

impl Keeper {
    fn new(
        file: &Path,
        road: Road,
        world: Arc<World>,
        mounts: Option<MountHandle>,
        loaded: Loaded,
        backends: Backends,
    ) -> Keeper {
        let config = loaded.config;
        let refreshing =
            world.job("refresh_descriptions", "looks whether descriptions of APIs behind URLs have changed");
        let folders = config.texts.folders().into_iter().collect();
        let mut keeper = Keeper {
            file: file.to_owned(),
            road,
            world,
            mounts,
            listen: config.listen,
            stats_path: config.stats_path,
            metrics_path: config.metrics_path,
            told: config.told,
            door: None,
            refreshing,
            watcher: Watcher::new("configuration".to_owned(), "the files of the configuration", folders),
            texts: config.texts,
            current: Vec::new(),
            backends,
            beside: Vec::new(),
            wanted: Vec::new(),
            blank: None,
            is_refused: false,
            watch: Watch::new(),
            asked: Asked::new(),
            tasks: JoinSet::new(),
        };
        keeper.watch_files();
        keeper
    }

    /// Looks at the folders of all files of the configuration: editors put new files in the place of old ones.
    fn watch_files(&mut self) {
        self.watch = Watch::new();
        let mut folders = self.texts.folders();
        folders.insert(folder_of(&self.file));
        folders.extend(self.beside.iter().chain(&self.wanted).map(Beside::folder));
        for folder in folders.iter().filter(|folder| folder.is_dir()) {
            self.watch.add(folder, RecursiveMode::NonRecursive);
        }
    }

    /// What was made is served: from now on its folders are watched.
    fn adopt(&mut self, composed: Vec<Composed>) {
        self.tasks = JoinSet::new();
        let mut watchers = vec![Arc::clone(&self.watcher)];
        for made in &composed {
            for note in &made.notes {
                let (at, said) = (self.texts.locate(note.at), &note.said);
                tracing::warn!(server = made.config.name, at, "{said}");
            }
            let Some(server) = self.world.servers.get(&made.config.name) else { continue };
            for files in &made.watched {
                let name = format!("{}:{}", made.config.name, files.root().display());
                let about = "a folder whose files are resources";
                let watcher = Watcher::new(name, about, vec![files.root().to_owned()]);
                self.tasks.spawn(follow(server.clone(), Arc::clone(files), Arc::clone(&watcher)));
                watchers.push(watcher);
            }
        }
        self.show(&composed, watchers);
        self.blank = composed.iter().any(|made| made.is_blank).then(|| self.blank.map_or(0, |n| n + 1));
        self.beside = composed.iter().flat_map(|made| made.beside.clone()).collect();
        self.current = composed.into_iter().map(|made| made.config).collect();
        self.watch_files();
    }

    /// What is served is there to be looked at.
    fn show(&mut self, composed: &[Composed], watchers: Vec<Arc<Watcher>>) {
        self.world.set_watchers(watchers);
        let seen = seen(&self.file, &self.texts, &self.told, composed, &self.backends);
        self.world.see(Seen {
            connections: self.door.as_ref().map(|(_, connections)| connections.clone()),
            max_connections: self.listen.max_connections,
            address: self.door.as_ref().map(|(address, _)| address.clone()),
            ..seen
        });
        if self.world.is_watched() {
            self.tasks.spawn(watch_health(Arc::clone(&self.world)));
        }
    }

    /// Looks at the configuration whenever it changes, or when asked to. Never ends.
    async fn keep(&mut self) {
        loop {
            // Whatever changed while nobody watched is seen here.
            while !self.watcher.is_stopped() && self.reload(false).await {}
            self.refreshing.set_every(self.pause());
            let (refreshing, watcher) = (Arc::clone(&self.refreshing), Arc::clone(&self.watcher));
            let world = Arc::clone(&self.world);
            tokio::select! {
                biased;
                () = self.asked.heard() => {
                    self.backends.doubt();
                    self.reload(true).await;
                }
                () = world.reload.notified() => {
                    self.backends.doubt();
                    self.reload(true).await;
                }
                () = self.watch.changed(watch::MOMENT) => watcher.changed(),
                () = watcher.stands(), if watcher.is_stopped() => {}
                () = refreshing.due() => {
                    let watch = Stopwatch::start();
                    let apis = self.current.iter().flat_map(|server| {
                        server.openapi.iter().map(|api| (server.name.as_str(), api))
                    });
                    let before = self.backends.clone();
                    if self.backends.refresh(apis).await || self.blank.is_some() {
                        self.reload(true).await;
                        // What nobody can read is not kept: the file can still change with the old one.
                        if self.is_refused {
                            self.backends = before;
                        }
                    }
                    refreshing.done(watch);
                }
            }
        }
    }

    /// When to look at descriptions behind URLs again. None: there are none that would change.
    fn pause(&self) -> Option<Duration> {
        let apis = self.current.iter().flat_map(|server| &server.openapi);
        let pauses = apis.filter_map(|api| match api.spec.url() {
            Some(url) if !self.backends.has_document(url) => Some(api.refresh.unwrap_or(SOON).min(SOON)),
            Some(_) => api.refresh,
            None => None,
        });
        pauses.chain(self.blank.map(again)).min()
    }

    /// Serves the configuration as it is now. Where nothing was asked for and nothing has changed, nothing happens, and
    /// false is what it says.
    async fn reload(&mut self, is_asked: bool) -> bool {
        let (file, road, known) = (self.file.clone(), self.road, self.texts.clone());
        let world = Arc::clone(&self.world);
        let mut backends = self.backends.clone();
        let beside: Vec<Beside> = self.beside.iter().chain(&self.wanted).cloned().collect();
        let made = tokio::task::spawn_blocking(move || {
            let mut loaded = config::load(&file);
            if !is_asked && loaded.config.texts == known && !beside.iter().any(Beside::has_changed) {
                return None;
            }
            let composed = compose(&loaded.config, road, &world, &mut backends, &mut loaded.troubles);
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
        let told = loaded.told_briefly();
        self.is_refused = told.is_some();
        if let Some(told) = told {
            // The same text is not complained about again.
            self.texts = loaded.config.texts;
            self.beside.iter_mut().for_each(Beside::look);
            self.wanted = loaded.config.beside;
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
        if self.road == Road::Local {
            composed.retain(|made| self.current.iter().any(|known| known.name == made.config.name));
        }
        self.exchange(&composed);
        self.backends = backends;
        self.wanted = Vec::new();
        self.texts = loaded.config.texts;
        self.told = loaded.config.told;
        self.adopt(composed);
        tracing::info!(servers = self.current.len(), "the configuration is served anew");
        true
    }

    fn exchange(&mut self, composed: &[Composed]) {
        for made in composed.iter().filter(|made| !self.world.servers.has(&made.config.name)) {
            self.world.servers.replace(&made.server);
        }
        if let Some(places) = &self.mounts
            && let Err(error) = places.replace(mounts(composed))
        {
            tracing::error!(%error, "paths stay as they were");
        }
        for made in composed {
            let name = &made.config.name;
            let before = self.current.iter().find(|known| known.name == *name);
            let live = self.world.servers.get(name).filter(|live| !live.ptr_eq(&made.server));
            let (Some(before), Some(live)) = (before, live) else { continue };
            // Who is connected to a server with the same frame stays connected. Another frame is another server: nobody
            // who was let in by the old one meets what the new one guards.
            let is_same = self.road == Road::Local || before.frame == made.config.frame;
            if !is_same {
                self.world.servers.replace(&made.server);
            } else if let Err(error) = live.replace_catalog(&made.server) {
                tracing::error!(server = name, %error, "it stays as it was");
            }
        }
        if self.road == Road::Http {
            for name in self.world.servers.names() {
                if !composed.iter().any(|made| made.config.name == name) {
                    self.world.servers.remove(&name);
                }
            }
        }
    }
}

/// What there is to be looked at where these are served.
pub(crate) fn seen(
    file: &Path,
    texts: &Texts,
    told: &serde_json::Value,
    composed: &[Composed],
    backends: &Backends,
) -> Seen {
    let packs = |name: &str| match &told["servers"][name]["packs"] {
        serde_json::Value::Array(names) => {
            names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect()
        }
        serde_json::Value::Object(named) => named.keys().cloned().collect(),
        _ => Vec::new(),
    };
    let servers = composed.iter().map(|made| {
        let (name, frame) = (&made.config.name, &made.config.frame);
        Served {
            name: name.clone(),
            path: made.config.path.clone(),
            dialect: frame.dialect.clone(),
            packs: packs(name),
            has_sessions: frame.sessions,
            is_guarded: frame.wordpress.is_some()
                || !(frame.users.is_empty() && frame.tokens.is_empty() && frame.keys.is_empty()),
        }
    });
    Seen {
        file: file.to_owned(),
        files: texts.files(),
        config: told.clone(),
        servers: servers.collect(),
        stores: backends.stores(),
        apis: backends.apis(),
        documents: backends.descriptions(),
        ..Seen::default()
    }
}

/// Which path leads to which server, and to its catalogue.
fn mounts(composed: &[Composed]) -> impl Iterator<Item = (&str, Mount)> {
    composed.iter().flat_map(|made| {
        let about = &made.config;
        let catalog = about.catalog.as_deref().map(|path| {
            let page = Mount::page(&about.name, |look| {
                let (query, category) = (look.query("query"), look.query("category"));
                catalog::shown(look.tools(), query.as_deref(), category.as_deref())
            });
            (path, page)
        });
        [(about.path.as_str(), Mount::fixed(&about.name))].into_iter().chain(catalog)
    })
}

/// When a description is asked for again that could not be had at all.
const SOON: Duration = Duration::from_secs(30);

/// How often somebody looks how well everything is.
const HEALTH: Duration = Duration::from_secs(5);

/// Tells those who subscribed to it when the health of the program becomes another one. Never ends.
async fn watch_health(world: Arc<World>) {
    let job = world
        .job("watch_health", "feels the pulse, and tells subscribers of `runtime://health` when it changes");
    job.set_every(Some(HEALTH));
    let mut before = None;
    world.feel_pulse(Duration::ZERO);
    loop {
        let watch = Stopwatch::start();
        let looking = Arc::clone(&world);
        let Ok(found) = tokio::task::spawn_blocking(move || health(&looking)["status"].to_string()).await
        else {
            return;
        };
        if before.as_ref().is_some_and(|before| *before != found) {
            for served in &world.seen().servers {
                if served.packs.iter().any(|pack| pack == "runtime")
                    && let Some(server) = world.servers.get(&served.name)
                {
                    server.notify().resource_updated("runtime://health");
                }
            }
        }
        before = Some(found);
        job.done(watch);
        let waiting = Stopwatch::start();
        job.due().await;
        // Asked for earlier, it is not late.
        let lag = waiting.took().saturating_sub(HEALTH);
        world.feel_pulse(lag);
    }
}

/// When a database is asked again that did not answer: soon, and less and less often.
fn again(n_asked: u32) -> Duration {
    (Duration::from_secs(1) * 2_u32.saturating_pow(n_asked.min(9))).min(Duration::from_secs(300))
}

/// Tells clients what becomes of the files of a folder.
async fn follow(server: Server, files: Arc<Files>, watcher: Arc<Watcher>) {
    let mut watch = Watch::new();
    watch.add(files.root(), RecursiveMode::Recursive);
    loop {
        // What changed before anybody watched is seen now.
        let looking = Arc::clone(&files);
        let Ok(difference) = tokio::task::spawn_blocking(move || looking.difference()).await else {
            watcher.failed();
            return;
        };
        for uri in &difference.removed {
            server.unregister_resource(uri);
            server.notify().resource_updated(uri);
        }
        for listed in difference.added.iter().chain(&difference.changed) {
            server.register_resource(file_resource(&files, listed));
        }
        for listed in &difference.changed {
            server.notify().resource_updated(&listed.uri);
        }
        watch.changed(watch::PAUSE).await;
        watcher.changed();
        watcher.stands().await;
    }
}

/// Hears whoever asks for the configuration to be read again.
struct Asked {
    #[cfg(unix)]
    hangup: Option<tokio::signal::unix::Signal>,
}

impl Asked {
    #[cfg(unix)]
    fn new() -> Asked {
        use tokio::signal::unix::{SignalKind, signal};
        Asked { hangup: signal(SignalKind::hangup()).ok() }
    }

    #[cfg(unix)]
    async fn heard(&mut self) {
        match &mut self.hangup {
            Some(hangup) => {
                hangup.recv().await;
            }
            None => std::future::pending().await,
        }
    }

    #[cfg(not(unix))]
    fn new() -> Asked {
        Asked {}
    }

    #[cfg(not(unix))]
    fn heard(&mut self) -> impl std::future::Future<Output = ()> {
        std::future::pending()
    }
}
