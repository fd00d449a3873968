//! Finds the program of a command, and its environment.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use super::CommandSpec;

/// Resolves a program to an absolute path, once: later changes of `PATH` do not matter.
pub(super) fn resolve_program(name: &str, base_dir: &Path) -> Result<PathBuf, String> {
    if name.is_empty() || name.contains('\0') {
        return Err("`argv` must begin with the name of a program".into());
    }
    if name.contains('/') {
        let joined = base_dir.join(name);
        let path: PathBuf = joined.components().filter(|part| *part != Component::CurDir).collect();
        let program = std::path::absolute(&path).ok().filter(|path| is_program(path));
        let reason = || {
            if path.is_file() {
                format!("`{0}` is not executable: `chmod +x {0}`", path.display())
            } else {
                format!("there is no program `{}`", path.display())
            }
        };
        return program.ok_or_else(reason);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|path| is_program(path))
        .ok_or_else(|| format!("there is no program `{name}` in PATH"))
}

#[cfg(unix)]
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_program(path: &Path) -> bool {
    path.is_file()
}

pub(super) fn build_environment(spec: &CommandSpec) -> Vec<(OsString, OsString)> {
    let mut all: Vec<(OsString, OsString)> = vec![("LANG".into(), "C.UTF-8".into())];
    for name in ["PATH"].into_iter().chain(spec.pass_env.iter().map(String::as_str)) {
        all.extend(std::env::var_os(name).map(|value| (name.into(), value)));
    }
    all.extend(spec.env.iter().map(|(name, value)| (name.into(), value.into())));
    all
}
