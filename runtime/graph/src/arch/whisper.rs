//! Whisper (arXiv:2212.04356): BART's layers on log-mel frames, after two convolutions.

use super::bart;
use super::blocks::{taken, whole};
use super::descriptor::DefaultValue::{Flag, Word};
use super::descriptor::{
    Ctranslate2Config, Ctranslate2Source, GgufConfig, HuggingFaceConfig, HuggingFaceKeys, Initialization,
    ModelType, OnnxNames, Tasks, TokenizerDefaults,
};
use super::{ConfigReader, Family, FamilyDescriptor, ModelConfig, TensorRule, TensorTransform, Topology};
use crate::{ActivationFunction, Builder, ValueId};
use serde_json::{Map, Value, json};
use siskin_format::{Error, Result};

pub(super) static FAMILY: Family = Family {
    name: "whisper",
    tasks: Tasks { transcription: true, ..Tasks::NONE },
    bidirectional_key: None,
    read_config: |config| side(config, "decoder"),
    topology: Topology::Both {
        encoder: |config, _, mut b| {
            let h = side(config, "encoder")?;
            let x = sound(&h, &mut b);
            bart::encoder(config, &h, b, x)
        },
        decoder: |config, h, mut b| {
            let tokens = b.embed("token_embd.weight", h.vocabulary, h.width);
            let positions = b.embed_position("dec.position_embd.weight", h.context, h.width, 0);
            let x = b.add(tokens, positions);
            bart::decoder(config, h, b, x)
        },
    },
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "whisper",
            class: Some("WhisperForConditionalGeneration"),
            defaults: &[("activation_function", Word("gelu")), ("scale_embedding", Flag(false))],
        }],
        prefix: "model",
        rules: RULES,
        keys: HuggingFaceKeys::BERT,
    },
    gguf: GgufConfig::NONE,
    ctranslate2: Ctranslate2Config {
        specification: "WhisperSpec",
        recognizes: |_| true,
        scales_queries: true,
        config: ctranslate2_config,
    },
    onnx: OnnxNames::SHARED_EMBEDDINGS,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

/// The tensor map of the parts before the layers, which are BART's.
const OWN: [TensorRule; 4] = [
    taken!("enc.conv1", "model.encoder.conv1", TensorTransform::Neighbors(3)),
    taken!("enc.conv2", "model.encoder.conv2", TensorTransform::Neighbors(3)),
    whole!("token_embd", "model.decoder.embed_tokens"),
    whole!("output", "proj_out"),
];

const RULES: &[&[TensorRule]] = &[&OWN, bart::RULES];

fn side(config: &ConfigReader, side: &str) -> Result<ModelConfig> {
    let mut model_config = bart::side(config, side)?;
    model_config.encoder_context = config.required(&["max_source_positions"])?;
    model_config.features = config.required(&["num_mel_bins"])?;
    Ok(model_config)
}

/// The convolutions: two of kernel size 3, the second with stride 2.
fn sound(h: &ModelConfig, b: &mut Builder<'_>) -> ValueId {
    let mut x = b.features(h.features);
    for (name, stride) in [("enc.conv1", 1), ("enc.conv2", 2)] {
        let near = b.im2col(x, &[-1, 0, 1], stride);
        x = b.linear(near, name, h.width);
        x = b.activate(ActivationFunction::Gelu, x);
    }
    let positions = b.embed_position("enc.position_embd.weight", h.encoder_context, h.width, 0);
    b.add(x, positions)
}

fn ctranslate2_config(source: &dyn Ctranslate2Source) -> Result<Map<String, Value>> {
    let (mut config, width, [read, written]) = bart::ctranslate2_sizes(source)?;
    let (_, kernel) = source.shape("enc.conv1.weight")?;
    config.insert("max_source_positions".to_owned(), json!(read));
    config.insert("max_target_positions".to_owned(), json!(written));
    config.insert("num_mel_bins".to_owned(), json!(kernel / 3));
    if source.scaled_embeddings(width, &["decoder"])? {
        return Err(Error::unsupported("decoder/scale_embeddings", "Whisper's are not scaled"));
    }
    config.insert("activation_function".to_owned(), json!(source.one_activation("gelu")?));
    config.insert("model_type".to_owned(), json!("whisper"));
    Ok(config)
}
