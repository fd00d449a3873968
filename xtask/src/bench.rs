//! Measures our server, bare hyper and other implementations (`load/`), prints tables, writes `docs/benchmarks.md`.
//!
//! Rounds are interleaved, so that a disturbance of the machine affects all servers alike; ratios are taken within a
//! round, and their median is reported. The load generator measures; this module builds the programs, schedules the runs,
//! and keeps the results below `target/xtask/bench/`.

pub(crate) mod builds;
pub(crate) mod contender;
mod environment;
mod goals;
pub(crate) mod instructions;
mod measure;
pub(crate) mod profile;
mod results;
mod run;
mod statistics;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use self::environment::Environment;
use self::measure::{Measure, Size, Unit};
use self::profile::Profile;
use self::results::Results;
use self::run::Run;
use crate::Workspace;

pub(crate) const USAGE: &str = "\
usage: cargo xtask bench [--quick] [--only TEXT,TEXT] [--peers NAME,NAME] [--soak MINUTES] [--report] [--build]

  --quick         shorter windows, fewer rounds, sessions and streams, no build times; the document is not written
  --only TEXTS    only measures whose name contains one of these; other results are kept; `default` selects those with
                  cargo's default profile, `default-build` its build times only
  --peers NAMES   only these peers, or `none`: rmcp tower-mcp turbomcp pmcp rust-mcp-sdk node python
  --soak MINUTES  length of the memory measure under load: 10 in a full run, 0 with --quick or --only
  --report        measures nothing; prints the last results, and writes the document again
  --build         builds all servers, prints their paths, and measures nothing";

/// The parsed command line.
#[derive(Default)]
struct Options {
    quick: bool,
    report: bool,
    build: bool,
    only: Vec<String>,
    /// `None` means all.
    peers: Option<Vec<String>>,
    soak: Option<f64>,
}

impl Options {
    fn parse(arguments: &[&str]) -> Option<Self> {
        let mut options = Self::default();
        let mut rest = arguments.iter();
        let list = |texts: &str| texts.split(',').map(str::to_owned).collect();
        while let Some(argument) = rest.next() {
            match *argument {
                "--quick" => options.quick = true,
                "--report" => options.report = true,
                "--build" => options.build = true,
                "--only" => options.only = list(rest.next()?),
                "--peers" => options.peers = Some(list(rest.next()?)),
                "--soak" => options.soak = Some(rest.next()?.parse().ok().filter(|minutes| *minutes >= 0.0)?),
                _ => return None,
            }
        }
        Some(options)
    }

    fn soak_minutes(&self) -> f64 {
        let is_selected = self.only.iter().any(|text| "soak".contains(&**text));
        let default = if is_selected || (self.only.is_empty() && !self.quick) { 10.0 } else { 0.0 };
        self.soak.unwrap_or(default)
    }

    /// The selected measures.
    fn measures(&self) -> Vec<Measure> {
        let size = if self.quick { Size::Quick } else { Size::Full };
        let is_wanted = |measure: &Measure| {
            let is_soak = measure.unit == Unit::Soak && self.soak.is_some();
            self.only.is_empty() || is_soak || self.only.iter().any(|text| measure.name.contains(text))
        };
        measure::all(size, self.soak_minutes()).into_iter().filter(is_wanted).collect()
    }

    /// The file of the results. Quick runs have their own, because their figures are not comparable.
    fn results_file(&self, workspace: &Workspace) -> PathBuf {
        workspace.work_dir.join("bench").join(if self.quick { "quick.json" } else { "results.json" })
    }
}

