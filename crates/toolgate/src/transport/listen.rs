//! Our own listener: accepts TCP connections and serves what answers requests over HTTP/1.1 and HTTP/2.
//!
//! Plain requests take the short way (`lane`), and hyper speaks the protocols for all others. What this module adds is
//! what a server on an open port needs: a seat for every connection, total and per address; a deadline for every wait on
//! the peer; a check of the request head before the service sees it; a drain that ends.
//!
//! What it must not do: know a path, a method or a header of the protocol above it, decide which `Host`
//! or `Origin` is welcome, or look at a body. What it costs per request is two atomic additions, one
//! look at the clock; locks are for accept and close.
//!
//! - `seats`: how many connections, and from whom.
//! - `cores`: on which thread.
//! - `lane`: plain requests of HTTP/1.1, from the socket to the socket; `plain` reads their heads, `reply` writes those of
//!   answers.
//! - `socket`: the TCP stream as hyper sees it.
//! - `scan`: what hyper's parser lets pass and we do not.
//! - `hygiene`: the request line and the `Host`, once parsed.
//! - `inbound`: the body of a request.
//! - `watch`: drives one connection, with its deadlines.

mod connection_limiter;
mod deadlines;
mod fast_request;
mod http1_fast;
mod request_body;
mod response_head;
mod smuggling;
mod socket;
#[cfg(test)]
mod tests;
mod validate_head;
mod workers;

use std::convert::Infallible;
use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Either, Empty};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::TokioTimer;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::connection_limiter::{ConnectionLimiter, ConnectionPermit};
use self::deadlines::{HyperConnection, SharedActivity, ShutdownSignal};
use self::http1_fast::{FastConnection, FastPathEnd, Handover};
pub(crate) use self::request_body::RequestBody;
use self::socket::{HttpVersion, Socket};
pub(crate) use self::workers::Workers;
use crate::request::BoxFuture;
use crate::transport::RequestHead;
use crate::util::spawn::Tracker;

/// What hyper needs at least as its buffer, and so the smallest limit of a request head.
const MIN_HEAD_BYTES: usize = 8 * 1024;

/// hyper's own limit of header fields. Saying it again would cost an allocation per request.
const HYPER_MAX_HEADERS: usize = 100;

/// As much is thrown away for the sake of a peer that has not seen its answer yet. One that sends more is
/// not looking for it.
const MAX_DISCARDED_BYTES: usize = 16 * 1024 * 1024;

/// How long work that was told to end may take to do so.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The address a request came from, in its extensions.
///
/// It is the peer of the TCP connection, never a value out of a header. Our own listener knows it; in a router of yours
/// a layer has to say it, or guards that judge by address know none:
///
/// ```
/// use std::net::SocketAddr;
///
/// use axum::extract::{ConnectInfo, Request};
/// use axum::middleware::{self, Next};
/// use axum::response::Response;
/// use toolgate::{Remote, Server};
///
/// async fn from_where(ConnectInfo(peer): ConnectInfo<SocketAddr>, mut request: Request, next: Next) -> Response {
///     request.extensions_mut().insert(Remote(peer));
///     next.run(request).await
/// }
///
/// fn app(server: Server) -> axum::Router {
///     // Serve it with `app.into_make_service_with_connect_info::<SocketAddr>()`.
///     axum::Router::new().nest_service("/mcp", server.into_service()).layer(middleware::from_fn(from_where))
/// }
/// # let _ = app;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddr(pub SocketAddr);

/// What answers the requests of a listener.
pub(crate) trait Serve: Clone + Send + 'static {
    /// The body of an answer.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>> + Send + Unpin + 'static;

    /// Names of fields, beyond the standard ones, that requests often have.
    fn known_header_names() -> &'static [HeaderName] {
        &[]
    }

    /// The same, for requests from there: it is told once where all requests of a connection come from. To put that into
    /// the extensions of each would make a map for every request.
    fn with_remote_addr(&self, remote: SocketAddr) -> Self;

    /// What an answer with this body says beside its headers, as lines of HTTP/1.1: written once, not for each.
    fn header_lines(_: &Self::Body) -> &[u8] {
        &[]
    }

    /// An answer with these lines among its headers.
    fn into_full_response(response: Response<Self::Body>) -> Response<Self::Body> {
        response
    }

    /// The answer to one request.
    fn respond(&self, asked: RequestHead, body: RequestBody) -> BoxFuture<'static, Response<Self::Body>>;
}

