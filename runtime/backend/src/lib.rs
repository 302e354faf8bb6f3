//! Runs the graphs of models on devices.
//!
//! A [`Backend`] is a device. It loads a [`Module`], a model's weights on the device, shared by all contexts. An
//! [`Executable`] runs the graphs of one context: it owns the memory of activations and the contents of the KV cache,
//! and knows neither texts nor samplers. A new device implements these three; nothing above them changes.
//!
//! What an executable does not own is lent to it for a pass: the thread pool, and the [`block_table::BlockTable`], which
//! says which blocks of the KV cache belong to which sequence.
//!
//! - [`cpu`] runs plans on the thread pool, with the kernels for this CPU.
//! - [`mod@reference`] interprets graphs, row by row, with scalar code; it defines the bits.
//! - [`external`] calls another library.
//!
//! A [`LoadedModel`](loaded_model::LoadedModel) is a file on a device. A [`Context`](context::Context) runs sequences of
//! a loaded model in batches: it validates them, keeps their block table, and hands each batch to its executable.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use siskin_backend::block_table::CacheOptions;
//! use siskin_backend::context::{BatchEntry, Context, ContextOptions, OutputRows};
//! use siskin_backend::loaded_model::{LoadedModel, ModelAdapters, ModelOptions};
//!
//! let file = siskin_format::file::File::open("smollm2.siskin")?;
//! let model = Arc::new(LoadedModel::new(file, ModelAdapters::None, &ModelOptions::default())?);
//! let cache = CacheOptions {
//!     types: model.cache_types(None),
//!     context_length: 512,
//!     max_sequences: 1,
//!     max_batch_tokens: 64,
//!     encoder_context: 0,
//! };
//! let mut context = Context::new(model, &ContextOptions::decoder(cache, 1), None)?;
//! let sequence = context.create();
//! context.forward(&[BatchEntry::new(sequence, &[1, 2, 3], OutputRows::Last)])?;
//! println!("{} logits", context.output(0).len());
//! # Ok::<(), siskin_format::Error>(())
//! ```
#![deny(
    clippy::wildcard_enum_match_arm,
    reason = "every match over operations names what it does with each of them"
)]

mod backend;
mod batch;
pub mod block_table;
pub mod cancel;
pub mod context;
pub mod cpu;
pub mod external;
pub mod external_model;
pub mod fair_mutex;
pub mod governor;
#[doc(hidden)]
pub mod kv_storage;
pub mod loaded_model;
mod moe_routing;
pub mod observer;
#[doc(hidden)]
pub mod plan;
#[doc(hidden)]
pub mod position_bias;
pub mod reference;
mod state;
pub mod thread_pool;
mod weights;

pub use backend::{
    Backend, BlockFormat, BlockStorage, Capabilities, Executable, ExecutionLimits, ForwardInput, ForwardPass,
    MemoryUse, ModelPart, Module,
};
pub use batch::{Batch, TokenRow};
#[doc(hidden)]
pub use batch::{place, second_place};
pub use weights::{ModelWeights, WeightSource, Weights};

use batch::marked_place;
use position_bias::Distances;
