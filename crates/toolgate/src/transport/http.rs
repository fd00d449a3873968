//! HTTP: the endpoint as a `tower` service.
//!
//! One URL serves every edition: POST for messages, GET and DELETE for the streams and sessions of older
//! ones; `/sse` and `/messages` beside it are the two-endpoint form of the first. An answer is one JSON
//! body unless a call says something on the way: then it becomes a stream, and whoever reads the stream
//! drives the call. Who is let in is for the guards to say, before the body is read wherever that can be.

mod body;
mod legacy_sse;
mod page;
mod post_headers;
mod sse;
mod stats;

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{self, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use tokio::time::Instant;
use toolgate_wire::{Dialect, ProtocolError, ProtocolErrorKind, RawJson};
use tower_service::Service;

pub use body::Body;
pub(crate) use page::not_found;
pub(crate) use stats::{prometheus_response, status_response, unknown_server_response};

use crate::engine::{CallState, Engine};
use crate::guard::{
    Admission, Admitted, CredentialKind, GuardRejection, GuardRequest, Guards, KeyRequest, RejectReason,
    ResponsePolicy,
};
use crate::headers::{
    Accepts, LAST_EVENT_ID, MCP_METHOD, MCP_NAME, PROTOCOL_VERSION, REQUEST_ID, SESSION_ID, single_value,
};
use crate::observe;
use crate::protocol::{Channel, ClusterStream, Peer, Reply, ReplyKind, ResumeInfo, reject_head};
use crate::request::{BoxFuture, Principal};
use crate::stream::{Capacity, Stream};
use crate::subscriptions::Subscriber;
use crate::transport::RequestHead;
use crate::transport::listen::{RemoteAddr, RequestBody, Serve};
use crate::util::clock::timer_now;
use crate::util::segments::Segments;
use crate::util::sharded::{ShardedArc, ShardedRef};
use crate::util::spawn::Tracker;
use body::read_body;
use legacy_sse::LegacyConnections;
use sse::SseBody;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Calls whose clients left that may go on at once. One more ends with its client.
const MAX_DETACHED_CALLS: usize = 1024;

/// The longest such name that is given back.
const MAX_REQUEST_ID_BYTES: usize = 128;

/// Where an endpoint's paths are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MountPoint {
    /// At this path of a host of its own; anything else is not found.
    Path(Arc<str>),
    /// Wherever it was mounted: the router in front has taken the path off.
    Mounted,
}

/// The path of a request before a router of ours took its own part off: among the extensions of a request.
#[derive(Clone, Debug)]
pub(crate) struct OriginalPath(pub(crate) Box<str>);

/// How a request came here.
#[derive(Clone, Debug)]
pub(crate) struct MountContext {
    pub(crate) mount_point: MountPoint,
    /// How those are spoken to, this way, who name no edition. None: as the server does everywhere.
    pub(crate) dialect: Option<Arc<Dialect>>,
    /// The other end of the connection, where our own listener says so.
    pub(crate) remote: Option<SocketAddr>,
}

/// What an endpoint can be told.
#[derive(Clone, Debug)]
pub(crate) struct HttpOptions {
    /// How long a body may take to arrive.
    pub(crate) body_timeout: Duration,
    /// A call that says nothing for so long is answered by a stream, which can be kept alive and resumed.
    pub(crate) stream_after: Duration,
    /// How often a silent stream says that it is still there.
    pub(crate) sse_keep_alive: Duration,
    /// Whether the two-endpoint form of the first edition is there.
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

/// A server's HTTP endpoint: a `tower` service that mounts in axum, hyper and whatever else takes one.
///
/// Cloning is cheap. See `Server::into_service`.
#[derive(Clone)]
pub struct ServerService {
    inner: Arc<ShardedArc<Inner>>,
    mount: MountContext,
}

struct Inner {
    engine: Arc<Engine>,
    guards: Arc<ArcSwap<ShardedArc<Guards>>>,
    options: HttpOptions,
    /// Calls whose client left and that go on all the same.
    tasks: Tracker,
    legacy_connections: LegacyConnections,
    log_throttle: LogThrottle,
}

/// Whoever is refused a thousand times a second must not fill a log.
#[derive(Default)]
struct LogThrottle(Mutex<(Option<Instant>, u64)>);

impl LogThrottle {
    /// Lines in a second. What is more is counted, and told with the next that is written.
    const MAX_LINES_PER_SECOND: u64 = 10;

    /// None: not now. Else how many were not written since the last second.
    fn allow(&self) -> Option<u64> {
        let now = timer_now();
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (second, count) = &mut *state;
        if second.is_none_or(|second| now.duration_since(second) >= Duration::from_secs(1)) {
            let unsaid = count.saturating_sub(LogThrottle::MAX_LINES_PER_SECOND);
            (*second, *count) = (Some(now), 1);
            return Some(unsaid);
        }
        *count += 1;
        (*count <= LogThrottle::MAX_LINES_PER_SECOND).then_some(0)
    }
}

impl std::fmt::Debug for ServerService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerService").field("place", &self.mount.mount_point).finish_non_exhaustive()
    }
}

