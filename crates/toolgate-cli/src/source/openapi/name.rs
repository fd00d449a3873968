//! Names of tools and arguments, and patterns that choose operations.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use crate::source::Problem;

const NAME_LIMIT: usize = 128;
const ARGUMENT_LIMIT: usize = 64;

/// A text of somebody else, short and on one line.
pub(super) fn shown(text: &str) -> String {
    let plain = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    if text.chars().count() > 120 { plain.take(119).chain(['…']).collect() } else { plain.collect() }
}

/// Refuses an `operationId` that nobody writes without a reason.
pub(super) fn judge(id: &str) -> Result<(), String> {
    let is_odd = id.contains("..")
        || id.contains("$(")
        || id.chars().any(|letter| letter.is_control() || "<>\"\\`".contains(letter));
    if is_odd || id.len() > 512 { Err(format!("its operationId `{}` is no name", shown(id))) } else { Ok(()) }
}

/// Letters, digits and `_.-`; everything else becomes one `_`.
pub(super) fn cleaned(text: &str, limit: usize) -> String {
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
pub(super) fn argument(wanted: &str, place: &str, taken: &HashSet<String>) -> String {
    // What starts with an underscore often means something by it.
    let is_plain = !wanted.is_empty()
        && wanted.len() <= ARGUMENT_LIMIT
        && wanted.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    let clean = if is_plain { wanted.to_owned() } else { cleaned(wanted, ARGUMENT_LIMIT - 16) };
    let clean = if clean.is_empty() { place.to_owned() } else { clean };
    let placed = format!("{clean}_{place}");
    let numbered = (2..).map(|number| format!("{placed}_{number}"));
    let mut candidates = [clean.clone(), placed.clone()].into_iter().chain(numbered);
    candidates.find(|name| !taken.contains(name)).unwrap_or(clean)
}

/// Gives every operation a name of its own.
pub(super) struct Names {
    prefix: String,
    rename: Vec<(String, String, bool)>,
    taken: HashSet<String>,
}

impl Names {
    pub(super) fn new(prefix: &str, rename: &[(String, String)]) -> Names {
        let rename = rename.iter().map(|(from, to)| (from.clone(), to.clone(), false)).collect();
        Names { prefix: prefix.to_owned(), rename, taken: HashSet::new() }
    }

    pub(super) fn problems(&self) -> Vec<Problem> {
        let is_name =
            |text: &str| cleaned(text, NAME_LIMIT) == text.trim_matches('_') && !text.contains("__");
        let mut problems = Vec::new();
        if !self.prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
            || self.prefix.len() > 32
        {
            let said = format!(
                "`{}` cannot start a name: letters, digits and `_.-`, at most 32 of them",
                shown(&self.prefix)
            );
            problems.push(Problem { at: "prefix".into(), said });
        }
        for (from, to, _) in &self.rename {
            if to.is_empty() || !is_name(to) {
                let said = format!("`{}` is no name: letters, digits and `_.-`", shown(to));
                problems.push(Problem { at: format!("rename.{from}"), said });
            }
        }
        problems
    }

    pub(super) fn name(&mut self, id: Option<&str>, route: &str) -> String {
        let own = match id.map(|id| cleaned(id, NAME_LIMIT)).filter(|own| !own.is_empty()) {
            Some(own) => own,
            None => {
                let (method, path) = route.split_once(' ').unwrap_or(("", route));
                cleaned(&format!("{}_{path}", method.to_ascii_lowercase()), NAME_LIMIT)
            }
        };
        let given = self
            .rename
            .iter_mut()
            .find(|(from, ..)| Some(from.as_str()) == id || *from == own || from == route);
        let chosen = match given {
            Some((_, to, was_used)) => {
                *was_used = true;
                to.clone()
            }
            None => own,
        };
        let room = NAME_LIMIT - self.prefix.len() - 8;
        let whole = format!("{}{}", self.prefix, &chosen[..chosen.len().min(room)]);
        let numbered = (2..).map(|number| format!("{whole}_{number}"));
        let mut candidates = std::iter::once(whole.clone()).chain(numbered);
        let name = candidates.find(|name| !self.taken.contains(name)).unwrap_or(whole);
        self.taken.insert(name.clone());
        name
    }

    pub(super) fn unused(&self) -> impl Iterator<Item = &str> {
        self.rename.iter().filter(|(.., was_used)| !was_used).map(|(from, ..)| from.as_str())
    }
}

/// What patterns look at.
pub(super) struct Facts<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) tags: Vec<&'a str>,
    pub(super) id: &'a str,
    pub(super) is_deprecated: bool,
}

