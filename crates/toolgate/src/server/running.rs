//! Inspecting and changing a running server: its info, settings, pause state, listeners, sessions and statistics.
//!
//! Changes apply to the next request. Setters return the server, so that they can be chained. An invalid setting
//! changes nothing; its error is recorded, returned by [`Server::config_errors`], and prevents serving.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use serde_json::{Value, json};
use toolgate_wire::Dialect;

use super::Server;
use crate::error::{Error, ErrorKind};
use crate::observe::{
    ErrorContext, Events, RequestEvent, ResponseEvent, ServerChange, ServerEvent, ServerMetrics, SessionInfo,
    StatsDetail, StatsSummary, Subscription,
};
use crate::profile::Profile;
use crate::protocol::ServerInfo;
use crate::registry::Roots;
use crate::subscriptions::ChangeTopic;

/// Maximum number of recorded configuration errors. Later ones are only logged.
const MAX_CONFIG_ERRORS: usize = 100;

/// Server info and settings.
///
/// ```
/// # use toolgate::Server;
/// # fn main() -> Result<(), toolgate::Error> {
/// let server = Server::new("shop", "1.0.0").tool("hours", || async { "9 to 5" }).build()?;
/// server.set_description("Everything about orders").set_version("1.1.0");
/// assert_eq!(server.server_info()["version"], "1.1.0");
/// assert_eq!(server.summary()["tools"], serde_json::json!(["hours"]));
/// # Ok(())
/// # }
/// ```
impl Server {
    /// Returns the server's name, which never changes.
    #[must_use]
    pub fn name(&self) -> String {
        self.info().implementation.name.clone()
    }

    /// Returns the server's version.
    #[must_use]
    pub fn version(&self) -> String {
        self.info().implementation.version.clone()
    }

    /// Changes the server's version. Connected clients keep the version they received.
    pub fn set_version(&self, version: impl Into<String>) -> Server {
        let version = version.into();
        self.update_info(&|info| info.implementation.version = version.clone())
    }

    /// Returns the server's description; empty if there is none.
    #[must_use]
    pub fn description(&self) -> String {
        self.info().implementation.description.clone().unwrap_or_default()
    }

    /// Changes the server's description.
    pub fn set_description(&self, description: impl Into<String>) -> Server {
        let description = description.into();
        self.update_info(&|info| info.implementation.description = Some(description.clone()))
    }

    /// Returns the instructions for models; empty if there are none.
    #[must_use]
    pub fn instructions(&self) -> String {
        self.info().instructions.clone().unwrap_or_default()
    }

    /// Changes the instructions for models. Connected clients keep the instructions they received.
    pub fn set_instructions(&self, instructions: impl Into<String>) -> Server {
        let instructions = instructions.into();
        self.update_info(&|info| info.instructions = Some(instructions.clone()))
    }

    /// Returns name and version as clients see them: `{"name": …, "version": …}`.
    #[must_use]
    pub fn server_info(&self) -> Value {
        let info = self.info();
        json!({ "name": info.implementation.name, "version": info.implementation.version })
    }

    /// Returns an overview as JSON: `name`, `version`, `description`, `paused`, `statsEnabled`, and the names and counts of
    /// `tools`, `resources` (without templates) and `prompts`.
    #[must_use]
    pub fn summary(&self) -> Value {
        let (info, catalog) = (self.info(), self.catalog());
        let tools: Vec<&str> = catalog.tools.iter().map(|entry| entry.tool.name.as_str()).collect();
        let resources: Vec<&str> =
            catalog.resources.iter().map(|entry| entry.resource.uri.as_str()).collect();
        let prompts: Vec<&str> = catalog.prompts.iter().map(|entry| entry.prompt.name.as_str()).collect();
        json!({
            "name": info.implementation.name,
            "version": info.implementation.version,
            "description": info.implementation.description.clone().unwrap_or_default(),
            "paused": self.is_paused(),
            "statsEnabled": self.is_stats_enabled(),
            "toolCount": tools.len(),
            "resourceCount": resources.len(),
            "promptCount": prompts.len(),
            "tools": tools,
            "resources": resources,
            "prompts": prompts,
        })
    }

