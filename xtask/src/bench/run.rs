//! Runs the load generator: order, cores, and the figures derived from its output.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::builds;
use super::contender::{Contender, Role};
use super::measure::{Measure, Unit};
use super::results::{Figures, Results};
use super::statistics::{self, MemoryTrend};
use crate::Workspace;
use crate::install;
use crate::process::{self, OutputMode};

/// The longest time that a run of the generator may take in addition to its window.
const RUN_TIMEOUT: Duration = Duration::from_secs(300);

/// One run over all measures.
pub(crate) struct Run<'a> {
    workspace: &'a Workspace,
    generator: &'a Path,
    contenders: &'a [Contender],
    number: u64,
}

impl<'a> Run<'a> {
    pub(crate) fn new(workspace: &'a Workspace, generator: &'a Path, contenders: &'a [Contender]) -> Self {
        Self { workspace, generator, contenders, number: run_number() }
    }

    /// Measures all contenders of a measure, and records the results.
    pub(crate) fn measure(&self, measure: &Measure, results: &mut Results) {
        let applies = |contender: &&Contender| measure.n_rounds(contender) > 0;
        let contenders: Vec<&Contender> = self.contenders.iter().filter(applies).collect();
        contenders.iter().for_each(|contender| results.clear(&measure.name, contender.name));
        if measure.unit == Unit::Instructions {
            return self.count_instructions(measure, &contenders, results);
        }
        if measure.unit == Unit::Build {
            return self.measure_builds(measure, results);
        }
        let n_rounds =
            contenders.iter().map(|contender| measure.n_rounds(contender)).max().unwrap_or_default();
        for round in 0..n_rounds {
            // The order alternates, so that a drift of the machine favors neither.
            let mut order: Vec<&Contender> = contenders.clone();
            if round % 2 == 1 && order.len() > 1 {
                order.swap(0, 1);
            }
            for contender in order {
                // A peer that failed once fails in the next round too.
                let has_failed =
                    contender.role == Role::Peer && results.has_failed(&measure.name, contender.name);
                if has_failed || round >= measure.n_rounds(contender) {
                    continue;
                }
                let found = self.run_once(contender, measure);
                if let Err(reason) = &found {
                    eprintln!("{} of {}, round {}: {reason}", measure.name, contender.name, round + 1);
                }
                results.record(&measure.name, contender.name, self.number + round, found);
            }
        }
    }

    fn run_once(&self, contender: &Contender, measure: &Measure) -> Result<Figures, String> {
        let arguments = measure.arguments(contender).ok_or("the measure does not apply")?;
        let on = |cores: &[&str]| {
            run_generator(&mut command(
                self.generator,
                contender,
                measure,
                &[arguments, &to_strings(cores)].concat(),
            ))
        };
        match measure.unit {
            Unit::Size => {
                let bytes = contender.n_bytes.ok_or("a script has no size")?;
                Ok(Figures::from([("bytes".to_owned(), bytes as f64)]))
            }
            Unit::Scaling => {
                let one = on(&["--server-cores", "0", "--own-cores", "0"])?;
                let two = on(&["--server-cores", "0,1", "--own-cores", "0,1"])?;
                scaling_figures(&one, &two)
            }
            Unit::Soak => on(&[]).and_then(|figures| soak_figures(&figures)),
            // A script handles too few requests in a short window. The last `--seconds` wins.
            Unit::Cpu if contender.is_script() => on(&["--seconds", "1.5"]),
            _ => on(&[]),
        }
    }

    /// Two servers at a time, each on its own core: the counts do not depend on the load.
    fn count_instructions(&self, measure: &Measure, contenders: &[&Contender], results: &mut Results) {
        if let Err(reason) = install::valgrind() {
            contenders.iter().for_each(|contender| {
                results.record(&measure.name, contender.name, self.number, Err(reason.clone()))
            });
            return;
        }
        let found = std::thread::scope(|scope| {
            let counting = contenders.iter().enumerate().map(|(index, contender)| {
                let arguments = measure.arguments(contender).unwrap_or_default();
                let mut command =
                    command(self.generator, contender, measure, &[arguments, &pin_args(index)].concat());
                scope.spawn(move || run_generator(&mut command))
            });
            let counting: Vec<_> = counting.collect();
            let ended = counting
                .into_iter()
                .map(|one| one.join().unwrap_or_else(|_| Err("the thread panicked".to_owned())));
            ended.collect::<Vec<_>>()
        });
        for (contender, found) in contenders.iter().zip(found) {
            results.record(&measure.name, contender.name, self.number, found);
        }
    }

    fn measure_builds(&self, measure: &Measure, results: &mut Results) {
        for built in builds::targets(measure.profile).rev() {
            results.clear(&measure.name, built.name);
            let found = builds::clean_build(self.workspace, measure.profile, built);
            if let Err(reason) = &found {
                eprintln!("{} of {}: {reason}", measure.name, built.name);
            }
            results.record(&measure.name, built.name, self.number, found);
        }
    }
}

