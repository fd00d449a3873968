//! What must hold, and whether it does. One line for each thing that was promised; the figures come from a [`Book`].

use std::fmt::Write;

use super::builds::RMCP_LISTENING;
use super::contender::{LIMIT, OURS};
use super::profile::Profile;
use super::results::Results;
use super::statistics::{MAX_GROWTH_KIB, MAX_SLOPE_KIB_PER_MINUTE};

/// On which side of a figure it is good to be.
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
        let (words, limit) = match self {
            Self::AtMost(limit) => ("at most", limit),
            Self::AtLeast(limit) => ("at least", limit),
            Self::Under(limit) => ("under", limit),
        };
        format!("{words} {}{unit}", format_number(limit))
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
    /// What the figure is made of, where that says more.
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
        let beside = if self.note.is_empty() { String::new() } else { format!(" ({})", self.note) };
        format!("| {} | {} | {measured}{beside} | {verdict} |", self.name, self.bound.format(self.unit))
    }
}

/// CPU for each request beside the limit.
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

/// CPU for each request of the best peer beside ours, with each profile.
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

pub(crate) fn all(book: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    let mut add = |what: String, bound, unit, measured, beside: String| {
        goals.push(Goal { name: what, bound, unit, measured, note: beside });
    };
    for connections in ["32", "256"] {
        for (workload, limit) in MAX_CPU_RATIOS {
            let measure = format!("{workload}@{connections}");
            let what = format!("CPU for each request, {measure}, beside bare hyper");
            let beside = format_pair(book, &measure, "cpu_us", "µs");
            add(what, Bound::AtMost(limit), "×", book.ratio_to_limit(&measure, "cpu_us"), beside);
        }
    }
    for (workload, _) in MAX_CPU_RATIOS {
        let measure = format!("{workload}@256");
        let what = format!("p99, {measure}, beside bare hyper");
        let beside = format_pair(book, &measure, "p99_us", "µs");
        add(what, Bound::AtMost(1.3), "×", book.ratio_to_limit(&measure, "p99_us"), beside);
    }
    for workload in ["echo-2025", "echo-2025-session", "echo-2026"] {
        let measure = format!("{workload}@1");
        let p99 = book.median(&measure, OURS, "p99_us").map(|micros| micros / 1000.0);
        let worst = book.max(&measure, OURS, "worst_us").map(|micros| micros / 1000.0);
        let beside =
            worst.map_or(String::new(), |worst| format!("the slowest of all {} ms", format_number(worst)));
        add(
            format!("p99 at one connection, {measure}: no stalls of 40 ms"),
            Bound::Under(10.0),
            " ms",
            p99,
            beside,
        );
    }
    for (workload, limit) in MAX_INSTRUCTIONS {
        let measure = format!("instructions-{workload}");
        let of = |name| book.median(&measure, name, "instructions");
        let beside = of(LIMIT).map_or(String::new(), |limit| format!("bare hyper {}", format_number(limit)));
        add(format!("user-space instructions, {workload}"), Bound::AtMost(limit), "", of(OURS), beside);
    }
    for (profile, (workload, limit)) in
        Profile::ALL.into_iter().flat_map(|one| MIN_PEER_CPU_RATIOS.map(|goal| (one, goal)))
    {
        let measure = profile.measure_name(&format!("{workload}@32"));
        let best = book.best_peer(&measure, "cpu_us");
        let ratio = best.and_then(|(name, _)| book.ratio(&measure, name, OURS, "cpu_us"));
        // What it would be for the limit itself: on some machines the kernel leaves no room for more.
        let hyper = best.and_then(|(name, _)| book.ratio(&measure, name, LIMIT, "cpu_us"));
        let hyper = hyper.map_or(String::new(), |ratio| format!(", {}× of bare hyper", format_number(ratio)));
        let beside = best
            .map_or(String::new(), |(name, micros)| format!("{name} {} µs{hyper}", format_number(micros)));
        add(
            format!("CPU of the best peer beside ours, {}, {workload}@32", profile.name()),
            Bound::AtLeast(limit),
            "×",
            ratio,
            beside,
        );
    }
    for (message, limit) in MIN_STDIO_CPU_RATIOS {
        let measure = format!("stdio-{message}");
        let ratio = book.ratio(&measure, "rmcp", OURS, "cpu_us");
        let of = |name| book.median(&measure, name, "cpu_us");
        let beside = of("rmcp").zip(of(OURS));
        let beside = beside.map_or(String::new(), |(rmcp, ours)| {
            format!("{} / {} µs", format_number(rmcp), format_number(ours))
        });
        add(
            format!("messages per CPU second beside rmcp's, {measure}"),
            Bound::AtLeast(limit),
            "×",
            ratio,
            beside,
        );
    }
    memory_goals(book, &mut add);
    other_goals(book, &mut add);
    goals
}

