//! Counter-based random numbers, a function of a seed, the name of a stream and a counter: Philox4x32-10 (Salmon et
//! al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
//!
//! Streams are stateless: the same name gives the same numbers, in any thread, in any order, and after resuming a
//! run. A name is a list of numbers, such as a purpose, an epoch and an example.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// Returns the high and the low 32 bits of a product.
#[inline]
fn product(a: u32, b: u32) -> (u32, u32) {
    let product = u64::from(a) * u64::from(b);
    ((product >> 32) as u32, product as u32)
}

/// Returns four random words for a key and a counter.
#[inline]
pub fn philox([mut key0, mut key1]: [u32; 2], [mut x0, mut x1, mut x2, mut x3]: [u32; 4]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let (high0, low0) = product(MULTIPLIERS[0], x0);
        let (high2, low2) = product(MULTIPLIERS[1], x2);
        (x0, x1, x2, x3) = (high2 ^ x1 ^ key0, low2, high0 ^ x3 ^ key1, low0);
        (key0, key1) = (key0.wrapping_add(WEYL[0]), key1.wrapping_add(WEYL[1]));
    }
    [x0, x1, x2, x3]
}

/// Returns the low and the high 32 bits.
fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

/// A random stream.
#[derive(Clone, Debug)]
pub struct Random {
    key: [u32; 2],
    count: u64,
    block: [u32; 4],
    used: usize,
}

impl Random {
    /// Creates the stream of this name. Names of different length or with different elements are different streams.
    pub fn new(seed: u64, name: &[u64]) -> Self {
        let mut key = halves(seed);
        for (place, &word) in name.iter().enumerate() {
            let [low, high] = halves(word);
            // Block counters leave the last word zero.
            let block = philox(key, [low, high, place as u32, 1]);
            key = [block[0], block[1]];
        }
        Self { key, count: 0, block: [0; 4], used: 4 }
    }

    /// Returns a new stream as it is after `count` normal numbers.
    pub fn after_normals(&self, count: u64) -> Self {
        // A normal number takes two 64-bit words: one block.
        Self { count: self.count + count, ..self.clone() }
    }

    /// Returns a uniform 32-bit number.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        if self.used == self.block.len() {
            let [low, high] = halves(self.count);
            self.block = philox(self.key, [low, high, 0, 0]);
            self.count += 1;
            self.used = 0;
        }
        self.used += 1;
        self.block[self.used - 1]
    }

    /// Returns a uniform 64-bit number.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let low = self.next_u32();
        u64::from(self.next_u32()) << 32 | u64::from(low)
    }

    /// Returns a uniform number below `limit`; 0 if the limit is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 {
            return 0;
        }
        // Rejection sampling: an incomplete last interval would bias the result.
        let rest = (u64::MAX % limit + 1) % limit;
        loop {
            let word = self.next_u64();
            if word <= u64::MAX - rest {
                return word % limit;
            }
        }
    }

    /// Returns a uniform number from 0 up to, but not including, 1, in steps of 2⁻⁵³.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a standard normal number (Box–Muller transform).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Shuffles a list uniformly.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for place in (1..list.len()).rev() {
            list.swap(place, self.below(place as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vectors of Philox's authors.
    #[test]
    fn numbers_match_the_reference_implementation() {
        let rows = [
            ([0; 2], [0; 4], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 2], [u32::MAX; 4], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0xa409_3822, 0x299f_31d0],
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (key, count, wanted) in rows {
            assert_eq!(philox(key, count), wanted, "{key:x?} {count:x?}");
        }
    }

    #[test]
    fn streams_can_be_split() {
        let mut whole = Random::new(3, &[1, 4]);
        let mut tail = whole.after_normals(5);
        (0..5).for_each(|_| _ = whole.normal());
        assert_eq!([0; 7].map(|_| whole.normal()), [0; 7].map(|_| tail.normal()));
    }

    #[test]
    fn streams_are_selected_by_their_names() {
        let first = |seed, name: &[u64]| Random::new(seed, name).next_u64();
        assert_eq!(first(1, &[2, 3]), first(1, &[2, 3]));
        let all = [
            first(1, &[2, 3]),
            first(1, &[3, 2]),
            first(2, &[2, 3]),
            first(1, &[2]),
            first(1, &[2, 0]),
            first(1, &[]),
            first(1, &[0]),
        ];
        for (place, one) in all.iter().enumerate() {
            assert!(!all[place + 1..].contains(one), "stream {place} is another");
        }
    }

    #[test]
    fn bounded_numbers_are_uniform() {
        let mut random = Random::new(7, &[]);
        let mut counts = [0_u32; 7];
        for _ in 0..70_000 {
            counts[random.below(7) as usize] += 1;
        }
        // Six standard deviations of 70,000 draws with probability one in seven.
        assert!(counts.iter().all(|&count| count.abs_diff(10_000) < 560), "{counts:?}");
        let mean: f64 = (0..10_000).map(|_| random.unit()).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.018, "{mean}");
        assert_eq!(random.below(0), 0);
        assert_eq!(random.below(1), 0);
    }

    #[test]
    fn shuffles_are_permutations() {
        let mut list: Vec<u32> = (0..100).collect();
        Random::new(1, &[5]).shuffle(&mut list);
        assert_ne!(list, (0..100).collect::<Vec<_>>());
        list.sort_unstable();
        assert_eq!(list, (0..100).collect::<Vec<_>>());
    }
}
