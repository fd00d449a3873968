//! Several servers at one address: which path leads to which server, and how it speaks there.
//!
//! What it must not do: know a method of the protocol or judge a caller; that is the business of the server that
//! a request is for.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Request, Response, Uri};
use tokio_util::sync::CancellationToken;
use toolgate_wire::model::Tool;
use toolgate_wire::{Dialect, ProtocolError, ProtocolErrorKind};
use tower_service::Service;

use crate::error::{Error, ErrorKind};
use crate::guard::{Guards, ResponsePolicy};
use crate::observe::prometheus;
use crate::request::BoxFuture;
use crate::server::Server;
use crate::servers::{DEFAULT_SERVER_NAME, Servers, registry};
use crate::transport::RequestHead;
use crate::transport::http::{
    Body, BoxError, MCP_HEADER_NAMES, MountContext, MountPoint, OriginalPath, StatsAccess, not_found,
    prometheus_response, rejection_response, status_response, unknown_server_response,
};
use crate::transport::listen::{RemoteAddr, RequestBody, Serve};
use crate::transport::{listen, run};
use crate::util::percent;

type MountGuardFn = Arc<dyn Fn(&Parts) -> bool + Send + Sync>;
type PageFn = Arc<dyn Fn(&PageRequest<'_>) -> serde_json::Value + Send + Sync>;

/// Named servers at one address: which path leads to which server.
///
/// Serve it with [`App::listen`], give it to [`main!`](crate::main), or mount it in a router of yours
/// ([`App::into_service`]). The longest path that fits a request is the one that is meant; what leads nowhere is
/// answered 404.
///
/// ```no_run
/// use toolgate::{App, Mount, Servers};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), toolgate::Error> {
/// let servers = Servers::new();
/// servers.server("shop");
/// servers.server("admin").with_basic_auth("admin", "secret");
///
/// App::new(&servers)
///     .mount("/shop/mcp", Mount::fixed("shop"))
///     .mount("/admin/mcp", Mount::fixed("admin").header("X-Robots-Tag", "none"))
///     .mount("/mcp", Mount::select().or("shop")) // `/mcp/admin` and `/mcp?server=admin` choose
///     .listen("127.0.0.1:8080")
///     .await
/// # }
/// ```
#[must_use = "an app serves nobody until it listens"]
pub struct App {
    servers: Servers,
    mounts: MountHandle,
    stats_path: Option<String>,
    metrics_path: Option<String>,
    /// Whether it is asked how it is, and until when it is ready.
    readiness: Option<CancellationToken>,
    public_url: Option<String>,
    listen_options: listen::Options,
    shutdown_timeout: Duration,
    errors: Vec<String>,
    /// What answers carry that are no server's.
    guards: Guards,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("mounts", &self.mounts).finish_non_exhaustive()
    }
}

/// What a path leads to: one server, or one that the request names.
///
/// ```
/// use toolgate::{Dialect, Mount};
///
/// let shop = Mount::fixed("shop").header("X-Robots-Tag", "none");
/// let any = Mount::select().or("shop").dialect(Dialect::boxlang());
/// let inside = Mount::fixed("admin").guard(|head| head.headers.contains_key("x-inside"));
/// # let _ = (shop, any, inside);
/// ```
#[derive(Clone)]
#[must_use]
pub struct Mount {
    selector: ServerSelector,
    dialect: Option<Arc<Dialect>>,
    headers: Vec<(HeaderName, HeaderValue)>,
    guard: Option<MountGuardFn>,
    /// It is no server's endpoint but a page about one.
    page: Option<PageFn>,
    errors: Vec<String>,
}

#[derive(Clone)]
enum ServerSelector {
    /// Always this one.
    Fixed(String),
    /// The one the request names, or else this one.
    ByRequest { default_server: String },
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let choice = match &self.selector {
            ServerSelector::Fixed(name) | ServerSelector::ByRequest { default_server: name } => name,
        };
        f.debug_struct("Mount").field("server", choice).finish_non_exhaustive()
    }
}

