//! The hyperparameters of a model, read from Hugging Face or GGUF keys.

use super::ConfigReader;
use crate::ActivationFunction;
use siskin_format::{Error, Result};

/// Shape letters used everywhere: D hidden size, L layers, H heads, K KV heads, E head size, F feed-forward size, V
/// vocabulary size.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// D, the hidden size.
    pub width: usize,
    /// L, the number of layers.
    pub layers: usize,
    /// H, query heads.
    pub heads: usize,
    /// K, KV heads.
    pub kv_heads: usize,
    /// E, columns per head.
    pub head_size: usize,
    /// F, the feed-forward size.
    pub feed_forward: usize,
    /// V, the vocabulary size.
    pub vocabulary: usize,
    /// The number of token type ids; 0 if the model has no segment embeddings.
    pub token_types: usize,
    /// The maximum sequence length that the model was trained for.
    pub context: usize,
    /// The same for its encoder.
    pub encoder_context: usize,
    /// Columns of the input features; 0: the inputs are tokens.
    pub features: usize,
    /// Epsilon of the norms.
    pub epsilon: f32,
    /// The sliding window of each layer; `None`: full attention.
    pub windows: Vec<Option<usize>>,
    /// Sizes of linear attention; zeros if there is none.
    pub state: StateSizes,
    /// Linformer: the number of projected positions; 0: no projection.
    pub projected_positions: usize,
}

/// Sanity limits for untrusted files; they bound the work of reading one.
const MAX_LAYERS: usize = 1024;
const MAX_COLUMNS: usize = 1 << 20;
const MAX_VOCABULARY: usize = 1 << 24;

/// The head sizes of linear attention layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateSizes {
    /// Query and key heads; divides the number of value heads.
    pub key_heads: usize,
    /// Value heads.
    pub value_heads: usize,
    /// Columns of a query and of a key.
    pub key_size: usize,
    /// Columns of a value.
    pub value_size: usize,
}

impl ModelConfig {
    /// Reads the hyperparameters that all models have. `feed_forward` returns the default for F, given D.
    pub fn read(config: &ConfigReader, feed_forward: impl Fn(usize) -> usize) -> Result<Self> {
        Self::of_side(config, "decoder", &feed_forward)
    }

    /// Reads those of the `encoder` or the `decoder` of an encoder–decoder model.
    // Not generic, because every family calls it: one instance keeps the binary small.
    #[inline(never)]
    pub fn of_side(config: &ConfigReader, side: &str, feed_forward: &dyn Fn(usize) -> usize) -> Result<Self> {
        let ours = |key: &str| key.replace("{}", side);
        let width = config.required(&["hidden_size", "n_embd", "d_model", "dim", "embedding_length"])?;
        let layers = config.required(&[
            &ours("{}_layers"),
            &ours("num_{}_layers"),
            &ours("{}_block_count"),
            "num_hidden_layers",
            "n_layer",
            "n_layers",
            "num_layers",
            "block_count",
        ])?;
        let own_heads = ours("{}_attention_heads");
        let head_keys =
            [&own_heads, "num_attention_heads", "n_head", "n_heads", "num_heads", "attention.head_count"];
        let heads = config.required(&head_keys)?;
        let kv_heads = config.count(&["num_key_value_heads", "attention.head_count_kv"])?.unwrap_or(heads);
        let head_size = head_size(config, width, heads, &head_keys)?;
        let feed_forward = config
            .count(&[
                &ours("{}_ffn_dim"),
                "intermediate_size",
                "n_inner",
                "ffn_dim",
                "hidden_dim",
                "d_ff",
                "feed_forward_length",
            ])?
            .unwrap_or_else(|| feed_forward(width));
        let vocabulary = config.required(&["vocab_size"])?;
        let context = config
            .count(&[
                "max_position_embeddings",
                "max_target_positions",
                "n_positions",
                "max_seq_len",
                "seq_length",
                "context_length",
            ])?
            .unwrap_or(2048);
        let context = super::rope_config::scaled_context(config, context)?;
        let epsilon = config
            .number(&[
                "rms_norm_eps",
                "layer_norm_eps",
                "layer_norm_epsilon",
                "norm_eps",
                "attention.layer_norm_rms_epsilon",
                "attention.layer_norm_epsilon",
            ])?
            .unwrap_or(1e-5) as f32;
        let model_config = Self {
            width,
            layers,
            heads,
            kv_heads,
            head_size,
            feed_forward,
            vocabulary,
            token_types: 0,
            context,
            encoder_context: context,
            features: 0,
            epsilon,
            windows: vec![None; layers.min(MAX_LAYERS)],
            state: StateSizes::default(),
            projected_positions: 0,
        };
        model_config.check()?;
        Ok(model_config)
    }