type AddGoal<'a> = &'a mut dyn FnMut(String, Bound, &'static str, Option<f64>, String);

fn memory_goals(book: &Results, add: AddGoal<'_>) {
    let idle = book.max("start", OURS, "idle_rss_kib").map(|kib| kib / 1024.0);
    add("memory of the idle server".into(), Bound::Under(5.0), " MiB", idle, "after its first answer".into());
    for (measure, what, limit) in [
        ("sessions", "an idle session", 1024.0),
        ("streams-2025", "an open stream of 2025-11-25", 13_000.0),
        ("streams-2026", "an open stream of 2026-07-28", 13_000.0),
    ] {
        let opened = book.median(measure, OURS, "opened");
        let beside = opened.map_or(String::new(), |opened| format!("{} opened", format_number(opened)));
        let bytes = book.median(measure, OURS, "bytes_each");
        add(format!("memory for {what}"), Bound::AtMost(limit), " B", bytes, beside);
        let refused = book.max(measure, OURS, "refused");
        add(format!("refused, {measure}"), Bound::AtMost(0.0), "", refused, String::new());
    }
    let minutes = book.median("soak", OURS, "seconds").map_or(String::new(), |seconds| {
        let requests = book.median("soak", OURS, "requests").unwrap_or_default();
        format!("{} minutes, {:.0} million requests", format_number(seconds / 60.0), requests / 1e6)
    });
    let slope = book.median("soak", OURS, "slope_kib");
    add(
        "growth under load, by least squares over the second half".into(),
        Bound::AtMost(MAX_SLOPE_KIB_PER_MINUTE),
        " KiB/min",
        slope,
        minutes,
    );
    let growth = book.median("soak", OURS, "growth_kib");
    let what = "growth under load, from the median of the first quarter to that of the last";
    add(what.into(), Bound::AtMost(MAX_GROWTH_KIB), " KiB", growth, String::new());
}

fn other_goals(book: &Results, add: AddGoal<'_>) {
    let worst = book.max("start", OURS, "worst_ms");
    let beside = worst.map_or(String::new(), |worst| format!("the slowest {} ms", format_number(worst)));
    let start = book.median("start", OURS, "median_ms");
    add("start to first answer, median".into(), Bound::Under(5.0), " ms", start, beside);
    let megabytes = book.median("size", OURS, "bytes").map(|bytes| bytes / 1e6);
    add("stripped bench server".into(), Bound::Under(3.0), " MB", megabytes, String::new());
    Profile::ALL.into_iter().for_each(|profile| build_goals(book, profile, add));
    for workload in ["echo-2025", "echo-2026"] {
        let measure = format!("scaling-{workload}");
        let speedup = book.median(&measure, OURS, "speedup");
        let limit = book.median(&measure, LIMIT, "speedup");
        let beside = limit.map_or(String::new(), |limit| format!("bare hyper {}×", format_number(limit)));
        add(format!("two cores beside one, {workload}"), Bound::AtLeast(1.8), "×", speedup, beside);
    }
}

fn build_goals(book: &Results, profile: Profile, add: AddGoal<'_>) {
    let measure = profile.measure_name("build");
    for (figure, what) in [("wall_s", "on the clock"), ("cpu_s", "of the processor")] {
        let ratio = book.ratio(&measure, OURS, "rmcp", figure);
        let of = |name| book.median(&measure, name, figure);
        let beside = of(OURS).zip(of("rmcp"));
        let listening = book.ratio(&measure, OURS, RMCP_LISTENING, figure);
        let listening = listening
            .map_or(String::new(), |ratio| format!(", {}× of {RMCP_LISTENING}", format_number(ratio)));
        let beside = beside.map_or(String::new(), |(ours, rmcp)| {
            format!("{} / {} s{listening}", format_number(ours), format_number(rmcp))
        });
        let what = format!("clean release build beside rmcp's, {}, time {what}", profile.name());
        add(what, Bound::AtMost(0.5), "×", ratio, beside);
    }
}

/// Ours and the limit's.
fn format_pair(book: &Results, measure: &str, figure: &str, unit: &str) -> String {
    let both = book.median(measure, OURS, figure).zip(book.median(measure, LIMIT, figure));
    both.map_or(String::new(), |(ours, limit)| {
        format!("{} / {} {unit}", format_number(ours), format_number(limit))
    })
}

/// The table, and below it how many are met.
pub(crate) fn table(goals: &[Goal]) -> String {
    let mut text = "| what must hold | goal | measured | |\n|---|---|---|---|\n".to_owned();
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

/// As many digits as say something.
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

    fn verdict(book: &Results, what: &str) -> Verdict {
        let goals = all(book);
        let found: Vec<&Goal> = goals.iter().filter(|goal| goal.name.contains(what)).collect();
        assert_eq!(found.len(), 1, "{what}");
        found[0].verdict()
    }

    #[test]
    fn goals_are_judged_by_what_was_measured() {
        let cpu = |ours: f64| {
            results("echo-2026@32", "cpu_us", &[(LIMIT, &[10.0]), (OURS, &[ours]), ("rmcp", &[46.0])])
        };
        let what = "CPU for each request, echo-2026@32";
        assert_eq!(verdict(&cpu(11.4), what), Verdict::Met);
        assert_eq!(verdict(&cpu(11.6), what), Verdict::Missed);
        let peer = "CPU of the best peer beside ours, dist profile, echo-2026@32";
        assert_eq!(verdict(&cpu(11.4), peer), Verdict::Met);
        assert_eq!(verdict(&cpu(11.6), peer), Verdict::Missed);
        assert_eq!(verdict(&cpu(11.4), "CPU for each request, echo-2025@32"), Verdict::NotMeasured);
    }

    #[test]
    fn one_refused_stream_is_too_many() {
        let streams = |refused: f64| results("streams-2026", "refused", &[(OURS, &[0.0, refused, 0.0])]);
        assert_eq!(verdict(&streams(0.0), "refused, streams-2026"), Verdict::Met);
        assert_eq!(verdict(&streams(1.0), "refused, streams-2026"), Verdict::Missed);
    }

    #[test]
    fn like_is_compared_with_like() {
        let default = "cargo's default profile, echo-2026@32";
        let found = [(LIMIT, &[10.0][..]), (OURS, &[10.0]), ("rmcp", &[41.0])];
        let tuned = results("echo-2026@32", "cpu_us", &found);
        assert_eq!(verdict(&tuned, default), Verdict::NotMeasured);
        let both = results("default-echo-2026@32", "cpu_us", &found);
        assert_eq!(verdict(&both, default), Verdict::Met);
        assert_eq!(verdict(&both, "dist profile, echo-2026@32"), Verdict::NotMeasured);
    }

    #[test]
    fn a_library_that_builds_in_half_the_time_is_quick_enough() {
        for (measure, profile) in [("build", "dist profile"), ("default-build", "cargo's default profile")] {
            let build = |ours: f64| results(measure, "wall_s", &[(OURS, &[ours]), ("rmcp", &[80.0])]);
            let what = format!("{profile}, time on the clock");
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
