//! Maps the tensors of a `.siskin` file to the variables of a CTranslate2 model.
//!
//! The lists of [`NameRule`]s that apply depend on the specification and on the variables in the file. Within them, the
//! first rule whose variable exists applies. Encoder–decoder models are named like T5 in GGUF
//! (`enc.blk.0.attn_q.weight`), decoder-only models like Llama, encoder-only models like BERT.

use super::super::names::numbers;
use super::{Container, VariableRows};
use siskin_format::{Error, ErrorKind, Result};
use std::ops::Range;

/// The suffix of a variable's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableSuffix {
    /// Weights and biases keep their names.
    Linear,
    /// Weights are `gamma`, biases `beta`.
    Norm,
    /// The source is the full name, and there is only a weight.
    Plain,
}

/// The rows of a variable that make up the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowSlice {
    /// All rows.
    Whole,
    /// The queries of a fused QKV variable: the first third if there are as many KV heads as query heads.
    Queries,
    /// The keys of a fused QKV variable.
    Keys,
    /// The values of a fused QKV variable.
    Values,
    /// The keys of a fused KV variable: the first half.
    KeysOfTwo,
    /// The values of a fused KV variable: the second half.
    ValuesOfTwo,
}

impl RowSlice {
    /// Returns the range of this part in `rows` rows, given the numbers of query heads and KV heads, or `None` if the
    /// rows cannot be divided evenly.
    pub fn range(self, rows: usize, heads: (usize, usize)) -> Option<Range<usize>> {
        let (queries, keys) = heads;
        let total = queries.checked_add(keys.checked_mul(2)?)?;
        let three = |from: usize, count: usize| {
            let head = rows.checked_div(total).filter(|head| head.checked_mul(total) == Some(rows))?;
            let start = head.checked_mul(from)?;
            Some(start..start.checked_add(head.checked_mul(count)?)?)
        };
        match self {
            Self::Whole => Some(0..rows),
            Self::Queries => three(0, queries),
            Self::Keys => three(queries, keys),
            Self::Values => three(queries.checked_add(keys)?, keys),
            Self::KeysOfTwo => rows.is_multiple_of(2).then_some(0..rows / 2),
            Self::ValuesOfTwo => rows.is_multiple_of(2).then_some(rows / 2..rows),
        }
    }
}

/// The location of a tensor. `{}` stands for the layer number.
#[derive(Clone, Copy, Debug)]
pub struct NameRule {
    /// The name in a `.siskin` file, without `.weight` or `.bias`.
    pub name: &'static str,
    /// The variable, without `/weight`, `/bias`, `/gamma` or `/beta`.
    pub source: &'static str,
    /// The suffix of the variable's name.
    pub kind: VariableSuffix,
    /// Which of its rows.
    pub part: RowSlice,
    /// The rule does not apply if this other variable is an alias of the same data.
    pub copy_of: &'static str,
}

const fn rule(name: &'static str, source: &'static str, kind: VariableSuffix, part: RowSlice) -> NameRule {
    NameRule { name, source, kind, part, copy_of: "" }
}

const fn linear(name: &'static str, source: &'static str) -> NameRule {
    rule(name, source, VariableSuffix::Linear, RowSlice::Whole)
}

const fn norm(name: &'static str, source: &'static str) -> NameRule {
    rule(name, source, VariableSuffix::Norm, RowSlice::Whole)
}

const fn plain(name: &'static str, source: &'static str) -> NameRule {
    rule(name, source, VariableSuffix::Plain, RowSlice::Whole)
}

const fn part(name: &'static str, source: &'static str, part: RowSlice) -> NameRule {
    rule(name, source, VariableSuffix::Linear, part)
}

const fn shared(rule: NameRule, copy_of: &'static str) -> NameRule {
    NameRule { copy_of, ..rule }
}

/// The first matrices of the feed-forward blocks under both names: without and with gates.
macro_rules! feed {
    ($name:literal, $source:literal) => {
        [
            &[linear(concat!($name, ".ffn_up"), concat!($source, "/layer_{}/ffn/linear_0"))],
            &[
                linear(concat!($name, ".ffn_gate"), concat!($source, "/layer_{}/ffn/linear_0")),
                linear(concat!($name, ".ffn_up"), concat!($source, "/layer_{}/ffn/linear_0_noact")),
            ],
        ]
    };
}

const WHISPER: &[NameRule] = &[
    linear("token_embd", "decoder/embeddings"),
    linear("enc.conv1", "encoder/conv1"),
    linear("enc.conv2", "encoder/conv2"),
];

