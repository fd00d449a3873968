//! A latency histogram with buckets of one to two percent, from a nanosecond to minutes, in a fixed 16 KiB.

use std::time::Duration;

/// Buckets within each power of two.
const N_STEPS: u64 = 64;
const N_BUCKETS: usize = 64 * N_STEPS as usize;

pub(crate) struct Histogram {
    buckets: Vec<u32>,
    n_values: u64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self { buckets: vec![0; N_BUCKETS], n_values: 0 }
    }

    pub(crate) fn add(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanos)] += 1;
        self.n_values += 1;
    }

    /// The latency in microseconds that this share of the values does not exceed; zero without values.
    pub(crate) fn micros_at(&self, share: f64) -> f64 {
        let wanted = (self.n_values as f64 * share).ceil() as u64;
        let mut n_seen = 0;
        for (index, n_here) in self.buckets.iter().enumerate() {
            n_seen += u64::from(*n_here);
            if n_seen >= wanted.max(1) {
                return lower_bound(index) as f64 / 1000.0;
            }
        }
        0.0
    }
}

/// Values below [`N_STEPS`] have a bucket each; above, each power of two is divided into [`N_STEPS`] buckets.
fn bucket(nanos: u64) -> usize {
    let shift = (64 - nanos.leading_zeros()).saturating_sub(N_STEPS.ilog2() + 1);
    let index = u64::from(shift) * N_STEPS + (nanos >> shift);
    usize::try_from(index).map_or(N_BUCKETS - 1, |index| index.min(N_BUCKETS - 1))
}

fn lower_bound(index: usize) -> u64 {
    let index = index as u64;
    match (index / N_STEPS).checked_sub(1) {
        None | Some(0) => index,
        Some(shift) => (index % N_STEPS + N_STEPS) << shift,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_their_bounds_within_two_percent() {
        for nanos in [0, 1, 63, 64, 65, 127, 128, 1000, 123_456, 44_000_000, 60_000_000_000] {
            let bound = lower_bound(bucket(nanos));
            assert!(bound <= nanos && nanos - bound <= nanos / 50, "{nanos} is in the bucket of {bound}");
        }
    }

    #[test]
    fn quantiles_of_a_hundred_values() {
        let mut histogram = Histogram::new();
        (1..=100).for_each(|micros| histogram.add(Duration::from_micros(micros)));
        assert!((histogram.micros_at(0.5) - 50.0).abs() < 1.0);
        assert!((histogram.micros_at(0.99) - 99.0).abs() < 2.0);
    }
}
