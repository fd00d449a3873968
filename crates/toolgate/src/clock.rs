//! Time. Nothing else in the house reads a clock, so that tests can turn one by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where the house gets its time from.
#[derive(Clone, Debug)]
pub(crate) struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System {
        started: Instant,
    },
    #[cfg_attr(not(test), allow(dead_code))]
    Manual(Arc<AtomicU64>),
}

/// Now, on the clock that tokio's timers go by: the one to reckon deadlines with. Tests pause it.
pub(crate) fn tick() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

impl Clock {
    /// The machine's clocks.
    pub(crate) fn system() -> Clock {
        Clock(Source::System { started: Instant::now() })
    }

    /// A clock that stands still until [`Clock::advance`] moves it.
    #[cfg(test)]
    pub(crate) fn manual() -> Clock {
        Clock(Source::Manual(Arc::new(AtomicU64::new(0))))
    }

    /// Moves a manual clock.
    #[cfg(test)]
    pub(crate) fn advance(&self, by: Duration) {
        if let Source::Manual(millis) = &self.0 {
            let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
            millis.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// Time since the house opened; never steps back.
    pub(crate) fn uptime(&self) -> Duration {
        match &self.0 {
            Source::System { started } => started.elapsed(),
            Source::Manual(millis) => Duration::from_millis(millis.load(Ordering::Relaxed)),
        }
    }

    /// Seconds since 1970, for what must be understood by other processes.
    pub(crate) fn unix(&self) -> u64 {
        match &self.0 {
            Source::System { .. } => {
                SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
            }
            Source::Manual(millis) => millis.load(Ordering::Relaxed) / 1000,
        }
    }
}
