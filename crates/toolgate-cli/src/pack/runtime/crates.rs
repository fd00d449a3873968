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

/// A package of the lock file.
#[derive(Clone, Debug, Default)]
struct LockedPackage {
    name: String,
    version: String,
    /// Whether it is a member of this workspace.
    is_workspace_member: bool,
    /// `name`, or `name version` where there are several.
    dependencies: Vec<String>,
}

impl LockedPackage {
    fn to_json(&self) -> Value {
        json!({ "name": self.name, "version": self.version, "own": self.is_workspace_member, "dependencies": self.dependencies })
    }
}

/// Parses a lock file, which Cargo always writes with one value per line.
fn parse_lock_file(text: &str) -> Vec<LockedPackage> {
    let tables = text.split("[[package]]").skip(1);
    let parse = |table: &str| {
        let value = |key: &str| {
            let line = table.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?;
            Some(line.trim().trim_matches('"').to_owned())
        };
        let dependencies = table.lines().filter_map(|line| line.strip_prefix(" \"")?.strip_suffix("\","));
        LockedPackage {
            name: value("name").unwrap_or_default(),
            version: value("version").unwrap_or_default(),
            is_workspace_member: value("source").is_none(),
            dependencies: dependencies.map(str::to_owned).collect(),
        }
    };
    tables.map(parse).collect()
}

/// All crates that are linked into the program, with their versions.
fn linked_crates() -> BTreeMap<String, Vec<LockedPackage>> {
    let mut linked: BTreeMap<String, Vec<LockedPackage>> = BTreeMap::new();
    let all = parse_lock_file(CARGO_LOCK);
    // The lock file also lists packages of xtask and other crates' tests, so only those reachable from this package
    // count.
    let mut queue = vec![env!("CARGO_PKG_NAME").to_owned()];
    while let Some(wanted) = queue.pop() {
        let (name, version) = wanted.split_once(' ').unwrap_or((&wanted, ""));
        let matches = |package: &&LockedPackage| {
            package.name == name && (version.is_empty() || package.version == version)
        };
        for package in all.iter().filter(matches) {
            let known = linked.entry(package.name.clone()).or_default();
            if known.iter().any(|known| known.version == package.version) {
                continue;
            }
            known.push(package.clone());
            queue.extend(package.dependencies.iter().cloned());
        }
    }
    linked
}

fn crate_summary() -> Value {
    let crates = linked_crates();
    let direct =
        crates.get(env!("CARGO_PKG_NAME")).and_then(|own| own.first()).map(|own| own.dependencies.clone());
    let duplicated: Vec<&String> =
        crates.iter().filter(|(_, releases)| releases.len() > 1).map(|(name, _)| name).collect();
    json!({
        "total": crates.values().map(Vec::len).sum::<usize>(),
        "own": crates.values().flatten().filter(|package| package.is_workspace_member).count(),
        "direct": direct,
        "severalReleases": duplicated,
        "note": "as locked at build time; includes crates that only tests or other platforms need",
    })
}

fn crate_info(_: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let name = arguments.require("name")?;
    match linked_crates().remove(name) {
        Some(releases) => Ok(list_json("releases", releases.iter().map(LockedPackage::to_json).collect())),
        None => {
            Err(HandlerError::new(format!("unknown crate `{name}`; search with `runtime_search_crates`")))
        }
    }
}

fn search_crates(_: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let keyword = arguments.require("keyword")?.to_lowercase();
    let linked = linked_crates().into_iter().filter(|(name, _)| name.to_lowercase().contains(&keyword));
    let linked: Vec<Value> = linked
        .flat_map(|(_, releases)| releases)
        .map(|package| json!({ "name": package.name, "version": package.version }))
        .take(arguments.limit(100))
        .collect();
    Ok(list_json("crates", linked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linked_crates_are_found_in_the_lock_file() {
        let crates = linked_crates();
        assert!(crates.contains_key("toolgate") && crates.contains_key("tokio"));
        assert!(!crates.contains_key("xtask"), "it is not linked");
        assert!(crates["toolgate-cli"][0].is_workspace_member && !crates["tokio"][0].is_workspace_member);
        assert!(crates["toolgate-cli"][0].dependencies.iter().any(|need| need == "toolgate"));
        assert!(crates.values().flatten().all(|package| !package.version.is_empty()));
    }
}
