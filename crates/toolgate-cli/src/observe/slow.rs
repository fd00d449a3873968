//! The newest of what took too long.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::lock;
use crate::clock::{iso8601, unix_millis};

/// How slow is slow, unless somebody says otherwise.
const THRESHOLD: u64 = 1000;

/// How many are kept, unless somebody says otherwise.
const KEPT: usize = 200;

/// How many can be kept at most.
pub(crate) const MOST: usize = 10_000;

/// What took too long, newest last, and how much was looked at.
pub(crate) struct Slow {
    is_enabled: AtomicBool,
    /// Whether the words of a sample are kept: the text of a statement, a query string.
    captures: AtomicBool,
    threshold: AtomicU64,
    kept: AtomicUsize,
    n_seen: AtomicU64,
    n_slow: AtomicU64,
    n_failed: AtomicU64,
    /// Of all that were seen, in microseconds.
    sum: AtomicU64,
    longest: AtomicU64,
    samples: Mutex<VecDeque<Sample>>,
}

struct Sample {
    at: u64,
    millis: f64,
    about: Map<String, Value>,
}

/// Another setting, as far as it is said.
#[derive(Debug, Default)]
pub(crate) struct Setting {
    pub(crate) enabled: Option<bool>,
    pub(crate) threshold: Option<u64>,
    pub(crate) kept: Option<usize>,
    pub(crate) captures: Option<bool>,
}

impl Slow {
    pub(crate) fn new(captures: bool) -> Slow {
        Slow {
            is_enabled: AtomicBool::new(true),
            captures: AtomicBool::new(captures),
            threshold: AtomicU64::new(THRESHOLD),
            kept: AtomicUsize::new(KEPT),
            n_seen: AtomicU64::new(0),
            n_slow: AtomicU64::new(0),
            n_failed: AtomicU64::new(0),
            sum: AtomicU64::new(0),
            longest: AtomicU64::new(0),
            samples: Mutex::default(),
        }
    }

    /// Something has ended. `about` is asked for what is worth keeping only if it was slow; it is told whether words may
    /// be kept.
    #[inline]
    pub(crate) fn note(&self, took: Duration, is_good: bool, about: impl FnOnce(bool) -> Value) {
        if !self.is_enabled.load(Relaxed) {
            return;
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.n_seen.fetch_add(1, Relaxed);
        self.sum.fetch_add(micros, Relaxed);
        if !is_good {
            self.n_failed.fetch_add(1, Relaxed);
        }
        if micros > self.longest.load(Relaxed) {
            self.longest.fetch_max(micros, Relaxed);
        }
        if micros >= self.threshold.load(Relaxed).saturating_mul(1000) {
            self.keep(micros, about(self.captures.load(Relaxed)));
        }
    }

    #[cold]
    fn keep(&self, micros: u64, about: Value) {
        self.n_slow.fetch_add(1, Relaxed);
        let Value::Object(about) = about else { return };
        let kept = self.kept.load(Relaxed);
        let mut samples = lock(&self.samples);
        // When it is full, the oldest goes.
        while samples.len() >= kept.max(1) {
            samples.pop_front();
        }
        samples.push_back(Sample { at: unix_millis(), millis: micros as f64 / 1000.0, about });
    }

    /// The newest first, those since a moment only.
    pub(crate) fn newest(&self, limit: usize, since: u64) -> Vec<Value> {
        let samples = lock(&self.samples);
        let newest = samples.iter().rev().filter(|sample| sample.at >= since).take(limit);
        let shown = newest.map(|sample| {
            let mut shown = json!({ "at": iso8601(sample.at), "durationMs": sample.millis });
            if let Some(members) = shown.as_object_mut() {
                members.extend(sample.about.clone());
            }
            shown
        });
        shown.collect()
    }

    /// How many are kept that happened since a moment.
    pub(crate) fn count_since(&self, since: u64) -> usize {
        lock(&self.samples).iter().filter(|sample| sample.at >= since).count()
    }

    pub(crate) fn stats(&self) -> Value {
        let (seen, sum) = (self.n_seen.load(Relaxed), self.sum.load(Relaxed));
        let average = if seen == 0 { 0.0 } else { sum as f64 / seen as f64 / 1000.0 };
        json!({
            "total": seen,
            "slow": self.n_slow.load(Relaxed),
            "failed": self.n_failed.load(Relaxed),
            "avgMs": average,
            "maxMs": self.longest.load(Relaxed) as f64 / 1000.0,
            "buffered": lock(&self.samples).len(),
            "thresholdMs": self.threshold.load(Relaxed),
        })
    }

    pub(crate) fn config(&self) -> Value {
        json!({
            "enabled": self.is_enabled.load(Relaxed),
            "thresholdMs": self.threshold.load(Relaxed),
            "buffer": self.kept.load(Relaxed),
            "capture": self.captures.load(Relaxed),
        })
    }

    pub(crate) fn set(&self, setting: &Setting) {
        if let Some(enabled) = setting.enabled {
            self.is_enabled.store(enabled, Relaxed);
        }
        if let Some(captures) = setting.captures {
            self.captures.store(captures, Relaxed);
        }
        if let Some(threshold) = setting.threshold {
            self.threshold.store(threshold, Relaxed);
        }
        if let Some(kept) = setting.kept {
            let kept = kept.clamp(1, MOST);
            self.kept.store(kept, Relaxed);
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
        for number in [&self.n_seen, &self.n_slow, &self.n_failed, &self.sum, &self.longest] {
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
        let slow = Slow::new(false);
        slow.note(Duration::from_millis(999), true, |_| unreachable!("it was not slow"));
        for n in 0..KEPT + 5 {
            slow.note(Duration::from_secs(1), n > 0, |_| json!({ "n": n }));
        }
        let kept = slow.newest(usize::MAX, 0);
        assert_eq!(kept.len(), KEPT);
        assert_eq!((&kept[0]["n"], &kept[KEPT - 1]["n"]), (&json!(KEPT + 4), &json!(5)));
        assert_eq!(slow.stats()["total"], KEPT + 6);
        assert_eq!(slow.stats()["slow"], KEPT + 5);
        assert_eq!(slow.stats()["failed"], 1);
        assert!(slow.newest(3, u64::MAX).is_empty(), "nothing happened since then");
    }

    #[test]
    fn it_can_be_tuned_and_cleared_while_it_runs() {
        let slow = Slow::new(true);
        slow.set(&Setting { threshold: Some(5), kept: Some(2), captures: Some(false), enabled: None });
        for n in 0..4 {
            slow.note(Duration::from_millis(5), true, |captures| json!({ "n": n, "text": captures }));
        }
        assert_eq!(slow.newest(9, 0).len(), 2);
        assert_eq!(slow.newest(1, 0)[0]["text"], false);
        slow.set(&Setting { kept: Some(1), ..Setting::default() });
        assert_eq!(slow.newest(9, 0).len(), 1);
        assert_eq!(slow.clear(), 1);
        assert_eq!(slow.stats()["total"], 0);
        slow.set(&Setting { enabled: Some(false), ..Setting::default() });
        slow.note(Duration::from_secs(9), true, |_| json!({}));
        assert_eq!(slow.stats()["total"], 0);
        assert_eq!(
            slow.config(),
            json!({ "enabled": false, "thresholdMs": 5, "buffer": 1, "capture": false })
        );
    }
}
