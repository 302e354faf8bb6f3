//! Hyper-parameters under the keys of Hugging Face.

use super::model::ExportModel;
use super::round_trip::{self, AcceptedDifferences};
use crate::import::{BIDIRECTIONAL, defaults};
use serde_json::{Map, Value, json};
use siskin::arch::{ConfigReader, Family, ModelConfig, Topology};
use siskin::graph::{ActivationKind, Graph, NormKind, Op, Routing};
use siskin::tokenizer::Tokenizer;
use siskin::{Error, Result};

/// `model_type` and the class that runs it in Transformers.
const CLASSES: &[(&str, &str)] = &[
    ("llama", "LlamaForCausalLM"),
    ("mistral", "MistralForCausalLM"),
    ("smollm3", "SmolLM3ForCausalLM"),
    ("qwen2", "Qwen2ForCausalLM"),
    ("qwen3", "Qwen3ForCausalLM"),
    ("gemma2", "Gemma2ForCausalLM"),
    ("gemma3_text", "Gemma3ForCausalLM"),
    ("phi", "PhiForCausalLM"),
    ("phi3", "Phi3ForCausalLM"),
    ("gpt2", "GPT2LMHeadModel"),
    ("gpt_neox", "GPTNeoXForCausalLM"),
    ("bloom", "BloomForCausalLM"),
    ("mpt", "MptForCausalLM"),
    ("olmo2", "Olmo2ForCausalLM"),
    ("olmo3", "Olmo3ForCausalLM"),
    ("granite", "GraniteForCausalLM"),
    ("starcoder2", "Starcoder2ForCausalLM"),
    ("qwen3_moe", "Qwen3MoeForCausalLM"),
    ("granitemoe", "GraniteMoeForCausalLM"),
    ("olmoe", "OlmoeForCausalLM"),
    ("mixtral", "MixtralForCausalLM"),
    ("bert", "BertModel"),
    ("modernbert", "ModernBertModel"),
    ("nomic_bert", "NomicBertModel"),
    ("t5", "T5ForConditionalGeneration"),
    ("umt5", "UMT5ForConditionalGeneration"),
    ("bart", "BartForConditionalGeneration"),
    ("mbart", "MBartForConditionalGeneration"),
    ("marian", "MarianMTModel"),
    ("m2m_100", "M2M100ForConditionalGeneration"),
    ("pegasus", "PegasusForConditionalGeneration"),
    ("whisper", "WhisperForConditionalGeneration"),
];

/// T5's keys and the equivalent keys of other encoder–decoder models.
const SIDES: &[(&str, &str)] = &[
    ("num_layers", "encoder_layers"),
    ("num_decoder_layers", "decoder_layers"),
    ("num_heads", "encoder_attention_heads"),
    ("d_ff", "encoder_ffn_dim"),
];

