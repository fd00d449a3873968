//! The log, on standard error, because standard output may carry the protocol. Its level can change at run time.

use std::io;
use std::sync::OnceLock;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use crate::cli::{LogFormat, LogLevel};
use crate::observe::logs::LogBufferLayer;

/// The settings of the command line, and the handle that changes the level.
struct LogState {
    initial_level: LevelFilter,
    format: LogFormat,
    handle: reload::Handle<LevelFilter, Registry>,
}

static LOG: OnceLock<LogState> = OnceLock::new();

/// Starts the log. Called once.
pub(crate) fn init(format: LogFormat, level: LogLevel) {
    let initial_level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    let (filter, handle) = reload::Layer::new(initial_level);
    let lines = fmt::layer().with_writer(io::stderr).with_target(false);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(filter).with(LogBufferLayer).with(lines).init();
    let _ = LOG.set(LogState { initial_level, format, handle });
}

fn filter_name(level: LevelFilter) -> &'static str {
    match level.into_level() {
        Some(level) => crate::observe::logs::level_name(level),
        None => "off",
    }
}

/// The current level.
pub(crate) fn level() -> &'static str {
    let level = LOG.get().and_then(|log| log.handle.clone_current());
    level.map_or("off", filter_name)
}

/// The level of the command line.
pub(crate) fn initial_level() -> &'static str {
    LOG.get().map_or("off", |log| filter_name(log.initial_level))
}

/// `text` or `json`.
pub(crate) fn format() -> &'static str {
    match LOG.get().map(|log| log.format) {
        Some(LogFormat::Json) => "json",
        _ => "text",
    }
}

/// Whether the level is `debug`.
pub(crate) fn is_debug() -> bool {
    level() == "debug"
}

/// Sets the level to `debug`, or back to that of the command line. Returns false if the log was not started.
pub(crate) fn set_debug(on: bool) -> bool {
    let Some(log) = LOG.get() else { return false };
    let level = if on { LevelFilter::DEBUG } else { log.initial_level.min(LevelFilter::INFO) };
    log.handle.modify(|filter| *filter = level).is_ok()
}
