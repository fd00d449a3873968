//! How everybody is built who is measured: with the release profile of the library, or with cargo's default.
//!
//! The first stands in one place, the `Cargo.toml` at the root. The workspaces of `load/` have none of their own: cargo
//! takes it from the environment, so that like is compared with like whatever becomes of it. The second is what somebody
//! has who writes no profile: there is nothing to say in `load/`, and at the root every line is taken back.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Workspace;

/// What like is compared with like in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// The release profile of the library.
    Tuned,
    /// What cargo does where nobody says anything.
    Default,
}

/// What cargo's release profile is. Where nothing is said of debug information, it strips that.
const CARGO_DEFAULTS: [(&str, &str); 10] = [
    ("opt-level", "3"),
    ("codegen-units", "16"),
    ("lto", "false"),
    ("panic", "unwind"),
    ("strip", "debuginfo"),
    ("debug", "false"),
    ("debug-assertions", "false"),
    ("overflow-checks", "false"),
    ("incremental", "false"),
    ("rpath", "false"),
];

/// How many of these decide how quick a program is, and how quickly it is built.
const N_REPORTED_DEFAULTS: usize = 3;

const SECTION: &str = "profile.release";

impl Profile {
    pub(crate) const ALL: [Self; 2] = [Self::Tuned, Self::Default];

    /// What it is called in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tuned => "tuned profile",
            Self::Default => "cargo's default profile",
        }
    }

    /// What a measure is called in which everybody is built with it.
    pub(crate) fn measure_name(self, name: &str) -> String {
        match self {
            Self::Tuned => name.to_owned(),
            Self::Default => format!("default-{name}"),
        }
    }

    /// Lets cargo build a workspace with it.
    pub(crate) fn apply(self, cargo: &mut Command, root: &Path, manifest: &str) -> Result<(), String> {
        match self {
            Self::Tuned => drop(cargo.envs(env_variables(root)?)),
            Self::Default => {
                let lines = default_overrides(&read(&root.join(manifest))?, |name| std::env::var(name).ok())?;
                cargo.args(lines.iter().flat_map(|line| ["--config", line]));
            }
        }
        Ok(())
    }

    /// Where such a build is kept; `None` is where cargo keeps it anyway.
    pub(crate) fn target_dir(self, workspace: &Workspace, manifest: &str) -> Option<PathBuf> {
        match self {
            Self::Default => Some(workspace.work_dir.join("default")),
            // One for all, so that what several use is built once.
            Self::Tuned => manifest.starts_with("load/").then(|| workspace.work_dir.join("load")),
        }
    }

    /// What it says, in words.
    pub(crate) fn describe(self, root: &Path) -> String {
        let keys = match self {
            Self::Tuned => section(&read(&root.join("Cargo.toml")).unwrap_or_default(), SECTION),
            Self::Default => CARGO_DEFAULTS[..N_REPORTED_DEFAULTS]
                .iter()
                .map(|(key, value)| parse_pair(key, value))
                .collect(),
        };
        let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        keys.join(", ")
    }
}

/// Names and values of variables that cargo reads. What the environment has already is left alone: it holds for all.
fn env_variables(root: &Path) -> Result<Vec<(String, String)>, String> {
    let variables = section(&read(&root.join("Cargo.toml"))?, SECTION).into_iter();
    let variables = variables.map(|(key, value)| (env_variable(&key), value));
    Ok(variables.filter(|(name, _)| std::env::var_os(name).is_none()).collect())
}

fn env_variable(key: &str) -> String {
    format!("CARGO_PROFILE_RELEASE_{}", key.to_uppercase().replace('-', "_"))
}

