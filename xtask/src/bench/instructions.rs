//! `cargo xtask instructions`: what a call costs in user-space instructions, against what it cost before.
//!
//! The one figure of speed that a busy machine cannot disturb, and so the one that can be checked. What was recorded
//! stands in `xtask/instructions.txt`; whoever makes a call dearer on purpose records it anew, and the reader of that
//! commit sees the price.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::{ask, contender};
use crate::Places;
use crate::install;
use crate::report::Tally;

/// One of each kind: a call in a session, two without, a list, and the two that answer nothing much; each with what our
/// server is told.
const WORKLOADS: [(&str, &[&str]); 6] = [
    ("echo-2025", &["--stateless"]),
    ("echo-2025-session", &[]),
    ("echo-2026", &[]),
    ("list-2026", &[]),
    ("ping-2025-session", &[]),
    ("discover-2026", &[]),
];

/// How much more is too much. Another compiler or C library moves the figures by a few hundredths.
const TOLERANCE: f64 = 0.08;

const FILE: &str = "xtask/instructions.txt";
const HEAD: &str = "\
# User-space instructions per call of `examples/bench_server.rs`, counted by callgrind.
# Written by `cargo xtask instructions --record`, checked by `cargo xtask instructions`.
";

/// What is done with the figures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    Check,
    Record,
}

pub(crate) fn run(places: &Places, wish: Wish, tally: &mut Tally) {
    if let Err(why) = install::valgrind() {
        return tally.skip(&why);
    }
    let file = places.root.join(FILE);
    let recorded = match (wish, std::fs::read_to_string(&file)) {
        (_, Ok(text)) => parse(&text),
        (Wish::Record, Err(_)) => BTreeMap::new(),
        (Wish::Check, Err(error)) => return tally.fail(&format!("cannot read {FILE}: {error}")),
    };
    let found = match count(places, &recorded) {
        Ok(found) => found,
        Err(why) => return tally.fail(&why),
    };
    match wish {
        Wish::Check => judge(&found, &recorded, tally),
        Wish::Record => match std::fs::write(&file, render(&found)) {
            Ok(()) => {
                println!("written to {FILE}");
                tally.passed += found.len();
            }
            Err(error) => tally.fail(&format!("cannot write {FILE}: {error}")),
        },
    }
}

fn count(places: &Places, recorded: &BTreeMap<String, f64>) -> Result<BTreeMap<String, f64>, String> {
    let generator = contender::generator(places)?;
    let server = contender::ours(places)?;
    println!("\n{:<20}{:>10}{:>12}{:>8}", "workload", "now", "recorded", "ratio");
    let mut found = BTreeMap::new();
    for (name, told) in WORKLOADS {
        let now = once(&generator, &server, name, told)?;
        let before = recorded.get(name);
        let shown = before.map_or("-".to_owned(), |before| format!("{before:.0}"));
        let ratio = before.map_or("-".to_owned(), |before| format!("{:.3}", now / before));
        println!("{name:<20}{now:>10.0}{shown:>12}{ratio:>8}");
        found.insert(name.to_owned(), now);
    }
    Ok(found)
}

/// One connection: what is counted then does not depend on how requests happen to meet.
fn once(generator: &Path, server: &Path, name: &str, told: &[&str]) -> Result<f64, String> {
    let mut command = Command::new(generator);
    command.args(["instructions", name, "--connections", "1", "--"]).arg(server).args(told);
    let figures = ask(&mut command).map_err(|why| format!("{name}: {why}"))?;
    figures.get("instructions").copied().ok_or_else(|| format!("{name}: no figure"))
}

fn judge(found: &BTreeMap<String, f64>, recorded: &BTreeMap<String, f64>, tally: &mut Tally) {
    for (name, now) in found {
        match recorded.get(name) {
            None => tally.fail(&format!("{name} is not recorded; run `cargo xtask instructions --record`")),
            Some(before) if *now > before * (1.0 + TOLERANCE) => {
                tally.fail(&format!("{name} takes {now:.0} instructions, {before:.0} are recorded"));
            }
            Some(before) => {
                tally.passed += 1;
                if *now < before * (1.0 - TOLERANCE) {
                    println!("{name} has become cheaper; `cargo xtask instructions --record` keeps it so");
                }
            }
        }
    }
}

fn parse(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(name, count)| Some((name.to_owned(), count.trim().parse().ok()?)))
        .collect()
}

fn render(found: &BTreeMap<String, f64>) -> String {
    let lines = found.iter().map(|(name, count)| format!("{name} {count:.0}\n"));
    HEAD.to_owned() + &lines.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(pairs: &[(&str, f64)]) -> BTreeMap<String, f64> {
        pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn what_is_recorded_reads_back() {
        let found = figures(&[("echo-2026", 30_000.0), ("list-2026", 55_000.0)]);
        assert_eq!(parse(&render(&found)), found);
    }

    #[test]
    fn more_than_the_tolerance_is_a_failure() {
        let recorded = figures(&[("a", 1000.0), ("b", 1000.0), ("c", 1000.0)]);
        let found = figures(&[("a", 1079.0), ("b", 1081.0), ("c", 500.0), ("d", 1.0)]);
        let mut tally = Tally::default();
        judge(&found, &recorded, &mut tally);
        assert_eq!((tally.passed, tally.failed), (2, 2));
    }
}