impl ServerService {
    pub(crate) fn new(
        entry: Arc<Engine>,
        guards: Arc<ArcSwap<ShardedArc<Guards>>>,
        options: HttpOptions,
    ) -> ServerService {
        let (tasks, pairs) = (Tracker::new(), LegacyConnections::default());
        let inner = Inner {
            engine: entry,
            guards,
            options,
            tasks,
            legacy_connections: pairs,
            log_throttle: LogThrottle::default(),
        };
        ServerService {
            inner: Arc::new(ShardedArc::new(inner)),
            mount: MountContext { mount_point: MountPoint::Mounted, dialect: None, remote: None },
        }
    }

    /// The same at a path of its own.
    pub(crate) fn at_path(&self, path: &str) -> ServerService {
        ServerService {
            inner: Arc::clone(&self.inner),
            mount: MountContext { mount_point: MountPoint::Path(path.into()), dialect: None, remote: None },
        }
    }

    /// Answers a request that came this way.
    pub(crate) async fn handle<B>(&self, asked: RequestHead, body: B, way: MountContext) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Body::into_full_response(Inner::serve(self.inner.acquire(), asked, body, &way).await)
    }

    /// Waits until calls whose clients left have ended.
    pub(crate) async fn drain(&self) {
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }
}

/// What clients of the protocol say in every head.
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

    fn respond(&self, asked: RequestHead, body: RequestBody) -> BoxFuture<'static, Response<Body>> {
        Box::pin(Inner::serve(self.inner.acquire(), asked, body, &self.mount))
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

/// What a path leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Route {
    Messages,
    LegacyStream,
    LegacyMessages,
    NotFound,
}

impl MountContext {
    /// The other end of the connection, as our listener or a layer in front of us says.
    fn remote_addr(&self, parts: &RequestHead) -> Option<SocketAddr> {
        self.remote.or_else(|| parts.extensions.get::<RemoteAddr>().map(|remote| remote.0))
    }

    fn route(&self, path: &str) -> Route {
        match (&self.mount_point, path) {
            (_, "/sse") => Route::LegacyStream,
            (_, "/messages") => Route::LegacyMessages,
            (MountPoint::Mounted, _) => Route::Messages,
            (MountPoint::Path(own), path) if path == &**own || path.strip_suffix('/') == Some(own) => {
                Route::Messages
            }
            (MountPoint::Path(_), _) => Route::NotFound,
        }
    }
}

