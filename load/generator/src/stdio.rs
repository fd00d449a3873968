//! The closed loop over standard input and output: as many messages in flight as asked, refilled with one write.

use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use memchr::{memchr_iter, memmem};

use crate::options::Options;
use crate::server::{Guarded, cpu_each, cpu_seconds, pinned, rss_kib};
use crate::workload::{Era, request};
use crate::{Failure, Figures};

const WARM_UP: Duration = Duration::from_millis(300);
const MESSAGE: &str = "hello over the pipe!";

#[derive(Clone, Copy)]
pub(crate) enum Message {
    Ping,
    Echo,
}

pub(crate) fn measure(options: &Options, message: Message) -> Result<Figures, Failure> {
    let mut command = pinned(&options.server_cores, &options.command);
    command.arg("--stdio").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = Guarded(command.spawn()?);
    let pid = child.0.id();
    let stdin = child.0.stdin.take().ok_or("no stdin")?;
    let stdout = child.0.stdout.take().ok_or("no stdout")?;
    let mut pipe = Pipe { stdin, stdout, message, next_id: 10, n_done: 0, n_failed: 0, held: Vec::new() };
    // A server that stops answering would leave the read below waiting: it is killed, which ends the pipe.
    let limit = options.window + Duration::from_secs(30);
    std::thread::spawn(move || watchdog(pid, limit));
    pipe.handshake()?;
    let idle = rss_kib(pid)?;
    pipe.send(options.n_connections)?;
    pipe.run(Instant::now() + WARM_UP)?;
    (pipe.n_done, pipe.n_failed) = (0, 0);
    let (cpu_before, began) = (cpu_seconds(pid)?, Instant::now());
    pipe.run(began + options.window)?;
    let (cpu, seconds) = (cpu_seconds(pid)? - cpu_before, began.elapsed().as_secs_f64());
    let n_done = pipe.n_done.max(1) as f64;
    let mut figures = vec![
        ("requests", pipe.n_done as f64),
        ("failures", pipe.n_failed as f64),
        ("per_second", n_done / seconds),
        ("cpu_share", cpu / seconds),
        ("idle_rss_kib", idle),
        ("rss_kib", rss_kib(pid)?),
    ];
    figures.extend(cpu_each(cpu, pipe.n_done).map(|micros| ("cpu_us", micros)));
    Ok(figures)
}

/// Ends with this process, or ends it: the child is killed by the guard that unwinding the failure drops.
fn watchdog(pid: u32, limit: Duration) {
    std::thread::sleep(limit);
    let _ = std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status();
}

struct Pipe<W, R> {
    stdin: W,
    stdout: R,
    message: Message,
    next_id: usize,
    n_done: u64,
    n_failed: u64,
    /// The beginning of a line whose end has not arrived.
    held: Vec<u8>,
}

impl<W: Write, R: Read> Pipe<W, R> {
    fn handshake(&mut self) -> Result<(), Failure> {
        let client = r#""protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"load","version":"1.0.0"}"#;
        let hello = request(Era::Legacy, "initialize", client, 1) + "\n";
        self.stdin.write_all(hello.as_bytes())?;
        while self.answers(|line| memmem::find(line, b"serverInfo").is_some())? == 0 {}
        self.stdin.write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")?;
        match self.n_failed {
            0 => Ok(()),
            _ => Err("initialize was not answered as it should be".into()),
        }
    }

    fn run(&mut self, end: Instant) -> Result<(), Failure> {
        let message = self.message;
        while Instant::now() < end {
            let n_answers = self.answers(|line| match message {
                Message::Ping => memmem::find(line, b"\"result\"").is_some(),
                Message::Echo => memmem::find(line, MESSAGE.as_bytes()).is_some(),
            })?;
            self.send(n_answers)?;
        }
        Ok(())
    }

    /// Sends so many messages with one write.
    fn send(&mut self, n_messages: usize) -> Result<(), Failure> {
        let mut batch = String::new();
        for _ in 0..n_messages {
            self.next_id += 1;
            batch += &match self.message {
                Message::Ping => request(Era::Legacy, "ping", "", self.next_id),
                Message::Echo => {
                    let params = format!(r#""name":"echo","arguments":{{"message":"{MESSAGE}"}}"#);
                    request(Era::Legacy, "tools/call", &params, self.next_id)
                }
            };
            batch.push('\n');
        }
        Ok(self.stdin.write_all(batch.as_bytes())?)
    }

    /// Reads once, and counts the lines that are whole now.
    fn answers(&mut self, is_right: impl Fn(&[u8]) -> bool) -> Result<usize, Failure> {
        let mut chunk = [0; 64 * 1024];
        let n_read = self.stdout.read(&mut chunk)?;
        if n_read == 0 {
            return Err("the server closed its output".into());
        }
        self.held.extend_from_slice(&chunk[..n_read]);
        let (mut start, mut n_lines) = (0, 0);
        for end in memchr_iter(b'\n', &self.held) {
            n_lines += 1;
            self.n_failed += u64::from(!is_right(&self.held[start..end]));
            start = end + 1;
        }
        self.held.drain(..start);
        self.n_done += n_lines;
        Ok(usize::try_from(n_lines)?)
    }
}
