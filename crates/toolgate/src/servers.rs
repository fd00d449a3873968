//! Named servers: several servers in one process, looked up by name.
//!
//! [`Servers`] is an ordinary value. [`registry`] returns the one of the process, for programs that register items from
//! many places. Routing HTTP paths to servers is done by `app`.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use crate::error::{Error, ErrorKind};
use crate::observe::{Events, ServerChange, prometheus};
use crate::server::{Builder, Server};

/// Name of the server that is used when a request names none.
pub(crate) const DEFAULT_SERVER_NAME: &str = "default";

/// A list of servers by name. A cheap handle: clones share the same list.
///
/// [`App`](crate::App) mounts servers by name, `--server NAME` of [`main!`](crate::main) selects one, and events name
/// the server they come from. The first call of [`Servers::server`] creates a server, later calls return it:
///
/// ```
/// use toolgate::{Servers, ToolSpec};
///
/// # fn main() -> Result<(), toolgate::Error> {
/// let servers = Servers::new();
/// servers
///     .server("shop")
///     .set_description("Everything about orders")
///     .add_tool(ToolSpec::new("hours", || async { "9 to 5" }))?;
///
/// assert!(servers.server("shop").has_tool("hours"), "the same server under the same name");
/// assert_eq!(servers.names(), ["shop"]);
/// assert!(servers.get("admin").is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[doc(alias = "multi-tenant")]
pub struct Servers(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// In the order of creation.
    servers: RwLock<Vec<(String, Server)>>,
    events: Events,
}

/// Returns the global list of servers of this process, for programs that register items from many places. In tests, prefer
/// a list of their own ([`Servers::new`]).
///
/// ```
/// toolgate::registry().server("notes").set_version("2.0.0");
/// assert_eq!(toolgate::registry().server("notes").version(), "2.0.0");
/// # toolgate::registry().remove("notes");
/// ```
pub fn registry() -> &'static Servers {
    static SERVERS: OnceLock<Servers> = OnceLock::new();
    SERVERS.get_or_init(Servers::new)
}

impl Servers {
    /// Creates an empty list.
    #[must_use]
    pub fn new() -> Servers {
        Servers::default()
    }

    /// Returns the server with this name. Creates one without items, version 1.0.0, if there is none yet.
    pub fn server(&self, name: &str) -> Server {
        self.server_with(name, |builder| builder)
    }

    /// Returns the server that is used when a request names none. Its name is `default`.
    pub fn default_server(&self) -> Server {
        self.server(DEFAULT_SERVER_NAME)
    }

    /// Returns the server with this name. Creates it with `configure` if there is none yet, which can use all settings of
    /// a [`Builder`], including those that a running server cannot change, such as state and limits. Its version is 1.0.0
    /// unless `configure` sets another.
    ///
    /// ```
    /// # use toolgate::Servers;
    /// let servers = Servers::new();
    /// let shop = servers.server_with("shop", |server| {
    ///     server.server_version("2.1.0").state(7_u32).tool("hours", || async { "9 to 5" }).describe("Opening hours")
    /// });
    /// assert_eq!((shop.tool_count(), shop.version().as_str()), (1, "2.1.0"));
    /// assert!(servers.server_with("shop", |server| server).ptr_eq(&shop), "it existed already");
    /// ```
    ///
    /// An invalid configuration creates a server without items that rejects all requests and cannot be served; see
    /// [`Server::config_errors`].
    pub fn server_with(&self, name: &str, configure: impl FnOnce(Builder) -> Builder) -> Server {
        if let Some(server) = self.get(name) {
            return server;
        }
        // Built without the lock, because `configure` is user code.
        let built = self.build_server(name, configure);
        let server = {
            let mut servers = self.0.servers.write().unwrap_or_else(PoisonError::into_inner);
            match servers.iter().find(|(known, _)| known == name) {
                // Another thread was faster.
                Some((_, server)) => return server.clone(),
                None => {
                    servers.push((name.to_owned(), built.clone()));
                    built
                }
            }
        };
        server.publish_change(ServerChange::Created);
        server
    }

    /// Creates a server with this name, and replaces the existing one, if any; see [`Servers::replace`].
    pub fn replace_with(&self, name: &str, configure: impl FnOnce(Builder) -> Builder) -> Server {
        let server = self.build_server(name, configure);
        self.insert_or_replace(name, &server);
        server
    }