pub(crate) fn run(workspace: &Workspace, arguments: &[&str]) -> ExitCode {
    let Some(options) = Options::parse(arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match bench(workspace, &options, arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("bench: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn bench(workspace: &Workspace, options: &Options, arguments: &[&str]) -> Result<(), String> {
    let file = options.results_file(workspace);
    if options.report {
        return write_report(workspace, options, &Results::load(&file));
    }
    let measures = options.measures();
    if measures.is_empty() {
        return Err("no measure has a name that contains one of these texts".to_owned());
    }
    let wanted =
        |name: &str| options.peers.as_ref().is_none_or(|peers| peers.iter().any(|peer| peer == name));
    let generator = contender::build_generator(workspace)?;
    let (mut contenders, mut missing) = (Vec::new(), Vec::new());
    let is_needed = |profile: &Profile| measures.iter().any(|measure| measure.profile == *profile);
    for profile in Profile::ALL.into_iter().filter(is_needed) {
        let (built, not_built) = contender::build_all(workspace, profile, wanted)?;
        contenders.extend(built);
        missing.extend(not_built);
    }
    for contender in &contenders {
        println!("{}, {}: {}", contender.name, contender.profile.name(), contender.command.join(" "));
    }
    for contender::MissingPeer { name, reason } in &missing {
        println!("{name} was not built: {reason}");
    }
    if options.build {
        return Ok(());
    }
    // New results replace earlier ones; a full run starts with no earlier results.
    let mut results = if options.only.is_empty() && options.peers.is_none() {
        Results::default()
    } else {
        Results::load(&file)
    };
    results.add_contenders(&contenders, &missing);
    let run = Run::new(workspace, &generator, &contenders);
    let environment = Environment::collect(workspace, arguments);
    for measure in &measures {
        let began = Instant::now();
        run.measure(measure, &mut results);
        println!(
            "{}  [{:.0} s]",
            table::summary_line(measure, &contenders, &results),
            began.elapsed().as_secs_f64()
        );
        // A run that is interrupted keeps the results so far.
        results.save(&file)?;
    }
    results.runs.push(environment.finish());
    results.save(&file)?;
    write_report(workspace, options, &results)
}

fn write_report(workspace: &Workspace, options: &Options, results: &Results) -> Result<(), String> {
    if results.contenders.is_empty() {
        return Err("there are no results yet".to_owned());
    }
    let text = table::render(results, &measure::all(Size::Full, 10.0));
    // An error message may contain paths of this machine, which do not belong into the document.
    let text = text.replace(&workspace.work_dir.display().to_string(), "target/xtask");
    let text = text.replace(&workspace.root.display().to_string(), ".");
    println!("\n{text}");
    if options.quick {
        return Ok(());
    }
    let path = workspace.root.join("docs/benchmarks.md");
    std::fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    println!("written to docs/benchmarks.md");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arguments: &str, is_expected: impl Fn(&[Measure]) -> bool) {
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        let measures = Options::parse(&arguments).unwrap().measures();
        let names: Vec<&str> = measures.iter().map(|measure| &*measure.name).collect();
        assert!(is_expected(&measures), "{arguments:?}: {names:?}");
    }

    #[test]
    fn the_command_line_picks_measures() {
        let has = |measures: &[Measure], name: &str| measures.iter().any(|measure| measure.name == name);
        check("", |all| has(all, "soak") && has(all, "build") && has(all, "echo-2026@256"));
        check("--quick", |all| !has(all, "soak") && !has(all, "build") && has(all, "start"));
        check("--quick --soak 1", |all| has(all, "soak"));
        check("--only default", |all| all.len() == 7 && has(all, "default-build"));
        check("--quick --only default", |all| all.len() == 6 && has(all, "default-list-2025-session@32"));
        check("--only build", |all| all.len() == 2 && has(all, "build") && has(all, "default-build"));
        check("--soak 0", |all| !has(all, "soak") && has(all, "build"));
        check("--only soak", |all| all.len() == 1 && has(all, "soak"));
        check("--only stdio-,start", |all| all.len() == 5 && has(all, "start") && has(all, "stdio-echo@1"));
        for wrong in [&["--only"][..], &["--soak", "-1"], &["--fast"]] {
            assert!(Options::parse(wrong).is_none(), "{wrong:?}");
        }
    }
}
