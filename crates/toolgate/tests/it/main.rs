//! The house from outside: transcripts, sockets, hostile peers, and the walls themselves.

#![allow(clippy::unwrap_used, reason = "what helps a test may unwrap, as the test itself may")]

mod ask;
mod batch;
mod cancel;
mod dialect;
mod duplex;
mod feed;
mod fixture;
mod http;
mod page;
mod play;
mod resume;
mod servers;
mod session;
mod shutdown;
mod stdio;
mod tasks;

mod handlers;
mod hostile;
mod macros;
mod nodes;
mod program;
mod seeds;
mod testing;
mod tidy;
