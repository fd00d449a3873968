//! Keeps the newest log lines in memory, for operators without access to the log.
//!
//! It receives the same events as the log. Fields whose names suggest secrets are masked here once more.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::Mutex;

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::{collectors, is_enabled};
use crate::clock::{format_iso8601, unix_millis};
use crate::sync::lock;

/// Maximum number of lines.
pub(crate) const MAX_LINES: usize = 10_000;

/// Maximum size of all lines.
const MAX_TOTAL_BYTES: usize = 8 << 20;

/// Maximum length of a text; the rest is cut off.
const MAX_TEXT_BYTES: usize = 4 << 10;

/// A ring buffer of log lines, oldest first.
pub(crate) struct LogBuffer(Mutex<LogLines>);

#[derive(Default)]
struct LogLines {
    lines: VecDeque<LogLine>,
    bytes: usize,
    /// How many lines were logged per level, errors first.
    level_counts: [u64; 5],
}

/// A log line.
#[derive(Clone, Debug)]
pub(crate) struct LogLine {
    pub(crate) timestamp: u64,
    pub(crate) level: Level,
    pub(crate) target: String,
    pub(crate) message: String,
    pub(crate) fields: Map<String, Value>,
}

impl LogLine {
    fn size_bytes(&self) -> usize {
        let fields: usize = self.fields.iter().map(|(name, value)| name.len() + value_bytes(value)).sum();
        self.target.len() + self.message.len() + fields + 64
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "at": format_iso8601(self.timestamp),
            "level": level_name(self.level),
            "logger": self.target,
            "message": self.message,
            "fields": self.fields,
        })
    }

    /// All searchable text of the line.
    pub(crate) fn search_text(&self) -> String {
        let mut text = format!("{} {} {}", level_name(self.level), self.target, self.message);
        for (name, value) in &self.fields {
            let _ =
                write!(text, " {name}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        }
        text
    }
}

fn value_bytes(value: &Value) -> usize {
    value.as_str().map_or(8, str::len)
}

/// The name of a level.
pub(crate) fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// Parses a level name; some levels have several names.
pub(crate) fn parse_level(word: &str) -> Option<Level> {
    Some(match word.to_ascii_lowercase().as_str() {
        "error" | "fatal" | "critical" => Level::ERROR,
        "warn" | "warning" => Level::WARN,
        "info" | "notice" => Level::INFO,
        "debug" => Level::DEBUG,
        "trace" => Level::TRACE,
        _ => return None,
    })
}

impl LogBuffer {
    pub(crate) fn new() -> LogBuffer {
        LogBuffer(Mutex::default())
    }

    pub(crate) fn push(&self, line: LogLine) {
        let mut buffer = lock(&self.0);
        let level_index = match line.level {
            Level::ERROR => 0,
            Level::WARN => 1,
            Level::INFO => 2,
            Level::DEBUG => 3,
            Level::TRACE => 4,
        };
        buffer.level_counts[level_index] += 1;
        buffer.bytes += line.size_bytes();
        buffer.lines.push_back(line);
        // When the buffer is full, the oldest line is dropped.
        while buffer.lines.len() > MAX_LINES || buffer.bytes > MAX_TOTAL_BYTES {
            let Some(removed) = buffer.lines.pop_front() else { break };
            buffer.bytes -= removed.size_bytes();
        }
    }

    /// Returns matching lines, newest first.
    pub(crate) fn newest(&self, limit: usize, is_wanted: impl Fn(&LogLine) -> bool) -> Vec<LogLine> {
        lock(&self.0).lines.iter().rev().filter(|line| is_wanted(line)).take(limit).cloned().collect()
    }

    /// The targets of the buffered lines, with their counts.
    pub(crate) fn targets(&self) -> Vec<(String, usize)> {
        let buffer = lock(&self.0);
        let mut targets: Vec<(String, usize)> = Vec::new();
        for line in &buffer.lines {
            match targets.iter_mut().find(|(known, _)| *known == line.target) {
                Some((_, count)) => *count += 1,
                None => targets.push((line.target.clone(), 1)),
            }
        }
        targets.sort();
        targets
    }

    pub(crate) fn stats(&self) -> Value {
        let buffer = lock(&self.0);
        let [error, warn, info, debug, trace] = buffer.level_counts;
        json!({
            "entries": buffer.lines.len(),
            "capacity": MAX_LINES,
            "bytes": buffer.bytes,
            "seen": { "error": error, "warn": warn, "info": info, "debug": debug, "trace": trace },
            "oldest": buffer.lines.front().map(|line| format_iso8601(line.timestamp)),
            "newest": buffer.lines.back().map(|line| format_iso8601(line.timestamp)),
        })
    }

    /// Releases unused memory.
    pub(crate) fn shrink(&self) {
        lock(&self.0).lines.shrink_to_fit();
    }
}

/// The `tracing` layer that fills the buffer.
pub(crate) struct LogBufferLayer;

impl<S: Subscriber> Layer<S> for LogBufferLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !is_enabled() {
            return;
        }
        let mut visitor = FieldVisitor::default();
        event.record(&mut visitor);
        let metadata = event.metadata();
        let mut fields = Value::Object(visitor.fields);
        toolgate::events::mask_secrets(&mut fields);
        let Value::Object(fields) = fields else { return };
        collectors().logs.push(LogLine {
            timestamp: unix_millis(),
            level: *metadata.level(),
            target: metadata.target().to_owned(),
            message: visitor.message,
            fields,
        });
    }
}

