//! Starts programs, and sees to it that each one ends: by itself, at its deadline, or when its owner is dropped.
//!
//! Children stay in the process group of the terminal, so that Ctrl-C reaches them all. A deadline ends a child
//! together with its descendants, since drivers start servers and bridges of their own. A driver may also leave one
//! behind when it ends; [`run_with_descendants`] remembers them and ends those too.

mod descendants;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use self::descendants::Descendants;

/// Whether the output of a child is shown while it runs. It is kept in any case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputMode {
    Live,
    Quiet,
}

/// How a child ended, and what it wrote.
pub(crate) struct ProcessOutput {
    /// `None` if it was ended at its deadline.
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

    /// One line for a human: the end, and the last words.
    pub(crate) fn failure_summary(&self) -> String {
        let end = match self.status {
            Some(status) => status.to_string(),
            None => "no end within its time".to_owned(),
        };
        match self.stderr.lines().rfind(|line| !line.trim().is_empty()) {
            Some(words) => format!("{end}: {}", words.trim()),
            None => end,
        }
    }
}

/// Runs a child to its end, or to `limit`.
pub(crate) fn run(command: &mut Command, limit: Duration, show: OutputMode) -> io::Result<ProcessOutput> {
    run_polling(command, limit, show, |_| {})
}

/// The same for a child that must leave no process behind. A compiler may: its cache servers are meant to stay.
pub(crate) fn run_with_descendants(command: &mut Command, limit: Duration) -> io::Result<ProcessOutput> {
    let mut family = Descendants::default();
    run_polling(command, limit, OutputMode::Quiet, |pid| family.record(pid))
}

/// Runs a child, and calls `glance` with its id now and then.
fn run_polling(
    command: &mut Command,
    limit: Duration,
    show: OutputMode,
    mut glance: impl FnMut(u32),
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
    let mut next_glance = Instant::now();
    while status.is_none() && Instant::now() < deadline {
        if Instant::now() >= next_glance {
            glance(child.id());
            next_glance = Instant::now() + Duration::from_millis(200);
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

/// Runs a child whose output does not matter, and says whether it succeeded. A program that is missing did not.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    run(command, Duration::from_secs(60), OutputMode::Quiet).is_ok_and(|finished| finished.is_success())
}

/// A child that does not outlive this value.
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
        // A stopped parent starts no further children while the present ones are found and ended.
        descendants::stop(self.0.id());
        let mut family = Descendants::default();
        family.record(self.0.id());
        drop(family);
        // Both fail only for a child that has ended meanwhile.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Copies what a child writes, and shows it if asked to.
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
                    // A closed terminal must not end the run.
                    let _ = screen().write_all(&line);
                }
                let mut kept = sink.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
        });
        Self { captured, reader }
    }

    /// What was written. A descendant that keeps the pipe open is waited for two seconds, then no longer read.
    fn finish(self) -> String {
        let deadline = Instant::now() + Duration::from_secs(2);
        while !self.reader.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        let kept = self.captured.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clone()
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

    /// A process that was told to end does so when the machine lets it.
    fn has_ended(pid: &str) -> bool {
        let pid = pid.trim().parse().expect("a process id");
        (0..200).any(|_| {
            thread::sleep(Duration::from_millis(10));
            !descendants::is_running(pid)
        })
    }

    #[test]
    fn output_is_kept_apart() {
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
    fn what_a_driver_leaves_behind_is_ended() {
        let mut command = shell("sleep 30 >/dev/null 2>&1 & echo $!; sleep 2");
        let finished = run_with_descendants(&mut command, Duration::from_secs(10)).unwrap();
        assert!(finished.is_success());
        assert!(has_ended(&finished.stdout));
    }
}
