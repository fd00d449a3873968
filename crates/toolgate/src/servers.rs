//! Named servers: several in one process, found by name.
//!
//! A registry is an ordinary value. One of them, [`registry`], is there for the whole process, for programs that
//! register what they have to offer from many places. What is served of it, and where, is the business of `app`.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use crate::error::{Error, ErrorKind};
use crate::observe::{Events, ServerChange, prometheus};
use crate::server::{Builder, Server};

/// The name of the server that is meant when none is named.
pub(crate) const DEFAULT_SERVER_NAME: &str = "default";

/// Servers by name. A cheap handle: clones are the same list.
///
/// Names are what [`App`](crate::App) mounts, what `--server NAME` of [`main!`](crate::main) chooses, and what events
/// tell. A server is made by the first who asks for it, and found by all others:
///
/// ```
/// use toolgate::{Servers, ToolSpec};
///
/// let servers = Servers::new();
/// servers
///     .server("shop")
///     .set_description("Everything about orders")
///     .add_tool(ToolSpec::new("hours", || async { "9 to 5" })).unwrap();
///
/// assert!(servers.server("shop").has_tool("hours"), "the same server under the same name");
/// assert_eq!(servers.names(), ["shop"]);
/// assert!(servers.get("admin").is_none());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Servers(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// In the order in which they were made.
    servers: RwLock<Vec<(String, Server)>>,
    events: Events,
}

/// The servers of this process: one list that every function finds, for programs that register what they have from many
/// places. Tests are easier with a list of their own ([`Servers::new`]).
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
    /// No servers yet.
    #[must_use]
    pub fn new() -> Servers {
        Servers::default()
    }

    /// The server of this name; one without anything to offer, version 1.0.0, if there is none yet.
    pub fn server(&self, name: &str) -> Server {
        self.server_with(name, |builder| builder)
    }

    /// The server that is meant when none is named: `default`.
    pub fn default_server(&self) -> Server {
        self.server(DEFAULT_SERVER_NAME)
    }

    /// The server of this name, described by `describe` if there is none yet. Everything that a
    /// [`Builder`] can say can be said here, also what a running server cannot be told any more: its
    /// state, its limits, the address it is known by.
    ///
    /// ```
    /// # use toolgate::Servers;
    /// let servers = Servers::new();
    /// let shop = servers.server_with("shop", |server| {
    ///     server.instructions("Be kind.").state(7_u32).tool("hours", || async { "9 to 5" })
    /// });
    /// assert_eq!(shop.tool_count(), 1);
    /// assert!(servers.server_with("shop", |server| server).ptr_eq(&shop), "it was there already");
    /// ```
    ///
    /// A description that cannot work makes a server without anything to offer, which says so when somebody tries
    /// to serve it; see [`Server::faults`].
    pub fn server_with<L: crate::server::PendingItem>(
        &self,
        name: &str,
        describe: impl FnOnce(Builder) -> Builder<L>,
    ) -> Server {
        if let Some(server) = self.get(name) {
            return server;
        }
        // Made before anybody is kept waiting: what describes it is code of others.
        let made = self.build_server(name, describe);
        let server = {
            let mut servers = self.0.servers.write().unwrap_or_else(PoisonError::into_inner);
            match servers.iter().find(|(known, _)| known == name) {
                // Somebody else was quicker.
                Some((_, server)) => return server.clone(),
                None => {
                    servers.push((name.to_owned(), made.clone()));
                    made
                }
            }
        };
        server.publish_change(ServerChange::Created);
        server
    }

    /// A server of this name in the place of the one there is, if there is one. Nothing of the old one is kept.
    pub fn replace_with<L: crate::server::PendingItem>(
        &self,
        name: &str,
        describe: impl FnOnce(Builder) -> Builder<L>,
    ) -> Server {
        let made = self.build_server(name, describe);
        self.insert_or_replace(name, &made);
        made
    }

    /// Adds a server that was built elsewhere, under its own name. What happens there is told to
    /// [`Servers::events`] from now on.
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
    /// If there is one of that name.
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

    /// Puts a server that was built elsewhere in the place of the one of its name, or adds it if there is none. Calls
    /// under way are finished by the old one, whose streams and sessions end. What happens at the new one is told to
    /// [`Servers::events`] from now on.
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

    /// The server of this name, if there is one.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Server> {
        let servers = self.0.servers.read().unwrap_or_else(PoisonError::into_inner);
        servers.iter().find(|(known, _)| known == name).map(|(_, server)| server.clone())
    }

    /// Whether there is a server of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The names of all servers, in the order in which they were made.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let servers = self.0.servers.read().unwrap_or_else(PoisonError::into_inner);
        servers.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Takes a server out and ends its streams and sessions; false if there was none of that name. Calls under way
    /// are finished.
    pub fn remove(&self, name: &str) -> bool {
        let removed = {
            let mut servers = self.0.servers.write().unwrap_or_else(PoisonError::into_inner);
            let place = servers.iter().position(|(known, _)| known == name);
            place.map(|place| servers.remove(place).1)
        };
        let Some(server) = removed else { return false };
        server.shutdown();
        server.publish_change(ServerChange::Removed);
        true
    }

    /// Takes all servers out.
    pub fn clear(&self) {
        for name in self.names() {
            self.remove(&name);
        }
    }

    /// Where to listen to what happens to these servers and at each of them.
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

    /// The numbers of all servers as Prometheus reads them.
    ///
    /// ```
    /// # use toolgate::Servers;
    /// let servers = Servers::new();
    /// servers.server("shop");
    /// assert!(servers.prometheus().contains("mcp_requests_total{server=\"shop\"} 0"));
    /// ```
    #[must_use]
    pub fn prometheus(&self) -> String {
        let servers = self.names().into_iter().filter_map(|name| self.get(&name));
        prometheus(&servers.map(|server| server.stats_snapshot(true)).collect::<Vec<_>>())
    }

    fn insert_or_replace(&self, name: &str, made: &Server) {
        let before = {
            let mut servers = self.0.servers.write().unwrap_or_else(PoisonError::into_inner);
            match servers.iter_mut().find(|(known, _)| known == name) {
                Some((_, server)) => Some(std::mem::replace(server, made.clone())),
                None => {
                    servers.push((name.to_owned(), made.clone()));
                    None
                }
            }
        };
        if let Some(before) = before {
            before.shutdown();
            before.publish_change(ServerChange::Removed);
        }
        made.publish_change(ServerChange::Created);
    }

    fn build_server<L: crate::server::PendingItem>(
        &self,
        name: &str,
        describe: impl FnOnce(Builder) -> Builder<L>,
    ) -> Server {
        let server = match describe(Server::new(name, "1.0.0")).build() {
            Ok(server) => server,
            Err(error) => Server::from_build_error(name, error),
        };
        server.events().add_parent(&self.0.events);
        server
    }
}
