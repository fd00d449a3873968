//! The items of the catalog that one caller sees. The only file of the registry that knows callers.

use toolgate_wire::model::ToolHints;

use crate::profile::Profile;

/// The server's profile and the caller's profile. An item is visible if both allow it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a>(pub(crate) [Option<&'a Profile>; 2]);

impl<'a> View<'a> {
    /// Combines two profiles. A profile that hides nothing is dropped.
    pub(crate) fn new(server: Option<&'a Profile>, caller: Option<&'a Profile>) -> View<'a> {
        View([server, caller].map(|profile| profile.filter(|profile| !profile.is_unrestricted())))
    }
}

impl View<'_> {
    /// Returns whether nothing is hidden.
    pub(crate) fn is_unrestricted(self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    pub(crate) fn shows_tool(self, name: &str, hints: &ToolHints) -> bool {
        self.0.iter().flatten().all(|profile| profile.allows_tool_with(name, hints))
    }

    pub(crate) fn shows_prompt(self, name: &str) -> bool {
        self.0.iter().flatten().all(|profile| profile.allows_prompt(name))
    }

    /// Returns whether resources may be read through this URI template.
    pub(crate) fn shows_template(self, text: &str) -> bool {
        !self.0.iter().flatten().any(|profile| profile.excludes_template(text))
    }

    /// Returns whether the resource with this URI may be listed and read.
    pub(crate) fn shows_resource(self, uri: &str) -> bool {
        self.0.iter().flatten().all(|profile| profile.allows_resource(uri))
    }
}
