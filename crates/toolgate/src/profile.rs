//! Profiles: which tools, prompts and resources a caller may see.
//!
//! Hidden items are absent from lists and cannot be called: for the caller, they do not exist.

use std::sync::Arc;

use toolgate_wire::model::ToolHints;

use crate::util::percent;

/// A named selection of tools, prompts and resources, for callers that may not use all of them.
///
/// A pattern is a name in which `*` matches any text, including none. A name that matches none of the included
/// patterns is hidden; so is a name that matches an excluded one. Without included patterns, every name is included.
///
/// ```
/// # use toolgate::Profile;
/// let operator = Profile::new("operator").include_tools(["*_get*", "scheduler_*"]).exclude_tools(["app_stop"]);
/// assert!(operator.allows_tool("cache_get_stats"));
/// assert!(!operator.allows_tool("cache_clear"));
/// assert!(!operator.allows_tool("app_stop"));
/// assert!(operator.allows_prompt("anything"), "prompts are not restricted");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[doc(alias("authorization", "permissions", "visibility", "scopes"))]
pub struct Profile(Arc<ProfileData>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ProfileData {
    name: String,
    tools: Filter,
    /// Whether only tools that are marked as read-only are visible.
    needs_read_only: bool,
    prompts: Filter,
    resources: Filter,
    /// A second profile that must allow a name too: the caller has proven two identities, each with a profile.
    intersection: Option<Profile>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Filter {
    include: Vec<String>,
    exclude: Vec<String>,
}

impl Filter {
    fn allows(&self, name: &str) -> bool {
        let matches_any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        (self.include.is_empty() || matches_any(&self.include)) && !matches_any(&self.exclude)
    }
}

macro_rules! filters {
    ($($(#[$doc:meta])* $method:ident $filter:ident $list:ident;)*) => {$(
        $(#[$doc])*
        pub fn $method<S: Into<String>>(mut self, patterns: impl IntoIterator<Item = S>) -> Profile {
            let parts = Arc::make_mut(&mut self.0);
            parts.$filter.$list.extend(patterns.into_iter().map(Into::into));
            self
        }
    )*};
}

impl Profile {
    /// A profile with this name that hides nothing.
    pub fn new(name: impl Into<String>) -> Profile {
        Profile(Arc::new(ProfileData { name: name.into(), ..ProfileData::default() }))
    }

    /// A profile that hides nothing.
    pub fn admin() -> Profile {
        Profile::new("admin")
    }

    /// A profile that hides all tools except those marked as read-only (`readOnlyHint`). Prompts and resources are
    /// visible.
    ///
    /// A tool without the hint is hidden, whatever its name: [`ToolSpec::read_only`](crate::ToolSpec::read_only) or
    /// `#[tool(read_only)]` sets it.
    pub fn readonly() -> Profile {
        Profile::new("readonly").read_only_tools()
    }

    /// A profile of the tools whose names suggest that they only read: `*_get*`, `*_has*`, `*_search*`, `*_read*`.
    ///
    /// A name is not a permission: prefer [`Profile::readonly`].
    pub fn readonly_by_name() -> Profile {
        Profile::new("readonly").include_tools(["*_get*", "*_has*", "*_search*", "*_read*"])
    }

    /// Hides all tools except those marked as read-only (`readOnlyHint`), in addition to the patterns.
    ///
    /// ```
    /// # use toolgate::Profile;
    /// # use toolgate::model::ToolHints;
    /// let auditor = Profile::new("auditor").read_only_tools().exclude_tools(["billing_*"]);
    /// let read_only = ToolHints::default().with_read_only(true);
    /// assert!(auditor.allows_tool_with("orders", &read_only));
    /// assert!(!auditor.allows_tool_with("billing_totals", &read_only));
    /// assert!(!auditor.allows_tool("orders"), "without the hint it is hidden");
    /// ```
    pub fn read_only_tools(mut self) -> Profile {
        Arc::make_mut(&mut self.0).needs_read_only = true;
        self
    }

    /// The name of the profile.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    filters! {
        /// Includes only tools that match one of these patterns, or one given before.
        include_tools tools include;
        /// Excludes tools that match one of these patterns.
        exclude_tools tools exclude;
        /// Includes only prompts that match one of these patterns, or one given before.
        include_prompts prompts include;
        /// Excludes prompts that match one of these patterns.
        exclude_prompts prompts exclude;
        /// Includes only resources and templates whose URI matches one of these patterns, or one given before.
        include_resources resources include;
        /// Excludes resources and templates whose URI matches one of these patterns.
        exclude_resources resources exclude;
    }

    /// Whether a tool with this name and without hints is visible.
    #[must_use]
    pub fn allows_tool(&self, name: &str) -> bool {
        self.allows_tool_with(name, &ToolHints::default())
    }

    /// Whether a tool of this name with these hints is visible.
    #[must_use]
    pub fn allows_tool_with(&self, name: &str, hints: &ToolHints) -> bool {
        (!self.0.needs_read_only || hints.read_only == Some(true))
            && self.0.tools.allows(name)
            && self.0.intersection.as_ref().is_none_or(|other| other.allows_tool_with(name, hints))
    }

    /// Whether a prompt of this name is visible.
    #[must_use]
    pub fn allows_prompt(&self, name: &str) -> bool {
        self.0.prompts.allows(name)
            && self.0.intersection.as_ref().is_none_or(|other| other.allows_prompt(name))
    }

    /// Whether a resource with this URI, or a template with this text, is visible.
    ///
    /// A URI with percent escapes must be visible as written and decoded, because a template decodes it:
    /// `docs:///%73ecret` is `docs:///secret`.
    #[must_use]
    pub fn allows_resource(&self, uri: &str) -> bool {
        self.allows_resource_text(uri)
            && (!uri.contains('%')
                || self.allows_resource_text(&String::from_utf8_lossy(&percent::decode(uri.as_bytes()))))
    }
}

impl Profile {
    /// Whether a URI is visible as it is written.
    fn allows_resource_text(&self, uri: &str) -> bool {
        self.0.resources.allows(uri)
            && self.0.intersection.as_ref().is_none_or(|other| other.allows_resource_text(uri))
    }

    /// Whether the profile hides nothing, as [`Profile::admin`].
    pub(crate) fn is_unrestricted(&self) -> bool {
        let ProfileData { name: _, tools, needs_read_only, prompts, resources, intersection } = &*self.0;
        let empty = Filter::default();
        !needs_read_only
            && [tools, prompts, resources].into_iter().all(|filter| *filter == empty)
            && intersection.as_ref().is_none_or(Profile::is_unrestricted)
    }

    /// Whether a template with this text is excluded by name.
    pub(crate) fn excludes_template(&self, text: &str) -> bool {
        let excluded = self.0.resources.exclude.iter().any(|pattern| matches(pattern, text));
        excluded || self.0.intersection.as_ref().is_some_and(|other| other.excludes_template(text))
    }

    /// The intersection of two profiles: a name must be allowed by both.
    pub(crate) fn intersect(&self, other: &Profile) -> Profile {
        if self == other {
            return self.clone();
        }
        let mut data = ProfileData::clone(&self.0);
        data.intersection = Some(match &data.intersection {
            Some(intersection) => intersection.intersect(other),
            None => other.clone(),
        });
        Profile(Arc::new(data))
    }
}

/// Whether a name matches a pattern, in which `*` is any text.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|start| name.strip_prefix(start)) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(end) = parts.pop() else {
        return rest.is_empty();
    };
    let mut rest = rest;
    for part in parts {
        // Taking the first match is enough: a `*` follows, so the rest may begin anywhere after it.
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_star_matches_any_text() {
        for (pattern, name) in [
            ("*", ""),
            ("*", "x"),
            ("cache_get*", "cache_get"),
            ("cache_get*", "cache_get_stats"),
            ("*_get*", "jvm_get_memory_info"),
            ("a*b*c", "abc"),
            ("a*b*c", "a-b-b-c"),
            ("a*a", "aa"),
            ("app_stop", "app_stop"),
        ] {
            assert!(matches(pattern, name), "{pattern} should match {name}");
        }
        for (pattern, name) in [
            ("cache_get*", "cache_clear"),
            ("app_stop", "app_stopped"),
            ("a*a", "a"),
            ("a*b*c", "acb"),
            ("", "x"),
            ("*x", "xy"),
        ] {
            assert!(!matches(pattern, name), "{pattern} should not match {name}");
        }
    }

    /// A reference implementation, one character at a time.
    fn matches_reference(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|skip| matches_reference(rest, &name[skip..])),
            Some((first, rest)) => name.first() == Some(first) && matches_reference(rest, &name[1..]),
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_reference(pattern in "[ab*]{0,7}", name in "[ab]{0,8}") {
            prop_assert_eq!(matches(&pattern, &name), matches_reference(pattern.as_bytes(), name.as_bytes()));
        }
    }

    #[test]
    fn escapes_hide_nothing() {
        let profile = Profile::new("p").exclude_resources(["docs://secret*"]);
        assert!(profile.allows_resource("docs://open"));
        for uri in ["docs://secret", "docs://%73ecret", "docs://s%65cret/x", "docs://sec%72et%2Fx"] {
            assert!(!profile.allows_resource(uri), "{uri}");
        }
        // Decoded once: the rest is a name of its own.
        assert!(profile.allows_resource("docs://%2573ecret"));
        assert!(Profile::new("p").exclude_resources(["docs://{name}"]).excludes_template("docs://{name}"));
    }

    #[test]
    fn an_intersection_shows_what_both_profiles_show() {
        let both =
            Profile::new("a").include_tools(["x*"]).intersect(&Profile::new("b").exclude_tools(["*y"]));
        assert!(both.allows_tool("xa") && !both.allows_tool("xy") && !both.allows_tool("a"));
        assert_eq!(both.intersect(&both), both);
    }

    #[test]
    fn the_built_in_profiles() {
        assert!(Profile::admin().allows_tool("app_stop") && Profile::admin().is_unrestricted());
        assert!(
            !Profile::readonly().is_unrestricted()
                && !Profile::admin().intersect(&Profile::readonly()).is_unrestricted()
        );
        assert!(Profile::readonly_by_name().allows_tool("jvm_get_memory_info"));
        assert!(!Profile::readonly_by_name().allows_tool("jvm_trigger_gc"));
    }

    #[test]
    fn readonly_reads_the_hint_and_not_the_name() {
        let hints = |read_only| {
            let mut hints = ToolHints::default();
            hints.read_only = read_only;
            hints
        };
        let profiles = [
            Profile::readonly(),
            Profile::admin().intersect(&Profile::readonly()),
            Profile::readonly().intersect(&Profile::admin()),
        ];
        for profile in profiles {
            assert!(profile.allows_tool_with("users_purge", &hints(Some(true))));
            for hints in [hints(Some(false)), hints(None)] {
                assert!(!profile.allows_tool_with("users_get", &hints), "a name is not a permission");
            }
            assert!(!profile.allows_tool("users_get"));
            assert!(profile.allows_prompt("any") && profile.allows_resource("any://thing"));
        }
    }
}
