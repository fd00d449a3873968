//! HTTP: the endpoint as a `tower` service.
//!
//! One URL serves every edition: POST for messages, GET and DELETE for the streams and sessions of older
//! ones; `/sse` and `/messages` beside it are the two-endpoint form of the first. An answer is one JSON
//! body unless a call says something on the way: then it becomes a stream, and whoever reads the stream
//! drives the call. Who is let in is for the guards to say, before the body is read wherever that can be.

mod body;
mod duplex;
mod headers;
mod numbers;
mod page;
mod sse;

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
pub(crate) use numbers::{measures, no_numbers, told};
pub(crate) use page::nowhere;

use crate::clock::timer_now;
use crate::desk::{ShardedRef, ShardedArc};
use crate::entry::{Engine, CallState};
use crate::era::{Reply, ResumeInfo, Peer, Channel, ClusterStream, ReplyKind, reject_head};
use crate::guard::{Dress, Gate, Guards, Head, KeyRequest, Kind, Pass, Refusal, Why};
use crate::hub::Subscriber;
use crate::letterhead::{Accepts, LAST_EVENT, METHOD, NAME, REQUEST_ID, SESSION, VERSION, single};
use crate::observe;
use crate::parcel::Parcel;
use crate::request::{BoxFuture, Principal};
use crate::stream::{Capacity, Stream};
use crate::tracker::Tracker;
use crate::transport::Asked;
use crate::transport::listen::{Inbound, Remote, Serve};
use body::read;
use duplex::Pairs;
use sse::Events;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Calls whose clients left that may go on at once. One more ends with its client.
const ADOPTED: usize = 1024;

/// The longest such name that is given back.
const LONGEST_ID: usize = 128;

/// Where an endpoint's paths are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At this path of a host of its own; anything else is not found.
    Path(Arc<str>),
    /// Wherever it was mounted: the router in front has taken the path off.
    Mounted,
}

/// The path of a request before a router of ours took its own part off: among the extensions of a request.
#[derive(Clone, Debug)]
pub(crate) struct CameTo(pub(crate) Box<str>);

/// How a request came here.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) place: Place,
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
    pub(crate) patience: Duration,
    /// How often a silent stream says that it is still there.
    pub(crate) heartbeat: Duration,
    /// Whether the two-endpoint form of the first edition is there.
    pub(crate) has_pair: bool,
}

impl Default for HttpOptions {
    fn default() -> HttpOptions {
        HttpOptions {
            body_timeout: Duration::from_secs(30),
            patience: Duration::from_secs(5),
            heartbeat: Duration::from_secs(15),
            has_pair: true,
        }
    }
}

/// A server's HTTP endpoint: a `tower` service that mounts in axum, hyper and whatever else takes one.
///
/// Cloning is cheap. See `Server::into_service`.
#[derive(Clone)]
pub struct Endpoint {
    inner: Arc<ShardedArc<Inner>>,
    way: Way,
}

struct Inner {
    entry: Arc<Engine>,
    guards: Arc<ArcSwap<ShardedArc<Guards>>>,
    options: HttpOptions,
    /// Calls whose client left and that go on all the same.
    tasks: Tracker,
    pairs: Pairs,
    murmur: Murmur,
}

/// Whoever is refused a thousand times a second must not fill a log.
#[derive(Default)]
struct Murmur(Mutex<(Option<Instant>, u64)>);

impl Murmur {
    /// Lines in a second. What is more is counted, and told with the next that is written.
    const MOST: u64 = 10;

    /// None: not now. Else how many were not written since the last second.
    fn may_speak(&self) -> Option<u64> {
        let now = timer_now();
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (second, count) = &mut *state;
        if second.is_none_or(|second| now.duration_since(second) >= Duration::from_secs(1)) {
            let unsaid = count.saturating_sub(Murmur::MOST);
            (*second, *count) = (Some(now), 1);
            return Some(unsaid);
        }
        *count += 1;
        (*count <= Murmur::MOST).then_some(0)
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("place", &self.way.place).finish_non_exhaustive()
    }
}

impl Endpoint {
    pub(crate) fn new(
        entry: Arc<Engine>,
        guards: Arc<ArcSwap<ShardedArc<Guards>>>,
        options: HttpOptions,
    ) -> Endpoint {
        let (tasks, pairs) = (Tracker::new(), Pairs::default());
        let inner = Inner { entry, guards, options, tasks, pairs, murmur: Murmur::default() };
        Endpoint {
            inner: Arc::new(ShardedArc::new(inner)),
            way: Way { place: Place::Mounted, dialect: None, remote: None },
        }
    }

    /// The same at a path of its own.
    pub(crate) fn at(&self, path: &str) -> Endpoint {
        Endpoint {
            inner: Arc::clone(&self.inner),
            way: Way { place: Place::Path(path.into()), dialect: None, remote: None },
        }
    }

