//! The performance goals, and whether the [`Results`] meet them.

use std::fmt::Write;

use super::builds::RMCP_LISTENING;
use super::contender::{LIMIT, OURS};
use super::profile::Profile;
use super::results::Results;
use super::statistics::{MAX_GROWTH_KIB, MAX_SLOPE_KIB_PER_MINUTE};

/// The range of a figure that meets the goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
    Under(f64),
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
            Self::Under(limit) => value < limit,
        }
    }

    fn format(self, unit: &str) -> String {
        let (relation, limit) = match self {
            Self::AtMost(limit) => ("at most", limit),
            Self::AtLeast(limit) => ("at least", limit),
            Self::Under(limit) => ("under", limit),
        };
        format!("{relation} {}{unit}", format_number(limit))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Met,
    Missed,
    NotMeasured,
}

pub(crate) struct Goal {
    name: String,
    bound: Bound,
    unit: &'static str,
    measured: Option<f64>,
    /// The figures from which the measured one is derived.
    note: String,
}

impl Goal {
    pub(crate) fn verdict(&self) -> Verdict {
        match self.measured {
            None => Verdict::NotMeasured,
            Some(value) if self.bound.holds(value) => Verdict::Met,
            Some(_) => Verdict::Missed,
        }
    }

    fn row(&self) -> String {
        let measured = self.measured.map_or("–".to_owned(), |value| format_number(value) + self.unit);
        let verdict = match self.verdict() {
            Verdict::Met => "met",
            Verdict::Missed => "**missed**",
            Verdict::NotMeasured => "not measured",
        };
        let note = if self.note.is_empty() { String::new() } else { format!(" ({})", self.note) };
        format!("| {} | {} | {measured}{note} | {verdict} |", self.name, self.bound.format(self.unit))
    }
}

/// CPU per request, relative to bare hyper.
const MAX_CPU_RATIOS: [(&str, f64); 15] = [
    ("echo-2025", 1.15),
    ("echo-2025-session", 1.3),
    ("echo-2026", 1.15),
    ("big-2025", 1.0),
    ("big-2025-session", 1.0),
    ("big-2026", 1.0),
    ("big-text-2025", 1.0),
    ("big-text-2025-session", 1.0),
    ("big-text-2026", 1.0),
    ("list-2025", 1.15),
    ("list-2025-session", 1.15),
    ("list-2026", 1.15),
    ("ping-2025", 1.15),
    ("ping-2025-session", 1.15),
    ("discover-2026", 1.15),
];

const MAX_INSTRUCTIONS: [(&str, f64); 5] = [
    ("echo-2025", 26_000.0),
    ("echo-2026", 30_000.0),
    ("list-2025", 55_000.0),
    ("list-2025-session", 55_000.0),
    ("list-2026", 55_000.0),
];

/// CPU per request of the best peer, relative to ours, with each profile.
pub(crate) const MIN_PEER_CPU_RATIOS: [(&str, f64); 6] = [
    ("echo-2025", 4.0),
    ("echo-2025-session", 4.0),
    ("echo-2026", 4.0),
    ("list-2025", 6.0),
    ("list-2025-session", 6.0),
    ("list-2026", 6.0),
];

const MIN_STDIO_CPU_RATIOS: [(&str, f64); 4] =
    [("ping@32", 10.0), ("echo@32", 10.0), ("ping@1", 2.0), ("echo@1", 2.0)];

