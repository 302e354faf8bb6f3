//! BART, mBART, Marian, M2M-100, NLLB and Pegasus: one pair of graphs; the variant is detected from the source's
//! tensors.

use super::blocks::whole;
use super::descriptor::DefaultValue::{Flag, Word};
use super::descriptor::{
    Ctranslate2Config, Ctranslate2Source, GgufConfig, HuggingFaceConfig, HuggingFaceKeys, Initialization,
    ModelType, OnnxNames, Tasks, TokenizerDefaults, TranslationPrompt, sequence_to_sequence_sizes,
};
use super::encoder_decoder::{self, block};
use super::{ConfigReader, Family, FamilyDescriptor, ModelConfig, TensorRule, Topology, model_config, t5};
use crate::{ActivationFunction, Attention, Builder, Graph, NormKind, OutputHead, RopeTable, ValueId};
use serde_json::{Map, Value, json};
use siskin_format::{Error, Result};

pub(super) static FAMILY: Family = Family {
    name: "bart",
    tasks: Tasks {
        translation: |model_type| match model_type {
            "mbart" | "m2m_100" | "nllb" => TranslationPrompt::SourceAndTarget,
            _ => TranslationPrompt::Target,
        },
        ..Tasks::NONE
    },
    bidirectional_key: None,
    read_config: |config| side(config, "decoder"),
    topology: Topology::Both {
        encoder: |config, _, mut b| {
            let h = side(config, "encoder")?;
            let x = embeddings(config, &h, &mut b, "enc")?;
            encoder(config, &h, b, x)
        },
        decoder: |config, h, mut b| {
            let x = embeddings(config, h, &mut b, "dec")?;
            decoder(config, h, b, x)
        },
    },
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[
            ModelType {
                name: "bart",
                class: Some("BartForConditionalGeneration"),
                defaults: &[("activation_function", Word("gelu")), ("scale_embedding", Flag(false))],
            },
            ModelType {
                name: "mbart",
                class: Some("MBartForConditionalGeneration"),
                defaults: &[("activation_function", Word("gelu")), ("scale_embedding", Flag(false))],
            },
            ModelType {
                name: "marian",
                class: Some("MarianMTModel"),
                defaults: &[("activation_function", Word("gelu")), ("scale_embedding", Flag(false))],
            },
            ModelType {
                name: "m2m_100",
                class: Some("M2M100ForConditionalGeneration"),
                defaults: &[("activation_function", Word("relu")), ("scale_embedding", Flag(true))],
            },
            ModelType { name: "nllb", class: None, defaults: &[] },
            ModelType {
                name: "pegasus",
                class: Some("PegasusForConditionalGeneration"),
                defaults: &[("activation_function", Word("gelu")), ("scale_embedding", Flag(false))],
            },
        ],
        prefix: "model",
        rules: &[RULES],
        keys: HuggingFaceKeys::BERT,
    },
    gguf: GgufConfig::NONE,
    ctranslate2: Ctranslate2Config {
        specification: "TransformerSpec",
        recognizes: |has| !has(t5::CTRANSLATE2_BIAS),
        scales_queries: true,
        config: ctranslate2_config,
    },
    onnx: OnnxNames::SHARED_EMBEDDINGS,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

pub(super) const RULES: &[TensorRule] = &[
    whole!("token_embd", "model.shared"),
    whole!("enc.token_embd", "model.encoder.embed_tokens"),
    whole!("dec.token_embd", "model.decoder.embed_tokens"),
    whole!("enc.position_embd", "model.encoder.embed_positions"),
    whole!("enc.token_embd_norm", "model.encoder.layernorm_embedding"),
    whole!("enc.blk.{}.attn_q", "model.encoder.layers.{}.self_attn.q_proj"),
    whole!("enc.blk.{}.attn_k", "model.encoder.layers.{}.self_attn.k_proj"),
    whole!("enc.blk.{}.attn_v", "model.encoder.layers.{}.self_attn.v_proj"),
    whole!("enc.blk.{}.attn_o", "model.encoder.layers.{}.self_attn.out_proj"),
    whole!("enc.blk.{}.attn_norm", "model.encoder.layers.{}.self_attn_layer_norm"),
    whole!("enc.blk.{}.ffn_up", "model.encoder.layers.{}.fc1"),
    whole!("enc.blk.{}.ffn_down", "model.encoder.layers.{}.fc2"),
    whole!("enc.blk.{}.ffn_norm", "model.encoder.layers.{}.final_layer_norm"),
    whole!("enc.output_norm", "model.encoder.layer_norm"),
    whole!("dec.position_embd", "model.decoder.embed_positions"),
    whole!("dec.token_embd_norm", "model.decoder.layernorm_embedding"),
    whole!("dec.blk.{}.attn_q", "model.decoder.layers.{}.self_attn.q_proj"),
    whole!("dec.blk.{}.attn_k", "model.decoder.layers.{}.self_attn.k_proj"),
    whole!("dec.blk.{}.attn_v", "model.decoder.layers.{}.self_attn.v_proj"),
    whole!("dec.blk.{}.attn_o", "model.decoder.layers.{}.self_attn.out_proj"),
    whole!("dec.blk.{}.attn_norm", "model.decoder.layers.{}.self_attn_layer_norm"),
    whole!("dec.blk.{}.cross_attn_q", "model.decoder.layers.{}.encoder_attn.q_proj"),
    whole!("dec.blk.{}.cross_attn_k", "model.decoder.layers.{}.encoder_attn.k_proj"),
    whole!("dec.blk.{}.cross_attn_v", "model.decoder.layers.{}.encoder_attn.v_proj"),
    whole!("dec.blk.{}.cross_attn_o", "model.decoder.layers.{}.encoder_attn.out_proj"),
    whole!("dec.blk.{}.cross_attn_norm", "model.decoder.layers.{}.encoder_attn_layer_norm"),
    whole!("dec.blk.{}.ffn_up", "model.decoder.layers.{}.fc1"),
    whole!("dec.blk.{}.ffn_down", "model.decoder.layers.{}.fc2"),
    whole!("dec.blk.{}.ffn_norm", "model.decoder.layers.{}.final_layer_norm"),
    whole!("dec.output_norm", "model.decoder.layer_norm"),
    whole!("output", "lm_head"),
    whole!("output_bias", "final_logits_bias"),
];

