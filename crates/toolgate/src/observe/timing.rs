//! How long things took: sums, extremes, the newest thousand samples, and a histogram for percentiles.
//!
//! All of it is atomic, none of it waits for anybody. A reader may see a sample counted and not yet written: then one of
//! long ago stands in its place, or none. Every desk has a sheet of its own; what is told is gathered from all of them.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::util::sharded::ShardId;

/// How many samples are kept.
pub(crate) const MAX_SAMPLES: usize = 1000;

/// Places for them: a few more, and a power of two, so that the place of a sample is found without dividing.
const SAMPLE_SLOTS: usize = 1024;

/// Sixteen steps for each doubling: a percentile is off by 3 % at most.
const BUCKETS_PER_DOUBLING: u32 = 16;

/// The finest step of the histogram is 64 ns.
const FINEST_BUCKET_BITS: u32 = 6;

/// Doublings up to an hour and a bit: 2^42 ns.
const DOUBLINGS: u32 = 42 - FINEST_BUCKET_BITS - BUCKETS_PER_DOUBLING.ilog2() + 1;

const N_BUCKETS: usize = (DOUBLINGS * BUCKETS_PER_DOUBLING) as usize;

/// Times of one kind, in nanoseconds.
pub(crate) struct Timing {
    count: AtomicU64,
    sum: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
    /// Made with the first sample: 20 KiB.
    samples: OnceLock<Box<Samples>>,
}

struct Samples {
    /// When it ended, and one more than it took, so that zero is a place not written yet.
    newest: Box<[[AtomicU64; 2]]>,
    buckets: Box<[AtomicU64]>,
}

/// One time, and where it stands in the histogram: reckoned once, recorded perhaps twice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) nanos: u64,
    /// When it ended.
    ended_nanos: u64,
    bucket: usize,
}

impl Sample {
    pub(crate) fn new(ended_nanos: u64, nanos: u64) -> Sample {
        Sample { nanos, ended_nanos, bucket: bucket_of(nanos) }
    }
}

/// What was measured, in milliseconds; all zero before anything was.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct TimingSummary {
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

    pub(crate) fn record(&self, pen: ShardId, sample: Sample) {
        let Sample { nanos, ended_nanos: at, bucket: step } = sample;
        let samples = self.samples.get_or_init(|| {
            let zero = || AtomicU64::new(0);
            let newest = (0..SAMPLE_SLOTS).map(|_| [zero(), zero()]).collect();
            Box::new(Samples { newest, buckets: (0..N_BUCKETS).map(|_| zero()).collect() })
        });
        // Extremes change seldom: looking is cheaper than writing.
        if nanos < self.min.load(Relaxed) {
            self.min.fetch_min(nanos, Relaxed);
        }
        if nanos > self.max.load(Relaxed) {
            self.max.fetch_max(nanos, Relaxed);
        }
        pen.add(&self.sum, nanos);
        pen.add(&samples.buckets[step], 1);
        // Whoever sees the count sees the extremes of all that are counted.
        let number = pen.increment(&self.count);
        let [ended, took] = &samples.newest[slot_of_sample(number)];
        ended.store(at, Relaxed);
        took.store(nanos.saturating_add(1), Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Acquire)
    }
}

/// What several sheets say together.
#[derive(Default)]
pub(crate) struct TimingTotals {
    pub(crate) count: u64,
    sum: u64,
    min: u64,
    max: u64,
}

impl TimingTotals {
    pub(crate) fn from<'a>(sheets: impl Iterator<Item = &'a Timing>) -> TimingTotals {
        let mut all = TimingTotals { min: u64::MAX, ..TimingTotals::default() };
        for sheet in sheets {
            all.count += sheet.count();
            all.sum = all.sum.wrapping_add(sheet.sum.load(Relaxed));
            all.min = all.min.min(sheet.min.load(Relaxed));
            all.max = all.max.max(sheet.max.load(Relaxed));
        }
        all
    }

    /// The average, in milliseconds.
    pub(crate) fn average(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        // Read while others write, the sum may belong to more samples than the count.
        let average = self.sum as f64 / self.count as f64;
        average.min(self.max as f64).max(self.min as f64) / 1e6
    }
}

pub(crate) fn summarize<'a>(sheets: impl Iterator<Item = &'a Timing> + Clone) -> TimingSummary {
    let all = TimingTotals::from(sheets.clone());
    if all.count == 0 {
        return TimingSummary::default();
    }
    let mut steps = vec![0; N_BUCKETS];
    for samples in sheets.filter_map(|sheet| sheet.samples.get()) {
        for (step, count) in steps.iter_mut().zip(&samples.buckets) {
            *step += count.load(Relaxed);
        }
    }
    let (min, max) = (millis(all.min), millis(all.max));
    let percentile = |share: f64| percentile(&steps, share).min(max).max(min);
    let (p50, p95, p99) = (percentile(0.50), percentile(0.95), percentile(0.99));
    TimingSummary { avg: all.average().min(max).max(min), min, max, p50, p95, p99 }
}

