//! Runs third-party clients against our server, over every transport that they support.
//!
//! A driver (`interop/`) is a small program around one client. It prints `STEP ok <name>` or `STEP fail <name>: <reason>`
//! for each step, which is a check. A step that is expected but not reported is a failure, so that a driver that dies
//! half-way is noticed.

mod drivers;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::Workspace;
use crate::fixture::{Fixture, Server};
use crate::install;
use crate::process::{self, ProcessOutput};
use crate::redis::{self, Redis};
use crate::report::Tally;

use self::drivers::{Driver, Tools};

const DRIVER_TIMEOUT: Duration = Duration::from_secs(120);
/// A server that hangs must not use up the time of the whole run; a good one needs less than a minute.
const PART_TIMEOUT: Duration = Duration::from_secs(6 * 60);
/// Drivers that run at the same time. Most of their time is the start of a runtime, so one per core of a small machine.
const MAX_PARALLEL_DRIVERS: usize = 2;

pub(crate) fn run(workspace: &Workspace, fixture: &Fixture, tally: &mut Tally) {
    let program = match fixture.program() {
        Ok(program) => program,
        Err(reason) => return tally.fail(&reason),
    };
    let dir = workspace.work_dir.join("interop");
    let home = dir.join("home");
    // The Rust driver is compiled while the other two wait for the network.
    let tools = Tools::install(workspace, &dir);
    let started = install::recreate_dir(&home)
        .and_then(|()| fixture.listen(&["--listen", "127.0.0.1:0"], &dir.join("server.log")));
    let mut server = match started {
        Ok(server) => server,
        Err(reason) => return tally.fail(&reason),
    };
    let mut drivers = drivers::all_drivers(&tools, &server, program);
    // Lives until all drivers have run.
    let hub = fixture.is_example.then(|| start_hub(workspace, &dir)).transpose();
    match &hub {
        Ok(hub) => drivers.extend(hub.as_ref().and_then(|hub| drivers::hub_driver(&tools, hub))),
        Err(reason) => tally.fail(reason),
    }
    let community = fixture.is_example.then(|| start_community(workspace, &dir)).transpose();
    match &community {
        Ok(Some((_, community))) => drivers.extend(drivers::community_drivers(&tools, community)),
        Ok(None) => {}
        Err(reason) => tally.fail(reason),
    }
    let shapes = fixture.is_example.then(|| start_shapes(workspace, &dir)).transpose();
    match &shapes {
        Ok(Some(shapes)) => drivers.extend(drivers::shape_drivers(&tools, shapes)),
        Ok(None) => {}
        Err(reason) => tally.fail(reason),
    }
    let tracker = fixture.is_example.then(|| start_tracker(workspace, &dir)).transpose();
    match &tracker {
        Ok(Some((_, tracker))) => drivers.extend(drivers::tracker_drivers(&tools, tracker)),
        Ok(None) => {}
        Err(reason) => tally.fail(reason),
    }
    tools.report(tally);
    run_all(&drivers, &home, tally);
    if server.is_running() {
        tally.passed += 1;
    } else {
        tally.fail("the server ended while the clients ran");
    }
}

/// Starts the program with a catalog of tools.
fn start_hub(workspace: &Workspace, dir: &Path) -> Result<Server, String> {
    let file = workspace.root.join("examples/hub.toml").display().to_string();
    let arguments = ["serve", &file, "--listen", "127.0.0.1:0"];
    Fixture::build_program(workspace).listen(&arguments, &dir.join("hub.log"))
}

/// Starts a site, and the program as a proxy in front of it.
fn start_community(workspace: &Workspace, dir: &Path) -> Result<(Server, Server), String> {
    let site = Fixture::build_example("wordpress", workspace);
    let site = site.listen(&["--http", "127.0.0.1:0"], &dir.join("wordpress.log"))?;
    let file = workspace.root.join("examples/buddyboss.toml").display().to_string();
    let arguments = ["serve", &file, "--listen", "127.0.0.1:0"];
    let variables = [("WP_URL".to_owned(), site.url.trim_end_matches('/').to_owned())];
    let log = dir.join("community.log");
    let server = Fixture::build_program(workspace).listen_with(&arguments, &variables, &log)?;
    Ok((site, server))
}

