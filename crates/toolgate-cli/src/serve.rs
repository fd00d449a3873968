//! Serves a configuration over HTTP or standard input and output, and reloads it when it changes.

mod background;
mod reloader;

use std::path::Path;
use std::sync::Arc;

use toolgate::http::ListenOptions;
use toolgate::{App, Mount};

use crate::build::{BuiltServer, ServeMode, Upstreams, build_servers};
use crate::catalog;
use crate::cli::LogFormat;
use crate::config::{self, ConfigFiles, LoadedConfig};
use crate::pack::runtime_state::{ConfigSnapshot, RuntimeState, ServerSummary};
use crate::{CliError, bind};
use reloader::{ActiveListener, Reloader};

/// A configuration and the servers that were built from it.
pub(crate) struct PreparedServers {
    pub(crate) loaded: LoadedConfig,
    pub(crate) servers: Vec<BuiltServer>,
    pub(crate) upstreams: Upstreams,
    pub(crate) runtime_state: Arc<RuntimeState>,
}

/// Reads a configuration and builds its servers.
///
/// # Errors
/// Everything that is wrong with the configuration.
pub(crate) async fn prepare(file: &Path, mode: ServeMode) -> Result<PreparedServers, CliError> {
    prepare_with(file, mode, Upstreams::default()).await
}

/// Like [`prepare`], with these upstreams.
pub(crate) async fn prepare_with(
    file: &Path,
    mode: ServeMode,
    mut upstreams: Upstreams,
) -> Result<PreparedServers, CliError> {
    let file = file.to_owned();
    // Reads files and asks databases, which blocks.
    let prepared = tokio::task::spawn_blocking(move || {
        let mut loaded = config::load(&file);
        let runtime_state = Arc::default();
        let servers =
            build_servers(&loaded.config, mode, &runtime_state, &mut upstreams, &mut loaded.diagnostics);
        PreparedServers { loaded, servers, upstreams, runtime_state }
    });
    let prepared = prepared.await.map_err(|error| CliError::Run(error.to_string()))?;
    match prepared.loaded.error_report() {
        None => Ok(prepared),
        Some(report) => Err(CliError::Config(report)),
    }
}

/// Serves a configuration over HTTP.
pub(crate) async fn http(file: &Path, listen: Option<String>, log_format: LogFormat) -> Result<(), CliError> {
    let prepared = prepare_with(file, ServeMode::Http, Upstreams::with_storage()).await?;
    let PreparedServers { loaded, servers, upstreams, runtime_state } = prepared;
    let config = &loaded.config;
    let options = ListenOptions::default().max_connections(config.listen.max_connections);
    let connections = options.connections();
    let mut app = App::new(&runtime_state.servers)
        .health()
        .shutdown_timeout(config.listen.shutdown_grace)
        .listener(options);
    if let Some(path) = &config.stats_path {
        app = app.stats_at(path);
    }
    if let Some(path) = &config.metrics_path {
        app = app.metrics_at(path);
    }
    for built in &servers {
        runtime_state.servers.replace(&built.server);
    }
    for (path, mount) in mounts(&servers) {
        app = app.mount(path, mount);
    }
    let listener = bind(listen.as_deref().unwrap_or(&config.listen.http)).await?;
    let address = listener.local_addr().map_err(|error| CliError::Run(error.to_string()))?;
    let exposure = |built: &BuiltServer| {
        Some(format!("server `{}`: {}", built.config.name, built.config.exposure(&address.to_string())?))
    };
    if let Some(message) = servers.iter().find_map(exposure).filter(|_| !address.ip().is_loopback()) {
        return Err(CliError::Usage(message));
    }
    let mut reloader =
        Reloader::new(file, ServeMode::Http, runtime_state, Some(app.mounts()), loaded, upstreams);
    reloader.listener = Some(ActiveListener { address: address.to_string(), connections });
    let reload = async {
        // Polled after `serve`, because a reader of these lines may connect, change the file or stop the program at
        // once.
        print_listening(&address.to_string(), &servers, log_format);
        reloader.activate(servers);
        reloader.run().await;
    };
    let served = tokio::select! {
        biased;
        served = app.serve(listener) => served.map_err(|error| CliError::Run(error.to_string())),
        () = reload => Ok(()),
    };
    reloader.upstreams.close().await;
    served
}