pub(super) fn side(config: &ConfigReader, side: &str) -> Result<ModelConfig> {
    let mut model_config = ModelConfig::of_side(config, side, &|width| 4 * width)?;
    model_config.epsilon = 1e-5;
    model_config.encoder_context = model_config.context;
    Ok(model_config)
}

/// Token embeddings, scaled if the configuration says so, plus position embeddings: learned or sinusoidal.
fn embeddings(config: &ConfigReader, h: &ModelConfig, b: &mut Builder<'_>, side: &str) -> Result<ValueId> {
    let tokens = encoder_decoder::embed(b, h, side);
    let scaled = config.flag(&["scale_embedding"])?.unwrap_or(false);
    let tokens = b.scale(tokens, if scaled { (h.width as f32).sqrt() } else { 1.0 });
    let learned = format!("{side}.position_embd.weight");
    let positions = match config.word(&["model_type"])? {
        Some("bart" | "mbart") => b.embed_position(&learned, h.context, h.width, 2),
        _ if b.has(&learned) => b.embed_position(&learned, h.context, h.width, 0),
        Some("m2m_100" | "nllb") => {
            let first = config.count(&["pad_token_id"])?.unwrap_or(1) + 1;
            let rope = b.rope_table(sines(h.width, (h.width / 2).saturating_sub(1)));
            b.embed_sine(rope, first)
        }
        _ => {
            let rope = b.rope_table(sines(h.width, h.width / 2));
            b.embed_sine(rope, 0)
        }
    };
    if b.columns(positions) != h.width {
        return Err(Error::unsupported(
            "config (width)",
            format!("{} is odd, but sinusoidal position embeddings need an even width", h.width),
        ));
    }
    let x = b.add(tokens, positions);
    let norm = format!("{side}.token_embd_norm");
    Ok(if b.has(&format!("{norm}.weight")) { b.layer_norm(x, &norm, h.epsilon) } else { x })
}

/// Returns frequencies that fall geometrically from 1 to 1/10000 over `steps` steps.
fn sines(width: usize, steps: usize) -> RopeTable {
    let frequency = |i: usize| libm::pow(10_000.0, -(i as f64) / steps.max(1) as f64) as f32;
    RopeTable { frequencies: (0..width / 2).map(frequency).collect(), magnitude: 1.0, scaling: None }
}

/// Builds the encoder layers on the embeddings `x`, and stores the cross-attention keys and values.
pub(super) fn encoder(
    config: &ConfigReader,
    h: &ModelConfig,
    mut b: Builder<'_>,
    x: ValueId,
) -> Result<Graph> {
    let decoder = side(config, "decoder")?;
    let layers = Layers::of(config, "enc", &b)?;
    let mut x = x;
    for layer in 0..h.layers {
        x = layers.attend(&mut b, h, layer, encoder_decoder::attention_of_encoder(h, layer), x);
        x = layers.feed(&mut b, h, layer, x);
    }
    let hidden = layers.last_norm(&mut b, h, x);
    encoder_decoder::store_cross_kv(&mut b, h, &decoder, hidden, decoder.attention_scale());
    let hidden = b.select_outputs(hidden);
    Ok(b.finish_with(OutputHead::Hidden, hidden, hidden))
}

/// Builds the decoder layers on the embeddings `x`, and the logits of the next token.
pub(super) fn decoder(
    config: &ConfigReader,
    h: &ModelConfig,
    mut b: Builder<'_>,
    x: ValueId,
) -> Result<Graph> {
    let encoder = side(config, "encoder")?;
    let layers = Layers::of(config, "dec", &b)?;
    let mut x = x;
    for layer in 0..h.layers {
        x = layers.attend(&mut b, h, layer, encoder_decoder::attention_of_decoder(&encoder, h, layer), x);
        x = layers.attend_memory(&mut b, h, layer, encoder_decoder::cross_attention(&encoder, h, layer), x);
        x = layers.feed(&mut b, h, layer, x);
    }
    let wanted = b.select_outputs(x);
    let hidden = layers.last_norm(&mut b, h, wanted);
    let logits = b.linear_of(hidden, encoder_decoder::head(&b), "output_bias", h.vocabulary);
    Ok(b.finish_with(OutputHead::Next, hidden, logits))
}