    /// Answers a request that came this way.
    pub(crate) async fn arrive<B>(&self, asked: Asked, body: B, way: Way) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Body::spelled_out(Inner::serve(self.inner.acquire(), asked, body, &way).await)
    }

    /// Waits until calls whose clients left have ended.
    pub(crate) async fn settle(&self) {
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }
}

/// What clients of the protocol say in every head.
pub(crate) static NAMES: [HeaderName; 4] = [VERSION, SESSION, METHOD, NAME];

impl Serve for Endpoint {
    type Body = Body;

    fn names() -> &'static [HeaderName] {
        &NAMES
    }

    fn met_at(&self, remote: SocketAddr) -> Endpoint {
        Endpoint { inner: Arc::clone(&self.inner), way: Way { remote: Some(remote), ..self.way.clone() } }
    }

    fn lines(body: &Body) -> &[u8] {
        body.lines()
    }

    fn spelled_out(response: Response<Body>) -> Response<Body> {
        Body::spelled_out(response)
    }

    fn answer(&self, asked: Asked, body: Inbound) -> BoxFuture<'static, Response<Body>> {
        Box::pin(Inner::serve(self.inner.acquire(), asked, body, &self.way))
    }
}

impl<B> Service<Request<B>> for Endpoint
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
        let serving = Inner::serve(self.inner.acquire(), parts.into(), body, &self.way);
        Box::pin(async move { Ok(Body::spelled_out(serving.await)) })
    }
}

/// What a path leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Door {
    Messages,
    PairStream,
    PairMessages,
    Nowhere,
}

impl Way {
    /// The other end of the connection, as our listener or a layer in front of us says.
    fn remote(&self, parts: &Asked) -> Option<SocketAddr> {
        self.remote.or_else(|| parts.extensions.get::<Remote>().map(|remote| remote.0))
    }

    fn door(&self, path: &str) -> Door {
        match (&self.place, path) {
            (_, "/sse") => Door::PairStream,
            (_, "/messages") => Door::PairMessages,
            (Place::Mounted, _) => Door::Messages,
            (Place::Path(own), path) if path == &**own || path.strip_suffix('/') == Some(own) => {
                Door::Messages
            }
            (Place::Path(_), _) => Door::Nowhere,
        }
    }
}

