//! Databases and APIs that tools use, by the names that a configuration gives them.
//!
//! They outlive a change of the configuration: what is described as before is kept, with its open connections. What is
//! not described any more ends when the last call that uses it does.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use toolgate::{AuditLog, Events};

use super::backend_cache::BackendCache;
use super::limits::CallQueue;
use super::storage::{self, OpenStore, StoreProbe};
use crate::config::{
    self, Config, ConnectionKind, Diagnostics, OpenApi, UpstreamAuth, WordPress, redact_url,
};
use crate::pack::runtime_state::{ApiHandle, DatabaseHandle};
use crate::source::Problem;
use crate::source::egress::{EgressGuard, EgressSpec};
use crate::source::http::{Auth, FetchedDocument, HttpClient, HttpClientSpec, OutboundContext, Retry};
use crate::source::openapi::MAX_DOCUMENT_BYTES;
use crate::source::sql::{Driver, SqlPool, SqlPoolSpec};

/// How long those who are asked something may keep a start or a change waiting.
pub(super) const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(2);
/// The same for descriptions of APIs. Who is slower is asked again later, with more time.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// How long connections have to end when the program does.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection by its own name, or the one that an API of a server has for itself.
type ConnectionName = (Option<String>, String);

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Upstreams {
    egress: Option<(config::EgressConfig, Arc<OutboundContext>)>,
    sql: HashMap<String, (SqlPoolSpec, Arc<SqlPool>)>,
    http: HashMap<ConnectionName, (config::HttpConnectionConfig, Arc<HttpClient>)>,
    /// Descriptions of APIs that were read from URLs.
    documents: HashMap<String, FetchedDocument>,
    /// Everything is read again, whether it is known or not.
    is_stale: bool,
    /// Nobody is asked anything: what is not in files is not known.
    is_offline: bool,
    /// Whether something is kept at all: whoever only looks keeps nothing, and is in nobody's way.
    has_storage: bool,
    store: Option<(config::Storage, Option<OpenStore>)>,
    audit: Option<(config::Audit, Events)>,
    pub(super) backend_cache: BackendCache,
    /// Turns of the calls of servers, by their names.
    call_queues: HashMap<String, (usize, Arc<CallQueue>)>,
}

impl Upstreams {
    /// For those who only look at files.
    pub(crate) fn offline() -> Upstreams {
        Upstreams { is_offline: true, ..Upstreams::default() }
    }

    /// For those who serve: what outlives a call is kept where the configuration says.
    pub(crate) fn with_storage() -> Upstreams {
        Upstreams { has_storage: true, ..Upstreams::default() }
    }

    pub(super) fn is_offline(&self) -> bool {
        self.is_offline
    }

    /// Asks nobody, or goes on asking. Says how it was.
    pub(super) fn set_offline(&mut self, is_quiet: bool) -> bool {
        std::mem::replace(&mut self.is_offline, is_quiet)
    }

    /// What is known of others is asked for again when it is needed next.
    pub(crate) fn invalidate(&mut self) {
        self.is_stale = true;
        self.backend_cache.clear();
    }

    /// Makes what a configuration describes, and forgets what it does not.
    pub(super) fn update(&mut self, config: &Config, troubles: &mut Diagnostics) {
        self.update_egress(config, troubles);
        let (old_sql, old_http) = (std::mem::take(&mut self.sql), std::mem::take(&mut self.http));
        for connection in &config.connections {
            let name = &connection.name;
            let made = match &connection.kind {
                ConnectionKind::Sql(about) => self.update_sql(sql_spec(name, about), &old_sql),
                ConnectionKind::Http(about) => self.update_http((None, name.clone()), about, &old_http),
            };
            for Problem { path: at, message: said } in made.err().unwrap_or_default() {
                troubles.report(connection.node.span_at(&at), said);
            }
        }
        for (server, api) in openapi_imports(config) {
            let Some(about) = own_connection(config, api) else { continue };
            let made = self.update_http(api_connection_name(server, api), &about, &old_http);
            for Problem { path: at, message: said } in made.err().unwrap_or_default() {
                // The connection calls it `http` and `headers`; here it is `base`, and one table deeper.
                let at = match at.strip_prefix("http") {
                    Some(_) => "base".to_owned(),
                    None => format!("auth.{at}"),
                };
                troubles.report(api.node.span_at(&at), said);
            }
        }
        for site in wordpress_sites(config) {
            let about = config::HttpConnectionConfig::new(site.url.clone());
            let made = self.update_http(wordpress_connection_name(site), &about, &old_http);
            for Problem { message: said, .. } in made.err().unwrap_or_default() {
                troubles.report(site.node.span_at("url"), said);
            }
        }
        let is_named = |url: &String| openapi_imports(config).any(|(_, api)| api.spec.url() == Some(url));
        self.documents.retain(|url, _| is_named(url));
        self.call_queues.retain(|name, _| config.servers.iter().any(|server| server.name == *name));
    }