const TEXT_TO_TEXT: &[NameRule] = &[
    linear("token_embd", "encoder/embeddings_0"),
    linear("token_embd", "encoder/embeddings"),
    shared(linear("dec.token_embd", "decoder/embeddings"), "encoder/embeddings_0"),
];

const ENCODER: &[NameRule] = &[
    plain("enc.position_embd", "encoder/position_encodings/encodings"),
    norm("enc.token_embd_norm", "encoder/layernorm_embedding"),
    norm("enc.output_norm", "encoder/layer_norm"),
    norm("enc.blk.{}.attn_norm", "encoder/layer_{}/self_attention/layer_norm"),
    part("enc.blk.{}.attn_q", "encoder/layer_{}/self_attention/linear_0", RowSlice::Queries),
    part("enc.blk.{}.attn_k", "encoder/layer_{}/self_attention/linear_0", RowSlice::Keys),
    part("enc.blk.{}.attn_v", "encoder/layer_{}/self_attention/linear_0", RowSlice::Values),
    linear("enc.blk.{}.attn_o", "encoder/layer_{}/self_attention/linear_1"),
    shared(
        plain("enc.blk.{}.attn_rel_b", "encoder/layer_{}/self_attention/relative_attention_bias"),
        "encoder/layer_0/self_attention/relative_attention_bias",
    ),
    norm("enc.blk.{}.ffn_norm", "encoder/layer_{}/ffn/layer_norm"),
    linear("enc.blk.{}.ffn_down", "encoder/layer_{}/ffn/linear_1"),
];

const ENCODER_FEED: [&[NameRule]; 2] = feed!("enc.blk.{}", "encoder");

const DECODER: &[NameRule] = &[
    shared(linear("output", "decoder/projection"), "decoder/embeddings"),
    plain("dec.position_embd", "decoder/position_encodings/encodings"),
    norm("dec.token_embd_norm", "decoder/layernorm_embedding"),
    norm("dec.output_norm", "decoder/layer_norm"),
    norm("dec.blk.{}.attn_norm", "decoder/layer_{}/self_attention/layer_norm"),
    part("dec.blk.{}.attn_q", "decoder/layer_{}/self_attention/linear_0", RowSlice::Queries),
    part("dec.blk.{}.attn_k", "decoder/layer_{}/self_attention/linear_0", RowSlice::Keys),
    part("dec.blk.{}.attn_v", "decoder/layer_{}/self_attention/linear_0", RowSlice::Values),
    linear("dec.blk.{}.attn_o", "decoder/layer_{}/self_attention/linear_1"),
    shared(
        plain("dec.blk.{}.attn_rel_b", "decoder/layer_{}/self_attention/relative_attention_bias"),
        "decoder/layer_0/self_attention/relative_attention_bias",
    ),
    norm("dec.blk.{}.cross_attn_norm", "decoder/layer_{}/attention/layer_norm"),
    linear("dec.blk.{}.cross_attn_q", "decoder/layer_{}/attention/linear_0"),
    part("dec.blk.{}.cross_attn_k", "decoder/layer_{}/attention/linear_1", RowSlice::KeysOfTwo),
    part("dec.blk.{}.cross_attn_v", "decoder/layer_{}/attention/linear_1", RowSlice::ValuesOfTwo),
    linear("dec.blk.{}.cross_attn_o", "decoder/layer_{}/attention/linear_2"),
    norm("dec.blk.{}.ffn_norm", "decoder/layer_{}/ffn/layer_norm"),
    linear("dec.blk.{}.ffn_down", "decoder/layer_{}/ffn/linear_1"),
];

const DECODER_FEED: [&[NameRule]; 2] = feed!("dec.blk.{}", "decoder");

/// Encoder-only models, with post-norms.
const BERT: &[NameRule] = &[
    linear("token_embd", "encoder/embeddings_0"),
    linear("token_types", "encoder/embeddings_1"),
    plain("position_embd", "encoder/position_encodings/encodings"),
    norm("token_embd_norm", "encoder/layernorm_embedding"),
    norm("output_norm", "encoder/layer_norm"),
    part("blk.{}.attn_q", "encoder/layer_{}/self_attention/linear_0", RowSlice::Queries),
    part("blk.{}.attn_k", "encoder/layer_{}/self_attention/linear_0", RowSlice::Keys),
    part("blk.{}.attn_v", "encoder/layer_{}/self_attention/linear_0", RowSlice::Values),
    linear("blk.{}.attn_output", "encoder/layer_{}/self_attention/linear_1"),
    norm("blk.{}.attn_output_norm", "encoder/layer_{}/self_attention/layer_norm"),
    linear("blk.{}.ffn_down", "encoder/layer_{}/ffn/linear_1"),
    norm("blk.{}.layer_output_norm", "encoder/layer_{}/ffn/layer_norm"),
    linear("cls", "pooler_dense"),
];

