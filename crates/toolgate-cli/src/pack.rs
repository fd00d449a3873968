//! Packs: predefined tools, prompts and resources for servers that list them.
//!
//! A pack is a TOML text with the structure of a server's table, so everything that applies to a configuration file
//! applies to a pack. In addition, an entry names its part of the pack (`phase`), `on = "@"` is the connection that
//! the configuration names for the pack, and `builtin` refers to a Rust implementation, which only packs may use.

mod hub;
pub(crate) mod runtime;
pub(crate) mod runtime_state;

use std::sync::Arc;

use crate::config::Server;
use runtime_state::RuntimeState;
use toolgate_sources::source::ToolBackend;

/// A pack.
#[derive(Debug)]
pub(crate) struct Pack {
    pub(crate) name: &'static str,
    pub(crate) toml: &'static str,
    /// The phases of the pack, and whether each is enabled by default.
    pub(crate) phases: &'static [(&'static str, bool)],
    /// Whether the configuration must name a connection with `on`.
    pub(crate) needs_connection: bool,
}

/// All packs.
pub(crate) static PACKS: [Pack; 3] = [
    Pack { name: "runtime", toml: include_str!("pack/runtime.toml"), phases: &[], needs_connection: false },
    Pack {
        name: "buddyboss",
        toml: include_str!("pack/buddyboss.toml"),
        phases: &[
            ("core", true),
            ("buddyboss", true),
            ("advanced", true),
            ("learndash", false),
            ("extra", false),
        ],
        needs_connection: true,
    },
    Pack { name: "hub", toml: include_str!("pack/hub.toml"), phases: &[], needs_connection: true },
];

/// Returns the pack with this name.
pub(crate) fn pack_by_name(name: &str) -> Option<&'static Pack> {
    PACKS.iter().find(|pack| pack.name == name)
}

/// Returns the implementation of a `builtin`, or `None` if the name is unknown.
pub(crate) fn builtin(
    name: &str,
    server: &Server,
    state: &Arc<RuntimeState>,
) -> Option<Arc<dyn ToolBackend>> {
    hub::builtin(name, server, state).or_else(|| runtime::builtin(name, &server.name, state))
}
