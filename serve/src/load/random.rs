//! Random numbers of a workload: the same on every machine for a seed.

/// SplitMix64.
pub(super) struct WorkloadRandom(u64);

impl WorkloadRandom {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `count`.
    pub(super) fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }

    /// Returns a number between 0, exclusive, and 1.
    fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Returns a number with the standard normal distribution (Box–Muller).
    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Returns a number with a log-normal distribution.
    pub(super) fn log_normal(&mut self, distribution: LogNormal) -> f64 {
        let LogNormal { median, p95 } = distribution;
        // The 95th percentile of the standard normal distribution.
        let sigma = (p95 / median).ln() / 1.644_853_6;
        median * (sigma * self.normal()).exp()
    }

    /// Returns a number with the gamma distribution of the mean 1 and a shape (Marsaglia and Tsang, 2000); the shape 1 is the
    /// exponential distribution.
    pub(super) fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            // The mean is that of the larger shape times that of the power.
            let power = self.uniform().powf(1.0 / shape);
            return self.gamma_of(shape + 1.0) * power / shape;
        }
        self.gamma_of(shape) / shape
    }

    fn gamma_of(&mut self, shape: f64) -> f64 {
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.uniform().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }
}

/// A log-normal distribution by two of its quantiles.
#[derive(Clone, Copy)]
pub(super) struct LogNormal {
    pub(super) median: f64,
    pub(super) p95: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(mut values: Vec<f64>) -> Vec<f64> {
        values.sort_by(f64::total_cmp);
        values
    }

    #[test]
    fn log_normal_quantiles_are_those_asked_for() {
        let mut random = WorkloadRandom::new(1);
        let distribution = LogNormal { median: 80.0, p95: 900.0 };
        let values = sorted((0..20_000).map(|_| random.log_normal(distribution)).collect());
        assert!((values[10_000] / 80.0 - 1.0).abs() < 0.05, "{}", values[10_000]);
        assert!((values[19_000] / 900.0 - 1.0).abs() < 0.1, "{}", values[19_000]);
    }

    #[test]
    fn gamma_has_the_mean_and_the_variation_of_its_shape() {
        for shape in [0.25, 1.0, 4.0] {
            let mut random = WorkloadRandom::new(2);
            let values: Vec<f64> = (0..50_000).map(|_| random.gamma(shape)).collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
            assert!((mean - 1.0).abs() < 0.05, "{shape}: {mean}");
            assert!((variance * shape - 1.0).abs() < 0.1, "{shape}: {variance}");
        }
    }
}