const BERT_FEED: [&[NameRule]; 2] = feed!("blk.{}", "encoder");

const LLAMA: &[NameRule] = &[
    linear("token_embd", "decoder/embeddings"),
    shared(linear("output", "decoder/projection"), "decoder/embeddings"),
    plain("position_embd", "decoder/position_encodings/encodings"),
    norm("token_embd_norm", "decoder/layernorm_embedding"),
    norm("output_norm", "decoder/layer_norm"),
    norm("blk.{}.attn_norm", "decoder/layer_{}/self_attention/layer_norm"),
    norm("blk.{}.attn_norm", "decoder/layer_{}/input_layer_norm"),
    norm("blk.{}.attn_norm", "decoder/layer_{}/shared_layer_norm"),
    part("blk.{}.attn_q", "decoder/layer_{}/self_attention/linear_0", RowSlice::Queries),
    part("blk.{}.attn_k", "decoder/layer_{}/self_attention/linear_0", RowSlice::Keys),
    part("blk.{}.attn_v", "decoder/layer_{}/self_attention/linear_0", RowSlice::Values),
    norm("blk.{}.attn_q_norm", "decoder/layer_{}/self_attention/q_norm"),
    norm("blk.{}.attn_k_norm", "decoder/layer_{}/self_attention/k_norm"),
    linear("blk.{}.attn_output", "decoder/layer_{}/self_attention/linear_1"),
    norm("blk.{}.ffn_norm", "decoder/layer_{}/ffn/layer_norm"),
    linear("blk.{}.ffn_down", "decoder/layer_{}/ffn/linear_1"),
];

const LLAMA_FEED: [&[NameRule]; 2] = feed!("blk.{}", "decoder");

/// Parallel attention and feed-forward, each with a norm before it.
const SIDE_BY_SIDE: &[NameRule] = &[norm("blk.{}.ffn_norm", "decoder/layer_{}/post_attention_layer_norm")];

/// Norms before and after both attention and feed-forward.
const SANDWICH: &[NameRule] = &[
    norm("blk.{}.post_attention_norm", "decoder/layer_{}/post_attention_layer_norm"),
    norm("blk.{}.ffn_norm", "decoder/layer_{}/pre_feedforward_layer_norm"),
    norm("blk.{}.post_ffw_norm", "decoder/layer_{}/post_feedforward_layer_norm"),
];

/// The topology of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelTopology {
    /// Speech to text.
    Whisper,
    /// Text to text.
    EncoderDecoder,
    /// Encoder-only.
    Encoder,
    /// Decoder-only.
    Decoder,
}

/// `(specification, layout)`.
const LAYOUTS: &[(&str, ModelTopology)] = &[
    ("WhisperSpec", ModelTopology::Whisper),
    ("TransformerSpec", ModelTopology::EncoderDecoder),
    ("TransformerEncoderSpec", ModelTopology::Encoder),
    ("TransformerDecoderSpec", ModelTopology::Decoder),
];

/// The tensor names of a model.
#[derive(Clone, Debug)]
pub struct Names {
    layout: ModelTopology,
    rules: Vec<&'static NameRule>,
}

