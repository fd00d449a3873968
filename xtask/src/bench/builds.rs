//! Measures clean, optimized builds into empty directories: of the library and of rmcp, and with cargo's default
//! profile also of a whole server on each.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use super::contender::OURS;
use super::profile::Profile;
use super::results::Figures;
use crate::Workspace;
use crate::install;
use crate::process::{self, OutputMode};

const BUILD_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// rmcp together with axum, which accepts its connections; our library does that itself.
pub(crate) const RMCP_LISTENING: &str = "rmcp and axum";

/// Our server as a package of its own.
const SMALL_MANIFEST: &str = "load/small/Cargo.toml";

/// The packages of one build.
pub(crate) struct BuildTarget {
    /// The name in the tables.
    pub(crate) name: &'static str,
    /// The workspace and its packages.
    manifest: &'static str,
    packages: &'static [&'static str],
    /// Whether it is a whole server, which is only built with the profile that users have.
    is_server: bool,
}

impl BuildTarget {
    const fn library(name: &'static str, manifest: &'static str, packages: &'static [&'static str]) -> Self {
        Self { name, manifest, packages, is_server: false }
    }

    const fn server(name: &'static str, manifest: &'static str, packages: &'static [&'static str]) -> Self {
        Self { name, manifest, packages, is_server: true }
    }
}

const BUILD_TARGETS: [BuildTarget; 5] = [
    BuildTarget::library(OURS, "Cargo.toml", &["toolgate"]),
    BuildTarget::library(RMCP_LISTENING, "load/peers/rmcp/Cargo.toml", &["rmcp", "axum"]),
    BuildTarget::library("rmcp", "load/peers/rmcp/Cargo.toml", &["rmcp"]),
    BuildTarget::server("a server on toolgate", SMALL_MANIFEST, &["small"]),
    BuildTarget::server("a server on rmcp", "load/peers/rmcp/Cargo.toml", &["peer-rmcp"]),
];

/// The builds that are measured with a profile.
pub(crate) fn targets(profile: Profile) -> impl DoubleEndedIterator<Item = &'static BuildTarget> {
    BUILD_TARGETS.iter().filter(move |built| profile == Profile::Default || !built.is_server)
}

/// Builds packages of a workspace with the features that they have there, and returns the time and the number of crates.
/// All downloads happened when the contenders were built.
pub(crate) fn clean_build(
    workspace: &Workspace,
    profile: Profile,
    built: &BuildTarget,
) -> Result<Figures, String> {
    let manifest = built.manifest;
    let directory = workspace.work_dir.join("clean-build");
    let packages: Vec<&str> = built.packages.iter().flat_map(|package| ["--package", package]).collect();
    if manifest == SMALL_MANIFEST {
        copy_lock_file(workspace, &workspace.root.join(SMALL_MANIFEST))?;
    }
    install::recreate_dir(&directory)?;
    let mut cargo = crate::rust::cargo(workspace);
    cargo.args(["build", "--locked", "--manifest-path", manifest]).args(&packages);
    cargo.arg("--target-dir").arg(&directory);
    profile.apply(&mut cargo, &workspace.root, manifest)?;
    // Otherwise a compiler cache would be measured.
    cargo.env_remove("RUSTC_WRAPPER").env_remove("CARGO_BUILD_RUSTC_WRAPPER");
    let (before, began) = (children_cpu_seconds(), Instant::now());
    let finished =
        process::run(&mut cargo, BUILD_TIMEOUT, OutputMode::Quiet).map_err(|error| error.to_string())?;
    let (wall, cpu) = (began.elapsed().as_secs_f64(), children_cpu_seconds() - before);
    // A gigabyte that is not needed again.
    let _ = std::fs::remove_dir_all(&directory);
    if !finished.is_success() {
        return Err(format!("it does not build: {}", finished.failure_summary()));
    }
    let crates = count_crates(workspace, manifest, &packages)?;
    Ok(Figures::from([("wall_s".into(), wall), ("cpu_s".into(), cpu), ("crates".into(), crates)]))
}

/// Copies the lock file of the root to a package of ours, so that there is no second one to keep up to date.
pub(crate) fn copy_lock_file(workspace: &Workspace, manifest: &Path) -> Result<(), String> {
    let to = manifest.with_file_name("Cargo.lock");
    std::fs::copy(workspace.root.join("Cargo.lock"), &to)
        .map_err(|error| format!("cannot write {}: {error}", to.display()))?;
    // Adds the package and removes unused entries; versions do not change.
    let mut cargo = crate::rust::cargo(workspace);
    cargo.args(["update", "--workspace", "--offline", "--manifest-path"]).arg(manifest);
    match process::run(&mut cargo, BUILD_TIMEOUT, OutputMode::Quiet) {
        Ok(finished) if finished.is_success() => Ok(()),
        Ok(finished) => Err(format!("cargo update: {}", finished.failure_summary())),
        Err(error) => Err(error.to_string()),
    }
}

/// Counts the packages and their dependencies.
pub(crate) fn count_crates(workspace: &Workspace, manifest: &str, packages: &[&str]) -> Result<f64, String> {
    let mut cargo = crate::rust::cargo(workspace);
    cargo.args(["tree", "--locked", "--manifest-path", manifest]).args(packages);
    cargo.args(["--edges", "normal,build", "--prefix", "none", "--format", "{p}"]);
    let finished =
        process::run(&mut cargo, BUILD_TIMEOUT, OutputMode::Quiet).map_err(|error| error.to_string())?;
    if !finished.is_success() {
        return Err(format!("cargo tree: {}", finished.failure_summary()));
    }
    Ok(count_distinct(&finished.stdout) as f64)
}

/// A crate that several others depend on is listed again with a mark.
fn count_distinct(tree: &str) -> usize {
    let names = tree.lines().map(|line| line.trim_end_matches(" (*)")).filter(|line| !line.is_empty());
    names.collect::<BTreeSet<_>>().len()
}

/// CPU seconds, in user space and in the kernel, of all children that have ended and of their descendants.
pub(crate) fn children_cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let fields: Vec<f64> = fields.split_whitespace().map(|field| field.parse().unwrap_or_default()).collect();
    // Fields 16 and 17, in hundredths of a second.
    fields.get(13..15).map_or(0.0, |ticks| ticks.iter().sum::<f64>() / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_counted_once() {
        assert_eq!(count_distinct("a v1.0.0\nb v1.0.0\nc v2.0.0\nb v1.0.0 (*)\n\n"), 3);
    }
}
