//! Model families: one file each, and one line in [`FAMILIES`].
//!
//! A family reads its hyper-parameters and builds its forward pass as a [`Graph`]; it needs exactly the tensors that
//! its graph uses. Tensor names are GGUF's; [`TensorRule`]s map those of other sources.

mod blocks;
mod config;
mod descriptor;
mod embedding_decoder;
mod encoder_decoder;
mod experts;
mod heads;
mod layer_kinds;
mod model_config;
mod rope_frequencies;
mod rope_scaling;
mod tensor_map;

mod albert;
mod bart;
mod bert;
mod bigbird;
mod bloom;
mod distilbert;
mod electra;
mod falcon;
mod gemma2;
mod gemma3;
mod gpt2;
mod gpt_neox;
mod gpt_oss;
mod granite;
mod granite_moe;
mod granite_moe_shared;
mod gte;
mod lfm2;
mod llama;
mod longformer;
mod mistral;
mod mixtral;
mod mobilebert;
mod modernbert;
mod mpnet;
mod mpt;
mod nomic_bert;
mod olmo2;
mod olmoe;
mod phi;
mod phi3;
mod qwen2;
mod qwen2_moe;
mod qwen3;
mod qwen3_5;
mod qwen3_moe;
mod qwen3_next;
mod roberta;
mod smollm3;
mod starcoder2;
mod switch;
mod t5;
mod whisper;

pub use config::ConfigReader;
pub use descriptor::{
    Ctranslate2Config, Ctranslate2Source, DefaultValue, ExportedModel, GgufConfig, GgufKeys, GgufWindows,
    HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType, OnnxNames, RopeKeys, SizeKeys, Tasks,
    TokenizerDefaults, TranslationPrompt, sliding_period,
};
pub use model_config::{ModelConfig, StateSizes};
pub use tensor_map::{StatePart, TensorRule, TensorTransform};

use std::collections::HashSet;

use crate::pass::layers::{self, LayerSet};
use crate::{Builder, Graph, Weight};
use siskin_format::{Error, Result};

/// All families, in the order in which `siskin` lists them.
pub const FAMILIES: &[&Family] = &[
    &llama::FAMILY,
    &mistral::FAMILY,
    &smollm3::FAMILY,
    &qwen2::FAMILY,
    &qwen3::FAMILY,
    &gemma2::FAMILY,
    &gemma3::FAMILY,
    &phi::FAMILY,
    &phi3::FAMILY,
    &gpt2::FAMILY,
    &gpt_neox::FAMILY,
    &bloom::FAMILY,
    &mpt::FAMILY,
    &olmo2::FAMILY,
    &granite::FAMILY,
    &starcoder2::FAMILY,
    &falcon::FAMILY,
    &mixtral::FAMILY,
    &qwen3_moe::FAMILY,
    &granite_moe::FAMILY,
    &olmoe::FAMILY,
    &gpt_oss::FAMILY,
    &qwen2_moe::FAMILY,
    &granite_moe_shared::FAMILY,
    &qwen3_next::FAMILY,
    &qwen3_5::FAMILY,
    &lfm2::FAMILY,
    &bert::FAMILY,
    &roberta::FAMILY,
    &distilbert::FAMILY,
    &albert::FAMILY,
    &electra::FAMILY,
    &mpnet::FAMILY,
    &modernbert::FAMILY,
    &mobilebert::FAMILY,
    &longformer::FAMILY,
    &bigbird::FAMILY,
    &nomic_bert::FAMILY,
    &gte::FAMILY,
    &t5::FAMILY,
    &switch::FAMILY,
    &bart::FAMILY,
    &whisper::FAMILY,
];

/// A model architecture: everything that any part of Siskin knows of it. Fields that do not concern a family hold the
/// constant `NONE` of their type.
pub struct Family {
    /// The name in a `.siskin` file.
    pub name: &'static str,
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
    /// What the models do besides what their topology says.
    pub tasks: Tasks,
    /// Random initialization.
    pub initialization: Initialization,
    /// Reads the hyper-parameters.
    pub hyper: fn(&ConfigReader) -> Result<ModelConfig>,
    /// Builds the graphs.
    pub form: Topology,
}

