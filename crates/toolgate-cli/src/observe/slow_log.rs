//! Keeps the newest samples of slow operations.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::clock::{format_iso8601, unix_millis};
use crate::sync::lock;

/// Default threshold.
const DEFAULT_THRESHOLD_MILLIS: u64 = 1000;

/// Default number of samples.
const DEFAULT_CAPACITY: usize = 200;

/// Upper bound for the configurable number of samples.
pub(crate) const MAX_CAPACITY: usize = 10_000;

/// Samples of slow operations, newest last, and counters of all operations.
pub(crate) struct SlowLog {
    is_enabled: AtomicBool,
    /// Whether samples contain texts, such as a statement or a query string.
    captures_text: AtomicBool,
    threshold_millis: AtomicU64,
    capacity: AtomicUsize,
    n_total: AtomicU64,
    n_slow: AtomicU64,
    n_failed: AtomicU64,
    /// Total duration of all operations.
    total_micros: AtomicU64,
    max_micros: AtomicU64,
    samples: Mutex<VecDeque<Sample>>,
}

struct Sample {
    timestamp: u64,
    millis: f64,
    details: Map<String, Value>,
}

/// A partial update of the settings.
#[derive(Debug, Default)]
pub(crate) struct SlowLogUpdate {
    pub(crate) enabled: Option<bool>,
    pub(crate) threshold_millis: Option<u64>,
    pub(crate) capacity: Option<usize>,
    pub(crate) captures_text: Option<bool>,
}

impl SlowLog {
    /// A log whose samples contain no texts.
    pub(crate) fn new() -> SlowLog {
        SlowLog {
            is_enabled: AtomicBool::new(true),
            captures_text: AtomicBool::new(false),
            threshold_millis: AtomicU64::new(DEFAULT_THRESHOLD_MILLIS),
            capacity: AtomicUsize::new(DEFAULT_CAPACITY),
            n_total: AtomicU64::new(0),
            n_slow: AtomicU64::new(0),
            n_failed: AtomicU64::new(0),
            total_micros: AtomicU64::new(0),
            max_micros: AtomicU64::new(0),
            samples: Mutex::default(),
        }
    }

    /// A log whose samples contain texts, such as statements.
    pub(crate) fn with_texts() -> SlowLog {
        SlowLog { captures_text: AtomicBool::new(true), ..SlowLog::new() }
    }

    /// Records an operation. `details` is only called if it was slow; its argument states whether texts may be
    /// included.
    #[inline]
    pub(crate) fn record(&self, duration: Duration, is_ok: bool, details: impl FnOnce(bool) -> Value) {
        if !self.is_enabled.load(Relaxed) {
            return;
        }
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.n_total.fetch_add(1, Relaxed);
        self.total_micros.fetch_add(micros, Relaxed);
        if !is_ok {
            self.n_failed.fetch_add(1, Relaxed);
        }
        if micros > self.max_micros.load(Relaxed) {
            self.max_micros.fetch_max(micros, Relaxed);
        }
        if micros >= self.threshold_millis.load(Relaxed).saturating_mul(1000) {
            self.push_sample(micros, details(self.captures_text.load(Relaxed)));
        }
    }

    #[cold]
    fn push_sample(&self, micros: u64, details: Value) {
        self.n_slow.fetch_add(1, Relaxed);
        let Value::Object(details) = details else { return };
        let capacity = self.capacity.load(Relaxed);
        let mut samples = lock(&self.samples);
        // When the buffer is full, the oldest sample is dropped.
        while samples.len() >= capacity.max(1) {
            samples.pop_front();
        }
        samples.push_back(Sample { timestamp: unix_millis(), millis: micros as f64 / 1000.0, details });
    }

    /// Returns samples since a time, newest first.
    pub(crate) fn newest(&self, limit: usize, since: u64) -> Vec<Value> {
        let samples = lock(&self.samples);
        let newest = samples.iter().rev().filter(|sample| sample.timestamp >= since).take(limit);
        let shown = newest.map(|sample| {
            let mut shown = json!({ "at": format_iso8601(sample.timestamp), "durationMs": sample.millis });
            if let Some(members) = shown.as_object_mut() {
                members.extend(sample.details.clone());
            }
            shown
        });
        shown.collect()
    }

    /// The number of samples since a time.
    pub(crate) fn count_since(&self, since: u64) -> usize {
        lock(&self.samples).iter().filter(|sample| sample.timestamp >= since).count()
    }

