//! T5 (arXiv:1910.10683), T5 v1.1 and mT5: pre-norm, relative position bias instead of position embeddings, unscaled
//! attention.

use super::blocks::whole;
use super::descriptor::DefaultValue::{Count, Number, Word};
use super::descriptor::{
    Ctranslate2Config, Ctranslate2Source, ExportedModel, GgufConfig, GgufKeys, HuggingFaceConfig,
    HuggingFaceKeys, Initialization, ModelType, OnnxNames, SizeKeys, Tasks, TokenizerDefaults, object,
    sequence_to_sequence_sizes,
};
use super::encoder_decoder::{self, block};
use super::experts::{self, ExpertGate};
use super::{ConfigReader, Family, FamilyDescriptor, ModelConfig, TensorRule, Topology};
use crate::{
    ActivationFunction, Attention, Builder, Graph, Op, OutputHead, RelativePositionBias, Routing, ValueId,
    Weight,
};
use serde_json::{Map, Value, json};
use siskin_format::{Error, Result};

pub(super) static FAMILY: Family = Family {
    name: "t5",
    tasks: Tasks::NAMED,
    bidirectional_key: None,
    read_config: model_config,
    topology: FORM,
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[
            ModelType {
                name: "t5",
                class: Some("T5ForConditionalGeneration"),
                defaults: &[
                    ("feed_forward_proj", Word("relu")),
                    ("layer_norm_epsilon", Number(1e-6)),
                    ("relative_attention_max_distance", Count(128)),
                    ("relative_attention_num_buckets", Count(32)),
                ],
            },
            ModelType {
                name: "mt5",
                class: None,
                defaults: &[
                    ("feed_forward_proj", Word("gated-gelu")),
                    ("layer_norm_epsilon", Number(1e-6)),
                    ("relative_attention_max_distance", Count(128)),
                    ("relative_attention_num_buckets", Count(32)),
                ],
            },
            ModelType {
                name: "umt5",
                class: Some("UMT5ForConditionalGeneration"),
                defaults: &[
                    ("feed_forward_proj", Word("gated-gelu")),
                    ("layer_norm_epsilon", Number(1e-6)),
                    ("relative_attention_max_distance", Count(128)),
                    ("relative_attention_num_buckets", Count(32)),
                ],
            },
        ],
        prefix: "",
        rules: &[RULES],
        keys: HuggingFaceKeys {
            sizes: SizeKeys {
                width: "d_model",
                layers: "num_layers",
                heads: "num_heads",
                feed_forward: "d_ff",
                context: "",
                epsilon: "layer_norm_epsilon",
            },
            copies: &[
                ("num_layers", "encoder_layers"),
                ("num_decoder_layers", "decoder_layers"),
                ("num_heads", "encoder_attention_heads"),
                ("d_ff", "encoder_ffn_dim"),
            ],
            variant: |_, has| has("dec.blk.1.attn_rel_b.weight").then_some("umt5"),
            others: hugging_face_keys,
            ..HuggingFaceKeys::BERT
        },
    },
    gguf: GgufConfig {
        architectures: &["t5"],
        rules: &[],
        keys: GgufKeys { others: gguf_keys, ..GgufKeys::NONE },
    },
    ctranslate2: Ctranslate2Config {
        specification: "TransformerSpec",
        recognizes: |has| has(CTRANSLATE2_BIAS),
        scales_queries: false,
        config: ctranslate2_config,
    },
    onnx: OnnxNames::SHARED_EMBEDDINGS,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization {
        tensors: &[
            "token_embd.weight",
            "{side}.blk.{}.attn_norm.weight",
            "{side}.blk.{}.attn_q.weight",
            "{side}.blk.{}.attn_k.weight",
            "{side}.blk.{}.attn_v.weight",
            "{side}.blk.{}.attn_o.weight",
            "{side}.blk.{}.attn_rel_b.weight",
            "{side}.blk.{}.ffn_norm.weight",
            "{side}.blk.{}.ffn_up.weight",
            "{side}.blk.{}.ffn_down.weight",
            "{side}.output_norm.weight",
            "dec.blk.{}.cross_attn_norm.weight",
            "dec.blk.{}.cross_attn_q.weight",
            "dec.blk.{}.cross_attn_k.weight",
            "dec.blk.{}.cross_attn_v.weight",
            "dec.blk.{}.cross_attn_o.weight",
        ],
        vectors: &["attn_rel_b"],
        deviation,
    },
};

