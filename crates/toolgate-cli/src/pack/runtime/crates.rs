//! Builtins about the crates that the program was built from.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use toolgate::HandlerError;

use super::{Builtin, BuiltinArguments, BuiltinContext, BuiltinResult, list_json};

/// The lock file of the workspace at build time.
const CARGO_LOCK: &str = include_str!("../../../../../Cargo.lock");

pub(super) fn builtin(name: &str) -> Option<Builtin> {
    Some(match name {
        "runtime_get_crate_summary" => Builtin::Sync(|_, _| Ok(crate_summary())),
        "runtime_get_crate_info" => Builtin::Sync(crate_info),
        "runtime_search_crates" => Builtin::Sync(search_crates),
        _ => return None,
    })
}

/// A crate, as the lock file names it.
#[derive(Clone, Debug, Default)]
struct LockedPackage {
    name: String,
    version: String,
    /// Of this workspace.
    is_workspace_member: bool,
    /// `name`, or `name version` where there are several.
    dependencies: Vec<String>,
}

impl LockedPackage {
    fn to_json(&self) -> Value {
        json!({ "name": self.name, "version": self.version, "own": self.is_workspace_member, "dependencies": self.dependencies })
    }
}

/// Reads a lock file, which Cargo writes in one way only: a value a line.
fn parse_lock_file(text: &str) -> Vec<LockedPackage> {
    let tables = text.split("[[package]]").skip(1);
    let read = |table: &str| {
        let value = |key: &str| {
            let line = table.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?;
            Some(line.trim().trim_matches('"').to_owned())
        };
        let listed = table.lines().filter_map(|line| line.strip_prefix(" \"")?.strip_suffix("\","));
        LockedPackage {
            name: value("name").unwrap_or_default(),
            version: value("version").unwrap_or_default(),
            is_workspace_member: value("source").is_none(),
            dependencies: listed.map(str::to_owned).collect(),
        }
    };
    tables.map(read).collect()
}

/// Every crate that is in the program, and its releases.
fn linked_crates() -> BTreeMap<String, Vec<LockedPackage>> {
    let mut found: BTreeMap<String, Vec<LockedPackage>> = BTreeMap::new();
    let all = parse_lock_file(CARGO_LOCK);
    // What xtask and the tests of others need is in the same list: only what can be reached from here counts.
    let mut waiting = vec![env!("CARGO_PKG_NAME").to_owned()];
    while let Some(wanted) = waiting.pop() {
        let (name, version) = wanted.split_once(' ').unwrap_or((&wanted, ""));
        let is_meant =
            |one: &&LockedPackage| one.name == name && (version.is_empty() || one.version == version);
        for one in all.iter().filter(is_meant) {
            let known = found.entry(one.name.clone()).or_default();
            if known.iter().any(|known| known.version == one.version) {
                continue;
            }
            known.push(one.clone());
            waiting.extend(one.dependencies.iter().cloned());
        }
    }
    found
}

fn crate_summary() -> Value {
    let crates = linked_crates();
    let direct =
        crates.get(env!("CARGO_PKG_NAME")).and_then(|own| own.first()).map(|own| own.dependencies.clone());
    let several: Vec<&String> =
        crates.iter().filter(|(_, releases)| releases.len() > 1).map(|(name, _)| name).collect();
    json!({
        "total": crates.values().map(Vec::len).sum::<usize>(),
        "own": crates.values().flatten().filter(|one| one.is_workspace_member).count(),
        "direct": direct,
        "severalReleases": several,
        "note": "as locked when the program was built; crates that only tests or other systems need are among them",
    })
}

fn crate_info(_: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let name = given.require("name")?;
    match linked_crates().remove(name) {
        Some(releases) => Ok(list_json("releases", releases.iter().map(LockedPackage::to_json).collect())),
        None => Err(HandlerError::new(format!(
            "the crate `{name}` is not in this program; `runtime_search_crates` finds them by a word"
        ))),
    }
}

fn search_crates(_: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let keyword = given.require("keyword")?.to_lowercase();
    let found = linked_crates().into_iter().filter(|(name, _)| name.to_lowercase().contains(&keyword));
    let found: Vec<Value> = found
        .flat_map(|(_, releases)| releases)
        .map(|one| json!({ "name": one.name, "version": one.version }))
        .take(given.limit(100))
        .collect();
    Ok(list_json("crates", found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_is_made_of_is_known() {
        let crates = linked_crates();
        assert!(crates.contains_key("toolgate") && crates.contains_key("tokio"));
        assert!(!crates.contains_key("xtask"), "that is not in the program");
        assert!(crates["toolgate-cli"][0].is_workspace_member && !crates["tokio"][0].is_workspace_member);
        assert!(crates["toolgate-cli"][0].dependencies.iter().any(|need| need == "toolgate"));
        assert!(crates.values().flatten().all(|one| !one.version.is_empty()));
    }
}
