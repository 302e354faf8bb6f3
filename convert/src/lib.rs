//! Converts models of other formats to packed `.siskin` files and back.
//!
//! GGUF files, Hugging Face and CTranslate2 folders and ONNX exports become one file in the layout that kernels read.
//! Importing is lossless unless a recipe asks for other weight types: the blocks of a GGUF file are repacked losslessly,
//! and exporting to GGUF returns the same bytes.
//!
//! - [`ModelSource`](import::ModelSource) is a model of some format: its configuration, its tokenizer, and its tensors
//!   under the names of the family's graph. A format implements it; packing is the same for all formats.
//! - [`Recipe`] says which weight type each matrix gets, as a type (`q4_k`) or one of llama.cpp's mixes.
//! - [`OpenOptions`] and [`PackOptions`] say where packed files are kept, and report progress.
//!
//! ```no_run
//! use siskin_convert::{OpenOptions, PackOptions, Recipe};
//! # fn main() -> siskin_format::Result<()> {
//! // Any model, packed once into a cache file and mapped from then on:
//! let file = siskin_convert::open_any("smollm2.gguf", &OpenOptions::default())?;
//! // Or into a file of one's own, with smaller weights:
//! let options = PackOptions { recipe: Some("q4_k".parse::<Recipe>()?), ..PackOptions::default() };
//! siskin_convert::pack_file("qwen/".as_ref(), "qwen.siskin".as_ref(), &options)?;
//! # Ok(())
//! # }
//! ```
//!
//! Weights can be rounded with activation statistics ([`Calibration`]). [`export`] writes Hugging Face folders, GGUF and
//! ONNX. Every format is untrusted input: parsers check lengths before they allocate, and are fuzzed.

mod adapter;
mod cache;
mod calibrate;
mod env;
pub mod export;
pub mod import;
mod open;
mod pack;
mod progress;
mod rows;
mod tokenizer;

pub use adapter::{AdapterSource, open_adapted, open_adapter, open_adapters, open_with_adapters};
pub use calibrate::Calibration;
pub use open::{OpenOptions, PackedCache, open_any, open_model, remove_packed};
pub use pack::{ComputeGoldens, PackOptions, QuantMix, Recipe, WeightTarget, pack, pack_file};
pub use progress::{NoProgress, ProgressSink};
pub use tokenizer::{open_tokenizer, tokenizer_of_json, tokenizer_section};
