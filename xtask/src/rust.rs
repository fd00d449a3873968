//! The parts that only need Rust: format, lints, tests, dependencies.

use std::process::Command;
use std::time::Duration;

use crate::Workspace;
use crate::process::{self, OutputMode, ProcessOutput};
use crate::redis;
use crate::report::Tally;

const CARGO_TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// A cargo command in the root of the repository.
pub(crate) fn cargo(workspace: &Workspace) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(&workspace.root);
    // The counts are parsed from the output, so it must not be colored.
    command.env("CARGO_TERM_COLOR", "never");
    command.env_remove("FORCE_COLOR").env_remove("CLICOLOR_FORCE");
    command
}

pub(crate) fn fmt(workspace: &Workspace, tally: &mut Tally) {
    if !has_subcommand(workspace, "fmt") {
        return tally.skip("fmt: rustfmt is not installed");
    }
    run_check(workspace, tally, &["fmt", "--all", "--check"]);
    for manifest in ["interop/rust/Cargo.toml", "compare/toolgate/Cargo.toml", "compare/rmcp/Cargo.toml"] {
        run_check(workspace, tally, &["fmt", "--manifest-path", manifest, "--check"]);
    }
    run_check(workspace, tally, &["fmt", "--manifest-path", "load/Cargo.toml", "--all", "--check"]);
}

pub(crate) fn clippy(workspace: &Workspace, tally: &mut Tally) {
    if !has_subcommand(workspace, "clippy") {
        return tally.skip("clippy: clippy is not installed");
    }
    let all = ["clippy", "--workspace", "--all-targets", "--all-features"];
    run_check(workspace, tally, &[&all[..], &["--", "-D", "warnings"]].concat());
    // Code must compile without the features too.
    let bare = ["clippy", "--package", "toolgate", "--no-default-features"];
    run_check(workspace, tally, &[&bare[..], &["--", "-D", "warnings"]].concat());
    // Including benches, which nothing else compiles.
    let directory = workspace.work_dir.join("load").display().to_string();
    let load = ["clippy", "--locked", "--manifest-path", "load/Cargo.toml", "--all-targets"];
    let into = ["--target-dir", &directory];
    run_check(workspace, tally, &[&load[..], &into[..], &["--", "-D", "warnings"]].concat());
}

/// Runs all tests, with a temporary Redis unless the environment names one.
pub(crate) fn tests(workspace: &Workspace, tally: &mut Tally) {
    let is_named = std::env::var(redis::URL_VARIABLE).is_ok_and(|address| !address.is_empty());
    let redis = match is_named {
        true => None,
        false => {
            redis::start(workspace).map_err(|reason| tally.skip(&format!("tests with Redis: {reason}"))).ok()
        }
    };
    let variable = redis.as_ref().map(|redis| (redis::URL_VARIABLE, redis.url.as_str()));
    let all = ["--workspace", "--all-features", "--no-fail-fast"];
    if has_subcommand(workspace, "nextest") {
        let args = [&["nextest", "run"], &all[..]].concat();
        run_counted(workspace, tally, &args, variable, parse_nextest_summary);
    } else {
        let args = [&["test", "--lib", "--bins", "--tests", "--examples"], &all[..]].concat();
        run_counted(workspace, tally, &args, variable, parse_libtest_summary);
    }
    let args = [&["test", "--doc"], &all[..]].concat();
    run_counted(workspace, tally, &args, variable, parse_libtest_summary);
    // The load generator has tests too.
    let directory = workspace.work_dir.join("load").display().to_string();
    let generator = ["test", "--locked", "--manifest-path", "load/Cargo.toml", "--package", "generator"];
    let args = [&generator[..], &["--target-dir", &directory]].concat();
    run_counted(workspace, tally, &args, variable, parse_libtest_summary);
}

/// Checks licenses, bans, sources and advisories. Optional, because cargo-deny takes minutes to install.
pub(crate) fn deny(workspace: &Workspace, tally: &mut Tally) {
    if !has_subcommand(workspace, "deny") {
        return tally.skip_optional("cargo-deny is not installed");
    }
    let local = ["bans", "licenses", "sources"];
    let args = [&["deny", "--all-features", "check"], &local[..]].concat();
    run_check(workspace, tally, &args);
    let args = ["deny", "--all-features", "check", "advisories"];
    match run_cargo(workspace, &args) {
        Ok(finished) if finished.is_success() => tally.passed += 1,
        Ok(finished) if finished.stderr.contains("failed to fetch advisory database") => {
            tally.skip_optional("advisories: cannot fetch their database");
        }
        Ok(finished) => tally.fail(&format!("cargo {}: {}", args.join(" "), finished.failure_summary())),
        Err(reason) => tally.fail(&reason),
    }
}

/// Runs the unit tests of `toolgate-sources` whose names contain `filter`, with these environment variables.
pub(crate) fn source_tests(
    workspace: &Workspace,
    tally: &mut Tally,
    filter: &str,
    variables: &[(&str, String)],
) {
    let all = ["--package", "toolgate-sources", "--all-features", "--no-fail-fast", "--lib"];
    let (args, counts): (_, SummaryParser) = match has_subcommand(workspace, "nextest") {
        true => ([&["nextest", "run"], &all[..], &[filter]].concat(), parse_nextest_summary),
        false => ([&["test"], &all[..], &[filter]].concat(), parse_libtest_summary),
    };
    let mut command = cargo(workspace);
    command.args(&args).envs(variables.iter().map(|(name, value)| (name, value)));
    println!("$ cargo {}", args.join(" "));
    let mut counted = Tally::default();
    match process::run(&mut command, CARGO_TIMEOUT, OutputMode::Live) {
        Ok(finished) => count_results(&finished, &args.join(" "), &mut counted, counts),
        Err(error) => counted.fail(&format!("cannot run cargo: {error}")),
    }
    // The summary counts tests with other names as skipped, but they are not part of this check.
    counted.skipped = 0;
    tally.add(&counted);
}

