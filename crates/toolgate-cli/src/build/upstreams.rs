//! Databases, APIs, the store and the audit log that servers use.
//!
//! They survive a reload of the configuration: an upstream whose settings are unchanged is kept, with its open
//! connections. One that is no longer configured is closed when the last call that uses it ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use toolgate::events::{AuditLog, Events};
use toolgate_sources::source::Problem;
use toolgate_sources::source::egress::{EgressGuard, EgressSpec};
use toolgate_sources::source::http::{FetchedDocument, HttpClient, OutboundContext};
use toolgate_sources::source::openapi::MAX_DOCUMENT_BYTES;
use toolgate_sources::source::sql::{SqlPool, SqlPoolSpec};

use super::backend_cache::BackendCache;
use super::limits::ServerCallQueue;
use super::requests::{client_spec, pool_spec};
use super::storage::{self, OpenStore, StoreProbe};
use crate::config::{
    Audit, Config, ConnectionKind, Diagnostics, EgressConfig, HttpConnectionConfig, OpenApi, Storage,
    WordPress, redact_url,
};
use crate::observe::SlowCallObserver;
use crate::pack::runtime_state::{ApiHandle, DatabaseHandle};

/// How long a start or a reload waits for a database to describe a statement.
pub(super) const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a start or a reload waits for an API document. A slower one is fetched again later, with more time.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// How long each connection has to close when the program ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The name of a connection; an API that has its own is qualified by its server.
type ConnectionName = (Option<String>, String);

/// The upstreams of a configuration; see the [module](self).
#[derive(Clone, Default)]
pub(crate) struct Upstreams {
    egress: Option<(EgressConfig, Arc<OutboundContext>)>,
    sql: HashMap<String, (SqlPoolSpec, Arc<SqlPool>)>,
    http: HashMap<ConnectionName, (HttpConnectionConfig, Arc<HttpClient>)>,
    /// API documents that were fetched, by their URLs.
    documents: HashMap<String, FetchedDocument>,
    /// Whether documents are fetched again although they are known.
    is_stale: bool,
    /// Whether nothing is contacted; only files are read then.
    is_offline: bool,
    /// Whether the store and the audit log are opened. Commands that only inspect a configuration do not open them,
    /// because a store file can be open in one process only.
    has_storage: bool,
    store: Option<(Storage, Option<OpenStore>)>,
    audit: Option<(Audit, Events)>,
    pub(super) backend_cache: BackendCache,
    /// The call queue of each server, with its concurrency.
    call_queues: HashMap<String, (usize, Arc<ServerCallQueue>)>,
}

impl Upstreams {
    /// Upstreams that contact nothing.
    pub(crate) fn offline() -> Upstreams {
        Upstreams { is_offline: true, ..Upstreams::default() }
    }

    /// Upstreams that open the store and the audit log, for serving.
    pub(crate) fn with_storage() -> Upstreams {
        Upstreams { has_storage: true, ..Upstreams::default() }
    }

    pub(super) fn is_offline(&self) -> bool {
        self.is_offline
    }

    /// Sets whether nothing is contacted, and returns the previous value.
    pub(super) fn set_offline(&mut self, is_offline: bool) -> bool {
        std::mem::replace(&mut self.is_offline, is_offline)
    }

    /// Makes the next update fetch documents and build backends again.
    pub(crate) fn invalidate(&mut self) {
        self.is_stale = true;
        self.backend_cache.clear();
    }

    /// Creates the connections of a configuration and drops those that it no longer has.
    pub(super) fn update(&mut self, config: &Config, diagnostics: &mut Diagnostics) {
        self.update_egress(config, diagnostics);
        let (old_sql, old_http) = (std::mem::take(&mut self.sql), std::mem::take(&mut self.http));
        for connection in &config.connections {
            let name = &connection.name;
            let updated = match &connection.kind {
                ConnectionKind::Sql(config) => self.update_sql(pool_spec(name, config), &old_sql),
                ConnectionKind::Http(config) => self.update_http((None, name.clone()), config, &old_http),
            };
            for Problem { path, message } in updated.err().unwrap_or_default() {
                diagnostics.report(connection.node.span_at(&path), message);
            }
        }
        for (server, api) in openapi_imports(config) {
            let Some(connection) = own_connection(config, api) else { continue };
            let updated = self.update_http(api_connection_name(server, api), &connection, &old_http);
            for Problem { path, message } in updated.err().unwrap_or_default() {
                // The key `http` of a connection is `base` here, and `headers` is in the table `auth`.
                let path = if path.starts_with("http") { "base".to_owned() } else { format!("auth.{path}") };
                diagnostics.report(api.node.span_at(&path), message);
            }
        }
        for site in wordpress_sites(config) {
            let connection = HttpConnectionConfig::new(site.url.clone());
            let updated = self.update_http(wordpress_connection_name(site), &connection, &old_http);
            for Problem { message, .. } in updated.err().unwrap_or_default() {
                diagnostics.report(site.node.span_at("url"), message);
            }
        }
        let is_named = |url: &String| openapi_imports(config).any(|(_, api)| api.spec.url() == Some(url));
        self.documents.retain(|url, _| is_named(url));
        self.call_queues.retain(|name, _| config.servers.iter().any(|server| server.name == *name));
    }

