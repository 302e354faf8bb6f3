//! Records split into windows.

use super::records::Records;

/// The windows of all records, by index. Eight bytes per record.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    size: usize,
    /// The cumulative number of windows up to and including each record.
    ends: Vec<u64>,
}

impl Windows {
    /// Splits each record, whose length `length` returns, into windows of `size`.
    pub(super) fn new(records: &dyn Records, size: usize, length: impl Fn(usize) -> usize) -> Self {
        let mut end = 0;
        let mut up_to = |record: usize| {
            end += length(record).div_ceil(size.max(1)) as u64;
            end
        };
        Self { size: size.max(1), ends: (0..records.count()).map(&mut up_to).collect() }
    }

    pub(super) fn count(&self) -> usize {
        self.ends.last().copied().unwrap_or(0) as usize
    }

    /// Returns the record of a window, and its offset in the record.
    pub(super) fn place(&self, window: usize) -> (usize, usize) {
        let record = self.ends.partition_point(|&end| end <= window as u64);
        let before = record.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        (record, (window - before) * self.size)
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }
}
