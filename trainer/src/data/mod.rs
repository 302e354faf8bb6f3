//! Training data: from text to batches.
//!
//! [`source`] reads documents, [`DocumentTokenizer`] turns them into records of tokens, which a [`Sink`] keeps in memory or
//! in a file ([`packed`]). A [`task`] makes examples of records, and a [`Loader`] puts them into batches. A [`Split`]
//! holds out documents for validation.
//!
//! Batches are a function of documents, options and seed, independent of the number of threads, of resuming, and of
//! earlier batches. A [`Position`] is all that a run has to save.

mod concatenated;
mod hash;
mod loader;
pub mod packed;
mod permutation;
mod prefetch;
mod records;
pub mod source;
mod split;
pub mod task;
mod tokenize;
mod windows;

pub use concatenated::RecordList;
pub use loader::{LoadedBatch, Loader, LoaderOptions, Position};
pub use packed::{PackedTokenFile, PackedWriter};
pub use permutation::Permutation;
pub use prefetch::Prefetch;
pub use records::{MAX_PARTS, Records, RecordsInMemory, Sink, Subset, TokenizedDocument};
pub use source::{Document, ReadOptions, documents};
pub use split::{Divider, Split, SplitSide};
pub use task::{TaskBatch, TaskEntry, TaskSettings, TrainingTask};
pub use tokenize::DocumentTokenizer;