impl Mount {
    /// The server of this name, whatever the request says. It may be made later: until then requests are answered 404.
    pub fn fixed(server: impl Into<String>) -> Mount {
        Mount::from_selector(ServerSelector::Fixed(server.into()))
    }

    /// The server that the request names: in the path segment after the mount, or else as `?server=`, or else the
    /// server `default` (or another one, see [`Mount::or`]). At `/mcp` these are `/mcp/NAME`, `/mcp?server=NAME`, `/mcp`.
    /// Who may select may select every server of the list: its own guards protect it.
    pub fn select() -> Mount {
        Mount::from_selector(ServerSelector::ByRequest { default_server: DEFAULT_SERVER_NAME.into() })
    }

    fn from_selector(selector: ServerSelector) -> Mount {
        Mount { selector, dialect: None, headers: Vec::new(), guard: None, page: None, errors: Vec::new() }
    }

    /// A page about a server, for those who speak plain HTTP: a GET of exactly this path is answered with the JSON that
    /// this makes. Who may call the server may look, by the same guards, and sees there what they would see in lists. It
    /// is made where the request is served: it must not block.
    ///
    /// ```
    /// # use serde_json::json;
    /// # use toolgate::{App, Mount, Servers};
    /// # let servers = Servers::new();
    /// let names = Mount::page("shop", |look| {
    ///     let wanted = look.query("like").unwrap_or_default();
    ///     let names = look.tools().iter().map(|tool| tool.name.as_str());
    ///     json!({ "tools": names.filter(|name| name.contains(&wanted)).collect::<Vec<_>>() })
    /// });
    /// let app = App::new(&servers).mount("/mcp", Mount::fixed("shop")).mount("/tools.json", names);
    /// # assert!(app.into_service().is_ok());
    /// ```
    pub fn page(
        server: impl Into<String>,
        page: impl Fn(&PageRequest<'_>) -> serde_json::Value + Send + Sync + 'static,
    ) -> Mount {
        Mount { page: Some(Arc::new(page)), ..Mount::fixed(server) }
    }

    /// The server that is meant when the request names none, instead of `default`.
    pub fn or(mut self, server: impl Into<String>) -> Mount {
        match &mut self.selector {
            ServerSelector::ByRequest { default_server: or } => *or = server.into(),
            ServerSelector::Fixed(_) => {
                self.errors.push("`or` makes no sense where the server is fixed".into())
            }
        }
        self
    }

    /// Speaks like this, here, to clients that name no protocol revision; instead of the server's own dialect.
    pub fn dialect(mut self, dialect: Dialect) -> Mount {
        self.dialect = Some(Arc::new(dialect));
        self
    }

    /// Every answer from here carries this header, refusals too. It replaces one of the same name.
    pub fn header(mut self, name: &str, value: &str) -> Mount {
        match (name.parse(), value.parse()) {
            (Ok(name), Ok(value)) => self.headers.push((name, value)),
            _ => self.errors.push(format!("{name:?}: {value:?} is no header")),
        }
        self
    }

    /// Lets in only requests of which this says so, judged by their head, before the guards of the server. Others are told
    /// `Unauthorized`, with status 403. It is called where the request is served: it must not block.
    pub fn guard(mut self, guard: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Mount {
        self.guard = Some(Arc::new(guard));
        self
    }
}

/// A look at a page: see [`Mount::page`].
#[derive(Debug)]
pub struct PageRequest<'a> {
    uri: &'a Uri,
    tools: Vec<Arc<Tool>>,
}

impl PageRequest<'_> {
    /// A parameter of the query, without its escapes.
    #[must_use]
    pub fn query(&self, name: &str) -> Option<String> {
        query_param(self.uri, name)
    }

    /// The tools that whoever looks would see in a list, in their order.
    #[must_use]
    pub fn tools(&self) -> &[Arc<Tool>] {
        &self.tools
    }
}

impl Default for App {
    /// The servers of this process, mounted nowhere yet.
    fn default() -> App {
        App::new(registry())
    }
}

