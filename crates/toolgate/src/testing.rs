//! For tests of your own server (feature `testing`): a client in memory, and transcripts.
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
//! [`TestClient`] is a client of one revision of the protocol, over lines or over HTTP, without sockets.
//! `#[toolgate::test]` runs a test once for each revision. [`play`] plays [transcripts](transcript), which are
//! tests that can be read without knowing Rust.
//!
//! This is the other side of the conversation, built of the same words as the server and of nothing that
//! only tests can see: it must not know how the server works inside. What goes wrong here is a panic, because
//! that is how a test fails.

mod callbacks;
mod client;
mod connection;
pub(crate) mod harness;
mod request;
mod response;
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
pub use transcript::play;
pub use version::TestVersion;

use crate::error::Error;
use crate::server::{Builder, PendingItem, Server};

/// How long something that must come may take. Reached only by failures.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// What a server can be made of in a test: a [`Server`], a [`Builder`], or a `Result` of one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no server",
    note = "give a `Server`, a `Builder` such as `Server::new(..).tool(..)`, or a `Result` of one"
)]
pub trait IntoServer {
    /// The server.
    ///
    /// # Panics
    /// If it cannot be built.
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

impl<L: PendingItem> IntoServer for Builder<L> {
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
            Err(error) => panic!("there is no server to test: {error}"),
        }
    }
}

/// The server of a `#[toolgate::test]` that names none: everything in the crate that is marked with `#[tool]`
/// and its like.
///
/// # Errors
/// If it cannot be built, for example because a handler wants a `State`: then the test needs a
/// `server = …` that gives it.
pub fn collected_server(name: impl Into<String>, version: impl Into<String>) -> Result<Server, Error> {
    let server = Server::new(name, version);
    #[cfg(feature = "macros")]
    let server = server.collect();
    server.build()
}
