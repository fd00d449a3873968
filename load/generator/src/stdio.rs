//! The closed loop over standard input and output: a fixed number of messages in flight, refilled with one write.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use memchr::{memchr_iter, memmem};

use crate::cpu::{self, CpuTime};
use crate::options::Options;
use crate::server::{ChildGuard, pinned_command, rss_kib};
use crate::workload::{Protocol, request};
use crate::{BoxError, Figures};

const WARM_UP: Duration = Duration::from_millis(300);
/// Placeholder of the id in a template.
const ID_PLACEHOLDER: &str = "{id}";

#[derive(Clone, Copy)]
pub(crate) enum Message {
    Ping,
    Echo,
}

pub(crate) fn measure(options: &Options, message: Message) -> Result<Figures, BoxError> {
    let mut command = pinned_command(&options.server_cores, &options.command);
    command.arg("--stdio").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = ChildGuard(command.spawn()?);
    let pid = child.0.id();
    let stdin = child.0.stdin.take().ok_or("no stdin")?;
    let stdout = child.0.stdout.take().ok_or("no stdout")?;
    let mut pipe = StdioConnection::new(stdin, stdout, message);
    // If the server stops responding, the read below would wait forever: killing the server ends the pipe.
    let limit = options.window + Duration::from_secs(30);
    std::thread::spawn(move || watchdog(pid, limit));
    pipe.handshake()?;
    let idle = rss_kib(pid)?;
    pipe.send(options.n_connections)?;
    pipe.run(Instant::now() + WARM_UP)?;
    (pipe.n_done, pipe.n_failed) = (0, 0);
    let (before, began) = (CpuTime::read(pid)?, Instant::now());
    pipe.run(began + options.window)?;
    let (cpu, seconds) = (CpuTime::read(pid)?.since(before), began.elapsed().as_secs_f64());
    let n_done = pipe.n_done.max(1) as f64;
    let mut figures: Figures = vec![
        ("requests".into(), pipe.n_done as f64),
        ("failures".into(), pipe.n_failed as f64),
        ("per_second".into(), n_done / seconds),
        ("cpu_share".into(), cpu / seconds),
        ("idle_rss_kib".into(), idle),
        ("rss_kib".into(), rss_kib(pid)?),
    ];
    figures.extend(cpu::micros_per_request(cpu, pipe.n_done).map(|micros| ("cpu_us".into(), micros)));
    Ok(figures)
}

/// Kills the server after `limit`. If the measurement ends sooner, this thread ends with the process.
fn watchdog(pid: u32, limit: Duration) {
    std::thread::sleep(limit);
    let _ = std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status();
}

struct StdioConnection<W, R> {
    stdin: W,
    stdout: R,
    /// The parts of a request around its id.
    template: Vec<String>,
    /// The text before and after the id in a response.
    marker: (&'static str, &'static str),
    next_id: usize,
    /// Ids of requests without a response.
    pending: HashSet<usize>,
    n_done: u64,
    n_failed: u64,
    /// A line whose end has not arrived.
    partial_line: Vec<u8>,
}

impl<W: Write, R: Read> StdioConnection<W, R> {
    fn new(stdin: W, stdout: R, message: Message) -> Self {
        // Each message differs, so that swapped responses are noticed.
        let (request, marker) = match message {
            Message::Ping => (request_template("ping", ""), ("\"id\":", "")),
            Message::Echo => {
                let params = format!(
                    r#""name":"echo","arguments":{{"message":"hello over the pipe, {ID_PLACEHOLDER}!"}}"#
                );
                (request_template("tools/call", &params), ("hello over the pipe, ", "!"))
            }
        };
        let template = request.split(ID_PLACEHOLDER).map(str::to_owned).collect();
        let (pending, partial_line) = (HashSet::new(), Vec::new());
        Self { stdin, stdout, template, marker, next_id: 10, pending, n_done: 0, n_failed: 0, partial_line }
    }

