//! Training data: from text to batches.
//!
//! [`source`] reads documents, [`Tokenizing`] turns them into records of tokens, which a [`Sink`] keeps in memory or
//! in a file ([`packed`]). A [`task`] makes examples of records, and a [`Loader`] puts them into batches. A [`Split`]
//! holds out documents for validation.
//!
//! Batches are a function of documents, options and seed, independent of the number of threads, of resuming, and of
//! earlier batches. A [`Position`] is all that a run has to save.

mod hash;
mod joined;
mod loader;
mod order;
pub mod packed;
mod prefetch;
mod records;
pub mod source;
mod split;
pub mod task;
mod tokenize;
mod windows;

pub use joined::Gathering;
pub use loader::{LoadedBatch, Loader, LoaderOptions, Position};
pub use order::Order;
pub use packed::{PackedTokenFile, PackedWriter};
pub use prefetch::Prefetch;
pub use records::{MOST_PARTS, Records, RecordsInMemory, Sink, Subset, TokenizedDocument};
pub use source::{Document, Reading, documents};
pub use split::{Divider, Split, SplitSide};
pub use task::{TaskBatch, TaskEntry, TaskSettings, TrainingTask};
pub use tokenize::Tokenizing;
