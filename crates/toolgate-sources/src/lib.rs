//! Sources of MCP tools for [`toolgate`] servers: OpenAPI descriptions, HTTP APIs, SQL databases, commands, files and
//! templates.

// Some helpers are used by disabled features only.
#![cfg_attr(not(feature = "full"), allow(unused))]

mod clock;
#[doc(hidden)]
pub mod source;
mod sync;