    /// Opens the audit log and the store, unless they are open already.
    pub(super) fn open_storage(&mut self, config: &Config, diagnostics: &mut Diagnostics) {
        if !self.has_storage {
            return;
        }
        self.update_audit(config, diagnostics);
        if self.store.as_ref().is_some_and(|(known, _)| *known == config.storage) {
            return;
        }
        match OpenStore::open(&config.storage) {
            Ok(store) => self.store = Some((config.storage.clone(), store)),
            Err(message) => diagnostics.report(config.storage_span, message),
        }
    }

    fn update_audit(&mut self, config: &Config, diagnostics: &mut Diagnostics) {
        let wanted = config.servers.first().and_then(|server| server.settings.audit.as_ref());
        if self.audit.as_ref().map(|(known, _)| known) == wanted {
            return;
        }
        self.audit = None;
        let Some(wanted) = wanted else { return };
        match AuditLog::file(&wanted.file) {
            Ok(log) => {
                let log = if wanted.has_arguments { log.with_arguments() } else { log };
                let events = Events::new();
                let _attached = log.attach(&events);
                self.audit = Some((wanted.clone(), events));
            }
            Err(error) => diagnostics.report(config.audit_span, error.to_string()),
        }
    }

    /// The events that the audit log records.
    pub(super) fn audit(&self) -> Option<&Events> {
        self.audit.as_ref().map(|(_, events)| events)
    }

    /// The call queue of a server. It is kept until the concurrency of the server changes.
    pub(super) fn call_queue(&mut self, server: &str, max_running: usize) -> Arc<ServerCallQueue> {
        match self.call_queues.get(server) {
            Some((known, queue)) if *known == max_running => Arc::clone(queue),
            _ => {
                let queue = Arc::new(ServerCallQueue::new(max_running));
                self.call_queues.insert(server.to_owned(), (max_running, Arc::clone(&queue)));
                queue
            }
        }
    }

    /// The open store; `None` for memory.
    pub(super) fn open_store(&self) -> Option<&OpenStore> {
        self.store.as_ref().and_then(|(_, store)| store.as_ref())
    }

    fn update_egress(&mut self, config: &Config, diagnostics: &mut Diagnostics) {
        if self.egress.as_ref().is_some_and(|(known, _)| *known == config.egress) {
            return;
        }
        // Open connections were allowed by the old rules.
        self.http.clear();
        let EgressConfig { deny_private, allow } = config.egress.clone();
        self.egress = match EgressGuard::new(&EgressSpec { deny_private, allow }) {
            Ok(egress) => {
                Some((config.egress.clone(), OutboundContext::observed(egress, Arc::new(SlowCallObserver))))
            }
            Err(problems) => {
                for Problem { path, message } in problems {
                    diagnostics.report(config.egress_node.span_at(&path), message);
                }
                None
            }
        };
    }

    fn update_sql(
        &mut self,
        spec: SqlPoolSpec,
        old: &HashMap<String, (SqlPoolSpec, Arc<SqlPool>)>,
    ) -> Result<(), Vec<Problem>> {
        let pool = match old.get(&spec.name).filter(|(known, _)| *known == spec) {
            Some((_, pool)) => Arc::clone(pool),
            None => SqlPool::observed(spec.clone(), Arc::new(SlowCallObserver))?,
        };
        self.sql.insert(spec.name.clone(), (spec, pool));
        Ok(())
    }

    fn update_http(
        &mut self,
        name: ConnectionName,
        config: &HttpConnectionConfig,
        old: &HashMap<ConnectionName, (HttpConnectionConfig, Arc<HttpClient>)>,
    ) -> Result<(), Vec<Problem>> {
        let client = match (old.get(&name).filter(|(known, _)| known == config), &self.egress) {
            (Some(known), _) => known.clone(),
            (None, Some((_, outbound))) => (config.clone(), HttpClient::new(&client_spec(config), outbound)?),
            (None, None) => return Ok(()),
        };
        self.http.insert(name, client);
        Ok(())
    }

