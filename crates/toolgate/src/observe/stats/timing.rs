//! Durations: sums, extremes, the newest thousand samples, and a histogram for percentiles.
//!
//! Everything is atomic and nothing waits. A reader may see a sample that is counted but not yet written; then its slot
//! holds an old sample, or none. Each shard has a [`Timing`] of its own; readers combine them.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::util::sharded::ShardId;

/// How many of the newest samples readers get.
pub(crate) const MAX_SAMPLES: usize = 1000;

/// Slots for samples: more than [`MAX_SAMPLES`], and a power of two, so that no division is needed to find a slot.
const SAMPLE_SLOTS: usize = 1024;

/// Sixteen buckets for each doubling: a percentile is off by 3 % at most.
const BUCKETS_PER_DOUBLING: u32 = 16;

/// The narrowest bucket of the histogram spans 2^6 = 64 ns.
const FINEST_BUCKET_BITS: u32 = 6;

/// Doublings up to 2^42 ns, a bit more than an hour.
const DOUBLINGS: u32 = 42 - FINEST_BUCKET_BITS - BUCKETS_PER_DOUBLING.ilog2() + 1;

const N_BUCKETS: usize = (DOUBLINGS * BUCKETS_PER_DOUBLING) as usize;

/// Durations of one kind, in nanoseconds.
pub(crate) struct Timing {
    count: AtomicU64,
    sum: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
    /// Allocated with the first sample: 20 KiB.
    samples: OnceLock<Box<Samples>>,
}

struct Samples {
    /// End time, and duration plus one: zero marks a slot that was never written.
    newest: Box<[[AtomicU64; 2]]>,
    buckets: Box<[AtomicU64]>,
}

/// One duration and its histogram bucket, which is computed once and recorded up to twice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) nanos: u64,
    /// End time on the clock.
    ended_nanos: u64,
    bucket: usize,
}

impl Sample {
    pub(crate) fn new(ended_nanos: u64, nanos: u64) -> Sample {
        Sample { nanos, ended_nanos, bucket: bucket_of(nanos) }
    }
}

/// Key figures in milliseconds; all zero before the first sample.
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

    pub(crate) fn record(&self, shard_id: ShardId, sample: Sample) {
        let Sample { nanos, ended_nanos, bucket } = sample;
        let samples = self.samples.get_or_init(|| {
            let zero = || AtomicU64::new(0);
            let newest = (0..SAMPLE_SLOTS).map(|_| [zero(), zero()]).collect();
            Box::new(Samples { newest, buckets: (0..N_BUCKETS).map(|_| zero()).collect() })
        });
        // Extremes change rarely, and a load is cheaper than a write.
        if nanos < self.min.load(Relaxed) {
            self.min.fetch_min(nanos, Relaxed);
        }
        if nanos > self.max.load(Relaxed) {
            self.max.fetch_max(nanos, Relaxed);
        }
        shard_id.add(&self.sum, nanos);
        shard_id.add(&samples.buckets[bucket], 1);
        // After the extremes: a reader that sees this count sees the extremes of all counted samples.
        let number = shard_id.increment(&self.count);
        let [ended, duration] = &samples.newest[slot_of_sample(number)];
        ended.store(ended_nanos, Relaxed);
        duration.store(nanos.saturating_add(1), Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Acquire)
    }
}

/// Totals over several [`Timing`]s.
#[derive(Default)]
pub(crate) struct TimingTotals {
    pub(crate) count: u64,
    sum: u64,
    min: u64,
    max: u64,
}

impl TimingTotals {
    pub(crate) fn from<'a>(timings: impl Iterator<Item = &'a Timing>) -> TimingTotals {
        let mut totals = TimingTotals { min: u64::MAX, ..TimingTotals::default() };
        for timing in timings {
            totals.count += timing.count();
            totals.sum = totals.sum.wrapping_add(timing.sum.load(Relaxed));
            totals.min = totals.min.min(timing.min.load(Relaxed));
            totals.max = totals.max.max(timing.max.load(Relaxed));
        }
        totals
    }

    /// Returns the average in milliseconds.
    pub(crate) fn average(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        // The sum may include samples that were recorded after the count was read.
        let average = self.sum as f64 / self.count as f64;
        average.min(self.max as f64).max(self.min as f64) / 1e6
    }
}

/// Combines the key figures of several [`Timing`]s.
pub(crate) fn summarize<'a>(timings: impl Iterator<Item = &'a Timing> + Clone) -> TimingSummary {
    let totals = TimingTotals::from(timings.clone());
    if totals.count == 0 {
        return TimingSummary::default();
    }
    let mut buckets = vec![0; N_BUCKETS];
    for samples in timings.filter_map(|timing| timing.samples.get()) {
        for (bucket, count) in buckets.iter_mut().zip(&samples.buckets) {
            *bucket += count.load(Relaxed);
        }
    }
    let (min, max) = (millis(totals.min), millis(totals.max));
    let percentile = |share: f64| percentile(&buckets, share).min(max).max(min);
    let (p50, p95, p99) = (percentile(0.50), percentile(0.95), percentile(0.99));
    TimingSummary { avg: totals.average().min(max).max(min), min, max, p50, p95, p99 }
}

