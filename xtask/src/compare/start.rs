//! Measures the time from the start of a server to its first response on stdio.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use super::build::median;
use crate::process::ChildGuard;

const N_STARTS: usize = 10;
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// The first message of a client that all three servers understand.
const FIRST_REQUEST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"xtask","version":"1"}}}"#;

/// Starts a server several times, and returns the median.
pub(super) fn median_seconds(command: &[PathBuf]) -> Result<f64, String> {
    let times: Result<Vec<f64>, String> = (0..N_STARTS).map(|_| seconds(command)).collect();
    Ok(median(times?.into_iter()))
}

fn seconds(command: &[PathBuf]) -> Result<f64, String> {
    let (program, arguments) = command.split_first().ok_or("no command")?;
    let began = Instant::now();
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    let mut child = ChildGuard(child);
    let mut input = child.0.stdin.take().ok_or("the server has no stdin")?;
    writeln!(input, "{FIRST_REQUEST}").map_err(|error| format!("cannot write to the server: {error}"))?;
    let output = child.0.stdout.take().ok_or("the server has no stdout")?;
    // Bounded to the one line that is read.
    let (sender, lines) = sync_channel(1);
    thread::spawn(move || {
        let mut line = String::new();
        let _ = BufReader::new(output).read_line(&mut line);
        let _ = sender.send(line);
    });
    let line = lines.recv_timeout(RESPONSE_TIMEOUT).map_err(|_| "the server does not respond".to_owned())?;
    let took = began.elapsed().as_secs_f64();
    match line.contains("\"serverInfo\"") {
        true => Ok(took),
        false => Err(format!("unexpected first response: {}", line.trim())),
    }
}