/// Lines of configuration that say cargo's default for everything that the manifest says of releases, of all packages
/// and of single ones. What the environment says instead holds for all.
fn default_overrides(manifest: &str, said: impl Fn(&str) -> Option<String>) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    for name in release_sections(manifest) {
        for (key, _) in section(manifest, name) {
            let default = CARGO_DEFAULTS.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
            let default = default.ok_or_else(|| format!("cargo's default of `{key}` is not known here"))?;
            let value = said(&env_variable(&key)).unwrap_or_else(|| default.to_owned());
            let is_bare = value.parse::<i64>().is_ok() || value.parse::<bool>().is_ok();
            let value = if is_bare { value } else { format!("\"{value}\"") };
            lines.push(format!("{name}.{key}={value}"));
        }
    }
    Ok(lines)
}

/// The names of all sections about releases.
fn release_sections(manifest: &str) -> impl Iterator<Item = &str> {
    let names = manifest.lines().filter_map(|line| line.trim().strip_prefix('[')?.strip_suffix(']'));
    names.filter(|name| {
        name.strip_prefix(SECTION).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// Keys and values of a section, without quotes.
fn section(manifest: &str, name: &str) -> Vec<(String, String)> {
    let head = format!("[{name}]");
    let section = manifest.lines().map(str::trim).skip_while(|line| *line != head).skip(1);
    let lines = section.take_while(|line| !line.starts_with('[')).filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once('='));
    pairs
        .map(|(key, value)| {
            parse_pair(key.trim(), value.split('#').next().unwrap_or_default().trim().trim_matches('"'))
        })
        .collect()
}

fn parse_pair(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[a]\nlto = 1\n[profile.release]\nlto = \"fat\" # all of it\n# why\ncodegen-units = 1\n\n\
                            [profile.release.package.a-b]\nopt-level = \"s\"\nstrip = \"symbols\"\n\
                            [profile.dev]\ndebug = 1\n";

    fn root() -> &'static Path {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        manifest.parent().unwrap_or(manifest)
    }

    #[test]
    fn the_section_is_read() {
        assert_eq!(section(MANIFEST, SECTION), [parse_pair("lto", "fat"), parse_pair("codegen-units", "1")]);
    }

    #[test]
    fn every_line_is_taken_back() {
        let nobody = default_overrides(MANIFEST, |_| None).unwrap();
        let expected = [
            "profile.release.lto=false",
            "profile.release.codegen-units=16",
            "profile.release.package.a-b.opt-level=3",
            "profile.release.package.a-b.strip=\"debuginfo\"",
        ];
        assert_eq!(nobody, expected);
        let somebody = |name: &str| (name == "CARGO_PROFILE_RELEASE_STRIP").then(|| "none".to_owned());
        let lines = default_overrides(MANIFEST, somebody).unwrap();
        assert_eq!(lines.last().unwrap(), "profile.release.package.a-b.strip=\"none\"");
        assert!(default_overrides("[profile.release]\nnew = 1\n", |_| None).is_err());
    }

    #[test]
    fn the_root_has_one_and_nobody_in_load_has_another() {
        assert!(env_variables(root()).is_ok_and(|variables| !variables.is_empty()));
        let peers = std::fs::read_dir(root().join("load/peers")).unwrap();
        let manifests = peers.flatten().map(|peer| peer.path().join("Cargo.toml"));
        let others = ["load/Cargo.toml", "load/small/Cargo.toml"].map(|manifest| root().join(manifest));
        for manifest in manifests.chain(others).filter(|manifest| manifest.exists()) {
            let text = read(&manifest).unwrap();
            assert!(!text.contains("[profile."), "{} has a profile of its own", manifest.display());
        }
    }

    #[test]
    fn nothing_that_the_root_says_stays() {
        let manifest = read(&root().join("Cargo.toml")).unwrap();
        let lines = default_overrides(&manifest, |_| None).unwrap();
        // However it is written: a section that cannot be read here would stay.
        assert_eq!(release_sections(&manifest).count(), manifest.matches(SECTION).count());
        assert!(
            release_sections(&manifest).count() > 1 && lines.len() >= release_sections(&manifest).count()
        );
        assert!(lines.iter().all(|line| !line.contains("opt-level") || line.ends_with("opt-level=3")));
    }
}