/// Serves one server of a configuration over standard input and output.
pub(crate) async fn stdio(file: &Path, name: Option<&str>) -> Result<(), CliError> {
    let prepared = prepare_with(file, ServeMode::Local, Upstreams::with_storage()).await?;
    let PreparedServers { loaded, servers, upstreams, runtime_state } = prepared;
    let selected = select_server(&servers, name)?;
    let (server, name) = (selected.server.clone(), selected.config.name.clone());
    runtime_state.servers.replace(&server);
    let mut reloader = Reloader::new(file, ServeMode::Local, runtime_state, None, loaded, upstreams);
    reloader.activate(servers.into_iter().filter(|built| built.config.name == name).collect());
    let served = tokio::select! {
        biased;
        served = server.serve_stdio() => served.map_err(|error| CliError::Run(error.to_string())),
        () = reloader.run() => Ok(()),
    };
    reloader.upstreams.close().await;
    served
}

/// Finds a server by name. Without a name there has to be exactly one.
pub(crate) fn select_server<'a>(
    servers: &'a [BuiltServer],
    name: Option<&str>,
) -> Result<&'a BuiltServer, CliError> {
    let names: Vec<&str> = servers.iter().map(|built| built.config.name.as_str()).collect();
    match (name, servers) {
        (None, [only]) => Ok(only),
        (None, _) => Err(CliError::Usage(format!(
            "the configuration has several servers; choose one with `--server`: {}",
            names.join(", ")
        ))),
        (Some(name), _) => servers.iter().find(|built| built.config.name == name).ok_or_else(|| {
            CliError::Usage(format!("there is no server `{name}`; known servers: {}", names.join(", ")))
        }),
    }
}

fn print_listening(address: &str, servers: &[BuiltServer], log_format: LogFormat) {
    for built in servers {
        let url = format!("http://{address}{}", built.config.path);
        let (name, server) = (&built.config.name, &built.server);
        let (tools, resources, prompts) =
            (server.tool_count(), server.resource_count(), server.prompt_count());
        match log_format {
            LogFormat::Json => tracing::info!(server = name, url, tools, resources, prompts, "listening"),
            LogFormat::Text => eprintln!(
                "{name}: listening on {url} ({tools} tools, {resources} resources, {prompts} prompts)"
            ),
        }
    }
    if log_format == LogFormat::Text {
        eprintln!("Press Ctrl-C to stop. Changes of the configuration are applied at once.");
    }
}

/// The state that the pack `runtime` shows for these servers.
pub(crate) fn config_snapshot(
    file: &Path,
    files: &ConfigFiles,
    redacted: &serde_json::Value,
    servers: &[BuiltServer],
    upstreams: &Upstreams,
) -> ConfigSnapshot {
    let packs = |name: &str| match &redacted["servers"][name]["packs"] {
        serde_json::Value::Array(names) => {
            names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect()
        }
        serde_json::Value::Object(named) => named.keys().cloned().collect(),
        _ => Vec::new(),
    };
    let summary = |built: &BuiltServer| {
        let config::Server { name, path, settings, .. } = &built.config;
        ServerSummary {
            name: name.clone(),
            path: path.clone(),
            dialect: settings.dialect.clone(),
            packs: packs(name),
            has_sessions: settings.sessions,
            is_guarded: settings.has_auth(),
        }
    };
    ConfigSnapshot {
        config_file: file.to_owned(),
        config_files: files.paths(),
        config: redacted.clone(),
        servers: servers.iter().map(summary).collect(),
        databases: upstreams.sql_connections(),
        apis: upstreams.http_connections(),
        documents: upstreams.document_sizes(),
        ..ConfigSnapshot::default()
    }
}

/// The path of each server and of its catalog.
fn mounts(servers: &[BuiltServer]) -> impl Iterator<Item = (&str, Mount)> {
    servers.iter().flat_map(|built| {
        let config::Server { name, path, catalog_path, .. } = &built.config;
        let catalog = catalog_path.as_deref().map(|path| {
            let page = Mount::page(name, |request| {
                let (query, category) = (request.query("query"), request.query("category"));
                catalog::list_tools(request.tools(), query.as_deref(), category.as_deref())
            });
            (path, page)
        });
        [(path.as_str(), Mount::fixed(name))].into_iter().chain(catalog)
    })
}
