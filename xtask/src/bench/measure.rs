//! The measures: their arguments for the load generator, durations and rounds.

use super::contender::{Contender, Role};
use super::goals;
use super::profile::Profile;

/// The kind of a measure, which decides its table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// CPU per request or message, with latency where there is one.
    Cpu,
    /// Bytes per session, stream or connection.
    Bytes,
    /// Milliseconds until the first response.
    Start,
    Instructions,
    Scaling,
    Soak,
    Size,
    Build,
}

impl Unit {
    /// The main figure.
    pub(crate) fn figure(self) -> &'static str {
        match self {
            Self::Cpu => "cpu_us",
            Self::Bytes => "bytes_each",
            Self::Start => "median_ms",
            Self::Instructions => "instructions",
            Self::Scaling => "speedup",
            Self::Soak => "slope_kib",
            Self::Size => "bytes",
            Self::Build => "wall_s",
        }
    }
}

pub(crate) struct Measure {
    /// The workload, an `@` and the number of connections; with `default-` in front for cargo's default profile.
    pub(crate) name: String,
    pub(crate) unit: Unit,
    /// The profile of all contenders.
    pub(crate) profile: Profile,
    /// For bare hyper and our server.
    own_plan: Plan,
    /// For peers. They are several times as slow, so shorter measures are precise enough.
    peer_plan: Option<Plan>,
}

/// The arguments of the generator, and how often it runs.
struct Plan {
    arguments: Vec<String>,
    n_rounds: u64,
}

/// The extent of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    Full,
    Quick,
}

const HTTP_WORKLOADS: [&str; 17] = [
    "echo-2025",
    "echo-2025-session",
    "echo-2026",
    "big-2025",
    "big-2025-session",
    "big-2026",
    "big-text-2025",
    "big-text-2025-session",
    "big-text-2026",
    "list-2025",
    "list-2025-session",
    "list-2026",
    "ping-2025",
    "ping-2025-session",
    "initialize-2025",
    "initialize-2025-session",
    "discover-2026",
];
const SINGLE_CONNECTION_WORKLOADS: [&str; 3] = ["echo-2025", "echo-2025-session", "echo-2026"];
const SCALING_WORKLOADS: [&str; 2] = ["echo-2025", "echo-2026"];

/// All measures, in the order in which they run and are shown. The soak is last, because it takes longest.
pub(crate) fn all(size: Size, soak_minutes: f64) -> Vec<Measure> {
    let is_full = size == Size::Full;
    let (seconds, rounds) = if is_full { ("1", 5) } else { ("0.4", 3) };
    let (peer_seconds, peer_rounds) = if is_full { ("0.5", 3) } else { ("0.3", 1) };
    let mut measures = Vec::new();
    // With cargo's default profile, only the measures that have a goal relative to peers.
    let compared = goals::MIN_PEER_CPU_RATIOS.map(|(name, _)| name);
    for (profile, names, connections, has_peers) in [
        (Profile::Dist, &HTTP_WORKLOADS[..], "32", true),
        (Profile::Default, &compared[..], "32", true),
        (Profile::Dist, &HTTP_WORKLOADS[..], "256", false),
        (Profile::Dist, &SINGLE_CONNECTION_WORKLOADS[..], "1", true),
    ] {
        for name in names {
            let plan = |seconds, rounds| {
                Plan::new(&["http", name, "--connections", connections, "--seconds", seconds], rounds)
            };
            // A quick run measures peers only in workloads that have a goal.
            let has_goal = is_full || name.starts_with("echo-") || name.starts_with("list-");
            let peer_plan = (has_peers && has_goal).then(|| plan(peer_seconds, peer_rounds));
            let name = profile.measure_name(&format!("{name}@{connections}"));
            let measure = Measure::new(name, Unit::Cpu, plan(seconds, rounds), peer_plan);
            measures.push(Measure { profile, ..measure });
        }
    }
    for (message, in_flight) in [("ping", "32"), ("echo", "32"), ("ping", "1"), ("echo", "1")] {
        let plan = |seconds, rounds| {
            Plan::new(&["stdio", message, "--connections", in_flight, "--seconds", seconds], rounds)
        };
        let name = format!("stdio-{message}@{in_flight}");
        measures.push(Measure::new(
            name,
            Unit::Cpu,
            plan(seconds, rounds),
            Some(plan(peer_seconds, peer_rounds)),
        ));
    }
    let (many, n_peer) = if is_full { (("10000", "5000"), "2000") } else { (("2000", "1000"), "200") };
    for (name, mode, count) in [
        ("sessions", &["sessions"][..], many.0),
        ("streams-2025", &["streams", "2025"], many.1),
        ("streams-2026", &["streams", "2026"], many.1),
        ("connections", &["connections"], many.1),
    ] {
        let plan = |count, rounds| Plan::new(&[mode, &["--count", count]].concat(), rounds);
        measures.push(Measure::new(name.to_owned(), Unit::Bytes, plan(count, 3), Some(plan(n_peer, 1))));
    }
    let start = |count, rounds| Plan::new(&["start", "--count", count], rounds);
    measures.push(Measure::new("start".to_owned(), Unit::Start, start("20", 3), Some(start("5", 1))));
    // callgrind takes long for 64 KiB.
    for name in HTTP_WORKLOADS.into_iter().filter(|name| is_full || !name.starts_with("big-")) {
        let plan = Plan::new(&["instructions", name, "--connections", "1"], 1);
        measures.push(Measure::new(format!("instructions-{name}"), Unit::Instructions, plan, None));
    }
    for name in SCALING_WORKLOADS {
        let plan = Plan::new(&["http", name, "--connections", "64", "--seconds", seconds], rounds);
        measures.push(Measure::new(format!("scaling-{name}"), Unit::Scaling, plan, None));
    }
    measures.push(Measure::new("size".to_owned(), Unit::Size, Plan::new(&[], 1), Some(Plan::new(&[], 1))));
    if is_full {
        for profile in Profile::ALL {
            let measure = Measure::new(profile.measure_name("build"), Unit::Build, Plan::new(&[], 1), None);
            measures.push(Measure { profile, ..measure });
        }
    }
    if soak_minutes > 0.0 {
        let seconds = (soak_minutes * 60.0).to_string();
        let plan = Plan::new(&["soak", "--connections", "64", "--seconds", &seconds], 1);
        measures.push(Measure::new("soak".to_owned(), Unit::Soak, plan, None));
    }
    measures
}

