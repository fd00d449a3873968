//! Collects data about the process for operators: slow requests, slow backend calls, slow statements, routes, the
//! newest log lines.
//!
//! Nothing is collected until a server uses the pack `runtime`; until then each collector costs one check of a flag.
//! Everything is bounded, and contents of requests are not kept. The collectors are global, because there is one log,
//! and databases and APIs are shared by all servers.

pub(crate) mod logs;
pub(crate) mod routes;
pub(crate) mod slow_log;

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use toolgate_sources::source::call_observer::{CallKind, CallObserver, ObservedCall};

use logs::LogBuffer;
use routes::Routes;
use slow_log::SlowLog;

/// All collectors.
pub(crate) struct Collectors {
    pub(crate) requests: SlowLog,
    pub(crate) http: SlowLog,
    pub(crate) sql: SlowLog,
    pub(crate) routes: Routes,
    pub(crate) logs: LogBuffer,
}

static IS_ENABLED: AtomicBool = AtomicBool::new(false);

static COLLECTORS: LazyLock<Collectors> = LazyLock::new(|| Collectors {
    requests: SlowLog::new(),
    http: SlowLog::new(),
    sql: SlowLog::with_texts(),
    routes: Routes::new(),
    logs: LogBuffer::new(),
});

/// Whether collecting is enabled.
#[inline]
pub(crate) fn is_enabled() -> bool {
    IS_ENABLED.load(Relaxed)
}

/// Enables or disables collecting. Collected data stays.
pub(crate) fn set_enabled(on: bool) {
    IS_ENABLED.store(on, Relaxed);
}

/// The global collectors.
pub(crate) fn collectors() -> &'static Collectors {
    &COLLECTORS
}

/// Records the calls of HTTP and SQL backends in the slow logs.
#[derive(Debug)]
pub(crate) struct SlowCallObserver;

impl CallObserver for SlowCallObserver {
    fn is_enabled(&self) -> bool {
        is_enabled()
    }

    fn record(&self, call: &ObservedCall<'_>) {
        let log = match call.kind {
            CallKind::Http => &collectors().http,
            CallKind::Sql => &collectors().sql,
        };
        log.record(call.duration, call.is_ok, |captures_text| (call.details)(captures_text));
    }
}

/// Maximum length of a text that a caller chose.
const MAX_BRIEF_CHARS: usize = 200;

/// Truncates a text that a caller chose.
pub(crate) fn truncate(text: &str) -> String {
    text.chars().take(MAX_BRIEF_CHARS).collect()
}
