//! Model families: one file each, and one line in the table of families.
//!
//! A family reads its hyperparameters and builds its forward pass as a [`Graph`]; it needs exactly the tensors that
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
mod rope_config;
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
    Ctranslate2Config, Ctranslate2Source, DefaultValue, ExportedModel, FamilyDescriptor, GgufConfig,
    GgufKeys, GgufWindows, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType, OnnxNames,
    RopeKeys, SizeKeys, Tasks, TokenizerDefaults, TranslationPrompt, sliding_period,
};
pub use model_config::{ModelConfig, StateSizes};
pub use tensor_map::{StatePart, TensorRule, TensorTransform};

use std::collections::HashSet;

use crate::pass::layers::{self, LayerSet};
use crate::{Builder, Graph, Weight};
use siskin_format::{Error, Result};

macro_rules! families {
    ($($family:ident,)*) => {
        /// All families, in the order in which `siskin` lists them.
        pub const FAMILIES: &[&Family] = &[$(&$family::FAMILY),*];

        /// The descriptors of all families, in the order of [`FAMILIES`].
        pub const DESCRIPTORS: &[&FamilyDescriptor] = &[$(&$family::DESCRIPTOR),*];
    };
}

families! {
    llama,
    mistral,
    smollm3,
    qwen2,
    qwen3,
    gemma2,
    gemma3,
    phi,
    phi3,
    gpt2,
    gpt_neox,
    bloom,
    mpt,
    olmo2,
    granite,
    starcoder2,
    falcon,
    mixtral,
    qwen3_moe,
    granite_moe,
    olmoe,
    gpt_oss,
    qwen2_moe,
    granite_moe_shared,
    qwen3_next,
    qwen3_5,
    lfm2,
    bert,
    roberta,
    distilbert,
    albert,
    electra,
    mpnet,
    modernbert,
    mobilebert,
    longformer,
    bigbird,
    nomic_bert,
    gte,
    t5,
    switch,
    bart,
    whisper,
}

/// A model architecture: what running its packed models needs. The rest is in its [`FamilyDescriptor`].
pub struct Family {
    /// The name in a `.siskin` file.
    pub name: &'static str,
    /// What the models do besides what their topology says.
    pub tasks: Tasks,
    /// The configuration key that makes a decoder's attention bidirectional; `None`: `is_causal`, set to false.
    pub bidirectional_key: Option<&'static str>,
    /// Reads the hyperparameters.
    pub read_config: fn(&ConfigReader) -> Result<ModelConfig>,
    /// Builds the graphs.
    pub topology: Topology,
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
            return Err(Error::unsupported("skip_layers", message));
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

fn unknown(name: &str, place: &str) -> Error {
    let known: Vec<_> = FAMILIES.iter().map(|family| family.name).collect();
    Error::unsupported(place, format!("unknown family '{name}'; expected one of {}", known.join(", ")))
}

impl Family {
    /// Returns the family with this name in a `.siskin` file.
    pub fn named(name: &str) -> Result<&'static Self> {
        let found = FAMILIES.iter().copied().find(|family| family.name == name);
        found.ok_or_else(|| unknown(name, "architecture"))
    }

    /// Builds the graphs for `config`, given which tensors the source has.
    pub fn build(&self, config: &ConfigReader, has: &dyn Fn(&str) -> bool) -> Result<(ModelConfig, Graphs)> {
        let model_config = (self.read_config)(config)?;
        let write = |forward: &Forward| {
            layer_kinds::apply(config, forward(config, &model_config, Builder::new(has))?)
        };
        let (encoder, decoder) = match &self.topology {
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
        Ok((model_config, Graphs { encoder, decoder }))
    }
}