    pub(crate) fn stats(&self) -> Value {
        let (total, sum) = (self.n_total.load(Relaxed), self.total_micros.load(Relaxed));
        let average = if total == 0 { 0.0 } else { sum as f64 / total as f64 / 1000.0 };
        json!({
            "total": total,
            "slow": self.n_slow.load(Relaxed),
            "failed": self.n_failed.load(Relaxed),
            "avgMs": average,
            "maxMs": self.max_micros.load(Relaxed) as f64 / 1000.0,
            "buffered": lock(&self.samples).len(),
            "thresholdMs": self.threshold_millis.load(Relaxed),
        })
    }

    pub(crate) fn config(&self) -> Value {
        json!({
            "enabled": self.is_enabled.load(Relaxed),
            "thresholdMs": self.threshold_millis.load(Relaxed),
            "buffer": self.capacity.load(Relaxed),
            "capture": self.captures_text.load(Relaxed),
        })
    }

    pub(crate) fn update(&self, update: &SlowLogUpdate) {
        if let Some(enabled) = update.enabled {
            self.is_enabled.store(enabled, Relaxed);
        }
        if let Some(captures) = update.captures_text {
            self.captures_text.store(captures, Relaxed);
        }
        if let Some(threshold) = update.threshold_millis {
            self.threshold_millis.store(threshold, Relaxed);
        }
        if let Some(capacity) = update.capacity {
            let capacity = capacity.clamp(1, MAX_CAPACITY);
            self.capacity.store(capacity, Relaxed);
            let mut samples = lock(&self.samples);
            let surplus = samples.len().saturating_sub(capacity);
            samples.drain(..surplus);
            samples.shrink_to_fit();
        }
    }

    /// Releases unused memory.
    pub(crate) fn shrink(&self) {
        lock(&self.samples).shrink_to_fit();
    }

    /// Resets everything and returns how many samples there were.
    pub(crate) fn clear(&self) -> usize {
        for number in [&self.n_total, &self.n_slow, &self.n_failed, &self.total_micros, &self.max_micros] {
            number.store(0, Relaxed);
        }
        std::mem::take(&mut *lock(&self.samples)).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_slow_samples_are_kept() {
        let log = SlowLog::new();
        log.record(Duration::from_millis(999), true, |_| unreachable!("it was not slow"));
        for n in 0..DEFAULT_CAPACITY + 5 {
            log.record(Duration::from_secs(1), n > 0, |_| json!({ "n": n }));
        }
        let samples = log.newest(usize::MAX, 0);
        assert_eq!(samples.len(), DEFAULT_CAPACITY);
        assert_eq!(
            (&samples[0]["n"], &samples[DEFAULT_CAPACITY - 1]["n"]),
            (&json!(DEFAULT_CAPACITY + 4), &json!(5))
        );
        assert_eq!(log.stats()["total"], DEFAULT_CAPACITY + 6);
        assert_eq!(log.stats()["slow"], DEFAULT_CAPACITY + 5);
        assert_eq!(log.stats()["failed"], 1);
        assert!(log.newest(3, u64::MAX).is_empty(), "no samples since then");
    }

    #[test]
    fn settings_can_change_at_run_time() {
        let log = SlowLog::with_texts();
        log.update(&SlowLogUpdate {
            threshold_millis: Some(5),
            capacity: Some(2),
            captures_text: Some(false),
            enabled: None,
        });
        for n in 0..4 {
            log.record(Duration::from_millis(5), true, |captures| json!({ "n": n, "text": captures }));
        }
        assert_eq!(log.newest(9, 0).len(), 2);
        assert_eq!(log.newest(1, 0)[0]["text"], false);
        log.update(&SlowLogUpdate { capacity: Some(1), ..SlowLogUpdate::default() });
        assert_eq!(log.newest(9, 0).len(), 1);
        assert_eq!(log.clear(), 1);
        assert_eq!(log.stats()["total"], 0);
        log.update(&SlowLogUpdate { enabled: Some(false), ..SlowLogUpdate::default() });
        log.record(Duration::from_secs(9), true, |_| json!({}));
        assert_eq!(log.stats()["total"], 0);
        assert_eq!(
            log.config(),
            json!({ "enabled": false, "thresholdMs": 5, "buffer": 1, "capture": false })
        );
    }
}
