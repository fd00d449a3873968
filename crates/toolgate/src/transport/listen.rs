//! Our own listener: accepts TCP connections and serves HTTP/1.1 and HTTP/2.
//!
//! Simple HTTP/1.1 requests take the fast path; hyper serves all others. This module adds the protections of a server on
//! an open port: limits on the number of connections, in total and per address; a deadline for every wait on the peer; a check
//! of the request head before the service sees it; a shutdown that ends.
//!
//! It must not know a path, a method or a header of the protocol above it, decide which `Host` or `Origin` is allowed, or
//! look at a body. A request costs it two atomic additions and one read of the clock; locks are taken at accept and close
//! only.
//!
//! - `accept`: accepts connections, and serves each of them until it closes.
//! - `options`: the limits. `connection_limiter`: how many connections, and from which address.
//! - `workers`: on which thread a connection is served.
//! - `fast_http1`: simple HTTP/1.1 requests, without hyper.
//! - `socket`: the TCP stream as hyper sees it. `smuggling`: rejects ambiguous heads that hyper's parser accepts.
//! - `validate_head`: checks the request line and `Host` after parsing.
//! - `request_body`: the body of a request.
//! - `deadlines`: polls one connection, with its deadlines.

mod accept;
mod connection_limiter;
mod deadlines;
mod fast_http1;
mod options;
mod request_body;
mod smuggling;
mod socket;
#[cfg(test)]
mod tests;
mod validate_head;
mod workers;

use std::error::Error as StdError;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Response};
use http_body::Body;

pub(crate) use self::accept::serve;
#[cfg(fuzzing)]
pub(crate) use self::fast_http1::check_parser;
pub use self::options::{Connections, Options};
pub(crate) use self::request_body::RequestBody;
pub(crate) use self::workers::Workers;
use crate::request::BoxFuture;
use crate::transport::RequestHead;

/// The smallest buffer that hyper accepts, and so the smallest limit of a request head.
const MIN_HEAD_BYTES: usize = 8 * 1024;

/// Size of a read buffer. It is on the stack, so an idle connection holds no read buffer.
const READ_BUFFER_BYTES: usize = 16 * 1024;

/// Bytes discarded while a peer has not read its response yet. A peer that sends more is not waiting for it.
const MAX_DISCARDED_BYTES: usize = 16 * 1024 * 1024;

/// How long a task may take to end after its cancellation.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The remote address of a request's connection; stored in the request's extensions.
///
/// It is the peer of the TCP connection, never a value of a header. Our own listener sets it; in a router of your
/// own, a layer has to insert it, or guards that check the address do not know it:
///
/// ```
/// use std::net::SocketAddr;
///
/// use axum::extract::{ConnectInfo, Request};
/// use axum::middleware::{self, Next};
/// use axum::response::Response;
/// use toolgate::http::RemoteAddr;
/// use toolgate::Server;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddr(pub SocketAddr);

/// A service that responds to the requests of a listener.
pub(crate) trait Serve: Clone + Send + 'static {
    /// The body of a response.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>> + Send + Unpin + 'static;

    /// Header names, beyond the standard ones, that requests often have.
    fn known_header_names() -> &'static [HeaderName] {
        &[]
    }

    /// Returns the service for requests from this address. A connection calls it once, because storing the address in
    /// the extensions of every request would allocate a map for each.
    fn with_remote_addr(&self, remote: SocketAddr) -> Self;

    /// Headers of a response with this body that are not in its header map, encoded as lines of HTTP/1.1.
    fn header_lines(_: &Self::Body) -> &[u8] {
        &[]
    }

    /// Moves these headers into the header map.
    fn into_full_response(response: Response<Self::Body>) -> Response<Self::Body> {
        response
    }

    /// Responds to one request.
    fn respond(&self, head: RequestHead, body: RequestBody) -> BoxFuture<'static, Response<Self::Body>>;
}
