//! `cargo xtask public-api`: compares the public API of the library crates with `public-api.txt`. A part of
//! `cargo xtask test`.
//!
//! This way, every change of the public API appears in the diff of a commit, and none happens by accident. The text is
//! generated from rustdoc's JSON, which is unstable: `RUSTC_BOOTSTRAP=1` makes the pinned stable toolchain write it.
//! The build has a target directory of its own, because build scripts of dependencies read that variable too.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use crate::process::{self, OutputMode};
use crate::report::Tally;
use crate::rust;
use crate::{BaselineMode, Workspace};

const RUSTDOC_TIMEOUT: Duration = Duration::from_secs(20 * 60);
const MAX_PRINTED_LINES: usize = 40;

/// The crates whose API is recorded, each with all its features. The first two re-export types of the third.
const CRATES: [&str; 4] = ["toolgate", "toolgate-wire", "toolgate-json", "toolgate-sources"];

const API_FILE: &str = "public-api.txt";
const API_HEADER: &str = "\
# The public API of the library crates with all features, without blanket, auto trait and derived impls.
# Written by `cargo xtask public-api --record`, checked by `cargo xtask public-api`.
";

pub(crate) fn run(workspace: &Workspace, mode: BaselineMode, tally: &mut Tally) {
    let current = match render(workspace) {
        Ok(text) => text,
        Err(reason) => return tally.fail(&reason),
    };
    let file = workspace.root.join(API_FILE);
    match mode {
        BaselineMode::Record => match std::fs::write(&file, current) {
            Ok(()) => {
                println!("written to {API_FILE}");
                tally.passed += 1;
            }
            Err(error) => tally.fail(&format!("cannot write {API_FILE}: {error}")),
        },
        BaselineMode::Check => match std::fs::read_to_string(&file) {
            Ok(recorded) => compare(&recorded, &current, tally),
            Err(error) => tally.fail(&format!("cannot read {API_FILE}: {error}")),
        },
    }
}

/// Returns the text of `public-api.txt` for the sources as they are.
fn render(workspace: &Workspace) -> Result<String, String> {
    let mut text = API_HEADER.to_owned();
    for package in CRATES {
        let json = rustdoc_json(workspace, package)?;
        let api = public_api::Builder::from_rustdoc_json(json)
            .omit_blanket_impls(true)
            .omit_auto_trait_impls(true)
            .omit_auto_derived_impls(true)
            .build()
            .map_err(|error| format!("cannot read the rustdoc JSON of {package}: {error}"))?;
        text += &format!("\n## {package}\n\n");
        for item in api.items() {
            text += &format!("{item}\n");
        }
    }
    Ok(text)
}

/// Runs rustdoc for one package and returns the path of its JSON.
fn rustdoc_json(workspace: &Workspace, package: &str) -> Result<PathBuf, String> {
    let target_dir = workspace.work_dir.join("public-api");
    let mut cargo = rust::cargo(workspace);
    cargo.args(["rustdoc", "--locked", "--package", package, "--all-features", "--lib"]);
    cargo.arg("--target-dir").arg(&target_dir);
    cargo.args(["--", "-Z", "unstable-options", "--output-format", "json", "--cap-lints", "allow"]);
    cargo.env("RUSTC_BOOTSTRAP", "1");
    let output = process::run(&mut cargo, RUSTDOC_TIMEOUT, OutputMode::Quiet)
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.is_success() {
        return Err(format!("cargo rustdoc of {package}: {}", output.failure_summary()));
    }
    Ok(target_dir.join("doc").join(format!("{}.json", package.replace('-', "_"))))
}

/// Fails if the texts differ, and prints the first lines that do.
fn compare(recorded: &str, current: &str, tally: &mut Tally) {
    if recorded == current {
        tally.passed += 1;
        return;
    }
    let changes = changed_lines(recorded, current);
    for line in changes.iter().take(MAX_PRINTED_LINES) {
        println!("{line}");
    }
    if changes.len() > MAX_PRINTED_LINES {
        println!("... and {} more lines", changes.len() - MAX_PRINTED_LINES);
    }
    tally.fail(&format!(
        "the public API differs from {API_FILE}; if that is intended, run `cargo xtask public-api --record`"
    ));
}

/// The lines that only one of the texts has, with `-` for the recorded and `+` for the current one, sorted by item.
fn changed_lines(recorded: &str, current: &str) -> Vec<String> {
    let (recorded, current): (BTreeSet<&str>, BTreeSet<&str>) =
        (recorded.lines().collect(), current.lines().collect());
    recorded
        .symmetric_difference(&current)
        .map(|line| format!("{}{line}", if recorded.contains(line) { '-' } else { '+' }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_differing_lines_are_printed() {
        let changes = changed_lines("a\npub fn b()\nc\n", "a\npub fn b(u8)\nc\nd\n");
        assert_eq!(changes, ["+d", "-pub fn b()", "+pub fn b(u8)"]);
    }

    #[test]
    fn a_difference_is_a_failure() {
        for (current, expected) in [("a\n", (1, 0)), ("a\nb\n", (0, 1)), ("", (0, 1))] {
            let mut tally = Tally::default();
            compare("a\n", current, &mut tally);
            assert_eq!((tally.passed, tally.failed), expected, "{current:?}");
        }
    }
}
