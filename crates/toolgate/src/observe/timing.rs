//! How long things took: sums, extremes, the newest thousand samples, and a histogram for percentiles.
//!
//! All of it is atomic, none of it waits for anybody. A reader may see a sample counted and not yet written;
//! it is left out.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// How many samples are kept.
pub(crate) const KEPT: usize = 1000;

/// Places for them: a few more, and a power of two, so that the place of a sample is found without dividing.
const PLACES: usize = 1024;

/// Sixteen steps for each doubling: a percentile is off by 3 % at most.
const STEPS: u32 = 16;

/// The finest step of the histogram is 64 ns.
const FINEST: u32 = 6;

/// Doublings up to an hour and a bit: 2^42 ns.
const DOUBLINGS: u32 = 42 - FINEST - STEPS.ilog2() + 1;

const N_STEPS: usize = (DOUBLINGS * STEPS) as usize;

/// Times of one kind, in nanoseconds.
pub(crate) struct Timing {
    count: AtomicU64,
    sum: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
    /// Made with the first sample: 12 KiB.
    samples: OnceLock<Box<Samples>>,
}

struct Samples {
    /// One more than the sample, so that zero is a place not written yet.
    newest: Box<[AtomicU64]>,
    steps: Box<[AtomicU64]>,
}

/// One time, and where it stands in the histogram: reckoned once, recorded perhaps twice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) nanos: u64,
    step: usize,
}

impl Sample {
    pub(crate) fn new(nanos: u64) -> Sample {
        Sample { nanos, step: step_of(nanos) }
    }
}

/// What was measured, in milliseconds; all zero before anything was.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Times {
    pub(crate) avg: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
}

impl Timing {
    pub(crate) fn new() -> Timing {
        Timing {
            count: AtomicU64::new(0),
            sum: AtomicU64::new(0),
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
            samples: OnceLock::new(),
        }
    }

    pub(crate) fn record(&self, sample: Sample) {
        let Sample { nanos, step } = sample;
        let samples = self.samples.get_or_init(|| {
            let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
            Box::new(Samples { newest: zeros(PLACES), steps: zeros(N_STEPS) })
        });
        // Extremes change seldom: looking is cheaper than writing.
        if nanos < self.min.load(Relaxed) {
            self.min.fetch_min(nanos, Relaxed);
        }
        if nanos > self.max.load(Relaxed) {
            self.max.fetch_max(nanos, Relaxed);
        }
        self.sum.fetch_add(nanos, Relaxed);
        // Whoever sees the count sees the extremes of all that are counted.
        let number = self.count.fetch_add(1, Release);
        samples.newest[place_of(number)].store(nanos.saturating_add(1), Relaxed);
        samples.steps[step].fetch_add(1, Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Acquire)
    }

    /// The average, in milliseconds.
    pub(crate) fn average(&self) -> f64 {
        let count = self.count();
        if count == 0 {
            return 0.0;
        }
        // Read while others write, the sum may belong to more samples than the count.
        let average = self.sum.load(Relaxed) as f64 / count as f64;
        average.min(self.max.load(Relaxed) as f64).max(self.min.load(Relaxed) as f64) / 1e6
    }

    pub(crate) fn times(&self) -> Times {
        let Some(samples) = self.samples.get().filter(|_| self.count() > 0) else {
            return Times::default();
        };
        let (min, max) = (millis(self.min.load(Relaxed)), millis(self.max.load(Relaxed)));
        let steps: Vec<u64> = samples.steps.iter().map(|count| count.load(Relaxed)).collect();
        let percentile = |share: f64| percentile(&steps, share).min(max).max(min);
        let (p50, p95, p99) = (percentile(0.50), percentile(0.95), percentile(0.99));
        Times { avg: self.average().min(max).max(min), min, max, p50, p95, p99 }
    }

    /// The newest samples in milliseconds, the oldest of them first.
    pub(crate) fn newest(&self) -> Vec<f64> {
        let Some(samples) = self.samples.get() else {
            return Vec::new();
        };
        let count = self.count();
        let newest = count.saturating_sub(KEPT as u64)..count;
        let written = newest.map(|number| samples.newest[place_of(number)].load(Relaxed));
        written.filter(|sample| *sample > 0).map(|sample| millis(sample - 1)).collect()
    }
}

