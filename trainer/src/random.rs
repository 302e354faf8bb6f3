//! Random numbers that depend on a seed, a stream and how many came before, and on nothing else.

/// A stream of numbers: SplitMix64 (Steele, Lea and Flood, 2014) over a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Random {
    state: u64,
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Random {
    /// The beginning of a stream.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self { state: mix(mix(seed.wrapping_add(STEP)) ^ stream.wrapping_mul(STEP)) }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// A number below `limit`, which must not be zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(limit)) >> 64) as u64
    }

    /// From zero to below one.
    pub fn share(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Normally distributed, with a deviation of one (Box and Muller, 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.share()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.share()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn numbers_are_spread_as_they_should_be() {
        let mut random = Random::new(1, 2);
        let numbers: Vec<f64> = (0..100_000).map(|_| random.normal()).collect();
        let mean = numbers.iter().sum::<f64>() / 1e5;
        let square = numbers.iter().map(|x| x * x).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.02 && (square - 1.0).abs() < 0.02, "{mean} {square}");
        let mut counts = [0; 7];
        (0..70_000).for_each(|_| counts[random.below(7) as usize] += 1);
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
        assert_ne!(Random::new(1, 2).bits(), Random::new(1, 3).bits());
        assert_ne!(Random::new(1, 2).bits(), Random::new(2, 2).bits());
    }
}
