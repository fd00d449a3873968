//! Names of tools and arguments, and patterns that choose operations.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use crate::source::Problem;

const MAX_NAME_BYTES: usize = 128;
const MAX_ARGUMENT_NAME_BYTES: usize = 64;

/// A text of somebody else, short and on one line.
pub(super) fn display_text(text: &str) -> String {
    let plain = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    if text.chars().count() > 120 { plain.take(119).chain(['…']).collect() } else { plain.collect() }
}

/// Refuses an `operationId` that nobody writes without a reason.
pub(super) fn validate_operation_id(id: &str) -> Result<(), String> {
    let is_odd = id.contains("..")
        || id.contains("$(")
        || id.chars().any(|letter| letter.is_control() || "<>\"\\`".contains(letter));
    if is_odd || id.len() > 512 {
        Err(format!("its operationId `{}` is no name", display_text(id)))
    } else {
        Ok(())
    }
}

/// Letters, digits and `_.-`; everything else becomes one `_`.
pub(super) fn sanitize_name(text: &str, limit: usize) -> String {
    let mut clean = String::new();
    for letter in text.chars() {
        if letter.is_ascii_alphanumeric() || ".-".contains(letter) {
            clean.push(letter);
        } else if !clean.ends_with('_') {
            clean.push('_');
        }
    }
    let start = clean.trim_matches('_');
    start[..start.len().min(limit)].to_owned()
}

/// A name of an argument that nobody has yet: as it is called, else with the place where it stands, else with a number.
pub(super) fn unique_argument_name(wanted: &str, place: &str, taken: &HashSet<String>) -> String {
    // What starts with an underscore often means something by it.
    let is_plain = !wanted.is_empty()
        && wanted.len() <= MAX_ARGUMENT_NAME_BYTES
        && wanted.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    let clean =
        if is_plain { wanted.to_owned() } else { sanitize_name(wanted, MAX_ARGUMENT_NAME_BYTES - 16) };
    let clean = if clean.is_empty() { place.to_owned() } else { clean };
    let placed = format!("{clean}_{place}");
    let numbered = (2..).map(|number| format!("{placed}_{number}"));
    let mut candidates = [clean.clone(), placed.clone()].into_iter().chain(numbered);
    candidates.find(|name| !taken.contains(name)).unwrap_or(clean)
}

/// Gives every operation a name of its own.
pub(super) struct NameAllocator {
    prefix: String,
    renames: Vec<(String, String, bool)>,
    used_names: HashSet<String>,
}

impl NameAllocator {
    pub(super) fn new(prefix: &str, rename: &[(String, String)]) -> NameAllocator {
        let renames = rename.iter().map(|(from, to)| (from.clone(), to.clone(), false)).collect();
        NameAllocator { prefix: prefix.to_owned(), renames, used_names: HashSet::new() }
    }

    pub(super) fn validate(&self) -> Vec<Problem> {
        let is_name = |text: &str| {
            sanitize_name(text, MAX_NAME_BYTES) == text.trim_matches('_') && !text.contains("__")
        };
        let mut problems = Vec::new();
        if !self.prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
            || self.prefix.len() > 32
        {
            let said = format!(
                "`{}` cannot start a name: letters, digits and `_.-`, at most 32 of them",
                display_text(&self.prefix)
            );
            problems.push(Problem { path: "prefix".into(), message: said });
        }
        for (from, to, _) in &self.renames {
            if to.is_empty() || !is_name(to) {
                let said = format!("`{}` is no name: letters, digits and `_.-`", display_text(to));
                problems.push(Problem { path: format!("rename.{from}"), message: said });
            }
        }
        problems
    }

