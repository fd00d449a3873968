//! Accepts connections, and serves each of them until it closes.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt, Either, Empty};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::TokioTimer;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::connection_limiter::{ConnectionLimiter, ConnectionPermit};
use super::deadlines::{HyperConnection, SharedActivity, ShutdownSignal};
use super::fast_http1::{FastConnection, FastPathEnd, Handover};
use super::options::{HYPER_MAX_HEADERS, OpenConnection};
use super::socket::{HttpVersion, Socket};
use super::{CLOSE_TIMEOUT, Options, RequestBody, Serve, Workers, deadlines, validate_head};
use crate::util::spawn::Tracker;

/// Serves `service` on `listener` and `workers` until `shutdown`, then drains.
///
/// Draining closes the listener and idle connections at once, lets requests in flight finish for
/// [`Options::shutdown_timeout`], and drops the rest.
///
/// Cancel safe: yes; dropping it drops the listener and every connection with its requests.
///
/// # Errors
///
/// Only if the socket cannot accept at all. Errors of a single connection, and temporary ones (no file descriptors
/// left), are retried.
pub(crate) async fn serve(
    listener: TcpListener,
    service: impl Serve,
    options: Options,
    workers: &Workers,
    shutdown: CancellationToken,
) -> io::Result<()> {
    raise_trim_threshold();
    let streams = Tracker::new();
    let context = Arc::new(ListenerContext {
        http1: http1_builder(&options),
        http2: http2_builder(&options, &streams),
        shutdown: ShutdownSignal::default(),
        options,
    });
    let limiter =
        ConnectionLimiter::new(context.options.max_connections, context.options.max_connections_per_ip);
    let mut connections = JoinSet::new();
    let mut backoff = AcceptBackoff::default();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                backoff = AcceptBackoff::default();
                // Over the limit: the stream is dropped here, which closes it.
                let Some(permit) = limiter.try_acquire(address.ip()) else {
                    context.options.connections.count_rejected();
                    continue;
                };
                let (context, service) = (Arc::clone(&context), service.with_remote_addr(address));
                let open = context.options.connections.count_open();
                workers.spawn(&mut connections, stream, |stream| {
                    serve_connection(context, stream, service, (permit, open))
                });
            }
            Err(error) if is_connection_error(&error) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(error),
            Err(_) => tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = tokio::time::sleep(backoff.next_delay()) => {}
            },
        }
    }
    drop(listener);
    context.shutdown.trigger();
    let finished = async { while connections.join_next().await.is_some() {} };
    // Whatever has not finished by now is dropped.
    let _ = tokio::time::timeout(context.options.shutdown_timeout, finished).await;
    connections.shutdown().await;
    // HTTP/2 streams end with their connection; this only waits until they have noticed.
    streams.close();
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, streams.wait()).await;
    Ok(())
}

/// Makes glibc keep freed memory. By default it returns memory to the kernel as soon as 128 KiB are free at the end
/// of its heap, so that every long message gives memory back and the next one fetches it again. Freeing a larger
/// block raises that threshold to twice its size. The block is never written to, so it takes no memory; other
/// allocators are not affected.
fn raise_trim_threshold() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(1024 * 1024)));
}

/// Shared by all connections of a listener.
struct ListenerContext {
    http1: http1::Builder,
    http2: http2::Builder<StreamExecutor>,
    shutdown: ShutdownSignal,
    options: Options,
}

impl ListenerContext {
    fn limits(&self) -> validate_head::HeadLimits {
        let Options { max_target: max_target_bytes, max_headers, max_head: max_head_bytes, .. } =
            self.options;
        #[cfg(test)]
        let max_head_bytes = if self.options.is_fast_path_disabled { 0 } else { max_head_bytes };
        validate_head::HeadLimits { max_target_bytes, max_headers, max_head_bytes }
    }
}

/// Spawns the streams of HTTP/2 connections on a tracker, so that the drain can wait for them.
///
/// They need no abort handle: a stream whose connection is gone ends by itself.
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

/// The delay after a failed accept: doubled each time, up to a second.
#[derive(Default)]
pub(super) struct AcceptBackoff(u32);

impl AcceptBackoff {
    pub(super) fn next_delay(&mut self) -> Duration {
        let wait = Duration::from_millis(16 << self.0);
        self.0 = (self.0 + 1).min(6);
        wait.min(Duration::from_secs(1))
    }
}

/// Whether accept failed because one connection was closed again, and not because of the listener.
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
    // `deadlines` has the timers: one timer per connection instead of one per request, and a head timeout apart from
    // the idle timeout.
    http.header_read_timeout(None)
        // `deadlines` limits how long a half-closed connection may wait for its response.
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

/// Serves one connection until it closes. The permit is released when this ends or is dropped.
async fn serve_connection(
    context: Arc<ListenerContext>,
    stream: TcpStream,
    service: impl Serve,
    permit: (ConnectionPermit, OpenConnection),
) {
    // Responses are written whole, so waiting for more data only delays them. If the option cannot be set, responses
    // are late, not wrong.
    let _ = stream.set_nodelay(true);
    let mut connection = FastConnection::new(stream, service, context.limits());
    // Only one of the two futures exists at a time, and the rare one is boxed: a connection mostly waits, and is kept
    // as small as possible.
    if deadlines::drive(&mut connection, &context.options, &context.shutdown, None).await
        == Some(FastPathEnd::Unsupported)
        && let Some(handover) = connection.into_handover()
    {
        Box::pin(serve_with_hyper(context, handover)).await;
    }
    drop(permit);
}

/// Serves the rest of a connection with hyper, after a request that the fast path does not support.
async fn serve_with_hyper<S: Serve>(context: Arc<ListenerContext>, handover: Handover<S>) {
    let Handover { stream, service, bytes, is_first, head_started_at } = handover;
    let activity = Arc::new(SharedActivity::default());
    let mut socket = Socket::new(stream, Arc::clone(&activity), bytes.into(), is_first);
    let Some(version) = deadlines::detect_version(&mut socket, &context.options, &context.shutdown).await
    else {
        return;
    };
    let (shared, limits) = (Arc::clone(&activity), context.limits());
    let service = service_fn(move |request: Request<Incoming>| {
        let guard = shared.begin_request();
        let (parts, body) = request.into_parts();
        let response =
            match validate_head::check(&parts.method, &parts.uri, parts.version, &parts.headers, limits) {
                None => Ok(service.respond(parts.into(), RequestBody::from_hyper(body))),
                Some(status) => Err(Box::new(validate_head::reject(status, parts.version))),
            };
        async move {
            Ok::<_, Infallible>(match response {
                Ok(response) => S::into_full_response(response.await).map(|body| {
                    Either::Left(body.map_err(move |error| {
                        // The request is in flight until the body of its response is dropped.
                        let _ = &guard;
                        error
                    }))
                }),
                Err(rejection) => rejection.map(|()| Either::Right(Empty::new())),
            })
        }
    });
    match version {
        HttpVersion::Http1 => {
            let connection = Box::pin(context.http1.serve_connection(socket, service));
            deadlines::drive(
                &mut HyperConnection { connection, activity },
                &context.options,
                &context.shutdown,
                head_started_at,
            )
            .await;
        }
        HttpVersion::Http2 => {
            let connection = Box::pin(context.http2.serve_connection(socket, service));
            deadlines::drive(
                &mut HyperConnection { connection, activity },
                &context.options,
                &context.shutdown,
                head_started_at,
            )
            .await;
        }
    }
}
