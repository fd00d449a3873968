//! The house from outside: transcripts, sockets, hostile peers, and the walls themselves.

#![allow(clippy::unwrap_used, reason = "what helps a test may unwrap, as the test itself may")]

mod server_requests;
mod batch;
mod cancel;
mod dialect;
mod legacy_sse;
mod notifications;
mod fixture;
mod http;
mod pagination;
mod transcript_player;
mod resume;
mod servers;
mod session;
mod shutdown;
mod stdio;
mod tasks;

mod handlers;
mod hostile;
mod macros;
mod cluster;
mod program;
mod seeds;
mod testing;
mod tidy;