    /// Opens what is kept, unless it is open already.
    pub(super) fn open_storage(&mut self, config: &Config, troubles: &mut Diagnostics) {
        if !self.has_storage {
            return;
        }
        self.update_audit(config, troubles);
        if self.store.as_ref().is_some_and(|(known, _)| *known == config.storage) {
            return;
        }
        match OpenStore::open(&config.storage) {
            Ok(kept) => self.store = Some((config.storage.clone(), kept)),
            Err(said) => troubles.report(config.storage_span, said),
        }
    }

    fn update_audit(&mut self, config: &Config, troubles: &mut Diagnostics) {
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
                let _heard = log.attach(&events);
                self.audit = Some((wanted.clone(), events));
            }
            Err(error) => troubles.report(config.audit_span, error.to_string()),
        }
    }

    /// Who hears of each call.
    pub(super) fn audit(&self) -> Option<&Events> {
        self.audit.as_ref().map(|(_, events)| events)
    }

    /// The turns of a server's calls. They outlive a change of everything else.
    pub(super) fn call_queue(&mut self, server: &str, at_once: usize) -> Arc<CallQueue> {
        match self.call_queues.get(server) {
            Some((known, turns)) if *known == at_once => Arc::clone(turns),
            _ => {
                let turns = Arc::new(CallQueue::new(at_once));
                self.call_queues.insert(server.to_owned(), (at_once, Arc::clone(&turns)));
                turns
            }
        }
    }

    /// Where it is kept, if that is not the memory.
    pub(super) fn open_store(&self) -> Option<&OpenStore> {
        self.store.as_ref().and_then(|(_, kept)| kept.as_ref())
    }

    fn update_egress(&mut self, config: &Config, troubles: &mut Diagnostics) {
        if self.egress.as_ref().is_some_and(|(known, _)| *known == config.egress) {
            return;
        }
        // Who may be called has changed: nobody goes on by the old rules.
        self.http.clear();
        let config::EgressConfig { deny_private, allow } = config.egress.clone();
        self.egress = match EgressGuard::new(&EgressSpec { deny_private, allow }) {
            Ok(egress) => Some((config.egress.clone(), OutboundContext::new(egress))),
            Err(problems) => {
                for Problem { path: at, message: said } in problems {
                    troubles.report(config.egress_node.span_at(&at), said);
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
        let made = match old.get(&spec.name).filter(|(known, _)| *known == spec) {
            Some((_, known)) => Arc::clone(known),
            None => SqlPool::new(spec.clone())?,
        };
        self.sql.insert(spec.name.clone(), (spec, made));
        Ok(())
    }

    fn update_http(
        &mut self,
        name: ConnectionName,
        about: &config::HttpConnectionConfig,
        old: &HashMap<ConnectionName, (config::HttpConnectionConfig, Arc<HttpClient>)>,
    ) -> Result<(), Vec<Problem>> {
        let made = match (old.get(&name).filter(|(known, _)| known == about), &self.egress) {
            (Some(known), _) => known.clone(),
            (None, Some((_, outside))) => (about.clone(), HttpClient::new(&http_spec(about), outside)?),
            (None, None) => return Ok(()),
        };
        self.http.insert(name, made);
        Ok(())
    }

    /// None if it could not be made, which was told.
    pub(super) fn http(&self, name: &str) -> Option<Arc<HttpClient>> {
        self.http.get(&(None, name.to_owned())).map(|(_, connection)| Arc::clone(connection))
    }

    pub(super) fn sql(&self, name: &str) -> Option<Arc<SqlPool>> {
        self.sql.get(name).map(|(_, connection)| Arc::clone(connection))
    }

    /// The site that knows who somebody is. None if it could not be made, which was told.
    pub(super) fn wordpress_connection(&self, site: &WordPress) -> Option<Arc<HttpClient>> {
        self.http.get(&wordpress_connection_name(site)).map(|(_, connection)| Arc::clone(connection))
    }

    /// The connection that requests of an API go to.
    pub(super) fn api_connection(&self, server: &str, api: &OpenApi) -> Option<Arc<HttpClient>> {
        let own =
            self.http.get(&api_connection_name(server, api)).map(|(_, connection)| Arc::clone(connection));
        own.or_else(|| self.http(api.connection.as_deref()?))
    }

    /// The text behind a URL, as it is known or as it is now. One that cannot be had now is as it was.
    pub(super) fn fetch_document(&mut self, url: &str, on: &HttpClient) -> Result<String, String> {
        let known = self.documents.get(url);
        if let (Some(known), false) = (known, self.is_stale) {
            return Ok(known.text.clone());
        }
        if self.is_offline {
            return Err("it is behind a URL; `check --live` reads it".into());
        }
        let etag = known.and_then(|known| known.etag.clone());
        let fetching = async {
            tokio::time::timeout(FETCH_TIMEOUT, on.fetch(url, etag.as_deref(), MAX_DOCUMENT_BYTES)).await
        };
        let fetched = block_on(fetching).unwrap_or_else(|_| Err("fetching the document timed out".into()));
        match (fetched, known) {
            (Ok(Some(fetched)), _) => {
                let text = fetched.text.clone();
                self.documents.insert(url.to_owned(), fetched);
                Ok(text)
            }
            (Ok(None), Some(known)) => Ok(known.text.clone()),
            (Ok(None), None) => Err("the document was not sent".into()),
            (Err(said), Some(known)) => {
                tracing::warn!(url = strip_url_secrets(url), said, "the description stays as it was");
                Ok(known.text.clone())
            }
            (Err(said), None) => Err(said),
        }
    }

    /// Everything was asked for again.
    pub(super) fn finish_update(&mut self) {
        self.is_stale = false;
        self.backend_cache.rotate();
    }

    /// Looks whether descriptions behind URLs have changed. Afterwards they are known as they are now.
    pub(crate) async fn refresh_documents<'a>(
        &mut self,
        described: impl Iterator<Item = (&'a str, &'a OpenApi)>,
    ) -> bool {
        let mut has_changed = false;
        for (server, api) in described {
            let (Some(url), Some(on)) = (api.spec.url(), self.api_connection(server, api)) else { continue };
            let known = self.documents.get(url);
            let etag = known.and_then(|known| known.etag.clone());
            match on.fetch(url, etag.as_deref(), MAX_DOCUMENT_BYTES).await {
                Ok(Some(fetched)) => {
                    has_changed |= known.is_none_or(|known| known.text != fetched.text);
                    self.documents.insert(url.to_owned(), fetched);
                }
                Ok(None) => {}
                Err(said) => {
                    tracing::warn!(url = strip_url_secrets(url), said, "the description stays as it was")
                }
            }
        }
        has_changed
    }

    /// Every database.
    pub(crate) fn sql_connections(&self) -> Vec<DatabaseHandle> {
        let mut stores: Vec<DatabaseHandle> = self
            .sql
            .iter()
            .map(|(name, (spec, connection))| DatabaseHandle {
                name: name.clone(),
                driver: spec.driver.key(),
                address: redact_url(&spec.url),
                pool: Arc::clone(connection),
            })
            .collect();
        stores.sort_by(|one, other| one.name.cmp(&other.name));
        stores
    }

    /// Every API.
    pub(crate) fn http_connections(&self) -> Vec<ApiHandle> {
        let mut apis: Vec<ApiHandle> = self
            .http
            .iter()
            .map(|((server, name), (about, connection))| ApiHandle {
                name: server.as_ref().map_or_else(|| name.clone(), |server| format!("{server}.{name}")),
                base_url: redact_url(&about.base),
                timeout: about.timeout,
                client: Arc::clone(connection),
            })
            .collect();
        apis.sort_by(|one, other| one.name.cmp(&other.name));
        apis
    }

    /// Every description that was read from a URL, and how long it is.
    pub(crate) fn document_sizes(&self) -> Vec<(String, usize)> {
        let mut known: Vec<(String, usize)> = self
            .documents
            .iter()
            .map(|(url, fetched)| (strip_url_secrets(url), fetched.text.len()))
            .collect();
        known.sort();
        known
    }

    /// Whether this description was ever read.
    pub(crate) fn has_document(&self, url: &str) -> bool {
        self.documents.contains_key(url)
    }

    /// Tries everybody, and says who does not answer; and, for themselves, things that need not be faults.
    pub(crate) async fn probe(&self, config: &Config) -> (Vec<String>, Vec<String>) {
        let (mut silent, mut notes) = (Vec::new(), Vec::new());
        let at = config.files.locate(config.storage_span);
        match storage::probe(&config.storage).await {
            StoreProbe::Available => {}
            StoreProbe::InUse(said) => notes.push(format!("{at}: {said}")),
            StoreProbe::Unavailable(said) => silent.push(format!("{at}: {said}")),
        }
        for connection in &config.connections {
            let name = &connection.name;
            let tried = match (self.sql.get(name), self.http.get(&(None, name.clone()))) {
                (Some((_, sql)), _) => sql.ping().await,
                (_, Some((_, http))) => {
                    http.probe().await.map_err(|said| format!("connection {name}: {said}"))
                }
                (None, None) => Ok(()),
            };
            silent
                .extend(tried.err().map(|said| format!("{}: {said}", config.files.locate(connection.span))));
        }
        for (server, api) in openapi_imports(config) {
            if let Some((_, http)) = self.http.get(&api_connection_name(server, api))
                && let Err(said) = http.probe().await
            {
                silent.push(format!("{}: API {}: {said}", config.files.locate(api.node.span), api.name));
            }
        }
        for site in wordpress_sites(config) {
            let Some(connection) = self.wordpress_connection(site) else { continue };
            if let Err(said) = super::wordpress::probe(site, &connection).await {
                let place = config.files.locate(site.node.span);
                silent.push(format!("{place}: auth {}: {said}", site.name));
            }
        }
        (silent, notes)
    }

    /// Says goodbye to databases.
    pub(crate) async fn close(&self) {
        for (_, connection) in self.sql.values() {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, connection.close()).await;
        }
        if let Some(kept) = self.open_store() {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, kept.close()).await;
        }
    }
}