/// The limits of a listener. The defaults are meant for an open port.
///
/// ```
/// use std::time::Duration;
/// use toolgate::Server;
/// use toolgate::http::ListenOptions;
///
/// let limits = ListenOptions::default().max_connections(500).idle_timeout(Duration::from_secs(10));
/// let server = Server::new("shop", "1.0.0").listener(limits);
/// # assert!(server.build().is_ok());
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    max_connections: usize,
    max_connections_per_ip: usize,
    head_timeout: Duration,
    idle_timeout: Duration,
    write_timeout: Duration,
    linger: Duration,
    max_head: usize,
    max_headers: usize,
    max_target: usize,
    max_streams: u32,
    max_header_list: u32,
    ping: Duration,
    shutdown_timeout: Duration,
    threads: usize,
    connections: Connections,
    /// Everything is for hyper.
    #[cfg(test)]
    is_fast_path_disabled: bool,
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

/// What listeners with the same options count: a cheap handle, see [`ListenOptions::connections`](Options::connections).
///
/// ```
/// let options = toolgate::http::ListenOptions::default();
/// let connections = options.connections();
/// assert_eq!((connections.open(), connections.accepted(), connections.refused()), (0, 0, 0));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Connections(Arc<ConnectionCounters>);

#[derive(Debug, Default)]
struct ConnectionCounters {
    open: AtomicU64,
    accepted: AtomicU64,
    rejected: AtomicU64,
}

impl Connections {
    /// Connections that are open now.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.0.open.load(Relaxed)
    }

    /// Connections that were given a seat since the beginning.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.0.accepted.load(Relaxed)
    }

    /// Connections for which there was none: too many of all, or of one address.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.0.rejected.load(Relaxed)
    }

    fn count_open(&self) -> OpenConnection {
        self.0.accepted.fetch_add(1, Relaxed);
        self.0.open.fetch_add(1, Relaxed);
        OpenConnection(Arc::clone(&self.0))
    }
}