pub(crate) fn has_subcommand(workspace: &Workspace, subcommand: &str) -> bool {
    process::succeeds(cargo(workspace).args([subcommand, "--version"]))
}

/// Runs a command that is one check.
fn run_check(workspace: &Workspace, tally: &mut Tally, args: &[&str]) {
    match run_cargo(workspace, args) {
        Ok(finished) if finished.is_success() => tally.passed += 1,
        Ok(finished) => tally.fail(&format!("cargo {}: {}", args.join(" "), finished.failure_summary())),
        Err(reason) => tally.fail(&reason),
    }
}

/// Runs a command whose summary has the number of checks. Without a summary, or if it fails without a failed test, that is
/// one failure: the code does not compile, or the format of the summary has changed.
fn run_counted(
    workspace: &Workspace,
    tally: &mut Tally,
    args: &[&str],
    variable: Option<(&str, &str)>,
    counts: SummaryParser,
) {
    let finished = match run_cargo_with(workspace, args, variable) {
        Ok(finished) => finished,
        Err(reason) => return tally.fail(&reason),
    };
    count_results(&finished, &args.join(" "), tally, counts);
}

fn count_results(finished: &ProcessOutput, name: &str, tally: &mut Tally, counts: SummaryParser) {
    match counts(finished) {
        None => tally.fail(&format!("cargo {name}: no summary: {}", finished.failure_summary())),
        Some(counted) => {
            tally.add(&counted);
            if !finished.is_success() && counted.failed == 0 {
                tally.fail(&format!("cargo {name}: {}", finished.failure_summary()));
            }
        }
    }
}

/// Parses the summary of a test run; `None` if the output has no summary.
type SummaryParser = fn(&ProcessOutput) -> Option<Tally>;

fn run_cargo(workspace: &Workspace, args: &[&str]) -> Result<ProcessOutput, String> {
    run_cargo_with(workspace, args, None)
}

fn run_cargo_with(
    workspace: &Workspace,
    args: &[&str],
    variable: Option<(&str, &str)>,
) -> Result<ProcessOutput, String> {
    let set = variable.map_or_else(String::new, |(name, value)| format!("{name}={value} "));
    println!("$ {set}cargo {}", args.join(" "));
    process::run(cargo(workspace).args(args).envs(variable), CARGO_TIMEOUT, OutputMode::Live)
        .map_err(|error| format!("cannot run cargo: {error}"))
}

/// `Summary [   1.2s] 5 tests run: 3 passed (1 slow), 1 failed, 1 timed out, 2 skipped`
fn parse_nextest_summary(finished: &ProcessOutput) -> Option<Tally> {
    let mut lines = finished.stderr.lines().map(str::trim_start);
    let summary = lines.rfind(|line| line.starts_with("Summary ["))?;
    let (_, counts) = summary.split_once(" run: ")?;
    let mut tally = Tally::default();
    for (number, label) in parse_counts(counts, ',') {
        match label {
            "passed" => tally.passed += number,
            "skipped" => tally.skipped += number,
            _ => tally.failed += number,
        }
    }
    Some(tally)
}

/// `test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out`, once per binary.
fn parse_libtest_summary(finished: &ProcessOutput) -> Option<Tally> {
    let lines = finished.stdout.lines();
    let results = lines.filter_map(|line| line.strip_prefix("test result: ")?.split_once(". "));
    let mut total = None;
    for (_, counts) in results {
        let tally = total.get_or_insert_with(Tally::default);
        for (number, label) in parse_counts(counts, ';') {
            match label {
                "passed" => tally.passed += number,
                "failed" => tally.failed += number,
                "ignored" => tally.skipped += number,
                _ => {}
            }
        }
    }
    total
}

/// Pairs of a number and the label after it.
fn parse_counts(text: &str, separator: char) -> impl Iterator<Item = (usize, &str)> {
    text.split(separator).filter_map(|piece| {
        let mut words = piece.split_whitespace();
        Some((words.next()?.parse().ok()?, words.next()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(counts: SummaryParser, output: &str, expected: Option<(usize, usize, usize)>) {
        let tally = counts(&ProcessOutput::with_stdout(output));
        let found = tally.map(|tally| (tally.passed, tally.failed, tally.skipped));
        assert_eq!(found, expected);
    }

    #[test]
    fn nextest_summary_is_counted() {
        check(
            parse_nextest_summary,
            "     Summary [   0.5s] 12 tests run: 12 passed, 0 skipped\n",
            Some((12, 0, 0)),
        );
        let bad =
            "     Summary [   0.5s] 5/7 tests run: 3 passed (1 slow), 1 failed, 1 timed out, 2 skipped\n";
        check(parse_nextest_summary, bad, Some((3, 2, 2)));
        check(parse_nextest_summary, "error: could not compile\n", None);
    }

    #[test]
    fn libtest_results_are_summed() {
        let two = "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s\n\
                   test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
        check(parse_libtest_summary, two, Some((6, 2, 1)));
    }
}
