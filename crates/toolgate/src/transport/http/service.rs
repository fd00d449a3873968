//! The HTTP endpoint of a server as a `tower` service: classifies, authorizes and routes requests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{self, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use toolgate_wire::ProtocolError;
use tower_service::Service;

use super::admit::HeadAdmission;
use super::body::read_body;
use super::legacy_sse::LegacyConnections;
use super::mount::Route;
use super::reject::LogThrottle;
use super::response::{empty_response, method_not_allowed, with_connection_close};
use super::{Body, BoxError, MAX_REQUEST_ID_BYTES, MountContext, MountPoint, post_headers};
use crate::engine::Engine;
use crate::guard::{Guards, ResponsePolicy};
use crate::headers::{Accepts, MCP_METHOD, MCP_NAME, PROTOCOL_VERSION, REQUEST_ID, SESSION_ID};
use crate::protocol::{Channel, Peer};
use crate::request::BoxFuture;
use crate::transport::RequestHead;
use crate::transport::listen::{RequestBody, Serve};
use crate::util::sharded::{ShardedArc, ShardedRef};
use crate::util::spawn::Tracker;

/// The settings of an endpoint.
#[derive(Clone, Debug)]
pub(crate) struct HttpOptions {
    /// How long a body may take to arrive.
    pub(crate) body_timeout: Duration,
    /// How long a call may send nothing before it is answered by a stream, which can be kept alive and resumed.
    pub(crate) stream_after: Duration,
    /// The interval of keep-alive comments on a silent stream.
    pub(crate) sse_keep_alive: Duration,
    /// Whether the HTTP+SSE transport of the first protocol version is served.
    pub(crate) has_legacy_sse: bool,
}

impl Default for HttpOptions {
    fn default() -> HttpOptions {
        HttpOptions {
            body_timeout: Duration::from_secs(30),
            stream_after: Duration::from_secs(5),
            sse_keep_alive: Duration::from_secs(15),
            has_legacy_sse: true,
        }
    }
}

/// The HTTP endpoint of a server: a `tower` service that can be mounted in axum, hyper and other routers.
///
/// Cloning is cheap. See `Server::into_service`.
#[derive(Clone)]
pub struct ServerService {
    pub(super) inner: Arc<ShardedArc<Inner>>,
    pub(super) mount: MountContext,
}

/// A [`ServerService`] that does not keep its server alive.
pub(crate) struct WeakServerService {
    inner: Weak<ShardedArc<Inner>>,
    mount: MountContext,
}

impl WeakServerService {
    pub(crate) fn upgrade(&self) -> Option<ServerService> {
        Some(ServerService { inner: self.inner.upgrade()?, mount: self.mount.clone() })
    }
}

pub(super) struct Inner {
    pub(super) engine: Arc<Engine>,
    pub(super) guards: Arc<ArcSwap<ShardedArc<Guards>>>,
    pub(super) options: HttpOptions,
    /// Calls that continue after their client has disconnected.
    pub(super) tasks: Tracker,
    pub(super) legacy_connections: LegacyConnections,
    pub(super) log_throttle: LogThrottle,
}

impl std::fmt::Debug for ServerService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerService").field("mount_point", &self.mount.mount_point).finish_non_exhaustive()
    }
}

impl ServerService {
    pub(crate) fn new(
        engine: Arc<Engine>,
        guards: Arc<ArcSwap<ShardedArc<Guards>>>,
        options: HttpOptions,
    ) -> ServerService {
        let inner = Inner {
            engine,
            guards,
            options,
            tasks: Tracker::new(),
            legacy_connections: LegacyConnections::default(),
            log_throttle: LogThrottle::default(),
        };
        ServerService {
            inner: Arc::new(ShardedArc::new(inner)),
            mount: MountContext { mount_point: MountPoint::Mounted, dialect: None, remote: None },
        }
    }

    pub(crate) fn downgrade(&self) -> WeakServerService {
        WeakServerService { inner: Arc::downgrade(&self.inner), mount: self.mount.clone() }
    }

    /// Returns the same endpoint at a path of the host.
    pub(crate) fn at_path(&self, path: &str) -> ServerService {
        ServerService {
            inner: Arc::clone(&self.inner),
            mount: MountContext { mount_point: MountPoint::Path(path.into()), dialect: None, remote: None },
        }
    }

    /// Responds to a request that came through this mount.
    pub(crate) async fn handle<B>(&self, head: RequestHead, body: B, mount: MountContext) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Body::into_full_response(Inner::serve(self.inner.acquire(), head, body, &mount).await)
    }

    /// Waits until the calls of disconnected clients have ended.
    pub(crate) async fn drain(&self) {
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }
}

/// The names of the headers that MCP clients send with every request.
pub(crate) static MCP_HEADER_NAMES: [HeaderName; 4] = [PROTOCOL_VERSION, SESSION_ID, MCP_METHOD, MCP_NAME];

impl Serve for ServerService {
    type Body = Body;

