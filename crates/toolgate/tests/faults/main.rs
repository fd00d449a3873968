//! Faults, for real: processes that are killed, a store that goes away, and what clients see of it.
//!
//! The servers are this very program, started again with an address of a Redis of its own. Without a
//! `redis-server` on the machine each test says so and proves nothing; `cargo xtask test` installs one.

#![cfg(all(feature = "redis", unix))]
#![allow(clippy::unwrap_used, reason = "what helps a test may unwrap, as the test itself may")]

mod cluster;
mod http_client;
mod proxy;
mod redis;
mod serve;
