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

mod activation_observer;
mod adapter;
pub mod arch;
pub mod audio;
mod backend;
pub mod beam_search;
mod cache;
mod context;
pub mod encoder;
mod error;
pub mod external_backend;
mod features;
pub mod file;
pub mod governor;
pub mod graph;
pub mod logits_processors;
mod model;
mod plan;
pub mod result_cache;
pub mod sample;
pub mod seq2seq;
mod session;
pub mod speech;
pub mod template;
pub mod text;
mod thread_pool;
pub mod tokenizer;

pub use activation_observer::Observer;
pub use adapter::{Adapter, AdapterPart};
pub use backend::angles;
pub use context::{BatchEntry, Context, OutputRows, SequenceInput};
pub use encoder::{Encoder, EncoderOptions};
pub use error::{Error, ErrorKind, Result};
pub use graph::pass::layers::LayerSet;
pub use model::{DeviceKind, Model, ModelOptions};
pub use seq2seq::{Seq2Seq, Seq2SeqGenerateOptions, Seq2SeqOptions};
pub use session::{
    CancelHandle, FinishReason, GenerateOptions, GeneratedToken, Generation, GenerationStep, Session,
    SessionMemory, SessionOptions, TextChunks, Window,
};
pub use siskin_kernels::ops::attention::CacheType;
pub use siskin_kernels::{Cpu, CpuFeatures};