impl App {
    /// These servers, mounted nowhere yet. Servers may come and go while they are served.
    pub fn new(servers: &Servers) -> App {
        App {
            servers: servers.clone(),
            mounts: MountHandle::default(),
            stats_path: None,
            metrics_path: None,
            readiness: None,
            public_url: None,
            listen_options: listen::Options::default(),
            shutdown_timeout: Duration::from_secs(30),
            errors: Vec::new(),
            guards: Guards::default(),
        }
    }

    /// Serves what a mount leads to at this path and below. A path begins with `/` and is said once.
    pub fn mount(mut self, path: &str, mount: Mount) -> App {
        let mut mounts = Vec::clone(&self.mounts.0.load());
        self.errors.extend(add_mount(&mut mounts, path, mount));
        self.mounts.0.store(Arc::new(mounts));
        self
    }

    /// Where things are mounted, to be changed while the app is served.
    #[must_use]
    pub fn mounts(&self) -> MountHandle {
        self.mounts.clone()
    }

    /// Answers `GET /health` with 200 as long as the process lives, and `GET /ready` with 200 until it begins to end,
    /// then with 503: for whoever starts and stops it. Both tell nothing else, and ask nobody who they are.
    pub fn health(mut self) -> App {
        self.readiness = Some(CancellationToken::new());
        self
    }

    /// Serves statistics as JSON below this path: `GET {path}/NAME`, `GET {path}/NAME/summary`, and
    /// `POST {path}/NAME/reset`. Whoever may call a server may see and reset its numbers; its guards judge, and the guard
    /// of a mount is not asked.
    pub fn stats_at(mut self, path: &str) -> App {
        self.stats_path = Some(path.trim_end_matches('/').to_owned());
        self
    }

    /// Serves the numbers as Prometheus reads them at this path: `GET {path}` those of every server that the caller may
    /// call, `GET {path}/NAME` those of one. Guards of servers judge, as with [`App::stats_at`]; who may call none is told
    /// what the first of them says. Names of tools are shown to those who may see all tools.
    pub fn metrics_at(mut self, path: &str) -> App {
        self.metrics_path = Some(path.trim_end_matches('/').to_owned());
        self
    }

    /// The address that clients know these servers by, where that is not this machine: see
    /// [`Builder::public_url`](crate::Builder::public_url). Holds for the servers that are there when serving begins.
    pub fn public_url(mut self, url: &str) -> App {
        self.public_url = Some(url.to_owned());
        self
    }

    /// Limits of our own listener.
    pub fn listener(mut self, options: listen::Options) -> App {
        self.listen_options = options;
        self
    }

    /// How long calls under way may go on when the app ends. Half a minute unless said otherwise.
    pub fn shutdown_timeout(mut self, drain: Duration) -> App {
        self.shutdown_timeout = drain;
        self
    }

    /// Serves HTTP at this address until the process is asked to end (SIGTERM, Ctrl-C). Calls under way are
    /// finished; then the servers are removed.
    ///
    /// # Errors
    /// If the description cannot work, or the address cannot be had.
    pub async fn listen(self, address: impl tokio::net::ToSocketAddrs + fmt::Debug) -> Result<(), Error> {
        let place = format!("cannot listen on {address:?}");
        let bound = tokio::net::TcpListener::bind(address).await;
        self.serve(bound.map_err(|error| Error::io(place, error))?).await
    }

    /// Serves HTTP on a listener that exists already; see [`App::listen`].
    ///
    /// # Errors
    /// If the description cannot work, or the listener breaks.
    pub async fn serve(self, listener: tokio::net::TcpListener) -> Result<(), Error> {
        let (servers, options, drain) =
            (self.servers.clone(), self.listen_options.clone(), self.shutdown_timeout);
        let health = self.readiness.clone();
        let service = self.into_service()?;
        let over = CancellationToken::new();
        let end = || {
            if let Some(health) = &health {
                health.cancel();
            }
            over.cancel();
            for server in servers.names().iter().filter_map(|name| servers.get(name)) {
                server.shutdown();
            }
        };
        for server in servers.names().iter().filter_map(|name| servers.get(name)) {
            server.start_background();
        }
        let settle = async {
            for server in servers.names().iter().filter_map(|name| servers.get(name)) {
                server.drain().await;
            }
        };
        let served =
            run(listener, service, options.shutdown_timeout(drain), over.clone(), drain, end, settle).await;
        servers.clear();
        served.map_err(|error| Error::io("cannot go on listening", error))
    }