impl Inner {
    /// What can be judged by the head is judged before anything is waited for. Nearly all requests are messages of
    /// somebody who may come in: those keep nothing of their head but what is needed to answer them.
    fn serve<B>(
        house: ShardedRef<Inner>,
        mut parts: Asked,
        body: B,
        way: &Way,
    ) -> impl Future<Output = Response<Body>> + Send + use<B>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let guards = house.guards.load().acquire();
        let usual = if way.dialect.is_none() { house.entry.dialect.load() } else { None };
        let usual = usual.map(|dialect| Way { dialect: Some(dialect), ..way.clone() });
        let way = usual.as_ref().unwrap_or(way);
        let mut named = None;
        if parts.headers.glance().is_named || house.names(way) {
            named = Inner::name(&mut parts);
        }
        let gate = house.gate(&guards, &parts, way);
        let checked = headers::check(parts.headers.glance(), house.limit(&guards));
        let door = way.door(parts.uri.path());
        let is_message = door == Door::Messages && parts.method == Method::POST;
        let came = match (gate, checked) {
            (Ok(Gate::Open(pass)), Ok(accepts)) if is_message && !guards.counts_together() => {
                let accepts = headers::for_dialect(accepts, &parts.headers, way.dialect.as_deref());
                let dress = pass.dress.clone();
                let peer = peer(parts, Channel::Post { accepts_stream: accepts.stream }, way, pass);
                Came::Message { peer, accepts, dress }
            }
            (gate, checked) => Came::Other(Box::new(Other { parts, way: way.clone(), gate, checked, door })),
        };
        async move {
            let mut response = match came {
                Came::Message { peer, accepts, dress } => {
                    let limit = house.limit(&guards);
                    match read(pin!(body), limit, house.options.body_timeout).await {
                        Ok(bytes) => house.post(&guards, &dress, &peer, accepts, bytes).await,
                        Err(unread) => {
                            let mut response = closing(house.unread(&peer, &unread.fault(limit)));
                            guards.dress(response.headers_mut(), &dress);
                            response
                        }
                    }
                }
                Came::Other(came) => Box::pin(house.serve_other(&guards, *came, body)).await,
            };
            if let Some(name) = named {
                response = Body::spelled_out(response);
                response.headers_mut().insert(REQUEST_ID, *name);
            }
            response
        }
    }

    /// The same for what is no message, or asks for more than a look at its head.
    async fn serve_other<B>(self: &Arc<Self>, guards: &Guards, other: Other, body: B) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let Other { parts, way, gate, checked, door } = other;
        let mut dress = Dress::default();
        let mut response = 'answer: {
            let gate = match gate {
                Ok(Gate::Prove(claim)) => Box::pin(guards.prove(claim)).await,
                gate => gate,
            };
            let gate = match gate {
                Ok(Gate::Preflight(headers)) => break 'answer preflight(*headers),
                Ok(gate) => gate,
                Err(refusal) => break 'answer self.turn_away(&parts, &way, *refusal, &mut dress),
            };
            dress = gate.dress();
            if door != Door::Messages || parts.method != Method::POST {
                break 'answer self.other(guards, gate, parts, &way, body, door, &mut dress).await;
            }
            let accepts = match checked {
                Ok(accepts) => headers::for_dialect(accepts, &parts.headers, way.dialect.as_deref()),
                Err(fault) => break 'answer self.turn_back(&parts, &way, &fault),
            };
            let limit = self.limit(guards);
            let bytes = match read(pin!(body), limit, self.options.body_timeout).await {
                Ok(bytes) => bytes,
                Err(unread) => break 'answer closing(self.turn_back(&parts, &way, &unread.fault(limit))),
            };
            let pass = match gate {
                Gate::Open(pass) => pass,
                // A provider is told of one method: what holds several must not go by as none.
                Gate::Key(_) if is_batch(&bytes) => {
                    let fault = ProtocolError::invalid_request("batches are not taken where API keys are asked for");
                    break 'answer self.turn_back(&parts, &way, &fault);
                }
                gate => match self.unlock(guards, gate, &parts, &bytes).await {
                    Ok(pass) => pass,
                    Err(refusal) => break 'answer self.turn_away(&parts, &way, *refusal, &mut dress),
                },
            };
            if guards.counts_together()
                && let Err(refusal) = guards.count(&pass, &self.entry.scoped_store).await
            {
                break 'answer self.turn_away(&parts, &way, *refusal, &mut dress);
            }
            let peer = peer(parts, Channel::Post { accepts_stream: accepts.stream }, &way, pass);
            return self.post(guards, &dress, &peer, accepts, bytes).await;
        };
        guards.dress(response.headers_mut(), &dress);
        response
    }

    /// Everything but messages: streams, sessions, the two doors of the first edition, and what leads nowhere.
    #[allow(clippy::too_many_arguments)]
    async fn other<B>(
        self: &Arc<Self>,
        guards: &Guards,
        gate: Gate,
        parts: Asked,
        way: &Way,
        body: B,
        door: Door,
        dress: &mut Dress,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let allowed = match door {
            Door::Nowhere => return plain(StatusCode::NOT_FOUND),
            Door::PairStream | Door::PairMessages if !self.options.has_pair => {
                return plain(StatusCode::NOT_FOUND);
            }
            Door::Messages => "GET, POST, DELETE",
            Door::PairStream => "GET",
            Door::PairMessages => "POST",
        };
        if !allowed.split(", ").any(|method| method == parts.method.as_str()) {
            return not_allowed(&parts, way, allowed);
        }
        let mut bytes = Bytes::new();
        if door == Door::PairMessages {
            let limit = self.limit(guards);
            if let Err(fault) = headers::check(parts.headers.glance(), limit) {
                return self.turn_back(&parts, way, &fault);
            }
            bytes = match read(pin!(body), limit, self.options.body_timeout).await {
                Ok(bytes) => bytes,
                Err(unread) => return closing(self.turn_back(&parts, way, &unread.fault(limit))),
            };
            if matches!(gate, Gate::Key(_)) && is_batch(&bytes) {
                let fault = ProtocolError::invalid_request("batches are not taken where API keys are asked for");
                return self.turn_back(&parts, way, &fault);
            }
        }
        let pass = match self.unlock(guards, gate, &parts, &bytes).await {
            Ok(pass) => pass,
            Err(refusal) => return self.turn_away(&parts, way, *refusal, dress),
        };
        if guards.counts_together()
            && let Err(refusal) = guards.count(&pass, &self.entry.scoped_store).await
        {
            return self.turn_away(&parts, way, *refusal, dress);
        }
        match (door, &parts.method) {
            (Door::PairStream, _) => self.pair_stream(&parts, way, pass),
            (Door::PairMessages, _) => self.pair_message(parts, way, pass, bytes),
            (_, &Method::GET) => self.get(&parts, way, pass).await,
            _ => self.delete(&parts, way, pass).await,
        }
    }

    fn gate(&self, guards: &Guards, parts: &Asked, way: &Way) -> Result<Gate, Box<Refusal>> {
        // Only who is asked for credentials is told who asks.
        let face = guards.asks().then(|| self.entry.protocol.server_info.load());
        guards.gate(&Head {
            method: &parts.method,
            uri: &parts.uri,
            headers: &parts.headers,
            glance: parts.headers.glance(),
            peer: way.remote(parts).map(|remote| remote.ip()),
            is_tls: false,
            principal: parts.extensions.get::<Principal>(),
            server: face.as_ref().map_or("", |face| &face.implementation.name),
            is_literal: way.dialect.as_ref().is_some_and(|dialect| dialect.cors_literal_wildcard),
        })
    }

    /// Checks a key, where one is still to be checked.
    async fn unlock(
        &self,
        guards: &Guards,
        gate: Gate,
        parts: &Asked,
        body: &Bytes,
    ) -> Result<Pass, Box<Refusal>> {
        let claim = match gate {
            Gate::Open(pass) => return Ok(pass),
            Gate::Key(claim) | Gate::Prove(claim) => claim,
            Gate::Preflight(_) => return Ok(Pass::default()),
        };
        let mut request = KeyRequest::new(&*self.entry.protocol.server_info.load().implementation.name)
            .with_body(body.clone())
            .with_headers(HeaderMap::clone(&parts.headers))
            .with_http_method(parts.method.clone())
            .with_remote_addr(claim.client());
        if let Some(id) = parts.headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()) {
            request = request.with_request_id(id);
        }
        guards.key(claim, request).await
    }

    /// Whether somebody may ask for the name of a request that has none.
    fn names(&self, way: &Way) -> bool {
        way.dialect.as_ref().is_some_and(|dialect| dialect.lenient) || !self.entry.observer.events.is_silent()
    }

    /// What this request is called: as its sender says, or a name of our own.
    fn name(parts: &mut Asked) -> Option<Box<HeaderValue>> {
        if parts.headers.glance().is_named
            && let Some(name) = parts.headers.get(REQUEST_ID)
        {
            return (name.len() <= LONGEST_ID).then(|| Box::new(name.clone()));
        }
        let name = HeaderValue::from_str(&crate::seal::random_token()).ok()?;
        Arc::make_mut(&mut parts.headers).set_name(name.clone());
        Some(Box::new(name))
    }

    fn limit(&self, guards: &Guards) -> usize {
        let most = self.entry.limits.max_bytes;
        guards.body_limit.map_or(most, |limit| limit.min(most))
    }

    /// Says no in the name of a guard, and counts it.
    fn turn_away(&self, parts: &Asked, way: &Way, refusal: Refusal, dress: &mut Dress) -> Response<Body> {
        let message = refusal.message.as_ref();
        let fault = match refusal.why {
            Why::BadHead | Why::Host | Why::Origin | Why::Address => ProtocolError::invalid_request(message),
            Why::TooLarge { .. } => ProtocolError::new(ProtocolErrorKind::TooLarge, message),
            Why::TooMany | Why::TooManyFailures(_) | Why::Busy => ProtocolError::new(ProtocolErrorKind::RateLimited, message),
            Why::Credentials(_) | Why::Forbidden => ProtocolError::new(ProtocolErrorKind::Unauthorized, message),
            Why::Unavailable => ProtocolError::new(ProtocolErrorKind::Busy, message),
        };
        self.note(parts, way, refusal.why, message);
        let fault = explained(fault, &refusal, way).with_status(refusal.why.status());
        let mut response = refuse_at(&parts.headers, way.dialect.as_ref(), &fault);
        refusal.explain(response.headers_mut());
        *dress = refusal.dress;
        response
    }

    fn note(&self, parts: &Asked, way: &Way, why: Why, message: &str) {
        let counted = match why {
            Why::Credentials(Kind::ApiKey) | Why::TooManyFailures(Kind::ApiKey) => {
                Some(observe::Refusal::ApiKey)
            }
            Why::Credentials(_) | Why::Forbidden | Why::TooManyFailures(_) => Some(observe::Refusal::Auth),
            Why::TooLarge { .. } => Some(observe::Refusal::BodySize),
            Why::Address => Some(observe::Refusal::Ip),
            Why::Host | Why::Origin => Some(observe::Refusal::Origin),
            Why::TooMany | Why::Busy => Some(observe::Refusal::Rate),
            Why::BadHead | Why::Unavailable => None,
        };
        if let Some(counted) = counted {
            self.entry.observer.refused(counted, observe::Transport::Http, self.origin(parts, way), message);
        }
        if let Some(unsaid) = self.murmur.may_speak() {
            tracing::info!(?why, message, remote = ?self.origin(parts, way), unsaid, "refused");
        }
    }

    /// Where a request comes from that was not let in.
    fn origin(&self, parts: &Asked, way: &Way) -> Option<SocketAddr> {
        let remote = way.remote(parts);
        let client = self.guards.load().client(remote.map(|remote| remote.ip()), &parts.headers);
        client_address(remote, client)
    }

    /// Says no because of what is wrong with the request itself.
    fn turn_back(&self, parts: &Asked, way: &Way, fault: &ProtocolError) -> Response<Body> {
        if fault.kind() == ProtocolErrorKind::TooLarge {
            let (http, remote) = (observe::Transport::Http, self.origin(parts, way));
            self.entry.observer.refused(observe::Refusal::BodySize, http, remote, fault.message());
        }
        refuse_at(&parts.headers, way.dialect.as_ref(), fault)
    }

    /// Says no because the body of a message cannot be read.
    fn unread(&self, peer: &Peer, fault: &ProtocolError) -> Response<Body> {
        if fault.kind() == ProtocolErrorKind::TooLarge {
            let (http, remote) = (observe::Transport::Http, peer.remote_addr);
            self.entry.observer.refused(observe::Refusal::BodySize, http, remote, fault.message());
        }
        refuse_at(&peer.headers, peer.dialect.as_ref(), fault)
    }

    /// Answers a message, with all that every answer carries.
    async fn post(
        &self,
        guards: &Guards,
        dress: &Dress,
        peer: &Peer,
        accepts: Accepts,
        bytes: Bytes,
    ) -> Response<Body> {
        let out = Stream::new(Capacity::default());
        let begun = poll_fn(|task| Poll::Ready(self.begin_here(&bytes, peer, &out, task))).await;
        let posted = match begun {
            Begun::Answer(answer) if !out.is_ready() => answered(answer, accepts),
            Begun::Answer(answer) => {
                conclude(&out, answer);
                Posted::Other(self.stream(peer, &out, None))
            }
            // Boxed, because it is rare: what is common stays small.
            Begun::Call(call) => {
                drop(bytes);
                Box::pin(self.wait(call, peer, out, accepts)).await
            }
        };
        match posted {
            // Nearly all answers are these, and begin with headers that are ready.
            Posted::Json { status, body, session } => {
                let body = Body::parcel(body);
                let mut response = match guards.outfit(dress).filter(|_| session.is_none()) {
                    Some(outfit) => Response::new(body.wearing(outfit)),
                    None => {
                        let mut response = Response::new(body);
                        *response.headers_mut() = guards.json(dress);
                        with_session(&mut response, session);
                        response
                    }
                };
                *response.status_mut() = status_of(status);
                response
            }
            Posted::Other(mut response) => {
                guards.dress(response.headers_mut(), dress);
                response
            }
        }
    }

    /// Waits for what a call does first.
    async fn wait(
        &self,
        call: BoxFuture<'static, Reply>,
        peer: &Peer,
        out: Arc<Stream>,
        accepts: Accepts,
    ) -> Posted {
        let mut driving = Driving { call: Some(call), out: Arc::clone(&out), tasks: self.tasks.clone() };
        let patience = accepts.stream.then_some(self.options.patience);
        match driving.first(patience).await {
            First::Answer(answer) if !out.is_ready() => answered(answer, accepts),
            First::Answer(answer) => {
                conclude(&out, answer);
                Posted::Other(self.stream(peer, &out, None))
            }
            First::Stirred => {
                let call = driving.call.take();
                Posted::Other(self.stream(peer, &out, call))
            }
        }
    }

    /// Answers what can be answered without waiting. What cannot becomes a call, which keeps no more of its request
    /// than it needs, and has to be polled before anything else is waited for.
    fn begin_here(
        &self,
        bytes: &Bytes,
        peer: &Peer,
        out: &Arc<Stream>,
        task: &mut task::Context<'_>,
    ) -> Begun {
        if self.entry.protocol.cluster.is_some() {
            return Begun::Call(self.begin(bytes.clone(), peer.clone(), out));
        }
        let mut started = self.entry.begin(bytes, peer, out);
        if let Some(answer) = self.entry.poll_once(&mut started, task) {
            return Begun::Answer(answer);
        }
        let entry = Arc::clone(&self.entry);
        Begun::Call(match started {
            // Thousands may listen, each for hours.
            CallState::Subscription(listening) => Box::pin(async move { entry.protocol.serve_subscription(&listening).await }),
            started if started.needs_peer() => {
                let (peer, out) = (peer.clone(), Arc::clone(out));
                Box::pin(async move { entry.complete(started, &peer, &out).await })
            }
            mut started => Box::pin(async move { entry.complete_without_peer(&mut started).await }),
        })
    }

    fn begin(&self, bytes: Bytes, peer: Peer, out: &Arc<Stream>) -> BoxFuture<'static, Reply> {
        let (entry, out) = (Arc::clone(&self.entry), Arc::clone(out));
        Box::pin(async move { entry.handle_message(&bytes, &peer, &out).await })
    }

    /// Answers by a stream. A call that outlives its reader becomes a task of its own; any other lives in
    /// the response and ends with it.
    fn stream(
        &self,
        peer: &Peer,
        out: &Arc<Stream>,
        call: Option<BoxFuture<'static, Reply>>,
    ) -> Response<Body> {
        let mut events;
        match self.entry.protocol.make_resumable(peer, out) {
            Some(ResumeInfo { number, sends_priming_event: primes, relay: pumped }) => {
                let source = match pumped {
                    Some((source, pump)) => {
                        self.tasks.spawn(pump);
                        source
                    }
                    None => Arc::clone(out),
                };
                events = Events::new(source.reader(), self.options.heartbeat).numbered(number);
                if primes {
                    events = events.primed();
                }
            }
            None => events = Events::new(out.reader(), self.options.heartbeat),
        }
        if let Some(call) = call {
            if out.outlives_reader() {
                self.tasks.spawn(finish(call, Arc::clone(out)));
            } else {
                events = events.driving(call, Arc::clone(out));
            }
        }
        event_stream(events)
    }

    async fn get(self: &Arc<Self>, parts: &Asked, way: &Way, pass: Pass) -> Response<Body> {
        let headers = &parts.headers;
        let refused = |fault: &ProtocolError| refuse_at(headers, way.dialect.as_ref(), fault);
        let scheme = pass.dress.scheme();
        let peer = peer_of(parts, Channel::Post { accepts_stream: true }, way, pass);
        if !headers.contains_key(SESSION) {
            if headers.glance().accepts.stream
                && let Some(subscriber) = self.entry.protocol.open_sessionless_stream(&peer)
            {
                return self.stream_unnamed(subscriber, peer);
            }
            let introduced = match headers.glance().accepts.stream {
                true => None,
                false => {
                    let came_to = parts.extensions.get::<CameTo>();
                    let path = came_to.map_or_else(|| parts.uri.path(), |came_to| &came_to.0);
                    let here = self.guards.load().hosts.address(scheme, &parts.uri, headers, path);
                    self.entry.discovery_document(&peer, query_id(parts).as_deref(), &here)
                }
            };
            return introduced.map_or_else(|| not_allowed(parts, way, "POST"), |body| json(200, body));
        }
        if !headers.glance().accepts.stream {
            return refused(&ProtocolError::invalid_request("a GET needs `Accept: text/event-stream`").with_status(406));
        }
        let last = match single(headers, &LAST_EVENT) {
            Ok(last) => last,
            Err(_) => return refused(&ProtocolError::invalid_request("header last-event-id must be sent once")),
        };
        if let Err(fault) = self.prepare(&peer).await {
            return refused(&fault);
        }
        if let Some(shared) = &self.entry.protocol.cluster {
            return match self.entry.protocol.open_cluster_stream(shared, &peer, last).await {
                Ok(ClusterStream { number, reader, driver: feed }) => {
                    event_stream(Events::new(reader, self.options.heartbeat).numbered(number).feeding(feed))
                }
                Err(fault) => refused(&fault),
            };
        }
        let standing = match self.entry.protocol.open_get_stream(&peer, last) {
            Ok(standing) => standing,
            Err(fault) => return refused(&fault),
        };
        let reader = match standing.after {
            Some(after) => standing.stream.attach(after),
            None => Some(standing.stream.reader()),
        };
        let Some(reader) = reader else {
            return refused(&ProtocolError::invalid_request("that place in the stream is gone or never was"));
        };
        let mut events = Events::new(reader, self.options.heartbeat).numbered(standing.number);
        if standing.number == 0 {
            let (entry, out, session) =
                (Arc::clone(&self.entry), Arc::clone(&standing.stream), standing.session);
            let feeding = Box::pin({
                let out = Arc::clone(&out);
                async move {
                    entry.protocol.send_session_changes(&session, &out).await;
                    Reply::NoResponse
                }
            });
            events = events.feeding(feeding);
        }
        event_stream(events)
    }

    /// A stream of changes for who has no session. It cannot be resumed; whoever comes back hears what comes then.
    fn stream_unnamed(&self, subscriber: Arc<Subscriber>, peer: Peer) -> Response<Body> {
        let (entry, out) = (Arc::clone(&self.entry), Stream::new(Capacity::default()));
        let events = Events::new(out.reader(), self.options.heartbeat).opening(sse::retry());
        event_stream(events.feeding(Box::pin(async move {
            entry.protocol.send_sessionless_changes(&subscriber, &peer, &out).await;
            Reply::NoResponse
        })))
    }

    /// What must be fetched before a request without a body can be answered.
    async fn prepare(&self, peer: &Peer) -> Result<(), ProtocolError> {
        match self.entry.protocol.prepare(peer) {
            Some(preparing) => preparing.await,
            None => Ok(()),
        }
    }

    async fn delete(&self, parts: &Asked, way: &Way, pass: Pass) -> Response<Body> {
        if !parts.headers.contains_key(SESSION) {
            return not_allowed(parts, way, "POST");
        }
        let peer = peer_of(parts, Channel::Post { accepts_stream: false }, way, pass);
        let ended = match self.prepare(&peer).await {
            Ok(()) => self.entry.protocol.end_session(&peer).await,
            Err(fault) => Err(fault),
        };
        match ended {
            Ok(()) => plain(StatusCode::NO_CONTENT),
            Err(fault) => refuse_at(&parts.headers, way.dialect.as_ref(), &fault),
        }
    }
}