/// Builds the graph of a forward pass. The builder knows which tensors the source has.
pub type Forward = fn(&ConfigReader, &ModelConfig, Builder<'_>) -> Result<Graph>;

/// The topology of a family.
pub enum Topology {
    /// Causal decoder; encodes whole sequences if the source is an embedding model.
    Decoder(Forward),
    /// Encoder.
    Encoder(Forward),
    /// Encoder–decoder with cross-attention.
    Both {
        /// Builds the encoder.
        encoder: Forward,
        /// Builds the decoder.
        decoder: Forward,
    },
}

/// The graphs of a model.
#[derive(Clone, Debug)]
pub struct Graphs {
    /// Encodes a whole sequence.
    pub encoder: Option<Graph>,
    /// Prefill and decode.
    pub decoder: Option<Graph>,
}

impl Graphs {
    /// Iterates over the graphs that the model has.
    pub fn iter(&self) -> impl Iterator<Item = &Graph> {
        self.encoder.iter().chain(&self.decoder)
    }

    /// Returns the graphs without some layers (layer skipping).
    pub fn without_layers(self, skipped: LayerSet) -> Result<Self> {
        if skipped == LayerSet::NONE {
            return Ok(self);
        }
        if self.encoder.is_some() && self.decoder.is_some() {
            let message = "layers of encoder–decoder models cannot be skipped";
            return Err(Error::unsupported("skip", message));
        }
        let without = |graph: Option<Graph>| graph.map(|graph| layers::without(&graph, skipped)).transpose();
        Ok(Self { encoder: without(self.encoder)?, decoder: without(self.decoder)? })
    }

    /// Returns the tensors that the graphs need, without duplicates.
    pub fn weights(&self) -> Vec<&Weight> {
        let mut weights: Vec<&Weight> = self.iter().flat_map(|graph| &graph.weights).collect();
        let mut known = HashSet::new();
        weights.retain(|weight| known.insert(*weight));
        weights
    }
}

impl Family {
    /// Returns the family with this name in a `.siskin` file.
    pub fn named(name: &str) -> Result<&'static Self> {
        Self::find(name, "architecture", |family| family.name == name)
    }

    /// Returns the family of a Hugging Face `model_type`.
    pub fn of_hugging_face(model_type: &str) -> Result<&'static Self> {
        Self::find(model_type, "config.model_type", |family| {
            family.hugging_face.model_type(model_type).is_some()
        })
    }

    /// Returns the family of a GGUF `general.architecture`.
    pub fn of_gguf(architecture: &str) -> Result<&'static Self> {
        Self::find(architecture, "general.architecture", |family| {
            family.gguf.architectures.contains(&architecture)
        })
    }

    /// Returns the tasks of the family with this name; those of no family for the models of external backends.
    pub fn tasks_of(name: &str) -> Tasks {
        Self::named(name).map_or(Tasks::NONE, |family| family.tasks)
    }

    fn find(name: &str, place: &str, matches: impl Fn(&Self) -> bool) -> Result<&'static Self> {
        FAMILIES.iter().copied().find(|family| matches(family)).ok_or_else(|| {
            let known: Vec<_> = FAMILIES.iter().map(|family| family.name).collect();
            Error::unsupported(
                place,
                format!("unknown family '{name}'; expected one of {}", known.join(", ")),
            )
        })
    }

    /// Builds the graphs for `config`, given which tensors the source has.
    pub fn build(&self, config: &ConfigReader, has: &dyn Fn(&str) -> bool) -> Result<(ModelConfig, Graphs)> {
        let hyper = (self.hyper)(config)?;
        let write =
            |forward: &Forward| layer_kinds::apply(config, forward(config, &hyper, Builder::new(has))?);
        let (encoder, decoder) = match &self.form {
            Topology::Decoder(decoder) if embedding_decoder::reads(self, config)? => {
                (Some(embedding_decoder::of(self, config, &write(decoder)?)?), None)
            }
            Topology::Decoder(decoder) => (None, Some(write(decoder)?)),
            Topology::Encoder(encoder) => (Some(write(encoder)?), None),
            Topology::Both { encoder, .. } if encoder_decoder::reads_alone(config, has) => {
                (Some(write(encoder)?), None)
            }
            Topology::Both { encoder, decoder } => (Some(write(encoder)?), Some(write(decoder)?)),
        };
        encoder.iter().chain(&decoder).try_for_each(Graph::check)?;
        Ok((hyper, Graphs { encoder, decoder }))
    }
}
