//! The newest of what took too long.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::clock::{format_iso8601, unix_millis};
use crate::sync::lock;

/// How slow is slow, unless somebody says otherwise.
const DEFAULT_THRESHOLD_MILLIS: u64 = 1000;

/// How many are kept, unless somebody says otherwise.
const DEFAULT_CAPACITY: usize = 200;

/// How many can be kept at most.
pub(crate) const MAX_CAPACITY: usize = 10_000;

/// What took too long, newest last, and how much was looked at.
pub(crate) struct SlowLog {
    is_enabled: AtomicBool,
    /// Whether the words of a sample are kept: the text of a statement, a query string.
    captures_text: AtomicBool,
    threshold_millis: AtomicU64,
    capacity: AtomicUsize,
    n_total: AtomicU64,
    n_slow: AtomicU64,
    n_failed: AtomicU64,
    /// Of all that were seen, in microseconds.
    total_micros: AtomicU64,
    max_micros: AtomicU64,
    samples: Mutex<VecDeque<Sample>>,
}

struct Sample {
    timestamp: u64,
    millis: f64,
    details: Map<String, Value>,
}

/// Another setting, as far as it is said.
#[derive(Debug, Default)]
pub(crate) struct SlowLogUpdate {
    pub(crate) enabled: Option<bool>,
    pub(crate) threshold_millis: Option<u64>,
    pub(crate) capacity: Option<usize>,
    pub(crate) captures_text: Option<bool>,
}

impl SlowLog {
    pub(crate) fn new(captures: bool) -> SlowLog {
        SlowLog {
            is_enabled: AtomicBool::new(true),
            captures_text: AtomicBool::new(captures),
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

    /// Something has ended. `about` is asked for what is worth keeping only if it was slow; it is told whether words may
    /// be kept.
    #[inline]
    pub(crate) fn record(&self, took: Duration, is_good: bool, about: impl FnOnce(bool) -> Value) {
        if !self.is_enabled.load(Relaxed) {
            return;
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.n_total.fetch_add(1, Relaxed);
        self.total_micros.fetch_add(micros, Relaxed);
        if !is_good {
            self.n_failed.fetch_add(1, Relaxed);
        }
        if micros > self.max_micros.load(Relaxed) {
            self.max_micros.fetch_max(micros, Relaxed);
        }
        if micros >= self.threshold_millis.load(Relaxed).saturating_mul(1000) {
            self.push_sample(micros, about(self.captures_text.load(Relaxed)));
        }
    }

    #[cold]
    fn push_sample(&self, micros: u64, about: Value) {
        self.n_slow.fetch_add(1, Relaxed);
        let Value::Object(about) = about else { return };
        let kept = self.capacity.load(Relaxed);
        let mut samples = lock(&self.samples);
        // When it is full, the oldest goes.
        while samples.len() >= kept.max(1) {
            samples.pop_front();
        }
        samples.push_back(Sample {
            timestamp: unix_millis(),
            millis: micros as f64 / 1000.0,
            details: about,
        });
    }

    /// The newest first, those since a moment only.
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

    /// How many are kept that happened since a moment.
    pub(crate) fn count_since(&self, since: u64) -> usize {
        lock(&self.samples).iter().filter(|sample| sample.timestamp >= since).count()
    }

    pub(crate) fn stats(&self) -> Value {
        let (seen, sum) = (self.n_total.load(Relaxed), self.total_micros.load(Relaxed));
        let average = if seen == 0 { 0.0 } else { sum as f64 / seen as f64 / 1000.0 };
        json!({
            "total": seen,
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

    pub(crate) fn update(&self, setting: &SlowLogUpdate) {
        if let Some(enabled) = setting.enabled {
            self.is_enabled.store(enabled, Relaxed);
        }
        if let Some(captures) = setting.captures_text {
            self.captures_text.store(captures, Relaxed);
        }
        if let Some(threshold) = setting.threshold_millis {
            self.threshold_millis.store(threshold, Relaxed);
        }
        if let Some(kept) = setting.capacity {
            let kept = kept.clamp(1, MAX_CAPACITY);
            self.capacity.store(kept, Relaxed);
            let mut samples = lock(&self.samples);
            let surplus = samples.len().saturating_sub(kept);
            samples.drain(..surplus);
            samples.shrink_to_fit();
        }
    }

    /// Gives back memory that is not needed.
    pub(crate) fn shrink(&self) {
        lock(&self.samples).shrink_to_fit();
    }

    /// Forgets everything; says how many samples there were.
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
    fn only_what_is_slow_is_kept_and_only_the_newest_of_it() {
        let slow = SlowLog::new(false);
        slow.record(Duration::from_millis(999), true, |_| unreachable!("it was not slow"));
        for n in 0..DEFAULT_CAPACITY + 5 {
            slow.record(Duration::from_secs(1), n > 0, |_| json!({ "n": n }));
        }
        let kept = slow.newest(usize::MAX, 0);
        assert_eq!(kept.len(), DEFAULT_CAPACITY);
        assert_eq!(
            (&kept[0]["n"], &kept[DEFAULT_CAPACITY - 1]["n"]),
            (&json!(DEFAULT_CAPACITY + 4), &json!(5))
        );
        assert_eq!(slow.stats()["total"], DEFAULT_CAPACITY + 6);
        assert_eq!(slow.stats()["slow"], DEFAULT_CAPACITY + 5);
        assert_eq!(slow.stats()["failed"], 1);
        assert!(slow.newest(3, u64::MAX).is_empty(), "nothing happened since then");
    }

    #[test]
    fn it_can_be_tuned_and_cleared_while_it_runs() {
        let slow = SlowLog::new(true);
        slow.update(&SlowLogUpdate {
            threshold_millis: Some(5),
            capacity: Some(2),
            captures_text: Some(false),
            enabled: None,
        });
        for n in 0..4 {
            slow.record(Duration::from_millis(5), true, |captures| json!({ "n": n, "text": captures }));
        }
        assert_eq!(slow.newest(9, 0).len(), 2);
        assert_eq!(slow.newest(1, 0)[0]["text"], false);
        slow.update(&SlowLogUpdate { capacity: Some(1), ..SlowLogUpdate::default() });
        assert_eq!(slow.newest(9, 0).len(), 1);
        assert_eq!(slow.clear(), 1);
        assert_eq!(slow.stats()["total"], 0);
        slow.update(&SlowLogUpdate { enabled: Some(false), ..SlowLogUpdate::default() });
        slow.record(Duration::from_secs(9), true, |_| json!({}));
        assert_eq!(slow.stats()["total"], 0);
        assert_eq!(
            slow.config(),
            json!({ "enabled": false, "thresholdMs": 5, "buffer": 1, "capture": false })
        );
    }
}
