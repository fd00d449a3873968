//! Runs child processes, and ensures that each one ends: by itself, at its deadline, or when its guard is dropped.
//!
//! Children stay in the process group of the terminal, so that Ctrl-C reaches them all. A deadline ends a child together
//! with its descendants, because drivers start servers and bridges. A driver may also leave some running when it ends;
//! [`run_with_descendants`] ends those too.

mod descendants;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use self::descendants::Descendants;

/// Whether the output of a child is printed while it runs. It is captured in any case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputMode {
    Live,
    Quiet,
}

/// The exit status and the output of a child.
pub(crate) struct ProcessOutput {
    /// `None` if it was killed at its deadline.
    status: Option<ExitStatus>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl ProcessOutput {
    pub(crate) fn is_success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    #[cfg(test)]
    pub(crate) fn with_stdout(output: &str) -> Self {
        Self { status: Some(ExitStatus::default()), stdout: output.to_owned(), stderr: output.to_owned() }
    }

    /// One line with the exit status and the last line of standard error.
    pub(crate) fn failure_summary(&self) -> String {
        let end = match self.status {
            Some(status) => status.to_string(),
            None => "timed out".to_owned(),
        };
        match self.stderr.lines().rfind(|line| !line.trim().is_empty()) {
            Some(line) => format!("{end}: {}", line.trim()),
            None => end,
        }
    }
}

/// Runs a child until it ends, at most for `limit`.
pub(crate) fn run(command: &mut Command, limit: Duration, show: OutputMode) -> io::Result<ProcessOutput> {
    run_polling(command, limit, show, |_| {})
}

/// Runs a child, and ends all processes that it leaves running. Not for cargo: compiler caches are meant to stay.
pub(crate) fn run_with_descendants(command: &mut Command, limit: Duration) -> io::Result<ProcessOutput> {
    let mut descendants = Descendants::default();
    run_polling(command, limit, OutputMode::Quiet, |pid| descendants.record(pid))
}

/// Runs a child, and calls `poll` with its id several times per second.
fn run_polling(
    command: &mut Command,
    limit: Duration,
    show: OutputMode,
    mut poll: impl FnMut(u32),
) -> io::Result<ProcessOutput> {
    let deadline = Instant::now() + limit;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut guarded = ChildGuard(command.spawn()?);
    let child = &mut guarded.0;
    let stdout = child.stdout.take();
    let stdout = stdout.map(|pipe| Tee::start(pipe, show, io::stdout));
    let stderr = child.stderr.take();
    let stderr = stderr.map(|pipe| Tee::start(pipe, show, io::stderr));
    let mut status = None;
    let mut next_poll = Instant::now();
    while status.is_none() && Instant::now() < deadline {
        if Instant::now() >= next_poll {
            poll(child.id());
            next_poll = Instant::now() + Duration::from_millis(200);
        }
        thread::sleep(Duration::from_millis(10));
        status = child.try_wait()?;
    }
    drop(guarded);
    Ok(ProcessOutput {
        status,
        stdout: stdout.map(Tee::finish).unwrap_or_default(),
        stderr: stderr.map(Tee::finish).unwrap_or_default(),
    })
}

/// Runs a child, and returns whether it succeeded. Returns false if the program is missing.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    run(command, Duration::from_secs(60), OutputMode::Quiet).is_ok_and(|finished| finished.is_success())
}

/// A child that is killed, with its descendants, when this is dropped.
pub(crate) struct ChildGuard(pub(crate) Child);

impl ChildGuard {
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        if !self.is_running() {
            return;
        }
        // A stopped parent cannot start more children while the present ones are killed.
        descendants::stop(self.0.id());
        let mut found = Descendants::default();
        found.record(self.0.id());
        drop(found);
        // Both only fail if the child has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Captures the output of a child, and prints it in live mode.
struct Tee {
    captured: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Tee {
    fn start<W: Write>(
        pipe: impl Read + Send + 'static,
        show: OutputMode,
        screen: impl Fn() -> W + Send + 'static,
    ) -> Self {
        let captured = Arc::new(Mutex::new(String::new()));
        let sink = Arc::clone(&captured);
        let reader = thread::spawn(move || {
            let mut pipe = BufReader::new(pipe);
            let mut line = Vec::new();
            while pipe.read_until(b'\n', &mut line).is_ok_and(|n_bytes| n_bytes > 0) {
                if show == OutputMode::Live {
                    // A closed terminal must not stop the run.
                    let _ = screen().write_all(&line);
                }
                let mut captured = sink.lock().unwrap_or_else(PoisonError::into_inner);
                captured.push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
        });
        Self { captured, reader }
    }

    /// The captured output. If a descendant keeps the pipe open, reading stops after two seconds.
    fn finish(self) -> String {
        let deadline = Instant::now() + Duration::from_secs(2);
        while !self.reader.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        let captured = self.captured.lock().unwrap_or_else(PoisonError::into_inner);
        captured.clone()
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    /// Waits up to two seconds for the end of a process.
    fn has_ended(pid: &str) -> bool {
        let pid = pid.trim().parse().expect("a process id");
        (0..200).any(|_| {
            thread::sleep(Duration::from_millis(10));
            !descendants::is_running(pid)
        })
    }

    #[test]
    fn stdout_and_stderr_are_separate() {
        let finished =
            run(&mut shell("echo one; echo two >&2; exit 3"), Duration::from_secs(10), OutputMode::Quiet)
                .unwrap();
        assert!(!finished.is_success());
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("one\n", "two\n"));
    }

    #[test]
    fn deadline_ends_descendants_too() {
        let mut command = shell("sleep 30 & echo $!; wait");
        let finished = run(&mut command, Duration::from_millis(300), OutputMode::Quiet).unwrap();
        assert!(!finished.is_success());
        assert!(has_ended(&finished.stdout));
    }

    #[test]
    fn processes_that_a_child_leaves_running_are_ended() {
        let mut command = shell("sleep 30 >/dev/null 2>&1 & echo $!; sleep 2");
        let finished = run_with_descendants(&mut command, Duration::from_secs(10)).unwrap();
        assert!(finished.is_success());
        assert!(has_ended(&finished.stdout));
    }
}
