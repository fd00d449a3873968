//! The development tasks of the project: `cargo xtask <command>`.
//!
//! The README, CI and `.ci/run` call `test`; most other commands are parts of it. This crate may start programs, and
//! install tools below `target/xtask/` and system packages. It contains no protocol code; the tools that it runs do.

mod bench;
mod compare;
mod conformance;
mod crates;
mod databases;
mod fixture;
mod fuzz;
mod install;
mod interop;
mod process;
mod program;
mod public_api;
mod redis;
mod report;
mod rust;
mod schema;
mod seeds;
mod specs;
mod state;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::fixture::{EVERYTHING, Fixture};
use crate::report::Report;

const USAGE: &str = "\
usage: cargo xtask <command>

commands:
  test                          all checks, in this order: fmt, clippy, tests, databases, schema, seeds, specs, deny,
                                public-api, conformance, interop, instructions
  fmt | clippy | tests | deny   one of the checks that only need Rust; tests start a Redis if one is installed
  databases                     tests of SQL tools against a temporary PostgreSQL and MariaDB
  schema                        the official JSON Schema test suite against toolgate-schema
  seeds [--server PROG]         every check of the documents 000 to 004, against examples of the library and the program
  specs                         OpenAPI descriptions of real APIs as tools of the program
  public-api [--record]         the public API of the library crates, compared with public-api.txt
  conformance [--server PROG]   the official conformance suite against the example `everything`, in every dialect
  interop [--server PROG]       third-party clients against the example `everything`
  instructions [--record]       instructions per call under callgrind, compared with xtask/instructions.txt
  msrv | features | package     the library crates with the oldest supported Rust, with each feature alone, and as packages;
                                not part of test
  bench [OPTIONS]               CPU, latency and memory compared with other implementations; not part of test
  compare [OPTIONS]             the same server on Toolgate, rmcp and FastMCP: behavior, lines, names, build, rebuild, start;
                                not part of test
  program                       start and reload times of the program in a release build; not part of test
  state                         tasks per second with each store, memory of sessions and streams; not part of test
  fuzz [TARGET] [--seconds N]   coverage-guided fuzzing of the parsers

`--server PROG` checks another program. It must accept the arguments that the example accepts: `--http ADDR` and server
names for seeds, `--listen ADDR` and `--stdio` for the others. Dialects are not checked then.
With CI=true in the environment, a check that has to be skipped is a failure.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("fuzz", rest)) = args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return run_fuzz(rest);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (command, server) = match args.as_slice() {
        ["bench", options @ ..] => return bench::run(&Workspace::find(), options),
        [command @ ("instructions" | "public-api"), "--record"] => {
            return baseline_command(command, BaselineMode::Record);
        }
        [command @ ("instructions" | "public-api")] => return baseline_command(command, BaselineMode::Check),
        ["compare", options @ ..] => return compare::run(&Workspace::find(), options),
        ["program"] => return program::run(&Workspace::find()),
        ["state"] => return state::run(&Workspace::find()),
        [command] => (*command, None),
        [command @ ("seeds" | "conformance" | "interop"), "--server", program] => (*command, Some(*program)),
        _ => return usage(),
    };
    let workspace = Workspace::find();
    let mut report = Report::default();
    match command {
        "test" => {
            run_rust_parts(&mut report, &workspace);
            let fixture = Fixture::build_example(EVERYTHING, &workspace);
            run_conformance(&mut report, &workspace, &fixture);
            run_interop(&mut report, &workspace, &fixture);
            run_instructions(&mut report, &workspace, BaselineMode::Check);
        }
        "fmt" => report.run_part("fmt", |tally| rust::fmt(&workspace, tally)),
        "clippy" => report.run_part("clippy", |tally| rust::clippy(&workspace, tally)),
        "tests" => report.run_part("tests", |tally| rust::tests(&workspace, tally)),
        "deny" => report.run_part("deny", |tally| rust::deny(&workspace, tally)),
        "msrv" => report.run_part("msrv", |tally| crates::msrv(&workspace, tally)),
        "features" => report.run_part("features", |tally| crates::features(&workspace, tally)),
        "package" => report.run_part("package", |tally| crates::package(&workspace, tally)),
        "databases" => report.run_part("databases", |tally| databases::run(&workspace, tally)),
        "schema" => report.run_part("schema", |tally| schema::run(&workspace, tally)),
        "specs" => report.run_part("specs", |tally| specs::run(&workspace, tally)),
        "seeds" => run_seeds(&mut report, &workspace, server),
        "conformance" => {
            let fixture = Fixture::new(server, EVERYTHING, &workspace);
            run_conformance(&mut report, &workspace, &fixture);
        }
        "interop" => {
            let fixture = Fixture::new(server, EVERYTHING, &workspace);
            run_interop(&mut report, &workspace, &fixture);
        }
        _ => return usage(),
    }
    report.finish()
}

