//! Start and reload times of the program: from the start to the first response with `examples/shop.toml`, and from a change
//! of a configuration with 500 tools of all kinds to its effect, while calls run. CPU time is printed too, because wall time
//! depends on the load of the machine.

mod load;
mod tools;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::Workspace;
use crate::process::{self, ChildGuard, OutputMode};
use crate::rust;
use load::{Load, free_port, send_request};

const BUILD_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// Repetitions.
const N_STARTS: usize = 20;
const N_RELOADS: usize = 10;
/// The goals for the medians.
const START_GOAL_MS: f64 = 50.0;
const RELOAD_GOAL_MS: f64 = 100.0;
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) fn run(workspace: &Workspace) -> ExitCode {
    match measure(workspace) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("program: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn measure(workspace: &Workspace) -> Result<bool, String> {
    let program = build(workspace)?;
    let is_quick = measure_starts(workspace, &program)?;
    let is_smooth = measure_reloads(workspace, &program)?;
    Ok(is_quick && is_smooth)
}

/// Builds the program as it is released; `TOOLGATE_PROGRAM` names another one.
fn build(workspace: &Workspace) -> Result<PathBuf, String> {
    if let Some(program) = std::env::var_os("TOOLGATE_PROGRAM") {
        return Ok(program.into());
    }
    let mut build = rust::cargo(workspace);
    build.args(["build", "--profile", "dist", "--package", "toolgate-cli", "--bin", "toolgate"]);
    build.args(["--message-format", "json-render-diagnostics"]);
    let finished =
        process::run(&mut build, BUILD_TIMEOUT, OutputMode::Quiet).map_err(|error| error.to_string())?;
    if !finished.is_success() {
        eprint!("{}", finished.stderr);
        return Err(format!("the program does not build: {}", finished.failure_summary()));
    }
    crate::fixture::executable(&finished.stdout, "toolgate")
        .ok_or_else(|| "cargo reported no executable".into())
}

/// Measures the time from the start to the first response.
fn measure_starts(workspace: &Workspace, program: &Path) -> Result<bool, String> {
    let (mut times, mut used) = (Vec::new(), Vec::new());
    for _ in 0..N_STARTS {
        let address = format!("127.0.0.1:{}", free_port()?);
        let started = Instant::now();
        let running = spawn_server(program, &workspace.root, "examples/shop.toml", &address)?;
        loop {
            if send_request(&address, "/shop/mcp", "tools/list")
                .is_ok_and(|response| response.contains("\"hours\""))
            {
                break;
            }
            if started.elapsed() > RESPONSE_TIMEOUT {
                return Err("the program does not respond".into());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        times.push(started.elapsed());
        used.extend(cpu_time(&running));
    }
    print_cpu_time(&mut used);
    Ok(print_times("start to first answer (examples/shop.toml)", &mut times, START_GOAL_MS))
}

/// Measures the time from a change of a file with many tools until a client sees it, while other clients call tools.
fn measure_reloads(workspace: &Workspace, program: &Path) -> Result<bool, String> {
    let folder = workspace.work_dir.join("program");
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let catalog = workspace.root.join("examples/shop/catalog.db");
    std::fs::copy(catalog, folder.join("catalog.db")).map_err(|error| error.to_string())?;
    let file = folder.join("many.toml");
    tools::write(&folder, &file, 0)?;
    let address = format!("127.0.0.1:{}", free_port()?);
    let running = spawn_server(program, &folder, "many.toml", &address)?;
    let started = Instant::now();
    while !lists_round_tool(&address, 0) {
        if started.elapsed() > RESPONSE_TIMEOUT {
            return Err("the program does not respond".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let load = Load::start(&address);
    let (mut times, mut used) = (Vec::new(), Vec::new());
    for round in 1..=N_RELOADS {
        // Lets the file watcher of the program settle.
        std::thread::sleep(Duration::from_millis(500));
        let before = cpu_time(&running);
        tools::write(&folder, &file, round)?;
        let changed = Instant::now();
        while !lists_round_tool(&address, round) {
            if changed.elapsed() > RESPONSE_TIMEOUT {
                return Err("the change has no effect".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        times.push(changed.elapsed());
        used.extend(cpu_time(&running).zip(before).map(|(now, before)| now.saturating_sub(before)));
    }
    let (n_calls, failed) = load.stop();
    drop(running);
    print_cpu_time(&mut used);
    let is_quick = print_times(
        &format!("change of a file with {} tools to its effect", tools::N_TOOLS),
        &mut times,
        RELOAD_GOAL_MS,
    );
    println!("calls meanwhile: {n_calls}, failed: {} (goal 0)", failed.len());
    for reason in failed.iter().take(3) {
        println!("  {reason}");
    }
    Ok(is_quick && failed.is_empty())
}

/// Whether the program lists the tool of this round.
fn lists_round_tool(address: &str, round: usize) -> bool {
    send_request(address, "/mcp", "tools/list")
        .is_ok_and(|response| response.contains(&format!("\"round_{round}\"")))
}

fn spawn_server(program: &Path, folder: &Path, file: &str, address: &str) -> Result<ChildGuard, String> {
    let child = Command::new(program)
        .args(["serve", file, "--listen", address])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    child.map(ChildGuard).map_err(|error| format!("cannot start {}: {error}", program.display()))
}

/// The CPU time of its threads so far, if the system reports it.
fn cpu_time(running: &ChildGuard) -> Option<Duration> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", running.0.id())).ok()?;
    let ran = threads.filter_map(|thread| {
        let schedstat = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        schedstat.split_whitespace().next()?.parse::<u64>().ok()
    });
    Some(Duration::from_nanos(ran.sum()))
}

fn print_cpu_time(used: &mut [Duration]) {
    used.sort();
    if let Some(median) = used.get(used.len() / 2) {
        println!("CPU time: median {:.1} ms", median.as_secs_f64() * 1e3);
    }
}

/// Prints the median and the maximum, and returns whether the median meets the goal.
fn print_times(what: &str, times: &mut [Duration], goal: f64) -> bool {
    times.sort();
    let millis = |time: Option<&Duration>| time.map_or(f64::NAN, Duration::as_secs_f64) * 1e3;
    let (median, worst) = (millis(times.get(times.len() / 2)), millis(times.last()));
    let word = if median <= goal { "ok" } else { "OVER" };
    println!(
        "{what}: median {median:.1} ms, worst {worst:.1} ms of {} (goal {goal} ms: {word})",
        times.len()
    );
    median <= goal
}
