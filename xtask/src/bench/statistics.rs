//! Medians, and whether memory grows.

/// The middle value; of an even number, the upper one of the two.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// The slope of the least-squares line.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let n_points = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n_points;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let over: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let under: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    (under > 0.0).then(|| over / under)
}

/// How memory changes under load.
pub(crate) struct MemoryTrend {
    /// KiB per minute, over the second half.
    pub(crate) slope: f64,
    /// KiB by which the median of the last quarter exceeds that of the first.
    pub(crate) growth: f64,
}

/// Memory counts as flat up to these bounds. One leaked byte per request would exceed them a thousandfold.
pub(crate) const MAX_SLOPE_KIB_PER_MINUTE: f64 = 16.0;
pub(crate) const MAX_GROWTH_KIB: f64 = 256.0;

impl MemoryTrend {
    /// From pairs of seconds and KiB; `None` if there are too few.
    pub(crate) fn from_samples(samples: &[(f64, f64)]) -> Option<Self> {
        let quarter = samples.len() / 4;
        if quarter < 2 {
            return None;
        }
        let minutes: Vec<(f64, f64)> = samples.iter().map(|(seconds, kib)| (seconds / 60.0, *kib)).collect();
        let middle = |part: &[(f64, f64)]| median(part.iter().map(|(_, kib)| *kib));
        let first = middle(&samples[..quarter])?;
        let last = middle(&samples[samples.len() - quarter..])?;
        Some(Self { slope: slope(&minutes[samples.len() / 2..])?, growth: last - first })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([1.0, 2.0, 3.0, 4.0]), Some(3.0));
        assert_eq!(median([]), None);
    }

    #[test]
    fn slopes() {
        assert_eq!(slope(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]), Some(2.0));
        assert_eq!(slope(&[(0.0, 5.0), (1.0, 5.0)]), Some(0.0));
        // Noise around a constant level has no slope.
        assert_eq!(slope(&[(0.0, 4.0), (1.0, 6.0), (2.0, 6.0), (3.0, 4.0)]), Some(0.0));
        assert_eq!(slope(&[(1.0, 5.0)]), None);
    }

    #[test]
    fn a_plateau_is_distinguished_from_growth() {
        let samples = |of: fn(f64) -> f64| (0..300).map(|n| f64::from(n) * 2.0).map(|s| (s, of(s))).collect();
        let steady: Vec<(f64, f64)> = samples(|seconds| 6000.0 + if seconds < 20.0 { seconds } else { 20.0 });
        let course = MemoryTrend::from_samples(&steady).unwrap();
        assert!(course.slope.abs() < 1e-9 && course.growth == 0.0);
        let growing: Vec<(f64, f64)> = samples(|seconds| 6000.0 + seconds);
        let course = MemoryTrend::from_samples(&growing).unwrap();
        assert!((course.slope - 60.0).abs() < 1e-6, "{}", course.slope);
        assert_eq!(course.growth, 450.0);
        assert!(MemoryTrend::from_samples(&growing[..7]).is_none());
    }
}