pub(super) const FORM: Topology = Topology::Both {
    encoder: |config, _, b| encoder(config, b),
    decoder: |config, h, b| decoder(config, h, b),
};

pub(super) const RULES: &[TensorRule] = &[
    whole!("token_embd", "shared"),
    whole!("enc.token_embd", "encoder.embed_tokens"),
    whole!("dec.token_embd", "decoder.embed_tokens"),
    whole!("enc.blk.{}.attn_norm", "encoder.block.{}.layer.0.layer_norm"),
    whole!("enc.blk.{}.attn_q", "encoder.block.{}.layer.0.SelfAttention.q"),
    whole!("enc.blk.{}.attn_k", "encoder.block.{}.layer.0.SelfAttention.k"),
    whole!("enc.blk.{}.attn_v", "encoder.block.{}.layer.0.SelfAttention.v"),
    whole!("enc.blk.{}.attn_o", "encoder.block.{}.layer.0.SelfAttention.o"),
    whole!("enc.blk.{}.attn_rel_b", "encoder.block.{}.layer.0.SelfAttention.relative_attention_bias"),
    whole!("enc.blk.{}.ffn_norm", "encoder.block.{}.layer.1.layer_norm"),
    whole!("enc.blk.{}.ffn_gate", "encoder.block.{}.layer.1.DenseReluDense.wi_0"),
    whole!("enc.blk.{}.ffn_up", "encoder.block.{}.layer.1.DenseReluDense.wi_1"),
    whole!("enc.blk.{}.ffn_single", "encoder.block.{}.layer.1.DenseReluDense.wi"),
    whole!("enc.blk.{}.ffn_down", "encoder.block.{}.layer.1.DenseReluDense.wo"),
    whole!("enc.output_norm", "encoder.final_layer_norm"),
    whole!("dec.blk.{}.attn_norm", "decoder.block.{}.layer.0.layer_norm"),
    whole!("dec.blk.{}.attn_q", "decoder.block.{}.layer.0.SelfAttention.q"),
    whole!("dec.blk.{}.attn_k", "decoder.block.{}.layer.0.SelfAttention.k"),
    whole!("dec.blk.{}.attn_v", "decoder.block.{}.layer.0.SelfAttention.v"),
    whole!("dec.blk.{}.attn_o", "decoder.block.{}.layer.0.SelfAttention.o"),
    whole!("dec.blk.{}.attn_rel_b", "decoder.block.{}.layer.0.SelfAttention.relative_attention_bias"),
    whole!("dec.blk.{}.cross_attn_norm", "decoder.block.{}.layer.1.layer_norm"),
    whole!("dec.blk.{}.cross_attn_q", "decoder.block.{}.layer.1.EncDecAttention.q"),
    whole!("dec.blk.{}.cross_attn_k", "decoder.block.{}.layer.1.EncDecAttention.k"),
    whole!("dec.blk.{}.cross_attn_v", "decoder.block.{}.layer.1.EncDecAttention.v"),
    whole!("dec.blk.{}.cross_attn_o", "decoder.block.{}.layer.1.EncDecAttention.o"),
    whole!("dec.blk.{}.ffn_norm", "decoder.block.{}.layer.2.layer_norm"),
    whole!("dec.blk.{}.ffn_gate", "decoder.block.{}.layer.2.DenseReluDense.wi_0"),
    whole!("dec.blk.{}.ffn_up", "decoder.block.{}.layer.2.DenseReluDense.wi_1"),
    whole!("dec.blk.{}.ffn_single", "decoder.block.{}.layer.2.DenseReluDense.wi"),
    whole!("dec.blk.{}.ffn_down", "decoder.block.{}.layer.2.DenseReluDense.wo"),
    whole!("dec.output_norm", "decoder.final_layer_norm"),
    whole!("output", "lm_head"),
];

pub(super) fn model_config(config: &ConfigReader) -> Result<ModelConfig> {
    side(config, "decoder")
}

/// Attention scores are not scaled.
const SCALE: f32 = 1.0;

/// Relative positions do not limit the sequence length. This bounds what a file may request.
const MAX_POSITIONS: usize = 1 << 15;

