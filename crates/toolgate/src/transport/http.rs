//! The Streamable HTTP transport, as a `tower` service.
//!
//! One URL serves every protocol version: POST for messages, GET and DELETE for the streams and sessions of the versions
//! that have them. `/sse` and `/messages` below it are the two-endpoint HTTP+SSE transport of the first version.
//!
//! A response is one JSON body, unless the call sends a message before its result: then the response becomes an SSE
//! stream, and the response body polls the call. Whether a request is authorized is decided in `admit`, from the head
//! alone wherever that is possible, so that the body of a rejected request is not read.
//!
//! - `service`: the service; classifies and routes requests.
//! - `mount`: where a service is mounted, and which route a path is.
//! - `admit`: authorizes requests.
//! - `reject`: responses to rejected requests; counts and logs them.
//! - `post`: messages. `get`: streams, discovery, and DELETE. `legacy_sse`: the HTTP+SSE transport.
//! - `page`, `stats`: JSON about a server, outside the protocol.
//! - `body`, `sse`, `post_headers`, `response`: bodies and headers.

mod admit;
mod body;
mod get;
mod legacy_sse;
mod mount;
mod page;
mod post;
mod post_headers;
mod reject;
mod response;
mod service;
mod sse;
mod stats;

pub use body::Body;
pub(crate) use mount::{MountContext, MountPoint, OriginalPath};
pub(crate) use page::not_found;
pub(crate) use reject::rejection_response;
pub use service::ServerService;
pub(crate) use service::{HttpOptions, MCP_HEADER_NAMES, WeakServerService};
pub(crate) use stats::{StatsAccess, prometheus_response, status_response, unknown_server_response};

/// An error of a request body.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Maximum length of an echoed `X-Request-Id`, and of an id in the query of a discovery request.
const MAX_REQUEST_ID_BYTES: usize = 128;