impl Names {
    /// Returns the names that apply to this file, or an error if its specification is unknown.
    pub fn of(container: &Container) -> Result<Self> {
        let known = LAYOUTS.iter().find(|(spec, _)| *spec == container.spec);
        let &(_, layout) = known.ok_or_else(|| {
            let spec: String = container.spec.chars().take(40).collect();
            Error::unsupported(
                "model.bin specification",
                format!("models of the specification '{spec}' are not supported"),
            )
        })?;
        let gated =
            |side: &str| container.find(&format!("{side}/layer_0/ffn/linear_0_noact/weight")).is_some();
        let choose =
            |side: &str, [plain, gates]: [&'static [NameRule]; 2]| if gated(side) { gates } else { plain };
        let encoder = choose("encoder", ENCODER_FEED);
        let decoder = choose("decoder", DECODER_FEED);
        let lists = match layout {
            ModelTopology::Whisper => vec![WHISPER, ENCODER, encoder, DECODER, decoder],
            ModelTopology::EncoderDecoder => vec![TEXT_TO_TEXT, ENCODER, encoder, DECODER, decoder],
            ModelTopology::Encoder => vec![BERT, choose("encoder", BERT_FEED)],
            ModelTopology::Decoder => {
                let sandwich = container.find("decoder/layer_0/pre_feedforward_layer_norm/gamma").is_some();
                let norms = if sandwich { SANDWICH } else { SIDE_BY_SIDE };
                vec![LLAMA, choose("decoder", LLAMA_FEED), norms]
            }
        };
        Ok(Self { layout, rules: lists.into_iter().flatten().collect() })
    }

    /// Returns the topology of the model.
    pub fn layout(&self) -> ModelTopology {
        self.layout
    }

    /// Returns the rules by priority.
    pub fn rules(&self) -> &[&'static NameRule] {
        &self.rules
    }

    /// Returns the variable that holds the tensor of this name and the part of it, or `None` if the model has no such
    /// tensor.
    pub fn find(&self, container: &Container, name: &str) -> Option<(String, RowSlice)> {
        let (stem, is_bias) = match name.rsplit_once('.')? {
            (stem, "weight") => (stem, false),
            (stem, "bias") => (stem, true),
            _ => return None,
        };
        self.rules.iter().find_map(|rule| {
            let numbers = numbers(rule.name, stem)?;
            let layer = numbers.first().copied().unwrap_or_default();
            let source = rule.kind.source(&rule.source.replacen("{}", layer, 1), is_bias)?;
            let index = container.find(&source)?;
            let original = rule.kind.source(rule.copy_of, is_bias)?;
            let is_copy = original != source && container.find(&original) == Some(index);
            (!is_copy).then_some((source, rule.part))
        })
    }

    /// Returns the tensor of this name: of a fused variable, its part.
    pub fn matrix(&self, container: &Container, name: &str) -> Result<VariableRows> {
        let found = self.find(container, name);
        let (source, part) =
            found.ok_or_else(|| Error::new(ErrorKind::Missing, name, "model.bin has no variable for it"))?;
        let matrix = container.matrix(&source)?;
        let heads = heads(container, &source)?;
        let range = part.range(matrix.length(), heads);
        range.and_then(|range| matrix.slice(range)).ok_or_else(|| {
            let message = format!(
                "{} rows cannot be divided among {} query heads and {} KV heads",
                matrix.length(),
                heads.0,
                heads.1
            );
            Error::new(ErrorKind::Shape, format!("model.bin: {source}"), message)
        })
    }

    /// Returns the names of tensors that no rule covers: a model that needs them has an unknown architecture.
    pub fn unmapped<'a>(&'a self, container: &'a Container) -> impl Iterator<Item = &'a str> {
        let variables = container.variables.iter();
        let names = variables.filter(|variable| !variable.dims.is_empty()).map(|variable| &*variable.name);
        let tensors =
            names.filter(|name| name.contains('/') && !name.ends_with("_scale") && !name.ends_with("_zero"));
        tensors.filter(|name| !self.rules.iter().any(|rule| rule.kind.speaks_of(rule.source, name)))
    }
}

impl VariableSuffix {
    /// Returns the full name of the variable.
    fn source(self, stem: &str, is_bias: bool) -> Option<String> {
        match (self, is_bias) {
            (Self::Linear, false) => Some(format!("{stem}/weight")),
            (Self::Linear, true) => Some(format!("{stem}/bias")),
            (Self::Norm, false) => Some(format!("{stem}/gamma")),
            (Self::Norm, true) => Some(format!("{stem}/beta")),
            (Self::Plain, false) => Some(stem.to_owned()),
            (Self::Plain, true) => None,
        }
    }

    fn speaks_of(self, source: &str, name: &str) -> bool {
        let stem = match self {
            Self::Linear => name.strip_suffix("/weight").or_else(|| name.strip_suffix("/bias")),
            Self::Norm => name.strip_suffix("/gamma").or_else(|| name.strip_suffix("/beta")),
            Self::Plain => Some(name),
        };
        stem.is_some_and(|stem| numbers(source, stem).is_some())
    }
}

/// Returns the numbers of query heads and KV heads in the variables of an attention block. If they are equal, their
/// values do not matter.
fn heads(container: &Container, source: &str) -> Result<(usize, usize)> {
    let scope = source.rsplitn(3, '/').nth(2).unwrap_or_default();
    let count = |name: &str| {
        let number = container.number(name)?;
        (number >= 1.0 && number <= f64::from(u16::MAX)).then_some(number as usize)
    };
    let keys = match container.number(&format!("{scope}/multi_query")) {
        Some(flag) if flag != 0.0 => Some(1),
        _ => count(&format!("{scope}/num_heads_kv")),
    };
    let Some(keys) = keys else { return Ok((1, 1)) };
    let side = scope.split('/').next().unwrap_or_default();
    let location = format!("{side}/num_heads");
    let queries = count(&location)
        .ok_or_else(|| Error::new(ErrorKind::Missing, &location, "model.bin has no number of heads"))?;
    Ok((queries, keys))
}