/// Returns the newest samples in milliseconds, oldest first.
pub(crate) fn newest_samples<'a>(timings: impl Iterator<Item = &'a Timing>) -> Vec<f64> {
    let mut all = Vec::new();
    for timing in timings {
        let Some(samples) = timing.samples.get() else { continue };
        let count = timing.count();
        let newest = (count.saturating_sub(MAX_SAMPLES as u64)..count)
            .map(|number| &samples.newest[slot_of_sample(number)]);
        let newest = newest.map(|[ended, duration]| (ended.load(Relaxed), duration.load(Relaxed)));
        all.extend(newest.filter(|(_, duration)| *duration > 0));
    }
    // A stable sort: samples of one shard with the same end time keep their order.
    all.sort_by_key(|(ended, _)| *ended);
    let newest = &all[all.len().saturating_sub(MAX_SAMPLES)..];
    newest.iter().map(|(_, duration)| millis(duration - 1)).collect()
}

fn slot_of_sample(number: u64) -> usize {
    number as usize & (SAMPLE_SLOTS - 1)
}

/// Converts nanoseconds to milliseconds.
pub(crate) fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// Returns the histogram bucket of a duration: linear up to sixteen times the narrowest, then sixteen per doubling.
fn bucket_of(nanos: u64) -> usize {
    let value = nanos >> FINEST_BUCKET_BITS;
    let doubling = (value | 1).ilog2().saturating_sub(BUCKETS_PER_DOUBLING.ilog2());
    let bucket = u64::from(doubling * BUCKETS_PER_DOUBLING) + (value >> doubling);
    (bucket as usize).min(N_BUCKETS - 1)
}

/// Returns the middle of a bucket, in milliseconds.
fn bucket_midpoint(bucket: usize) -> f64 {
    let (bucket, per_doubling) = (bucket as u64, u64::from(BUCKETS_PER_DOUBLING));
    let doubling = (bucket / per_doubling).saturating_sub(1);
    let first = bucket - doubling * per_doubling;
    (first as f64 + 0.5) * 2f64.powi(doubling as i32) * f64::from(1 << FINEST_BUCKET_BITS) / 1e6
}

fn percentile(buckets: &[u64], share: f64) -> f64 {
    let total: u64 = buckets.iter().sum();
    let target = ((total as f64 * share).ceil() as u64).max(1);
    let mut seen = 0;
    let reached = buckets.iter().position(|count| {
        seen += count;
        seen >= target
    });
    reached.map_or(0.0, bucket_midpoint)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percentiles_are_within_the_error_bound() {
        let timing = Timing::new();
        for micros in 1..=10_000 {
            timing.record(ShardId::current(), Sample::new(0, micros * 1000));
        }
        let times = summarize([&timing].into_iter());
        for (name, actual, expected) in
            [("p50", times.p50, 5.0), ("p95", times.p95, 9.5), ("p99", times.p99, 9.9)]
        {
            assert!((actual - expected).abs() / expected < 0.035, "{name} is {actual}, expected {expected}");
        }
        assert_eq!((times.min, times.max), (0.001, 10.0));
        assert!((times.avg - 5.0005).abs() < 1e-9);
    }

    #[test]
    fn the_newest_thousand_samples_are_kept_in_order() {
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
    fn several_timings_are_combined() {
        let timings = [Timing::new(), Timing::new(), Timing::new()];
        for milli in 0..3000 {
            timings[milli as usize % 2].record(ShardId::current(), Sample::new(milli, milli * 1_000_000));
        }
        let newest = newest_samples(timings.iter());
        assert!(
            newest.len() == MAX_SAMPLES
                && newest.iter().zip(2000..).all(|(sample, milli)| *sample == f64::from(milli))
        );
        let times = summarize(timings.iter());
        assert_eq!((times.min, times.max, times.avg), (0.0, 2999.0, 1499.5));
        assert!((times.p50 - 1500.0).abs() / 1500.0 < 0.035, "{}", times.p50);
    }

    #[test]
    fn durations_beyond_the_histogram_are_in_its_last_bucket() {
        let timing = Timing::new();
        timing.record(ShardId::current(), Sample::new(0, u64::MAX / 2));
        timing.record(ShardId::current(), Sample::new(0, u64::MAX / 2));
        assert_eq!(bucket_of(u64::MAX), N_BUCKETS - 1);
        let times = summarize([&timing].into_iter());
        assert_eq!(times.p99, times.max);
    }

    proptest! {
        #[test]
        fn a_bucket_is_no_wider_than_a_sixteenth(nanos in 1024u64..(1 << 42)) {
            let middle = bucket_midpoint(bucket_of(nanos)) * 1e6;
            prop_assert!((middle - nanos as f64).abs() / (nanos as f64) < 0.0334, "{nanos} is reported as {middle}");
        }

        #[test]
        fn buckets_rise_with_duration(a: u64, b: u64) {
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