/// The layers of one side: pre-norm if there is a final norm, otherwise post-norm.
struct Layers {
    side: &'static str,
    first: bool,
    activation: ActivationFunction,
}

impl Layers {
    fn of(config: &ConfigReader, side: &'static str, b: &Builder<'_>) -> Result<Self> {
        let first = b.has(&format!("{side}.output_norm.weight"));
        Ok(Self { side, first, activation: model_config::activation(config, ActivationFunction::Gelu)? })
    }

    /// Adds the output of `inner` to `x` (residual connection), with the norm before or after.
    fn residual(
        &self,
        b: &mut Builder<'_>,
        h: &ModelConfig,
        norm: &str,
        x: ValueId,
        inner: impl FnOnce(&mut Builder<'_>, ValueId) -> ValueId,
    ) -> ValueId {
        let normed = if self.first { b.layer_norm(x, norm, h.epsilon) } else { x };
        let output = inner(b, normed);
        let sum = b.add(x, output);
        if self.first { sum } else { b.layer_norm(sum, norm, h.epsilon) }
    }

    fn attend(
        &self,
        b: &mut Builder<'_>,
        h: &ModelConfig,
        layer: usize,
        attention: Attention,
        x: ValueId,
    ) -> ValueId {
        let name = |name: &str| block(self.side, layer, name);
        self.residual(b, h, &name("attn_norm"), x, |b, x| encoder_decoder::attend(b, h, name, attention, x))
    }

    fn attend_memory(
        &self,
        b: &mut Builder<'_>,
        h: &ModelConfig,
        layer: usize,
        attention: Attention,
        x: ValueId,
    ) -> ValueId {
        let name = |name: &str| block(self.side, layer, name);
        self.residual(b, h, &name("cross_attn_norm"), x, |b, x| {
            encoder_decoder::attend_memory(b, h, name, attention, x)
        })
    }

    fn feed(&self, b: &mut Builder<'_>, h: &ModelConfig, layer: usize, x: ValueId) -> ValueId {
        let name = |name: &str| block(self.side, layer, name);
        self.residual(b, h, &name("ffn_norm"), x, |b, x| {
            let up = b.linear(x, &name("ffn_up"), h.feed_forward);
            let up = b.activate(self.activation, up);
            b.linear(up, &name("ffn_down"), h.width)
        })
    }

    fn last_norm(&self, b: &mut Builder<'_>, h: &ModelConfig, x: ValueId) -> ValueId {
        match self.first {
            true => b.norm_of(NormKind::Layer, x, &format!("{}.output_norm", self.side), h.width, h.epsilon),
            false => x,
        }
    }
}

/// Returns the sizes of a CTranslate2 model with BART's layers, and the positions of its encoder and decoder.
pub(super) fn ctranslate2_sizes(
    source: &dyn Ctranslate2Source,
) -> Result<(Map<String, Value>, usize, [usize; 2])> {
    if source.epsilon().is_some_and(|epsilon| (epsilon - 1e-5).abs() > 1e-9) {
        let message = "this family has 1e-5";
        return Err(Error::unsupported("config.json: layer_norm_epsilon", message));
    }
    let (tokens, width) = source.shape("token_embd.weight")?;
    if source.has("dec.token_embd.weight") && source.rows("dec.token_embd.weight")? != tokens {
        let message = "encoder and decoder vocabularies differ in size";
        return Err(Error::unsupported("decoder/embeddings", message));
    }
    let tokens = tokens + usize::from(source.starts_from_zero());
    let config = sequence_to_sequence_sizes(source, width, tokens)?;
    let positions = |side: &str| {
        source.rows(&format!("{side}.position_embd.weight")).map_err(|_| {
            let message = "positions that are not in model.bin are not supported";
            Error::unsupported(format!("{side}.position_embd"), message)
        })
    };
    Ok((config, width, [positions("enc")?, positions("dec")?]))
}

fn ctranslate2_config(source: &dyn Ctranslate2Source) -> Result<Map<String, Value>> {
    let (mut config, width, [read, written]) = ctranslate2_sizes(source)?;
    if read != written {
        let message = format!("{written} positions, but the encoder has {read}");
        return Err(Error::unsupported("decoder/position_encodings", message));
    }
    config.insert("max_position_embeddings".to_owned(), json!(read));
    let scaled = source.scaled_embeddings(width, &["encoder", "decoder"])?;
    config.insert("scale_embedding".to_owned(), json!(scaled));
    config.insert("activation_function".to_owned(), json!(source.one_activation("relu")?));
    // Positions start at the first row, regardless of the original model.
    config.insert("model_type".to_owned(), json!("marian"));
    Ok(config)
}