pub(crate) fn all(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    let mut add = |name: String, bound, unit, measured, note: String| {
        goals.push(Goal { name, bound, unit, measured, note });
    };
    for connections in ["32", "256"] {
        for (workload, limit) in MAX_CPU_RATIOS {
            let measure = format!("{workload}@{connections}");
            let what = format!("CPU per request, {measure}, relative to bare hyper");
            let note = format_pair(results, &measure, "cpu_us", "µs");
            add(what, Bound::AtMost(limit), "×", results.ratio_to_limit(&measure, "cpu_us"), note);
        }
    }
    for (workload, _) in MAX_CPU_RATIOS {
        let measure = format!("{workload}@256");
        let what = format!("p99, {measure}, relative to bare hyper");
        let note = format_pair(results, &measure, "p99_us", "µs");
        add(what, Bound::AtMost(1.3), "×", results.ratio_to_limit(&measure, "p99_us"), note);
    }
    for workload in ["echo-2025", "echo-2025-session", "echo-2026"] {
        let measure = format!("{workload}@1");
        let p99 = results.median(&measure, OURS, "p99_us").map(|micros| micros / 1000.0);
        let worst = results.max(&measure, OURS, "worst_us").map(|micros| micros / 1000.0);
        let note = worst.map_or(String::new(), |worst| format!("slowest {} ms", format_number(worst)));
        add(
            format!("p99 at one connection, {measure}: no stalls of 40 ms"),
            Bound::Under(10.0),
            " ms",
            p99,
            note,
        );
    }
    for (workload, limit) in MAX_INSTRUCTIONS {
        let measure = format!("instructions-{workload}");
        let of = |name| results.median(&measure, name, "instructions");
        let note = of(LIMIT).map_or(String::new(), |limit| format!("bare hyper {}", format_number(limit)));
        add(format!("user-space instructions, {workload}"), Bound::AtMost(limit), "", of(OURS), note);
    }
    for (profile, (workload, limit)) in
        Profile::ALL.into_iter().flat_map(|one| MIN_PEER_CPU_RATIOS.map(|goal| (one, goal)))
    {
        let measure = profile.measure_name(&format!("{workload}@32"));
        let best = results.best_peer(&measure, "cpu_us");
        let ratio = best.and_then(|(name, _)| results.ratio(&measure, name, OURS, "cpu_us"));
        // The ratio that bare hyper reaches: on some machines the kernel uses so much CPU that no server can reach a
        // higher one.
        let hyper = best.and_then(|(name, _)| results.ratio(&measure, name, LIMIT, "cpu_us"));
        let hyper = hyper.map_or(String::new(), |ratio| format!(", {}× of bare hyper", format_number(ratio)));
        let note = best
            .map_or(String::new(), |(name, micros)| format!("{name} {} µs{hyper}", format_number(micros)));
        add(
            format!("CPU of the best peer relative to ours, {}, {workload}@32", profile.name()),
            Bound::AtLeast(limit),
            "×",
            ratio,
            note,
        );
    }
    for (message, limit) in MIN_STDIO_CPU_RATIOS {
        let measure = format!("stdio-{message}");
        let ratio = results.ratio(&measure, "rmcp", OURS, "cpu_us");
        let of = |name| results.median(&measure, name, "cpu_us");
        let note = of("rmcp").zip(of(OURS));
        let note = note.map_or(String::new(), |(rmcp, ours)| {
            format!("{} / {} µs", format_number(rmcp), format_number(ours))
        });
        add(
            format!("messages per CPU second relative to rmcp, {measure}"),
            Bound::AtLeast(limit),
            "×",
            ratio,
            note,
        );
    }
    memory_goals(results, &mut add);
    other_goals(results, &mut add);
    goals
}