fn place_of(number: u64) -> usize {
    number as usize & (PLACES - 1)
}

/// Nanoseconds as milliseconds.
pub(crate) fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// The step of a time: linear below sixteen of the finest, then sixteen to each doubling.
fn step_of(nanos: u64) -> usize {
    let value = nanos >> FINEST;
    let doubling = (value | 1).ilog2().saturating_sub(STEPS.ilog2());
    let step = u64::from(doubling * STEPS) + (value >> doubling);
    (step as usize).min(N_STEPS - 1)
}

/// The time in the middle of a step, in milliseconds.
fn middle_of(step: usize) -> f64 {
    let (step, steps) = (step as u64, u64::from(STEPS));
    let doubling = (step / steps).saturating_sub(1);
    let first = step - doubling * steps;
    (first as f64 + 0.5) * 2f64.powi(doubling as i32) * f64::from(1 << FINEST) / 1e6
}

fn percentile(steps: &[u64], share: f64) -> f64 {
    let total: u64 = steps.iter().sum();
    let wanted = ((total as f64 * share).ceil() as u64).max(1);
    let mut seen = 0;
    let reached = steps.iter().position(|count| {
        seen += count;
        seen >= wanted
    });
    reached.map_or(0.0, middle_of)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percentiles_are_near_the_truth() {
        let timing = Timing::new();
        for micros in 1..=10_000 {
            timing.record(Sample::new(micros * 1000));
        }
        let times = timing.times();
        for (name, is, should) in [("p50", times.p50, 5.0), ("p95", times.p95, 9.5), ("p99", times.p99, 9.9)]
        {
            assert!((is - should).abs() / should < 0.035, "{name} is {is}, should be {should}");
        }
        assert_eq!((times.min, times.max), (0.001, 10.0));
        assert!((times.avg - 5.0005).abs() < 1e-9);
    }

    #[test]
    fn the_newest_thousand_are_kept_in_order() {
        let timing = Timing::new();
        assert_eq!(timing.newest(), Vec::<f64>::new());
        assert_eq!(timing.times(), Times::default());
        for milli in 0..1500 {
            timing.record(Sample::new(milli * 1_000_000));
        }
        let newest = timing.newest();
        assert_eq!(newest.len(), KEPT);
        assert!(newest.iter().zip(500..).all(|(sample, milli)| *sample == f64::from(milli)), "{newest:?}");
    }

    #[test]
    fn whatever_is_too_long_for_the_histogram_is_in_its_last_step() {
        let timing = Timing::new();
        timing.record(Sample::new(u64::MAX / 2));
        timing.record(Sample::new(u64::MAX / 2));
        assert_eq!(step_of(u64::MAX), N_STEPS - 1);
        assert_eq!(timing.times().p99, timing.times().max);
    }

    proptest! {
        #[test]
        fn a_step_is_no_wider_than_a_sixteenth(nanos in 1024u64..(1 << 42)) {
            let middle = middle_of(step_of(nanos)) * 1e6;
            prop_assert!((middle - nanos as f64).abs() / (nanos as f64) < 0.0334, "{nanos} is told as {middle}");
        }

        #[test]
        fn steps_rise_with_time(a: u64, b: u64) {
            prop_assert_eq!(step_of(a.min(b)).cmp(&step_of(a.max(b))).is_gt(), false);
        }

        #[test]
        fn the_figures_are_in_order(all in prop::collection::vec(0u64..(1 << 44), 1..50)) {
            let timing = Timing::new();
            all.iter().for_each(|nanos| timing.record(Sample::new(*nanos)));
            let Times { avg, min, max, p50, p95, p99 } = timing.times();
            prop_assert!(min <= avg && avg <= max);
            prop_assert!(min <= p50 && p50 <= p95 && p95 <= p99 && p99 <= max);
        }
    }
}
