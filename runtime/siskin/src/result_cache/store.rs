//! The entries: by key, by vector, and as an LRU list.

use std::collections::HashMap;
use std::sync::Arc;

use super::index::EmbeddingIndex;
use super::{CacheStatistics, Key, ResultCacheOptions, SimilarityHit};

/// The overhead of an entry besides its value and its vector, as counted.
pub(super) const ENTRY_BYTES: usize = 192;
/// The end of the linked list.
const NONE: usize = usize::MAX;

/// A value with its links.
struct Entry {
    key: Key,
    value: Arc<[u8]>,
    /// Milliseconds since 1970.
    stored: u64,
    /// The index and the row of its vector.
    place: Option<(Key, usize)>,
    /// The neighbors in the LRU list.
    older: usize,
    newer: usize,
}

/// Entries within their capacity. Times are in milliseconds.
pub(super) struct CacheStore {
    options: ResultCacheOptions,
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    slots: HashMap<Key, usize>,
    indexes: HashMap<Key, EmbeddingIndex>,
    oldest: usize,
    newest: usize,
    bytes: usize,
    pub statistics: CacheStatistics,
}

impl CacheStore {
    pub(super) fn new(options: ResultCacheOptions) -> Self {
        Self {
            options,
            entries: Vec::new(),
            free: Vec::new(),
            slots: HashMap::new(),
            indexes: HashMap::new(),
            oldest: NONE,
            newest: NONE,
            bytes: 0,
            statistics: CacheStatistics::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the columns of the vectors in an index, if there are any.
    pub(super) fn columns(&self, index: &Key) -> Option<usize> {
        self.indexes.get(index).map(EmbeddingIndex::columns)
    }

    pub(super) fn clear(&mut self) {
        *self = Self { statistics: self.statistics, ..Self::new(self.options) };
    }

    fn is_over(&self, stored: u64, now: u64) -> bool {
        let age = u128::from(now.saturating_sub(stored));
        self.options.time_to_live.is_some_and(|time_to_live| age >= time_to_live.as_millis())
    }

    pub(super) fn get(&mut self, key: &Key, now: u64) -> Option<Arc<[u8]>> {
        let slot = self.slots.get(key).copied();
        let Some((slot, stored)) = slot.and_then(|slot| Some((slot, self.entries[slot].as_ref()?.stored)))
        else {
            self.statistics.misses += 1;
            return None;
        };
        if self.is_over(stored, now) {
            self.remove(slot);
            self.statistics.expired += 1;
            self.statistics.misses += 1;
            return None;
        }
        self.statistics.hits += 1;
        self.use_now(slot)
    }

    /// See [`ResultCache::similar`](super::ResultCache::similar); `vector` has unit length. Ties are broken by the smaller key.
    pub(super) fn near(
        &mut self,
        index: &Key,
        vector: &[f32],
        least: f32,
        now: u64,
    ) -> Option<SimilarityHit> {
        let columns = self.columns(index)?;
        if columns != vector.len() {
            return None;
        }
        let good = |slot: usize| {
            self.entries
                .get(slot)?
                .as_ref()
                .filter(|entry| !self.is_over(entry.stored, now))
                .map(|entry| entry.key)
        };
        let all = self.indexes.get(index)?.similarities(vector);
        let enough = all.filter(|&(_, similarity)| similarity >= least);
        let best = enough
            .filter_map(|(slot, similarity)| Some((similarity, std::cmp::Reverse(good(slot)?), slot)))
            .max_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))?;
        let (similarity, _, slot) = best;
        self.statistics.similarity_hits += 1;
        Some(SimilarityHit { value: self.use_now(slot)?, similarity })
    }

    /// Stores `value` with the time `stored`. The vector, if given, has unit length and the index's number of columns.
    pub(super) fn put(
        &mut self,
        key: Key,
        vector: Option<(Key, Vec<f32>)>,
        value: &[u8],
        stored: u64,
        now: u64,
    ) {
        if let Some(&slot) = self.slots.get(&key) {
            self.remove(slot);
        }
        let vector = vector.filter(|(index, vector)| {
            !vector.is_empty() && self.columns(index).is_none_or(|columns| columns == vector.len())
        });
        let bytes = entry_bytes(value.len(), vector.as_ref().map_or(0, |(_, vector)| vector.len()));
        if bytes > self.options.bytes || self.options.entries == 0 || self.is_over(stored, now) {
            return;
        }
        while self.len() >= self.options.entries || self.bytes + bytes > self.options.bytes {
            self.remove(self.oldest);
            self.statistics.evicted += 1;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        let place = vector.map(|(index, vector)| {
            let row = self
                .indexes
                .entry(index)
                .or_insert_with(|| EmbeddingIndex::new(vector.len()))
                .push(&vector, slot);
            (index, row)
        });
        self.entries[slot] =
            Some(Entry { key, value: value.into(), stored, place, older: NONE, newer: NONE });
        self.slots.insert(key, slot);
        self.bytes += bytes;
        self.link(slot);
    }

    /// Calls `each` with every entry that has not expired, the least recently used first.
    pub(super) fn each(&self, now: u64, mut each: impl FnMut(&Key, Option<(&Key, &[f32])>, &[u8], u64)) {
        let mut slot = self.oldest;
        while let Some(entry) = self.entries.get(slot).and_then(Option::as_ref) {
            if !self.is_over(entry.stored, now) {
                let vector = entry
                    .place
                    .as_ref()
                    .and_then(|(index, row)| Some((index, self.indexes.get(index)?.row(*row))));
                each(&entry.key, vector, &entry.value, entry.stored);
            }
            slot = entry.newer;
        }
    }

    /// Makes an entry the most recently used one.
    fn use_now(&mut self, slot: usize) -> Option<Arc<[u8]>> {
        self.unlink(slot);
        self.link(slot);
        self.entries[slot].as_ref().map(|entry| Arc::clone(&entry.value))
    }

    fn remove(&mut self, slot: usize) {
        self.unlink(slot);
        let Some(entry) = self.entries.get_mut(slot).and_then(Option::take) else { return };
        self.slots.remove(&entry.key);
        self.free.push(slot);
        let mut columns = 0;
        if let Some((key, row)) = entry.place
            && let Some(index) = self.indexes.get_mut(&key)
        {
            columns = index.columns();
            if let Some(moved) = index.remove(row)
                && let Some(Entry { place: Some(place), .. }) = &mut self.entries[moved]
            {
                place.1 = row;
            }
            if index.is_empty() {
                self.indexes.remove(&key);
            }
        }
        self.bytes -= entry_bytes(entry.value.len(), columns);
    }

    /// Appends an unlinked slot to the recent end of the LRU list.
    fn link(&mut self, slot: usize) {
        let before = std::mem::replace(&mut self.newest, slot);
        match self.entries.get_mut(before).and_then(Option::as_mut) {
            Some(entry) => entry.newer = slot,
            None => self.oldest = slot,
        }
        if let Some(entry) = &mut self.entries[slot] {
            (entry.older, entry.newer) = (before, NONE);
        }
    }

    fn unlink(&mut self, slot: usize) {
        let Some(entry) = self.entries.get(slot).and_then(Option::as_ref) else { return };
        let (older, newer) = (entry.older, entry.newer);
        match self.entries.get_mut(older).and_then(Option::as_mut) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
        match self.entries.get_mut(newer).and_then(Option::as_mut) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
    }
}

/// Returns the size of an entry as counted.
fn entry_bytes(value: usize, columns: usize) -> usize {
    ENTRY_BYTES + value + columns * size_of::<f32>()
}
