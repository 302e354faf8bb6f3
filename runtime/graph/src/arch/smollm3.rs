//! SmolLM3: Llama's graph, with some layers without RoPE (NoPE).

use super::blocks::{LLAMA_GGUF_RULES, LLAMA_RULES};
use super::descriptor::DefaultValue::{Count, Flag, Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, GgufKeys, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType,
    OnnxNames, Tasks, TokenizerDefaults,
};
use super::llama::LlamaVariant;
use super::{ConfigReader, Family, FamilyDescriptor, ModelConfig, Topology};
use siskin_format::{Error, Result};

pub(super) static FAMILY: Family = Family {
    name: "smollm3",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| {
        let mut model_config = ModelConfig::read(config, |width| 4 * width)?;
        model_config.slide(config, |_| false)?;
        Ok(model_config)
    },
    topology: Topology::Decoder(|config, model_config, b| {
        let rotated = rotated_layers(config, model_config)?;
        LlamaVariant { rotates: Box::new(move |layer| rotated[layer]), ..LlamaVariant::default() }.graph(
            config,
            model_config,
            b,
        )
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "smollm3",
            class: Some("SmolLM3ForCausalLM"),
            defaults: &[
                ("hidden_act", Word("silu")),
                ("no_rope_layer_interval", Count(4)),
                ("num_key_value_heads", Count(4)),
                ("rms_norm_eps", Number(1e-6)),
                ("rope_theta", Number(2_000_000.0)),
                ("use_sliding_window", Flag(false)),
            ],
        }],
        prefix: "model",
        rules: &[LLAMA_RULES],
        keys: HuggingFaceKeys::LLAMA_WITH_BIASES,
    },
    gguf: GgufConfig { architectures: &["smollm3"], rules: &[LLAMA_GGUF_RULES], keys: GgufKeys::NONE },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

/// Returns which layers use RoPE: by a list of zeros and ones, or all except every fourth.
fn rotated_layers(config: &ConfigReader, model_config: &ModelConfig) -> Result<Vec<bool>> {
    if let Some(list) = config.numbers(&["no_rope_layers"])? {
        if list.len() != model_config.layers {
            return Err(Error::corrupt(
                "config.no_rope_layers",
                format!("expected {} entries", model_config.layers),
            ));
        }
        return Ok(list.iter().map(|&rotates| rotates != 0.0).collect());
    }
    let interval = config.count(&["no_rope_layer_interval"])?.unwrap_or(4).max(1);
    Ok((0..model_config.layers).map(|layer| (layer + 1) % interval != 0).collect())
}
