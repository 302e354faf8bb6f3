//! Pseudo-random numbers.

/// A small pseudo-random number generator with the same results on every machine.
#[derive(Clone, Debug)]
pub struct BenchRandom(u64);

impl BenchRandom {
    /// Creates a generator whose numbers depend on `seed` only.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Returns a number below `bound`, or 0 if the bound is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = bound as u64;
        if bound == 0 { 0 } else { (self.bits() % bound) as usize }
    }
}