fn side(config: &ConfigReader, side: &str) -> Result<ModelConfig> {
    let mut model_config = ModelConfig::of_side(config, side, &|width| 4 * width)?;
    model_config.epsilon =
        config.number(&["layer_norm_epsilon", "attention.layer_norm_rms_epsilon"])?.unwrap_or(1e-6) as f32;
    model_config.context = MAX_POSITIONS;
    model_config.encoder_context = MAX_POSITIONS;
    Ok(model_config)
}

/// Returns the relative position bias of each layer of one side: all layers share that of the first, unless they have
/// their own, as in umT5.
fn biases(
    config: &ConfigReader,
    h: &ModelConfig,
    b: &mut Builder<'_>,
    side: &str,
) -> Result<Vec<RelativePositionBias>> {
    let buckets = config.count(&["relative_attention_num_buckets", "attention.relative_buckets_count"])?;
    let buckets = buckets.unwrap_or(32);
    let max_distance = config.count(&["relative_attention_max_distance"])?.unwrap_or(128);
    let name = |layer: usize| block(side, layer, "attn_rel_b.weight");
    let own = h.layers > 1 && b.has(&name(1));
    let bias = |layer: usize| {
        let table = b.vector(&name(if own { layer } else { 0 }), buckets * h.heads);
        RelativePositionBias { table, buckets, max_distance, bidirectional: side == "enc" }
    };
    Ok((0..h.layers).map(bias).collect())
}

fn encoder(config: &ConfigReader, mut b: Builder<'_>) -> Result<Graph> {
    let (h, decoder) = (side(config, "encoder")?, side(config, "decoder")?);
    let biases = biases(config, &h, &mut b, "enc")?;
    let mut x = encoder_decoder::embed(&mut b, &h, "enc");
    for (layer, bias) in biases.into_iter().enumerate() {
        let attention =
            Attention { scale: SCALE, bias: Some(bias), ..encoder_decoder::attention_of_encoder(&h, layer) };
        x = attend(&mut b, &h, "enc", layer, attention, x);
        x = feed(config, &mut b, &h, "enc", layer, x)?;
    }
    let hidden = b.rms_norm(x, "enc.output_norm", h.epsilon);
    if b.has(&block("dec", 0, "cross_attn_k.weight")) {
        encoder_decoder::store_cross_kv(&mut b, &h, &decoder, hidden, SCALE);
    }
    let hidden = b.select_outputs(hidden);
    Ok(b.finish_with(OutputHead::Hidden, hidden, hidden))
}

fn decoder(config: &ConfigReader, h: &ModelConfig, mut b: Builder<'_>) -> Result<Graph> {
    let encoder = side(config, "encoder")?;
    let biases = biases(config, h, &mut b, "dec")?;
    let mut x = encoder_decoder::embed(&mut b, h, "dec");
    for (layer, bias) in biases.into_iter().enumerate() {
        let attention = encoder_decoder::attention_of_decoder(&encoder, h, layer);
        let attention = Attention { scale: SCALE, bias: Some(bias), ..attention };
        x = attend(&mut b, h, "dec", layer, attention, x);
        let normed = b.rms_norm(x, &block("dec", layer, "cross_attn_norm"), h.epsilon);
        let memory = Attention { scale: SCALE, ..encoder_decoder::cross_attention(&encoder, h, layer) };
        let attended =
            encoder_decoder::attend_memory(&mut b, h, |name| block("dec", layer, name), memory, normed);
        x = b.add(x, attended);
        x = feed(config, &mut b, h, "dec", layer, x)?;
    }
    let wanted = b.select_outputs(x);
    let hidden = b.rms_norm(wanted, "dec.output_norm", h.epsilon);
    let tied = !b.has("output.weight");
    let scales = match config.word(&["model_type"])? {
        // As Transformers does, regardless of `tie_word_embeddings`.
        Some("mt5") => false,
        Some("umt5") => true,
        _ => config.flag(&["tie_word_embeddings"])?.unwrap_or(tied),
    };
    let scales = config.flag(&["scale_decoder_outputs"])?.unwrap_or(scales);
    let factor = if scales { 1.0 / (h.width as f32).sqrt() } else { 1.0 };
    let scaled = b.scale(hidden, factor);
    let logits = b.linear_of(scaled, encoder_decoder::head(&b), "output.bias", h.vocabulary);
    Ok(b.finish_with(OutputHead::Next, hidden, logits))
}

