//! What formats and tools need to know of a family besides its graph, as data. The crates that read it interpret it:
//! nothing here depends on them.

mod ctranslate2;
mod gguf;
mod hugging_face;
mod initialization;
mod onnx;
mod tasks;
mod tokenizer;

pub use ctranslate2::{Ctranslate2Config, Ctranslate2Source};
pub use gguf::{GgufConfig, GgufKeys, GgufWindows, sliding_period};
pub use hugging_face::{DefaultValue, HuggingFaceConfig, HuggingFaceKeys, ModelType, RopeKeys, SizeKeys};
pub use initialization::Initialization;
pub use onnx::OnnxNames;
pub use tasks::{Tasks, TranslationPrompt};
pub use tokenizer::TokenizerDefaults;

pub(super) use ctranslate2::{object, sequence_to_sequence_sizes};
pub(super) use hugging_face::{layer_types, routing_is_normalized};
pub(super) use initialization::{LLAMA_TENSORS, falling_with_depth};

use super::{ConfigReader, Graphs, ModelConfig};
use crate::Graph;
use serde_json::Value;

/// Returns true if a model has the tensor of a name.
pub(crate) type HasTensor<'a> = &'a dyn Fn(&str) -> bool;

/// Configuration values with their keys.
pub(crate) type NamedValues = Vec<(&'static str, Value)>;

/// A model whose configuration is written in the keys of another format.
pub struct ExportedModel<'a> {
    /// Its configuration.
    pub config: &'a ConfigReader,
    /// Its hyper-parameters.
    pub hyper: &'a ModelConfig,
    /// Its graphs.
    pub graphs: &'a Graphs,
    /// Returns true if it has the tensor of this name.
    pub has: HasTensor<'a>,
}

impl ExportedModel<'_> {
    /// Returns the graph that hyper-parameters are taken from: the decoder if there is one.
    pub fn main_graph(&self) -> Option<&Graph> {
        self.graphs.decoder.as_ref().or(self.graphs.encoder.as_ref())
    }
}
