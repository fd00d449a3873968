//! The log: to standard error, so that it never meets the protocol on standard output. How much of it can be changed while
//! the program runs.

use std::io;
use std::sync::OnceLock;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use crate::cli::{LogFormat, LogLevel};
use crate::observe::logs::Keeping;

/// What was said at the start, and how it is changed.
struct Log {
    usual: LevelFilter,
    format: LogFormat,
    handle: reload::Handle<LevelFilter, Registry>,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// From here on what goes wrong is told on standard error.
pub(crate) fn start(format: LogFormat, level: LogLevel) {
    let usual = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    let (filter, handle) = reload::Layer::new(usual);
    let lines = fmt::layer().with_writer(io::stderr).with_target(false);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(filter).with(Keeping).with(lines).init();
    let _ = LOG.set(Log { usual, format, handle });
}

fn word(level: LevelFilter) -> &'static str {
    match level.into_level() {
        Some(level) => crate::observe::logs::word(level),
        None => "off",
    }
}

/// What is written at present.
pub(crate) fn level() -> &'static str {
    let level = LOG.get().and_then(|log| log.handle.clone_current());
    level.map_or("off", word)
}

/// What was asked for at the start.
pub(crate) fn usual_level() -> &'static str {
    LOG.get().map_or("off", |log| word(log.usual))
}

/// `text` or `json`.
pub(crate) fn format() -> &'static str {
    match LOG.get().map(|log| log.format) {
        Some(LogFormat::Json) => "json",
        _ => "text",
    }
}

/// Whether everything is written.
pub(crate) fn is_debugging() -> bool {
    level() == "debug"
}

/// Writes everything from now on, or what was asked for at the start. False if there is no log.
pub(crate) fn debug(on: bool) -> bool {
    let Some(log) = LOG.get() else { return false };
    let level = if on { LevelFilter::DEBUG } else { log.usual.min(LevelFilter::INFO) };
    log.handle.modify(|filter| *filter = level).is_ok()
}
