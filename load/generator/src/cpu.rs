//! The CPU time of a process, from `/proc`.

use std::fs;

use crate::BoxError;

/// The unit of process times in `/proc/PID/stat`, on every architecture that matters here.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU seconds in user space and in the kernel, from two sources.
#[derive(Clone, Copy)]
pub(crate) struct CpuTime {
    /// The sum over the threads that exist now, with nanosecond resolution; zero if the kernel does not report it.
    by_threads: f64,
    /// The whole process including threads that have ended, with a resolution of 10 ms.
    by_ticks: f64,
}

impl CpuTime {
    pub(crate) fn read(pid: u32) -> Result<Self, BoxError> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name in parentheses may contain anything; the times are fields 14 and 15.
        let (_, fields) = stat.rsplit_once(')').ok_or("no name in stat")?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks =
            |index: usize| -> Result<f64, BoxError> { Ok(fields.get(index).ok_or("short stat")?.parse()?) };
        Ok(Self { by_threads: thread_seconds(pid), by_ticks: (ticks(11)? + ticks(12)?) / TICKS_PER_SECOND })
    }

    /// Seconds since an earlier reading. The times of threads that have ended since are missing in the finer source;
    /// then the coarser one is used.
    pub(crate) fn since(self, before: Self) -> f64 {
        let (fine, coarse) = (self.by_threads - before.by_threads, self.by_ticks - before.by_ticks);
        if fine <= 0.0 || coarse - fine > 3.0 / TICKS_PER_SECOND { coarse } else { fine }
    }
}

fn thread_seconds(pid: u32) -> f64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return 0.0;
    };
    let nanos = threads.filter_map(|thread| {
        let schedstat = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        schedstat.split_whitespace().next()?.parse::<f64>().ok()
    });
    nanos.sum::<f64>() / 1e9
}

/// CPU microseconds per request; `None` if the process ran too briefly to be measured.
pub(crate) fn micros_per_request(seconds: f64, n_requests: u64) -> Option<f64> {
    (n_requests > 0 && seconds >= 0.005).then(|| seconds * 1e6 / n_requests as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_finer_source_is_used_unless_a_thread_has_ended() {
        let at = |by_threads, by_ticks| CpuTime { by_threads, by_ticks };
        assert_eq!(at(2.5, 2.49).since(at(1.0, 1.0)), 1.5);
        assert_eq!(at(0.5, 2.5).since(at(1.0, 1.0)), 1.5);
        assert_eq!(at(1.2, 2.5).since(at(1.0, 1.0)), 1.5);
    }
}
