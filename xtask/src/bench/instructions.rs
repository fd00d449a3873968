//! `cargo xtask instructions`: compares the user-space instructions per request with `xtask/instructions.txt`. A part of
//! `cargo xtask test`.
//!
//! It is the only figure of speed that does not depend on how busy the machine is, so the gate can check it. A change that
//! makes a request more expensive on purpose records the new counts, and its diff shows the price.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use super::contender;
use super::profile::Profile;
use super::run::{pin_args, run_generator};
use crate::install;
use crate::report::Tally;
use crate::{BaselineMode, Workspace};

/// One workload of each kind: calls with and without a session, a large text, a list, and two with a short response; each
/// with the arguments of both servers.
const WORKLOADS: [(&str, &[&str]); 7] = [
    ("echo-2025", &["--stateless"]),
    ("echo-2025-session", &[]),
    ("echo-2026", &[]),
    ("big-text-2026", &[]),
    ("list-2026", &[]),
    ("ping-2025-session", &[]),
    ("discover-2026", &[]),
];

/// Tolerated growth of our count divided by that of bare hyper: the effect of another compiler, C library or processor on
/// both cancels out.
const RATIO_TOLERANCE: f64 = 0.03;
/// Tolerated growth of our count by itself.
const COUNT_TOLERANCE: f64 = 0.08;

const BASELINE_FILE: &str = "xtask/instructions.txt";
const BASELINE_HEADER: &str = "\
# User-space instructions per call of `examples/bench_server.rs`, and of bare hyper (`load/limit`), counted by callgrind.
# Written by `cargo xtask instructions --record`, checked by `cargo xtask instructions`.
";

/// Instructions per request.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Count {
    ours: f64,
    limit: f64,
}

impl Count {
    fn ratio(self) -> f64 {
        self.ours / self.limit
    }
}

type Counts = BTreeMap<String, Count>;

pub(crate) fn run(workspace: &Workspace, mode: BaselineMode, tally: &mut Tally) {
    if let Err(reason) = install::valgrind() {
        return tally.skip(&format!("instructions were not counted: {reason}"));
    }
    let file = workspace.root.join(BASELINE_FILE);
    let recorded = match (mode, std::fs::read_to_string(&file)) {
        (_, Ok(text)) => parse(&text),
        (BaselineMode::Record, Err(_)) => BTreeMap::new(),
        (BaselineMode::Check, Err(error)) => {
            return tally.fail(&format!("cannot read {BASELINE_FILE}: {error}"));
        }
    };
    let found = match count(workspace) {
        Ok(found) => found,
        Err(reason) => return tally.fail(&reason),
    };
    println!("{}", table(&found, &recorded));
    match mode {
        BaselineMode::Check => compare(&found, &recorded, tally),
        BaselineMode::Record => match std::fs::write(&file, render(&found)) {
            Ok(()) => {
                println!("written to {BASELINE_FILE}");
                tally.passed += found.len();
            }
            Err(error) => tally.fail(&format!("cannot write {BASELINE_FILE}: {error}")),
        },
    }
}

fn count(workspace: &Workspace) -> Result<Counts, String> {
    let generator = contender::build_generator(workspace)?;
    let (limit, ours) =
        (contender::build_limit(workspace, Profile::Dist)?, contender::build_ours(workspace, Profile::Dist)?);
    let mut found = BTreeMap::new();
    for (name, arguments) in WORKLOADS {
        // Both at once, each on its own core: a count does not depend on the load.
        let (limit, ours) = std::thread::scope(|scope| {
            let limit = scope.spawn(|| count_once(&generator, &limit, name, arguments, 0));
            let ours = count_once(&generator, &ours, name, arguments, 1);
            (limit.join().unwrap_or_else(|_| Err("the thread panicked".to_owned())), ours)
        });
        found.insert(name.to_owned(), Count { ours: ours?, limit: limit? });
    }
    Ok(found)
}

/// Counts with one connection, so that the result does not depend on the interleaving of requests.
fn count_once(
    generator: &Path,
    server: &Path,
    name: &str,
    arguments: &[&str],
    core: usize,
) -> Result<f64, String> {
    let mut command = Command::new(generator);
    command.args(["instructions", name, "--connections", "1"]).args(pin_args(core));
    command.arg("--").arg(server).args(arguments);
    let figures = run_generator(&mut command).map_err(|reason| format!("{name}: {reason}"))?;
    figures
        .get("instructions")
        .copied()
        .ok_or_else(|| format!("{name}: the generator reported no instructions"))
}

