//! Integration tests: transcripts, sockets, hostile peers, and the tidy rules.

#![allow(clippy::unwrap_used, reason = "what helps a test may unwrap, as the test itself may")]

mod batch;
mod cancel;
mod dialect;
mod fixture;
mod http;
mod legacy_sse;
mod notifications;
mod pagination;
mod resume;
mod server_requests;
mod servers;
mod session;
mod shutdown;
mod stdio;
mod tasks;
mod transcript_player;

mod builder;
mod cluster;
mod handlers;
mod hostile;
mod macros;
mod program;
mod seeds;
mod testing;
mod tidy;