    /// Returns `None` if the connection could not be created, which has been reported.
    pub(super) fn http(&self, name: &str) -> Option<Arc<HttpClient>> {
        self.http.get(&(None, name.to_owned())).map(|(_, connection)| Arc::clone(connection))
    }

    pub(super) fn sql(&self, name: &str) -> Option<Arc<SqlPool>> {
        self.sql.get(name).map(|(_, connection)| Arc::clone(connection))
    }

    /// Returns `None` if the connection could not be created, which has been reported.
    pub(super) fn wordpress_connection(&self, site: &WordPress) -> Option<Arc<HttpClient>> {
        self.http.get(&wordpress_connection_name(site)).map(|(_, connection)| Arc::clone(connection))
    }

    /// The connection of an imported API: its own, or the one that it names.
    pub(super) fn api_connection(&self, server: &str, api: &OpenApi) -> Option<Arc<HttpClient>> {
        let own =
            self.http.get(&api_connection_name(server, api)).map(|(_, connection)| Arc::clone(connection));
        own.or_else(|| self.http(api.connection.as_deref()?))
    }

    /// Returns the document at a URL. A known document is fetched again only after [`Upstreams::invalidate`]; if that
    /// fails, the known one is returned.
    pub(super) fn fetch_document(&mut self, url: &str, client: &HttpClient) -> Result<String, String> {
        let known = self.documents.get(url);
        if let (Some(known), false) = (known, self.is_stale) {
            return Ok(known.text.clone());
        }
        if self.is_offline {
            return Err("not fetched; `check --live` fetches it".into());
        }
        let etag = known.and_then(|known| known.etag.clone());
        let fetch = async {
            tokio::time::timeout(FETCH_TIMEOUT, client.fetch(url, etag.as_deref(), MAX_DOCUMENT_BYTES)).await
        };
        let fetched = block_on(fetch).unwrap_or_else(|_| Err("fetching the document timed out".into()));
        match (fetched, known) {
            (Ok(Some(fetched)), _) => {
                let text = fetched.text.clone();
                self.documents.insert(url.to_owned(), fetched);
                Ok(text)
            }
            (Ok(None), Some(known)) => Ok(known.text.clone()),
            (Ok(None), None) => Err("the server sent no document".into()),
            (Err(error), Some(known)) => {
                tracing::warn!(
                    url = redact_url(url),
                    error,
                    "cannot fetch the API document; using the previous version"
                );
                Ok(known.text.clone())
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Ends an update.
    pub(super) fn finish_update(&mut self) {
        self.is_stale = false;
        self.backend_cache.rotate();
    }

    /// Fetches the documents of APIs again, and returns whether one has changed.
    pub(crate) async fn refresh_documents<'a>(
        &mut self,
        apis: impl Iterator<Item = (&'a str, &'a OpenApi)>,
    ) -> bool {
        let mut has_changed = false;
        for (server, api) in apis {
            let (Some(url), Some(client)) = (api.spec.url(), self.api_connection(server, api)) else {
                continue;
            };
            let known = self.documents.get(url);
            let etag = known.and_then(|known| known.etag.clone());
            match client.fetch(url, etag.as_deref(), MAX_DOCUMENT_BYTES).await {
                Ok(Some(fetched)) => {
                    has_changed |= known.is_none_or(|known| known.text != fetched.text);
                    self.documents.insert(url.to_owned(), fetched);
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(
                        url = redact_url(url),
                        error,
                        "cannot fetch the API document; using the previous version"
                    );
                }
            }
        }
        has_changed
    }

    /// The databases, sorted by name.
    pub(crate) fn sql_connections(&self) -> Vec<DatabaseHandle> {
        let handle = |(name, (spec, pool)): (&String, &(SqlPoolSpec, Arc<SqlPool>))| DatabaseHandle {
            name: name.clone(),
            driver: spec.driver.key(),
            address: redact_url(&spec.url),
            pool: Arc::clone(pool),
        };
        let mut databases: Vec<DatabaseHandle> = self.sql.iter().map(handle).collect();
        databases.sort_by(|one, other| one.name.cmp(&other.name));
        databases
    }

    /// The APIs, sorted by name.
    pub(crate) fn http_connections(&self) -> Vec<ApiHandle> {
        let mut apis: Vec<ApiHandle> = self
            .http
            .iter()
            .map(|((server, name), (config, client))| ApiHandle {
                name: server.as_ref().map_or_else(|| name.clone(), |server| format!("{server}.{name}")),
                base_url: redact_url(&config.base),
                timeout: config.timeout,
                client: Arc::clone(client),
            })
            .collect();
        apis.sort_by(|one, other| one.name.cmp(&other.name));
        apis
    }

    /// The documents that were fetched from URLs, with their sizes in bytes.
    pub(crate) fn document_sizes(&self) -> Vec<(String, usize)> {
        let documents = self.documents.iter();
        let mut sizes: Vec<(String, usize)> =
            documents.map(|(url, document)| (redact_url(url), document.text.len())).collect();
        sizes.sort();
        sizes
    }

    pub(crate) fn has_document(&self, url: &str) -> bool {
        self.documents.contains_key(url)
    }

    /// Tries to reach the store and every upstream.
    pub(crate) async fn probe(&self, config: &Config) -> ProbeReport {
        let mut report = ProbeReport::default();
        let position = config.files.locate(config.storage_span);
        match storage::probe(&config.storage).await {
            StoreProbe::Available => {}
            StoreProbe::InUse(message) => report.notes.push(format!("{position}: {message}")),
            StoreProbe::Unavailable(message) => report.failures.push(format!("{position}: {message}")),
        }
        for connection in &config.connections {
            let name = &connection.name;
            let probed = match (self.sql.get(name), self.http.get(&(None, name.clone()))) {
                (Some((_, pool)), _) => pool.ping().await,
                (_, Some((_, client))) => {
                    client.probe().await.map_err(|error| format!("connection {name}: {error}"))
                }
                (None, None) => Ok(()),
            };
            if let Err(error) = probed {
                report.failures.push(format!("{}: {error}", config.files.locate(connection.span)));
            }
        }
        for (server, api) in openapi_imports(config) {
            if let Some((_, client)) = self.http.get(&api_connection_name(server, api))
                && let Err(error) = client.probe().await
            {
                let position = config.files.locate(api.node.span);
                report.failures.push(format!("{position}: API {}: {error}", api.name));
            }
        }
        for site in wordpress_sites(config) {
            let Some(client) = self.wordpress_connection(site) else { continue };
            if let Err(error) = super::wordpress::probe(site, &client).await {
                let position = config.files.locate(site.node.span);
                report.failures.push(format!("{position}: auth {}: {error}", site.name));
            }
        }
        report
    }

    /// Closes the databases and the store.
    pub(crate) async fn close(&self) {
        for (_, pool) in self.sql.values() {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, pool.close()).await;
        }
        if let Some(store) = self.open_store() {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, store.close()).await;
        }
    }
}

