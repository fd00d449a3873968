//! `cargo xtask msrv`, `features` and `package`: whether the library crates can be used by others. Run by CI, and not part
//! of `cargo xtask test`, because each of them compiles the dependencies again.

use std::time::Duration;

use crate::Workspace;
use crate::process::{self, OutputMode};
use crate::report::Tally;
use crate::rust;

const CARGO_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// The `rust-version` of the library crates.
const MINIMUM_RUST: &str = "1.88";

/// The features of `toolgate` whose dependencies support [`MINIMUM_RUST`]; redb needs a newer Rust.
const MSRV_FEATURES: &str = "redis,compat,testing";

/// The published libraries, in the order of their dependencies.
const LIBRARIES: [&str; 5] =
    ["toolgate-json", "toolgate-schema", "toolgate-wire", "toolgate-macros", "toolgate"];

/// The features of `toolgate`, each of which must compile alone.
const FEATURES: [&str; 9] =
    ["http", "macros", "validate", "argon2", "compat", "redb", "redis", "testing", "full"];

/// Compiles the libraries with the oldest Rust that they support.
pub(crate) fn msrv(workspace: &Workspace, tally: &mut Tally) {
    let mut rustup = std::process::Command::new("rustup");
    rustup.args(["toolchain", "install", MINIMUM_RUST, "--profile", "minimal", "--no-self-update"]);
    match process::run(&mut rustup, CARGO_TIMEOUT, OutputMode::Quiet) {
        Ok(finished) if finished.is_success() => {}
        Ok(finished) => {
            return tally
                .skip(&format!("Rust {MINIMUM_RUST} cannot be installed: {}", finished.failure_summary()));
        }
        Err(error) => return tally.skip(&format!("Rust {MINIMUM_RUST}: cannot run rustup: {error}")),
    }
    let directory = workspace.work_dir.join("msrv").display().to_string();
    let mut cargo = std::process::Command::new("rustup");
    cargo.current_dir(&workspace.root).env("CARGO_INCREMENTAL", "0");
    cargo.args(["run", MINIMUM_RUST, "cargo", "check", "--locked", "--package", "toolgate", "--lib"]);
    cargo.args(["--features", MSRV_FEATURES, "--target-dir", &directory]);
    run(tally, cargo);
}

/// Compiles `toolgate` without features, with each one alone, and with all.
pub(crate) fn features(workspace: &Workspace, tally: &mut Tally) {
    for feature in [""].into_iter().chain(FEATURES) {
        let mut cargo = rust::cargo(workspace);
        cargo.args([
            "check",
            "--package",
            "toolgate",
            "--lib",
            "--no-default-features",
            "--features",
            feature,
        ]);
        run(tally, cargo);
    }
}

/// Packages the libraries as `cargo publish` does, compiles the packages, and prints their sizes.
pub(crate) fn package(workspace: &Workspace, tally: &mut Tally) {
    let directory = workspace.work_dir.join("package");
    let mut cargo = rust::cargo(workspace);
    // The packages have no profiles of their own; without debug information they compile faster.
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0");
    cargo.args(["package", "--allow-dirty"]);
    for library in LIBRARIES {
        cargo.args(["--package", library]);
    }
    cargo.arg("--target-dir").arg(&directory);
    run(tally, cargo);
    for library in LIBRARIES {
        let name = format!("{library}-{}.crate", env!("CARGO_PKG_VERSION"));
        match std::fs::metadata(directory.join("package").join(&name)) {
            Ok(file) => println!("{name}: {} KiB", file.len() / 1024),
            Err(error) => tally.fail(&format!("{name}: {error}")),
        }
    }
}

fn run(tally: &mut Tally, mut command: std::process::Command) {
    let arguments: Vec<_> =
        command.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let line = arguments.join(" ");
    println!("$ {line}");
    match process::run(&mut command, CARGO_TIMEOUT, OutputMode::Live) {
        Ok(finished) if finished.is_success() => tally.passed += 1,
        Ok(finished) => tally.fail(&format!("{line}: {}", finished.failure_summary())),
        Err(error) => tally.fail(&format!("{line}: {error}")),
    }
}