    /// The app as a `tower` service, to be mounted in axum or any other router. Paths are those of the request
    /// as it arrives, so it is a fallback there and not nested, which would take the prefix off.
    ///
    /// ```
    /// # use toolgate::{App, Mount, Servers};
    /// # fn main() -> Result<(), toolgate::Error> {
    /// let servers = Servers::new();
    /// servers.server("shop");
    /// let tools = App::new(&servers).mount("/mcp", Mount::select().or("shop")).into_service()?;
    /// let app: axum::Router = axum::Router::new().fallback_service(tools);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the description cannot work. The error lists everything that is wrong with it.
    pub fn into_service(self) -> Result<AppService, Error> {
        self.check()?;
        Ok(AppService { app: Arc::new(self), remote: None })
    }

    /// Everything that is wrong, at once.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let mut faults = self.errors.clone();
        for server in self.servers.names().iter().filter_map(|name| self.servers.get(name)) {
            if let Some(url) = &self.public_url {
                server.set_public_url(url);
            }
            faults.extend(server.ensure_valid().err().map(|error| error.to_string()));
        }
        for (path, mount) in self.mounts.0.load().iter() {
            if let ServerSelector::Fixed(name) = &mount.selector
                && !self.servers.has(name)
            {
                tracing::warn!(
                    path = &**path,
                    server = name,
                    "a mount leads to a server that is not there yet"
                );
            }
        }
        if faults.is_empty() {
            return Ok(());
        }
        let said = faults.join("\n").replace('\n', "\n  ");
        Err(Error::new(ErrorKind::InvalidConfig, format!("the app cannot be served:\n  {said}")))
    }

    /// The paths that lead somewhere.
    pub(crate) fn paths(&self) -> String {
        let mounts = self.mounts.0.load();
        let paths: Vec<&str> = mounts.iter().map(|(path, _)| &**path).collect();
        paths.join(", ")
    }

    pub(crate) fn server_list(&self) -> &Servers {
        &self.servers
    }

    /// The mount that a path leads to, and what is left of the path.
    fn find_mount<'a>(&self, path: &'a str) -> Option<(Arc<Mount>, &'a str)> {
        self.mounts.0.load().iter().find_map(|(at, mount)| {
            let rest = path.strip_prefix(&**at)?;
            (rest.is_empty() || rest.starts_with('/')).then(|| (Arc::clone(mount), rest))
        })
    }

    /// How the process is, if that is asked.
    fn health_response(&self, parts: &RequestHead) -> Option<Response<Body>> {
        let ready = self.readiness.as_ref()?;
        let (status, said) = match parts.uri.path() {
            "/health" => (200, "ok"),
            "/ready" if ready.is_cancelled() => (503, "ending"),
            "/ready" => (200, "ready"),
            _ => return None,
        };
        let mut response = status_response(status, said);
        if !matches!(parts.method, http::Method::GET | http::Method::HEAD) {
            *response.status_mut() = http::StatusCode::METHOD_NOT_ALLOWED;
        }
        Some(self.with_default_headers(response))
    }

    async fn route<B>(&self, mut parts: RequestHead, body: B, remote: Option<SocketAddr>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if let Some(told) = self.health_response(&parts) {
            return told;
        }
        let Some((mount, rest)) = self.find_mount(parts.uri.path()) else {
            return self.stats_response(&parts, remote).await;
        };
        let mount = &*mount;
        let refuse = |parts: &RequestHead, fault: ProtocolError| {
            let mut response = rejection_response(&parts.headers, mount.dialect.as_ref(), &fault);
            mount.apply_headers(&mut response);
            self.with_default_headers(response)
        };
        let (server, rest) = match self.select_server(mount, &parts.uri, rest) {
            Ok(chosen) => chosen,
            Err(name) => {
                let shown: String = name.chars().take(128).collect();
                let fault =
                    ProtocolError::invalid_request(format!("Unknown MCP server: {shown}")).with_status(404);
                return refuse(&parts, fault);
            }
        };
        // What a browser asks before it sends anything carries nothing that a guard could judge; the server answers it.
        let is_preflight = parts.method == http::Method::OPTIONS;
        if !is_preflight && mount.guard.as_ref().is_some_and(|guard| !guard_allows(guard, &parts, remote)) {
            return refuse(
                &parts,
                ProtocolError::new(ProtocolErrorKind::Unauthorized, "Unauthorized").with_status(403),
            );
        }
        if let Some(page) = &mount.page {
            if !matches!(rest, "" | "/") {
                return self.with_default_headers(not_found());
            }
            let make = |tools| render_page(page, &PageRequest { uri: &parts.uri, tools });
            let mut response = server.service().serve_page(&parts, remote, mount.dialect.clone(), make).await;
            mount.apply_headers(&mut response);
            return response;
        }
        // Whoever looks may be told where they are.
        if parts.method == http::Method::GET {
            let path = parts.uri.path().into();
            parts.extensions.insert(OriginalPath(path));
        }
        if let Some(uri) = with_path(&parts.uri, if rest.is_empty() { "/" } else { rest }) {
            parts.uri = uri;
        }
        let way = MountContext { mount_point: MountPoint::Mounted, dialect: mount.dialect.clone(), remote };
        let mut response = server.service().handle(parts, body, way).await;
        mount.apply_headers(&mut response);
        response
    }

    /// The server that is meant, and what of the path is for it; or the name that leads nowhere.
    fn select_server<'a>(
        &self,
        mount: &Mount,
        uri: &Uri,
        rest: &'a str,
    ) -> Result<(Server, &'a str), String> {
        let or = match &mount.selector {
            ServerSelector::Fixed(name) => return self.server_by_name(name).map(|server| (server, rest)),
            ServerSelector::ByRequest { default_server: or } => or,
        };
        let inner = rest.strip_prefix('/').unwrap_or(rest);
        let (segment, after) = match inner.find('/') {
            Some(end) => inner.split_at(end),
            None => (inner, ""),
        };
        let segment = percent_decode(segment, false);
        if !segment.is_empty() {
            return match self.server_by_name(&segment) {
                Ok(server) => Ok((server, after)),
                // The two doors of the first revision stand below every mount.
                Err(_) if matches!(segment.as_str(), "sse" | "messages") => {
                    self.server_from_query(uri, or).map(|server| (server, rest))
                }
                Err(name) => Err(name),
            };
        }
        self.server_from_query(uri, or).map(|server| (server, rest))
    }

    fn server_from_query(&self, uri: &Uri, or: &str) -> Result<Server, String> {
        let asked = query_param(uri, "server").filter(|name| !name.is_empty());
        self.server_by_name(asked.as_deref().unwrap_or(or))
    }

    fn server_by_name(&self, name: &str) -> Result<Server, String> {
        self.servers.get(name).ok_or_else(|| name.to_owned())
    }

    /// The numbers for Prometheus, if they are asked for.
    async fn metrics_response(
        &self,
        parts: &RequestHead,
        remote: Option<SocketAddr>,
    ) -> Option<Response<Body>> {
        let rest = parts.uri.path().strip_prefix(self.metrics_path.as_deref()?)?;
        let names = match rest.strip_prefix('/') {
            Some(name) if !name.is_empty() => vec![percent_decode(name, false)],
            Some(_) => self.servers.names(),
            None if rest.is_empty() => self.servers.names(),
            None => return None,
        };
        if parts.method != http::Method::GET {
            let mut response = status_response(405, "GET");
            response.headers_mut().insert(http::header::ALLOW, HeaderValue::from_static("GET"));
            return Some(self.with_default_headers(response));
        }
        let (mut measured, mut refusal) = (Vec::new(), None);
        for server in names.iter().filter_map(|name| self.servers.get(name)) {
            match server.service().check_stats_access(parts, remote).await {
                Ok(access) => measured.push(server.stats_snapshot(access == StatsAccess::WithNames)),
                Err(response) => refusal = refusal.or(Some(*response)),
            }
        }
        Some(match (measured.is_empty(), refusal) {
            (true, Some(refusal)) => refusal,
            (true, None) => self.with_default_headers(unknown_server_response()),
            (false, _) => self.with_default_headers(prometheus_response(prometheus(&measured))),
        })
    }

    async fn stats_response(&self, parts: &RequestHead, remote: Option<SocketAddr>) -> Response<Body> {
        if let Some(told) = self.metrics_response(parts, remote).await {
            return told;
        }
        let at = self.stats_path.as_deref();
        let Some(rest) = at.and_then(|at| parts.uri.path().strip_prefix(at)?.strip_prefix('/')) else {
            return self.with_default_headers(rejection_response(
                &parts.headers,
                None,
                &ProtocolError::invalid_request("there is nothing here").with_status(404),
            ));
        };
        let (name, what) = rest.split_once('/').unwrap_or((rest, ""));
        match self.servers.get(&percent_decode(name, false)) {
            Some(server) => server.service().serve_stats(parts, remote, what).await,
            None => self.with_default_headers(unknown_server_response()),
        }
    }

    /// An answer that is no server's: it carries what every answer carries.
    fn with_default_headers(&self, mut response: Response<Body>) -> Response<Body> {
        self.guards.apply_headers(response.headers_mut(), &ResponsePolicy::default());
        response
    }
}

