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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::FAMILIES;
    use std::collections::HashMap;

    /// Each name of each family, with the family.
    fn owners<'a>(
        names: impl Fn(&FamilyDescriptor) -> Vec<&'a str>,
    ) -> impl Iterator<Item = (&'a str, &'static str)> {
        DESCRIPTORS.iter().flat_map(move |descriptor| {
            names(descriptor).into_iter().map(|name| (name, descriptor.family.name))
        })
    }

    #[test]
    fn no_two_families_share_a_name() {
        let kinds = [
            ("name", owners(|descriptor| vec![descriptor.family.name]).collect::<Vec<_>>()),
            (
                "model_type",
                owners(|descriptor| {
                    descriptor.hugging_face.model_types.iter().map(|known| known.name).collect()
                })
                .collect(),
            ),
            ("general.architecture", owners(|descriptor| descriptor.gguf.architectures.to_vec()).collect()),
        ];
        for (kind, names) in kinds {
            let mut known = HashMap::new();
            for (name, family) in names {
                if let Some(other) = known.insert(name, family) {
                    panic!("{kind} {name} of {family} and of {other}: only the first in the table is found");
                }
            }
        }
    }

    #[test]
    fn families_and_descriptors_have_one_order() {
        let described: Vec<&str> = DESCRIPTORS.iter().map(|descriptor| descriptor.family.name).collect();
        let families: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
        assert_eq!(described, families);
    }
}