/// The keys for hidden size, layers, heads, feed-forward size, positions and the norms' epsilon; empty if a class has
/// no such key.
type Words = [&'static str; 6];

/// The keys of classes that differ from most.
const WORDS: &[(&str, Words)] = &[
    ("gpt2", ["n_embd", "n_layer", "n_head", "n_inner", "n_positions", "layer_norm_epsilon"]),
    ("bloom", ["hidden_size", "n_layer", "n_head", "", "seq_length", "layer_norm_epsilon"]),
    ("mpt", ["d_model", "n_layers", "n_heads", "", "max_seq_len", "layer_norm_epsilon"]),
    ("t5", ["d_model", "num_layers", "num_heads", "d_ff", "", "layer_norm_epsilon"]),
    (
        "modernbert",
        [
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
            "norm_eps",
        ],
    ),
    (
        "starcoder2",
        [
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
            "norm_epsilon",
        ],
    ),
];

/// Factor, low and high frequency factor and original length of the RoPE scalings of published Llama 3 models.
const LLAMA_3: [(f64, f64, f64, f64); 2] = [(8.0, 1.0, 4.0, 8192.0), (32.0, 1.0, 4.0, 8192.0)];

/// Returns `config.json`: the source's own if it was a Hugging Face folder, an equivalent one otherwise.
pub(super) fn hugging_face(model: &ExportModel<'_>, notes: &mut Vec<String>) -> Result<Map<String, Value>> {
    let values = model.config.values();
    let is_gguf =
        model.source() == "GGUF" || !values.contains_key("model_type") && values.contains_key("block_count");
    let mut config = if is_gguf { translated(model, notes)? } else { values.clone() };
    let kind = model_type(model)?;
    config.entry("model_type").or_insert_with(|| kind.into());
    for (theirs, ours) in SIDES.iter().filter(|_| is_t5(kind)) {
        if let Some(value) = config.get(*ours).cloned() {
            config.entry(*theirs).or_insert(value);
        }
    }
    // CTranslate2 stores all numbers as one type.
    if let Some(distance) = config.get_mut("relative_attention_max_distance")
        && let Some(number) = distance.as_f64()
    {
        *distance = json!(number as u64);
    }
    let kind = config.get("model_type").and_then(Value::as_str).unwrap_or(kind);
    let class = CLASSES.iter().find(|(known, _)| *known == kind).map(|(_, class)| *class);
    // The source's class no longer applies if the model became an encoder.
    let is_class = !matches!(model.family.form, Topology::Decoder(_)) || model.graphs.decoder.is_some();
    if let Some(class) = class.filter(|_| is_class && !config.contains_key("architectures")) {
        config.insert("architectures".to_owned(), json!([class]));
    }
    Ok(config)
}

fn is_t5(kind: &str) -> bool {
    matches!(kind, "t5" | "umt5")
}

fn model_type(model: &ExportModel<'_>) -> Result<&'static str> {
    let none = || Error::unsupported("config.model_type", "Hugging Face does not support the family");
    // Only these models have a position bias in each layer.
    if model.family.name == "t5" && model.file.tensor("dec.blk.1.attn_rel_b.weight").is_some() {
        return Ok("umt5");
    }
    if model.family.name == "olmo2" && model.hyper.windows.iter().any(Option::is_some) {
        return Ok("olmo3");
    }
    model.family.hugging_face.first().copied().ok_or_else(none)
}

fn translated(model: &ExportModel<'_>, notes: &mut Vec<String>) -> Result<Map<String, Value>> {
    let (h, kind) = (&model.hyper, model_type(model)?);
    let graph = model.graphs.decoder.as_ref().or(model.graphs.encoder.as_ref());
    let graph = graph.ok_or_else(|| Error::unsupported("graph", "the model computes nothing"))?;
    let mut config = Map::new();
    let alike = if is_t5(kind) { "t5" } else { kind };
    let own = WORDS.iter().find(|(known, _)| *known == alike).map(|(_, words)| *words);
    let words = own.unwrap_or_else(|| usual_words(graph));
    let layers = match kind {
        "t5" | "umt5" => model.graphs.encoder.as_ref().map_or(h.layers, |graph| graph.attentions().count()),
        _ => h.layers,
    };
    let numbers = [
        json!(h.width),
        json!(layers),
        json!(h.heads),
        json!(h.feed_forward),
        json!(h.context),
        json!(h.epsilon.to_string().parse::<f64>().unwrap_or_default()),
    ];
    for (word, number) in words.into_iter().zip(numbers).filter(|(word, _)| !word.is_empty()) {
        config.insert(word.to_owned(), number);
    }
    let mut set = |key: &str, value: Value| config.insert(key.to_owned(), value);
    set("vocab_size", json!(h.vocabulary));
    if let Some(classes) = model.config.get("id2label") {
        set("id2label", classes.clone());
        if let Value::Object(classes) = classes {
            let numbers = classes.iter().filter_map(|(id, name)| {
                let name = name.as_str()?.to_owned();
                Some((name, json!(id.parse::<u64>().ok()?)))
            });
            set("label2id", Value::Object(numbers.collect()));
        }
    }
    set("tie_word_embeddings", json!(model.file.tensor("output.weight").is_none()));
    if usual(kind) && kind != "phi" {
        set("head_dim", json!(h.head_size));
    }
    if h.kv_heads != h.heads || usual(kind) {
        set("num_key_value_heads", json!(h.kv_heads));
    }
    let activation = activation(graph, kind);
    set(if kind == "gpt2" { "activation_function" } else { "hidden_act" }, json!(activation));
    if kind.starts_with("gemma") {
        set("hidden_activation", json!(activation));
    }
    for (key, value) in family(model, graph, kind)? {
        set(&key, value);
    }
    for (key, value) in rotation(model, graph, kind, notes)? {
        set(&key, value);
    }
    if let Some(settings) = model.config.get("sentence_transformers") {
        set("sentence_transformers", settings.clone());
    }
    if let Some(section) = model.file.tokenizer() {
        let tokenizer = Tokenizer::open(section)?;
        let ids = [
            ("bos_token_id", tokenizer.bos()),
            ("eos_token_id", tokenizer.eos()),
            ("pad_token_id", tokenizer.pad()),
        ];
        for (key, id) in ids {
            set(key, json!(id));
        }
    }
    check(model, kind, &config)?;
    notes.push(
        "config.json is derived from GGUF keys; compare it with the model's own, if it has one".to_owned(),
    );
    Ok(config)
}

/// Refuses a model if the keys describe another graph than it computes.
fn check(model: &ExportModel<'_>, kind: &str, config: &Map<String, Value>) -> Result<()> {
    let mut config = config.clone();
    config.insert("model_type".to_owned(), kind.into());
    defaults::fill(kind, &mut config)?;
    let has = |name: &str| model.file.tensor(name).is_some();
    let (_, own) = model.family.build(&model.config, &has)?;
    let read = Family::of_hugging_face(kind)?.build(&ConfigReader::new(config), &has);
    round_trip::check(own, read, "safetensors", AcceptedDifferences::default())
}

/// Returns true if the class has the number of KV heads in its configuration even if it equals the number of heads.
fn usual(kind: &str) -> bool {
    !matches!(
        kind,
        "gpt2" | "bloom" | "mpt" | "gpt_neox" | "bert" | "t5" | "umt5" | "modernbert" | "nomic_bert"
    )
}

fn usual_words(graph: &Graph) -> Words {
    let root_mean_square =
        graph.nodes.iter().any(|node| matches!(node.op, Op::Norm { kind: NormKind::Rms, .. }));
    let epsilon = if root_mean_square { "rms_norm_eps" } else { "layer_norm_eps" };
    [
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "max_position_embeddings",
        epsilon,
    ]
}

fn activation(graph: &Graph, kind: &str) -> &'static str {
    let kinds = graph.nodes.iter().find_map(|node| match node.op {
        Op::Activate(ActivationKind::Sigmoid | ActivationKind::EluPlusOne) => None,
        Op::Activate(kind) | Op::Gate(kind) => Some(kind),
        _ => None,
    });
    match kinds {
        Some(ActivationKind::GeluTanh) if matches!(kind, "gpt2" | "phi") => "gelu_new",
        Some(ActivationKind::GeluTanh) => "gelu_pytorch_tanh",
        Some(ActivationKind::Gelu) => "gelu",
        Some(ActivationKind::Relu) => "relu",
        // The last two are never activations of a feed-forward block.
        Some(ActivationKind::Silu | ActivationKind::Sigmoid | ActivationKind::EluPlusOne) | None => "silu",
    }
}

/// Returns the keys that only some families have.
fn family(model: &ExportModel<'_>, graph: &Graph, kind: &str) -> Result<Vec<(String, Value)>> {
    let (h, config) = (&model.hyper, &model.config);
    let mut keys: Vec<(String, Value)> = Vec::new();
    let mut set = |key: &str, value: Value| keys.push((key.to_owned(), value));
    for (theirs, ours) in [
        ("attn_logit_softcapping", "attn_logit_softcapping"),
        ("final_logit_softcapping", "final_logit_softcapping"),
        ("attention.scale", "attention_multiplier"),
        ("embedding_scale", "embedding_multiplier"),
        ("residual_scale", "residual_multiplier"),
        ("logit_scale", "logits_scaling"),
        (
            "expert_count",
            if kind == "mixtral" || kind == "granitemoe" { "num_local_experts" } else { "num_experts" },
        ),
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
    ] {
        if let Some(value) = config.get(theirs) {
            set(ours, value.clone());
        }
    }
    if kind == "olmo3" {
        set("layer_types", kinds_of_layers(h));
    }
    if kind == "gemma2" || kind == "gemma3_text" {
        let scale = graph.attentions().next().map_or(1.0, |attention| f64::from(attention.scale));
        set("query_pre_attn_scalar", json!((1.0 / (scale * scale)).round() as u64));
        set("layer_types", kinds_of_layers(h));
    }
    if model.is_reader() && model.is_bidirectional() {
        match kind {
            "gemma3_text" => set(BIDIRECTIONAL, json!(true)),
            _ => set("is_causal", json!(false)),
        }
    }
    if let Some(window) = h.windows.iter().flatten().max() {
        set("sliding_window", json!(window));
    }
    let has = |name: &str| model.file.tensor(name).is_some();
    match kind {
        "llama" | "granite" | "granitemoe" | "qwen3" | "olmo2" | "olmo3" | "smollm3" => {
            set("attention_bias", json!(has("blk.0.attn_q.bias")));
            set("mlp_bias", json!(has("blk.0.ffn_up.bias")));
        }
        "gemma2" | "gemma3_text" => set("attention_bias", json!(has("blk.0.attn_q.bias"))),
        "olmoe" => {
            set("attention_bias", json!(has("blk.0.attn_q.bias")));
            set("norm_topk_prob", json!(normalizes(graph)));
        }
        "qwen2_moe" | "qwen3_moe" => {
            let plain = |layer: &usize| !has(&format!("blk.{layer}.ffn_gate_inp.weight"));
            set("norm_topk_prob", json!(normalizes(graph)));
            set("decoder_sparse_step", json!(1));
            set("mlp_only_layers", (0..h.layers).filter(plain).collect());
            set("attention_bias", json!(has("blk.0.attn_q.bias")));
        }
        "mpt" => {
            let most = config.number(&["attention.max_alibi_bias"])?.unwrap_or(8.0);
            // Transformers accepts integers only.
            let most = if most.fract() == 0.0 { json!(most as u64) } else { json!(most) };
            let clip = config.get("attention.clamp_kqv").cloned();
            set("attn_config", json!({"alibi": true, "alibi_bias_max": most, "clip_qkv": clip}));
        }
        "modernbert" => {
            let reach = h.windows.iter().flatten().max().copied().unwrap_or_default();
            set("local_attention", json!(2 * reach));
            set("layer_types", kinds_of_layers(h));
        }
        "bert" | "nomic_bert" => set("type_vocab_size", json!(h.segments)),
        "t5" | "umt5" => {
            let gated = if has("enc.blk.0.ffn_gate.weight") { "gated-gelu" } else { "relu" };
            set("feed_forward_proj", json!(gated));
            set("num_decoder_layers", json!(h.layers));
            set("d_kv", json!(h.head_size));
        }
        "phi" => set("qk_layernorm", json!(has("blk.0.attn_q_norm.weight"))),
        "starcoder2" => set("use_bias", json!(has("blk.0.attn_q.bias"))),
        _ => {}
    }
    Ok(keys)
}

/// Returns the attention type of each layer under its Hugging Face name.
fn kinds_of_layers(h: &ModelConfig) -> Value {
    let kind = |window: &Option<usize>| match window {
        Some(_) => "sliding_attention",
        None => "full_attention",
    };
    h.windows.iter().map(kind).collect()
}

/// Returns true if the weights of selected experts are normalized to a sum of one.
fn normalizes(graph: &Graph) -> bool {
    graph.nodes.iter().any(|node| matches!(node.op, Op::Route(Routing { normalize: true, .. })))
}

/// Returns the RoPE settings.
fn rotation(
    model: &ExportModel<'_>,
    graph: &Graph,
    kind: &str,
    notes: &mut Vec<String>,
) -> Result<Vec<(String, Value)>> {
    let Some(rope) = graph.ropes.first() else { return Ok(Vec::new()) };
    let config = &model.config;
    let usual = match kind {
        "gemma3_text" => 1_000_000.0,
        "modernbert" => 160_000.0,
        "nomic_bert" => 1000.0,
        _ => 10_000.0,
    };
    let theta = config.number(&["rope.freq_base"])?.unwrap_or(usual);
    if kind == "modernbert" {
        let local = config.number(&["rope.freq_base_swa"])?.unwrap_or(10_000.0);
        let of = |theta: f64| json!({"rope_type": "default", "rope_theta": theta});
        let kinds = json!({"full_attention": of(theta), "sliding_attention": of(local)});
        return Ok(vec![("rope_parameters".to_owned(), kinds)]);
    }
    let mut keys = vec![("rope_theta".to_owned(), json!(theta))];
    if kind == "gpt_neox" {
        keys.push(("rotary_emb_base".to_owned(), json!(theta)));
    }
    if kind == "gemma3_text" {
        let local = config.number(&["rope.freq_base_swa"])?.unwrap_or(10_000.0);
        keys.push(("rope_local_base_freq".to_owned(), json!(local)));
    }
    let part = 2.0 * rope.frequencies.len() as f64 / model.hyper.head_size as f64;
    if part < 1.0 || matches!(kind, "gpt_neox" | "phi") {
        let key = if kind == "gpt_neox" { "rotary_pct" } else { "partial_rotary_factor" };
        keys.push((key.to_owned(), json!(part)));
    }
    let original = config.number(&["rope.scaling.original_context_length"])?;
    let factor = config.number(&["rope.scaling.factor"])?;
    if let Some(factors) = config.numbers(&["rope.factors"])? {
        match llama_3(theta, &factors) {
            Some(scaling) => keys.push(("rope_scaling".to_owned(), scaling)),
            None => {
                notes.push(
                    "config.json stores the RoPE factors under rope.factors, which only Siskin reads"
                        .to_owned(),
                );
                keys.push(("rope.factors".to_owned(), json!(factors)));
            }
        }
    } else if let (Some(long), Some(short)) =
        (config.get("rope.long_factor"), config.get("rope.short_factor"))
    {
        keys.push((
            "original_max_position_embeddings".to_owned(),
            json!(original.map(|length| length as u64)),
        ));
        keys.push((
            "rope_scaling".to_owned(),
            json!({"type": "longrope", "long_factor": long, "short_factor": short,
            "attention_factor": config.get("rope.scaling.attn_factor")}),
        ));
    } else if let Some(word) = config.word(&["rope.scaling.type"])?.filter(|word| *word != "none") {
        keys.push((
            "rope_scaling".to_owned(),
            json!({"rope_type": word, "factor": factor,
            "attention_factor": config.get("rope.scaling.attn_factor"),
            "beta_fast": config.get("rope.scaling.yarn_beta_fast"),
            "beta_slow": config.get("rope.scaling.yarn_beta_slow"),
            "original_max_position_embeddings": original.map(|length| length as u64)}),
        ));
    }
    if kind == "olmo3" {
        // The scaling applies to one kind of layer.
        let plain = json!({"rope_type": "default", "rope_theta": theta});
        let scaling =
            keys.iter().find(|(key, _)| key == "rope_scaling").and_then(|(_, value)| value.as_object());
        let mut full = plain.as_object().cloned().unwrap_or_default();
        full.extend(scaling.cloned().unwrap_or_default());
        let kinds = json!({"full_attention": full, "sliding_attention": plain});
        return Ok(vec![("rope_parameters".to_owned(), kinds)]);
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
