//! Repeatable random numbers for tests.

/// A small random number generator, a linear congruential one; its value is the seed.
pub struct Random(pub u64);

impl Random {
    /// Returns a number below `below`; 0 if that is 0.
    pub fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below.max(1)
    }
}
