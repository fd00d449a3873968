//! Every chore of the project: `cargo xtask <command>`.
//!
//! `test` is what the README, CI and `.ci/run` call; the other commands are parts of it. This crate may start
//! programs, and install tools below `target/xtask/` and packages of the system; it knows nothing of the protocol, which
//! the tools it runs judge.

mod bench;
mod conformance;
mod databases;
mod fixture;
mod fuzz;
mod install;
mod interop;
mod process;
mod program;
mod redis;
mod report;
mod rust;
mod schema;
mod seeds;
mod specs;
mod state;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::bench::instructions::BaselineMode;
use crate::fixture::{EVERYTHING, Fixture};
use crate::report::Report;

const USAGE: &str = "\
usage: cargo xtask <command>

commands:
  test                          everything below, in this order: fmt, clippy, tests, databases, schema, seeds, specs,
                                deny, conformance, interop, instructions
  fmt | clippy | tests | deny   one of the parts that need nothing but Rust; tests start a Redis if there is one
  databases                     the tests of SQL tools against a PostgreSQL and a MariaDB of their own
  schema                        the official test suite of JSON Schema, against the crate that checks arguments
  seeds [--server PROG]         every check of the documents 000 to 004, against examples of the library and of the program
  specs                         descriptions of real APIs, as tools of the program
  conformance [--server PROG]   the official conformance suite against the example `everything`, in every dialect
  interop [--server PROG]       clients of other implementations against the example `everything`
  instructions [--record]       instructions per call under callgrind, against xtask/instructions.txt
  bench [OPTIONS]               speed and memory beside other implementations; not a part of test
  program                       start and reload of the program, in release; not a part of test
  state                         tasks per second for each store, memory of sessions and listeners; not a part of test
  fuzz [TARGET] [--seconds N]   coverage-guided fuzzing of what reads bytes: frame, http1, message, schema, template

`--server PROG` tries another program, which must understand the flags that the example is called with: `--http ADDR`
and names of servers with seeds, `--listen ADDR` and `--stdio` with the others. Dialects are not tried then.
With CI=true in the environment, a part that has to be skipped is a failure.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("fuzz", rest)) = args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return run_fuzz(rest);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (command, server) = match args.as_slice() {
        ["bench", options @ ..] => return bench::run(&Workspace::find(), options),
        ["instructions", "--record"] => return instructions_command(BaselineMode::Record),
        ["instructions"] => return instructions_command(BaselineMode::Check),
        ["program"] => return program::run(&Workspace::find()),
        ["state"] => return state::run(&Workspace::find()),
        [command] => (*command, None),
        [command @ ("seeds" | "conformance" | "interop"), "--server", program] => (*command, Some(*program)),
        _ => return usage(),
    };
    let places = Workspace::find();
    let mut report = Report::default();
    match command {
        "test" => {
            rust_parts(&mut report, &places);
            let fixture = Fixture::build_example(EVERYTHING, &places);
            run_conformance(&mut report, &places, &fixture);
            run_interop(&mut report, &places, &fixture);
            run_instructions(&mut report, &places, BaselineMode::Check);
        }
        "fmt" => report.run_part("fmt", |tally| rust::fmt(&places, tally)),
        "clippy" => report.run_part("clippy", |tally| rust::clippy(&places, tally)),
        "tests" => report.run_part("tests", |tally| rust::tests(&places, tally)),
        "deny" => report.run_part("deny", |tally| rust::deny(&places, tally)),
        "databases" => report.run_part("databases", |tally| databases::run(&places, tally)),
        "schema" => report.run_part("schema", |tally| schema::run(&places, tally)),
        "specs" => report.run_part("specs", |tally| specs::run(&places, tally)),
        "seeds" => run_seeds(&mut report, &places, server),
        "conformance" => {
            let fixture = Fixture::new(server, EVERYTHING, &places);
            run_conformance(&mut report, &places, &fixture);
        }
        "interop" => {
            let fixture = Fixture::new(server, EVERYTHING, &places);
            run_interop(&mut report, &places, &fixture);
        }
        _ => return usage(),
    }
    report.finish()
}

fn rust_parts(report: &mut Report, places: &Workspace) {
    report.run_part("fmt", |tally| rust::fmt(places, tally));
    report.run_part("clippy", |tally| rust::clippy(places, tally));
    report.run_part("tests", |tally| rust::tests(places, tally));
    report.run_part("databases", |tally| databases::run(places, tally));
    report.run_part("schema", |tally| schema::run(places, tally));
    run_seeds(report, places, None);
    report.run_part("specs", |tally| specs::run(places, tally));
    report.run_part("deny", |tally| rust::deny(places, tally));
}

fn run_seeds(report: &mut Report, places: &Workspace, server: Option<&str>) {
    report.run_part("seeds", |tally| {
        seeds::run(places, server, tally);
    });
}

fn instructions_command(wish: BaselineMode) -> ExitCode {
    let mut report = Report::default();
    run_instructions(&mut report, &Workspace::find(), wish);
    report.finish()
}

fn run_instructions(report: &mut Report, places: &Workspace, wish: BaselineMode) {
    report.run_part("instructions", |tally| bench::instructions::run(places, wish, tally));
}

fn run_conformance(report: &mut Report, places: &Workspace, fixture: &Fixture) {
    report.run_part("conformance", |tally| {
        conformance::run(places, fixture, tally);
    });
}

fn run_interop(report: &mut Report, places: &Workspace, fixture: &Fixture) {
    report.run_part("interop", |tally| interop::run(places, fixture, tally));
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

/// The two directories that everything else is found from.
pub(crate) struct Workspace {
    /// The root of the repository.
    pub(crate) root: PathBuf,
    /// Where tools are installed and results are kept: `target/xtask`.
    pub(crate) work_dir: PathBuf,
}

impl Workspace {
    fn find() -> Self {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest.parent().unwrap_or(manifest).to_path_buf();
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            // Cargo takes a relative one from where it was called.
            Some(dir) => std::path::absolute(&dir).unwrap_or_else(|_| dir.into()),
            None => root.join("target"),
        };
        let work_dir = target.join("xtask");
        Self { root, work_dir }
    }
}
