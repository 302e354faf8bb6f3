//! Results that were computed before: embeddings and answers, found again by what was asked or by what it means.
//!
//! A [`Memo`] maps a [`Key`] to bytes. A key is a hash of everything that the result depends on (the model's file, the
//! version of this library, the operation, its options, the text), so that a result of another model, of other options
//! or of another prompt template is never given out. Entries may also lie on a shelf with a vector:
//! [`Memo::near`] gives the entry of a shelf whose vector is the most like another.
//!
//! A memo holds so many entries and bytes at most; what was not used for the longest time goes first. Entries may
//! expire. Looking up an entry by key takes constant time; by vector it takes one multiplication and addition for each
//! column of each vector on the shelf: 10 000 vectors of 384 columns are about four million.

mod embedding;
mod key;
mod question;
mod record;
mod shelf;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use embedding::{embedding_key, numbers_of};
pub use key::Key;
pub use question::{Answered, Question};

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{Error, Result};
use store::Store;

/// How much a memo holds, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoOptions {
    /// The most entries.
    pub entries: usize,
    /// The most bytes of values, vectors and what goes with them.
    pub bytes: usize,
    /// For how long an entry is good; `None`: for ever.
    pub life: Option<Duration>,
}

impl Default for MemoOptions {
    fn default() -> Self {
        Self { entries: 100_000, bytes: 64 << 20, life: None }
    }
}

/// What a memo was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Entries found by their key.
    pub hits: u64,
    /// Entries found by their vector.
    pub near: u64,
    /// Keys that were not there.
    pub misses: u64,
    /// Entries that had expired when they were looked for.
    pub expired: u64,
    /// Entries that made room for others.
    pub evicted: u64,
}

/// An entry that is like what was asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Near {
    /// What was stored.
    pub value: Arc<[u8]>,
    /// The cosine of the angle between the vectors.
    pub likeness: f32,
}

/// The time since the beginning of 1970.
type Clock = Box<dyn Fn() -> Duration + Send + Sync>;

/// Results by what they were computed from. All methods may be called from several threads at once.
pub struct Memo {
    store: Mutex<Store>,
    clock: Clock,
}

impl Memo {
    /// An empty memo that goes by the system's clock.
    pub fn new(options: MemoOptions) -> Self {
        Self::with_clock(options, || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// An empty memo that takes the time since the beginning of 1970 from `clock`.
    pub fn with_clock(options: MemoOptions, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { store: Mutex::new(Store::new(options)), clock: Box::new(clock) }
    }

    /// The memo that [`Memo::save`] wrote to `path`, or an empty one where there is no such file.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) where the memo could hold nothing, so that saving it would
    /// empty the file; and what keeps the file from being read.
    pub fn open(path: impl AsRef<Path>, options: MemoOptions) -> Result<Self> {
        for (name, most) in [("bytes", options.bytes), ("entries", options.entries)] {
            if most == 0 {
                return Err(Error::argument(name, "is 0: nothing could be kept; give more"));
            }
        }
        let memo = Self::new(options);
        if let Some(bytes) = record::read_file(path.as_ref())? {
            memo.load(&bytes).map_err(|error| error.within(&path.as_ref().display().to_string()))?;
        }
        Ok(memo)
    }

    /// Adds the entries that [`Memo::to_bytes`] wrote. Bytes that are refused change nothing.
    pub fn load(&self, bytes: &[u8]) -> Result<()> {
        let records = record::parse(bytes)?;
        let now = self.now();
        let mut store = self.locked();
        for record in records {
            // Nothing was stored later than now, whatever the clock was then.
            let stored = record.stored.min(now);
            store.put(record.key, record.shelf, record.value, stored, now);
        }
        Ok(())
    }

    /// All entries that are still good, those that were not used for the longest time first.
    pub fn to_bytes(&self) -> Vec<u8> {
        let now = self.now();
        record::write(&self.locked(), now)
    }

    /// Writes all entries that are still good to a file, which appears when it is complete. Where several memos are
    /// saved to one file, the last one stays.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        record::write_file(path.as_ref(), &self.to_bytes())
    }

    /// What is stored under `key`.
    pub fn get(&self, key: &Key) -> Option<Arc<[u8]>> {
        let now = self.now();
        self.locked().get(key, now)
    }

    /// Of the entries on `shelf`, the one whose vector is the most like `vector`, if the cosine of the angle between
    /// them is at least `least`. No number as `least` finds nothing.
    pub fn near(&self, shelf: &Key, vector: &[f32], least: f32) -> Option<Near> {
        let now = self.now();
        let vector = shelf::unit(vector)?;
        self.locked().near(shelf, &vector, least, now)
    }

    /// Stores a value in place of what was there. One that is larger than the memo is not stored.
    pub fn put(&self, key: Key, value: &[u8]) {
        let now = self.now();
        self.locked().put(key, None, value, now, now);
    }

    /// Stores a value with a vector, on a shelf with others of as many columns.
    pub fn put_near(&self, key: Key, shelf: Key, vector: &[f32], value: &[u8]) -> Result<()> {
        let now = self.now();
        let unit = shelf::unit(vector)
            .ok_or_else(|| Error::argument("vector", "has no direction: it is empty, zero or not finite"))?;
        let mut store = self.locked();
        match store.columns(&shelf) {
            Some(columns) if columns != unit.len() => {
                let message = format!("{} columns; those on the shelf have {columns}", unit.len());
                Err(Error::argument("vector", message))
            }
            _ => {
                store.put(key, Some((shelf, unit)), value, now, now);
                Ok(())
            }
        }
    }

    /// Entries, expired ones that nobody has looked for included.
    pub fn len(&self) -> usize {
        self.locked().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes as [`MemoOptions::bytes`] counts them.
    pub fn bytes(&self) -> usize {
        self.locked().bytes()
    }

    /// What was asked for so far.
    pub fn statistics(&self) -> Statistics {
        self.locked().statistics
    }

    /// Forgets all entries.
    pub fn clear(&self) {
        self.locked().clear();
    }

    /// Milliseconds since the beginning of 1970.
    fn now(&self) -> u64 {
        u64::try_from((self.clock)().as_millis()).unwrap_or(u64::MAX)
    }

    fn locked(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Memo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (entries, bytes) = (self.len(), self.bytes());
        f.debug_struct("Memo").field("entries", &entries).field("bytes", &bytes).finish_non_exhaustive()
    }
}
