//! A handle that does not keep its server alive, through which handlers reach the server that runs them.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

#[cfg(feature = "http")]
use arc_swap::ArcSwap;

use super::{Inner, Server};
use crate::engine::Engine;
#[cfg(feature = "http")]
use crate::guard::Guards;
use crate::handler::Context;
#[cfg(feature = "http")]
use crate::transport::{http::WeakServerService, listen};
#[cfg(feature = "http")]
use crate::util::sharded::ShardedArc;

/// The parts of a [`Server`], all of them weak.
///
/// Not a `Weak<Inner>`: a server that was turned into a `tower` service is alive without its `Inner`.
pub(super) struct WeakServer {
    engine: Weak<Engine>,
    shutdown_timeout: Duration,
    config_errors: Arc<Mutex<Vec<String>>>,
    #[cfg(feature = "http")]
    guards: Weak<ArcSwap<ShardedArc<Guards>>>,
    #[cfg(feature = "http")]
    service: WeakServerService,
    #[cfg(feature = "http")]
    listen_options: listen::Options,
}

impl Server {
    pub(super) fn downgrade(&self) -> WeakServer {
        let inner = &self.0;
        WeakServer {
            engine: Arc::downgrade(&inner.engine),
            shutdown_timeout: inner.shutdown_timeout,
            config_errors: Arc::clone(&inner.config_errors),
            #[cfg(feature = "http")]
            guards: Arc::downgrade(&inner.guards),
            #[cfg(feature = "http")]
            service: inner.service.downgrade(),
            #[cfg(feature = "http")]
            listen_options: inner.listen_options.clone(),
        }
    }
}

impl WeakServer {
    /// Returns `None` if the server was dropped.
    fn upgrade(&self) -> Option<Server> {
        Some(Server(Arc::new(Inner {
            engine: self.engine.upgrade()?,
            shutdown_timeout: self.shutdown_timeout,
            config_errors: Arc::clone(&self.config_errors),
            #[cfg(feature = "http")]
            guards: self.guards.upgrade()?,
            #[cfg(feature = "http")]
            service: self.service.upgrade()?,
            #[cfg(feature = "http")]
            listen_options: self.listen_options.clone(),
        })))
    }
}

impl Context {
    /// Returns the server that runs this call, to change it: to add a tool, to read statistics, to send notifications.
    ///
    /// Returns `None` if the server was dropped, which only a clone of the context that outlives its call can see. The returned
    /// handle keeps the server alive: do not store it in the server's own state.
    ///
    /// ```
    /// # use toolgate::{Context, Server, ToolSpec};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), toolgate::Error> {
    /// async fn unlock(cx: Context) -> &'static str {
    ///     match cx.server().map(|server| server.add_tool(ToolSpec::new("secret", || async { "42" }))) {
    ///         Some(Ok(_)) => "there is a new tool",
    ///         _ => "nothing changed",
    ///     }
    /// }
    ///
    /// let server = Server::new("demo", "1.0.0").tool("unlock", unlock).build()?;
    /// # let client = server.test();
    /// # assert_eq!(client.call("unlock", serde_json::json!({})).await.text(), "there is a new tool");
    /// # assert_eq!(client.call("secret", serde_json::json!({})).await.text(), "42");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn server(&self) -> Option<Server> {
        self.server_handle()?.downcast_ref::<WeakServer>()?.upgrade()
    }
}