fn attend(
    b: &mut Builder<'_>,
    h: &ModelConfig,
    side: &str,
    layer: usize,
    attention: Attention,
    x: ValueId,
) -> ValueId {
    let normed = b.rms_norm(x, &block(side, layer, "attn_norm"), h.epsilon);
    let attended = encoder_decoder::attend(b, h, |name| block(side, layer, name), attention, normed);
    b.add(x, attended)
}

/// The feed-forward block: gated, or plain with a single input matrix, which GGUF also calls `ffn_up`.
fn feed(
    config: &ConfigReader,
    b: &mut Builder<'_>,
    h: &ModelConfig,
    side: &str,
    layer: usize,
    x: ValueId,
) -> Result<ValueId> {
    let gated = b.has(&block(side, layer, "ffn_gate.weight"));
    let activation = activation(config, gated)?;
    let normed = b.rms_norm(x, &block(side, layer, "ffn_norm"), h.epsilon);
    if b.has(&block(side, layer, "ffn_gate_inp.weight")) {
        let fed = switch(config, b, h, side, layer, activation, normed)?;
        return Ok(b.add(x, fed));
    }
    let inner = if gated {
        let gate = b.linear(normed, &block(side, layer, "ffn_gate"), h.feed_forward);
        let up = b.linear(normed, &block(side, layer, "ffn_up"), h.feed_forward);
        b.gate(activation, gate, up)
    } else {
        let single = b.has(&block(side, layer, "ffn_single.weight"));
        let up = b.linear(
            normed,
            &block(side, layer, if single { "ffn_single" } else { "ffn_up" }),
            h.feed_forward,
        );
        b.activate(activation, up)
    };
    let fed = b.linear(inner, &block(side, layer, "ffn_down"), h.width);
    Ok(b.add(x, fed))
}

/// Switch routing: one expert per row, with a capacity per sequence.
fn switch(
    config: &ConfigReader,
    b: &mut Builder<'_>,
    h: &ModelConfig,
    side: &str,
    layer: usize,
    activation: ActivationFunction,
    x: ValueId,
) -> Result<ValueId> {
    if let Some(other @ ("bfloat16" | "float16")) = config.word(&["router_dtype"])? {
        return Err(Error::unsupported(
            "config.router_dtype",
            format!("{other}; routers only run in float32"),
        ));
    }
    let experts = config.required(&["num_experts"])?;
    experts::check(experts, 1)?;
    let capacity = Some(config.count(&["expert_capacity"])?.unwrap_or(64));
    let routing = Routing { experts, top_k: 1, normalize: false, capacity };
    let name = |part: &str| block(side, layer, part);
    experts::mixture(b, &name, ExpertGate::Absent(activation), routing, (h.feed_forward, h.width), x)
}

fn activation(config: &ConfigReader, gated: bool) -> Result<ActivationFunction> {
    match config.word(&["feed_forward_proj", "dense_act_fn"])? {
        None if gated => Ok(ActivationFunction::GeluTanh),
        None | Some("relu" | "gated-relu") => Ok(ActivationFunction::Relu),
        Some("gated-gelu" | "gelu_new") => Ok(ActivationFunction::GeluTanh),
        Some("gelu") => Ok(ActivationFunction::Gelu),
        Some("gated-silu" | "silu") => Ok(ActivationFunction::Silu),
        Some(other) => Err(Error::unsupported(
            "config.feed_forward_proj",
            format!("activation '{other}' is not supported"),
        )),
    }
}

/// Attention scores are not scaled, so queries start small.
fn deviation(weight: &Weight, model_config: &ModelConfig) -> f64 {
    let (width, inner) = (model_config.width as f64, weight.columns as f64);
    match weight.name.rsplit_once("attn_").map(|(_, rest)| rest) {
        Some(rest) if rest.starts_with("q.") => (width * model_config.head_size as f64).powf(-0.5),
        Some(rest) if rest.starts_with("rel_b") => width.powf(-0.5),
        _ if weight.name.starts_with("token_embd") => 1.0,
        _ => inner.powf(-0.5),
    }
}

