//! A mix of workloads for minutes, with the resident size of the server over time.

use std::time::{Duration, Instant};

use crate::cpu;
use crate::load::{Load, StopCondition};
use crate::options::Options;
use crate::server::Server;
use crate::workload::Workload;
use crate::{BoxError, Figures};

/// Connections take these in turn: calls with and without a session, small and large, lists, and sessions that are opened
/// and deleted.
const WORKLOADS: [&str; 6] = [
    "echo-2026",
    "echo-2025-session",
    "list-2026",
    "big-2026",
    "initialize-2025-session",
    "ping-2025-session",
];
/// How often the resident size is read.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(2);
/// Time for lazy initialization before the first reading.
const WARM_UP: Duration = Duration::from_secs(5);

pub(crate) fn measure(options: &Options) -> Result<Figures, BoxError> {
    let server = Server::start(options)?;
    let mix: Vec<Workload> = WORKLOADS.iter().filter_map(|name| Workload::parse(name)).collect();
    let mut load = Load::open_mix(&server, &mix, options.n_connections)?;
    load.run_until(StopCondition::At(Instant::now() + WARM_UP.min(options.window)))?;
    load.reset();
    let (before, began) = (server.cpu()?, Instant::now());
    let mut samples = Vec::new();
    while began.elapsed() < options.window {
        load.run_until(StopCondition::At((Instant::now() + SAMPLE_INTERVAL).min(began + options.window)))?;
        samples.push((began.elapsed().as_secs_f64(), server.rss_kib()?));
    }
    let (cpu, seconds) = (server.cpu()?.since(before), began.elapsed().as_secs_f64());
    let mut figures: Figures = vec![
        ("requests".into(), load.n_done as f64),
        ("failures".into(), load.n_failed as f64),
        ("seconds".into(), seconds),
        ("cpu_share".into(), cpu / seconds),
    ];
    load.print_first_error();
    figures.extend(cpu::micros_per_request(cpu, load.n_done).map(|micros| ("cpu_us".into(), micros)));
    figures.extend(samples.iter().map(|(second, kib)| (format!("rss_kib_at_{second:.1}").into(), *kib)));
    Ok(figures)
}
