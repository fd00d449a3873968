//! Names of tools and arguments, and patterns that select operations.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use crate::source::Problem;

const MAX_NAME_BYTES: usize = 128;
const MAX_ARGUMENT_NAME_BYTES: usize = 64;

/// Shortens a text of the document to one line for messages.
pub(super) fn display_text(text: &str) -> String {
    let plain = text.chars().map(|character| if character.is_control() { ' ' } else { character });
    if text.chars().count() > 120 { plain.take(119).chain(['…']).collect() } else { plain.collect() }
}

/// Rejects an `operationId` with suspicious characters.
pub(super) fn validate_operation_id(id: &str) -> Result<(), String> {
    let is_suspicious = id.contains("..")
        || id.contains("$(")
        || id.chars().any(|character| character.is_control() || "<>\"\\`".contains(character));
    if is_suspicious || id.len() > 512 {
        Err(format!("its operationId `{}` is not a valid name", display_text(id)))
    } else {
        Ok(())
    }
}

/// Keeps letters, digits and `.-`; every other sequence becomes one `_`.
pub(super) fn sanitize_name(text: &str, limit: usize) -> String {
    let mut sanitized = String::new();
    for character in text.chars() {
        if character.is_ascii_alphanumeric() || ".-".contains(character) {
            sanitized.push(character);
        } else if !sanitized.ends_with('_') {
            sanitized.push('_');
        }
    }
    let start = sanitized.trim_matches('_');
    start[..start.len().min(limit)].to_owned()
}

/// A unique argument name: the parameter's own, else with its location, else with a number.
pub(super) fn unique_argument_name(wanted: &str, location: &str, used_names: &HashSet<String>) -> String {
    // Keeps a leading underscore, which often has a meaning.
    let is_plain = !wanted.is_empty()
        && wanted.len() <= MAX_ARGUMENT_NAME_BYTES
        && wanted.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    let sanitized =
        if is_plain { wanted.to_owned() } else { sanitize_name(wanted, MAX_ARGUMENT_NAME_BYTES - 16) };
    let sanitized = if sanitized.is_empty() { location.to_owned() } else { sanitized };
    let with_location = format!("{sanitized}_{location}");
    let numbered = (2..).map(|number| format!("{with_location}_{number}"));
    let mut candidates = [sanitized.clone(), with_location.clone()].into_iter().chain(numbered);
    candidates.find(|name| !used_names.contains(name)).unwrap_or(sanitized)
}

/// Allocates a unique name for every operation.
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
            let message = format!(
                "`{}` is not a valid prefix: use at most 32 letters, digits and `_.-`",
                display_text(&self.prefix)
            );
            problems.push(Problem { path: "prefix".into(), message });
        }
        for (from, to, _) in &self.renames {
            if to.is_empty() || !is_name(to) {
                let message =
                    format!("`{}` is not a valid name: use letters, digits and `_.-`", display_text(to));
                problems.push(Problem { path: format!("rename.{from}"), message });
            }
        }
        problems
    }

    pub(super) fn allocate(&mut self, id: Option<&str>, route: &str) -> String {
        let generated =
            match id.map(|id| sanitize_name(id, MAX_NAME_BYTES)).filter(|generated| !generated.is_empty()) {
                Some(generated) => generated,
                None => {
                    let (method, path) = route.split_once(' ').unwrap_or(("", route));
                    sanitize_name(&format!("{}_{path}", method.to_ascii_lowercase()), MAX_NAME_BYTES)
                }
            };
        let rename_entry = self
            .renames
            .iter_mut()
            .find(|(from, ..)| Some(from.as_str()) == id || *from == generated || from == route);
        let chosen = match rename_entry {
            Some((_, to, was_used)) => {
                *was_used = true;
                to.clone()
            }
            None => generated,
        };
        let max_len = MAX_NAME_BYTES - self.prefix.len() - 8;
        let full_name = format!("{}{}", self.prefix, &chosen[..chosen.len().min(max_len)]);
        let numbered = (2..).map(|number| format!("{full_name}_{number}"));
        let mut candidates = std::iter::once(full_name.clone()).chain(numbered);
        let name = candidates.find(|name| !self.used_names.contains(name)).unwrap_or(full_name);
        self.used_names.insert(name.clone());
        name
    }

    pub(super) fn unused_renames(&self) -> impl Iterator<Item = &str> {
        self.renames.iter().filter(|(.., was_used)| !was_used).map(|(from, ..)| from.as_str())
    }
}

