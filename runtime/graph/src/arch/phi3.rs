//! Phi 3 and 3.5: Llama's graph with fused matrices and LongRoPE.

use super::blocks::whole;
use super::descriptor::DefaultValue::{Count, Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, GgufKeys, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType,
    OnnxNames, Tasks, TokenizerDefaults,
};
use super::llama::LlamaVariant;
use super::{Family, FamilyDescriptor, ModelConfig, TensorRule, Topology};

pub(super) static FAMILY: Family = Family {
    name: "phi3",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| {
        let mut model_config = ModelConfig::read(config, |width| 4 * width)?;
        model_config.slide(config, |_| true)?;
        Ok(model_config)
    },
    topology: Topology::Decoder(|config, model_config, b| {
        LlamaVariant::default().graph(config, model_config, b)
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "phi3",
            class: Some("Phi3ForCausalLM"),
            defaults: &[
                ("hidden_act", Word("silu")),
                ("original_max_position_embeddings", Count(4096)),
                ("rms_norm_eps", Number(1e-5)),
            ],
        }],
        prefix: "model",
        rules: &[RULES],
        keys: HuggingFaceKeys::LLAMA,
    },
    gguf: GgufConfig { architectures: &["phi3"], rules: &[], keys: GgufKeys::NONE },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults {
        names: &["phi-3", "phi3"],
        strip_right: &["</s>"],
        special_strip_right: true,
        keep_right: &["<unk>", "<s>", "<|endoftext|>"],
        ..TokenizerDefaults::NONE
    },
    initialization: Initialization::NONE,
};

const RULES: &[TensorRule] = &[
    whole!("token_embd", "model.embed_tokens"),
    whole!("blk.{}.attn_norm", "model.layers.{}.input_layernorm"),
    whole!("blk.{}.attn_qkv", "model.layers.{}.self_attn.qkv_proj"),
    whole!("blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"),
    whole!("blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"),
    whole!("blk.{}.ffn_up", "model.layers.{}.mlp.gate_up_proj"),
    whole!("blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"),
    whole!("output_norm", "model.norm"),
    whole!("output", "lm_head"),
];
