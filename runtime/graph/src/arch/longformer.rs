//! Longformer (arXiv:2004.05150): RoBERTa with local attention, and global attention for tokens that the caller marks,
//! which has projections of its own.

use super::bert::{self, BertVariant};
use super::blocks::{self, block, whole};
use super::descriptor::DefaultValue::{Count, Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType, OnnxNames,
    Tasks, TokenizerDefaults,
};
use super::{ConfigReader, Family, FamilyDescriptor, ModelConfig, TensorRule, Topology, roberta};
use crate::{ActivationFunction, Attention, AttentionMask, Builder, ValueId};
use siskin_format::{Error, Result};

pub(super) static FAMILY: Family = Family {
    name: "longformer",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| {
        let mut model_config = bert::read_model_config(config, roberta::first_position(config)?)?;
        model_config.epsilon = config.number(&["layer_norm_eps"])?.unwrap_or(1e-12) as f32;
        for (layer, reach) in reaches(config, model_config.layers)?.into_iter().enumerate() {
            model_config.windows[layer] = Some(reach);
        }
        Ok(model_config)
    },
    topology: Topology::Encoder(|config, h, b| {
        let first_position = roberta::first_position(config)?;
        let token_activation = Some(ActivationFunction::Gelu);
        let shape =
            BertVariant { first_position, token_activation, gather: Some(gather), ..BertVariant::default() };
        shape.graph(config, h, b)
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "longformer",
            class: None,
            defaults: &[
                ("attention_window", Count(512)),
                ("hidden_act", Word("gelu")),
                ("layer_norm_eps", Number(1e-12)),
                ("type_vocab_size", Count(2)),
            ],
        }],
        prefix: "longformer",
        rules: &[RULES, roberta::HEAD_RULES],
        keys: HuggingFaceKeys::BERT,
    },
    gguf: GgufConfig::NONE,
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

const RULES: &[TensorRule] = bert::trunk! {
    "longformer";
    whole!("blk.{}.attn_global_q", "longformer.encoder.layer.{}.attention.self.query_global"),
    whole!("blk.{}.attn_global_k", "longformer.encoder.layer.{}.attention.self.key_global"),
    whole!("blk.{}.attn_global_v", "longformer.encoder.layer.{}.attention.self.value_global"),
};

/// Returns the attention distance of each layer to either side: half of its window.
fn reaches(config: &ConfigReader, layers: usize) -> Result<Vec<usize>> {
    const KEY: &str = "attention_window";
    let windows = match config.get(KEY) {
        Some(serde_json::Value::Array(_)) => config.numbers(&[KEY])?.unwrap_or_default(),
        _ => vec![config.count(&[KEY])?.unwrap_or(512) as f64; layers],
    };
    let place = format!("config.{KEY}");
    if windows.len() != layers {
        return Err(Error::corrupt(place, format!("expected {layers} entries, found {}", windows.len())));
    }
    let reach = |window: f64| match (2.0..=2_147_483_648.0).contains(&window) && window % 2.0 == 0.0 {
        true => Ok(window as usize / 2),
        false => Err(Error::corrupt(place.clone(), format!("{window} is not a positive even number"))),
    };
    windows.into_iter().map(reach).collect()
}

fn gather(h: &ModelConfig, b: &mut Builder<'_>, layer: usize, x: ValueId) -> ValueId {
    let (q, k, v) = blocks::queries_keys_values(b, h, layer, x);
    let mut attention = blocks::attention(h, layer);
    attention.attention_mask = AttentionMask::LongformerLocal(h.windows[layer].unwrap_or(0));
    let near = b.attention(q, k, v, attention.clone());
    let ours = ["attn_global_q", "attn_global_k", "attn_global_v"]
        .map(|name| b.linear(x, &block(layer, name), h.query_columns()));
    // Keys and values of local and global attention use the same cache blocks, one after the other.
    let all =
        Attention { layer: h.layers + layer, attention_mask: AttentionMask::LongformerGlobal, ..attention };
    b.attention_from_global(ours, near, all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(json: serde_json::Value) -> Result<Vec<usize>> {
        let values = json.as_object().cloned().unwrap_or_default();
        reaches(&ConfigReader::new(values), 2)
    }

    #[test]
    fn windows_are_one_for_all_layers_or_one_for_each() {
        let json = |window: serde_json::Value| serde_json::json!({ "attention_window": window });
        assert_eq!(windows(serde_json::json!({})).unwrap(), [256, 256]);
        assert_eq!(windows(json(64.into())).unwrap(), [32, 32]);
        assert_eq!(windows(json(vec![8, 512].into())).unwrap(), [4, 256]);
        for bad in [vec![8], vec![8, 7], vec![0, 8], vec![-2, 8]] {
            assert!(windows(json(bad.clone().into())).is_err(), "{bad:?}");
        }
    }
}
