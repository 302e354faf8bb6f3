//! The result cache: embeddings and responses, looked up by exact key or by similarity (semantic cache).
//!
//! A [`ResultCache`] maps a [`Key`] to bytes. A key is a hash of everything that the result depends on (the model's
//! file, the version of this library, the operation, its options, the text), so that a result of a different model,
//! different options or a different prompt template is never returned. Entries may also have a vector and the key of an
//! index: [`ResultCache::similar`] returns the entry of an index whose vector is most similar to another.
//!
//! The number of entries and of bytes is bounded; the least recently used entry is evicted first. Entries may expire. A
//! lookup by key takes constant time; a lookup by vector takes one multiply-add per column of each vector in the index:
//! about four million for 10 000 vectors of 384 columns.

mod embedding;
mod index;
mod key;
mod options;
mod query;
mod record;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use embedding::{embedding_key, numbers_of};
pub use key::Key;
pub use query::{CacheQuery, CachedAnswer};

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{Error, Result};
use store::CacheStore;

/// Capacity and lifetime of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultCacheOptions {
    /// The maximum number of entries.
    pub entries: usize,
    /// The maximum number of bytes of values, vectors and their overhead.
    pub bytes: usize,
    /// The lifetime of an entry (TTL); `None` means unlimited.
    pub time_to_live: Option<Duration>,
}

impl Default for ResultCacheOptions {
    fn default() -> Self {
        Self { entries: 100_000, bytes: 64 << 20, time_to_live: None }
    }
}

/// Cache statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatistics {
    /// Lookups by key that found an entry.
    pub hits: u64,
    /// Lookups by vector that found an entry.
    pub similarity_hits: u64,
    /// Lookups by key that found none.
    pub misses: u64,
    /// Entries that had expired when they were looked up.
    pub expired: u64,
    /// Entries that were evicted.
    pub evicted: u64,
}

/// The result of a lookup by vector.
#[derive(Clone, Debug, PartialEq)]
pub struct SimilarityHit {
    /// The stored value.
    pub value: Arc<[u8]>,
    /// The cosine similarity of the vectors.
    pub similarity: f32,
}

/// Returns the time since the beginning of 1970.
type Clock = Box<dyn Fn() -> Duration + Send + Sync>;

/// A cache of results by key. All methods may be called from several threads concurrently.
pub struct ResultCache {
    store: Mutex<CacheStore>,
    clock: Clock,
}

impl ResultCache {
    /// Creates an empty cache that uses the system clock.
    pub fn new(options: ResultCacheOptions) -> Self {
        Self::with_clock(options, || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// Creates an empty cache that reads the time since the beginning of 1970 from `clock`.
    pub fn with_clock(
        options: ResultCacheOptions,
        clock: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        Self { store: Mutex::new(CacheStore::new(options)), clock: Box::new(clock) }
    }

    /// Opens the cache that [`ResultCache::save`] wrote to `path`, or an empty one if the file does not exist.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if the capacity is zero, so that saving the cache would
    /// empty the file; errors of reading the file.
    pub fn open(path: impl AsRef<Path>, options: ResultCacheOptions) -> Result<Self> {
        for (name, limit) in [("bytes", options.bytes), ("entries", options.entries)] {
            if limit == 0 {
                return Err(Error::argument(name, "expected at least 1, got 0"));
            }
        }
        let result_cache = Self::new(options);
        if let Some(bytes) = record::read_file(path.as_ref())? {
            result_cache.load(&bytes).map_err(|error| error.within(&path.as_ref().display().to_string()))?;
        }
        Ok(result_cache)
    }

    /// Adds the entries that [`ResultCache::to_bytes`] serialized. Invalid bytes change nothing.
    pub fn load(&self, bytes: &[u8]) -> Result<()> {
        let records = record::parse(bytes)?;
        let now = self.now();
        let mut store = self.locked();
        for record in records {
            // Times in the future, from a clock that was wrong then, count as now.
            let stored = record.stored.min(now);
            store.put(record.key, record.index, record.value, stored, now);
        }
        Ok(())
    }

    /// Serializes all entries that have not expired, the least recently used first.
    pub fn to_bytes(&self) -> Vec<u8> {
        let now = self.now();
        record::write(&self.locked(), now)
    }

    /// Writes all entries that have not expired to a file, atomically. If several caches are saved to one file, the
    /// last one wins.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        record::write_file(path.as_ref(), &self.to_bytes())
    }

    /// Returns the value of `key`.
    pub fn get(&self, key: &Key) -> Option<Arc<[u8]>> {
        let now = self.now();
        self.locked().get(key, now)
    }

    /// Returns the entry in `index` whose vector is most similar to `vector`, if their cosine similarity is at least
    /// `least`. NaN as `least` finds nothing.
    pub fn similar(&self, index: &Key, vector: &[f32], least: f32) -> Option<SimilarityHit> {
        let now = self.now();
        let vector = index::unit(vector)?;
        self.locked().near(index, &vector, least, now)
    }

    /// Stores a value, replacing an existing one. A value that exceeds the capacity of the cache is not stored.
    pub fn insert(&self, key: Key, value: &[u8]) {
        let now = self.now();
        self.locked().put(key, None, value, now, now);
    }

    /// Stores a value with a vector, in an index of vectors with the same number of columns.
    pub fn insert_with_embedding(&self, key: Key, index: Key, vector: &[f32], value: &[u8]) -> Result<()> {
        let now = self.now();
        let unit =
            index::unit(vector).ok_or_else(|| Error::argument("vector", "empty, zero or not finite"))?;
        let mut store = self.locked();
        match store.columns(&index) {
            Some(columns) if columns != unit.len() => {
                let message = format!("{} dimensions; the vectors in the index have {columns}", unit.len());
                Err(Error::argument("vector", message))
            }
            _ => {
                store.put(key, Some((index, unit)), value, now, now);
                Ok(())
            }
        }
    }

    /// Returns the number of entries, expired ones that were not looked up included.
    pub fn len(&self) -> usize {
        self.locked().len()
    }

    /// Returns whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the size as counted by [`ResultCacheOptions::bytes`].
    pub fn bytes(&self) -> usize {
        self.locked().bytes()
    }

    /// Returns the statistics.
    pub fn statistics(&self) -> CacheStatistics {
        self.locked().statistics
    }

    /// Removes all entries.
    pub fn clear(&self) {
        self.locked().clear();
    }

    /// Returns the milliseconds since the beginning of 1970.
    fn now(&self) -> u64 {
        u64::try_from((self.clock)().as_millis()).unwrap_or(u64::MAX)
    }

    fn locked(&self) -> MutexGuard<'_, CacheStore> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for ResultCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (entries, bytes) = (self.len(), self.bytes());
        f.debug_struct("ResultCache")
            .field("entries", &entries)
            .field("bytes", &bytes)
            .finish_non_exhaustive()
    }
}
