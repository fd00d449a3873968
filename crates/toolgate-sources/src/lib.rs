//! Sources of MCP tools for [`toolgate`] servers: OpenAPI descriptions, HTTP APIs, SQL databases, commands, files and
//! templates.

// Helpers that only disabled features use.
#![cfg_attr(not(feature = "full"), allow(dead_code))]

mod clock;
#[doc(hidden)]
pub mod source;
mod sync;
