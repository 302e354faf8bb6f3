//! Siskin runs transformers on the device in people's hands.
#![forbid(unsafe_op_in_unsafe_fn)]

pub mod arch;
mod error;
pub mod file;
pub mod graph;
pub mod sample;
pub mod template;
pub mod text;
pub mod tokenizer;

pub use error::{Error, ErrorKind, Result};