impl Inner {
    /// What can be judged by the head is judged before anything is waited for. Nearly all requests are messages of
    /// somebody who may come in: those keep nothing of their head but what is needed to answer them.
    fn serve<B>(
        house: ShardedRef<Inner>,
        mut parts: RequestHead,
        body: B,
        way: &MountContext,
    ) -> impl Future<Output = Response<Body>> + Send + use<B>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let guards = house.guards.load().acquire();
        let usual = if way.dialect.is_none() { house.engine.dialect.load() } else { None };
        let usual = usual.map(|dialect| MountContext { dialect: Some(dialect), ..way.clone() });
        let way = usual.as_ref().unwrap_or(way);
        let mut named = None;
        if parts.headers.parsed().has_request_id || house.needs_request_id(way) {
            named = Inner::ensure_request_id(&mut parts);
        }
        let gate = house.check_head(&guards, &parts, way);
        let checked = post_headers::check(parts.headers.parsed(), house.body_limit(&guards));
        let door = way.route(parts.uri.path());
        let is_message = door == Route::Messages && parts.method == Method::POST;
        let came = match (gate, checked) {
            (Ok(Admission::Granted(pass)), Ok(accepts)) if is_message && !guards.has_shared_limits() => {
                let accepts =
                    post_headers::accepts_for_dialect(accepts, &parts.headers, way.dialect.as_deref());
                let dress = pass.response_policy.clone();
                let peer = into_peer(parts, Channel::Post { accepts_stream: accepts.stream }, way, pass);
                RequestClass::Message { peer, accepts, response_policy: dress }
            }
            (gate, checked) => RequestClass::General(Box::new(GeneralRequest {
                head: parts,
                mount: way.clone(),
                admission: gate,
                accepts: checked,
                route: door,
            })),
        };
        async move {
            let mut response = match came {
                RequestClass::Message { peer, accepts, response_policy: dress } => {
                    let limit = house.body_limit(&guards);
                    match read_body(pin!(body), limit, house.options.body_timeout).await {
                        Ok(bytes) => house.post(&guards, &dress, &peer, accepts, bytes).await,
                        Err(unread) => {
                            let mut response = with_connection_close(
                                house.reject_body(&peer, &unread.to_protocol_error(limit)),
                            );
                            guards.apply_headers(response.headers_mut(), &dress);
                            response
                        }
                    }
                }
                RequestClass::General(came) => Box::pin(house.serve_general(&guards, *came, body)).await,
            };
            if let Some(name) = named {
                response = Body::into_full_response(response);
                response.headers_mut().insert(REQUEST_ID, *name);
            }
            response
        }
    }

    /// The same for what is no message, or asks for more than a look at its head.
    async fn serve_general<B>(
        self: &Arc<Self>,
        guards: &Guards,
        other: GeneralRequest,
        body: B,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let GeneralRequest { head: parts, mount: way, admission: gate, accepts: checked, route: door } =
            other;
        let mut dress = ResponsePolicy::default();
        let mut response = 'answer: {
            let gate = match gate {
                Ok(Admission::PasswordPending(claim)) => Box::pin(guards.check_password(claim)).await,
                gate => gate,
            };
            let gate = match gate {
                Ok(Admission::Preflight(headers)) => break 'answer preflight_response(*headers),
                Ok(gate) => gate,
                Err(refusal) => break 'answer self.reject_unauthorized(&parts, &way, *refusal, &mut dress),
            };
            dress = gate.response_policy();
            if door != Route::Messages || parts.method != Method::POST {
                break 'answer self
                    .serve_non_message(guards, gate, parts, &way, body, door, &mut dress)
                    .await;
            }
            let accepts = match checked {
                Ok(accepts) => {
                    post_headers::accepts_for_dialect(accepts, &parts.headers, way.dialect.as_deref())
                }
                Err(fault) => break 'answer self.reject_malformed(&parts, &way, &fault),
            };
            let limit = self.body_limit(guards);
            let bytes = match read_body(pin!(body), limit, self.options.body_timeout).await {
                Ok(bytes) => bytes,
                Err(unread) => {
                    break 'answer with_connection_close(self.reject_malformed(
                        &parts,
                        &way,
                        &unread.to_protocol_error(limit),
                    ));
                }
            };
            let pass = match gate {
                Admission::Granted(pass) => pass,
                // A provider is told of one method: what holds several must not go by as none.
                Admission::KeyPending(_) if is_batch(&bytes) => {
                    let fault =
                        ProtocolError::invalid_request("batches are not taken where API keys are asked for");
                    break 'answer self.reject_malformed(&parts, &way, &fault);
                }
                gate => match self.check_key(guards, gate, &parts, &bytes).await {
                    Ok(pass) => pass,
                    Err(refusal) => {
                        break 'answer self.reject_unauthorized(&parts, &way, *refusal, &mut dress);
                    }
                },
            };
            if guards.has_shared_limits()
                && let Err(refusal) = guards.count_shared(&pass, &self.engine.scoped_store).await
            {
                break 'answer self.reject_unauthorized(&parts, &way, *refusal, &mut dress);
            }
            let peer = into_peer(parts, Channel::Post { accepts_stream: accepts.stream }, &way, pass);
            return self.post(guards, &dress, &peer, accepts, bytes).await;
        };
        guards.apply_headers(response.headers_mut(), &dress);
        response
    }

    /// Everything but messages: streams, sessions, the two doors of the first edition, and what leads nowhere.
    #[allow(clippy::too_many_arguments)]
    async fn serve_non_message<B>(
        self: &Arc<Self>,
        guards: &Guards,
        gate: Admission,
        parts: RequestHead,
        way: &MountContext,
        body: B,
        door: Route,
        dress: &mut ResponsePolicy,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let allowed = match door {
            Route::NotFound => return empty_response(StatusCode::NOT_FOUND),
            Route::LegacyStream | Route::LegacyMessages if !self.options.has_legacy_sse => {
                return empty_response(StatusCode::NOT_FOUND);
            }
            Route::Messages => "GET, POST, DELETE",
            Route::LegacyStream => "GET",
            Route::LegacyMessages => "POST",
        };
        if !allowed.split(", ").any(|method| method == parts.method.as_str()) {
            return method_not_allowed(&parts, way, allowed);
        }
        let mut bytes = Bytes::new();
        if door == Route::LegacyMessages {
            let limit = self.body_limit(guards);
            if let Err(fault) = post_headers::check(parts.headers.parsed(), limit) {
                return self.reject_malformed(&parts, way, &fault);
            }
            bytes = match read_body(pin!(body), limit, self.options.body_timeout).await {
                Ok(bytes) => bytes,
                Err(unread) => {
                    return with_connection_close(self.reject_malformed(
                        &parts,
                        way,
                        &unread.to_protocol_error(limit),
                    ));
                }
            };
            if matches!(gate, Admission::KeyPending(_)) && is_batch(&bytes) {
                let fault =
                    ProtocolError::invalid_request("batches are not taken where API keys are asked for");
                return self.reject_malformed(&parts, way, &fault);
            }
        }
        let pass = match self.check_key(guards, gate, &parts, &bytes).await {
            Ok(pass) => pass,
            Err(refusal) => return self.reject_unauthorized(&parts, way, *refusal, dress),
        };
        if guards.has_shared_limits()
            && let Err(refusal) = guards.count_shared(&pass, &self.engine.scoped_store).await
        {
            return self.reject_unauthorized(&parts, way, *refusal, dress);
        }
        match (door, &parts.method) {
            (Route::LegacyStream, _) => self.legacy_stream(&parts, way, pass),
            (Route::LegacyMessages, _) => self.legacy_message(parts, way, pass, bytes),
            (_, &Method::GET) => self.get(&parts, way, pass).await,
            _ => self.delete(&parts, way, pass).await,
        }
    }

    fn check_head(
        &self,
        guards: &Guards,
        parts: &RequestHead,
        way: &MountContext,
    ) -> Result<Admission, Box<GuardRejection>> {
        // Only who is asked for credentials is told who asks.
        let face = guards.requires_credentials().then(|| self.engine.protocol.server_info.load());
        guards.check_head(&GuardRequest {
            method: &parts.method,
            uri: &parts.uri,
            headers: &parts.headers,
            parsed_headers: parts.headers.parsed(),
            peer: way.remote_addr(parts).map(|remote| remote.ip()),
            is_tls: false,
            principal: parts.extensions.get::<Principal>(),
            server_name: face.as_ref().map_or("", |face| &face.implementation.name),
            is_literal_wildcard: way.dialect.as_ref().is_some_and(|dialect| dialect.cors_literal_wildcard),
        })
    }

    /// Checks a key, where one is still to be checked.
    async fn check_key(
        &self,
        guards: &Guards,
        gate: Admission,
        parts: &RequestHead,
        body: &Bytes,
    ) -> Result<Admitted, Box<GuardRejection>> {
        let claim = match gate {
            Admission::Granted(pass) => return Ok(pass),
            Admission::KeyPending(claim) | Admission::PasswordPending(claim) => claim,
            Admission::Preflight(_) => return Ok(Admitted::default()),
        };
        let mut request = KeyRequest::new(&*self.engine.protocol.server_info.load().implementation.name)
            .with_body(body.clone())
            .with_headers(HeaderMap::clone(&parts.headers))
            .with_http_method(parts.method.clone())
            .with_remote_addr(claim.client());
        if let Some(id) = parts.headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()) {
            request = request.with_request_id(id);
        }
        guards.check_key(claim, request).await
    }

    /// Whether somebody may ask for the name of a request that has none.
    fn needs_request_id(&self, way: &MountContext) -> bool {
        way.dialect.as_ref().is_some_and(|dialect| dialect.lenient)
            || !self.engine.observer.events.has_no_listeners()
    }

    /// What this request is called: as its sender says, or a name of our own.
    fn ensure_request_id(parts: &mut RequestHead) -> Option<Box<HeaderValue>> {
        if parts.headers.parsed().has_request_id
            && let Some(name) = parts.headers.get(REQUEST_ID)
        {
            return (name.len() <= MAX_REQUEST_ID_BYTES).then(|| Box::new(name.clone()));
        }
        let name = HeaderValue::from_str(&crate::seal::random_token()).ok()?;
        Arc::make_mut(&mut parts.headers).set_request_id(name.clone());
        Some(Box::new(name))
    }

    fn body_limit(&self, guards: &Guards) -> usize {
        let most = self.engine.limits.max_bytes;
        guards.body_limit.map_or(most, |limit| limit.min(most))
    }

    /// Says no in the name of a guard, and counts it.
    fn reject_unauthorized(
        &self,
        parts: &RequestHead,
        way: &MountContext,
        refusal: GuardRejection,
        dress: &mut ResponsePolicy,
    ) -> Response<Body> {
        let message = refusal.message.as_ref();
        let fault = match refusal.reason {
            RejectReason::MalformedHead
            | RejectReason::Host
            | RejectReason::Origin
            | RejectReason::Address => ProtocolError::invalid_request(message),
            RejectReason::TooLarge { .. } => ProtocolError::new(ProtocolErrorKind::TooLarge, message),
            RejectReason::RateLimited | RejectReason::TooManyFailures(_) | RejectReason::Busy => {
                ProtocolError::new(ProtocolErrorKind::RateLimited, message)
            }
            RejectReason::Credentials(_) | RejectReason::Forbidden => {
                ProtocolError::new(ProtocolErrorKind::Unauthorized, message)
            }
            RejectReason::Unavailable => ProtocolError::new(ProtocolErrorKind::Busy, message),
        };
        self.record_rejection(parts, way, refusal.reason, message);
        let fault = with_retry_after(fault, &refusal, way).with_status(refusal.reason.status());
        let mut response = rejection_response(&parts.headers, way.dialect.as_ref(), &fault);
        refusal.apply_headers(response.headers_mut());
        *dress = refusal.response_policy;
        response
    }

    fn record_rejection(&self, parts: &RequestHead, way: &MountContext, why: RejectReason, message: &str) {
        let counted = match why {
            RejectReason::Credentials(CredentialKind::ApiKey)
            | RejectReason::TooManyFailures(CredentialKind::ApiKey) => {
                Some(observe::SecurityRejection::ApiKey)
            }
            RejectReason::Credentials(_) | RejectReason::Forbidden | RejectReason::TooManyFailures(_) => {
                Some(observe::SecurityRejection::Auth)
            }
            RejectReason::TooLarge { .. } => Some(observe::SecurityRejection::BodySize),
            RejectReason::Address => Some(observe::SecurityRejection::Ip),
            RejectReason::Host | RejectReason::Origin => Some(observe::SecurityRejection::Origin),
            RejectReason::RateLimited | RejectReason::Busy => Some(observe::SecurityRejection::RateLimit),
            RejectReason::MalformedHead | RejectReason::Unavailable => None,
        };
        if let Some(counted) = counted {
            self.engine.observer.record_rejection(
                counted,
                observe::Transport::Http,
                self.resolve_client_address(parts, way),
                message,
            );
        }
        if let Some(unsaid) = self.log_throttle.allow() {
            tracing::info!(?why, message, remote = ?self.resolve_client_address(parts, way), unsaid, "refused");
        }
    }

    /// Where a request comes from that was not let in.
    fn resolve_client_address(&self, parts: &RequestHead, way: &MountContext) -> Option<SocketAddr> {
        let remote = way.remote_addr(parts);
        let client = self.guards.load().client_address(remote.map(|remote| remote.ip()), &parts.headers);
        client_address(remote, client)
    }

    /// Says no because of what is wrong with the request itself.
    fn reject_malformed(
        &self,
        parts: &RequestHead,
        way: &MountContext,
        fault: &ProtocolError,
    ) -> Response<Body> {
        if fault.kind() == ProtocolErrorKind::TooLarge {
            let (http, remote) = (observe::Transport::Http, self.resolve_client_address(parts, way));
            self.engine.observer.record_rejection(
                observe::SecurityRejection::BodySize,
                http,
                remote,
                fault.message(),
            );
        }
        rejection_response(&parts.headers, way.dialect.as_ref(), fault)
    }

    /// Says no because the body of a message cannot be read.
    fn reject_body(&self, peer: &Peer, fault: &ProtocolError) -> Response<Body> {
        if fault.kind() == ProtocolErrorKind::TooLarge {
            let (http, remote) = (observe::Transport::Http, peer.remote_addr);
            self.engine.observer.record_rejection(
                observe::SecurityRejection::BodySize,
                http,
                remote,
                fault.message(),
            );
        }
        rejection_response(&peer.headers, peer.dialect.as_ref(), fault)
    }

    /// Answers a message, with all that every answer carries.
    async fn post(
        &self,
        guards: &Guards,
        dress: &ResponsePolicy,
        peer: &Peer,
        accepts: Accepts,
        bytes: Bytes,
    ) -> Response<Body> {
        let out = Stream::new(Capacity::default());
        let begun = poll_fn(|task| Poll::Ready(self.begin_call(&bytes, peer, &out, task))).await;
        let posted = match begun {
            PostState::Done(answer) if !out.is_ready() => post_response(answer, accepts),
            PostState::Done(answer) => {
                end_stream(&out, answer);
                PostResponse::Other(self.stream_response(peer, &out, None))
            }
            // Boxed, because it is rare: what is common stays small.
            PostState::Pending(call) => {
                drop(bytes);
                Box::pin(self.wait_for_call(call, peer, out, accepts)).await
            }
        };
        match posted {
            // Nearly all answers are these, and begin with headers that are ready.
            PostResponse::Json { status, body, session } => {
                let body = Body::segments(body);
                let mut response = match guards.prebuilt_headers(dress).filter(|_| session.is_none()) {
                    Some(outfit) => Response::new(body.with_prebuilt_headers(outfit)),
                    None => {
                        let mut response = Response::new(body);
                        *response.headers_mut() = guards.json_headers(dress);
                        set_session_header(&mut response, session);
                        response
                    }
                };
                *response.status_mut() = status_code(status);
                response
            }
            PostResponse::Other(mut response) => {
                guards.apply_headers(response.headers_mut(), dress);
                response
            }
        }
    }

    /// Waits for what a call does first.
    async fn wait_for_call(
        &self,
        call: BoxFuture<'static, Reply>,
        peer: &Peer,
        out: Arc<Stream>,
        accepts: Accepts,
    ) -> PostResponse {
        let mut driving =
            PendingResponse { call: Some(call), out: Arc::clone(&out), tasks: self.tasks.clone() };
        let patience = accepts.stream.then_some(self.options.stream_after);
        match driving.first_output(patience).await {
            FirstOutput::Reply(answer) if !out.is_ready() => post_response(answer, accepts),
            FirstOutput::Reply(answer) => {
                end_stream(&out, answer);
                PostResponse::Other(self.stream_response(peer, &out, None))
            }
            FirstOutput::Streaming => {
                let call = driving.call.take();
                PostResponse::Other(self.stream_response(peer, &out, call))
            }
        }
    }

    /// Answers what can be answered without waiting. What cannot becomes a call, which keeps no more of its request
    /// than it needs, and has to be polled before anything else is waited for.
    fn begin_call(
        &self,
        bytes: &Bytes,
        peer: &Peer,
        out: &Arc<Stream>,
        task: &mut task::Context<'_>,
    ) -> PostState {
        if self.engine.protocol.cluster.is_some() {
            return PostState::Pending(self.message_future(bytes.clone(), peer.clone(), out));
        }
        let mut call = self.engine.begin(bytes, peer, out);
        if let Poll::Ready(reply) = call.poll(&self.engine, task) {
            return PostState::Done(reply);
        }
        let engine = Arc::clone(&self.engine);
        PostState::Pending(match call {
            // Thousands may be open, each for hours, so they get no second box.
            CallState::Subscription(subscription) => subscription,
            mut call => Box::pin(async move { engine.complete(&mut call).await }),
        })
    }

    fn message_future(&self, bytes: Bytes, peer: Peer, out: &Arc<Stream>) -> BoxFuture<'static, Reply> {
        let (entry, out) = (Arc::clone(&self.engine), Arc::clone(out));
        Box::pin(async move { entry.handle_message(&bytes, &peer, &out).await })
    }

    /// Answers by a stream. A call that outlives its reader becomes a task of its own; any other lives in
    /// the response and ends with it.
    fn stream_response(
        &self,
        peer: &Peer,
        out: &Arc<Stream>,
        call: Option<BoxFuture<'static, Reply>>,
    ) -> Response<Body> {
        let mut events;
        match self.engine.protocol.make_resumable(peer, out) {
            Some(ResumeInfo { number, sends_priming_event: primes, relay: pumped }) => {
                let source = match pumped {
                    Some((source, pump)) => {
                        self.tasks.spawn(pump);
                        source
                    }
                    None => Arc::clone(out),
                };
                events =
                    SseBody::new(source.reader(), self.options.sse_keep_alive).with_stream_number(number);
                if primes {
                    events = events.with_priming_event();
                }
            }
            None => events = SseBody::new(out.reader(), self.options.sse_keep_alive),
        }
        if let Some(call) = call {
            if out.outlives_reader() {
                self.tasks.spawn(run_detached(call, Arc::clone(out)));
            } else {
                events = events.with_call(call, Arc::clone(out));
            }
        }
        event_stream_response(events)
    }

    async fn get(
        self: &Arc<Self>,
        parts: &RequestHead,
        way: &MountContext,
        pass: Admitted,
    ) -> Response<Body> {
        let headers = &parts.headers;
        let refused = |fault: &ProtocolError| rejection_response(headers, way.dialect.as_ref(), fault);
        let scheme = pass.response_policy.scheme();
        let peer = peer_from_head(parts, Channel::Post { accepts_stream: true }, way, pass);
        if !headers.contains_key(SESSION_ID) {
            if headers.parsed().accepts.stream
                && let Some(subscriber) = self.engine.protocol.open_sessionless_stream(&peer)
            {
                return self.sessionless_stream(subscriber, peer);
            }
            let introduced = match headers.parsed().accepts.stream {
                true => None,
                false => {
                    let came_to = parts.extensions.get::<OriginalPath>();
                    let path = came_to.map_or_else(|| parts.uri.path(), |came_to| &came_to.0);
                    let here = self.guards.load().hosts.public_address(scheme, &parts.uri, headers, path);
                    self.engine.discovery_document(&peer, query_id(parts).as_deref(), &here)
                }
            };
            return introduced
                .map_or_else(|| method_not_allowed(parts, way, "POST"), |body| json_response(200, body));
        }
        if !headers.parsed().accepts.stream {
            return refused(
                &ProtocolError::invalid_request("a GET needs `Accept: text/event-stream`").with_status(406),
            );
        }
        let last = match single_value(headers, &LAST_EVENT_ID) {
            Ok(last) => last,
            Err(_) => {
                return refused(&ProtocolError::invalid_request("header last-event-id must be sent once"));
            }
        };
        if let Err(fault) = self.prepare(&peer).await {
            return refused(&fault);
        }
        if let Some(shared) = &self.engine.protocol.cluster {
            return match self.engine.protocol.open_cluster_stream(shared, &peer, last).await {
                Ok(ClusterStream { number, reader, driver: feed }) => event_stream_response(
                    SseBody::new(reader, self.options.sse_keep_alive)
                        .with_stream_number(number)
                        .with_feed(feed),
                ),
                Err(fault) => refused(&fault),
            };
        }
        let standing = match self.engine.protocol.open_get_stream(&peer, last) {
            Ok(standing) => standing,
            Err(fault) => return refused(&fault),
        };
        let reader = match standing.after {
            Some(after) => standing.stream.attach(after),
            None => Some(standing.stream.reader()),
        };
        let Some(reader) = reader else {
            return refused(&ProtocolError::invalid_request("that position in the stream is not available"));
        };
        let mut events =
            SseBody::new(reader, self.options.sse_keep_alive).with_stream_number(standing.number);
        if standing.number == 0 {
            let (entry, out, session) =
                (Arc::clone(&self.engine), Arc::clone(&standing.stream), standing.session);
            let feeding = Box::pin({
                let out = Arc::clone(&out);
                async move {
                    entry.protocol.send_session_changes(&session, &out).await;
                    Reply::NoResponse
                }
            });
            events = events.with_feed(feeding);
        }
        event_stream_response(events)
    }

    /// A stream of changes for who has no session. It cannot be resumed; whoever comes back hears what comes then.
    fn sessionless_stream(&self, subscriber: Arc<Subscriber>, peer: Peer) -> Response<Body> {
        let (entry, out) = (Arc::clone(&self.engine), Stream::new(Capacity::default()));
        let events =
            SseBody::new(out.reader(), self.options.sse_keep_alive).with_preamble(sse::retry_event());
        event_stream_response(events.with_feed(Box::pin(async move {
            entry.protocol.send_sessionless_changes(&subscriber, &peer, &out).await;
            Reply::NoResponse
        })))
    }

    /// What must be fetched before a request without a body can be answered.
    async fn prepare(&self, peer: &Peer) -> Result<(), ProtocolError> {
        match self.engine.protocol.prepare(peer) {
            Some(preparing) => preparing.await,
            None => Ok(()),
        }
    }

    async fn delete(&self, parts: &RequestHead, way: &MountContext, pass: Admitted) -> Response<Body> {
        if !parts.headers.contains_key(SESSION_ID) {
            return method_not_allowed(parts, way, "POST");
        }
        let peer = peer_from_head(parts, Channel::Post { accepts_stream: false }, way, pass);
        let ended = match self.prepare(&peer).await {
            Ok(()) => self.engine.protocol.end_session(&peer).await,
            Err(fault) => Err(fault),
        };
        match ended {
            Ok(()) => empty_response(StatusCode::NO_CONTENT),
            Err(fault) => rejection_response(&parts.headers, way.dialect.as_ref(), &fault),
        }
    }
}

