//! Installs the tools of the conformance suite and the drivers below `target/xtask/`: Node, npm packages, a Python venv.
//!
//! A stamp file with the list of packages lets the next run reuse them. If something cannot be installed, the result is an
//! `Err` with the reason; the caller decides whether to skip.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::Workspace;
use crate::process::{self, OutputMode};

const INSTALL_TIMEOUT: Duration = Duration::from_secs(300);
const NODE_MAJOR: u32 = 22;
const STAMP_FILE: &str = "installed.stamp";

/// Returns a Node that is new enough: that of the system, or the one in npm's package `node`.
pub(crate) fn node(workspace: &Workspace) -> Result<PathBuf, String> {
    if node_major("node").is_some_and(|major| major >= NODE_MAJOR) {
        return Ok("node".into());
    }
    let dir = workspace.work_dir.join("node");
    let manifest = format!(r#"{{"private": true, "dependencies": {{"node": "{NODE_MAJOR}"}}}}"#);
    npm_packages(&dir, &manifest)?;
    let program = dir.join("node_modules/node/bin/node");
    match node_major(&program) {
        Some(NODE_MAJOR..) => Ok(program),
        _ => {
            remove_stamp(&dir);
            Err(format!("npm's package `node` has no Node {NODE_MAJOR} for this machine"))
        }
    }
}

/// Ensures that Valgrind is installed.
pub(crate) fn valgrind() -> Result<(), String> {
    ensure_program("valgrind", "valgrind")
        .map_err(|reason| format!("{reason}; instructions are counted with its callgrind"))
}

/// Installs the dependencies of a package.json into `dir`.
pub(crate) fn npm_packages(dir: &Path, manifest: &str) -> Result<(), String> {
    install_once(dir, manifest, || {
        ensure_program("npm", "npm")?;
        remove_dir(&dir.join("node_modules"))?;
        write(&dir.join("package.json"), manifest)?;
        let mut npm = Command::new(npm_program());
        npm.current_dir(dir);
        npm.args(["install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]);
        run_checked(&mut npm, "npm install")
    })
}

/// Creates a venv in `dir` with the packages of a requirements.txt, and returns its interpreter.
pub(crate) fn python(dir: &Path, requirements: &str) -> Result<PathBuf, String> {
    let venv = dir.join("venv");
    let program = match cfg!(windows) {
        true => venv.join("Scripts/python.exe"),
        false => venv.join("bin/python"),
    };
    if !process::succeeds(Command::new(&program).arg("--version")) {
        // The Python of the system, which a venv only points to, may have been replaced.
        remove_stamp(dir);
    }
    install_once(dir, requirements, || {
        ensure_program("python3", "python3")?;
        make_venv(&venv)?;
        let list = dir.join("requirements.txt");
        write(&list, requirements)?;
        let mut pip = Command::new(&program);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
        run_checked(pip.arg(list), "pip install")
    })?;
    Ok(program)
}

fn make_venv(venv: &Path) -> Result<(), String> {
    remove_dir(venv)?;
    let make = || run_checked(Command::new("python3").args(["-m", "venv"]).arg(venv), "python3 -m venv");
    if make().is_ok() {
        return Ok(());
    }
    // Some distributions ship Python without `venv`.
    apt_install("python3-venv")?;
    remove_dir(venv)?;
    make()
}

/// Runs `install` unless the stamp in `dir` equals `list`. Tries twice, because the network may fail.
fn install_once(dir: &Path, list: &str, install: impl Fn() -> Result<(), String>) -> Result<(), String> {
    let stamp = dir.join(STAMP_FILE);
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == list) {
        return Ok(());
    }
    fs::create_dir_all(dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
    remove_stamp(dir);
    println!("installing into {}", dir.display());
    install().or_else(|_| install())?;
    write(&stamp, list)
}

/// Removes the stamp, so that the next run installs again.
fn remove_stamp(dir: &Path) {
    let _ = fs::remove_file(dir.join(STAMP_FILE));
}

/// Ensures that a program is installed, with the package manager of the system if necessary.
pub(crate) fn ensure_program(program: &str, package: &str) -> Result<(), String> {
    let is_installed = || {
        process::succeeds(
            Command::new(if program == "npm" { npm_program() } else { program }).arg("--version"),
        )
    };
    if is_installed() {
        return Ok(());
    }
    apt_install(package)?;
    match is_installed() {
        true => Ok(()),
        false => Err(format!("{program} does not run on this machine")),
    }
}

/// Installs a system package.
pub(crate) fn apt_install(package: &str) -> Result<(), String> {
    let install = || {
        let mut apt = Command::new("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        run_checked(apt.args(["install", "-y", "--no-install-recommends", package]), "apt-get install")
    };
    let outcome = install().or_else(|_| {
        run_checked(Command::new("apt-get").arg("update"), "apt-get update")?;
        install()
    });
    outcome.map_err(|reason| format!("{package} is missing and cannot be installed: {reason}"))
}

fn run_checked(command: &mut Command, name: &str) -> Result<(), String> {
    match process::run(command, INSTALL_TIMEOUT, OutputMode::Quiet) {
        Ok(finished) if finished.is_success() => Ok(()),
        Ok(finished) => Err(format!("{name}: {}", finished.failure_summary())),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

fn npm_program() -> &'static str {
    if cfg!(windows) { "npm.cmd" } else { "npm" }
}

fn node_major(program: impl AsRef<OsStr>) -> Option<u32> {
    let mut command = Command::new(program);
    let finished = process::run(command.arg("--version"), Duration::from_secs(30), OutputMode::Quiet).ok()?;
    finished.stdout.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Creates an empty directory, and removes an existing one.
pub(crate) fn recreate_dir(dir: &Path) -> Result<(), String> {
    remove_dir(dir)?;
    fs::create_dir_all(dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))
}

fn remove_dir(dir: &Path) -> Result<(), String> {
    match fs::remove_dir_all(dir) {
        Err(error) if dir.exists() => Err(format!("cannot clear {}: {error}", dir.display())),
        _ => Ok(()),
    }
}