/// A number that distinguishes the rounds of this run from those of other runs.
fn run_number() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs()) * 100
}

fn to_strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Pins server and generator to one core: under callgrind they rarely run at the same time.
pub(crate) fn pin_args(index: usize) -> Vec<String> {
    let core = (index % 2).to_string();
    to_strings(&["--server-cores", &core, "--own-cores", &core])
}

fn command(generator: &Path, contender: &Contender, measure: &Measure, arguments: &[String]) -> Command {
    let mut command = Command::new(generator);
    command.args(arguments).arg("--").args(&contender.command);
    // Without it our server opens sessions, and rejects requests without one.
    if contender.role != Role::Peer && measure.is_sessionless() {
        command.arg("--stateless");
    }
    command
}

/// The speedup of two cores. The generator shares the cores of the server in both cases, so wall time measures both
/// together. The speedup is therefore derived from the server's CPU per request: if it is the same as on one core, two
/// cores are twice as fast.
fn scaling_figures(one: &Figures, two: &Figures) -> Result<Figures, String> {
    let of = |figures: &Figures, name: &str| figures.get(name).copied().ok_or_else(|| format!("no {name}"));
    let (cpu_one, cpu_two) = (of(one, "cpu_us")?, of(two, "cpu_us")?);
    let (calls_one, calls_two) = (of(one, "per_second")?, of(two, "per_second")?);
    Ok(Figures::from([
        ("cpu_us_one".to_owned(), cpu_one),
        ("cpu_us_two".to_owned(), cpu_two),
        ("speedup".to_owned(), 2.0 * cpu_one / cpu_two),
        ("calls_speedup".to_owned(), calls_two / calls_one),
    ]))
}

/// The slope and growth of the memory samples.
fn soak_figures(figures: &Figures) -> Result<Figures, String> {
    let sample = |(name, kib): (&String, &f64)| Some((name.strip_prefix("rss_kib_at_")?.parse().ok()?, *kib));
    let mut samples: Vec<(f64, f64)> = figures.iter().filter_map(sample).collect();
    samples.sort_by(|left, right| left.0.total_cmp(&right.0));
    let trend = MemoryTrend::from_samples(&samples).ok_or("too few memory samples")?;
    let mut figures = figures.clone();
    let level = statistics::median(samples.iter().map(|(_, kib)| *kib));
    figures.extend(level.map(|kib| ("rss_kib".to_owned(), kib)));
    figures.insert("slope_kib".to_owned(), trend.slope);
    figures.insert("growth_kib".to_owned(), trend.growth);
    Ok(figures)
}

/// Runs the generator, and returns its figures.
pub(crate) fn run_generator(command: &mut Command) -> Result<Figures, String> {
    let seconds = command.get_args().skip_while(|word| *word != "--seconds").nth(1);
    let window = seconds.and_then(|word| word.to_str()?.parse().ok()).unwrap_or_default();
    let limit = RUN_TIMEOUT + Duration::from_secs_f64(window);
    let finished = process::run(command, limit, OutputMode::Quiet);
    let finished = finished.map_err(|error| format!("cannot run the generator: {error}"))?;
    if !finished.is_success() {
        return Err(finished.failure_summary());
    }
    let found: Value = serde_json::from_str(&finished.stdout).map_err(|error| error.to_string())?;
    let found = found.as_object().ok_or("the generator did not print an object")?;
    let figures: Figures =
        found.iter().filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect();
    match figures.get("failures") {
        Some(failures) if *failures > 0.0 => {
            let requests = figures.get("requests").unwrap_or(&0.0);
            Err(format!("{failures} of {requests} responses were invalid: {}", finished.stderr.trim()))
        }
        _ => Ok(figures),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cores_are_twice_as_fast_if_a_request_costs_the_same() {
        let figures = |cpu: f64, calls: f64| {
            Figures::from([("cpu_us".to_owned(), cpu), ("per_second".to_owned(), calls)])
        };
        let found = scaling_figures(&figures(9.0, 100.0), &figures(10.0, 170.0)).unwrap();
        assert!((found["speedup"] - 1.8).abs() < 1e-9 && (found["calls_speedup"] - 1.7).abs() < 1e-9);
        assert!(scaling_figures(&Figures::new(), &figures(1.0, 1.0)).is_err());
    }

    #[test]
    fn samples_are_put_in_order_of_time() {
        let samples = (1..=20).map(|n| (format!("rss_kib_at_{}.0", n * 2), f64::from(n) * 2.0));
        let found = soak_figures(&samples.collect()).unwrap();
        assert!((found["slope_kib"] - 60.0).abs() < 1e-6);
        assert_eq!(found["growth_kib"], 30.0);
    }
}
