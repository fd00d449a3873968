//! The event of a server that was created, removed, paused or resumed.

use std::sync::Arc;

use serde_json::{Value, json};

/// A change of the state of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServerChange {
    /// The server was created.
    Created,
    /// The server was removed.
    Removed,
    /// The server was paused: it handles no requests until it is resumed.
    Paused,
    /// The server was resumed.
    Resumed,
}

/// A server that was created, removed, paused or resumed.
///
/// ```
/// # use toolgate::events::ServerChange;
/// # use toolgate::Servers;
/// let servers = Servers::new();
/// servers.events().on_server(|event| {
///     if event.change() == ServerChange::Created {
///         println!("{} {} was created: {}", event.name(), event.version(), event.description());
///     }
/// });
/// ```
#[derive(Clone, Debug)]
pub struct ServerEvent(Arc<ServerEventInner>);

#[derive(Debug)]
struct ServerEventInner {
    change: ServerChange,
    name: Arc<str>,
    description: String,
    version: String,
}

impl ServerEvent {
    pub(crate) fn new(
        change: ServerChange,
        name: &Arc<str>,
        description: &str,
        version: &str,
    ) -> ServerEvent {
        let (description, version) = (description.to_owned(), version.to_owned());
        ServerEvent(Arc::new(ServerEventInner { change, name: Arc::clone(name), description, version }))
    }

    /// Returns the change.
    #[must_use]
    pub fn change(&self) -> ServerChange {
        self.0.change
    }

    /// Returns the name of the server.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the description of the server.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.0.description
    }

    /// Returns the version of the server.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.0.version
    }

    /// Returns the whole event as JSON; see [`Event::data`](super::Event::data).
    #[must_use]
    pub fn data(&self) -> Value {
        let ServerEventInner { name, description, version, .. } = &*self.0;
        json!({
            "server": &**name,
            "serverName": &**name,
            "name": &**name,
            "description": description,
            "version": version,
        })
    }
}
