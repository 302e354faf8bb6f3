//! Converts models of other formats to packed `.siskin` files and back.
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

mod adapter;
mod cache;
mod calibrate;
pub mod export;
pub mod import;
mod knobs;
mod open;
mod pack;
mod progress;
mod rows;
mod tokenizer;

pub use adapter::{AdapterSource, open_adapted, open_adapter};
pub use calibrate::Calibration;
pub use open::{OpenOptions, PackedCache, open_any, open_model};
pub use pack::{PackOptions, QuantMix, Recipe, WeightTarget, pack, pack_file};
pub use progress::{NoProgress, ProgressSink};
pub use tokenizer::{open_tokenizer, tokenizer_of_json, tokenizer_section};
