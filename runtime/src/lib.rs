//! Siskin runs transformers on the device in people's hands: one mapped file, the same bits everywhere.
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
mod cache;
mod context;
pub mod encoder;
pub mod engine;
mod error;
mod exec;
pub mod file;
pub mod governor;
pub mod graph;
pub mod memo;
mod model;
mod observe;
mod part;
mod plan;
pub mod rules;
pub mod sample;
pub mod search;
mod session;
pub mod speech;
mod team;
pub mod template;
pub mod text;
pub mod tokenizer;
pub mod writer;

pub use adapter::{Adapter, AdapterPart};
pub use context::{Context, Piece, Text, Wanted};
pub use encoder::{Encoder, EncoderOptions};
pub use error::{Error, ErrorKind, Result};
pub use exec::turns;
pub use graph::pass::layers::LayerSet;
pub use model::{ExecutorKind, Model, ModelOptions};
pub use observe::Observer;
pub use session::{
    Ended, GenerateOptions, Generation, Memory, Pieces, Session, SessionOptions, Step, StopHandle, Token,
    Window,
};
pub use siskin_kernels::ops::attention::CacheType;
pub use siskin_kernels::{Cpu, Features};
pub use writer::{Writer, WriterOptions, Writing};