/// One connection, as long as it is open.
struct OpenConnection(Arc<ConnectionCounters>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

impl Options {
    /// Where to see how many connections there are, while a listener with these options serves.
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

    /// Sets how long a request head may take from its first byte, however it drips.
    #[must_use]
    pub fn head_timeout(mut self, limit: Duration) -> Self {
        self.head_timeout = limit;
        self
    }

    /// Sets how long a connection may stay without a request, new or between two of them.
    #[must_use]
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.idle_timeout = limit;
        self
    }

    /// Sets how long a peer may take none of the bytes we have for it.
    #[must_use]
    pub fn write_timeout(mut self, limit: Duration) -> Self {
        self.write_timeout = limit;
        self
    }

    /// Sets how long a request may run on after its HTTP/1 client has closed its sending side.
    ///
    /// A client that half-closes and waits looks the same as one that went away.
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

    /// Sets the largest number of header fields.
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

    /// Sets how often an HTTP/2 peer is asked whether it is still there.
    #[must_use]
    pub fn ping(mut self, every: Duration) -> Self {
        self.ping = every;
        self
    }

    /// Sets on how many threads connections are served; 0 means as many as there are cores.
    ///
    /// With one, the default, they are tasks of the runtime that serves, whatever it is. With more, that runtime has a
    /// share of them only, and each other thread has a runtime of its own. A connection stays on its thread with all that
    /// its calls begin, so nothing moves between cores and nobody looks for work elsewhere. It is meant for
    /// `#[tokio::main(flavor = "current_thread")]`, and for cores that have nothing else to do: where they are shared with
    /// others, one runtime for several threads did more calls in our measurements. Measure before you use it.
    ///
    /// It is for handlers that wait rather than compute: who keeps a thread busy delays all connections of that thread,
    /// and on the one that serves also new connections and the shutdown.
    /// [`spawn_blocking`](tokio::task::spawn_blocking) helps; `block_in_place` panics there. What handlers spawn ends when
    /// the listener has ended.
    ///
    /// ```no_run
    /// use toolgate::Server;
    /// use toolgate::http::ListenOptions;
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

    /// The same as a number that is not zero.
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

/// Serves `service` on `listener` and `cores` until `shutdown`, then drains.
///
/// Draining closes the listener and idle connections at once, lets requests in flight finish for
/// [`Options::drain`], and drops what is left.
///
/// Cancel safe: yes; dropping it drops the listener and every connection with its requests.
///
/// # Errors
///
/// Only if the socket is none that can accept. What goes wrong for one connection, or passes (no
/// descriptors left), is waited out.
pub(crate) async fn serve(
    listener: TcpListener,
    service: impl Serve,
    options: Options,
    cores: &Workers,
    shutdown: CancellationToken,
) -> io::Result<()> {
    raise_trim_threshold();
    let streams = Tracker::new();
    let house = Arc::new(ListenerContext {
        http1: http1_builder(&options),
        http2: http2_builder(&options, &streams),
        shutdown: ShutdownSignal::default(),
        options,
    });
    let seats = ConnectionLimiter::new(house.options.max_connections, house.options.max_connections_per_ip);
    let mut connections = JoinSet::new();
    let mut pause = AcceptBackoff::default();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                pause = AcceptBackoff::default();
                // Over the limit: the stream is dropped here, which closes it.
                let Some(seat) = seats.try_acquire(address.ip()) else {
                    house.options.connections.0.rejected.fetch_add(1, Relaxed);
                    continue;
                };
                let (house, service) = (Arc::clone(&house), service.with_remote_addr(address));
                let entered = house.options.connections.count_open();
                cores.spawn(&mut connections, stream, |stream| {
                    serve_connection(house, stream, service, (seat, entered))
                });
            }
            Err(error) if is_connection_error(&error) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(error),
            Err(_) => tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = tokio::time::sleep(pause.next_delay()) => {}
            },
        }
    }
    drop(listener);
    house.shutdown.trigger();
    let finished = async { while connections.join_next().await.is_some() {} };
    // Whether all were finished or not, what is left is dropped now.
    let _ = tokio::time::timeout(house.options.shutdown_timeout, finished).await;
    connections.shutdown().await;
    // Streams of HTTP/2 end with their connection; this only waits for them to notice.
    streams.close();
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, streams.wait()).await;
    Ok(())
}

/// Lets the C library of GNU keep what is freed. Up to 128 KiB at the end of its heap it keeps; beyond that it gives memory
/// back to the kernel with every long message, and fetches it again with the next. Once a larger block was freed it
/// keeps twice as much as that. This one is never written to, so it takes no memory; other allocators do not care.
fn raise_trim_threshold() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(1024 * 1024)));
}

/// What all connections of a listener share.
struct ListenerContext {
    http1: http1::Builder,
    http2: http2::Builder<StreamExecutor>,
    shutdown: ShutdownSignal,
    options: Options,
}

impl ListenerContext {
    fn limits(&self) -> validate_head::HeadLimits {
        let Options { max_target: target, max_headers: fields, max_head: head, .. } = self.options;
        #[cfg(test)]
        let head = if self.options.is_fast_path_disabled { 0 } else { head };
        validate_head::HeadLimits { max_target_bytes: target, max_headers: fields, max_head_bytes: head }
    }
}

/// Spawns the streams of HTTP/2 connections where the drain can wait for them.
///
/// They need no handle to be ended by: a stream whose connection is gone ends by itself.
#[derive(Clone)]
struct StreamExecutor(Tracker);

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

/// How long to wait after accept failed: twice as long each time, up to a second.
#[derive(Default)]
struct AcceptBackoff(u32);

impl AcceptBackoff {
    fn next_delay(&mut self) -> Duration {
        let wait = Duration::from_millis(16 << self.0);
        self.0 = (self.0 + 1).min(6);
        wait.min(Duration::from_secs(1))
    }
}