    fn known_header_names() -> &'static [HeaderName] {
        &MCP_HEADER_NAMES
    }

    fn with_remote_addr(&self, remote: SocketAddr) -> ServerService {
        ServerService {
            inner: Arc::clone(&self.inner),
            mount: MountContext { remote: Some(remote), ..self.mount.clone() },
        }
    }

    fn header_lines(body: &Body) -> &[u8] {
        body.header_lines()
    }

    fn into_full_response(response: Response<Body>) -> Response<Body> {
        Body::into_full_response(response)
    }

    fn respond(&self, head: RequestHead, body: RequestBody) -> BoxFuture<'static, Response<Body>> {
        Box::pin(Inner::serve(self.inner.acquire(), head, body, &self.mount))
    }
}

impl<B> Service<Request<B>> for ServerService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let serving = Inner::serve(self.inner.acquire(), parts.into(), body, &self.mount);
        Box::pin(async move { Ok(Body::into_full_response(serving.await)) })
    }
}

/// A request, classified by its head.
// The largest variant is the common one, and is not moved after it is made.
#[allow(clippy::large_enum_variant)]
enum RequestClass {
    /// A message that is authorized by its head alone.
    Message {
        peer: Peer,
        accepts: Accepts,
        response_policy: ResponsePolicy,
    },
    General(Box<GeneralRequest>),
}

/// A request that is not a message, is not authorized yet, or is malformed.
struct GeneralRequest {
    head: RequestHead,
    mount: MountContext,
    admission: HeadAdmission,
    accepts: Result<Accepts, ProtocolError>,
    route: Route,
}

impl GeneralRequest {
    fn is_message(&self) -> bool {
        self.route == Route::Messages && self.head.method == Method::POST
    }
}