/// The result of [`Upstreams::probe`].
#[derive(Default)]
pub(crate) struct ProbeReport {
    /// Upstreams that cannot be used, each with its position in the file.
    pub(crate) failures: Vec<String>,
    /// Observations that are not necessarily problems.
    pub(crate) notes: Vec<String>,
}

/// Blocks the thread, which must be a blocking thread of a runtime; see [`super::build_servers`].
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    Handle::current().block_on(future)
}

fn openapi_imports(config: &Config) -> impl Iterator<Item = (&str, &OpenApi)> {
    config.servers.iter().flat_map(|server| server.openapi.iter().map(|api| (server.name.as_str(), api)))
}

/// The WordPress sites of all servers, each once.
fn wordpress_sites(config: &Config) -> Vec<&WordPress> {
    let mut sites: Vec<&WordPress> = Vec::new();
    for site in config.servers.iter().filter_map(|server| server.settings.wordpress.as_ref()) {
        if !sites.iter().any(|known| known.name == site.name) {
            sites.push(site);
        }
    }
    sites
}

fn wordpress_connection_name(site: &WordPress) -> ConnectionName {
    // Parentheses are not allowed in the name of a server.
    (Some("(auth)".to_owned()), site.name.clone())
}

fn api_connection_name(server: &str, api: &OpenApi) -> ConnectionName {
    (Some(server.to_owned()), api.name.clone())
}

/// The settings of an API's own connection. An API has one if it sets `base`, or headers or credentials that the
/// connection it names does not have.
fn own_connection(config: &Config, api: &OpenApi) -> Option<HttpConnectionConfig> {
    let mut connection = match (&api.connection, &api.base) {
        (Some(name), _) => {
            let named = config.connections.iter().find(|known| known.name == *name)?;
            let ConnectionKind::Http(connection) = &named.kind else { return None };
            if api.auth.is_none() && api.headers.is_empty() {
                return None;
            }
            connection.clone()
        }
        (None, Some(base)) => HttpConnectionConfig::new(base.clone()),
        (None, None) => return None,
    };
    connection.headers.extend(api.headers.iter().cloned());
    if api.auth.is_some() {
        connection.auth.clone_from(&api.auth);
    }
    Some(connection)
}