impl Plan {
    fn new(arguments: &[&str], n_rounds: u64) -> Self {
        Self { arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(), n_rounds }
    }
}

impl Measure {
    fn new(name: String, unit: Unit, own_plan: Plan, peer_plan: Option<Plan>) -> Self {
        Self { name, unit, profile: Profile::Dist, own_plan, peer_plan }
    }

    fn plan(&self, contender: &Contender) -> Option<&Plan> {
        let is_stdio = self.name.starts_with("stdio-");
        if contender.profile != self.profile {
            return None;
        }
        match contender.role {
            // The variants of a program differ over HTTP only, not over stdio or in size.
            Role::Peer if contender.is_variant && (is_stdio || self.unit == Unit::Size) => None,
            Role::Peer if contender.is_script() && self.unit == Unit::Size => None,
            Role::Peer => self.peer_plan.as_ref(),
            Role::Limit if matches!(self.unit, Unit::Soak) => None,
            Role::Limit | Role::Ours => Some(&self.own_plan),
        }
    }

    /// The arguments of the generator for this contender; `None` if the measure does not apply to it.
    pub(crate) fn arguments(&self, contender: &Contender) -> Option<&[String]> {
        Some(&self.plan(contender)?.arguments)
    }

    pub(crate) fn n_rounds(&self, contender: &Contender) -> u64 {
        // A script takes a second to start and is slower by orders of magnitude, so one round is enough.
        let max_rounds = if contender.is_script() { 1 } else { u64::MAX };
        self.plan(contender).map_or(0, |plan| plan.n_rounds.min(max_rounds))
    }

    /// Whether its clients use a protocol version with sessions but have none. Such a server needs `--stateless`.
    pub(crate) fn is_sessionless(&self) -> bool {
        let workload = self.name.split('@').next().unwrap_or_default();
        matches!(self.unit, Unit::Cpu | Unit::Instructions | Unit::Scaling) && workload.ends_with("-2025")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_without_a_session_are_recognized() {
        let names = |is_sessionless| {
            let measures = all(Size::Full, 10.0).into_iter();
            let chosen = measures.filter(move |one| one.is_sessionless() == is_sessionless);
            chosen.map(|one| one.name).collect::<Vec<_>>()
        };
        for name in [
            "echo-2025@32",
            "default-list-2025@32",
            "initialize-2025@256",
            "instructions-echo-2025",
            "scaling-echo-2025",
        ] {
            assert!(names(true).contains(&name.to_owned()), "{name}");
        }
        assert!(names(true).iter().all(|name| !name.contains("session") && !name.contains("2026")));
        for name in ["streams-2025", "sessions", "initialize-2025-session@32", "stdio-echo@1", "soak"] {
            assert!(names(false).contains(&name.to_owned()), "{name}");
        }
    }
}
