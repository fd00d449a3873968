//! Builds a copy of a Rust server in cargo's default debug profile, and measures it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::contender::{copy_file, read, work_dir};
use crate::Workspace;
use crate::bench::builds;
use crate::install;
use crate::process::{self, OutputMode};

const BUILD_TIMEOUT: Duration = Duration::from_secs(30 * 60);
const N_REBUILDS: usize = 3;
/// A text that a tool returns, which every server contains once.
const CHANGED_TEXT: &str = "is kept";
const PROGRAM: &str = "order-desk";

/// A copy of a server with its own target directory.
pub(super) struct CargoPackage {
    manifest: PathBuf,
    target: PathBuf,
}

/// The cost of a build.
#[derive(Clone, Copy)]
pub(super) struct Cost {
    /// In user space and in the kernel, of cargo and all compilers.
    pub(super) cpu_seconds: f64,
    pub(super) wall_seconds: f64,
}

impl CargoPackage {
    /// Copies a package, and downloads its dependencies.
    pub(super) fn copy(workspace: &Workspace, from: &Path, to: &Path) -> Result<Self, String> {
        install::recreate_dir(&to.join("src"))?;
        copy_file(&workspace.root.join("compare/orders.rs"), &to.with_file_name("orders.rs"))?;
        copy_file(&from.join("src/main.rs"), &to.join("src/main.rs"))?;
        // The copy is in another place.
        let root = workspace.root.display().to_string().replace('\\', "/");
        let manifest = read(&from.join("Cargo.toml"))?.replace("\"../../", &format!("\"{root}/"));
        let package = Self {
            manifest: to.join("Cargo.toml"),
            target: work_dir(workspace).join("target").join(to.file_name().unwrap_or_default()),
        };
        write(&package.manifest, &manifest)?;
        // Our library has the dependencies of this workspace; the other server has a lock file of its own.
        match manifest.contains("path = \"") {
            true => builds::copy_lock_file(workspace, &package.manifest)?,
            false => copy_file(&from.join("Cargo.lock"), &to.join("Cargo.lock"))?,
        }
        package
            .run(workspace, &["fetch", "--locked"])
            .map_err(|reason| format!("its packages are missing: {reason}"))?;
        Ok(package)
    }

    /// The program; it exists after the first build.
    pub(super) fn program(&self) -> PathBuf {
        self.target.join("debug").join(PROGRAM).with_extension(std::env::consts::EXE_EXTENSION)
    }

    pub(super) fn count_crates(&self, workspace: &Workspace) -> Result<usize, String> {
        let all = builds::count_crates(workspace, &self.manifest.to_string_lossy(), &["--package", PROGRAM])?;
        // Without the server itself.
        Ok((all as usize).saturating_sub(1))
    }

    pub(super) fn build(&self, workspace: &Workspace) -> Result<(), String> {
        let target = self.target.display().to_string();
        self.run(workspace, &["build", "--locked", "--target-dir", &target])
    }

    /// Builds everything into an empty directory.
    pub(super) fn clean_build(&self, workspace: &Workspace) -> Result<Cost, String> {
        install::recreate_dir(&self.target)?;
        self.timed_build(workspace)
    }

    /// Builds again after a change of one line, several times, and returns the medians.
    pub(super) fn rebuild(&self, workspace: &Workspace) -> Result<Cost, String> {
        let source = self.manifest.with_file_name("src").join("main.rs");
        let text = read(&source)?;
        if text.matches(CHANGED_TEXT).count() != 1 {
            return Err(format!("{} does not contain `{CHANGED_TEXT}` once", source.display()));
        }
        let mut costs = Vec::new();
        for round in 1..=N_REBUILDS {
            write(&source, &text.replace(CHANGED_TEXT, &format!("{CHANGED_TEXT} ({round})")))?;
            costs.push(self.timed_build(workspace)?);
        }
        Ok(Cost {
            cpu_seconds: median(costs.iter().map(|cost| cost.cpu_seconds)),
            wall_seconds: median(costs.iter().map(|cost| cost.wall_seconds)),
        })
    }

    /// Removes what was built: half a gigabyte that is not needed after a measurement.
    pub(super) fn remove_target(&self) {
        let _ = fs::remove_dir_all(&self.target);
    }

    fn timed_build(&self, workspace: &Workspace) -> Result<Cost, String> {
        let (before, began) = (builds::children_cpu_seconds(), Instant::now());
        self.build(workspace)?;
        let cpu_seconds = builds::children_cpu_seconds() - before;
        if cpu_seconds <= 0.0 {
            return Err("this system does not report the CPU time of child processes".to_owned());
        }
        Ok(Cost { cpu_seconds, wall_seconds: began.elapsed().as_secs_f64() })
    }

    fn run(&self, workspace: &Workspace, args: &[&str]) -> Result<(), String> {
        let mut cargo: Command = crate::rust::cargo(workspace);
        cargo.args(args).arg("--manifest-path").arg(&self.manifest);
        // Otherwise a compiler cache would be measured, or builds that are not incremental.
        cargo
            .env_remove("RUSTC_WRAPPER")
            .env_remove("CARGO_BUILD_RUSTC_WRAPPER")
            .env_remove("CARGO_INCREMENTAL");
        let finished =
            process::run(&mut cargo, BUILD_TIMEOUT, OutputMode::Quiet).map_err(|error| error.to_string())?;
        if !finished.is_success() {
            eprint!("{}", finished.stderr);
            return Err(format!("cargo {}: {}", args[0], finished.failure_summary()));
        }
        Ok(())
    }
}

/// The median of at least one value.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_the_sorted_values_is_the_median() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert!(median(std::iter::empty()).is_nan());
    }
}
