//! A permutation in constant memory: a Feistel network over the next power of four, with cycle walking until the
//! result lies below the count.

use super::hash::mix;
use crate::random::Random;

const ROUNDS: usize = 6;

/// A permutation of the numbers below a count, chosen by a random stream.
#[derive(Clone, Debug)]
pub struct Permutation {
    count: u64,
    bits: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// Creates a permutation of the numbers below `count`.
    pub fn new(count: u64, random: &mut Random) -> Self {
        let wide = u64::BITS - count.saturating_sub(1).leading_zeros();
        Self { count, bits: wide.div_ceil(2).max(1), keys: [0; ROUNDS].map(|_| random.next_u64()) }
    }

    /// Returns the element at an index; the index itself if it is out of range.
    pub fn at(&self, place: u64) -> u64 {
        if place >= self.count {
            return place;
        }
        let mut number = self.step(place);
        while number >= self.count {
            number = self.step(number);
        }
        number
    }

    fn step(&self, number: u64) -> u64 {
        let mask = (1_u64 << self.bits) - 1;
        let (mut left, mut right) = (number >> self.bits & mask, number & mask);
        for key in self.keys {
            (left, right) = (right, left ^ mix(right ^ key) & mask);
        }
        left << self.bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutations_are_bijective() {
        for count in [0, 1, 2, 3, 4, 5, 16, 17, 1000, 4097] {
            let order = Permutation::new(count, &mut Random::new(3, &[count]));
            let mut outputs: Vec<u64> = (0..count).map(|place| order.at(place)).collect();
            outputs.sort_unstable();
            assert_eq!(outputs, (0..count).collect::<Vec<_>>(), "{count}");
        }
        assert!(Permutation::new(u64::MAX, &mut Random::new(3, &[])).at(7) < u64::MAX);
    }

    /// For four elements, each of the 24 permutations is about equally frequent.
    #[test]
    fn permutations_are_uniform() {
        let mut counts = std::collections::HashMap::new();
        for seed in 0..24_000 {
            let order = Permutation::new(4, &mut Random::new(seed, &[]));
            *counts.entry([0, 1, 2, 3].map(|place| order.at(place))).or_insert(0_u32) += 1;
        }
        assert_eq!(counts.len(), 24, "{counts:?}");
        assert!(counts.values().all(|&count| count.abs_diff(1000) < 250), "{counts:?}");
    }
}