impl Mount {
    fn apply_headers(&self, response: &mut Response<Body>) {
        for (name, value) in &self.headers {
            response.headers_mut().insert(name.clone(), value.clone());
        }
    }
}

/// Where the servers of an app are mounted. A cheap handle, good for as long as the app is served: see [`App::mounts`].
///
/// ```
/// # use toolgate::{App, Mount, Servers};
/// # fn main() -> Result<(), toolgate::Error> {
/// let servers = Servers::new();
/// let app = App::new(&servers).mount("/shop/mcp", Mount::fixed("shop"));
/// let mounts = app.mounts();
/// let served = app.into_service()?;
/// mounts.replace([("/shop/v2/mcp", Mount::fixed("shop"))])?;
/// # let _ = served;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct MountHandle(Arc<ArcSwap<Vec<MountEntry>>>);

/// A path, without a slash at its end, and what it leads to.
type MountEntry = (Arc<str>, Arc<Mount>);

impl fmt::Debug for MountHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.load().iter().map(|(path, _)| path)).finish()
    }
}

impl MountHandle {
    /// These mounts and no others from now on, in one step. Requests under way end where they began.
    ///
    /// # Errors
    /// If a path does not begin with `/`, or stands there twice. Nothing has changed then.
    pub fn replace<P: AsRef<str>>(&self, mounts: impl IntoIterator<Item = (P, Mount)>) -> Result<(), Error> {
        let mut next = Vec::new();
        let mut faults = Vec::new();
        for (path, mount) in mounts {
            faults.extend(add_mount(&mut next, path.as_ref(), mount));
        }
        if !faults.is_empty() {
            return Err(Error::new(ErrorKind::InvalidConfig, faults.join("\n")));
        }
        self.0.store(Arc::new(next));
        Ok(())
    }
}

