//! What the program notes of its own work, for those on call: slow requests, slow calls of backends, slow statements,
//! routes, the newest lines of the log.
//!
//! Nothing is noted until a server asks for it (`packs = ["runtime"]`): until then each of these is one look at a flag.
//! Everything is bounded, and what was said in a request is not kept, only what it was about. There is one of it in the
//! process, because there is one log, and because databases and APIs are shared by all servers.

pub(crate) mod logs;
pub(crate) mod routes;
pub(crate) mod slow_log;

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use logs::LogBuffer;
use routes::Routes;
use slow_log::SlowLog;

/// Everything that is noted.
pub(crate) struct Collectors {
    pub(crate) requests: SlowLog,
    pub(crate) http: SlowLog,
    pub(crate) sql: SlowLog,
    pub(crate) routes: Routes,
    pub(crate) logs: LogBuffer,
}

static IS_ENABLED: AtomicBool = AtomicBool::new(false);

static COLLECTORS: LazyLock<Collectors> = LazyLock::new(|| Collectors {
    requests: SlowLog::new(false),
    http: SlowLog::new(false),
    sql: SlowLog::new(true),
    routes: Routes::new(),
    logs: LogBuffer::new(),
});

/// Whether anything is noted.
#[inline]
pub(crate) fn is_enabled() -> bool {
    IS_ENABLED.load(Relaxed)
}

/// Notes from now on, or no longer. What was noted stays.
pub(crate) fn set_enabled(on: bool) {
    IS_ENABLED.store(on, Relaxed);
}

/// What was noted.
pub(crate) fn collectors() -> &'static Collectors {
    &COLLECTORS
}

/// How many characters of what a caller chose are kept.
const MAX_BRIEF_CHARS: usize = 200;

/// The beginning of a text that a caller chose: however long it was, what is kept of it is short.
pub(crate) fn truncate(text: &str) -> String {
    text.chars().take(MAX_BRIEF_CHARS).collect()
}
