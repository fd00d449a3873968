//! Sources of MCP tools for [`toolgate`] servers: OpenAPI descriptions and SQL databases.
//!
//! The operations of a REST API become tools in one line:
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use toolgate::Server;
//! use toolgate_sources::OpenApi;
//!
//! let api = OpenApi::from_url("https://api.example.com/openapi.json").bearer_token("s3cret");
//! Server::new("example", "1.0.0").add(api.load().await?).serve_stdio().await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`OpenApi`] serves OpenAPI and Swagger descriptions, [`Database`] SQL statements. Both are builders; `load` returns
//! items for [`Builder::add`](toolgate::Builder::add), so they combine with tools written in Rust, and with all
//! settings of a server: authentication, profiles, rate limits, events. Arguments are validated against their schemas
//! before a request is sent or a statement runs.
//!
//! The program `toolgate` serves the same sources from a TOML file, without Rust code.
//!
//! # Features
//!
//! | feature | contents |
//! |---|---|
//! | `openapi` (default) | [`OpenApi`] |
//! | `sqlite`, `postgres`, `mysql` | [`Database`] with this database system |
//! | `http`, `command`, `files`, `template` | backends that only the program uses so far |
//! | `full` | everything |

// Some helpers are used by disabled features only.
#![cfg_attr(not(feature = "full"), allow(unused))]
// Documentation that is built without all features links to items that are missing.
#![cfg_attr(not(feature = "full"), allow(rustdoc::broken_intra_doc_links))]

mod clock;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod database;
mod error;
#[cfg(feature = "openapi")]
mod openapi;
#[doc(hidden)]
pub mod source;
mod sync;

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub use database::{Database, Query};
pub use error::{SourceError, SourceErrorKind, SourceProblem};
#[cfg(feature = "openapi")]
pub use openapi::{LoadedApi, OpenApi};
#[cfg(feature = "openapi")]
pub use source::openapi::SkippedOperation;

/// Compiles and runs the code of the guide.
#[cfg(all(doctest, feature = "full"))]
#[doc = include_str!("../../../docs/guide/sources.md")]
struct Guide;