impl Inner {
    /// Responds to a request.
    ///
    /// The head is checked before the returned future is polled. Nearly all requests are messages that are authorized by
    /// their head: for these, the future does not hold the head.
    pub(super) fn serve<B>(
        inner: ShardedRef<Inner>,
        mut head: RequestHead,
        body: B,
        mount: &MountContext,
    ) -> impl Future<Output = Response<Body>> + Send + use<B>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let guards = inner.guards.load().acquire();
        let dialect = if mount.dialect.is_none() { inner.engine.dialect.load() } else { None };
        let with_dialect = dialect.map(|dialect| MountContext { dialect: Some(dialect), ..mount.clone() });
        let mount = with_dialect.as_ref().unwrap_or(mount);
        let mut request_id = None;
        if head.headers.parsed().has_request_id || inner.needs_request_id(mount) {
            request_id = Inner::ensure_request_id(&mut head);
        }
        let admission = inner.admit_by_head(&guards, &head, mount);
        let accepts = post_headers::check(head.headers.parsed(), inner.body_limit(&guards));
        let route = mount.route(head.uri.path());
        let is_message = route == Route::Messages && head.method == Method::POST;
        let class = match (admission, accepts) {
            (HeadAdmission::Admitted(admitted), Ok(accepts)) if is_message => {
                let accepts =
                    post_headers::accepts_for_dialect(accepts, &head.headers, mount.dialect.as_deref());
                let response_policy = admitted.response_policy().clone();
                let peer = admitted.into_peer(head, Channel::Post { accepts_stream: accepts.stream }, mount);
                RequestClass::Message { peer, accepts, response_policy }
            }
            (admission, accepts) => RequestClass::General(Box::new(GeneralRequest {
                head,
                mount: mount.clone(),
                admission,
                accepts,
                route,
            })),
        };
        async move {
            let mut response = match class {
                RequestClass::Message { peer, accepts, response_policy } => {
                    let limit = inner.body_limit(&guards);
                    match read_body(pin!(body), limit, inner.options.body_timeout).await {
                        Ok(bytes) => inner.post(&guards, &response_policy, &peer, accepts, bytes).await,
                        Err(error) => {
                            let mut response = with_connection_close(
                                inner.reject_body(&peer, &error.to_protocol_error(limit)),
                            );
                            guards.apply_headers(response.headers_mut(), &response_policy);
                            response
                        }
                    }
                }
                RequestClass::General(request) => {
                    Box::pin(inner.serve_general(&guards, *request, body)).await
                }
            };
            if let Some(id) = request_id {
                response = Body::into_full_response(response);
                response.headers_mut().insert(REQUEST_ID, *id);
            }
            response
        }
    }

    /// Responds to a request that is not a message, or that is not authorized by its head alone.
    async fn serve_general<B>(
        self: &Arc<Self>,
        guards: &Guards,
        request: GeneralRequest,
        body: B,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let is_message = request.is_message();
        let GeneralRequest { head, mount, admission, accepts, route } = request;
        let reading = async {
            match (is_message, &accepts) {
                (true, Ok(_)) => self.read_message(guards, &head, &mount, body).await,
                (true, Err(error)) => Err(Box::new(self.reject_malformed(&head, &mount, error))),
                (false, _) => self.read_general_body(guards, &head, &mount, body, route).await,
            }
        };
        let admission = self.admit(guards, &head, &mount, admission, reading).await;
        let (admitted, bytes) = match self.admitted_or_response(guards, &head, &mount, admission) {
            Ok(admitted) => admitted,
            Err(response) => return *response,
        };
        let policy = admitted.response_policy().clone();
        if let (true, Ok(accepts)) = (is_message, accepts) {
            let accepts = post_headers::accepts_for_dialect(accepts, &head.headers, mount.dialect.as_deref());
            let peer = admitted.into_peer(head, Channel::Post { accepts_stream: accepts.stream }, &mount);
            return self.post(guards, &policy, &peer, accepts, bytes).await;
        }
        let mut response = match (route, &head.method) {
            (Route::LegacyStream, _) => self.legacy_stream(&head, &mount, &admitted),
            (Route::LegacyMessages, _) => self.legacy_message(head, &mount, admitted, bytes),
            (_, &Method::GET) => self.get(&head, &mount, admitted).await,
            _ => self.delete(&head, &mount, admitted).await,
        };
        guards.apply_headers(response.headers_mut(), &policy);
        response
    }

    /// Reads the body of a message. The error is the response.
    async fn read_message<B>(
        &self,
        guards: &Guards,
        head: &RequestHead,
        mount: &MountContext,
        body: B,
    ) -> Result<Bytes, Box<Response<Body>>>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let limit = self.body_limit(guards);
        read_body(pin!(body), limit, self.options.body_timeout).await.map_err(|error| {
            let response = self.reject_malformed(head, mount, &error.to_protocol_error(limit));
            Box::new(with_connection_close(response))
        })
    }

    /// Checks the route and the method of a request that is not a message of the Streamable HTTP transport, and reads
    /// the body of those that have one. The error is the response.
    async fn read_general_body<B>(
        &self,
        guards: &Guards,
        head: &RequestHead,
        mount: &MountContext,
        body: B,
        route: Route,
    ) -> Result<Bytes, Box<Response<Body>>>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let allowed = match route {
            Route::NotFound => return Err(Box::new(empty_response(StatusCode::NOT_FOUND))),
            Route::LegacyStream | Route::LegacyMessages if !self.options.has_legacy_sse => {
                return Err(Box::new(empty_response(StatusCode::NOT_FOUND)));
            }
            Route::Messages => "GET, POST, DELETE",
            Route::LegacyStream => "GET",
            Route::LegacyMessages => "POST",
        };
        if !allowed.split(", ").any(|method| method == head.method.as_str()) {
            return Err(Box::new(method_not_allowed(head, mount, allowed)));
        }
        if route != Route::LegacyMessages {
            return Ok(Bytes::new());
        }
        if let Err(error) = post_headers::check(head.headers.parsed(), self.body_limit(guards)) {
            return Err(Box::new(self.reject_malformed(head, mount, &error)));
        }
        self.read_message(guards, head, mount, body).await
    }

    /// Whether a request without an id needs one: for a lenient dialect, or for event listeners.
    fn needs_request_id(&self, mount: &MountContext) -> bool {
        mount.dialect.as_ref().is_some_and(|dialect| dialect.lenient)
            || !self.engine.observer.events.has_no_listeners()
    }

    /// Returns the id of a request, and generates one if it has none.
    fn ensure_request_id(head: &mut RequestHead) -> Option<Box<HeaderValue>> {
        if head.headers.parsed().has_request_id
            && let Some(id) = head.headers.get(REQUEST_ID)
        {
            return (id.len() <= MAX_REQUEST_ID_BYTES).then(|| Box::new(id.clone()));
        }
        let id = HeaderValue::from_str(&crate::seal::random_token()).ok()?;
        Arc::make_mut(&mut head.headers).set_request_id(id.clone());
        Some(Box::new(id))
    }

    fn body_limit(&self, guards: &Guards) -> usize {
        let max = self.engine.limits.max_bytes;
        guards.body_limit.map_or(max, |limit| limit.min(max))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::super::admit::Admitted;
    use super::*;
    use crate::stream::{Capacity, Stream};

    /// Common allocators are fastest for blocks of up to about a kilobyte, and every request allocates these two.
    #[test]
    fn the_futures_of_a_call_are_small() {
        let ServerService { inner, mount } = crate::Server::new("small", "1").build().unwrap().into_service();
        let body = Full::<Bytes>::default();
        let size = size_of_val(&Inner::serve(inner.acquire(), RequestHead::default(), body, &mount));
        assert!(size <= 1024, "serving takes {size} bytes");
        let via = Channel::Post { accepts_stream: true };
        let peer = Admitted::anonymous().into_peer(RequestHead::default(), via, &mount);
        let (bytes, out) = (Bytes::new(), Stream::new(Capacity::default()));
        let captured = size_of_val(&inner) + size_of_val(&bytes) + size_of_val(&peer) + size_of_val(&out);
        let size = captured + size_of_val(&inner.engine.handle_message(&bytes, &peer, &out));
        assert!(size <= 1024, "a call takes {size} bytes");
    }
}
