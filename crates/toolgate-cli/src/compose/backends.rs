//! Databases and APIs that tools use, by the names that a configuration gives them.
//!
//! They outlive a change of the configuration: what is described as before is kept, with its open connections. What is
//! not described any more ends when the last call that uses it does.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use toolgate::{AuditLog, Events};

use super::bounds::Turns;
use super::keep::{self, Kept, Probed};
use super::reuse::Reuse;
use crate::config::{self, BackendAuth, Config, ConnectionKind, OpenApi, Troubles, WordPress, address};
use crate::pack::world::{Api, Store};
use crate::source::Problem;
use crate::source::egress::{Egress, EgressSpec};
use crate::source::http::{Auth, ConnectionSpec, Fetched, HttpConnection, Outside, Retry};
use crate::source::openapi::TEXT_LIMIT;
use crate::source::sql::{Driver, SqlConnection, SqlConnectionSpec};

/// How long those who are asked something may keep a start or a change waiting.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// The same for descriptions of APIs. Who is slower is asked again later, with more time.
const FETCH: Duration = Duration::from_secs(5);
/// How long connections have to end when the program does.
const GOODBYE: Duration = Duration::from_secs(2);

/// A connection by its own name, or the one that an API of a server has for itself.
type Name = (Option<String>, String);

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Backends {
    outside: Option<(config::Egress, Arc<Outside>)>,
    sql: HashMap<String, (SqlConnectionSpec, Arc<SqlConnection>)>,
    http: HashMap<Name, (config::HttpConnection, Arc<HttpConnection>)>,
    /// Descriptions of APIs that were read from URLs.
    documents: HashMap<String, Fetched>,
    /// Everything is read again, whether it is known or not.
    is_stale: bool,
    /// Nobody is asked anything: what is not in files is not known.
    is_quiet: bool,
    /// Whether something is kept at all: whoever only looks keeps nothing, and is in nobody's way.
    is_keeping: bool,
    kept: Option<(config::Storage, Option<Kept>)>,
    audit: Option<(config::Audit, Events)>,
    pub(super) reuse: Reuse,
    /// Turns of the calls of servers, by their names.
    turns: HashMap<String, (usize, Arc<Turns>)>,
}

impl Backends {
    /// For those who only look at files.
    pub(crate) fn quiet() -> Backends {
        Backends { is_quiet: true, ..Backends::default() }
    }

    /// For those who serve: what outlives a call is kept where the configuration says.
    pub(crate) fn keeping() -> Backends {
        Backends { is_keeping: true, ..Backends::default() }
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// Asks nobody, or goes on asking. Says how it was.
    pub(super) fn hush(&mut self, is_quiet: bool) -> bool {
        std::mem::replace(&mut self.is_quiet, is_quiet)
    }

    /// What is known of others is asked for again when it is needed next.
    pub(crate) fn doubt(&mut self) {
        self.is_stale = true;
        self.reuse.clear();
    }

    /// Makes what a configuration describes, and forgets what it does not.
    pub(super) fn renew(&mut self, config: &Config, troubles: &mut Troubles) {
        self.renew_outside(config, troubles);
        let (old_sql, old_http) = (std::mem::take(&mut self.sql), std::mem::take(&mut self.http));
        for connection in &config.connections {
            let name = &connection.name;
            let made = match &connection.kind {
                ConnectionKind::Sql(about) => self.renew_sql(sql_spec(name, about), &old_sql),
                ConnectionKind::Http(about) => self.renew_http((None, name.clone()), about, &old_http),
            };
            for Problem { at, said } in made.err().unwrap_or_default() {
                troubles.say(connection.node.reach(&at), said);
            }
        }
        for (server, api) in apis(config) {
            let Some(about) = own(config, api) else { continue };
            let made = self.renew_http(name_of(server, api), &about, &old_http);
            for Problem { at, said } in made.err().unwrap_or_default() {
                // The connection calls it `http` and `headers`; here it is `base`, and one table deeper.
                let at = match at.strip_prefix("http") {
                    Some(_) => "base".to_owned(),
                    None => format!("auth.{at}"),
                };
                troubles.say(api.node.reach(&at), said);
            }
        }
        for site in sites(config) {
            let about = config::HttpConnection::at(site.url.clone());
            let made = self.renew_http(site_name(site), &about, &old_http);
            for Problem { said, .. } in made.err().unwrap_or_default() {
                troubles.say(site.node.reach("url"), said);
            }
        }
        let is_named = |url: &String| apis(config).any(|(_, api)| api.spec.url() == Some(url));
        self.documents.retain(|url, _| is_named(url));
        self.turns.retain(|name, _| config.servers.iter().any(|server| server.name == *name));
    }

    /// Opens what is kept, unless it is open already.
    pub(super) fn keep(&mut self, config: &Config, troubles: &mut Troubles) {
        if !self.is_keeping {
            return;
        }
        self.renew_audit(config, troubles);
        if self.kept.as_ref().is_some_and(|(known, _)| *known == config.storage) {
            return;
        }
        match Kept::open(&config.storage) {
            Ok(kept) => self.kept = Some((config.storage.clone(), kept)),
            Err(said) => troubles.say(config.storage_at, said),
        }
    }

    fn renew_audit(&mut self, config: &Config, troubles: &mut Troubles) {
        let wanted = config.servers.first().and_then(|server| server.frame.audit.as_ref());
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
            Err(error) => troubles.say(config.audit_at, error.to_string()),
        }
    }

