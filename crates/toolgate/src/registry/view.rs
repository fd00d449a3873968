//! What of the catalog one caller sees. The only file of the library that knows of callers.

use crate::profile::Profile;

/// What everybody may see, and what this caller may: a thing is shown if both show it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a>(pub(crate) [Option<&'a Profile>; 2]);

impl<'a> View<'a> {
    /// What both show. A profile that hides nothing is none.
    pub(crate) fn new(everybody: Option<&'a Profile>, caller: Option<&'a Profile>) -> View<'a> {
        View([everybody, caller].map(|profile| profile.filter(|profile| !profile.is_unrestricted())))
    }
}

impl View<'_> {
    /// Nothing is hidden.
    pub(crate) fn is_unrestricted(self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    pub(crate) fn shows_tool(self, name: &str) -> bool {
        self.0.iter().flatten().all(|profile| profile.allows_tool(name))
    }

    pub(crate) fn shows_prompt(self, name: &str) -> bool {
        self.0.iter().flatten().all(|profile| profile.allows_prompt(name))
    }

    /// Whether the resource at this URI may be read, which is more than that it is listed.
    pub(crate) fn allows_reading(self, uri: &str) -> bool {
        self.0.iter().flatten().all(|profile| profile.allows_reading(uri))
    }

    /// Whether resources may be read through a template of this text.
    pub(crate) fn shows_template(self, text: &str) -> bool {
        !self.0.iter().flatten().any(|profile| profile.excludes_template(text))
    }

    pub(crate) fn shows_resource(self, uri: &str) -> bool {
        self.0.iter().flatten().all(|profile| profile.allows_resource(uri))
    }
}