/// When to come again, for dialects that say so in the error itself.
fn with_retry_after(fault: ProtocolError, refusal: &GuardRejection, way: &MountContext) -> ProtocolError {
    match (way.dialect.as_deref(), refusal.retry_after()) {
        (Some(dialect), Some(seconds)) if dialect.error_data => {
            fault.with_data(RawJson::from(serde_json::json!({ "retry_after": seconds })))
        }
        _ => fault,
    }
}

fn peer_from_head(parts: &RequestHead, road: Channel, way: &MountContext, pass: Admitted) -> Peer {
    let headers = Arc::clone(&parts.headers);
    Peer {
        remote_addr: client_address(way.remote_addr(parts), pass.client),
        principal: pass.principal,
        headers,
        via: road,
        dialect: way.dialect.clone(),
        transport: observe::Transport::Http,
    }
}

fn into_peer(parts: RequestHead, road: Channel, way: &MountContext, pass: Admitted) -> Peer {
    let remote = client_address(way.remote_addr(&parts), pass.client);
    let headers = parts.headers;
    let dialect = way.dialect.clone();
    Peer {
        remote_addr: remote,
        principal: pass.principal,
        headers,
        via: road,
        dialect,
        transport: observe::Transport::Http,
    }
}

/// Where a request comes from: what a proxy says that is believed, or else the other end of the connection.
fn client_address(remote: Option<SocketAddr>, client: Option<IpAddr>) -> Option<SocketAddr> {
    match client {
        Some(client) if remote.is_none_or(|remote| remote.ip() != client) => Some(SocketAddr::new(client, 0)),
        _ => remote,
    }
}

