//! A server: configured by a [`Builder`], served through a [`Server`] handle.
//!
//! [`assemble`] is the only place that knows every part of a running server. This file holds the handle and the ways
//! to serve it; the files below add the other methods of a handle: change its items ([`catalog`]), its settings
//! ([`running`]) and its guards ([`guards`]), or send it requests without a transport ([`local`]).

mod assemble;
mod builder;
mod catalog;
mod config;
#[cfg(feature = "http")]
mod guards;
mod local;
mod pending_item;
mod running;
mod weak;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[cfg(feature = "http")]
use arc_swap::ArcSwap;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::error::{BuildProblem, Error};
#[cfg(feature = "http")]
use crate::guard::Guards;
use crate::handler::Notifier;
#[cfg(feature = "http")]
use crate::transport::{http::ServerService, listen, run};
use crate::transport::{signal, stdio};
#[cfg(feature = "http")]
use crate::util::sharded::ShardedArc;
use crate::util::spawn;

pub use builder::Builder;

/// A server that is ready to serve, or serving. A cheap handle: clones share the same server.
///
/// ```
/// use toolgate::Server;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Add {
///     a: i64,
///     b: i64,
/// }
///
/// # fn main() -> Result<(), toolgate::Error> {
/// let server = Server::new("calculator", "1.0.0")
///     .tool("add", |args: Add| async move { args.a + args.b })
///     .describe("Adds two numbers")
///     .read_only()
///     .build()?;
/// # let _ = server;
/// # Ok(())
/// # }
/// ```
///
/// A server can be changed while it serves, through any of its handles. A change applies to the next request, and
/// connected clients are notified if their lists changed. Methods named `add_*` and `remove_*` change single items;
/// `set_*` methods return the server, so that they can be chained, and record invalid settings in
/// [`Server::config_errors`].
#[derive(Clone)]
#[doc(alias("MCP server", "FastMCP", "ServerHandler"))]
pub struct Server(Arc<Inner>);

struct Inner {
    engine: Arc<Engine>,
    shutdown_timeout: Duration,
    /// Messages about settings that were rejected while the server was running.
    config_errors: Arc<Mutex<Vec<String>>>,
    #[cfg(feature = "http")]
    guards: Arc<ArcSwap<ShardedArc<Guards>>>,
    #[cfg(feature = "http")]
    service: ServerService,
    #[cfg(feature = "http")]
    listen_options: listen::Options,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("info", &self.0.engine.protocol.server_info.load().implementation)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Creates a [`Builder`] for a server with this name and version.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Builder {
        Builder::new(name.into(), version.into())
    }

    /// Serves one client on standard input and output, until its input ends or the process receives SIGTERM or Ctrl-C.
    /// Meanwhile, everything the program prints to standard output goes to standard error.
    ///
    /// On Linux, a pipe is read through the runtime's I/O driver, so the runtime needs `enable_all` (as
    /// `#[tokio::main]` has it). Bytes that `std::io::stdin()` buffered before are not seen.
    ///
    /// # Errors
    /// If standard input or output is unavailable or fails, or if there are [`Server::config_errors`].
    pub async fn serve_stdio(&self) -> Result<(), Error> {
        self.ensure_valid()?;
        let io = |error| Error::io("cannot serve standard input and output", error);
        let (input, output, flushed) = stdio::process_stdio().map_err(io)?;
        self.0.engine.start_background();
        let shutdown_signal = signal::shutdown_signal();
        let stop = CancellationToken::new();
        // A task, so that reading and the handlers share the worker threads. It is aborted when this future is dropped.
        let connection =
            stdio::serve(Arc::clone(&self.0.engine), input, output, stop.clone(), self.0.shutdown_timeout);
        let mut serving = spawn::spawn_on(&Handle::current(), connection).abort_on_drop();
        let served = tokio::select! {
            biased;
            served = &mut serving => served,
            () = shutdown_signal => {
                // End the notification streams before the connection is closed.
                self.shutdown();
                stop.cancel();
                serving.await
            }
        };
        let served = served.unwrap_or(Err(std::io::ErrorKind::BrokenPipe.into()));
        flushed.wait(self.0.shutdown_timeout).await;
        let tasks = &self.0.engine.dispatcher.tasks;
        // Tasks that live only in this process cannot be queried any more, so they are not waited for.
        if tasks.is_durable() {
            self.shutdown();
            let _ =
                tokio::time::timeout(self.0.shutdown_timeout + Duration::from_secs(1), tasks.join()).await;
        }
        served.map_err(io)
    }

