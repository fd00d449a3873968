//! HTTP: the endpoint as a `tower` service.
//!
//! One URL serves every edition: POST for messages, GET and DELETE for the streams and sessions of older
//! ones; `/sse` and `/messages` beside it are the two-endpoint form of the first. An answer is one JSON
//! body unless a call says something on the way: then it becomes a stream, and whoever reads the stream
//! drives the call.

mod body;
mod duplex;
mod headers;
mod sse;

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use tokio_util::task::TaskTracker;
use toolgate_wire::Fault;
use tower_service::Service;

pub use body::Body;

use crate::entry::Entry;
use crate::era::{Answer, LAST_EVENT, Peer, Road, SESSION, refuse, single};
use crate::guard::{Hosts, Refused};
use crate::request::{BoxFuture, Principal};
use crate::stream::{Capacity, Stream};
use crate::transport::listen::Remote;
use body::{Lazy, TooLong, read};
use duplex::Pairs;
use sse::Events;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Calls whose clients left that may go on at once. One more ends with its client.
const ADOPTED: usize = 1024;

/// Where an endpoint's paths are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At this path of a host of its own; anything else is not found.
    Path(String),
    /// Wherever it was mounted: the router in front has taken the path off.
    Mounted,
}

/// What an endpoint can be told.
#[derive(Clone, Debug)]
pub(crate) struct HttpOptions {
    pub(crate) place: Place,
    pub(crate) hosts: Hosts,
    /// How long a body may take to arrive.
    pub(crate) body_timeout: Duration,
    /// A call that says nothing for so long is answered by a stream, which can be kept alive and resumed.
    pub(crate) patience: Duration,
    /// How often a silent stream says that it is still there.
    pub(crate) heartbeat: Duration,
}

impl Default for HttpOptions {
    fn default() -> HttpOptions {
        HttpOptions {
            place: Place::Mounted,
            hosts: Hosts::default(),
            body_timeout: Duration::from_secs(30),
            patience: Duration::from_secs(5),
            heartbeat: Duration::from_secs(15),
        }
    }
}

/// A server's HTTP endpoint: a `tower` service that mounts in axum, hyper and whatever else takes one.
///
/// Cloning is cheap. See `Server::into_service`.
#[derive(Clone)]
pub struct Endpoint(Arc<Inner>);

struct Inner {
    entry: Arc<Entry>,
    options: HttpOptions,
    /// Calls whose client left and that go on all the same.
    tasks: TaskTracker,
    pairs: Pairs,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").finish_non_exhaustive()
    }
}

impl Endpoint {
    pub(crate) fn new(entry: Arc<Entry>, options: HttpOptions) -> Endpoint {
        Endpoint(Arc::new(Inner { entry, options, tasks: TaskTracker::new(), pairs: Pairs::default() }))
    }

    /// Waits until calls whose clients left have ended.
    pub(crate) async fn settle(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
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
        let inner = Arc::clone(&self.0);
        Box::pin(async move { Ok(inner.serve(request).await) })
    }
}

/// What a path leads to.
enum Door {
    Messages,
    PairStream,
    PairMessages,
    Nowhere,
}

impl Inner {
    async fn serve<B>(self: Arc<Self>, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = request.into_parts();
        if let Err(Refused { status, why }) = self.options.hosts.gate(&parts.uri, &parts.headers) {
            return refused(status, &why);
        }
        match (self.door(parts.uri.path()), &parts.method) {
            (Door::Nowhere, _) => plain(StatusCode::NOT_FOUND),
            (Door::Messages, &Method::POST) => {
                let accepts = match headers::check(&parts.headers, self.entry.limits.max_bytes) {
                    Ok(accepts) => accepts,
                    Err(Refused { status, why }) => return refused(status, &why),
                };
                self.post(self.peer(parts, Road::Post { streams: accepts.stream }), accepts, body).await
            }
            (Door::Messages, &Method::GET) => self.get(&parts),
            (Door::Messages, &Method::DELETE) => self.delete(&parts),
            (Door::Messages, _) => not_allowed("GET, POST, DELETE"),
            (Door::PairStream, &Method::GET) => self.pair_stream(&parts),
            (Door::PairStream, _) => not_allowed("GET"),
            (Door::PairMessages, &Method::POST) => Box::pin(self.pair_message(parts, body)).await,
            (Door::PairMessages, _) => not_allowed("POST"),
        }
    }

