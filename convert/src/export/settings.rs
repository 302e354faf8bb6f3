//! Hyperparameters under the keys of Hugging Face.

use super::model::ExportModel;
use super::round_trip::{self, AcceptedDifferences};
use crate::import::defaults;
use serde_json::{Map, Value, json};
use siskin_format::{Error, Result};
use siskin_graph::arch::{ConfigReader, FamilyDescriptor, HuggingFaceKeys, RopeKeys, Topology};
use siskin_graph::op::{Activate, Gate};
use siskin_graph::{ActivationFunction, Graph};
use siskin_tokenizer::Tokenizer;

/// Factor, low and high frequency factor and original length of the RoPE scalings of published Llama 3 models.
const LLAMA_3: [(f64, f64, f64, f64); 2] = [(8.0, 1.0, 4.0, 8192.0), (32.0, 1.0, 4.0, 8192.0)];

/// Keys of GGUF that have one equivalent in all classes.
const RENAMED: &[(&str, &str)] = &[
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
    ("attention.scale", "attention_multiplier"),
    ("embedding_scale", "embedding_multiplier"),
    ("residual_scale", "residual_multiplier"),
    ("logit_scale", "logits_scaling"),
    ("expert_used_count", "num_experts_per_tok"),
    ("expert_feed_forward_length", "moe_intermediate_size"),
    ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
    ("expert_weights_norm", "norm_topk_prob"),
    ("use_parallel_residual", "use_parallel_residual"),
    ("attention.relative_buckets_count", "relative_attention_num_buckets"),
    ("relative_attention_max_distance", "relative_attention_max_distance"),
    ("scale_decoder_outputs", "scale_decoder_outputs"),
    ("decoder_start_token_id", "decoder_start_token_id"),
    ("attention.clamp_kqv", "clip_qkv"),
];

/// Returns `config.json`: the source's own if it was a Hugging Face folder, an equivalent one otherwise.
pub(super) fn hugging_face(model: &ExportModel<'_>, notes: &mut Vec<String>) -> Result<Map<String, Value>> {
    let values = model.config.values();
    let is_gguf =
        model.source() == "GGUF" || !values.contains_key("model_type") && values.contains_key("block_count");
    let mut config = if is_gguf { translated(model, notes)? } else { values.clone() };
    let kind = model_type(model)?;
    config.entry("model_type").or_insert_with(|| kind.into());
    for (copy, original) in model.descriptor.hugging_face.keys.copies {
        if let Some(value) = config.get(*original).cloned() {
            config.entry(*copy).or_insert(value);
        }
    }
    // CTranslate2 stores all numbers as one type.
    if let Some(distance) = config.get_mut("relative_attention_max_distance")
        && let Some(number) = distance.as_f64()
    {
        *distance = json!(number as u64);
    }
    let kind = config.get("model_type").and_then(Value::as_str).unwrap_or(kind);
    let class = FamilyDescriptor::of_hugging_face(kind)
        .ok()
        .and_then(|descriptor| descriptor.hugging_face.model_type(kind));
    // The source's class no longer applies if the model became an encoder.
    let is_class =
        !matches!(model.descriptor.family.topology, Topology::Decoder(_)) || model.graphs.decoder.is_some();
    if let Some(class) = class.and_then(|kind| kind.class)
        && is_class
        && !config.contains_key("architectures")
    {
        config.insert("architectures".to_owned(), json!([class]));
    }
    Ok(config)
}

