//! The public API from outside: descriptions of an API that runs on loopback, and statements of a SQLite file.

// Helpers panic too.
#![allow(clippy::unwrap_used)]

mod api_server;
mod database;
mod openapi;