    /// Returns whether two handles refer to the same server.
    #[must_use]
    pub fn ptr_eq(&self, other: &Server) -> bool {
        Arc::ptr_eq(&self.0.engine, &other.0.engine)
    }

    /// Sets the profile that applies to every caller. Items that it hides, or that a caller's own profile hides, are
    /// neither listed nor callable.
    ///
    /// ```
    /// # use toolgate::{Profile, Server};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), toolgate::Error> {
    /// let server = Server::new("shop", "1.0.0")
    ///     .tool("order_get", || async { "tea" })
    ///     .read_only()
    ///     .tool("order_cancel", || async { "cancelled" })
    ///     .build()?
    ///     .set_profile(Profile::readonly());
    /// assert_eq!(server.list_tools().await.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_profile(&self, profile: Profile) -> Server {
        self.0.engine.dispatcher.default_profile.store(profile);
        self.clone()
    }

    /// Returns the errors of all invalid settings since the server was built. None of these settings took effect.
    ///
    /// While there are any, [`Server::listen`], [`Server::serve`] and [`Server::serve_stdio`] fail; a server that is
    /// already serving continues.
    ///
    /// ```
    /// # #[cfg(feature = "http")] {
    /// # use toolgate::Servers;
    /// let server = Servers::new().server("shop").set_cors("not an origin");
    /// assert_eq!(server.config_errors().len(), 1);
    /// # }
    /// ```
    #[must_use]
    pub fn config_errors(&self) -> Vec<String> {
        self.0.config_errors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn info(&self) -> Arc<ServerInfo> {
        self.0.engine.protocol.server_info.load_full()
    }

    pub(super) fn update_info(&self, change: &dyn Fn(&mut ServerInfo)) -> Server {
        self.0.engine.protocol.server_info.rcu(|info| {
            let mut info = ServerInfo::clone(info);
            change(&mut info);
            ServerInfo::new(info.implementation, info.instructions, info.cache_hint)
        });
        self.clone()
    }

    /// Records the error of a setting, if there is one, and publishes it to listeners.
    pub(crate) fn record_error(&self, checked: Result<(), Error>) -> Server {
        if let Err(error) = checked {
            let message = error.to_string();
            tracing::error!(server = self.name(), error = message, "setting rejected, nothing changed");
            self.publish_error(ErrorContext::Register, &error);
            let mut errors = self.0.config_errors.lock().unwrap_or_else(PoisonError::into_inner);
            if errors.len() < MAX_CONFIG_ERRORS {
                errors.push(message);
            }
        }
        self.clone()
    }

    /// Fails if the server must not be served: there are configuration errors, or its guards contradict each other.
    pub(crate) fn ensure_valid(&self) -> Result<(), Error> {
        #[allow(unused_mut)]
        let mut errors = self.config_errors();
        #[cfg(feature = "http")]
        errors.extend(self.0.guards.load().check().err());
        if errors.is_empty() {
            return Ok(());
        }
        let errors = errors.join("\n").replace('\n', "\n  ");
        let message = format!("server `{}` cannot be served:\n  {errors}", self.name());
        Err(Error::new(ErrorKind::InvalidConfig, message))
    }
}

/// Clients that name no protocol version; see [`compat`](crate::compat).
#[cfg(feature = "compat")]
impl Server {
    /// Sets the dialect for clients that name no protocol version, on every transport. Other clients are not affected. A
    /// [`Mount`](crate::Mount) with its own dialect takes precedence.
    ///
    /// ```
    /// # use serde_json::json;
    /// # use toolgate::Server;
    /// # use toolgate::compat::Dialect;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), toolgate::Error> {
    /// let server = Server::new("shop", "1.0.0").announce_changes().build()?.set_dialect(Dialect::boxlang());
    /// let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "hours" } });
    /// let response = server.handle(call).await.unwrap_or_default();
    /// assert_eq!(response["error"]["message"], "Tool not found: hours");
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_dialect(&self, dialect: Dialect) -> Server {
        self.0.engine.dialect.store(dialect);
        self.clone()
    }

