//! Mixes of K-quant types: most matrices get the type in the name, sensitive ones get more bits.
//!
//! The rules are those of `llama_tensor_get_type` in llama.cpp (`src/llama-quant.cpp`), without an importance matrix and
//! without those of Falcon, so that `q4_k_m` here is `Q4_K_M` there. Layers are counted per stack in encoder–decoder
//! models.

use siskin_graph::Weight;
use siskin_graph::arch::{Family, FamilyDescriptor, ModelConfig};
use siskin_kernels::quant::BlockType;

/// A mix of K-quant types, by llama.cpp's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantMix {
    /// `q2_k_s`
    Q2KS,
    /// `q3_k_s`
    Q3KS,
    /// `q3_k_m`
    Q3KM,
    /// `q3_k_l`
    Q3KL,
    /// `q4_k_s`
    Q4KS,
    /// `q4_k_m`
    Q4KM,
    /// `q5_k_s`
    Q5KS,
    /// `q5_k_m`
    Q5KM,
}

impl QuantMix {
    /// All mixes, with their names and the type of most matrices.
    const TABLE: [(Self, &'static str, BlockType); 8] = [
        (Self::Q2KS, "q2_k_s", BlockType::Q2_K),
        (Self::Q3KS, "q3_k_s", BlockType::Q3_K),
        (Self::Q3KM, "q3_k_m", BlockType::Q3_K),
        (Self::Q3KL, "q3_k_l", BlockType::Q3_K),
        (Self::Q4KS, "q4_k_s", BlockType::Q4_K),
        (Self::Q4KM, "q4_k_m", BlockType::Q4_K),
        (Self::Q5KS, "q5_k_s", BlockType::Q5_K),
        (Self::Q5KM, "q5_k_m", BlockType::Q5_K),
    ];

    /// Returns the names of all mixes.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::TABLE.iter().map(|(_, name, _)| *name)
    }

    /// Returns the mix with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let row = Self::TABLE.iter().find(|(_, known, _)| known.eq_ignore_ascii_case(name))?;
        Some(row.0)
    }

    /// Returns the name, as used on the command line.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Returns the type of most matrices.
    pub fn base(self) -> BlockType {
        self.row().2
    }

    fn row(self) -> (Self, &'static str, BlockType) {
        Self::TABLE[self as usize]
    }

    /// Returns the type of a matrix whose source has type `source`.
    pub(super) fn choose(self, name: &str, source: BlockType, layout: &MixLayout) -> BlockType {
        match MatrixCategory::of(name) {
            MatrixCategory::Output => BlockType::Q6_K,
            MatrixCategory::Embedding if layout.is_tied => BlockType::Q6_K,
            MatrixCategory::Unquantized => source,
            MatrixCategory::AttentionValue => self.attention_value(name, layout),
            MatrixCategory::AttentionKey if layout.experts == 8 => BlockType::Q8_0,
            MatrixCategory::FeedForwardDown => self.feed_forward_down(name, layout),
            MatrixCategory::AttentionOutput => self.attention_output(layout),
            _ => self.base(),
        }
    }

    fn attention_value(self, name: &str, layout: &MixLayout) -> BlockType {
        let (index, count) = layout.value_tensor(name);
        let chosen = match self {
            Self::Q2KS if layout.group_size >= 4 => BlockType::Q4_K,
            Self::Q3KM if index < 2 => BlockType::Q5_K,
            Self::Q3KM => BlockType::Q4_K,
            Self::Q3KL => BlockType::Q5_K,
            Self::Q4KM | Self::Q5KM if uses_more_bits(index, count) => BlockType::Q6_K,
            Self::Q4KS if index < 4 => BlockType::Q5_K,
            _ => self.base(),
        };
        match chosen {
            _ if layout.experts == 8 => BlockType::Q8_0,
            BlockType::Q3_K | BlockType::Q4_K if layout.has_many_layers => BlockType::Q5_K,
            _ => chosen,
        }
    }

    fn feed_forward_down(self, name: &str, layout: &MixLayout) -> BlockType {
        let (layer, layers) = (layer_of(name), layout.layers);
        match self {
            Self::Q2KS if layer < layers / 8 => BlockType::Q4_K,
            Self::Q3KM if layer < layers / 16 => BlockType::Q5_K,
            Self::Q3KM => BlockType::Q4_K,
            Self::Q3KL => BlockType::Q5_K,
            Self::Q4KM | Self::Q5KM if uses_more_bits(layer, layers) => BlockType::Q6_K,
            Self::Q4KS if layer < layers / 8 => BlockType::Q5_K,
            _ => self.base(),
        }
    }

    fn attention_output(self, layout: &MixLayout) -> BlockType {
        match self {
            Self::Q3KS | Self::Q3KM | Self::Q4KS | Self::Q4KM if layout.experts == 8 => BlockType::Q5_K,
            Self::Q3KM if layout.experts != 8 => BlockType::Q4_K,
            Self::Q3KL if layout.experts != 8 => BlockType::Q5_K,
            _ => self.base(),
        }
    }
}

