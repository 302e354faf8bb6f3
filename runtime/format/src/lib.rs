//! The `.siskin` model file, and the error type of all crates.
//!
//! A model is one file, in the layout in which kernels read it. [`file::File`] maps it and validates everything that
//! is not a weight; a [`file::Tensor`] is a view of its panels in the map, so that opening a model reads a few pages
//! whatever its size. [`file::FileWriter`] writes a file tensor by tensor, with a hash of each section.
//!
//! Every function that can fail returns an [`Error`]: its [`ErrorKind`] has a stable number, which the C, Kotlin and
//! Swift errors share, its place names the argument, field or tensor, and its message says what to do. Files are
//! untrusted: a hostile file gives an error, never a crash, an endless loop or an allocation that its size does not
//! justify.
//!
//! ```no_run
//! let file = siskin_format::file::File::open("smollm2.siskin")?;
//! println!("{}: {} tensors", file.metadata().architecture, file.tensors().len());
//! let tensor = file.tensor("token_embd.weight").expect("a language model has embeddings");
//! println!("{} × {}, {:?}", tensor.rows, tensor.columns, tensor.panel);
//! # Ok::<(), siskin_format::Error>(())
//! ```
//!
//! `docs/format.md` specifies every byte.

mod cargo_feature;
mod container;
mod error;
pub mod file;
mod json_fields;
pub mod kv;
pub mod type_errors;

pub use cargo_feature::CargoFeature;
pub use error::{Error, ErrorKind, Result};
pub use json_fields::JsonFields;
