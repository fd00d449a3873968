//! Measures our server beside the limit and its peers (`load/`), prints tables, writes `docs/benchmarks.md`.
//!
//! Rounds are interleaved, so that what disturbs the machine disturbs all alike, and medians are taken over them. The
//! generator measures; this module builds, decides what runs when, and judges nothing but whether answers were right.

pub(crate) mod contender;
pub(crate) mod instructions;
mod measure;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use serde_json::Value;

use self::contender::{Contender, Role};
use self::measure::Measure;
use self::table::Facts;
use crate::Places;
use crate::process::{self, Show};

pub(crate) const USAGE: &str = "\
usage: cargo xtask bench [--quick] [--only TEXT] [--peers NAME,NAME] [--instructions]

  --quick         shorter windows, fewer sessions and streams; the document is not written
  --only TEXT     the measures whose name contains TEXT; the document is not written
  --peers NAMES   these peers only, or `none`: rmcp tower-mcp turbomcp pmcp rust-mcp-sdk node python
  --instructions  user-space instructions per request under callgrind instead (no peers unless named)";

/// How long one run of the generator may take at most, whatever it measures.
const RUN_LIMIT: Duration = Duration::from_secs(300);
const N_ROUNDS: usize = 3;

/// What the command line asks for.
#[derive(Default)]
struct Options {
    quick: bool,
    only: Option<String>,
    /// All of them unless said otherwise.
    peers: Option<Vec<String>>,
    instructions: bool,
}

pub(crate) fn run(places: &Places, arguments: &[&str]) -> ExitCode {
    let Some(options) = parse(arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match bench(places, &options, arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("bench: {why}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[&str]) -> Option<Options> {
    let mut options = Options::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match *argument {
            "--quick" => options.quick = true,
            "--instructions" => options.instructions = true,
            "--only" => options.only = Some((*rest.next()?).to_owned()),
            "--peers" => options.peers = Some(rest.next()?.split(',').map(str::to_owned).collect()),
            _ => return None,
        }
    }
    Some(options)
}

fn bench(places: &Places, options: &Options, arguments: &[&str]) -> Result<(), String> {
    let wanted = |name: &str| match &options.peers {
        Some(peers) => peers.iter().any(|peer| peer == name),
        None => !options.instructions,
    };
    let generator = contender::generator(places)?;
    let (contenders, missing) = contender::all(places, wanted)?;
    let measures: Vec<Measure> = match options.instructions {
        true => measure::instructions(),
        false => measure::all(options.quick),
    };
    let chosen = |measure: &Measure| options.only.as_ref().is_none_or(|only| measure.name.contains(only));
    let measures: Vec<Measure> = measures.into_iter().filter(chosen).collect();
    if measures.is_empty() {
        return Err("no measure has such a name".to_owned());
    }
    let before = Facts::gather(places, arguments);
    // What callgrind counts differs by a thousandth from run to run: one is enough.
    let n_rounds = if options.instructions { 1 } else { N_ROUNDS };
    let results = rounds(&generator, &contenders, &measures, n_rounds);
    let text = table::render(&before.after(), &measures, &contenders, &missing, &results);
    println!("\n{text}");
    if options.quick || options.only.is_some() || options.instructions || options.peers.is_some() {
        return Ok(());
    }
    write(&places.root.join("docs/benchmarks.md"), &text)
}

/// What was found: the figures of each round, or why there are none.
pub(crate) type Outcome = Result<Vec<BTreeMap<String, f64>>, String>;

/// Outcomes by the index of the measure and of the contender.
pub(crate) type Results = BTreeMap<(usize, usize), Outcome>;

fn rounds(generator: &Path, contenders: &[Contender], measures: &[Measure], n_rounds: usize) -> Results {
    let mut results = Results::new();
    for (number, measure) in measures.iter().enumerate() {
        for round in 1..=n_rounds.min(measure.n_rounds) {
            for (index, contender) in contenders.iter().enumerate() {
                if round > contender.n_rounds {
                    continue;
                }
                let outcome = results.entry((number, index)).or_insert_with(|| Ok(Vec::new()));
                let Ok(figures) = outcome else { continue };
                match once(generator, contender, measure) {
                    Ok(found) => figures.push(found),
                    // A server that cannot do it cannot do it in the next round either.
                    Err(why) if figures.is_empty() => *outcome = Err(why),
                    Err(why) => eprintln!("{} of {}, round {round}: {why}", measure.name, contender.name),
                }
            }
        }
        println!("{}", table::line(measure, number, contenders, &results));
    }
    results
}

fn once(generator: &Path, contender: &Contender, measure: &Measure) -> Result<BTreeMap<String, f64>, String> {
    let mut command = Command::new(generator);
    command.args(&measure.arguments).arg("--").args(&contender.command);
    // Ours opens sessions unless it is told not to, and then refuses who has none.
    if contender.role == Role::Ours && measure.is_sessionless() {
        command.arg("--stateless");
    }
    ask(&mut command)
}

/// What the generator found.
fn ask(command: &mut Command) -> Result<BTreeMap<String, f64>, String> {
    let finished = process::run(command, RUN_LIMIT, Show::Quiet);
    let finished = finished.map_err(|error| format!("cannot run the generator: {error}"))?;
    if !finished.success() {
        return Err(finished.why());
    }
    let found: Value = serde_json::from_str(&finished.stdout).map_err(|error| error.to_string())?;
    let found = found.as_object().ok_or("the generator said no object")?;
    let figures: BTreeMap<String, f64> =
        found.iter().filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect();
    match figures.get("failures") {
        Some(failures) if *failures > 0.0 => {
            Err(format!("{failures} of {} answers were wrong", figures.get("requests").unwrap_or(&0.0)))
        }
        _ => Ok(figures),
    }
}

fn write(path: &PathBuf, text: &str) -> Result<(), String> {
    let told = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(told)?;
    }
    std::fs::write(path, text).map_err(told)?;
    println!("written to {}", path.display());
    Ok(())
}
