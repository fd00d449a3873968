//! Several servers at one address: which path leads to which server, and with which dialect.
//!
//! An app must not know a method of the protocol or authorize a caller: the server that a request is for does that.
//!
//! - `mount`: a server at a path. `route`: finds the mount and the server of a request.

mod mount;
mod route;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::error::{Error, ErrorKind};
use crate::guard::Guards;
use crate::servers::{Servers, registry};
use crate::transport::{listen, run};
use mount::{ServerSelector, add_mount};

pub use mount::{Mount, MountHandle, PageRequest};
pub use route::AppService;

/// Serves several named servers at one address, each at its paths.
///
/// Serve it with [`App::listen`], give it to [`main!`](crate::main), or mount it in a router of your own
/// ([`App::into_service`]). A request goes to the mount with the longest matching path; without one it is answered
/// with 404.
///
/// ```no_run
/// use toolgate::{App, Mount, Servers};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), toolgate::Error> {
/// let servers = Servers::new();
/// servers.server("shop");
/// servers.server("admin").add_basic_auth("admin", "secret");
///
/// App::new(&servers)
///     .mount("/shop/mcp", Mount::fixed("shop"))
///     .mount("/admin/mcp", Mount::fixed("admin").header("X-Robots-Tag", "none"))
///     .mount("/mcp", Mount::select().or("shop")) // `/mcp/admin` and `/mcp?server=admin` choose
///     .listen("127.0.0.1:8080")
///     .await
/// # }
/// ```
#[must_use = "an app does nothing until it listens"]
#[doc(alias = "router")]
pub struct App {
    servers: Servers,
    mounts: MountHandle,
    stats_path: Option<String>,
    metrics_path: Option<String>,
    /// Present if health checks are served; cancelled when shutdown begins, after which the app is not ready.
    readiness: Option<CancellationToken>,
    public_url: Option<String>,
    listen_options: listen::Options,
    shutdown_timeout: Duration,
    errors: Vec<String>,
    /// Sets the headers of responses that do not come from a server.
    guards: Guards,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("mounts", &self.mounts).finish_non_exhaustive()
    }
}

impl Default for App {
    /// An app with the servers of this process and no mounts.
    fn default() -> App {
        App::new(registry())
    }
}

impl App {
    /// An app with these servers and no mounts. Servers may be added and removed while they are served.
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

    /// Mounts a server at this path and below. A path begins with `/` and is mounted once.
    pub fn mount(mut self, path: &str, mount: Mount) -> App {
        let mut mounts = Vec::clone(&self.mounts.0.load());
        self.errors.extend(add_mount(&mut mounts, path, mount));
        self.mounts.0.store(Arc::new(mounts));
        self
    }

    /// Returns a handle to change the mounts while the app is served.
    #[must_use]
    pub fn mounts(&self) -> MountHandle {
        self.mounts.clone()
    }

    /// Answers `GET /health` with 200 as long as the process runs, and `GET /ready` with 200 until shutdown begins,
    /// then with 503: for orchestrators. The responses contain nothing else, and need no credentials.
    pub fn health(mut self) -> App {
        self.readiness = Some(CancellationToken::new());
        self
    }

    /// Serves statistics as JSON below this path: `GET {path}/NAME`, `GET {path}/NAME/summary`, and `POST
    /// {path}/NAME/reset`. A caller that is authorized to call a server may read and reset its statistics; the guards
    /// of the server decide, not those of a mount.
    pub fn stats_at(mut self, path: &str) -> App {
        self.stats_path = Some(path.trim_end_matches('/').to_owned());
        self
    }

    /// Serves metrics in the format of Prometheus at this path: `GET {path}` for every server that the caller may
    /// call, `GET {path}/NAME` for one. The guards of the servers decide, as with [`App::stats_at`]; a caller that
    /// may call none gets the rejection of the first. Names of tools are included for callers that may see all tools.
    pub fn metrics_at(mut self, path: &str) -> App {
        self.metrics_path = Some(path.trim_end_matches('/').to_owned());
        self
    }