/// Waits where that hurts nobody: see `compose`.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    Handle::current().block_on(future)
}

fn openapi_imports(config: &Config) -> impl Iterator<Item = (&str, &OpenApi)> {
    config.servers.iter().flat_map(|server| server.openapi.iter().map(|api| (server.name.as_str(), api)))
}

/// Sites that servers ask who somebody is; each once.
fn wordpress_sites(config: &Config) -> Vec<&WordPress> {
    let mut sites: Vec<&WordPress> = Vec::new();
    for site in config.servers.iter().filter_map(|server| server.settings.wordpress.as_ref()) {
        if !sites.iter().any(|known| known.name == site.name) {
            sites.push(site);
        }
    }
    sites
}

/// No server is called like this.
fn wordpress_connection_name(site: &WordPress) -> ConnectionName {
    (Some("(auth)".to_owned()), site.name.clone())
}

fn api_connection_name(server: &str, api: &OpenApi) -> ConnectionName {
    (Some(server.to_owned()), api.name.clone())
}

/// The connection that an API has for itself: where it says its base, or something that the named one does not.
fn own_connection(config: &Config, api: &OpenApi) -> Option<config::HttpConnectionConfig> {
    let mut about = match (&api.connection, &api.base) {
        (Some(on), _) => {
            let named = config.connections.iter().find(|known| known.name == *on)?;
            let ConnectionKind::Http(about) = &named.kind else { return None };
            if api.auth.is_none() && api.headers.is_empty() {
                return None;
            }
            about.clone()
        }
        (None, Some(base)) => config::HttpConnectionConfig::new(base.clone()),
        (None, None) => return None,
    };
    about.headers.extend(api.headers.iter().cloned());
    if api.auth.is_some() {
        about.auth.clone_from(&api.auth);
    }
    Some(about)
}

