//! How long it takes to build the library from nothing, beside rmcp's: release profile, directories that are empty.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::book::Figures;
use super::contender::OURS;
use super::profile;
use crate::Places;
use crate::install;
use crate::process::{self, Show};

const LIMIT: Duration = Duration::from_secs(30 * 60);

/// rmcp together with what listens for it, as its server here has it: our library listens itself.
pub(crate) const RMCP_LISTENING: &str = "rmcp and axum";

/// Who is built: the name in the tables, the workspace, and the packages of it.
pub(crate) const BUILT: [(&str, &str, &[&str]); 3] = [
    ("rmcp", "load/peers/rmcp/Cargo.toml", &["rmcp"]),
    (RMCP_LISTENING, "load/peers/rmcp/Cargo.toml", &["rmcp", "axum"]),
    (OURS, "Cargo.toml", &["toolgate"]),
];

/// Builds packages of a workspace, with the features that they have there, and says how long it took and how many crates
/// there are. What has to be downloaded was, when the contenders were built.
pub(crate) fn clean(places: &Places, manifest: &str, packages: &[&str]) -> Result<Figures, String> {
    let directory = places.work.join("clean-build");
    let packages: Vec<&str> = packages.iter().flat_map(|package| ["--package", package]).collect();
    install::fresh(&directory)?;
    let mut cargo = crate::rust::cargo(places);
    cargo.args(["build", "--release", "--locked", "--manifest-path", manifest]).args(&packages);
    cargo.arg("--target-dir").arg(&directory).envs(profile::variables(&places.root)?);
    // A cache of compilers would be measured otherwise.
    cargo.env_remove("RUSTC_WRAPPER").env_remove("CARGO_BUILD_RUSTC_WRAPPER");
    let (before, began) = (of_children(), Instant::now());
    let finished = process::run(&mut cargo, LIMIT, Show::Quiet).map_err(|error| error.to_string())?;
    let (wall, cpu) = (began.elapsed().as_secs_f64(), of_children() - before);
    // A gigabyte that nobody needs again.
    let _ = std::fs::remove_dir_all(&directory);
    if !finished.success() {
        return Err(format!("it does not build: {}", finished.why()));
    }
    let crates = n_crates(places, manifest, &packages)?;
    Ok(Figures::from([("wall_s".into(), wall), ("cpu_s".into(), cpu), ("crates".into(), crates)]))
}

/// The packages and everything they are built from.
fn n_crates(places: &Places, manifest: &str, packages: &[&str]) -> Result<f64, String> {
    let mut cargo = crate::rust::cargo(places);
    cargo.args(["tree", "--locked", "--manifest-path", manifest]).args(packages);
    cargo.args(["--edges", "normal,build", "--prefix", "none", "--format", "{p}"]);
    let finished = process::run(&mut cargo, LIMIT, Show::Quiet).map_err(|error| error.to_string())?;
    if !finished.success() {
        return Err(format!("cargo tree: {}", finished.why()));
    }
    Ok(different(&finished.stdout) as f64)
}

/// A crate that is needed twice is listed twice, and marked.
fn different(tree: &str) -> usize {
    let names = tree.lines().map(|line| line.trim_end_matches(" (*)")).filter(|line| !line.is_empty());
    names.collect::<BTreeSet<_>>().len()
}

/// Seconds of CPU, in user space and in the kernel, of all children that have ended, and of theirs.
fn of_children() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let fields: Vec<f64> = fields.split_whitespace().map(|field| field.parse().unwrap_or_default()).collect();
    // The 16th and 17th field, in hundredths of a second.
    fields.get(13..15).map_or(0.0, |ticks| ticks.iter().sum::<f64>() / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_counted_once() {
        assert_eq!(different("a v1.0.0\nb v1.0.0\nc v2.0.0\nb v1.0.0 (*)\n\n"), 3);
    }
}
