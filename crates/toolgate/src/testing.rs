//! For tests of your own server (feature `testing`): a client in memory.
//!
//! This is the other side of the conversation, built of the same words as the server and of nothing that
//! only tests can see. It must not know how the server works inside.

mod answer;
mod asked;
mod calling;
mod client;
mod link;
mod revision;
pub mod transcript;

#[cfg(feature = "http")]
mod exchange;
#[cfg(feature = "http")]
mod web;

use std::fmt;
use std::time::Duration;

pub use answer::{Answer, Called, Completed, Fetched, Notice, Prompted, Reading, Refusal};
pub use asked::{IntoElicited, IntoSampled, Question};
pub use calling::{Calling, Running};
pub use client::TestClient;
#[cfg(feature = "http")]
pub use exchange::{Event, EventMessage, Exchange, http_request};
pub use link::About;
pub use revision::Revision;
pub use transcript::play;

use crate::server::{Builder, Last, Server};

/// How long something that must come may take. Reached only by failures.
const PATIENCE: Duration = Duration::from_secs(10);

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

impl<L: Last> IntoServer for Builder<L> {
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