    /// Confines the reading of `file:` resources to these directories, for all clients.
    ///
    /// A URI outside of them, directly or through `..`, percent-encoding or a symbolic link, is reported as unknown
    /// before any handler runs. Clients that name no protocol version can list the roots (`roots/list`), and change them
    /// (`roots/add`, `roots/remove`) if they are [writable](Roots::writable).
    ///
    /// ```
    /// # use toolgate::Server;
    /// # use toolgate::compat::Roots;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), toolgate::Error> {
    /// let server = Server::new("notes", "1.0.0")
    ///     .resource("file:///srv/notes/today", || async { "tea at four" })
    ///     .build()?
    ///     .set_workspace_roots(Roots::new(["file:///srv/notes"]));
    /// assert!(server.read_resource("file:///srv/notes/today").await.is_ok());
    /// assert!(server.remove_root("file:///srv/notes"));
    /// assert!(server.read_resource("file:///srv/notes/today").await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_workspace_roots(&self, roots: Roots) -> Server {
        if let Err(message) = roots.validate() {
            return self.record_error(Err(Error::new(ErrorKind::InvalidConfig, message)));
        }
        self.0.engine.dispatcher.set_roots(roots);
        self.publish_roots_change();
        self.clone()
    }

    /// Adds a workspace root and notifies clients. A server without roots has this one from now on.
    ///
    /// # Errors
    /// If this is not a `file:` URI of a directory, or already a root.
    pub fn add_root(&self, uri: &str) -> Result<(), Error> {
        let added = self.0.engine.dispatcher.roots_or_insert().add(uri, None, None);
        added.map_err(|error| Error::new(ErrorKind::InvalidConfig, error.to_string()))?;
        self.publish_roots_change();
        Ok(())
    }

    /// Removes a workspace root and notifies clients. Returns whether it existed.
    #[must_use]
    pub fn remove_root(&self, uri: &str) -> bool {
        let removed = self.0.engine.dispatcher.roots().is_some_and(|roots| roots.remove(uri, None).is_ok());
        if removed {
            self.publish_roots_change();
        }
        removed
    }

    fn publish_roots_change(&self) {
        self.0.engine.protocol.subscriptions.publish(&ChangeTopic::Roots);
    }
}

/// Pausing.
impl Server {
    /// Pauses the server: until it is resumed, requests other than `ping` get error -32005, over HTTP with status 503.
    /// Calls in flight continue, and sessions stay open.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), toolgate::Error> {
    /// let server = toolgate::Server::new("shop", "1.0.0").tool("hours", || async { "9 to 5" }).build()?;
    /// server.pause();
    /// assert!(server.call_tool("hours", serde_json::json!({})).await.is_err());
    /// server.resume();
    /// assert!(server.call_tool("hours", serde_json::json!({})).await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub fn pause(&self) -> Server {
        if !self.0.engine.protocol.is_paused.swap(true, Ordering::Relaxed) {
            self.publish_change(ServerChange::Paused);
        }
        self.clone()
    }

    /// Resumes a paused server.
    pub fn resume(&self) -> Server {
        if self.0.engine.protocol.is_paused.swap(false, Ordering::Relaxed) {
            self.publish_change(ServerChange::Resumed);
        }
        self.clone()
    }

    /// Returns whether the server is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.0.engine.protocol.is_paused.load(Ordering::Relaxed)
    }
}

/// Event listeners.
impl Server {
    /// Returns the event listeners of this server. [`Servers::events`](crate::Servers::events) has those of a whole list
    /// of servers.
    #[must_use]
    #[doc(alias("middleware", "observability", "hooks"))]
    pub fn events(&self) -> &Events {
        &self.0.engine.observer.events
    }