    /// Sets the URL that clients know these servers by, if it is not that of this machine: see
    /// [`Builder::public_url`](crate::Builder::public_url). Applies to the servers that exist when serving begins.
    pub fn public_url(mut self, url: &str) -> App {
        self.public_url = Some(url.to_owned());
        self
    }

    /// Sets the limits of our own listener.
    pub fn listener(mut self, options: listen::Options) -> App {
        self.listen_options = options;
        self
    }

    /// Sets how long calls in flight may continue after shutdown begins. The default is 30 seconds.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> App {
        self.shutdown_timeout = timeout;
        self
    }

    /// Serves HTTP at this address until the process is asked to terminate (SIGTERM, Ctrl-C). Calls in flight are
    /// finished; then the servers are removed.
    ///
    /// # Errors
    /// If the configuration is invalid, or the address cannot be bound.
    pub async fn listen(self, address: impl tokio::net::ToSocketAddrs + fmt::Debug) -> Result<(), Error> {
        let message = format!("cannot listen on {address:?}");
        let bound = tokio::net::TcpListener::bind(address).await;
        self.serve(bound.map_err(|error| Error::io(message, error))?).await
    }

    /// Serves HTTP on an existing listener; see [`App::listen`].
    ///
    /// # Errors
    /// If the configuration is invalid, or the listener fails.
    pub async fn serve(self, listener: tokio::net::TcpListener) -> Result<(), Error> {
        let (servers, options, timeout) =
            (self.servers.clone(), self.listen_options.clone(), self.shutdown_timeout);
        let readiness = self.readiness.clone();
        let service = self.into_service()?;
        let shutdown = CancellationToken::new();
        let begin_shutdown = || {
            if let Some(readiness) = &readiness {
                readiness.cancel();
            }
            shutdown.cancel();
            for server in servers.names().iter().filter_map(|name| servers.get(name)) {
                server.shutdown();
            }
        };
        for server in servers.names().iter().filter_map(|name| servers.get(name)) {
            server.start_background();
        }
        let drain = async {
            for server in servers.names().iter().filter_map(|name| servers.get(name)) {
                server.drain().await;
            }
        };
        let served = run(
            listener,
            service,
            options.shutdown_timeout(timeout),
            shutdown.clone(),
            timeout,
            begin_shutdown,
            drain,
        )
        .await;
        servers.clear();
        served.map_err(|error| Error::io("the listener failed", error))
    }

    /// Returns the app as a `tower` service, to be mounted in axum or any other router. Paths are matched as they
    /// arrive, so mount it as a fallback; nesting would remove the prefix.
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
    /// If the configuration is invalid. The error lists every problem.
    pub fn into_service(self) -> Result<AppService, Error> {
        self.check()?;
        Ok(AppService { app: Arc::new(self), remote: None })
    }

    /// Checks the configuration, and reports every problem at once.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let mut problems = self.errors.clone();
        for server in self.servers.names().iter().filter_map(|name| self.servers.get(name)) {
            if let Some(url) = &self.public_url {
                server.set_public_url(url);
            }
            problems.extend(server.ensure_valid().err().map(|error| error.to_string()));
        }
        for (path, mount) in self.mounts.0.load().iter() {
            if let ServerSelector::Fixed(name) = &mount.selector
                && !self.servers.has(name)
            {
                tracing::warn!(path = &**path, server = name, "mounted server does not exist yet");
            }
        }
        if problems.is_empty() {
            return Ok(());
        }
        let message = problems.join("\n").replace('\n', "\n  ");
        Err(Error::new(ErrorKind::InvalidConfig, format!("the app cannot be served:\n  {message}")))
    }

    /// The mounted paths.
    pub(crate) fn paths(&self) -> String {
        let mounts = self.mounts.0.load();
        let paths: Vec<&str> = mounts.iter().map(|(path, _)| &**path).collect();
        paths.join(", ")
    }

    pub(crate) fn server_list(&self) -> &Servers {
        &self.servers
    }
}
