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

use super::{collectors, is_on, lock};
use crate::clock::{iso8601, unix_millis};

/// How many lines are kept.
pub(crate) const KEPT: usize = 10_000;

/// And how many bytes of them.
const BYTES: usize = 8 << 20;

/// The longest text of a line; the rest is cut off.
const LONGEST: usize = 4 << 10;

/// The newest lines, the oldest of them first.
pub(crate) struct Logs(Mutex<Lines>);

#[derive(Default)]
struct Lines {
    lines: VecDeque<Line>,
    bytes: usize,
    /// How many there were of each level, errors first.
    counts: [u64; 5],
}

/// A line of the log.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) at: u64,
    pub(crate) level: Level,
    pub(crate) target: String,
    pub(crate) message: String,
    pub(crate) fields: Map<String, Value>,
}

impl Line {
    fn weight(&self) -> usize {
        let fields: usize = self.fields.iter().map(|(name, value)| name.len() + weight(value)).sum();
        self.target.len() + self.message.len() + fields + 64
    }

    pub(crate) fn shown(&self) -> Value {
        json!({
            "at": iso8601(self.at),
            "level": word(self.level),
            "logger": self.target,
            "message": self.message,
            "fields": self.fields,
        })
    }

    /// Everything that can be searched, in one text.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{} {} {}", word(self.level), self.target, self.message);
        for (name, value) in &self.fields {
            let _ =
                write!(text, " {name}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        }
        text
    }
}

fn weight(value: &Value) -> usize {
    value.as_str().map_or(8, str::len)
}

/// A level as a word.
pub(crate) fn word(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// A word as a level; several words mean the same.
pub(crate) fn level(word: &str) -> Option<Level> {
    Some(match word.to_ascii_lowercase().as_str() {
        "error" | "fatal" | "critical" => Level::ERROR,
        "warn" | "warning" => Level::WARN,
        "info" | "notice" => Level::INFO,
        "debug" => Level::DEBUG,
        "trace" => Level::TRACE,
        _ => return None,
    })
}

impl Logs {
    pub(crate) fn new() -> Logs {
        Logs(Mutex::default())
    }

    pub(crate) fn add(&self, line: Line) {
        let mut kept = lock(&self.0);
        let place = match line.level {
            Level::ERROR => 0,
            Level::WARN => 1,
            Level::INFO => 2,
            Level::DEBUG => 3,
            Level::TRACE => 4,
        };
        kept.counts[place] += 1;
        kept.bytes += line.weight();
        kept.lines.push_back(line);
        // When it is full, the oldest goes.
        while kept.lines.len() > KEPT || kept.bytes > BYTES {
            let Some(gone) = kept.lines.pop_front() else { break };
            kept.bytes -= gone.weight();
        }
    }

    /// The newest lines that are wanted, the newest first.
    pub(crate) fn newest(&self, limit: usize, is_wanted: impl Fn(&Line) -> bool) -> Vec<Line> {
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
        let [error, warn, info, debug, trace] = kept.counts;
        json!({
            "entries": kept.lines.len(),
            "capacity": KEPT,
            "bytes": kept.bytes,
            "seen": { "error": error, "warn": warn, "info": info, "debug": debug, "trace": trace },
            "oldest": kept.lines.front().map(|line| iso8601(line.at)),
            "newest": kept.lines.back().map(|line| iso8601(line.at)),
        })
    }

    /// Gives back memory that is not needed.
    pub(crate) fn shrink(&self) {
        lock(&self.0).lines.shrink_to_fit();
    }
}

/// What listens to the log.
pub(crate) struct Keeping;

impl<S: Subscriber> Layer<S> for Keeping {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !is_on() {
            return;
        }
        let mut words = Words::default();
        event.record(&mut words);
        let about = event.metadata();
        let mut fields = Value::Object(words.fields);
        toolgate::mask_secrets(&mut fields);
        let Value::Object(fields) = fields else { return };
        collectors().logs.add(Line {
            at: unix_millis(),
            level: *about.level(),
            target: about.target().to_owned(),
            message: words.message,
            fields,
        });
    }
}

#[derive(Default)]
struct Words {
    message: String,
    fields: Map<String, Value>,
}

impl Words {
    fn put(&mut self, field: &Field, value: Value) {
        if field.name() == "message" {
            self.message = cut(value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        } else if self.fields.len() < 32 {
            let value = match value {
                Value::String(text) => Value::String(cut(text)),
                value => value,
            };
            self.fields.insert(field.name().to_owned(), value);
        }
    }
}

impl Visit for Words {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put(field, value.to_string().into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }
}

fn cut(mut text: String) -> String {
    if text.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(message: String) -> Line {
        let (level, target) = (Level::INFO, "t".to_owned());
        Line { at: 0, level, target, message, fields: Map::new() }
    }

    #[test]
    fn it_never_grows_beyond_its_bounds() {
        let logs = Logs::new();
        for n in 0..KEPT + 7 {
            logs.add(line(n.to_string()));
        }
        let all = logs.newest(usize::MAX, |_| true);
        assert_eq!((all.len(), all[KEPT - 1].message.as_str()), (KEPT, "7"));
        for _ in 0..5000 {
            logs.add(line("x".repeat(LONGEST)));
        }
        assert!(lock(&logs.0).bytes <= BYTES);
        assert!(logs.newest(usize::MAX, |_| true).len() < KEPT);
    }

    #[test]
    fn what_the_log_sees_is_kept_without_secrets() {
        use tracing_subscriber::layer::SubscriberExt as _;
        super::super::switch(true);
        let subscriber = tracing_subscriber::registry().with(Keeping);
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(target: "test::kept", api_key = "s3cret", n = 7, "hello {}", "there");
        });
        let found = collectors().logs.newest(1, |line| line.target == "test::kept");
        assert_eq!(found[0].message, "hello there");
        assert_eq!(found[0].fields["n"], 7);
        assert_eq!(found[0].fields["api_key"], "***");
        assert!(!found[0].text().contains("s3cret"));
    }

    #[test]
    fn long_texts_are_cut_between_letters() {
        assert_eq!(cut("short".into()), "short");
        let cut = cut("ä".repeat(LONGEST));
        assert!(cut.len() <= LONGEST + 3 && cut.ends_with('…'));
    }
}
