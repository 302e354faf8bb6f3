//! Hyperparameters under the metadata keys of llama.cpp.

use super::Extra;
use super::value::MetadataValue;
use crate::export::model::ExportModel;
use crate::export::round_trip::AcceptedDifferences;
use crate::import::BIDIRECTIONAL;
use serde_json::Value as Json;
use siskin_format::{Error, Result};
use siskin_graph::arch::{GgufWindows, sliding_period};
use siskin_graph::op::Norm;
use siskin_graph::{AttentionMask, Graph, NormKind, RopeScaling, RopeScalingMethod, RopeTable};
use siskin_kernels::quant::BlockType;

/// Tensors that hold what other formats keep in configuration keys.
pub(super) use crate::import::FACTORS;

/// llama.cpp's pooling type RANK: the output is class scores instead of an embedding.
const RANK: u32 = 4;

/// Numbers of Hugging Face and of GGUF that have one equivalent in all families.
const NUMBERS: &[(&str, &str)] = &[
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
    ("attention_multiplier", "attention.scale"),
    ("embedding_multiplier", "embedding_scale"),
    ("residual_multiplier", "residual_scale"),
    ("logits_scaling", "logit_scale"),
    ("clip_qkv", "attention.clamp_kqv"),
    ("attn_config/clip_qkv", "attention.clamp_kqv"),
];
/// The same for counts.
const COUNTS: &[(&str, &str)] = &[
    ("num_local_experts", "expert_count"),
    ("num_experts", "expert_count"),
    ("num_experts_per_tok", "expert_used_count"),
    ("moe_intermediate_size", "expert_feed_forward_length"),
    ("shared_expert_intermediate_size", "expert_shared_feed_forward_length"),
    ("shared_intermediate_size", "expert_shared_feed_forward_length"),
    ("relative_attention_num_buckets", "attention.relative_buckets_count"),
    ("decoder_start_token_id", "decoder_start_token_id"),
    ("num_decoder_layers", "decoder_block_count"),
];

/// String keys that importers keep.
const KEPT: [&str; 7] = [
    "general.organization",
    "general.basename",
    "general.finetune",
    "general.version",
    "general.size_label",
    "general.source.url",
    "general.license.link",
];

/// The value of `general.file_type` for the type of most tensors.
const FILE_TYPES: &[(BlockType, u32)] = &[
    (BlockType::F32, 0),
    (BlockType::F16, 1),
    (BlockType::Q4_0, 2),
    (BlockType::Q4_1, 3),
    (BlockType::Q8_0, 7),
    (BlockType::Q5_0, 8),
    (BlockType::Q5_1, 9),
    (BlockType::Q2_K, 10),
    (BlockType::Q3_K, 12),
    (BlockType::Q4_K, 15),
    (BlockType::Q5_K, 17),
    (BlockType::Q6_K, 18),
    (BlockType::IQ4_NL, 25),
    (BlockType::IQ4_XS, 30),
    (BlockType::BF16, 32),
    (BlockType::TQ1_0, 36),
    (BlockType::TQ2_0, 37),
    (BlockType::MXFP4, 38),
];

/// Returns all keys except the tokenizer's.
pub(super) fn of(
    model: &ExportModel<'_>,
    architecture: &str,
    types: &[BlockType],
    notes: &mut Vec<String>,
) -> Result<Vec<(String, MetadataValue)>> {
    let metadata = model.file.metadata();
    let text = |key: &str, text: &str| (key.to_owned(), MetadataValue::Text(text.to_owned()));
    let mut keys = vec![text("general.architecture", architecture), text("general.type", "model")];
    keys.extend(metadata.name.as_deref().map(|name| text("general.name", name)));
    keys.extend(metadata.license.as_deref().map(|license| text("general.license", license)));
    for key in KEPT {
        let known = Some(model.provenance(key)).filter(|known| !known.is_empty());
        keys.extend(known.map(|known| text(key, known)));
    }
    let count = |block: BlockType| types.iter().filter(|&&other| other == block).count();
    let main =
        FILE_TYPES.iter().max_by_key(|(block, _)| count(*block) * usize::from(*block != BlockType::F32));
    let main = main.filter(|(block, _)| count(*block) > 0).map_or(0, |(_, number)| *number);
    keys.push(("general.file_type".to_owned(), MetadataValue::Unsigned(main)));
    keys.push(("general.quantization_version".to_owned(), MetadataValue::Unsigned(2)));
    let own = if model.source() == "GGUF" { kept(model) } else { keys_from_config(model, notes)? };
    keys.extend(own.into_iter().map(|(key, value)| (format!("{architecture}.{key}"), value)));
    note_what_is_left_out(model, notes)?;
    Ok(keys)
}