/// Adds a mount, and says what is wrong with it.
fn add_mount(mounts: &mut Vec<MountEntry>, path: &str, mount: Mount) -> Vec<String> {
    let mut faults: Vec<String> = mount.errors.iter().map(|fault| format!("mount {path}: {fault}")).collect();
    let clean = path.trim_end_matches('/');
    if !path.starts_with('/') || path.contains(['?', '#']) {
        faults.push(format!("mount {path:?}: a path begins with `/`"));
    }
    if mounts.iter().any(|(known, _)| **known == *clean) {
        faults.push(format!("mount {path}: there are two of them"));
    }
    mounts.push((clean.into(), Arc::new(mount)));
    // The longest path that fits is the one that is meant.
    mounts.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
    faults
}

/// An app as a `tower` service. Cloning is cheap. See [`App::into_service`].
#[derive(Clone)]
pub struct AppService {
    app: Arc<App>,
    /// The other end of the connection, where our own listener says so.
    remote: Option<SocketAddr>,
}

impl Serve for AppService {
    type Body = Body;

    fn known_header_names() -> &'static [HeaderName] {
        &MCP_HEADER_NAMES
    }

    fn with_remote_addr(&self, remote: SocketAddr) -> AppService {
        AppService { app: Arc::clone(&self.app), remote: Some(remote) }
    }

    fn header_lines(body: &Body) -> &[u8] {
        body.header_lines()
    }

    fn into_full_response(response: Response<Body>) -> Response<Body> {
        Body::into_full_response(response)
    }

    fn respond(&self, asked: RequestHead, body: RequestBody) -> BoxFuture<'static, Response<Body>> {
        let (app, remote) = (Arc::clone(&self.app), self.remote);
        Box::pin(async move { app.route(asked, body, remote).await })
    }
}

