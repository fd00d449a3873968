//! Test support for servers (feature `testing`): an in-memory client, and transcripts.
//!
//! ```test_harness
//! use serde_json::json;
//! use toolgate::Server;
//! use toolgate::testing::TestClient;
//!
//! #[toolgate::test(server = Server::new("demo", "1.0.0").tool("hi", || async { "Hello!" }))]
//! async fn says_hello(client: TestClient) {
//!     assert_eq!(client.call("hi", json!({})).await.text(), "Hello!");
//! }
//! ```
//!
//! [`TestClient`] is a client of one protocol version, over stdio framing or over HTTP, without sockets.
//! `#[toolgate::test]` runs a test once per protocol version. [`TestCall::task`] runs a call as a task. [`play`] runs
//! [transcripts](transcript), which are tests that can be read without knowing Rust.
//!
//! This module is the client side of the protocol. It uses the same wire types as the server and only the server's
//! public API: it must not depend on how the server works inside. Failures here are panics, because that is how a
//! test fails.

mod callbacks;
mod client;
mod connection;
pub(crate) mod harness;
mod output_schema;
mod request;
mod response;
mod task;
pub mod transcript;
mod version;

#[cfg(feature = "http")]
mod exchange;
#[cfg(feature = "http")]
mod http_client;

use std::fmt;
use std::time::Duration;

pub use callbacks::{IntoElicitOutcome, IntoSamplingResult, ReceivedElicitation};
pub use client::TestClient;
pub use connection::ServerDetails;
#[cfg(feature = "http")]
pub use exchange::{EventMessage, HttpExchange, ReceivedEvent, http_request};
pub use request::{RunningRequest, TestCall};
pub use response::{
    CompletionResponse, PromptResponse, ReceivedNotification, ReceivedResponse, ResourceResponse, TestError,
    TestResponse, ToolResponse,
};
pub use task::TestTask;
pub use transcript::play;
pub use version::TestVersion;

use crate::error::Error;
use crate::server::{Builder, Server};

/// Default time to wait for a message that must arrive. Only failing tests wait this long.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Conversion into the server under test: from a [`Server`], a [`Builder`], or a `Result` of one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be used as a server",
    note = "pass a `Server`, a `Builder` such as `Server::new(..).tool(..)`, or a `Result` of one"
)]
pub trait IntoServer {
    /// Returns the server.
    ///
    /// # Panics
    /// If the server cannot be built.
    fn into_server(self) -> Server;
}

impl IntoServer for Server {
    fn into_server(self) -> Server {
        self
    }
}

impl IntoServer for &Server {
    fn into_server(self) -> Server {
        self.clone()
    }
}

impl IntoServer for Builder {
    #[track_caller]
    fn into_server(self) -> Server {
        self.build().into_server()
    }
}

impl<S: IntoServer, E: fmt::Display> IntoServer for Result<S, E> {
    #[track_caller]
    fn into_server(self) -> Server {
        match self {
            Ok(server) => server.into_server(),
            Err(error) => panic!("cannot build the server under test: {error}"),
        }
    }
}

/// Builds the server of a `#[toolgate::test]` without `server = …`: all items of the crate that are marked with
/// `#[tool]` or one of the other item attributes.
///
/// # Errors
/// If the server cannot be built, for example because a handler needs a `State`: then the test needs a
/// `server = …` that provides it.
pub fn collected_server(name: impl Into<String>, version: impl Into<String>) -> Result<Server, Error> {
    let server = Server::new(name, version);
    #[cfg(feature = "macros")]
    let server = server.collect();
    server.build()
}
