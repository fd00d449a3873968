//! Measures our server beside the limit and its peers (`load/`), prints tables, writes `docs/benchmarks.md`.
//!
//! Rounds are interleaved, so that what disturbs the machine disturbs all alike; ratios are taken in each round, and
//! medians over them. The generator measures; this module builds, decides what runs when, and keeps what was found
//! below `target/xtask/bench/`.

mod builds;
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
  --only TEXTS    the measures whose name contains one of these; what was measured before is kept; `default` are those
                  with everyone built with cargo's default profile, `default-build` its build times alone
  --peers NAMES   these peers only, or `none`: rmcp tower-mcp turbomcp pmcp rust-mcp-sdk node python
  --soak MINUTES  how long memory is watched under load: 10 in a run of everything, 0 with --quick or --only
  --report        measures nothing: prints what was found last, and writes the document again
  --build         builds everyone, says where they are, and measures nothing";

/// What the command line asks for.
#[derive(Default)]
struct Options {
    quick: bool,
    report: bool,
    build: bool,
    only: Vec<String>,
    /// All of them unless said otherwise.
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
        let is_asked = self.only.iter().any(|text| "soak".contains(&**text));
        let otherwise = if is_asked || (self.only.is_empty() && !self.quick) { 10.0 } else { 0.0 };
        self.soak.unwrap_or(otherwise)
    }

    /// The measures that were asked for.
    fn measures(&self) -> Vec<Measure> {
        let size = if self.quick { Size::Quick } else { Size::Full };
        let is_wanted = |measure: &Measure| {
            let is_soak = measure.unit == Unit::Soak && self.soak.is_some();
            self.only.is_empty() || is_soak || self.only.iter().any(|text| measure.name.contains(text))
        };
        measure::all(size, self.soak_minutes()).into_iter().filter(is_wanted).collect()
    }

    /// Where results are kept: those of a short look do not mix with the others.
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
        Err(why) => {
            eprintln!("bench: {why}");
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
        return Err("no measure has such a name".to_owned());
    }
    let wanted =
        |name: &str| options.peers.as_ref().is_none_or(|peers| peers.iter().any(|peer| peer == name));
    let generator = contender::build_generator(workspace)?;
    let (mut contenders, mut missing) = (Vec::new(), Vec::new());
    let is_needed = |profile: &Profile| measures.iter().any(|measure| measure.profile == *profile);
    for profile in Profile::ALL.into_iter().filter(is_needed) {
        let (built, others) = contender::build_all(workspace, profile, wanted)?;
        contenders.extend(built);
        missing.extend(others);
    }
    for contender in &contenders {
        println!("{}, {}: {}", contender.name, contender.profile.name(), contender.command.join(" "));
    }
    for contender::MissingPeer { name, reason: why } in &missing {
        println!("{name} is missing: {why}");
    }
    if options.build {
        return Ok(());
    }
    // What is measured anew takes the place of what was found before; a run of everything begins with nothing.
    let mut book = if options.only.is_empty() && options.peers.is_none() {
        Results::default()
    } else {
        Results::load(&file)
    };
    book.add_contenders(&contenders, &missing);
    let run = Run::new(workspace, &generator, &contenders);
    let facts = Environment::collect(workspace, arguments);
    for measure in &measures {
        let began = Instant::now();
        run.measure(measure, &mut book);
        println!(
            "{}  [{:.0} s]",
            table::summary_line(measure, &contenders, &book),
            began.elapsed().as_secs_f64()
        );
        // Whoever ends the run early keeps what there is.
        book.save(&file)?;
    }
    book.runs.push(facts.finish());
    book.save(&file)?;
    write_report(workspace, options, &book)
}

fn write_report(workspace: &Workspace, options: &Options, book: &Results) -> Result<(), String> {
    if book.contenders.is_empty() {
        return Err("nothing has been measured yet".to_owned());
    }
    let text = table::render(book, &measure::all(Size::Full, 10.0));
    // A reason may name a place of this machine, which is nobody's business.
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

    fn check(arguments: &str, is_right: impl Fn(&[Measure]) -> bool) {
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        let measures = Options::parse(&arguments).unwrap().measures();
        let names: Vec<&str> = measures.iter().map(|measure| &*measure.name).collect();
        assert!(is_right(&measures), "{arguments:?}: {names:?}");
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