/// Whether accept failed for one connection that was gone again, and not for the listener.
fn is_connection_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

fn http1_builder(options: &Options) -> http1::Builder {
    let mut http = http1::Builder::new();
    // `watch` keeps the time: one timer per connection instead of one per request, and a head timeout apart
    // from the idle timeout.
    http.header_read_timeout(None)
        // With a deadline for the answer once the peer has closed (`watch`), else the dead linger.
        .half_close(true)
        .max_buf_size(options.max_head);
    if options.max_headers != HYPER_MAX_HEADERS {
        http.max_headers(options.max_headers);
    }
    http
}

fn http2_builder(options: &Options, streams: &Tracker) -> http2::Builder<StreamExecutor> {
    let mut http = http2::Builder::new(StreamExecutor(streams.clone()));
    http.timer(TokioTimer::new())
        .max_concurrent_streams(options.max_streams)
        .max_header_list_size(options.max_header_list)
        .max_send_buf_size(64 * 1024)
        .keep_alive_interval(options.ping)
        .keep_alive_timeout(options.ping);
    http
}

/// One connection from accept to close. The seat is given back when this ends, however it does.
async fn serve_connection(
    house: Arc<ListenerContext>,
    stream: TcpStream,
    service: impl Serve,
    seat: (ConnectionPermit, OpenConnection),
) {
    // Answers are written whole, so waiting for more to send only delays them. Where it cannot be
    // set the answer is late, not wrong.
    let _ = stream.set_nodelay(true);
    let mut lane = FastConnection::new(stream, service, house.limits());
    // Neither way is there while the other is taken, and the rare one is boxed: a connection is mostly waiting, and
    // kept as small as it can be.
    if deadlines::drive(&mut lane, &house.options, &house.shutdown, None).await
        == Some(FastPathEnd::Unsupported)
        && let Some(handed) = lane.into_handover()
    {
        Box::pin(serve_with_hyper(house, handed)).await;
    }
    drop(seat);
}

/// The rest of a connection on which something came that is not plain.
async fn serve_with_hyper<S: Serve>(house: Arc<ListenerContext>, handed: Handover<S>) {
    let Handover { stream, service, bytes, is_first, head_started_at: heard_at } = handed;
    let line = Arc::new(SharedActivity::default());
    let mut socket = Socket::new(stream, Arc::clone(&line), bytes.into(), is_first);
    let Some(version) = deadlines::detect_version(&mut socket, &house.options, &house.shutdown).await else {
        return;
    };
    let (open, limits) = (Arc::clone(&line), house.limits());
    let service = service_fn(move |request: Request<Incoming>| {
        let busy = open.begin_request();
        let (parts, body) = request.into_parts();
        let answer =
            match validate_head::check(&parts.method, &parts.uri, parts.version, &parts.headers, limits) {
                None => Ok(service.respond(parts.into(), RequestBody::from_hyper(body))),
                Some(status) => Err(Box::new(validate_head::reject(status, parts.version))),
            };
        async move {
            Ok::<_, Infallible>(match answer {
                Ok(answer) => S::into_full_response(answer.await).map(|body| {
                    Either::Left(body.map_err(move |error| {
                        // The request is in flight as long as its answer's body is there.
                        let _ = &busy;
                        error
                    }))
                }),
                Err(refusal) => refusal.map(|()| Either::Right(Empty::new())),
            })
        }
    });
    match version {
        HttpVersion::Http1 => {
            let connection = Box::pin(house.http1.serve_connection(socket, service));
            deadlines::drive(
                &mut HyperConnection { connection, activity: line },
                &house.options,
                &house.shutdown,
                heard_at,
            )
            .await;
        }
        HttpVersion::Http2 => {
            let connection = Box::pin(house.http2.serve_connection(socket, service));
            deadlines::drive(
                &mut HyperConnection { connection, activity: line },
                &house.options,
                &house.shutdown,
                heard_at,
            )
            .await;
        }
    }
}