    pub(super) fn allocate(&mut self, id: Option<&str>, route: &str) -> String {
        let own = match id.map(|id| sanitize_name(id, MAX_NAME_BYTES)).filter(|own| !own.is_empty()) {
            Some(own) => own,
            None => {
                let (method, path) = route.split_once(' ').unwrap_or(("", route));
                sanitize_name(&format!("{}_{path}", method.to_ascii_lowercase()), MAX_NAME_BYTES)
            }
        };
        let given = self
            .renames
            .iter_mut()
            .find(|(from, ..)| Some(from.as_str()) == id || *from == own || from == route);
        let chosen = match given {
            Some((_, to, was_used)) => {
                *was_used = true;
                to.clone()
            }
            None => own,
        };
        let room = MAX_NAME_BYTES - self.prefix.len() - 8;
        let whole = format!("{}{}", self.prefix, &chosen[..chosen.len().min(room)]);
        let numbered = (2..).map(|number| format!("{whole}_{number}"));
        let mut candidates = std::iter::once(whole.clone()).chain(numbered);
        let name = candidates.find(|name| !self.used_names.contains(name)).unwrap_or(whole);
        self.used_names.insert(name.clone());
        name
    }

    pub(super) fn unused_renames(&self) -> impl Iterator<Item = &str> {
        self.renames.iter().filter(|(.., was_used)| !was_used).map(|(from, ..)| from.as_str())
    }
}

/// What patterns look at.
pub(super) struct OperationInfo<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) tags: Vec<&'a str>,
    pub(super) id: &'a str,
    pub(super) is_deprecated: bool,
}

/// Chooses operations.
pub(super) struct OperationPattern {
    text: String,
    kind: PatternKind,
    is_used: Cell<bool>,
}

enum PatternKind {
    Deprecated,
    Tag(String),
    Id(String),
    Route { method: Option<String>, path: String },
}

impl fmt::Display for OperationPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl OperationPattern {
    pub(super) fn parse(text: &str) -> Result<OperationPattern, String> {
        let trimmed = text.trim();
        let what = if trimmed == "deprecated" {
            PatternKind::Deprecated
        } else if let Some(tag) = trimmed.strip_prefix("tag:") {
            PatternKind::Tag(tag.trim().to_owned())
        } else if let Some(id) = trimmed.strip_prefix("id:") {
            PatternKind::Id(id.trim().to_owned())
        } else {
            let is_word =
                !trimmed.is_empty() && !trimmed.contains(char::is_whitespace) && !trimmed.starts_with('/');
            if is_word {
                return Ok(OperationPattern {
                    text: display_text(trimmed),
                    kind: PatternKind::Id(trimmed.to_owned()),
                    is_used: Cell::new(false),
                });
            }
            let (method, path) = match trimmed.split_once(char::is_whitespace) {
                Some(("*", path)) => (None, path.trim()),
                Some((method, path)) => (Some(method.to_ascii_uppercase()), path.trim()),
                None => (None, trimmed),
            };
            let is_method = method
                .as_deref()
                .is_none_or(|method| super::METHODS.contains(&method.to_ascii_lowercase().as_str()));
            if !path.starts_with('/') || !is_method {
                return Err(format!(
                    "`{}` chooses nothing; write `GET /path/**`, `/path/*`, `tag:name`, an operationId or `deprecated`",
                    display_text(text)
                ));
            }
            PatternKind::Route { method, path: path.to_owned() }
        };
        Ok(OperationPattern { text: display_text(trimmed), kind: what, is_used: Cell::new(false) })
    }

    pub(super) fn matches(&self, facts: &OperationInfo<'_>) -> bool {
        let fits = match &self.kind {
            PatternKind::Deprecated => facts.is_deprecated,
            PatternKind::Tag(tag) => facts.tags.iter().any(|own| glob_matches(tag, own)),
            PatternKind::Id(id) => glob_matches(id, facts.id),
            PatternKind::Route { method, path } => {
                method.as_deref().is_none_or(|method| method == facts.method)
                    && path_matches(path, facts.path)
            }
        };
        if fits {
            self.is_used.set(true);
        }
        fits
    }

    /// `deprecated` may find nothing and is still no slip of the pen.
    pub(super) fn is_used(&self) -> bool {
        self.is_used.get() || matches!(self.kind, PatternKind::Deprecated)
    }
}

