//! A running program: its output, its process group, and its end.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Child;
use toolgate::Context;

/// How long a program that was asked to end may take to do so.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a program was stopped.
#[derive(Debug)]
pub(super) enum ProcessError {
    OutputLimit,
    Io,
}

/// So much of what it says on the side is kept.
const MAX_STDERR_BYTES: usize = 8 * 1024;

pub(super) async fn read_limited(
    pipe: Option<impl AsyncRead + Unpin>,
    limit: usize,
) -> Result<Vec<u8>, ProcessError> {
    let mut all = Vec::new();
    if let Some(pipe) = pipe {
        let mut limited = pipe.take(limit as u64 + 1);
        limited.read_to_end(&mut all).await.map_err(|_| ProcessError::Io)?;
        if all.len() > limit {
            return Err(ProcessError::OutputLimit);
        }
    }
    Ok(all)
}

/// Keeps the beginning of what is said on the side, reads all of it, and passes lines on to whoever wants them.
pub(super) async fn read_stderr(
    pipe: Option<impl AsyncRead + Unpin>,
    cx: Option<&Context>,
) -> Result<Vec<u8>, ProcessError> {
    let mut kept = Vec::new();
    let Some(mut pipe) = pipe else {
        return Ok(kept);
    };
    let mut line = Vec::new();
    let mut n_lines = 0_u32;
    let mut chunk = [0; 4096];
    loop {
        let n = pipe.read(&mut chunk).await.map_err(|_| ProcessError::Io)?;
        if n == 0 {
            return Ok(kept);
        }
        let room = MAX_STDERR_BYTES.saturating_sub(kept.len());
        kept.extend_from_slice(&chunk[..n.min(room)]);
        let Some(cx) = cx else { continue };
        for byte in &chunk[..n] {
            match byte {
                b'\n' | b'\r' if !line.is_empty() => {
                    n_lines += 1;
                    report_progress(cx, &String::from_utf8_lossy(&line), n_lines).await;
                    line.clear();
                }
                b'\n' | b'\r' => {}
                // A line that does not end is no progress.
                byte if line.len() < 1024 => line.push(*byte),
                _ => {}
            }
        }
    }
}

async fn report_progress(cx: &Context, line: &str, n_lines: u32) {
    let word = line.split_whitespace().next().unwrap_or_default();
    let measure = match (word.strip_suffix('%'), word.split_once('/')) {
        (Some(percent), _) => percent.parse().ok().map(|percent: f64| (percent, 100.0)),
        (None, Some((done, total))) => done.parse().ok().zip(total.parse().ok()),
        _ => None,
    };
    match measure {
        Some((done, total)) => cx.progress_of(done, total, line).await,
        None => cx.progress(f64::from(n_lines), line).await,
    }
}

/// What this thread starts gets no rights that we do not have: `sudo` and its like do not work.
pub(super) fn set_no_new_privs() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::set_no_new_privs(true) {
        tracing::debug!(%error, "programs may get more rights than we have");
    }
}

/// A program and everything it started. Whoever drops it before its end ends it.
pub(super) struct ProcessGroup {
    #[cfg(unix)]
    leader: Option<rustix::process::Pid>,
}

#[cfg(unix)]
impl ProcessGroup {
    pub(super) fn new(child: &Child) -> ProcessGroup {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        ProcessGroup { leader: id.and_then(rustix::process::Pid::from_raw) }
    }

    /// Whatever leaves the group, and lives on, has only so much of the processor; and nobody's memory is written to a file.
    #[cfg(target_os = "linux")]
    pub(super) fn set_resource_limits(&self, timeout: Duration) {
        use rustix::process::{Resource, Rlimit, prlimit};
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        let seconds = timeout.as_secs().saturating_add(1).saturating_mul(threads);
        for (resource, most) in [(Resource::Cpu, seconds), (Resource::Core, 0)] {
            // It may have ended already.
            let _ = prlimit(self.leader, resource, Rlimit { current: Some(most), maximum: Some(most) });
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn set_resource_limits(&self, _: Duration) {}

    fn signal(&self, signal: rustix::process::Signal) {
        if let Some(leader) = self.leader {
            // It may have ended by itself.
            let _ = rustix::process::kill_process_group(leader, signal);
        }
    }

    /// Ends what is left, at once. Called right after the leader was seen to end: its number is not given to
    /// another group as long as one of this group lives, and where none does, nobody is hit.
    pub(super) fn kill(&mut self) {
        self.signal(rustix::process::Signal::KILL);
        self.leader = None;
    }

    /// Asks it to end, and ends it.
    pub(super) async fn terminate(&mut self, child: &mut Child) {
        self.signal(rustix::process::Signal::TERM);
        let gone = tokio::time::timeout(TERMINATION_TIMEOUT, child.wait()).await.is_ok();
        self.kill();
        if !gone {
            let _ = tokio::time::timeout(TERMINATION_TIMEOUT, child.wait()).await;
        }
    }
}

#[cfg(unix)]
impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(not(unix))]
impl ProcessGroup {
    pub(super) fn new(_: &Child) -> ProcessGroup {
        ProcessGroup {}
    }

    pub(super) fn kill(&mut self) {}

    pub(super) fn set_resource_limits(&self, _: Duration) {}

    pub(super) async fn terminate(&mut self, child: &mut Child) {
        let _ = child.kill().await;
        let _ = TERMINATION_TIMEOUT;
    }
}