    fn door(&self, path: &str) -> Door {
        match (&self.options.place, path) {
            (_, "/sse") => Door::PairStream,
            (_, "/messages") => Door::PairMessages,
            (Place::Mounted, _) => Door::Messages,
            (Place::Path(own), path) if path == own || path.strip_suffix('/') == Some(own) => Door::Messages,
            (Place::Path(_), _) => Door::Nowhere,
        }
    }

    async fn post<B>(&self, peer: Peer, accepts: headers::Accepts, body: B) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let bytes = match self.body(body).await {
            Ok(bytes) => bytes,
            Err(response) => return response,
        };
        let out = Stream::new(Capacity::default());
        let call = self.begin(bytes, peer.clone(), &out);
        let mut driving = Driving { call: Some(call), out: Arc::clone(&out), tasks: self.tasks.clone() };
        let patience = accepts.stream.then_some(self.options.patience);
        match driving.first(patience).await {
            First::Answer(answer) if !out_stirred(&out) => answered(answer, accepts),
            First::Answer(answer) => {
                conclude(&out, answer);
                self.stream(&peer, &out, None)
            }
            First::Stirred => {
                let call = driving.call.take();
                self.stream(&peer, &out, call)
            }
        }
    }

    async fn body<B>(&self, body: B) -> Result<Bytes, Response<Body>>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        let limit = self.entry.limits.max_bytes;
        match Lazy::within(self.options.body_timeout, read(body, limit)).await {
            Some(Ok(bytes)) => Ok(bytes),
            Some(Err(TooLong::TooLong)) => Err(too_long(limit)),
            Some(Err(TooLong::Broken)) => Err(closing(refused(400, "the body ended early or was malformed"))),
            None => Err(closing(refused(408, "the body did not arrive in time"))),
        }
    }

    fn begin(&self, bytes: Bytes, peer: Peer, out: &Arc<Stream>) -> BoxFuture<'static, Answer> {
        let (entry, out) = (Arc::clone(&self.entry), Arc::clone(out));
        Box::pin(async move { entry.message(&bytes, &peer, &out).await })
    }

    /// Answers by a stream. A call that outlives its reader becomes a task of its own; any other lives in
    /// the response and ends with it.
    fn stream(
        &self,
        peer: &Peer,
        out: &Arc<Stream>,
        call: Option<BoxFuture<'static, Answer>>,
    ) -> Response<Body> {
        let opened = self.entry.era.open_stream(peer, out);
        let mut events = Events::new(out.reader(), self.options.heartbeat);
        if let Some((number, primes)) = opened {
            events = events.numbered(number);
            if primes {
                events = events.primed();
            }
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

    fn get(self: &Arc<Self>, parts: &Parts) -> Response<Body> {
        let headers = &parts.headers;
        if !headers.contains_key(SESSION) {
            return not_allowed("POST");
        }
        if !headers::accepts_stream(headers) {
            return refused(406, "a GET needs `Accept: text/event-stream`");
        }
        let peer = self.peer_of(parts, Road::Post { streams: true });
        let last = match single(headers, &LAST_EVENT) {
            Ok(last) => last,
            Err(_) => return refused(400, "header last-event-id must be sent once"),
        };
        let standing = match self.entry.era.stand(&peer, last) {
            Ok(standing) => standing,
            Err(fault) => return fault_response(&fault),
        };
        let reader = match standing.after {
            Some(after) => standing.stream.attach(after),
            None => Some(standing.stream.reader()),
        };
        let Some(reader) = reader else {
            return refused(400, "that place in the stream is gone or never was");
        };
        let mut events = Events::new(reader, self.options.heartbeat).numbered(standing.number);
        if standing.number == 0 {
            let (entry, out, session) =
                (Arc::clone(&self.entry), Arc::clone(&standing.stream), standing.session);
            let feeding = Box::pin({
                let out = Arc::clone(&out);
                async move {
                    entry.era.feed(&session, &out).await;
                    Answer::Silence
                }
            });
            events = events.feeding(feeding);
        }
        event_stream(events)
    }

    fn delete(&self, parts: &Parts) -> Response<Body> {
        if !parts.headers.contains_key(SESSION) {
            return not_allowed("POST");
        }
        match self.entry.era.end_session(&self.peer_of(parts, Road::Post { streams: false })) {
            Ok(()) => plain(StatusCode::NO_CONTENT),
            Err(fault) => fault_response(&fault),
        }
    }

    fn peer_of(&self, parts: &Parts, road: Road) -> Peer {
        Peer {
            principal: principal(parts),
            headers: Arc::new(parts.headers.clone()),
            remote: remote(parts),
            road,
            dialect: self.entry.dialect.load_full(),
        }
    }

    fn peer(&self, parts: Parts, road: Road) -> Peer {
        let (principal, remote) = (principal(&parts), remote(&parts));
        let dialect = self.entry.dialect.load_full();
        Peer { principal, headers: Arc::new(parts.headers), remote, road, dialect }
    }
}

fn principal(parts: &Parts) -> Principal {
    parts.extensions.get::<Principal>().cloned().unwrap_or_default()
}

fn remote(parts: &Parts) -> Option<SocketAddr> {
    parts.extensions.get::<Remote>().map(|remote| remote.0)
}

/// What a call does first.
enum First {
    Answer(Answer),
    /// It says something before it answers, or takes long.
    Stirred,
}

/// A call while its connection waits for what it does first. If the connection goes away meanwhile, a call
/// that outlives its reader goes on as a task.
struct Driving {
    call: Option<BoxFuture<'static, Answer>>,
    out: Arc<Stream>,
    tasks: TaskTracker,
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
            if self.out.poll_stirred(cx).is_ready() {
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

async fn finish(call: BoxFuture<'static, Answer>, out: Arc<Stream>) {
    conclude(&out, call.await);
}

/// The answer is the last message of a stream.
fn conclude(out: &Stream, answer: Answer) {
    if let Answer::Body { body, .. } = answer {
        out.push(body);
    }
    out.finish();
}

fn out_stirred(out: &Stream) -> bool {
    out.poll_stirred(&mut task::Context::from_waker(task::Waker::noop())).is_ready()
}

fn answered(answer: Answer, accepts: headers::Accepts) -> Response<Body> {
    match answer {
        Answer::Accepted => plain(StatusCode::ACCEPTED),
        // The client took its question back: an empty stream answers it with nothing.
        Answer::Silence => {
            let mut response = plain(StatusCode::OK);
            response.headers_mut().insert(header::CONTENT_TYPE, headers::EVENT_STREAM);
            response
        }
        Answer::Body { status: 200, body, session, .. } if !accepts.json => {
            let mut response = Response::new(Body::full(sse::event(None, &body)));
            sse_headers(response.headers_mut());
            with_session(response, session)
        }
        Answer::Body { status, body, session, .. } => {
            let mut response = json(status, body);
            if status == 503 {
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
            }
            with_session(response, session)
        }
    }
}

fn with_session(mut response: Response<Body>, session: Option<Box<str>>) -> Response<Body> {
    if let Some(id) = session.and_then(|id| HeaderValue::from_str(&id).ok()) {
        response.headers_mut().insert(SESSION, id);
    }
    response
}

fn json(status: u16, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, headers::JSON);
    harden(response.headers_mut());
    response
}

fn event_stream(events: Events) -> Response<Body> {
    let mut response = Response::new(Body::events(events));
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

fn not_allowed(allow: &'static str) -> Response<Body> {
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

/// A refusal before the message was read.
fn refused(status: u16, why: &str) -> Response<Body> {
    let response = json(status, refuse(None, &Fault::invalid(why)));
    // Whoever sends these did not mean us, or sends a body that is not worth reading.
    if matches!(status, 403 | 413 | 415) { closing(response) } else { response }
}

fn too_long(limit: usize) -> Response<Body> {
    refused(413, &format!("the body is longer than {limit} bytes"))
}

fn closing(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

fn fault_status(fault: &Fault) -> u16 {
    match fault.kind() {
        toolgate_wire::FaultKind::Session => 404,
        _ => 400,
    }
}

fn fault_response(fault: &Fault) -> Response<Body> {
    json(fault_status(fault), refuse(None, fault))
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    /// What common allocators hand out fastest ends at about a kilobyte. Every request makes these two.
    #[test]
    fn a_call_stays_small() {
        let Endpoint(inner) = crate::Server::new("small", "1").build().unwrap().into_service();
        let request = Request::new(Full::<Bytes>::default());
        let size = size_of_val(&Arc::clone(&inner).serve(request));
        assert!(size <= 1024, "serving takes {size} bytes");
        let (parts, _) = Request::new(()).into_parts();
        let peer = inner.peer(parts, Road::Post { streams: true });
        let (bytes, out) = (Bytes::new(), Stream::new(Capacity::default()));
        let captured = size_of_val(&inner) + size_of_val(&bytes) + size_of_val(&peer) + size_of_val(&out);
        let size = captured + size_of_val(&inner.entry.message(&bytes, &peer, &out));
        assert!(size <= 1024, "a call takes {size} bytes");
    }
}
