//! The two cargo profiles that every contender is built with.
//!
//! The `dist` profile is defined once, in the `Cargo.toml` at the root. The workspaces of `load/` define no profile;
//! they get the same settings on cargo's command line, so that all contenders are compiled alike. The other profile is
//! cargo's `release`, which no manifest changes. Users who define no profile get it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Workspace;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// The `dist` profile of the root manifest.
    Dist,
    /// Cargo's `release` with its default settings.
    Default,
}

/// The settings of cargo's `release` profile that decide speed and build time, for the report.
const CARGO_DEFAULTS: &str = "opt-level = 3, codegen-units = 16, lto = false";

const DIST_SECTION: &str = "profile.dist";

impl Profile {
    pub(crate) const ALL: [Self; 2] = [Self::Dist, Self::Default];

    /// The name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dist => "dist profile",
            Self::Default => "cargo's default profile",
        }
    }

    /// The name of a measure whose contenders are built with this profile.
    pub(crate) fn measure_name(self, name: &str) -> String {
        match self {
            Self::Dist => name.to_owned(),
            Self::Default => format!("default-{name}"),
        }
    }

    /// Adds the arguments that make cargo build the workspace of `manifest` with this profile.
    pub(crate) fn apply(self, cargo: &mut Command, root: &Path, manifest: &str) -> Result<(), String> {
        match self {
            Self::Default => cargo.arg("--release"),
            Self::Dist if manifest == "Cargo.toml" => cargo.args(["--profile", "dist"]),
            Self::Dist => {
                let settings = dist_settings(root)?;
                cargo.args(["--profile", "dist"]);
                cargo.args(settings.iter().flat_map(|(key, value)| {
                    ["--config".to_owned(), format!("{DIST_SECTION}.{key}={value}")]
                }))
            }
        };
        Ok(())
    }

    /// The target directory of such a build; `None` is cargo's own.
    pub(crate) fn target_dir(self, workspace: &Workspace, manifest: &str) -> Option<PathBuf> {
        match self {
            Self::Default => Some(workspace.work_dir.join("default")),
            // One for all workspaces, so that common dependencies are built once.
            Self::Dist => manifest.starts_with("load/").then(|| workspace.work_dir.join("load")),
        }
    }

    /// The settings in one line, for the report.
    pub(crate) fn describe(self, root: &Path) -> String {
        match self {
            Self::Dist => {
                let settings = dist_settings(root).unwrap_or_default();
                let settings: Vec<String> = settings
                    .iter()
                    .map(|(key, value)| format!("{key} = {}", value.trim_matches('"')))
                    .collect();
                settings.join(", ")
            }
            Self::Default => CARGO_DEFAULTS.to_owned(),
        }
    }
}

/// The keys and values of the `dist` profile, as the root manifest has them.
fn dist_settings(root: &Path) -> Result<Vec<(String, String)>, String> {
    let settings = section(&read(&root.join("Cargo.toml"))?, DIST_SECTION);
    match settings.is_empty() {
        true => Err(format!("the root manifest has no section [{DIST_SECTION}]")),
        false => Ok(settings),
    }
}

/// The keys and values of a section of a manifest.
fn section(manifest: &str, name: &str) -> Vec<(String, String)> {
    let head = format!("[{name}]");
    let section = manifest.lines().map(str::trim).skip_while(|line| *line != head).skip(1);
    let lines = section.take_while(|line| !line.starts_with('[')).filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once('='));
    let without_comment = |value: &str| value.split('#').next().unwrap_or_default().trim().to_owned();
    pairs.map(|(key, value)| (key.trim().to_owned(), without_comment(value))).collect()
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        manifest.parent().unwrap_or(manifest)
    }

    fn arguments(profile: Profile, manifest: &str) -> Vec<String> {
        let mut cargo = Command::new("cargo");
        profile.apply(&mut cargo, root(), manifest).unwrap();
        cargo.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_section_ends_at_the_next_one() {
        let manifest = "[a]\nlto = 1\n[profile.dist]\nlto = \"fat\" # all of it\n# why\ncodegen-units = 1\n\n[b]\nc = 1\n";
        let expected = [("lto", "\"fat\""), ("codegen-units", "1")];
        let found = section(manifest, DIST_SECTION);
        assert!(found.iter().map(|(key, value)| (&**key, &**value)).eq(expected), "{found:?}");
    }

    #[test]
    fn other_workspaces_get_the_settings_of_the_root() {
        assert_eq!(arguments(Profile::Dist, "Cargo.toml"), ["--profile", "dist"]);
        let other = arguments(Profile::Dist, "load/Cargo.toml");
        for expected in ["dist", "profile.dist.inherits=\"release\"", "profile.dist.lto=\"fat\""] {
            assert!(other.iter().any(|argument| argument == expected), "{expected} is not in {other:?}");
        }
        assert_eq!(arguments(Profile::Default, "load/Cargo.toml"), ["--release"]);
    }

    #[test]
    fn no_manifest_changes_the_release_profile() {
        let peers = std::fs::read_dir(root().join("load/peers")).unwrap();
        let peers = peers.flatten().map(|peer| peer.path().join("Cargo.toml"));
        let others = ["load/Cargo.toml", "load/small/Cargo.toml"].map(|manifest| root().join(manifest));
        for manifest in peers.chain(others).filter(|manifest| manifest.exists()) {
            assert!(!read(&manifest).unwrap().contains("[profile."), "{} has a profile", manifest.display());
        }
        assert!(!read(&root().join("Cargo.toml")).unwrap().contains("[profile.release"));
    }
}
