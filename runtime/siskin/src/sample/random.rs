//! The sampler's random number generator: the same numbers on every machine for the same seed.

/// xoshiro256** by Blackman and Vigna, its state seeded by splitmix64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SamplerRandom {
    state: [u64; 4],
}

impl SamplerRandom {
    /// Creates the generator for `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        let mut counter = seed;
        Self { state: std::array::from_fn(|_| split_mix(&mut counter)) }
    }

    /// Returns the state.
    pub(crate) fn state(&self) -> [u64; 4] {
        self.state
    }

    /// Creates a generator from `state`; all zeros, which is a fixed point, is replaced by the state of seed 0.
    pub(crate) fn of_state(state: [u64; 4]) -> Self {
        if state == [0; 4] { Self::new(0) } else { Self { state } }
    }

    /// Returns the next 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        let state = &mut self.state;
        let result = state[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        result
    }

    /// Returns a number in `[0, 1)`, from the highest 53 bits.
    pub(crate) fn unit(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
        (self.bits() >> 11) as f64 * STEP
    }
}

fn split_mix(counter: &mut u64) -> u64 {
    *counter = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut value = *counter;
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors published with the two generators.
    #[test]
    fn published_vectors() {
        let mut counter = 1_234_567;
        let words: Vec<u64> = (0..5).map(|_| split_mix(&mut counter)).collect();
        assert_eq!(
            words,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821
            ]
        );
        let mut random = SamplerRandom { state: [1, 2, 3, 4] };
        let words: Vec<u64> = (0..8).map(|_| random.bits()).collect();
        assert_eq!(
            words,
            [
                11520,
                0,
                1_509_978_240,
                1_215_971_899_390_074_240,
                1_216_172_134_540_287_360,
                607_988_272_756_665_600,
                16_172_922_978_634_559_625,
                8_476_171_486_693_032_832
            ]
        );
    }

    #[test]
    fn unit_stays_below_one() {
        let mut random = SamplerRandom::new(7);
        assert!((0..10_000).map(|_| random.unit()).all(|value| (0.0..1.0).contains(&value)));
    }
}