    /// Who hears of each call.
    pub(super) fn audit(&self) -> Option<&Events> {
        self.audit.as_ref().map(|(_, events)| events)
    }

    /// The turns of a server's calls. They outlive a change of everything else.
    pub(super) fn turns(&mut self, server: &str, at_once: usize) -> Arc<Turns> {
        match self.turns.get(server) {
            Some((known, turns)) if *known == at_once => Arc::clone(turns),
            _ => {
                let turns = Arc::new(Turns::new(at_once));
                self.turns.insert(server.to_owned(), (at_once, Arc::clone(&turns)));
                turns
            }
        }
    }

    /// Where it is kept, if that is not the memory.
    pub(super) fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref().and_then(|(_, kept)| kept.as_ref())
    }

    fn renew_outside(&mut self, config: &Config, troubles: &mut Troubles) {
        if self.outside.as_ref().is_some_and(|(known, _)| *known == config.egress) {
            return;
        }
        // Who may be called has changed: nobody goes on by the old rules.
        self.http.clear();
        let config::Egress { deny_private, allow } = config.egress.clone();
        self.outside = match Egress::new(&EgressSpec { deny_private, allow }) {
            Ok(egress) => Some((config.egress.clone(), Outside::new(egress))),
            Err(problems) => {
                for Problem { at, said } in problems {
                    troubles.say(config.egress_node.reach(&at), said);
                }
                None
            }
        };
    }

    fn renew_sql(
        &mut self,
        spec: SqlConnectionSpec,
        old: &HashMap<String, (SqlConnectionSpec, Arc<SqlConnection>)>,
    ) -> Result<(), Vec<Problem>> {
        let made = match old.get(&spec.name).filter(|(known, _)| *known == spec) {
            Some((_, known)) => Arc::clone(known),
            None => SqlConnection::new(spec.clone())?,
        };
        self.sql.insert(spec.name.clone(), (spec, made));
        Ok(())
    }

    fn renew_http(
        &mut self,
        name: Name,
        about: &config::HttpConnection,
        old: &HashMap<Name, (config::HttpConnection, Arc<HttpConnection>)>,
    ) -> Result<(), Vec<Problem>> {
        let made = match (old.get(&name).filter(|(known, _)| known == about), &self.outside) {
            (Some(known), _) => known.clone(),
            (None, Some((_, outside))) => (about.clone(), HttpConnection::new(&http_spec(about), outside)?),
            (None, None) => return Ok(()),
        };
        self.http.insert(name, made);
        Ok(())
    }

    /// None if it could not be made, which was told.
    pub(super) fn http(&self, name: &str) -> Option<Arc<HttpConnection>> {
        self.http.get(&(None, name.to_owned())).map(|(_, connection)| Arc::clone(connection))
    }

    pub(super) fn sql(&self, name: &str) -> Option<Arc<SqlConnection>> {
        self.sql.get(name).map(|(_, connection)| Arc::clone(connection))
    }

    /// The site that knows who somebody is. None if it could not be made, which was told.
    pub(super) fn site(&self, site: &WordPress) -> Option<Arc<HttpConnection>> {
        self.http.get(&site_name(site)).map(|(_, connection)| Arc::clone(connection))
    }

    /// The connection that requests of an API go to.
    pub(super) fn api(&self, server: &str, api: &OpenApi) -> Option<Arc<HttpConnection>> {
        let own = self.http.get(&name_of(server, api)).map(|(_, connection)| Arc::clone(connection));
        own.or_else(|| self.http(api.on.as_deref()?))
    }

    /// The text behind a URL, as it is known or as it is now. One that cannot be had now is as it was.
    pub(super) fn document(&mut self, url: &str, on: &HttpConnection) -> Result<String, String> {
        let known = self.documents.get(url);
        if let (Some(known), false) = (known, self.is_stale) {
            return Ok(known.text.clone());
        }
        if self.is_quiet {
            return Err("it is behind a URL; `check --live` reads it".into());
        }
        let etag = known.and_then(|known| known.etag.clone());
        let fetching =
            async { tokio::time::timeout(FETCH, on.fetch(url, etag.as_deref(), TEXT_LIMIT)).await };
        let fetched = wait(fetching).unwrap_or_else(|_| Err("the document took too long".into()));
        match (fetched, known) {
            (Ok(Some(fetched)), _) => {
                let text = fetched.text.clone();
                self.documents.insert(url.to_owned(), fetched);
                Ok(text)
            }
            (Ok(None), Some(known)) => Ok(known.text.clone()),
            (Ok(None), None) => Err("the document was not sent".into()),
            (Err(said), Some(known)) => {
                tracing::warn!(url = shown(url), said, "the description stays as it was");
                Ok(known.text.clone())
            }
            (Err(said), None) => Err(said),
        }
    }

    /// Everything was asked for again.
    pub(super) fn settle(&mut self) {
        self.is_stale = false;
        self.reuse.settle();
    }

    /// Looks whether descriptions behind URLs have changed. Afterwards they are known as they are now.
    pub(crate) async fn refresh<'a>(
        &mut self,
        described: impl Iterator<Item = (&'a str, &'a OpenApi)>,
    ) -> bool {
        let mut has_changed = false;
        for (server, api) in described {
            let (Some(url), Some(on)) = (api.spec.url(), self.api(server, api)) else { continue };
            let known = self.documents.get(url);
            let etag = known.and_then(|known| known.etag.clone());
            match on.fetch(url, etag.as_deref(), TEXT_LIMIT).await {
                Ok(Some(fetched)) => {
                    has_changed |= known.is_none_or(|known| known.text != fetched.text);
                    self.documents.insert(url.to_owned(), fetched);
                }
                Ok(None) => {}
                Err(said) => tracing::warn!(url = shown(url), said, "the description stays as it was"),
            }
        }
        has_changed
    }

    /// Every database.
    pub(crate) fn stores(&self) -> Vec<Store> {
        let mut stores: Vec<Store> = self
            .sql
            .iter()
            .map(|(name, (spec, connection))| Store {
                name: name.clone(),
                engine: spec.driver.key(),
                address: address(&spec.address),
                connection: Arc::clone(connection),
            })
            .collect();
        stores.sort_by(|one, other| one.name.cmp(&other.name));
        stores
    }

    /// Every API.
    pub(crate) fn apis(&self) -> Vec<Api> {
        let mut apis: Vec<Api> = self
            .http
            .iter()
            .map(|((server, name), (about, connection))| Api {
                name: server.as_ref().map_or_else(|| name.clone(), |server| format!("{server}.{name}")),
                base: address(&about.base),
                timeout: about.timeout,
                connection: Arc::clone(connection),
            })
            .collect();
        apis.sort_by(|one, other| one.name.cmp(&other.name));
        apis
    }

    /// Every description that was read from a URL, and how long it is.
    pub(crate) fn descriptions(&self) -> Vec<(String, usize)> {
        let mut known: Vec<(String, usize)> =
            self.documents.iter().map(|(url, fetched)| (shown(url), fetched.text.len())).collect();
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
        let at = config.texts.locate(config.storage_at);
        match keep::probe(&config.storage).await {
            Probed::There => {}
            Probed::Held(said) => notes.push(format!("{at}: {said}")),
            Probed::Missing(said) => silent.push(format!("{at}: {said}")),
        }
        for connection in &config.connections {
            let name = &connection.name;
            let tried = match (self.sql.get(name), self.http.get(&(None, name.clone()))) {
                (Some((_, sql)), _) => sql.ping().await,
                (_, Some((_, http))) => {
                    http.reach().await.map_err(|said| format!("connection {name}: {said}"))
                }
                (None, None) => Ok(()),
            };
            silent.extend(tried.err().map(|said| format!("{}: {said}", config.texts.locate(connection.at))));
        }
        for (server, api) in apis(config) {
            if let Some((_, http)) = self.http.get(&name_of(server, api))
                && let Err(said) = http.reach().await
            {
                silent.push(format!("{}: API {}: {said}", config.texts.locate(api.node.at), api.name));
            }
        }
        for site in sites(config) {
            let Some(connection) = self.site(site) else { continue };
            if let Err(said) = super::wordpress::probe(site, &connection).await {
                let place = config.texts.locate(site.node.at);
                silent.push(format!("{place}: auth {}: {said}", site.name));
            }
        }
        (silent, notes)
    }

    /// Says goodbye to databases.
    pub(crate) async fn close(&self) {
        for (_, connection) in self.sql.values() {
            let _ = tokio::time::timeout(GOODBYE, connection.close()).await;
        }
        if let Some(kept) = self.kept() {
            let _ = tokio::time::timeout(GOODBYE, kept.close()).await;
        }
    }
}

