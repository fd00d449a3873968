//! Packs: tools, prompts and resources that the program brings along, for servers that name them.
//!
//! A pack is a text of the same shape as a server's table, so that everything that holds for what a file says holds for
//! what a pack says. Beyond that, an entry says to which part of the pack it belongs (`phase`), `on = "@"` is the connection
//! that the file names for the pack, and `builtin` is something that is written in Rust, which only packs may name.

mod hub;
pub(crate) mod runtime;
pub(crate) mod runtime_state;

use std::sync::Arc;

use crate::config::Server;
use crate::source::ToolBackend;
use runtime_state::RuntimeState;

/// A pack.
#[derive(Debug)]
pub(crate) struct Pack {
    pub(crate) name: &'static str,
    pub(crate) toml: &'static str,
    /// Its parts, and whether each is there where the file does not say which are.
    pub(crate) phases: &'static [(&'static str, bool)],
    /// What its requests go to must be said, with `on`.
    pub(crate) needs_connection: bool,
}

/// Every pack.
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

/// The pack of this name.
pub(crate) fn pack_by_name(name: &str) -> Option<&'static Pack> {
    PACKS.iter().find(|pack| pack.name == name)
}

/// What a pack means by `builtin`. None: nothing of that name.
pub(crate) fn builtin(
    name: &str,
    server: &Server,
    world: &Arc<RuntimeState>,
) -> Option<Arc<dyn ToolBackend>> {
    hub::builtin(name, server, world).or_else(|| runtime::builtin(name, &server.name, world))
}
