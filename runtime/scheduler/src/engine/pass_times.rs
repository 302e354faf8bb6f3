//! A histogram of the durations of passes.

use std::time::Duration;

/// How many passes took how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassTimes {
    /// The number of passes that took at most [`PassTimes::bound`], and longer than the bound before; those above the last
    /// bound are not here.
    pub buckets: [u64; Self::BUCKETS],
    /// The time of all passes in microseconds.
    pub microseconds: u64,
}

impl PassTimes {
    /// The number of buckets.
    pub const BUCKETS: usize = 18;
    /// The bound of the first bucket, in microseconds; each further one is twice as large.
    const FIRST_BOUND: u64 = 500;

    /// Returns the longest time that a bucket counts.
    pub fn bound(bucket: usize) -> Duration {
        Duration::from_micros(Self::FIRST_BOUND << bucket)
    }

    pub(super) fn record(&mut self, elapsed: Duration) {
        let microseconds = elapsed.as_micros() as u64;
        let doublings = u64::BITS - (microseconds.saturating_sub(1) / Self::FIRST_BOUND).leading_zeros();
        if let Some(count) = self.buckets.get_mut(doublings as usize) {
            *count += 1;
        }
        self.microseconds += microseconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_the_bucket_of_their_bound() {
        let mut times = PassTimes::default();
        for microseconds in [0, 500, 501, 1000, 1001, 2000, 65_536_000, 65_536_001] {
            times.record(Duration::from_micros(microseconds));
        }
        assert_eq!((times.buckets[0], times.buckets[1], times.buckets[2]), (2, 2, 2));
        assert_eq!(times.buckets[PassTimes::BUCKETS - 1], 1, "the longest is in no bucket");
        assert_eq!(times.buckets.iter().sum::<u64>(), 7);
        assert_eq!(PassTimes::bound(2), Duration::from_millis(2));
    }
}