/// Waits where that hurts nobody: see `compose`.
pub(super) fn wait<T>(future: impl Future<Output = T>) -> T {
    Handle::current().block_on(future)
}

fn apis(config: &Config) -> impl Iterator<Item = (&str, &OpenApi)> {
    config.servers.iter().flat_map(|server| server.openapi.iter().map(|api| (server.name.as_str(), api)))
}

/// Sites that servers ask who somebody is; each once.
fn sites(config: &Config) -> Vec<&WordPress> {
    let mut sites: Vec<&WordPress> = Vec::new();
    for site in config.servers.iter().filter_map(|server| server.frame.wordpress.as_ref()) {
        if !sites.iter().any(|known| known.name == site.name) {
            sites.push(site);
        }
    }
    sites
}

/// No server is called like this.
fn site_name(site: &WordPress) -> Name {
    (Some("(auth)".to_owned()), site.name.clone())
}

fn name_of(server: &str, api: &OpenApi) -> Name {
    (Some(server.to_owned()), api.name.clone())
}

/// The connection that an API has for itself: where it says its base, or something that the named one does not.
fn own(config: &Config, api: &OpenApi) -> Option<config::HttpConnection> {
    let mut about = match (&api.on, &api.base) {
        (Some(on), _) => {
            let named = config.connections.iter().find(|known| known.name == *on)?;
            let ConnectionKind::Http(about) = &named.kind else { return None };
            if api.auth.is_none() && api.headers.is_empty() {
                return None;
            }
            about.clone()
        }
        (None, Some(base)) => config::HttpConnection::at(base.clone()),
        (None, None) => return None,
    };
    about.headers.extend(api.headers.iter().cloned());
    if api.auth.is_some() {
        about.auth.clone_from(&api.auth);
    }
    Some(about)
}