    /// Adds a server under its own name. Its events are published to [`Servers::events`] from now on.
    ///
    /// ```
    /// # use toolgate::{Server, Servers};
    /// # fn main() -> Result<(), toolgate::Error> {
    /// let servers = Servers::new();
    /// servers.add(&Server::new("shop", "2.0.0").build()?)?;
    /// assert_eq!(servers.server("shop").version(), "2.0.0");
    /// assert!(servers.add(&Server::new("shop", "3.0.0").build()?).is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If there is a server with this name already.
    pub fn add(&self, server: &Server) -> Result<(), Error> {
        let name = server.name();
        server.events().add_parent(&self.0.events);
        {
            let mut servers = self.0.servers.write().unwrap_or_else(PoisonError::into_inner);
            if servers.iter().any(|(known, _)| *known == name) {
                return Err(Error::new(
                    ErrorKind::InvalidConfig,
                    format!("there is a server `{name}` already"),
                ));
            }
            servers.push((name, server.clone()));
        }
        server.publish_change(ServerChange::Created);
        Ok(())
    }

    /// Adds a server under its own name, and replaces the existing one, if any. The old server completes its calls in flight
    /// and closes its streams and sessions. Events of the new one are published to [`Servers::events`] from now on.
    ///
    /// ```
    /// # use toolgate::{Server, Servers};
    /// # fn main() -> Result<(), toolgate::Error> {
    /// let servers = Servers::new();
    /// servers.replace(&Server::new("shop", "1.0.0").build()?);
    /// servers.replace(&Server::new("shop", "2.0.0").build()?);
    /// assert_eq!(servers.server("shop").version(), "2.0.0");
    /// # Ok(())
    /// # }
    /// ```
    pub fn replace(&self, server: &Server) {
        server.events().add_parent(&self.0.events);
        self.insert_or_replace(&server.name(), server);
    }

    /// Returns the server with this name, if there is one.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Server> {
        let servers = self.0.servers.read().unwrap_or_else(PoisonError::into_inner);
        servers.iter().find(|(known, _)| known == name).map(|(_, server)| server.clone())
    }

    /// Returns whether there is a server with this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns the names of all servers, in the order of creation.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let servers = self.0.servers.read().unwrap_or_else(PoisonError::into_inner);
        servers.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Removes a server and closes its streams and sessions. Calls in flight are completed. Returns whether it existed.
    pub fn remove(&self, name: &str) -> bool {
        let removed = {
            let mut servers = self.0.servers.write().unwrap_or_else(PoisonError::into_inner);
            let index = servers.iter().position(|(known, _)| known == name);
            index.map(|index| servers.remove(index).1)
        };
        let Some(server) = removed else { return false };
        server.shutdown();
        server.publish_change(ServerChange::Removed);
        true
    }

    /// Removes all servers.
    pub fn clear(&self) {
        for name in self.names() {
            self.remove(&name);
        }
    }

    /// Returns the event listeners of this list: they receive the events of every server, and when servers are created and
    /// removed.
    ///
    /// ```
    /// # use toolgate::Servers;
    /// let servers = Servers::new();
    /// servers.events().on_server(|event| println!("{:?} {}", event.change(), event.name()));
    /// servers.events().on_error(|error| eprintln!("{}: {}", error.server(), error.message()));
    /// servers.server("shop");
    /// ```
    #[must_use]
    pub fn events(&self) -> &Events {
        &self.0.events
    }

    /// Returns the statistics of all servers in the Prometheus text format.
    ///
    /// ```
    /// # use toolgate::Servers;
    /// let servers = Servers::new();
    /// servers.server("shop");
    /// assert!(servers.prometheus().contains("mcp_requests_total{server=\"shop\"} 0"));
    /// ```
    #[must_use]
    #[doc(alias("metrics", "observability", "OpenMetrics"))]
    pub fn prometheus(&self) -> String {
        let servers = self.names().into_iter().filter_map(|name| self.get(&name));
        prometheus(&servers.map(|server| server.stats_snapshot(true)).collect::<Vec<_>>())
    }

    fn insert_or_replace(&self, name: &str, new: &Server) {
        let old = {
            let mut servers = self.0.servers.write().unwrap_or_else(PoisonError::into_inner);
            match servers.iter_mut().find(|(known, _)| known == name) {
                Some((_, server)) => Some(std::mem::replace(server, new.clone())),
                None => {
                    servers.push((name.to_owned(), new.clone()));
                    None
                }
            }
        };
        if let Some(old) = old {
            old.shutdown();
            old.publish_change(ServerChange::Removed);
        }
        new.publish_change(ServerChange::Created);
    }

    fn build_server(&self, name: &str, configure: impl FnOnce(Builder) -> Builder) -> Server {
        let server = match configure(Server::new(name, "1.0.0")).build() {
            Ok(server) => server,
            Err(error) => Server::from_build_error(name, error),
        };
        server.events().add_parent(&self.0.events);
        server
    }
}
