//! Fault tests with real processes: processes that are killed, a store that becomes unavailable, and what clients see.
//!
//! The servers are this program, started again with the address of a private Redis. Without a `redis-server` on the machine
//! each test prints that and passes; `cargo xtask test` installs one.

#![cfg(all(feature = "redis", unix))]
#![allow(clippy::unwrap_used, reason = "what helps a test may unwrap, as the test itself may")]

mod cluster;
mod http_client;
mod proxy;
mod redis;
mod serve;
