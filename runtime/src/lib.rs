//! Siskin runs transformers on the device in people's hands.
#![forbid(unsafe_op_in_unsafe_fn)]

mod error;
pub mod arch;
pub mod file;
pub mod sample;
pub mod template;
pub mod text;
pub mod tokenizer;

pub use error::{Error, ErrorKind, Result};