fn model_type(model: &ExportModel<'_>) -> Result<&'static str> {
    let family = &model.descriptor.hugging_face;
    let variant = model.seen_by_family(|model| (family.keys.variant)(model.model_config, model.has));
    let first = family.model_types.first().map(|kind| kind.name);
    variant
        .or(first)
        .ok_or_else(|| Error::unsupported("config.model_type", "Hugging Face does not support the family"))
}

fn translated(model: &ExportModel<'_>, notes: &mut Vec<String>) -> Result<Map<String, Value>> {
    let kind = model_type(model)?;
    let keys = &model.descriptor.hugging_face.keys;
    let graph =
        model.main_graph().ok_or_else(|| Error::unsupported("graph", "the model computes nothing"))?;
    let mut config = sizes(model, keys);
    if let Some(classes) = model.config.get("id2label") {
        config.insert("id2label".to_owned(), classes.clone());
        if let Value::Object(classes) = classes {
            let numbers = classes.iter().filter_map(|(id, name)| {
                let name = name.as_str()?.to_owned();
                Some((name, json!(id.parse::<u64>().ok()?)))
            });
            config.insert("label2id".to_owned(), Value::Object(numbers.collect()));
        }
    }
    let activation = activation(graph, keys);
    config.extend(keys.activation.iter().map(|key| ((*key).to_owned(), json!(activation))));
    config.extend(others(model, keys)?);
    config.extend(rotation(model, graph, &keys.rope, notes)?);
    if let Some(settings) = model.config.get("sentence_transformers") {
        config.insert("sentence_transformers".to_owned(), settings.clone());
    }
    if let Some(section) = model.file.tokenizer() {
        let tokenizer = Tokenizer::open(section)?;
        let ids = [
            ("bos_token_id", tokenizer.bos()),
            ("eos_token_id", tokenizer.eos()),
            ("pad_token_id", tokenizer.pad()),
        ];
        config.extend(ids.map(|(key, id)| (key.to_owned(), json!(id))));
    }
    check(model, kind, &config)?;
    notes.push(
        "config.json is derived from GGUF keys; compare it with the model's own, if it has one".to_owned(),
    );
    Ok(config)
}

/// Returns the sizes.
fn sizes(model: &ExportModel<'_>, keys: &HuggingFaceKeys) -> Map<String, Value> {
    let h = &model.model_config;
    let epsilon = h.epsilon.to_string().parse::<f64>().unwrap_or_default();
    let mut sizes = vec![
        (keys.sizes.width, json!(h.width)),
        (keys.sizes.layers, json!(h.layers)),
        (keys.sizes.heads, json!(h.heads)),
        (keys.sizes.feed_forward, json!(h.feed_forward)),
        (keys.sizes.context, json!(h.context)),
        (keys.sizes.epsilon, json!(epsilon)),
        ("vocab_size", json!(h.vocabulary)),
        ("tie_word_embeddings", json!(model.file.tensor("output.weight").is_none())),
    ];
    if keys.head_size {
        sizes.push(("head_dim", json!(h.head_size)));
    }
    if keys.kv_heads || h.kv_heads != h.heads {
        sizes.push(("num_key_value_heads", json!(h.kv_heads)));
    }
    let there = sizes.into_iter().filter(|(key, _)| !key.is_empty());
    there.map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Rejects a model if the keys describe another graph than it computes.
fn check(model: &ExportModel<'_>, kind: &str, config: &Map<String, Value>) -> Result<()> {
    let mut config = config.clone();
    config.insert("model_type".to_owned(), kind.into());
    defaults::fill(kind, &mut config);
    let has = |name: &str| model.file.tensor(name).is_some();
    let (_, own) = model.descriptor.family.build(&model.config, &has)?;
    let read = FamilyDescriptor::of_hugging_face(kind)?.family.build(&ConfigReader::new(config), &has);
    round_trip::check(own, read, "safetensors", AcceptedDifferences::default())
}

fn activation(graph: &Graph, keys: &HuggingFaceKeys) -> &'static str {
    let kinds = graph.nodes.iter().find_map(|node| {
        if let Some(gate) = node.op.downcast_ref::<Gate>() {
            return Some(gate.function);
        }
        let function = node.op.downcast_ref::<Activate>()?.function;
        let is_inner = matches!(function, ActivationFunction::Sigmoid | ActivationFunction::EluPlusOne);
        (!is_inner).then_some(function)
    });
    match kinds {
        Some(ActivationFunction::GeluTanh) => keys.gelu_tanh,
        Some(ActivationFunction::Gelu) => "gelu",
        Some(ActivationFunction::Relu) => "relu",
        // The last two are never activations of a feed-forward block.
        Some(ActivationFunction::Silu | ActivationFunction::Sigmoid | ActivationFunction::EluPlusOne)
        | None => "silu",
    }
}

/// Returns the keys that only some models have.
fn others(model: &ExportModel<'_>, keys: &HuggingFaceKeys) -> Result<Map<String, Value>> {
    let mut config = Map::new();
    for (theirs, ours) in RENAMED.iter().copied().chain([("expert_count", keys.experts)]) {
        if let Some(value) = model.config.get(theirs) {
            config.insert(ours.to_owned(), value.clone());
        }
    }
    if model.is_reader() && model.is_bidirectional() {
        match model.descriptor.family.bidirectional_key {
            Some(key) => config.insert(key.to_owned(), json!(true)),
            None => config.insert("is_causal".to_owned(), json!(false)),
        };
    }
    if let Some(window) = model.model_config.windows.iter().flatten().max() {
        config.insert("sliding_window".to_owned(), json!(window));
    }
    for (key, tensor) in keys.presence {
        config.insert((*key).to_owned(), json!(model.file.tensor(tensor).is_some()));
    }
    config.extend(model.seen_by_family(keys.others)?);
    Ok(config)
}

/// Returns the RoPE settings.
fn rotation(
    model: &ExportModel<'_>,
    graph: &Graph,
    keys: &RopeKeys,
    notes: &mut Vec<String>,
) -> Result<Map<String, Value>> {
    let mut config = Map::new();
    let Some(rope) = graph.ropes.first() else { return Ok(config) };
    let theta = model.config.number(&["rope.freq_base"])?.unwrap_or(keys.theta);
    let local = match keys.local_theta {
        Some(usual) => model.config.number(&["rope.freq_base_swa"])?.unwrap_or(usual),
        None => theta,
    };
    let scaling = scaling(model, theta, notes)?;
    if (keys.by_layer_kind)(&model.model_config) {
        // The scaling applies to one kind of layer.
        let plain = |theta: f64| json!({"rope_type": "default", "rope_theta": theta});
        let mut full = plain(theta);
        if let (Some(Value::Object(scaling)), Value::Object(full)) = (scaling.get("rope_scaling"), &mut full)
        {
            full.extend(scaling.clone());
        }
        let kinds = json!({"full_attention": full, "sliding_attention": plain(local)});
        config.insert("rope_parameters".to_owned(), kinds);
        return Ok(config);
    }
    config.extend(keys.theta_keys.iter().map(|key| ((*key).to_owned(), json!(theta))));
    if !keys.local.is_empty() {
        config.insert(keys.local.to_owned(), json!(local));
    }
    let part = 2.0 * rope.frequencies.len() as f64 / model.model_config.head_size as f64;
    if part < 1.0 || keys.always_fraction {
        config.insert(keys.fraction.to_owned(), json!(part));
    }
    config.extend(scaling);
    Ok(config)
}

/// Returns the RoPE scaling.
fn scaling(model: &ExportModel<'_>, theta: f64, notes: &mut Vec<String>) -> Result<Map<String, Value>> {
    let config = &model.config;
    let mut keys = Map::new();
    let mut set = |key: &str, value: Value| keys.insert(key.to_owned(), value);
    let original = config.number(&["rope.scaling.original_context_length"])?;
    let factor = config.number(&["rope.scaling.factor"])?;
    if let Some(factors) = config.numbers(&["rope.factors"])? {
        match llama_3(theta, &factors) {
            Some(scaling) => set("rope_scaling", scaling),
            None => {
                let note = "config.json stores the RoPE factors under rope.factors, which only Siskin reads";
                notes.push(note.to_owned());
                set("rope.factors", json!(factors))
            }
        };
    } else if let (Some(long), Some(short)) =
        (config.get("rope.long_factor"), config.get("rope.short_factor"))
    {
        set("original_max_position_embeddings", json!(original.map(|length| length as u64)));
        set(
            "rope_scaling",
            json!({"type": "longrope", "long_factor": long, "short_factor": short,
            "attention_factor": config.get("rope.scaling.attn_factor")}),
        );
    } else if let Some(word) = config.word(&["rope.scaling.type"])?.filter(|word| *word != "none") {
        set(
            "rope_scaling",
            json!({"rope_type": word, "factor": factor,
            "attention_factor": config.get("rope.scaling.attn_factor"),
            "beta_fast": config.get("rope.scaling.yarn_beta_fast"),
            "beta_slow": config.get("rope.scaling.yarn_beta_slow"),
            "original_max_position_embeddings": original.map(|length| length as u64)}),
        );
    }
    Ok(keys)
}

/// Returns the published scaling that gives these factors.
fn llama_3(theta: f64, factors: &[f64]) -> Option<Value> {
    LLAMA_3.into_iter().find_map(|(factor, low, high, original)| {
        let expected = |pair: usize| {
            let wavelength = std::f64::consts::TAU * theta.powf(pair as f64 / factors.len() as f64);
            if wavelength < original / high {
                1.0
            } else if wavelength > original / low {
                factor
            } else {
                let smooth = (original / wavelength - low) / (high - low);
                1.0 / ((1.0 - smooth) / factor + smooth)
            }
        };
        let fits =
            factors.iter().enumerate().all(|(pair, &found)| (found / expected(pair) - 1.0).abs() < 1e-4);
        fits.then(|| {
            json!({"rope_type": "llama3", "factor": factor, "low_freq_factor": low,
            "high_freq_factor": high, "original_max_position_embeddings": original})
        })
    })
}