    /// Checks the sanity limits.
    pub(super) fn check(&self) -> Result<()> {
        let limits = [
            ("width", self.width, MAX_COLUMNS),
            ("layers", self.layers, MAX_LAYERS),
            ("heads", self.heads, 4096),
            ("head size", self.head_size, 4096),
            ("heads times head size", self.heads.saturating_mul(self.head_size), MAX_COLUMNS),
            ("feed-forward width", self.feed_forward, MAX_COLUMNS),
            ("vocabulary", self.vocabulary, MAX_VOCABULARY),
            ("context", self.context, 1 << 26),
        ];
        for (name, value, max) in limits {
            if value == 0 || value > max {
                return Err(Error::corrupt(
                    format!("config ({name})"),
                    format!("{value} is not within 1 to {max}"),
                ));
            }
        }
        if !(0.0..=1.0).contains(&self.epsilon) {
            let message = format!("{} is not within 0 to 1", self.epsilon);
            return Err(Error::corrupt("config (epsilon of norms)", message));
        }
        if self.kv_heads == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            return Err(Error::corrupt(
                "config (kv heads)",
                format!("{} query heads are not a multiple of {} KV heads", self.heads, self.kv_heads),
            ));
        }
        Ok(())
    }

    /// Returns the columns of all query heads together.
    pub fn query_columns(&self) -> usize {
        self.heads * self.head_size
    }

    /// Returns the columns of all KV heads together.
    pub fn kv_columns(&self) -> usize {
        self.kv_heads * self.head_size
    }

    /// Returns the default attention scale, 1/√E.
    pub fn attention_scale(&self) -> f32 {
        1.0 / (self.head_size as f32).sqrt()
    }

    /// Sets the configured sliding window, if any, for every layer for which `sliding(layer)` is true.
    ///
    /// A Hugging Face `layer_types` list takes precedence over `sliding`.
    pub fn slide(&mut self, config: &ConfigReader, sliding: impl Fn(usize) -> bool) -> Result<()> {
        let window = config.count(&["sliding_window", "attention.sliding_window"])?;
        self.slide_by(config, window.filter(|&window| window > 0), &sliding)
    }

    /// The same with a window passed by the caller.
    #[inline(never)]
    pub fn slide_by(
        &mut self,
        config: &ConfigReader,
        window: Option<usize>,
        sliding: &dyn Fn(usize) -> bool,
    ) -> Result<()> {
        let types = config.words(&["layer_types"])?;
        if let Some(types) = &types
            && types.len() != self.layers
        {
            return Err(Error::corrupt("config.layer_types", format!("expected {} entries", self.layers)));
        }
        for layer in 0..self.layers {
            let slides = match &types {
                Some(types) => match types[layer] {
                    "sliding_attention" => true,
                    "full_attention" => false,
                    other => {
                        return Err(Error::unsupported(
                            "config.layer_types",
                            format!("attention type '{other}' is not supported"),
                        ));
                    }
                },
                None => sliding(layer),
            };
            self.windows[layer] = window.filter(|_| slides);
        }
        Ok(())
    }
}

/// Returns the columns of a head, by default those of heads that divide `width`. `keys` are the names of `heads`.
fn head_size(config: &ConfigReader, width: usize, heads: usize, keys: &[&str]) -> Result<usize> {
    match config.count(&["head_dim", "d_kv", "attention.key_length"])? {
        Some(head_size) => Ok(head_size),
        None if width.is_multiple_of(heads) => Ok(width / heads),
        None => {
            let key = keys.iter().find(|key| config.get(key).is_some()).unwrap_or(&"heads");
            let message = format!("the width of {width} is not a multiple of {heads} heads");
            Err(Error::corrupt(format!("config.{key}"), message))
        }
    }
}

/// Returns the configured activation, or the family's default.
pub(super) fn activation(config: &ConfigReader, default: ActivationFunction) -> Result<ActivationFunction> {
    activation_of(config, &["hidden_activation", "hidden_act", "activation_function", "activation"], default)
}

/// Returns the activation configured under these keys, or `default`.
pub(super) fn activation_of(
    config: &ConfigReader,
    keys: &[&str],
    default: ActivationFunction,
) -> Result<ActivationFunction> {
    match config.word(keys)? {
        None => Ok(default),
        Some("silu" | "swish") => Ok(ActivationFunction::Silu),
        Some("gelu") => Ok(ActivationFunction::Gelu),
        Some("gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" | "gelu_tanh") => {
            Ok(ActivationFunction::GeluTanh)
        }
        Some("relu") => Ok(ActivationFunction::Relu),
        Some(other) => {
            let key = keys.iter().find(|key| config.get(key).is_some()).unwrap_or(&"hidden_act");
            Err(Error::unsupported(format!("config.{key}"), format!("activation '{other}' is not supported")))
        }
    }
}
