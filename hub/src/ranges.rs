//! Which bytes of a file have arrived.

use std::ops::Range;

/// A set of bytes of a file, as ranges in order that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    ranges: Vec<Range<u64>>,
}

impl RangeSet {
    /// Adds a range, which may overlap others.
    pub(crate) fn insert(&mut self, mut range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let from = self.ranges.partition_point(|known| known.end < range.start);
        let to = self.ranges.partition_point(|known| known.start <= range.end);
        if let Some(first) = self.ranges[from..to].first() {
            range.start = range.start.min(first.start);
        }
        if let Some(last) = self.ranges[from..to].last() {
            range.end = range.end.max(last.end);
        }
        self.ranges.splice(from..to, [range]);
    }

    /// Returns the ranges in order.
    pub(crate) fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// Returns the number of bytes.
    pub(crate) fn count(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// Returns the number of bytes from the start of the file on without a gap.
    pub(crate) fn prefix(&self) -> u64 {
        self.ranges.first().filter(|range| range.start == 0).map_or(0, |range| range.end)
    }

    /// Returns what is missing of the first `length` bytes, in pieces of at most `piece` bytes.
    pub(crate) fn missing(&self, length: u64, piece: u64) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        let mut at = 0;
        for known in self.ranges.iter().cloned().chain(std::iter::once(length..length)) {
            let end = known.start.min(length);
            while at < end {
                let next = end.min(at.saturating_add(piece.max(1)));
                missing.push(at..next);
                at = next;
            }
            at = at.max(known.end);
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same set as one truth value for each byte.
    fn bytes(set: &RangeSet, length: u64) -> Vec<bool> {
        (0..length).map(|at| set.ranges.iter().any(|range| range.contains(&at))).collect()
    }

    #[test]
    fn sets_hold_what_was_inserted() {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..300 {
            let (mut set, mut expected) = (RangeSet::default(), vec![false; 40]);
            for _ in 0..8 {
                let start = random(40);
                let end = start + random(41 - start);
                set.insert(start..end);
                expected[start as usize..end as usize].fill(true);
                assert_eq!(bytes(&set, 40), expected);
                assert!(set.ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "{set:?}");
                assert_eq!(set.count(), expected.iter().filter(|has| **has).count() as u64);
                assert_eq!(set.prefix(), expected.iter().take_while(|has| **has).count() as u64);
                let (mut missing, mut whole) = (set.missing(40, 7), set.clone());
                assert!(missing.iter().all(|range| range.end - range.start <= 7 && !range.is_empty()));
                missing.drain(..).for_each(|range| whole.insert(range));
                assert_eq!((whole.count(), whole.prefix()), (40, 40));
            }
        }
    }
}
