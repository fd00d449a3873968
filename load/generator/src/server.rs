//! The measured server: a child process on its own cores, its memory and CPU time, and its end.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use crate::BoxError;
use crate::cpu::CpuTime;
use crate::options::Options;

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A listening server, killed when dropped.
pub(crate) struct Server {
    child: ChildGuard,
    pub(crate) endpoint: Endpoint,
}

/// Where the server listens, as it reported.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) path: String,
}

/// A child process that is killed when this is dropped.
pub(crate) struct ChildGuard(pub(crate) Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // Both only fail if the child has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    pub(crate) fn start(options: &Options) -> Result<Self, BoxError> {
        Self::start_with(pinned_command(&options.server_cores, &options.command))
    }

    /// Starts the server on any core, without `taskset`, whose start would be measured too.
    pub(crate) fn start_unpinned(options: &Options) -> Result<Self, BoxError> {
        let mut command = Command::new(&options.command[0]);
        command.args(&options.command[1..]);
        Self::start_with(command)
    }

    /// Starts a command that takes `--listen`, and waits until it reports its address.
    pub(crate) fn start_with(mut command: Command) -> Result<Self, BoxError> {
        command.args(["--listen", "127.0.0.1:0"]).stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = ChildGuard(command.stderr(Stdio::piped()).spawn()?);
        let stderr = child.0.stderr.take().ok_or("no stderr")?;
        // Bounded to the one endpoint that is sent. Later output is read and discarded, so that the pipe never fills up.
        let (found, endpoints) = sync_channel(1);
        thread::spawn(move || {
            let mut output = String::new();
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                match parse_endpoint(&line) {
                    Some(endpoint) => drop(found.try_send(Ok(endpoint))),
                    None if output.len() < 2000 => output = format!("{output}{line}\n"),
                    None => {}
                }
            }
            let _ = found.try_send(Err(output));
        });
        let endpoint = match endpoints.recv_timeout(START_TIMEOUT)? {
            Ok(endpoint) => endpoint,
            Err(output) => {
                return Err(format!("the server ended before it listened: {}", output.trim()).into());
            }
        };
        // Some servers report the address before they listen on it.
        let deadline = Instant::now() + START_TIMEOUT;
        while let Err(error) = TcpStream::connect(endpoint.address) {
            if Instant::now() >= deadline || child.0.try_wait()?.is_some() {
                return Err(format!("the server does not listen on {}: {error}", endpoint.address).into());
            }
            thread::sleep(Duration::from_micros(200));
        }
        Ok(Self { child, endpoint })
    }

    /// The CPU time of its threads so far, in user space and in the kernel.
    pub(crate) fn cpu(&self) -> Result<CpuTime, BoxError> {
        CpuTime::read(self.child.0.id())
    }

    pub(crate) fn rss_kib(&self) -> Result<f64, BoxError> {
        rss_kib(self.child.0.id())
    }

    /// Terminates the server and waits for it, so that a tool like callgrind can write its results.
    pub(crate) fn finish(mut self) -> Result<(), BoxError> {
        let pid = self.child.0.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status()?;
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            if self.child.0.try_wait()?.is_some() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Err("the server did not end after SIGTERM".into())
    }
}

pub(crate) fn rss_kib(pid: u32) -> Result<f64, BoxError> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// The command, pinned to these cores; without `taskset` it runs on any core.
pub(crate) fn pinned_command(cores: &str, command: &[String]) -> Command {
    let mut pinned = match has_taskset() {
        true => {
            let mut taskset = Command::new("taskset");
            taskset.args(["-c", cores]).arg(&command[0]);
            taskset
        }
        false => Command::new(&command[0]),
    };
    pinned.args(&command[1..]);
    pinned
}

/// Moves this process to the given cores, before it has a second thread.
pub(crate) fn pin_self(cores: &str) {
    if has_taskset() {
        let pid = std::process::id().to_string();
        // Without that core the figures are less steady, but still useful.
        let _ = Command::new("taskset").args(["-cp", cores, &pid]).stdout(Stdio::null()).status();
    }
}

fn has_taskset() -> bool {
    let version =
        Command::new("taskset").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

fn parse_endpoint(line: &str) -> Option<Endpoint> {
    let (_, rest) = line.split_once("listening on http://")?;
    let (address, path) = rest.split_whitespace().next()?.split_once('/')?;
    Some(Endpoint { address: address.parse().ok()?, path: format!("/{path}") })
}
