//! Siskin runs transformers on device: one memory-mapped model file, bit-identical results on every CPU.
//!
//! ```no_run
//! let model = siskin::Model::open("smollm2.siskin")?;
//! let mut chat = model.session(Default::default())?;
//! for piece in chat.ask("Why is the sky blue?")? {
//!     print!("{}", piece?);
//! }
//! # Ok::<(), siskin::Error>(())
//! ```

mod adapter;
pub mod arch;
pub mod audio;
mod backend;
pub mod beam_search;
mod cancel;
mod context;
pub mod encoder;
mod error;
pub mod external_backend;
mod features;
pub mod file;
pub mod governor;
pub mod graph;
mod loaded_model;
pub mod logits_processors;
mod model;
pub mod result_cache;
pub mod sample;
pub mod seq2seq;
mod session;
pub mod speech;
pub mod template;
pub mod text;
mod thread_pool;
pub mod tokenizer;

pub use adapter::{Adapter, AdapterPart, AdapterSlot};
pub use backend::angles;
pub use backend::block_table::KvBudget;
pub use backend::observer::Observer;
pub use cancel::CancelHandle;
pub use context::{BatchEntry, Context, OutputRows, Resources, SequenceInput};
pub use encoder::{Encoder, EncoderOptions};
pub use error::{Error, ErrorKind, Result};
pub use graph::Window;
pub use graph::pass::layers::LayerSet;
pub use loaded_model::{DeviceKind, ModelOptions};
pub use model::Model;
pub use seq2seq::{Seq2Seq, Seq2SeqGenerateOptions, Seq2SeqOptions};
pub use session::{
    FinishReason, GenerateOptions, GeneratedToken, Generation, GenerationStep, Session, SessionMemory,
    SessionOptions, TextChunks,
};
pub use siskin_kernels::ops::attention::CacheType;
pub use siskin_kernels::{Cpu, CpuFeatures};
pub use thread_pool::SharedThreadPool;
