//! Counts checks, prints failures and skipped checks, and the final summary.
//!
//! The last line of a run is `N passed, N failed`, followed by `, N skipped` if N is not 0; CI reads it.

use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The parts of a run, in the order they ran.
#[derive(Default)]
pub(crate) struct Report {
    parts: Vec<Part>,
}

struct Part {
    name: &'static str,
    tally: Tally,
    elapsed: Duration,
}

/// The counts of a part.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
    /// Whether an optional part was skipped, at least partially.
    is_partial: bool,
}

impl Report {
    /// Runs a part, and prints its result. A failure does not stop the run.
    pub(crate) fn run_part(&mut self, name: &'static str, body: impl FnOnce(&mut Tally)) {
        println!("\n== {name}");
        let start = Instant::now();
        let mut tally = Tally::default();
        body(&mut tally);
        if tally.is_empty() {
            tally.fail("the part checked nothing");
        }
        let part = Part { name, tally, elapsed: start.elapsed() };
        println!("-- {name}: {} in {}", part.tally.summary(), format_seconds(part.elapsed));
        self.parts.push(part);
    }

    /// Prints the table and the final line.
    pub(crate) fn finish(self) -> ExitCode {
        let mut total = Tally::default();
        println!("\n{:<14}{:<10}{:<36}time", "part", "result", "checks");
        for part in &self.parts {
            let result = part.tally.result();
            let checks = part.tally.summary();
            println!("{:<14}{result:<10}{checks:<36}{}", part.name, format_seconds(part.elapsed));
            total.add(&part.tally);
        }
        println!("\n{}", total.summary());
        if total.failed > 0 {
            return ExitCode::FAILURE;
        }
        ExitCode::SUCCESS
    }
}

impl Tally {
    /// Counts and prints a failure.
    pub(crate) fn fail(&mut self, reason: &str) {
        println!("FAIL {reason}");
        self.failed += 1;
    }

    /// Counts a check that cannot run here. In CI that is a failure, because the output of a passing run is not read.
    pub(crate) fn skip(&mut self, reason: &str) {
        if in_ci() {
            return self.fail(&format!("skipped, which CI does not allow: {reason}"));
        }
        println!("skip {reason}");
        self.skipped += 1;
    }

    /// Prints that an optional part, or some of it, does not run.
    pub(crate) fn skip_optional(&mut self, reason: &str) {
        println!("left out: {reason}");
        self.is_partial = true;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    fn is_empty(&self) -> bool {
        self.passed + self.failed + self.skipped == 0 && !self.is_partial
    }

    fn result(&self) -> &'static str {
        match self {
            Self { failed: 1.., .. } => "FAILED",
            Self { skipped: 1.., .. } => "skipped",
            Self { passed: 0, is_partial: true, .. } => "left out",
            _ => "ok",
        }
    }

    fn summary(&self) -> String {
        let line = format!("{} passed, {} failed", self.passed, self.failed);
        match self.skipped {
            0 => line,
            n_skipped => format!("{line}, {n_skipped} skipped"),
        }
    }
}

/// Whether this run is in CI.
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}

fn format_seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_checks_are_only_mentioned_if_there_are_any() {
        let mut tally = Tally { passed: 2, ..Tally::default() };
        assert_eq!(tally.summary(), "2 passed, 0 failed");
        tally.skipped = 1;
        assert_eq!(tally.summary(), "2 passed, 0 failed, 1 skipped");
        assert_eq!(tally.result(), "skipped");
    }
}