/// Adds notes about what llama.cpp computes differently from the model or does not support.
fn note_what_is_left_out(model: &ExportModel<'_>, notes: &mut Vec<String>) -> Result<()> {
    notes.extend(["dense", "prompts"].into_iter().filter_map(|key| model.note_without(key)));
    if model.config.flag(&["sentence_transformers/normalize"])? == Some(false) {
        notes.push(
            "GGUF cannot store that embeddings are not normalized: most programs normalize them".to_owned(),
        );
    }
    if let Some(max) = model.config.count(&["sentence_transformers/most_tokens"])? {
        notes.push(format!(
            "GGUF cannot store that texts have at most {max} tokens: truncate longer ones yourself"
        ));
    }
    let accepted = accepted_differences(model);
    if accepted.windows && model.descriptor.gguf.keys.windows == GgufWindows::None {
        notes.push("llama.cpp runs the model without its sliding window".to_owned());
    }
    if accepted.scales {
        notes.push(
            "llama.cpp derives the attention scale from the head size, which this model does not".to_owned(),
        );
    }
    Ok(())
}

/// Returns the differences of llama.cpp that are accepted and reported as notes.
pub(super) fn accepted_differences(model: &ExportModel<'_>) -> AcceptedDifferences {
    let (h, keys) = (&model.model_config, &model.descriptor.gguf.keys);
    let slides = h.windows.iter().any(Option::is_some);
    let known = [h.head_size, h.width / h.heads.max(1)].map(|size| 1.0 / (size as f32).sqrt());
    let is_known = |scale: f32| known.iter().any(|known| (scale / known - 1.0).abs() < 1e-6);
    let mut attentions = model.main_graph().into_iter().flat_map(Graph::attentions);
    let ropes = model.main_graph().map_or(&[][..], |graph| &graph.ropes);
    let grows = |rope: &RopeTable| {
        matches!(&rope.scaling, Some(RopeScaling { method: RopeScalingMethod::DynamicNtk { .. }, .. }))
    };
    let loses_windows = match keys.windows {
        GgufWindows::None => true,
        GgufWindows::Any => false,
        GgufWindows::Periodic => sliding_period(&h.windows, 1).is_none(),
    };
    AcceptedDifferences {
        growth: ropes.iter().any(grows),
        windows: slides && loses_windows,
        scales: keys.derives_scale && attentions.any(|attention| !is_known(attention.scale)),
    }
}

/// Returns the keys of a GGUF source.
fn kept(model: &ExportModel<'_>) -> Vec<(String, MetadataValue)> {
    let keys = model.config.values().iter();
    let keys = keys.filter(|(key, _)| {
        FACTORS.iter().all(|(_, known)| known != key)
            && !["token_type_count", BIDIRECTIONAL].contains(&key.as_str())
    });
    keys.filter_map(|(key, value)| Some((key.clone(), value_of(value)?))).collect()
}

fn value_of(json: &Json) -> Option<MetadataValue> {
    let whole = |json: &Json| json.as_i64().and_then(|number| i32::try_from(number).ok());
    match json {
        Json::Bool(truth) => Some(MetadataValue::Bool(*truth)),
        Json::Number(number) => match number.as_u64().and_then(|number| u32::try_from(number).ok()) {
            Some(number) => Some(MetadataValue::Unsigned(number)),
            None => number.as_f64().map(|number| MetadataValue::Float(number as f32)),
        },
        Json::String(text) => Some(MetadataValue::Text(text.clone())),
        Json::Array(list) if list.iter().all(Json::is_boolean) => {
            Some(MetadataValue::Bools(list.iter().filter_map(Json::as_bool).collect()))
        }
        Json::Array(list) if list.iter().all(|json| whole(json).is_some()) => {
            Some(MetadataValue::Ints(list.iter().filter_map(whole).collect()))
        }
        Json::Array(list) if list.iter().all(Json::is_number) => Some(MetadataValue::Floats(
            list.iter().filter_map(Json::as_f64).map(|number| number as f32).collect(),
        )),
        Json::Array(list) if list.iter().all(Json::is_string) => {
            let texts = list.iter().filter_map(Json::as_str).map(|text| text.as_bytes().to_vec());
            Some(MetadataValue::Texts(texts.collect()))
        }
        _ => None,
    }
}

