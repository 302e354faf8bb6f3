//! The tables of a batch that kernels read: integers and floats, in one buffer that is copied at once.
//!
//! The size of a table follows from rows and sequences alone, rounded up, so that batches of similar shape have their
//! tables at the same places and give the same command list.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use siskin_device::{DevicePtr, aligned};

/// Tables by name, one after the other.
#[derive(Clone, Debug, Default)]
pub struct BatchTables {
    /// The place of the first.
    base: DevicePtr,
    offsets: HashMap<String, DevicePtr>,
    bytes: Vec<u8>,
    cache: ListCache,
}

/// The work lists of an attention over some sequences.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttentionLists {
    /// The ranges of keys that each query attends to.
    pub(crate) visible: Vec<i32>,
    pub(crate) query_tiles: Vec<i32>,
    pub(crate) key_tiles: Vec<i32>,
}

/// Lists by name, the newest first.
type Known = VecDeque<(String, Arc<AttentionLists>)>;

/// A cache of lists that depend on the lengths of sequences alone, for recent batches.
#[derive(Clone, Debug, Default)]
pub struct ListCache(Arc<Mutex<Known>>);

impl ListCache {
    /// The maximum number of cached entries.
    const MAX_LISTS: usize = 16;

    /// Returns the lists of this name, calling `make` on a cache miss.
    pub(crate) fn find(&self, name: String, make: impl FnOnce() -> AttentionLists) -> Arc<AttentionLists> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, lists)) = known.iter().find(|(known, _)| *known == name) {
            return lists.clone();
        }
        let lists = Arc::new(make());
        known.truncate(Self::MAX_LISTS - 1);
        known.push_front((name, lists.clone()));
        lists
    }
}

impl BatchTables {
    /// Creates tables that begin at `base`.
    pub fn new(base: DevicePtr) -> Self {
        Self { base, ..Self::default() }
    }

    /// Shares the cache of other batches.
    #[must_use]
    pub fn with_cache(self, kept: &ListCache) -> Self {
        Self { cache: kept.clone(), ..self }
    }

    /// Returns the bytes of all tables, which belong at the base.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Like [`Self::bytes`], at the end.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn cache(&self) -> &ListCache {
        &self.cache
    }

    /// Returns the place of a table, calling `make` when the name is first used.
    pub fn table(&mut self, name: &str, make: impl FnOnce() -> Vec<u8>) -> DevicePtr {
        if let Some(&known) = self.offsets.get(name) {
            return known;
        }
        let place = self.base + self.bytes.len() as DevicePtr;
        self.bytes.extend(make());
        self.bytes.resize(aligned(self.bytes.len()), 0);
        self.offsets.insert(name.to_owned(), place);
        place
    }

    /// Like [`Self::table`], for integers.
    pub fn ints(&mut self, name: &str, make: impl FnOnce() -> Vec<i32>) -> DevicePtr {
        self.table(name, || make().into_iter().flat_map(i32::to_le_bytes).collect())
    }

    /// Like [`Self::table`], for floats.
    pub fn floats(&mut self, name: &str, make: impl FnOnce() -> Vec<f32>) -> DevicePtr {
        self.table(name, || make().into_iter().flat_map(f32::to_le_bytes).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_recent_tables_are_cached() {
        let kept = ListCache::default();
        let make =
            |number: i32| move || AttentionLists { visible: vec![number], ..AttentionLists::default() };
        for number in 0..20 {
            assert_eq!(kept.find(number.to_string(), make(number)).visible, [number]);
        }
        assert_eq!(kept.clone().find("19".to_owned(), || panic!("it is known")).visible, [19]);
        assert_eq!(kept.find("0".to_owned(), make(7)).visible, [7], "the oldest are forgotten");
    }

    #[test]
    fn tables_are_built_once() {
        let mut tables = BatchTables::new(4096);
        let first = tables.ints("a", || vec![1, 2]);
        let second = tables.floats("b", || vec![1.0]);
        assert_eq!((first, second), (4096, 4352));
        assert_eq!(tables.ints("a", || panic!("it is known")), 4096);
        assert_eq!(tables.bytes().len(), 512);
    }
}