/// An address without what may be a secret in it.
pub(super) fn strip_url_secrets(url: &str) -> String {
    let plain = url.split(['?', '#']).next().unwrap_or_default();
    match plain.split_once("://").map(|(scheme, rest)| (scheme, rest.split_once('/').unwrap_or((rest, "")))) {
        Some((scheme, (host, path))) => {
            format!("{scheme}://{}/{path}", host.rsplit('@').next().unwrap_or_default())
        }
        None => plain.to_owned(),
    }
}

fn sql_spec(name: &str, about: &config::SqlConnectionConfig) -> SqlPoolSpec {
    let driver = match about.engine {
        "sqlite" => Driver::Sqlite,
        "mysql" => Driver::MySql,
        _ => Driver::Postgres,
    };
    SqlPoolSpec {
        max_connections: about.pool_max,
        max_queued: about.pool_queue,
        idle_timeout: about.pool_idle,
        acquire_timeout: about.pool_wait,
        read_only: about.read_only,
        ..SqlPoolSpec::new(name, driver, &about.url)
    }
}

fn http_spec(about: &config::HttpConnectionConfig) -> HttpClientSpec {
    HttpClientSpec {
        base_url: about.base.clone(),
        headers: about.headers.clone(),
        query: about.query.clone(),
        auth: about.auth.as_ref().map(auth_spec).unwrap_or_default(),
        retry: Retry { max: about.retry_max, statuses: about.retry_on.clone() },
        timeout: about.timeout,
        connect_timeout: about.connect_timeout,
        response_limit: about.max_response,
        max_redirects: about.max_redirects,
        ca_pem: about.ca_pem.clone(),
    }
}

pub(super) fn auth_spec(about: &UpstreamAuth) -> Auth {
    match about.clone() {
        UpstreamAuth::Forward => Auth::Forward,
        UpstreamAuth::Headers(names) => Auth::Headers(names),
        UpstreamAuth::Attribute { attribute, header, prefix } => {
            Auth::Attribute { attribute, header, prefix }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_their_secrets() {
        assert_eq!(strip_url_secrets("https://ada:pw@x.example/a/b?key=k#f"), "https://x.example/a/b");
        assert_eq!(strip_url_secrets("https://x.example?key=k"), "https://x.example/");
        assert_eq!(strip_url_secrets("nothing?k"), "nothing");
    }
}