    fn handshake(&mut self) -> Result<(), BoxError> {
        let client = r#""protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"load","version":"1.0.0"}"#;
        let initialize = request(Protocol::Legacy, "initialize", client, 1) + "\n";
        self.stdin.write_all(initialize.as_bytes())?;
        while self.read_responses(|_, line| memmem::find(line, b"serverInfo").is_some())? == 0 {}
        self.stdin.write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")?;
        match self.n_failed {
            0 => Ok(()),
            _ => Err("the response to initialize is invalid".into()),
        }
    }

    fn run(&mut self, end: Instant) -> Result<(), BoxError> {
        let (before, after) = self.marker;
        while Instant::now() < end {
            let n_responses = self.read_responses(|pending, line| {
                let found = number_between(line, before, after);
                let is_result = memmem::find(line, b"\"result\"").is_some();
                is_result && found.is_some_and(|id| pending.remove(&id))
            })?;
            self.send(n_responses)?;
        }
        Ok(())
    }

    /// Sends this many messages with one write.
    fn send(&mut self, n_messages: usize) -> Result<(), BoxError> {
        let mut batch = String::new();
        for _ in 0..n_messages {
            self.next_id += 1;
            self.pending.insert(self.next_id);
            batch += &self.template.join(&self.next_id.to_string());
            batch.push('\n');
        }
        Ok(self.stdin.write_all(batch.as_bytes())?)
    }

    /// Reads once, and counts the complete lines.
    fn read_responses(
        &mut self,
        is_valid: impl Fn(&mut HashSet<usize>, &[u8]) -> bool,
    ) -> Result<usize, BoxError> {
        let mut chunk = [0; 64 * 1024];
        let n_read = self.stdout.read(&mut chunk)?;
        if n_read == 0 {
            return Err("the server closed its output".into());
        }
        self.partial_line.extend_from_slice(&chunk[..n_read]);
        let (mut start, mut n_lines) = (0, 0);
        for end in memchr_iter(b'\n', &self.partial_line) {
            n_lines += 1;
            self.n_failed += u64::from(!is_valid(&mut self.pending, &self.partial_line[start..end]));
            start = end + 1;
        }
        self.partial_line.drain(..start);
        self.n_done += n_lines;
        Ok(usize::try_from(n_lines)?)
    }
}

/// A request with the placeholder in place of its id.
fn request_template(method: &str, params: &str) -> String {
    request(Protocol::Legacy, method, params, 0).replacen("\"id\":0", &format!("\"id\":{ID_PLACEHOLDER}"), 1)
}

/// The number between these two texts.
fn number_between(line: &[u8], before: &str, after: &str) -> Option<usize> {
    let rest = &line[memmem::find(line, before.as_bytes())? + before.len()..];
    let rest = rest.trim_ascii_start();
    let n_digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = rest.split_at(n_digits);
    rest.starts_with(after.as_bytes()).then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found() {
        assert_eq!(number_between(br#"{"id": 17,"result":{}}"#, "\"id\":", ""), Some(17));
        assert_eq!(number_between(b"hello, 17!", "hello, ", "!"), Some(17));
        assert_eq!(number_between(b"hello, 17?", "hello, ", "!"), None);
        assert_eq!(number_between(b"hello", "hello, ", "!"), None);
    }

    #[test]
    fn each_id_counts_once() {
        let responses = b"{\"id\":11,\"result\":{}}\n{\"id\":11,\"result\":{}}\n{\"id\":12,\"error\":{}}\n";
        let mut sent = Vec::new();
        let mut pipe = StdioConnection::new(&mut sent, &responses[..], Message::Ping);
        pipe.send(2).unwrap();
        // The end of the output is an error.
        assert!(pipe.run(Instant::now() + Duration::from_secs(60)).is_err());
        assert_eq!((pipe.n_done, pipe.n_failed), (3, 2));
        assert!(sent.starts_with(b"{\"jsonrpc\":\"2.0\",\"id\":11,\"method\":\"ping\"}\n"));
    }
}