/// Returns whether a layer gets more bits: the first and the last eighth, and every third layer between them.
fn uses_more_bits(layer: usize, layers: usize) -> bool {
    let first = layers / 8;
    layer < first || layer >= 7 * layers / 8 || (layer - first) % 3 == 2
}

/// What a matrix is used for, as far as its type depends on it.
#[derive(Clone, Copy, PartialEq)]
enum MatrixCategory {
    Embedding,
    Output,
    AttentionKey,
    AttentionValue,
    AttentionOutput,
    FeedForwardDown,
    /// Small matrices that keep the type of the source.
    Unquantized,
    Other,
}

impl MatrixCategory {
    fn of(name: &str) -> Self {
        let part = name.rsplit('.').nth(1).unwrap_or_default();
        match part {
            "token_embd" => Self::Embedding,
            "output" => Self::Output,
            "position_embd" | "token_types" => Self::Unquantized,
            "attn_k" => Self::AttentionKey,
            "attn_v" | "attn_qkv" | "attn_kv_b" => Self::AttentionValue,
            "attn_output" => Self::AttentionOutput,
            part if part.starts_with("ffn_down") => Self::FeedForwardDown,
            _ => Self::Other,
        }
    }
}

/// Returns the layer in a name such as `blk.3.attn_v.weight`.
fn layer_of(name: &str) -> usize {
    let mut parts = name.split('.').skip_while(|part| *part != "blk");
    parts.nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Returns the stack in a name: `enc.` in `enc.blk.3.attn_v.weight`, empty for models of one stack.
fn stack_of(name: &str) -> &str {
    name.split("blk.").next().unwrap_or_default()
}

/// The properties of a model that a mix depends on.
pub(super) struct MixLayout {
    layers: usize,
    /// The names of the matrices of values, in the order of the layers. Layers with linear attention may have none.
    value_tensors: Vec<String>,
    /// Query heads per key/value head.
    group_size: usize,
    experts: usize,
    /// Whether the token embeddings are also the LM head.
    is_tied: bool,
    has_many_layers: bool,
}

impl MixLayout {
    pub(super) fn new(family: &Family, config: &ModelConfig, weights: &[&Weight]) -> Self {
        let named = |part: &str| weights.iter().find(|weight| weight.name.rsplit('.').nth(1) == Some(part));
        let values = weights
            .iter()
            .filter(|weight| MatrixCategory::of(&weight.name) == MatrixCategory::AttentionValue);
        let mut value_tensors: Vec<String> = values
            .filter(|weight| weight.name.ends_with(".weight"))
            .map(|weight| weight.name.clone())
            .collect();
        value_tensors.sort_by_key(|name| layer_of(name));
        Self {
            layers: config.layers,
            value_tensors,
            group_size: config.heads / config.kv_heads.max(1),
            experts: named("ffn_gate_inp").map_or(0, |router| router.rows),
            is_tied: named("output").is_none(),
            has_many_layers: FamilyDescriptor::named(family.name)
                .is_ok_and(|descriptor| descriptor.gguf.keys.many_layers == Some(config.layers))
                && config.heads != config.kv_heads,
        }
    }

    /// Returns the index of a matrix of values in its stack, and their number there.
    fn value_tensor(&self, name: &str) -> (usize, usize) {
        let in_stack = || self.value_tensors.iter().filter(|known| stack_of(known) == stack_of(name));
        let index = in_stack().position(|known| known == name);
        (index.unwrap_or_else(|| layer_of(name)), in_stack().count().max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(layers: usize) -> MixLayout {
        MixLayout {
            layers,
            value_tensors: (0..layers).map(|layer| format!("blk.{layer}.attn_v.weight")).collect(),
            group_size: 4,
            experts: 0,
            is_tied: false,
            has_many_layers: false,
        }
    }

    fn chosen(mix: &str, name: &str, layout: &MixLayout) -> &'static str {
        QuantMix::from_name(mix).unwrap().choose(name, BlockType::F16, layout).name()
    }

    /// The layers of Llama 2 7B, of 32 layers, whose types `llama-quantize` prints.
    #[test]
    fn layers_with_more_bits_are_those_of_llama_cpp() {
        let layers: Vec<usize> = (0..32).filter(|&layer| uses_more_bits(layer, 32)).collect();
        assert_eq!(layers, [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]);
    }

    #[test]
    fn stacks_are_counted_apart() {
        let names = |stack: &str| (0..8).map(|layer| format!("{stack}.blk.{layer}.attn_v.weight")).collect();
        let layers: [Vec<String>; 2] = ["dec", "enc"].map(names);
        let layout = MixLayout { value_tensors: layers.concat(), ..layout(8) };
        for stack in ["dec", "enc"] {
            let name = |layer: usize| format!("{stack}.blk.{layer}.attn_v.weight");
            let types = [0, 1, 2, 3, 7].map(|layer| chosen("q4_k_m", &name(layer), &layout));
            assert_eq!(types, ["Q6_K", "Q4_K", "Q4_K", "Q6_K", "Q6_K"], "{stack}");
        }
    }

    #[test]
    fn mixes_choose_types_by_name_and_layer() {
        let layout = layout(32);
        for (mix, name, want) in [
            ("q4_k_m", "token_embd.weight", "Q4_K"),
            ("q4_k_m", "output.weight", "Q6_K"),
            ("q4_k_m", "blk.0.attn_v.weight", "Q6_K"),
            ("q4_k_m", "blk.4.attn_v.weight", "Q4_K"),
            ("q4_k_m", "blk.6.ffn_down.weight", "Q6_K"),
            ("q4_k_m", "blk.7.ffn_down.weight", "Q4_K"),
            ("q4_k_m", "blk.0.attn_q.weight", "Q4_K"),
            ("q4_k_m", "blk.0.attn_output.weight", "Q4_K"),
            ("q4_k_m", "position_embd.weight", "F16"),
            ("q4_k_s", "blk.3.attn_v.weight", "Q5_K"),
            ("q4_k_s", "blk.4.attn_v.weight", "Q4_K"),
            ("q4_k_s", "blk.3.ffn_down.weight", "Q5_K"),
            ("q4_k_s", "blk.4.ffn_down.weight", "Q4_K"),
            ("q5_k_m", "blk.31.ffn_down.weight", "Q6_K"),
            ("q5_k_s", "blk.31.ffn_down.weight", "Q5_K"),
            ("q3_k_m", "blk.1.attn_v.weight", "Q5_K"),
            ("q3_k_m", "blk.2.attn_v.weight", "Q4_K"),
            ("q3_k_m", "blk.1.ffn_down.weight", "Q5_K"),
            ("q3_k_m", "blk.2.ffn_down.weight", "Q4_K"),
            ("q3_k_m", "blk.2.attn_output.weight", "Q4_K"),
            ("q3_k_l", "blk.2.attn_output.weight", "Q5_K"),
            ("q3_k_s", "blk.2.attn_v.weight", "Q3_K"),
            ("q2_k_s", "blk.9.attn_v.weight", "Q4_K"),
            ("q2_k_s", "blk.9.ffn_down.weight", "Q2_K"),
        ] {
            assert_eq!(chosen(mix, name, &layout), want, "{mix}: {name}");
        }
    }

    #[test]
    fn tied_embeddings_and_experts_get_more_bits() {
        let tied = MixLayout { is_tied: true, ..layout(32) };
        assert_eq!(chosen("q4_k_m", "token_embd.weight", &tied), "Q6_K");
        let mixtral = MixLayout { experts: 8, ..layout(32) };
        for (name, want) in [
            ("blk.4.attn_v.weight", "Q8_0"),
            ("blk.4.attn_k.weight", "Q8_0"),
            ("blk.4.attn_output.weight", "Q5_K"),
            ("blk.4.ffn_down_exps.weight", "Q4_K"),
            ("blk.3.ffn_down_exps.weight", "Q6_K"),
        ] {
            assert_eq!(chosen("q4_k_m", name, &mixtral), want, "{name}");
        }
        let large = MixLayout { has_many_layers: true, ..layout(80) };
        assert_eq!(chosen("q4_k_m", "blk.10.attn_v.weight", &large), "Q5_K");
    }
}
