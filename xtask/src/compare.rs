//! Compares the same server on Toolgate, rmcp and FastMCP (`compare/`): behavior, size of the source, dependencies, build,
//! rebuild and start. Prints one table, and writes `docs/comparison.md` on request.
//!
//! The servers are built from copies below `target/xtask/compare/`, because the measured change must not touch the sources.

mod behavior;
mod build;
mod contender;
mod machine;
mod source;
mod start;
mod table;

use std::process::ExitCode;

use self::behavior::{Behavior, Client};
use self::contender::{Contender, OURS};
use self::machine::Machine;
use self::source::SourceCounts;
use crate::Workspace;
use crate::report::in_ci;

pub(crate) const USAGE: &str = "\
usage: cargo xtask compare [--write | --check | --sources]

  --write    writes the table to docs/comparison.md
  --check    only checks that the three servers do the same, without measuring build and start
  --sources  only counts lines and names, and builds nothing";

/// What the command does besides counting.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Sources,
    Check,
    Measure,
    /// Measures, and writes the document.
    Write,
}

/// A figure, or the reason why there is none.
type Measured<T> = Result<T, String>;

/// Everything that is known about one server.
struct Results {
    contender: &'static Contender,
    version: String,
    source: SourceCounts,
    /// `None` if it was not asked for.
    behavior: Option<Measured<Behavior>>,
    n_packages: Option<Measured<usize>>,
    /// `None` also for a server that needs no build.
    clean_build: Option<Measured<build::Cost>>,
    rebuild: Option<Measured<build::Cost>>,
    start_seconds: Option<Measured<f64>>,
}

pub(crate) fn run(workspace: &Workspace, arguments: &[&str]) -> ExitCode {
    let mode = match arguments {
        [] => Mode::Measure,
        ["--write"] => Mode::Write,
        ["--check"] => Mode::Check,
        ["--sources"] => Mode::Sources,
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match compare(workspace, mode) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("compare: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether our server passed all steps and, in CI, whether nothing was skipped.
fn compare(workspace: &Workspace, mode: Mode) -> Result<bool, String> {
    let machine = Machine::describe(workspace);
    let mut all = Vec::new();
    for contender in &contender::ALL {
        all.push(Results::of_source(workspace, contender)?);
    }
    if mode != Mode::Sources {
        let client = Client::install(workspace);
        for results in &mut all {
            println!("== {}", results.contender.name);
            results.measure(workspace, mode, &client);
        }
    }
    let text = table::render(workspace, &all, &machine)?;
    println!("\n{text}");
    let skipped = print_skipped(&all);
    if mode == Mode::Write {
        if skipped > 0 {
            return Err("docs/comparison.md is not written, because some figures are missing".to_owned());
        }
        let path = workspace.root.join("docs/comparison.md");
        std::fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        println!("written to docs/comparison.md");
    }
    let has_failed = |results: &Results| match &results.behavior {
        Some(Ok(behavior)) => behavior.failures().next().is_some(),
        Some(Err(_)) => true,
        None => false,
    };
    let is_ours_good = !all.iter().any(|results| results.contender.name == OURS && has_failed(results));
    if !is_ours_good {
        println!("FAIL {OURS} does not pass all steps");
    }
    Ok(is_ours_good && !(in_ci() && skipped > 0))
}

impl Results {
    fn of_source(workspace: &Workspace, contender: &'static Contender) -> Result<Self, String> {
        Ok(Self {
            contender,
            version: contender.version(workspace)?,
            source: contender.count_source(workspace)?,
            behavior: None,
            n_packages: None,
            clean_build: None,
            rebuild: None,
            start_seconds: None,
        })
    }

    fn measure(&mut self, workspace: &Workspace, mode: Mode, client: &Measured<Client>) {
        let prepared = match self.contender.prepare(workspace) {
            Ok(prepared) => prepared,
            Err(reason) => return self.skip(mode, &reason),
        };
        self.n_packages = Some(prepared.count_packages(workspace));
        match (&prepared.cargo, mode) {
            (None, _) => {}
            (Some(cargo), Mode::Check | Mode::Sources) => {
                if let Err(reason) = cargo.build(workspace) {
                    return self.skip(mode, &reason);
                }
            }
            (Some(cargo), Mode::Measure | Mode::Write) => {
                println!("building it into an empty directory");
                self.clean_build = Some(cargo.clean_build(workspace));
                if let Some(Err(reason)) = &self.clean_build {
                    let reason = reason.clone();
                    return self.skip(mode, &reason);
                }
            }
        }
        let behavior =
            client.as_ref().map_err(Clone::clone).and_then(|client| client.check(workspace, &prepared));
        self.behavior = Some(behavior);
        if mode == Mode::Check {
            return;
        }
        self.start_seconds = Some(start::median_seconds(&prepared.command));
        if let Some(cargo) = &prepared.cargo {
            self.rebuild = Some(cargo.rebuild(workspace));
            cargo.remove_target();
        }
    }

    /// Records that this server cannot be measured here.
    fn skip(&mut self, mode: Mode, reason: &str) {
        self.behavior = Some(Err(reason.to_owned()));
        if mode != Mode::Check {
            self.start_seconds = Some(Err(reason.to_owned()));
            self.rebuild = self.contender.is_compiled().then(|| Err(reason.to_owned()));
            self.clean_build = self.contender.is_compiled().then(|| Err(reason.to_owned()));
        }
        self.n_packages.get_or_insert_with(|| Err(reason.to_owned()));
    }

    /// The reasons for missing figures.
    fn missing(&self) -> impl Iterator<Item = (&'static str, &String)> {
        fn reason<'a, T>(
            what: &'static str,
            figure: &'a Option<Measured<T>>,
        ) -> Option<(&'static str, &'a String)> {
            Some((what, figure.as_ref()?.as_ref().err()?))
        }
        let all = [
            reason("behavior", &self.behavior),
            reason("packages", &self.n_packages),
            reason("build", &self.clean_build),
            reason("rebuild", &self.rebuild),
            reason("start", &self.start_seconds),
        ];
        all.into_iter().flatten()
    }
}

/// Prints what could not be measured, and returns how much that is.
fn print_skipped(all: &[Results]) -> usize {
    let missing =
        all.iter().flat_map(|results| results.missing().map(move |one| (results.contender.name, one)));
    let mut count = 0;
    for (name, (what, reason)) in missing {
        println!("skip {name}: {what}: {reason}");
        count += 1;
    }
    count
}