type AddGoal<'a> = &'a mut dyn FnMut(String, Bound, &'static str, Option<f64>, String);

fn memory_goals(results: &Results, add: AddGoal<'_>) {
    let idle = results.max("start", OURS, "idle_rss_kib").map(|kib| kib / 1024.0);
    add(
        "memory of the idle server".into(),
        Bound::Under(5.0),
        " MiB",
        idle,
        "after the first response".into(),
    );
    for (measure, what, limit) in [
        ("sessions", "an idle session", 1024.0),
        ("streams-2025", "an open stream of 2025-11-25", 13_000.0),
        ("streams-2026", "an open stream of 2026-07-28", 13_000.0),
    ] {
        let opened = results.median(measure, OURS, "opened");
        let note = opened.map_or(String::new(), |opened| format!("{} opened", format_number(opened)));
        let bytes = results.median(measure, OURS, "bytes_each");
        add(format!("memory for {what}"), Bound::AtMost(limit), " B", bytes, note);
        let refused = results.max(measure, OURS, "refused");
        add(format!("rejected, {measure}"), Bound::AtMost(0.0), "", refused, String::new());
    }
    let minutes = results.median("soak", OURS, "seconds").map_or(String::new(), |seconds| {
        let requests = results.median("soak", OURS, "requests").unwrap_or_default();
        format!("{} minutes, {:.0} million requests", format_number(seconds / 60.0), requests / 1e6)
    });
    let slope = results.median("soak", OURS, "slope_kib");
    add(
        "growth under load, by least squares over the second half".into(),
        Bound::AtMost(MAX_SLOPE_KIB_PER_MINUTE),
        " KiB/min",
        slope,
        minutes,
    );
    let growth = results.median("soak", OURS, "growth_kib");
    let what = "growth under load, from the median of the first quarter to that of the last";
    add(what.into(), Bound::AtMost(MAX_GROWTH_KIB), " KiB", growth, String::new());
}

fn other_goals(results: &Results, add: AddGoal<'_>) {
    let worst = results.max("start", OURS, "worst_ms");
    let note = worst.map_or(String::new(), |worst| format!("slowest {} ms", format_number(worst)));
    let start = results.median("start", OURS, "median_ms");
    add("start to first response, median".into(), Bound::Under(5.0), " ms", start, note);
    let megabytes = results.median("size", OURS, "bytes").map(|bytes| bytes / 1e6);
    add("stripped bench server".into(), Bound::Under(3.0), " MB", megabytes, String::new());
    Profile::ALL.into_iter().for_each(|profile| build_goals(results, profile, add));
    for workload in ["echo-2025", "echo-2026"] {
        let measure = format!("scaling-{workload}");
        let speedup = results.median(&measure, OURS, "speedup");
        let limit = results.median(&measure, LIMIT, "speedup");
        let note = limit.map_or(String::new(), |limit| format!("bare hyper {}×", format_number(limit)));
        add(format!("two cores relative to one, {workload}"), Bound::AtLeast(1.8), "×", speedup, note);
    }
}

fn build_goals(results: &Results, profile: Profile, add: AddGoal<'_>) {
    let measure = profile.measure_name("build");
    for (figure, what) in [("wall_s", "wall time"), ("cpu_s", "CPU time")] {
        let ratio = results.ratio(&measure, OURS, "rmcp", figure);
        let of = |name| results.median(&measure, name, figure);
        let note = of(OURS).zip(of("rmcp"));
        let listening = results.ratio(&measure, OURS, RMCP_LISTENING, figure);
        let listening = listening
            .map_or(String::new(), |ratio| format!(", {}× of {RMCP_LISTENING}", format_number(ratio)));
        let note = note.map_or(String::new(), |(ours, rmcp)| {
            format!("{} / {} s{listening}", format_number(ours), format_number(rmcp))
        });
        let what = format!("clean build relative to rmcp, {}, {what}", profile.name());
        add(what, Bound::AtMost(0.5), "×", ratio, note);
    }
}

/// Our figure and that of bare hyper.
fn format_pair(results: &Results, measure: &str, figure: &str, unit: &str) -> String {
    let both = results.median(measure, OURS, figure).zip(results.median(measure, LIMIT, figure));
    both.map_or(String::new(), |(ours, limit)| {
        format!("{} / {} {unit}", format_number(ours), format_number(limit))
    })
}

/// The table of goals, and the number of those that are met.
pub(crate) fn table(goals: &[Goal]) -> String {
    let mut text = "| figure | goal | measured | |\n|---|---|---|---|\n".to_owned();
    for goal in goals {
        let _ = writeln!(text, "{}", goal.row());
    }
    let n_with = |verdict| goals.iter().filter(|goal| goal.verdict() == verdict).count();
    let (met, missed) = (n_with(Verdict::Met), n_with(Verdict::Missed));
    let _ = write!(text, "\n{met} met, {missed} missed");
    match n_with(Verdict::NotMeasured) {
        0 => text + "\n",
        open => text + &format!(", {open} not measured\n"),
    }
}

/// Formats with three significant digits, or with all digits of a large number.
pub(crate) fn format_number(value: f64) -> String {
    match value.abs() {
        size if size >= 10_000.0 => {
            let digits = format!("{:.0}", value.abs());
            let groups: Vec<&str> = digits
                .as_bytes()
                .rchunks(3)
                .rev()
                .filter_map(|group| std::str::from_utf8(group).ok())
                .collect();
            format!("{}{}", if value < 0.0 { "-" } else { "" }, groups.join(","))
        }
        size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::results::tests::results;

    fn verdict(results: &Results, what: &str) -> Verdict {
        let goals = all(results);
        let found: Vec<&Goal> = goals.iter().filter(|goal| goal.name.contains(what)).collect();
        assert_eq!(found.len(), 1, "{what}");
        found[0].verdict()
    }

    #[test]
    fn goals_depend_on_the_results() {
        let cpu = |ours: f64| {
            results("echo-2026@32", "cpu_us", &[(LIMIT, &[10.0]), (OURS, &[ours]), ("rmcp", &[46.0])])
        };
        let what = "CPU per request, echo-2026@32";
        assert_eq!(verdict(&cpu(11.4), what), Verdict::Met);
        assert_eq!(verdict(&cpu(11.6), what), Verdict::Missed);
        let peer = "CPU of the best peer relative to ours, dist profile, echo-2026@32";
        assert_eq!(verdict(&cpu(11.4), peer), Verdict::Met);
        assert_eq!(verdict(&cpu(11.6), peer), Verdict::Missed);
        assert_eq!(verdict(&cpu(11.4), "CPU per request, echo-2025@32"), Verdict::NotMeasured);
    }

    #[test]
    fn one_rejected_stream_misses_the_goal() {
        let streams = |refused: f64| results("streams-2026", "refused", &[(OURS, &[0.0, refused, 0.0])]);
        assert_eq!(verdict(&streams(0.0), "rejected, streams-2026"), Verdict::Met);
        assert_eq!(verdict(&streams(1.0), "rejected, streams-2026"), Verdict::Missed);
    }

    #[test]
    fn profiles_are_compared_separately() {
        let default = "cargo's default profile, echo-2026@32";
        let found = [(LIMIT, &[10.0][..]), (OURS, &[10.0]), ("rmcp", &[41.0])];
        let tuned = results("echo-2026@32", "cpu_us", &found);
        assert_eq!(verdict(&tuned, default), Verdict::NotMeasured);
        let both = results("default-echo-2026@32", "cpu_us", &found);
        assert_eq!(verdict(&both, default), Verdict::Met);
        assert_eq!(verdict(&both, "dist profile, echo-2026@32"), Verdict::NotMeasured);
    }

    #[test]
    fn half_the_build_time_of_rmcp_meets_the_goal() {
        for (measure, profile) in [("build", "dist profile"), ("default-build", "cargo's default profile")] {
            let build = |ours: f64| results(measure, "wall_s", &[(OURS, &[ours]), ("rmcp", &[80.0])]);
            let what = format!("{profile}, wall time");
            assert_eq!(verdict(&build(40.0), &what), Verdict::Met);
            assert_eq!(verdict(&build(41.0), &what), Verdict::Missed);
        }
    }

    #[test]
    fn the_table_counts() {
        let text = table(&all(&results("size", "bytes", &[(OURS, &[3_100_000.0])])));
        assert!(text.contains("| stripped bench server | under 3 MB | 3.10 MB | **missed** |"), "{text}");
        assert!(text.contains("\n0 met, 1 missed, "), "{text}");
    }

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 1.234, 12.34, 123.4, 1234.0, 26_000.0, -1_234_567.0].map(format_number);
        assert_eq!(shown, ["0", "1.23", "12.3", "123", "1234", "26,000", "-1,234,567"]);
    }
}
