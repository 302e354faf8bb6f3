//! What formats and the trainer need to know of a family besides its graph, as data. The crates that read it interpret
//! it: nothing here depends on them, and a library without them is linked without this data.

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

use super::{ConfigReader, DESCRIPTORS, Family, Graphs, ModelConfig, unknown};
use crate::Graph;
use serde_json::Value;
use siskin_format::Result;

/// Everything that is known of a family. Fields that do not concern it hold the constant `NONE` of their type.
///
/// It is apart from [`Family`] so that the linker can leave it out.
pub struct FamilyDescriptor {
    /// What running its packed models needs.
    pub family: &'static Family,
    /// Hugging Face folders.
    pub hugging_face: HuggingFaceConfig,
    /// GGUF files.
    pub gguf: GgufConfig,
    /// CTranslate2 folders.
    pub ctranslate2: Ctranslate2Config,
    /// ONNX models.
    pub onnx: OnnxNames,
    /// What GGUF files omit of the tokenizer.
    pub tokenizer: TokenizerDefaults,
    /// Random initialization.
    pub initialization: Initialization,
}

impl FamilyDescriptor {
    /// Returns the family with this name in a `.siskin` file.
    pub fn named(name: &str) -> Result<&'static Self> {
        Self::find(name, "architecture", |descriptor| descriptor.family.name == name)
    }

    /// Returns the family of a Hugging Face `model_type`.
    pub fn of_hugging_face(model_type: &str) -> Result<&'static Self> {
        Self::find(model_type, "config.model_type", |descriptor| {
            descriptor.hugging_face.model_type(model_type).is_some()
        })
    }

    /// Returns the family of a GGUF `general.architecture`.
    pub fn of_gguf(architecture: &str) -> Result<&'static Self> {
        Self::find(architecture, "general.architecture", |descriptor| {
            descriptor.gguf.architectures.contains(&architecture)
        })
    }

    fn find(name: &str, place: &str, matches: impl Fn(&Self) -> bool) -> Result<&'static Self> {
        DESCRIPTORS.iter().copied().find(|descriptor| matches(descriptor)).ok_or_else(|| unknown(name, place))
    }
}

/// Returns true if a model has the tensor of a name.
pub(crate) type HasTensor<'a> = &'a dyn Fn(&str) -> bool;

/// Configuration values with their keys.
pub(crate) type NamedValues = Vec<(&'static str, Value)>;

/// A model whose configuration is written in the keys of another format.
pub struct ExportedModel<'a> {
    /// Its configuration.
    pub config: &'a ConfigReader,
    /// Its hyperparameters.
    pub model_config: &'a ModelConfig,
    /// Its graphs.
    pub graphs: &'a Graphs,
    /// Returns true if it has the tensor of this name.
    pub has: HasTensor<'a>,
}

impl ExportedModel<'_> {
    /// Returns the graph that hyperparameters are taken from: the decoder if there is one.
    pub fn main_graph(&self) -> Option<&Graph> {
        self.graphs.decoder.as_ref().or(self.graphs.encoder.as_ref())
    }
}
