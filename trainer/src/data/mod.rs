//! Training data: from texts to batches.
//!
//! [`source`] reads documents, [`Tokenising`] makes records of tokens of them, which a [`Sink`] keeps in memory or in
//! a file ([`packed`]). A [`task`] makes examples of records, and a [`Loader`] puts them into batches. A [`Split`] keeps
//! documents for validation.
//!
//! What comes is a function of documents, options and seed: not of threads, of when a run was taken up again, nor of
//! what was made before. A [`Position`] is all that a run has to keep.

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
mod tokenise;
mod windows;

pub use joined::Gathering;
pub use loader::{Loader, LoaderOptions, Position, Step};
pub use order::Order;
pub use packed::{Packed, PackedWriter};
pub use prefetch::Prefetch;
pub use records::{MOST_PARTS, Memory, Record, Records, Sink, Subset};
pub use source::{Document, Reading, documents};
pub use split::{Divider, Side, Split};
pub use task::{Kind, Made, Settings, Task};
pub use tokenise::Tokenising;
