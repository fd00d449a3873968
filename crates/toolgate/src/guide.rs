//! The guide: one page per task, with blocks to copy. In the documentation only.
//!
//! The pages are those of `docs/guide` in the repository. Links between pages work there, not in this documentation: use the list
//! of modules below. Each block of Rust code is compiled, and run unless it says `no_run`, by the doc tests.

#[doc = include_str!("../docs/guide/getting-started.md")]
pub mod getting_started {}

#[doc = include_str!("../docs/guide/framework.md")]
pub mod framework {}

#[doc = include_str!("../docs/guide/authoring.md")]
pub mod authoring {}

#[doc = include_str!("../docs/guide/servers.md")]
pub mod servers {}

#[doc = include_str!("../docs/guide/http.md")]
pub mod http {}

#[doc = include_str!("../docs/guide/guards.md")]
pub mod guards {}

#[doc = include_str!("../docs/guide/events-and-statistics.md")]
pub mod events_and_statistics {}

#[doc = include_str!("../docs/guide/asking-the-client.md")]
pub mod asking_the_client {}

#[doc = include_str!("../docs/guide/tasks.md")]
pub mod tasks {}

#[cfg(feature = "redis")]
#[doc = include_str!("../docs/guide/many-processes.md")]
pub mod many_processes {}

#[doc = include_str!("../docs/guide/protocol-versions.md")]
pub mod protocol_versions {}

#[cfg(feature = "testing")]
#[doc = include_str!("../docs/guide/testing.md")]
pub mod testing {}

#[doc = include_str!("../docs/guide/from-rmcp.md")]
pub mod from_rmcp {}

#[doc = include_str!("../docs/guide/from-fastmcp.md")]
pub mod from_fastmcp {}

#[cfg(feature = "compat")]
#[doc = include_str!("../docs/compatibility.md")]
pub mod compatibility {}