fn run_rust_parts(report: &mut Report, workspace: &Workspace) {
    report.run_part("fmt", |tally| rust::fmt(workspace, tally));
    report.run_part("clippy", |tally| rust::clippy(workspace, tally));
    report.run_part("tests", |tally| rust::tests(workspace, tally));
    report.run_part("databases", |tally| databases::run(workspace, tally));
    report.run_part("schema", |tally| schema::run(workspace, tally));
    run_seeds(report, workspace, None);
    report.run_part("specs", |tally| specs::run(workspace, tally));
    report.run_part("deny", |tally| rust::deny(workspace, tally));
    run_public_api(report, workspace, BaselineMode::Check);
}

fn run_seeds(report: &mut Report, workspace: &Workspace, server: Option<&str>) {
    report.run_part("seeds", |tally| {
        seeds::run(workspace, server, tally);
    });
}

/// Runs one of the two commands that compare with a recorded file.
fn baseline_command(command: &str, mode: BaselineMode) -> ExitCode {
    let workspace = Workspace::find();
    let mut report = Report::default();
    match command {
        "public-api" => run_public_api(&mut report, &workspace, mode),
        _ => run_instructions(&mut report, &workspace, mode),
    }
    report.finish()
}

fn run_public_api(report: &mut Report, workspace: &Workspace, mode: BaselineMode) {
    report.run_part("public-api", |tally| public_api::run(workspace, mode, tally));
}

fn run_instructions(report: &mut Report, workspace: &Workspace, mode: BaselineMode) {
    report.run_part("instructions", |tally| bench::instructions::run(workspace, mode, tally));
}

fn run_conformance(report: &mut Report, workspace: &Workspace, fixture: &Fixture) {
    report.run_part("conformance", |tally| {
        conformance::run(workspace, fixture, tally);
    });
}

fn run_interop(report: &mut Report, workspace: &Workspace, fixture: &Fixture) {
    report.run_part("interop", |tally| interop::run(workspace, fixture, tally));
}

fn run_fuzz(arguments: &[String]) -> ExitCode {
    match fuzz::run(&Workspace::find(), arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("fuzz: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

/// Whether measured values are compared with the recorded ones or replace them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BaselineMode {
    Check,
    Record,
}

/// The directories of the repository.
pub(crate) struct Workspace {
    /// The root of the repository.
    pub(crate) root: PathBuf,
    /// The directory of installed tools and results, `target/xtask`.
    pub(crate) work_dir: PathBuf,
}

impl Workspace {
    fn find() -> Self {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest.parent().unwrap_or(manifest).to_path_buf();
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            // Cargo resolves a relative path from the current directory.
            Some(dir) => std::path::absolute(&dir).unwrap_or_else(|_| dir.into()),
            None => root.join("target"),
        };
        let work_dir = target.join("xtask");
        Self { root, work_dir }
    }
}