fn table(found: &Counts, recorded: &Counts) -> String {
    let columns = ["bare hyper", "ours", "recorded", "× hyper", "recorded", "change"];
    let mut text =
        format!("\n{:<20}{}\n", "workload", columns.map(|column| format!("{column:>12}")).concat());
    for (name, now) in found {
        let before = recorded.get(name);
        let shown = |value: Option<f64>, digits: usize| {
            value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let cells = [
            shown(Some(now.limit), 0),
            shown(Some(now.ours), 0),
            shown(before.map(|before| before.ours), 0),
            shown(Some(now.ratio()), 3),
            shown(before.map(|before| before.ratio()), 3),
            before.map_or("-".to_owned(), |before| {
                format!("{:+.1} %", 100.0 * (now.ratio() / before.ratio() - 1.0))
            }),
        ];
        let _ = writeln!(text, "{name:<20}{}", cells.map(|cell| format!("{cell:>12}")).concat());
    }
    text
}

/// Two checks for each workload.
fn compare(found: &Counts, recorded: &Counts, tally: &mut Tally) {
    for (name, now) in found {
        let Some(before) = recorded.get(name) else {
            tally.fail(&format!("{name} is not recorded; run `cargo xtask instructions --record`"));
            continue;
        };
        let (ratio, recorded) = (now.ratio(), before.ratio());
        match ratio > recorded * (1.0 + RATIO_TOLERANCE) {
            true => tally.fail(&format!(
                "{name} takes {ratio:.3} times the instructions of bare hyper; {recorded:.3} is recorded"
            )),
            false => tally.passed += 1,
        }
        let (ours, recorded) = (now.ours, before.ours);
        match ours > recorded * (1.0 + COUNT_TOLERANCE) {
            true => tally.fail(&format!("{name} takes {ours:.0} instructions; {recorded:.0} are recorded")),
            false => tally.passed += 1,
        }
        if ratio < before.ratio() * (1.0 - RATIO_TOLERANCE) {
            println!("{name} has become cheaper; record it with `cargo xtask instructions --record`");
        }
    }
}

fn parse(text: &str) -> Counts {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let read = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        let mut number = || words.next()?.parse().ok();
        Some((name, Count { ours: number()?, limit: number()? }))
    };
    lines.filter_map(read).collect()
}

fn render(found: &Counts) -> String {
    let lines = found.iter().map(|(name, count)| format!("{name} {:.0} {:.0}\n", count.ours, count.limit));
    BASELINE_HEADER.to_owned() + &lines.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(lines: &[(&str, f64, f64)]) -> Counts {
        lines
            .iter()
            .map(|(name, ours, limit)| ((*name).to_owned(), Count { ours: *ours, limit: *limit }))
            .collect()
    }

    #[test]
    fn recorded_counts_are_read_back() {
        let found = counts(&[("echo-2026", 30_000.0, 24_000.0), ("list-2026", 55_000.0, 47_000.0)]);
        assert_eq!(parse(&render(&found)), found);
    }

    fn check(now: (f64, f64), expected: (usize, usize)) {
        let mut tally = Tally::default();
        compare(&counts(&[("a", now.0, now.1)]), &counts(&[("a", 1000.0, 800.0)]), &mut tally);
        assert_eq!((tally.passed, tally.failed), expected, "{now:?}");
    }

    #[test]
    fn more_than_the_tolerance_is_a_failure() {
        check((1000.0, 800.0), (2, 0));
        check((1029.0, 800.0), (2, 0));
        check((1031.0, 800.0), (1, 1));
        // Another compiler: both counts grow.
        check((1070.0, 856.0), (2, 0));
        check((1090.0, 872.0), (1, 1));
        check((1090.0, 800.0), (0, 2));
        check((500.0, 800.0), (2, 0));
    }

    #[test]
    fn a_workload_that_is_not_recorded_is_a_failure() {
        let mut tally = Tally::default();
        compare(&counts(&[("b", 1.0, 1.0)]), &Counts::new(), &mut tally);
        assert_eq!((tally.passed, tally.failed), (0, 1));
    }
}
