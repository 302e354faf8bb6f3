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
//!
//! A [`Model`] is an open file, shared by everything that runs it. A [`Session`] is one conversation or text of a
//! decoder; it keeps its tokens in a KV cache, so that a follow-up only processes the new tokens. An [`Encoder`] embeds, classifies and
//! ranks whole texts, a [`Seq2Seq`] translates or summarizes, and a [`speech::Transcriber`] writes speech down. A server
//! that runs many sequences in one batch uses a [`Context`].
//!
//! All of them return an [`Error`] that names what was wrong and where, and all can be canceled from another thread.

pub mod beam_search;
#[cfg(feature = "tools")]
pub mod chat;
pub mod constraint;
pub mod encoder;
mod features;
pub mod logits_processors;
mod model;
pub mod result_cache;
pub mod sample;
pub mod self_test;
pub mod seq2seq;
pub mod serving;
mod session;
pub mod speech;
pub mod text;

pub use encoder::{Encoder, EncoderOptions};
pub use model::Model;
pub use seq2seq::{Seq2Seq, Seq2SeqGenerateOptions, Seq2SeqOptions};
pub use session::{
    FinishReason, GenerateOptions, GeneratedToken, Generation, GenerationStep, Session, SessionMemory,
    SessionOptions, TextChunks, TextScore,
};
pub use siskin_backend::Backend;
pub use siskin_backend::block_table::KvBudget;
pub use siskin_backend::cancel::CancelHandle;
pub use siskin_backend::context::{BatchEntry, Context, OutputRows, Resources, SequenceInput};
pub use siskin_backend::loaded_model::{DeviceKind, LoadedModel, ModelOptions};
pub use siskin_backend::observer::Observer;
pub use siskin_backend::thread_pool::SharedThreadPool;
pub use siskin_format::{Error, ErrorKind, Result};
pub use siskin_graph::AdapterSlot;
pub use siskin_graph::adapter::{Adapter, LoraMatrix, NamedAdapter};
pub use siskin_graph::pass::layers::LayerSet;
pub use siskin_graph::{OutputHead, StreamingWindow};
pub use siskin_kernels::ops::attention::CacheType;
pub use siskin_kernels::{Cpu, CpuFeatures};

/// Audio input.
pub mod audio {
    pub use siskin_audio::{AudioSamples, Mel, RATE, WindowFeatures};
}

/// Chat templates.
pub mod template {
    pub use siskin_chat_template::{
        ChatTemplate, ContentPart, Message, MessageStyle, RenderOptions, TOOLS, TemplateData, ToolCall,
    };
}

/// Models that another library computes.
pub mod external_model {
    pub use siskin_backend::external_model::{
        ExternalModel, ExternalModelInterface, NamedTensor, OutputMatrix, PortInfo, TensorElements,
    };
}

/// `.siskin` files.
pub mod file {
    pub use siskin_format::file::{
        AtomicFile, Bytes, File, Metadata, SectionInfo, StorageRole, Tensor, append_no_follow, open_no_follow,
    };
}

/// Limits on the power that inference takes.
pub mod governor {
    pub use siskin_backend::governor::{GovernorStats, PowerState, ThermalState, ThrottleTarget};
}

/// Text to token ids and back.
pub mod tokenizer {
    pub use siskin_tokenizer::{
        DecodeOptions, EncodeOptions, TokenKind, TokenSpan, Tokenizer, VocabularyToken,
    };
}