/// Builds keys from the hyperparameters of a source in another format.
fn keys_from_config(
    model: &ExportModel<'_>,
    notes: &mut Vec<String>,
) -> Result<Vec<(String, MetadataValue)>> {
    let h = &model.model_config;
    let mut keys = Vec::new();
    let mut count = |key: &str, number: usize| {
        keys.push((key.to_owned(), MetadataValue::Unsigned(u32::try_from(number).unwrap_or(u32::MAX))));
    };
    count("vocab_size", h.vocabulary);
    count("context_length", h.context);
    count("embedding_length", h.width);
    count("feed_forward_length", h.feed_forward);
    count("attention.head_count", h.heads);
    count("attention.head_count_kv", h.kv_heads);
    count("attention.key_length", h.head_size);
    count("attention.value_length", h.head_size);
    count("block_count", h.layers);
    let windows = model.main_graph().into_iter().flat_map(Graph::attentions).filter_map(|attention| {
        match attention.attention_mask {
            AttentionMask::Causal(window) | AttentionMask::CausalEncoder(window) => window,
            // The file counts both sides of the window. 0 would mean no window.
            AttentionMask::LocalWindow(reach) => Some(reach.saturating_mul(2).max(1)),
            _ => None,
        }
    });
    if let Some(window) = windows.max() {
        count("attention.sliding_window", window);
    }
    if let Some(graph) = model.main_graph() {
        if let Some(rope) = graph.ropes.first() {
            count("rope.dimension_count", 2 * rope.frequencies.len());
        }
        let mut norms = graph.nodes.iter().filter_map(|node| node.op.downcast_ref::<Norm>());
        let is_rms = norms.next_back().is_some_and(|norm| norm.kind == NormKind::Rms);
        let key = if is_rms { "attention.layer_norm_rms_epsilon" } else { "attention.layer_norm_epsilon" };
        keys.push((key.to_owned(), MetadataValue::Float(h.epsilon)));
    }
    rotation(model, &mut keys, notes)?;
    own(model, &mut keys, notes)?;
    Ok(keys)
}

/// Adds the RoPE scaling.
fn rotation(
    model: &ExportModel<'_>,
    keys: &mut Vec<(String, MetadataValue)>,
    notes: &mut Vec<String>,
) -> Result<()> {
    if model.main_graph().is_none_or(|graph| graph.ropes.is_empty()) {
        return Ok(());
    }
    let config = &model.config;
    let mut float = |key: &str, number: f64| keys.push((key.to_owned(), MetadataValue::Float(number as f32)));
    if let Some(theta) = theta(model)? {
        float("rope.freq_base", theta);
    }
    let local = config.number(&[
        "rope_parameters/sliding_attention/rope_theta",
        "rope_local_base_freq",
        "local_rope_theta",
    ])?;
    if let Some(local) = local {
        float("rope.freq_base_swa", local);
    }
    let scaling = ["rope_parameters/full_attention", "rope_parameters", "rope_scaling"];
    let Some(object) = scaling.into_iter().find(|object| config.get(object).is_some()) else { return Ok(()) };
    let number = |key: &str| config.number(&[&format!("{object}/{key}")]);
    let kind = config.word(&[&format!("{object}/rope_type"), &format!("{object}/type")])?;
    let original =
        number("original_max_position_embeddings")?.or(config.number(&["original_max_position_embeddings"])?);
    match kind.unwrap_or("default") {
        "linear" | "yarn" => {
            float("rope.scaling.factor", number("factor")?.unwrap_or(1.0));
            if let Some(factor) = number("attention_factor")? {
                float("rope.scaling.attn_factor", factor);
            }
            for (key, ours) in [("beta_fast", "yarn_beta_fast"), ("beta_slow", "yarn_beta_slow")] {
                if let Some(value) = number(key)? {
                    float(&format!("rope.scaling.{ours}"), value);
                }
            }
            keys.push((
                "rope.scaling.type".to_owned(),
                MetadataValue::Text(kind.unwrap_or_default().to_owned()),
            ));
        }
        "longrope" | "su" => {
            let magnitude =
                model.main_graph().and_then(|graph| graph.ropes.first()).map_or(1.0, |rope| rope.magnitude);
            float("rope.scaling.attn_factor", f64::from(magnitude));
        }
        "default" | "none" | "llama3" => {}
        other => notes.push(format!("llama.cpp has no RoPE scaling of type '{other}'")),
    }
    if let Some(original) = original {
        keys.push((
            "rope.scaling.original_context_length".to_owned(),
            MetadataValue::Unsigned(original as u32),
        ));
    }
    Ok(())
}

fn theta(model: &ExportModel<'_>) -> Result<Option<f64>> {
    model.config.number(&[
        "rope_parameters/full_attention/rope_theta",
        "rope_parameters/rope_theta",
        "rope_theta",
        "rotary_emb_base",
        "global_rope_theta",
    ])
}

