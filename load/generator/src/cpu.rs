//! How long a process has run, as `/proc` says.

use std::fs;

use crate::BoxError;

/// Linux counts process times in these, on every architecture that matters here.
const TICKS_PER_SECOND: f64 = 100.0;

/// Seconds of CPU in user space and in the kernel, from two sources.
#[derive(Clone, Copy)]
pub(crate) struct CpuTime {
    /// The sum over the threads that run now, in nanoseconds of the scheduler; zero where the kernel does not say.
    by_threads: f64,
    /// Of the whole process, also of threads that have ended, in hundredths of a second.
    by_ticks: f64,
}

impl CpuTime {
    pub(crate) fn read(pid: u32) -> Result<Self, BoxError> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name, in parentheses, may hold anything; times are the 14th and 15th field.
        let (_, fields) = stat.rsplit_once(')').ok_or("no name in stat")?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks =
            |index: usize| -> Result<f64, BoxError> { Ok(fields.get(index).ok_or("short stat")?.parse()?) };
        Ok(Self { by_threads: thread_seconds(pid), by_ticks: (ticks(11)? + ticks(12)?) / TICKS_PER_SECOND })
    }

    /// Seconds since an earlier look. Threads that ended meanwhile took their figure with them, which the coarser
    /// clock notices.
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
        let told = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        told.split_whitespace().next()?.parse::<f64>().ok()
    });
    nanos.sum::<f64>() / 1e9
}

/// CPU in microseconds for each request, unless the process hardly ran.
pub(crate) fn micros_per_request(seconds: f64, n_requests: u64) -> Option<f64> {
    (n_requests > 0 && seconds >= 0.005).then(|| seconds * 1e6 / n_requests as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_finer_clock_counts_unless_a_thread_has_gone() {
        let at = |by_threads, by_ticks| CpuTime { by_threads, by_ticks };
        assert_eq!(at(2.5, 2.49).since(at(1.0, 1.0)), 1.5);
        assert_eq!(at(0.5, 2.5).since(at(1.0, 1.0)), 1.5);
        assert_eq!(at(1.2, 2.5).since(at(1.0, 1.0)), 1.5);
    }
}
