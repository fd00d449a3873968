//! The cost of state: tasks per second with each store, memory per idle session and per open stream at 10,000 of each.

use std::process::{Command, ExitCode};
use std::time::Duration;

use crate::Workspace;
use crate::bench::contender;
use crate::bench::profile::Profile;
use crate::process::{self, OutputMode};
use crate::redis;
use crate::rust;

const BENCH_TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// The modes of the generator that open sessions and streams.
const MEMORY_MODES: [&[&str]; 3] = [
    &["sessions", "--count", "10000"],
    &["streams", "2026", "--count", "9000"],
    &["streams", "2025", "--count", "9000"],
];

pub(crate) fn run(workspace: &Workspace) -> ExitCode {
    match measure_tasks(workspace).and_then(|()| measure_memory(workspace)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("state: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn measure_tasks(workspace: &Workspace) -> Result<(), String> {
    let mut bench = rust::cargo(workspace);
    bench.args([
        "bench",
        "--profile",
        "dist",
        "--package",
        "toolgate",
        "--bench",
        "state",
        "--features",
        "redb,redis",
    ]);
    let redis = redis::start(workspace);
    match &redis {
        Ok(redis) => drop(bench.env(redis::URL_VARIABLE, &redis.url)),
        Err(reason) => println!("without Redis: {reason}"),
    }
    run_live(&mut bench)
}

/// Prints the figures of the generator: how many were opened and rejected, and the bytes per session or stream.
fn measure_memory(workspace: &Workspace) -> Result<(), String> {
    let (generator, server) =
        (contender::build_generator(workspace)?, contender::build_ours(workspace, Profile::Dist)?);
    for mode in MEMORY_MODES {
        println!("{}", mode.join(" "));
        run_live(Command::new(&generator).args(mode).arg("--").arg(&server))?;
    }
    Ok(())
}

fn run_live(command: &mut Command) -> Result<(), String> {
    let finished =
        process::run(command, BENCH_TIMEOUT, OutputMode::Live).map_err(|error| error.to_string())?;
    if finished.is_success() { Ok(()) } else { Err(finished.failure_summary()) }
}
