//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use crate::stdio::Message;
use crate::workload::{Protocol, Workload};

pub(crate) const USAGE: &str = "\
usage: generator MODE [OPTIONS] -- PROGRAM [ARGUMENTS]

modes:
  http WORKLOAD          closed loop over keep-alive connections: CPU per request, latency, memory
  stdio ping|echo        the same over standard input and output
  sessions               memory per idle session
  streams 2025|2026      memory per open event stream, and how many were rejected
  connections            memory per idle connection
  start                  time from the start of the process to its first response, on any core
  soak                   a mix of workloads; memory every two seconds, as `rss_kib_at_N`
  instructions WORKLOAD  user-space instructions per request, under valgrind's callgrind

workloads: echo-2025 echo-2025-session echo-2026 big-2025 big-2025-session big-2026 big-text-2025
           big-text-2025-session big-text-2026 list-2025 list-2025-session list-2026 ping-2025 ping-2025-session
           initialize-2025 initialize-2025-session discover-2026

options:
  --connections N        connections, or messages in flight over stdio (32)
  --seconds S            length of the measured window (2)
  --count N              sessions, streams, connections or starts (1000)
  --server-cores LIST    cores of the server, as taskset takes them (0)
  --own-cores LIST       cores of the generator (1)
  --keep FILE            keeps callgrind's profile of the last run in this file";

/// The kind of measurement.
pub(crate) enum Mode {
    Http(Workload),
    Soak,
    Stdio(Message),
    Sessions,
    Streams(Protocol),
    Connections,
    Start,
    Instructions(Workload),
}

/// The parsed command line.
pub(crate) struct Options {
    pub(crate) mode: Mode,
    pub(crate) n_connections: usize,
    pub(crate) window: Duration,
    pub(crate) count: usize,
    pub(crate) server_cores: String,
    pub(crate) own_cores: String,
    /// Where to keep callgrind's profile of a count of instructions.
    pub(crate) profile_file: Option<PathBuf>,
    /// The program and its arguments; never empty.
    pub(crate) command: Vec<String>,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, String> {
        let split = arguments.iter().position(|argument| argument == "--").ok_or("no `--`")?;
        let (head, command) = (&arguments[..split], arguments[split + 1..].to_vec());
        if command.is_empty() {
            return Err("no program after `--`".to_owned());
        }
        let words: Vec<&str> = head.iter().map(String::as_str).collect();
        let (mode, rest) = parse_mode(&words)?;
        let mut options = Self {
            mode,
            n_connections: 32,
            window: Duration::from_secs(2),
            count: 1000,
            server_cores: "0".to_owned(),
            own_cores: "1".to_owned(),
            profile_file: None,
            command,
        };
        for pair in rest.chunks(2) {
            let [name, value] = pair else {
                return Err(format!("no value after `{}`", pair[0]));
            };
            options.set(name, value)?;
        }
        Ok(options)
    }

    /// The number of connections that are open at once.
    pub(crate) fn max_open_connections(&self) -> usize {
        match self.mode {
            Mode::Streams(_) | Mode::Connections => self.count,
            _ => self.n_connections,
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let invalid = || format!("invalid value `{value}` for `{name}`");
        match name {
            "--connections" => self.n_connections = value.parse().map_err(|_| invalid())?,
            "--seconds" => {
                let seconds: f64 = value.parse().map_err(|_| invalid())?;
                self.window = Duration::try_from_secs_f64(seconds).map_err(|_| invalid())?;
            }
            "--count" => self.count = value.parse().map_err(|_| invalid())?,
            "--server-cores" => self.server_cores = value.to_owned(),
            "--own-cores" => self.own_cores = value.to_owned(),
            "--keep" => self.profile_file = Some(value.into()),
            _ => return Err(format!("unknown option `{name}`")),
        }
        Ok(())
    }
}

fn parse_mode<'a, 'b>(words: &'b [&'a str]) -> Result<(Mode, &'b [&'a str]), String> {
    let workload = |name: &str| Workload::parse(name).ok_or_else(|| format!("unknown workload `{name}`"));
    Ok(match words {
        ["http", name, rest @ ..] => (Mode::Http(workload(name)?), rest),
        ["stdio", "ping", rest @ ..] => (Mode::Stdio(Message::Ping), rest),
        ["stdio", "echo", rest @ ..] => (Mode::Stdio(Message::Echo), rest),
        ["sessions", rest @ ..] => (Mode::Sessions, rest),
        ["streams", "2025", rest @ ..] => (Mode::Streams(Protocol::Session), rest),
        ["streams", "2026", rest @ ..] => (Mode::Streams(Protocol::Modern), rest),
        ["connections", rest @ ..] => (Mode::Connections, rest),
        ["soak", rest @ ..] => (Mode::Soak, rest),
        ["start", rest @ ..] => (Mode::Start, rest),
        ["instructions", name, rest @ ..] => (Mode::Instructions(workload(name)?), rest),
        _ => return Err("unknown mode".to_owned()),
    })
}