/// `*` is anything but a slash, `**` is anything.
fn path_matches(pattern: &str, path: &str) -> bool {
    let wanted: Vec<&str> = pattern.split('/').collect();
    let given: Vec<&str> = path.split('/').collect();
    // Which beginnings of the path the pattern has come to so far.
    let mut at = vec![false; given.len() + 1];
    at[0] = true;
    for part in wanted {
        let mut next = vec![false; given.len() + 1];
        for here in 0..=given.len() {
            if !at[here] {
                continue;
            }
            if part == "**" {
                next[here..].fill(true);
            } else if here < given.len() && glob_matches(part, given[here]) {
                next[here + 1] = true;
            }
        }
        at = next;
    }
    at[given.len()]
}

/// `*` is anything.
fn glob_matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_choose() {
        let facts = |method, path, is_deprecated| OperationInfo {
            method,
            path,
            tags: vec!["stock", "a b"],
            id: "listItems",
            is_deprecated,
        };
        for (pattern, method, path, wanted) in [
            ("GET /v2/**", "GET", "/v2/items/{id}", true),
            ("GET /v2/**", "GET", "/v2", true),
            ("GET /v2/**", "POST", "/v2/items", false),
            ("get /v2/*", "GET", "/v2/items", true),
            ("/v2/*", "PUT", "/v2/items/{id}", false),
            ("* /v2/items/{id}", "PUT", "/v2/items/{id}", true),
            ("DELETE /**", "DELETE", "/", true),
            ("/**/admin/**", "GET", "/a/b/admin/c", true),
            ("/**/admin/**", "GET", "/a/b/admins/c", false),
            ("/a*z/b", "GET", "/abcz/b", true),
            ("tag:stock", "GET", "/", true),
            ("tag:st*", "GET", "/", true),
            ("tag:gone", "GET", "/", false),
            ("id:list*", "GET", "/", true),
            ("listItems", "GET", "/", true),
            ("listItem", "GET", "/", false),
            ("deprecated", "GET", "/", false),
        ] {
            assert_eq!(
                OperationPattern::parse(pattern).unwrap().matches(&facts(method, path, false)),
                wanted,
                "{pattern} {method} {path}"
            );
        }
        assert!(OperationPattern::parse("deprecated").unwrap().matches(&facts("GET", "/", true)));
        for bad in ["", " ", "FETCH /x", "GET x", "a b c"] {
            assert!(OperationPattern::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_are_clean_and_their_own() {
        let rename =
            [("listItemsV2".to_owned(), "list_items".to_owned()), ("gone".to_owned(), "x".to_owned())];
        let mut names = NameAllocator::new("inv_", &rename);
        for (id, route, wanted) in [
            (Some("repos/list-for-org"), "GET /a", "inv_repos_list-for-org"),
            (Some("listItemsV2"), "GET /b", "inv_list_items"),
            (None, "GET /v2/items/{id}", "inv_get_v2_items_id"),
            (None, "GET /v2/items/{id}/", "inv_get_v2_items_id_2"),
            (Some("Été d'or"), "GET /c", "inv_t_d_or"),
            (Some("///"), "POST /", "inv_post"),
        ] {
            assert_eq!(names.allocate(id, route), wanted);
        }
        assert_eq!(names.allocate(Some(&"x".repeat(400)), "GET /").len(), 120);
        assert_eq!(names.unused_renames().collect::<Vec<_>>(), ["gone"]);
        for bad in ["../escape", "<script>alert(1)</script>", "a\nb", "$(rm)", "a\"b"] {
            assert!(validate_operation_id(bad).is_err(), "{bad}");
        }
        let mut taken = HashSet::from(["id".to_owned()]);
        assert_eq!(unique_argument_name("id", "query", &taken), "id_query");
        taken.insert("id_query".into());
        assert_eq!(unique_argument_name("id", "query", &taken), "id_query_2");
        assert_eq!(unique_argument_name("page[size]", "query", &taken), "page_size");
        assert_eq!(unique_argument_name("$", "query", &taken), "query");
        assert_eq!(unique_argument_name("_fields", "query", &taken), "_fields");
    }
}