    /// Adds a listener that runs before every request and may change or reject it. Short for [`Events::on_request`] of
    /// [`Server::events`], which has other kinds of listeners too.
    ///
    /// ```
    /// # let server = toolgate::Servers::new().server("shop");
    /// server.on_request(|request| {
    ///     if request.method() == "tools/call" && request.header("x-client-id").is_none() {
    ///         request.reject("the header X-Client-Id is missing");
    ///     }
    /// });
    /// ```
    pub fn on_request(&self, listener: impl Fn(&mut RequestEvent) + Send + Sync + 'static) -> Subscription {
        self.events().on_request(listener)
    }

    /// Adds a listener that runs before every response is sent and may change it. Short for [`Events::on_response`].
    pub fn on_response(&self, listener: impl Fn(&mut ResponseEvent) + Send + Sync + 'static) -> Subscription {
        self.events().on_response(listener)
    }

    pub(crate) fn publish_change(&self, change: ServerChange) {
        let (info, observer) = (self.info(), &self.0.engine.observer);
        let description = info.implementation.description.as_deref().unwrap_or_default();
        let version = &info.implementation.version;
        observer.events.publish(ServerEvent::new(change, &observer.server, description, version));
    }
}

/// Sessions and tasks.
impl Server {
    /// Returns the open sessions of this process. Session ids are not included, because they authenticate the client.
    ///
    /// ```
    /// # let server = toolgate::Servers::new().server("shop");
    /// for session in server.sessions() {
    ///     println!("{:?} idle for {} ms", session.client, session.idle_ms);
    /// }
    /// ```
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.0.engine.protocol.session_infos()
    }

    /// Closes all sessions of this process and cancels their calls. Returns how many there were. Their clients have to
    /// send `initialize` again. Sessions that are kept in a shared [store](crate::store) are restored by their next
    /// request.
    pub fn clear_sessions(&self) -> usize {
        self.0.engine.protocol.clear_sessions()
    }

    /// Returns the number of tasks that run in this process.
    #[must_use]
    pub fn running_tasks(&self) -> usize {
        self.0.engine.dispatcher.tasks.running()
    }
}

/// Statistics; see [`StatsSummary`] and [`StatsDetail`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), toolgate::Error> {
/// let server = toolgate::Server::new("shop", "1.0.0").tool("hours", || async { "9 to 5" }).build()?;
/// server.call_tool("hours", serde_json::json!({})).await?;
/// assert_eq!(server.stats().tools.by_tool["hours"].count, 1);
/// assert_eq!(server.reset_stats().stats_summary().total_requests, 0);
/// # Ok(())
/// # }
/// ```
impl Server {
    /// Returns the most important statistics. Cheap enough to be polled.
    #[must_use]
    pub fn stats_summary(&self) -> StatsSummary {
        self.0.engine.observer.stats.summary()
    }

    /// Returns all statistics. Copies the recent samples, so it costs more than [`Server::stats_summary`].
    #[must_use]
    #[doc(alias("metrics", "observability"))]
    pub fn stats(&self) -> StatsDetail {
        self.0.engine.observer.stats.detail()
    }

    /// Returns all statistics, for an encoder.
    pub(crate) fn stats_snapshot(&self, has_names: bool) -> ServerMetrics {
        ServerMetrics { server: self.name(), is_paused: self.is_paused(), stats: self.stats(), has_names }
    }

    /// Returns whether statistics are enabled.
    #[must_use]
    pub fn is_stats_enabled(&self) -> bool {
        self.0.engine.observer.stats.is_enabled()
    }

    /// Enables statistics.
    pub fn enable_stats(&self) -> Server {
        self.0.engine.observer.stats.enable();
        self.clone()
    }

    /// Disables statistics. Values counted so far are kept.
    pub fn disable_stats(&self) -> Server {
        self.0.engine.observer.stats.disable();
        self.clone()
    }

    /// Resets all statistics to zero.
    pub fn reset_stats(&self) -> Server {
        self.0.engine.observer.stats.reset();
        self.clone()
    }
}
