//! A running program: its output, its process group, and its end.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Child;
use toolgate::Context;

/// How long a program may take to exit after SIGTERM.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(1);

/// Why reading the output of a program failed.
#[derive(Debug)]
pub(super) enum ProcessError {
    OutputLimit,
    Io,
}

/// How much of standard error is kept.
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

/// Reads all of standard error, keeps its beginning, and reports its lines as progress if `cx` is given.
pub(super) async fn read_stderr(
    pipe: Option<impl AsyncRead + Unpin>,
    cx: Option<&Context>,
) -> Result<Vec<u8>, ProcessError> {
    let mut output = Vec::new();
    let Some(mut pipe) = pipe else {
        return Ok(output);
    };
    let mut line = Vec::new();
    let mut n_lines = 0_u32;
    let mut chunk = [0; 4096];
    loop {
        let n = pipe.read(&mut chunk).await.map_err(|_| ProcessError::Io)?;
        if n == 0 {
            return Ok(output);
        }
        let free = MAX_STDERR_BYTES.saturating_sub(output.len());
        output.extend_from_slice(&chunk[..n.min(free)]);
        let Some(cx) = cx else { continue };
        for byte in &chunk[..n] {
            match byte {
                b'\n' | b'\r' if !line.is_empty() => {
                    n_lines += 1;
                    report_progress(cx, &String::from_utf8_lossy(&line), n_lines).await;
                    line.clear();
                }
                b'\n' | b'\r' => {}
                // Limit for lines without an end.
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

/// Sets `no_new_privs`, so that programs started by this thread gain no privileges (for example through `sudo`).
pub(super) fn set_no_new_privs() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::set_no_new_privs(true) {
        tracing::debug!(%error, "cannot set no_new_privs; programs may gain privileges");
    }
}

/// The process group of a program. Dropping it kills the group.
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

    /// Limits CPU time, also for processes that leave the group, and disables core dumps.
    #[cfg(target_os = "linux")]
    pub(super) fn set_resource_limits(&self, timeout: Duration) {
        use rustix::process::{Resource, Rlimit, prlimit};
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        let seconds = timeout.as_secs().saturating_add(1).saturating_mul(threads);
        for (resource, limit) in [(Resource::Cpu, seconds), (Resource::Core, 0)] {
            // The process may have exited already.
            let _ = prlimit(self.leader, resource, Rlimit { current: Some(limit), maximum: Some(limit) });
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn set_resource_limits(&self, _: Duration) {}

    fn signal(&self, signal: rustix::process::Signal) {
        if let Some(leader) = self.leader {
            // The process may have exited by itself.
            let _ = rustix::process::kill_process_group(leader, signal);
        }
    }

    /// Kills the rest of the group. Called right after the leader exited: its id is not reused for another group
    /// while a process of this group lives, and if none does, the signal has no effect.
    pub(super) fn kill(&mut self) {
        self.signal(rustix::process::Signal::KILL);
        self.leader = None;
    }

    /// Sends SIGTERM, waits, and then sends SIGKILL.
    pub(super) async fn terminate(&mut self, child: &mut Child) {
        self.signal(rustix::process::Signal::TERM);
        let has_exited = tokio::time::timeout(TERMINATION_TIMEOUT, child.wait()).await.is_ok();
        self.kill();
        if !has_exited {
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
