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

use crate::bench::instructions::Wish;
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
  fuzz [TARGET] [--seconds N]   coverage-guided fuzzing of what reads bytes: frame, message, schema, template

`--server PROG` tries another program, which must understand the flags that the example is called with: `--http ADDR`
and names of servers with seeds, `--listen ADDR` and `--stdio` with the others. Dialects are not tried then.
With CI=true in the environment, a part that has to be skipped is a failure.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("fuzz", rest)) = args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return try_fuzzing(rest);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (command, server) = match args.as_slice() {
        ["bench", options @ ..] => return bench::run(&Places::find(), options),
        ["instructions", "--record"] => return count(Wish::Record),
        ["instructions"] => return count(Wish::Check),
        ["program"] => return program::run(&Places::find()),
        ["state"] => return state::run(&Places::find()),
        [command] => (*command, None),
        [command @ ("seeds" | "conformance" | "interop"), "--server", program] => (*command, Some(*program)),
        _ => return usage(),
    };
    let places = Places::find();
    let mut report = Report::default();
    match command {
        "test" => {
            rust_parts(&mut report, &places);
            let fixture = Fixture::of_example(EVERYTHING, &places);
            try_suite(&mut report, &places, &fixture);
            try_clients(&mut report, &places, &fixture);
            try_counting(&mut report, &places, Wish::Check);
        }
        "fmt" => report.part("fmt", |tally| rust::fmt(&places, tally)),
        "clippy" => report.part("clippy", |tally| rust::clippy(&places, tally)),
        "tests" => report.part("tests", |tally| rust::tests(&places, tally)),
        "deny" => report.part("deny", |tally| rust::deny(&places, tally)),
        "databases" => report.part("databases", |tally| databases::run(&places, tally)),
        "schema" => report.part("schema", |tally| schema::run(&places, tally)),
        "specs" => report.part("specs", |tally| specs::run(&places, tally)),
        "seeds" => try_seeds(&mut report, &places, server),
        "conformance" => {
            let fixture = Fixture::of(server, EVERYTHING, &places);
            try_suite(&mut report, &places, &fixture);
        }
        "interop" => {
            let fixture = Fixture::of(server, EVERYTHING, &places);
            try_clients(&mut report, &places, &fixture);
        }
        _ => return usage(),
    }
    report.close()
}

fn rust_parts(report: &mut Report, places: &Places) {
    report.part("fmt", |tally| rust::fmt(places, tally));
    report.part("clippy", |tally| rust::clippy(places, tally));
    report.part("tests", |tally| rust::tests(places, tally));
    report.part("databases", |tally| databases::run(places, tally));
    report.part("schema", |tally| schema::run(places, tally));
    try_seeds(report, places, None);
    report.part("specs", |tally| specs::run(places, tally));
    report.part("deny", |tally| rust::deny(places, tally));
}

fn try_seeds(report: &mut Report, places: &Places, server: Option<&str>) {
    report.part("seeds", |tally| {
        seeds::run(places, server, tally);
    });
}

fn count(wish: Wish) -> ExitCode {
    let mut report = Report::default();
    try_counting(&mut report, &Places::find(), wish);
    report.close()
}

fn try_counting(report: &mut Report, places: &Places, wish: Wish) {
    report.part("instructions", |tally| bench::instructions::run(places, wish, tally));
}

fn try_suite(report: &mut Report, places: &Places, fixture: &Fixture) {
    report.part("conformance", |tally| {
        conformance::run(places, fixture, tally);
    });
}

fn try_clients(report: &mut Report, places: &Places, fixture: &Fixture) {
    report.part("interop", |tally| interop::run(places, fixture, tally));
}

fn try_fuzzing(arguments: &[String]) -> ExitCode {
    match fuzz::run(&Places::find(), arguments) {
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
pub(crate) struct Places {
    /// The root of the repository.
    pub(crate) root: PathBuf,
    /// Where tools are installed and results are kept: `target/xtask`.
    pub(crate) work: PathBuf,
}

impl Places {
    fn find() -> Self {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest.parent().unwrap_or(manifest).to_path_buf();
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            // Cargo takes a relative one from where it was called.
            Some(dir) => std::path::absolute(&dir).unwrap_or_else(|_| dir.into()),
            None => root.join("target"),
        };
        let work = target.join("xtask");
        Self { root, work }
    }
}