/// Starts a server with structured output of every shape.
fn start_shapes(workspace: &Workspace, dir: &Path) -> Result<Server, String> {
    Fixture::build_example("shapes", workspace).listen(&["--listen", "127.0.0.1:0"], &dir.join("shapes.log"))
}

/// Starts the example `tracker`, with Redis if it can be had.
fn start_tracker(workspace: &Workspace, dir: &Path) -> Result<(Option<Redis>, Server), String> {
    let redis =
        redis::start(workspace).inspect_err(|reason| println!("tracker without Redis: {reason}")).ok();
    let mut arguments = vec!["127.0.0.1:0"];
    arguments.extend(redis.as_ref().map(|redis| redis.url.as_str()));
    let tracker = Fixture::build_example("tracker", workspace);
    let server = tracker.listen(&arguments, &dir.join("tracker.log"))?;
    Ok((redis, server))
}

fn run_all(drivers: &[Driver], home: &Path, tally: &mut Tally) {
    let deadline = Instant::now() + PART_TIMEOUT;
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Tally::default());
    thread::scope(|scope| {
        for _ in 0..MAX_PARALLEL_DRIVERS {
            scope.spawn(|| {
                while let Some(driver) = drivers.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let finished = run_one(driver, home, deadline);
                    // Locked while printing, so that the lines of a driver stay together.
                    let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                    match finished {
                        Ok(finished) => count_steps(driver, &finished, &mut total),
                        Err(reason) => total.fail(&format!("{}: {reason}", driver.name)),
                    }
                }
            });
        }
    });
    tally.add(&total.into_inner().unwrap_or_else(PoisonError::into_inner));
}

fn run_one(driver: &Driver, home: &Path, deadline: Instant) -> Result<ProcessOutput, String> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err("not started: the drivers before it took too long".to_owned());
    }
    process::run_with_descendants(&mut driver.command(home), DRIVER_TIMEOUT.min(left))
        .map_err(|error| format!("cannot start: {error}"))
}

/// Counts the reported steps and the missing ones.
fn count_steps(driver: &Driver, finished: &ProcessOutput, tally: &mut Tally) {
    let name = &driver.name;
    let mut steps = parse_steps(&finished.stdout);
    for due in driver.steps {
        steps.entry((*due).to_owned()).or_insert_with(|| Err("not reported".to_owned()));
    }
    let mut n_failed = 0;
    for (step, outcome) in steps {
        match outcome {
            Ok(()) => {
                println!("ok   {name}: {step}");
                tally.passed += 1;
            }
            Err(reason) => {
                tally.fail(&format!("{name}: {step}: {reason}"));
                n_failed += 1;
            }
        }
    }
    if n_failed == 0 && !finished.is_success() {
        tally.fail(&format!("{name}: exit: {}", finished.failure_summary()));
    } else if n_failed > 0 {
        println!("     {name} ended with {}", finished.failure_summary());
    }
}

/// The steps in the output of a driver.
pub(crate) fn parse_steps(output: &str) -> BTreeMap<String, Result<(), String>> {
    let mut steps = BTreeMap::new();
    for line in output.lines().filter_map(|line| line.strip_prefix("STEP ")) {
        if let Some(step) = line.strip_prefix("ok ") {
            steps.entry(step.to_owned()).or_insert(Ok(()));
        } else if let Some(step) = line.strip_prefix("fail ") {
            let (step, reason) = step.split_once(": ").unwrap_or((step, "no reason given"));
            steps.insert(step.to_owned(), Err(reason.to_owned()));
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_and_noise_is_not() {
        let steps = parse_steps("hello\nSTEP ok connect\nSTEP fail list tools: Error: a: b\nSTEP ok\n");
        let expected =
            [("connect".to_owned(), Ok(())), ("list tools".to_owned(), Err("Error: a: b".to_owned()))];
        assert_eq!(steps, BTreeMap::from(expected));
    }
}