/// An address without what may be a secret in it.
pub(super) fn shown(url: &str) -> String {
    let plain = url.split(['?', '#']).next().unwrap_or_default();
    match plain.split_once("://").map(|(scheme, rest)| (scheme, rest.split_once('/').unwrap_or((rest, "")))) {
        Some((scheme, (host, path))) => {
            format!("{scheme}://{}/{path}", host.rsplit('@').next().unwrap_or_default())
        }
        None => plain.to_owned(),
    }
}

fn sql_spec(name: &str, about: &config::SqlConnection) -> SqlConnectionSpec {
    let driver = match about.engine {
        "sqlite" => Driver::Sqlite,
        "mysql" => Driver::MySql,
        _ => Driver::Postgres,
    };
    SqlConnectionSpec {
        max: about.pool_max,
        queue: about.pool_queue,
        idle: about.pool_idle,
        wait: about.pool_wait,
        read_only: about.read_only,
        ..SqlConnectionSpec::new(name, driver, &about.url)
    }
}

fn http_spec(about: &config::HttpConnection) -> ConnectionSpec {
    ConnectionSpec {
        base: about.base.clone(),
        headers: about.headers.clone(),
        query: about.query.clone(),
        auth: about.auth.as_ref().map(auth).unwrap_or_default(),
        retry: Retry { max: about.retry_max, on: about.retry_on.clone() },
        timeout: about.timeout,
        connect_timeout: about.connect_timeout,
        response_limit: about.max_response,
        redirects: about.redirects,
        ca: about.ca.clone(),
    }
}

pub(super) fn auth(about: &BackendAuth) -> Auth {
    match about.clone() {
        BackendAuth::Forward => Auth::Forward,
        BackendAuth::Headers(names) => Auth::Headers(names),
        BackendAuth::Attribute { attribute, header, prefix } => Auth::Attribute { attribute, header, prefix },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_their_secrets() {
        assert_eq!(shown("https://ada:pw@x.example/a/b?key=k#f"), "https://x.example/a/b");
        assert_eq!(shown("https://x.example?key=k"), "https://x.example/");
        assert_eq!(shown("nothing?k"), "nothing");
    }
}