/// Chooses operations.
pub(super) struct Pattern {
    text: String,
    what: What,
    was_used: Cell<bool>,
}

enum What {
    Deprecated,
    Tag(String),
    Id(String),
    Route { method: Option<String>, path: String },
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Pattern {
    pub(super) fn parse(text: &str) -> Result<Pattern, String> {
        let trimmed = text.trim();
        let what = if trimmed == "deprecated" {
            What::Deprecated
        } else if let Some(tag) = trimmed.strip_prefix("tag:") {
            What::Tag(tag.trim().to_owned())
        } else if let Some(id) = trimmed.strip_prefix("id:") {
            What::Id(id.trim().to_owned())
        } else {
            let is_word =
                !trimmed.is_empty() && !trimmed.contains(char::is_whitespace) && !trimmed.starts_with('/');
            if is_word {
                return Ok(Pattern {
                    text: shown(trimmed),
                    what: What::Id(trimmed.to_owned()),
                    was_used: Cell::new(false),
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
                    shown(text)
                ));
            }
            What::Route { method, path: path.to_owned() }
        };
        Ok(Pattern { text: shown(trimmed), what, was_used: Cell::new(false) })
    }

    pub(super) fn fits(&self, facts: &Facts<'_>) -> bool {
        let fits = match &self.what {
            What::Deprecated => facts.is_deprecated,
            What::Tag(tag) => facts.tags.iter().any(|own| glob(tag, own)),
            What::Id(id) => glob(id, facts.id),
            What::Route { method, path } => {
                method.as_deref().is_none_or(|method| method == facts.method) && path_fits(path, facts.path)
            }
        };
        if fits {
            self.was_used.set(true);
        }
        fits
    }

    /// `deprecated` may find nothing and is still no slip of the pen.
    pub(super) fn was_used(&self) -> bool {
        self.was_used.get() || matches!(self.what, What::Deprecated)
    }
}

/// `*` is anything but a slash, `**` is anything.
fn path_fits(pattern: &str, path: &str) -> bool {
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
            } else if here < given.len() && glob(part, given[here]) {
                next[here + 1] = true;
            }
        }
        at = next;
    }
    at[given.len()]
}

/// `*` is anything.
fn glob(pattern: &str, text: &str) -> bool {
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
        let facts = |method, path, is_deprecated| Facts {
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
                Pattern::parse(pattern).unwrap().fits(&facts(method, path, false)),
                wanted,
                "{pattern} {method} {path}"
            );
        }
        assert!(Pattern::parse("deprecated").unwrap().fits(&facts("GET", "/", true)));
        for bad in ["", " ", "FETCH /x", "GET x", "a b c"] {
            assert!(Pattern::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_are_clean_and_their_own() {
        let rename =
            [("listItemsV2".to_owned(), "list_items".to_owned()), ("gone".to_owned(), "x".to_owned())];
        let mut names = Names::new("inv_", &rename);
        for (id, route, wanted) in [
            (Some("repos/list-for-org"), "GET /a", "inv_repos_list-for-org"),
            (Some("listItemsV2"), "GET /b", "inv_list_items"),
            (None, "GET /v2/items/{id}", "inv_get_v2_items_id"),
            (None, "GET /v2/items/{id}/", "inv_get_v2_items_id_2"),
            (Some("Été d'or"), "GET /c", "inv_t_d_or"),
            (Some("///"), "POST /", "inv_post"),
        ] {
            assert_eq!(names.name(id, route), wanted);
        }
        assert_eq!(names.name(Some(&"x".repeat(400)), "GET /").len(), 120);
        assert_eq!(names.unused().collect::<Vec<_>>(), ["gone"]);
        for bad in ["../escape", "<script>alert(1)</script>", "a\nb", "$(rm)", "a\"b"] {
            assert!(judge(bad).is_err(), "{bad}");
        }
        let mut taken = HashSet::from(["id".to_owned()]);
        assert_eq!(argument("id", "query", &taken), "id_query");
        taken.insert("id_query".into());
        assert_eq!(argument("id", "query", &taken), "id_query_2");
        assert_eq!(argument("page[size]", "query", &taken), "page_size");
        assert_eq!(argument("$", "query", &taken), "query");
        assert_eq!(argument("_fields", "query", &taken), "_fields");
    }
}