impl fmt::Debug for AppService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AppService").field(&self.app).finish()
    }
}

impl<B> Service<Request<B>> for AppService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (app, remote) = (Arc::clone(&self.app), self.remote);
        let (parts, body) = request.into_parts();
        Box::pin(async move { Ok(app.route(parts.into(), body, remote).await) })
    }
}

/// What a page says. One that panics says nothing.
fn render_page(page: &PageFn, look: &PageRequest<'_>) -> Bytes {
    let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| page(look))).unwrap_or_else(|_| {
        tracing::error!(path = look.uri.path(), "a page panicked; it is shown empty");
        serde_json::Value::Null
    });
    made.to_string().into()
}

/// What a guard says. One that panics lets nobody in.
fn guard_allows(guard: &MountGuardFn, asked: &RequestHead, remote: Option<SocketAddr>) -> bool {
    let mut parts = asked.to_parts();
    if let Some(remote) = remote {
        parts.extensions.insert(RemoteAddr(remote));
    }
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| guard(&parts))).unwrap_or_else(|_| {
        tracing::error!(path = parts.uri.path(), "the guard of a mount panicked; the request is refused");
        false
    })
}

/// The same address with another path.
fn with_path(uri: &Uri, path: &str) -> Option<Uri> {
    let mut parts = uri.clone().into_parts();
    let target = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    parts.path_and_query = Some(target.parse::<PathAndQuery>().ok()?);
    Uri::from_parts(parts).ok()
}

/// The first value of this name in a query.
fn query_param(uri: &Uri, name: &str) -> Option<String> {
    let pairs = uri.query()?.split('&');
    let pair = { pairs }.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    Some(percent_decode(pair, true))
}

/// A part of an address without its escapes.
fn percent_decode(text: &str, is_query: bool) -> String {
    let plus = if is_query { text.replace('+', " ") } else { text.to_owned() };
    String::from_utf8_lossy(&percent::decode(plus.as_bytes())).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_of_queries_are_blanks() {
        assert_eq!(percent_decode("a+b%2B", true), "a b+");
        assert_eq!(percent_decode("a+b", false), "a+b");
        assert_eq!(percent_decode("%ff", false), "\u{fffd}");
    }

    #[test]
    fn a_query_is_read_by_name() {
        let uri = Uri::from_static("/x?observer=1&server=my%41pp&server=other");
        assert_eq!(query_param(&uri, "server").as_deref(), Some("myApp"));
        assert_eq!(query_param(&Uri::from_static("/x"), "server"), None);
    }

    #[test]
    fn the_longest_mount_that_fits_is_meant() {
        let app = App::new(&Servers::new())
            .mount("/", Mount::fixed("root"))
            .mount("/api", Mount::fixed("api"))
            .mount("/api/v2", Mount::fixed("two"));
        let found = |path: &str| {
            app.find_mount(path).map(|(mount, rest)| match &mount.selector {
                ServerSelector::Fixed(name) => format!("{name}:{rest}"),
                ServerSelector::ByRequest { .. } => String::new(),
            })
        };
        assert_eq!(found("/api/v2/x").as_deref(), Some("two:/x"));
        assert_eq!(found("/api/v20").as_deref(), Some("api:/v20"));
        assert_eq!(found("/apiary").as_deref(), Some("root:/apiary"));
    }
}