/// Adds the keys of encoders: pooling, class labels and causality.
fn reading(model: &ExportModel<'_>, keys: &mut Vec<(String, MetadataValue)>) -> Result<()> {
    let config = &model.config;
    let classes = model.file.tensor("cls.output.weight").map(|tensor| tensor.rows);
    let pooling = match config.word(&["sentence_transformers/pooling"])? {
        None => 0,
        Some("first" | "cls") => 2,
        Some("last") => 3,
        Some("mean") => 1,
        Some(_) if classes.is_some() => 0,
        Some(other) => {
            let message = format!(
                "llama.cpp has no pooling '{other}' and would compute other embeddings; it has mean, cls \
                 and last: export to safetensors"
            );
            return Err(Error::unsupported("sentence_transformers.pooling", message));
        }
    };
    let pooling = if classes.is_some() { RANK } else { pooling };
    if let Some(classes) = classes {
        let name = |class: usize| {
            let name = config.get(&format!("id2label/{class}")).and_then(Json::as_str);
            name.map_or_else(|| format!("LABEL_{class}"), str::to_owned).into_bytes()
        };
        let names = MetadataValue::Texts((0..classes).map(name).collect());
        keys.push(("classifier.output_labels".to_owned(), names));
    }
    keys.push(("pooling_type".to_owned(), MetadataValue::Unsigned(pooling)));
    keys.push(("attention.causal".to_owned(), MetadataValue::Bool(!model.is_bidirectional())));
    Ok(())
}

/// Adds the keys that only some families have.
fn own(
    model: &ExportModel<'_>,
    keys: &mut Vec<(String, MetadataValue)>,
    notes: &mut Vec<String>,
) -> Result<()> {
    let config = &model.config;
    if model.model_config.projected_positions > 0 || config.word(&["attention_feature_map"])?.is_some() {
        let message = "llama.cpp has no such attention: it only has softmax attention";
        return Err(Error::unsupported("attention", message));
    }
    for &(theirs, ours) in NUMBERS {
        if let Some(number) = config.number(&[theirs])? {
            keys.push((ours.to_owned(), MetadataValue::Float(number as f32)));
        }
    }
    for &(theirs, ours) in COUNTS {
        if let Some(number) = config.count(&[theirs])? {
            keys.push((ours.to_owned(), MetadataValue::Unsigned(number as u32)));
        }
    }
    if model.graphs.decoder.is_none() {
        reading(model, keys)?;
    }
    let family = &model.descriptor.gguf.keys;
    if family.requires_output && model.file.tensor("output.weight").is_none() {
        let message = "llama.cpp has no model of this family with tied embeddings";
        return Err(Error::unsupported("gguf", message));
    }
    for (key, value) in model.seen_by_family(|model| (family.others)(model, notes))? {
        let Some(value) = value_of(&value) else { continue };
        match keys.iter_mut().find(|(known, _)| known == key) {
            Some((_, known)) => *known = value,
            None => keys.push((key.to_owned(), value)),
        }
    }
    Ok(())
}

/// Returns the RoPE frequency factors, which GGUF files store as tensors.
pub(super) fn factors(model: &ExportModel<'_>) -> Result<Vec<Extra>> {
    let mut extras = Vec::new();
    let mut add = |name: &'static str, numbers: Vec<f64>| {
        extras.push(Extra { name, numbers: numbers.into_iter().map(|number| number as f32).collect() });
    };
    for (name, key) in FACTORS {
        if let Some(numbers) = model.config.numbers(&[key])? {
            add(name, numbers);
        }
    }
    for (key, name) in
        [("long_factor", "rope_factors_long.weight"), ("short_factor", "rope_factors_short.weight")]
    {
        let keys = [format!("rope_scaling/{key}"), format!("rope_parameters/{key}")];
        if let Some(numbers) = model.config.numbers(&[&keys[0], &keys[1]])? {
            add(name, numbers);
        }
    }
    let kind = ["rope_scaling", "rope_parameters"]
        .map(|object| [format!("{object}/rope_type"), format!("{object}/type")]);
    let kind: Vec<&str> = kind.iter().flatten().map(String::as_str).collect();
    if model.config.word(&kind)? == Some("llama3")
        && let Some(rope) = model.main_graph().and_then(|graph| graph.ropes.first())
    {
        let theta = theta(model)?.unwrap_or(10_000.0);
        let size = (2 * rope.frequencies.len()) as f64;
        let plain = |pair: usize| theta.powf(-(2.0 * pair as f64) / size);
        let ratios =
            rope.frequencies.iter().enumerate().map(|(pair, &frequency)| plain(pair) / f64::from(frequency));
        add("rope_freqs.weight", ratios.collect());
    }
    Ok(extras)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_exported_block_type_has_one_file_type() {
        for &block in BlockType::ALL {
            let lines = FILE_TYPES.iter().filter(|(known, _)| *known == block).count();
            // The others are exported as floats.
            assert_eq!(lines, usize::from(block.codec().can_unpack()), "{}", block.name());
        }
        let numbers: HashSet<u32> = FILE_TYPES.iter().map(|(_, number)| *number).collect();
        assert_eq!(numbers.len(), FILE_TYPES.len());
    }
}