/// The properties of an operation that patterns match.
pub(super) struct OperationInfo<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) tags: Vec<&'a str>,
    pub(super) id: &'a str,
    pub(super) is_deprecated: bool,
}

/// A pattern that selects operations.
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
        let kind = if trimmed == "deprecated" {
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
                    "`{}` is not a valid pattern; write `GET /path/**`, `/path/*`, `tag:name`, an operationId or `deprecated`",
                    display_text(text)
                ));
            }
            PatternKind::Route { method, path: path.to_owned() }
        };
        Ok(OperationPattern { text: display_text(trimmed), kind, is_used: Cell::new(false) })
    }

    pub(super) fn matches(&self, info: &OperationInfo<'_>) -> bool {
        let is_match = match &self.kind {
            PatternKind::Deprecated => info.is_deprecated,
            PatternKind::Tag(tag) => info.tags.iter().any(|name| glob_matches(tag, name)),
            PatternKind::Id(id) => glob_matches(id, info.id),
            PatternKind::Route { method, path } => {
                method.as_deref().is_none_or(|method| method == info.method) && path_matches(path, info.path)
            }
        };
        if is_match {
            self.is_used.set(true);
        }
        is_match
    }

    /// `deprecated` may match nothing without being a typo.
    pub(super) fn is_used(&self) -> bool {
        self.is_used.get() || matches!(self.kind, PatternKind::Deprecated)
    }
}

/// `*` matches anything but a slash, `**` matches anything.
fn path_matches(pattern: &str, path: &str) -> bool {
    let pattern_parts: Vec<&str> = pattern.split('/').collect();
    let path_parts: Vec<&str> = path.split('/').collect();
    // Which prefixes of the path the pattern matches so far.
    let mut reachable = vec![false; path_parts.len() + 1];
    reachable[0] = true;
    for part in pattern_parts {
        let mut next = vec![false; path_parts.len() + 1];
        for position in 0..=path_parts.len() {
            if !reachable[position] {
                continue;
            }
            if part == "**" {
                next[position..].fill(true);
            } else if position < path_parts.len() && glob_matches(part, path_parts[position]) {
                next[position + 1] = true;
            }
        }
        reachable = next;
    }
    reachable[path_parts.len()]
}

/// `*` matches any sequence.
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
    fn patterns_select_operations() {
        let info = |method, path, is_deprecated| OperationInfo {
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
                OperationPattern::parse(pattern).unwrap().matches(&info(method, path, false)),
                wanted,
                "{pattern} {method} {path}"
            );
        }
        assert!(OperationPattern::parse("deprecated").unwrap().matches(&info("GET", "/", true)));
        for bad in ["", " ", "FETCH /x", "GET x", "a b c"] {
            assert!(OperationPattern::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_are_sanitized_and_unique() {
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
        let mut used_names = HashSet::from(["id".to_owned()]);
        assert_eq!(unique_argument_name("id", "query", &used_names), "id_query");
        used_names.insert("id_query".into());
        assert_eq!(unique_argument_name("id", "query", &used_names), "id_query_2");
        assert_eq!(unique_argument_name("page[size]", "query", &used_names), "page_size");
        assert_eq!(unique_argument_name("$", "query", &used_names), "query");
        assert_eq!(unique_argument_name("_fields", "query", &used_names), "_fields");
    }
}
