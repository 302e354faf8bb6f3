//! The defaults of Transformers for keys that a configuration leaves out.

use serde_json::{Map, Value};
use siskin_graph::arch::{DefaultValue, FamilyDescriptor};

/// Equivalent keys: if a configuration has one of them, the others get no default.
const SAME: &[&[&str]] = &[
    &["hidden_size", "n_embd", "n_embed", "d_model", "dim"],
    &["num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"],
    &["num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"],
    &["intermediate_size", "n_inner", "ffn_dim", "hidden_dim", "d_ff"],
    &["max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length"],
    &["rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps", "norm_epsilon"],
    &["hidden_activation", "hidden_act", "activation_function", "activation"],
    &["num_local_experts", "num_experts"],
    &["sliding_window_pattern", "_sliding_window_pattern", "layer_types"],
    &["rope_theta", "rotary_emb_base"],
    &["partial_rotary_factor", "rotary_pct", "rotary_dim"],
    &["rope_parameters", "rope_scaling", "rope_theta", "rotary_emb_base"],
];
/// Objects that may hold keys that other configurations have at top level.
const ROPES: [&str; 2] = ["rope_parameters", "rope_scaling"];

/// Adds the defaults of `model_type` to the configuration.
pub(crate) fn fill(kind: &str, config: &mut Map<String, Value>) {
    let descriptor = FamilyDescriptor::of_hugging_face(kind).ok();
    let Some(kind) = descriptor.and_then(|descriptor| descriptor.hugging_face.model_type(kind)) else {
        return;
    };
    let has = |key: &str| config.get(key).is_some_and(|value| !value.is_null());
    let lacking = |key: &str| {
        // A key's first list is the one of its own meaning.
        let same = SAME.iter().find(|same| same.contains(&key)).copied().unwrap_or_default();
        let inside = ROPES.iter().filter_map(|rope| config.get(*rope)?.as_object());
        // An explicit null means no value and gets no default.
        !config.contains_key(key)
            && !same.iter().copied().any(has)
            && !inside.flat_map(Map::keys).any(|inner| same.contains(&inner.as_str()))
    };
    let lacking =
        |(key, default): &(&str, DefaultValue)| lacking(key).then(|| ((*key).to_owned(), default.json()));
    let added: Vec<_> = kind.defaults.iter().filter_map(lacking).collect();
    config.extend(added);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use siskin_graph::arch::DESCRIPTORS;

    fn filled(kind: &str, config: Value) -> Map<String, Value> {
        let mut config = config.as_object().unwrap().clone();
        fill(kind, &mut config);
        config
    }

    #[test]
    fn what_is_left_out_is_what_transformers_takes() {
        let gemma = filled("gemma3_text", json!({"hidden_size": 2560, "sliding_window": null}));
        assert_eq!(gemma["hidden_size"], 2560);
        assert_eq!(gemma["num_key_value_heads"], 4);
        assert_eq!(gemma["sliding_window"], Value::Null);
        assert_eq!(filled("phi", json!({}))["partial_rotary_factor"], 0.5);
        assert_eq!(filled("llama", json!({}))["rms_norm_eps"], 1e-6);
        assert!(!filled("llama", json!({})).contains_key("num_key_value_heads"), "it follows the heads");
    }

    #[test]
    fn another_name_of_a_key_is_enough() {
        assert!(!filled("gpt_neox", json!({"rotary_pct": 1.0})).contains_key("partial_rotary_factor"));
        assert!(!filled("bloom", json!({"n_embed": 96})).contains_key("hidden_size"));
        assert!(!filled("gpt_oss", json!({"rope_theta": 1e4})).contains_key("rope_parameters"));
        let nothing = filled("mixtral", json!({"rope_scaling": null, "rope_parameters": null}));
        assert_eq!(nothing["rope_theta"], 1e6);
        let half = filled("phi", json!({"rope_parameters": {"rope_theta": 5e3}}));
        assert_eq!((half.get("rope_theta"), half.get("partial_rotary_factor")), (None, Some(&json!(0.5))));
    }

    #[test]
    fn every_kind_of_model_has_its_defaults() {
        let kinds = DESCRIPTORS.iter().flat_map(|descriptor| descriptor.hugging_face.model_types);
        let lacking = kinds.filter(|kind| kind.defaults.is_empty()).map(|kind| kind.name);
        // Transformers has no class of this name.
        assert_eq!(lacking.collect::<Vec<_>>(), ["nllb"]);
    }
}