/// When to come again, for dialects that say so in the error itself.
fn explained(fault: ProtocolError, refusal: &Refusal, way: &Way) -> ProtocolError {
    match (way.dialect.as_deref(), refusal.retry_after()) {
        (Some(dialect), Some(seconds)) if dialect.error_data => {
            fault.with_data(RawJson::from(serde_json::json!({ "retry_after": seconds })))
        }
        _ => fault,
    }
}

fn peer_of(parts: &Asked, road: Channel, way: &Way, pass: Pass) -> Peer {
    let headers = Arc::clone(&parts.headers);
    Peer {
        remote_addr: client_address(way.remote(parts), pass.client),
        principal: pass.principal,
        headers,
        via: road,
        dialect: way.dialect.clone(),
        transport: observe::Transport::Http,
        is_rewritten: false,
    }
}

fn peer(parts: Asked, road: Channel, way: &Way, pass: Pass) -> Peer {
    let remote = client_address(way.remote(&parts), pass.client);
    let headers = parts.headers;
    let dialect = way.dialect.clone();
    Peer {
        remote_addr: remote,
        principal: pass.principal,
        headers,
        via: road,
        dialect,
        transport: observe::Transport::Http,
        is_rewritten: false,
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
fn query_id(parts: &Asked) -> Option<String> {
    let pairs = parts.uri.query()?.split('&');
    let id = { pairs }.find_map(|pair| pair.strip_prefix("id="))?;
    (!id.is_empty() && id.len() <= LONGEST_ID).then(|| id.to_owned())
}

/// What a head says that came in.
// The largest variant is the common one, and lives where it is made.
#[allow(clippy::large_enum_variant)]
enum Came {
    /// A message of somebody who may come in.
    Message {
        peer: Peer,
        accepts: Accepts,
        dress: Dress,
    },
    Other(Box<Other>),
}

/// A head of which more has to be known, or that is none of a message.
struct Other {
    parts: Asked,
    way: Way,
    gate: Result<Gate, Box<Refusal>>,
    checked: Result<Accepts, ProtocolError>,
    door: Door,
}

/// What became of a message at once.
enum Begun {
    Answer(Reply),
    /// It has to wait.
    Call(BoxFuture<'static, Reply>),
}

/// What a call does first.
enum First {
    Answer(Reply),
    /// It says something before it answers, or takes long.
    Stirred,
}

/// A call while its connection waits for what it does first. If the connection goes away meanwhile, a call
/// that outlives its reader goes on as a task.
struct Driving {
    call: Option<BoxFuture<'static, Reply>>,
    out: Arc<Stream>,
    tasks: Tracker,
}

impl Driving {
    async fn first(&mut self, patience: Option<Duration>) -> First {
        let mut sleep = None;
        poll_fn(|cx| {
            let Some(call) = &mut self.call else {
                return Poll::Ready(First::Stirred);
            };
            if let Poll::Ready(answer) = call.as_mut().poll(cx) {
                self.call = None;
                return Poll::Ready(First::Answer(answer));
            }
            if self.out.poll_ready(cx).is_ready() {
                return Poll::Ready(First::Stirred);
            }
            let Some(patience) = patience else {
                return Poll::Pending;
            };
            let sleep = sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
            sleep.as_mut().poll(cx).map(|()| First::Stirred)
        })
        .await
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        let room = self.tasks.len() < ADOPTED && tokio::runtime::Handle::try_current().is_ok();
        if self.out.outlives_reader() && room {
            self.tasks.spawn(finish(call, Arc::clone(&self.out)));
        }
    }
}

async fn finish(call: BoxFuture<'static, Reply>, out: Arc<Stream>) {
    conclude(&out, call.await);
}

/// The answer is the last message of a stream.
fn conclude(out: &Stream, answer: Reply) {
    out.finish_with(match answer {
        Reply::Body { body, .. } => Some(body.whole()),
        Reply::Accepted | Reply::NoResponse => None,
    });
}

/// The answer to a POST.
enum Posted {
    /// One message, with nothing said about it that not every answer says.
    Json {
        status: u16,
        body: Parcel,
        session: Option<Box<str>>,
    },
    Other(Response<Body>),
}

fn answered(answer: Reply, accepts: Accepts) -> Posted {
    Posted::Other(match answer {
        Reply::Accepted => plain(StatusCode::ACCEPTED),
        // The client took its question back: an empty stream answers it with nothing.
        Reply::NoResponse => {
            let mut response = plain(StatusCode::OK);
            response.headers_mut().insert(header::CONTENT_TYPE, headers::EVENT_STREAM);
            response
        }
        Reply::Body { status: 200, body, session_id: session, kind: told } if !accepts.json => {
            let mut events = sse::event(None, &body.whole());
            if let ReplyKind::Initialized(after) = &told {
                events = [events, sse::event(None, after)].concat().into();
            }
            let mut response = Response::new(Body::full(events));
            sse_headers(response.headers_mut());
            with_session(&mut response, session);
            response
        }
        Reply::Body { status: 503, body, session_id: session, .. } => {
            let mut response = json(503, body.whole());
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
            with_session(&mut response, session);
            response
        }
        Reply::Body { status, body, session_id: session, .. } => return Posted::Json { status, body, session },
    })
}

fn status_of(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn with_session(response: &mut Response<Body>, session: Option<Box<str>>) {
    if let Some(id) = session.and_then(|id| HeaderValue::from_str(&id).ok()) {
        response.headers_mut().insert(SESSION, id);
    }
}

fn json(status: u16, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = status_of(status);
    response.headers_mut().insert(header::CONTENT_TYPE, headers::JSON);
    harden(response.headers_mut());
    response
}

fn event_stream(events: Events) -> Response<Body> {
    let mut response = Response::new(Body::events(events));
    // hyper keeps the map of an answer for the next one, so a stream has it as long as it lasts: no larger than what
    // will be in it.
    *response.headers_mut() = HeaderMap::with_capacity(12);
    sse_headers(response.headers_mut());
    response
}

fn sse_headers(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_TYPE, headers::EVENT_STREAM);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

fn harden(headers: &mut HeaderMap) {
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

fn plain(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    harden(response.headers_mut());
    response
}

/// No such method of HTTP here. Dialects say it in words too.
fn not_allowed(parts: &Asked, way: &Way, allow: &'static str) -> Response<Body> {
    let mut response = match &way.dialect {
        Some(_) => {
            let fault = ProtocolError::invalid_request(format!("this address takes {allow}")).with_status(405);
            refuse_at(&parts.headers, way.dialect.as_ref(), &fault)
        }
        None => plain(StatusCode::METHOD_NOT_ALLOWED),
    };
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

fn preflight(headers: HeaderMap) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    *response.headers_mut() = headers;
    response
}

/// A refusal before the message was read, to somebody of whom only the headers are known.
pub(crate) fn refuse_at(
    headers: &HeaderMap,
    dialect: Option<&Arc<Dialect>>,
    fault: &ProtocolError,
) -> Response<Body> {
    let (status, body) = reject_head(headers, dialect, fault);
    let mut response = json(status, body);
    if status == 503 {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    }
    // Whoever sends these did not mean us, or sends a body that is not worth reading.
    if matches!(status, 401 | 403 | 413 | 415) { closing(response) } else { response }
}

fn closing(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_refusals_is_a_murmur() {
        let murmur = Murmur::default();
        let spoken = (0..1000).filter(|_| murmur.may_speak().is_some()).count();
        assert_eq!(spoken, 10);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(murmur.may_speak(), Some(990), "and what was not said is told");
    }

    /// What common allocators hand out fastest ends at about a kilobyte. Every request makes these two.
    #[test]
    fn a_call_stays_small() {
        let Endpoint { inner, way } = crate::Server::new("small", "1").build().unwrap().into_service();
        let body = Full::<Bytes>::default();
        let size = size_of_val(&Inner::serve(inner.acquire(), Asked::default(), body, &way));
        assert!(size <= 1024, "serving takes {size} bytes");
        let peer = peer(Asked::default(), Channel::Post { accepts_stream: true }, &way, Pass::default());
        let (bytes, out) = (Bytes::new(), Stream::new(Capacity::default()));
        let captured = size_of_val(&inner) + size_of_val(&bytes) + size_of_val(&peer) + size_of_val(&out);
        let size = captured + size_of_val(&inner.entry.handle_message(&bytes, &peer, &out));
        assert!(size <= 1024, "a call takes {size} bytes");
    }
}
