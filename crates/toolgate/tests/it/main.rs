//! Integration tests: transcripts, sockets, hostile peers, and the tidy rules.

#![allow(clippy::unwrap_used, reason = "what helps a test may unwrap, as the test itself may")]

mod arguments;
mod batch;
mod blocking;
mod call_ends;
mod call_span;
mod cancel;
mod dialect;
mod fixture;
mod handler_errors;
mod http;
mod layers;
mod legacy_sse;
mod notifications;
mod outputs;
mod pagination;
mod request_context;
mod result_limit;
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
mod sampling;
mod seeds;
mod testing;
mod tidy;