    /// Serves one client on a pair of byte streams, such as a socket or a pipe, one JSON message per line.
    ///
    /// # Errors
    /// If one of the streams fails.
    pub async fn serve_io<R, W>(&self, input: R, output: W) -> Result<(), Error>
    where
        R: AsyncRead + Unpin + Send,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let stop = self.0.engine.protocol.drain.clone();
        let served =
            stdio::serve(Arc::clone(&self.0.engine), input, output, stop, self.0.shutdown_timeout).await;
        served.map_err(|error| Error::io("the connection broke", error))
    }

    /// Serves HTTP at `/mcp` on this address, until the process receives SIGTERM or Ctrl-C. Calls in flight are
    /// completed, for up to [`Builder::shutdown_timeout`].
    ///
    /// # Errors
    /// If the address cannot be bound, the listener fails, or there are [`Server::config_errors`].
    #[cfg(feature = "http")]
    #[doc(alias("serve", "bind", "Streamable HTTP"))]
    pub async fn listen(&self, address: impl tokio::net::ToSocketAddrs + fmt::Debug) -> Result<(), Error> {
        let message = format!("cannot listen on {address:?}");
        let listener =
            tokio::net::TcpListener::bind(address).await.map_err(|error| Error::io(message, error))?;
        self.serve(listener).await
    }

    /// Serves HTTP at `/mcp` on a bound listener; see [`Server::listen`].
    ///
    /// # Errors
    /// If the listener fails, or there are [`Server::config_errors`].
    #[cfg(feature = "http")]
    pub async fn serve(&self, listener: tokio::net::TcpListener) -> Result<(), Error> {
        self.ensure_valid()?;
        let endpoint = self.0.service.at_path("/mcp");
        let (options, stopped) = (self.0.listen_options.clone(), self.0.engine.protocol.drain.clone());
        let shutdown = || self.shutdown();
        self.0.engine.start_background();
        // Calls whose clients disconnected are completed too.
        let drained = self.drain();
        let served =
            run(listener, endpoint, options, stopped, self.0.shutdown_timeout, shutdown, drained).await;
        served.map_err(|error| Error::io("the listener failed", error))
    }

    /// Returns the server as a `tower` service, to mount in axum or any other router. The path at which it is mounted
    /// serves all protocol versions; `sse` and `messages` below it serve the HTTP+SSE transport of the first.
    ///
    /// ```
    /// # fn main() -> Result<(), toolgate::Error> {
    /// # let server = toolgate::Server::new("demo", "1.0.0").build()?;
    /// let app: axum::Router = axum::Router::new().nest_service("/mcp", server.into_service());
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "http")]
    #[must_use]
    #[doc(alias("tower", "axum", "middleware"))]
    pub fn into_service(self) -> ServerService {
        self.0.service.clone()
    }

    #[cfg(feature = "http")]
    pub(crate) fn service(&self) -> &ServerService {
        &self.0.service
    }

    /// Waits until detached calls (whose clients disconnected) and tasks have ended.
    #[cfg(feature = "http")]
    pub(crate) async fn drain(&self) {
        self.0.service.drain().await;
        // Needed if the listener failed and no shutdown was requested: tasks could otherwise run for hours.
        self.shutdown();
        self.0.engine.dispatcher.tasks.join().await;
    }

    /// Starts background work: resuming tasks that other processes left behind.
    pub(crate) fn start_background(&self) {
        self.0.engine.start_background();
    }

    /// Creates a server in place of one that could not be built. It has no items, rejects every HTTP request, and
    /// reports the error when it is to be served.
    pub(crate) fn from_build_error(name: &str, error: Error) -> Server {
        let server = assemble::assemble(config::Config::new(name.to_owned(), "1.0.0".to_owned()));
        #[cfg(feature = "http")]
        server.reject_all("description");
        server.record_error(Err(error))
    }

    /// Starts a graceful shutdown: closes streams and stops accepting connections. Calls in flight are completed.
    pub fn shutdown(&self) {
        self.0.engine.protocol.drain.cancel();
    }

    /// Returns a [`Notifier`], which sends change notifications to clients.
    #[must_use]
    pub fn notify(&self) -> Notifier {
        self.0.engine.protocol.start_cluster();
        Notifier(Arc::clone(&self.0.engine.protocol.subscriptions))
    }
}

/// Combines the problems of a configuration into one [`Error`].
fn build_error(problems: Vec<BuildProblem>) -> Error {
    Error::invalid_config("the server cannot be built", problems)
}
