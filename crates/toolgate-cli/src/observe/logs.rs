//! The newest lines of the log, kept for those who cannot read it where it goes.
//!
//! It sees what the log sees, and nothing else: what must not be logged is not logged. Values whose names stand for secrets
//! are hidden here once more.

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

/// How many lines are kept.
pub(crate) const MAX_LINES: usize = 10_000;

/// And how many bytes of them.
const MAX_TOTAL_BYTES: usize = 8 << 20;

/// The longest text of a line; the rest is cut off.
const MAX_TEXT_BYTES: usize = 4 << 10;

/// The newest lines, the oldest of them first.
pub(crate) struct LogBuffer(Mutex<LogLines>);

#[derive(Default)]
struct LogLines {
    lines: VecDeque<LogLine>,
    bytes: usize,
    /// How many there were of each level, errors first.
    level_counts: [u64; 5],
}

/// A line of the log.
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

    /// Everything that can be searched, in one text.
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

/// A level as a word.
pub(crate) fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// A word as a level; several words mean the same.
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
        let mut kept = lock(&self.0);
        let place = match line.level {
            Level::ERROR => 0,
            Level::WARN => 1,
            Level::INFO => 2,
            Level::DEBUG => 3,
            Level::TRACE => 4,
        };
        kept.level_counts[place] += 1;
        kept.bytes += line.size_bytes();
        kept.lines.push_back(line);
        // When it is full, the oldest goes.
        while kept.lines.len() > MAX_LINES || kept.bytes > MAX_TOTAL_BYTES {
            let Some(gone) = kept.lines.pop_front() else { break };
            kept.bytes -= gone.size_bytes();
        }
    }

    /// The newest lines that are wanted, the newest first.
    pub(crate) fn newest(&self, limit: usize, is_wanted: impl Fn(&LogLine) -> bool) -> Vec<LogLine> {
        lock(&self.0).lines.iter().rev().filter(|line| is_wanted(line)).take(limit).cloned().collect()
    }

    /// Who has written how many of the lines that are kept.
    pub(crate) fn targets(&self) -> Vec<(String, usize)> {
        let kept = lock(&self.0);
        let mut targets: Vec<(String, usize)> = Vec::new();
        for line in &kept.lines {
            match targets.iter_mut().find(|(known, _)| *known == line.target) {
                Some((_, count)) => *count += 1,
                None => targets.push((line.target.clone(), 1)),
            }
        }
        targets.sort();
        targets
    }

    pub(crate) fn stats(&self) -> Value {
        let kept = lock(&self.0);
        let [error, warn, info, debug, trace] = kept.level_counts;
        json!({
            "entries": kept.lines.len(),
            "capacity": MAX_LINES,
            "bytes": kept.bytes,
            "seen": { "error": error, "warn": warn, "info": info, "debug": debug, "trace": trace },
            "oldest": kept.lines.front().map(|line| format_iso8601(line.timestamp)),
            "newest": kept.lines.back().map(|line| format_iso8601(line.timestamp)),
        })
    }

    /// Gives back memory that is not needed.
    pub(crate) fn shrink(&self) {
        lock(&self.0).lines.shrink_to_fit();
    }
}

/// What listens to the log.
pub(crate) struct LogBufferLayer;

impl<S: Subscriber> Layer<S> for LogBufferLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !is_enabled() {
            return;
        }
        let mut words = FieldVisitor::default();
        event.record(&mut words);
        let about = event.metadata();
        let mut fields = Value::Object(words.fields);
        toolgate::events::mask_secrets(&mut fields);
        let Value::Object(fields) = fields else { return };
        collectors().logs.push(LogLine {
            timestamp: unix_millis(),
            level: *about.level(),
            target: about.target().to_owned(),
            message: words.message,
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
    fn it_never_grows_beyond_its_bounds() {
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
    fn what_the_log_sees_is_kept_without_secrets() {
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
    fn long_texts_are_cut_between_letters() {
        assert_eq!(truncate_text("short".into()), "short");
        let cut = truncate_text("ä".repeat(MAX_TEXT_BYTES));
        assert!(cut.len() <= MAX_TEXT_BYTES + 3 && cut.ends_with('…'));
    }
}
