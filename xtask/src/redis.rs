//! A temporary Redis for the tests of the store: `redis-server` or `valkey-server` of the system, or of its Debian package,
//! on a free port and in its own directory below `target/xtask/`. Without one, the tests that need it are skipped.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Workspace;
use crate::install;
use crate::process::{self, ChildGuard};

/// The variable with the address for the tests.
pub(crate) const URL_VARIABLE: &str = "TOOLGATE_TEST_REDIS";

/// The programs, and their packages.
const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];

const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A running Redis, which is stopped when this is dropped.
pub(crate) struct Redis {
    pub(crate) url: String,
    directory: PathBuf,
    child: ChildGuard,
}

/// Starts a Redis.
pub(crate) fn start(workspace: &Workspace) -> Result<Redis, String> {
    let program = find_program()?;
    // Another process may take the port before Redis does; then try another port.
    let mut last = String::new();
    for _ in 0..3 {
        match start_on(workspace, program, free_port()?) {
            Ok(redis) => return Ok(redis),
            Err(reason) => last = reason,
        }
    }
    Err(last)
}

fn find_program() -> Result<&'static str, String> {
    let is_there = |program: &&str| process::succeeds(Command::new(program).arg("--version"));
    if let Some(program) = PROGRAMS.into_iter().find(|program| is_there(program)) {
        return Ok(program);
    }
    println!("installing {}", PROGRAMS[0]);
    let mut reason = String::new();
    for program in PROGRAMS {
        match install::ensure_program(program, program) {
            Ok(()) => return Ok(program),
            Err(missing) => reason = missing,
        }
    }
    Err(format!("{reason}; install Redis 7 or Valkey to run the tests of the shared store"))
}

fn start_on(workspace: &Workspace, program: &str, port: u16) -> Result<Redis, String> {
    let directory = workspace.work_dir.join(format!("redis-{port}"));
    install::recreate_dir(&directory)?;
    let log = directory.join("log");
    let log_file = File::create(&log).map_err(|error| format!("cannot write {}: {error}", log.display()))?;
    let child = Command::new(program)
        .args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
        ])
        .arg(&directory)
        .stdin(Stdio::null())
        .stdout(log_file)
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot start {program}: {error}"))?;
    let mut redis = Redis { url: format!("redis://127.0.0.1:{port}"), directory, child: ChildGuard(child) };
    let started = Instant::now();
    while started.elapsed() < START_TIMEOUT {
        if !redis.child.is_running() {
            return Err(format!("{program} ended at once; see {}", log.display()));
        }
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Ok(redis);
        }
        thread::sleep(Duration::from_millis(20));
    }
    Err(format!("{program} did not listen within {START_TIMEOUT:?}"))
}

fn free_port() -> Result<u16, String> {
    let bound = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).map_err(|error| format!("no free port: {error}"))
}

impl Drop for Redis {
    fn drop(&mut self) {
        // The guard ends the child; its files are only for the tests.
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_listens_until_it_is_dropped() {
        let is_there = |program: &&str| process::succeeds(Command::new(program).arg("--version"));
        let Some(program) = PROGRAMS.into_iter().find(|program| is_there(program)) else {
            return eprintln!("SKIPPED: no redis-server or valkey-server on this machine");
        };
        let work = std::env::temp_dir().join(format!("toolgate-xtask-{}", std::process::id()));
        let workspace = Workspace { root: work.clone(), work_dir: work.clone() };
        let redis = start_on(&workspace, program, free_port().unwrap()).unwrap();
        let address = redis.url.strip_prefix("redis://").unwrap().to_owned();
        assert!(TcpStream::connect(&address).is_ok());
        drop(redis);
        assert!(TcpStream::connect(&address).is_err(), "it has ended");
        assert_eq!(std::fs::read_dir(&work).unwrap().count(), 0, "nothing is left behind");
        std::fs::remove_dir(&work).unwrap();
    }
}
