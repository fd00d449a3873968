//! What is measured, and the arguments that tell the generator so.

/// Which table a measure belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// CPU per request or message, with latency where there is one.
    Cpu,
    /// Bytes for each of many sessions, streams or connections.
    Bytes,
    /// Milliseconds until the first answer.
    Start,
    Instructions,
}

impl Unit {
    /// The figure of the generator that counts.
    pub(crate) fn figure(self) -> &'static str {
        match self {
            Self::Cpu => "cpu_us",
            Self::Bytes => "bytes_each",
            Self::Start => "median_ms",
            Self::Instructions => "instructions",
        }
    }
}

pub(crate) struct Measure {
    /// The workload, and after an `@` how many at once.
    pub(crate) name: String,
    pub(crate) unit: Unit,
    pub(crate) arguments: Vec<String>,
    /// Memory does not vary: once is enough.
    pub(crate) n_rounds: usize,
}

const HTTP: &[&str] = &[
    "echo-2025",
    "echo-2025-session",
    "echo-2026",
    "big-2025",
    "big-2025-session",
    "big-2026",
    "list-2025",
    "list-2025-session",
    "list-2026",
    "ping-2025",
    "ping-2025-session",
    "initialize-2025",
    "discover-2026",
];
const CROWDED: &[&str] = &["echo-2025", "echo-2025-session", "echo-2026", "list-2025-session", "list-2026"];
const ALONE: &[&str] = &["echo-2025", "echo-2025-session", "echo-2026"];
const COUNTED: &[&str] = &[
    "echo-2025",
    "echo-2025-session",
    "echo-2026",
    "list-2025",
    "list-2025-session",
    "list-2026",
    "ping-2025",
    "ping-2025-session",
];

pub(crate) fn all(quick: bool) -> Vec<Measure> {
    let seconds = if quick { "0.5" } else { "1.5" };
    let http = |names: &[&str], n_connections: &str| -> Vec<Measure> {
        let one = |name: &&str| {
            let arguments = ["http", name, "--connections", n_connections, "--seconds", seconds];
            Measure::new(format!("{name}@{n_connections}"), Unit::Cpu, &arguments, usize::MAX)
        };
        names.iter().map(one).collect()
    };
    let mut measures = http(HTTP, "32");
    measures.extend(http(CROWDED, "256"));
    measures.extend(http(ALONE, "1"));
    for (message, in_flight) in [("ping", "32"), ("echo", "32"), ("ping", "1"), ("echo", "1")] {
        let arguments = ["stdio", message, "--connections", in_flight, "--seconds", seconds];
        let name = format!("stdio-{message}@{in_flight}");
        measures.push(Measure::new(name, Unit::Cpu, &arguments, usize::MAX));
    }
    let (n_sessions, n_streams) = if quick { ("1000", "400") } else { ("10000", "5000") };
    let many: [(&str, &[&str], &str); 4] = [
        ("session", &["sessions"], n_sessions),
        ("stream-2025", &["streams", "2025"], n_streams),
        ("stream-2026", &["streams", "2026"], n_streams),
        ("connection", &["connections"], n_streams),
    ];
    for (name, mode, count) in many {
        let arguments = [mode, &["--count", count]].concat();
        measures.push(Measure::new(format!("{name}@{count}"), Unit::Bytes, &arguments, 1));
    }
    measures.push(Measure::new("start".to_owned(), Unit::Start, &["start", "--count", "10"], usize::MAX));
    measures
}

/// One connection: what callgrind counts then does not depend on how requests happen to meet.
pub(crate) fn instructions() -> Vec<Measure> {
    let one = |name: &&str| {
        let arguments = ["instructions", name, "--connections", "1"];
        Measure::new((*name).to_owned(), Unit::Instructions, &arguments, 1)
    };
    COUNTED.iter().map(one).collect()
}

impl Measure {
    /// Whether its clients are of a revision with sessions and have none.
    pub(crate) fn is_sessionless(&self) -> bool {
        let workload = self.name.split('@').next().unwrap_or_default();
        workload.ends_with("-2025") && !matches!(workload, "initialize-2025" | "stream-2025")
    }

    fn new(name: String, unit: Unit, arguments: &[&str], n_rounds: usize) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Self { name, unit, arguments, n_rounds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_without_a_session_are_known() {
        let names = |is_sessionless| {
            let measures = all(true).into_iter().filter(move |one| one.is_sessionless() == is_sessionless);
            measures.map(|one| one.name).collect::<Vec<_>>()
        };
        assert!(names(true).contains(&"echo-2025@32".to_owned()));
        assert!(names(true).iter().all(|name| !name.contains("session") && !name.contains("2026")));
        assert!(names(false).iter().any(|name| name.starts_with("stream-2025")));
    }
}