/// The newest samples in milliseconds, the oldest of them first.
pub(crate) fn newest_samples<'a>(sheets: impl Iterator<Item = &'a Timing>) -> Vec<f64> {
    let mut all = Vec::new();
    for sheet in sheets {
        let Some(samples) = sheet.samples.get() else { continue };
        let count = sheet.count();
        let newest = (count.saturating_sub(MAX_SAMPLES as u64)..count)
            .map(|number| &samples.newest[slot_of_sample(number)]);
        let newest = newest.map(|[ended, took]| (ended.load(Relaxed), took.load(Relaxed)));
        all.extend(newest.filter(|(_, took)| *took > 0));
    }
    // Those of one sheet are in their order, and stay in it.
    all.sort_by_key(|(ended, _)| *ended);
    let newest = &all[all.len().saturating_sub(MAX_SAMPLES)..];
    newest.iter().map(|(_, took)| millis(took - 1)).collect()
}

fn slot_of_sample(number: u64) -> usize {
    number as usize & (SAMPLE_SLOTS - 1)
}

/// Nanoseconds as milliseconds.
pub(crate) fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// The step of a time: linear below sixteen of the finest, then sixteen to each doubling.
fn bucket_of(nanos: u64) -> usize {
    let value = nanos >> FINEST_BUCKET_BITS;
    let doubling = (value | 1).ilog2().saturating_sub(BUCKETS_PER_DOUBLING.ilog2());
    let step = u64::from(doubling * BUCKETS_PER_DOUBLING) + (value >> doubling);
    (step as usize).min(N_BUCKETS - 1)
}

/// The time in the middle of a step, in milliseconds.
fn bucket_midpoint(step: usize) -> f64 {
    let (step, steps) = (step as u64, u64::from(BUCKETS_PER_DOUBLING));
    let doubling = (step / steps).saturating_sub(1);
    let first = step - doubling * steps;
    (first as f64 + 0.5) * 2f64.powi(doubling as i32) * f64::from(1 << FINEST_BUCKET_BITS) / 1e6
}

fn percentile(steps: &[u64], share: f64) -> f64 {
    let total: u64 = steps.iter().sum();
    let wanted = ((total as f64 * share).ceil() as u64).max(1);
    let mut seen = 0;
    let reached = steps.iter().position(|count| {
        seen += count;
        seen >= wanted
    });
    reached.map_or(0.0, bucket_midpoint)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percentiles_are_near_the_truth() {
        let timing = Timing::new();
        for micros in 1..=10_000 {
            timing.record(ShardId::current(), Sample::new(0, micros * 1000));
        }
        let times = summarize([&timing].into_iter());
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
        assert_eq!(newest_samples([&timing].into_iter()), Vec::<f64>::new());
        assert_eq!(summarize([&timing].into_iter()), TimingSummary::default());
        for milli in 0..1500 {
            timing.record(ShardId::current(), Sample::new(milli, milli * 1_000_000));
        }
        let newest = newest_samples([&timing].into_iter());
        assert_eq!(newest.len(), MAX_SAMPLES);
        assert!(newest.iter().zip(500..).all(|(sample, milli)| *sample == f64::from(milli)), "{newest:?}");
    }

    #[test]
    fn two_sheets_are_told_as_one() {
        let sheets = [Timing::new(), Timing::new(), Timing::new()];
        for milli in 0..3000 {
            sheets[milli as usize % 2].record(ShardId::current(), Sample::new(milli, milli * 1_000_000));
        }
        let told = newest_samples(sheets.iter());
        assert!(
            told.len() == MAX_SAMPLES
                && told.iter().zip(2000..).all(|(sample, milli)| *sample == f64::from(milli))
        );
        let times = summarize(sheets.iter());
        assert_eq!((times.min, times.max, times.avg), (0.0, 2999.0, 1499.5));
        assert!((times.p50 - 1500.0).abs() / 1500.0 < 0.035, "{}", times.p50);
    }

    #[test]
    fn whatever_is_too_long_for_the_histogram_is_in_its_last_step() {
        let timing = Timing::new();
        timing.record(ShardId::current(), Sample::new(0, u64::MAX / 2));
        timing.record(ShardId::current(), Sample::new(0, u64::MAX / 2));
        assert_eq!(bucket_of(u64::MAX), N_BUCKETS - 1);
        let times = summarize([&timing].into_iter());
        assert_eq!(times.p99, times.max);
    }

    proptest! {
        #[test]
        fn a_step_is_no_wider_than_a_sixteenth(nanos in 1024u64..(1 << 42)) {
            let middle = bucket_midpoint(bucket_of(nanos)) * 1e6;
            prop_assert!((middle - nanos as f64).abs() / (nanos as f64) < 0.0334, "{nanos} is told as {middle}");
        }

        #[test]
        fn steps_rise_with_time(a: u64, b: u64) {
            prop_assert_eq!(bucket_of(a.min(b)).cmp(&bucket_of(a.max(b))).is_gt(), false);
        }

        #[test]
        fn the_figures_are_in_order(all in prop::collection::vec(0u64..(1 << 44), 1..50)) {
            let timing = Timing::new();
            all.iter().for_each(|nanos| timing.record(ShardId::current(), Sample::new(0, *nanos)));
            let TimingSummary { avg, min, max, p50, p95, p99 } = summarize([&timing].into_iter());
            prop_assert!(min <= avg && avg <= max);
            prop_assert!(min <= p50 && p50 <= p95 && p95 <= p99 && p99 <= max);
        }
    }
}
