//! The `.siskin` container: writing, mapping and total parsing.

mod bytes;

pub use bytes::Bytes;
