//! The limits of a listener, and the counts of its connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use super::MIN_HEAD_BYTES;

/// hyper's default limit of headers. Setting it explicitly would cost an allocation per request.
pub(super) const HYPER_MAX_HEADERS: usize = 100;

/// The limits of a listener. The defaults are meant for an open port.
///
/// ```
/// use std::time::Duration;
/// use toolgate::http::ListenOptions;
/// use toolgate::Server;
///
/// let limits = ListenOptions::default().max_connections(500).idle_timeout(Duration::from_secs(10));
/// let server = Server::new("shop", "1.0.0").listener(limits);
/// # assert!(server.build().is_ok());
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    pub(super) max_connections: usize,
    pub(super) max_connections_per_ip: usize,
    pub(super) head_timeout: Duration,
    pub(super) idle_timeout: Duration,
    pub(super) write_timeout: Duration,
    pub(super) linger: Duration,
    pub(super) max_head: usize,
    pub(super) max_headers: usize,
    pub(super) max_target: usize,
    pub(super) max_streams: u32,
    pub(super) max_header_list: u32,
    pub(super) ping: Duration,
    pub(super) shutdown_timeout: Duration,
    pub(super) threads: usize,
    pub(super) connections: Connections,
    /// Serves every request with hyper.
    #[cfg(test)]
    pub(super) is_fast_path_disabled: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            max_connections_per_ip: 512,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            linger: Duration::from_millis(500),
            max_head: 32 * 1024,
            max_headers: HYPER_MAX_HEADERS,
            max_target: 8 * 1024,
            max_streams: 100,
            max_header_list: 16 * 1024,
            ping: Duration::from_secs(20),
            shutdown_timeout: Duration::from_secs(30),
            threads: 1,
            connections: Connections::default(),
            #[cfg(test)]
            is_fast_path_disabled: false,
        }
    }
}

/// Counts the connections of all listeners with the same options: a cheap handle, see
/// [`ListenOptions::connections`](Options::connections).
#[derive(Clone, Debug, Default)]
pub struct Connections(Arc<ConnectionCounters>);

#[derive(Debug, Default)]
struct ConnectionCounters {
    open: AtomicU64,
    accepted: AtomicU64,
    rejected: AtomicU64,
}

impl Connections {
    /// The connections that are open now.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.0.open.load(Relaxed)
    }

    /// The connections that were accepted since the start.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.0.accepted.load(Relaxed)
    }

    /// The connections that were rejected, because there were too many in total or from one address.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.0.rejected.load(Relaxed)
    }

    pub(super) fn count_rejected(&self) {
        self.0.rejected.fetch_add(1, Relaxed);
    }

    pub(super) fn count_open(&self) -> OpenConnection {
        self.0.accepted.fetch_add(1, Relaxed);
        self.0.open.fetch_add(1, Relaxed);
        OpenConnection(Arc::clone(&self.0))
    }
}

/// Counts one connection as open until dropped.
pub(super) struct OpenConnection(Arc<ConnectionCounters>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

impl Options {
    /// Returns a handle that counts the connections of listeners with these options.
    #[must_use]
    pub fn connections(&self) -> Connections {
        self.connections.clone()
    }

    /// Sets how many connections may be open; further ones are closed as they are accepted.
    #[must_use]
    pub fn max_connections(mut self, n: usize) -> Self {
        self.max_connections = n;
        self
    }

    /// Sets how many connections one address (IPv4) or one /64 network (IPv6) may have open.
    #[must_use]
    pub fn max_connections_per_ip(mut self, n: usize) -> Self {
        self.max_connections_per_ip = n;
        self
    }

    /// Sets how long a request head may take from its first byte, however slowly it arrives.
    #[must_use]
    pub fn head_timeout(mut self, limit: Duration) -> Self {
        self.head_timeout = limit;
        self
    }

    /// Sets how long a connection may stay without a request, before the first or between two.
    #[must_use]
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.idle_timeout = limit;
        self
    }

    /// Sets how long a peer may accept none of the bytes we have to send.
    #[must_use]
    pub fn write_timeout(mut self, limit: Duration) -> Self {
        self.write_timeout = limit;
        self
    }

    /// Sets how long a request may continue after its HTTP/1 client has closed its sending side.
    ///
    /// A client that half-closes and waits cannot be distinguished from one that is gone.
    #[must_use]
    pub fn linger(mut self, limit: Duration) -> Self {
        self.linger = limit;
        self
    }

    /// Sets the largest HTTP/1 request head in bytes; no less than 8 KiB.
    #[must_use]
    pub fn max_head(mut self, bytes: usize) -> Self {
        self.max_head = bytes.max(MIN_HEAD_BYTES);
        self
    }

    /// Sets the largest number of headers.
    #[must_use]
    pub fn max_headers(mut self, n: usize) -> Self {
        self.max_headers = n;
        self
    }

    /// Sets the longest request target in bytes.
    #[must_use]
    pub fn max_target(mut self, bytes: usize) -> Self {
        self.max_target = bytes;
        self
    }

    /// Sets how many streams an HTTP/2 connection may have open.
    #[must_use]
    pub fn max_streams(mut self, n: u32) -> Self {
        self.max_streams = n;
        self
    }

    /// Sets the largest HTTP/2 header list in bytes.
    #[must_use]
    pub fn max_header_list(mut self, bytes: u32) -> Self {
        self.max_header_list = bytes;
        self
    }

    /// Sets the interval of HTTP/2 pings.
    #[must_use]
    pub fn ping(mut self, every: Duration) -> Self {
        self.ping = every;
        self
    }

    /// Sets the number of threads that serve connections; 0 means one per core.
    ///
    /// With one, the default, connections are tasks of the runtime that serves. With more, that runtime serves a
    /// share of them, and every other thread has a runtime of its own. A connection stays on its thread with
    /// everything its calls spawn, so that nothing moves between cores and no thread looks for work elsewhere. It is
    /// meant for `#[tokio::main(flavor = "current_thread")]`, and for cores that have nothing else to do: on shared
    /// cores, one multi-threaded runtime served more calls in our measurements. Measure before you use it.
    ///
    /// It is meant for handlers that wait rather than compute: one that blocks its thread delays all connections of
    /// that thread, and on the serving thread also new connections and the shutdown.
    /// [`spawn_blocking`](tokio::task::spawn_blocking) helps; `block_in_place` panics there. Tasks that handlers
    /// spawn end with the listener.
    ///
    /// ```no_run
    /// use toolgate::http::ListenOptions;
    /// use toolgate::Server;
    ///
    /// #[tokio::main(flavor = "current_thread")]
    /// async fn main() -> Result<(), toolgate::Error> {
    ///     let server = Server::new("shop", "1.0.0")
    ///         .listener(ListenOptions::default().threads(0))
    ///         .tool("hours", || async { "9 to 5" })
    ///         .build()?;
    ///     let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await.expect("the port is free");
    ///     server.serve(listener).await
    /// }
    /// ```
    #[must_use]
    pub fn threads(mut self, n: usize) -> Self {
        self.threads = n;
        self
    }

    /// The number of threads, at least one.
    pub(crate) fn n_threads(&self) -> usize {
        match self.threads {
            0 => thread::available_parallelism().map_or(1, usize::from),
            n => n,
        }
    }

    /// Sets how long requests in flight may take to finish after shutdown began.
    #[must_use]
    pub(crate) fn shutdown_timeout(mut self, limit: Duration) -> Self {
        self.shutdown_timeout = limit;
        self
    }
}