fn hugging_face_keys(model: &ExportedModel<'_>) -> Result<Map<String, Value>> {
    let h = model.model_config;
    let gated = (model.has)("enc.blk.0.ffn_gate.weight");
    let layers = model.graphs.encoder.as_ref().map_or(h.layers, |graph| graph.attentions().count());
    Ok(object(json!({
        "num_layers": layers,
        "num_decoder_layers": h.layers,
        "d_kv": h.head_size,
        "feed_forward_proj": if gated { "gated-gelu" } else { "relu" },
    })))
}

fn gguf_keys(model: &ExportedModel<'_>, notes: &mut Vec<String>) -> Result<Vec<(&'static str, Value)>> {
    /// The maximum distance that llama.cpp assumes.
    const DEFAULT_MAX_DISTANCE: usize = 128;
    let config = model.config;
    let mut keys = vec![("context_length", json!(config.count(&["n_positions"])?.unwrap_or(512)))];
    if let Some(layers) = config.count(&["num_layers"])? {
        keys.push(("block_count", json!(layers)));
    }
    if let Some(max_distance) = config.count(&["relative_attention_max_distance"])? {
        keys.push(("relative_attention_max_distance", json!(max_distance)));
        if max_distance != DEFAULT_MAX_DISTANCE {
            notes.push(format!(
                "llama.cpp uses a maximum distance of {DEFAULT_MAX_DISTANCE}, not {max_distance}"
            ));
        }
    }
    let mut nodes = model.graphs.decoder.iter().flat_map(|graph| &graph.nodes);
    let scales = nodes.any(|node| matches!(node.op, Op::Scale(_)));
    keys.push(("scale_decoder_outputs", json!(scales)));
    if scales {
        let note =
            "llama.cpp does not scale the input of the LM head, which this model does: its logits are larger";
        notes.push(note.to_owned());
    }
    Ok(keys)
}

/// The tensor by which CTranslate2's T5 models differ from others of their specification.
pub(super) const CTRANSLATE2_BIAS: &str = "dec.blk.0.attn_rel_b.weight";

fn ctranslate2_config(source: &dyn Ctranslate2Source) -> Result<Map<String, Value>> {
    if source.has("dec.token_embd.weight") {
        let message = "T5 shares one embedding table";
        return Err(Error::unsupported("decoder/embeddings", message));
    }
    let (tokens, width) = source.shape("token_embd.weight")?;
    if source.scaled_embeddings(width, &["encoder", "decoder"])? {
        return Err(Error::unsupported("encoder/scale_embeddings", "T5's are not scaled"));
    }
    let mut config = sequence_to_sequence_sizes(source, width, tokens)?;
    let distance =
        |side: &str| source.number(&format!("{side}/layer_0/self_attention/relative_attention_max_distance"));
    if distance("encoder") != distance("decoder") {
        let place = "decoder/layer_0/self_attention/relative_attention_max_distance";
        return Err(Error::unsupported(place, "differs from the encoder's"));
    }
    let activation = source.one_activation("relu")?;
    let gate = if source.has("dec.blk.0.ffn_gate.weight") { "gated-" } else { "" };
    let proj = match (gate, activation) {
        ("gated-", "gelu_new") => "gated-gelu".to_owned(),
        ("gated-", "gelu") => {
            let message = "a gate with exact GELU is not supported";
            return Err(Error::unsupported("decoder/activation", message));
        }
        _ => format!("{gate}{activation}"),
    };
    config.extend(object(json!({
        "d_kv": source.head_size("decoder", "dec.")?,
        "relative_attention_num_buckets": source.rows(CTRANSLATE2_BIAS)?,
        "relative_attention_max_distance": distance("decoder"),
        "layer_norm_epsilon": source.epsilon().unwrap_or(1e-6),
        "feed_forward_proj": proj,
        "scale_decoder_outputs": scales_outputs(source, width)?,
        "model_type": "t5",
    })));
    Ok(config)
}

/// Returns true if hidden states are divided by the square root of the hidden size before the LM head.
fn scales_outputs(source: &dyn Ctranslate2Source, width: usize) -> Result<bool> {
    match source.number("decoder/scale_outputs") {
        None => Ok(false),
        Some(factor) if (factor - (width as f64).powf(-0.5)).abs() < 1e-6 => Ok(true),
        Some(factor) if (factor - 1.0).abs() < 1e-6 => Ok(false),
        Some(factor) => {
            Err(Error::unsupported("decoder/scale_outputs", format!("a factor of {factor} is not supported")))
        }
    }
}
