//! A Redis for the tests of the store: the machine's `redis-server` or `valkey-server`, or the one of its Debian
//! package, on a free port and in a directory of its own below `target/xtask/`. It ends with the value that stands for
//! it. Where none can be had, the tests that need one skip, and say so.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Workspace;
use crate::install;
use crate::process::{self, ChildGuard};

/// Where tests look for the address.
pub(crate) const URL_VARIABLE: &str = "TOOLGATE_TEST_REDIS";

/// Programs, and the packages that have them.
const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];

const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A Redis that does not outlive this value.
pub(crate) struct Redis {
    pub(crate) url: String,
    directory: PathBuf,
    child: ChildGuard,
}

/// Starts one.
pub(crate) fn start(workspace: &Workspace) -> Result<Redis, String> {
    let program = find_program()?;
    // Somebody else may take the port before Redis does; then another one will do.
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
    let begun = Instant::now();
    while begun.elapsed() < START_TIMEOUT {
        if !redis.child.is_running() {
            return Err(format!("{program} ended at once; {} says why", log.display()));
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
        // The child is ended by its guard; what it wrote was for the tests only.
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_listens_and_does_not_outlive_its_value() {
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