#[derive(Default)]
struct FieldVisitor {
    message: String,
    fields: Map<String, Value>,
}

impl FieldVisitor {
    fn record_value(&mut self, field: &Field, value: Value) {
        if field.name() == "message" {
            self.message = truncate_text(value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        } else if self.fields.len() < 32 {
            let value = match value {
                Value::String(text) => Value::String(truncate_text(text)),
                value => value,
            };
            self.fields.insert(field.name().to_owned(), value);
        }
    }
}

impl Visit for FieldVisitor {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_value(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.record_value(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.record_value(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.record_value(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.record_value(field, value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.record_value(field, value.to_string().into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_value(field, format!("{value:?}").into());
    }
}

fn truncate_text(mut text: String) -> String {
    if text.len() > MAX_TEXT_BYTES {
        let end = (0..=MAX_TEXT_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_line(message: String) -> LogLine {
        let (level, target) = (Level::INFO, "t".to_owned());
        LogLine { timestamp: 0, level, target, message, fields: Map::new() }
    }

    #[test]
    fn the_buffer_stays_within_its_limits() {
        let logs = LogBuffer::new();
        for n in 0..MAX_LINES + 7 {
            logs.push(test_line(n.to_string()));
        }
        let all = logs.newest(usize::MAX, |_| true);
        assert_eq!((all.len(), all[MAX_LINES - 1].message.as_str()), (MAX_LINES, "7"));
        for _ in 0..5000 {
            logs.push(test_line("x".repeat(MAX_TEXT_BYTES)));
        }
        assert!(lock(&logs.0).bytes <= MAX_TOTAL_BYTES);
        assert!(logs.newest(usize::MAX, |_| true).len() < MAX_LINES);
    }

    #[test]
    fn log_events_are_kept_without_secrets() {
        use tracing_subscriber::layer::SubscriberExt as _;
        super::super::set_enabled(true);
        let subscriber = tracing_subscriber::registry().with(LogBufferLayer);
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(target: "test::kept", api_key = "s3cret", n = 7, "hello {}", "there");
        });
        let found = collectors().logs.newest(1, |line| line.target == "test::kept");
        assert_eq!(found[0].message, "hello there");
        assert_eq!(found[0].fields["n"], 7);
        assert_eq!(found[0].fields["api_key"], "***");
        assert!(!found[0].search_text().contains("s3cret"));
    }

    #[test]
    fn long_texts_are_cut_at_char_boundaries() {
        assert_eq!(truncate_text("short".into()), "short");
        let cut = truncate_text("ä".repeat(MAX_TEXT_BYTES));
        assert!(cut.len() <= MAX_TEXT_BYTES + 3 && cut.ends_with('…'));
    }
}