/// Whether a body is an array, before it is read for good.
fn is_batch(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().first() == Some(&b'[')
}

/// The id that an introduction is to carry.
fn query_id(parts: &RequestHead) -> Option<String> {
    let pairs = parts.uri.query()?.split('&');
    let id = { pairs }.find_map(|pair| pair.strip_prefix("id="))?;
    (!id.is_empty() && id.len() <= MAX_REQUEST_ID_BYTES).then(|| id.to_owned())
}

/// What a head says that came in.
// The largest variant is the common one, and lives where it is made.
#[allow(clippy::large_enum_variant)]
enum RequestClass {
    /// A message of somebody who may come in.
    Message {
        peer: Peer,
        accepts: Accepts,
        response_policy: ResponsePolicy,
    },
    General(Box<GeneralRequest>),
}

/// A head of which more has to be known, or that is none of a message.
struct GeneralRequest {
    head: RequestHead,
    mount: MountContext,
    admission: Result<Admission, Box<GuardRejection>>,
    accepts: Result<Accepts, ProtocolError>,
    route: Route,
}

/// What became of a message at once.
enum PostState {
    Done(Reply),
    /// It has to wait.
    Pending(BoxFuture<'static, Reply>),
}

/// What a call does first.
enum FirstOutput {
    Reply(Reply),
    /// It says something before it answers, or takes long.
    Streaming,
}

/// A call while its connection waits for what it does first. If the connection goes away meanwhile, a call
/// that outlives its reader goes on as a task.
struct PendingResponse {
    call: Option<BoxFuture<'static, Reply>>,
    out: Arc<Stream>,
    tasks: Tracker,
}

impl PendingResponse {
    async fn first_output(&mut self, patience: Option<Duration>) -> FirstOutput {
        let mut sleep = None;
        poll_fn(|cx| {
            let Some(call) = &mut self.call else {
                return Poll::Ready(FirstOutput::Streaming);
            };
            if let Poll::Ready(answer) = call.as_mut().poll(cx) {
                self.call = None;
                return Poll::Ready(FirstOutput::Reply(answer));
            }
            if self.out.poll_ready(cx).is_ready() {
                return Poll::Ready(FirstOutput::Streaming);
            }
            let Some(patience) = patience else {
                return Poll::Pending;
            };
            let sleep = sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
            sleep.as_mut().poll(cx).map(|()| FirstOutput::Streaming)
        })
        .await
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        let room = self.tasks.len() < MAX_DETACHED_CALLS && tokio::runtime::Handle::try_current().is_ok();
        if self.out.outlives_reader() && room {
            self.tasks.spawn(run_detached(call, Arc::clone(&self.out)));
        }
    }
}

async fn run_detached(call: BoxFuture<'static, Reply>, out: Arc<Stream>) {
    end_stream(&out, call.await);
}

/// The answer is the last message of a stream.
fn end_stream(out: &Stream, answer: Reply) {
    out.finish_with(match answer {
        Reply::Body { body, .. } => Some(body.into_bytes()),
        Reply::Accepted | Reply::NoResponse => None,
    });
}

/// The answer to a POST.
enum PostResponse {
    /// One message, with nothing said about it that not every answer says.
    Json {
        status: u16,
        body: Segments,
        session: Option<Box<str>>,
    },
    Other(Response<Body>),
}

fn post_response(answer: Reply, accepts: Accepts) -> PostResponse {
    PostResponse::Other(match answer {
        Reply::Accepted => empty_response(StatusCode::ACCEPTED),
        // The client took its question back: an empty stream answers it with nothing.
        Reply::NoResponse => {
            let mut response = empty_response(StatusCode::OK);
            response.headers_mut().insert(header::CONTENT_TYPE, post_headers::EVENT_STREAM);
            response
        }
        Reply::Body { status: 200, body, session_id: session, kind: told } if !accepts.json => {
            let mut events = sse::encode_event(None, &body.into_bytes());
            if let ReplyKind::Initialized(after) = &told {
                events = [events, sse::encode_event(None, after)].concat().into();
            }
            let mut response = Response::new(Body::full(events));
            sse_headers(response.headers_mut());
            set_session_header(&mut response, session);
            response
        }
        Reply::Body { status: 503, body, session_id: session, .. } => {
            let mut response = json_response(503, body.into_bytes());
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
            set_session_header(&mut response, session);
            response
        }
        Reply::Body { status, body, session_id: session, .. } => {
            return PostResponse::Json { status, body, session };
        }
    })
}

fn status_code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn set_session_header(response: &mut Response<Body>, session: Option<Box<str>>) {
    if let Some(id) = session.and_then(|id| HeaderValue::from_str(&id).ok()) {
        response.headers_mut().insert(SESSION_ID, id);
    }
}

fn json_response(status: u16, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = status_code(status);
    response.headers_mut().insert(header::CONTENT_TYPE, post_headers::JSON);
    set_default_headers(response.headers_mut());
    response
}

fn event_stream_response(events: SseBody) -> Response<Body> {
    let mut response = Response::new(Body::events(events));
    // hyper keeps the map of an answer for the next one, so a stream has it as long as it lasts: no larger than what
    // will be in it.
    *response.headers_mut() = HeaderMap::with_capacity(12);
    sse_headers(response.headers_mut());
    response
}

fn sse_headers(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_TYPE, post_headers::EVENT_STREAM);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

fn set_default_headers(headers: &mut HeaderMap) {
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

fn empty_response(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    set_default_headers(response.headers_mut());
    response
}

/// No such method of HTTP here. Dialects say it in words too.
fn method_not_allowed(parts: &RequestHead, way: &MountContext, allow: &'static str) -> Response<Body> {
    let mut response = match &way.dialect {
        Some(_) => {
            let fault =
                ProtocolError::invalid_request(format!("this address takes {allow}")).with_status(405);
            rejection_response(&parts.headers, way.dialect.as_ref(), &fault)
        }
        None => empty_response(StatusCode::METHOD_NOT_ALLOWED),
    };
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

fn preflight_response(headers: HeaderMap) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    *response.headers_mut() = headers;
    response
}

/// A refusal before the message was read, to somebody of whom only the headers are known.
pub(crate) fn rejection_response(
    headers: &HeaderMap,
    dialect: Option<&Arc<Dialect>>,
    fault: &ProtocolError,
) -> Response<Body> {
    let (status, body) = reject_head(headers, dialect, fault);
    let mut response = json_response(status, body);
    if status == 503 {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    }
    // Whoever sends these did not mean us, or sends a body that is not worth reading.
    if matches!(status, 401 | 403 | 413 | 415) { with_connection_close(response) } else { response }
}

fn with_connection_close(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_rejections_is_throttled() {
        let murmur = LogThrottle::default();
        let spoken = (0..1000).filter(|_| murmur.allow().is_some()).count();
        assert_eq!(spoken, 10);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(murmur.allow(), Some(990), "and what was not said is told");
    }

    /// What common allocators hand out fastest ends at about a kilobyte. Every request makes these two.
    #[test]
    fn a_call_stays_small() {
        let ServerService { inner, mount: way } =
            crate::Server::new("small", "1").build().unwrap().into_service();
        let body = Full::<Bytes>::default();
        let size = size_of_val(&Inner::serve(inner.acquire(), RequestHead::default(), body, &way));
        assert!(size <= 1024, "serving takes {size} bytes");
        let peer = into_peer(
            RequestHead::default(),
            Channel::Post { accepts_stream: true },
            &way,
            Admitted::default(),
        );
        let (bytes, out) = (Bytes::new(), Stream::new(Capacity::default()));
        let captured = size_of_val(&inner) + size_of_val(&bytes) + size_of_val(&peer) + size_of_val(&out);
        let size = captured + size_of_val(&inner.engine.handle_message(&bytes, &peer, &out));
        assert!(size <= 1024, "a call takes {size} bytes");
    }
}
